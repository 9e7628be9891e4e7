# SPDX-License-Identifier: MIT
"""The model loader of libshare.vllm. Tested with vLLM 0.32.

A model is made on the device "meta", and its parameters become the pool's memory. On a GPU, what is
published was processed by vLLM as for its kernels. On a CPU vLLM packs weights into memory that nobody
else can have; so what is published there is as it was loaded, and engines compute with torch's own
functions, which is slower than vLLM's.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import logging
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

import torch
import vllm
from torch import nn
from vllm.distributed import get_pp_group, get_tensor_model_parallel_rank, get_tensor_model_parallel_world_size
from vllm.logger import init_logger
from vllm.model_executor.model_loader.base_loader import BaseModelLoader
from vllm.model_executor.model_loader.default_loader import DefaultModelLoader
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload
from vllm.model_executor.model_loader.utils import initialize_model, process_weights_after_loading
from vllm.model_executor.model_loader.weight_tying import maybe_retie_word_embeddings
from vllm.model_executor.utils import weights_already_processed
from vllm.utils.torch_utils import set_default_torch_dtype

from . import vllm as ours
from ._core import Client
from .torch import Weights, _everything_in, publication_of
from .weights import Publication, WeightsError

logger = init_logger("vllm.libshare")

#: What of vLLM's methods for layers computes on a CPU with weights as they were loaded.
_PLAIN = {"UnquantizedLinearMethod", "UnquantizedEmbeddingMethod"}


def _processed(device: torch.device) -> bool:
    """Whether what is published there is as vLLM's kernels want it."""
    return device.type != "cpu"


class Loader(BaseModelLoader):
    def __init__(self, load_config: Any):
        super().__init__(load_config)
        self.options = ours.Options.of(load_config.model_loader_extra_config)
        self._default = DefaultModelLoader(
            dataclasses.replace(load_config, load_format="auto", model_loader_extra_config={}))

    def download_model(self, model_config: Any) -> None:
        if self.options.role == "publish":
            self._default.download_model(model_config)

    def load_model(self, vllm_config: Any, model_config: Any, prefix: str = "") -> nn.Module:
        _refuse(vllm_config, model_config)
        device = self._device(vllm_config)
        key = _key(vllm_config, model_config, device)
        client = ours.client_of(self.options)
        publication = None
        with set_default_torch_dtype(model_config.dtype):
            if self.options.role == "publish":
                model, publication = self._in_pool(client, key, vllm_config, model_config, prefix, device)
                found = publication.attach()
            else:
                found = ours.find(client, self.options, key, self.options.timeout)
                with torch.device("meta"):
                    model = initialize_model(vllm_config=vllm_config, model_config=model_config, prefix=prefix)
                _refuse_layers(model, device)
            if not _processed(device):
                # On "meta" nothing is packed: the functions that take the weights as they are get chosen.
                with _no_values_compared(model_config):
                    process_weights_after_loading(model, model_config, device)
            shared = Shared(self, model, model_config, client, key, device)
            shared.place(Weights(found))
            if _processed(device) and self.options.role != "publish":
                with weights_already_processed():
                    process_weights_after_loading(model, model_config, device)
        shared.protect()
        if publication is not None:  # an engine that cannot serve them has published nothing
            shared.is_version(publication.publish(persistent=True))
        logger.info("libshare: %d tensors of %r, version %d, are this engine's weights", len(shared.weights),
                    self.options.name, shared.weights.version)
        return model.eval()

    def _in_pool(self, client: Client, key: dict[str, Any], vllm_config: Any, model_config: Any, prefix: str,
                 device: torch.device) -> tuple[nn.Module, Publication]:
        """The model, with its parameters on the device "meta" again, as vLLM makes a model once in a process; and its
        weights in the pool."""
        if not _processed(device):
            with device:
                model = initialize_model(vllm_config=vllm_config, model_config=model_config, prefix=prefix)
            _refuse_layers(model, device)
            self._default.load_weights(model, model_config)
            maybe_retie_word_embeddings(model, model_config)  # as processing does where there are values
        else:
            model = self._default.load_model(vllm_config=vllm_config, model_config=model_config, prefix=prefix)
            _refuse_layers(model, device)
        buffers = dict(model.named_buffers(remove_duplicate=False))
        tensors, strided = {}, {}
        for name, t in {**dict(model.named_parameters(remove_duplicate=False)), **buffers}.items():
            t = t.detach()
            if not t.is_contiguous():  # kernels want it so
                strided[name] = [list(t.shape), list(t.stride())]
                t = t.as_strided((1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride())),), (1,))
            tensors[name] = t
        where: dict[str, Any] = {"kind": "host"}
        name = self.options.pool
        if device.type != "cpu":
            where = {"device": key["device"]}
            name = f"{name}.{key['device']}"
        pool = client.pool(name, limit=self.options.limit, **where)
        publication = publication_of(pool, ours.name_of(self.options, key), tensors, metadata={
            "key": key, "strided": strided, "buffers": sorted(buffers)})
        for module in model.modules():
            for leaf, p in module._parameters.items():
                if p is not None:
                    module._parameters[leaf] = _parameter(p.to("meta"), p)
        return model, publication

    def get_external_weight_memory(self, vllm_config: Any) -> int:
        """What of the device's memory is used by weights that lie there before this engine starts."""
        device = self._device(vllm_config)
        if device.type == "cpu" or self.options.role == "publish":
            return 0
        key = _key(vllm_config, vllm_config.model_config, device)
        weights = ours.find(ours.client_of(self.options), self.options, key, self.options.timeout)
        return sum({array.ptr: array.nbytes for array in weights.values()}.values())

    # What vLLM calls to load into a model that is there.

    def load_weights(self, model: nn.Module, model_config: Any) -> None:
        _shared_of(model).next_version()

    def get_all_weights(self, model_config: Any, model: nn.Module) -> Iterable[tuple[str, torch.Tensor]]:
        shared = _shared_of(model)
        if model_config.model != shared.path:
            asked, model_config.model = model_config.model, shared.path
            raise RuntimeError(f"the weights of {asked!r} cannot be loaded into an engine with the load format libshare: "
                               f"publish them as {shared.options.name!r}, and reload_weights() without a path takes them")
        shared.next_version()
        return _NextVersion()

    def _device(self, vllm_config: Any) -> torch.device:
        device = torch.device(self.load_config.device or vllm_config.device_config.device)
        if device.type == "cuda" and device.index is None:
            device = torch.device("cuda", torch.cuda.current_device())
        return device


class _NextVersion:
    """Weights that are in place already."""

    def __iter__(self) -> Iterator[tuple[str, torch.Tensor]]:
        return iter(())


# ------------------------------------------------------------------------------------------------
# Which weights


def _key(vllm_config: Any, model_config: Any, device: torch.device) -> dict[str, Any]:
    """What an engine has to have in common with who has published its weights."""
    config = model_config.hf_config.to_dict()
    for place in ("_name_or_path", "transformers_version"):
        config.pop(place, None)
    parallel, speculative = vllm_config.parallel_config, getattr(vllm_config, "speculative_config", None)
    return {
        "vllm": vllm.__version__,
        "model": " ".join(config.get("architectures") or ()),
        "configuration": hashlib.sha256(json.dumps(config, sort_keys=True, default=str).encode()).hexdigest()[:16],
        "dtype": str(model_config.dtype).removeprefix("torch."),
        "quantization": str(getattr(model_config, "quantization_config", None) or model_config.quantization),
        "tensor parallel": [get_tensor_model_parallel_rank(), get_tensor_model_parallel_world_size()],
        "pipeline parallel": [get_pp_group().rank_in_group, get_pp_group().world_size],
        # each replica has some of the experts then, else all of them have the same
        "data parallel": [parallel.data_parallel_rank, parallel.data_parallel_size]
                         if getattr(parallel, "enable_expert_parallel", False) else None,
        "draft": speculative is not None and model_config is getattr(speculative, "draft_model_config", None),
        "device": "cpu" if device.type == "cpu" else f"GPU-{torch.cuda.get_device_properties(device).uuid}",
    }


def _refuse(vllm_config: Any, model_config: Any) -> None:
    """What would store to the weights, or move them."""
    offload = getattr(vllm_config, "offload_config", None)
    for asked, option, why in (
            (getattr(model_config, "enable_sleep_mode", False), "--enable-sleep-mode", "others have the same weights awake"),
            (getattr(vllm_config.parallel_config, "enable_eplb", False), "--enable-eplb", "it moves experts in place"),
            (getattr(vllm_config, "weight_transfer_config", None), "--weight-transfer-config",
             "it stores to weights; publish the next version instead"),
            (getattr(getattr(offload, "uva", None), "cpu_offload_gb", 0)
             or getattr(getattr(offload, "prefetch", None), "offload_group_size", 0),
             "offloading of weights", "they would be copied")):
        if asked:
            raise ValueError(f"the load format libshare does not go with {option}: {why}")


def _refuse_layers(model: nn.Module, device: torch.device) -> None:
    for name, module in model.named_modules():
        method = getattr(module, "quant_method", None)
        kind = type(method).__name__
        if method is None:
            continue
        if getattr(method, "uses_meta_device", False):
            why = "quantizes while it loads: publish a checkpoint that is quantized"
        elif not _processed(device) and kind not in _PLAIN:
            why = f"packs its weights on a CPU; only {' and '.join(sorted(_PLAIN))} do not have to"
        elif _processed(device) and not getattr(method, "supports_pre_processed_weights", False):
            why = "cannot take weights that were processed before"
        else:
            continue
        raise NotImplementedError(f"the load format libshare cannot share the layer {name or 'of all'!r}: {kind} {why}")


# ------------------------------------------------------------------------------------------------
# A model whose weights are shared


def _parameter(tensor: torch.Tensor, before: torch.Tensor | None) -> nn.Parameter:
    made = nn.Parameter(tensor, requires_grad=False)
    if before is not None:  # how the tensor is split, and the like
        made.__dict__.update(before.__dict__)
    return made


def _refused(*_: Any, **__: Any) -> NoReturn:
    raise RuntimeError("the weights of an engine with the load format libshare cannot be stored to, as other engines have "
                       "the same: publish the next version, and collective_rpc(\"reload_weights\") takes it")


def _shared_of(model: nn.Module) -> Shared:
    shared = vars(model).get("_libshare")
    if shared is None:
        raise RuntimeError("this model was not loaded with the load format libshare")
    return shared


class Shared:
    """A model and the version of the weights that it has."""

    weights: Weights

    def __init__(self, loader: Loader, model: nn.Module, model_config: Any, client: Client, key: dict[str, Any],
                 device: torch.device):
        self.options, self.model, self.model_config = loader.options, model, model_config
        self.client, self.key, self.device, self.path = client, key, device, model_config.model
        # as they are now: LoRA puts other modules in the place of these
        self.modules = dict(model.named_modules(remove_duplicate=False))

    def _tensors(self, weights: Weights) -> dict[str, torch.Tensor]:
        """Names of one tensor have one object."""
        made: dict[Any, torch.Tensor] = {}
        found = {}
        for name, t in weights.items():
            shape, strides = weights.metadata["strided"].get(name, (t.shape, t.stride()))
            same = (t.data_ptr() or name, t.dtype, tuple(shape), tuple(strides))
            if same not in made:
                made[same] = t.as_strided(shape, strides)
            found[name] = made[same]
        return found

    def place(self, weights: Weights) -> None:
        """Makes these the model's weights. Buffers are the engine's own: vLLM stores to some of them."""
        tensors, buffers = self._tensors(weights), set(weights.metadata["buffers"])
        lost = [name for name in tensors if name.rpartition(".")[0] not in self.modules]
        if lost:
            raise WeightsError(f"{lost[0]!r} was published, and this model has no such module")
        placed: dict[int, torch.Tensor] = {}
        for name, tensor in tensors.items():
            owner, _, leaf = name.rpartition(".")
            module = self.modules[owner]
            if name in buffers:
                own = module._buffers.get(leaf)
                if own is None or own.is_meta:
                    if id(tensor) not in placed:
                        placed[id(tensor)] = tensor.clone()
                    module._buffers[leaf] = placed[id(tensor)]
                else:
                    own.copy_(tensor)
                continue
            if id(tensor) not in placed:
                placed[id(tensor)] = _parameter(tensor, module._parameters.get(leaf))
            vars(module).pop(leaf, None)
            module._parameters[leaf] = placed[id(tensor)]  # type: ignore[assignment]
        if _processed(self.device):  # what vLLM's processing has removed where it was published
            for name, p in list(self.model.named_parameters()):
                if p.is_meta and name not in tensors:
                    owner, _, leaf = name.rpartition(".")
                    self.modules[owner]._parameters[leaf] = _parameter(torch.empty(0, dtype=p.dtype, device=self.device), p)
        for module in self.modules.values():
            for leaf, thing in list(vars(module).items()):  # places for what comes later, as the KV cache
                if isinstance(thing, torch.Tensor) and thing.is_meta and thing.numel() == 0:
                    vars(module)[leaf] = torch.empty_like(thing, device=self.device)
        left = [name for name, t in _everything_in(self.model) if t.is_meta]
        if left:
            raise WeightsError(f"{left[0]!r} of this model was not published; {len(left)} tensors would have no values")
        self.weights = weights

    def is_version(self, version: int) -> None:
        """They were published, as that."""
        self.weights.version = self.weights.arrays.version = version

    def protect(self) -> None:
        """Who stores through torch to memory that is for reading only ends the process."""
        for p in self.model.parameters():
            p.copy_ = _refused  # type: ignore[method-assign]
            p.weight_loader = _refused  # type: ignore[attr-defined]
        vars(self.model).update(_libshare=self, load_weights=self._load_weights)

    def _load_weights(self, weights: Any, *_: Any, **__: Any) -> set[str]:
        """In place of the model's: vLLM has moved its parameters to "meta" by now."""
        log = logging.getLogger("vllm.model_executor.model_loader.reload.layerwise")
        with _quiet(log):  # it warns that nothing was loaded
            finalize_layerwise_reload(self.model, self.model_config)
        if not isinstance(weights, _NextVersion):
            _refused()
        return {name for name, _ in self.model.named_parameters()}

    def next_version(self) -> None:
        """Takes the version that is published now. Whoever has the old one keeps it."""
        if self.weights.is_current():
            return
        plain = all(type(m.quant_method).__name__ in _PLAIN for m in self.modules.values()
                    if getattr(m, "quant_method", None) is not None)
        if not self.model_config.enforce_eager or not plain:
            raise RuntimeError("this engine cannot change the version of its weights, as it has recorded kernels with the "
                               "addresses of these: --enforce-eager and weights without quantization would let it. "
                               "Start an engine, which has the new version")
        weights = Weights(ours.find(self.client, self.options, self.key, 0))
        own = self._tensors(self.weights)
        for name, tensor in self._tensors(weights).items():
            if name not in own or tensor.shape != own[name].shape or tensor.dtype != own[name].dtype:
                raise WeightsError(f"{name!r} of version {weights.version} is not as in version {self.weights.version}")
        if len(weights) != len(own):
            raise WeightsError(f"version {weights.version} has {len(weights)} tensors, and this engine {len(own)}")
        self.place(weights)
        self.protect()
        logger.info("libshare: this engine has version %d of %r now", weights.version, self.options.name)


@contextlib.contextmanager
def _no_values_compared(model_config: Any) -> Iterator[None]:
    """vLLM compares the embeddings of the output with those of the input where a checkpoint has both and its
    configuration says that they are tied. What is one tensor is known from where it was published."""
    before = getattr(model_config, "word_embeddings_untied_by_checkpoint", False)
    if before:
        model_config.word_embeddings_untied_by_checkpoint = False
    try:
        yield
    finally:
        if before:
            model_config.word_embeddings_untied_by_checkpoint = before


@contextlib.contextmanager
def _quiet(log: logging.Logger) -> Iterator[None]:
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before
