# SPDX-License-Identifier: MIT
"""Memory of kind pinned with torch and CuPy on a GPU: they have it there, and NumPy has it on the CPU after their work.
frameworks.py --kinds pinned runs each test in a process of its own; pinned_test.py has what needs no GPU."""

import gc
import os
import subprocess
import sys

import numpy as np
import pytest

import libshare

try:
    import torch

    import libshare.torch as lt

    here = torch.cuda.is_available()
except ImportError:
    here = False
pytestmark = pytest.mark.skipif(not here, reason="there is no torch with a GPU here")
SPIN = 40_000_000  # cycles: some 20 ms
N = 1 << 20
LIMIT = 60  # seconds; only ends a test that has failed


@pytest.fixture(scope="module")
def owner():
    torch.zeros(1, device="cuda")
    with libshare.connect("embedded", label="owner") as client:
        yield client


@pytest.fixture(scope="module")
def pool(owner):
    try:
        yield owner.pool("pinned", kind="pinned", limit="1GiB", segment_size="256MiB")
    except libshare.NotSupportedError as e:
        pytest.skip(str(e))


def from_dlpack_to_the_cpu(a):
    return torch.from_dlpack(a.__dlpack__(dl_device=(1, 0)))


DOORS = {
    "numpy": lambda a: np.asarray(a)[-1],
    "memoryview": lambda a: memoryview(a)[-1],
    "dlpack": lambda a: int(from_dlpack_to_the_cpu(a)[-1]),
    "values": lambda a: int(np.asarray(a == 0)[-1] == 0) and int(a[-1]),
    "copy_from": lambda a: (b := a.client.pool("pinned").empty(N, "int32"), b.copy_from(a), int(np.asarray(b)[-1]))[-1],
}


def test_torch_has_it_on_the_gpu_and_the_cpu_in_place(pool):
    a = pool.array(np.arange(N, dtype=np.int32))
    for t in (torch.from_dlpack(a), lt.tensor_of(a), torch.as_tensor(a, device="cuda")):
        assert t.is_cuda and t.data_ptr() == a.ptr and int(t.sum(dtype=torch.int64)) == N * (N - 1) // 2
        t.add_(1)
        x = np.asarray(a)
        assert x.__array_interface__["data"][0] == a.ptr and x[0] == 1 and x[-1] == N
        x -= 1
        assert int(t[0]) == 0 and int(t[-1]) == N - 1
    assert from_dlpack_to_the_cpu(a).device.type == "cpu" and from_dlpack_to_the_cpu(a).data_ptr() == a.ptr


@pytest.mark.parametrize("where", ["the current stream", "the stream it was acquired on", "a recorded one"])
@pytest.mark.parametrize("door", DOORS)
def test_the_cpu_gets_it_after_the_kernels_on_it(pool, door, where):
    stream = torch.cuda.Stream()
    for i in range(1, 11):
        a = pool.zeros(N, "int32", **({"stream": stream} if where.startswith("the stream") else {}))
        if where.startswith("a recorded"):
            a.record_stream(stream)
        with torch.cuda.stream(stream if not where.startswith("the current") else torch.cuda.current_stream()):
            t = torch.from_dlpack(a)
            torch.cuda._sleep(SPIN)
            t.fill_(i)
        assert DOORS[door](a) == i
        del t, a


def test_the_gpu_sees_what_the_cpu_has_stored(pool):
    a = pool.empty(N, "int32")
    t = torch.from_dlpack(a)
    for i in range(100):
        np.asarray(a)[:] = i
        assert int((t != i).sum()) == 0


def test_cupy_has_it_on_the_gpu(pool):
    cupy = pytest.importorskip("cupy")
    a = pool.array(np.arange(N, dtype=np.int32))
    for x in (cupy.asarray(a), cupy.from_dlpack(a)):
        assert x.data.ptr == a.ptr
        x += 1
        assert np.asarray(a)[0] == 1
        np.asarray(a)[:] -= 1
        assert int(x[0]) == 0
    assert libshare.array_of(np.asarray(a)).id == a.id


OTHER = """
import sys
import numpy as np, torch
import libshare

c = libshare.connect(sys.argv[1])
a = c.lookup("pinned", "rw", timeout=60)
assert int((torch.from_dlpack(a) != 3).sum()) == 0 and (np.asarray(a) == 3).all()
torch.cuda._sleep(40_000_000)
torch.from_dlpack(a).fill_(4)
torch.cuda.synchronize()
"""


def test_another_process_has_it_on_both(owner, pool):
    a = pool.empty(N, "int32")
    torch.cuda._sleep(SPIN)
    torch.from_dlpack(a).fill_(3)
    a.publish("pinned")
    subprocess.run([sys.executable, "-c", OTHER, owner.address], check=True, timeout=LIMIT * 2, env=dict(os.environ))
    assert (np.asarray(a) == 4).all()
    owner.unpublish("pinned")


def test_queues_of_torch_carry_it_as_memory_of_the_gpu_and_tensors_of_the_cpu_by_a_copy(owner, pool):
    from multiprocessing.reduction import ForkingPickler

    lt.install(pool)
    try:
        t = lt.empty(pool, (N,), torch.int32)
        t.fill_(5)
        again = ForkingPickler.loads(bytes(ForkingPickler.dumps(t)))
        assert again.is_cuda and libshare.array_of(again).id == libshare.array_of(t).id
        on_cpu = torch.from_numpy(np.asarray(libshare.array_of(t)))[:16]
        assert libshare.torch._torch_host._in_pool(on_cpu) is None
        again = ForkingPickler.loads(bytes(ForkingPickler.dumps(on_cpu)))
        assert again.device.type == "cpu" and again.tolist() == [5] * 16
    finally:
        lt.uninstall()
        gc.collect()


def test_it_is_copied_to_and_from_the_gpu_s_own_memory(owner, pool):
    with owner.pool("vmm", kind="vmm", limit="256MiB") as vmm:
        a = pool.array(np.arange(N, dtype=np.int32))
        b = a.to(vmm)
        a.fill_zero()
        assert a.to("cuda") is a and np.array_equal(np.asarray(b.to(pool)), np.arange(N, dtype=np.int32))
        b.release()
