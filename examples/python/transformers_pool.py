#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""transformers_pool: N workers of a model of transformers, and one copy of the weights between them.

    transformers_pool.py [--workers N] [--hidden SIZE] [--compare]

The parent makes a small Llama of random weights, converts it to bfloat16, and publishes it under a
name. Each worker makes the model without any memory of its own, attaches the shared weights to it, and
answers the requests of a service: tokens, and how they go on. Then the parent publishes a new version
while the workers serve; each changes to it between two requests. The parent compares each answer with
what its own model of that version says.

In the end each worker says how much memory it has taken since before it had a model. --compare starts as
many workers in three other ways, and asks them the same: with torch.load() of a file, with from_pretrained()
of a file of another dtype, which converts, and with from_pretrained() of a file as it is, which maps it.
Who maps a file shares it as well, through the page cache: that takes no more memory than this.
"""

import argparse
import multiprocessing
import os
import re
import sys
import tempfile
import threading

import torch
import transformers

import libshare
import libshare.torch
from libshare.torch import array_of, attach_weights, publish_weights, to_pool

NAME = "llama"  # of the pool, the weights and the service
STEPS = 8  # tokens that an answer has
TIMEOUT = 600.0  # seconds; only so that a stuck program ends


def config_of(hidden):
    return transformers.LlamaConfig(
        vocab_size=1024, hidden_size=hidden, intermediate_size=4 * hidden, num_hidden_layers=4,
        num_attention_heads=hidden // 64, num_key_value_heads=hidden // 64, max_position_embeddings=256,
        initializer_range=0.1)


def go_on(model, tokens):
    """What the model says after these tokens, the likeliest each time."""
    with torch.inference_mode():
        for _ in range(STEPS):
            tokens = torch.cat([tokens, model(tokens).logits[:, -1:].argmax(-1)], 1)
    return tokens


def memory():
    """Of this process, in MiB: what nobody else has; its part of what is shared; all that it sees."""
    with open("/proc/self/smaps_rollup", encoding="utf-8") as f:
        text = f.read()
    return [int(re.search(rf"^{key}:\s+(\d+)", text, re.MULTILINE)[1]) / 1024 for key in ("Anonymous", "Pss", "Rss")]


def warm_up():
    """What the libraries need at the first model is not the model's."""
    torch.set_num_threads(1)  # several workers run side by side instead
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    go_on(transformers.AutoModelForCausalLM.from_config(config_of(64)), torch.zeros(1, 3, dtype=torch.int64))
    return memory()


# ------------------------------------------------------------------------------------------------
# A worker


class Model:
    """The model, with the newest weights there are."""

    def __init__(self, client, config):
        self._client = client
        self._lock = threading.Lock()
        with torch.device("meta"):  # only shapes, no memory
            self._model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        self._take_newest()

    def _take_newest(self):
        weights = attach_weights(self._client, NAME, timeout=TIMEOUT)
        with self._lock:  # so that this happens between two requests
            weights.load_into(self._model)
            self._version = weights.version

    def follow(self, watch):
        for change in watch:
            if change.change != "unpublished":
                self._take_newest()

    def __call__(self, tokens):
        with self._lock:
            return go_on(self._model, tokens), self._version


def work(config):
    before = warm_up()
    with (
        libshare.connect(label="worker") as client,
        client.pool(NAME) as pool,
        client.watch(NAME) as watch,  # before the weights are looked up, to miss no version
        pool.worker(NAME, readonly_ok=True) as worker,  # nothing stores to requests
    ):
        model = Model(client, config)
        threading.Thread(target=model.follow, args=(watch,)).start()  # ends with the watch
        for request in worker:  # ends when the last caller has left
            tokens, version = model(torch.from_dlpack(request.array))
            taken = [now - then for now, then in zip(memory(), before)]
            request.reply(array_of(to_pool(pool, tokens)), meta={"pid": os.getpid(), "version": version, "memory": taken})


# ------------------------------------------------------------------------------------------------
# The parent


class Parent:
    def __init__(self, pool, config):
        self.pool, self.config = pool, config
        self.caller = pool.caller(NAME, readonly_ok=True)
        self.models = {}  # by the version of their weights
        self.requests = 0

    def publish(self, model):
        version = publish_weights(self.pool, NAME, model)
        self.models[version] = model
        return version

    def ask(self, n):
        """Makes n calls at a time, and compares the answers. Returns what came with each."""
        asked = [torch.randint(3, self.config.vocab_size, (1, 4)) for _ in range(n)]
        calls = [self.caller.start(array_of(to_pool(self.pool, tokens))) for tokens in asked]
        self.requests += n
        found = []
        for call, tokens in zip(calls, asked):
            with call.finish(timeout=TIMEOUT) as answer:
                if not torch.equal(torch.from_dlpack(answer.array), go_on(self.models[answer.meta["version"]], tokens)):
                    sys.exit("transformers_pool: a worker says something else than its weights")
                found.append(answer.meta)
        return found

    def ask_until_all_have(self, version, workers):
        """The memory of each worker that has this version, when all have it."""
        found = {}
        while len(found) < workers:
            found |= {meta["pid"]: meta["memory"] for meta in self.ask(2 * workers) if meta["version"] == version}
        return list(found.values())


def show(how, rows):
    print(f"{how:<34}" + "".join(f"{max(row[i] for row in rows):>14.0f}" for i in range(3)), flush=True)


# ------------------------------------------------------------------------------------------------
# Other ways


def load(how, folder, config, ready, everybody, out):
    before = warm_up()
    if how == "torch.load()":
        with torch.device("meta"):
            model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        model.load_state_dict(torch.load(f"{folder}/weights.pt"), assign=True)
    else:
        model = transformers.AutoModelForCausalLM.from_pretrained(
            f"{folder}/{'float32' if 'converts' in how else 'bfloat16'}", dtype=torch.bfloat16)
    with torch.inference_mode():  # reads all of them
        sum(float(p.float().sum()) for p in model.parameters())
    ready.put(None)
    everybody.wait(TIMEOUT)
    out.put([now - then for now, then in zip(memory(), before)])
    ready.join()  # nobody's part of what is shared grows while others look


def compare(context, workers, config, model, folder):
    model.save_pretrained(f"{folder}/bfloat16")
    model.to(torch.float32).save_pretrained(f"{folder}/float32")
    torch.save(model.to(torch.bfloat16).state_dict(), f"{folder}/weights.pt")
    for how in ("torch.load()", "from_pretrained(), converts", "from_pretrained(), maps the file"):
        ready, everybody, out = context.JoinableQueue(), context.Event(), context.Queue()
        processes = [context.Process(target=load, args=(how, folder, config, ready, everybody, out), daemon=True)
                     for _ in range(workers)]
        for process in processes:
            process.start()
        for _ in processes:
            ready.get(timeout=TIMEOUT)
        everybody.set()
        show(how, [out.get(timeout=TIMEOUT) for _ in processes])
        for _ in processes:
            ready.task_done()
        for process in processes:
            process.join()
            if process.exitcode != 0:
                sys.exit(f"transformers_pool: a worker ended with {process.exitcode}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=3, metavar="N", help="1 to 16 (default: 3)")
    parser.add_argument("--hidden", type=int, default=512, metavar="SIZE", help="a multiple of 64 (default: 512)")
    parser.add_argument("--compare", action="store_true", help="with other ways to have the weights")
    options = parser.parse_args()
    if not 1 <= options.workers <= 16 or options.hidden % 64 or options.hidden <= 0:
        parser.error("there can be 1 to 16 workers, and sizes that are multiples of 64")
    config, context = config_of(options.hidden), multiprocessing.get_context("spawn")

    # Starts a broker for this program alone, unless $SHARE_SOCKET leads to one.
    with libshare.connect(os.environ.get("SHARE_SOCKET") or "embedded") as client:
        os.environ["SHARE_SOCKET"] = client.address
        with client.pool(NAME, kind="host", limit="8GiB") as pool:
            workers = [context.Process(target=work, args=(config,), daemon=True) for _ in range(options.workers)]
            for worker in workers:
                worker.start()
            warm_up()
            parent = Parent(pool, config)
            models = [transformers.AutoModelForCausalLM.from_config(config).to(torch.bfloat16).eval() for _ in range(2)]
            for model in models:
                rows = parent.ask_until_all_have(parent.publish(model), options.workers)
            size = sum(p.nbytes for p in models[0].parameters()) / (1 << 20)
            print(f"{'MiB in each worker, the most':<34}{'of its own':>14}{'its part':>14}{'in sight':>14}")
            show("libshare", rows)
            parent.caller.close()  # this ends the workers
            for worker in workers:
                worker.join()
                if worker.exitcode != 0:
                    sys.exit(f"transformers_pool: a worker ended with {worker.exitcode}")
    if options.compare:
        with tempfile.TemporaryDirectory() as folder:
            compare(context, options.workers, config, models[1], folder)
    print(f"transformers_pool: ok workers={options.workers} mib={size:.0f} versions={len(parent.models)} "
          f"requests={parent.requests}")


if __name__ == "__main__":
    main()
