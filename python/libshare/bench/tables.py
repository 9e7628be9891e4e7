# SPDX-License-Identifier: MIT
"""A table of Arrow of 195 MiB, 64 columns of numbers: a version that replaces another, and a reader.

Against it: pyarrow writes the table as a stream to a file in a tmpfs, which is renamed to the name that
readers map (memory_map()). They take turns.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from time import perf_counter
from typing import Any, Callable

import libshare

from .figures import Report

ROWS = {
    "tables.publish": "a version replaces another; a stream written to a tmpfs, and a rename",
    "tables.first": "the first version, into memory that is new",
    "tables.lookup": "a reader gets the table; memory_map() and open_stream()",
}
_COLUMNS, _ROWS = 64, 400_000
_TMPFS = "/dev/shm"


def _ways(pool: Any, table: Any, folder: str) -> dict[str, Callable[[], Any]]:
    import pyarrow as pa

    import libshare.arrow as arrow

    def write() -> None:
        with pa.OSFile(f"{folder}/new", "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table)
        os.rename(f"{folder}/new", f"{folder}/table")

    def read() -> Any:
        with pa.memory_map(f"{folder}/table") as file:
            return pa.ipc.open_stream(file).read_all()

    return {
        "publish": lambda: arrow.publish(pool, "table", table), "write": write,
        "lookup": lambda: arrow.lookup(pool.client, "table"), "read": read,
    }


def _timed(way: Callable[[], Any]) -> float:
    start = perf_counter()
    got = way()
    took = (perf_counter() - start) * 1e3
    if not isinstance(got, (int, type(None))) and (got.num_columns, got.num_rows) != (_COLUMNS, _ROWS):
        raise RuntimeError("it is another table")
    return took


def run(report: Report) -> None:
    import numpy as np
    import pyarrow as pa

    table = pa.table({f"c{i}": np.random.default_rng(i).random(_ROWS) for i in range(_COLUMNS)})
    free = os.statvfs(_TMPFS)
    if free.f_bavail * free.f_frsize < 3 * table.nbytes:
        report.skip(f"{_TMPFS} has no room for the other side", *[name for name in ROWS])
        return
    with libshare.connect("embedded") as client, tempfile.TemporaryDirectory(dir=_TMPFS) as folder:
        with client.pool("tables", kind="host", limit="2GiB") as pool:
            ways = _ways(pool, table, folder)
            took: dict[str, list[float]] = {name: [] for name in ways}
            for _ in range(3 if report.quick else 15):
                for name, way in ways.items():
                    took[name].append(_timed(way))
    middle = {name: statistics.median(times[1:]) for name, times in took.items()}
    report.times("tables.publish", middle["publish"], "ms", middle["write"], 4)
    report.times("tables.first", took["publish"][0], "ms", took["write"][0], None)
    report.times("tables.lookup", middle["lookup"], "ms", middle["read"], None)
