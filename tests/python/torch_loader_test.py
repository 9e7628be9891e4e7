# SPDX-License-Identifier: MIT
"""DataLoader over a pool of host memory: libshare.torch.install().

The second part is what torch's own test/test_dataloader.py asks of workers. Of it these do not apply: what
happens without workers, samplers, splits and default_convert() (no tensor is sent there),
test_default_collate_shared_tensor (a batch lies in the pool, which is_shared() does not know), pin_memory
(it takes a GPU), and numbers of processes that are given to CPUs.
"""

import collections
import contextlib
import gc
import os
import queue
import resource
import signal
import subprocess
import sys
import threading
import warnings

import pytest

import libshare
from torch_host import LIMIT, N, counts, in_pool, lt, needs_torch, pool, servers, torch  # noqa: F401

try:
    import numpy as np
    from torch.utils.data import ChainDataset, ConcatDataset, DataLoader, Dataset, IterableDataset, TensorDataset
except ImportError:
    Dataset = IterableDataset = object
pytestmark = needs_torch


class Samples(Dataset):
    def __init__(self, count=24, size=30_000):
        self.count, self.size = count, size

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        return {"x": torch.full((self.size,), float(i)), "n": np.full((50, 50), i), "y": i, "s": str(i),
                "small": torch.tensor([i])}


def check(loader, epochs):
    kept = []
    for _ in range(epochs):
        seen = 0
        for k, batch in enumerate(loader):
            rows = list(range(k * 4, k * 4 + 4))
            assert in_pool(batch["x"]) and in_pool(batch["n"]) and not batch["x"].is_shared()
            assert batch["x"].shape == (4, loader.dataset.size) and batch["x"][:, -1].tolist() == rows
            assert batch["n"].dtype == torch.int64 and batch["n"][:, 3, 4].tolist() == rows
            assert batch["y"].tolist() == rows and batch["s"] == [str(i) for i in rows]
            assert batch["small"].tolist() == [[i] for i in rows]
            batch["x"].add_(1)  # it is the receiver's
            seen += 4
            if k == 2:
                kept.append(batch)
        assert seen == len(loader.dataset)
    return kept


# A worker that is spawned imports torch, which takes a minute where many others run.
@pytest.mark.parametrize("start, persistent, workers, epochs", [
    ("fork", False, 2, 2), ("fork", True, 2, 2), ("forkserver", False, 2, 2), ("forkserver", True, 2, 2),
    ("spawn", False, 1, 1)])
def test_workers_make_their_batches_in_the_pool(pool, start, persistent, workers, epochs):
    loader = DataLoader(Samples(), batch_size=4, num_workers=workers, multiprocessing_context=start,
                        persistent_workers=persistent, timeout=LIMIT)
    kept = check(loader, epochs)
    del loader
    gc.collect()
    for batch in kept:  # outlives the workers
        assert batch["x"][:, 5].tolist() == [9, 10, 11, 12]
    assert counts()["received"] >= epochs * 6 * 2 and "received elsewhere" not in counts()


class Stream(IterableDataset):
    def __iter__(self):
        worker = torch.utils.data.get_worker_info()
        for i in range(worker.id, 12, worker.num_workers):
            yield torch.full((N,), i)


def test_samples_without_collation_take_one_copy(pool):
    got = list(DataLoader(Stream(), batch_size=None, num_workers=2, timeout=LIMIT))
    assert all(map(in_pool, got)) and sorted(int(t[-1]) for t in got) == list(range(12))
    got = list(DataLoader(Samples(), batch_size=4, num_workers=1, timeout=LIMIT, collate_fn=lambda b: [s["x"] for s in b]))
    assert all(in_pool(t) for batch in got for t in batch)


@pytest.mark.parametrize("batch", [None, 2])
def test_a_pool_that_is_full_is_done_without(client, pool, batch):
    with client.pool("full", kind="host", limit="1MiB") as full:
        lt.install(full)
        loader = DataLoader(Samples(16, 1 << 19), batch_size=batch, num_workers=2, timeout=LIMIT)  # 2 MiB each
        got = [sample["x"] for sample in loader]
        assert not any(map(in_pool, got))
        assert [int(t.flatten()[-1]) for t in got] == list(range(16))[(batch or 1) - 1 :: batch or 1]
    assert counts()["received elsewhere"] == len(got)


def test_what_is_sent_when_the_pool_is_closed_goes_as_without(client, pool):
    other = client.pool("other", kind="host", limit="1MiB")
    lt.install(other)
    other.close()
    assert [int(t[-1]) for t in DataLoader(Stream(), batch_size=None, num_workers=1, timeout=LIMIT)] == list(range(12))
    make, arguments = lt._reduce(torch.ones(N))
    assert make(*arguments).sum() == N and counts()["sent by value, as the pool could not take it"] == 1


class Narrow(Dataset):
    """From the sample of that number on, the worker can open no more than that many descriptors."""

    def __init__(self, at, spare):
        self.at, self.spare = at, spare

    def __len__(self):
        return 8

    def __getitem__(self, i):
        if i == self.at:
            taken, most = max(map(int, os.listdir("/proc/self/fd"))) + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (taken, most))
            with contextlib.suppress(OSError):
                while True:  # between those that are open, too
                    os.open(os.devnull, os.O_RDONLY)
            resource.setrlimit(resource.RLIMIT_NOFILE, (taken + self.spare, most))
        return torch.full((N,), i)


@pytest.mark.parametrize("at", [0, 4])
@pytest.mark.parametrize("spare, batch", [(0, None), (1, None), (2, None), (4, None), (1, 2)])
def test_a_worker_without_descriptors_loses_nothing(pool, at, spare, batch):
    got = list(DataLoader(Narrow(at, spare), batch_size=batch, num_workers=1, timeout=LIMIT))
    assert [int(t.flatten()[-1]) for t in got] == list(range(8))[(batch or 1) - 1 :: batch or 1]


def test_a_warning_that_is_an_error_loses_nothing(client, pool):
    with client.pool("full", kind="host", limit="64KiB") as full, warnings.catch_warnings():
        warnings.simplefilter("error")
        lt.install(full)
        got = list(DataLoader(Stream(), batch_size=None, num_workers=1, timeout=LIMIT))
    assert [int(t[-1]) for t in got] == list(range(12)) and counts()["received elsewhere"] == 12


class Graph(Dataset):
    def __len__(self):
        return 3

    def __getitem__(self, i):
        return torch.ones(N, requires_grad=True) * 2


def test_what_cannot_be_sent_is_an_error_where_the_loader_is_read(pool):
    with pytest.raises(RuntimeError, match=r"detach\(\)"):
        list(DataLoader(Graph(), batch_size=None, num_workers=1, timeout=LIMIT))


def test_a_fork_while_another_thread_connects_does_not_get_stuck(pool, client):
    with libshare._pickle._lock, lt._torch_host._lock:
        loader = iter(DataLoader(Stream(), batch_size=None, num_workers=1, timeout=LIMIT))
        libshare._pickle._lock.release()
        try:
            assert in_pool(next(loader))
        finally:
            libshare._pickle._lock.acquire()
    list(loader)


SMALL = """if True:
    import os, sys, warnings
    sys.path.insert(0, sys.argv[1])
    import torch, libshare, libshare.torch as lt
    from torch.utils.data import DataLoader, TensorDataset
    torch.set_num_threads(1)
    assert os.statvfs("/dev/shm").f_blocks * os.statvfs("/dev/shm").f_frsize == 1 << 20
    data = TensorDataset(torch.arange(8.0)[:, None].expand(8, 1 << 19))  # 2 MiB a sample
    def read(limit):
        with libshare.connect("embedded") as client, client.pool("p", kind="host", limit=limit) as pool:
            lt.install(pool)
            got = [int(x[1, -1]) for x, in DataLoader(data, batch_size=2, num_workers=1, timeout=120)]
            assert got == [1, 3, 5, 7], got
            libshare.client_of(client.address).close()
    read("64MiB")
    assert "received elsewhere" not in libshare.stats()["torch"]
    read("1MiB")
    assert libshare.stats()["torch"]["received elsewhere"] == 4
    lt.uninstall()
    try:
        read_plain = [x for x, in DataLoader(data, batch_size=2, num_workers=1, timeout=120)]
    except RuntimeError as e:
        print("torch alone:", "shared memory" in str(e))
"""


def test_a_small_dev_shm_is_enough(tmp_path):
    inside = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=1m tmpfs /dev/shm && exec "$@"', "sh"]
    if subprocess.run([*inside, "true"], stderr=subprocess.DEVNULL).returncode != 0:
        pytest.skip("a /dev/shm of its own takes root")
    done = subprocess.run([*inside, sys.executable, "-c", SMALL, os.path.dirname(libshare.__path__[0])],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "torch alone: True\n"
    assert done.stderr.count("the pool cannot take them: out of memory: pool 'p'") == 1  # in each worker once


# ------------------------------------------------------------------------------------------------
# test_dataloader.py


def loader(dataset, **options):
    return DataLoader(dataset, num_workers=options.pop("num_workers", 2), timeout=LIMIT, **options)


def data():
    torch.manual_seed(1)
    return TensorDataset(torch.randn(20, 2000), torch.arange(20))


def test_sequential_batches_samplers_and_prefetching(pool):
    for options in ({"batch_size": 1}, {"batch_size": 3}, {"batch_size": 3, "drop_last": True}, {"batch_size": 20},
                    {"batch_size": 2, "prefetch_factor": 1}, {"batch_sampler": [[3, 1], [2], [19, 0, 7]]}):
        of, index = data(), 0
        for x, y in loader(of, **options):
            assert torch.equal(x, of.tensors[0][y]) and in_pool(x)
            index += len(y)
        assert index == {"batch_sampler": 6, "drop_last": 18}.get(list(options)[-1], 20)
    seen = sorted(int(i) for _, y in loader(data(), batch_size=3, shuffle=True) for i in y)
    assert seen == list(range(20))


Point = collections.namedtuple("Point", ["x", "y"])


class Structured(Dataset):
    kinds = ("dict", "named tuple", "list", "tuple", "nested")

    def __init__(self, kind):
        self.kind = kind

    def __len__(self):
        return 4

    def __getitem__(self, i):
        x = torch.full((3000,), i)
        return {"dict": {"a": x, "b": {"c": x, "t": "text"}}, "named tuple": Point(x, i), "list": [x, [x]],
                "tuple": (x, 1.5), "nested": [{"p": Point(x, (x,))}]}[self.kind]


def tensors_in(thing):
    if isinstance(thing, torch.Tensor):
        yield thing
    elif isinstance(thing, dict):
        for each in thing.values():
            yield from tensors_in(each)
    elif isinstance(thing, (list, tuple)):
        for each in thing:
            yield from tensors_in(each)


@pytest.mark.parametrize("kind", Structured.kinds)
def test_samples_of_every_structure(pool, kind):
    for plain, ours in zip(DataLoader(Structured(kind), batch_size=2), loader(Structured(kind), batch_size=2)):
        assert type(plain) is type(ours)
        for a, b in zip(tensors_in(plain), tensors_in(ours), strict=True):
            assert torch.equal(a, b) and (in_pool(b) or b.nbytes < 4096)


class Numbers(IterableDataset):
    def __init__(self, start, end):
        self.start, self.end = start, end

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        for i in range(self.start + info.id, self.end, info.num_workers):
            yield torch.full((2000,), i)


def test_iterable_chained_and_joined_datasets(pool):
    for of in (Numbers(0, 20), ChainDataset([Numbers(0, 7), Numbers(7, 20)])):
        for batch in (1, 3, None):
            assert sorted(int(i) for t in loader(of, batch_size=batch) for i in t.reshape(-1, 2000)[:, 0]) == list(range(20))
    joined = ConcatDataset([data(), data()])
    assert sum(len(y) for _, y in loader(joined, batch_size=7)) == 40


class Worker(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        return torch.full((2000,), torch.initial_seed() % (1 << 40))


def seed(worker_id):
    torch.manual_seed(1000 + worker_id)


def test_seeds_and_initialisers_of_workers(pool):
    seeds = [int(t[0, 0]) for t in loader(Worker(), num_workers=4)]
    assert len(set(seeds)) == 4
    assert {int(t[0, 0]) for t in loader(Worker(), worker_init_fn=seed)} == {1000, 1001}


def test_several_loaders_at_once_and_persistent_ones(pool):
    one, two = loader(data(), batch_size=2), loader(data(), batch_size=2, persistent_workers=True)
    for _ in range(3):
        for (a, i), (b, j) in zip(one, two, strict=True):
            assert torch.equal(a, b) and torch.equal(i, j)


class Fails(Dataset):
    def __init__(self, how):
        self.how = how

    def __len__(self):
        return 8

    def __getitem__(self, i):
        if i == 5:
            if self.how == "raise":
                raise ValueError("the sixth")
            if self.how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.how == "exit":
                os._exit(3)
            signal.pause()
        return torch.full((2000,), i)


@pytest.mark.parametrize("how", ["raise", "kill", "exit"])
def test_a_worker_that_fails_is_an_error(pool, how):
    words = {"raise": "the sixth", "kill": "killed|exited", "exit": "exited"}[how]
    with pytest.raises(ValueError if how == "raise" else RuntimeError, match=words):
        list(loader(Fails(how), batch_size=2))


def test_a_worker_that_takes_too_long_is_an_error(pool):
    with pytest.raises(RuntimeError, match="timed out"):
        list(DataLoader(Fails("sleep"), batch_size=2, num_workers=1, timeout=1))


def test_a_loader_that_is_left_in_the_middle_gives_all_back(client, pool):
    held = next(iter(loader(data(), batch_size=2)))
    gc.collect()
    while len([b for b in client.inspect("buffers")]) > 1:
        os.sched_yield()
    assert held[0].shape == (2, 2000)


def test_batches_that_do_not_fit_together_are_refused_as_ever(pool):
    class Ragged(Dataset):
        def __len__(self):
            return 2

        def __getitem__(self, i):
            return torch.ones(2000 + i)

    with pytest.raises(RuntimeError, match="equal size"):
        list(loader(Ragged(), batch_size=2, num_workers=1))


def test_loaders_in_threads(pool):
    found = queue.Queue()
    threads = [threading.Thread(target=lambda: found.put(sum(len(y) for _, y in loader(data(), batch_size=3))))
               for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found.get(), found.get()] == [20, 20]
