# SPDX-License-Identifier: MIT
"""One class for each error of the library, all of them Errors.

Where Python has a class that people expect, it is that one as well: ``except TimeoutError`` and
``except libshare.TimedOutError`` catch the same. ``code`` is the library's number, ``name`` its name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import _core

if TYPE_CHECKING:
    from ._core import Message


class Error(Exception):
    """What the library, or this package, cannot do; says why, and what to do about it."""

    code: int = 0
    name: str = ""


class InvalidArgumentError(Error, ValueError):
    """An argument is wrong: a size, a mode, a stream, a tensor that does not fit its buffer."""


class OutOfMemoryError(Error, MemoryError):
    """The pool is full, or the machine."""


class NotFoundError(Error, FileNotFoundError):
    """There is no such name, pool or token, or no such other object."""


class ExistsError(Error, FileExistsError):
    """The object exists already, or exists with other options than were asked for."""


class DeniedError(Error, PermissionError):
    """This user may not do that, or the handle is read-only."""


class QuotaExceededError(Error):
    """This user would have more than one user may have."""


class NotReadyError(Error, BlockingIOError):
    """There is nothing yet, or no room, and the time limit is 0."""


class TimedOutError(Error, TimeoutError):
    """The time limit was reached."""


class CanceledError(Error):
    """The caller has given the call up, or the worker has given the request up."""


class WaitInterruptedError(Error, InterruptedError):
    """The wait was interrupted."""


class BusyError(Error):
    """The object is in use, or another process has replaced it meanwhile."""


class StaleError(Error):
    """The object is gone, or is of another broker, or the consumer was left behind."""


class NotSupportedError(Error):
    """The device, the kind of memory or the state of a stream does not allow it."""


class DisconnectedError(Error, ConnectionError):
    """The connection to the broker is lost. Mapped memory stays."""


class ForkedError(Error):
    """The object belongs to the parent process. Connect again in the child."""


class OwnerDiedError(Error):
    """The process that was to make this data died before the data was ready. ``message``: the message
    that this came with, which has to be acknowledged, or None."""

    message: Message | None = None


class ProtocolError(Error):
    """The other side does not speak as it should."""


class SystemCallError(Error, OSError):
    """A system call failed."""


class NoBrokerError(Error, ConnectionError):
    """No broker could be reached, or started."""


class NoDeviceError(Error):
    """There is no such device, or no driver for it."""


class DeviceError(Error):
    """The device or its driver failed."""


class PeerGoneError(Error, BrokenPipeError):
    """The other side of a channel has left."""


class ClosedError(Error, ValueError):
    """The object was given up: closed, released, acknowledged."""


_CLASSES = {
    "EINVAL": InvalidArgumentError,
    "ENOMEM": OutOfMemoryError,
    "ENOENT": NotFoundError,
    "EEXIST": ExistsError,
    "EACCES": DeniedError,
    "EQUOTA": QuotaExceededError,
    "EAGAIN": NotReadyError,
    "ETIMEDOUT": TimedOutError,
    "ECANCELED": CanceledError,
    "EBUSY": BusyError,
    "ESTALE": StaleError,
    "ENOTSUP": NotSupportedError,
    "EDISCONNECTED": DisconnectedError,
    "EFORK": ForkedError,
    "EOWNERDEAD": OwnerDiedError,
    "EPROTO": ProtocolError,
    "ESYSTEM": SystemCallError,
    "ENOBROKER": NoBrokerError,
    "ENODEV": NoDeviceError,
    "EDEVICE": DeviceError,
    "EPIPE": PeerGoneError,
    "EINTR": WaitInterruptedError,
}

by_number: dict[int, type[Error]] = {}

for _name, _class in _CLASSES.items():
    _class.code = getattr(_core, _name)
    _class.name = "SHARE_" + _name
    by_number[_class.code] = _class

# What they were called in the version before.
BEFORE: dict[str, type[Error]] = {
    "SystemCallFailed": SystemCallError,
    "DeviceFailed": DeviceError,
    "Interrupted": WaitInterruptedError,
} | {
    c.__name__.removesuffix("Error"): c
    for c in (*_CLASSES.values(), ClosedError)
    if c not in (SystemCallError, DeviceError, WaitInterruptedError, ProtocolError)
}
