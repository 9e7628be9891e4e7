# SPDX-License-Identifier: MIT
"""The stream of who does not name one: that on which a framework works in this thread.

Only frameworks that the program has imported are asked, and torch only once it uses a GPU; one that
works on a stream of its own goes before one that works on the default stream.
"""

from __future__ import annotations

import sys


#: Before one of these is imported nobody has to be asked.
FRAMEWORKS = ("torch", "cupy")


def _of_torch(ordinal: int) -> int | None:
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return None
    return cuda.current_stream(None if ordinal < 0 else ordinal).cuda_stream


def _of_cupy(ordinal: int) -> object | None:
    cupy = sys.modules.get("cupy")
    cuda = getattr(cupy, "cuda", None)
    if cuda is None or not hasattr(cuda, "get_current_stream"):
        return None
    stream = cuda.get_current_stream()
    return stream if stream.ptr else 0


def current(ordinal: int) -> object | None:
    """A CUstream, or None when no framework has one. ordinal: of the device, -1: the current one.

    As an object where it ends with that, as CuPy's do; torch's streams stay.
    """
    stream = None
    for ask in (_of_torch, _of_cupy):
        found = ask(ordinal)
        if found:
            return found
        if found is not None:
            stream = found
    return stream
