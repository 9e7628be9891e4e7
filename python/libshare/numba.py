# SPDX-License-Identifier: MIT
"""numba on the broker's memory: what numba.cuda allocates lies in a pool.

    libshare.numba.use(pool)                      # before numba works on the pool's device
    x = numba.cuda.to_device(numpy.arange(1000))
    libshare.array_of(x).publish("x")

A program that is not to be changed has it by ``NUMBA_CUDA_MEMORY_MANAGER=libshare.numba`` in its
environment: it then connects as libshare.connect() does, and opens or makes the pool that
``SHARE_NUMBA_POOL`` names, else "numba".

numba does not say on which stream an array is used. Its memory is ordered on the default stream, and
so behind and before all that is enqueued on streams of numba.cuda.stream(), which wait for that one
and are waited for. Other streams (numba.cuda.external_stream()) have to be named:
``array_of(x).record_stream(s)``. Nothing is cached by numba: the pool's own cache does that.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

from numba import cuda
from numba.cuda import HostOnlyCUDAMemoryManager, IpcHandle, MemoryInfo, set_memory_manager
from numba.cuda.cudadrv.driver import AutoFreePointer, MemoryPointer

from . import _pickle
from ._client import connect
from ._core import Array, Pool
from ._find import array_of

__all__ = ["PoolMemoryManager", "array_of", "use"]

# By the device's number in this process.
_pools: dict[int, Pool] = {}


def _ordinal(array: Array) -> int:
    if not array.on_gpu:
        raise ValueError("numba's arrays are in memory of a GPU")
    return int(array.device.removeprefix("cuda:"))


def _pool_on(ordinal: int) -> Pool:
    pool = _pools.get(ordinal)
    if pool is None:
        pool = connect(label="numba").pool(os.environ.get("SHARE_NUMBA_POOL", "numba"))
        there = _ordinal(pool.alloc(1, stream=None))
        if there != ordinal:
            raise RuntimeError(f"the pool {pool.name!r} is on device {there}, and numba works on device "
                               f"{ordinal}: have libshare.numba.use(pool) with one on that")
        _pools[ordinal] = pool
    return pool


class _IpcHandle(IpcHandle):
    """What numba hands to other processes: pickled, it is a token, good for one use and for as long as
    libshare.set_pickle_timeout() says. Who has received it keeps the memory."""

    def __init__(self, array: Array, received: bool = False):
        super().__init__(None, None, array.nbytes)
        self._array: Array | None = array
        self._received = received

    def __reduce__(self) -> Any:
        array = self._array
        if array is None:
            raise ValueError("the handle was closed")
        return _receive, (array.client.address,
                          array.export(stream=None, mode="rw", uses=_pickle._uses, timeout=_pickle._timeout))

    def __copy__(self) -> _IpcHandle:
        return _IpcHandle(self._array, self._received) if self._array is not None else self

    def __deepcopy__(self, memo: Any) -> _IpcHandle:
        return self.__copy__()

    def open(self, context: Any) -> MemoryPointer:
        array = self._array
        if array is None:
            raise ValueError("the handle was closed")
        if not self._received:
            raise ValueError("the handle is for another process: this one has the array")
        if _ordinal(array) != context.device.id:
            raise ValueError(f"the memory is {array.device}'s, and the context another device's")
        return MemoryPointer(context, ctypes.c_void_p(array.ptr), array.nbytes, owner=array._lend())

    open_direct = open_staged = open

    def close(self) -> None:
        """Gives up the handle. Arrays that were opened with it go on: each keeps the memory."""
        self._array = None


def _receive(address: str, token: bytes) -> _IpcHandle:
    return _IpcHandle(_pickle.imported(address, token, stream=None), received=True)


class PoolMemoryManager(HostOnlyCUDAMemoryManager):
    """numba's device memory from a pool, as numba.cuda.set_memory_manager() has it; pinned and managed
    memory remain numba's own. MemoryError: the pool is full."""

    def initialize(self) -> None:
        _pool_on(self.context.device.id)

    def memalloc(self, size: int) -> Any:
        array = _pool_on(self.context.device.id).alloc(size, stream=None)
        address = array.ptr
        held, allocations = [array._lend()], self.allocations

        def free() -> None:
            held.clear()
            allocations.pop(address, None)

        allocations[address] = memory = AutoFreePointer(
            self.context, ctypes.c_void_p(address), size, finalizer=free)
        return memory.own()

    def get_ipc_handle(self, memory: Any) -> IpcHandle:
        """ValueError: that memory is not of a pool."""
        return _IpcHandle(array_of(_Bytes(memory.device_ctypes_pointer.value, memory.size)))

    def get_memory_info(self) -> MemoryInfo:
        """The pool's: bytes that are free, and its limit."""
        pool = _pool_on(self.context.device.id)
        row = next(row for row in pool.client.inspect("pools") if row["pool"] == pool.name)
        return MemoryInfo(free=row["limit"] - row["used"], total=row["limit"])

    @property
    def interface_version(self) -> int:
        return 1


class _Bytes:
    def __init__(self, address: int, size: int):
        self.__cuda_array_interface__ = {"data": (address, False), "typestr": "|u1", "shape": (size,)}


def use(pool: Pool) -> None:
    """From now on, what numba allocates on the pool's device is of the pool.

    RuntimeError: numba works on that device already, with memory of its own.
    """
    ordinal = _ordinal(pool.alloc(1, stream=None))
    before = _pools.get(ordinal)
    _pools[ordinal] = pool
    set_memory_manager(PoolMemoryManager)
    with cuda.gpus[ordinal]:
        manager = cuda.current_context().memory_manager
    if not isinstance(manager, PoolMemoryManager):
        if before is None:
            del _pools[ordinal]
        raise RuntimeError(f"numba works on device {ordinal} already: call use() before that")


_numba_memory_manager = PoolMemoryManager
