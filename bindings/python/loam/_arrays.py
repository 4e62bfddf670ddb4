"""Arrays whose memory is borrowed."""

from contextlib import ContextDecorator
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Any, Optional, Tuple, Type

import numpy as np

from . import _native
from ._connect import connect
from ._size import Size, size_bytes

if TYPE_CHECKING:
    from typing import Literal

    from numpy.typing import ArrayLike, DTypeLike, NDArray

    from ._native import Handler

    _Advice = Literal["will_need", "will_not_need", "sequential", "random", "normal"]
    _Priority = Literal["low", "normal", "high"]
    _Plan = Literal["lazy", "full", "eager", "pipelined", "pipelined-doubled", "pipelined-beside", "learned"]
    _Order = Literal["C", "F"]
    _Before = Optional[Tuple[Handler, Any]]

__all__ = ["advise", "allocator", "array", "empty", "is_borrowed", "prioritize", "set_terms", "zeros"]

_ADVICE = ("will_need", "will_not_need", "sequential", "random", "normal")
_PRIORITIES = ("low", "normal", "high")

#: The handlers that were there before, innermost first. Of the context, as NumPy's own variable is: so one object may be entered by several tasks.
_before: "ContextVar[_Before]" = ContextVar("loam_handlers_before", default=None)


def _enter(strict: bool) -> None:
    _before.set((_native.enter_handler(strict), _before.get()))


def _leave() -> None:
    before = _before.get()
    if before is None:
        raise RuntimeError("loam.allocator: left in another context (contextvars) than it was entered in")
    handler, outer = before
    _native.leave_handler(handler)
    _before.set(outer)


class allocator(ContextDecorator):
    """Within it, what NumPy allocates is borrowed: of ``min_alloc`` bytes and more (see :func:`connect`). So is what pandas and others allocate by NumPy.

    ::

        with loam.allocator():
            a = np.ones(1 << 24)
            b = np.sort(a)          # b, and what sorting allocates by NumPy
        b += 1                      # b is borrowed as long as it lives

    An array keeps its allocator: it may be used, grown and freed anywhere. What the region has no room for is ordinary memory, and counted in
    :func:`stats` (``numpy.unserved``). May be nested, used again, and used as a decorator of a function.

    It holds for the running *context* (:mod:`contextvars`): an asyncio task has a copy of that which made it. A new thread begins with NumPy's own
    allocator and enters for itself, or is given the context: ``contextvars.copy_context().run``.

    Raises:
        NotConnectedError: On entering: :func:`connect` comes first.
    """

    def __enter__(self) -> "allocator":
        _enter(strict=False)
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        _leave()


class _strictly:
    """As :class:`allocator`, and an array that the region has no room for is a :exc:`MemoryError`."""

    def __init__(self, local: Optional[Size]) -> None:
        if local is not None and not _native.is_connected():
            connect(local)

    def __enter__(self) -> None:
        _enter(strict=True)

    def __exit__(self, *_: object) -> None:
        _leave()


def empty(
    shape: Any, dtype: "DTypeLike" = float, order: "_Order" = "C", *, local: Optional[Size] = None
) -> "NDArray[Any]":
    """A borrowed array with any contents, as :func:`numpy.empty`.

    Below ``min_alloc`` bytes (see :func:`connect`) it is an ordinary one.

    Arguments:
        shape, dtype, order: As of :func:`numpy.empty`.
        local: If this process is not connected yet it does so now, with this budget and otherwise the defaults of :func:`connect`. If it is, this is
            not looked at: the budget is that of the process, not of one array.

    Raises:
        NotConnectedError: :func:`connect` comes first, or ``local``.
        MemoryError: The region has no room.

    >>> a = loam.empty((1024, 1024))
    >>> a.shape, loam.is_borrowed(a)
    ((1024, 1024), True)
    """
    with _strictly(local):
        return np.empty(shape, dtype, order)


def zeros(
    shape: Any, dtype: "DTypeLike" = float, order: "_Order" = "C", *, local: Optional[Size] = None
) -> "NDArray[Any]":
    """A borrowed array of zeros, as :func:`numpy.zeros`. They take no memory until they are touched. Otherwise as :func:`empty`.

    >>> loam.zeros(1 << 20).sum()
    np.float64(0.0)
    """
    with _strictly(local):
        return np.zeros(shape, dtype, order)


def array(
    object: "ArrayLike", dtype: "Optional[DTypeLike]" = None, *, order: "Literal['K', 'A', 'C', 'F']" = "K", local: Optional[Size] = None
) -> "NDArray[Any]":
    """A borrowed copy of ``object``, as :func:`numpy.array`. Otherwise as :func:`empty`.

    >>> a = loam.array(np.arange(1 << 18))
    >>> loam.is_borrowed(a), loam.is_borrowed(np.arange(1 << 18))
    (True, False)
    """
    with _strictly(local):
        return np.array(object, dtype, copy=True, order=order)


def advise(array: "NDArray[Any]", advice: "_Advice") -> None:
    """Say what this program will do with an array, or a part of one. It changes when memory comes and goes, and no value.

    Arguments:
        array: Any array; of a view that leaves elements out, all from its first to its last byte is meant. What is not borrowed is passed over.
        advice: ``"will_need"``: it will be used soon, so what is away of it is fetched now, behind all that a thread waits for; of more than half
            of what may be here only the beginning. ``"will_not_need"``: it will not be used for a while, so it leaves now and makes
            room. (A process that has never had more than may be here keeps all.) From now on: ``"sequential"``: it is gone through from its
            first to its last byte, so what lies ahead is fetched from the first touch on, and what lies behind leaves first when room is wanted.
            ``"random"``: it is used in no order, so a fault brings one page of 4 KiB, and nothing is fetched ahead. ``"normal"`` takes these two
            back. They hold until the array's memory is freed or resized.

    Raises:
        NotConnectedError: :func:`connect` comes first.
        Error: The agent has not heard it: it is busy, or there are no descriptors left; or there is advice for too many arrays (4096).

    >>> a = loam.zeros(1 << 20)
    >>> loam.advise(a[: 1 << 19], "will_not_need")
    """
    if advice not in _ADVICE:
        raise ValueError(f"{advice!r}: what can be advised is {', '.join(_ADVICE)}")
    _native.advise(*_span(array), advice)


def prioritize(array: "NDArray[Any]", priority: "_Priority") -> None:
    """Say which array, or part of one, is to keep its place when there is not room for all, from now on. It changes no value.

    Arguments:
        array: As of :func:`advise`.
        priority: ``"low"`` leaves before ``"normal"``, which all memory has of which nothing is said, and that before ``"high"``. Of each kind a 64th
            of what may be here (or four pages) stays to go on with, and of sixteen pages that leave one is the oldest of high memory: what is not used
            any more goes one day. It holds until the array's memory is freed or resized.

    Raises:
        NotConnectedError, Error: As of :func:`advise`.

    >>> index = loam.zeros(1 << 20)
    >>> loam.prioritize(index, "high")
    """
    if priority not in _PRIORITIES:
        raise ValueError(f"{priority!r}: a priority is {', '.join(_PRIORITIES)}")
    _native.prioritize(*_span(array), priority)


def set_terms(
    array: "NDArray[Any]", *, page: Optional[Size] = None, plan: "Optional[_Plan]" = None, local: Optional[Size] = None
) -> None:
    """Say on what terms an array, or a part of one, is paged from now on, in place of all terms that were set of it before. It changes no value.

    Arguments:
        array: As of :func:`advise`.
        page: The size of its pages, in place of ``--page``: a power of two from ``"4K"`` to ``"1M"``. What is here already stays in the pages that it came in.
        plan: In which order the pieces of a page come, in place of ``--fetch-plan``: ``"lazy"``, ``"full"``, ``"eager"``, ``"pipelined"``,
            ``"pipelined-doubled"``, ``"pipelined-beside"`` or ``"learned"``.
        local: At most so much of it is here (of the process as a whole ``connect(local)`` holds, besides): when more comes, what came first of it
            leaves. It is a cap and no guarantee. At least eight pages of its size, or of 4 KiB where no ``page`` is given, count.

    What is not named is as for all memory; with nothing named, all is taken back. They hold until the array's memory is freed or resized.

    Raises:
        NotConnectedError, Error: As of :func:`advise`; or 64 arrays have a ``local`` of their own already.
        ValueError: There is no such page or plan.

    >>> table = loam.zeros(1 << 20)
    >>> loam.set_terms(table, page="64K", plan="eager", local="4M")
    """
    page_bytes = None if page is None else size_bytes(page, "page")
    local_bytes = None if local is None else size_bytes(local, "local")
    _native.set_terms(*_span(array), page_bytes, plan, local_bytes)


def _span(array: "NDArray[Any]") -> Tuple[int, int]:
    """From the first byte of an array to behind its last."""
    start = end = int(array.__array_interface__["data"][0])
    if array.size:
        for length, stride in zip(array.shape, array.strides):
            start += min(0, (length - 1) * stride)
            end += max(0, (length - 1) * stride)
        end += array.itemsize
    return start, end


def is_borrowed(array: "NDArray[Any]") -> bool:
    """Whether the contents of an array are in the region. Those of a view are where those of its base are.

    Under ``loam run`` without ``--region`` there is none: False, although all large memory of the program is borrowed for.
    """
    return _native.is_of_region(int(array.__array_interface__["data"][0]))
