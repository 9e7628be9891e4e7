#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""share_bindings: fills memory of the GPU for another process by cuda-bindings, or checks what came.

    share_bindings.py produce NAME    # one million int32, each one more than the one before
    share_bindings.py consume NAME    # waits for them

The other process may be any of share_*.py, a program in C, or any framework: see docs/python.md.
"""

import argparse
import contextlib
import sys

import numpy as np
from cuda.bindings import driver

import libshare

COUNT = 1 << 20


def good(result):
    """What a function of the driver returns beside its error code."""
    error, *values = result
    if error != driver.CUresult.CUDA_SUCCESS:
        sys.exit(f"share_bindings: {driver.cuGetErrorName(error)[1].decode()}")
    return values[0] if values else None


@contextlib.contextmanager
def stream_of_the_device():
    """A stream, in the primary context of the first device: the one that all in a process share."""
    good(driver.cuInit(0))
    device = good(driver.cuDeviceGet(0))
    good(driver.cuCtxSetCurrent(good(driver.cuDevicePrimaryCtxRetain(device))))
    stream = good(driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING))
    yield stream
    good(driver.cuStreamDestroy(stream))
    good(driver.cuDevicePrimaryCtxRelease(device))


def produce(client, name, first):
    pool = client.pool("examples", kind="auto")  # opens it, or makes it
    if not pool.on_gpu:
        sys.exit(f"share_bindings: no memory of a GPU: {pool.info()['reason']}")
    numbers = np.arange(first, first + COUNT, dtype=np.int32)
    with stream_of_the_device() as stream:
        array = pool.empty(COUNT, np.int32, stream=stream)
        good(driver.cuMemcpyHtoDAsync(array.ptr, numbers.ctypes.data, array.nbytes, stream))
        # The copy may still be under way. The stream of a process that looks it up waits for that.
        array.publish(name, persistent=True, stream=stream)  # stays until unpublished
        good(driver.cuStreamSynchronize(stream))  # else the data is void when we end
        array.release(stream=stream)


def consume(client, name, first):
    with stream_of_the_device() as stream:
        array = client.lookup(name, timeout=60, stream=stream)
        numbers = np.empty(array.shape, array.dtype)
        good(driver.cuMemcpyDtoHAsync(numbers.ctypes.data, array.ptr, array.nbytes, stream))
        good(driver.cuStreamSynchronize(stream))
        array.release(stream=stream)
    return np.array_equal(numbers, np.arange(first, first + COUNT, dtype=np.int32))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["produce", "consume"])
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("--first", type=int, default=1, help="the first number (default: 1)")
    options = parser.parse_args()
    try:
        with libshare.connect(label="cuda-bindings") as client:
            if options.what == "produce":
                produce(client, options.name, options.first)
            elif not consume(client, options.name, options.first):
                sys.exit(f"share_bindings: {options.name} has other numbers")
    except libshare.Error as e:
        sys.exit(f"share_bindings: {e}")
    print(f"share_bindings: ok {options.what} {options.name}")


if __name__ == "__main__":
    main()
