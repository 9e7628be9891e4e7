# SPDX-License-Identifier: MIT
"""Memory of kind pinned, over the stand-in for the driver: it is a GPU's, and the CPU has it in place, after the
work on it."""

import asyncio
import copy
import os
import pickle
import signal
import subprocess
import sys
import threading
import types

import numpy as np
import pytest

import libshare
from arrow_device import Taken
from conftest import fork, state_of, until
from driver import Driver

LIMIT = 60  # seconds; only ends a test that has failed
X = np.arange(24, dtype=np.float32).reshape(4, 6)


@pytest.fixture
def pool(client):
    with client.pool("pinned", kind="pinned", limit="64MiB") as p:
        yield p


@pytest.fixture
def driver():
    d = Driver()
    yield d
    d.end()


@pytest.fixture
def framework(monkeypatch):
    """A framework whose current stream is what now[0] is."""
    now = [0]
    cuda = types.SimpleNamespace(is_initialized=lambda: True,
                                 current_stream=lambda device: types.SimpleNamespace(cuda_stream=now[0]))
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda, Tensor=type("Tensor", (), {})))
    monkeypatch.setattr(libshare._streams, "_number_of_torch", None)
    return now


def address(x):
    return x.__array_interface__["data"][0]


def from_dlpack(a):
    """By NumPy, which takes a device from 2.1 on."""
    return np.from_dlpack(types.SimpleNamespace(
        __dlpack_device__=lambda: (1, 0), __dlpack__=lambda **k: a.__dlpack__(**{**k, "dl_device": (1, 0)})))


def test_the_cpu_has_in_place_what_frameworks_have_on_the_gpu(pool):
    a = pool.array(X)
    assert pool.on_gpu and a.on_gpu and a.on_host and a.device == "cuda:0" and a.info()["kind"] == "pinned"
    flat = Taken(a.reshape(-1).__arrow_c_device_array__())
    assert flat.device == (3, 0) and flat.data == a.ptr  # which the CPU may read, too
    flat.release()
    assert a.__dlpack_device__() == (2, 0) and a.__cuda_array_interface__["data"] == (a.ptr, False)
    for view in (np.asarray(a), np.asarray(memoryview(a)), from_dlpack(a)):
        assert address(view) == a.ptr and np.array_equal(view, X) and view.flags.writeable
    v = a[1:, ::2]
    for view in (np.asarray(v), from_dlpack(v)):
        assert address(view) == v.ptr and np.array_equal(view, X[1:, ::2])
    a[0, 0] = 50
    assert float(a[0, 0]) == 50 and bool(a[0, 0]) and (a == np.asarray(a)).all() and a != None  # noqa: E711
    assert np.frombuffer(a.tobytes(), "float32")[0] == 50 and bytes(a) == a.tobytes()
    assert not any(other.on_host for other in [pool.client.pool("v", kind="vmm", limit="8MiB").empty(1)])
    with pytest.raises(TypeError, match="NumPy has no dtype bfloat16"):
        np.asarray(a.view("bfloat16"))
    for device in ((1, 1), (2, 1), (3, 0), (13, 0), (1, "x"), 1):
        with pytest.raises(BufferError, match="on another device"):
            a.__dlpack__(dl_device=device)
    with pytest.raises(BufferError):
        a.__dlpack__(dl_device=(1, 0), copy=True)


def test_what_may_only_be_read_is_so_for_the_cpu(client, pool):
    pool.array(X).publish("x")
    a = client.lookup("x")
    assert a.readonly and memoryview(a).readonly and not np.asarray(a).flags.writeable
    assert not from_dlpack(a).flags.writeable
    with pytest.raises(ValueError):
        a[0, 0] = 1
    with pytest.raises(BufferError, match="which this consumer cannot be told"):
        a.__dlpack__(dl_device=(1, 0))
    for version in (None, (1, 0)):
        with pytest.raises(BufferError, match="which frameworks on GPUs do not heed"):
            a.__dlpack__(max_version=version)
    a.readonly_ok = True
    a.__dlpack__(dl_device=(1, 0))
    client.unpublish("x")


OTHER = """
import pickle, sys
import numpy as np
import libshare

c = libshare.connect(sys.argv[1])
a = c.lookup("x", "rw", timeout=60)
assert np.array_equal(np.asarray(a), np.arange(24, dtype="float32").reshape(4, 6))
np.asarray(a)[...] = 7
b = pickle.loads(bytes.fromhex(sys.argv[2]))
assert b.on_host and b.on_gpu and np.asarray(b).tolist() == [1, 2, 3]
b[0] = 9
"""


def test_the_cpu_of_another_process_has_it(client, pool):
    a, b = pool.array(X), pool.array(np.arange(1, 4))
    a.publish("x")
    subprocess.run([sys.executable, "-c", OTHER, client.address, pickle.dumps(b).hex()], check=True, timeout=LIMIT * 3)
    assert np.all(np.asarray(a) == 7) and np.asarray(b).tolist() == [9, 2, 3]
    client.unpublish("x")


DOORS = {
    "numpy": np.asarray,
    "memoryview": memoryview,
    "dlpack": from_dlpack,
    "values": lambda a: np.full(1000, 7, "uint8") if np.all(a == 7) else [0],
    "copy_from": lambda a: (b := a.client.pool("pinned").empty(1000, "uint8"), b.copy_from(a), b)[-1],
    "to": lambda a: a.to(a.client.pool("host")),
}


@pytest.mark.parametrize("where", ["the stream it was acquired on", "a recorded one", "the framework's"])
@pytest.mark.parametrize("door", DOORS)
def test_the_cpu_gets_it_after_the_work_on_it(client, pool, driver, framework, door, where):
    stream, framework[0] = driver.stream(), driver.stream()
    with client.pool("host", kind="host", limit="8MiB"):
        a = pool.zeros(1000, "uint8", stream=stream if where.startswith("the stream") else None)
        if where.startswith("the framework"):
            stream = framework[0]
        elif where.startswith("a recorded"):
            a.record_stream(stream)
        go, seen = driver.hold(stream), []
        driver.fill(stream, a, 7)

        thread = threading.Thread(target=lambda: seen.append(set(bytes(DOORS[door](a)))))
        thread.start()
        # what is wrong is seen nearly always, what is right is never taken for wrong
        assert not any(seen for _ in range(1000) if state_of(f"self/task/{thread.native_id}"))
        go.set()
        thread.join()
        assert seen == [{7}]
        del a


def test_what_the_cpu_has_is_given_up_when_it_is_let_go(pool):
    for door in (np.asarray, memoryview, from_dlpack):
        a = pool.array(X)
        kept = door(a)
        a.release()
        others = [pool.zeros((4, 6), "float32") for _ in range(50)]
        assert np.array_equal(np.asarray(kept), X)
        del kept, others


def test_a_function_on_the_stream_itself_waits_for_nothing(client, pool):
    with client.host_stream() as stream, client.host_stream() as other:
        a = pool.zeros(10, "uint8", stream=stream)
        a.record_stream(other)
        other.launch(lambda: None)
        stream.launch(lambda: np.asarray(a).fill(9))
        stream.synchronize()
        assert set(bytes(a)) == {9}
    assert set(bytes(a)) == {9}  # the streams were closed, after the work on them


def test_a_signal_is_not_lost_while_numpy_waits(pool, driver):
    stream = driver.stream()
    a = pool.zeros(10, "uint8", stream=stream)
    go = driver.hold(stream)

    class Alarm(Exception):
        pass

    def ring(*_):
        raise Alarm

    before, main, seen = signal.signal(signal.SIGUSR1, ring), threading.get_native_id(), []

    def kill():
        until(lambda: seen or state_of(f"self/task/{main}") == "S")
        os.kill(os.getpid(), signal.SIGUSR1)
        go.set()

    thread = threading.Thread(target=kill)
    try:
        with pytest.raises(Alarm):
            thread.start()
            seen.append(np.asarray(a))
            until(lambda: False)
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, before)
    assert np.asarray(a).tolist() == [0] * 10


def test_a_client_that_was_closed_and_a_child_that_was_forked(broker):
    c = libshare.connect(broker.address)
    pool = c.pool("pinned", kind="pinned", limit="8MiB")
    a = pool.array(X)
    pid = fork()
    if pid == 0:
        code = 0
        for door in (np.asarray, memoryview, lambda a: a.on_host, lambda a: a[0], from_dlpack):
            try:
                door(a)
                code = 1
            except libshare.ForkedError:
                pass
        os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    pool.close()
    c.close()
    for door in (np.asarray, memoryview, from_dlpack):
        assert np.array_equal(np.asarray(door(a)), X)
    a.release()
    for door in (np.asarray, memoryview, lambda a: a.on_host):
        with pytest.raises((libshare.ClosedError, TypeError)):
            door(a)


def test_it_is_copied_to_and_from_all_others(client, pool):
    a = pool.array(X)
    with client.pool("host", kind="host", limit="8MiB") as host, client.pool("vmm", kind="vmm", limit="8MiB") as vmm:
        for other in (host, vmm):
            b = a.to(other)
            back = b.to(pool)
            a.fill_zero()
            assert b.tobytes() == X.tobytes() == back.tobytes() and back.info()["kind"] == "pinned" and back.shape == (4, 6)
            a.copy_from(X)
            assert np.array_equal(np.frombuffer(a.T.to(other).tobytes(), "float32").reshape(6, 4), X.T)
        # it is on its GPU, wherever the CPU reaches it: so a copy on the host is memory of the host
        assert a.to("cuda") is a and a.to("cuda:0") is a and a.to(pool) is a and a.to(a.__dlpack_device__()) is a
        b = a.to("cpu")
        assert b.device == "cpu" and host._has(b) and np.array_equal(np.asarray(b), X)
        # and the memory of a GPU is that of another pool
        b = host.array(X).to("cuda")
        assert vmm._has(b) and b.tobytes() == X.tobytes()
    for other in (a.to("cuda", copy=True), copy.copy(a), copy.deepcopy(a), pool.array(a), copy.copy(a.T).T):
        assert pool._has(other) and other.id != a.id and np.array_equal(np.asarray(other), X)
    with client.pool("host", kind="host", limit="8MiB") as host:
        with pytest.raises(ValueError, match="has no pool of a GPU open"):
            host.array(X).to("cuda")
    with pytest.raises(ValueError, match="has no pool of the host open"):
        a.to("cpu")


def test_what_numpy_made_of_it_is_found_and_not_adopted(client, pool):
    x = np.asarray(pool.array(X))
    x[0, 0] = 5
    a = libshare.array_of(x[1:])
    assert a.on_gpu and a.on_host and a.ptr == address(x[1:])
    libshare.array_of(x).publish("x")
    assert np.array_equal(np.asarray(client.lookup("x")), x)
    client.unpublish("x")
    with client.pool("brought", kind="adopted", limit="8MiB") as brought, pytest.raises(libshare.ExistsError):
        brought.adopt(x)


def test_a_message_is_read_after_what_its_sender_has_enqueued(client, pool, driver):
    stream = driver.stream()

    async def receive(rx):
        m = await rx.recv_async()
        return await asyncio.to_thread(lambda: (set(bytes(np.asarray(m.array))), m.ack()))

    with pool.consumer("q", mode="queue") as rx, pool.producer("q", mode="queue") as tx:
        for how in (lambda: (m := rx.recv(LIMIT), set(bytes(np.asarray(m.array))), m.ack())[1],
                    lambda: asyncio.run(receive(rx))[0]):
            a, seen = pool.zeros(100, "uint8", stream=stream), []
            go = driver.hold(stream)
            driver.fill(stream, a, 8)
            tx.send(a, stream=stream)
            a.release()
            thread = threading.Thread(target=lambda: seen.append(how()))  # noqa: B023
            thread.start()
            assert not any(seen for _ in range(1000) if state_of(f"self/task/{thread.native_id}"))
            go.set()
            thread.join()
            assert seen == [{8}]


def test_tables_lie_in_it(client, pool):
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"price": [1.5, 2.5], "name": ["a", "b"]})
    for _ in range(4):
        libshare.arrow.publish(pool, "prices", table)
        assert libshare.arrow.lookup(client, "prices").equals(table)
    assert libshare.arrow.table_of(libshare.arrow.to_pool(pool, table, compression="zstd")).equals(table)
    libshare.arrow.collect()
    client.unpublish("prices")


def test_what_the_documents_show_runs(client):
    with open(os.path.join(os.path.dirname(__file__), "../../docs/python.md"), encoding="utf-8") as f:
        shown = [block for block in f.read().split("```python\n") if 'kind="pinned"' in block]
    assert len(shown) == 1
    exec(shown[0].partition("```")[0], {"client": client, "np": np})
    client.unpublish("weights")
