# SPDX-License-Identifier: MIT
"""What has gone another way than the fast one is counted."""

from __future__ import annotations

_counts: dict[str, dict[str, int]] = {}


def count(of: str, what: str) -> None:
    row = _counts.setdefault(of, {})
    row[what] = row.get(what, 0) + 1


def stats() -> dict[str, dict[str, int]]:
    """What the package has done in this process, by the framework that it was done for: how many times
    things went through a pool, and how many times another way. docs/python.md says what the names mean.
    What was never done is missing.
    """
    return {of: dict(row) for of, row in _counts.items()}
