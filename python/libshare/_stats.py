# SPDX-License-Identifier: MIT
"""What has gone another way than the fast one is counted."""

from __future__ import annotations

import os
import threading

_counts: dict[str, dict[str, int]] = {}
_lock = threading.RLock()  # queues pickle in threads of their own


def _after_fork() -> None:
    """What was counted is another process's, and a thread of that may have held the lock."""
    global _lock
    _lock = threading.RLock()
    _counts.clear()


os.register_at_fork(after_in_child=_after_fork)


def count(of: str, what: str) -> None:
    with _lock:
        row = _counts.setdefault(of, {})
        row[what] = row.get(what, 0) + 1


def stats() -> dict[str, dict[str, int]]:
    """What the package has done in this process, by the framework that it was done for: how many times
    things went through a pool, and how many times another way. docs/python.md says what the names mean.
    What was never done is missing.
    """
    with _lock:
        return {of: dict(row) for of, row in _counts.items()}
