# SPDX-License-Identifier: MIT
"""The loader for vLLM: its options and names, and, where there is torch, the loader over a stand-in of what vLLM calls it
with. vllm_engine_test.py has the same with a real vLLM.
"""

import gc
import importlib.metadata
import subprocess
import sys

import numpy as np
import pytest

import libshare
import libshare.vllm as lv
from conftest import until
from libshare.weights import WeightsError, attach_weights, publish_weights

try:
    import torch

    import vllm_standin as standin
except ImportError:
    torch = None
needs_torch = pytest.mark.skipif(torch is None, reason="there is no torch here")
KEY = {"vllm": "0.32.0", "model": "A", "dtype": "float32", "tensor parallel": [0, 2]}


@pytest.fixture(autouse=True)
def tidy(broker, client):
    yield
    gc.collect()
    for n in broker.names():
        broker.unpublish(n.name)


# ------------------------------------------------------------------------------------------------
# Without torch


def test_options_are_checked():
    assert lv.Options.of({"name": "x"}) == lv.Options("x", "attach", "vllm", None, 600.0, None)
    assert lv.Options.of({"name": "x", "role": "publish", "limit": "1GiB", "timeout": None}).timeout is None
    for wrong, words in (({}, "needs a name"), (None, "needs a name"), ({"name": ""}, "needs a name"), ({"name": 3}, "name is a text"),
                         ({"name": "x", "rolle": "publish"}, "no option 'rolle', but name, role"),
                         ({"name": "x", "role": "both"}, "'attach' or 'publish', not 'both'"),
                         ({"name": "x", "pool": None}, "pool is a text"), ({"name": "x", "pool": ""}, "pool is the name of a pool"),
                         (["x"], r'an object, {"name": "chat"}, not \[\'x\'\]'), ("x", "an object"),
                         ({"name": "x" * 181}, "name has 180 bytes at most, not 181"), ({"name": "x", "socket": 3}, "socket is a text, not 3"),
                         *(({"name": "x", "limit": t}, 'limit is a size, such as "80GiB"') for t in ("much", "", 0, -1, 1.5, True, [1], 1 << 63)),
                         *(({"name": "x", "timeout": t}, "timeout is seconds") for t in (-1, "1", True, 1e9, float("nan")))):
        with pytest.raises(ValueError, match=words):
            lv.Options.of(wrong)


def test_engines_that_differ_have_other_names():
    options = lv.Options("x")
    names = {lv.name_of(options, KEY)} | {lv.name_of(options, KEY | {field: "other"}) for field in KEY}
    assert len(names) == len(KEY) + 1 and all(name.startswith("x/") for name in names)
    assert lv.name_of(options, dict(reversed(KEY.items()))) == lv.name_of(options, KEY)


def test_who_finds_nothing_is_told_what_is_there(client, pool):
    options = lv.Options("x")

    def publish(key, name=None):
        publish_weights(pool, name or lv.name_of(options, key), {"a": np.zeros(2)}, metadata={"key": key})

    with pytest.raises(WeightsError, match="'x' are published for this engine: nothing is.*role \"publish\""):
        lv.find(client, options, KEY, 0)
    publish(KEY | {"dtype": "bfloat16", "model": "B"})
    publish(KEY | {"dtype": "bfloat16"})
    pool.publish("x/array", np.zeros(3))  # something else
    publish_weights(pool, "x/weights", {"a": np.zeros(2)})
    with pytest.raises(WeightsError, match=r": dtype is 'bfloat16' there and 'float32' here\."):
        lv.find(client, options, KEY, 0.01)
    publish(KEY)
    assert lv.find(client, options, KEY, 0)["a"].shape == (2,)


def test_vllm_finds_it_and_nothing_else_is_imported():
    try:
        points = importlib.metadata.distribution("libshare").entry_points
    except importlib.metadata.PackageNotFoundError:
        pass  # used in place
    else:
        assert [p.value for p in points if p.group == "vllm.general_plugins"] == ["libshare.vllm:register"]
    code = "import sys, libshare.vllm; print(sorted({'torch', 'numpy', 'vllm', 'libshare.torch'} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True).stdout == "[]\n"


# ------------------------------------------------------------------------------------------------
# The loader


@pytest.fixture
def load(broker, monkeypatch):
    """load(checkpoint or None, role="attach", …): a model as an engine of its own has it, and how it was asked for."""
    standin.install(monkeypatch)
    monkeypatch.setenv("SHARE_SOCKET", broker.address)
    lv.register()

    def load(checkpoint, role="attach", extra=(), **more):
        standin.another_process()
        load_config = standin.LoadConfig("libshare", None, {"name": "tiny", "role": role, "timeout": 0, **dict(extra)})
        config, model_config = standin.configs(checkpoint, **more)
        model = standin.LOADERS["libshare"](load_config).load_model(vllm_config=config, model_config=model_config)
        return model, load_config, model_config

    yield load
    sys.modules.pop("libshare._vllm_loader", None)
    vars(libshare).pop("_vllm_loader", None)


def checkpoint(seed=0):
    torch.manual_seed(seed)
    return {"embedding.weight": torch.randn(16, 8), "middle.weight": torch.randn(8, 8)}


def result(model):
    with torch.inference_mode():
        return model(torch.arange(5))


def plain(seed=0, weights=None, **more):
    standin.another_process()
    config, model_config = standin.configs(weights or checkpoint(seed), **more)
    return result(standin.DefaultModelLoader(standin.LoadConfig("auto")).load_model(config, model_config))


def lies_in_pool(model):
    return [libshare.array_of(p.detach().view(-1) if p.is_contiguous() else p.detach()).readonly for p in model.parameters()]


@needs_torch
def test_engines_have_one_copy(broker, load):
    right = plain()
    publisher, _, _ = load(checkpoint(), "publish")
    standin.LOADED.clear()
    one, _, _ = load(None)
    two, _, _ = load(None)
    assert standin.LOADED == []  # nothing was read
    for model in (publisher, one, two):
        assert torch.equal(result(model), right) and not model.training
        assert lies_in_pool(model) == [True, True]
        assert model.head.weight is model.embedding.weight and model.embedding.weight.output_dim == 0
        assert not any(p.requires_grad for p in model.parameters()) and model.middle.kv_cache.device.type == "cpu"
    assert len({libshare.array_of(m.middle.weight.detach()).id for m in (publisher, one, two)}) == 1
    # a buffer may be stored to
    one.cache.zero_()
    assert two.cache[7] == 7 == publisher.cache[7] and torch.equal(result(two), right)


@needs_torch
@pytest.mark.parametrize("processed", [False, True])
@pytest.mark.parametrize("same", [False, True])
def test_a_checkpoint_may_have_the_embeddings_twice(load, monkeypatch, same, processed):
    weights = checkpoint()
    weights["head.weight"] = weights["embedding.weight"] + (0 if same else 1)
    how = {"word_embeddings_untied_by_checkpoint": True, "method": standin.ColumnMajor() if processed else None}
    right = plain(weights=weights, **how)
    if processed:
        import libshare._vllm_loader as loader

        monkeypatch.setattr(loader, "_processed", lambda device: True)
    for model, _, model_config in (load(weights, "publish", **how), load(None, **how)):
        assert torch.equal(result(model), right)
        assert (model.head.weight is model.embedding.weight) == same and (processed or all(lies_in_pool(model)))
        assert model_config.word_embeddings_untied_by_checkpoint


@needs_torch
def test_what_kernels_want_in_another_order_stays_so(broker, load, monkeypatch):
    right = plain(method=standin.ColumnMajor())
    import libshare._vllm_loader as loader

    monkeypatch.setattr(loader, "_processed", lambda device: True)
    publisher, _, _ = load(checkpoint(), "publish", method=standin.ColumnMajor())
    one, _, _ = load(None, method=standin.ColumnMajor())
    for model in (publisher, one):
        assert torch.equal(result(model), right)
        assert model.middle.weight.stride() == (10, 1) and model.middle.weight.shape == (8, 8)
        assert model.middle.scale.tolist() == [1]
    assert one.middle.unused.numel() == 0 and all(lies_in_pool(publisher))


@needs_torch
def test_an_engine_that_cannot_serve_publishes_nothing(broker, load, monkeypatch):
    import libshare._vllm_loader as loader

    def fails(*_):
        raise RuntimeError("no such layer")

    def left():
        gc.collect()
        return [n.name for n in broker.names()], [row["pool"] for row in broker.inspect("pools") if row["pool"] == "vllm"]

    for step in ("place", "protect"):
        with monkeypatch.context() as m:
            m.setattr(loader.Shared, step, fails)
            with pytest.raises(RuntimeError, match="no such layer"):
                load(checkpoint(), "publish")
        until(lambda: left() == ([], []))
    # nor does it take what was published before
    load(checkpoint(1), "publish")
    before = left()
    with monkeypatch.context() as m:
        m.setattr(loader.Shared, "place", fails)
        with pytest.raises(RuntimeError, match="no such layer"):
            load(checkpoint(2), "publish")
    assert left() == before and len(before[0]) == 1
    one, _, _ = load(None)
    assert torch.equal(result(one), plain(1))


@needs_torch
def test_a_publisher_downloads_and_others_do_not(load):
    for role, wanted in (("attach", []), ("publish", ["download"])):
        standin.LOADERS["libshare"](standin.LoadConfig("libshare", None, {"name": "x", "role": role})).download_model(None)
        assert standin.LOADED == wanted


@needs_torch
def test_what_would_store_or_pack_is_refused_before_anything_is_made(broker, load):
    from types import SimpleNamespace as N

    class Packs(standin.UnquantizedLinearMethod):
        pass

    class Online(standin.UnquantizedLinearMethod):
        uses_meta_device = True

    for more, error, words in (
            ({"enable_sleep_mode": True}, ValueError, "--enable-sleep-mode"),
            ({"parallel_config": N(enable_eplb=True)}, ValueError, "--enable-eplb"),
            ({"weight_transfer_config": object()}, ValueError, "publish the next version"),
            ({"offload_config": N(uva=N(cpu_offload_gb=1))}, ValueError, "offloading"),
            ({"offload_config": N(prefetch=N(offload_group_size=2))}, ValueError, "offloading"),
            ({"method": Packs()}, NotImplementedError, "'middle': Packs packs its weights on a CPU"),
            ({"method": Online()}, NotImplementedError, "quantizes while it loads")):
        with pytest.raises(error, match=words):
            load(checkpoint(), "publish", **more)
    assert broker.names() == []


@needs_torch
def test_what_cannot_take_processed_weights_is_refused(load, monkeypatch):
    class Never(standin.UnquantizedLinearMethod):
        supports_pre_processed_weights = False

    import libshare._vllm_loader as loader

    monkeypatch.setattr(loader, "_processed", lambda device: True)
    with pytest.raises(NotImplementedError, match="Never cannot take weights that were processed"):
        load(checkpoint(), "publish", method=Never())


@needs_torch
def test_nothing_is_stored_in_place(load):
    right = plain()
    load(checkpoint(), "publish")
    model, load_config, model_config = load(None)
    new = {name: t + 1 for name, t in checkpoint().items()}
    for store in (
            lambda: standin.reload_weights(load_config, model, model_config, new.items()),
            lambda: standin.reload_weights(load_config, model, model_config, new.items(), is_checkpoint_format=False),
            lambda: standin.reload_weights(load_config, model, model_config, weights_path="/elsewhere"),
            lambda: model.load_weights(new.items()),
            lambda: model.middle.weight.copy_(new["middle.weight"]),
            lambda: model.middle.weight.weight_loader(model.middle.weight, new["middle.weight"])):
        with pytest.raises(RuntimeError, match="publish"):
            store()
        assert torch.equal(result(model), right) and all(lies_in_pool(model))
    assert model_config.model == "/model"


@needs_torch
def test_the_next_version_is_taken_when_it_is_asked_for(broker, load):
    load(checkpoint(), "publish")
    (one, *asked), (two, *_) = load(None), load(None)
    standin.reload_weights(asked[0], one, asked[1])  # there is none
    assert torch.equal(result(one), plain())
    load(checkpoint(1), "publish")
    assert torch.equal(result(one), plain()) and torch.equal(result(two), plain())
    cache = one.cache
    standin.reload_weights(asked[0], one, asked[1])
    assert torch.equal(result(one), plain(1)) and torch.equal(result(two), plain())
    assert all(lies_in_pool(one)) and one.head.weight is one.embedding.weight and one.cache is cache
    with pytest.raises(RuntimeError, match="publish"):
        one.middle.weight.copy_(torch.zeros(8, 8))
    load(checkpoint(2), "publish")
    standin.LOADERS["libshare"](asked[0]).load_weights(one, asked[1])  # the same by another call of vLLM's
    assert torch.equal(result(one), plain(2))
    three, _, _ = load(None)
    assert torch.equal(result(three), plain(2))
    # nobody has the version in between
    gc.collect()
    del two
    gc.collect()
    assert len({row["name"] for row in broker.inspect("names")}) == 1


@needs_torch
@pytest.mark.parametrize("more", [{"enforce_eager": False}, {"method": None}])
def test_an_engine_that_has_recorded_addresses_keeps_its_version(load, monkeypatch, more):
    if "method" in more:
        import libshare._vllm_loader as loader

        monkeypatch.setattr(loader, "_processed", lambda device: True)
        more = {"method": standin.ColumnMajor()}
    load(checkpoint(), "publish", **more)
    model, *asked = load(None, **more)
    before = result(model)
    load(checkpoint(1), "publish", **more)
    with pytest.raises(RuntimeError, match="--enforce-eager.*Start an engine"):
        standin.reload_weights(asked[0], model, asked[1])
    assert torch.equal(result(model), before)


@needs_torch
def test_a_version_of_other_tensors_is_refused(broker, client, load):
    load(checkpoint(), "publish")
    model, *asked = load(None)
    (name,) = (n.name for n in broker.names())
    found = attach_weights(client, name)
    with client.pool("vllm", create=False) as pool:
        for wrong, words in (({}, "has 3 tensors, and this engine 4"), ({"middle.weight": np.zeros((8, 9), np.float32)}, "not as in"),
                             ({"other": np.zeros(3, np.float32)}, "not as in")):
            tensors = {n: np.asarray(a) for n, a in found.items()} | wrong
            if not wrong:
                tensors.popitem()
            publish_weights(pool, name, tensors, persistent=True, metadata=found.metadata)
            with pytest.raises(WeightsError, match=words):
                standin.reload_weights(asked[0], model, asked[1])
            assert torch.equal(result(model), plain())
    found = None


@needs_torch
def test_an_engine_that_nobody_publishes_for_is_told_how_they_differ(load):
    load(checkpoint(), "publish")
    for more, words in (({"dtype": torch.bfloat16}, "dtype is 'float32' there and 'bfloat16' here"),
                        ({"hf_config": standin.HfConfig(size=9)}, "configuration is"),
                        ({"quantization": "fp8"}, "quantization is 'None' there and 'fp8' here")):
        with pytest.raises(WeightsError, match=words):
            load(None, **more)
    with pytest.raises(WeightsError, match="'other' are published for this engine: nothing is"):
        load(None, extra={"name": "other"})


@needs_torch
def test_where_a_model_was_copied_to_is_no_difference(load):
    load(checkpoint(), "publish", path="/one")
    model, _, _ = load(None, path="/two")
    assert torch.equal(result(model), plain())
