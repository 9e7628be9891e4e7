#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""numba's and RMM's own allocations in a pool, on a GPU, with kernels that are still running.

    allocators.py [--kinds vmm,mempool] [--only REGEX]

Each case runs in a process of its own, with a time limit, and prints a line of JSON: name, kind,
result (ok, failed, skipped), seconds, and what was wrong. Exit code 0: all were right, or could not
be had here; 1: not; 77: there is no GPU.
"""

import argparse
import gc
import json
import os
import re
import subprocess
import sys
import time
import traceback
import warnings

WORDS = 1 << 20
SPIN = 20_000_000  # cycles: some 10 ms
LIMIT = 120  # seconds for a case


class Missing(Exception):
    pass


def numba_kernels():
    import numpy

    if not hasattr(numpy, "row_stack"):  # numba-cuda 0.30 asks for it, NumPy 2.5 has it no more
        numpy.row_stack = numpy.vstack
    try:
        from numba import cuda
    except ImportError as e:
        raise Missing(str(e)) from e
    warnings.simplefilter("ignore")

    @cuda.jit
    def fill(p, n, base, spin):
        x = 0
        for i in range(spin):
            x = (x * 1103515245 + 12345) & 0x7FFFFFFF
        i = cuda.grid(1)
        while i < n:
            p[i] = base + i if x >= 0 else -1
            i += cuda.gridsize(1)

    return cuda, lambda p, base, spin, stream=0: fill[256, 256, stream](p, WORDS, base, spin)


def cupy_kernel():
    try:
        import cupy
    except ImportError as e:
        raise Missing(str(e)) from e
    spin = cupy.RawKernel(r"""
        extern "C" __global__ void fill(int *p, int n, int base, long long spin)
        {
            long long start = clock64();
            while (clock64() - start < spin)
                ;
            for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
                p[i] = base + i;
        }""", "fill")
    return cupy, lambda x, base, wait: spin((256,), (256,), (x, cupy.int32(WORDS), cupy.int32(base),
                                                            cupy.int64(wait)))


def rmm_resource(pool):
    try:
        import rmm

        import libshare.rmm
    except ImportError as e:
        raise Missing(str(e)) from e
    resource = libshare.rmm.resource(pool)
    rmm.mr.set_current_device_resource(resource)
    return rmm, resource


def expected(base):
    import numpy

    return numpy.arange(base, base + WORDS, dtype=numpy.int32).tobytes()


def elsewhere(client, function, *arguments):
    """Another process looks, by the library alone."""
    call = f"import allocators as a; a.{function.__name__}(*{(client.address, *arguments)!r})"
    subprocess.run([sys.executable, "-c", call], cwd=os.path.dirname(os.path.abspath(__file__)),
                   check=True, timeout=LIMIT)


def reads(address, name, base):
    import libshare

    assert libshare.connect(address).lookup(name).tobytes() == expected(base), "wrong words"


def overwrite(pool, times=20):
    """What a use of published memory would spoil."""
    others = [pool.alloc(4 * WORDS, stream=1) for _ in range(times)]
    for other in others:
        other.copy_from(b"\xff" * (4 * WORDS))


# ------------------------------------------------------------------------------------------------


def numba_publishes(client, pool):
    """A kernel still fills what is published, dropped, and read elsewhere; nothing overwrites it."""
    import libshare.numba

    cuda, fill = numba_kernels()
    libshare.numba.use(pool)
    stream = cuda.stream()
    for base in (3, 1 << 20):
        x = cuda.device_array(WORDS, "int32", stream=stream)
        fill(x, base, 1_000_000, stream)
        libshare.array_of(x).publish("x", stream=stream)
        del x
        gc.collect()
        overwrite(pool)
        elsewhere(client, reads, "x", base)


def numba_is_given_back_behind_kernels(client, pool):
    """A kernel still writes to what is dropped: the next one that has the memory comes after it."""
    import libshare.numba

    from cuda import core  # for a stream that does not wait for the default stream

    cuda, fill = numba_kernels()
    libshare.numba.use(pool)

    device = core.Device(0)
    device.set_current()
    theirs, ours = cuda.stream(), device.create_stream()
    fill(cuda.device_array(WORDS, "int32"), 0, 1, theirs)
    again = 0
    for _ in range(20):
        x = cuda.device_array(WORDS, "int32", stream=theirs)
        at = libshare.array_of(x).ptr
        fill(x, 7, 1_000_000, theirs)
        del x
        gc.collect()
        a = pool.alloc(4 * WORDS, stream=ours)
        again += a.ptr == at
        a.copy_from(b"\xaa" * (4 * WORDS), stream=ours)
        cuda.synchronize()
        assert a.tobytes(stream=ours) == b"\xaa" * (4 * WORDS), "written to after it was somebody else's"
        a.release(stream=ours)
    assert again, "the memory was never used again, so nothing was shown"


def numba_receives(address, base, pickled):
    import pickle

    import numpy

    cuda, _ = numba_kernels()
    with pickle.loads(pickled) as x:
        assert x.copy_to_host().tobytes() == expected(base)[4 * 10:], "wrong words"
        x.copy_to_device(numpy.zeros(WORDS - 10, numpy.int32))
        cuda.synchronize()


def numba_sends_handles(client, pool):
    """get_ipc_handle() of a view, over vmm and mempool, which have no handles of CUDA's own."""
    import pickle

    import libshare.numba

    cuda, fill = numba_kernels()
    libshare.numba.use(pool)
    x = cuda.device_array(WORDS, "int32")
    fill(x, 5, 1_000_000)
    elsewhere(client, numba_receives, 5, pickle.dumps(x[10:].get_ipc_handle()))
    assert x.copy_to_host().tolist() == [5 + i if i < 10 else 0 for i in range(WORDS)]
    assert cuda.pinned_array(10, "int32").size == cuda.managed_array(10, "int32").size == 10


def numba_has_it_from_the_environment(client, pool):
    os.environ.update(NUMBA_CUDA_MEMORY_MANAGER="libshare.numba", SHARE_NUMBA_POOL=pool.name,
                      SHARE_SOCKET=client.address)
    cuda, fill = numba_kernels()
    import libshare

    x = cuda.device_array(WORDS, "int32")
    fill(x, 9, 1)
    libshare.array_of(x).publish("x", stream=None)
    elsewhere(client, reads, "x", 9)


def rmm_buffers(client, pool):
    import libshare

    rmm, _ = rmm_resource(pool)
    b = rmm.DeviceBuffer.to_device(expected(11))
    libshare.array_of(b).view("int32").publish("x", stream=None)
    assert b.tobytes() == expected(11)
    del b
    gc.collect()
    overwrite(pool)
    elsewhere(client, reads, "x", 11)
    try:
        rmm.DeviceBuffer(size=1 << 40)
    except MemoryError:
        pass
    else:
        raise AssertionError("a terabyte was there")


def rmm_is_given_back_behind_kernels(client, pool):
    """CuPy over RMM over the pool, on streams that do not wait for the default stream."""
    import libshare

    cupy, fill = cupy_kernel()
    rmm_resource(pool)
    from rmm.allocators.cupy import rmm_cupy_allocator

    theirs, ours = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.set_allocator(rmm_cupy_allocator)
    again = 0
    for i in range(20):
        with theirs:
            x = cupy.empty(WORDS, cupy.int32)
            at = x.data.ptr
            fill(x, i, SPIN)
            if i % 5 == 0:
                libshare.array_of(x).publish("x", stream=theirs)
            del x
        with ours:
            y = cupy.empty(WORDS, cupy.int32)
            again += y.data.ptr == at
            y.fill(-2)
            theirs.synchronize()
            assert bool((y == -2).all()), "written to after it was somebody else's"
            del y
        if i % 5 == 0:
            elsewhere(client, reads, "x", i)
    assert again, "the memory was never used again, so nothing was shown"


CASES = [numba_publishes, numba_is_given_back_behind_kernels, numba_sends_handles,
         numba_has_it_from_the_environment, rmm_buffers, rmm_is_given_back_behind_kernels]


def work(name, kind, address):
    import libshare

    try:
        client = libshare.connect(address, label=name)
        globals()[name](client, client.pool(kind))
        answer = {"result": "ok"}
    except Missing as e:
        answer = {"result": "skipped", "why": str(e)}
    except Exception:
        answer = {"result": "failed", "why": traceback.format_exc()}
    print(json.dumps(answer), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kinds", default="vmm,mempool")
    parser.add_argument("--only", default="")
    parser.add_argument("--work", nargs=3)
    options = parser.parse_args()
    if options.work:
        return work(*options.work)

    import libshare

    owner = libshare.connect("embedded")
    if not any(d.get("device") for d in owner.inspect("devices")):
        print("SKIPPED: there is no GPU here")
        return 77
    failed = False
    for kind in options.kinds.split(","):
        with owner.pool(kind, kind=kind, limit="1GiB"):
            for case in CASES:
                if not re.search(options.only, case.__name__):
                    continue
                start = time.monotonic()
                process = subprocess.Popen(
                    [sys.executable, os.path.abspath(__file__), "--work", case.__name__, kind, owner.address],
                    stdout=subprocess.PIPE, text=True)
                try:
                    out, _ = process.communicate(timeout=2 * LIMIT)
                    answer = json.loads(out.splitlines()[-1])
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.communicate()
                    answer = {"result": "failed", "why": "it did not end"}
                except (IndexError, ValueError):
                    answer = {"result": "failed", "why": f"it ended with {process.returncode}"}
                failed |= answer["result"] == "failed"
                print(json.dumps({"name": case.__name__, "kind": kind,
                                  "seconds": round(time.monotonic() - start, 1), **answer}), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
