# SPDX-License-Identifier: MIT
"""Messages of several Arrays, as a list or a dict."""

import asyncio
import gc

import numpy as np
import pytest

import libshare
from conftest import until


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


def test_only_what_is_true_gives_them_up(pool, pair):
    tx, rx = pair
    a = pool.array(np.arange(3))
    for give in (0, None, False, [], np.False_):
        for sent in (a, [a, a]):
            tx.send(sent, give=give)
            assert not a.closed
            rx.recv(5).ack()


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


def test_what_describes_them_may_be_nonsense(pool, pair, monkeypatch):
    """C programs may send what they like: their memory comes as bytes then, and the data as they are."""
    tx, rx = pair
    big = pool.array(np.arange(1000))
    small = big[:1]
    shrunk = pool.array(b"x")
    for data in (b"ShS1", b"ShS1\2\0\0\0", b"ShS1\2\0\1\0\xff\xff", b"ShS1\2\0\7\0"):
        tx.send(small, data=data)
        with rx.recv(5) as m:
            assert m.data == data and m.arrays[0].shape == (1,)
    tx.send([shrunk, big])
    with rx.recv(5) as m:
        assert [x.shape for x in m.arrays] == [(1,), (1000,)]


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


def test_thirty_two_with_strides_fit_without_a_word_about_data(pool):
    with pool.producer("m", buffers=32) as tx, pool.consumer("m", buffers=32) as rx:
        a = pool.zeros((2,) * 8, "float32")
        sent = {f"a name of forty characters, number {i:06}": a.transpose()[1:] for i in range(32)}
        tx.send(sent, data=b"x" * 200)
        with rx.recv(5) as m:
            same(m.arrays, sent)
            assert m.data == b"x" * 200
