"""Parts, for programs that run under ``loam run`` and have not installed the package: nothing but ``ctypes`` is needed."""

import ctypes

_part = getattr(ctypes.CDLL(None), "loam_part", None)


def part(number: int) -> None:
    """A part of the program begins: a stretch with an access pattern of its own, such as a phase of each iteration.

    Numbers are the program's, from 1 to 255; the same number is the same part. Loam keeps apart what it learns of page
    sizes in each. Any thread may call it; it holds for the whole program.
    """
    if _part is not None:
        _part(ctypes.c_uint(number))
