# SPDX-License-Identifier: MIT
"""Messages of several Arrays, as a list or a dict."""

import asyncio
import gc
import os
import sys
import threading

import numpy as np
import pytest

import libshare
from conftest import fork, until


@pytest.fixture(params=["broadcast", "queue"])
def pair(pool, request):
    with pool.producer("c", mode=request.param, buffers=4) as tx, pool.consumer("c", buffers=4) as rx:
        yield tx, rx


def sample(pool, i=0):
    return {"image": pool.array(np.full((4, 5, 3), i, np.uint8)), "boxes": pool.array(np.arange(8.0).reshape(2, 4) + i),
            "": pool.array(np.array(i))}


def same(arrays, sent):
    assert type(arrays) is type(sent) and len(arrays) == len(sent)
    if isinstance(sent, dict):
        assert list(arrays) == list(sent)
        arrays, sent = arrays.values(), sent.values()
    for a, b in zip(arrays, sent):
        assert (a.dtype, a.shape, a.strides, a.id) == (b.dtype, b.shape, b.strides, b.id) and a.readonly
        assert np.array_equal(np.asarray(a), np.asarray(b))


def test_arrays_come_as_they_were_sent(pool, pair):
    tx, rx = pair
    named = sample(pool)
    for sent in (named, list(named.values()), {"ä/ü": named["boxes"]}, [named["image"]],
                 [named["image"][1:, ::2], named["boxes"].T, named["image"]], {str(i): named["boxes"][i % 2] for i in range(4)}):
        for extra in ({}, {"meta": {"n": 7}}, {"data": b"bytes"}, {"data": b""}):
            tx.send(sent, **extra)
            with rx.recv(5) as m:
                same(m.arrays, sent)
                first = next(iter(sent.values())) if isinstance(sent, dict) else sent[0]
                assert m.array.shape == first.shape and m.array.id == first.id
                assert m.arrays is not m.arrays
                if "meta" in extra:
                    assert m.meta == {"n": 7}
                else:
                    assert m.data == extra.get("data", b"")
    # what is one, or none, is a list of that
    tx.send(named["boxes"], meta=1)
    with rx.recv(5) as m:
        assert [a.shape for a in m.arrays] == [(2, 4)] and m.meta == 1
    tx.send(None, data=b"ShS1\1\0\0\0")
    with rx.recv(5) as m:
        assert m.arrays == [] and m.array is None and m.data == b"ShS1\1\0\0\0"


def test_each_may_be_kept_by_itself(pool, pair, broker):
    tx, rx = pair
    for i in range(4):
        tx.send([pool.array(np.full(1000, j)) for j in range(4)], give=True)
        m = rx.recv(5)
        kept = m.arrays[i]
        view = np.asarray(m.arrays[(i + 1) % 4])
        m.ack()
        with pytest.raises(libshare.ClosedError):
            m.arrays  # noqa: B018
        until(lambda: tx.stats()["in_flight"] == 0)
        tx.send([pool.array(np.full(1000, 9)) for j in range(4)], give=True)
        assert (np.asarray(kept) == i).all() and (view == (i + 1) % 4).all()
        with rx.recv(5) as m:
            assert all((np.asarray(a) == 9).all() for a in m.arrays)
        del kept, view
    gc.collect()
    pool.set_cache(0)
    until(lambda: broker.inspect("buffers") == [])


def test_what_is_given_is_given_up(pool, pair):
    tx, rx = pair
    for give in (True, False):
        sent = sample(pool)
        tx.send(sent, give=give)
        assert [a.closed for a in sent.values()] == [give] * 3
        rx.recv(5).ack()


def test_they_are_given_back_and_taken_back_together(pool):
    with pool.producer("q", mode="queue", buffers=3, deliveries=2) as tx, pool.consumer("q", buffers=3) as rx:
        named, kept = sample(pool), []
        tx.send(named, meta=1)
        for n in (1, 2):
            m = rx.recv(5)
            same(m.arrays, named)
            assert m.deliveries == n
            kept.append(m.arrays["boxes"])
            m.reject()
        m = None
        while m is None:
            m = tx.take_back()
        with m:
            assert list(m.arrays) == list(named) and m.meta == 1
            kept += m.arrays.values()
        for a, b in zip(kept, [named["boxes"]] * 2 + list(named.values())):
            assert a.id == b.id and np.array_equal(np.asarray(a), np.asarray(b))
        assert tx.take_back() is None


def test_only_what_is_true_gives_them_up(pool, pair):
    tx, rx = pair
    a = pool.array(np.arange(3))
    for give in (0, None, False, [], np.False_):
        for sent in (a, [a, a]):
            tx.send(sent, give=give)
            assert not a.closed
            rx.recv(5).ack()


def test_each_comes_after_the_work_on_it(client, pool, pair):
    tx, rx = pair
    gates = [threading.Event(), threading.Event()]
    streams = [client.host_stream(), client.host_stream()]
    a, b = (pool.zeros(3, stream=s) for s in streams)
    for plain in (None, pool.array(np.arange(3))):
        for n, (gate, s, x) in enumerate(zip(gates, streams, (a, b)), 1):
            gate.clear()
            s.launch(gate.wait)
            s.launch(lambda x=x, n=n: np.asarray(x).fill(n))
        tx.send([a, b] if plain is None else [plain, b, a])
        for gate in gates:
            with pytest.raises(libshare.NotReadyError):
                rx.recv(0)
            gate.set()
        with rx.recv(5) as m:
            assert [int(np.asarray(x)[0]) for x in m.arrays] == ([1, 2] if plain is None else [0, 2, 1])
        np.asarray(a).fill(0)
        np.asarray(b).fill(0)
    for s in streams:
        s.close()


def test_a_forked_child_has_none_of_them(pool, pair):
    tx, rx = pair
    tx.send([pool.array(np.arange(3)), pool.array(np.arange(4))])
    with rx.recv(5) as m:
        assert m.array.shape == (3,)
        child = fork()
        if child == 0:
            try:
                m.arrays  # noqa: B018
                os._exit(1)
            except libshare.ForkedError:
                os._exit(0)
            except BaseException:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert [x.shape for x in m.arrays] == [(3,), (4,)]


class GivesUp:
    """Garbage that gives a message up once it is collected."""

    def __init__(self, m):
        self.m, self.me = m, self

    def __del__(self):
        self.m.ack()


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="garbage is collected between steps of the interpreter only")
@pytest.mark.parametrize("named", [False, True])
def test_a_finalizer_may_give_the_message_up_meanwhile(pool, pair, named):
    tx, rx = pair
    a, b = pool.array(np.arange(3)), pool.array(np.arange(4))
    tx.send({"a": a, "b": b} if named else [a, b])
    m = rx.recv(5)
    assert m.array.shape == (3,) and len(m.arrays) == 2
    threshold, found = gc.get_threshold(), None
    gc.collect()
    gc.disable()
    try:
        GivesUp(m)
        kept = [([], {}) for _ in range(1000)]  # so that the interpreter has no unused one at hand
        gc.set_threshold(1)
        gc.enable()
        before = m.closed
        found = m.arrays
    except libshare.ClosedError:
        pass
    finally:
        gc.set_threshold(*threshold)
        gc.enable()
    assert not before and found is None and m.closed and len(kept) == 1000


def test_want_of_memory_leaves_them_as_they_are(pool, pair):
    testing = pytest.importorskip("_testcapi")
    tx, rx = pair
    sent = [pool.array(np.full(3, i)) for i in range(4)]
    for fails in range(1, 12):
        tx.send(sent)
        with rx.recv(5) as m:
            error = None
            testing.set_nomemory(fails, fails + 1)
            try:
                m.arrays  # noqa: B018
            except MemoryError as e:
                error = e
            finally:
                testing.remove_mem_hooks()
            del error
            same(m.arrays, sent)


def test_many_are_sent_at_once(pool, pair):
    tx, rx = pair
    a, named = pool.array(np.arange(3)), sample(pool)
    assert tx.send_many([a, [a, a[1:]], named, (named, "meta"), ([a], 1), (None, 2)]) == 6
    shapes = [((3,),), ((3,), (2,)), None, None, ((3,),), ()]
    for i, shape in enumerate(shapes):
        with rx.recv(5) as m:
            if shape is None:
                same(m.arrays, named)
            else:
                assert tuple(x.shape for x in m.arrays) == shape
            assert m.meta == {3: "meta", 4: 1, 5: 2}.get(i)


def test_what_does_not_go_is_refused(pool, client, pair):
    tx, rx = pair
    a = pool.array(np.arange(3))
    for wrong, error, words in (([], ValueError, "1 to 4"), ({}, ValueError, "1 to 4"), ([a] * 5, ValueError, "5 Arrays cannot go.*1 to 4"),
                                ({1: a}, TypeError, "keys"), ([a, None], TypeError, "Array"), ([a, np.zeros(3)], TypeError, "Array"),
                                ({"x" * 70000: a}, ValueError, "too much"), ({"x" * 3000: a}, ValueError, "carries up to 1536 bytes")):
        with pytest.raises(error, match=words):
            tx.send(wrong)
        with pytest.raises(error):
            tx.send_many([wrong])
    b = pool.array(np.arange(3))
    b.release()
    with pytest.raises(libshare.ClosedError):
        tx.send([a, b])
    with pool.producer("one") as one, pool.consumer("one") as other:
        with pytest.raises(ValueError, match="buffers="):
            one.send([a])
        one.send(a)
        with other.recv(5) as m:
            assert len(m.arrays) == 1
    with pool.caller("s") as caller, pool.worker("s") as worker:
        with pytest.raises(ValueError, match="buffers="):
            caller.start([a])
        pending = caller.start(a)
        with worker.recv(5) as request:
            with pytest.raises(ValueError, match="buffers="):
                request.reply({"a": a})
            assert len(request.arrays) == 1
            request.reply(a)
        pending.finish(5).ack()
    # nothing of it was sent
    assert tx.stats()["sent"] == 0 and not a.closed
    # who does not say it does not get what it would not look at
    with pytest.raises(libshare.ExistsError, match="buffers"):
        pool.consumer("c")
    with pytest.raises(ValueError, match="buffers"):
        pool.producer("d", buffers=-1)
    with pytest.raises(libshare.InvalidArgumentError):
        pool.producer("d", buffers=33)


def rewrite(old, new, at=0):
    """In the rings of this process's producers, as one that means harm could. Whether there was such."""
    any_there = False
    with open("/proc/self/maps") as maps, open("/proc/self/mem", "r+b", buffering=0) as memory:
        for line in maps:
            place, mode, _, _, _, *path = line.split()
            if mode != "rw-s" or not path or not path[0].startswith("/memfd:") or "segment" in path[0]:
                continue
            begin, end = (int(x, 16) for x in place.split("-"))
            memory.seek(begin)
            content = memory.read(end - begin)
            found = content.find(old)
            while found >= 0:
                memory.seek(begin + found + at)
                memory.write(new)
                any_there = True
                found = content.find(old, found + 1)
    return any_there


HEAD = b"ShS1\2\0\1\0\2\0ab"  # of {"ab": …, "cd": …}, before the first one's description


def test_what_describes_them_may_be_nonsense(pool, pair):
    """C programs may send what they like: their memory comes as bytes then, and the data as they are."""
    tx, rx = pair
    a, b = pool.array(np.arange(1000)), pool.array(b"x")
    for new in (b"ShS2", b"ShS1\1", b"ShS1\3", b"ShS1\2\1", b"ShS1\xff\xff", b"ShS1\2\0\2", b"ShS1\2\0\1\1",
                b"ShS1\2\0\0\0", b"ShS1\2\0\1\0\xff\xff", b"ShS1\2\0\1\0\1\0", b"ShS1\2\0\1\0\3\0"):
        tx.send({"ab": a, "cd": b}, data=b"mine")
        assert rewrite(HEAD, new)
        with rx.recv(5) as m:
            assert [(x.dtype, x.nbytes) for x in m.arrays] == [("uint8", 8000), ("uint8", 1)], new
            assert m.data[:len(new)] == new and m.data.endswith(b"mine") and m.array.nbytes == 8000
    # names that are no texts, and one twice
    for new, names in ((b"\xff\xfe", ["\ufffd\ufffd", "cd"]), (b"cd", ["cd"])):
        tx.send({"ab": a, "cd": b}, data=b"mine")
        assert rewrite(HEAD, HEAD[:-2] + new)
        with rx.recv(5) as m:
            assert list(m.arrays) == names and m.data == b"mine" and m.array.nbytes == 8000


def test_any_byte_of_what_describes_them_may_be_any(pool, pair):
    tx, rx = pair
    a, b = pool.array(np.arange(64.0).reshape(8, 8))[2:, 1:], pool.array(np.arange(5, dtype=np.int16))
    for i in range(len(HEAD), 80):
        for value in (0, 1, 0xFF):
            tx.send({"ab": a, "cd": b}, data=b"mine")
            assert rewrite(HEAD, bytes([value]), i)
            with rx.recv(5) as m:
                arrays = list(m.arrays.values() if isinstance(m.arrays, dict) else m.arrays)
                assert len(arrays) == 2 and m.array.id == arrays[0].id and len(m.data) > 0
                for array, size in zip(arrays, (512, 10)):
                    if hasattr(np, array.dtype):
                        assert np.asarray(array).copy().nbytes == array.nbytes <= size


@pytest.fixture
def service(pool):
    with pool.caller("s", buffers=4, callers=4) as caller, pool.worker("s", buffers=4) as worker:
        yield caller, worker


def test_services_ask_and_answer_with_several(pool, service):
    caller, worker = service
    named = sample(pool)
    one = pool.array(np.arange(3))
    for asked, answered in ((named, list(named.values())), ([one, one[1:]], named), (one, [one]), (None, {"ä": one}), ([one] * 4, None)):
        for extra in ({}, {"meta": {"n": 7}}, {"data": b"bytes"}):
            pending = caller.start(asked, **extra)
            with worker.recv(5) as request:
                if isinstance(asked, (list, dict)):
                    same(request.arrays, asked)
                else:
                    assert len(request.arrays) == (asked is not None)
                assert request.meta == extra["meta"] if "meta" in extra else request.data == extra.get("data", b"")
                request.reply(answered, **extra)
            with pending.finish(5) as answer:
                if answered is None:
                    assert answer.arrays == []
                else:
                    same(answer.arrays, answered)
                assert answer.meta == extra["meta"] if "meta" in extra else answer.data == extra.get("data", b"")


def test_services_leave_each_to_who_keeps_it(pool, service, broker):
    caller, worker = service
    for i in range(4):
        pending = caller.start([pool.array(np.full(1000, j)) for j in range(4)])
        request = worker.recv(5)
        asked = request.arrays[i]
        request.reply({str(j): pool.array(np.full(1000, 10 + j)) for j in range(4)})
        answer = pending.finish(5)
        answered = np.asarray(answer.arrays[str(i)])
        answer.ack()
        for _ in range(3):
            pending = caller.start([pool.array(np.full(1000, 99)) for j in range(4)])
            request = worker.recv(5)
            request.reply([pool.array(np.full(1000, 98)) for j in range(4)])
            pending.finish(5).ack()
        assert (np.asarray(asked) == i).all() and (answered == 10 + i).all()
        del asked, answered, request, pending
    gc.collect()
    pool.set_cache(0)
    until(lambda: broker.inspect("buffers") == [])


def test_services_come_after_the_work_on_each(client, pool, service):
    caller, worker = service
    gates = [threading.Event(), threading.Event()]
    streams = [client.host_stream(), client.host_stream()]
    arrays = [pool.zeros(3, stream=s) for s in streams]

    def work():
        for n, (gate, s, x) in enumerate(zip(gates, streams, arrays), 1):
            gate.clear()
            np.asarray(x).fill(0)
            s.launch(gate.wait)
            s.launch(lambda x=x, n=n: np.asarray(x).fill(n))

    def is_there_in_the_end(get):
        for gate in gates:
            with pytest.raises(libshare.NotReadyError):
                get(0)
            gate.set()
        m = get(5)
        assert [int(np.asarray(x)[0]) for x in m.arrays] == [1, 2]
        return m

    work()
    pending = caller.start(arrays)
    request = is_there_in_the_end(worker.recv)
    work()
    request.reply(arrays)
    is_there_in_the_end(lambda timeout: pending.finish(timeout, stream=None)).ack()
    # one alone as well
    gates[1].clear()
    pending = caller.start(None)
    streams[1].launch(gates[1].wait)
    worker.recv(5).reply(arrays[1])
    with pytest.raises(libshare.NotReadyError):
        pending.finish(0)
    gates[1].set()
    pending.finish(5).ack()
    for s in streams:
        s.close()


def test_many_are_sent_behind_the_work_on_each(client, pool, pair):
    tx, rx = pair
    gates = [threading.Event(), threading.Event()]
    streams = [client.host_stream(), client.host_stream()]
    a, b = (pool.zeros(3, stream=s) for s in streams)
    for sent in ([a, b], [pool.zeros(3), a, [b]], [[a, b]]):
        for n, (gate, s, x) in enumerate(zip(gates, streams, (a, b)), 1):
            gate.clear()
            np.asarray(x).fill(0)
            s.launch(gate.wait)
            s.launch(lambda x=x, n=n: np.asarray(x).fill(n))
        assert tx.send_many(sent) == len(sent)
        for gate in gates:
            with pytest.raises(libshare.NotReadyError):
                rx.recv(0)
            gate.set()
        values = []
        for _ in sent:
            with rx.recv(5) as m:
                values += [int(np.asarray(x)[0]) for x in m.arrays]
        assert [v for v in values if v] == [1, 2]
    for s in streams:
        s.close()


def test_services_refuse_what_was_not_said(pool, service):
    caller, worker = service
    a = pool.array(np.arange(3))
    with pytest.raises(ValueError, match="5 Arrays cannot go"):
        caller.start([a] * 5)
    with pytest.raises(libshare.ExistsError, match="buffers"):
        pool.worker("s")
    with pytest.raises(libshare.ExistsError, match="buffers"):
        pool.caller("s")
    with pytest.raises(ValueError, match="buffers"):
        pool.caller("t", buffers=-1)
    with pytest.raises(libshare.InvalidArgumentError):
        pool.caller("t", buffers=33)
    with pytest.raises(libshare.InvalidArgumentError, match="65519"):
        pool.caller("t", data_max=65520)
    with pool.caller("t", data_max=5000) as one, pool.worker("t", data_max=5000) as other:
        pending = one.start(a, data=b"x" * 4000)
        with other.recv(5) as request:
            assert request.data == b"x" * 4000
            with pytest.raises(ValueError, match="buffers="):
                request.reply([a])
            request.reply(None, data=b"y" * 5000)
        with pending.finish(5) as answer:
            assert answer.data == b"y" * 5000


def test_asyncio_sends_and_receives_several(pool, pair):
    tx, rx = pair
    named = sample(pool)

    async def run():
        await tx.send_async(named, meta=1)
        m = await rx.recv_async(5)
        same(m.arrays, named)
        m.ack()
        await tx.send_async([named["boxes"]])
        async for m in rx:
            same(m.arrays, [named["boxes"]])
            break

    asyncio.run(run())


def test_asyncio_calls_with_several(pool, service):
    caller, worker = service
    named = sample(pool)

    async def serve():
        request = await worker.recv_async(60)
        same(request.arrays, named)
        request.reply(list(named.values()))

    async def run():
        serving = asyncio.ensure_future(serve())
        with await caller.call_async(named, timeout=60) as answer:
            same(answer.arrays, list(named.values()))
        await serving

    asyncio.run(run())


def test_thirty_two_with_strides_fit_without_a_word_about_data(pool):
    with pool.producer("m", buffers=32) as tx, pool.consumer("m", buffers=32) as rx:
        a = pool.zeros((2,) * 8, "float32")
        sent = {f"a name of forty characters, number {i:06}": a.transpose()[1:] for i in range(32)}
        tx.send(sent, data=b"x" * 200)
        with rx.recv(5) as m:
            same(m.arrays, sent)
            assert m.data == b"x" * 200
