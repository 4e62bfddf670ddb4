"""NumPy on arrays of four times the local budget: bit by bit what plain NumPy has."""

import textwrap

import pytest
from conftest import Fresh

#: One program for all: 128 MiB of numbers, of which 32 may be here.
CONNECTED = """
import hashlib
loam.connect("32M", lenders=LENDER, durability="none")
def digest(array):
    return hashlib.blake2b(np.ascontiguousarray(array)).hexdigest()
def faults():
    return loam.stats()["faults"]["total"]
"""

OPERATIONS = {
    "sum": """
        make = lambda: np.random.default_rng(7).random(16 << 20)
        work = lambda a: a.sum()
    """,
    "sum_of_columns": """
        make = lambda: np.random.default_rng(7).random((1 << 12, 1 << 12), dtype=np.float64)
        work = lambda a: a.sum(axis=0)
    """,
    "matmul": """
        make = lambda: np.random.default_rng(7).random((2, 512, 16384))
        work = lambda a: a[0] @ a[1].T
    """,
    "sort": """
        make = lambda: np.random.default_rng(7).random(16 << 20)
        work = np.sort
    """,
    "sort_of_integers_in_place": """
        make = lambda: np.random.default_rng(7).integers(0, 1 << 40, 16 << 20)
        def work(a):
            a.sort(kind="stable")
            return a
    """,
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_results_are_those_of_plain_numpy(fresh: Fresh, operation: str) -> None:
    fresh(
        CONNECTED
        + textwrap.dedent(OPERATIONS[operation])
        + textwrap.dedent("""
        with loam.allocator():
            a = make()
            assert loam.is_borrowed(a) and a.nbytes >= 128 << 20, a.nbytes
            before = faults()
            borrowed = work(a)
        assert faults() > before, "nothing was away"
        stats = loam.stats()
        assert stats["remote_bytes"] > 64 << 20, stats
        assert stats["numpy"]["unserved"] == 0, stats
        borrowed = digest(borrowed)
        del a
        plain = digest(work(make()))
        assert borrowed == plain
        """)
    )


def test_at_most_the_budget_is_here(fresh: Fresh) -> None:
    fresh("""
        import re
        loam.connect("32M", lenders=LENDER, durability="none")
        a = loam.zeros(16 << 20)
        assert resident(a) == 0, "zeros take no memory until they are touched"
        for turn in range(3):
            a += 1
            assert resident(a) <= 10240, resident(a)
        assert (a == 3).all()
    """)


def test_small_arrays_are_ordinary(fresh: Fresh) -> None:
    fresh("""
        loam.connect("32M", lenders=LENDER, durability="none", min_alloc="64K")
        with loam.allocator():
            assert not loam.is_borrowed(np.ones(8191)) and loam.is_borrowed(np.ones(8192))
        assert loam.stats()["numpy"]["min_alloc_bytes"] == 65536
        many = []
        with loam.allocator():
            for n in range(20_000):
                many.append(np.full(n % 100, n))
        assert all((array == n).all() for n, array in enumerate(many))
        assert loam.stats()["numpy"]["live_allocations"] == 0
    """)


def test_room_comes_back(fresh: Fresh) -> None:
    fresh("""
        import gc
        loam.connect("32M", region="256M", lenders=LENDER, durability="none")
        numpy = lambda: loam.stats()["numpy"]
        for turn in range(20):
            with loam.allocator():
                a = np.full(12 << 20, turn, dtype=np.float64)   # 96 MiB: two fit
                view = a[5:].reshape(-1, 1)
            assert numpy()["live_allocations"] == 1
            del a
            assert numpy()["live_bytes"] == 96 << 20, "a view keeps it"
            assert view[-1, 0] == turn
            del view
        assert numpy() == {
            "allocations": 20, "allocated_bytes": 20 * (96 << 20), "live_allocations": 0, "live_bytes": 0,
            "unserved": 0, "unserved_bytes": 0, "min_alloc_bytes": 262144,
        }, numpy()
        assert loam.stats()["region"]["full"] == 0
        # What is in a cycle is freed when that is collected.
        cycle = [loam.empty(1 << 18)]
        cycle.append(cycle)
        del cycle
        gc.collect()
        assert numpy()["live_allocations"] == 0
    """)


def test_a_full_region(fresh: Fresh) -> None:
    fresh("""
        loam.connect("32M", region="64M", lenders=LENDER, durability="none")
        one = loam.zeros(6 << 20)
        try:
            loam.empty(6 << 20)
        except MemoryError as error:
            assert "48.0 MiB" in str(error), error
        else:
            raise AssertionError("it does not fit")
        with loam.allocator():
            two = np.ones(6 << 20)
        assert not loam.is_borrowed(two) and two.sum() == 6 << 20
        numpy = loam.stats()["numpy"]
        assert numpy["unserved"] == 2 and numpy["unserved_bytes"] == 96 << 20, numpy
        del one
        assert loam.is_borrowed(loam.empty(6 << 20))
    """)


def test_advice(fresh: Fresh) -> None:
    fresh("""
        import time
        loam.connect("64M", lenders=LENDER, durability="none")
        evictions = lambda: loam.stats()["evictions"]
        a = loam.zeros(12 << 20, dtype=np.int64)   # 96 MiB, of which two thirds may be here
        for part in range(12):
            a[part << 20 : part + 1 << 20] = np.arange(part << 20, part + 1 << 20)
        loam.advise(a, "will_not_need")
        until = time.monotonic() + 30
        while evictions()["moved"] < 24000 and time.monotonic() < until:
            time.sleep(0.05)
        assert evictions()["moved"] >= 24000 and evictions()["advised"] > 5000, evictions()
        # Seven MiB of it come back before they are touched: hardly a fault is left for them.
        fetched = lambda: loam.stats()["bytes"]["in"]
        before = fetched()
        loam.advise(a[: 7 << 17], "will_need")
        until = time.monotonic() + 30
        while fetched() < before + (6 << 20) and time.monotonic() < until:
            time.sleep(0.05)
        assert fetched() >= before + (6 << 20), (before, fetched())
        for part in (a[: 1 << 20], a[::-2][:1000], a.reshape(3072, -1)[:, 7], a[:0]):
            loam.advise(part, "will_need")
        assert a.sum() == (12 << 20) * ((12 << 20) - 1) // 2
        for say, word in ((loam.advise, "soon"), (loam.prioritize, "highest")):
            try:
                say(a, word)
            except ValueError as error:
                assert word in str(error)
            else:
                raise AssertionError("no such word")
    """)


def test_advice_that_holds(fresh: Fresh) -> None:
    fresh("""
        import time
        loam.connect("64M", lenders=LENDER, durability="none", flags=["--page", "64K"])
        a = loam.array(np.arange(12 << 20))        # 96 MiB, of which two thirds may be here
        loam.advise(a, "will_not_need")
        until = time.monotonic() + 30
        while resident(a) > 100 and time.monotonic() < until:
            time.sleep(0.05)
        # In no order: a page of 4 KiB for each fault. Taken back: 64 KiB, and what lies ahead.
        loam.advise(a, "random")
        before = faults()
        a[: 1 << 19 : 512].sum()
        # (At its ends pages of 64 KiB are not all its own, and have stayed.)
        assert 1000 <= faults() - before <= 1024 and resident(a[: 1 << 20]) == 1024, (faults() - before, resident(a[: 1 << 20]))
        loam.advise(a, "normal")
        before = faults()
        a[1 << 20 : 1 << 21 : 512].sum()
        assert faults() - before <= 128
        # What is worth more stays, and what less leaves.
        del a
        high, low = loam.zeros(3 << 20, np.int64), loam.zeros(3 << 20, np.int64)
        loam.prioritize(high, "high")
        loam.prioritize(low, "low")
        loam.advise(low[::2], "sequential")
        high += 1
        low += 2
        normal = loam.zeros(6 << 20, np.int64)
        normal += 3
        time.sleep(0.2)
        assert resident(high) > 4500 and resident(low) < 1500, (resident(high), resident(low))
        assert (high == 1).all() and (low == 2).all() and (normal == 3).all()
    """)


def test_terms(fresh: Fresh) -> None:
    fresh("""
        import time
        loam.connect("64M", lenders=LENDER, durability="none")
        def settles(array, pages):
            until = time.monotonic() + 30
            while resident(array) > pages and time.monotonic() < until:
                time.sleep(0.05)
            assert resident(array) <= pages, resident(array)
        # There is room for both: one has a budget, and the other stays.
        kept, capped = loam.zeros(2 << 20, np.int64), loam.zeros(3 << 20, np.int64)
        kept += 1
        loam.set_terms(capped, local="4M")
        capped += 2
        settles(capped, 1024)
        assert resident(kept) == 4096 and resident(capped) > 700, (resident(kept), resident(capped))
        assert (capped == 2).all() and (kept == 1).all()
        # All of it has left, and comes in pages of a size of its own.
        loam.set_terms(capped, page="64K", plan="full")
        loam.advise(capped, "random")
        loam.advise(capped, "will_not_need")
        settles(capped, 40)
        before = faults()
        capped[1 << 20 : 2 << 20 : 512].sum()
        assert 127 <= faults() - before <= 140, faults() - before
        loam.set_terms(capped)
        assert (capped == 2).all()
        for wrong, word in (({"page": 5000}, "5000"), ({"plan": "quick"}, "quick"), ({"local": "much"}, "much")):
            try:
                loam.set_terms(capped, **wrong)
            except ValueError as error:
                assert word in str(error), error
            else:
                raise AssertionError(wrong)
    """)


def test_arrays_grow_and_shrink(fresh: Fresh) -> None:
    fresh("""
        loam.connect("32M", lenders=LENDER, durability="none")
        live = lambda: loam.stats()["numpy"]["live_allocations"]
        with loam.allocator():
            a = np.arange(1000.0)
            assert not loam.is_borrowed(a)
            for count in (100_000, 4_000_000, 9_000_000, 50_000, 10, 200_000, 0, 100_000):
                old = a.copy()
                a.resize(count, refcheck=False)
                common = min(old.size, count)
                assert (a[:common] == old[:common]).all() and not a[common:].any(), count
                assert loam.is_borrowed(a) == (a.nbytes >= 262144), count
                del old
        assert live() == 1
        a.resize(10, refcheck=False)      # outside of the context: an array keeps its allocator
        assert live() == 0
        a.resize(1 << 20, refcheck=False)
        assert live() == 1 and loam.is_borrowed(a)
        with loam.allocator():
            b = np.fromiter((n * 0.5 for n in range(300_000)), float)
        assert loam.is_borrowed(b) and b[-1] == 149_999.5
        del a, b
        assert live() == 0 and loam.stats()["numpy"]["live_bytes"] == 0
    """)


def test_arrays_by_name(fresh: Fresh) -> None:
    fresh("""
        loam.connect("32M", lenders=LENDER, durability="none")
        a = loam.empty((256, 1024), np.float32, "F")
        assert a.shape == (256, 1024) and a.dtype == np.float32 and a.flags.f_contiguous and loam.is_borrowed(a)
        assert not loam.zeros((3, 1 << 18), int).any()
        plain = np.arange(1 << 18)
        copy = loam.array(plain, np.int16)
        assert copy.dtype == np.int16 and (copy == plain.astype(np.int16)).all() and loam.is_borrowed(copy)
        assert not loam.is_borrowed(loam.array([1, 2, 3]))
        # What comes of a borrowed array outside of the context is ordinary.
        assert not loam.is_borrowed(copy + 1)
    """)


def test_arrays_are_saved_and_sent(fresh: Fresh, tmp_path: object) -> None:
    fresh(f"""
        import pickle
        loam.connect("32M", lenders=LENDER, durability="none")
        a = loam.array(np.arange(8 << 20))                     # 64 MiB
        np.save(r"{tmp_path}/a.npy", a)                        # the kernel reads what is away
        with loam.allocator():
            b = np.load(r"{tmp_path}/a.npy")                   # and writes it
            c = pickle.loads(pickle.dumps(a, protocol=5))
        assert loam.is_borrowed(b)
        assert (a == b).all() and (a == c).all()
    """)


def test_pandas(fresh: Fresh) -> None:
    pytest.importorskip("pandas")
    fresh("""
        import pandas as pd
        def work():
            rng = np.random.default_rng(3)
            table = pd.DataFrame({"key": rng.integers(0, 1000, 2 << 20), "value": rng.random(2 << 20)})
            table["twice"] = table["value"] * 2
            grouped = table.groupby("key").agg({"value": "sum", "twice": "max"})
            ordered = table.sort_values(["key", "value"]).reset_index(drop=True)
            joined = ordered.merge(grouped, left_on="key", right_index=True)
            return grouped, joined
        plain = work()
        loam.connect("32M", lenders=LENDER, durability="none")
        with loam.allocator():
            borrowed = work()
        stats = loam.stats()
        assert stats["numpy"]["live_bytes"] > 64 << 20, stats["numpy"]
        assert stats["faults"]["total"] > 0
        for ours, theirs in zip(borrowed, plain):
            pd.testing.assert_frame_equal(ours, theirs, check_exact=True)
    """)
