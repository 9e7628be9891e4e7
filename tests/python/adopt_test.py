# SPDX-License-Identifier: MIT
"""Memory that a program has already becomes an Array without a copy, and is kept as long as anybody has it."""

import ctypes
import gc
import mmap
import os
import subprocess
import sys
import weakref
from multiprocessing import resource_tracker, shared_memory

import numpy as np
import pytest

import libshare
from conftest import until

resource_tracker.ensure_running()  # it is Python's, has a descriptor here, and stays


@pytest.fixture
def adopted(client):
    with client.pool("adopted", kind="adopted", limit="64MiB") as p:
        assert p.kind == "adopted" and not p.on_gpu
        yield p


class Source(np.ndarray):
    """An array whose end can be watched."""


def memory(nbytes):
    """Of a memfd, mapped."""
    fd = os.memfd_create("data")
    os.ftruncate(fd, nbytes)
    mapped = mmap.mmap(fd, nbytes)
    os.close(fd)  # the mapping has a copy
    return mapped


def array(count, dtype="float32"):
    return np.frombuffer(memory(count * np.dtype(dtype).itemsize), dtype).view(Source)


def closes(client, mapped):
    """Whether a mapping could be closed by now."""
    client.ping()
    gc.collect()
    try:
        mapped.close()
    except BufferError:
        return False
    return True


def test_others_have_the_memory_itself(client, broker, adopted):
    x = array(1000)
    x[:] = np.arange(1000)
    with adopted.adopt(x) as a:
        assert (a.dtype, a.shape, a.ptr, a.readonly) == ("float32", (1000,), x.ctypes.data, False)
        assert a.info()["kind"] == "adopted" and a.info()["device"] is None
        a.publish("x", mode="rw")
        with broker.lookup("x", mode="rw") as b:
            assert np.array_equal(np.asarray(b), np.arange(1000))
            np.asarray(b)[7] = 70
        assert x[7] == 70
        client.unpublish("x")
        assert a.reclaim()


def test_another_process_has_it(client, adopted):
    x = array(16, "int64")
    a = libshare.adopt(x, adopted)
    a.publish("x")
    subprocess.run([sys.executable, "-c", f"""if True:
        import libshare, numpy as np
        with libshare.connect({client.address!r}) as c, c.lookup("x", mode="rw") as a:
            np.asarray(a)[:] = range(16)
    """], check=True, timeout=120)
    assert x.tolist() == list(range(16))
    client.unpublish("x")
    a.release()


def test_what_is_kept_goes_when_nobody_has_it(client, broker, adopted):
    x = array(64)
    x[:] = 5
    there = weakref.ref(x)
    a = adopted.adopt(x)
    a.publish("x")
    del x
    a.release()
    gc.collect()
    found = broker.lookup("x")
    client.unpublish("x")
    client.ping()
    assert there() is not None and np.asarray(found).tolist() == [5] * 64  # somebody has it
    again = client.inspect("buffers")
    assert len(again) == 1
    found.release()
    del found
    until(lambda: client.ping() or broker.ping() or there() is None)


def test_what_is_kept_goes_with_the_connection(broker):
    x = array(64)
    there = weakref.ref(x)
    c = libshare.connect(broker.address)
    a = c.pool("adopted", kind="adopted", limit="1MiB").adopt(x)
    del x
    gc.collect()
    assert there() is not None
    c.close()
    a.release()
    del a, c
    gc.collect()
    until(lambda: there() is None)


def test_what_could_not_be_adopted_is_not_kept(client, adopted):
    own = np.zeros(64).view(Source)
    there = weakref.ref(own)
    with pytest.raises(libshare.InvalidArgumentError, match="process's own"):
        adopted.adopt(own)
    del own
    gc.collect()
    until(lambda: there() is None)
    assert client.inspect("buffers") == []


def test_a_mapping_cannot_be_closed_meanwhile(client, adopted):
    m = memory(4096)
    a = adopted.adopt(m)
    assert (a.dtype, a.shape) == ("uint8", (4096,))
    with pytest.raises(BufferError):
        m.close()
    a.release()
    until(lambda: client.ping() or client.inspect("buffers") == [])
    until(lambda: closes(client, m))


def test_shared_memory_of_python_s_own(client, broker, adopted):
    shared = shared_memory.SharedMemory(create=True, size=4096)
    shared.unlink()  # while its descriptor is open
    a = adopted.adopt(shared.buf, "uint8")
    a.publish("x")
    shared.buf[5] = 17
    with broker.lookup("x") as b:
        assert b.tobytes()[5] == 17
    with pytest.raises(BufferError):
        shared.close()
    client.unpublish("x")
    a.release()
    until(lambda: broker.ping() or closes(client, shared))


def test_views_keep_their_shape(client, broker, adopted):
    x = array(24, "int32").reshape(4, 6)
    x[:] = np.arange(24).reshape(4, 6)
    for view in (x, x[1:3, 2:5], x.T, x[::-1], x[:, ::-2], x[2, 3]):
        view = np.asarray(view) if view.ndim else x[2:3, 3].reshape(())
        a = adopted.adopt(view)
        assert (a.shape, a.strides) == (view.shape, view.strides)
        assert np.array_equal(np.asarray(a), view) and np.shares_memory(np.asarray(a), x)
        a.publish("x")
        with broker.lookup("x") as b:
            assert np.array_equal(np.asarray(b), view)
        client.unpublish("x")
        a.release()
        del a
        until(lambda: broker.ping() or client.ping() or client.inspect("segments") == [])


def test_other_dtypes_are_named(client, adopted):
    x = array(8, "uint16")
    with adopted.adopt(x, "bfloat16") as a:
        assert (a.dtype, a.shape) == ("bfloat16", (8,))
    until(lambda: client.ping() or client.inspect("segments") == [])
    with pytest.raises(ValueError, match="elements of 2 bytes"):
        adopted.adopt(x, "float32")
    with pytest.raises(ValueError, match="dtype"):
        adopted.adopt(array(8, "M8[s]"))


def test_what_cannot_be_adopted_is_refused_in_words(client, pool, adopted):
    x = array(8)
    with pytest.raises(libshare.NotSupportedError, match="adopted"):
        pool.adopt(x)
    a = adopted.adopt(x)
    with pytest.raises(libshare.ExistsError, match="adopted already"):
        adopted.adopt(x)
    with pytest.raises(ValueError, match="lies in a pool already"):
        adopted.adopt(a)
    a.release()
    with pytest.raises(ValueError, match="read-only"):
        adopted.adopt(b"bytes")
    with pytest.raises(ValueError, match="no elements"):
        adopted.adopt(x[:0])
    with pytest.raises(TypeError, match="buffer protocol"):
        adopted.adopt(7)
    with pytest.raises(TypeError, match="not timeout"):
        adopted.adopt(x, timeout=3)
    with pytest.raises(ValueError, match="mask"):
        adopted.adopt(np.ma.masked_array(x, mask=[0, 1] * 4))
    with pytest.raises(libshare.OutOfMemoryError):
        adopted.adopt(memory(65 << 20))
    with pytest.raises(libshare.InvalidArgumentError, match="process's own"):
        adopted.adopt((ctypes.c_int * 8)())
    adopted.close()
    with pytest.raises(libshare.ClosedError):
        adopted.adopt(x)
    until(lambda: client.ping() or client.inspect("segments") == [])


def test_it_is_found_by_its_address(client, adopted):
    x = array(64)
    with pytest.raises(ValueError, match="does not lie in a pool"):
        libshare.array_of(x)
    a = adopted.adopt(x)
    part = libshare.array_of(np.asarray(x)[8:16])
    assert (part.ptr, part.shape) == (x.ctypes.data + 32, (8,))
    part.release()
    a.release()
    del a, part
    until(lambda: client.ping() or client.inspect("segments") == [])
    with pytest.raises(ValueError, match="does not lie in a pool"):
        libshare.array_of(x)


def test_channels_carry_it(client, broker, adopted):
    x = array(64)
    tx = adopted.producer("channel")
    with broker.pool("adopted", create=False) as other:
        rx = other.consumer("channel")
        a = adopted.adopt(x)
        x[:] = 3
        tx.send(a)
        with rx.recv(timeout=None) as m:
            assert np.asarray(m.array).tolist() == [3] * 64
        assert a.reclaim(timeout=None)
        rx.close()
    tx.close()
    a.release()


def test_tensors_that_torch_shares(client, broker, adopted):
    torch = pytest.importorskip("torch")
    import libshare.torch

    own = torch.arange(12, dtype=torch.bfloat16)
    with pytest.raises(libshare.InvalidArgumentError, match="process's own"):
        adopted.adopt(own)
    t = torch.arange(12, dtype=torch.bfloat16).reshape(3, 4).share_memory_()
    there = weakref.ref(t)
    a = adopted.adopt(t)
    assert (a.dtype, a.shape, a.ptr) == ("bfloat16", (3, 4), t.data_ptr())
    libshare.torch.publish(t, "t")
    u = libshare.torch.lookup(broker, "t")
    assert torch.equal(u, t)
    u[0, 0] = 9
    assert t[0, 0] == 9
    del u, t
    client.unpublish("t")
    client.ping()
    assert there() is not None
    a.release()
    del a
    until(lambda: client.ping() or broker.ping() or there() is None)


def test_what_was_given_up_is_not_taken_for_what_came_after(client, broker, adopted, pool):
    x = array(64)
    a = adopted.adopt(x)
    a.publish("x")
    a.release()  # the name has it still, so that x is kept
    for _ in range(800):  # handles that were given up come again
        others = [pool.empty(64, "uint8") for _ in range(40)]
        for b in others:
            lies_there = np.frombuffer((ctypes.c_char * 64).from_address(b.ptr), "uint8")
            with pytest.raises(ValueError, match="does not lie in a pool"):
                libshare.array_of(lies_there)
        for b in others:
            b.release()
    client.unpublish("x")


def test_a_tensor_of_torch_that_gets_other_memory_keeps_what_was_adopted(adopted):
    torch = pytest.importorskip("torch")

    t = torch.arange(1 << 20).share_memory_()
    a = adopted.adopt(t)
    t.data = torch.zeros(1)
    assert np.asarray(a)[1000] == 1000
    t.set_(torch.zeros(1))
    assert np.asarray(a)[1000] == 1000
    a.release()
