# SPDX-License-Identifier: MIT
"""torch.multiprocessing and DataLoader over a pool of host memory: libshare.torch.install().

A tensor is a token on its way, as an Array is in a pickle. Tensors elsewhere than in a pool are copied
into one first; DataLoader's workers make their batches there. What the pool cannot take goes by value,
which takes neither /dev/shm nor a descriptor: pickling happens in threads whose errors nobody hears of,
and whoever waits for a tensor that was lost waits for good.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
import warnings
from typing import Any, Callable

import torch
from torch.multiprocessing import reductions
from torch.utils.data import get_worker_info
from torch.utils.data._utils import collate, worker

from . import _pickle
from ._core import Array, Pool
from ._errors import DisconnectedError
from ._find import array_of, more_than_memory
from ._stats import count

_BY_VALUE = 4096  # bytes: up to here, a token costs more than what it stands for
_theirs_stack = collate.default_collate_fn_map[torch.Tensor]
_theirs_loop = worker._worker_loop


class _Carrier:
    """The pool that this process sends tensors through. In another process it is opened when it is used."""

    def __init__(self, address: str, name: str, pool: Pool | None, timeout: float | None):
        self.address, self.name, self.timeout = address, name, timeout
        self._pool, self._pid = pool, os.getpid() if pool is not None else 0

        self._ours = pool is None

    def pool(self) -> Pool | None:
        """None: it cannot be had now. That is tried again with the next tensor."""
        if self._pid != os.getpid():
            with _lock:
                if self._pid != os.getpid():
                    self._pool = self._open()
                    self._pid = os.getpid() if self._pool is not None else 0
                    self._ours = True
        return None if self._pool is None or self._pool.closed else self._pool

    def _open(self) -> Pool | None:
        client = None
        try:
            client = _pickle.client_of(self.address)
            return client.pool(self.name, create=False)
        except Exception as e:
            _say(f"the pool {self.name!r} cannot be opened here: {e}")
            if client is not None and isinstance(e, DisconnectedError):
                client.close()  # there is another one at the next try
            return None

    def failed(self, pool: Pool, why: Exception) -> None:
        """A connection that is lost stays so: what was opened here is opened anew. pool: what pool() was when it
        failed; another thread may have opened the next one by now."""
        with _lock:
            lost = self._ours and pool is self._pool and isinstance(why, DisconnectedError)
            if lost:
                self._pid = 0
        if lost:
            pool.client.close()


_carrier: _Carrier | None = None
_lock = threading.Lock()
_said: set[str] = set()
_has_received = False


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()
    _said.clear()


os.register_at_fork(after_in_child=_after_fork)


def _say(why: str) -> None:
    """Once for each reason."""
    key = why.partition(":")[0]
    if key not in _said:
        _said.add(key)
        with contextlib.suppress(RuntimeWarning):  # as an error, it would lose the tensor
            warnings.warn(f"tensors do not go through a pool: {why}. libshare.stats() counts them",
                          RuntimeWarning, stacklevel=2)


# ------------------------------------------------------------------------------------------------
# What arrives


def _as_sent(tensor: torch.Tensor, requires_grad: bool, parameter: bool) -> torch.Tensor:
    if parameter:
        return torch.nn.Parameter(tensor, requires_grad=requires_grad)
    return tensor.requires_grad_(requires_grad)


def _from_pool(address: str, token: bytes, *kind: bool) -> torch.Tensor:
    global _has_received
    from . import torch as ours

    ours._register()  # so that it can be sent on
    _has_received = True
    count("torch", "received")
    return _as_sent(ours.tensor_of(_pickle.imported(address, token)), *kind)


def _from_value(data: bytes, dtype: torch.dtype, shape: tuple[int, ...], fell_back: bool, *kind: bool) -> torch.Tensor:
    count("torch", "received elsewhere" if fell_back else "received")
    if not data:
        return _as_sent(torch.empty(shape, dtype=dtype), *kind)
    return _as_sent(torch.frombuffer(bytearray(data), dtype=torch.uint8).view(dtype).reshape(shape), *kind)


def _refused(why: str) -> None:
    raise RuntimeError(why)


def refused(why: Exception) -> Any:
    """What raises this where a loader is read, if this process is one of its workers."""
    if get_worker_info() is None:
        raise why
    return _refused, (str(why),)


# ------------------------------------------------------------------------------------------------
# What is sent


def _value_of(tensor: torch.Tensor, fell_back: bool, kind: tuple[bool, bool]) -> Any:
    flat = tensor.resolve_conj().resolve_neg().contiguous()  # as it is when it is read
    data = (ctypes.c_char * flat.nbytes).from_address(flat.data_ptr()).raw if flat.nbytes else b""
    return _from_value, (data, tensor.dtype, tuple(tensor.shape), fell_back, *kind)


def _without_pool(tensor: torch.Tensor, kind: tuple[bool, bool]) -> Any:
    count("torch", "sent by value, as the pool could not take it")
    return _value_of(tensor, True, kind)


def _in_pool(tensor: torch.Tensor) -> Array | None:
    try:
        array = array_of(tensor)
    except ValueError:
        return None
    return None if array.on_gpu else array  # of kind pinned, which receivers would have on the GPU


def reduce(tensor: torch.Tensor) -> Any:
    """What makes this tensor of the host in another process, as __reduce__() says it; None: it is torch's
    business, as this process sends through no pool."""
    if tensor.requires_grad and not tensor.is_leaf:
        raise RuntimeError("a tensor that is not a leaf of its graph is sent without it only: detach()")
    kind = tensor.requires_grad, isinstance(tensor, torch.nn.Parameter)
    plain = tensor.detach()
    array = _in_pool(plain) if plain.numel() else None
    pool = _carrier.pool() if _carrier is not None else None
    if array is None:
        if pool is None and _carrier is None:
            if _has_received and plain.nbytes > _BY_VALUE and not plain.is_shared():
                _say("this process receives tensors of a pool, and has none to send through: "
                     "libshare.torch.install(pool) here, too (workers of a loader: worker_init(pool))")
                count("torch", "sent through shared memory")
            return None
        if plain.is_shared():
            count("torch", "left to torch, which shares it already")
            return None
        if plain.nbytes <= _BY_VALUE:
            count("torch", "sent by value, as it is small")
            return _value_of(plain, False, kind)
        if pool is None:
            return _without_pool(plain, kind)
    return _through(plain, array, pool, kind)


def _through(plain: torch.Tensor, array: Array | None, pool: Pool | None, kind: tuple[bool, bool]) -> Any:
    from . import torch as ours

    lay_there = array is not None
    timeout = _carrier.timeout if _carrier is not None else ours._timeout
    try:
        if array is None:
            assert pool is not None
            array = array_of(ours.to_pool(pool, plain))
        token = array.export(mode="r" if array.readonly else "rw", uses=_pickle._uses, timeout=timeout)
    except Exception as e:
        _say(f"the pool cannot take them: {e}")
        # what lies in a pool already may be of another connection
        if _carrier is not None and pool is not None and (array is None or array.client is pool.client):
            _carrier.failed(pool, e)
        return _without_pool(plain, kind)
    count("torch", "sent in place" if lay_there else "sent by one copy")
    return _from_pool, (array.client.address, token, *kind)


# ------------------------------------------------------------------------------------------------
# Workers of DataLoader


def _stack(batch: Any, *, collate_fn_map: Any = None) -> torch.Tensor:
    """What torch's default_collate does with tensors; in a worker the batch is made in the pool."""
    first = batch[0]
    if (_carrier is None or get_worker_info() is None or type(first) is not torch.Tensor
            or first.device.type != "cpu" or more_than_memory(first) is not None):
        return _theirs_stack(batch, collate_fn_map=collate_fn_map)
    pool = _carrier.pool()
    if pool is not None and first.nbytes * len(batch) > _BY_VALUE:
        from . import torch as ours

        try:
            out = ours.empty(pool, (len(batch), *first.shape), first.dtype)
        except Exception as e:
            _say(f"the pool cannot take them: {e}")
            _carrier.failed(pool, e)
        else:
            count("torch", "batches made in the pool")
            return torch.stack(batch, 0, out=out)
    return torch.stack(batch, 0)  # sent by value


class WorkerInit:
    """See libshare.torch.worker_init()."""

    def __init__(self, address: str, name: str, then: Callable[[int], Any] | None = None):
        self._address, self._name, self._then = address, name, then

    def enter(self) -> None:
        global _carrier
        from . import torch as ours

        # without a time limit: the loader may be left alone for hours, and its workers live as long
        if _carrier is None or (_carrier.address, _carrier.name, _carrier.timeout) != (self._address, self._name, None):
            _carrier = _Carrier(self._address, self._name, None, None)
        ours._register()
        collate.default_collate_fn_map[torch.Tensor] = _stack

    def __call__(self, worker_id: int) -> None:
        self.enter()
        if self._then is not None:
            self._then(worker_id)


class _Loop:
    """What a worker runs in place of torch's function, however it was started."""

    def __init__(self, init: WorkerInit):
        self._init = init

    def __call__(self, *arguments: Any, **more: Any) -> None:
        self._init.enter()
        _theirs_loop(*arguments, **more)


def install(pool: Pool, timeout: float) -> None:
    global _carrier
    address, name = pool.client.address, pool.name
    _carrier = _Carrier(address, name, pool, timeout)
    worker._worker_loop = _Loop(WorkerInit(address, name))


def uninstall() -> None:
    global _carrier, _has_received
    _carrier, _has_received = None, False
    worker._worker_loop = _theirs_loop
    collate.default_collate_fn_map[torch.Tensor] = _theirs_stack
