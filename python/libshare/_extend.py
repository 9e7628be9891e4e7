# SPDX-License-Identifier: MIT
"""Methods in Python for types in C."""

from __future__ import annotations

from typing import Any, Callable

_OWN = {"__module__", "__qualname__", "__dict__", "__weakref__", "__doc__", "__firstlineno__",
        "__static_attributes__", "__annotations__", "__annotate__", "__annotate_func__",
        "__annotations_cache__"}


def extend(cls: type) -> Callable[[type], type]:
    """Gives cls what the decorated class defines. The decorated one is not used otherwise."""

    def add(more: type) -> Any:
        for name, value in vars(more).items():
            if name not in _OWN:
                if callable(value):
                    value.__qualname__ = f"{cls.__name__}.{name}"
                setattr(cls, name, value)
        return cls

    return add
