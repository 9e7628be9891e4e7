# SPDX-License-Identifier: MIT
"""PyTorch over host memory. What needs a GPU is in frameworks.py."""

import pytest

import libshare

try:
    import torch

    import libshare.torch as lt
    from libshare.weights import WeightsError
except ImportError:
    torch = None
pytestmark = pytest.mark.skipif(torch is None, reason="there is no torch here")


def test_a_tensor_lies_in_the_pool_and_views_of_it_are_published(client, pool):
    t = lt.empty(pool, (4, 6), dtype=torch.float32)
    t.copy_(torch.arange(24.0).reshape(4, 6))
    lt.publish(t[1:3, ::2], "part")
    u = lt.lookup(client, "part")
    assert torch.equal(u, t[1:3, ::2])
    u[0, 0] = -1
    assert t[1, 0] == -1
    assert lt.array_of(u).id == lt.array_of(t).id


def test_a_tensor_elsewhere_is_refused_and_can_be_copied(client, pool):
    with pytest.raises(ValueError, match="does not lie in a pool"):
        lt.publish(torch.zeros(3), "x")
    lt.publish(lt.to_pool(pool, torch.ones(3)), "x")
    assert torch.equal(lt.lookup(client, "x"), torch.ones(3))


def test_the_tensor_keeps_the_memory_when_all_else_is_gone(client, pool):
    t = lt.tensor_of(pool.zeros(1000, "int32"))
    others = [pool.empty(1000, "int32") for _ in range(20)]
    for other in others:
        other.copy_from(b"\xff" * 4000)
    assert int(t.sum()) == 0


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "uint8", "int8",
                                   "int16", "int32", "int64", "bool", "complex64"])
def test_every_dtype_goes_through(client, pool, dtype):
    dtype = getattr(torch, dtype)
    t = lt.empty(pool, (3, 2), dtype)
    t.copy_(torch.tensor([[1, 0], [1, 1], [0, 1]]).to(dtype))
    lt.publish(t, "t")
    u = lt.lookup(client, "t")
    assert u.dtype is dtype and torch.equal(u, t)


def network():
    torch.manual_seed(1)
    n = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.Linear(16, 8))
    n.register_parameter("tied", n[0].weight)
    return n.eval()


def test_a_module_runs_on_shared_weights(client, pool):
    there = network()
    lt.publish_weights(pool, "model", there)
    weights = lt.attach_weights(client, "model")
    here = network()
    with torch.no_grad():
        for p in here.parameters():
            p.zero_()
    weights.load_into(here)
    x = torch.randn(5, 8)
    assert torch.equal(here(x), there(x))
    assert here[0].weight.data_ptr() == weights["0.weight"].data_ptr()
    assert weights["tied"].data_ptr() == weights["0.weight"].data_ptr()
    assert not any(p.requires_grad for p in here.parameters())


def test_a_running_worker_changes_versions(client, pool):
    there, here = network(), network()
    lt.publish_weights(pool, "model", there)
    weights = lt.attach_weights(client, "model")
    weights.load_into(here)
    with torch.no_grad():
        there[0].weight.mul_(2)
    lt.publish_weights(pool, "model", there)
    assert not weights.is_current()
    lt.attach_weights(client, "model").load_into(here)
    x = torch.randn(5, 8)
    assert torch.equal(here(x), there(x))


def test_weights_that_do_not_fit_are_refused(client, pool):
    lt.publish_weights(pool, "model", {"0.weight": torch.zeros(3, 3)})
    weights = lt.attach_weights(client, "model")
    with pytest.raises(WeightsError):
        weights.load_into(network())
    with pytest.raises(WeightsError, match="no tensor"):
        lt.publish_weights(pool, "model", {"x": 3})


@pytest.fixture
def carry(client):
    """What torch.multiprocessing does with tensors of a GPU, done with those of the host: there, and
    in another process, which here is this one."""
    def there_and_back(tensor):
        make, arguments = lt._carry(tensor)
        return make(*arguments)

    yield there_and_back
    libshare.client_of(client.address).close()


def test_a_queue_carries_the_same_memory(pool, carry):
    t = lt.empty(pool, (4, 6))
    u = carry(t[1:, ::2])
    assert u.shape == (3, 3) and u.stride() == t[1:, ::2].stride()
    u.fill_(5)
    assert t[1:, ::2].eq(5).all()
    assert carry(u).data_ptr() == u.data_ptr()  # of one client, memory lies in one place


def test_a_queue_carries_what_lies_elsewhere_by_a_copy(pool, carry, monkeypatch):
    assert lt._carry(torch.zeros(3)) is None
    monkeypatch.setattr(lt, "_carrier", pool)
    t = torch.arange(6.0).reshape(2, 3)
    u = carry(t.T)
    assert torch.equal(u, t.T)
    u.zero_()
    assert t[1, 2] == 5


@pytest.mark.parametrize("shape", [(0,), (0, 4), (3, 0)])
def test_a_queue_carries_tensors_without_elements(pool, carry, shape):
    for t in (torch.empty(shape, dtype=torch.float16), lt.empty(pool, shape, torch.float16)):
        u = carry(t)
        assert u.shape == shape and u.dtype == torch.float16


def test_a_queue_carries_leaves_and_parameters_only(pool, carry):
    leaf = lt.to_pool(pool, torch.ones(3)).requires_grad_()
    assert carry(leaf).requires_grad and type(carry(leaf)) is torch.Tensor
    assert not carry(leaf.detach()).requires_grad
    for requires_grad in (False, True):
        p = torch.nn.Parameter(leaf.detach(), requires_grad)
        assert type(carry(p)) is torch.nn.Parameter and carry(p).requires_grad is requires_grad
    with pytest.raises(RuntimeError, match="detach"):
        lt._carry(leaf * 2)
    assert carry((leaf * 0)[:0].detach()).numel() == 0


def test_who_has_received_a_tensor_can_send_it_on(pool, carry):
    from multiprocessing.reduction import ForkingPickler

    theirs = torch.multiprocessing.reductions.reduce_tensor
    for kind in (torch.Tensor, torch.nn.Parameter):
        ForkingPickler.register(kind, theirs)
    carry(lt.empty(pool, 3))
    for kind in (torch.Tensor, torch.nn.Parameter):
        assert ForkingPickler._extra_reducers[kind] is lt._reduce
    assert lt._reduce(torch.ones(2))[0] is theirs(torch.ones(2))[0]  # of the host: as ever


def test_what_is_for_gpus_says_so_on_host_memory(pool):
    with pytest.raises(ValueError, match="GPU"):
        lt.install(pool)
