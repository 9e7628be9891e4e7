# SPDX-License-Identifier: MIT
"""Array.to(): what device is meant, and which pool of it."""

from __future__ import annotations

import operator
import re
from typing import Any

from . import _streams
from ._client import open_pools
from ._core import Array, Client, Pool
from ._errors import ClosedError
from ._extend import extend

_HOST, _CUDA = 1, 2  # as DLPack has them
_ANY = -1
_TEXT = re.compile(r"cpu(?::0)?|cuda(?::(0|[1-9][0-9]*))?")


def _number(given: Any) -> int:
    """A whole number, also one of NumPy; -1: it is none."""
    try:
        return -1 if isinstance(given, bool) else operator.index(given)
    except TypeError:
        return -1


def _device_of(given: Any) -> tuple[int, int]:
    """As __dlpack_device__() answers it; (_CUDA, _ANY): a GPU."""
    # torch.device, whose text is what torch itself takes
    text = str(given) if isinstance(getattr(given, "type", None), str) and hasattr(given, "index") else given
    if isinstance(text, str):
        found = _TEXT.fullmatch(text)
        if found and text.startswith("cpu"):
            return _HOST, 0
        if found:
            return _CUDA, _ANY if found[1] is None else int(found[1])
    elif isinstance(given, tuple) and len(given) == 2:
        kind, number = map(_number, given)
        if (kind, number) == (_HOST, 0) or kind == _CUDA and number >= 0:
            return kind, number
    elif _number(given) >= 0:
        return _CUDA, _number(given)
    raise ValueError(
        f"to() takes a pool or a device ('cpu', 'cuda', 'cuda:1', 1, a torch.device, what __dlpack_device__() answers), "
        f"not {given!r}; an Array is not converted to another dtype"
    )


def _is_of(pool: Pool, kind: int, number: int) -> bool:
    if kind == _HOST:
        return not pool.on_gpu
    return pool.on_gpu and number in (_ANY, pool._ordinal)


def _pool_of(client: Client, kind: int, number: int) -> Pool:
    """The only pool of that device that this process has open and may allocate from."""
    found = {}
    for pool in open_pools(client):
        try:
            info = pool.info()
            if not info["readonly"] and info["kind"] not in ("adopted", "pinned") and _is_of(pool, kind, number):
                found[info["name"]] = pool
        except ClosedError:  # by another thread
            pass
    if len(found) == 1:
        return found.popitem()[1]
    where = "the host" if kind == _HOST else "a GPU" if number == _ANY else f"cuda:{number}"
    what = f"has {len(found)} pools of {where} open here ({', '.join(sorted(found))})" if found \
        else f"has no pool of {where} open here that takes new memory"
    raise ValueError(f"the Array's client {what}: say which one to copy to, as a.to(client.pool(\"name\"))")


@extend(Array)
class _Array:
    def to(self, device: Any, *, copy: bool = False, **stream: Any) -> Array:
        """The same content in a pool or on a device: this Array itself, if it is there already and copy is
        False; else a copy with its shape and dtype, in C order, for reading and writing.

        device: a Pool, of whatever connection, which is the copy's then; or "cpu", "cuda", "cuda:1", the number of a
        GPU, a torch.device, or what ``__dlpack_device__()`` answers. On its own device a copy is in the Array's own pool; on
        another one in the only pool of it that this process has open by the Array's client and may allocate from.
        One of kind "pinned", which the CPU reaches as well, is on its GPU; a pool of that kind is only copied to by naming it.
        "cuda": the GPU that is current in torch or CuPy, or any, where neither uses one.

        The copy comes after the work on the Array: on the stream that it was acquired on, on those of record_stream(), and on
        a framework's current stream of its GPU. What is enqueued on the first and the last from now on comes after the
        copy. From GPU to GPU it is enqueued, and the call waits for nothing, but where one cannot reach the other, and
        between their default streams. All other copies are done when the call returns, and ^C ends the wait for the
        HostStreams of an Array of host memory. stream: of the GPU that is copied to, as of Pool.empty(), or that is copied
        from, if that is to the host; of an Array that is there already, what is enqueued on it from now on comes after the
        work on the Array. It may be called in any thread (``await asyncio.to_thread(a.to, pool)``); what is current in a
        framework is so in its thread.

        ValueError: that is no device; no pool of it is open, or several; an Array of a GPU that is not contiguous, unless the CPU reaches it.
        OutOfMemoryError, DeniedError, QuotaExceededError, DeviceError. NotSupportedError: the pool is of kind "adopted".
        """
        if stream.keys() - {"stream"}:
            raise TypeError(f"to() takes a device or a pool, copy and stream, not {', '.join(stream)}")
        _ = self.ptr  # ClosedError, ForkedError
        if isinstance(device, Pool):
            return self._here(**stream) if device._has(self) and not copy else device.array(self, **stream)
        kind, number = _device_of(device)
        if (kind, number) == (_CUDA, _ANY):
            number = _streams.current_gpu()
        here, own = self.__dlpack_device__()
        if kind == here and number in (own, _ANY):
            return self._copied(**stream) if copy else self._here(**stream)
        return _pool_of(self.client, kind, number).array(self, **stream)

    def _here(self, **stream: Any) -> Array:
        if stream:
            self._use_on(stream["stream"])
        return self
