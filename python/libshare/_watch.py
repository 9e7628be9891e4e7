# SPDX-License-Identifier: MIT
"""What happens meanwhile: changes of names, look-ups that were started, fences, events."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

from . import _core
from ._channel import tell_loops
from ._core import Array, Client, Event, Fence, Operation, Watch
from ._errors import ClosedError
from ._extend import extend

_MODES = {"r": 1, "rw": 3}


class Change(NamedTuple):
    """A change of a name."""

    change: str  #: "published", "replaced", "unpublished"; "overflow": some were lost, list again
    name: str
    version: int
    buffer: int  #: Array.id; 0 when unpublished


@extend(Watch)
class _Watch:
    """Iterates over Changes, as they come."""

    def next(self, timeout: float | None = None) -> Change:
        """The next Change. TimedOutError, NotReadyError (timeout 0): there was none."""
        return Change(*self._next(timeout))

    async def next_async(self, timeout: float | None = None) -> Change:
        """As next(), for asyncio."""
        from . import _aio

        return Change(*await _aio.mail(self, self._next, timeout))

    def __iter__(self):
        return self

    def __next__(self):
        try:
            return self.next()
        except ClosedError:
            raise StopIteration from None

    def __aiter__(self):
        return self

    async def __anext__(self):
        try:
            return await self.next_async()
        except ClosedError:
            raise StopAsyncIteration from None


@extend(Operation)
class _Operation:
    async def result_async(self) -> Array | None:
        """As result(), for asyncio. Canceling the task gives the operation up."""
        from . import _aio

        try:
            return await _aio.mail(self, self.result, None)
        finally:
            self.close()

    def __await__(self):
        return self.result_async().__await__()


for _cls in (Watch, Operation):
    tell_loops(_cls)


@extend(Client)
class _Client:
    def watch(self, prefix: str = "") -> Watch:
        """Every later change of the names that start with prefix: ``for change in c.watch("a/")``,
        or ``async for``. To see the state and all changes after it, watch first, then names().
        Ends when it is closed.
        """
        return Watch(self, prefix)

    def lookup_async(self, name: str, mode: str = "r", *, timeout: float | None = None,
                     readonly_ok: bool = False, **stream: Any) -> Operation:
        """Starts a look-up: ``a = await c.lookup_async("name", timeout=1.0)``. As lookup().
        """
        if mode not in _MODES:
            raise ValueError("a mode is 'r' or 'rw'")
        if timeout is not None and not timeout >= 0:
            raise ValueError("a time limit is a number of seconds, 0 or more, or None")
        milliseconds = -1 if timeout is None else min(int(timeout * 1000 + 0.999), (1 << 31) - 1)
        return Operation(self, name, _MODES[mode], milliseconds, _one_stream(stream), readonly_ok)

    def record(self, **stream: Any) -> Fence:
        """A Fence that is reached when all work that was enqueued on the stream so far is done, and which has
        wait(), query() and synchronize(). It may
        be sent to other processes, and forgotten. None: the calling thread, which is done already.
        """
        return _core._fence_record(self, _one_stream(stream))

    # as they were called before fences had methods
    def wait(self, fence: Fence, **stream: Any) -> None:
        """fence.wait(client=…), for one version more."""
        _now("Client.wait(fence)", "fence.wait()")
        fence.wait(client=self, **stream)

    def query(self, fence: Fence) -> bool:
        """fence.query(client=…), for one version more."""
        _now("Client.query(fence)", "fence.query()")
        return fence.query(client=self)

    def synchronize(self, fence: Fence, timeout: float | None = None) -> None:
        """fence.synchronize(client=…), for one version more."""
        _now("Client.synchronize(fence)", "fence.synchronize()")
        fence.synchronize(timeout, client=self)

    def event(self, *, device: str | None = None, name: str | None = None,
              open: str | None = None, token: bytes | None = None) -> Event:
        """An interprocess event of CUDA: a new one, which others may open by its name; or the one
        of that name (open), or of that token. Prefer fences: see <share/event.h>.
        """
        return Event(self, device, name, open, token)


def _one_stream(stream: dict[str, Any]) -> Any:
    if stream.keys() - {"stream"}:
        raise TypeError(f"there is no argument {', '.join(stream.keys() - {'stream'})!r}")
    return stream.get("stream")


def _now(before: str, now: str) -> None:
    warnings.warn(f"{before} is {now} now", DeprecationWarning, stacklevel=3)


@extend(Fence)
class _Fence:
    # client: by which connection; the one that has recorded it is what is left out. A fence that came from another
    # process has none.

    def _by(self, client: Client | None) -> Client:
        if client is None:
            client = self.client
        if client is None:
            raise ValueError("this fence came from elsewhere: say client=, by which to ask for it")
        return client

    def wait(self, *, client: Client | None = None, **stream: Any) -> None:
        """Makes the stream wait for the fence; None: the calling thread waits. client: by whose connection, if
        the fence came from another process. OwnerDiedError: its owner died before it got there.
        StaleError: there is no such timeline any more.
        """
        _core._fence_wait(self._by(client), self, _one_stream(stream))

    def query(self, *, client: Client | None = None) -> bool:
        """Whether the fence is reached. Never waits. OwnerDiedError: it will never be reached."""
        return _core._fence_query(self._by(client), self)

    def synchronize(self, timeout: float | None = None, *, client: Client | None = None) -> None:
        """Waits until the fence is reached. TimedOutError, OwnerDiedError."""
        _core._fence_synchronize(self._by(client), self, timeout)


@extend(Array)
class _Array:
    async def good(self) -> None:
        """Waits until the content is good; see status(). OwnerDiedError: it will never be good."""
        await Operation(self.client, self)


def _fence_equal(self: Fence, other: object) -> bool:
    if not isinstance(other, Fence):
        return NotImplemented
    return (self.timeline, self.value) == (other.timeline, other.value)


Fence.__eq__ = _fence_equal
Fence.__hash__ = lambda self: hash((self.timeline, self.value))
Fence.__repr__ = lambda self: f"libshare.Fence({self.timeline:#x}, {self.value})"
