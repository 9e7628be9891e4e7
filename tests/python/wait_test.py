# SPDX-License-Identifier: MIT
"""Waits end by ^C and when the object is closed, and nobody wakes up before that. What a process waits
for is seen in /proc, where each of its threads is in a system call without a time limit then."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time

import libshare
import pytest

LIMIT = 60

# Number, and which argument is the time limit: -1 in poll and epoll, NULL in a futex. x86-64 and arm64.
POLL, EPOLL = {"x86_64": (7, 232), "aarch64": (None, None)}.get(os.uname().machine, (None, None))
FUTEX, PPOLL, EPOLL_PWAIT, WAITV = {
    "x86_64": (202, 271, 281, 449),
    "aarch64": (98, 73, 22, 449),
}.get(os.uname().machine, (None,) * 4)


def sleeps_for_good(pid, task):
    try:
        with open(f"/proc/{pid}/task/{task}/syscall") as f:
            number, *arguments = f.read().split()
    except (OSError, ValueError):
        return False
    if len(arguments) < 6:
        return False
    a = [int(x, 16) for x in arguments]
    none = 0xFFFFFFFF
    match int(number):
        case n if n in (FUTEX, WAITV):
            return a[3] == 0
        case n if n == POLL:
            return a[2] & none == none
        case n if n in (EPOLL, EPOLL_PWAIT):
            return a[3] & none == none
        case n if n == PPOLL:
            return a[2] == 0
    return False


def until(condition):
    end = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < end, "this never came true"
        time.sleep(0.002)


PRELUDE = """
import asyncio, sys, threading
import libshare
client = libshare.connect()
pool = client.pool("test")
"""

# The main thread of each waits without a limit.
WAITS = {
    "recv": "rx = pool.consumer('c')\nrx.recv()",
    "recv of many": "rx = pool.consumer('c')\nfor m in rx: pass",
    "send": "tx = pool.producer('c', mode='queue', depth=1)\ntx.send()\ntx.send()",
    "send_many": "tx = pool.producer('c', mode='queue', depth=1)\ntx.send()\ntx.send_many([(None, 1)])",
    "flush": "tx = pool.producer('c', mode='queue')\ntx.send()\ntx.flush()",
    "drain": "tx = pool.producer('c', mode='queue')\ntx.send()\ntx.drain()",
    "call": "s = pool.caller('s')\ns.call()",
    "finish": "s = pool.caller('s')\np = s.start()\np.finish()",
    "request": "w = pool.worker('s')\nw.recv()",
    "lookup": "client.lookup('nobody publishes this', timeout=None)",
    "monitor": "client.monitor(prefix='x')\nclient.monitor(prefix='x')",
    "watch": "client.watch('x').next()",
    "operation": "client.lookup_async('nobody publishes this').result(None)",
    "asyncio": "rx = pool.consumer('c')\nasyncio.run(rx.recv_async())",
}


@pytest.mark.parametrize("wait", WAITS)
def test_interrupts_end_each_wait_and_nothing_else_wakes_it(client, pool, wait):
    program = PRELUDE + "print('begins', flush=True)\n" + WAITS[wait]
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True,
                               env={**os.environ, "SHARE_SOCKET": client.address})
    try:
        assert process.stdout.readline() == "begins\n"
        pid = process.pid
        until(lambda: all(sleeps_for_good(pid, t) for t in os.listdir(f"/proc/{pid}/task")))
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT) == -signal.SIGINT, process.stderr.read()
        assert process.stderr.read().endswith("KeyboardInterrupt\n")
    finally:
        process.kill()
        process.communicate()


def sleeps_on_a_word(pid):
    with open(f"/proc/{pid}/syscall") as f:
        return f.read().split()[0] == str(FUTEX)


@pytest.mark.parametrize("wait", ["f.synchronize()", "s.synchronize()"])
def test_interrupts_end_waits_for_work(client, pool, wait):
    """It is looked now and then whether its owner lives, so that the system call has a limit."""
    program = PRELUDE + f"""
gate = threading.Event()
s = client.host_stream()
s.launch(gate.wait)
f = client.record(stream=s)
print("begins", flush=True)
try:
    {wait}
finally:
    gate.set()
"""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True,
                               env={**os.environ, "SHARE_SOCKET": client.address})
    try:
        assert process.stdout.readline() == "begins\n"
        until(lambda: sleeps_on_a_word(process.pid))
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT) == -signal.SIGINT, process.stderr.read()
    finally:
        process.kill()
        process.communicate()


CLOSES = {
    "recv": lambda client, pool: (c := pool.consumer("c"), c.recv),
    "send": lambda client, pool: (p := pool.producer("c", mode="queue", depth=1), lambda: (p.send(), p.send())),
    "call": lambda client, pool: (s := pool.caller("s"), s.call),
    "request": lambda client, pool: (w := pool.worker("s"), w.recv),
    "watch": lambda client, pool: (w := client.watch("x"), w.next),
    "canceled": lambda client, pool: (p := pool.caller("s").start(), p.finish),
}


@pytest.mark.parametrize("wait", CLOSES)
def test_closing_ends_a_wait_in_another_thread(client, pool, wait):
    thing, call = CLOSES[wait](client, pool)
    raised = []

    def waits():
        with pytest.raises(libshare.ClosedError) as e:
            call()
        raised.append(e)

    thread = threading.Thread(target=waits)
    thread.start()
    until(lambda: sleeps_for_good(os.getpid(), thread.native_id))
    thing.cancel() if wait == "canceled" else thing.close()
    thread.join(LIMIT)
    assert raised and not thread.is_alive()


def test_loops_need_no_thread_and_no_timer(client, pool):
    """What tasks of a loop wait for is told by descriptors."""
    async def main():
        loop = asyncio.get_running_loop()
        with pool.producer("q", mode="queue", depth=1) as tx, pool.caller("s", depth=1) as caller:
            await tx.send_async()
            calls = [caller.start()]
            with pytest.raises(libshare.NotReadyError):
                while True:
                    calls.append(caller.start())
            tasks = [asyncio.ensure_future(t) for t in
                     (tx.send_async(), tx.drain_async(), caller.call_async(), calls[0].finish_async())]
            for _ in range(10):
                await asyncio.sleep(0)
            assert not any(t.done() for t in tasks)
            assert loop._default_executor is None and not [t for t in loop._scheduled if not t.cancelled()]
            with pool.consumer("q") as rx:
                for _ in range(2):
                    (await rx.recv_async()).ack()
                await asyncio.wait_for(asyncio.gather(*tasks[:2]), LIMIT)
            with pool.worker("s") as worker:
                async def serve():
                    async for request in worker:
                        request.reply()

                served = asyncio.ensure_future(serve())
                await asyncio.wait_for(asyncio.gather(*tasks[2:]), LIMIT)
                served.cancel()

    asyncio.run(main())


def test_closing_ends_waits_of_loops(client, pool):
    async def main():
        rx, tx = pool.consumer("c"), pool.producer("q", mode="queue", depth=1)
        await tx.send_async()
        tasks = [asyncio.ensure_future(t) for t in (rx.recv_async(), tx.send_async())]
        for _ in range(10):
            await asyncio.sleep(0)
        rx.close()
        await asyncio.to_thread(tx.close)
        for t in tasks:
            with pytest.raises(libshare.ClosedError):
                await asyncio.wait_for(t, LIMIT)

    asyncio.run(main())
