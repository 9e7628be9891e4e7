# SPDX-License-Identifier: MIT
"""What numba and RMM allocate lies in a pool, and what torch allocates is kept: over the stand-in for the driver, without kernels. What
needs a GPU is in allocators.py."""

import ctypes
import gc
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
from conftest import until
from driver import Driver

import libshare

try:
    import numba.cuda

    import libshare.numba
except ImportError:
    numba = None
try:
    import rmm

    import libshare.rmm
except ImportError:
    rmm = None

try:
    import torch

    import libshare.torch
except ImportError:
    torch = None

needs_numba = pytest.mark.skipif(numba is None, reason="there is no numba.cuda here")
needs_torch = pytest.mark.skipif(torch is None, reason="there is no torch here")
needs_rmm = pytest.mark.skipif(rmm is None, reason="there is no RMM here")


@pytest.fixture(params=["vmm", "mempool", "pinned"])
def pool(request, client):
    with client.pool("gpu", kind=request.param, limit="64MiB") as p:
        yield p


@pytest.fixture
def driver():
    d = Driver()
    yield d
    d.end()


def stays(pool, array, give_up):
    """give_up() gives back memory that has a name: others find in it what was there."""
    content = array.tobytes()
    array.publish("kept", stream=None)
    address = array.ptr
    array.release()
    del array
    give_up()
    others = [pool.alloc(len(content), stream=None) for _ in range(10)]
    assert address not in [other.ptr for other in others]
    for other in others:
        other.copy_from(b"\xff" * len(content))
    assert pool.client.lookup("kept").tobytes() == content
    pool.client.unpublish("kept")


# ------------------------------------------------------------------------------------------------
# numba, whose choice is for the life of the process: each of these has one of its own


def in_a_process(address, function, *arguments, kind="vmm", **environment):
    """Calls a function of this file in a fresh interpreter."""
    call = f"import allocators_test as t; t.{function.__name__}(*{(address, kind, *arguments)!r})"
    subprocess.run([sys.executable, "-c", call], cwd=os.path.dirname(__file__), timeout=250, check=True,
                   env={**os.environ, "SHARE_SOCKET": address, **environment})


def used(address, kind):
    c = libshare.connect(address)
    pool = c.pool("gpu", kind=kind, limit="64MiB")
    libshare.numba.use(pool)
    return c, pool


def numba_arrays_are_buffers(address, kind):
    c, pool = used(address, kind)
    x = numba.cuda.to_device(np.arange(1000, dtype=np.int32))
    assert libshare.array_of(x).shape == (1000,) and libshare.array_of(x).dtype == "int32"
    assert libshare.array_of(x[10:20]).tobytes() == np.arange(10, 20, dtype=np.int32).tobytes()
    assert libshare.array_of(x).client is c
    before = numba.cuda.current_context().get_memory_info()
    assert before.total == 64 << 20
    y = numba.cuda.device_array(1 << 20, np.uint8)
    assert numba.cuda.current_context().get_memory_info().free <= before.free - (1 << 20)
    del y
    stays(pool, libshare.array_of(x), x.gpu_data._mem.free)
    with pytest.raises(MemoryError):
        numba.cuda.device_array(1 << 30, np.uint8)
    libshare.numba.use(pool)  # once more is nothing


def numba_views_keep_the_memory(address, kind):
    c, pool = used(address, kind)
    pool.set_cache(0)
    x = numba.cuda.to_device(np.arange(10))
    y = x[5:].reshape(5, 1)
    del x
    gc.collect()
    others = [numba.cuda.to_device(np.zeros(10, int)) for _ in range(10)]
    assert y.copy_to_host().ravel().tolist() == [5, 6, 7, 8, 9]
    del y, others
    gc.collect()
    until(lambda: c.inspect("buffers") == [])
    numba.cuda.device_array(0, np.uint8)


def numba_memory_is_free_behind_the_default_stream(address, kind):
    c, pool = used(address, kind)
    driver = Driver()
    x = numba.cuda.device_array(1000, np.uint8)
    at = libshare.array_of(x).ptr
    go = driver.hold(None)
    del x
    gc.collect()
    stream = driver.stream()
    a = pool.alloc(1000, stream=stream)
    assert a.ptr == at and driver.stands_still(stream)
    go.set()
    until(lambda: driver.idle(stream))
    driver.end()


def numba_hands_a_handle_over(address, kind):
    used(address, kind)
    x = numba.cuda.to_device(np.arange(10).reshape(2, 5))
    handle = x[1].get_ipc_handle()
    with pytest.raises(ValueError, match="another process"):
        handle.open()
    pickled = pickle.dumps(handle)
    del x, handle
    in_a_process(address, numba_takes_a_handle, pickled)
    with pytest.raises(libshare.NotFoundError):  # it was for one use
        pickle.loads(pickled)


def numba_takes_a_handle(address, kind, pickled):
    handle = pickle.loads(pickled)
    with handle as x:
        assert x.copy_to_host().tolist() == [5, 6, 7, 8, 9]
        assert libshare.array_of(x).dtype == "int64"
        y = x[2:]
    del x
    assert y.copy_to_host().tolist() == [7, 8, 9]
    with pytest.raises(ValueError, match="closed"):
        handle.open()


def numba_has_it_from_the_environment(address, kind):
    x = numba.cuda.to_device(np.arange(5))
    array = libshare.array_of(x)
    assert array.client.address == address
    assert [row["pool"] for row in array.client.inspect("pools") if row["buffers"]] == ["other"]
    array.publish("from the environment", persistent=False)


def numba_is_asked_too_late(address, kind):
    numba.cuda.to_device(np.arange(5))
    pool = libshare.connect(address).pool("gpu", kind=kind, limit="64MiB")
    with pytest.raises(RuntimeError, match="works on device 0 already"):
        libshare.numba.use(pool)


@needs_numba
@pytest.mark.parametrize("kind", ["vmm", "mempool", "pinned"])
@pytest.mark.parametrize("what", [numba_arrays_are_buffers, numba_views_keep_the_memory,
                                  numba_memory_is_free_behind_the_default_stream, numba_is_asked_too_late])
def test_of_numba(broker, what, kind):
    in_a_process(broker.address, what, kind=kind)


@needs_numba
def test_numbas_handles_go_to_other_processes(broker):
    in_a_process(broker.address, numba_hands_a_handle_over)


@needs_numba
def test_numba_needs_no_line_of_the_program(broker):
    with broker.pool("other", kind="vmm", limit="64MiB"):
        in_a_process(broker.address, numba_has_it_from_the_environment, SHARE_NUMBA_POOL="other",
                     NUMBA_CUDA_MEMORY_MANAGER="libshare.numba")


@needs_numba
def test_numba_refuses_host_memory(client):
    with client.pool("host", kind="host", limit="1MiB") as p, pytest.raises(ValueError, match="GPU"):
        libshare.numba.use(p)


# ------------------------------------------------------------------------------------------------
# torch, as far as it goes without its own GPU: what its allocator calls, and what a tensor tells


def torchs_memory_that_was_sent_is_kept(address, kind):
    c = libshare.connect(address)
    pool = c.pool("gpu", kind=kind, limit="64MiB")
    libshare._core._torch_pool(0, pool)
    allocate = ctypes.CDLL(libshare._core.__file__).share_torch_allocate
    allocate.restype = ctypes.c_void_p
    start = allocate(ctypes.c_ssize_t(1000), 0, None)

    class Tensor:
        requires_grad, dtype, shape = False, torch.uint8, (1000,)
        data_ptr = lambda self: start  # noqa: E731
        stride = lambda self: (1,)  # noqa: E731
        numel = lambda self: 1000  # noqa: E731
        detach = untyped_storage = lambda self: self  # noqa: E731

    _, (_, token, *_) = libshare.torch._carry(Tensor())
    assert libshare.torch.collect() == 1
    received = libshare.connect(address).import_(token)
    assert libshare.torch.collect() == 1
    received.release()
    until(lambda: libshare.torch.collect() == 0)


@needs_torch
def test_of_torch(broker):
    in_a_process(broker.address, torchs_memory_that_was_sent_is_kept)


# ------------------------------------------------------------------------------------------------
# RMM


@needs_rmm
def test_rmms_memory_is_buffers(client, pool):
    pool.set_cache(0)
    r = libshare.rmm.resource(pool)
    address = r.allocate(1000)
    a = client._find(address, "uint8", (1000,), None)
    a.copy_from(b"x" * 1000)
    assert a.ptr == address
    with pytest.raises(MemoryError):
        r.allocate(1 << 30)
    stays(pool, a, lambda: r.deallocate(address, 1000))
    del a
    r.deallocate(r.allocate(0), 0)
    gc.collect()
    until(lambda: client.inspect("buffers") == [])


@needs_rmm
def test_rmms_memory_is_free_behind_the_stream_that_gives_it_back(driver, pool):
    class Of:
        def __init__(self, number):
            self.number = number

        def __cuda_stream__(self):
            return 0, self.number

    r = libshare.rmm.resource(pool)
    first, last, other = (driver.stream() for _ in range(3))
    address = r.allocate(1000, rmm.pylibrmm.stream.Stream(Of(first)))
    go = driver.hold(last)
    r.deallocate(address, 1000, rmm.pylibrmm.stream.Stream(Of(last)))
    assert r.allocate(1000, rmm.pylibrmm.stream.Stream(Of(other))) == address
    until(lambda: driver.idle(first))
    assert driver.stands_still(other)
    go.set()
    until(lambda: driver.idle(other))
    r.deallocate(address, 1000)


@needs_rmm
def test_rmm_is_refused_host_memory(client):
    with client.pool("host", kind="host", limit="1MiB") as p, pytest.raises(ValueError, match="GPU"):
        libshare.rmm.resource(p)
