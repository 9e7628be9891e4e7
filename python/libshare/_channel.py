# SPDX-License-Identifier: MIT
"""Channels and services."""

from __future__ import annotations

import functools
import sys
import warnings
from typing import Any

from ._client import _open_members
from ._core import Array, Caller, Client, Consumer, Message, Pending, Pool, Producer, Worker
from ._extend import extend
from ._size import count, name_of

_MODES = {None: 0, "broadcast": 1, "queue": 2}
_FULL = {None: 0, "block": 1, "fail": 2, "drop": 3}
_FROM = {"newest": 0, "oldest": 1}
_WRITABLE, _EXISTING, _LATEST = 1, 2, 8
_NEVER = 0xFFFFFFFF


def _one_of(known: dict[Any, int], name: str, value: Any) -> int:
    if value not in known:
        raise ValueError(f"{name} is one of {', '.join(repr(k) for k in known if k)}, not {value!r}")
    return known[value]


def _milliseconds(stall: float | None) -> int:
    if stall is None:
        return 0
    if stall == float("inf"):
        return _NEVER
    if not 0.001 <= stall < _NEVER / 1000:
        raise ValueError(f"stall is a number of seconds, not {stall!r}")
    return int(stall * 1000)


def _data_max(data_max: int, buffers: int, usual: int = 256) -> int:
    """Where nobody says it, there is room for what describes the Arrays as well."""
    return count("data_max", data_max) or (usual + 320 * buffers if 1 < buffers <= 32 else 0)


def _joined(role: type, pool: Pool, name: str, depth: int, callers: int, workers: int, deliveries: int,
            buffers: int, data_max: int, readonly_ok: bool) -> Any:
    """A member of a service."""
    member = role(pool, name_of("service", name), count("depth", depth), count("callers", callers),
                  count("workers", workers), count("deliveries", deliveries), count("buffers", buffers),
                  _data_max(data_max, buffers, 240), readonly_ok)
    _open_members.add(member)
    return member


@extend(Pool)
class _Pool:
    def producer(
        self,
        name: str,
        *,
        mode: str | None = None,
        when_full: str | None = None,
        depth: int = 0,
        in_flight: int = 0,
        buffers: int = 0,
        data_max: int = 0,
        producers: int = 0,
        consumers: int = 0,
        deliveries: int = 0,
        history: int = 0,
        stall: float | None = None,
        wait_for: int = 0,
        existing: bool = False,
    ) -> Producer:
        """Joins a channel as a producer. Makes the channel if there is none of that name.

        mode: "broadcast", the default: every consumer gets every message; "queue": each goes to one of them.
        when_full: "block" until there is room, "fail" with NotReadyError, "drop" the oldest. depth: messages not yet
        received, a power of two up to 4096; 64. in_flight: messages whose memory is not back, each of several Arrays once
        for each. buffers: how many Arrays a message has at most, up to 32; one. data_max: bytes with each message, 65535 at most; 256, and 320 for
        each of several buffers. Each producer and each consumer has to say what is more.
        producers, consumers: how many at a time. deliveries: in a queue, how often a message is
        tried. history: in a broadcast, how many of its last messages each producer keeps for
        consumers that come later, from "oldest"; their memory stays in use. stall: seconds until a
        consumer that keeps this producer waiting is left behind; infinity: never. wait_for: so many
        consumers have to be there, or there is no room: "block" waits for them, and the others are NotReadyError then. Without it a broadcast that has none drops its
        oldest messages, beyond depth, and the next consumer's first message says how many it has lost.
        existing: NotFoundError rather than make it.

        What is left out is as it is, or the default; who asks for something else gets ExistsError. BusyError:
        there are as many as there may be. DeniedError: producers have to be allowed to write.
        """
        member = Producer(
            self, name_of("channel", name), _one_of(_MODES, "mode", mode),
            _one_of(_FULL, "when_full", when_full), count("depth", depth), count("in_flight", in_flight),
            _data_max(data_max, buffers), count("producers", producers), count("consumers", consumers),
            count("deliveries", deliveries), count("history", history), _milliseconds(stall), 0,
            _EXISTING if existing else 0, count("wait_for", wait_for), count("buffers", buffers), False,
        )
        _open_members.add(member)
        return member

    def consumer(
        self,
        name: str,
        *,
        mode: str | None = None,
        when_full: str | None = None,
        depth: int = 0,
        in_flight: int = 0,
        buffers: int = 0,
        data_max: int = 0,
        producers: int = 0,
        consumers: int = 0,
        deliveries: int = 0,
        history: int = 0,
        from_: str = "newest",
        latest: bool = False,
        writable: bool = False,
        existing: bool = False,
        readonly_ok: bool = False,
    ) -> Consumer:
        """Joins a channel as a consumer. The options are those of producer().

        from_: "newest": what is sent from now on, and what waits because no consumer was there; "oldest": and, in a
        broadcast, what is still there, which is the history at least. latest: of a broadcast, the latest message alone;
        `lost` says how many were missed. No producer waits for it, and it may hold two messages: BusyError until it has
        acknowledged one. in_flight has to be more than two for each such consumer, and the history. writable: messages
        are for writing, too. readonly_ok: see Client.lookup().
        """
        member = Consumer(
            self, name_of("channel", name), _one_of(_MODES, "mode", mode),
            _one_of(_FULL, "when_full", when_full), count("depth", depth), count("in_flight", in_flight),
            _data_max(data_max, buffers), count("producers", producers), count("consumers", consumers),
            count("deliveries", deliveries), count("history", history), 0, _one_of(_FROM, "from_", from_),
            (_WRITABLE if writable else 0) | (_EXISTING if existing else 0) | (_LATEST if latest else 0), 0,
            count("buffers", buffers), readonly_ok,
        )
        _open_members.add(member)
        return member

    def caller(self, name: str, *, depth: int = 0, callers: int = 0, workers: int = 0, deliveries: int = 0,
               buffers: int = 0, data_max: int = 0, readonly_ok: bool = False) -> Caller:
        """Joins a service as a caller. The buffers of requests and answers are of this pool.

        depth: requests that wait at one worker, of one caller; a power of two. callers, workers: how many at a
        time. deliveries: a request that so many workers died of fails. buffers: how many Arrays a
        request or an answer has at most, up to 32; one. data_max: bytes with each, 65519 at most; 240, and
        320 for each of several buffers. All have to say what is more. What is left out is as it
        is, or the default.

        As many calls are under way at a time as their answers have room for: 128, or 8192 / (callers * buffers).
        """
        return _joined(Caller, self, name, depth, callers, workers, deliveries, buffers, data_max, readonly_ok)

    def worker(self, name: str, *, depth: int = 0, callers: int = 0, workers: int = 0, deliveries: int = 0,
               buffers: int = 0, data_max: int = 0, readonly_ok: bool = False) -> Worker:
        """Joins a service as a worker: ``for request in worker:
        request.reply(…)``. The options are those of caller().
        """
        return _joined(Worker, self, name, depth, callers, workers, deliveries, buffers, data_max, readonly_ok)


def tell_loops(cls: type, name: str = "close") -> None:
    """Once the method is over, tasks that wait for the object look again."""
    method = getattr(cls, name)

    @functools.wraps(method)
    def do_and_tell(self: Any, *args: Any, **options: Any) -> Any:
        aio = sys.modules.get(f"{__package__}._aio")
        result = method(self, *args, **options)
        if aio is not None:
            aio.look_again(self)
        return result

    setattr(cls, name, do_and_tell)


class _Member:
    def __repr__(self):
        return f"<libshare.{type(self).__name__}{' closed' if self.closed else ''}>"


class _Receives:
    async def recv_async(self, timeout: float | None = None, **stream: Any) -> Message:
        """As recv(), for asyncio."""
        from . import _aio

        return await _aio.receive(self, timeout, **stream)

    def messages_async(self, **stream: Any) -> Any:
        """As messages(), for ``async for``; to iterate over the object itself is the same."""
        from . import _aio

        return _aio.messages(self, **stream)

    def __aiter__(self):
        return self.messages_async()


extend(Producer)(_Member)
extend(Consumer)(_Member)
extend(Consumer)(_Receives)
extend(Caller)(_Member)
extend(Worker)(_Member)
extend(Worker)(_Receives)
for _cls in (Producer, Consumer, Caller, Worker):
    tell_loops(_cls)
tell_loops(Producer, "drain")  # of what has answered that it is over nobody else is told


@extend(Producer)
class _Producer:
    async def send_async(self, array: Array | list[Array] | dict[str, Array] | None = None, meta: Any = None, *,
                         timeout: float | None = None, **options: Any) -> None:
        """As send(), for asyncio. Once it was canceled nothing is sent any more."""
        from . import _aio

        await _aio.in_line(self, lambda: self.send(array, meta, timeout=0, **options), timeout)

    async def drain_async(self, timeout: float | None = None) -> None:
        """As drain(), for asyncio."""
        from . import _aio

        before = self.stats()["sent"]
        await _aio.drain(self, lambda: self.drain(0, before=before), timeout)


@extend(Message)
class _Message:
    def __enter__(self):
        return self

    def __exit__(self, *_):
        if not self.closed:
            self.ack()

    def __repr__(self):
        return f"<libshare.Message {self.number} of {self.producer:#x}{' acknowledged' if self.closed else ''}>"


@extend(Client)
class _Client:
    # as they were opened before: all members are opened by their pool now
    def service(self, name: str, pool: Pool, **options: Any) -> Caller:
        """pool.caller(name), for one version more."""
        warnings.warn("Client.service(name, pool) is pool.caller(name) now", DeprecationWarning, stacklevel=2)
        return pool.caller(name, **options)

    def worker(self, name: str, pool: Pool, **options: Any) -> Worker:
        """pool.worker(name), for one version more."""
        warnings.warn("Client.worker(name, pool) is pool.worker(name) now", DeprecationWarning, stacklevel=2)
        return pool.worker(name, **options)


@extend(Caller)
class _Caller:
    async def call_async(self, array: Array | list[Array] | dict[str, Array] | None = None, meta: Any = None, *,
                         data: Any = None, timeout: float | None = None, **stream: Any) -> Message:
        """As call(), for asyncio. If the task is canceled, the call is given up."""
        from . import _aio

        pending = await _aio.in_line(self, lambda: self.start(array, meta, data=data, **stream), timeout)
        try:
            return await _aio.finish(pending, timeout, **stream)
        finally:
            if not pending.done:
                pending.cancel()


@extend(Pending)
class _Pending:
    async def finish_async(self, timeout: float | None = None, **stream: Any) -> Message:
        """As finish(), for asyncio."""
        from . import _aio

        return await _aio.finish(self, timeout, **stream)

    def __await__(self):
        return self.finish_async().__await__()
