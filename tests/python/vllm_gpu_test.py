# SPDX-License-Identifier: MIT
"""The loader for vLLM on a GPU, over the stand-in of vllm_standin.py: what is published is as kernels want it. frameworks.py runs
each test in a process of its own, on a machine with a GPU; SHARE_TEST_KINDS is the kind of memory. vllm_test.py has what needs no GPU.
"""

import os
import subprocess
import sys

import pytest

import libshare
import libshare.vllm as lv
from libshare.weights import WeightsError

try:
    import torch

    import vllm_standin as standin

    here = torch.cuda.is_available()
except ImportError:
    here = False
pytestmark = pytest.mark.skipif(not here, reason="there is no torch with a GPU here")


def configs(checkpoint, **more):
    config, model = standin.configs(checkpoint, method=standin.ColumnMajor(), **more)
    config.device_config.device = torch.device("cuda", 0)
    return config, model


def checkpoint(seed=0, size=8):
    torch.manual_seed(seed)
    return {"embedding.weight": torch.randn(16, size), "middle.weight": torch.randn(size, size)}


def load(weights, role="attach"):
    standin.another_process()
    load_config = standin.LoadConfig("libshare", None, {"name": "tiny", "role": role, "timeout": 0, "pool": "weights"})
    config, model_config = configs(weights)
    model = standin.LOADERS["libshare"](load_config).load_model(vllm_config=config, model_config=model_config)
    return model, load_config, model_config


def result(model):
    with torch.inference_mode():
        return model(torch.arange(5, device="cuda"))


def plain(seed=0):
    standin.another_process()
    config, model_config = configs(checkpoint(seed))
    return result(standin.DefaultModelLoader(standin.LoadConfig("auto")).load_model(config, model_config))


@pytest.fixture
def broker(monkeypatch):
    torch.zeros(1, device="cuda")
    standin.install(monkeypatch)
    with libshare.connect("embedded") as owner:
        uuid = f"GPU-{torch.cuda.get_device_properties(0).uuid}"
        owner.pool(f"weights.{uuid}", kind=os.environ.get("SHARE_TEST_KINDS", "vmm"), device=uuid, limit="256MiB", persistent=True)
        monkeypatch.setenv("SHARE_SOCKET", owner.address)
        lv.register()
        yield owner
        for n in owner.names():
            owner.unpublish(n.name)
    sys.modules.pop("libshare._vllm_loader", None)
    vars(libshare).pop("_vllm_loader", None)


def ids(model):
    return {libshare.array_of(p.detach().as_strided((1,), (1,))).id for p in model.parameters() if p.numel()}


def test_engines_have_one_copy_of_what_kernels_want(broker):
    right = plain()
    publisher, _, _ = load(checkpoint(), "publish")
    standin.LOADED.clear()
    one, _, _ = load(None)
    assert standin.LOADED == []  # nothing was read
    for model in (publisher, one):
        assert torch.equal(result(model), right) and all(t.is_cuda for t in [*model.parameters(), *model.buffers()])
        assert model.middle.weight.stride() == (10, 1) and model.middle.kv_cache.is_cuda
        assert model.head.weight is model.embedding.weight
    assert ids(publisher) == ids(one) and len(ids(one)) == 1
    one.cache.zero_()  # a buffer is each engine's own
    assert publisher.cache[7] == 7


def test_another_process_has_the_same_copy(broker):
    publisher, _, _ = load(checkpoint(), "publish")
    done = subprocess.run([sys.executable, __file__], text=True, stdout=subprocess.PIPE, check=True)
    first, *rest = done.stdout.split()
    assert {int(first)} == ids(publisher)
    assert torch.equal(torch.tensor([float(x) for x in rest], device="cuda"), result(publisher).flatten())


def test_an_engine_keeps_the_version_whose_addresses_it_has_recorded(broker):
    load(checkpoint(), "publish")
    model, *asked = load(None)
    load(checkpoint(1), "publish")
    with pytest.raises(RuntimeError, match="--enforce-eager.*Start an engine"):
        standin.reload_weights(asked[0], model, asked[1])
    assert torch.equal(result(model), plain())
    assert torch.equal(result(load(None)[0]), plain(1))


def test_nothing_is_stored_to(broker):
    load(checkpoint(), "publish")
    model, *asked = load(None)
    for store in (lambda: standin.reload_weights(asked[0], model, asked[1], checkpoint(1).items()),
                  lambda: model.middle.weight.copy_(torch.zeros(8, 8, device="cuda")),
                  lambda: model.middle.weight.weight_loader(model.middle.weight, torch.zeros(8, 8))):
        with pytest.raises(RuntimeError, match="publish"):
            store()
    assert torch.equal(result(model), plain())


def test_weights_of_another_configuration_are_not_taken(broker):
    load(checkpoint(), "publish")
    standin.another_process()
    config, model_config = configs(None, dtype=torch.bfloat16)
    load_config = standin.LoadConfig("libshare", None, {"name": "tiny", "timeout": 0, "pool": "weights"})
    with pytest.raises(WeightsError, match="dtype is 'float32' there and 'bfloat16' here"):
        standin.LOADERS["libshare"](load_config).load_model(vllm_config=config, model_config=model_config)


if __name__ == "__main__":  # an engine of its own: which buffer it has, and what it says
    with pytest.MonkeyPatch.context() as patches:
        standin.install(patches)
        lv.register()
        own, _, _ = load(None)
        print(*ids(own), *(repr(float(x)) for x in result(own).flatten()))
