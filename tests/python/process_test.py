# SPDX-License-Identifier: MIT
"""Arrays in other processes: through pickles, by whatever way these are started."""

import concurrent.futures
import copy
import gc
import multiprocessing
import multiprocessing.forkserver
import multiprocessing.resource_tracker
import os
import pickle
import signal
import sys
import threading
import traceback

import numpy as np
import pytest

import libshare
from conftest import fork, until
from libshare import _stats


@pytest.fixture(autouse=True, scope="session")
def helpers():
    """They stay for good once they were needed, with a descriptor each."""
    multiprocessing.resource_tracker.ensure_running()
    multiprocessing.forkserver.ensure_running()


def double(a):
    np.asarray(a)[:] *= 2
    return a[1:]


def answer(requests, answers):
    while (a := requests.get()) is not None:
        answers.put(int(np.asarray(a).sum()))
        del a


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_queues_and_pools_of_multiprocessing_carry_arrays(pool, method):
    context = multiprocessing.get_context(method)
    a = pool.array(np.arange(10))
    with context.Pool(2) as workers:
        back = workers.apply(double, (a,))
        assert np.asarray(a).sum() == 90 and back.shape == (9,) and np.asarray(back).sum() == 90
        # what came back is the very same memory
        np.asarray(a)[1] = 100
        assert np.asarray(back)[0] == 100 and back.id == a.id
        assert [int(np.asarray(b).sum()) for b in workers.map(double, [pool.array(np.arange(4)) for _ in range(8)])] == [12] * 8
        workers.close()
        workers.join()
    requests, answers = context.Queue(), context.Queue()
    worker = context.Process(target=answer, args=(requests, answers))
    worker.start()
    for i in range(5):
        requests.put(pool.array(np.full(100, i)))
    requests.put(None)
    assert [answers.get() for _ in range(5)] == [0, 100, 200, 300, 400]
    worker.join()
    assert worker.exitcode == 0
    for queue in (requests, answers):
        queue.close()
        queue.join_thread()
    del back


def test_executors_carry_arrays(pool):
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as workers:
        results = [workers.submit(double, pool.array(np.full(4, i))) for i in range(4)]
        assert [int(np.asarray(r.result()).sum()) for r in results] == [0, 6, 12, 18]
        del results


def test_what_stays_in_its_process_says_what_to_do_instead(client, pool):
    with pool.consumer("c") as rx, pool.producer("c") as tx:
        tx.send()
        for thing in (client, pool, rx, tx, rx.recv(), client.host_stream(), client.watch()):
            for carry in (pickle.dumps, copy.copy, copy.deepcopy):
                with pytest.raises(TypeError, match=r"client_of\(client.address\)"):
                    carry(thing)


def refused(pickled):
    with pytest.raises(libshare.NotFoundError) as told:
        pickle.loads(pickled)
    return "\n".join([str(told.value), *getattr(told.value, "__notes__", ())])


def test_a_pickle_is_for_as_many_as_it_is_made_for(client, pool):
    a = pool.array(np.arange(4))
    for pickled in (pickle.dumps(a.pickled(uses=2)), pickle.dumps([a.pickled(2)])):
        for _ in range(2):
            b = pickle.loads(pickled)
            b = b[0] if isinstance(b, list) else b
            assert np.array_equal(np.asarray(b), np.arange(4)) and b.id == a.id
        assert "it was used up" in refused(pickled)
    assert "Array.pickled(uses=N)" in refused(pickled)
    libshare.set_pickle_uses(3)
    try:
        pickled = pickle.dumps(a)
    finally:
        libshare.set_pickle_uses(1)
    for _ in range(3):
        assert pickle.loads(pickled).id == a.id
    assert "it was used up" in refused(pickled)
    many = pickle.dumps(a.pickled(uses=0))
    for _ in range(20):
        assert pickle.loads(many).id == a.id
    for row in client.inspect("tokens"):
        client.revoke(row["token"])
    assert "it was revoked" in refused(many)
    for wrong in (-1, 1.5, True, 1 << 32):
        with pytest.raises(ValueError):
            libshare.set_pickle_uses(wrong)
        with pytest.raises(ValueError):
            a.pickled(wrong)
    del b
    libshare.client_of(client.address).close()


def puts_one(address, name, queue):
    with libshare.connect(address) as client, client.pool(name) as pool:
        queue.put(pool.array(np.arange(10)))
        queue.close()
        queue.join_thread()


def test_what_a_worker_puts_into_a_queue_outlives_it(client, pool):
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    worker = context.Process(target=puts_one, args=(client.address, pool.name, queue))
    worker.start()
    worker.join()
    assert worker.exitcode == 0
    a = queue.get()
    assert np.array_equal(np.asarray(a), np.arange(10))
    queue.close()
    queue.join_thread()
    del a
    libshare.client_of(client.address).close()


def test_a_pickle_is_a_token(client, pool, broker):
    a = pool.array(np.arange(6).reshape(2, 3))
    view = pickle.dumps(a.T)
    b = pickle.loads(view)
    assert np.array_equal(np.asarray(b), np.arange(6).reshape(2, 3).T) and b.id == a.id and not b.readonly
    with pytest.raises(libshare.NotFoundError):
        pickle.loads(view)  # it was for one use
    libshare.set_pickle_timeout(0.001)
    old = pickle.dumps(a)

    def has_ended():
        try:
            pickle.loads(old)
        except libshare.NotFoundError:
            return True
        finally:
            libshare.set_pickle_timeout(300)

    assert has_ended() or has_ended()  # for one use at most, whatever its time
    with pytest.raises(ValueError):
        libshare.set_pickle_timeout(0)
    a.publish("x")
    r = client.lookup("x", readonly_ok=True)
    r = pickle.loads(pickle.dumps(r))
    assert r.readonly and r.readonly_ok
    client.unpublish("x")
    for wrong in (client, pool, pool.producer("c")):
        with pytest.raises(TypeError):
            pickle.dumps(wrong)
    a.release()
    with pytest.raises(libshare.ClosedError):
        pickle.dumps(a)
    gc.collect()
    del b, r, wrong
    libshare.client_of(client.address).close()


@pytest.fixture(autouse=True)
def no_client_stays(client, broker):
    yield
    libshare.client_of(broker.address).close()


def test_a_forked_child_has_a_client_of_its_own(pool):
    a = pool.array(np.arange(4))
    here = pickle.loads(pickle.dumps(a))
    token = pickle.dumps(a)
    child = fork()
    if child == 0:
        try:
            there = pickle.loads(token)
            os._exit(0 if np.asarray(there).sum() == 6 else 1)
        except BaseException:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert np.asarray(here).sum() == 6


def test_what_a_forked_child_inherits_may_end_there(broker, client, pool):
    a = pool.array(np.arange(4))
    lent, address = [memoryview(a), np.from_dlpack(a), a.__dlpack__()], broker.address
    child = fork()
    if child == 0:
        try:
            signal.alarm(120)  # who goes round in a circle is to end
            lent.clear()
            gc.collect()
            with libshare.connect(address) as c, c.pool("test") as p:
                mine = [p.array(np.arange(4)) for _ in range(4)]
                held = [memoryview(m) for m in mine] + [np.from_dlpack(m) for m in mine]
                for m in mine:
                    assert libshare._core._array_at(m.ptr, "int64", (4,), None).id == m.id
                assert libshare._core._array_at(4096, "int64", (4,), None) is None
                del held
                assert libshare._core._array_at(mine[0].ptr, "int64", (4,), None) is None
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert libshare._core._array_at(a.ptr, "int64", (4,), None).id == a.id
    assert np.array_equal(lent[1], np.arange(4))


def test_names_with_everything_reach_a_spawned_process(client, pool):
    with multiprocessing.get_context("spawn").Pool(1) as workers:
        pool.array(np.arange(12).reshape(3, 4))[:, 1:3].publish("x")
        assert workers.apply(look, (client.address, "x")) == [[1, 2], [5, 6], [9, 10]]
        workers.close()
        workers.join()
    client.unpublish("x")


def look(address, name):
    with libshare.connect(address) as c:
        return np.asarray(c.lookup(name, timeout=5)).tolist()


def test_a_killed_process_gives_back_what_it_held(client, pool, broker):
    pool.set_cache(0)
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=hold, args=(client.address, there))
    process.start()
    assert here.recv() == "holds"
    assert len(broker.inspect("buffers")) == 3
    process.kill()
    process.join()
    here.close(), there.close()
    until(lambda: broker.inspect("buffers") == [])


def hold(address, pipe):
    c = libshare.connect(address)
    p = c.pool("test")
    held = [p.alloc(1000) for _ in range(3)]
    pipe.send("holds")
    pipe.recv()
    del held


def test_what_is_counted_is_of_one_process_and_all_its_threads():
    def work():
        for _ in range(20_000):
            _stats.count("test", "done")

    interval = sys.getswitchinterval()
    threads = [threading.Thread(target=work) for _ in range(4)]
    try:
        sys.setswitchinterval(1e-6)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert libshare.stats()["test"] == {"done": 80_000}
        child = fork()
        if child == 0:
            os._exit(0 if libshare.stats() == {} else 1)
        assert os.waitpid(child, 0)[1] == 0
    finally:
        sys.setswitchinterval(interval)
        _stats._counts.pop("test", None)
