# SPDX-License-Identifier: MIT
"""Workers attach published weights: the time that it takes, and the memory that each adds.

The weights are 256 tensors of the same size. A worker is a process that has connected already, and on
a GPU has a context. Memory of the host is what the kernel counts as the process's own: anonymous
pages, and page tables, before and after; of the device, what the driver says is free. Then the worker
reads a word of every page of the weights, or of a GPU's every tensor: they have to be what was
published, and on the host its own memory is counted once more.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import statistics
from time import perf_counter
from typing import Any

import libshare
from libshare.weights import Source, attach_weights, publish_weights

from .figures import Report

_TENSORS = 256
_KINDS = ("host", "vmm", "mempool")
_MS_MAX = 20.0
_MIB_MAX = 1.0  # what describes the tensors, and nothing of what is in them

ROWS = {
    f"weights.{kind}.{row}": words
    for kind in _KINDS
    for row, words in (
        ("attach", f"attach all of them, {kind} memory, in another process"),
        ("memory", f"{'host' if kind == 'host' else 'device'} memory that the worker adds by it"),
        *([("read", "the same once it has read every page: page tables")] if kind == "host" else []),
    )
}


class _Pattern(Source):
    """So many bytes, a block repeated; the tensor's number is in its first and its last."""

    def __init__(self, number: int, nbytes: int, block: bytes):
        super().__init__("uint8", (nbytes,))
        self._number, self._block = number, block

    def copy_into(self, to: libshare.Array) -> None:
        size = len(self._block)
        for at in range(0, self.nbytes, size):
            n = min(size, self.nbytes - at)
            to[at : at + n].copy_from(self._block[:n])
        for at in (0, self.nbytes - 1):
            to[at : at + 1].copy_from(bytes([self._number % 256]))


# ------------------------------------------------------------------------------------------------
# The worker


def _own_memory() -> int:
    """Bytes of the host that are this process's alone."""
    with open("/proc/self/status") as f:
        found = {line.split(":")[0]: line.split() for line in f}
    return sum(int(found[key][1]) for key in ("RssAnon", "VmPTE")) << 10


class _Device:
    """What the driver says of the device; no package is needed for that."""

    def __init__(self) -> None:
        self._driver = ctypes.CDLL("libcuda.so.1")
        context = ctypes.c_void_p()
        self._call("cuInit", 0)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self._call("cuCtxSetCurrent", context)

    def _call(self, function: str, *arguments: Any) -> None:
        r = getattr(self._driver, function)(*arguments)
        if r != 0:
            raise RuntimeError(f"{function}: error {r}")

    def used(self) -> int:
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return total.value - free.value


def _read_all(weights: Any, on_gpu: bool) -> bool:
    """Whether all tensors are what was published."""
    good = len(weights) == _TENSORS
    for i, array in enumerate(weights.values()):
        if not on_gpu:
            memoryview(array)[::4096].tobytes()
        good = good and array[:1].tobytes()[0] == array[-1:].tobytes()[0] == i % 256
    return good


def _worker(address: str, kind: str, results: Any) -> None:
    on_gpu = kind != "host"
    count = _Device().used if on_gpu else _own_memory
    client = libshare.connect(address)
    if on_gpu:  # what the first use of memory of that kind loads is no part of the weights
        client.lookup("bench/first").tobytes()
    before = count()
    start = perf_counter()
    weights = attach_weights(client, "bench/weights")
    took = perf_counter() - start
    attached = count() - before
    good = _read_all(weights, on_gpu)
    results.send((took * 1e3, attached, count() - before, good))


# ------------------------------------------------------------------------------------------------


def _available() -> int:
    with open("/proc/meminfo") as f:
        return next(int(line.split()[1]) << 10 for line in f if line.startswith("MemAvailable:"))


def _gib(n: float) -> str:
    return f"{n / (1 << 30):.3g} GiB" if n >= 1 << 30 else f"{n / (1 << 20):.3g} MiB"


def _names(kind: str) -> list[str]:
    return [name for name in ROWS if name.startswith(f"weights.{kind}.")]


def _measure_kind(report: Report, client: libshare.Client, kind: str, size: int) -> None:
    if kind == "host" and _available() < size + size // 8:
        report.skip(f"{_gib(size)} of weights do not fit: {_gib(_available())} of memory are free "
                    "(--size)", *_names(kind))
        return
    try:
        pool = client.pool(kind, kind=kind, limit=size + size // 8 + (256 << 20))
    except (libshare.NoDeviceError, libshare.NotSupportedError) as e:
        report.skip(str(e), *_names(kind))
        return
    block = os.urandom(1 << 16) * 64
    each = max(size // _TENSORS, 1)
    first = pool.alloc(4096)
    first.publish("bench/first")
    publish_weights(pool, "bench/weights", {f"layer{i}.weight": _Pattern(i, each, block)
                                            for i in range(_TENSORS)})
    found = []
    context = multiprocessing.get_context("spawn")
    for _ in range(1 if report.quick else 5):
        end, others = context.Pipe()
        worker = context.Process(target=_worker, args=(client.address, kind, others), daemon=True)
        worker.start()
        others.close()
        found.append(end.recv())
        worker.join()
    client.unpublish("bench/weights")
    client.unpublish("bench/first")
    if not all(good for *_, good in found):
        raise RuntimeError(f"a worker did not read what was published in {kind} memory")
    ms, attached, read = (statistics.median(column) for column in list(zip(*found))[:3])
    report.value(f"weights.{kind}.attach", ms, "ms", compared=f"of {_gib(size)}",
                 target=f"<= {_MS_MAX:g} ms", met=ms <= _MS_MAX)
    mib = attached / (1 << 20)
    report.value(f"weights.{kind}.memory", mib, "MiB", compared=f"of {_gib(size)}",
                 target=f"<= {_MIB_MAX:g} MiB", met=mib <= _MIB_MAX)
    if kind == "host":
        report.value(f"weights.{kind}.read", read / (1 << 20), "MiB", compared=f"of {_gib(size)}")


def run(report: Report) -> None:
    for kind in _KINDS:
        with libshare.connect("embedded") as client:
            _measure_kind(report, client, kind, report.size)
