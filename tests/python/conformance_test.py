# SPDX-License-Identifier: MIT
"""What tests/themes/conformance/scenarios.txt has, over every kind of memory; scenarios_test compares the names."""

import os
import threading

import numpy as np
import pytest

import libshare

SIZE = 10000
LIMIT = 30  # only so that a test which hangs ends


@pytest.fixture(params=["host", "vmm", "mempool", "pinned"])
def pool(request, client):
    if request.param != "host" and "standin" not in os.environ.get("LD_LIBRARY_PATH", ""):
        pytest.skip("there is no stand-in for the driver")
    with client.pool("test", kind=request.param, limit="64MiB") as p:
        yield p


@pytest.fixture
def other(broker):
    """Another connection than the pool's."""
    with libshare.connect(broker.address, label="other") as c:
        yield c


def filled(pool, value):
    return pool.array(np.full(SIZE, value, np.uint8))


def is_filled(array, value):
    return array.tobytes() == bytes([value]) * SIZE


def members(pool, other):
    return pool.producer("queue", mode="queue"), other.pool("test").consumer("queue", mode="queue")


def test_a_buffer_is_found_by_its_name(client, pool, other):
    filled(pool, 1).publish("name")
    assert is_filled(other.lookup("name", timeout=LIMIT), 1)
    client.unpublish("name")
    with pytest.raises(FileNotFoundError):
        other.lookup("name", timeout=0)


def test_a_buffer_is_imported_by_its_token(pool, other):
    token = filled(pool, 2).export()
    assert is_filled(other.import_(token), 2)
    with pytest.raises(FileNotFoundError):
        other.import_(token)


def test_who_may_only_read_cannot_write(client, pool, other):
    a = filled(pool, 3)
    a.publish("name")
    with pytest.raises((PermissionError, ValueError, BufferError)):
        other.lookup("name", timeout=LIMIT).copy_from(bytes(SIZE))
    assert is_filled(a, 3)
    client.unpublish("name")


def test_a_tensor_goes_with_a_name(client, pool, other):
    filled(pool, 4).view("float32").reshape(100, 25).publish("name")
    found = other.lookup("name", timeout=LIMIT)
    assert (found.dtype, found.shape) == ("float32", (100, 25))
    client.unpublish("name")


def test_a_buffer_is_copied_to_another_pool_and_back(pool, other):
    a = filled(pool, 16)
    with other.pool("copies", kind="host", limit="64MiB") as copies:
        b = a.to(copies)
        a.fill_zero()
        assert b.client is other and is_filled(b, 16) and is_filled(b.to(pool), 16) and is_filled(a, 0)


def test_a_pool_is_mapped_before_anything_is_looked_up(client, pool, other):
    filled(pool, 17).publish("name")
    with other.pool("test") as p:
        p.map_ahead()
        assert is_filled(other.lookup("name", timeout=LIMIT), 17)
        p.map_ahead(mode="rw")
    other.lookup("name", "rw", timeout=LIMIT).copy_from(bytes([18]) * SIZE)
    assert is_filled(other.lookup("name", timeout=LIMIT), 18)
    client.unpublish("name")


def test_a_channel_carries_memory(pool, other):
    tx, rx = members(pool, other)
    with tx, rx:
        for i in range(20):
            tx.send(filled(pool, i))
            with rx.recv(LIMIT) as m:
                assert m.number == i and is_filled(m.array, i)


def test_a_message_may_have_several_buffers(pool, other):
    options = {"mode": "queue", "buffers": 2}
    with pool.producer("queue", **options) as tx, other.pool("test").consumer("queue", **options) as rx:
        a, b = filled(pool, 14), filled(pool, 15)
        with pytest.raises(ValueError):
            tx.send([a, b, a])
        tx.send([a, b])
        with rx.recv(LIMIT) as m:
            first, kept = m.arrays
            assert is_filled(first, 14)
            del first
        assert is_filled(kept, 15)


def test_a_queue_gives_each_message_to_one(pool, other):
    tx, rx = members(pool, other)
    with tx, rx, other.pool("test").consumer("queue", mode="queue") as second:
        tx.send(filled(pool, 5))
        tx.send(filled(pool, 6))
        with rx.recv(LIMIT) as m, second.recv(LIMIT) as n:
            assert m.number != n.number and is_filled(m.array, 5 + m.number) and is_filled(n.array, 5 + n.number)
        for one in rx, second:
            with pytest.raises(libshare.NotReadyError):
                one.recv(0)


def test_a_message_is_kept_beyond_its_acknowledgement(pool, other):
    tx, rx = members(pool, other)
    with tx, rx:
        tx.send(filled(pool, 7))
        with rx.recv(LIMIT) as m:
            kept = m.array
    assert is_filled(kept, 7)


def test_a_rejected_message_comes_again(pool, other):
    tx, rx = members(pool, other)
    with tx, rx:
        tx.send(filled(pool, 8))
        m = rx.recv(LIMIT)
        assert m.deliveries == 1
        m.reject()
        with rx.recv(LIMIT) as m:
            assert m.deliveries == 2 and is_filled(m.array, 8)


def test_a_producer_waits_until_all_is_acknowledged(pool, other):
    tx, rx = members(pool, other)
    with tx, rx:
        tx.send(filled(pool, 9))
        with rx.recv(LIMIT), pytest.raises(libshare.NotReadyError):
            tx.drain(0)
        tx.drain(LIMIT)


def test_the_end_of_the_producers_is_told_once(pool, other):
    tx, rx = members(pool, other)
    with rx:
        tx.send(filled(pool, 10))
        tx.close()
        with rx.recv(LIMIT) as m:
            assert is_filled(m.array, 10)
        with pytest.raises(libshare.PeerGoneError):
            rx.recv(LIMIT)
        with pytest.raises(libshare.NotReadyError):
            rx.recv(0)


def test_a_time_limit_that_is_over_is_no_message(pool, other):
    tx, rx = members(pool, other)
    with tx, rx:
        with pytest.raises(libshare.NotReadyError):
            rx.recv(0)
        with pytest.raises(TimeoutError):
            rx.recv(0.001)


def test_a_service_answers_with_memory(client, pool, other):
    theirs = other.pool("test")
    with theirs.worker("service") as worker, pool.caller("service") as caller:
        call = caller.start(filled(pool, 1))
        request = worker.recv(LIMIT)
        assert is_filled(request.array, 1)
        request.reply(filled(theirs, 2))
        with call.finish(LIMIT) as answer:
            assert is_filled(answer.array, 2)


def test_a_service_answers_with_several_buffers(client, pool, other):
    with other.pool("test").worker("service", buffers=2) as worker, pool.caller("service", buffers=2) as caller:
        call = caller.start([filled(pool, 16), filled(pool, 17)])
        request = worker.recv(LIMIT)
        a, b = request.arrays
        assert is_filled(b, 17)
        request.reply([b, a])
        with call.finish(LIMIT) as answer:
            a, b = answer.arrays
            assert is_filled(a, 17) and is_filled(b, 16)


def test_a_request_that_is_only_acknowledged_is_canceled(client, pool, other):
    with other.pool("test").worker("service") as worker, pool.caller("service") as caller:
        call = caller.start(filled(pool, 11))
        worker.recv(LIMIT).ack()
        with pytest.raises(libshare.CanceledError):
            call.finish(LIMIT)


def test_a_host_stream_orders_a_hand_over(client, pool, other):
    found = threading.Event()
    with client.host_stream() as writes, other.host_stream() as reads:
        a = filled(pool, 12)

        def fill():
            assert found.wait(LIMIT)
            a.copy_from(bytes([13]) * SIZE)

        writes.launch(fill)
        a.publish("name", stream=writes)
        # Not on the default stream: of a GPU, it would wait for fill(), which uses it as well.
        b = other.lookup("name", timeout=LIMIT, stream=reads)
        found.set()
        assert is_filled(b, 13)
        a.release(stream=writes)
        b.release()
    client.unpublish("name")
