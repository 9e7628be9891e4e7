# SPDX-License-Identifier: MIT
"""Triton Inference Server on the broker's memory: what a request reads and writes lies in a pool.

    pool = client.pool("frames", kind="legacy", limit="1GiB")
    with libshare.triton.Regions(server) as regions:     # an InferenceServerClient of tritonclient.http or .grpc
        inputs, outputs = [regions.input("IN", x)], [regions.output("OUT", y)]
        server.infer("model", inputs, outputs=outputs)   # x is read and y written in place

Triton opens GPU memory by cudaIpcMemHandle_t alone, which memory of kind "legacy" has. A segment of the
pool is registered when its memory is used for the first time, and buffers are places in it.
"""

from __future__ import annotations

import base64
import contextlib
import os
import secrets
import sys
import threading
import warnings
import weakref
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from ._core import Array
from ._errors import ClosedError, ForkedError, NotSupportedError, OwnerDiedError
from ._find import array_of

__all__ = ["Regions"]

_DATATYPES = {"bool": "BOOL", "float16": "FP16", "bfloat16": "BF16", "float32": "FP32", "float64": "FP64"} | {
    f"{kind}{bits}": f"{kind.upper()}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)}


def _protocol(server: Any) -> ModuleType:
    for name in ("tritonclient.http", "tritonclient.grpc"):
        module = sys.modules.get(name)
        if module is not None and isinstance(server, module.InferenceServerClient):
            return module
    raise TypeError("an InferenceServerClient of tritonclient.http or tritonclient.grpc is needed (beside one of their aio "
                    f"modules, for the same server), not {type(server).__module__}.{type(server).__name__}")


def _recipe(array: Array) -> dict[str, Any]:
    """How Triton opens its segment, and where in that it lies."""
    recipe = array.recipe()
    os.close(recipe["fd"])
    if recipe["kind"] == "legacy":
        return recipe
    if array.on_gpu:
        raise NotSupportedError(
            f"Triton opens memory of a GPU by cudaIpcMemHandle_t, and memory of kind {recipe['kind']!r} has none: "
            "make it in a pool of kind 'legacy', or copy it there with to(pool)")
    raise NotSupportedError(
        "Triton opens memory of the host by a name in /dev/shm, and memory of a pool has none: make it in a pool of kind "
        "'legacy', copy it there with to(pool), or send it with the request: set_data_from_numpy()")


@dataclass(eq=False)
class _Region:
    name: str
    array: Array  # keeps the segment as long as Triton has it open
    tensors: weakref.WeakSet[Any] = field(default_factory=weakref.WeakSet)  # of tritonclient, that name it


class Regions:
    """The segments that a server has registered for this process, by a client of tritonclient. As that, for
    one thread at a time. close(), which the end of ``with`` calls, has them unregistered. The destructor, which comes
    behind the last of what input() and output() have returned, has them unregistered in the thread that has
    made it, and warns (ResourceWarning) in any. In a forked child they are the parent's, and nothing unregisters them.

    device: the number of the memory's GPU as the server counts; left out: as this process does.
    """

    def __init__(self, server: Any, *, device: int | None = None):
        self._module = _protocol(server)
        self._server = server
        self._device = device
        self._maker = os.getpid(), threading.get_ident()
        self._regions: dict[tuple[bytes, int], _Region] | None = {}

    def input(self, name: str, array: Any, *, datatype: str | None = None, shape: Any = None) -> Any:
        """An InferInput of that name whose content is the Array's, or that of a framework's array that lies in
        one. Waits for the work on it: make a new one for each request. Keep it until the answer is there, also of
        async_infer(): it keeps the memory.

        datatype, shape: as the model has them, where they are not the Array's. Strings (BYTES) are what
        tritonclient.utils.serialize_byte_tensor() makes of them, as bytes.

        NotSupportedError: the memory is of another kind. ValueError: the Array has gaps or no elements, or a
        dtype that Triton has not. OwnerDiedError: the memory is gone. InferenceServerException: the server
        cannot register it.
        """
        array = array_of(array)
        datatype = datatype or _DATATYPES.get(array.dtype)
        if datatype is None:
            raise ValueError(f"Triton has no {array.dtype}: say which datatype= it is to be")
        shape = list(array.shape if shape is None else shape)
        return self._placed(self._module.InferInput(name, shape, datatype), array)

    def output(self, name: str, array: Any) -> Any:
        """An InferRequestedOutput of that name, which Triton writes into the Array; its content is good when the
        answer is there. As input(). ValueError: the Array is read-only.
        """
        array = array_of(array)
        if array.readonly:
            raise ValueError("Triton would write to this Array, which is read-only")
        return self._placed(self._module.InferRequestedOutput(name), array)

    def renew(self) -> int:
        """Registers again what is in use and the server has not, as it has forgotten all when it was restarted.
        Returns how many segments that were: if any, send the request again that has failed. Memory that is gone with
        its agent is left out.
        """
        self._forget_unused()
        lost = 0
        for region in self._open().values():
            try:
                self._server.get_cuda_shared_memory_status(region.name)
            except self._module.InferenceServerException:
                with contextlib.suppress(OwnerDiedError):
                    self._register(region)
                    lost += 1
        return lost

    def close(self) -> None:
        """Has all segments unregistered: by Triton, behind the requests that are under way. May be called again."""
        regions, self._regions = self._regions or {}, None
        for region in () if self._is_of_parent() else regions.values():
            self._unregister(region)

    def __enter__(self) -> Regions:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        n = len(getattr(self, "_regions", None) or ())
        if n == 0 or self._is_of_parent():
            return
        if threading.get_ident() == self._maker[1]:  # a client of tritonclient may hang in another one
            with contextlib.suppress(Exception):  # it may have been closed
                self.close()
        # at last, as a filter of warnings may make an error of it
        warnings.warn(f"nobody has closed Regions that have segments registered: {n}", ResourceWarning, source=self, stacklevel=2)

    def _is_of_parent(self) -> bool:
        return os.getpid() != self._maker[0]

    def _open(self) -> dict[tuple[bytes, int], _Region]:
        if self._is_of_parent():
            raise ForkedError("these Regions are of the process that has forked this one: make others")
        if self._regions is None:
            raise ClosedError("the Regions were closed")
        return self._regions

    def _placed(self, tensor: Any, array: Array) -> Any:
        if not array.contiguous or not array.nbytes:
            raise ValueError("Triton takes memory without gaps, of one element or more")
        regions, recipe = self._open(), _recipe(array)
        array._wait()
        array = array.reshape(-1)  # a view of its own, whatever becomes of the caller's
        key = recipe["pointer"], array.info()["segment"]
        region = regions.get(key)
        if region is None:
            self._forget_unused()
            region = _Region(f"libshare-{secrets.token_hex(8)}", array)
            self._register(region)
            regions[key] = region
        tensor.set_shared_memory(region.name, array.nbytes, recipe["offset"])
        tensor._libshare = self, array  # as long as it is there, so are these
        region.tensors.add(tensor)
        return tensor

    def _register(self, region: _Region) -> None:
        recipe = _recipe(region.array)
        device = region.array.info()["ordinal"] if self._device is None else self._device
        self._server.register_cuda_shared_memory(
            region.name, base64.b64encode(recipe["pointer"]), device, recipe["segment_size"])

    def _forget_unused(self) -> None:
        regions = self._open()
        for key in [key for key, region in regions.items() if not region.tensors]:
            self._unregister(regions.pop(key))

    def _unregister(self, region: _Region) -> None:
        """A server that cannot be reached, or whose memory is gone, has nothing to give up."""
        with contextlib.suppress(self._module.InferenceServerException, OSError):
            self._server.unregister_cuda_shared_memory(region.name)
