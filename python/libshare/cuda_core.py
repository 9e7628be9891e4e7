# SPDX-License-Identifier: MIT
"""cuda.core on the broker's memory.

    resource = libshare.cuda_core.PoolMemoryResource(pool)
    buffer = resource.allocate(1 << 20, stream=stream)
    libshare.cuda_core.array_of(buffer).publish("x", stream=stream)
"""

from __future__ import annotations

from typing import Any

try:
    from cuda.core import Buffer, MemoryResource
except ImportError:  # before cuda.core 0.5
    from cuda.core.experimental import Buffer, MemoryResource

from ._core import Array, Pool


class PoolMemoryResource(MemoryResource):
    """Allocates buffers of a pool, ordered on the streams that it is given."""

    def __init__(self, pool: Pool):
        self._pool = pool
        self._arrays: dict[int, Array] = {}
        self._on_gpu = pool.info()["device"] is not None
        self._device_id = -1
        if self._on_gpu:
            probe = pool.alloc(1, stream=1)
            self._device_id = int(probe.device.removeprefix("cuda:"))

    def allocate(self, size: int, stream: Any = None) -> Buffer:
        """A buffer of the pool; its content is undefined."""
        array = self._pool.alloc(size, stream=stream)
        self._arrays[array.ptr] = array
        return Buffer.from_handle(ptr=array.ptr, size=size, mr=self)

    def deallocate(self, ptr: Any, size: int, stream: Any = None) -> None:
        """What Buffer.close() calls: work on the stream may go on using the memory."""
        array = self._arrays.pop(int(ptr), None)
        if array is not None:
            array.release(**({} if stream is None else {"stream": stream}))

    @property
    def device_id(self) -> int:
        return self._device_id

    @property
    def is_device_accessible(self) -> bool:
        return self._on_gpu

    @property
    def is_host_accessible(self) -> bool:
        return self._pool._on_host


def array_of(buffer: Buffer) -> Array:
    """The Array of bytes that a buffer of a PoolMemoryResource is. ValueError: it is none."""
    resource = buffer.memory_resource
    array = getattr(resource, "_arrays", {}).get(int(buffer.handle))
    if array is None:
        raise ValueError("that buffer was not made by a PoolMemoryResource")
    return array[: buffer.size]
