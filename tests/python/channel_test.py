# SPDX-License-Identifier: MIT
"""Channels and services: what travels, how long memory is good, and what becomes of members."""

import gc
import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

import libshare
from conftest import until


def test_messages_say_what_they_are(pool):
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    with pool.consumer("c") as rx, pool.producer("c") as tx:
        a = pool.array(x)
        parts = [(a, x), (a[1:, ::2], x[1:, ::2]), (a.T, x.T), (a[2, 3], x[2, 3])]
        for part, _ in parts:
            tx.send(part, meta={"shape": list(part.shape)})
        tx.send(pool.array(b"ShT1 plain bytes"), data=b"ShT1\0")
        tx.send(None, meta=[np.int64(1), "é", None])
        tx.send()
        for number, (_, expected) in enumerate(parts):
            with rx.recv() as m:
                assert np.array_equal(np.asarray(m.array), expected)
                assert m.meta == {"shape": list(expected.shape)} and m.number == number
                assert m.lost == 0 and m.deliveries == 1 and m.array is m.array and m.array.readonly
        with rx.recv() as m:
            assert bytes(m.array) == b"ShT1 plain bytes" and m.data == b"ShT1\0"
            with pytest.raises(ValueError):
                m.meta
        with rx.recv() as m:
            assert m.array is None and m.meta == [1, "é", None]
        with rx.recv() as m:
            assert m.array is None and m.meta is None and m.data == b""
        assert m.closed
        m.ack()  # once more: nothing
        for use in (lambda: m.array, m.reply, m.status):
            with pytest.raises(libshare.ClosedError):
                use()
        with pytest.raises(libshare.NotReadyError):
            rx.recv(0)
        with pytest.raises(TimeoutError):
            rx.recv(0.01)
        assert tx.stats()["sent"] == 7 and rx.stats()["acknowledged"] == 7


def test_who_comes_late_gets_the_history(pool):
    with pool.producer("c", depth=4, history=2) as tx, pool.consumer("c", from_="oldest") as rx:
        for n in range(5):
            tx.send(pool.array(bytes([n])), meta=n)
            with rx.recv() as m:
                assert bytes(m.array) == bytes([n]) and m.meta == n
        until(lambda: tx.stats()["in_flight"] == 0)
        with pool.consumer("c", from_="oldest") as late:
            assert [m.meta for m in (late.recv(), late.recv())] == [3, 4]
        with pool.consumer("c") as later, pytest.raises(libshare.NotReadyError):
            later.recv(0)
        with pytest.raises(libshare.ExistsError):
            pool.consumer("c", history=3)
        with pytest.raises(libshare.InvalidArgumentError):
            pool.producer("d", mode="queue", history=1)


def test_one_gets_the_latest_alone(pool):
    with (pool.producer("c", depth=2, in_flight=4) as tx, pool.consumer("c") as rx,
          pool.consumer("c", latest=True) as viewer):
        for n in range(50):
            tx.send(pool.array(bytes([n])), meta=n)
            with rx.recv() as m:
                assert m.meta == n and m.lost == 0
        first = viewer.recv()
        assert first.meta == 49 and first.lost == 49 and bytes(first.array) == bytes([49])
        tx.send(meta=50)
        second = viewer.recv()
        with pytest.raises(libshare.BusyError):
            viewer.recv()
        first.ack()
        second.ack()
        with pytest.raises(libshare.NotReadyError):
            viewer.recv(0)
        with pytest.raises(libshare.BusyError):
            pool.consumer("c", latest=True)
    with pytest.raises(libshare.InvalidArgumentError):
        pool.consumer("d", mode="queue", latest=True)


def test_a_channel_may_carry_more_data(client, pool):
    with pool.consumer("c", data_max=65535) as rx, pool.producer("c") as tx:
        a = pool.empty((2, 3), "float32")
        for n in 0, 200, 256, 257, 4000, 60000:
            tx.send(a, data=bytes(range(256)) * (n // 256) + b"x" * (n % 256))
            m = rx.recv()
            assert m.array.shape == (2, 3)
            m.ack()
            assert len(m.data) == n and m.data[:256] == (bytes(range(256)) if n >= 256 else b"x" * n)
        tx.send_many([(a, list(range(1000))), a])
        first, second = rx.recv(), rx.recv()
        assert first.meta == list(range(1000)) and second.meta is None
        first.ack()
        assert first.meta[-1] == 999


def test_who_sends_what_no_message_carries_is_told_what_does(pool):
    with pool.producer("c") as tx, pool.caller("s") as caller:
        for send in tx.send, caller.start:
            for much in {"data": b"x" * 65536}, {"meta": "x" * 65534}:
                with pytest.raises(ValueError, match="^6553[67] bytes .* 65535 at most: .* Array$"):
                    send(**much)


def test_what_does_not_go_is_refused(client, pool):
    with pool.consumer("c", data_max=64) as rx, pool.producer("c") as tx, client.pool("other", kind="host") as other:
        a = pool.empty(3)
        for wrong, error in [(lambda: tx.send(other.empty(3)), libshare.InvalidArgumentError),
                             (lambda: tx.send(np.zeros(3)), TypeError),
                             (lambda: tx.send(a, meta={"x": "y" * 100}), libshare.InvalidArgumentError),
                             (lambda: tx.send(a, data=b"x" * 2000), libshare.InvalidArgumentError),
                             (lambda: tx.send(a, data=b"x" * 65536), ValueError),
                             (lambda: tx.send(a, meta=object()), TypeError),
                             (lambda: tx.send(a, data="text"), TypeError),
                             (lambda: tx.send(a, meta=1, data=b"x"), TypeError),
                             (lambda: tx.send(a, nope=1), TypeError),
                             (lambda: tx.send_many([a, 3]), TypeError),
                             (lambda: tx.send_many(3), TypeError),
                             (lambda: tx.recv(), AttributeError),
                             (lambda: pool.consumer("c", mode="queue"), libshare.ExistsError),
                             (lambda: pool.consumer("c", mode="cheese"), ValueError),
                             (lambda: pool.producer("c", when_full="never"), ValueError),
                             (lambda: pool.producer("c", stall=-1), ValueError),
                             (lambda: pool.consumer("none", existing=True), libshare.NotFoundError),
                             (lambda: pool.consumer("c", depth=-1), ValueError)]:
            with pytest.raises(error):
                wrong()
        a.release()
        with pytest.raises(libshare.ClosedError):
            tx.send(a)
        with pytest.raises(libshare.NotReadyError):
            rx.recv(0)


def test_numbers_and_names_that_are_none_are_said_to_be(client, pool):
    for wrong, error, words in [
        (lambda: pool.producer("c", deliveries=-1), ValueError, "deliveries is a number from 0 on, not -1"),
        (lambda: pool.consumer("c", depth=1 << 32), ValueError, "depth is a number from 0 on"),
        (lambda: pool.caller("s", workers=-1), ValueError, "workers is a number from 0 on, not -1"),
        (lambda: pool.producer("c", depth=200), ValueError, "depth is a power of two, as 256, and not 200"),
        (lambda: pool.worker("s", depth=3), ValueError, "depth is a power of two, as 4, and not 3"),
        (lambda: pool.worker("s", callers=65), ValueError, "a service has at most 64 callers at a time, not 65"),
        (lambda: pool.worker(b"s"), TypeError, "the name of a service is a str, not bytes"),
        (lambda: pool.producer(3), TypeError, "the name of a channel is a str, not int"),
        (lambda: client.pool(3), TypeError, "the name of a pool is a str, not int"),
    ]:
        with pytest.raises(error, match=words):
            wrong()


def test_the_memory_of_a_message_tells_its_metadata_and_is_published_when_it_is_kept(pool, broker):
    with libshare.connect(broker.address) as c, c.pool("test") as p:
        with p.consumer("c") as rx, pool.producer("c") as tx:
            a = pool.array(np.arange(10))
            a.metadata = {"camera": "left"}
            tx.send(a, give=True)
            m = rx.recv()
            kept = m.array
            assert kept.metadata == {"camera": "left"}
            for use in (lambda: kept.publish("n"), kept.export, kept.recipe):
                with pytest.raises(libshare.StaleError, match="share_retain"):
                    use()
            m.ack()
            assert kept.metadata == {"camera": "left"}
            kept.publish("n")
            assert np.asarray(c.lookup("n")).sum() == 45
            c.unpublish("n")
        kept.release()


def test_memory_that_somebody_keeps_outlives_its_message(pool, broker):
    pool.set_cache(0)
    with pool.consumer("c") as rx, pool.producer("c") as tx:
        tx.send(pool.array(np.arange(1000)), give=True)
        tx.send(pool.array(np.arange(1000)), give=True)
        tx.send(pool.array(np.arange(1000)), give=True)
        m = rx.recv()
        kept = m.array
        m.ack()
        assert not kept.closed and np.asarray(kept).sum() == 499500
        m = rx.recv()
        view, shown = m.array[:10], np.asarray(m.array)
        m.ack()
        assert np.asarray(view).sum() == 45 and shown.sum() == 499500
        m = rx.recv()
        m.array.shape  # looked at, and not kept
        m.ack()
        # what is overwritten is somebody else's
        for _ in range(20):
            tx.send(pool.array(np.zeros(1000, int)), give=True)
            rx.recv().ack()
        assert np.asarray(kept).sum() == 499500 and shown.sum() == 499500
    del view, shown
    kept.release()


def test_each_message_is_acknowledged_at_the_end_of_its_step(pool):
    with pool.consumer("c") as rx, pool.producer("c") as tx:
        for i in range(5):
            tx.send(pool.array(np.full(10, i)), give=True)
        tx.close()
        seen, last = [], None
        for m in rx:
            assert last is None or last.closed
            assert not m.closed
            seen.append(int(np.asarray(m.array)[0]))
            if len(seen) == 2:
                m.ack()  # sooner is fine
            last = m
        assert seen == list(range(5)) and m.closed
        assert rx.stats()["acknowledged"] == 5


def test_a_step_that_fails_gives_the_message_back(pool):
    with pool.consumer("c") as rx, pool.producer("c") as tx:
        tx.send(pool.array(b"one"))
        tx.send(pool.array(b"two"))
        with pytest.raises(ZeroDivisionError):
            for m in rx:
                1 / 0
        del m
        gc.collect()
        assert rx.stats()["received"] == 1
        assert bytes(rx.recv(0).array) == b"two"


def test_a_message_that_is_used_after_its_step_says_how_to_keep_it(pool):
    with pool.consumer("c") as rx, pool.producer("c") as tx:
        tx.send(pool.array(b"one"))
        tx.close()
        (m,) = list(rx)
        with pytest.raises(libshare.ClosedError, match="end of the step of a loop .* recv"):
            m.array
        with pytest.raises(libshare.ClosedError, match="end of the step of a loop .* recv"):
            m.arrays
    with pool.caller("s") as caller, pool.worker("s") as worker:
        call = caller.start()
        for request in worker:
            break
        del worker
        request.reply()
        call.finish().ack()
        with pytest.raises(libshare.ClosedError, match="^the request was given up: .* recv"):
            request.reply()


def test_a_block_that_fails_acknowledges_its_message(pool):
    with pool.consumer("c", mode="queue") as rx, pool.producer("c") as tx:
        tx.send(meta=1)
        with pytest.raises(ZeroDivisionError):
            with rx.recv() as m:
                1 / 0
        assert m.closed and rx.stats()["acknowledged"] == 1


def test_a_full_queue_without_consumers_says_how_many_wait(pool):
    with pool.producer("q", mode="queue", depth=4) as tx:
        for _ in range(4):
            tx.send()
        with pytest.raises(libshare.TimedOutError, match=r"no consumer, .*\(depth: 4\): start one"):
            tx.send(timeout=0.01)
    with pool.producer("p", mode="queue", in_flight=2) as tx:
        tx.send()
        tx.send()
        with pytest.raises(libshare.NotReadyError, match=r"no consumer, .*\(in_flight: 2\): start one"):
            tx.send(timeout=0)


def test_who_waits_for_consumers_without_waiting_is_told_at_once(pool):
    for when_full in "fail", "drop":
        with pool.producer(when_full, when_full=when_full, wait_for=1) as tx:
            with pytest.raises(libshare.NotReadyError, match="wait_for"):
                tx.send(timeout=60)


def test_sending_waits_for_room_or_fails_or_drops(pool):
    a = pool.array(b"x")
    with pool.consumer("wait", depth=2, in_flight=2) as rx, pool.producer("wait") as tx:
        tx.send(a)
        tx.send(a)
        with pytest.raises(TimeoutError):
            tx.send(a, timeout=0.01)
        held = [rx.recv(), rx.recv()]
        sent = threading.Event()
        waits = threading.Thread(target=lambda: (tx.send(a), sent.set()))
        waits.start()
        held.pop().ack()
        assert sent.wait()
        waits.join()
    with pool.consumer("fail", depth=2, when_full="fail") as rx, pool.producer("fail") as tx:
        assert tx.send_many([a, (None, {"n": 1}), a]) == 2
        with pytest.raises(libshare.NotReadyError):
            tx.send(a)
        assert rx.recv().array is not None and rx.recv().meta == {"n": 1}
        assert tx.send_many([]) == 0
    with pool.consumer("drop", depth=2, in_flight=8, when_full="drop") as rx, pool.producer("drop") as tx:
        for i in range(6):
            tx.send(a, meta=i)
        m = rx.recv()
        assert m.meta == m.number == m.lost > 0
        assert tx.stats()["dropped"] == m.lost


def test_a_queue_gives_each_message_to_one(pool):
    with pool.producer("q", mode="queue") as tx, pool.consumer("q") as one, pool.consumer("q") as two:
        for i in range(20):
            tx.send(pool.array(np.full(3, i)), give=True)
        seen = []
        for rx in (one, two):
            while True:
                try:
                    with rx.recv(0) as m:
                        seen.append(int(np.asarray(m.array)[0]))
                except libshare.NotReadyError:
                    break
        assert sorted(seen) == list(range(20))
        assert tx.take_back() is None


def member(role, address, name, then):
    """Another process that takes part, and what it says."""
    program = f"""
import libshare, sys, time, os
c = libshare.connect(sys.argv[1])
pool = c.pool("test")
member = pool.{role}({name!r}) if {role!r} != "worker" else pool.worker({name!r})
print("there", flush=True)
{then}
"""
    process = subprocess.Popen([sys.executable, "-c", program, address], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "there\n"
    return process


def kill(process):
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()


def test_a_producer_waits_until_all_is_acknowledged(pool):
    with pool.consumer("q", mode="queue") as rx, pool.producer("q") as tx:
        tx.drain()
        for n in range(3):
            tx.send(pool.array(b"job"), meta=n)
        with pytest.raises(libshare.NotReadyError, match=f"pid {os.getpid()} has yet to acknowledge"):
            tx.drain(0)
        with pytest.raises(TimeoutError):
            tx.drain(timeout=0.01)
        rx.recv().ack()
        tx.drain(before=1)
        tx.drain(0, before=1)
        with pytest.raises(libshare.NotReadyError):
            tx.drain(0, before=2)
        t = threading.Thread(target=lambda: [rx.recv().ack() for _ in range(2)])
        t.start()
        tx.drain()
        t.join()
        assert rx.stats()["acknowledged"] == 3 and tx.stats()["in_flight"] == 0
        with pytest.raises(AttributeError):
            rx.drain()


def test_the_messages_of_a_queue_outlive_their_producer(pool, client):
    with pool.producer("jobs", mode="queue") as tx:
        for n in range(4):
            tx.send(pool.array(bytes([n])), meta=n)
    with pool.consumer("jobs", mode="queue") as rx:
        with rx.recv(timeout=10) as m:
            assert m.meta == 0 and bytes(m.array) == b"\0" and m.deliveries == 1
        row = next(row for row in client.inspect("channels") if row["channel"] == "jobs")
        assert row["waiting"] == 3
        client.end_channel("jobs")
        with pytest.raises(libshare.NotFoundError):
            client.end_channel("jobs")
    with pytest.raises(TypeError):
        client.end_channel(1)
    until(lambda: all(row["channel"] != "jobs" for row in client.inspect("channels")))


def test_a_worker_that_comes_late_ends_with_those_that_were_there(pool):
    with pool.consumer("jobs", mode="queue") as rx:
        with pool.producer("jobs", mode="queue") as tx:
            tx.send(meta="the last")
        message, seen = rx.recv(timeout=60), []
        with pool.consumer("jobs", existing=True) as late:
            with pytest.raises(libshare.NotReadyError):
                late.recv(0)
            works = threading.Thread(target=lambda: seen.append([*late]))
            works.start()
            message.ack()
            works.join()
        assert seen == [[]] == [[*rx]]
    with pytest.raises(libshare.NotFoundError):
        until(lambda: pool.consumer("jobs", existing=True).close())


def test_what_kills_its_consumers_is_set_aside(pool, client):
    with pool.producer("q", mode="queue", deliveries=2) as tx:
        tx.send(pool.array(b"poison"), meta={"n": 1})
        for _ in range(2):
            victim = member("consumer", client.address, "q", "m = member.recv(); print('has it', flush=True); input()")
            assert victim.stdout.readline() == "has it\n"
            kill(victim)
        taken = []
        until(lambda: taken.append(tx.take_back()) or taken[-1] is not None)
        with taken[-1] as m:
            assert bytes(m.array) == b"poison" and m.meta == {"n": 1} and m.deliveries == 2
        assert tx.take_back() is None and tx.stats()["set_aside"] == 1
        taken.clear()


def test_a_message_is_given_back(pool):
    with pool.producer("q", mode="queue") as tx, pool.consumer("q") as rx:
        tx.send(pool.array(b"job"), meta="hard")
        m = rx.recv()
        array = m.array  # kept beyond the message
        m.reject()
        assert m.closed and bytes(array) == b"job"
        for give_up in (m.reject, m.ack):
            with pytest.raises(libshare.ClosedError):
                give_up()
        del array
        with pytest.raises(libshare.TimedOutError):
            tx.drain(0.01)
        for m in rx:  # which acknowledges nothing that was given back
            assert m.meta == "hard" and m.deliveries in (2, 3)
            m.reject()
            if m.deliveries == 3:
                break
        tx.drain()
        with pytest.raises(libshare.NotReadyError):
            rx.recv(0)
        assert tx.stats()["rejected"] == 3 and rx.stats()["rejected"] == 3 and tx.stats()["set_aside"] == 1
        with tx.take_back() as m:
            assert bytes(m.array) == b"job"
            with pytest.raises(libshare.DeniedError):
                m.reject()
    with pool.consumer("b") as rx, pool.producer("b") as tx:
        tx.send(None, 1)
        with rx.recv() as m, pytest.raises(libshare.Error, match="only a message of a queue"):
            m.reject()
        assert m.closed


def test_the_death_and_the_departure_of_a_producer_are_told(pool, client):
    with pool.consumer("c") as rx:
        dies = member("producer", client.address, "c", "member.send(pool.array(b'last')); print('sent', flush=True); input()")
        assert dies.stdout.readline() == "sent\n"
        kill(dies)
        with rx.recv() as m:
            assert bytes(m.array) == b"last"
        with pytest.raises(libshare.OwnerDiedError) as e:
            rx.recv()
        assert e.value.message is None
        leaves = member("producer", client.address, "c", "")
        assert leaves.wait() == 0
        leaves.stdin.close(), leaves.stdout.close()
        with pytest.raises(libshare.PeerGoneError):
            rx.recv()
        assert list(iter_of_closed(pool)) == []


def iter_of_closed(pool):
    rx = pool.consumer("short")
    pool.producer("short").close()
    yield from rx


def test_a_message_whose_producer_died_comes_with_the_error(pool, client):
    with pool.consumer("c") as rx:
        dies = member("producer", client.address, "c", """
import threading
s = c.host_stream(); s.launch(threading.Event().wait)
member.send(pool.empty(3, "int64", stream=s), meta={"job": 7}, stream=s); print("sent", flush=True); input()""")
        assert dies.stdout.readline() == "sent\n"
        kill(dies)
        with pytest.raises(libshare.OwnerDiedError) as e:
            rx.recv()
        assert e.value.message is not None and not e.value.message.closed
        assert e.value.message.meta == {"job": 7} and e.value.message.array is None
        e.value.message.ack()
    del e


def test_a_killed_worker_s_request_goes_to_another(pool, client):
    with pool.caller("s") as caller:
        victim = member("worker", client.address, "s", "m = member.recv(); print('has it', flush=True); input()")
        pending = caller.start(pool.array(np.arange(5)), meta={"n": 1})
        assert victim.stdout.readline() == "has it\n"
        with pytest.raises(libshare.NotReadyError):
            pending.finish(0)
        with pool.worker("s") as worker:
            kill(victim)
            m = worker.recv()
            assert m.deliveries == 2 and m.meta == {"n": 1} and m.status() is None
            m.reply(pool.array(np.asarray(m.array) * 2), meta="done")
            with pending.finish() as answer:
                assert np.asarray(answer.array).sum() == 20 and answer.meta == "done"
            assert pending.done


def test_services_fail_as_they_should(pool, client):
    with pool.caller("s") as caller:
        with pytest.raises(libshare.TimedOutError):
            caller.call(timeout=0.01)
        with pytest.raises(libshare.NotReadyError):
            caller.call(timeout=0)
        with pool.worker("s") as worker:
            # those that were given up are not worked on
            pending = caller.start(data=b"q")
            m = worker.recv()
            assert m.data == b"q" and m.array is None
            pending.cancel()
            with pytest.raises(libshare.CanceledError):
                m.reply()
            assert m.closed
            with pytest.raises(libshare.ClosedError):
                pending.finish()
            pending = caller.start(pool.empty(3))
            m = worker.recv()
            with pytest.raises(TypeError):
                m.reply(np.zeros(3))
            m.ack()
            with pytest.raises(libshare.CanceledError):
                pending.finish()
            pending = caller.start()
            m = worker.recv()
            m.reply(data=b"answer")
            with pending.finish() as answer:
                assert answer.data == b"answer"
                with pytest.raises(ValueError, match="request"):
                    answer.reply()
            caller.close()
            assert list(worker) == []


def test_calls_of_many_threads(pool, client):
    def work(worker):
        for m in worker:
            m.reply(pool.array(np.asarray(m.array) + 1), meta=m.meta)

    caller = pool.caller("s")
    workers = [pool.worker("s") for _ in range(2)]
    serving = [threading.Thread(target=work, args=(w,)) for w in workers]
    wrong = []

    def ask(seed):
        for i in range(50):
            with caller.call(pool.array(np.full(10, seed + i)), meta=[seed, i]) as answer:
                if not (np.asarray(answer.array) == seed + i + 1).all() or answer.meta != [seed, i]:
                    wrong.append((seed, i))

    asking = [threading.Thread(target=ask, args=(1000 * i,)) for i in range(4)]
    for t in serving + asking:
        t.start()
    for t in asking:
        t.join()
    caller.close()
    for t in serving:
        t.join()
    for w in workers:
        w.close()
    assert not wrong


def test_closing_ends_the_wait_of_another_thread(pool, client):
    for waits in (lambda m: m.recv(), lambda m: next(iter(m))):
        rx = pool.consumer("c")
        seen = []

        def wait():
            try:
                waits(rx)
            except libshare.ClosedError:
                seen.append(True)

        t = threading.Thread(target=wait)
        t.start()
        rx.close()
        t.join()
        assert seen


def test_control_c_ends_every_wait(pool, client):
    for role, wait in [("consumer", "member.recv()"), ("consumer", "next(iter(member))"), ("worker", "member.recv()"),
                       ("producer", "[member.send(None) for _ in range(10000)]"), ("producer", "(member.send(None), member.flush())"),
                       ("producer", "(member.send(None), member.drain())"),
                       ("consumer", "pool.caller('x').call()"), ("consumer", "next(c.watch('none'))")]:
        name = f"{role}{len(wait)}"
        holds = pool.consumer(name) if "range" in wait else None
        waits = member(role, client.address, name, f"""
try:
    print("waits", flush=True)
    {wait}
except KeyboardInterrupt:
    print("interrupted", flush=True)
""")
        assert waits.stdout.readline() == "waits\n"
        waits.send_signal(signal.SIGINT)
        assert waits.stdout.readline() == "interrupted\n", wait
        assert waits.wait() == 0
        waits.stdin.close(), waits.stdout.close()
        if holds:
            holds.close()


def test_a_consumer_that_is_left_behind_is_told(pool, client):
    with pool.consumer("c", depth=2) as rx, pool.producer("c", stall=0.01) as tx:
        while tx.stats()["left_behind"] == 0:
            try:
                tx.send(None, timeout=0.001)
            except TimeoutError:
                pass
        with pytest.raises(libshare.StaleError):
            while True:
                rx.recv(0).ack()


def test_references_and_messages_do_not_leak(pool, client):
    rx, tx = pool.consumer("c"), pool.producer("c")
    a = pool.empty(16)

    def work():
        tx.send(a, meta={"n": 1})
        m = rx.recv()
        m.array, m.meta, m.data, repr(m)
        v = m.array[1:]
        m.ack()
        v.release()
        tx.send(a)
        with rx.recv() as m:
            pass
        for wrong in (lambda: rx.recv(0), lambda: tx.send(3), lambda: tx.send(a, meta=object()), lambda: m.array):
            try:
                wrong()
            except (libshare.Error, TypeError):
                pass

    for _ in range(50):
        work()
    gc.collect()
    blocks = sys.getallocatedblocks()
    for _ in range(1000):
        work()
    gc.collect()
    assert sys.getallocatedblocks() - blocks < 200
    rx.close()
    tx.close()


def test_what_is_given_is_given_once(pool, broker):
    pool.set_cache(0)
    with pool.consumer("c") as rx, pool.producer("c") as tx:
        a = pool.array(b"given")
        v = a[:2]
        x = memoryview(a)
        tx.send(a, give=True)
        assert a.closed
        assert bytes(v) == b"gi" and bytes(x) == b"given"
        with pytest.raises(libshare.ClosedError):
            tx.send(a, give=True)
        m = rx.recv()
        tx.send(m.array, give=True)  # on and on
        m.ack()
        m = rx.recv()
        assert bytes(m.array) == b"given"
        m.ack()
        a = pool.array(b"recorded")
        a.record_stream(None)
        tx.send(a, give=True)
        assert a.closed
        rx.recv().ack()
    del v, x


def test_what_came_with_a_message_stays_when_that_is_acknowledged(pool):
    with pool.consumer("c") as rx, pool.producer("c") as tx:
        tx.send(pool.array(np.arange(6, dtype=np.float32).reshape(2, 3)), {"n": 7})
        tx.send(pool.array(np.arange(6)), data=b"bytes")
        m = rx.recv()
        m.ack()
        assert m.meta == {"n": 7}
        with pytest.raises(libshare.ClosedError):
            m.array
        m = rx.recv()
        m.ack()
        assert m.data == b"bytes"


def test_nobody_begins_to_use_what_is_being_given(pool):
    with pool.consumer("c", depth=2) as rx, pool.producer("c", depth=2) as tx:
        while True:
            try:
                tx.send(None, timeout=0)
            except (libshare.TimedOutError, libshare.NotReadyError):
                break
        a = pool.array(b"given")
        with pytest.raises((libshare.TimedOutError, libshare.NotReadyError)):
            tx.send(a, give=True, timeout=0)
        assert not a.closed and a.tobytes() == b"given"  # as it was not
        handled, sent, seen = threading.Semaphore(0), threading.Event(), []

        def look(signum, frame):  # in the midst of the call, as it waits in slices
            try:
                a.tobytes()
                seen.append("used")
            except libshare.ClosedError:
                seen.append("closed")
            if seen[-1] == "closed" or len(seen) == 50:
                rx.recv(timeout=0).ack()
            handled.release()

        def interrupt():
            while not sent.is_set():
                signal.pthread_kill(main, signal.SIGUSR1)
                handled.acquire()

        main = threading.get_ident()
        before = signal.signal(signal.SIGUSR1, look)
        interrupts = threading.Thread(target=interrupt)
        interrupts.start()
        try:
            tx.send(a, give=True)
        finally:
            sent.set()
            interrupts.join()
            signal.signal(signal.SIGUSR1, before)
        assert "closed" in seen and a.closed
        assert [m.array and m.array.tobytes() for m in iter(lambda: next_of(rx), None)][-1] == b"given"


def next_of(rx):
    try:
        return rx.recv(timeout=0)
    except libshare.NotReadyError:
        return None


class Releases:
    """A stream; whoever asks for it finds the Array released, as by another thread."""

    def __init__(self, array):
        self.array = array

    def __cuda_stream__(self):
        self.array.release()
        return 0, 0


@pytest.mark.parametrize("published", [False, True])
def test_an_error_says_what_failed_and_not_what_was_given_up_after(client, pool, published):
    """What the last user gives up calls the library, which says of that why it takes long."""

    def one():
        a = pool.array(b"123")
        if published:
            a.publish("a")
        return a, {"stream": Releases(a)}

    with pool.consumer("full", mode="queue", depth=1) as rx, pool.producer("full", mode="queue", depth=1) as tx:
        tx.send(pool.array(b"123"))
        for timeout in (0, 0.01):
            a, options = one()
            error = libshare.TimedOutError if timeout else libshare.NotReadyError
            with pytest.raises(error, match="the channel had no room|consumers have yet to receive"):
                tx.send(a, timeout=timeout, **options)
            assert a.closed
        rx.recv().ack()  # or it would wait for the next consumer
    with client.pool("other", kind="host") as other, pool.producer("p") as tx, pool.caller("s") as caller:
        for hand_on in (tx.send, caller.start, caller.call):
            a = other.array(b"123")
            with pytest.raises(libshare.InvalidArgumentError, match="pool"):
                hand_on(a, stream=Releases(a))
            assert a.closed
    if published:
        client.unpublish("a")
