# SPDX-License-Identifier: MIT
"""A NumPy array of 1 MiB to another process, and a number back.

Of every carrier a round trip is: this process stores to eight words of the array, spread over it, and
hands it over by what the carrier's documentation recommends for arrays; the other process gets a
NumPy array of it, adds those words up, and sends the sum back the same way, which is checked. All
wait as the carrier waits by default. They take turns, but for Ray, whose daemons would disturb the
others: it comes last.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import struct
import tempfile
from multiprocessing import shared_memory
from time import perf_counter
from typing import Any, Callable

import libshare

from .figures import Report, median_of_rounds

ROWS = {
    "arrays.libshare": "libshare; a channel there and one back",
    "arrays.queue": "multiprocessing.Queue; put(), get()",
    "arrays.pipe": "multiprocessing.Pipe; send(), recv()",
    "arrays.pipe-bytes": "Pipe, bytes; send_bytes(), recv_bytes_into()",
    "arrays.shared-memory": "shared_memory + queue; one block, and SimpleQueues for its name",
    "arrays.zmq": "pyzmq, ipc; send(copy=False), recv(copy=False)",
    "arrays.ray": "Ray; put(), a method of an actor, get()",
}
_SHAPE = (1 << 20) // 8
_STEP = _SHAPE // 8
_SUM = struct.Struct("<q")


def _fill(x: Any, i: int) -> None:
    x[::_STEP] = i


def _touch(x: Any) -> int:
    return int(x[::_STEP].sum())


# ------------------------------------------------------------------------------------------------
# Carriers: each yields what makes a round trip and answers the sum, and ends with the other process.
# The other process runs the function that stands before.


def _libshare_other(address: str) -> None:
    import numpy as np

    client = libshare.connect(address)
    pool = client.pool("bench")
    with pool.consumer("there") as rx, pool.producer("back") as tx:
        tx.send(data=b"ready")
        for m in rx:
            tx.send(data=_SUM.pack(_touch(np.asarray(m.array))))


def _libshare(start: Callable[..., Any]) -> Any:
    import numpy as np

    with libshare.connect("embedded") as client:
        pool = client.pool("bench", kind="host", limit="64MiB")
        with pool.consumer("back") as rx, pool.producer("there") as tx:
            other = start(_libshare_other, client.address)
            rx.recv().ack()

            def trip(i: int) -> int:
                a = pool.empty(_SHAPE, np.float64)
                _fill(np.asarray(a), i)
                tx.send(a)
                with rx.recv() as m:
                    return _SUM.unpack(m.data)[0]

            yield trip
            tx.close()
            other.join()


def _queue_other(there: Any, back: Any) -> None:
    back.put(None)
    while (x := there.get()) is not None:
        back.put(_touch(x))


def _queue(start: Callable[..., Any]) -> Any:
    import numpy as np

    context = multiprocessing.get_context("spawn")
    there, back = context.Queue(), context.Queue()
    x = np.zeros(_SHAPE)
    other = start(_queue_other, there, back)
    back.get()

    def trip(i: int) -> int:
        _fill(x, i)
        there.put(x)
        return back.get()

    yield trip
    there.put(None)
    other.join()


def _pipe_other(end: Any) -> None:
    end.send(None)
    while (x := end.recv()) is not None:
        end.send(_touch(x))


def _pipe(start: Callable[..., Any]) -> Any:
    import numpy as np

    end, others = multiprocessing.get_context("spawn").Pipe()
    x = np.zeros(_SHAPE)
    other = start(_pipe_other, others)
    end.recv()

    def trip(i: int) -> int:
        _fill(x, i)
        end.send(x)
        return end.recv()

    yield trip
    end.send(None)
    other.join()


def _pipe_bytes_other(end: Any) -> None:
    import numpy as np

    x = np.empty(_SHAPE)
    end.send_bytes(b"ready")
    while end.recv_bytes_into(x) == x.nbytes:
        end.send_bytes(_SUM.pack(_touch(x)))


def _pipe_bytes(start: Callable[..., Any]) -> Any:
    import numpy as np

    end, others = multiprocessing.get_context("spawn").Pipe()
    x = np.zeros(_SHAPE)
    other = start(_pipe_bytes_other, others)
    end.recv_bytes()

    def trip(i: int) -> int:
        _fill(x, i)
        end.send_bytes(x)
        return _SUM.unpack(end.recv_bytes())[0]

    yield trip
    end.send_bytes(b"")
    other.join()


def _shared_memory_other(there: Any, back: Any) -> None:
    import numpy as np

    blocks: dict[str, Any] = {}  # each is attached once
    back.put(None)
    while (name := there.get()) is not None:
        if name not in blocks:
            block = shared_memory.SharedMemory(name)
            blocks[name] = block, np.ndarray(_SHAPE, buffer=block.buf)
        back.put(_touch(blocks[name][1]))
    while blocks:
        _, (block, x) = blocks.popitem()
        del x
        block.close()


def _shared_memory(start: Callable[..., Any]) -> Any:
    import numpy as np

    context = multiprocessing.get_context("spawn")
    there, back = context.SimpleQueue(), context.SimpleQueue()
    block = shared_memory.SharedMemory(create=True, size=_SHAPE * 8)
    try:
        x = np.ndarray(_SHAPE, buffer=block.buf)
        other = start(_shared_memory_other, there, back)
        back.get()

        def trip(i: int) -> int:
            _fill(x, i)
            there.put(block.name)
            return back.get()

        yield trip
        there.put(None)
        other.join()
        del x, trip
    finally:
        block.unlink()
        block.close()


def _zmq_other(address: str) -> None:
    import numpy as np
    import zmq

    with zmq.Context() as context, context.socket(zmq.PAIR) as socket:
        socket.connect(address)
        socket.send(b"ready")
        while True:
            frame = socket.recv(copy=False)
            if len(frame) == 0:
                break
            socket.send(_SUM.pack(_touch(np.frombuffer(frame))))


def _zmq(start: Callable[..., Any]) -> Any:
    import numpy as np
    import zmq

    with tempfile.TemporaryDirectory() as folder, zmq.Context() as context:
        with context.socket(zmq.PAIR) as socket:
            address = f"ipc://{os.path.join(folder, 'socket')}"
            socket.bind(address)
            x = np.zeros(_SHAPE)
            other = start(_zmq_other, address)
            socket.recv()

            def trip(i: int) -> int:
                _fill(x, i)
                socket.send(x, copy=False)
                return _SUM.unpack(socket.recv())[0]

            yield trip
            socket.send(b"")
            other.join()


def _ray(start: Callable[..., Any]) -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    import numpy as np
    import ray

    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR",
             object_store_memory=256 << 20, _node_ip_address="127.0.0.1")
    try:
        touch = _touch

        @ray.remote
        class Other:
            def touch(self, x: Any) -> int:
                return touch(x)

        other = Other.remote()
        x = np.zeros(_SHAPE)

        def trip(i: int) -> int:
            _fill(x, i)
            return ray.get(other.touch.remote(ray.put(x)))

        yield trip
    finally:
        ray.shutdown()


_IN_TURNS = {
    "arrays.libshare": _libshare, "arrays.queue": _queue, "arrays.pipe": _pipe,
    "arrays.pipe-bytes": _pipe_bytes, "arrays.shared-memory": _shared_memory, "arrays.zmq": _zmq,
}
_NEEDS = {"arrays.zmq": ("zmq", "pyzmq"), "arrays.ray": ("ray", "ray")}
_LEAST = {"arrays.queue": 20.0}  # times as long as ours; all others longer than ours


def _start(function: Callable[..., None], *arguments: Any) -> Any:
    other = multiprocessing.get_context("spawn").Process(target=function, args=arguments, daemon=True)
    other.start()
    return other


def _round(trip: Callable[[int], int], n: int) -> list[float]:
    took = []
    for i in range(n):
        start = perf_counter()
        found = trip(i)
        took.append((perf_counter() - start) * 1e6)
        if found != 8 * i:
            raise RuntimeError(f"the other process read {found}, not {8 * i}")
    return took


def _measure(carriers: dict[str, Callable[..., Any]], rounds: int, n: int) -> dict[str, float]:
    """Microseconds of a trip, of each."""
    running = {name: carrier(_start) for name, carrier in carriers.items()}
    trips = {name: next(one) for name, one in running.items()}
    for trip in trips.values():
        _round(trip, n)
    found: dict[str, list[list[float]]] = {name: [] for name in carriers}
    for _ in range(rounds):
        for name, trip in trips.items():
            found[name].append(_round(trip, n))
    trips.clear()
    del trip
    for one in running.values():
        next(one, None)
    return {name: median_of_rounds(of) for name, of in found.items()}


def run(report: Report) -> None:
    import numpy  # noqa: F401: without it there is nothing to measure

    for name, (module, package) in _NEEDS.items():
        if importlib.util.find_spec(module) is None:
            report.skip(f"the package {package} is not installed", name)
    missing = {name for name, (module, _) in _NEEDS.items() if importlib.util.find_spec(module) is None}
    rounds, n = (2, 5) if report.quick else (21, 100)
    found = _measure({k: v for k, v in _IN_TURNS.items() if k not in missing}, rounds, n)
    if "arrays.ray" not in missing:
        found |= _measure({"arrays.ray": _ray}, max(2, rounds // 4), n)
    ours = found.pop("arrays.libshare")
    report.value("arrays.libshare", ours, "us")
    for name, theirs in found.items():
        least = _LEAST.get(name, 1.0)
        report.value(name, theirs, "us", against=ours, compared=f"{theirs / ours:.1f} x",
                     target=f">= {least:g} x", met=theirs >= least * ours)
