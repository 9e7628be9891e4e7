# SPDX-License-Identifier: MIT
"""Memory of a GPU, over the stand-in for the driver: what the host cannot touch is copied."""

import copy
import gc
import os
import subprocess
import sys
import threading
import types
import weakref

import numpy as np
import pytest

import libshare
from arrow_device import Taken
from conftest import state_of, until
from driver import Driver


@pytest.fixture(params=["vmm", "mempool", "pinned"])
def pool(request, client):
    with client.pool("gpu", kind=request.param, limit="64MiB") as p:
        assert p.kind == request.param and p.on_gpu
        yield p


def test_copies_go_there_and_back(client, pool):
    x = np.arange(10000, dtype=np.float32).reshape(100, 100)
    a = pool.array(x)
    assert a.on_gpu and a.device == "cuda:0" and a.__dlpack_device__() == (2, 0)
    assert a.tobytes() == x.tobytes()
    a[10:20].publish("g")
    b = client.lookup("g")
    assert b.tobytes() == x[10:20].tobytes() and b.shape == (10, 100) and b.info()["kind"] == pool.kind
    assert b.readonly
    assert not a == None and a != None and None != a and b not in (None,)  # noqa: E711
    assert pool.zeros(5).tobytes() == bytes(40)
    assert pool.array(a[:, 3][::2].reshape(-1) if a[:, 3][::2].contiguous else a[3]).tobytes() == x[3].tobytes()
    client.unpublish("g")


def test_copies_to_pools_of_the_same_gpu_are_enqueued(client, pool):
    driver, x = Driver(), bytes(range(100))
    stream = driver.stream()
    a = pool.array(x, stream=stream)
    with client.pool("second", kind="mempool" if pool.kind == "vmm" else "vmm", limit="64MiB") as second:
        go = driver.hold(stream)
        driver.fill(stream, a, 3)
        copies = [a.to(second, stream=driver.stream()), a.to("cuda", copy=True, stream=stream),
                  pool.array(a, stream=stream), second.array(a[10:], stream=stream)]
        assert not go.is_set() and a.to(pool) is a and second._has(copies[0]) and pool._has(copies[1])
        go.set()
        assert [set(b.tobytes()) for b in copies] == [{3}] * 4 and [b.nbytes for b in copies] == [100, 100, 100, 90]
        assert set(copy.copy(a).tobytes()) == {3}
        with client.host_stream() as host:
            assert set(a.to(second, stream=host).tobytes()) == {3}
    del a, copies
    driver.end()


def test_a_stream_that_nobody_named_lives_as_long_as_what_is_on_it(pool, monkeypatch):
    class Stream:  # as CuPy's, which destroys what it stands for when it ends
        ptr = 2

    now = [Stream()]
    cuda = types.SimpleNamespace(get_current_stream=lambda: now[0])
    monkeypatch.setitem(sys.modules, "cupy", types.SimpleNamespace(cuda=cuda))
    a = pool.empty(4)
    first = weakref.ref(now[0])
    now[0] = Stream()
    b = pool.empty(4)  # on another one
    gc.collect()
    assert first() is not None
    del a
    gc.collect()
    assert first() is None
    b.release()


@pytest.mark.parametrize("how", ["_lend", "__dlpack__", "dlpack_by_number", "array_of", "memory in use"])
def test_a_stream_lives_as_long_as_what_others_have_on_it(pool, monkeypatch, how):
    driver = Driver()

    class Stream:
        ptr = driver.stream()

    now = [Stream()]
    ended = weakref.ref(now[0])
    if how == "dlpack_by_number":  # as from_dlpack() of CuPy names it: the one that is current there
        cuda = types.SimpleNamespace(get_current_stream=lambda: now[0])
        monkeypatch.setitem(sys.modules, "cupy", types.SimpleNamespace(cuda=cuda))
        a = pool.empty(4, stream=None)
        lent = a.__dlpack__(stream=Stream.ptr)
    else:
        a = pool.empty(4, stream=now[0])
        lent = a.__dlpack__(stream=-1) if how == "__dlpack__" else a._lend()
    if how == "array_of":
        kept = lent
        lent = libshare.array_of(types.SimpleNamespace(
            __cuda_array_interface__={"data": (a.ptr, False), "typestr": "|u1", "shape": (4,), "version": 3}))
        del kept
    elif how == "memory in use":  # the Array was given up, what it lent was not
        a.release()
    now[0] = Stream()
    pool.empty(1).release()  # on that one, where it is the current one
    del a
    gc.collect()
    assert ended() is not None
    del lent
    gc.collect()
    assert ended() is None
    driver.end()


@pytest.mark.parametrize("pool", ["vmm", "mempool"], indirect=True)
def test_the_host_is_kept_out(pool):
    a = pool.empty(4)
    assert not a.on_host
    with pytest.raises(TypeError, match="cupy.asarray"):
        a == pool.empty(4)  # noqa: B015
    with pytest.raises(TypeError, match="no values here"):
        bool(a[0])
    with pytest.raises(BufferError):
        a.__dlpack__(dl_device=(1, 0))
    for use in (lambda: memoryview(a), lambda: bytes(a)):
        with pytest.raises((BufferError, TypeError)):
            use()
    with pytest.raises(TypeError, match="GPU"):
        np.asarray(a)


def test_dlpack_is_ordered_and_refuses_what_is_unsafe(client, pool):
    a = pool.empty((4, 5), "float32")
    for stream in (None, -1, 1, 2):
        a.__dlpack__(stream=stream)
        a.__dlpack__(stream=stream, max_version=(1, 0))
    for stream in (0, -2, "x"):
        with pytest.raises(BufferError):
            a.__dlpack__(stream=stream)
    a.publish("g")
    b = client.lookup("g")
    for version in (None, (1, 0)):
        with pytest.raises(BufferError, match="read-only"):
            b.__dlpack__(max_version=version)
    with pytest.raises(BufferError, match="read-only"):
        b.__cuda_array_interface__
    ok = client.lookup("g", readonly_ok=True)
    ok.__dlpack__(max_version=(1, 0))
    assert ok.__cuda_array_interface__["data"] == (ok.ptr, True)
    client.unpublish("g")


def test_libraries_of_arrow_have_it_in_place_when_the_work_on_it_is_done(client, pool):
    a = pool.array(np.arange(10, dtype=np.int16))
    taken = Taken(a.__arrow_c_device_array__())
    device = (3 if pool.kind == "pinned" else 2, 0)  # ARROW_DEVICE_CUDA_HOST, ARROW_DEVICE_CUDA
    assert (taken.format, taken.length, taken.data, taken.device) == ("s", 10, a.ptr, device)
    a.release()  # what was lent keeps the memory
    others = [pool.empty(10, np.int16) for _ in range(50)]
    assert taken.data not in [other.ptr for other in others]
    taken.release()
    a = pool.empty(4)
    a.__arrow_c_device_array__()  # capsules that nobody takes from
    nanoarrow = pytest.importorskip("nanoarrow.device")
    there = nanoarrow.c_device_array(a)
    assert there.device_type == nanoarrow.DeviceType.CUDA and there.device_id == 0
    assert there.schema.format == "g" and there.array.length == 4 and there.array.buffers == (0, a.ptr)


def test_work_on_a_stream_comes_before_what_arrow_is_told(pool):
    driver = Driver()
    stream = driver.stream()
    a = pool.empty(4, "int32", stream=stream)
    go, seen = driver.hold(stream), []

    def lend():
        taken = Taken(a.__arrow_c_device_array__())
        seen.append(go.is_set())
        taken.release()

    thread = threading.Thread(target=lend)
    thread.start()
    until(lambda: state_of(f"self/task/{thread.native_id}") in ("S", None))
    go.set()
    thread.join()
    assert seen == [True]
    a.release()
    driver.end()


def test_arrow_has_it_in_a_function_on_its_stream_after_what_was_enqueued_before(client, pool):
    with client.host_stream() as stream, client.host_stream() as other:
        a, seen = pool.empty(4, "int32", stream=stream), []
        a.record_stream(other)
        other.launch(lambda: a.copy_from(bytes([5] * 16), stream=None))

        def lend():
            taken = Taken(a.__arrow_c_device_array__())
            seen.append(a.tobytes(stream=None))
            taken.release()

        stream.launch(lend)
        stream.synchronize()
        assert seen == [bytes([5] * 16)]
        del a


def test_the_cuda_array_interface(pool):
    a = pool.empty((4, 6), "int16")
    assert a.__cuda_array_interface__ == {
        "shape": (4, 6), "typestr": "<i2", "data": (a.ptr, False), "strides": None, "stream": None, "version": 3}
    v = a[1:, ::2]
    got = v.__cuda_array_interface__
    assert got["strides"] == (12, 4) and got["data"][0] == a.ptr + 12
    assert not hasattr(a.view("bfloat16"), "__cuda_array_interface__")
    assert a.view("uint8").__cuda_array_interface__["typestr"] == "|u1"


def test_streams_of_a_framework_are_found(pool, monkeypatch):
    import sys
    import types

    asked = []

    class Cuda:
        def is_initialized(self):
            return True

        def current_stream(self, device):
            asked.append(device)
            return types.SimpleNamespace(cuda_stream=2)

    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=Cuda()))
    monkeypatch.setattr(libshare._streams, "_number_of_torch", None)
    a = pool.alloc(10)
    a.publish("g")
    a.release()
    assert asked and set(asked) <= {None, 0}
    a.client.lookup("g").release()
    a.client.unpublish("g")


def test_host_memory_is_looked_up_while_a_framework_works_on_a_gpu(client, pool, monkeypatch):
    import sys
    import types

    cuda = types.SimpleNamespace(is_initialized=lambda: True,
                                 current_stream=lambda device: types.SimpleNamespace(cuda_stream=2))
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda))
    monkeypatch.setattr(libshare._streams, "_number_of_torch", None)
    with client.pool("host", kind="host") as host:
        host.array(b"here").publish("h")
        assert bytes(client.lookup("h")) == b"here"
        assert bytes(client.import_(host.array(b"token").export())) == b"token"
        client.unpublish("h")


BROKER_ENDS = """
import libshare
from driver import Driver
from driver import Driver

owner = libshare.connect("embedded")
c = libshare.connect(owner.address)
array = c.pool("p", kind="KIND", limit="32MiB").empty((4, 5))
driver = Driver()
stream = driver.stream()
driver.hold(stream)
array.record_stream(stream)
c.close()
owner.close()
array.release()         # signals behind the stream, and is the last that the connection had
driver.end()
"""


@pytest.mark.parametrize("kind", ["vmm", "mempool", "pinned"])
def test_what_is_given_back_after_its_broker_may_still_be_in_use(kind):
    subprocess.run([sys.executable, "-c", BROKER_ENDS.replace("KIND", kind)], check=True, timeout=100,
                   cwd=os.path.dirname(__file__))


def test_streams_are_recorded_once_and_given_up_with_the_array(pool):
    a = pool.alloc(100, stream=2)
    for stream in (2, 1, None, 1):
        a.record_stream(stream)
    v = a[:10]
    a.release(stream=1)
    v.release()
