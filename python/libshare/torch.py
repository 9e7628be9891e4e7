# SPDX-License-Identifier: MIT
"""PyTorch on the broker's memory.

    t = libshare.torch.empty(pool, (4, 1024), torch.bfloat16)     # a tensor in the pool
    libshare.torch.publish(t, "activations")
    u = libshare.torch.lookup(client, "activations")              # in another process: no copy

    with torch.cuda.use_mem_pool(libshare.torch.mem_pool(pool)):  # what a model computes lies there
        y = model(x)
    libshare.torch.publish(y, "out")

    libshare.torch.install(pool)     # torch.multiprocessing carries tensors through the pool: those of
                                     # a GPU, or those of the host, and the batches of DataLoader

    publish_weights(pool, "model", model)                         # one copy, for N workers
    attach_weights(client, "model").load_into(worker_model)

Order is as everywhere: what is enqueued on a stream before a tensor is handed on comes before what
the receiver enqueues. The stream is torch's current one unless ``stream=`` says otherwise. A tensor
that is used on another stream than the one that was current when it was made or looked up has to be
told so: ``array_of(t).record_stream(s)``.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch.multiprocessing import reductions

from . import _core, _pickle, _streams, _torch_host
from ._core import Array, Client, Pool
from ._find import array_of, more_than_memory, need_plain, need_pool
from ._pickle import imported
from .weights import Publication, Source, WeightsError
from .weights import Weights as _Weights
from .weights import attach_weights as _attach

__all__ = ["array_of", "attach_weights", "collect", "empty", "empty_like", "install", "lookup", "mem_pool",
           "publish", "publish_weights", "tensor_of", "to_pool", "uninstall", "Weights", "worker_init"]

_LEGACY = 1  # the default stream's name in DLPack


def tensor_of(array: Array) -> torch.Tensor:
    """The Array as a tensor: the same memory, which it keeps. Torch does not know memory that is
    read-only, and a store to it through torch ends the process (host memory) or its context (vmm). So
    without readonly_ok of the Array, there is a warning for host memory, as torch itself gives it for
    such arrays of NumPy, and memory of a GPU is refused (BufferError).
    """
    if array.readonly and not array.readonly_ok and not array.on_gpu:
        warnings.warn("the Array is read-only, which torch does not heed: a store to this tensor ends the "
                      "process. Have readonly_ok=True where nothing stores to it, or mode='rw', "
                      "writable=True", stacklevel=2)
    stream = _streams.of_torch(array.__dlpack_device__()[1]) if array.on_gpu else None
    if stream is None:
        return torch.from_dlpack(array)
    # The same, but for how torch finds its current stream, which takes it longer than all the rest.
    return torch.from_dlpack(array.__dlpack__(stream=stream or _LEGACY))


def empty(pool: Pool, shape: Any, dtype: torch.dtype | None = None, **stream: Any) -> torch.Tensor:
    """A tensor in the pool, in C order; its content is undefined. dtype: torch's default dtype."""
    need_pool(pool)
    return tensor_of(pool.empty(shape, dtype or torch.get_default_dtype(), **stream))


def empty_like(pool: Pool, tensor: torch.Tensor, **stream: Any) -> torch.Tensor:
    """empty() of a tensor's shape and dtype."""
    return empty(pool, tuple(tensor.shape), tensor.dtype, **stream)


def to_pool(pool: Pool, tensor: torch.Tensor) -> torch.Tensor:
    """A copy of the tensor in the pool, made on the current stream; from any device.

    ValueError: it is more than one memory and its values (sparse, quantised, a subclass of torch's).
    """
    need_pool(pool)
    need_plain(tensor, lazy_ok=True)
    copy = empty_like(pool, tensor)
    copy.copy_(tensor.detach(), non_blocking=copy.is_cuda)
    return copy


# ------------------------------------------------------------------------------------------------
# Names


# Tensors of torch's own cache that were published or sent: torch would give their memory to the next
# tensor while others still read it.
_kept: list[tuple[torch.Tensor, Array]] = []
_kept_lock = threading.Lock()


def collect() -> int:
    """Lets go of published and sent tensors of mem_pool() that nobody else has any more; what torch
    does next with their memory, on the stream that they were made on, comes after all that others did.
    Returns how many are still kept. publish() does the same."""
    with _kept_lock:
        _kept[:] = [pair for pair in _kept if not pair[1].reclaim(timeout=0)]
        return len(_kept)


def _keep(tensor: torch.Tensor, array: Array) -> None:
    """After others were let have it, the tensor, which lies in that Array."""
    if _core._torch_has(tensor.untyped_storage().data_ptr()):
        with _kept_lock:
            _kept.append((tensor.detach(), array))
    if _kept:
        collect()


def _lies_in(tensor: torch.Tensor) -> Array:
    """array_of(), but of mem_pool() also what has no elements: torch asks no allocator for memory then."""
    try:
        return array_of(tensor)
    except ValueError:
        made = _mem_pools.get(tensor.device.index) if tensor.is_cuda and tensor.numel() == 0 else None
        if made is None or tensor.untyped_storage().data_ptr() != 0:
            raise
        return made[0].empty(tuple(tensor.shape), tensor.dtype)


def publish(tensor: torch.Tensor, name: str, **options: Any) -> int:
    """Array.publish() for a tensor that lies in a pool, or a view of one: no copy. Returns the
    version.

    A tensor of mem_pool() is kept here until no name leads to it and nobody else has it any more, as
    torch would use its memory again; so what is published is never overwritten.

    ValueError: it does not lie in a pool, or its values are not what lies there (those of conj() are
    computed when they are read): to_pool() makes a copy of which both is so.
    """
    array = _lies_in(tensor)
    version = array.publish(name, **options)
    _keep(tensor, array)
    return version


def lookup(client: Client, name: str, *, mode: str = "rw", **options: Any) -> torch.Tensor:
    """Client.lookup() as a tensor. mode "r" asks for memory that cannot be written: see tensor_of().
    """
    array = client.lookup(name, mode=mode, **options)
    if mode == "r":
        array.readonly_ok = True
    return tensor_of(array)


# ------------------------------------------------------------------------------------------------
# torch's own allocations


_mem_pools: dict[int, tuple[Pool, Any, Any]] = {}


def mem_pool(pool: Pool) -> torch.cuda.MemPool:
    """A torch.cuda.MemPool whose memory is the pool's, for torch.cuda.use_mem_pool(): each tensor is
    a buffer of its own, so it can be published as it is. One pool for each device, for the life of
    the process; asked for again, it is the same one.

    NotSupportedError: the pool is of host memory, or this torch cannot do it (2.8 can).
    """
    info = pool.info()
    if info["device"] is None:
        raise ValueError("torch's allocator is for memory of a GPU; empty() makes tensors in a host pool")
    probe = tensor_of(pool.empty(1, "uint8"))
    ordinal = probe.device.index
    if ordinal in _mem_pools:
        if _mem_pools[ordinal][0] is not pool:
            raise ValueError(f"torch allocates from another pool on device {ordinal} already")
        return _mem_pools[ordinal][2]
    _core._torch_pool(ordinal, pool)
    allocator = torch.cuda.memory.CUDAPluggableAllocator(
        _core.__file__, "share_torch_allocate", "share_torch_free")
    with torch.cuda.device(ordinal):
        made = torch.cuda.MemPool(allocator.allocator(), no_split=True)
    _mem_pools[ordinal] = (pool, allocator, made)
    return made


# ------------------------------------------------------------------------------------------------
# torch.multiprocessing


_carrier: Pool | None = None
_timeout = 300.0


def _rebuild(address: str, token: bytes, *kind: bool) -> torch.Tensor:
    _register()  # so that it can be sent on, and back
    return _torch_host._as_sent(tensor_of(imported(address, token)), *kind)


def _rebuild_empty(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device, *kind: bool) -> torch.Tensor:
    return _torch_host._as_sent(torch.empty(shape, dtype=dtype, device=device), *kind)


def _carry(tensor: torch.Tensor) -> Any:
    """What makes the tensor in another process, as __reduce__() says it. None: it does not lie in a
    pool, and there is none to copy it into."""
    if tensor.requires_grad and not tensor.is_leaf:
        raise RuntimeError("a tensor that is not a leaf of its graph is sent without it only: detach()")
    kind = tensor.requires_grad, isinstance(tensor, torch.nn.Parameter)
    if tensor.numel() == 0:  # there is no memory that could be shared
        return _rebuild_empty, (tuple(tensor.shape), tensor.dtype, tensor.device, *kind)
    plain = tensor.detach()
    try:
        array = array_of(plain)
    except ValueError:
        if _carrier is None:
            return None
        array = array_of(to_pool(_carrier, plain))
    token = array.export(mode="rw", uses=_pickle._uses, timeout=_timeout)
    _keep(plain, array)
    return _rebuild, (array.client.address, token, *kind)


def _reduce(tensor: torch.Tensor) -> Any:
    ours = None
    try:
        if type(tensor) in (torch.Tensor, torch.nn.Parameter) and more_than_memory(tensor, lazy_ok=True) is None:
            if tensor.is_cuda:
                ours = _carry(tensor)
            elif tensor.device.type == "cpu":
                ours = _torch_host.reduce(tensor)
        return ours or reductions.reduce_tensor(tensor)
    except Exception as e:
        return _torch_host.refused(e)


def _register() -> None:
    ForkingPickler.register(torch.Tensor, _reduce)
    ForkingPickler.register(torch.nn.Parameter, _reduce)


def install(pool: Pool, *, timeout: float = 300.0) -> None:
    """From now on, torch.multiprocessing (its queues, pipes, processes' arguments) carries tensors of
    this process through the broker: those in a pool as they are, the others by one copy, into this pool.
    A pool of GPU memory is for CUDA tensors, and one of host memory for those of the host; both may be
    installed. The sender may let go of them, and end, once they were received: nothing is pinned in it.
    Receivers need not call this, nor to send on what they have received. timeout: seconds that a tensor
    may be on its way; its memory is given back then.

    What is received is the sender's memory if that lay in a pool, else a copy of its own: two views of
    one tensor elsewhere become two copies. It comes after what the thread that pickles has enqueued on
    its current stream. That is the thread that sends with a SimpleQueue or a pipe; a Queue has one of
    its own, which works on the default stream, as with torch alone.

    Host memory: the workers of each DataLoader that is made from now on do the same, however they are
    started, and default_collate() makes their batches in the pool. Up to 4 KiB, a tensor goes by value;
    one that torch shares already (share_memory_()) is sent by torch. What the pool cannot take goes by
    value, which is slower: libshare.stats() counts that, and a warning says it once. A loader needs
    prefetch_factor * num_workers batches, and those in use.
    """
    global _carrier, _timeout
    need_pool(pool)
    if pool.info()["device"] is None:
        _torch_host.install(pool, timeout)
    else:
        _carrier, _timeout = pool, timeout
    _register()


def uninstall() -> None:
    """Takes install() back: torch sends this process's tensors as before."""
    global _carrier
    _carrier = None
    _torch_host.uninstall()
    ForkingPickler.register(torch.Tensor, reductions.reduce_tensor)
    ForkingPickler.register(torch.nn.Parameter, reductions.reduce_tensor)


def worker_init(pool: Pool, then: Callable[[int], Any] | None = None) -> Callable[[int], None]:
    """install() of a pool of host memory for the worker_init_fn= of loaders that are not torch's own
    DataLoader, whose workers need none. then: called afterwards, as worker_init_fn would be.
    """
    return _torch_host.WorkerInit(pool.client.address, pool.name, then)


# ------------------------------------------------------------------------------------------------
# Weights


def _all_of(module: torch.nn.Module) -> dict[str, Any]:
    """Its state_dict(), and its buffers that are not persistent; as they are."""
    return {**dict(module.named_buffers(remove_duplicate=False)), **module.state_dict(keep_vars=True)}


def _everything_in(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Names and tensors: also those that are plain attributes, which are no part of its state."""
    for of, part in module.named_modules():
        for held in (part._parameters, part._buffers, vars(part)):
            for leaf, thing in held.items():
                if isinstance(thing, torch.Tensor):
                    yield f"{of}.{leaf}" if of else leaf, thing


class _OfTensor(Source):
    def __init__(self, tensor: torch.Tensor):
        self._tensor = tensor.detach()
        super().__init__(
            str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape),
            (tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.is_conj(),
             tensor.is_neg()) if tensor.numel() else None,
        )

    def copy_into(self, to: Array) -> None:
        tensor_of(to).copy_(self._tensor, non_blocking=to.on_gpu)


def publish_weights(pool: Pool, name: str, weights: Any, *, persistent: bool = False, metadata: Any = None) -> int:
    """weights.publish_weights() for a module, its state_dict(), or .safetensors files. Parameters
    that are tied stay so: they are there once. Of a module, buffers that are not persistent go along,
    which are not in its state_dict().

    WeightsError: something is no tensor, has no values (on the device meta), or is more than values
    (sparse, quantised, and the like).
    """
    return publication_of(pool, name, weights, metadata=metadata).publish(persistent=persistent)


def publication_of(pool: Pool, name: str, weights: Any, *, metadata: Any = None) -> Publication:
    if isinstance(weights, torch.nn.Module):
        weights = _all_of(weights)
    if isinstance(weights, Mapping):
        for n, t in weights.items():
            if not isinstance(t, (torch.Tensor, Source)):
                raise WeightsError(f"{n!r} is no tensor: only these can be shared")
            more = more_than_memory(t, lazy_ok=True)
            if more is not None:
                raise WeightsError(f"{n!r} cannot be shared: {more}")
        weights = {n: _OfTensor(t) if isinstance(t, torch.Tensor) else t for n, t in weights.items()}
    return Publication(pool, name, weights, metadata=metadata)


class Weights(Mapping[str, torch.Tensor]):
    """weights.Weights as tensors. They are read-only memory: to train, copy them. Names of one tensor
    (tied parameters) have one here, too."""

    def __init__(self, arrays: _Weights):
        self.arrays = arrays
        self.name, self.version, self.metadata = arrays.name, arrays.version, arrays.metadata
        self._tensors: dict[str, torch.Tensor] = {}
        placed: dict[Any, torch.Tensor] = {}
        for name, array in arrays.items():
            array.readonly_ok = True
            place = (array.ptr, array.dtype, array.shape) if array.size else name
            if place not in placed:
                placed[place] = tensor_of(array)
            self._tensors[name] = placed[place]

    def __getitem__(self, name: str) -> torch.Tensor:
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def is_current(self) -> bool:
        """Whether no other version was published since. One request."""
        return self.arrays.is_current()

    def load_into(self, module: torch.nn.Module, *, strict: bool = True) -> torch.nn.Module:
        """Makes the module's parameters and buffers these tensors, without a copy; gradients are off
        for them. What it had before is let go of, so a running worker changes versions between two
        requests by calling this again. A module made under torch.device("meta") never had any.

        Parameters that were tied where they were published are so here, and so are those that are tied
        here where only one of their names was published. A buffer that is not persistent becomes a copy
        of its own: modules may store to these.

        WeightsError: names or shapes are not the module's; or something would be left on the device
        meta, without values. With strict=False that is a warning.
        """
        own = _all_of(module)
        wrong = [f"{n!r} is {tuple(t.shape)} here and {tuple(own[n].shape)} there"
                 for n, t in self.items() if n in own and t.shape != own[n].shape]
        if wrong:
            raise WeightsError("; ".join(wrong[:3]))
        values = self._values_for(own)
        # a module may keep a buffer under a second name, as a plain attribute
        same = {id(t): n for n, t in own.items() if n in values and isinstance(t, torch.Tensor)}
        left = [n for n, t in _everything_in(module) if t.is_meta and n not in values and id(t) not in same]
        if left:
            why = (f"{', '.join(map(repr, left))}: not among what was published, so this would be left on "
                   f"the device meta, without values; publish_weights() of the module itself has all of it")
            if strict:
                raise WeightsError(why)
            warnings.warn(why, stacklevel=2)
        persistent = module.state_dict(keep_vars=True).keys()
        module.requires_grad_(False)
        try:
            module.load_state_dict({n: t for n, t in values.items() if n in persistent or n not in own},
                                   strict=strict, assign=True)
        except RuntimeError as e:
            raise WeightsError(str(e)) from e
        copies: dict[int, torch.Tensor] = {}
        for name in own.keys() - persistent:
            if name in values:
                of, _, leaf = name.rpartition(".")
                t = values[name]
                if id(t) not in copies:
                    copies[id(t)] = t.clone()
                module.get_submodule(of)._buffers[leaf] = copies[id(t)]
        new = _all_of(module)
        for part in module.modules():
            for leaf, thing in vars(part).items():
                if isinstance(thing, torch.Tensor) and id(thing) in same:
                    vars(part)[leaf] = new[same[id(thing)]]
        return module.requires_grad_(False)

    def _values_for(self, own: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        """What a module's names become: for parameters that are one tensor, one Parameter."""
        values: dict[str, torch.Tensor] = dict(self)
        named = {id(t): n for n, t in own.items() if n in values and isinstance(t, torch.Tensor)}
        for name, tensor in own.items():
            if name not in values and id(tensor) in named:
                values[name] = values[named[id(tensor)]]
        made: dict[int, torch.nn.Parameter] = {}
        for name, tensor in values.items():
            if isinstance(own.get(name), torch.nn.Parameter):
                if id(tensor) not in made:
                    made[id(tensor)] = torch.nn.Parameter(tensor, requires_grad=False)
                values[name] = made[id(tensor)]
        return values


def attach_weights(client: Client, name: str, **options: Any) -> Weights:
    """weights.attach_weights() as tensors."""
    return Weights(_attach(client, name, **options))
