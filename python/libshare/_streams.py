# SPDX-License-Identifier: MIT
"""The stream of who does not name one: that on which a framework works in this thread.

Only frameworks that the program has imported are asked, and torch only once it uses a GPU; one that
works on a stream of its own goes before one that works on the default stream.
"""

from __future__ import annotations

import sys
from collections.abc import Callable


#: Before one of these is imported nobody has to be asked.
FRAMEWORKS = ("torch", "cupy")


# Of the device with that ordinal, -1: of the current one.
_number_of_torch: Callable[[int], int] | None = None


def _found_torch() -> bool:
    """torch.cuda.current_stream() makes an object, which takes microseconds; what torch's own compiled
    code asks for the number takes a tenth of one."""
    global _number_of_torch
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return False
    try:
        number, device = torch._C._cuda_getCurrentRawStream, torch._C._cuda_getDevice
        _number_of_torch = lambda ordinal: number(device() if ordinal < 0 else ordinal)  # noqa: E731
    except AttributeError:
        _number_of_torch = lambda ordinal: cuda.current_stream(  # noqa: E731
            None if ordinal < 0 else ordinal).cuda_stream
    return True


def of_torch(ordinal: int) -> int | None:
    """torch's current stream; None before torch uses a GPU. ordinal: of the device, -1: the current one."""
    return _number_of_torch(ordinal) if _number_of_torch or _found_torch() else None


def _of_cupy(ordinal: int) -> object | None:
    cupy = sys.modules.get("cupy")
    cuda = getattr(cupy, "cuda", None)
    if cuda is None or not hasattr(cuda, "get_current_stream"):
        return None
    stream = cuda.get_current_stream()
    return stream if stream.ptr else 0


def current_gpu() -> int:
    """Which GPU is current in torch or CuPy; -1: neither is used with a GPU."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is not None and cuda.is_initialized():
        return cuda.current_device()
    runtime = getattr(getattr(sys.modules.get("cupy"), "cuda", None), "runtime", None)
    return runtime.getDevice() if runtime is not None else -1


def current(ordinal: int) -> object | None:
    """A CUstream, or None when no framework has one. ordinal: of the device, -1: the current one.

    As an object where it ends with that, as CuPy's do; torch's streams stay.
    """
    stream = of_torch(ordinal)
    if stream or "cupy" not in sys.modules:
        return stream
    of_cupy = _of_cupy(ordinal)
    return stream if of_cupy is None else of_cupy
