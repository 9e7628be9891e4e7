#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The floor of "share-bench channel-gpu": a CUDA tensor to another process and an answer back, the
way of torch.multiprocessing. share-bench starts it and asks.

It says "ready WHAT", or "SKIPPED: WHY", on a line. For each line "BYTES N" that it is told, it hands
over N tensors of that size, one after the other, and says N lines "HAND-OVER WHOLE", microseconds of
the host: from before the tensor is put into the queue until the answer is there; and the same with
making and filling the tensor. Between two, both processes wait until the GPU is done with all.
"""

import sys
import time


def consume(tensors, answers, ready):
    """The other process: holds a tensor until the next one has come."""
    import torch

    while True:
        tensor = tensors.get()
        if tensor is None:
            return
        answers.put(tensor.numel())
        torch.cuda.synchronize()
        ready.put(True)


def hand_over(torch, queues, size, fill):
    """The time from before the tensor is put until the answer is there, and from its making."""
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
