# SPDX-License-Identifier: MIT
"""What dtype= may be: a dtype of any framework, a type of Python's or NumPy's, or a name."""

from __future__ import annotations

import re
import sys

from . import _core

_PYTHON = {bool: "bool", int: "int64", float: "float64", complex: "complex128"}
_LETTERS = {"i": "int", "u": "uint", "f": "float", "c": "complex", "b": "bool", "V": ""}
_TYPESTR = re.compile(r"([<>=|]?)([iufcb])(\d+)$")

#: What to do with what has no number here.
AS_BYTES = "share its bytes, as pool.array(x.view(\"uint8\")), and read them as numpy.asarray(a).view(x.dtype)"
_SWAPPED = f"convert it (x.astype(x.dtype.newbyteorder(\"=\"))), or {AS_BYTES}"


def _from_text(text: str) -> int:
    found = _TYPESTR.match(text)
    if found:
        order, letter, size = found.groups()
        native = "<" if sys.byteorder == "little" else ">"
        if order in "<>" and order and order != native and size != "1":
            raise ValueError(f"{text!r} is of the other byte order: {_SWAPPED}")
        text = "bool" if letter == "b" else f"{_LETTERS[letter]}{int(size) * 8}"
    return _core.dtype_code(text)


def code(dtype: object) -> int:
    """The library's number for it. TypeError: that is no dtype; ValueError: not one of ours."""
    if isinstance(dtype, str):
        name: object = dtype
    elif isinstance(dtype, type) and dtype in _PYTHON:
        name = _PYTHON[dtype]
    elif getattr(dtype, "byteorder", "=") not in ("=", "|", "<" if sys.byteorder == "little" else ">"):
        raise ValueError(f"{dtype!r} is of the other byte order: {_SWAPPED}")
    elif isinstance(getattr(dtype, "name", None), str):  # numpy.dtype
        name = dtype.name  # type: ignore[attr-defined]
    elif type(dtype).__module__ == "torch":
        name = str(dtype).removeprefix("torch.")
    elif isinstance(dtype, type):  # numpy.uint8, ml_dtypes.bfloat16
        name = dtype.__name__.removesuffix("_")
    elif getattr(dtype, "dtype", None) is not None:  # jax.numpy.uint8
        return code(dtype.dtype)  # type: ignore[attr-defined]
    else:
        raise TypeError(f"{dtype!r} is no dtype: name one with its size, as \"float64\" or \"uint8\"; of others (records, dates), "
                        f"{AS_BYTES}")
    number = _from_text(str(name))
    if number == 0 and isinstance(dtype, str):
        raise ValueError(f"the library does not know the dtype {dtype!r}: name one with its size, as \"float64\" or "
                         f"\"uint8\"; of others, {AS_BYTES}")
    if number == 0:
        raise ValueError(f"the library does not know the dtype {dtype!r}: {AS_BYTES}")
    return number


def plain(value: Any) -> Any:
    """What JSON has, for a scalar of NumPy or of another framework."""
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        return value.item()
    hint = ": tolist() makes a list" if hasattr(value, "tolist") else ""
    raise TypeError(f"this is kept as JSON, which has no {type(value).__name__}{hint}")
