# SPDX-License-Identifier: MIT
"""PyCUDA on the broker's memory.

    x = libshare.pycuda.empty(pool, (4, 1024), numpy.float32)     # a pycuda.gpuarray.GPUArray
    libshare.array_of(x).publish("x")

PyCUDA's streams are the default one unless a call names another: order is kept for the stream that
``stream=`` says, so name the one that the kernels run on.
"""

from __future__ import annotations

from typing import Any

import numpy
import pycuda.driver
import pycuda.gpuarray

from ._core import Array, Pool


class Holder(pycuda.driver.PointerHolderBase):
    """An Array's memory for whatever takes PyCUDA's device pointers; keeps the memory."""

    def __init__(self, array: Array):
        super().__init__()
        self.array = array
        self._held = array._lend()

    def get_pointer(self) -> int:
        return self.array.ptr

    __int__ = get_pointer
    __index__ = get_pointer


def gpuarray_of(array: Array) -> pycuda.gpuarray.GPUArray:
    """The Array as a GPUArray: the same memory, which it keeps. BufferError: it is read-only, which
    PyCUDA cannot be told, unless the Array has readonly_ok."""
    if not array.on_gpu:
        raise ValueError("a GPUArray is in memory of a GPU")
    if array.readonly and not array.readonly_ok:
        raise BufferError("the Array is read-only, which PyCUDA does not heed: have readonly_ok=True")
    return pycuda.gpuarray.GPUArray(array.shape, numpy.dtype(array.dtype), gpudata=Holder(array),
                                    strides=array.strides)


def empty(pool: Pool, shape: Any, dtype: Any, **stream: Any) -> pycuda.gpuarray.GPUArray:
    """A GPUArray in the pool; its content is undefined."""
    return gpuarray_of(pool.empty(shape, dtype, **stream))
