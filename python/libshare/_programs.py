# SPDX-License-Identifier: MIT
"""The programs of the package, as commands: each becomes the real one, which lies beside this file."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def path(program: str) -> str:
    """Where a program of the package is."""
    return str(Path(__file__).resolve().parent / program)


def _become(program: str) -> None:
    # each looks for the others beside itself, which it knows from its name
    os.execv(path(program), [path(program), *sys.argv[1:]])


def share_run() -> None:
    _become("share-run")


def share_broker() -> None:
    _become("share-broker")


def sharectl() -> None:
    _become("sharectl")
