# SPDX-License-Identifier: MIT
"""Two GPUs, over the stand-in for the driver: work on memory is ordered by streams of the GPU that it lies on,
whichever is current."""

import os

os.environ["SHARE_STANDIN"] = "devices=2"  # before the driver is loaded, here and by brokers

import subprocess
import sys
import threading
import types

import pytest

import libshare
from adopt_gpu_test import Memory, Tensor
from conftest import state_of, until
from driver import Driver
from to_test import in_function_on


@pytest.fixture
def drivers():
    both = [Driver(device) for device in (1, 0)]  # the last one is current
    yield both[::-1]
    for d in both:
        d.let_go()
    for d in both:
        d.end()


@pytest.fixture
def torch(drivers, monkeypatch):
    """Works on the streams that it answers, by GPU; GPU 0 is current."""
    streams = [d.stream() for d in drivers]
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace())
    monkeypatch.setattr(libshare._streams, "_number_of_torch", lambda ordinal: streams[max(ordinal, 0)])
    return streams


@pytest.fixture
def pools(client):
    devices = sorted(client.inspect("devices"), key=lambda row: row["device"])
    both = [client.pool(f"gpu{i}", kind="vmm", device=row["device"], limit="32MiB") for i, row in enumerate(devices)]
    yield both
    for p in both:
        p.close()


@pytest.fixture
def adopted(client):
    with client.pool("adopted", kind="adopted", limit="64MiB") as p:
        yield p


class After:
    """Work on a stream that does not end, and what waits for it."""

    def __init__(self, driver, stream):
        self.driver, self.go = driver, driver.hold(stream)

    def _other(self, array):
        """A stream of somebody who has the Array from now on."""
        other, array.readonly_ok = self.driver.stream(), True
        array.__dlpack__(stream=other)
        return other

    def comes(self, array):
        """Whether what others do with the Array comes after that work."""
        return self.driver.stands_still(self._other(array))

    def is_passed(self, array):
        """What others do with it does not: that is waited for, however long the driver's threads get no turn."""
        other = self._other(array)
        until(lambda: self.driver.idle(other))
        return True


def test_memory_is_had_on_the_stream_of_its_own_gpu(client, drivers, torch, pools):
    work = After(drivers[1], torch[1])
    assert work.comes(pools[1].empty(4)) and work.is_passed(pools[0].empty(4))
    pools[1].empty(4, stream=torch[0]).publish("x", stream=None)
    a = client.lookup("x")
    assert a.device == "cuda:1" and work.comes(a)
    assert work.comes(client.import_(a.export(stream=None)))
    client.unpublish("x")
    work.go.set()


def test_messages_are_had_and_given_up_on_the_stream_of_their_own_gpu(drivers, torch, pools):
    with pools[1].producer("x") as tx, pools[1].consumer("x") as rx:
        for _ in range(2):  # which GPU they are of is known by the first
            a = pools[1].empty(4, stream=None)
            tx.send(a, stream=None)
            work = After(drivers[1], torch[1])
            with rx.recv(timeout=30) as m:
                assert m.array.device == "cuda:1" and work.comes(m.array)
                m.ack()
            other = drivers[1].stream()
            assert a.reclaim(timeout=30, stream=other) and drivers[1].stands_still(other)
            work.go.set()
            a.release(stream=other)


@pytest.mark.parametrize("how", ["publish", "export", "send", "send_many"])
def test_what_is_handed_on_comes_after_the_work_on_its_own_gpu(client, drivers, torch, pools, how):
    a = pools[1].empty(4, stream=None)
    with pools[1].producer("x") as tx, pools[1].consumer("x") as rx:
        work = After(drivers[1], torch[1])
        other = drivers[1].stream()
        if how == "publish":
            a.publish("x")
            b = client.lookup("x", stream=other)
            client.unpublish("x")
        elif how == "export":
            b = client.import_(a.export(), stream=other)
        else:
            getattr(tx, how)(a if how == "send" else [a])
            m = rx.recv(stream=other)
            b = m.array
        assert drivers[1].stands_still(other)
        work.go.set()
        b.release(stream=other)


def test_what_is_adopted_is_ordered_on_its_own_gpu(drivers, torch, adopted):
    work = After(drivers[1], torch[1])
    a = adopted.adopt(Tensor(Memory(drivers[1], device=1), 0, (64,)))
    assert a.device == "cuda:1" and work.comes(a)
    b = adopted.adopt(Tensor(Memory(drivers[0]), 0, (64,)))
    assert b.device == "cuda:0" and work.is_passed(b)
    work.go.set()


@pytest.mark.parametrize("frameworks", [False, True])
def test_what_is_adopted_comes_after_the_stream_that_it_names(drivers, adopted, frameworks, request):
    if frameworks:
        request.getfixturevalue("torch")
    for device in range(2):
        x = Tensor(Memory(drivers[device], device=device), 0, (64,))
        for stream, names in ((drivers[device].stream(), True), (drivers[device].stream(), False)):
            x.__cuda_array_interface__["stream"] = stream if names else None
            for options in ({}, {"stream": drivers[device].stream()}, {"stream": None}):
                work = After(drivers[device], stream)
                a = adopted.adopt(x, **options)
                assert work.comes(a) if names else work.is_passed(a)
                found = libshare.array_of(x)
                work.go.set()
                found.release()
                a.release()
                del a, found
                until(lambda: adopted.client.ping() or adopted.client.inspect("segments") == [])


def test_what_is_found_comes_after_the_stream_that_it_names(drivers, pools):
    a = pools[1].empty(16, "uint8", stream=None)
    lent, stream = a._lend(), drivers[1].stream()
    x = types.SimpleNamespace(__cuda_array_interface__={
        "data": (a.ptr, False), "typestr": "|u1", "shape": (16,), "version": 3, "stream": None})
    work = After(drivers[1], stream)
    assert work.is_passed(libshare.array_of(x))
    x.__cuda_array_interface__["stream"] = stream
    assert work.comes(libshare.array_of(x))
    work.go.set()
    del lent


def test_stream_0_is_named_by_nobody(drivers, adopted):
    x = Tensor(Memory(drivers[0]), 0, (64,))
    x.__cuda_array_interface__["stream"] = 0
    with pytest.raises(ValueError, match="stream 0"):
        adopted.adopt(x)


X = bytes(range(1, 65))


def moved_back_and_forth(client, pools):
    a = pools[0].array(X)
    for where in (pools[1], "cuda:1", 1, (2, 1)):
        b = a.to(where)
        assert b.device == "cuda:1" and pools[1]._has(b) and b.to(where) is b and a.to("cuda:0") is a
        assert b.tobytes() == X and not b.readonly
        c = b[32:].to("cuda:0")
        assert c.device == "cuda:0" and c.tobytes() == X[32:] and b[:0].to(pools[0]).tobytes() == b""
        b.fill_zero()
        assert a.to(where, copy=True).tobytes() == X
    other = b.to(where, copy=True)
    assert pools[1]._has(other) and other.id != b.id and other.tobytes() == bytes(64)
    with client.pool("host", kind="host", limit="1MiB"):
        h = a.to("cpu")
        assert h.device == "cpu" and bytes(h) == X and bytes(a[:5].to("cpu")) == X[:5] and a[5:5].to("cpu").nbytes == 0
        g = h[8:].to("cuda:1")
        assert g.device == "cuda:1" and g.tobytes() == X[8:]
    return True


@pytest.mark.parametrize("frameworks", [False, True])
def test_content_goes_to_another_gpu(client, pools, drivers, frameworks, request):
    if frameworks:
        request.getfixturevalue("torch")
    moved_back_and_forth(client, pools)


WITHOUT_PEERS = """
import libshare, two_gpus_test as t
with libshare.connect("embedded") as c:
    rows = sorted(c.inspect("devices"), key=lambda row: row["device"])
    pools = [c.pool(f"gpu{i}", kind="KIND", device=r["device"], limit="32MiB") for i, r in enumerate(rows)]
    assert t.moved_back_and_forth(c, pools)
    for p in pools:
        p.close()
print("ok")
"""


@pytest.mark.parametrize("kind", ["vmm", "mempool"])
def test_content_goes_to_a_gpu_that_cannot_reach_the_other(kind):
    code = WITHOUT_PEERS.replace("KIND", kind).replace("import libshare", "import os, libshare", 1)
    code = code.replace("with libshare", 'os.environ["SHARE_STANDIN"] = "devices=2,peers=0"\nwith libshare', 1)
    done = subprocess.run([sys.executable, "-c", code], check=True, timeout=200, cwd=os.path.dirname(__file__),
                          stdout=subprocess.PIPE, text=True)
    assert done.stdout == "ok\n"


def test_a_copy_comes_after_the_work_on_both_gpus(client, drivers, torch, pools):
    home, also = drivers[0].stream(), drivers[0].stream()
    for device, stream in ((0, torch[0]), (0, home), (0, also), (1, torch[1])):
        a = pools[0].array(X, stream=home)
        a.record_stream(also)
        work = After(drivers[device], stream)
        drivers[0].fill(stream, a, 7)
        b = a.to("cuda:1")
        assert work.comes(b)
        work.go.set()
        assert set(b.tobytes()) == {7}


@pytest.mark.parametrize("now", [True, False])
def test_later_work_where_it_was_comes_after_the_copy(drivers, torch, pools, now):
    home = drivers[0].stream()
    a = pools[0].array(X, stream=home)
    work = After(drivers[1], torch[1])
    b = a.to("cuda:1")
    later = torch[0] if now else home
    assert drivers[0].stands_still(later)
    drivers[0].fill(later, a, 9)
    work.go.set()
    assert b.tobytes() == X and set(a.tobytes(stream=later)) == {9}


def test_what_was_copied_from_is_given_up_after_the_copy(drivers, torch, pools):
    a = pools[0].array(X, stream=drivers[0].stream())
    work = After(drivers[1], torch[1])
    b = a.to("cuda:1")
    del a
    others = [pools[0].empty(64, "uint8") for _ in range(20)]
    for x in others:
        drivers[0].fill(torch[0], x, 9)
    work.go.set()
    assert b.tobytes() == X


def test_a_copy_is_made_on_the_stream_that_is_named(drivers, torch, pools):
    a = pools[0].array(X)
    stream = drivers[1].stream()
    held, work = After(drivers[1], torch[1]), After(drivers[1], stream)
    b = a.to("cuda:1", stream=stream)
    assert work.comes(b)
    work.go.set()
    assert b.tobytes(stream=stream) == X  # behind what is held it would not end
    held.go.set()


def test_a_copy_to_the_host_comes_after_the_work_on_the_gpu(client, drivers, torch, pools):
    home = drivers[1].stream()
    with client.pool("host", kind="host", limit="1MiB") as host:
        for stream, options in ((torch[1], {}), (home, {}), (home, {"stream": drivers[1].stream()})):
            a, done = pools[1].array(X, stream=home), []
            work = After(drivers[1], stream)
            drivers[1].fill(stream, a, 7)
            thread = threading.Thread(target=lambda: done.append(bytes(a.to(host, **options))))  # noqa: B023
            thread.start()
            assert not any(done for _ in range(1000) if state_of(f"self/task/{thread.native_id}"))
            work.go.set()
            thread.join()
            assert set(done[0]) == {7}


def test_a_function_on_a_host_stream_copies_what_is_ordered_there(client, drivers, pools):
    with client.pool("host", kind="host", limit="1MiB") as host, client.host_stream() as stream:
        a = pools[0].array(X, stream=stream)
        for waits in (lambda: a.to(host), lambda: a.to("cuda:1", stream=stream), a.tobytes, lambda: pools[1].array(X, stream=stream)):
            assert isinstance(in_function_on(stream, waits), libshare.InvalidArgumentError)
        for copy in (lambda: a.to("cuda:1"), lambda: a.to(host, stream=None), lambda: a.to("cuda:0", copy=True, stream=None)):
            assert in_function_on(stream, lambda: copy().tobytes(stream=None)) == X  # noqa: B023

        other, handed, go = drivers[0].stream(), threading.Event(), threading.Event()
        a.readonly_ok = True
        stream.launch(lambda: (a.__dlpack__(stream=other), handed.set(), go.wait()))
        handed.wait()
        until(lambda: drivers[0].idle(other))  # though the function has not ended
        go.set()
        stream.synchronize()
        del a


def test_a_host_stream_that_was_closed_orders_nothing(client, drivers, pools):
    streams = [client.host_stream() for _ in range(2)]
    a = pools[0].array(X, stream=streams[0])
    a.record_stream(streams[1])
    for s in streams:
        s.close()
    with client.pool("host", kind="host", limit="1MiB") as host:
        assert a.to("cuda:1").tobytes() == a.to(host).tobytes() == a[:].tobytes() == a.tobytes() == X
    a.publish("x")
    assert client.lookup("x").tobytes() == X
    client.unpublish("x")


def test_a_host_stream_of_another_client_orders_nothing(broker, drivers, pools):
    a = pools[0].array(X)
    with libshare.connect(broker.address, label="other") as c, c.host_stream() as far:
        with pytest.raises(libshare.InvalidArgumentError):
            a.record_stream(far)


def test_what_is_there_is_ordered_on_the_stream_that_is_named(drivers, pools):
    a, stream = pools[1].array(X, stream=drivers[1].stream()), drivers[1].stream()
    home = drivers[1].stream()
    a.record_stream(home)
    work = After(drivers[1], home)
    assert a.to("cuda:1", stream=stream) is a and drivers[1].stands_still(stream)
    work.go.set()


def test_which_gpu_is_meant(client, pools, monkeypatch):
    cuda = types.SimpleNamespace(is_initialized=lambda: True, current_device=lambda: 1,
                                 current_stream=lambda device: types.SimpleNamespace(cuda_stream=0))
    a = pools[0].array(X)
    with client.pool("host", kind="host", limit="1MiB") as host:
        h = host.array(X)
        assert a.to("cuda") is a  # nothing says which
        with pytest.raises(ValueError, match="2 pools of a GPU open here .gpu0, gpu1."):
            h.to("cuda")
        with monkeypatch.context() as m:
            m.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda, Tensor=type("Tensor", (), {})))
            m.setattr(libshare._streams, "_number_of_torch", None)
            assert a.to("cuda").device == h.to("cuda").device == "cuda:1"
        with client.pool("more", kind="vmm", device=pools[1].info()["device"], limit="32MiB") as more:
            with pytest.raises(ValueError, match="2 pools of cuda:1 open here .gpu1, more."):
                a.to("cuda:1")
            assert more._has(a.to(more)) and h.to(0).device == "cuda:0"
        assert a.to("cuda:1").device == "cuda:1"
        with pytest.raises(ValueError, match="no pool of cuda:2"):
            a.to("cuda:2")


def test_what_has_gaps_is_refused_where_the_host_cannot_read_it(pools):
    a = pools[0].array(X).reshape(8, 8)
    assert a[2:4].to("cuda:1").tobytes() == X[16:32]
    for gaps in (a.T, a[:, 1:]):
        with pytest.raises(ValueError, match="not contiguous"):
            gaps.to("cuda:1")


def test_a_full_gpu_says_so(client, pools):
    a = pools[0].zeros(8 << 20, "uint8")
    with client.pool("small", kind="vmm", device=pools[1].info()["device"], limit="4MiB") as small:
        for _ in range(2):
            with pytest.raises(libshare.OutOfMemoryError):
                a.to(small)
