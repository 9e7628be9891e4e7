# SPDX-License-Identifier: MIT
"""One class for each error of the library, all of them Errors.

Where Python has a class that people expect, it is that one as well: ``except TimeoutError`` and
``except libshare.TimedOut`` catch the same. ``code`` is the library's number, ``name`` its name.
"""

from __future__ import annotations

from . import _core


class Error(Exception):
    """What the library, or this package, cannot do; says why, and what to do about it."""

    code: int = 0
    name: str = ""


class InvalidArgument(Error, ValueError):
    """An argument is wrong: a size, a mode, a stream, a tensor that does not fit its buffer."""


class OutOfMemory(Error, MemoryError):
    """The pool is full, or the machine."""


class NotFound(Error, FileNotFoundError):
    """There is no such name, pool or token, or no such other object."""


class Exists(Error, FileExistsError):
    """The object exists already, or exists with other options than were asked for."""


class Denied(Error, PermissionError):
    """This user may not do that, or the handle is read-only."""


class QuotaExceeded(Error):
    """This user would have more than one user may have."""


class NotReady(Error, BlockingIOError):
    """There is nothing yet, or no room, and the time limit is 0."""


class TimedOut(Error, TimeoutError):
    """The time limit was reached."""


class Canceled(Error):
    """The caller has given the call up, or the worker has given the request up."""


class Interrupted(Error, InterruptedError):
    """The wait was interrupted."""


class Busy(Error):
    """The object is in use, or another process has replaced it meanwhile."""


class Stale(Error):
    """The object is gone, or is of another broker, or the consumer was left behind."""


class NotSupported(Error):
    """The device, the kind of memory or the state of a stream does not allow it."""


class Disconnected(Error, ConnectionError):
    """The connection to the broker is lost. Mapped memory stays."""


class Forked(Error):
    """The object belongs to the parent process. Connect again in the child."""


class OwnerDied(Error):
    """The process that was to make this data died before the data was ready. ``message``: the message
    that this came with, which has to be acknowledged, or None."""

    message = None


class ProtocolError(Error):
    """The other side does not speak as it should."""


class SystemCallFailed(Error, OSError):
    """A system call failed."""


class NoBroker(Error, ConnectionError):
    """No broker could be reached, or started."""


class NoDevice(Error):
    """There is no such device, or no driver for it."""


class DeviceFailed(Error):
    """The device or its driver failed."""


class PeerGone(Error, BrokenPipeError):
    """The other side of a channel has left."""


class Closed(Error, ValueError):
    """The object was given up: closed, released, acknowledged."""


_CLASSES = {
    "EINVAL": InvalidArgument,
    "ENOMEM": OutOfMemory,
    "ENOENT": NotFound,
    "EEXIST": Exists,
    "EACCES": Denied,
    "EQUOTA": QuotaExceeded,
    "EAGAIN": NotReady,
    "ETIMEDOUT": TimedOut,
    "ECANCELED": Canceled,
    "EBUSY": Busy,
    "ESTALE": Stale,
    "ENOTSUP": NotSupported,
    "EDISCONNECTED": Disconnected,
    "EFORK": Forked,
    "EOWNERDEAD": OwnerDied,
    "EPROTO": ProtocolError,
    "ESYSTEM": SystemCallFailed,
    "ENOBROKER": NoBroker,
    "ENODEV": NoDevice,
    "EDEVICE": DeviceFailed,
    "EPIPE": PeerGone,
    "EINTR": Interrupted,
}

by_number: dict[int, type[Error]] = {}

for _name, _class in _CLASSES.items():
    _class.code = getattr(_core, _name)
    _class.name = "SHARE_" + _name
    by_number[_class.code] = _class
