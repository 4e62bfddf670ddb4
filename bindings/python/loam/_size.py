"""Sizes as the command line has them: ``512M``, ``4G``, ``1.5T``, or plain bytes."""

import re
from typing import Union

Size = Union[int, str]

_SHIFT = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_TEXT = re.compile(r"\s*(\d+)(?:\.(\d{1,4}))?(?:([kmgt]?)i?b|([kmgt]))?\s*", re.IGNORECASE | re.ASCII)


def size_bytes(size: Size, name: str) -> int:
    """The bytes that ``size`` means; ``name`` is the argument that it was given as.

    >>> size_bytes("1.5G", "local"), size_bytes(4096, "local")
    (1610612736, 4096)
    >>> size_bytes("25%", "local")
    Traceback (most recent call last):
    ValueError: local='25%': write a size as "512M", "4G" or plain bytes
    """
    if isinstance(size, bool) or not isinstance(size, (int, str)):
        raise TypeError(f'{name}={size!r}: give a size as "512M", "4G" or plain bytes')
    if isinstance(size, str):
        match = _TEXT.fullmatch(size)
        if match is None:
            raise ValueError(f'{name}={size!r}: write a size as "512M", "4G" or plain bytes')
        whole, fraction, with_b, without_b = match.groups()
        scale = 1 << _SHIFT[(with_b or without_b or "").lower()]
        if scale == 1 and int(fraction or "0") > 0:
            raise ValueError(f"{name}={size!r}: there is no part of a byte")
        size = int(whole) * scale + int((fraction or "0").ljust(4, "0")) * scale // 10_000
    if not 0 < size < 1 << 64:
        raise ValueError(f"{name}={size}: a size is more than 0 and less than 16 EiB")
    return size
