#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""share_pycuda: fills memory of the GPU for another process by PyCUDA, or checks what came.

    share_pycuda.py produce NAME      # one million int32, each one more than the one before
    share_pycuda.py consume NAME      # waits for them

The other process may be any of share_*.py, a program in C, or any framework: see docs/python.md.
"""

import argparse
import sys

import numpy as np
import pycuda.autoprimaryctx  # noqa: F401 - makes the primary context current
import pycuda.driver as cuda
from pycuda.compiler import SourceModule

import libshare
import libshare.pycuda

COUNT = 1 << 20

KERNELS = r"""
__global__ void fill(int *x, int n, int first)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		x[i] = first + i;
}

__global__ void check(const int *x, int n, int first, int *wrong)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n && x[i] != first + i)
		atomicAdd(wrong, 1);
}
"""
LAUNCH = {"grid": (COUNT // 256, 1), "block": (256, 1, 1)}


def produce(client, name, first):
    pool = client.pool("examples", kind="auto")  # opens it, or makes it
    if not pool.on_gpu:
        sys.exit(f"share_pycuda: no memory of a GPU: {pool.info()['reason']}")
    fill = SourceModule(KERNELS).get_function("fill")
    stream = cuda.Stream()  # PyCUDA has no current stream, so each call names it
    x = libshare.pycuda.empty(pool, COUNT, np.int32, stream=stream)  # a GPUArray in the pool
    fill(x, np.int32(COUNT), np.int32(first), stream=stream, **LAUNCH)
    # The kernel may still run. The stream of a process that looks the array up waits for it.
    libshare.array_of(x).publish(name, persistent=True, stream=stream)  # until it is unpublished
    stream.synchronize()  # else the data would be void when this process ends


def consume(client, name, first):
    check = SourceModule(KERNELS).get_function("check")
    stream = cuda.Stream()
    # The array is read-only, which PyCUDA does not know: readonly_ok promises that we only read.
    array = client.lookup(name, timeout=60, stream=stream, readonly_ok=True)
    if array.shape != (COUNT,) or array.dtype != "int32":
        return False
    x = libshare.pycuda.gpuarray_of(array)  # not a copy: the same memory
    wrong = cuda.mem_alloc(4)
    cuda.memset_d32_async(wrong, 0, 1, stream)
    check(x, np.int32(COUNT), np.int32(first), wrong, stream=stream, **LAUNCH)
    count = np.empty(1, np.int32)
    stream.synchronize()
    cuda.memcpy_dtoh(count, wrong)
    return count[0] == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["produce", "consume"])
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("--first", type=int, default=1, help="the first number (default: 1)")
    options = parser.parse_args()
    try:
        with libshare.connect(label="PyCUDA") as client:
            if options.what == "produce":
                produce(client, options.name, options.first)
            elif not consume(client, options.name, options.first):
                sys.exit(f"share_pycuda: {options.name} has other numbers")
    except libshare.Error as e:
        sys.exit(f"share_pycuda: {e}")
    print(f"share_pycuda: ok {options.what} {options.name}")


if __name__ == "__main__":
    main()
