# SPDX-License-Identifier: MIT
"""CuPy on the broker's memory: ``cupy.from_dlpack(array)`` for one Array, or for all that CuPy makes

    cupy.cuda.set_allocator(libshare.cupy.allocator(pool))
    x = cupy.arange(1000)
    libshare.array_of(x).publish("x")
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cupy

from ._core import Pool


class _Memory(cupy.cuda.BaseMemory):
    """A buffer as CuPy's memory. What CuPy makes of it is found again by its address."""

    def __init__(self, pool: Pool, size: int):
        array = pool.alloc(size)
        self._held = array._lend()
        self.ptr = array.ptr
        self.size = size
        self.device_id = int(array.device.removeprefix("cuda:"))


def allocator(pool: Pool) -> Callable[[int], Any]:
    """A function for cupy.cuda.set_allocator() or using_allocator(): CuPy's arrays are buffers of
    the pool then, ordered on the stream that is current when they are made, and behind which they
    are given up. ``array.record_stream()`` of libshare.array_of() names further ones. Nothing is
    cached by CuPy: the pool's own cache does that.
    """
    if pool.info()["device"] is None:
        raise ValueError("CuPy's arrays are in memory of a GPU")

    def allocate(size: int) -> Any:  # also of 0 bytes, so that it can be told whose these are
        return cupy.cuda.MemoryPointer(_Memory(pool, size), 0)

    return allocate
