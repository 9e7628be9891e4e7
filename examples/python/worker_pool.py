#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""worker_pool: N inference workers in PyTorch, and one copy of the weights between them.

    worker_pool.py [--workers N] [--kind KIND]

The parent publishes the weights of a perceptron under a name. Each worker makes the network without
any memory of its own, attaches the shared weights to it without a copy, and answers the requests of
a service. Requests and answers are tensors in the pool: on a GPU nothing goes through the host.

Then the parent publishes a new version while the workers run. Each worker learns of it by a watch
and changes to it between two requests; the old version is freed when the last worker has changed.
At the end a worker is killed while it has requests. The others answer these too: none is lost.

Each answer says which version it was made from, and the parent compares it with what it computes
itself.
"""

import argparse
import multiprocessing
import os
import sys
import threading

import torch

import libshare
import libshare.torch
from libshare.torch import array_of, attach_weights, publish_weights, to_pool

NAME = "perceptron"  # of the pool, the weights and the service
WIDTH, WIDEST = 1024, 2048
TIMEOUT = 60.0  # seconds; only so that a stuck program ends


def network():
    return torch.nn.Sequential(
        torch.nn.Linear(WIDTH, WIDEST), torch.nn.ReLU(),
        torch.nn.Linear(WIDEST, WIDEST), torch.nn.ReLU(),
        torch.nn.Linear(WIDEST, WIDTH),
    )


# ------------------------------------------------------------------------------------------------
# A worker


class Model:
    """The network, with the newest weights there are."""

    def __init__(self, client):
        self._client = client
        self._lock = threading.Lock()
        with torch.device("meta"):  # only shapes, no memory
            self._network = network()
        self._take_newest()

    def _take_newest(self):
        weights = attach_weights(self._client, NAME, timeout=TIMEOUT)
        with self._lock:  # so that this happens between two requests
            weights.load_into(self._network)
            self._weights = weights

    def follow(self, watch):
        for change in watch:
            if change.change != "unpublished":
                self._take_newest()

    def __call__(self, x):
        """Returns what the network answers, and which weights were in it."""
        with self._lock, torch.inference_mode():
            first = next(iter(self._weights.arrays.values()))
            return self._network(x), {"version": self._weights.version, "buffer": first.id}


def work():
    torch.set_num_threads(1)  # several workers run side by side instead
    with (
        libshare.connect(label="worker") as client,
        client.pool(NAME) as pool,
        client.watch(NAME) as watch,  # before the weights are looked up, to miss no version
        # Requests are read-only memory. torch does not know that, so we promise to write to none.
        pool.worker(NAME, readonly_ok=True) as worker,
    ):
        model = Model(client)
        threading.Thread(target=model.follow, args=(watch,)).start()  # ends with the watch
        for request in worker:  # ends when the last caller has left
            y, meta = model(torch.from_dlpack(request.array))
            meta |= {"pid": os.getpid(), "again": request.deliveries > 1}
            request.reply(array_of(to_pool(pool, y)), meta=meta)


# ------------------------------------------------------------------------------------------------
# The parent


class Parent:
    def __init__(self, client, pool, workers):
        self.pool = pool
        self.device = "cuda" if pool.on_gpu else "cpu"
        self.caller = pool.caller(NAME, readonly_ok=True)
        self.workers = workers
        self.models = {}  # by the version of their weights
        self.buffers = {}  # by the same versions: the buffer in which the workers found the weights
        self.requests = 0
        self.again = 0  # requests that another worker answered after the first one died

    def publish(self):
        model = network().to(self.device)
        version = publish_weights(self.pool, NAME, model)
        self.models[version] = model
        return version

    def ask(self, n, meanwhile=lambda: None):
        """Makes n calls at a time, and checks the answers. Returns the meta of each answer."""
        inputs = [torch.randn(1, WIDTH, device=self.device) for _ in range(n)]
        requests = [array_of(to_pool(self.pool, x)) for x in inputs]
        calls = [self.caller.start(request) for request in requests]
        meanwhile()
        self.requests += n
        return [self.finish(*each) for each in zip(calls, inputs, requests)]

    def finish(self, call, x, request):
        while True:
            try:
                with call.finish(timeout=TIMEOUT) as answer:
                    y, meta = torch.from_dlpack(answer.array).to("cpu", copy=True), answer.meta
                    answer.array.status()  # y is there now; was it complete when its worker died?
                break
            except libshare.OwnerDiedError:  # it had answered, but its GPU had not finished
                call = self.caller.start(request)
        with torch.inference_mode():
            torch.testing.assert_close(y, self.models[meta["version"]](x).cpu(), rtol=1e-3, atol=1e-4)
        if self.buffers.setdefault(meta["version"], meta["buffer"]) != meta["buffer"]:
            sys.exit("worker_pool: there are two copies of the weights")
        self.again += meta["again"]
        return meta

    def ask_until_all_have(self, version):
        pids = set()
        while len(pids) < len(self.workers):
            answers = self.ask(2 * len(self.workers))
            pids |= {meta["pid"] for meta in answers if meta["version"] == version}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=4, metavar="N", help="2 to 16 (default: 4)")
    parser.add_argument("--kind", default="auto" if torch.cuda.is_available() else "host",
                        help="of memory: host, vmm, mempool, auto")
    options = parser.parse_args()
    if not 2 <= options.workers <= 16:
        parser.error("there can be 2 to 16 workers")

    # Starts a broker for this program alone, unless $SHARE_SOCKET leads to one.
    with libshare.connect(os.environ.get("SHARE_SOCKET") or "embedded") as client:
        os.environ["SHARE_SOCKET"] = client.address
        with client.pool(NAME, kind=options.kind, limit="512MiB") as pool:
            context = multiprocessing.get_context("spawn")
            workers = [context.Process(target=work, daemon=True) for _ in range(options.workers)]
            for worker in workers:
                worker.start()

            parent = Parent(client, pool, workers)
            parent.ask_until_all_have(parent.publish())
            parent.ask_until_all_have(parent.publish())
            victim = workers.pop()
            parent.ask(4 * options.workers, meanwhile=victim.kill)
            parent.caller.close()  # this ends the workers
            for worker in workers:
                worker.join()
                if worker.exitcode != 0:
                    sys.exit(f"worker_pool: a worker ended with {worker.exitcode}")
            kind = pool.kind
    print(f"worker_pool: ok kind={kind} workers={options.workers} killed=1 "
          f"versions={len(parent.models)} copies_of_each=1 requests={parent.requests} again={parent.again}")


if __name__ == "__main__":
    main()
