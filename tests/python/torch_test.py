# SPDX-License-Identifier: MIT
"""PyTorch over host memory. What needs a GPU is in frameworks.py."""

import copy
import warnings

import numpy as np
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


def test_the_first_tries_are_answered_with_what_to_do(client, pool):
    t = torch.ones(3)
    with pytest.raises(TypeError, match=r"libshare\.torch\.to_pool\(pool, tensor\)"):
        pool.array(t)
    with pool.producer("c") as tx, pytest.raises(TypeError, match=r"array_of\(\).*libshare\.torch\.to_pool\(\)"):
        tx.send(t)
    for use in (lambda: lt.to_pool(t, pool), lambda: lt.empty((2, 3), torch.int8), lambda: lt.install(client),
                lambda: lt.publish_weights("m", pool, torch.nn.Linear(2, 2))):
        with pytest.raises(TypeError, match="a Pool is needed here.* and a .* is none"):
            use()


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


def test_what_is_computed_when_it_is_read_goes_as_its_values_or_not_at_all(client, pool):
    z = lt.to_pool(pool, torch.tensor([1 + 2j, 3 - 4j]))
    for lazy in (z.conj(), z.conj().imag, z.reshape(1, 2).mH, torch._efficientzerotensor(3)):
        with pytest.raises(ValueError, match=r"to_pool\(\)"):
            lt.publish(lazy, "lazy")
        with pytest.raises(ValueError, match=r"to_pool\(\)"):
            libshare.array_of(lazy)
        lt.publish(lt.to_pool(pool, lazy), "lazy")
        assert torch.equal(lt.lookup(client, "lazy"), lazy + 0)
    lt.publish(z.real, "real")
    assert lt.lookup(client, "real").tolist() == [1, 3]
    m = torch.nn.Module()
    for name, tensor in (("z", z), ("conj", z.conj()), ("also", z), ("imag", z.conj().imag)):
        m.register_buffer(name, tensor)
    lt.publish_weights(pool, "m", m)
    got = lt.attach_weights(client, "m")
    assert all(torch.equal(got[name], getattr(m, name) + 0) for name in got) and got["also"] is got["z"]


def more_than_memory():
    ones = torch.ones(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield r"to_dense\(\)", torch.eye(3).to_sparse()
        yield r"to_dense\(\)", torch.eye(4).to_sparse_csr()
        yield "scales", torch.quantize_per_tensor(ones, 0.1, 0, torch.qint8)
        yield "nested|made of others", torch.nested.nested_tensor([ones, ones[:2]])
        yield "made of other tensors", torch.nested.nested_tensor([ones, ones[:2]], layout=torch.jagged)
        yield "made of other tensors", torch.masked.masked_tensor(ones, ones > 0)
        yield "has no values", torch.ones(3, device="meta")


def test_what_is_more_than_a_memory_is_refused_with_what_to_do(pool):
    for words, tensor in more_than_memory():
        for use in (lambda: lt.publish(tensor, "x"), lambda: libshare.array_of(tensor), lambda: lt.to_pool(pool, tensor)):
            with pytest.raises(ValueError, match=words):
                use()
        with pytest.raises(WeightsError, match=f"'x' cannot be shared: .*({words})"):
            lt.publish_weights(pool, "x", {"x": tensor})


def test_tensors_without_elements_go_the_way_of_all_others(client, pool):
    t = lt.empty(pool, (4, 100), torch.float16)
    after = lt.to_pool(pool, torch.ones(3))
    for empty in (lt.empty(pool, (0, 100), torch.float16), t[:0], t[4:], t[:, 100:], t.T[:0]):
        lt.publish(empty, "empty")
        got = lt.lookup(client, "empty")
        assert got.shape == empty.shape and got.dtype == torch.float16
    assert lt.array_of(t[4:]).id == lt.array_of(t).id and after.sum() == 3
    assert lt.array_of(t.numpy()[4:]).id == lt.array_of(t).id
    with pytest.raises(ValueError, match="does not lie in a pool"):
        lt.publish(torch.empty(0, 3), "x")


def test_memory_for_reading_only_comes_with_a_warning(client, pool):
    lt.publish(lt.to_pool(pool, torch.ones(3)), "x")
    with pytest.warns(UserWarning, match="read-only.*readonly_ok=True"):
        assert lt.tensor_of(client.lookup("x")).sum() == 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for told in (client.lookup("x", readonly_ok=True), client.lookup("x", mode="rw")):
            assert lt.tensor_of(told).sum() == 3
        assert lt.lookup(client, "x", mode="r").sum() == 3
    client.unpublish("x")


def test_copies_of_tensors_have_memory_of_their_own(pool):
    t = lt.to_pool(pool, torch.ones(3))
    made = copy.deepcopy({"t": t, "n": t.numpy(), "a": lt.array_of(t)})
    t.zero_()
    assert made["t"].sum() == 3 and made["n"].sum() == 3 and np.asarray(made["a"]).sum() == 3


class Decoder(torch.nn.Module if torch else object):
    """What has been missing: tied parameters, and a table that is not in state_dict()."""

    def __init__(self, tied=True):
        super().__init__()
        self.inner = torch.nn.Module()
        self.inner.embed = torch.nn.Embedding(10, 4)
        self.inner.head = torch.nn.Linear(4, 10, bias=False)
        if tied:
            self.inner.head.weight = self.inner.embed.weight
        self.inner.register_buffer("rope", torch.arange(4.0) * 2, persistent=False)
        self.inner.again = torch.nn.Module()
        self.inner.again.register_buffer("rope", self.inner.rope, persistent=False)
        self.register_buffer("count", torch.tensor(7))

    def forward(self, x):
        return self.inner.head(self.inner.embed(x) * self.inner.rope) + self.count


def on_meta(*arguments):
    with torch.device("meta"):
        return Decoder(*arguments)


@pytest.mark.parametrize("tied_here", [True, False])
def test_tied_parameters_stay_one_and_tables_come_along(client, pool, tied_here):
    there = Decoder()
    lt.publish_weights(pool, "model", there)
    weights = lt.attach_weights(client, "model")
    assert weights["inner.head.weight"] is weights["inner.embed.weight"]
    here = on_meta(tied_here)
    weights.load_into(here)
    assert here.inner.head.weight is here.inner.embed.weight
    assert len(list(here.parameters())) == 1 and not here.inner.head.weight.requires_grad
    assert here.inner.head.weight.data_ptr() == weights["inner.head.weight"].data_ptr()
    x = torch.tensor([1, 2])
    assert torch.equal(here(x), there(x))
    # a module may store to a buffer that is not persistent
    here.inner.rope.add_(1)
    assert here.inner.again.rope is here.inner.rope and there.inner.rope[0] == 0 and weights["inner.rope"][0] == 0
    assert "inner.rope" not in here.state_dict()


def test_a_name_of_a_tied_parameter_that_was_left_out_is_filled(client, pool):
    there = Decoder()
    names = {n: t for n, t in there.state_dict().items() if n != "inner.head.weight"}
    lt.publish_weights(pool, "model", {**names, "inner.rope": there.inner.rope, "inner.again.rope": there.inner.rope})
    here = lt.attach_weights(client, "model").load_into(on_meta())
    assert here.inner.head.weight is here.inner.embed.weight
    x = torch.tensor([1, 2])
    assert torch.equal(here(x), there(x))
    with pytest.raises(WeightsError, match="inner.head.weight"):
        lt.attach_weights(client, "model").load_into(on_meta(False))


def test_what_would_stay_on_meta_is_named(client, pool):
    lt.publish_weights(pool, "model", Decoder().state_dict())
    weights, here = lt.attach_weights(client, "model"), on_meta()
    with pytest.raises(WeightsError, match="'inner.rope', 'inner.again.rope'.*meta"):
        weights.load_into(here)
    assert here.count.is_meta  # nothing was changed
    with pytest.warns(UserWarning, match="'inner.rope'"):
        weights.load_into(here, strict=False)
    assert not here.count.is_meta
    made = Decoder()  # which has a table of its own
    assert weights.load_into(made).inner.rope[3] == 6
    lt.publish_weights(pool, "model", Decoder())
    here = on_meta()
    here.inner.table = torch.ones(3, device="meta")
    with pytest.raises(WeightsError, match="'inner.table'"):
        lt.attach_weights(client, "model").load_into(here)
    with pytest.raises(WeightsError, match="'count' cannot be shared: .*meta"):
        lt.publish_weights(pool, "meta", {"count": here.count})


def test_a_second_name_of_a_buffer_is_no_second_buffer(client, pool):
    class Rotary(torch.nn.Module):
        """Its second name is no part of its state."""

        def __init__(self):
            super().__init__()
            self.register_buffer("table", torch.arange(8.) * 2, persistent=False)
            self.original = self.table

    lt.publish_weights(pool, "model", Rotary())
    with torch.device("meta"):
        here = Rotary()
    for _ in range(2):
        lt.attach_weights(client, "model").load_into(here)
        assert here.original is here.table and torch.equal(here.table, torch.arange(8.) * 2)


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


def test_a_queue_carries_values_that_are_computed_when_they_are_read(pool, carry, monkeypatch):
    monkeypatch.setattr(lt, "_carrier", pool)
    z = lt.to_pool(pool, torch.tensor([1 + 2j]))
    assert carry(z.conj()).tolist() == [1 - 2j] and carry(z.conj().imag).tolist() == [-2]


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
        lt.mem_pool(pool)
