"""The allocator's context: threads, tasks, nesting, forks."""

from conftest import Fresh

CONNECTED = """
loam.connect("32M", lenders=LENDER, durability="none")
ours = lambda: loam.is_borrowed(np.empty(1 << 16))
"""


def test_nesting_and_exceptions(fresh: Fresh) -> None:
    fresh(
        CONNECTED
        + """
allocator = loam.allocator()
assert not ours()
with allocator:
    assert ours()
    with allocator, loam.allocator():
        assert ours() and loam.is_borrowed(loam.empty(1 << 16))
        assert ours()
    assert ours()
    try:
        with allocator:
            raise KeyError
    except KeyError:
        assert ours()
assert not ours()

@loam.allocator()
def decorated():
    return ours()
assert decorated() and decorated() and not ours()

try:
    allocator.__exit__(None, None, None)
except RuntimeError as error:
    assert "another context" in str(error)
else:
    raise AssertionError("left without having entered")
"""
    )


def test_another_allocator_is_restored(fresh: Fresh) -> None:
    fresh(
        CONNECTED
        + """
try:
    from numpy._core.multiarray import get_handler_name
except ImportError:
    from numpy.core.multiarray import get_handler_name
assert get_handler_name() == "default_allocator"
with loam.allocator():
    a = np.empty(1 << 16)
    assert get_handler_name() == "loam" == get_handler_name(a)
assert get_handler_name() == "default_allocator" and get_handler_name(a) == "loam"
assert get_handler_name(loam.empty(1 << 16)) == "loam_strict"
"""
    )


def test_tasks_have_contexts_of_their_own(fresh: Fresh) -> None:
    fresh(
        CONNECTED
        + """
import asyncio

async def borrows(shared, turns):
    with shared:
        for _ in range(turns):
            assert ours()
            await asyncio.sleep(0)
    assert not ours()

async def does_not(turns):
    for _ in range(turns):
        assert not ours()
        await asyncio.sleep(0)

async def main():
    shared = loam.allocator()
    await asyncio.gather(borrows(shared, 50), does_not(60), borrows(shared, 20))
    with shared:
        inner = asyncio.ensure_future(asyncio.sleep(0, result=None))
        await inner
        async def child():
            return ours()
        assert await asyncio.ensure_future(child()), "a task has a copy of the context that made it"

asyncio.run(main())
assert not ours()
"""
    )


def test_threads(fresh: Fresh) -> None:
    fresh(
        CONNECTED
        + """
import contextvars
from concurrent.futures import ThreadPoolExecutor

def work(seed):
    with loam.allocator():
        rng = np.random.default_rng(seed)
        total = 0
        for _ in range(3):
            a = rng.integers(0, 1000, 1 << 19)          # 4 MiB, eight threads: twice the budget
            b = np.sort(a)
            assert loam.is_borrowed(a) and loam.is_borrowed(b)
            assert (np.diff(b) >= 0).all()
            total += int(b.sum()) - int(a.sum())
    return total, a

with ThreadPoolExecutor(8) as pool:
    ended = list(pool.map(work, range(16)))
assert [total for total, _ in ended] == [0] * 16
# Freed by another thread than that which made them.
assert loam.stats()["numpy"]["live_allocations"] == 16
del ended
assert loam.stats()["numpy"]["live_allocations"] == 0

with loam.allocator(), ThreadPoolExecutor(1) as pool:
    assert pool.submit(contextvars.copy_context().run, ours).result()
"""
    )


def test_forked_children(fresh: Fresh) -> None:
    out = fresh(
        CONNECTED
        + """
import os
a = loam.array(np.arange(6 << 20))                  # 48 MiB, of which 32 are here
expected = int(a.sum())
for turn in range(2):
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            assert int(a.sum()) == expected
            a += 1
            with loam.allocator():
                b = a * 2
            assert loam.is_borrowed(b) and int(b.sum()) == 2 * (expected + a.size)
            assert loam.stats()["connected"] and loam.connect("32M", lenders=LENDER, durability="none") is False
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
    assert int(a.sum()) == expected, "what a child does is not seen here"
    assert loam.stats()["processes"] == 2 + turn
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    print("no child left")
"""
    )
    assert out == "no child left\n", "the agent is not the program's child"


def test_multiprocessing(fresh: Fresh) -> None:
    fresh(
        CONNECTED
        + """
import multiprocessing as mp
a = loam.array(np.arange(4 << 20))
def part(n):
    return int(a[n::4].sum())
with mp.get_context("fork").Pool(2) as pool:
    assert sum(pool.map(part, range(4))) == int(a.sum())
"""
    )
