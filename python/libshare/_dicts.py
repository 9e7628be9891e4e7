# SPDX-License-Identifier: MIT
"""Pool.publish() and Client.lookup_dict(): several arrays under one name, which are replaced together.

They are one buffer, laid out as weights are, so that readers have all of one version or all of another.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from . import weights
from ._client import is_table, memory_of
from ._core import Array, Client, Pool
from ._find import need_plain


class _OfMemory(weights.Source):
    def __init__(self, dtype: str, shape: tuple[int, ...], content: Any):
        super().__init__(dtype, shape)
        self._content = content

    def copy_into(self, to: Array) -> None:
        to.copy_from(self._content.tobytes() if getattr(self._content, "on_gpu", False) else self._content)


def _source_of(what: str, thing: Any) -> weights.Source:
    if isinstance(thing, Array):
        return _OfMemory(thing.dtype, thing.shape, thing)
    if is_table(thing):
        raise TypeError(f"{what} is a {type(thing).__name__}: libshare.arrow.publish(pool, name, table) shares tables, "
                        f"and to_numpy() makes an array of one column")
    try:
        if isinstance(thing, getattr(sys.modules.get("torch"), "Tensor", ())):
            from . import torch

            need_plain(thing, lazy_ok=True)
            return torch._OfTensor(thing)
        content, dtype = memory_of(thing)
        assert dtype is not None
        return _OfMemory(dtype, content.shape, content)
    except TypeError as e:
        hint = ": numpy.asarray() makes one of it" if isinstance(thing, (bool, int, float, complex, list, tuple)) else ""
        raise TypeError(f"{what} is a {type(thing).__name__}, and an Array, an array of NumPy, a tensor of torch, or a "
                        f"dict of these can be published{hint}") from e
    except ValueError as e:
        raise ValueError(f"{what}: {e}") from e


def publish(pool: Pool, name: str, source: Any, persistent: bool) -> int:
    if isinstance(source, Mapping):
        for key in source:
            if not isinstance(key, str):
                raise TypeError(f"the keys of a dict that is published are texts, not {key!r}")
        sources = {key: _source_of(repr(key), value) for key, value in source.items()}
        return weights.publish_weights(pool, name, sources, persistent=persistent)
    found = _source_of("this", source)
    array = pool.empty(found.shape, found.dtype)
    if found.nbytes:
        found.copy_into(array)
    return array.publish(name, persistent=persistent)


def lookup(client: Client, name: str, timeout: float | None) -> dict[str, Array]:
    return dict(weights.attach_weights(client, name, timeout=timeout))
