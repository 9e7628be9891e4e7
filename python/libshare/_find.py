# SPDX-License-Identifier: MIT
"""From a framework's tensor to the Array that it lies in."""

from __future__ import annotations

from typing import Any

from . import _core
from ._core import Array


def _layout(thing: Any) -> tuple[int, Any, tuple[int, ...], tuple[int, ...] | None]:
    """Address, dtype, shape, and strides in elements (None: in C order)."""
    if callable(getattr(thing, "data_ptr", None)):  # torch
        return thing.data_ptr(), thing.dtype, tuple(thing.shape), tuple(thing.stride())
    for name in ("__cuda_array_interface__", "__array_interface__"):
        try:
            found = getattr(thing, name, None)
        except (RuntimeError, TypeError, AttributeError):
            continue
        if found is None:
            continue
        strides = found.get("strides")
        if strides is not None:
            size = int(found["typestr"][2:])
            if any(stride % size for stride in strides):
                raise ValueError("its strides are no whole elements")
            strides = tuple(stride // size for stride in strides)
        return found["data"][0], getattr(thing, "dtype", found["typestr"]), found["shape"], strides
    raise TypeError(f"a tensor or an array is needed, not {type(thing).__name__}")


def array_of(thing: Any) -> Array:
    """The Array that a tensor or an array of a framework lies in: a view of the same memory, with
    its dtype, shape, strides and offset. thing: of torch, CuPy, NumPy, numba, or whatever has
    ``__cuda_array_interface__``; it was made by from_dlpack() of an Array, by an allocator of this
    package, or is a view of such.

    ValueError: it does not lie in a pool, or not in one of a client that is open here.
    """
    if isinstance(thing, Array):
        return thing
    found = _core._array_of(thing)
    if found is NotImplemented:
        found = _core._array_at(*_layout(thing))
    if found is not None:
        return found
    raise ValueError(
        "it does not lie in a pool: make it there (Pool.empty(), an allocator of libshare's), or "
        "copy it into one"
    )
