# SPDX-License-Identifier: MIT
"""Memory of a GPU that a framework has made becomes an Array without a copy, over the stand-in for the driver."""

import ctypes
import gc
import subprocess
import sys
import weakref

import numpy as np
import pytest

import libshare
from conftest import until
from driver import Driver

UNIT = 2 << 20


class Properties(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = [("type", ctypes.c_int), ("handles", ctypes.c_int), ("where", ctypes.c_int), ("device", ctypes.c_int),
                ("meta", ctypes.c_void_p), ("flags", ctypes.c_ubyte * 8)]


class Access(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = [("where", ctypes.c_int), ("device", ctypes.c_int), ("flags", ctypes.c_int)]


class Memory:
    """As torch makes it with expandable_segments:True: allocations, one mapped behind the other."""

    def __init__(self, driver, handles=1, device=0, allocations=1):
        self.lib, at, handle = driver.lib, ctypes.c_uint64(), ctypes.c_uint64()
        made = Properties(type=1, handles=handles, where=1, device=device)
        size, self.size = ctypes.c_size_t(UNIT), ctypes.c_size_t(allocations * UNIT)
        assert self.lib.cuMemAddressReserve(ctypes.byref(at), self.size, ctypes.c_size_t(0), ctypes.c_uint64(0),
                                            ctypes.c_uint64(0)) == 0
        for i in range(allocations):
            there = ctypes.c_uint64(at.value + i * UNIT)
            assert self.lib.cuMemCreate(ctypes.byref(handle), size, ctypes.byref(made), ctypes.c_uint64(0)) == 0
            assert self.lib.cuMemMap(there, size, ctypes.c_size_t(0), handle, ctypes.c_uint64(0)) == 0
            assert self.lib.cuMemRelease(handle) == 0
        access = Access(where=1, device=device, flags=3)
        assert self.lib.cuMemSetAccess(at, self.size, ctypes.byref(access), ctypes.c_size_t(1)) == 0
        self.at = at

    def __del__(self):
        self.lib.cuMemUnmap(self.at, self.size)
        self.lib.cuMemAddressFree(self.at, self.size)


class Plain:
    """As torch makes it by cudaMalloc()."""

    def __init__(self, driver, size):
        self.lib, self.at = driver.lib, ctypes.c_uint64()
        assert self.lib.cuMemAlloc_v2(ctypes.byref(self.at), ctypes.c_size_t(size)) == 0

    def __del__(self):
        self.lib.cuMemFree_v2(self.at)


class Tensor:
    """Something with the CUDA Array Interface."""

    def __init__(self, memory, offset, shape, dtype="float32"):
        self.memory = memory
        self.__cuda_array_interface__ = {"shape": shape, "typestr": np.dtype(dtype).str, "version": 3,
                                         "data": (memory.at.value + offset, False), "strides": None}


@pytest.fixture
def driver():
    d = Driver()
    yield d
    d.end()


@pytest.fixture
def adopted(client):
    with client.pool("adopted", kind="adopted", limit="64MiB") as p:
        yield p


@pytest.mark.parametrize("made, size, kind", [
    (Memory, UNIT, "vmm"),
    (lambda driver: Plain(driver, UNIT + 4096), UNIT + 4096, "legacy"),
])
def test_another_process_has_it(client, driver, adopted, made, size, kind):
    x = Tensor(made(driver), 4096, (16, 64))
    with libshare.adopt(x, adopted) as a:
        assert (a.on_gpu, a.ptr, a.shape, a.dtype) == (True, x.memory.at.value + 4096, (16, 64), "float32")
        assert a.device == "cuda:0"
        info = a.info()
        assert (info["kind"], info["offset"], info["segment_size"]) == (kind, 4096, size)
        a.copy_from(np.arange(1024, dtype="float32").reshape(16, 64))
        a.publish("x", mode="rw")
        subprocess.run([sys.executable, "-c", f"""if True:
            import libshare, numpy as np
            with libshare.connect({client.address!r}) as c, c.lookup("x", mode="rw") as a:
                assert a.on_gpu and a.info()["kind"] == {kind!r}
                assert a.tobytes() == np.arange(1024, dtype="float32").tobytes()
                a.copy_from(np.full((16, 64), 7, "float32"))
        """], check=True, timeout=120)
        assert a.tobytes() == np.full(1024, 7, "float32").tobytes()
        client.unpublish("x")
        assert a.reclaim(timeout=30)


def test_what_is_kept_goes_when_nobody_has_it(client, broker, driver, adopted):
    x = Tensor(Memory(driver), 0, (64,))
    there = weakref.ref(x)
    a = adopted.adopt(x)
    del x
    a.publish("x")
    a.release()
    gc.collect()
    assert there() is not None
    client.unpublish("x")
    until(lambda: (client.ping(), gc.collect(), there() is None)[-1])


def test_messages_carry_it(client, broker, driver, adopted):
    x = Tensor(Memory(driver), 512, (100,), "uint8")
    with adopted.producer("frames") as tx, broker.pool("adopted").consumer("frames") as rx:
        a = adopted.adopt(x)
        a.copy_from(np.full(100, 5, "uint8"))
        tx.send(a)
        with rx.recv(timeout=30) as m:
            assert m.array.on_gpu and m.array.tobytes() == bytes([5]) * 100
        a.release()


def test_what_lies_in_several_allocations_is_refused_and_its_parts_are_not(driver, adopted):
    memory = Memory(driver, allocations=2)
    words = UNIT // 4
    for first, count in ((0, 2 * words), (words - 128, 256), (words - 128, 129)):
        with pytest.raises(libshare.InvalidArgumentError, match="does not lie in one allocation"):
            adopted.adopt(Tensor(memory, 4 * first, (count,)))
    with adopted.adopt(Tensor(memory, 0, (words,))), adopted.adopt(Tensor(memory, UNIT, (words,))):
        pass


def test_what_others_cannot_have_is_refused(driver, adopted):
    with pytest.raises(libshare.NotSupportedError, match="without CU_MEM_HANDLE_TYPE"):
        adopted.adopt(Tensor(Memory(driver, handles=0), 0, (64,)))
    memory = Memory(driver)
    with pytest.raises(libshare.InvalidArgumentError, match="multiple of 512"):
        adopted.adopt(Tensor(memory, 4, (64,)))
    with pytest.raises(libshare.InvalidArgumentError, match="one allocation"):
        adopted.adopt(Tensor(memory, UNIT - 512, (512,)))
    managed = ctypes.c_uint64()
    assert driver.lib.cuMemAllocManaged(ctypes.byref(managed), ctypes.c_size_t(4096), ctypes.c_uint(1)) == 0
    with pytest.raises(libshare.NotSupportedError, match="is managed"):
        adopted.adopt(Tensor(type("Managed", (), {"at": managed})(), 0, (64,)))
    driver.lib.cuMemFree_v2(managed)
    constant = Tensor(memory, 0, (64,))
    constant.__cuda_array_interface__["data"] = (memory.at.value, True)
    with pytest.raises(ValueError, match="read-only"):
        adopted.adopt(constant)
    a = adopted.adopt(Tensor(memory, 0, (64,)))
    with pytest.raises(libshare.ExistsError):
        adopted.adopt(Tensor(memory, 0, (64,)))
    a.release()
