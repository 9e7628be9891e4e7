# SPDX-License-Identifier: MIT
"""Two GPUs, over the stand-in for the driver: work on memory is ordered by streams of the GPU that it lies on,
whichever is current."""

import os

os.environ["SHARE_STANDIN"] = "devices=2"  # before the driver is loaded, here and by brokers

import sys
import types

import pytest

import libshare
from adopt_gpu_test import Memory, Tensor
from conftest import until
from driver import Driver


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
