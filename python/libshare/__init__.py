# SPDX-License-Identifier: MIT
"""Memory shared between processes, owned by a broker.

    with libshare.connect() as c:
        pool = c.pool("frames", kind="host", limit="2GiB")
        a = pool.empty((1080, 1920, 3), "uint8")
        numpy.asarray(a)[:] = frame
        a.publish("frames/left")
        b = c.lookup("frames/left")

Time limits are in seconds; None waits without limit, 0 does not wait. ``stream=`` takes a stream of
torch, CuPy, numba, cuda.core or PyCUDA, whatever has ``__cuda_stream__``, a number, a HostStream, or
None for the default stream (of host memory: the calling thread); left out, it is the stream on which
an imported framework works.

All errors are Errors, and those of Python's where people expect them. Any object may be used in any
thread, and be closed while others wait with it. Objects made before a fork raise ForkedError in the child.
"""

from __future__ import annotations

import json as _json
import os as _os
import typing as _typing

try:
    from . import _core
except ImportError as _error:
    from ._library import explain as _explain

    raise _explain(_error) from _error
from . import _dtype, _errors, _streams
from ._core import (
    Array,
    Caller,
    Client,
    Consumer,
    Event,
    Fence,
    HostStream,
    Message,
    Operation,
    Pending,
    Pool,
    Producer,
    Watch,
    Worker,
)
from ._errors import (
    BusyError,
    CanceledError,
    ClosedError,
    DeniedError,
    DeviceError,
    DisconnectedError,
    Error,
    ExistsError,
    ForkedError,
    InvalidArgumentError,
    NoBrokerError,
    NoDeviceError,
    NotFoundError,
    NotReadyError,
    NotSupportedError,
    OutOfMemoryError,
    OwnerDiedError,
    PeerGoneError,
    ProtocolError,
    QuotaExceededError,
    StaleError,
    SystemCallError,
    TimedOutError,
    WaitInterruptedError,
)

__version__ = _core.version

_core._set_up(
    _errors.by_number,
    _errors.ClosedError,
    _dtype.code,
    _streams.current,
    _streams.FRAMEWORKS,
    _json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, default=_dtype.plain).encode,
    _json.loads,
)
_os.register_at_fork(after_in_child=_core._listeners_forget)

from . import _array, _channel, _device, _pickle  # noqa: E402
from ._client import Name, adopt, connect  # noqa: E402
from ._find import array_of  # noqa: E402
from ._pickle import client_of, set_pickle_timeout, set_pickle_uses  # noqa: E402
from ._stats import stats  # noqa: E402
from ._watch import Change  # noqa: E402

# where programs find them, so that messages name them so
for _error in (Error, ClosedError, *_errors.by_number.values()):
    _error.__module__ = __name__
del _error

__all__ = [
    "Array", "BusyError", "Caller", "CanceledError", "Change", "Client", "ClosedError", "Consumer",
    "DeniedError", "DeviceError", "DisconnectedError", "Error", "Event", "ExistsError", "Fence",
    "ForkedError", "HostStream", "InvalidArgumentError", "Message", "Name", "NoBrokerError",
    "NoDeviceError", "NotFoundError", "NotReadyError", "NotSupportedError", "Operation", "OutOfMemoryError",
    "OwnerDiedError", "PeerGoneError", "Pending", "Pool", "Producer", "ProtocolError", "QuotaExceededError",
    "StaleError", "SystemCallError", "TimedOutError", "WaitInterruptedError", "Watch", "Worker", "adopt",
    "array_of", "client_of", "connect", "set_pickle_timeout", "set_pickle_uses", "stats",
]


_PARTS = {"arrow", "cuda_core", "cupy", "numba", "pycuda", "ray", "rmm", "torch", "triton", "vllm", "weights"}

if _typing.TYPE_CHECKING:
    from . import arrow as arrow
    from . import cuda_core as cuda_core
    from . import cupy as cupy
    from . import numba as numba
    from . import pycuda as pycuda
    from . import ray as ray
    from . import rmm as rmm
    from . import torch as torch
    from . import triton as triton
    from . import vllm as vllm
    from . import weights as weights
else:  # to a type checker, a module with this function has every name

    def __getattr__(name: str):
        """The modules for frameworks, which are imported when they are used; and the names that errors had before,
        for one version more."""
        if name in _PARTS:
            import importlib

            try:
                return importlib.import_module(f"{__name__}.{name}")
            except ModuleNotFoundError as e:
                # what hasattr() asks for; the import statement looks for the module itself, and names the package
                raise AttributeError(f"libshare.{name} takes {e.name}, which is not installed") from e
        if name not in _errors.BEFORE:
            raise AttributeError(f"module 'libshare' has no attribute {name!r}")
        import warnings

        now = _errors.BEFORE[name]
        warnings.warn(f"libshare.{name} is called libshare.{now.__name__} now", DeprecationWarning, stacklevel=2)
        return now
