# SPDX-License-Identifier: MIT
"""PyTorch on a GPU: its allocator, and torch.multiprocessing with install(). frameworks.py runs each
test in a process of its own, on a machine with a GPU; SHARE_TEST_KINDS is the kind of memory.

The second half is what torch's own test/test_multiprocessing.py asks of CUDA tensors. Of that file these
do not apply: the strategies for memory of the host, is_shared() and the typed storages (install()
leaves them as they are), CUDA events (torch shares them as ever), rebuild_cuda_tensor() and how torch's
cache lays out its blocks (test_rebuild_cuda_tensor, test_cuda_memory_allocation,
test_cuda_small_tensors), and the names of threads. Other than there, a tensor that does not lie in a
pool is copied on its way.
"""

import gc
import multiprocessing.resource_tracker
import os
import signal
import subprocess
import sys
import time
from multiprocessing.reduction import ForkingPickler

import pytest

import libshare

try:
    import torch

    import libshare.torch as lt

    here = torch.cuda.is_available()
except ImportError:
    here = False
pytestmark = pytest.mark.skipif(not here, reason="there is no torch with a GPU here")
if here:
    DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.uint8, torch.int8,
              torch.int16, torch.int32, torch.int64, torch.bool, torch.complex64, torch.float8_e4m3fn,
              torch.float8_e5m2]

multiprocessing.resource_tracker.ensure_running()
os.environ["SHARE_MAGAZINES"] = "0"  # the broker is asked for what was released
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
    kind = os.environ.get("SHARE_TEST_KINDS", "vmm")
    yield owner.pool("torch", kind=kind, limit="4GiB", segment_size="256MiB")


def until(condition):
    end = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < end, "it does not come about"
        os.sched_yield()


def heard(pipe):
    assert pipe.poll(LIMIT), "nothing comes through the pipe"
    return pipe.recv()


def buffers(owner):
    gc.collect()
    return len(owner.inspect("buffers"))


@pytest.fixture
def installed(owner, pool):
    """install() in this process, and in the end all memory is given back."""
    before = buffers(owner)
    lt.install(pool)
    yield pool
    until(lambda: buffers(owner) <= before)


@pytest.fixture(params=["spawn", "forkserver"])
def context(request):
    return torch.multiprocessing.get_context(request.param)


@pytest.fixture
def start(context):
    """Starts a process, which has ended well in the end."""
    children = []

    def start(function, *arguments):
        child = context.Process(target=function, args=arguments, daemon=True)
        child.start()
        children.append(child)
        return child

    yield start
    for child in children:
        child.join(LIMIT)
        ended = child.exitcode
        child.kill()
        assert ended == 0


# ------------------------------------------------------------------------------------------------
# torch's allocator


def look_up_and_hold(address, name, value, pipe):
    with libshare.connect(address) as client:
        t = lt.lookup(client, name)
        pipe.send(bool(t.eq(value).all()))
        pipe.recv()  # the other side has done its worst
        pipe.send(bool(t.eq(value).all()))
        del t
        torch.cuda.synchronize()
    pipe.send("gone")


def test_what_torch_computes_lies_in_the_pool(owner, pool):
    allocated = lt.mem_pool(pool)
    assert lt.mem_pool(pool) is allocated
    x = torch.ones(512, 512, device="cuda")
    with torch.cuda.use_mem_pool(allocated):
        made = [x @ x, x + 1, torch.full((100,), 7, dtype=torch.uint8, device="cuda"),
                torch.zeros(16 << 20, device="cuda"), torch.nn.functional.relu(x)[10:20, ::2]]
    for i, t in enumerate(made):
        array = libshare.array_of(t)
        assert array.shape == tuple(t.shape) and array.ptr == t.data_ptr()
        lt.publish(t, f"made/{i}")
        u = lt.lookup(owner, f"made/{i}")
        assert torch.equal(u, t) and u.stride() == t.stride()
    with pytest.raises(ValueError, match="does not lie in a pool"):
        libshare.array_of(x)
    for i in range(len(made)):
        owner.unpublish(f"made/{i}")


def test_a_published_tensor_is_not_overwritten_by_torch(owner, pool, context, start):
    allocated = lt.mem_pool(pool)
    with torch.cuda.use_mem_pool(allocated):
        t = torch.full((N,), 3, dtype=torch.int32, device="cuda")
    lt.publish(t, "kept")
    address = t.data_ptr()
    pipe, theirs = context.Pipe()
    start(look_up_and_hold, owner.address, "kept", 3, theirs)
    assert heard(pipe) is True
    del t
    owner.unpublish("kept")  # no name leads to it any more, and one process still has it
    assert lt.collect() == 1

    def others(count):
        with torch.cuda.use_mem_pool(allocated):
            made = [torch.full((N,), 9, dtype=torch.int32, device="cuda") for _ in range(count)]
        return {tensor.data_ptr() for tensor in made}

    assert address not in others(20)
    torch.cuda.synchronize()
    pipe.send("look again")
    assert heard(pipe) is True
    assert heard(pipe) == "gone"
    until(lambda: lt.collect() == 0)
    assert address in others(40)  # so it could have been


def receive_and_hold(queue, pipe):
    t = queue.get()
    pipe.send(bool(t.eq(3).all()))
    pipe.recv()
    pipe.send(bool(t.eq(3).all()))


def test_a_sent_tensor_is_not_overwritten_by_torch(pool, context, start):
    allocated = lt.mem_pool(pool)
    lt.install(pool)
    queue, (pipe, theirs) = context.SimpleQueue(), context.Pipe()
    start(receive_and_hold, queue, theirs)
    with torch.cuda.use_mem_pool(allocated):
        t = torch.full((N,), 3, dtype=torch.int32, device="cuda")
    address = t.data_ptr()
    queue.put(t)
    assert heard(pipe) is True
    del t
    with torch.cuda.use_mem_pool(allocated):
        others = [torch.full((N,), 9, dtype=torch.int32, device="cuda") for _ in range(20)]
    assert address not in {other.data_ptr() for other in others}
    torch.cuda.synchronize()
    pipe.send("look again")
    assert heard(pipe) is True
    until(lambda: lt.collect() == 0)  # the receiver has ended


def test_a_full_pool_is_out_of_memory_for_torch(pool):
    with torch.cuda.use_mem_pool(lt.mem_pool(pool)):
        with pytest.raises(torch.cuda.OutOfMemoryError):
            torch.empty(5 << 30, dtype=torch.uint8, device="cuda")
        assert torch.ones(1000, device="cuda").sum().item() == 1000


# ------------------------------------------------------------------------------------------------
# torch.multiprocessing


def fill(queue, event):
    for t in queue.get(timeout=LIMIT):
        t.fill_(4)
    torch.cuda.synchronize()
    event.set()


def test_a_child_writes_where_the_parent_reads(installed, context, start):
    t = lt.empty(installed, (5, 5)).zero_()
    queue, event = context.Queue(), context.Event()
    start(fill, queue, event)
    queue.put([t, t[:, 1]])
    assert event.wait(LIMIT)
    assert t.eq(4).all()


def send_ones(queue, event, address):
    with libshare.connect(address) as client, client.pool("torch") as pool:
        lt.install(pool)
        t = torch.ones(5, 5, device="cuda")
        in_pool = lt.to_pool(pool, t)
        for each in (t, in_pool, in_pool, in_pool[1:]):
            queue.put(each)
        event.wait()


def test_tensors_come_from_a_child(owner, installed, context, start):
    queue, event = context.Queue(), context.Event()
    start(send_ones, queue, event, owner.address)
    copy, one, two, view = (queue.get(timeout=LIMIT) for _ in range(4))
    for t in (copy, one, two):
        assert t.is_cuda and t.shape == (5, 5) and t.eq(1).all()
    assert one.data_ptr() == two.data_ptr() and view.data_ptr() == one[1:].data_ptr()
    one.fill_(2)
    assert two.eq(2).all() and view.eq(2).all() and copy.eq(1).all()
    del copy, one, two, view, t
    event.set()


def sum_up(queue, out, count):
    total = torch.zeros(5, dtype=torch.int64, device="cuda")
    for _ in range(count):
        total += queue.get(timeout=LIMIT)
    out.put(total.tolist())


def test_many_tensors_that_the_sender_drops_at_once(installed, context, start):
    queue, out, count = context.Queue(), context.Queue(), 500
    start(sum_up, queue, out, count)
    for i in range(count):
        queue.put(torch.full((5,), i, device="cuda"))
    assert out.get(timeout=LIMIT) == [count * (count - 1) // 2] * 5


def learn(address, queue, event, count):
    with libshare.connect(address) as client, client.pool("torch") as pool:
        lt.install(pool)
        network = torch.nn.LSTM(1, 1).cuda()
        for _ in range(count):
            queue.put({name: t.clone() for name, t in network.state_dict().items()})
        event.wait()  # a tensor that was not received yet goes with its sender


def test_a_queue_with_room_for_one_does_not_get_stuck(owner, installed, context, start):
    queue, event, count = context.Queue(1), context.Event(), 100
    start(learn, owner.address, queue, event, count)
    for _ in range(count):
        state = queue.get(timeout=LIMIT)
        assert len(state) == 4 and all(t.is_cuda for t in state.values())
    event.set()


def test_what_lies_elsewhere_is_copied_on_its_way(installed, context, start):
    t = torch.zeros(5, 5, device="cuda")
    queue, event = context.Queue(), context.Event()
    start(fill, queue, event)
    queue.put([t, t[:, 1]])
    assert event.wait(LIMIT)
    assert t.eq(0).all()


def send_and_end(address, queue, received):
    with libshare.connect(address) as client, client.pool("torch") as pool:
        lt.install(pool)
        queue.put(torch.full((N,), 11, dtype=torch.int32, device="cuda"))
        queue.put(lt.to_pool(pool, torch.full((N,), 12, dtype=torch.int32, device="cuda")))
        received.wait()
        torch.cuda.synchronize()  # what is not done at the end of a process is void


def test_the_sender_ends_before_its_tensors_are_used(owner, installed, context, start):
    queue, received = context.Queue(), context.Event()
    sender = start(send_and_end, owner.address, queue, received)
    tensors = [queue.get(timeout=LIMIT), queue.get(timeout=LIMIT)]
    received.set()
    sender.join(LIMIT)
    assert [t.unique().tolist() for t in tensors] == [[11], [12]]


def test_a_sender_that_was_killed_takes_nothing_along(owner, installed, context):
    queue, received = context.Queue(), context.Event()
    sender = context.Process(target=send_and_end, args=(owner.address, queue, received), daemon=True)
    sender.start()
    tensors = [queue.get(timeout=LIMIT), queue.get(timeout=LIMIT)]
    assert [int(t[-1]) for t in tensors] == [11, 12]  # what it had to do is done
    os.kill(sender.pid, signal.SIGKILL)
    sender.join(LIMIT)
    assert [t.unique().tolist() for t in tensors] == [[11], [12]]


def hold(queue, pipe):
    t = queue.get(timeout=LIMIT)
    pipe.send(t.shape)
    pipe.recv()
    assert t.eq(1).all()
    del t
    torch.cuda.synchronize()
    pipe.send("gone")
    pipe.recv()


def test_nothing_is_pinned_in_the_sender(owner, installed, context, start):
    before = buffers(owner)
    queue, (pipe, theirs) = context.Queue(), context.Pipe()
    start(hold, queue, theirs)
    queue.put(torch.ones(N, device="cuda"))
    assert heard(pipe) == (N,)
    until(lambda: buffers(owner) == before + 1)  # the receiver's alone
    torch.cuda.empty_cache()
    pipe.send("drop it")
    assert heard(pipe) == "gone"
    until(lambda: buffers(owner) == before)
    pipe.send("end")


def test_a_tensor_that_nobody_receives_goes_with_its_time_limit(owner, pool):
    before = buffers(owner)
    lt.install(pool, timeout=0.5)
    try:
        ForkingPickler.dumps(torch.ones(N, device="cuda"))
        until(lambda: buffers(owner) == before)
    finally:
        lt.install(pool)


def describe(queue, out):
    while (t := queue.get(timeout=LIMIT)) is not None:
        out.put((type(t) is torch.nn.Parameter, t.requires_grad, t.is_leaf, t.grad is None,
                 bool(t._backward_hooks), tuple(t.shape), t.dtype, t.is_cuda))


@pytest.mark.parametrize("shape", [(0,), (0, 4), (3, 0, 2)])
def test_tensors_without_elements(installed, context, start, shape):
    queue, out = context.Queue(), context.Queue()
    start(describe, queue, out)
    for t in (torch.empty(shape, device="cuda"), lt.empty(installed, shape, torch.float16)):
        queue.put(t)
        assert out.get(timeout=LIMIT)[5:] == (shape, t.dtype, True)
    queue.put(None)


def test_leaves_and_parameters_are_what_they_were(installed, context, start):
    queue, out = context.Queue(), context.Queue()
    start(describe, queue, out)

    @torch.utils.hooks.unserializable_hook
    def hook(_):
        pass

    for make in (lambda x: x, lambda x: lt.to_pool(installed, x)):
        for requires_grad in (False, True):
            leaf = make(torch.ones(5, 5, device="cuda")).requires_grad_(requires_grad)
            parameter = torch.nn.Parameter(leaf.detach(), requires_grad)
            if requires_grad:
                leaf.register_hook(hook)
            leaf.grad = torch.ones(5, 5, device="cuda")
            for t, is_parameter in ((leaf, False), (parameter, True)):
                queue.put(t)
                assert out.get(timeout=LIMIT)[:5] == (is_parameter, requires_grad, True, True, False)
    queue.put(None)


def change(queue, pipe):
    t = queue.get(timeout=LIMIT)
    pipe.send("here")
    pipe.recv()
    expected = torch.arange(1.0, 26, device="cuda").view(5, 5)
    expected[0, 0] = 1000
    pipe.send(bool(t.data.equal(expected)))
    t.data.fill_(1)
    t.grad = torch.ones(5, 5, device="cuda")
    torch.cuda.synchronize()
    pipe.send("changed")


@pytest.mark.parametrize("parameter", [False, True])
def test_both_sides_change_a_leaf(installed, context, start, parameter):
    t = lt.to_pool(installed, torch.arange(1.0, 26, device="cuda").view(5, 5))
    t = torch.nn.Parameter(t) if parameter else t.requires_grad_()
    t.grad = torch.zeros(5, 5, device="cuda")
    queue, (pipe, theirs) = context.Queue(), context.Pipe()
    start(change, queue, theirs)
    queue.put(t)
    assert heard(pipe) == "here"
    t.data[0, 0] = 1000
    t.grad.data.fill_(4)
    torch.cuda.synchronize()
    pipe.send("go on")
    assert heard(pipe) is True and heard(pipe) == "changed"
    assert t.data.eq(1).all() and t.grad.eq(4).all()


def test_what_is_no_leaf_is_refused(installed, context):
    leaf = lt.empty(installed, (5, 5)).fill_(1).requires_grad_()
    for t in (leaf * 2, torch.ones(5, device="cuda", requires_grad=True) + 1):
        with pytest.raises(RuntimeError, match="detach"):
            context.SimpleQueue().put(t)


def add_one(queue, out):
    while (t := queue.get(timeout=LIMIT)) is not None:
        t += 1
        out.put(t)
        del t
    out.close()
    out.join_thread()


def test_a_tensor_is_sent_back(owner, installed, context, start):
    queue, out = context.Queue(), context.Queue()
    start(add_one, queue, out)  # which does not call install()
    t = lt.empty(installed, N, torch.int32).zero_()
    for i in range(3):
        queue.put(t)
        u = out.get(timeout=LIMIT)
        assert libshare.array_of(u).id == libshare.array_of(t).id
        assert u.eq(i + 1).all() and t.eq(i + 1).all()
    queue.put(torch.zeros(3, device="cuda"))
    assert out.get(timeout=LIMIT).tolist() == [1, 1, 1]
    queue.put(None)
    del u


def take_argument(tensor, pipe):
    pipe.send(bool(tensor.eq(5).all()))
    tensor.fill_(6)
    torch.cuda.synchronize()
    pipe.send(tensor)
    pipe.recv()


def test_arguments_of_processes_and_pipes(owner, installed, context, start):
    t = lt.empty(installed, (3, 4)).fill_(5)
    pipe, theirs = context.Pipe()
    start(take_argument, t, theirs)
    assert heard(pipe) is True
    u = heard(pipe)
    assert u.eq(6).all() and t.eq(6).all()
    del u
    pipe.send("end")


def double(t):
    return t * 2


def use_pool(address):
    lt.install(libshare.client_of(address).pool("torch"))


def test_pools_of_processes(owner, installed, context):
    with context.Pool(2, use_pool, (owner.address,)) as processes:
        inputs = [torch.full((1000,), i, device="cuda") for i in range(20)]
        for i, t in enumerate(processes.map(double, inputs)):
            assert t.is_cuda and t.eq(2 * i).all()
        del t
        processes.close()
        processes.join()


def compare(queue, out):
    while (pair := queue.get(timeout=LIMIT)) is not None:
        t, expected = pair
        out.put(t.dtype is expected.dtype and bool((t.cpu().view(torch.uint8) == expected.view(torch.uint8)).all()))


def test_every_dtype(installed, context, start):
    queue, out = context.Queue(), context.Queue()
    start(compare, queue, out)
    for dtype in DTYPES:
        expected = torch.tensor([0, 1, 1, 0, 1]).to(dtype)
        queue.put((expected.cuda(), expected))
        assert out.get(timeout=LIMIT) is True, dtype
    queue.put(None)


def count_wrong(queue, out):
    with torch.cuda.stream(torch.cuda.Stream()):
        while (pair := queue.get()) is not None:
            t, value = pair
            out.put(int((t != value).sum()))


@pytest.mark.parametrize("where", ["in the pool", "elsewhere"])
def test_kernels_that_still_run_come_first(installed, context, start, where):
    # a Queue pickles in a thread of its own, on another stream; this one here
    queue, out = context.SimpleQueue(), context.Queue()
    start(count_wrong, queue, out)
    with torch.cuda.stream(torch.cuda.Stream()):
        for i in range(1, 6):
            t = torch.empty(N, dtype=torch.int32, device="cuda") if where == "elsewhere" else \
                lt.empty(installed, N, torch.int32)
            t.zero_()
            torch.cuda._sleep(SPIN)
            t.fill_(i)
            queue.put((t, i))
            del t
        assert [out.get(timeout=LIMIT) for _ in range(5)] == [0] * 5
    queue.put(None)


def test_a_forked_child_is_told(installed):
    """A process that was forked from one that uses CUDA cannot use it, as torch says."""
    context = torch.multiprocessing.get_context("fork")
    queue, (pipe, theirs) = context.SimpleQueue(), context.Pipe()

    def receive():
        try:
            queue.get().sum().item()
            theirs.send("it works")
        except (RuntimeError, libshare.Error) as e:
            theirs.send(type(e).__name__)
        os._exit(0)

    queue.put(torch.ones(3, device="cuda"))
    child = context.Process(target=receive, daemon=True)
    child.start()
    assert heard(pipe) != "it works"
    child.join(LIMIT)
    child.kill()


@pytest.mark.parametrize("expandable", [False, True])
def test_what_torch_has_made_is_adopted(owner, expandable):
    """In a pool of kind adopted: without expandable segments it is memory of cudaMalloc()."""
    adopted = owner.pool("adopted", kind="adopted", limit="1GiB")
    program = f"""if True:
        import libshare, torch
        with libshare.connect({owner.address!r}) as c:
            x = torch.arange(1000, dtype=torch.float32, device="cuda")
            a = libshare.adopt(x, c.pool("adopted"))
            a.publish("x", mode="rw")
            torch.cuda.synchronize()
            print("published", flush=True)
            input()
            assert (x == 7).all().item()
            c.unpublish("x")
    """
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                          env={**os.environ, "PYTORCH_CUDA_ALLOC_CONF": f"expandable_segments:{expandable}"}) as p:
        assert p.stdout.readline().strip() == "published"
        with owner.lookup("x", mode="rw") as a:
            y = lt.tensor_of(a)
            assert (y == torch.arange(1000, device="cuda")).all().item()
            y.fill_(7)
            torch.cuda.synchronize()
            del y
        p.communicate("\n", timeout=LIMIT)
    assert p.returncode == 0
    adopted.close()
