#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""One framework in a process of its own, for frameworks.py: it produces and consumes when it is told to,
on a stream of its own that does not wait for the default stream.

The producer's kernel first spins for some milliseconds and then fills the buffer; it publishes while
that still runs. The consumer looks it up, counts the wrong words by a kernel of its framework, and
says how many there were. So a wait that is missing is a wrong word.

usage: framework_worker.py FRAMEWORK ADDRESS; a line of JSON for each order on stdin, and one for each
answer on stdout.
"""

import json
import os
import sys
import traceback

WORDS = 1 << 20
SPIN = 40_000_000  # cycles: some 20 ms

KERNELS = r"""
extern "C" __global__ void fill(int *p, int n, int base, long long spin)
{
	long long start = clock64();
	while (clock64() - start < spin)
		;
	for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
		p[i] = base + i;
}
extern "C" __global__ void check(const int *p, int n, int base, int *wrong)
{
	for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
		if (p[i] != base + i)
			atomicAdd(wrong, 1);
}
"""


class Torch:
    def __init__(self):
        import torch

        self.torch = torch
        torch.zeros(1, device="cuda")
        self.stream = torch.cuda.Stream()
        self.expected = torch.arange(WORDS, dtype=torch.int32, device="cuda")
        torch.cuda.synchronize()

    def produce(self, pool, base):
        import libshare.torch

        with self.torch.cuda.stream(self.stream):
            t = libshare.torch.empty(pool, WORDS, self.torch.int32, stream=self.stream)
            self.torch.cuda._sleep(SPIN)
            self.torch.add(self.expected, base, out=t)
            return libshare.array_of(t)

    def consume(self, client, name, base):
        import libshare.torch

        with self.torch.cuda.stream(self.stream):
            t = libshare.torch.lookup(client, name, stream=self.stream, timeout=10)
            return int((t != self.expected + base).sum().item())


class Cupy:
    def __init__(self):
        import cupy

        self.cupy = cupy
        self.stream = cupy.cuda.Stream(non_blocking=True)
        module = cupy.RawModule(code=KERNELS)
        self.fill, self.check = module.get_function("fill"), module.get_function("check")

    def produce(self, pool, base):
        a = pool.empty(WORDS, "int32", stream=self.stream)
        with self.stream:
            x = self.cupy.from_dlpack(a)
            self.fill((256,), (256,), (x, self.cupy.int32(WORDS), self.cupy.int32(base),
                                       self.cupy.int64(SPIN)))
        return a

    def consume(self, client, name, base):
        a = client.lookup(name, mode="rw", stream=self.stream, timeout=10)
        with self.stream:
            wrong = self.cupy.zeros(1, self.cupy.int32)
            self.check((256,), (256,), (self.cupy.from_dlpack(a), self.cupy.int32(WORDS),
                                        self.cupy.int32(base), wrong))
            return int(wrong.get(stream=self.stream)[0])


class CupyAllocator(Cupy):
    """The same with what CuPy allocates itself, and finds again."""

    def produce(self, pool, base):
        import libshare.cupy

        with self.stream, self.cupy.cuda.using_allocator(libshare.cupy.allocator(pool)):
            x = self.cupy.empty(WORDS, self.cupy.int32)
            self.fill((256,), (256,), (x, self.cupy.int32(WORDS), self.cupy.int32(base),
                                       self.cupy.int64(SPIN)))
            return __import__("libshare").array_of(x)


class Bindings:
    """cuda-bindings: the driver's own functions."""

    def __init__(self):
        import ctypes

        import numpy
        from cuda.bindings import driver, nvrtc

        self.numpy, self.driver, self.ctypes = numpy, driver, ctypes

        def good(result):
            if int(result[0]) != 0:
                raise RuntimeError(str(result[0]))
            return result[1] if len(result) == 2 else result[1:]

        self.good = good
        good((*driver.cuInit(0), None))
        self.device = good(driver.cuDeviceGet(0))
        self.context = good(driver.cuDevicePrimaryCtxRetain(self.device))
        good((*driver.cuCtxSetCurrent(self.context), None))
        major = good(driver.cuDeviceGetAttribute(
            driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, self.device))
        program = good(nvrtc.nvrtcCreateProgram(KERNELS.encode(), b"k.cu", 0, [], []))
        good((*nvrtc.nvrtcCompileProgram(program, 1, [f"--gpu-architecture=compute_{major}0".encode()]),
              None))
        ptx = b" " * good(nvrtc.nvrtcGetPTXSize(program))
        good((*nvrtc.nvrtcGetPTX(program, ptx), None))
        image = numpy.frombuffer(ptx, numpy.uint8)
        module = good(driver.cuModuleLoadData(image.ctypes.data))
        self.fill = good(driver.cuModuleGetFunction(module, b"fill"))
        self.check = good(driver.cuModuleGetFunction(module, b"check"))
        self.stream = good(driver.cuStreamCreate(1))
        self.wrong = good(driver.cuMemAlloc(4))

    def launch(self, function, *values):
        types = {"p": self.ctypes.c_void_p, "i": self.ctypes.c_int, "q": self.ctypes.c_longlong}
        self.good((*self.driver.cuLaunchKernel(
            function, 256, 1, 1, 256, 1, 1, 0, self.stream,
            (tuple(v for _, v in values), tuple(types[t] for t, _ in values)), 0), None))

    def produce(self, pool, base):
        a = pool.empty(WORDS, "int32", stream=int(self.stream))
        self.launch(self.fill, ("p", a.ptr), ("i", WORDS), ("i", base), ("q", SPIN))
        return a

    def consume(self, client, name, base):
        a = client.lookup(name, mode="r", stream=int(self.stream), timeout=10)
        self.good((*self.driver.cuMemsetD32Async(self.wrong, 0, 1, self.stream), None))
        self.launch(self.check, ("p", a.ptr), ("i", WORDS), ("i", base), ("p", int(self.wrong)))
        out = self.numpy.zeros(1, self.numpy.int32)
        self.good((*self.driver.cuStreamSynchronize(self.stream), None))
        self.good((*self.driver.cuMemcpyDtoH(out.ctypes.data, self.wrong, 4), None))
        return int(out[0])


class CudaCore:
    """cuda.core, and buffers of a PoolMemoryResource."""

    def __init__(self):
        import numpy

        try:
            from cuda import core
            core.Device
        except (ImportError, AttributeError):
            from cuda.core import experimental as core
        self.core, self.numpy = core, numpy
        self.device = core.Device(0)
        self.device.set_current()
        self.stream = self.device.create_stream()
        arch = "sm_" + "".join(str(n) for n in self.device.compute_capability)
        module = core.Program(KERNELS, code_type="c++",
                              options=core.ProgramOptions(arch=arch)).compile("cubin")
        self.fill, self.check = module.get_kernel("fill"), module.get_kernel("check")
        self.config = core.LaunchConfig(grid=256, block=256)
        self.resources = {}

    def produce(self, pool, base):
        import libshare.cuda_core

        resource = self.resources.setdefault(pool, libshare.cuda_core.PoolMemoryResource(pool))
        buffer = resource.allocate(4 * WORDS, stream=self.stream)
        self.core.launch(self.stream, self.config, self.fill, int(buffer.handle),
                         self.numpy.int32(WORDS), self.numpy.int32(base), self.numpy.int64(SPIN))
        array = libshare.cuda_core.array_of(buffer).view("int32")
        buffer.close(self.stream)
        return array

    def consume(self, client, name, base):
        import libshare

        a = client.lookup(name, mode="rw", stream=self.stream, timeout=10)
        wrong = a.client.pool(self.kind).zeros(1, "int32", stream=self.stream)
        self.core.launch(self.stream, self.config, self.check, a.ptr, self.numpy.int32(WORDS),
                         self.numpy.int32(base), wrong.ptr)
        return int.from_bytes(wrong.tobytes(stream=self.stream), "little", signed=True)


class Numba:
    def __init__(self):
        import warnings

        import numpy

        if not hasattr(numpy, "row_stack"):  # numba-cuda 0.30 asks for it, NumPy 2.5 has it no more
            numpy.row_stack = numpy.vstack
        from numba import cuda

        warnings.simplefilter("ignore")
        self.cuda = cuda
        self.stream = cuda.stream()

        @cuda.jit
        def fill(p, n, base, spin):
            x = 0
            for i in range(spin):
                x = (x * 1103515245 + 12345) & 0x7FFFFFFF
            i = cuda.grid(1)
            while i < n:
                p[i] = base + i if x >= 0 else -1
                i += cuda.gridsize(1)

        @cuda.jit
        def check(p, n, base, wrong):
            i = cuda.grid(1)
            while i < n:
                if p[i] != base + i:
                    cuda.atomic.add(wrong, 0, 1)
                i += cuda.gridsize(1)

        self.fill, self.check = fill, check

    def produce(self, pool, base):
        a = pool.empty(WORDS, "int32", stream=self.stream)
        x = self.cuda.as_cuda_array(a)
        self.fill[256, 256, self.stream](x, WORDS, base, 1_000_000)
        return a

    def consume(self, client, name, base):
        import numpy

        a = client.lookup(name, mode="rw", stream=self.stream, timeout=10)
        wrong = self.cuda.to_device(numpy.zeros(1, numpy.int32), stream=self.stream)
        self.check[256, 256, self.stream](self.cuda.as_cuda_array(a), WORDS, base, wrong)
        out = wrong.copy_to_host(stream=self.stream)
        self.stream.synchronize()
        return int(out[0])


class Pycuda:
    def __init__(self):
        import numpy
        import pycuda.driver as driver

        driver.init()
        self.context = driver.Device(0).retain_primary_context()
        self.context.push()
        from cuda.bindings import nvrtc

        program = nvrtc.nvrtcCreateProgram(KERNELS.encode(), b"k.cu", 0, [], [])[1]
        major = driver.Device(0).compute_capability()[0]
        nvrtc.nvrtcCompileProgram(program, 1, [f"--gpu-architecture=compute_{major}0".encode()])
        ptx = b" " * nvrtc.nvrtcGetPTXSize(program)[1]
        nvrtc.nvrtcGetPTX(program, ptx)
        module = driver.module_from_buffer(ptx)
        self.module, self.numpy, self.driver = module, numpy, driver
        self.fill, self.check = module.get_function("fill"), module.get_function("check")
        self.stream = driver.Stream(driver.stream_flags.NON_BLOCKING) if hasattr(
            driver, "stream_flags") else driver.Stream(1)

    def produce(self, pool, base):
        import libshare.pycuda

        x = libshare.pycuda.empty(pool, WORDS, "int32", stream=self.stream)
        self.fill(x, self.numpy.int32(WORDS), self.numpy.int32(base),
                  self.numpy.int64(SPIN), grid=(256, 1), block=(256, 1, 1), stream=self.stream)
        return x.gpudata.array

    def consume(self, client, name, base):
        import libshare.pycuda

        x = libshare.pycuda.gpuarray_of(client.lookup(name, mode="rw", stream=self.stream, timeout=10))
        wrong = self.driver.mem_alloc(4)
        self.driver.memset_d32_async(wrong, 0, 1, self.stream)
        self.check(x, self.numpy.int32(WORDS), self.numpy.int32(base), wrong,
                   grid=(256, 1), block=(256, 1, 1), stream=self.stream)
        self.stream.synchronize()
        out = self.numpy.zeros(1, self.numpy.int32)
        self.driver.memcpy_dtoh(out, wrong)
        return int(out[0])

    def close(self):
        """What PyCUDA's module for this does at the end: nothing of it may go after its context."""
        del self.module, self.fill, self.check, self.stream
        self.context.pop()


class Jax:
    """JAX has no memory but its own to write to, so what it produces is copied there, by the driver;
    what it consumes it reads in place."""

    def __init__(self):
        os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
        import jax

        if jax.default_backend() != "gpu":
            raise ImportError("this JAX has no GPU")
        self.jax = jax
        self.expected = jax.numpy.arange(WORDS, dtype=jax.numpy.int32)

    def produce(self, pool, base):
        from cuda.bindings import driver

        x = (self.expected + base).block_until_ready()
        a = pool.empty(WORDS, "int32", stream=1)
        result = driver.cuMemcpyDtoDAsync(a.ptr, x.unsafe_buffer_pointer(), 4 * WORDS, 1)
        if int(result[0]) != 0:
            raise RuntimeError(str(result[0]))
        self.kept = x
        return a

    def consume(self, client, name, base):
        a = client.lookup(name, mode="rw", stream=1, timeout=10)
        x = self.jax.dlpack.from_dlpack(a)
        return int((x != self.expected + base).sum())


FRAMEWORKS = {"torch": Torch, "cupy": Cupy, "cupy-allocator": CupyAllocator, "bindings": Bindings,
              "cuda.core": CudaCore, "numba": Numba, "pycuda": Pycuda, "jax": Jax}


def obey(f, order, client, pools):
    kind = f.kind = order["kind"]
    if order["do"] == "consume":
        return {"wrong": f.consume(client, order["name"], order["base"])}
    if kind not in pools:
        pools[kind] = client.pool(kind, kind=kind)
    array = f.produce(pools[kind], order["base"])
    stream = getattr(f, "stream", 1)
    array.publish(order["name"], stream=int(stream) if isinstance(f, Bindings) else stream)
    array.release()
    return {"ok": True}


def main():
    import libshare

    framework, address = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # frameworks print

    def say(answer):
        print(json.dumps(answer), file=answers, flush=True)

    try:
        f = FRAMEWORKS[framework]()
    except ImportError as e:
        return say({"missing": str(e)})
    except Exception:
        return say({"error": traceback.format_exc()})
    with libshare.connect(address, label=framework) as client:
        pools = {}
        say({"ready": True})
        for line in sys.stdin:
            try:
                say(obey(f, json.loads(line), client, pools))
            except Exception:
                say({"error": traceback.format_exc()})
    getattr(f, "close", lambda: None)()


if __name__ == "__main__":
    main()
