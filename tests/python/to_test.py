# SPDX-License-Identifier: MIT
"""Array.to() in host memory: what is there already, what is copied, and which pool a device means."""

import asyncio
import gc
import os
import signal
import sys
import threading
import types

import numpy as np
import pytest

import libshare
from conftest import fork, state_of, until


@pytest.fixture
def second(client):
    with client.pool("second", kind="host", limit="64MiB") as p:
        yield p


@pytest.fixture
def other(broker, pool):
    """Another connection, and the same pool by it."""
    with libshare.connect(broker.address, label="other") as c, c.pool("test", create=False) as p:
        yield p


class Device:
    """As torch.device."""

    def __init__(self, text):
        self.type, _, index = text.partition(":")
        self.index = int(index) if index else None

    def __str__(self):
        return self.type if self.index is None else f"{self.type}:{self.index}"


class Held:
    """A HostStream that stands still until go() is called; then it makes the Array's bytes 5."""

    def __init__(self, client):
        self.stream, self._go = client.host_stream(), threading.Event()

    def use(self, array):
        def work():
            self._go.wait()
            np.asarray(array)[...] = 5

        self.stream.launch(work)

    def go(self):
        self._go.set()


def test_a_copy_lies_in_the_pool_and_is_new(client, pool, second, broker):
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    a = pool.array(x)
    b = a.to(second)
    assert (b.shape, b.dtype, b.device, b.readonly, b.contiguous) == ((3, 4), "float32", "cpu", False, True)
    rows = {int(row["buffer"], 16): row["pool"] for row in broker.inspect("buffers")}
    assert rows[b.id] == "second" and rows[a.id] == "test" and b.client is client
    a.fill_zero()
    assert np.array_equal(np.asarray(b), x)


def test_what_is_there_is_the_same_array(client, pool, second):
    a = pool.array(np.arange(4))
    for there in (pool, client.pool("test", create=False), "cpu", "cpu:0", (1, 0), (np.int64(1), np.int32(0)), Device("cpu")):
        assert a.to(there) is a
        b = a.to(there, copy=True)
        assert b is not a and b.id != a.id and pool._has(b) and np.array_equal(np.asarray(b), np.arange(4))
    view = a[1:]
    assert view.to(pool) is view and view.to("cpu") is view and view.to(second).to(second).shape == (3,)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "uint8", "complex128", "bool"])
def test_every_dtype_goes_along(pool, second, dtype):
    a = pool.empty((2, 3), dtype)
    a.copy_from(bytes(range(1, 3 * 32 + 1))[:a.nbytes].replace(b"\2", b"\1") if dtype != "bool" else b"\1\0\1\1\0\1")
    b = a.to(second)
    assert (b.dtype, b.shape, b.tobytes()) == (dtype, (2, 3), a.tobytes())


def test_views_become_contiguous(pool, second):
    x = np.arange(60, dtype=np.int16).reshape(3, 4, 5)
    a = pool.array(x)
    for view, expected in ((a.T, x.T), (a[::2, 1:], x[::2, 1:]), (a[1, 2, 3], x[1, 2, 3]), (a[None, 1], x[None, 1]),
                           (a.as_strided((4, 5), (0, 2), "int16", 10), np.broadcast_to(x[0, 1], (4, 5)))):
        b = view.to(second)
        assert b.contiguous and b.nbytes in (b.info()["size"], 0) and np.array_equal(np.asarray(b), expected)
        assert b.shape == expected.shape


def test_arrays_without_elements_or_dimensions(pool, second):
    for shape in ((0,), (3, 0, 2), ()):
        a = pool.zeros(shape, "int32")
        b = a.to(second)
        assert (b.shape, b.dtype, b.nbytes) == (shape, "int32", a.nbytes) and second._has(b)
    rest = pool.array(np.arange(3))[3:]
    assert rest.to(second).shape == (0,)


def test_a_copy_of_what_may_only_be_read_is_to_be_written(client, pool, second):
    pool.array(np.arange(3)).publish("x")
    a = client.lookup("x")
    assert a.readonly and a.to(pool) is a
    for b in (a.to(second), a.to(pool, copy=True), a.to("cpu", copy=True)):
        assert not b.readonly and b.version == 0
        b[0] = 7
    assert np.asarray(a)[0] == 0
    client.unpublish("x")


def test_the_pool_of_another_connection_takes_a_copy(client, pool, other, second):
    a = pool.array(np.arange(5))
    b = a.to(other)
    assert b.client is other.client and b.id != a.id and not pool._has(b) and other._has(b)
    assert np.array_equal(np.asarray(b), np.arange(5))
    with libshare.connect("embedded") as elsewhere, elsewhere.pool("test", kind="host", limit="1MiB") as far:
        c = a.to(far)
        assert c.client is elsewhere and np.array_equal(np.asarray(c), np.arange(5)) and not pool._has(c)
        assert np.array_equal(np.asarray(c.to(second)), np.arange(5))
        c.release()


def test_adopted_memory_is_copied_off_and_nothing_goes_there(client, pool):
    fd = os.memfd_create("x")
    os.ftruncate(fd, 4096)
    import mmap

    x = np.frombuffer(mmap.mmap(fd, 4096), "float32")
    os.close(fd)
    x[:] = 3
    with client.pool("brought", kind="adopted", limit="1MiB") as brought:
        a = brought.adopt(x)
        assert a.to("cpu") is a and a.to(brought) is a
        b = a.to(pool)
        x[:] = 4
        assert np.all(np.asarray(b) == 3)
        with pytest.raises(libshare.NotSupportedError):
            b.to(brought)
        with pytest.raises(libshare.NotSupportedError):
            a.to("cpu", copy=True)
        a.release()
        del a


def test_a_message_s_array_is_copied_while_it_is_lent(pool, second):
    with pool.producer("x") as tx, pool.consumer("x") as rx:
        tx.send(pool.array(np.arange(6)))
        with rx.recv(timeout=30) as m:
            assert m.array.to(pool) is m.array
            b = m.array.to(second)
        assert np.array_equal(np.asarray(b), np.arange(6))


def test_what_is_no_device_is_refused(pool):
    a = pool.array(np.arange(3))
    for wrong in ("mps", "cuda:", "cuda:x", "cuda:-1", "float32", "CPU", "", -1, True, None, 1.5, np.float32, (2,), (2, -1),
                  (10, 0), (1, 2, 3), (1, 5), (2, "cpu"), (2, "0"), (1, False), "cuda:01", "cuda:\u0661", "cpu:1", np.int64(-1),
                  np.zeros(2), a, Device("meta")):
        with pytest.raises(ValueError, match="to\\(\\) takes a pool or a device"):
            a.to(wrong)
    with pytest.raises(TypeError, match="to\\(\\) takes"):
        a.to("cpu", non_blocking=True)
    with pytest.raises(TypeError):
        a.to()


def test_a_device_s_pool_has_to_be_the_only_one(client, pool, monkeypatch):
    a = pool.array(np.arange(3))
    for device in ("cuda:1", 1, np.int64(1), (2, 1), (2, np.uint8(1)), Device("cuda:1")):
        with pytest.raises(ValueError, match="no pool of cuda:1 open"):
            a.to(device)
    with pytest.raises(ValueError, match="no pool of a GPU open"):
        a.to("cuda")
    current = [1]
    cuda = types.SimpleNamespace(is_initialized=lambda: True, current_device=lambda: current[0])
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda, Tensor=type("Tensor", (), {})))
    with pytest.raises(ValueError, match="no pool of cuda:1 open"):
        a.to("cuda")


def test_given_up_arrays_and_pools_say_so(client, pool, second):
    a = pool.array(np.arange(3))
    a.release()
    for to in (pool, second, "cpu"):
        with pytest.raises(libshare.ClosedError):
            a.to(to)
    a = pool.array(np.arange(3))
    with client.pool("third", kind="host", limit="1MiB") as third:
        pass
    with pytest.raises(libshare.ClosedError):
        a.to(third)
    pool.close()
    assert a.to("cpu") is a
    with pytest.raises(libshare.ClosedError):
        a.to(pool)


def test_a_forked_child_copies_nothing(pool, second):
    a = pool.array(np.arange(3))
    pid = fork()
    if pid == 0:
        code = 1
        try:
            for to in (pool, second, "cpu"):
                try:
                    a.to(to)
                except libshare.ForkedError:
                    code = 0
                else:
                    code = 2
                    break
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0


def test_a_pool_that_is_full_says_so_and_keeps_nothing(client, pool, broker):
    a = pool.zeros(100000, "uint8")
    with client.pool("small", kind="host", limit="64KiB") as small:
        buffers = len(broker.inspect("buffers"))
        for _ in range(3):
            with pytest.raises(libshare.OutOfMemoryError):
                a.to(small)
        assert len(broker.inspect("buffers")) == buffers


@pytest.mark.parametrize("recorded", [False, True])
def test_work_on_a_host_stream_is_waited_for(client, pool, second, recorded):
    held, done = Held(client), []
    a = pool.zeros(1000, "uint8")
    b = pool.zeros(1000, "uint8", **({} if recorded else {"stream": held.stream}))
    if recorded:
        b.record_stream(held.stream)
    held.use(b)

    def copy():
        for x in (a, b):
            done.append(x.to(second).tobytes())

    thread = threading.Thread(target=copy)
    thread.start()
    until(lambda: done)
    # what is wrong is seen nearly always, what is right is never taken for wrong
    assert not any(len(done) > 1 for _ in range(1000) if state_of(f"self/task/{thread.native_id}"))
    held.go()
    thread.join()
    assert [set(x) for x in done] == [{0}, {5}]
    held.stream.close()
    assert set(b.to(second).tobytes()) == {5}  # there is no such stream any more, nor work on it


def test_a_function_on_the_stream_itself_waits_for_nothing(client, pool, second):
    stream, done = client.host_stream(), []
    a = pool.empty(10, "uint8", stream=stream)
    stream.launch(lambda: np.asarray(a).fill(9))
    stream.launch(lambda: done.append(a.to(second).tobytes()))
    stream.synchronize()
    assert done == [bytes([9] * 10)]
    stream.close()


def in_function_on(stream, function):
    """What it answers there, or raises."""
    done = []

    def call():
        try:
            done.append(function())
        except BaseException as e:
            done.append(e)

    stream.launch(call)
    stream.synchronize()
    return done[0]


def test_a_function_on_the_stream_is_refused_to_wait_for_it(client, pool, second):
    stream = client.host_stream()
    a = pool.array(np.arange(4, dtype="uint8"))
    for waits in (lambda: a.to(second, stream=stream), lambda: a.tobytes(stream=stream), lambda: a.tobytes(stream),
                  lambda: pool.array(b"x", stream=stream), lambda: a.copy_from(b"abcd", stream=stream),
                  lambda: a.fill_zero(stream=stream), lambda: a.to(pool, copy=True, stream=stream), stream.synchronize):
        e = in_function_on(stream, waits)
        assert isinstance(e, libshare.InvalidArgumentError) and "cannot wait for" in str(e)
        assert a.tobytes() == bytes(range(4))
    assert in_function_on(stream, lambda: a.to(second).tobytes(stream=None)) == bytes(range(4))
    with client.host_stream() as other:
        assert in_function_on(stream, lambda: a.to(second, stream=other).tobytes(stream=other)) == bytes(range(4))
    stream.close()


def test_a_stream_of_another_client_orders_no_array_of_host_memory(client, pool, second, other):
    a = pool.zeros(10, "uint8")
    with other.client.host_stream() as far:
        for foreign in (far, 4096):
            for use in (lambda: a.record_stream(foreign), lambda: a.release(stream=foreign),  # noqa: B023
                        lambda: a.to(second, stream=foreign), lambda: a.to(pool, stream=foreign)):  # noqa: B023
                with pytest.raises(libshare.InvalidArgumentError):
                    use()
        b = a.to(other)
        b.record_stream(far)
        held = Held(other.client)
        b.record_stream(held.stream)
        held.use(b)
        held.go()
        assert set(b.to(second).tobytes()) == {5}
        held.stream.close()
    assert a.tobytes() == bytes(10)
    a.release(stream=None)


def test_a_stream_that_was_closed_has_no_work_any_more(client, pool, second):
    streams = [client.host_stream() for _ in range(2)]
    a = pool.array(np.full(10, 3, "uint8"), stream=streams[0])
    a.record_stream(streams[1])
    for s in streams:
        s.close()
    assert a.tobytes() == a[2:].to(second).tobytes() + b"\3\3" == bytes([3] * 10)
    a.publish("x")
    assert client.lookup("x").tobytes() == bytes([3] * 10)
    client.unpublish("x")


def seen_after_the_wait(array, held):
    """Its bytes, after what a copy waits for; the stream goes on once this thread waits."""
    main, begins = threading.get_native_id(), threading.Event()

    def go():
        begins.wait()
        for _ in range(1000):  # who does not wait has seen it by then
            os.sched_yield()
        until(lambda: state_of(f"self/task/{main}") == "S")
        held.go()

    thread = threading.Thread(target=go)
    thread.start()
    begins.set()
    array._wait()
    seen = set(np.asarray(array).tolist())
    thread.join()
    return seen


def test_a_copy_comes_after_a_stream_that_another_thread_closes(client, pool):
    held = Held(client)
    a = pool.zeros(10, "uint8")
    a.record_stream(held.stream)
    held.use(a)
    closing = threading.Thread(target=held.stream.close)
    closing.start()
    until(lambda: state_of(f"self/task/{closing.native_id}") == "S")
    assert seen_after_the_wait(a, held) == {5}
    closing.join()
    assert held.stream.closed


def test_a_view_is_used_where_its_array_is(client, pool):
    held = Held(client)
    a = pool.zeros(10, "uint8")
    a.record_stream(held.stream)
    view = a[2:][1:]
    held.use(a)
    assert seen_after_the_wait(view, held) == {5}
    held.stream.close()


def test_what_is_there_is_ordered_on_the_stream_that_is_named(client, pool):
    held, seen = Held(client), []
    a = pool.zeros(10, "uint8", stream=held.stream)
    held.use(a)
    with client.host_stream() as stream:
        for there in (pool, "cpu"):
            assert a.to(there, stream=stream) is a
        stream.launch(lambda: seen.append(set(np.asarray(a).tolist())))
        assert not any(seen for _ in range(1000) if state_of(f"self/task/{threading.get_native_id()}"))
        held.go()
        stream.synchronize()
    assert seen == [{5}]
    assert a.to("cpu", stream=None) is a
    with pytest.raises(TypeError):
        a.to("cpu", stream="x")
    held.stream.close()


def test_a_signal_ends_the_wait_for_a_host_stream(client, pool, second):
    held = Held(client)
    a = pool.empty(10, "uint8", stream=held.stream)
    held.use(a)

    class Alarm(Exception):
        pass

    def ring(*_):
        raise Alarm

    before = signal.signal(signal.SIGUSR1, ring)
    main = threading.get_native_id()

    def kill():
        until(lambda: state_of(f"self/task/{main}") == "S")
        os.kill(os.getpid(), signal.SIGUSR1)

    thread = threading.Thread(target=kill)
    try:
        with pytest.raises(Alarm):
            thread.start()
            a.to(second)
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, before)
    held.go()
    assert set(a.to(second).tobytes()) == {5}
    held.stream.close()


def test_a_copy_may_be_made_on_a_host_stream(client, pool, second):
    held = Held(client)
    a = pool.zeros(10, "uint8")
    stream = client.host_stream()
    b = a.to(second, stream=stream)
    held.use(b)
    held.go()
    held.stream.synchronize()
    b.publish("b", stream=held.stream)
    assert set(client.lookup("b").tobytes()) == {5}
    client.unpublish("b")
    with pytest.raises((TypeError, libshare.InvalidArgumentError)):
        a.to(second, stream="x")
    for s in (stream, held.stream):
        s.close()


def test_asyncio_has_it_in_a_thread(pool, second):
    async def main():
        return await asyncio.gather(*(asyncio.to_thread(pool.array(np.full(1000, i)).to, second) for i in range(20)))

    for i, b in enumerate(asyncio.run(main())):
        assert np.all(np.asarray(b) == i)


def test_threads_open_pools_while_others_look_for_one(client, pool):
    a, wrong, end = pool.array(np.arange(3)), [], threading.Event()

    def opens():
        try:
            while not end.is_set():
                client.pool("test", create=False).close()
        except BaseException as e:
            wrong.append(e)
            raise

    thread = threading.Thread(target=opens)
    thread.start()
    for _ in range(300):
        with pytest.raises(ValueError, match="no pool of cuda:7 open"):
            a.to("cuda:7")
    end.set()
    thread.join()
    assert wrong == []


def test_a_copy_in_a_pool_that_is_not_open_opens_it_for_nobody_else(client, pool):
    held, done = Held(client), []
    with client.pool("third", kind="host", limit="1MiB") as third:
        a = third.empty(10, "uint8", stream=held.stream)
    held.use(a)
    thread = threading.Thread(target=lambda: done.append(a.to("cpu", copy=True)))
    thread.start()
    # what is wrong is seen nearly always, what is right is never taken for wrong
    seen = [libshare._client.open_pools(client) for _ in range(1000) if state_of(f"self/task/{thread.native_id}")]
    held.go()
    thread.join()
    assert all(x == [pool] for x in seen) and set(done[0].tobytes()) == {5}
    held.stream.close()


def test_references_do_not_leak(pool, second, broker):
    a = pool.array(np.arange(100))

    def once():
        a.to(second)
        a.to(pool)
        a.to("cpu", copy=True)
        for wrong in ("cuda:1", "x"):
            with pytest.raises(ValueError):
                a.to(wrong)

    once()
    second.set_cache(0)
    pool.set_cache(0)
    gc.collect()
    until(lambda: len(broker.inspect("buffers")) == 1)
    before = sys.getrefcount(a), sys.getrefcount(second), sys.getrefcount(pool.client)
    for _ in range(50):
        once()
    gc.collect()
    assert (sys.getrefcount(a), sys.getrefcount(second), sys.getrefcount(pool.client)) == before
    until(lambda: len(broker.inspect("buffers")) == 1)
