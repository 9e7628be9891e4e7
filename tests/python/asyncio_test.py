# SPDX-License-Identifier: MIT
"""asyncio, over the library's descriptors; watches, fences and operations."""

import asyncio
import os
import pickle
import select
import subprocess
import sys
import threading

import numpy as np
import pytest

import libshare
from conftest import until
from libshare import _aio

LIMIT = 200


def run(coroutine):
    """With a limit that only ends a test that has failed."""
    return asyncio.run(asyncio.wait_for(coroutine, LIMIT))


def test_lookups_wait_without_a_thread(client, pool):
    async def main():
        late = [asyncio.ensure_future(wait_for(i)) for i in range(5)]
        await asyncio.sleep(0)
        for i in range(5):
            pool.array(np.full(3, i)).publish(f"n/{i}")
        assert await asyncio.gather(*late) == list(range(5))
        with pytest.raises(TimeoutError):
            await client.lookup_async("none", timeout=0.01)
        with pytest.raises(FileNotFoundError, match="nothing is published under that name"):
            await client.lookup_async("none", timeout=0)
        with pytest.raises(ValueError):
            client.lookup_async("none", timeout=-1)
        with pytest.raises(ValueError):
            client.lookup_async("none", "x")
        with pytest.raises(TypeError):
            client.lookup_async("none", nope=1)
        canceled = asyncio.ensure_future(wait_for("never"))
        await asyncio.sleep(0)
        canceled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await canceled
        assert not (await client.lookup_async("n/0", "rw")).readonly

    async def wait_for(i):
        return int(np.asarray(await client.lookup_async(f"n/{i}"))[0])

    run(main())
    for i in range(5):
        client.unpublish(f"n/{i}")


def test_a_lookup_that_was_started_is_waited_for_by_a_thread(client, pool):
    operation = client.lookup_async("late")
    with pytest.raises(libshare.NotReadyError):
        operation.result(0)
    pool.array(b"late").publish("late")
    assert bytes(operation.result(None)) == b"late"
    with pytest.raises(libshare.ClosedError):
        operation.result(None)
    operation = client.lookup_async("never")
    operation.close()
    with pytest.raises(libshare.ClosedError):
        operation.result(None)
    client.lookup_async("forgotten")
    client.unpublish("late")


def test_what_nobody_fetched_is_given_back(client, pool):
    pool.array(b"x").publish("x")
    operation = client.lookup_async("x")
    until(lambda: client.dispatch() > 0)
    del operation
    client.unpublish("x")


def test_watches_report_every_change(client, pool):
    a = pool.empty(1)
    with client.watch("w/") as w:
        with pytest.raises(libshare.NotReadyError):
            w.next(0)
        with pytest.raises(TimeoutError):
            w.next(0.01)
        first = a.publish("w/a")
        a.publish("elsewhere")
        second = pool.empty(1).publish("w/a")
        client.unpublish("w/a")
        assert w.next() == ("published", "w/a", first, a.id)
        change = w.next(1)
        assert (change.change, change.version) == ("replaced", second)
        assert next(iter(w)).change == "unpublished"
        seen = []
        waits = threading.Thread(target=lambda: seen.extend(w))
        waits.start()
        a.publish("w/b")
        until(lambda: seen)
        w.close()
        waits.join()
        assert [c.name for c in seen] == ["w/b"]

    for name in ("w/b", "elsewhere"):
        client.unpublish(name)


def test_two_loops_and_a_thread_share_a_client(client, pool):
    """Whoever dispatches serves all."""
    a = pool.empty(1)
    watches = [client.watch("w/") for _ in range(3)]
    names = [f"w/{i}" for i in range(20)]
    seen = [[], [], []]

    async def follow(i):
        async for change in watches[i]:
            seen[i].append(change.name)
            if len(seen[i]) == len(names):
                break

    def follow_in_thread():
        for change in watches[2]:
            seen[2].append(change.name)
            if len(seen[2]) == len(names):
                break

    threads = [threading.Thread(target=run, args=(follow(0),)), threading.Thread(target=run, args=(follow(1),)),
               threading.Thread(target=follow_in_thread)]
    for t in threads:
        t.start()
    for name in names:
        a.publish(name)
    for t in threads:
        t.join()
    assert seen == [names] * 3
    for name in names:
        client.unpublish(name)
    for w in watches:
        w.close()


def test_channels_and_services_in_a_loop(client, pool):
    async def serve(worker):
        async for m in worker:
            m.reply(pool.array(np.asarray(m.array) * 2), meta=m.meta)

    async def ask(caller, i):
        with await caller.call_async(pool.array(np.full(4, i)), meta=i) as answer:
            return int(np.asarray(answer.array)[0]), answer.meta

    async def main():
        caller = pool.caller("s")
        worker = pool.worker("s")
        serving = asyncio.ensure_future(serve(worker))
        assert await asyncio.gather(*(ask(caller, i) for i in range(40))) == [(2 * i, i) for i in range(40)]
        pending = caller.start(pool.array(np.full(4, 7)), meta=7)
        with await pending as answer:
            assert answer.meta == 7
        caller.close()
        await serving
        worker.close()

        rx, tx = pool.consumer("c"), pool.producer("c")
        with pytest.raises(libshare.NotReadyError):
            await rx.recv_async(0)
        with pytest.raises(TimeoutError):
            await rx.recv_async(0.01)
        got = asyncio.ensure_future(rx.recv_async())
        await asyncio.sleep(0)
        await tx.send_async(pool.array(b"first"))
        with await got as m:
            assert bytes(m.array) == b"first"
        await tx.drain_async()
        for i in range(50):
            await tx.send_async(None, i)
        with pytest.raises(libshare.NotReadyError):
            await tx.drain_async(0)
        with pytest.raises(TimeoutError, match="has yet to acknowledge"):
            await tx.drain_async(0.01)
        tx.close()
        assert [m.meta async for m in rx] == list(range(50))
        assert rx.stats()["acknowledged"] == 51
        rx.close()

    run(main())


def test_a_producer_drains_while_the_loop_receives(pool):
    async def main():
        with pool.consumer("c", mode="queue") as rx, pool.producer("c") as tx:
            for i in range(3):
                await tx.send_async(pool.array(b"job"), i)
            drained = asyncio.ensure_future(tx.drain_async(timeout=60))
            (await rx.recv_async()).reject()
            seen = []
            while len(seen) < 3:
                assert not drained.done()
                with await rx.recv_async() as m:
                    seen.append((m.meta, m.deliveries))
            await drained
            assert sorted(seen) == [(0, 2), (1, 1), (2, 1)]
            assert tx.stats()["in_flight"] == 0
            await tx.send_async(meta="never received")
            canceled = asyncio.ensure_future(tx.drain_async())
            await asyncio.sleep(0)
            canceled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await canceled

    run(main())


def test_all_who_drain_are_told_that_it_is_over(pool):
    async def main():
        with pool.consumer("c", mode="queue") as rx, pool.producer("c") as tx:
            await tx.send_async(meta="job")
            message = await rx.recv_async()
            drained = [asyncio.ensure_future(tx.drain_async()) for _ in range(2)]
            await asyncio.sleep(0)
            while select.select([tx], [], [], 0)[0]:  # until they have asked
                await asyncio.sleep(0)
            message.ack()
            tx.drain(0)  # nothing is told any more then
            await asyncio.gather(*drained)

    run(main())


def test_who_drains_waits_for_nothing_that_others_send_meanwhile(pool):
    async def main():
        with pool.consumer("c", mode="queue") as rx, pool.producer("c") as tx:
            await tx.send_async(meta="before")
            drained = asyncio.ensure_future(tx.drain_async(timeout=10))
            await asyncio.sleep(0)
            await tx.send_async(meta="meanwhile")
            # longer than it looks at a time
            with pytest.raises(TimeoutError):
                await tx.drain_async(0.3)
            (await rx.recv_async()).ack()
            await drained
            with pytest.raises(libshare.NotReadyError):
                await tx.drain_async(0)

    run(main())


def test_tasks_send_and_receive_in_the_order_in_which_they_asked(pool):
    async def main():
        with pool.consumer("c", mode="queue", depth=2) as rx, pool.producer("c", mode="queue", depth=2) as tx:
            sent = [asyncio.ensure_future(tx.send_async(meta=i)) for i in range(20)]
            got = []
            while len(got) < 20:
                with await rx.recv_async() as m:
                    got.append(m.meta)
            assert got == list(range(20))
            await asyncio.gather(*sent)
        with pool.consumer("d", depth=32) as rx, pool.producer("d", depth=32) as tx:
            received = [asyncio.ensure_future(rx.recv_async()) for _ in range(20)]
            await asyncio.sleep(0)
            for i in range(20):
                tx.send(meta=i)
            assert [(await r).meta for r in received] == list(range(20))

    run(main())


def test_who_leaves_a_line_keeps_nobody_waiting_in_it(pool):
    async def main():
        with pool.consumer("c") as rx, pool.producer("c") as tx:
            first, second, third = (asyncio.ensure_future(rx.recv_async()) for _ in range(3))
            await asyncio.sleep(0)
            with pytest.raises(libshare.TimedOutError):
                await rx.recv_async(timeout=0.01)
            with pytest.raises(libshare.NotReadyError):
                await rx.recv_async(timeout=0)
            for canceled in second, first:
                canceled.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await canceled
            tx.send(meta="third")
            assert (await third).meta == "third"
            waiting = [asyncio.ensure_future(rx.recv_async()) for _ in range(3)]
            await asyncio.sleep(0)
            rx.close()
            assert [type(w) for w in await asyncio.gather(*waiting, return_exceptions=True)] == [libshare.ClosedError] * 3
        assert not _aio._lines

    run(main())


def test_what_was_canceled_is_not_sent(pool):
    async def main():
        with pool.consumer("c", depth=2) as rx, pool.producer("c", depth=2) as tx:
            sent = [asyncio.ensure_future(tx.send_async(meta=i)) for i in range(4)]
            await asyncio.wait(sent, return_when=asyncio.FIRST_COMPLETED)
            while sum(s.done() for s in sent) < 2:
                await asyncio.sleep(0)
            for s in sent:
                s.cancel()
            done = await asyncio.gather(*sent, return_exceptions=True)
            assert [type(d) for d in done].count(asyncio.CancelledError) == 2 and done.count(None) == 2
            with pytest.raises(TimeoutError):
                await tx.send_async(meta="late", timeout=0.01)
            got = []
            for _ in range(2):
                with rx.recv(0) as m:
                    got.append(m.meta)
            assert got == [i for i, d in enumerate(done) if d is None]
            await tx.send_async(meta="next")
            with rx.recv(0) as m:
                assert m.meta == "next"

    run(main())


def test_who_receives_without_a_pause_leaves_others_their_turn(client, pool):
    """The next message is there before the last one is done with: nothing has to be waited for."""
    async def main():
        turns = 0

        async def other():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        others = asyncio.ensure_future(other())
        with pool.consumer("c") as rx, pool.producer("c") as tx:
            tx.send()
            async for m in rx:
                tx.send()
                if turns > 2:
                    break
                assert m.number < 200_000, "the other task never ran"
            turns = 0
            while turns < 3:
                with await rx.recv_async() as m:
                    tx.send()
                    assert m.number < 400_000, "the other task never ran"
        others.cancel()

    run(main())


def test_a_call_waits_until_an_answer_is_acknowledged(pool, monkeypatch):
    """There are as many as there may be. The descriptor tells that this process acknowledges one of them: nothing is
    looked at now and then."""
    limits, readable = [], _aio._readable

    async def limited(things, future, timeout):
        limits.append(timeout)
        await readable(things, future, timeout)

    async def main():
        with pool.caller("s") as caller, pool.worker("s") as worker:
            serving = asyncio.ensure_future(serve(worker))
            answers = [await caller.call_async() for _ in range(128)]
            with pytest.raises(libshare.NotReadyError, match="finish some"):
                await caller.call_async(timeout=0)
            monkeypatch.setattr(_aio, "_readable", limited)
            late = asyncio.ensure_future(caller.call_async())
            await asyncio.sleep(0)
            with pytest.raises(libshare.TimedOutError):
                await caller.call_async(timeout=0.01)
            answers.pop().ack()
            (await late).ack()
            assert set(limits) - {limit for limit in limits if limit and limit <= 0.01} == {None}
            for answer in answers:
                answer.ack()
            caller.close()
            await serving

    async def serve(worker):
        async for request in worker:
            request.reply()

    run(main())


def test_a_lookup_that_is_there_wakes_no_other(client, pool, monkeypatch):
    expired = []
    expire = _aio._expire
    monkeypatch.setattr(_aio, "_expire", lambda future: expired.append(future) or expire(future))

    async def main():
        names = [f"many/{i}" for i in range(50)]
        tasks = [await begin(client, client.lookup_async(name)) for name in names]
        for name, task in zip(names, tasks):
            pool.array(b"x").publish(name)
            (await task).release()

    run(main())
    assert len(expired) <= 100


def abandon(rx):
    """A task of a loop that is closed while it waits."""
    loop = asyncio.new_event_loop()
    task = loop.run_until_complete(begin(rx, rx.recv_async()))
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    return task


def test_a_loop_that_was_closed_counts_no_more(pool, monkeypatch):
    looks = []
    readable = _aio._readable
    monkeypatch.setattr(_aio, "_readable", lambda things, future, timeout: looks.append(timeout) or
                        readable(things, future, timeout))

    async def main():
        with pool.producer("c") as tx:
            task = await begin(rx, rx.recv_async())
            tx.send(data=b"1")
            (await task).ack()

    with pool.consumer("c") as rx:
        task = abandon(rx)
        looks.clear()
        run(main())
        assert looks == [None]
        task._log_destroy_pending = False


def test_an_interpreter_ends_with_a_task_of_a_loop_that_was_closed(client, pool):
    """Both end then with what the task waits for, in any order."""
    program = """
import asyncio, libshare
client = libshare.connect()
rx = client.pool("test").consumer("c")
loop = asyncio.new_event_loop()
async def waits():
    await rx.recv_async()
task = loop.create_task(waits())
loop.run_until_complete(asyncio.sleep(0.01))
loop.close()
task._log_destroy_pending = False
"""
    done = subprocess.run([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True, timeout=LIMIT,
                          env={**os.environ, "SHARE_SOCKET": client.address})
    assert (done.returncode, done.stderr) == (0, "")


async def begin(member, coroutine):
    """A task, once it waits for the member."""
    before = list(_aio._waiting_for.get(member, ()))
    task = asyncio.ensure_future(coroutine)
    while all(future in before for future in _aio._waiting_for.get(member, ())):
        await asyncio.sleep(0)
    return task


async def gives_up_sending(tx, rx):
    await tx.send_async()
    (await begin(tx, tx.send_async())).cancel()
    waits = await begin(tx, tx.drain_async())
    m = rx.recv()
    yield
    m.ack()
    await waits


async def gives_up_calling(caller, worker):
    calls = []
    with pytest.raises(libshare.NotReadyError):
        while True:
            calls.append(caller.start())
    (await begin(caller, caller.call_async())).cancel()
    waits = await begin(caller, calls[0].finish_async())
    request = worker.recv()
    yield
    request.reply()
    (await waits).ack()


async def awaits_one_of_two(caller, worker):
    first, second = caller.start(), caller.start()
    requests = [worker.recv(), worker.recv()]
    waits = await begin(caller, first.finish_async())
    requests[1].reply()
    yield
    requests[0].reply()
    (await waits).ack()
    (await second).ack()


@pytest.mark.parametrize("happens", [gives_up_sending, gives_up_calling, awaits_one_of_two])
def test_nobody_is_woken_again_and_again_by_what_nobody_waits_for(pool, monkeypatch, happens):
    """Each time there is something that the descriptor tells of, and another task waits for the same object."""
    wakes, wake = [], _aio._wake

    def counted(*of):
        wakes.append(of)
        wake(*of)

    async def main():
        if happens is gives_up_sending:
            members = pool.producer("q", mode="queue", depth=1), pool.consumer("q")
        else:
            members = pool.caller("s", depth=2), pool.worker("s")
        with members[0], members[1]:
            monkeypatch.setattr(_aio, "_wake", counted)
            async for _ in happens(*members):
                while not wakes:
                    await asyncio.sleep(0)
                for _ in range(300):
                    await asyncio.sleep(0)
                assert len(wakes) < 10

    run(main())


def test_loops_that_wait_for_one_object_leave_each_other_alone(pool, monkeypatch):
    """Each looks again now and then: the first begins to, once the second has come, and neither wakes the other then."""
    ended, counts, end = [], [], _aio._end_soon

    async def main(rx):
        waits = asyncio.ensure_future(rx.recv_async())
        while [looks for _, looks in list(_aio._waiting_for.get(rx, {}).values())] != [True, True]:
            await asyncio.sleep(0)
        before = len(ended)
        for _ in range(300):
            await asyncio.sleep(0)
        counts.append(len(ended) - before)
        while len(counts) < 2:
            await asyncio.sleep(0)
        waits.cancel()

    monkeypatch.setattr(_aio, "_end_soon", lambda *of: ended.append(of) or end(*of))
    monkeypatch.setattr(_aio, "_LOOK_AGAIN", 1000)
    with pool.consumer("c") as rx:
        loops = [threading.Thread(target=lambda: run(main(rx))) for _ in range(2)]
        for loop in loops:
            loop.start()
        for loop in loops:
            loop.join()
    assert counts == [0, 0]


def test_a_call_that_is_canceled_is_given_up(client, pool):
    async def main():
        with pool.caller("s") as caller, pool.worker("s") as worker:
            call = asyncio.ensure_future(caller.call_async(data=b"?"))
            m = await worker.recv_async()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            with pytest.raises(libshare.CanceledError):
                m.reply()
            with pytest.raises(TimeoutError):
                await caller.call_async(timeout=0.01)

    run(main())


def test_fences_are_points_on_streams(client, broker):
    gate = threading.Event()
    with client.host_stream() as s:
        s.launch(gate.wait)
        f = client.record(stream=s)
        assert not f.query() and not f.query(client=broker) and f.client is client
        with pytest.raises(TimeoutError):
            f.synchronize(0.01)
        with pytest.raises(TimeoutError):
            f.synchronize(0)
        with broker.host_stream() as other:
            f.wait(client=broker, stream=other)
            g = broker.record(stream=other)
            assert not g.query(client=client) and f != g and f == libshare.Fence(f.timeline, f.value)
            gate.set()
            g.synchronize(client=client)
        f.wait(client=broker)
        assert f.query() and f.query(client=broker)
        sent = pickle.loads(pickle.dumps(f))
        assert sent == f and hash(f) == hash(libshare.Fence(f.timeline, f.value)) and sent.client is None
        assert sent.query(client=broker)
        with pytest.raises(ValueError, match="say client="):
            sent.query()
    assert libshare.Fence().query(client=client)
    with pytest.raises(libshare.Error):
        libshare.Fence(1 << 40, 1).query(client=client)
    for wrong in (lambda: f.query(client=3), lambda: f.wait(nope=1), lambda: client.record(nope=1)):
        with pytest.raises(TypeError):
            wrong()


def test_an_array_tells_when_it_is_good(client, broker, pool):
    gate = threading.Event()
    with client.host_stream() as s:
        s.launch(gate.wait)
        pool.empty(1).publish("x", stream=s)
        with broker.host_stream() as other:
            b = broker.lookup("x", stream=other)
            assert not b.status()

            async def main():
                waits = asyncio.ensure_future(b.good())
                await asyncio.sleep(0)
                assert not waits.done()
                gate.set()
                await waits
                assert b.status()

            run(main())
            b.release()
    client.unpublish("x")
