# SPDX-License-Identifier: MIT
"""Events of CUDA between processes, over the stand-in for the driver."""

import ctypes
import multiprocessing
import multiprocessing.resource_tracker
import threading

import pytest
from conftest import until

import libshare

# It stays, with its descriptors, so it is there before these are counted.
multiprocessing.resource_tracker.ensure_running()

NOT_READY = 600
FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Stream:
    """A stream of the driver."""

    driver = None

    def __init__(self):
        self.functions = []
        if Stream.driver is None:
            Stream.driver = ctypes.CDLL("libcuda.so.1")
            context = ctypes.c_void_p()
            self.call("cuInit", 0)
            self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
            self.call("cuCtxSetCurrent", context)
        made = ctypes.c_void_p()
        self.call("cuStreamCreate", ctypes.byref(made), 1)
        self.handle = made.value

    def call(self, function, *arguments):
        assert getattr(self.driver, function)(*arguments) == 0, function

    def gate(self):
        """What is enqueued from now on waits until the gate is set."""
        gate = threading.Event()
        self.functions.append(FUNCTION(lambda _: gate.wait() and None))
        self.call("cuLaunchHostFunc", ctypes.c_void_p(self.handle), self.functions[-1], None)
        return gate

    def done(self):
        result = self.driver.cuStreamQuery(ctypes.c_void_p(self.handle))
        assert result in (0, NOT_READY)
        return result == 0

    def close(self):
        self.call("cuStreamSynchronize", ctypes.c_void_p(self.handle))
        self.call("cuStreamDestroy_v2", ctypes.c_void_p(self.handle))


@pytest.fixture
def streams():
    two = Stream(), Stream()
    yield two
    for stream in two:
        stream.close()


@pytest.fixture
def event(broker, client):
    with client.event(name="ready") as made:
        yield made
    assert made.closed
    until(lambda: broker.inspect("events") == [])


def test_who_waits_comes_behind_what_was_recorded(client, event, streams):
    before, behind = streams
    gate = before.gate()
    event.record(before.handle)
    with client.event(open="ready") as same:
        same.wait(behind.handle)
    assert not behind.done()
    gate.set()
    until(behind.done)
    assert before.done()


def test_an_event_that_was_never_recorded_keeps_nobody(event, streams):
    event.wait(streams[0].handle)
    until(streams[0].done)


def test_a_wait_is_for_what_was_recorded_until_then(event, streams):
    before, behind = streams
    event.record(before.handle)
    event.wait(behind.handle)
    gate = before.gate()
    event.record(before.handle)
    until(behind.done)
    assert not before.done()
    gate.set()


def wait_elsewhere(address, how, pipe):
    with libshare.connect(address) as client, client.event(**how) as event:
        stream = Stream()
        event.wait(stream.handle)
        pipe.send((stream.done(), event.id))
        until(stream.done)
        pipe.send("done")
        stream.close()


@pytest.mark.parametrize("by", ["name", "token"])
def test_another_process_waits(client, event, streams, by):
    how = {"open": "ready"} if by == "name" else {"token": event.export()}
    gate = streams[0].gate()
    event.record(streams[0].handle)
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    child = context.Process(target=wait_elsewhere, args=(client.address, how, there))
    child.start()
    there.close()
    assert here.recv() == (False, event.id)
    gate.set()
    assert here.recv() == "done"
    child.join()
    assert child.exitcode == 0
    here.close()
    child.close()


def test_what_an_event_is_like(client, event):
    with client.event(open="ready") as same:
        assert len(same.handle) == 64 and same.handle == event.handle
        assert (same.id, same.device) == (event.id, event.device)
        assert event.device == client.inspect("devices")[0]["device"]
        with client.event(device=event.device) as other:
            assert other.id != event.id and other.handle != event.handle


def test_what_cannot_be_is_refused(client, event):
    with pytest.raises(libshare.ExistsError):
        client.event(name="ready")
    with pytest.raises(libshare.NotFoundError):
        client.event(open="nobody")
    with pytest.raises(libshare.NoDeviceError):
        client.event(device="GPU-none")
    with pytest.raises(ValueError, match="32 bytes"):
        client.event(token=b"short")
    with pytest.raises(libshare.NotFoundError):
        client.event(token=bytes(32))
    with pytest.raises(TypeError):
        event.record("a stream")


def test_a_closed_event_says_so(client):
    event = client.event()
    event.close()
    event.close()
    for use in (lambda: event.record(1), lambda: event.wait(1), event.export, lambda: event.handle,
                lambda: event.id, lambda: event.device):
        with pytest.raises(libshare.ClosedError):
            use()
