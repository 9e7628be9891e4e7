# SPDX-License-Identifier: MIT
"""Arrays in pickles: a token, which ends after its last use (as a rule its first) or with its time limit.

So what carries pickles to other processes (queues and pools of multiprocessing, executors) carries
Arrays without a copy. Whoever unpickles is connected to the same broker once, for all that comes.

copy.copy() and copy.deepcopy() do not go that way: whoever copies wants memory that nobody else has.
"""

from __future__ import annotations

import os
import threading
from typing import Any

from ._client import connect, pool_for_now
from ._core import (Array, Caller, Client, Consumer, Event, HostStream, Message, Operation, Pending, Pool, Producer, Watch,
                    Worker)
from ._errors import NotFoundError
from ._extend import extend

_timeout = 300.0
_uses = 1
_lock = threading.Lock()
_clients: dict[str, Client] = {}


def _after_fork() -> None:
    """Another thread may have held the lock."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def set_pickle_timeout(seconds: float) -> None:
    """How long what this process pickles from now on waits for somebody to unpickle it; 300 without
    this call. It holds its memory as long."""
    global _timeout
    if not seconds >= 0.001:
        raise ValueError(f"{seconds!r} is no number of seconds")
    _timeout = seconds


def _checked_uses(uses: int) -> int:
    if isinstance(uses, bool) or not isinstance(uses, int) or not 0 <= uses < 0xFFFFFFFF:
        raise ValueError(f"{uses!r} is no number of uses")
    return uses


def set_pickle_uses(uses: int) -> None:
    """How often each pickle that this process makes from now on can be unpickled; once without this call,
    0: any number of times within the time limit. It holds its memory until then, so Array.pickled() is
    better where only some pickles go to several processes."""
    global _uses
    _uses = _checked_uses(uses)


def client_of(address: str) -> Client:
    """This process's client of that broker, which Arrays are unpickled with. Made when there is none,
    as in a forked child."""
    with _lock:
        client = _clients.get(address)
        if client is None or client.closed:
            client = _clients[address] = connect(address)
        return client


def imported(address: str, token: bytes, **stream: Any) -> Array:
    """What a pickle stands for."""
    try:
        return client_of(address).import_(token, **stream)
    except NotFoundError as e:
        if "used up" in str(e):
            e.add_note("A pickle can be unpickled once: Array.pickled(uses=N) and set_pickle_uses() make one for N times.")
        raise


def _load(address: str, token: bytes, readonly_ok: bool) -> Array:
    array = imported(address, token)
    array.readonly_ok = readonly_ok
    return array


class _Pickled:
    """What Array.pickled() returns; unpickled, it is the Array."""

    def __init__(self, array: Array, uses: int):
        self._array, self._uses = array, uses

    def __reduce__(self) -> Any:
        return self._array._reduce(self._uses)


@extend(Array)
class _Array:
    def __reduce__(self) -> Any:
        return self._reduce(_uses)

    def _reduce(self, uses: int) -> Any:
        token = self.export(mode="r" if self.readonly else "rw", uses=uses, timeout=_timeout)
        return _load, (self.client.address, token, self.readonly_ok)

    def pickled(self, uses: int = 1) -> Any:
        """To be pickled instead of the Array, where one pickle goes to several processes: it can be
        unpickled so many times (0: any number of times within the time limit), and each time it is the
        Array."""
        return _Pickled(self, _checked_uses(uses))

    def __copy__(self) -> Array:
        """Memory of its own in the same pool, in C order: Pool.array()."""
        return self._copied()

    def _copied(self, **stream: Any) -> Array:
        segment = hex(self.info()["segment"])
        row = next((row for row in self.client.inspect("segments") if row["segment"] == segment), None)
        if row is None:
            raise TypeError("the pool of this Array cannot be told: Pool.array(a) makes a copy in another")
        with pool_for_now(self.client, row["pool"]) as pool:
            return pool.array(self, **stream)

    def __deepcopy__(self, memo: Any) -> Array:
        return self.__copy__()


class _Stays:
    def __reduce__(self) -> Any:
        raise TypeError(f"a {type(self).__name__} of libshare is neither pickled nor copied: another process connects, as by "
                        "libshare.client_of(client.address), and opens its own; Arrays, also those of messages, and "
                        "Fences can be pickled")


for _cls in (Caller, Client, Consumer, Event, HostStream, Message, Operation, Pending, Pool, Producer, Watch, Worker):
    extend(_cls)(_Stays)
