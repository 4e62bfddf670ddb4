"""Connecting: an agent that serves this process."""

import os
import threading
from typing import List, Optional, Sequence, Tuple, Union

from . import _native
from ._native import Error, InstallationError, NotConnectedError, RefusedError
from ._size import Size, size_bytes

__all__ = ["Error", "InstallationError", "NotConnectedError", "RefusedError", "connect", "is_connected"]

#: Address space that is reserved for each byte that may be here, if nobody says otherwise.
_REGION_OF_LOCAL = 16
_REGION_MIN_BYTES = 1 << 30
_REGION_MAX_BYTES = 8 << 40
_MIN_ALLOC_BYTES = 256 << 10
_BASE_PAGE_BYTES = 4096

#: What this process has connected with; None: it has not.
_connected: Optional[Tuple[int, int, int, List[str]]] = None
_lock = threading.RLock()
# A child that forks in the midst of connecting would have the lock for ever.
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


def connect(
    local: Size,
    region: Optional[Size] = None,
    *,
    lenders: Union[str, Sequence[str]] = (),
    min_alloc: Size = _MIN_ALLOC_BYTES,
    durability: Optional[str] = None,
    flags: Sequence[str] = (),
) -> bool:
    """Has an agent serve this process, from now to its end. Children that fork are served too.

    Arguments:
        local: Of what this program allocates from now on, at most so much stays on this machine: ``"4G"``, or bytes. Import NumPy (and what
            else needs memory of its own) before, then that does not count.
        region: Address space for all borrowed arrays at once; 16 times ``local`` unless told otherwise, 1 GiB at least and 8 TiB at most.
        lenders: Where memory is lent, as ``"10.0.0.7:7070"``, or several of them. Without one the cluster of this machine's node lends; where there is
            no node, pages go to this machine's disk.
        min_alloc: Arrays of so many bytes and more are borrowed for; smaller ones are ordinary.
        durability: ``"staged"``, ``"replicas=N"``, ``"disk"`` or ``"none"``; see ``loam run --help``.
        flags: More flags of ``loam run``, such as ``["--page", "64K"]``.

    Returns:
        Whether it was this call that connected. False: the process was started by ``loam run``, whose options hold, or has connected with the same
        options before.

    Raises:
        RefusedError: The agent says why it does not serve.
        InstallationError: The command ``loam`` is missing, or of another version.
        Error: The process is connected already, with other options.
        ValueError, TypeError: An argument that cannot be.

    >>> loam.connect("64M", lenders=[lender])  # doctest: +SKIP
    True
    """
    global _connected
    local_bytes = size_bytes(local, "local")
    min_alloc_bytes = size_bytes(min_alloc, "min_alloc")
    if min_alloc_bytes < _BASE_PAGE_BYTES:
        raise ValueError(f"min_alloc={min_alloc!r}: each takes whole pages of {_BASE_PAGE_BYTES} bytes, so that is the least")
    if region is None:
        region = min(max(local_bytes * _REGION_OF_LOCAL, _REGION_MIN_BYTES), _REGION_MAX_BYTES)
    region_bytes = size_bytes(region, "region")
    words = [word for lender in ([lenders] if isinstance(lenders, str) else lenders) for word in ("--lender", lender)]
    words += ["--min-alloc", str(min_alloc_bytes)]
    words += [] if durability is None else ["--durability", durability]
    words += flags
    wanted = (local_bytes, region_bytes, min_alloc_bytes, words)
    with _lock:
        if _connected is not None and _connected != wanted:
            raise Error(
                f"connected already, with local={_connected[0]} and region={_connected[1]} bytes: a process does so once; start another one for other options"
            )
        if _native.is_connected():
            return False
        _native.connect(*wanted)
        _connected = wanted
        return True


def is_connected() -> bool:
    """Whether this process is served: by :func:`connect`, or as it was started by ``loam run``."""
    return _native.is_connected()
