# SPDX-License-Identifier: MIT
"""As much of vLLM as a model loader meets, of its version 0.32: install() makes it importable as vllm.

A model can be made once in a process; processing packs what lies on a CPU, and transposes what kernels of a GPU want so;
what loads into a model that is there moves its parameters to "meta" first.
"""

import contextlib
import dataclasses
import sys
import types

import torch
from torch import nn

_layers = set()
_pre_processed = False
_restore = {}
LOADED = []


def another_process():
    _layers.clear()


@dataclasses.dataclass
class LoadConfig:
    load_format: str = "libshare"
    device: str | None = None
    model_loader_extra_config: dict = dataclasses.field(default_factory=dict)


class HfConfig:
    architectures = ("TinyForCausalLM",)

    def __init__(self, **values):
        self.values = values

    def to_dict(self):
        return {"architectures": list(self.architectures), "_name_or_path": "somewhere", **self.values}


def configs(checkpoint, method=None, path="/model", **more):
    """VllmConfig and ModelConfig, as far as they are looked at. checkpoint: the weights of the "files"."""
    model = types.SimpleNamespace(
        model=path, dtype=torch.float32, quantization=None, quantization_config=None, enable_sleep_mode=False, enforce_eager=True,
        hf_config=HfConfig(size=8), checkpoint=checkpoint, method=method or UnquantizedLinearMethod(),
        word_embeddings_untied_by_checkpoint=False)
    config = types.SimpleNamespace(
        model_config=model, device_config=types.SimpleNamespace(device=torch.device("cpu")), speculative_config=None,
        weight_transfer_config=None,
        parallel_config=types.SimpleNamespace(enable_eplb=False, enable_expert_parallel=False),
        offload_config=types.SimpleNamespace(uva=types.SimpleNamespace(cpu_offload_gb=0),
                                             prefetch=types.SimpleNamespace(offload_group_size=0)))
    for name, value in more.items():
        setattr(model if hasattr(model, name) else config, name, value)
    return config, model


class UnquantizedLinearMethod:
    supports_pre_processed_weights = True

    def process(self, layer, packs):
        if layer.weight.is_meta:
            layer.linear = nn.functional.linear
        elif packs:
            weight = layer.weight.detach().clone()
            layer.weight = nn.Parameter(torch.empty(0), requires_grad=False)
            layer.linear = lambda x, _: nn.functional.linear(x, weight)


class UnquantizedEmbeddingMethod(UnquantizedLinearMethod):
    def process(self, layer, packs):
        pass


class ColumnMajor(UnquantizedLinearMethod):
    """What kernels want transposed, with room behind each row, and a scale of its own."""

    def process(self, layer, packs):
        if not _pre_processed:
            room = torch.zeros(layer.weight.shape[1], layer.weight.shape[0] + 2)
            room[:, :-2] = layer.weight.t()
            layer.weight = nn.Parameter(room[:, :-2], requires_grad=False)
            layer.scale = nn.Parameter(torch.ones(1), requires_grad=False)
            del layer._parameters["unused"]
        layer.linear = lambda x, weight: x @ weight * layer.scale


class Layer(nn.Module):
    def __init__(self, name, rows, columns, method):
        super().__init__()
        if name in _layers:
            raise ValueError(f"Duplicate layer name: {name}")
        _layers.add(name)
        self.weight = nn.Parameter(torch.empty(rows, columns), requires_grad=False)
        self.weight.output_dim = 0
        if isinstance(method, ColumnMajor):
            self.unused = nn.Parameter(torch.empty(3), requires_grad=False)
        self.quant_method = method
        self.kv_cache = torch.tensor([])  # as an attention has it

    def forward(self, x):
        return self.linear(x, self.weight)


class Tiny(nn.Module):
    def __init__(self, model_config):
        super().__init__()
        self.embedding = Layer("embedding", 16, 8, UnquantizedEmbeddingMethod())
        self.middle = Layer("middle", 8, 8, model_config.method)
        self.head = self.embedding  # tied
        if model_config.word_embeddings_untied_by_checkpoint:
            self.head = Layer("head", 16, 8, UnquantizedEmbeddingMethod())
        self.register_buffer("cache", torch.arange(8.0), persistent=False)

    def forward(self, tokens):
        x = nn.functional.embedding(tokens, self.embedding.weight) + self.cache
        return nn.functional.linear(self.middle(x), self.head.weight)

    def load_weights(self, weights):
        own = dict(self.named_parameters())
        for name, tensor in weights:
            own[name].data.copy_(tensor)
            LOADED.append(name)
        return set(own)


def initialize_model(vllm_config, *, prefix="", model_config=None):
    return Tiny(model_config or vllm_config.model_config)


def maybe_retie_word_embeddings(model, model_config):
    if model_config.word_embeddings_untied_by_checkpoint and torch.equal(model.head.weight.cpu(), model.embedding.weight.cpu()):
        model.head.weight = model.embedding.weight


def process_weights_after_loading(model, model_config, target_device):
    maybe_retie_word_embeddings(model, model_config)
    for name, module in model.named_modules():
        method = getattr(module, "quant_method", None)
        if method is None:
            continue
        if _pre_processed and not method.supports_pre_processed_weights:
            raise RuntimeError(f"layer {name}: does not support pre-processed weights")
        method.process(module, packs=True)


@contextlib.contextmanager
def weights_already_processed():
    global _pre_processed
    _pre_processed = True
    try:
        yield
    finally:
        _pre_processed = False


@contextlib.contextmanager
def set_default_torch_dtype(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    yield
    torch.set_default_dtype(before)


class BaseModelLoader:
    def __init__(self, load_config):
        self.load_config = load_config


class DefaultModelLoader(BaseModelLoader):
    def __init__(self, load_config):
        super().__init__(load_config)
        assert load_config.load_format == "auto" and load_config.model_loader_extra_config == {}

    def download_model(self, model_config):
        LOADED.append("download")

    def load_weights(self, model, model_config):
        model.load_weights(model_config.checkpoint.items())

    def load_model(self, vllm_config, model_config, prefix=""):
        with vllm_config.device_config.device:
            model = initialize_model(vllm_config, model_config=model_config)
            self.load_weights(model, model_config)
            process_weights_after_loading(model, model_config, vllm_config.device_config.device)
        return model.eval()


LOADERS = {"auto": DefaultModelLoader}


def register_model_loader(load_format):
    def add(cls):
        assert issubclass(cls, BaseModelLoader)
        LOADERS[load_format] = cls
        return cls
    return add


def initialize_layerwise_reload(model):
    for module in model.modules():
        _restore[module] = dict(module._parameters)
        for leaf, p in module._parameters.items():
            module._parameters[leaf] = nn.Parameter(p.to("meta"), requires_grad=False)


def finalize_layerwise_reload(model, model_config):
    for module in model.modules():
        if module in _restore:
            module._parameters.update(_restore.pop(module))


def reload_weights(load_config, model, model_config, weights_iterator=None, weights_path=None, is_checkpoint_format=True):
    if weights_iterator is None:
        loader = LOADERS[load_config.load_format](load_config)
        if weights_path is not None:
            model_config.model = weights_path
        weights_iterator = loader.get_all_weights(model_config, model)
    if is_checkpoint_format:
        initialize_layerwise_reload(model)
        assert model.load_weights(weights_iterator) == {name for name, _ in model.named_parameters()}
        finalize_layerwise_reload(model, model_config)
    else:
        for name, tensor in weights_iterator:
            model.get_parameter(name).copy_(tensor)


class _Logger:
    def info(self, *_):
        pass


def install(monkeypatch):
    of = {
        "vllm": {"__version__": "0.32.0"},
        "vllm.distributed": {"get_pp_group": lambda: types.SimpleNamespace(rank_in_group=0, world_size=1),
                             "get_tensor_model_parallel_rank": lambda: 0, "get_tensor_model_parallel_world_size": lambda: 1},
        "vllm.logger": {"init_logger": lambda name: _Logger()},
        "vllm.model_executor": {},
        "vllm.model_executor.model_loader": {"register_model_loader": register_model_loader},
        "vllm.model_executor.model_loader.base_loader": {"BaseModelLoader": BaseModelLoader},
        "vllm.model_executor.model_loader.default_loader": {"DefaultModelLoader": DefaultModelLoader},
        "vllm.model_executor.model_loader.reload": {"finalize_layerwise_reload": finalize_layerwise_reload},
        "vllm.model_executor.model_loader.utils": {"initialize_model": initialize_model,
                                                   "process_weights_after_loading": process_weights_after_loading},
        "vllm.model_executor.model_loader.weight_tying": {"maybe_retie_word_embeddings": maybe_retie_word_embeddings},
        "vllm.model_executor.utils": {"weights_already_processed": weights_already_processed},
        "vllm.utils": {},
        "vllm.utils.torch_utils": {"set_default_torch_dtype": set_default_torch_dtype},
    }
    for name, members in of.items():
        module = types.ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "libshare._vllm_loader", raising=False)
    _layers.clear()
    LOADED.clear()
