# SPDX-License-Identifier: MIT
"""What two workers of torch's DataLoader hand to the process that trains.

Against it: both of torch's strategies, of which the better one counts, in the same run and in turns. The
workers are forked and stay; each makes new tensors, and the process adds one number of each up.
"""

from __future__ import annotations

import statistics
from time import perf_counter
from typing import Any

import libshare

from .figures import Report

ROWS = {
    "loader.samples": "a sample of 4 MiB, without collation; torch's better strategy",
    "loader.batches": "a batch of 4 samples of 1 MiB, by default_collate()",
}
_CASES = {"loader.samples": (4 << 20, None, 1.5), "loader.batches": (1 << 20, 4, 3.0)}
_STRATEGIES = ("file_descriptor", "file_system")


class _Samples:
    """A dataset whose samples are made, as a decoder makes them."""

    def __init__(self, count: int, nbytes: int):
        self._count, self._numbers = count, nbytes // 4

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, i: int) -> Any:
        import torch

        return torch.full((self._numbers,), float(i))


def _epoch(loader: Any) -> float:
    """Milliseconds of a batch."""
    start, total, batches = perf_counter(), 0.0, 0
    for batch in loader:
        total += float(batch.reshape(-1, batch.shape[-1])[:, -1].sum())
        batches += 1
    took = (perf_counter() - start) * 1e3 / batches
    count = len(loader.dataset)
    if total != count * (count - 1) / 2:
        raise RuntimeError("samples were lost, or are others")
    return took


def _measure(pool: Any, nbytes: int, batch: int | None, rounds: int, samples: int) -> dict[str, float]:
    import torch.multiprocessing
    from torch.utils.data import DataLoader

    import libshare.torch as ours

    loaders = {}
    before = torch.multiprocessing.get_sharing_strategy()
    for name in ("libshare", *_STRATEGIES):
        if name == "libshare":
            ours.install(pool)
        else:
            torch.multiprocessing.set_sharing_strategy(name)
        loaders[name] = DataLoader(_Samples(samples, nbytes), batch_size=batch, num_workers=2,
                                   persistent_workers=True, multiprocessing_context="fork")
        _epoch(loaders[name])  # starts the workers
        ours.uninstall()
    torch.multiprocessing.set_sharing_strategy(before)
    took: dict[str, list[float]] = {name: [] for name in loaders}
    for _ in range(rounds):
        for name, loader in loaders.items():
            took[name].append(_epoch(loader))
    return {name: statistics.median(times) for name, times in took.items()}


def run(report: Report) -> None:
    import torch

    torch.set_num_threads(1)
    rounds, samples = (2, 16) if report.quick else (11, 128)
    with libshare.connect("embedded") as client, client.pool("loader", kind="host", limit="1GiB") as pool:
        for row, (nbytes, batch, least) in _CASES.items():
            try:
                found = _measure(pool, nbytes, batch, rounds, samples)
            except RuntimeError as e:
                if "shared memory" not in str(e):
                    raise
                report.skip("/dev/shm is too small for torch's strategies", row)
                continue
            report.times(row, found["libshare"], "ms", min(found[name] for name in _STRATEGIES), least)
        if libshare.stats().get("torch", {}).get("received elsewhere"):
            raise RuntimeError("the pool was too small")
