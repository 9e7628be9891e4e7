#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""share_cupy: fills memory of the GPU for another process by CuPy, or checks what came.

    share_cupy.py produce NAME        # one million int32, each one more than the one before
    share_cupy.py consume NAME        # waits for them

The other process may be any of share_*.py, a program in C, or any framework: see docs/python.md.
"""

import argparse
import sys

import cupy

import libshare

COUNT = 1 << 20


def produce(client, name, first):
    pool = client.pool("examples", kind="auto")  # opens it, or makes it
    if not pool.on_gpu:
        sys.exit(f"share_cupy: no memory of a GPU: {pool.info()['reason']}")
    with cupy.cuda.Stream(non_blocking=True) as stream:  # CuPy's current one, so libshare's too
        array = pool.empty(COUNT, cupy.int32)
        x = cupy.from_dlpack(array)  # not a copy: the memory of the pool
        x[:] = cupy.arange(first, first + COUNT, dtype=cupy.int32)
        # The kernel may still run. The stream of a process that looks the array up waits for it.
        array.publish(name, persistent=True)  # stays after this process, until it is unpublished
        stream.synchronize()  # else the data would be void when this process ends


def consume(client, name, first):
    with cupy.cuda.Stream(non_blocking=True):
        # The array is read-only, which CuPy does not know: readonly_ok promises that we only read.
        array = client.lookup(name, timeout=60, readonly_ok=True)
        x = cupy.from_dlpack(array)
        expected = cupy.arange(first, first + COUNT, dtype=cupy.int32)
        return x.shape == expected.shape and bool((x == expected).all())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["produce", "consume"])
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("--first", type=int, default=1, help="the first number (default: 1)")
    options = parser.parse_args()
    try:
        with libshare.connect(label="CuPy") as client:
            if options.what == "produce":
                produce(client, options.name, options.first)
            elif not consume(client, options.name, options.first):
                sys.exit(f"share_cupy: {options.name} has other numbers")
    except libshare.Error as e:
        sys.exit(f"share_cupy: {e}")
    print(f"share_cupy: ok {options.what} {options.name}")


if __name__ == "__main__":
    main()
