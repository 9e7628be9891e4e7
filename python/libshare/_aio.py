# SPDX-License-Identifier: MIT
"""asyncio, over the descriptors that the library has. Imported when it is first used."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import weakref
from collections import deque
from time import monotonic
from typing import Any

from ._errors import ClosedError, NotReadyError, TimedOutError

# Of each loop: futures by descriptor, as a loop calls one function for each.
_waiting: weakref.WeakKeyDictionary[Any, dict[int, set[asyncio.Future[None]]]] = (
    weakref.WeakKeyDictionary()
)

# Who waits for what an object tells: closing it ends these waits. Several loops take each other's
# news, so each of them looks again now and then; a loop that has an object for itself never does.
_waiting_for: weakref.WeakKeyDictionary[Any, set[tuple[Any, asyncio.Future[None]]]] = (
    weakref.WeakKeyDictionary()
)
_lock = threading.Lock()
_LOOK_AGAIN = 0.5

# Who waits to send, to receive or to call, by the loop and the object, whose ids are no others' while somebody waits. The
# first has the turn, and who comes later stands behind, so that messages keep the order in which they were asked for.
_lines: dict[tuple[int, int], deque[asyncio.Future[None]]] = {}


def _wake(loop: asyncio.AbstractEventLoop, fd: int) -> None:
    for future in _waiting[loop].pop(fd, ()):
        if not future.done():
            future.set_result(None)
    loop.remove_reader(fd)


def _enter(thing: Any, loop: Any, future: asyncio.Future[None]) -> bool:
    """Notes who waits. Whether other loops do so, too; the first of those then looks anew."""
    with _lock:
        waiting = _waiting_for.setdefault(thing, set())
        others = [(other, f) for other, f in waiting if other is not loop]
        waiting.add((loop, future))
    for other, f in others:
        _end_soon(other, f)
    return bool(others)


def _leave(thing: Any, loop: Any, future: asyncio.Future[None]) -> None:
    with _lock:
        _waiting_for[thing].discard((loop, future))


def _end_soon(loop: Any, future: asyncio.Future[None]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop was closed
        loop.call_soon_threadsafe(_expire, future)


def look_again(thing: Any) -> None:
    """Whoever waits for it does so: it was closed, or others were told what they wait for."""
    with _lock:
        waiting = list(_waiting_for.get(thing, ()))
    for loop, future in waiting:
        _end_soon(loop, future)


async def readable(*things: Any, timeout: float | None = None) -> None:
    """Waits until the descriptor of one of them is readable, or for so many seconds."""
    loop = asyncio.get_running_loop()
    by_fd = _waiting.setdefault(loop, {})
    future: asyncio.Future[None] = loop.create_future()
    fds = [thing.fileno() for thing in things]
    for fd in fds:
        if fd not in by_fd:
            by_fd[fd] = set()
            loop.add_reader(fd, _wake, loop, fd)
        by_fd[fd].add(future)
    for thing in things:
        if _enter(thing, loop, future):
            timeout = _LOOK_AGAIN if timeout is None else min(timeout, _LOOK_AGAIN)
    try:
        await _for_so_long(future, timeout)
    finally:
        for thing in things:
            _leave(thing, loop, future)
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
    try:
        return ask()
    except NotReadyError:
        pass
    limit = _Limit(timeout)
    for thing in tell:
        thing.fileno()
    while True:
        try:
            return ask()
        except NotReadyError as e:
            why = e
        await readable(*tell, timeout=limit.left(why))


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
