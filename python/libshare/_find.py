# SPDX-License-Identifier: MIT
"""From a framework's tensor to the Array that it lies in."""

from __future__ import annotations

import sys
from typing import Any

from . import _core
from ._core import Array, Pool


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


def more_than_memory(thing: Any, *, lazy_ok: bool = False) -> str | None:
    """Why address, dtype, shape and strides are not all that a tensor of a framework is, and what to do
    about it; None: they are. lazy_ok: it will be copied by its framework, which computes what is lazy."""
    # Modules that are being imported have not all of their names yet; asking numpy for "ma" would import it.
    if isinstance(thing, getattr(sys.modules.get("numpy.ma"), "MaskedArray", ())):
        return "its mask would be lost: hand on filled(), or its data and its mask"
    torch = sys.modules.get("torch")
    if not isinstance(thing, getattr(torch, "Tensor", ())):
        return None
    if type(thing).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        return (f"a {type(thing).__name__} is made of other tensors: hand on those, or the plain tensor "
                f"that it makes (to_local(), full_tensor(), to_tensor(), …)")
    if thing.is_nested:
        return "a nested tensor is made of others: hand on its values() and offsets(), or to_padded_tensor()"
    if thing.layout is not torch.strided:
        return f"its layout is {thing.layout}: hand on to_dense(), or its indices() and values()"
    if thing.is_quantized:
        return "a quantised tensor has scales besides: hand on int_repr() and these, or dequantize()"
    if thing.device.type == "meta":
        return "it is on the device meta, so it has no values"
    if not lazy_ok and (thing.is_conj() or thing.is_neg() or thing._is_zerotensor()):
        return ("its values are computed when it is read (as those of conj() are), and are not what lies in "
                "its memory: libshare.torch.to_pool() copies them")
    return None


def need_plain(thing: Any, *, lazy_ok: bool = False) -> None:
    """ValueError: it is more_than_memory()."""
    more = more_than_memory(thing, lazy_ok=lazy_ok)
    if more is not None:
        raise ValueError(more)


def framework_layout(thing: Any) -> tuple[int, Any, tuple[int, ...], tuple[int, ...] | None] | None:
    """Address, dtype, shape and strides of a framework's tensor; None: it is of none, or of NumPy."""
    if not callable(getattr(thing, "data_ptr", None)) and not hasattr(thing, "__cuda_array_interface__"):
        return None
    need_plain(thing)
    return _layout(thing)


def order_of(thing: Any) -> int | None:
    """The stream behind which the content of what has a framework_layout() is, as ``__cuda_array_interface__``
    says it; None: no order is needed, or its framework's current stream is it."""
    if callable(getattr(thing, "data_ptr", None)):  # torch
        return None
    try:
        said = thing.__cuda_array_interface__.get("stream")
    except (RuntimeError, TypeError, AttributeError):  # it lies on the host
        return None
    if said == 0:
        raise ValueError("its __cuda_array_interface__ names stream 0, which the interface forbids: 1 is the legacy "
                         "default stream, and 2 that of the thread")
    return said


def on_gpu(thing: Any) -> bool:
    """Whether what has a framework_layout() says that it lies on a GPU."""
    is_cuda = getattr(thing, "is_cuda", None)  # torch, whose tensors may refuse the other one
    return bool(is_cuda) if is_cuda is not None else hasattr(thing, "__cuda_array_interface__")


def _address_of_nothing(thing: Any, said: int | None) -> int:
    """Where a tensor without elements lies: it is a part of a memory that frameworks still know, while it
    has no address of its own, or one at which another memory begins."""
    if callable(getattr(thing, "untyped_storage", None)):  # torch
        return thing.untyped_storage().data_ptr()
    memory = getattr(getattr(thing, "data", None), "mem", None)
    if memory is not None:  # CuPy
        return memory.ptr
    base = thing
    while type(getattr(base, "base", None)) is type(thing):  # NumPy
        base = base.base
    return said or 0 if base is thing else _layout(base)[0]


def array_of(thing: Any) -> Array:
    """The Array that a tensor or an array of a framework lies in: a view of the same memory, with
    its dtype, shape, strides and offset. thing: of torch, CuPy, NumPy, numba, or whatever has
    ``__cuda_array_interface__``; it was made by from_dlpack() of an Array, by an allocator of this
    package, or is a view of such.

    ValueError: it does not lie in a pool, or not in one of a client that is open here; or it is more
    than what lies there: masked, quantised, conjugated lazily and the like.
    """
    if isinstance(thing, Array):
        return thing
    need_plain(thing)
    found = _core._array_of(thing)
    if found is NotImplemented or (found is None and 0 in thing.shape):
        address, dtype, shape, strides = _layout(thing)
        if 0 in shape:
            address = _address_of_nothing(thing, address)
        found = _core._array_at(address, dtype, shape, strides, order_of(thing))
    if found is not None:
        return found
    raise ValueError(
        "it does not lie in a pool: make it there (Pool.empty(), an allocator of libshare's), or "
        "copy it into one"
    )


def need_pool(pool: Any) -> None:
    """TypeError: a caller has given something else, such as its arguments in another order."""
    if not isinstance(pool, Pool):
        raise TypeError(f"a Pool is needed here, as its client's pool() gives it, and a {type(pool).__name__} is none")
