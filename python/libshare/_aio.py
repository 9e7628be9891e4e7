# SPDX-License-Identifier: MIT
"""asyncio, over the descriptors that the library has. Imported when it is first used."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import weakref
from time import monotonic
from typing import Any

from ._errors import Closed, NotReady, TimedOut

# Of each loop: futures by descriptor, as a loop calls one function for each.
_waiting: weakref.WeakKeyDictionary[Any, dict[int, set[asyncio.Future[None]]]] = (
    weakref.WeakKeyDictionary()
)

# What no descriptor tells: that a worker has died, that another thread has closed the object.
_LOOK_AGAIN = 0.5


def _wake(loop: asyncio.AbstractEventLoop, fd: int) -> None:
    for future in _waiting[loop].pop(fd, ()):
        if not future.done():
            future.set_result(None)
    loop.remove_reader(fd)


async def readable(*fds: int, timeout: float | None = None) -> None:
    """Waits until one of the descriptors is readable, or for so many seconds."""
    loop = asyncio.get_running_loop()
    by_fd = _waiting.setdefault(loop, {})
    future: asyncio.Future[None] = loop.create_future()
    for fd in fds:
        if fd not in by_fd:
            by_fd[fd] = set()
            loop.add_reader(fd, _wake, loop, fd)
        by_fd[fd].add(future)
    timer = None if timeout is None else loop.call_later(timeout, _expire, future)
    try:
        await future
    finally:
        if timer is not None:
            timer.cancel()
        for fd in fds:
            if fd in by_fd:
                by_fd[fd].discard(future)
                if not by_fd[fd]:
                    del by_fd[fd]
                    loop.remove_reader(fd)


def _expire(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


# How long a task of a loop goes on with what comes at once before others have their turn.
_TURN = 0.001


class _Turn(threading.local):
    """When the turn of whichever task runs in this thread's loop ends."""

    ends = 0.0


_turn = _Turn()


async def _give_way() -> None:
    """Nothing is in hand meanwhile that a task which is canceled here would lose."""
    await asyncio.sleep(0)
    _turn.ends = monotonic() + _TURN


class _Limit:
    """A time limit in seconds, or None."""

    def __init__(self, timeout: float | None):
        self._loop = asyncio.get_running_loop()
        self._end = None if timeout is None else self._loop.time() + timeout
        self._once = timeout == 0

    def step(self) -> float:
        """How long to wait before looking again; TimedOut, NotReady: it is over."""
        if self._once:
            raise NotReady("not ready yet")
        if self._end is None:
            return _LOOK_AGAIN
        left = self._end - self._loop.time()
        if left <= 0:
            raise TimedOut("time limit reached")
        return min(left, _LOOK_AGAIN)


async def _ready(ask: Any, timeout: float | None, *tell: Any) -> Any:
    """What ask() answers, without waiting if it has something; otherwise once the descriptor of one
    of @tell says that it may have."""
    if monotonic() >= _turn.ends:
        await _give_way()
    try:
        return ask()
    except NotReady:
        pass
    limit = _Limit(timeout)
    fds = [thing.fileno() for thing in tell]
    while True:
        try:
            return ask()
        except NotReady:
            await readable(*fds, timeout=limit.step())


async def receive(member: Any, timeout: float | None, **stream: Any) -> Any:
    """The next message of a Consumer or a Worker."""
    return await _ready(lambda: member.recv(0, **stream), timeout, member)


async def messages(member: Any, **stream: Any) -> Any:
    """Messages, each acknowledged at the end of the step."""
    from ._errors import PeerGone

    while True:
        try:
            message = await receive(member, None, **stream)
        except PeerGone:
            return
        yield message
        if not message.closed:
            message.ack(**stream)


async def mail(thing: Any, ask: Any, timeout: float | None) -> Any:
    """What ask(0) answers, once the descriptor of thing, which gets what the client dispatches, says
    that it has something."""

    def ask_if_open() -> Any:
        if thing.closed:
            raise Closed("the object was given up")
        return ask(0)

    return await _ready(ask_if_open, timeout, thing, thing.client)


async def finish(pending: Any, timeout: float | None, **stream: Any) -> Any:
    """The answer to a call."""
    return await _ready(lambda: pending.finish(0, **stream), timeout, pending.caller)


async def send(try_once: Any, timeout: float | None) -> None:
    """try_once() again and again, each in another thread, as it waits for a moment itself."""
    limit = _Limit(timeout)
    while True:
        attempt = asyncio.get_running_loop().run_in_executor(None, try_once)
        try:
            return await asyncio.shield(attempt)
        except TimedOut as late:
            try:
                limit.step()
            except TimedOut:
                raise late from None  # it says what is waited for
        except asyncio.CancelledError:
            with contextlib.suppress(TimedOut):
                return await attempt
            raise


async def room(start: Any, timeout: float | None) -> Any:
    """What start() answers, once there is room. No descriptor tells."""
    limit = _Limit(timeout)
    wait = 0.001
    while True:
        try:
            return start()
        except NotReady:
            await asyncio.sleep(min(limit.step(), wait))
            wait = min(2 * wait, 0.05)
