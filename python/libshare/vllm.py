# SPDX-License-Identifier: MIT
"""vLLM's weights in a pool: one copy for all engines of a machine.

    vllm serve MODEL --load-format libshare --model-loader-extra-config '{"name": "chat", "role": "publish"}'
    vllm serve MODEL --load-format libshare --model-loader-extra-config '{"name": "chat"}'

The first loads as vLLM does, publishes what it has loaded, and serves from there; the others attach to
it. Options of the extra configuration:

    name       what the weights are called, required
    role       "attach", or "publish", which replaces the version before
    pool       the pool, "vllm"; on a GPU, each device has one, whose name ends with the device's UUID
               (one that this makes is for this user alone: the broker's configuration has those of several)
    limit      of the pool, where this makes it ("80GiB")
    timeout    seconds to wait for somebody to publish them; 600
    socket     the broker's, else that of $SHARE_SOCKET

Names are persistent: they stay when the engines end, and the pool with them, until `sharectl unpublish`.
An engine that fails before it can serve what it has loaded publishes nothing.

The weights of an engine are memory for reading only. What vLLM would store to it is refused.
`collective_rpc("reload_weights")` takes the version that is published then.

vLLM finds this module by its entry point, in each of its processes; it imports nothing of vLLM before
vLLM calls it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ._client import connect
from ._core import Client
from ._errors import Error, NotFoundError, TimedOutError
from ._size import nbytes
from .weights import Weights, WeightsError, attach_weights

__all__ = ["Options", "register"]

_NAME_MAX = 180  # bytes; what a key, and parts of weights, add to it fits into SHARE_NAME_MAX


class Options(NamedTuple):
    """The extra configuration."""

    name: str
    role: str = "attach"
    pool: str = "vllm"
    limit: str | int | None = None
    timeout: float | None = 600.0
    socket: str | None = None

    @classmethod
    def of(cls, extra: Mapping[str, Any] | None) -> Options:
        """ValueError: the extra configuration has something wrong, or lacks the name."""
        if not isinstance(extra, (Mapping, type(None))):
            raise ValueError(f"the extra configuration is an object, {{\"name\": \"chat\"}}, not {extra!r}")
        extra = dict(extra or {})
        unknown = sorted(extra.keys() - set(cls._fields))
        if unknown:
            raise ValueError(f"the load format libshare has no option {unknown[0]!r}, but {', '.join(cls._fields)}")
        for field in ("name", "role", "pool", "socket"):
            if not isinstance(extra.get(field, ""), (str, type(None)) if field == "socket" else str):
                raise ValueError(f"{field} is a text, not {extra[field]!r}")
        if not extra.get("name"):
            raise ValueError('the load format libshare needs a name for the weights: '
                             '--model-loader-extra-config \'{"name": "chat"}\'')
        if extra.get("role", "attach") not in ("attach", "publish"):
            raise ValueError(f"role is 'attach' or 'publish', not {extra['role']!r}")
        if len(extra["name"].encode()) > _NAME_MAX:
            raise ValueError(f"name has {_NAME_MAX} bytes at most, not {len(extra['name'].encode())}")
        if not extra.get("pool", "vllm"):
            raise ValueError("pool is the name of a pool, not ''")
        limit = extra.get("limit")
        try:
            if limit is not None and (isinstance(limit, (bool, float)) or nbytes(limit) == 0):
                raise ValueError
        except (TypeError, ValueError):
            raise ValueError(f"limit is a size, such as \"80GiB\" or a number of bytes, not {limit!r}") from None
        timeout = extra.get("timeout", 0)
        if timeout is not None and (isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 <= timeout < 1e9):
            raise ValueError(f"timeout is seconds from 0 on, or null for no limit, not {timeout!r}")
        return cls(**extra)


def name_of(options: Options, key: Mapping[str, Any]) -> str:
    """The name under which weights are for engines with that key."""
    text = json.dumps(key, sort_keys=True, separators=(",", ":"))
    return f"{options.name}/{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def differences(key: Mapping[str, Any], others: Iterable[Mapping[str, Any]]) -> str:
    """How what is published differs from what is asked for, as few things as possible."""
    found = [{field: (value, other.get(field)) for field, value in key.items() if other.get(field) != value}
             for other in others]
    if not found:
        return "nothing is"
    least = min(found, key=len)
    return "; ".join(f"{field} is {theirs!r} there and {ours!r} here" for field, (ours, theirs) in sorted(least.items()))


def _published(client: Client, options: Options) -> Iterable[Mapping[str, Any]]:
    for n in client.names(f"{options.name}/"):
        try:
            metadata = attach_weights(client, n.name).metadata
        except Error:  # it is something else, is gone by now, or lies on a device that is not seen here
            continue
        if isinstance(metadata, Mapping) and isinstance(metadata.get("key"), Mapping):
            yield metadata["key"]


def find(client: Client, options: Options, key: Mapping[str, Any], timeout: float | None) -> Weights:
    """The weights that were published for engines with that key.

    WeightsError: nobody has published them within the time limit; the text says what is there instead.
    """
    name = name_of(options, key)
    try:
        return attach_weights(client, name, timeout=timeout)
    except (NotFoundError, TimedOutError) as e:
        raise WeightsError(f"no weights {options.name!r} are published for this engine: "
                           f"{differences(key, _published(client, options))}. An engine with the role \"publish\" and the "
                           f"same model, options and version of vLLM publishes them") from e


def client_of(options: Options) -> Client:
    return connect(options.socket, label="vllm")


def register() -> None:
    """What vLLM's entry point calls: makes the load format known."""
    from vllm.model_executor.model_loader import register_model_loader

    from ._vllm_loader import Loader

    register_model_loader("libshare")(Loader)
