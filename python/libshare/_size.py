# SPDX-License-Identifier: MIT
"""Sizes, numbers and names as people write them."""

from __future__ import annotations

import operator
import re

_UNITS = {"": 1, "B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?\s*$", re.IGNORECASE)


def nbytes(size: int | str | None) -> int:
    """Bytes of 4096, "4096", "64KiB", "1.5 GiB"; K, M, G and T are powers of 1024. None: 0."""
    if size is None:
        return 0
    if isinstance(size, str):
        found = _SIZE.match(size)
        if not found:
            raise ValueError(f"{size!r} is no size: write 4096, '64KiB', '2GiB'")
        number = int(float(found[1]) * _UNITS[found[2].upper()])
    else:
        number = operator.index(size)
    if not 0 <= number < 1 << 63:
        raise ValueError(f"{size!r} is no size")
    return number


def count(what: str, value: int) -> int:
    """What the library has as an unsigned number."""
    if not 0 <= operator.index(value) < 1 << 32:
        raise ValueError(f"{what} is a number from 0 on, not {value!r}")
    return value


def name_of(what: str, name: str) -> str:
    """A name, for what it is that has it."""
    if not isinstance(name, str):
        raise TypeError(f"the name of a {what} is a str, not {type(name).__name__}")
    return name
