# SPDX-License-Identifier: MIT
"""Calls from Python against the same calls in C: in one process, with the same objects, in turns."""

from __future__ import annotations

import statistics
from time import perf_counter

import libshare
from libshare import _core

from .figures import Report, short

ROWS = {
    "calls.lookup": "lookup of 4 KiB by name, and its release; against: in C",
    "calls.alloc": "alloc of 4 KiB and its release; against: in C",
    "calls.send": "send of an Array, nobody waits for it; against: in C",
    "calls.recv": "recv of that, timeout 0; against: in C",
    "calls.ack": "its ack, and the end of the Message; against: in C",
}
_MORE = 200  # ns that Python may add
_BATCH = 64
_NAME = "bench/calls"


def _lookup(client: libshare.Client, n: int) -> float:
    lookup = client.lookup
    start = perf_counter()
    for _ in range(n):
        lookup(_NAME)
    return perf_counter() - start


def _alloc(pool: libshare.Pool, n: int) -> float:
    alloc = pool.alloc
    start = perf_counter()
    for _ in range(n):
        alloc(4096)
    return perf_counter() - start


def _send(producer: libshare.Producer, array: libshare.Array, n: int) -> float:
    send = producer.send
    start = perf_counter()
    for _ in range(n):
        send(array)
    return perf_counter() - start


def _recv_and_ack(consumer: libshare.Consumer, n: int) -> tuple[float, float]:
    recv = consumer.recv
    start = perf_counter()
    messages = [recv(0) for _ in range(n)]
    received = perf_counter()
    for m in messages:
        m.ack()
    del m, messages
    return received - start, perf_counter() - received


def run(report: Report) -> None:
    rounds, lookups, allocs, batches = (3, 20, 500, 3) if report.quick else (41, 300, 5000, 30)
    series: dict[str, list[tuple[float, float]]] = {name: [] for name in ROWS}

    def add(name: str, n: int, python: float, c: float) -> None:
        series[name].append((python / n * 1e9, c / n * 1e9))

    with libshare.connect("embedded", label="bench") as client:
        pool = client.pool("bench", kind="host", limit="256MiB")
        array = pool.alloc(4096)
        array.publish(_NAME)
        rx = pool.consumer("bench", depth=4 * _BATCH)
        tx = pool.producer("bench")
        for _ in range(rounds):
            add("calls.lookup", lookups, _lookup(client, lookups), _core._measure(client, lookups, _NAME))
            add("calls.alloc", allocs, _alloc(pool, allocs), _core._measure(pool, allocs, 4096))
            sums = [0.0] * 6
            for _ in range(batches):
                sent = _send(tx, array, _BATCH)
                received = _recv_and_ack(rx, _BATCH)
                sent_in_c = _core._measure(tx, _BATCH, array)
                received_in_c = _core._measure(rx, _BATCH)
                sums = [a + b for a, b in zip(sums, (sent, sent_in_c, received[0], received_in_c[0],
                                                     received[1], received_in_c[1]))]
            for i, name in enumerate(("calls.send", "calls.recv", "calls.ack")):
                add(name, batches * _BATCH, sums[2 * i], sums[2 * i + 1])
    for name, pairs in series.items():
        more = statistics.median(python - c for python, c in pairs)
        report.value(name, statistics.median(python for python, _ in pairs), "ns",
                     against=statistics.median(c for _, c in pairs), compared=f"+{short(more)} ns",
                     target=f"+{_MORE} ns", met=more <= _MORE)
