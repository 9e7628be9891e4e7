# SPDX-License-Identifier: MIT
"""Tokens a second of a small decoder on shared weights, against the same on its own copy.

The decoder is a transformer with random weights, in float32 on a CPU and float16 on a GPU: 8 layers, 512
wide, 8 heads, 8,192 tokens, 30 million parameters. It decodes greedily, one sequence, with a cache of
keys and values, in one thread of the CPU. One worker has both models, one on weights that this process has published and one on
a copy of them in torch's own memory; they take turns, and have to say the same.
"""

from __future__ import annotations

import multiprocessing
import statistics
from time import perf_counter
from typing import Any

import libshare

from .figures import Report

_DEVICES = ("cpu", "cuda")
_LEAST = 0.99
_LAYERS, _WIDTH, _HEADS, _TOKENS, _LENGTH = 8, 512, 8, 8192, 32

ROWS = {f"decoder.{d}": f"tokens a second on shared weights, {d}; against: on the worker's own copy"
        for d in _DEVICES}


def _classes() -> Any:
    """torch is there only when this runs."""
    import torch
    from torch import nn
    from torch.nn import functional as f

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.LayerNorm(_WIDTH), nn.LayerNorm(_WIDTH)
            self.attend, self.merge = nn.Linear(_WIDTH, 3 * _WIDTH), nn.Linear(_WIDTH, _WIDTH)
            self.widen, self.narrow = nn.Linear(_WIDTH, 4 * _WIDTH), nn.Linear(4 * _WIDTH, _WIDTH)

        def forward(self, x: Any, cache: Any, at: int) -> Any:
            q, k, v = self.attend(self.first(x)).view(3, _HEADS, 1, _WIDTH // _HEADS)
            cache[0][:, at : at + 1], cache[1][:, at : at + 1] = k, v
            y = f.scaled_dot_product_attention(q, cache[0][:, : at + 1], cache[1][:, : at + 1])
            x = x + self.merge(y.reshape(1, _WIDTH))
            return x + self.narrow(f.gelu(self.widen(self.second(x))))

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.places = nn.Embedding(_TOKENS, _WIDTH), nn.Embedding(_LENGTH, _WIDTH)
            self.layers = nn.ModuleList(Layer() for _ in range(_LAYERS))
            self.last, self.head = nn.LayerNorm(_WIDTH), nn.Linear(_WIDTH, _TOKENS)

        @torch.inference_mode()
        def decode(self, first: int, n: int) -> list[int]:
            like = self.head.weight
            cache = [torch.zeros(2, _HEADS, n, _WIDTH // _HEADS, dtype=like.dtype, device=like.device)
                     for _ in range(_LAYERS)]
            places = torch.arange(n, device=like.device)
            token = torch.tensor([first], device=like.device)
            said = []
            for at in range(n):
                x = self.tokens(token) + self.places(places[at : at + 1])
                for layer, of in zip(self.layers, cache):
                    x = layer(x, of, at)
                token = self.head(self.last(x)).argmax(-1)
                said.append(token)
            return torch.cat(said).tolist()  # waits for a GPU

    return Decoder


def _worker(address: str, device: str, rounds: int, n: int, results: Any) -> None:
    import torch

    import libshare.torch

    torch.set_num_threads(1)  # several wait for each other, on a machine that does other things as well
    decoder = _classes()
    weights = libshare.torch.attach_weights(libshare.connect(address), "bench/decoder")
    with torch.device("meta"):
        shared, own = decoder(), decoder()
    weights.load_into(shared)
    own.load_state_dict({name: t.clone() for name, t in weights.items()}, assign=True)
    own.requires_grad_(False)
    models = [shared, own]
    for model in models:
        model.decode(1, n)
    found = []
    for i in range(rounds):
        took, said = {}, []
        for model in models if i % 2 else models[::-1]:
            start = perf_counter()
            said.append(model.decode(i, n))
            took[model is shared] = perf_counter() - start
        found.append((n / took[True], n / took[False], said[0] == said[1]))
    results.send(found)


def _measure(report: Report, device: str) -> None:
    import torch

    import libshare.torch

    rounds, n = (2, 4) if report.quick else (25, _LENGTH)
    if device == "cuda" and not torch.cuda.is_available():
        report.skip("torch finds no GPU", f"decoder.{device}")
        return
    torch.manual_seed(1)
    with libshare.connect("embedded") as client, torch.device(device):
        pool = client.pool("bench", kind="host" if device == "cpu" else "auto", limit="1GiB")
        if device == "cuda" and not pool.on_gpu:
            report.skip(f"there is no pool of GPU memory here: {pool.info()['reason']}", f"decoder.{device}")
            return
        model = _classes()()
        libshare.torch.publish_weights(pool, "bench/decoder", model.half() if device == "cuda" else model)
        context = multiprocessing.get_context("spawn")
        end, others = context.Pipe()
        worker = context.Process(target=_worker, args=(client.address, device, rounds, n, others), daemon=True)
        worker.start()
        others.close()
        found = end.recv()
        worker.join()
    if not all(same for *_, same in found):
        raise RuntimeError(f"on {device}, the shared weights say something else than their copy")
    ratio = statistics.median(shared / own for shared, own, _ in found)
    report.value(f"decoder.{device}", statistics.median(shared for shared, _, _ in found), "/s",
                 against=statistics.median(own for _, own, _ in found), compared=f"{ratio:.3f} x",
                 target=f">= {_LEAST:g} x", met=ratio >= _LEAST)


def run(report: Report) -> None:
    import torch  # noqa: F401: without it there is nothing to measure

    for device in _DEVICES:
        _measure(report, device)
