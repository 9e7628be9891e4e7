# SPDX-License-Identifier: MIT
"""Arrays in pickles: a token, which ends after its first use or with its time limit.

So what carries pickles to other processes (queues and pools of multiprocessing, executors) carries
Arrays without a copy. Whoever unpickles is connected to the same broker once, for all that comes.

copy.copy() and copy.deepcopy() do not go that way: whoever copies wants memory that nobody else has.
"""

from __future__ import annotations

import threading
from typing import Any

from ._client import connect
from ._core import Array, Client
from ._extend import extend

_timeout = 300.0
_lock = threading.Lock()
_clients: dict[str, Client] = {}


def set_pickle_timeout(seconds: float) -> None:
    """How long what this process pickles from now on waits for somebody to unpickle it; 300 without
    this call. It holds its memory as long."""
    global _timeout
    if not seconds >= 0.001:
        raise ValueError(f"{seconds!r} is no number of seconds")
    _timeout = seconds


def client_of(address: str) -> Client:
    """This process's client of that broker, which Arrays are unpickled with. Made when there is none,
    as in a forked child."""
    with _lock:
        client = _clients.get(address)
        if client is None or client.closed:
            client = _clients[address] = connect(address)
        return client


def _load(address: str, token: bytes, readonly_ok: bool) -> Array:
    array = client_of(address).import_(token)
    array.readonly_ok = readonly_ok
    return array


@extend(Array)
class _Array:
    def __reduce__(self) -> Any:
        token = self.export(mode="r" if self.readonly else "rw", timeout=_timeout)
        return _load, (self.client.address, token, self.readonly_ok)

    def __copy__(self) -> Array:
        """Memory of its own in the same pool, in C order: Pool.array()."""
        segment = hex(self.info()["segment"])
        row = next((row for row in self.client.inspect("segments") if row["segment"] == segment), None)
        if row is None:
            raise TypeError("the pool of this Array cannot be told: Pool.array(a) makes a copy in another")
        with self.client.pool(row["pool"], create=False) as pool:
            return pool.array(self)

    def __deepcopy__(self, memo: Any) -> Array:
        return self.__copy__()
