"""Connecting, and what goes wrong: an exception with one line each."""

import json
import time
from pathlib import Path

import pytest
from conftest import Fresh
from loam._size import size_bytes


def test_before_connecting(fresh: Fresh) -> None:
    fresh("""
        assert not loam.is_connected()
        def enter():
            with loam.allocator():
                pass
        for attempt in (lambda: loam.empty(10), lambda: loam.zeros(10), lambda: loam.array([1]), enter):
            try:
                attempt()
            except loam.NotConnectedError as error:
                assert isinstance(error, loam.Error) and "call connect" in str(error)
            else:
                raise AssertionError("nothing was connected")
        assert loam.stats()["connected"] is False and not loam.is_borrowed(np.ones(1 << 20))
        loam.part(3)
    """)


def test_connecting_twice(fresh: Fresh) -> None:
    fresh("""
        options = dict(local="32M", lenders=[LENDER], durability="none")
        assert loam.connect(**options) is True and loam.is_connected()
        a = loam.array(np.arange(1 << 18))
        assert loam.connect(**options) is False and a[-1] == (1 << 18) - 1
        try:
            loam.connect("48M", lenders=[LENDER], durability="none")
        except loam.Error as error:
            assert "connected already, with local=33554432" in str(error), error
        else:
            raise AssertionError("other options")
        assert loam.is_borrowed(loam.empty(1 << 18, local="64M")), "the budget is the process's"
    """)


def test_an_array_that_connects(fresh: Fresh) -> None:
    """Without lenders: whoever lends in this machine's cluster, or its disk."""
    fresh("""
        a = loam.zeros(128 << 20, np.uint8, local="32M")
        a[:] = 7
        assert loam.is_connected() and loam.stats()["local_limit_bytes"] == 32 << 20
        assert a.sum() == 7 << 27 and loam.stats()["faults"]["total"] > 0
    """)


def test_threads_that_connect_at_once(fresh: Fresh) -> None:
    fresh("""
        from concurrent.futures import ThreadPoolExecutor
        with ThreadPoolExecutor(8) as pool:
            said = list(pool.map(lambda _: loam.connect("32M", lenders=LENDER, durability="none"), range(8)))
        assert sorted(said) == [False] * 7 + [True]
    """)


def test_no_lender(fresh: Fresh) -> None:
    fresh("""
        try:
            loam.connect("32M", lenders="127.0.0.1:1", durability="none")
        except loam.RefusedError as error:
            assert "no lender can be reached" in str(error), error
        else:
            raise AssertionError("nobody lends there")
        assert not loam.is_connected()
        # Nothing has changed: the next attempt may be better.
        assert loam.connect("32M", lenders=LENDER, durability="none")
        assert loam.array(np.arange(1 << 20)).sum() == (1 << 20) * ((1 << 20) - 1) // 2
    """)


def test_no_command(fresh: Fresh) -> None:
    fresh(
        """
        try:
            loam.connect("32M", lenders=LENDER)
        except loam.InstallationError as error:
            assert "/no/such/loam" in str(error), error
        else:
            raise AssertionError("there is no such command")
        """,
        LOAM="/no/such/loam",
    )


def test_arguments_that_cannot_be(fresh: Fresh) -> None:
    fresh("""
        for kind, options in (
            (ValueError, dict(local="25%")),
            (ValueError, dict(local=0)),
            (ValueError, dict(local=-1)),
            (ValueError, dict(local="32M", min_alloc=4095)),
            (TypeError, dict(local=1.5)),
            (TypeError, dict(local=True)),
            (loam.RefusedError, dict(local="32M", region="1K", lenders=LENDER)),
            (loam.Error, dict(local="32M", durability="perhaps", lenders=LENDER)),
        ):
            try:
                loam.connect(**options)
            except kind as error:
                assert str(error) and "\\n" not in str(error), error
            else:
                raise AssertionError(options)
            assert not loam.is_connected()
    """)


def test_sizes() -> None:
    for text, value in {"512M": 512 << 20, "4g": 4 << 30, "1.5KiB": 1536, " 7 ": 7, "7b": 7, "2TB": 2 << 40, "7.0": 7}.items():
        assert size_bytes(text, "local") == value
    for text in ("", "M", "1.23456G", "1.5", "7.5B", "1 G", "0x10", "٣M", "-4K", "99999999T"):
        with pytest.raises(ValueError):
            size_bytes(text, "local")


def test_figures(fresh: Fresh, tmp_path: Path) -> None:
    summary = tmp_path / "summary.json"
    fresh(f"""
        loam.connect("32M", lenders=LENDER, durability="none", flags=["--summary", r"{summary}"])
        with loam.allocator():
            a = np.arange(16 << 20)
        assert a.sum() > 0
        stats = loam.stats()
        assert stats["connected"] and stats["local_limit_bytes"] == 32 << 20
        assert stats["faults"]["remote"] > 0 and stats["bytes"]["out"] >= 64 << 20, stats
        assert stats["region"]["allocations"] == stats["numpy"]["allocations"] == 1
        assert [lender["addr"] for lender in stats["lenders"]] == [LENDER]
        assert stats["warnings"] == [], stats["warnings"]
    """)
    for _ in range(100):
        if summary.is_file() and summary.stat().st_size:
            break
        time.sleep(0.1)
    assert json.loads(summary.read_text())["bytes"]["out"] >= 64 << 20


def test_under_loam_run(fresh: Fresh, loam_bin: Path) -> None:
    """The same program, started by `loam run`: its options hold, and `connect` does nothing."""
    code = """
        assert loam.is_connected() and loam.connect("1T", lenders="127.0.0.1:1") is False
        with loam.allocator():
            a = np.arange(16 << 20)
            assert loam.is_borrowed(a) == {region}
        b = loam.zeros(1 << 20)
        assert int(a.sum()) == (16 << 20) * ((16 << 20) - 1) // 2 and not b.any()
        stats = loam.stats()
        assert stats["faults"]["total"] > 0 and stats["local_limit_bytes"] == 64 << 20, stats
    """
    run = [str(loam_bin), "run", "--quiet", "--local", "64M", "--lender", fresh.lender, "--durability", "none"]
    # From which size on arrays are borrowed is what the run was started with, not what `connect` would have said.
    least = """
        with loam.allocator():
            assert loam.is_borrowed(np.ones(1 << 17)) and not loam.is_borrowed(np.ones((1 << 17) - 1))
        numpy = loam.stats()["numpy"]
        assert numpy["min_alloc_bytes"] == 1 << 20 and numpy["unserved"] == 0, numpy
    """
    ended = fresh.run(least, prefix=[*run, "--region", "2G", "--min-alloc", "1M", "--"])
    assert ended.code == 0, ended.stderr
    for region, flags in ((False, []), (True, ["--region", "2G"])):
        ended = fresh.run(code.format(region=region), prefix=[*run, *flags, "--"])
        assert ended.code == 0, ended.stderr
