# SPDX-License-Identifier: MIT
"""Waits end by ^C and when the object is closed, and nobody wakes up before that. What a process waits
for is seen in /proc, where each of its threads is in a system call without a time limit then."""

import asyncio
import contextlib
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
READ, FUTEX, PPOLL, EPOLL_PWAIT, WAITV = {
    "x86_64": (0, 202, 271, 281, 449),
    "aarch64": (63, 98, 73, 22, 449),
}.get(os.uname().machine, (None,) * 5)


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
        case n if n == READ:
            return True
    return False


def switches(pid, task):
    """How often it has given up its core: who has not since has slept all the time."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{task}/status") as f:
        return [line for line in f if "ctxt_switches" in line]


def all_sleep_for_good(pid):
    """At the same moment. One that waits for another's lock sleeps for good as well, and goes on when the other
    falls asleep."""
    def looks():
        return {t: sleeps_for_good(pid, t) and switches(pid, t) for t in os.listdir(f"/proc/{pid}/task")}

    first = looks()
    return all(first.values()) and first == looks()


def until(condition):
    end = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < end, "this never came true"
        time.sleep(0.002)


PRELUDE = """
import asyncio, signal, sys, threading
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


# In the first case the system gives the signal to the main thread, whose sleep it interrupts. In the second another thread
# gets it, so that it interrupts nothing, as if it had come when the main thread was about to sleep.
SENDS = {"to the process": "", "to another thread": """
def send():
    sys.stdin.read()
    signal.raise_signal(signal.SIGINT)
threading.Thread(target=send, daemon=True).start()
"""}


def is_interrupted(client, program, sends, sleeps):
    """Sends it ^C once it sleeps."""
    program = PRELUDE + SENDS[sends] + program
    process = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True,
                               env={**os.environ, "SHARE_SOCKET": client.address})
    try:
        assert process.stdout.readline() == "begins\n"
        until(lambda: sleeps(process.pid))
        if SENDS[sends]:
            process.stdin.close()
        else:
            process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT) == -signal.SIGINT, process.stderr.read()
        assert process.stderr.read().endswith("KeyboardInterrupt\n")
    finally:
        process.kill()
        process.wait()
        for stream in process.stdin, process.stdout, process.stderr:
            stream.close()


@pytest.mark.parametrize("sends", SENDS)
@pytest.mark.parametrize("wait", WAITS)
def test_interrupts_end_each_wait_and_nothing_else_wakes_it(client, pool, wait, sends):
    if wait == "asyncio" and SENDS[sends]:
        pytest.skip("Python's own loop waits there, which no signal of another thread ends")
    is_interrupted(client, "print('begins', flush=True)\n" + WAITS[wait], sends, all_sleep_for_good)


def sleeps_on_a_word(pid):
    with open(f"/proc/{pid}/syscall") as f:
        return f.read().split()[0] == str(FUTEX)


@pytest.mark.parametrize("sends", SENDS)
@pytest.mark.parametrize("wait", ["f.synchronize()", "s.synchronize()"])
def test_interrupts_end_waits_for_work(client, pool, wait, sends):
    """It is looked now and then whether its owner lives, so that the system call has a limit."""
    is_interrupted(client, f"""
gate = threading.Event()
s = client.host_stream()
s.launch(gate.wait)
f = client.record(stream=s)
print("begins", flush=True)
try:
    {wait}
finally:
    gate.set()
""", sends, sleeps_on_a_word)


def test_who_had_signals_told_before_is_told_and_nothing_stays_of_a_wait(client, pool):
    """As asyncio is: while the main thread waits the descriptor is the package's."""
    program = PRELUDE + """
import os, socket
ours, told = socket.socketpair()
told.setblocking(False)
signal.set_wakeup_fd(told.fileno())
signal.signal(signal.SIGUSR1, lambda *_: print("handled", flush=True))
rx = pool.consumer("c")
print("begins", flush=True)
def has():
    opened = [os.readlink(f"/proc/self/fd/{fd}") for fd in range(100) if os.path.lexists(f"/proc/self/fd/{fd}")]
    return len(os.listdir("/proc/self/task")), [of for of in opened if "pipe" in of]
before = has()
try:
    rx.recv()
except KeyboardInterrupt:
    print(list(ours.recv(8)), signal.set_wakeup_fd(-1) == told.fileno(), has() == before)
"""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True,
                               env={**os.environ, "SHARE_SOCKET": client.address})
    with process:
        try:
            assert process.stdout.readline() == "begins\n"
            for number, says in ((signal.SIGUSR1, "handled\n"), (signal.SIGINT, "[10, 2] True True\n")):
                until(lambda: all_sleep_for_good(process.pid))
                process.send_signal(number)
                assert process.stdout.readline() == says
        finally:
            process.kill()


# In the thread that forks, the child leaves out what waited; in a handler it goes on with that.
FORKS = {"a thread": """
def forks():
    sys.stdin.readline()
    fork()
    tx.send()
threading.Thread(target=forks, daemon=True).start()
""", "a handler": """
signal.signal(signal.SIGUSR1, lambda *_: fork() or tx.send())
def tells():
    sys.stdin.readline()
    signal.raise_signal(signal.SIGUSR1)
threading.Thread(target=tells, daemon=True).start()
"""}


@pytest.mark.parametrize("forks", FORKS)
def test_a_wait_ends_while_a_process_lives_that_was_forked_meanwhile(client, pool, forks):
    """That process has nothing of it, and its signals are not told here."""
    program = PRELUDE + """
import os, socket
def pipes():
    opened = [os.readlink(f"/proc/self/fd/{fd}") for fd in range(100) if os.path.lexists(f"/proc/self/fd/{fd}")]
    return [of for of in opened if "pipe" in of]
before = pipes()
def say(who):
    os.write(1, f"{who} {pipes() == before} {signal.set_wakeup_fd(-1) == told.fileno()}\\n".encode())
def fork():
    if os.fork() == 0:
        say("child")
        signal.raise_signal(signal.SIGUSR2)
        sys.stdin.read()
        os._exit(0)
ours, told = socket.socketpair()
told.setblocking(False)
signal.set_wakeup_fd(told.fileno())
signal.signal(signal.SIGUSR2, lambda *_: None)
rx, tx = (member("c", mode="queue") for member in (pool.consumer, pool.producer))
""" + FORKS[forks] + """
print("begins", flush=True)
rx.recv()
ours.setblocking(False)
signal.raise_signal(signal.SIGUSR2)
say(f"parent was told of {list(ours.recv(8))[-1]},")
os._exit(0)
"""
    process = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               text=True, env={**os.environ, "SHARE_SOCKET": client.address})
    stopped = threading.Timer(LIMIT, process.kill)
    stopped.start()
    try:
        assert process.stdout.readline() == "begins\n"
        until(lambda: all_sleep_for_good(process.pid))
        process.stdin.write("\n")
        process.stdin.flush()
        says = sorted(process.stdout.readline() for _ in range(2))
        assert says == ["child True True\n", f"parent was told of {signal.SIGUSR2:d}, True True\n"]
    finally:
        stopped.cancel()
        process.kill()
        process.wait()
        for stream in process.stdin, process.stdout:
            stream.close()


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
