"""For programs that want to tell Loam about themselves.

Nothing here is needed to run under ``loam run``, and all of it is harmless without.
"""

import ctypes

__all__ = ["part"]

_part = getattr(ctypes.CDLL(None), "loam_part", None)


def part(number: int) -> None:
    """A part of the program begins: a stretch with an access pattern of its own, such as a phase of each iteration.

    Numbers are the program's, from 1 to 255; the same number is the same part. Loam keeps apart what it learns of page
    sizes in each. Any thread may call it; it holds for the whole program.
    """
    if _part is not None:
        _part(ctypes.c_uint(number))
