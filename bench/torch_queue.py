#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The floor of "share-bench channel-gpu": a CUDA tensor to another process and an answer back, with
torch.multiprocessing. share-bench starts this script and tells it what to do.

It first prints a line "ready WHAT" or "SKIPPED: WHY". For each line "BYTES N" that it reads, it
hands over N tensors of that size, one after the other, and prints N lines "HAND-OVER WHOLE". Both
are microseconds of the host: from before the tensor is queued until the answer has come;
and the same including making and filling the tensor. Between two tensors, both processes wait until
the GPU has finished everything.
"""

import sys
import time


def consume(tensors, answers, ready):
    """Runs in the other process, which holds a tensor until the next one has come."""
    import torch

    while True:
        tensor = tensors.get()
        if tensor is None:
            return
        answers.put(tensor.numel())
        torch.cuda.synchronize()
        ready.put(True)


def hand_over(torch, queues, size, fill):
    """Returns the time until the answer has come: since the tensor was put, and since it was made."""
    tensors, answers, ready = queues
    start = time.perf_counter()
    tensor = torch.full((size // 4,), fill, dtype=torch.int32, device="cuda")
    made = time.perf_counter()
    tensors.put(tensor)
    answer = answers.get()
    end = time.perf_counter()
    if answer != size // 4:
        raise SystemExit(f"torch_queue: {answer} elements of {size // 4} came")
    torch.cuda.synchronize()
    ready.get()
    return (end - made) * 1e6, (end - start) * 1e6


def serve(torch, queues):
    for line in sys.stdin:
        size, n = (int(word) for word in line.split())
        for i in range(n):
            print("%.3f %.3f" % hand_over(torch, queues, size, i))
        sys.stdout.flush()


def main():
    try:
        import torch
        import torch.multiprocessing as multiprocessing
    except ImportError as error:
        print(f"SKIPPED: {error}", flush=True)
        return
    if not torch.cuda.is_available():
        print("SKIPPED: torch finds no GPU", flush=True)
        return
    context = multiprocessing.get_context("spawn")
    queues = [context.SimpleQueue() for _ in range(3)]
    other = context.Process(target=consume, args=queues, daemon=True)
    other.start()
    hand_over(torch, queues, 4096, 0)
    print(f"ready torch {torch.__version__}", flush=True)
    serve(torch, queues)
    queues[0].put(None)
    other.join()


if __name__ == "__main__":
    main()
