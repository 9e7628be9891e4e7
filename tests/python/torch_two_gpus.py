#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Array.to() between two GPUs with torch, whose current streams of both order it.

    torch_two_gpus.py [--kinds vmm,mempool] [--rounds N] [--mib N]

In each round a kernel that takes long writes an Array on a stream of one GPU, to() copies it on a stream of the
other, and the Array is overwritten and released at once. Prints how many words are wrong, how many calls had come back
before the kernel was done (none where one GPU cannot reach the other), and what a copy takes. Exit code 0: all
were right; 1: not; 77: there is no torch, or there are no two GPUs.
"""

import argparse
import sys
import time

SPIN = 20_000_000  # cycles: some 10 ms


def rounds_of(pools, streams, options):
    """Wrong words, and calls that did not wait."""
    import torch

    wrong, early = 0, 0
    for i in range(options.rounds):
        at = i % 2  # there, and back
        with torch.cuda.stream(streams[at]):
            a = pools[at].empty(options.mib << 18, "int32")
            t = torch.from_dlpack(a)
            torch.cuda._sleep(SPIN)
            t.fill_(i)
        b = a.to(f"cuda:{1 - at}")
        early += not streams[at].query()
        with torch.cuda.stream(streams[at]):
            t.fill_(-1)
        del t
        a.release()
        with torch.cuda.stream(streams[1 - at]):
            wrong += int((torch.from_dlpack(b) != i).sum())
    return wrong, early


def seconds_of(pools, options):
    import torch

    a = pools[0].zeros(options.mib << 20, "uint8")
    best = float("inf")
    for _ in range(10):
        start = time.perf_counter()
        b = a.to(pools[1])
        torch.cuda.synchronize(1)
        best = min(best, time.perf_counter() - start)
        b.release()
    return best


def check(client, kind, options):
    import torch

    rows = [row["device"] for row in client.inspect("devices")][:2]
    pools = [client.pool(f"{kind}{i}", kind=kind, device=row, limit="2GiB") for i, row in enumerate(rows)]
    pools.sort(key=lambda pool: pool.empty(1, stream=None).device)
    streams = [torch.cuda.Stream(device) for device in range(2)]
    for stream in streams[::-1]:
        torch.cuda.set_stream(stream)
    reach = torch.cuda.can_device_access_peer(0, 1)
    wrong, early = rounds_of(pools, streams, options)
    seconds = seconds_of(pools, options)
    print(f"{kind}: {wrong} words wrong in {options.rounds} rounds, {early} calls did not wait (peer access: {reach}), "
          f"{options.mib / 1024 / seconds:.1f} GiB/s of {options.mib} MiB")
    host = client.pool("host", kind="host", limit="2GiB")
    a = pools[1].array(bytes(range(256)))
    there = a.to(host).to("cuda:0")
    good = there.device == "cuda:0" and there.tobytes() == bytes(range(256))
    for pool in (*pools, host):
        pool.close()
    return wrong == 0 and good


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kinds", default="vmm,mempool")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--mib", type=int, default=64)
    options = parser.parse_args()
    try:
        import torch
    except ImportError:
        print("SKIPPED: there is no torch here")
        return 77
    if torch.cuda.device_count() < 2:
        print("SKIPPED: there are no two GPUs here")
        return 77

    import libshare

    with libshare.connect("embedded") as client:
        good = [check(client, kind, options) for kind in options.kinds.split(",")]
    print("ok" if all(good) else "FAILED")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
