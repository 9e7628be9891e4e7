# SPDX-License-Identifier: MIT
"""torch.multiprocessing over a pool of host memory: install().

The second part is what torch's own test/test_multiprocessing.py asks of tensors of the host. Of it these
do not apply: the strategies themselves and their files (test_fs, test_fs_pool, the torch_shm_manager), as
tensors do not go through them; is_shared() and share_memory_() (test_is_shared, test_empty_shared:
install() leaves these tensors to torch, which is tested here), storages without a tensor, the names of
threads, and CUDA. Other than there, a tensor that does not lie in a pool is copied on its way, so that
what the sender does to it later is not seen.
"""

import multiprocessing.reduction
import os
import warnings

import pytest

import libshare
from conftest import until
from torch_host import LIMIT, N, counts, in_pool, lt, needs_torch, pool, servers, torch  # noqa: F401

pytestmark = needs_torch
if torch is not None:
    DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.uint8, torch.int8, torch.int16,
              torch.int32, torch.int64, torch.bool, torch.complex64, torch.float8_e4m3fn]


@pytest.fixture(params=["fork", "forkserver"])
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
        child.join()
        child.close()
        assert ended == 0


class Own:
    """A loader that is not torch's: its workers run a loop of its own."""

    def __init__(self, init):
        self.init = init

    def __call__(self, out):
        self.init(3)
        out.put(torch.full((N,), 7.0))
        out.close()
        out.join_thread()


def note(worker_id):
    os.environ["SHARE_TEST_NOTED"] = str(worker_id)


def test_loaders_of_others_take_an_initialiser(pool, context, start):
    out = context.Queue()
    start(Own(lt.worker_init(pool, note)), out)
    t = out.get(timeout=LIMIT)
    assert in_pool(t) and t[-1] == 7
    init = lt.worker_init(pool, note)
    init._then(5)
    assert os.environ.pop("SHARE_TEST_NOTED") == "5"


def send_back(queue, out, taken):
    t = queue.get(timeout=LIMIT)
    out.put(t)  # which was received, so it can be sent on
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(3):
            out.put(torch.full((N,), 2.0))
        out.close()
        out.join_thread()
        taken.wait(LIMIT)  # what torch shares goes with its sender
    texts = [str(w.message) for w in told]
    assert len(texts) == 1 and "install(pool) here, too" in texts[0], texts


def test_who_forgot_to_install_is_told_once(pool, start, context):
    if context.get_start_method() == "fork":
        pytest.skip("a forked child has what its parent has installed")
    queue, out, taken = context.Queue(), context.Queue(), context.Event()
    start(send_back, queue, out, taken)
    queue.put(lt.empty(pool, N).fill_(1))
    back = out.get(timeout=LIMIT)
    assert in_pool(back) and back[0] == 1
    for _ in range(3):
        t = out.get(timeout=LIMIT)
        assert not in_pool(t) and t[-1] == 2
    taken.set()


def test_what_goes_another_way_is_counted(pool):
    def there_and_back(t):
        make, arguments = lt._reduce(t)
        return make(*arguments)

    small, large = torch.ones(10), torch.ones(N)
    assert torch.equal(there_and_back(small), small) and not in_pool(there_and_back(small))
    assert in_pool(there_and_back(large)) and torch.equal(there_and_back(large), large)
    shared = torch.ones(N).share_memory_()
    assert lt._reduce(shared)[0] is torch.multiprocessing.reductions.rebuild_tensor
    assert in_pool(there_and_back(lt.to_pool(pool, small)))
    assert counts() == {"sent by value, as it is small": 2, "sent by one copy": 2, "received": 5,
                        "left to torch, which shares it already": 1, "sent in place": 1}
    for odd in (torch.eye(3).to_sparse(), torch.quantize_per_tensor(large, 0.1, 0, torch.qint8)):
        assert lt._reduce(odd)[0].__module__.startswith("torch")
    z = torch.full((N,), 1 + 2j)
    assert torch.equal(there_and_back(z.conj()), z.conj() + 0) and there_and_back(z[:3].conj()).tolist() == [1 - 2j] * 3
    lt.uninstall()
    assert lt._reduce(large)[0] is torch.multiprocessing.reductions.rebuild_tensor


# ------------------------------------------------------------------------------------------------
# test_multiprocessing.py


def fill(queue, event):
    for t in queue.get(timeout=LIMIT):
        t.fill_(4)
    event.set()


def test_a_child_writes_where_the_parent_reads(pool, context, start):
    t = lt.empty(pool, (5, 5)).zero_()
    queue, event = context.Queue(), context.Event()
    start(fill, queue, event)
    queue.put([t, t[:, 1]])
    assert event.wait(LIMIT) and t.eq(4).all()


def send_some(address, queue, event):
    lt.install(libshare.client_of(address).pool("test", create=False))
    t = torch.ones(N)
    there = lt.to_pool(libshare.client_of(address).pool("test", create=False), t)
    for each in (t, there, there, there[1:]):
        queue.put(each)
    event.wait()


def test_tensors_of_one_memory_stay_so(client, pool, context, start):
    queue, event = context.Queue(), context.Event()
    start(send_some, client.address, queue, event)
    copy, one, two, view = (queue.get(timeout=LIMIT) for _ in range(4))
    assert one.data_ptr() == two.data_ptr() and view.data_ptr() == one[1:].data_ptr()
    one.fill_(2)
    assert two.eq(2).all() and view.eq(2).all() and copy.eq(1).all()
    event.set()


def twice(t):
    return t * 2


def use_pool(address):
    torch.set_num_threads(1)
    lt.install(libshare.client_of(address).pool("test", create=False))


def test_pools_of_processes(client, pool, context):
    with context.Pool(2, use_pool, (client.address,)) as processes:
        for i, t in enumerate(processes.map(twice, [torch.full((N // 10,), i) for i in range(10)])):
            assert in_pool(t) and t.eq(2 * i).all()
        processes.close()
        processes.join()


def take_argument(t, pipe):
    pipe.send(bool(t.eq(5).all()))
    t.fill_(6)
    pipe.send(t)
    pipe.recv()


def test_arguments_of_processes_and_pipes(pool, start, context):
    if context.get_start_method() == "fork":
        pytest.skip("arguments are not sent to a forked child")
    t = lt.empty(pool, (30, 400)).fill_(5)
    pipe, theirs = context.Pipe()
    start(take_argument, t, theirs)
    assert pipe.recv() is True
    assert pipe.recv().eq(6).all() and t.eq(6).all()
    pipe.send("end")


def describe(queue, out):
    while (t := queue.get(timeout=LIMIT)) is not None:
        out.put((type(t) is torch.nn.Parameter, t.requires_grad, t.is_leaf, t.grad is None,
                 bool(t._backward_hooks), tuple(t.shape), t.dtype, float(t.double().sum()) if not t.is_complex() else 0))


def test_leaves_parameters_and_tensors_without_elements_are_what_they_were(pool, context, start):
    queue, out = context.Queue(), context.Queue()
    start(describe, queue, out)

    @torch.utils.hooks.unserializable_hook
    def hook(_):
        pass

    for make in (lambda x: x, lambda x: lt.to_pool(pool, x)):
        for shape in ((5, 5), (50, 500)):
            for requires_grad in (False, True):
                leaf = make(torch.ones(shape)).requires_grad_(requires_grad)
                if requires_grad:
                    leaf.register_hook(hook)
                leaf.grad = torch.ones(shape)
                for t, is_parameter in ((leaf, False), (torch.nn.Parameter(leaf.detach(), requires_grad), True)):
                    queue.put(t)
                    found = out.get(timeout=LIMIT)
                    assert found[:6] == (is_parameter, requires_grad, True, True, False, shape) and found[7] == t.numel()
    for shape in ((0,), (0, 4), (3, 0, 2)):
        for t in (torch.empty(shape), lt.empty(pool, shape, torch.float16)):
            queue.put(t)
            assert out.get(timeout=LIMIT)[5:7] == (shape, t.dtype)
    queue.put(torch.nn.Parameter(torch.ones(N, dtype=torch.int32), requires_grad=False))  # of integers
    assert out.get(timeout=LIMIT)[0] is True
    queue.put(None)


def test_what_is_no_leaf_is_refused(pool, context):
    for t in (lt.empty(pool, (5, 5)).fill_(1).requires_grad_() * 2, torch.ones(N, requires_grad=True) + 1):
        with pytest.raises(RuntimeError, match="detach"):
            context.SimpleQueue().put(t)


def change(queue, pipe):
    t = queue.get(timeout=LIMIT)
    pipe.send("here")
    pipe.recv()
    pipe.send(bool(t.data[0, 0] == 1000))
    t.data.fill_(1)
    pipe.send("changed")


@pytest.mark.parametrize("parameter", [False, True])
def test_both_sides_change_a_leaf(pool, context, start, parameter):
    t = lt.to_pool(pool, torch.arange(25.0).view(5, 5))
    t = torch.nn.Parameter(t) if parameter else t.requires_grad_()
    queue, (pipe, theirs) = context.Queue(), context.Pipe()
    start(change, queue, theirs)
    queue.put(t)
    assert pipe.recv() == "here"
    t.data[0, 0] = 1000
    pipe.send("go on")
    assert pipe.recv() is True and pipe.recv() == "changed"
    assert t.data.eq(1).all()


def send_and_end(address, queue):
    lt.install(libshare.client_of(address).pool("test", create=False))
    queue.put(torch.full((N,), 11))
    queue.close()
    queue.join_thread()


def test_the_sender_ends_before_its_tensors_are_taken(client, pool, context, start):
    queue = context.Queue()
    start(send_and_end, client.address, queue).join(LIMIT)
    t = queue.get(timeout=LIMIT)
    assert in_pool(t) and t.unique().tolist() == [11]


def test_a_tensor_that_nobody_receives_goes_with_its_time_limit(client, pool):
    lt.install(pool, timeout=0.2)
    multiprocessing.reduction.ForkingPickler.dumps(torch.ones(N))
    while client.inspect("tokens"):
        os.sched_yield()


def sent():
    return multiprocessing.reduction.ForkingPickler.loads(multiprocessing.reduction.ForkingPickler.dumps(torch.ones(N)))


def test_a_pool_that_is_not_there_yet_is_tried_again(client, pool):
    with client.pool("later", kind="host") as later:
        enter = lt.worker_init(later)
    enter(0)  # its pool went with who had made it
    with pytest.warns(RuntimeWarning, match="'later' cannot be opened here"):
        assert not in_pool(sent())
    assert not in_pool(sent())
    with client.pool("later", kind="host"):
        assert in_pool(sent())
        assert counts() == {"received elsewhere": 2, "sent by value, as the pool could not take it": 2,
                            "received": 1, "sent by one copy": 1}


def lose(address, pipe):
    libshare.torch._torch_host.WorkerInit(address, "test")(0)  # as a worker of a loader has it
    pipe.send(in_pool(sent()))
    pipe.recv()
    with pytest.warns(RuntimeWarning, match="cannot take them"):
        until(lambda: not in_pool(sent()))
    pipe.send(in_pool(sent()))


def test_a_pool_whose_connection_was_lost_is_opened_anew(broker, pool, context, start):
    pipe, theirs = context.Pipe()
    child = start(lose, broker.address, theirs)
    assert pipe.recv() is True
    for row in broker.inspect("clients"):
        if row["pid"] == child.pid:
            broker.drop(row["client"])
    pipe.send("go on")
    assert pipe.recv() is True


def lose_another(address, pipe):
    libshare.torch._torch_host.WorkerInit(address, "test")(0)
    pipe.send(in_pool(sent()))
    ours, other = libshare.client_of(address), libshare.connect(address, label="lost")
    there = lt.empty(other.pool("test", create=False), N).fill_(1)
    pipe.send("is there")
    pipe.recv()
    reducer = multiprocessing.reduction.ForkingPickler
    with pytest.warns(RuntimeWarning, match="cannot take them"):
        until(lambda: not in_pool(reducer.loads(reducer.dumps(there))))
    pipe.send(not ours.closed and in_pool(sent()) and libshare.client_of(address) is ours)


def test_a_connection_is_not_given_up_for_another_one_that_was_lost(broker, pool, context, start):
    pipe, theirs = context.Pipe()
    start(lose_another, broker.address, theirs)
    assert pipe.recv() is True and pipe.recv() == "is there"
    (number,) = (row["client"] for row in broker.inspect("clients") if row["label"] == "lost")
    broker.drop(number)
    pipe.send("go on")
    assert pipe.recv() is True


def learn(address, queue, count):
    lt.install(libshare.client_of(address).pool("test", create=False))
    network = torch.nn.LSTM(30, 30)
    for _ in range(count):
        queue.put({name: t.clone() for name, t in network.state_dict().items()})
    queue.close()
    queue.join_thread()


def test_a_queue_with_room_for_one_does_not_get_stuck(client, pool, context, start):
    queue, count = context.Queue(1), 50
    start(learn, client.address, queue, count)
    for _ in range(count):
        assert len(queue.get(timeout=LIMIT)) == 4


def compare(queue, out):
    while (pair := queue.get(timeout=LIMIT)) is not None:
        t, dtype, values = pair
        out.put(t.dtype is dtype and t.shape == (N // 10, 2) and bytes(t[0].view(torch.uint8).tolist()) == values)


def test_every_dtype(pool, context, start):
    queue, out = context.Queue(), context.Queue()
    start(compare, queue, out)
    for dtype in DTYPES:
        t = torch.tensor([0, 1]).to(dtype)
        queue.put((t.repeat(N // 10, 1), dtype, bytes(t.view(torch.uint8).tolist())))
        assert out.get(timeout=LIMIT) is True, dtype
    queue.put(None)


def test_tensors_that_torch_shares_stay_with_torch(pool, context, start):
    t = torch.zeros(N).share_memory_()
    queue, event = context.Queue(), context.Event()
    start(fill, queue, event)
    queue.put([t])
    assert event.wait(LIMIT) and t.eq(4).all()
