# SPDX-License-Identifier: MIT
"""Arrays: what is convenient."""

from __future__ import annotations

import json
from typing import Any

from ._core import Array
from ._dtype import plain
from ._extend import extend


@extend(Array)
class _Array:
    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.release()

    def __repr__(self):
        state = "released" if self.closed else self.device
        return f"<libshare.Array {self.dtype} {self.shape} {state}{' readonly' if self.readonly else ''}>"

    def __array__(self, dtype: Any = None, copy: bool | None = None):
        # NumPy comes here only when the buffer protocol was of no use, and has dropped the reason.
        _ = self.ptr  # ClosedError, ForkedError
        if not self.on_host:
            raise TypeError(
                "this is memory of a GPU, which NumPy cannot touch: from_dlpack() of a framework, or "
                "numpy.frombuffer(a.tobytes(), …)"
            )
        if self.on_gpu:
            self._wait()  # which may have been the reason
        raise TypeError(f"NumPy has no dtype {self.dtype}: view() as another one")

    def __iter__(self):
        if not self.shape:
            raise TypeError("an Array without dimensions has nothing to iterate over")
        return (self[i] for i in range(self.shape[0]))

    def _numpy(self) -> Any:
        if not self.on_host:
            raise TypeError(
                "an Array of a GPU has no values here: cupy.asarray(a), torch.from_dlpack(a) or "
                "another framework's array of it has them"
            )
        try:
            import numpy
        except ModuleNotFoundError as e:
            raise ModuleNotFoundError(
                "values of an Array are read and stored by NumPy, which is not installed (pip install numpy); "
                "memoryview(a), a.tobytes(), a.copy_from() and a.fill_zero() do without",
                name=e.name,
            ) from None
        return numpy.asarray(self)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._numpy()[key] = value

    # One element is what NumPy and torch say of it. With dimensions it is as a list, so that it is not None.
    def __bool__(self) -> bool:
        return self.shape[0] > 0 if self.shape else bool(self._numpy())

    def __float__(self) -> float:
        return float(self._numpy())

    def __int__(self) -> int:
        return int(self._numpy())

    # As NumPy's; what is hashed is the object, as torch has it.

    # Nothing has to be read to know that it is not None.
    def __eq__(self, other: Any) -> Any:
        return NotImplemented if other is None and self.on_gpu else self._numpy() == other

    def __ne__(self, other: Any) -> Any:
        return NotImplemented if other is None and self.on_gpu else self._numpy() != other

    def __hash__(self) -> int:
        return object.__hash__(self)

    @property
    def T(self) -> Array:
        """A view with its dimensions reversed."""
        return self.transpose()

    @property
    def metadata(self) -> Any:
        """The buffer's metadata, a dictionary or a list that all holders can read and those who may
        write can replace; None: there is none. Gone with the buffer. ProtocolError: somebody has set
        what is no JSON, which raw_metadata() reads.
        """
        text = self._get_metadata()
        return None if text is None else json.loads(text)

    @metadata.setter
    def metadata(self, value: Any) -> None:
        self._set_metadata(None if value is None else json.dumps(value, separators=(",", ":"), default=plain))
