# SPDX-License-Identifier: MIT
"""asyncio, over the descriptors that the library has. Imported when it is first used."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from time import monotonic
from typing import Any

from ._core import Client, _untell
from ._errors import ClosedError, Error, NotReadyError, TimedOutError

# Of each loop: futures by descriptor, as a loop calls one function for each.
_waiting: weakref.WeakKeyDictionary[Any, dict[int, set[asyncio.Future[None]]]] = (
    weakref.WeakKeyDictionary()
)

# Who waits for what an object tells, in which loop, and whether it looks again now and then: closing the object ends these
# waits. Several loops take each other's news, so each of them looks so; a loop that has an object for itself never does.
_waiting_for: weakref.WeakKeyDictionary[Any, dict[asyncio.Future[None], tuple[Any, bool]]] = (
    weakref.WeakKeyDictionary()
)
_lock = threading.Lock()
_LOOK_AGAIN = 0.5

# Who waits to send, to receive or to call, by the loop and the object, whose ids are no others' while somebody waits. The
# first has the turn, and who comes later stands behind, so that messages keep the order in which they were asked for.
_lines: dict[tuple[int, int], deque[asyncio.Future[None]]] = {}


def _wake(loop: asyncio.AbstractEventLoop, fd: int, thing: Any) -> None:
    """All who wait ask again. So the thing tells no more, as some of what it tells nobody waits for by now: what a task
    that has given up has asked for, or the answer to a call that nobody awaits yet. Those who wait by a client need not
    all ask: what it has got is in mailboxes once it has dispatched, and each of these has a descriptor that tells."""
    if isinstance(thing, Client):
        with contextlib.suppress(Error):  # then there is nothing more to come, and all are told so
            thing.dispatch()
            return
    loop.remove_reader(fd)
    _untell(thing)
    for future in _waiting[loop].pop(fd, ()):
        _expire(future)
    look_again(thing, but=loop)


def _enter(thing: Any, loop: Any, future: asyncio.Future[None]) -> bool:
    """Notes who waits, before it asks for the last time. Whether other loops do so, too; these look now and then, too."""
    with _lock:
        waiting = _waiting_for.setdefault(thing, {})
        others = [
            (other, f, looks) for f, (other, looks) in waiting.items() if other is not loop and not other.is_closed()
        ]
        waiting[future] = loop, bool(others)
    for other, f, looks in others:
        if not looks:
            _end_soon(other, f)
    return bool(others)


def _leave(thing: Any, future: asyncio.Future[None]) -> None:
    with _lock:  # the garbage collector may have forgotten the thing first, where it takes both
        _waiting_for.get(thing, {}).pop(future, None)


def _end_soon(loop: Any, future: asyncio.Future[None]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop was closed
        loop.call_soon_threadsafe(_expire, future)


def look_again(thing: Any, but: Any = None) -> None:
    """Whoever waits for it, but in that loop, does so: it was closed, or others were told what they wait for."""
    with _lock:
        waiting = list(_waiting_for.get(thing, {}).items())
    for future, (loop, _) in waiting:
        if loop is not but:
            _end_soon(loop, future)


@contextlib.contextmanager
def _entered(things: Sequence[Any], future: asyncio.Future[None]) -> Iterator[bool]:
    loop = future.get_loop()
    others = [_enter(thing, loop, future) for thing in things]
    try:
        yield any(others)
    finally:
        for thing in things:
            _leave(thing, future)


async def _readable(things: Sequence[Any], future: asyncio.Future[None], timeout: float | None) -> None:
    """Waits until the descriptor of one of them is readable, the future has ended, or for so many seconds."""
    loop = future.get_loop()
    by_fd = _waiting.setdefault(loop, {})
    fds = [thing.fileno() for thing in things]
    for fd, thing in zip(fds, things):
        if fd not in by_fd:
            by_fd[fd] = set()
            loop.add_reader(fd, _wake, loop, fd, thing)
        by_fd[fd].add(future)
    try:
        await _for_so_long(future, timeout)
    finally:
        for fd in fds:
            if fd in by_fd:
                by_fd[fd].discard(future)
                if not by_fd[fd]:
                    del by_fd[fd]
                    loop.remove_reader(fd)


def _expire(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def _for_so_long(future: asyncio.Future[None], timeout: float | None) -> None:
    timer = None if timeout is None else future.get_loop().call_later(timeout, _expire, future)
    try:
        await future
    finally:
        if timer is not None:
            timer.cancel()


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

    def left(self, why: NotReadyError) -> float | None:
        """How long to wait still; TimedOutError, NotReadyError: it is over."""
        if self._once:
            raise why
        if self._end is None:
            return None
        left = self._end - self._loop.time()
        if left <= 0:
            raise TimedOutError(str(why).replace(str(NotReadyError("not ready yet")), "time limit reached")) from None
        return left


async def _ready(ask: Any, timeout: float | None, *tell: Any) -> Any:
    """What ask() answers, without waiting if it has something; otherwise once the descriptor of one
    of @tell says that it may have."""
    if monotonic() >= _turn.ends:
        await _give_way()
    limit = None
    while True:
        try:
            return ask()
        except NotReadyError:
            pass
        if limit is None:
            limit = _Limit(timeout)
            for thing in tell:
                thing.fileno()
        future = asyncio.get_running_loop().create_future()
        with _entered(tell, future) as others:
            try:
                return ask()
            except NotReadyError as e:
                left = limit.left(e)
            if others:
                left = _LOOK_AGAIN if left is None else min(left, _LOOK_AGAIN)
            await _readable(tell, future, left)


# What is left of a time limit that is over: one look still.
_ONE_LOOK = 1e-9


async def in_line(member: Any, ask: Any, timeout: float | None) -> Any:
    """As _ready(), after whoever of this loop asked the member before; who does not wait stands in no line."""
    if timeout == 0:
        return await _ready(ask, 0, member)
    loop = asyncio.get_running_loop()
    here = id(loop), id(member)
    if here not in _lines and monotonic() < _turn.ends:
        try:
            return ask()
        except NotReadyError:
            pass
    line = _lines.setdefault(here, deque())
    turn = loop.create_future()
    line.append(turn)
    try:
        if line[0] is not turn:
            end = None if timeout is None else loop.time() + timeout
            await _for_so_long(turn, timeout)
            timeout = None if end is None else max(end - loop.time(), _ONE_LOOK)
        return await _ready(ask, timeout, member)
    finally:
        line.remove(turn)
        if line:
            _expire(line[0])
        else:
            del _lines[here]


async def receive(member: Any, timeout: float | None, **stream: Any) -> Any:
    """The next message of a Consumer or a Worker."""
    return await in_line(member, lambda: member.recv(0, **stream), timeout)


async def messages(member: Any, **stream: Any) -> Any:
    """Messages, each acknowledged at the end of the step."""
    from ._errors import PeerGoneError

    while True:
        try:
            message = await receive(member, None, **stream)
        except PeerGoneError:
            return
        yield message
        if not message.closed:
            message.ack(**stream)


async def mail(thing: Any, ask: Any, timeout: float | None) -> Any:
    """What ask(0) answers, once the descriptor of thing, which gets what the client dispatches, says
    that it has something."""

    def ask_if_open() -> Any:
        if thing.closed:
            raise ClosedError("the object was given up")
        return ask(0)

    return await _ready(ask_if_open, timeout, thing, thing.client)


async def finish(pending: Any, timeout: float | None, **stream: Any) -> Any:
    """The answer to a call."""
    return await _ready(lambda: pending.finish(0, **stream), timeout, pending.caller)


async def drain(producer: Any, try_once: Any, timeout: float | None) -> Any:
    """What try_once() answers, once enough was acknowledged."""
    return await _ready(try_once, timeout, producer)
