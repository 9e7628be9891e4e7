# SPDX-License-Identifier: MIT
"""A tensor transport for Ray: what actors of one machine hand on stays where it lies, in a pool.

    libshare.ray.install(pool)                       # in the driver, before it makes the actors

    @ray.remote(enable_tensor_transport=True)
    class Camera:
        @ray.method(tensor_transport="libshare")
        def frame(self):
            return torch.zeros(1080, 1920, 3)        # copied into the pool once;
                                                     # libshare.torch.empty(pool, …): not at all

    screen.show.remote(camera.frame.remote())        # show() has the same memory

The actors need no line for it. What is received is the sender's memory, for both to write to, as with
Ray's own transport for CUDA IPC; it stays when the sender ends, and is given back when no ObjectRef and
no tensor has it any more. Tensors of a GPU are received on torch's current stream, which the host
waits for, so they may be used on every stream.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

import numpy
from ray.experimental import (
    CommunicatorMetadata,
    TensorTransportManager,
    TensorTransportMetadata,
    register_tensor_transport,
)

from ._core import Array, Client, Pool
from ._errors import Error
from ._find import array_of
from ._pickle import client_of

try:
    import torch

    from . import torch as _torch
except ImportError:
    torch = None  # type: ignore[assignment]


@dataclass(eq=False)
class _Metadata(TensorTransportMetadata):
    address: str = ""
    tokens: list[bytes | None] = field(default_factory=list)  # None: it has no elements


class _OfNumpy:
    """What has to be known of a framework."""

    @staticmethod
    def of(thing: Any, pool: Pool) -> Array:
        try:
            return array_of(thing)
        except ValueError:
            return pool.array(thing)

    @staticmethod
    def empty(shape: Any, dtype: Any, device: str) -> Any:
        return numpy.empty(shape, dtype)

    @staticmethod
    def had(thing: Any, array: Array) -> None:
        pass

    @staticmethod
    def made(array: Array) -> Any:
        return numpy.asarray(array)

    @staticmethod
    def fill(target: Any, source: Any) -> None:
        target[...] = source


class _OfTorch:
    @staticmethod
    def of(thing: Any, pool: Pool) -> Array:
        plain = thing.detach()
        try:
            return array_of(plain)
        except ValueError:
            return array_of(_torch.to_pool(pool, plain))

    @staticmethod
    def empty(shape: Any, dtype: Any, device: str) -> Any:
        return torch.empty(shape, dtype=dtype, device=device)

    @staticmethod
    def had(thing: Any, array: Array) -> None:
        _torch._keep(thing.detach(), array)

    @staticmethod
    def made(array: Array) -> Any:
        tensor = _torch.tensor_of(array)
        if tensor.is_cuda:
            torch.cuda.current_stream(tensor.device).synchronize()
        return tensor

    @staticmethod
    def fill(target: Any, source: Any) -> None:
        target.copy_(source)


class _Transport(TensorTransportManager):
    """Ray makes one in each process, of a class of install()'s, which says what the pool is."""

    name: str
    address: str
    pool: str
    framework: Any

    def __init__(self) -> None:
        self._sent: dict[str, tuple[_Metadata, list[Client]]] = {}
        self._lock = threading.Lock()

    def tensor_transport_backend(self) -> str:
        return self.name

    @staticmethod
    def is_one_sided() -> bool:
        return True

    @staticmethod
    def can_abort_transport() -> bool:
        return True

    def actor_has_tensor_transport(self, actor: Any) -> bool:
        return True

    def get_communicator_metadata(self, src_actor: Any, dst_actor: Any,
                                  backend: str | None = None) -> CommunicatorMetadata:
        return CommunicatorMetadata()

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> _Metadata:
        """The sender's part: tokens for what was made, each good for any number of receivers."""
        with self._lock:
            if obj_id in self._sent:  # the task was tried again
                return self._sent[obj_id][0]
        pool = client_of(self.address).pool(self.pool, create=False)
        meta = _Metadata([(thing.shape, thing.dtype) for thing in rdt_object], address=self.address)
        makers = []
        meta.tensor_device = "cuda" if pool.on_gpu else "cpu"
        for thing in rdt_object:
            if 0 in thing.shape:
                meta.tokens.append(None)
                continue
            array = self.framework.of(thing, pool)
            if array.client.address != self.address or array.on_gpu != pool.on_gpu:
                raise ValueError(f"the tensor is on {array.device}, and the pool {self.pool!r} elsewhere")
            meta.tokens.append(array.export(mode="r" if array.readonly else "rw", uses=0))
            makers.append(array.client)
            self.framework.had(thing, array)
        with self._lock:
            return self._sent.setdefault(obj_id, (meta, makers))[0]

    def recv_multiple_tensors(self, obj_id: str, tensor_transport_metadata: Any,
                              communicator_metadata: CommunicatorMetadata,
                              target_buffers: list[Any] | None = None) -> list[Any]:
        """NoBrokerError: the sender is on another machine. NotFoundError: it has ended."""
        meta = tensor_transport_metadata
        made = []
        for (shape, dtype), token in zip(meta.tensor_meta, meta.tokens, strict=True):
            if token is None:
                made.append(self.framework.empty(shape, dtype, meta.tensor_device))
            else:
                array = client_of(meta.address).import_(token)
                array.readonly_ok = True  # the sender could not store to it either
                made.append(self.framework.made(array))
        if not target_buffers:
            return made
        for target, source in zip(target_buffers, made, strict=True):
            self.framework.fill(target, source)
        return target_buffers

    def send_multiple_tensors(self, tensors: Any, tensor_transport_metadata: Any,
                              communicator_metadata: Any) -> None:
        raise NotImplementedError("receivers take what they have tokens for")

    def garbage_collect(self, obj_id: str, tensor_transport_meta: Any, tensors: Any) -> None:
        with self._lock:
            meta, makers = self._sent.pop(obj_id, (_Metadata([]), []))
        for token, maker in zip(filter(None, meta.tokens), makers, strict=True):
            try:
                maker.revoke(token)
            except Error:  # the connection was lost, and the token with it
                pass

    def abort_transport(self, obj_id: str, communicator_metadata: CommunicatorMetadata) -> None:
        pass  # nobody waits here for another


def install(pool: Pool, name: str = "libshare", *, data_type: type | None = None) -> None:
    """Registers the tensor transport of that name with Ray: for tensors of a GPU if the pool is of one,
    else of the host, by way of this pool. Called in the driver, before it makes the actors; those open
    the pool by its name, so their user has to be allowed to.

    data_type: torch.Tensor (left out, if there is torch) or numpy.ndarray. For each a transport of its
    own, with another name. ValueError: there is one of that name.
    """
    if data_type is None:
        data_type = numpy.ndarray if torch is None else torch.Tensor
    if data_type is not numpy.ndarray and (torch is None or data_type is not torch.Tensor):
        raise ValueError(f"data_type is torch.Tensor or numpy.ndarray, not {data_type!r}")
    if pool.on_gpu and data_type is numpy.ndarray:
        raise ValueError("NumPy's arrays are in host memory")
    made = type("Transport", (_Transport,), {
        "name": name.upper(), "address": pool.client.address, "pool": pool.name,
        "framework": _OfNumpy if data_type is numpy.ndarray else _OfTorch})
    register_tensor_transport(name, ["cuda" if pool.on_gpu else "cpu"], made, data_type)
