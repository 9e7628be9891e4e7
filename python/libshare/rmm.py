# SPDX-License-Identifier: MIT
"""RMM on the broker's memory: what cuDF, cuML and whatever else asks RMM allocates lies in a pool.

    rmm.mr.set_current_device_resource(libshare.rmm.resource(pool))
    b = rmm.DeviceBuffer(size=1 << 20)
    libshare.array_of(b).publish("b")

Memory is ordered on the streams that RMM says: the one that it was allocated on, and the one that it
is given back on; further ones are named by ``array_of(b).record_stream(s)``.
"""

from __future__ import annotations

from typing import Any

import rmm

from ._core import Array, Pool
from ._errors import Error


def resource(pool: Pool) -> rmm.mr.CallbackMemoryResource:
    """A memory resource whose allocations are buffers of the pool, for as long as it lives.

    Nothing is cached: the pool's own cache does that. Resources of RMM that do, as
    PoolMemoryResource, must not be put on top: they would use memory again that was published, and
    that others still have. MemoryError: the pool is full.
    """
    if not pool.on_gpu:
        raise ValueError("RMM's memory is of a GPU")
    lent: dict[int, tuple[Array, Any]] = {}

    def allocate(size: int, stream: Any) -> int:
        array = pool.alloc(max(size, 1), stream=stream)
        lent[array.ptr] = array, array._lend()
        return array.ptr

    def deallocate(address: int, size: int, stream: Any) -> None:
        array, held = lent.pop(address, (None, None))
        if array is None:
            return
        del held
        try:
            array.release(stream=stream)
        except Error:  # in a forked child, say; RMM has no way to hear of it
            pass

    return rmm.mr.CallbackMemoryResource(allocate, deallocate)
