# SPDX-License-Identifier: MIT
"""The command. Each benchmark runs in a process of its own, which is ended, with all that it started,
when it takes too long: nothing hangs, and what one leaves behind does not disturb the next.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import signal
import subprocess
import sys
import threading
from typing import Any, Iterator

import libshare
from libshare._size import nbytes

from . import figures, plot
from .figures import Figure, Report

#: Seconds that each may take.
_LIMITS = {"calls": 120, "arrays": 300, "torch-cuda": 60, "weights": 600, "decoder": 300,
           "tables": 300, "loader": 300}


def _module(name: str) -> Any:
    return importlib.import_module(f".{name.replace('-', '_')}", __package__)


def _child(name: str, quick: bool, size: int) -> None:
    """Figures go to standard output, and what others print does not."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    module = _module(name)
    rows = dict(module.ROWS)
    report = Report(out, rows, quick, size)
    try:
        module.run(report)
    except ModuleNotFoundError as e:
        if (e.name or "").partition(".")[0] == "libshare":
            raise
        report.skip(f"the package {e.name} is not installed")


def _end(child: subprocess.Popen[str], late: threading.Event) -> None:
    late.set()
    os.killpg(child.pid, signal.SIGKILL)


def _run(name: str, quick: bool, size: int) -> Iterator[Figure]:
    command = [sys.executable, "-m", __package__, "--in-child", name, "--size", str(size)]
    late = threading.Event()
    missing = dict(_module(name).ROWS)
    with subprocess.Popen(command + ["--quick"] * quick, stdout=subprocess.PIPE, text=True,
                          start_new_session=True) as child:
        timer = threading.Timer(_LIMITS[name], _end, (child, late))
        timer.start()
        try:
            assert child.stdout
            for line in child.stdout:
                figure = json.loads(line)
                del missing[figure["name"]]
                yield figure
            child.wait()
        finally:
            timer.cancel()
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
    why = (f"not done after {_LIMITS[name]} s" if late.is_set()
           else f"its process ended with {child.returncode}")
    for row, what in missing.items():
        yield {"name": row, "what": what, "failed": why}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m libshare.bench",
        description="Measures what sharing memory from Python costs, beside what the same costs otherwise.")
    parser.add_argument("--only", action="append", choices=list(_LIMITS), metavar="NAME",
                        help=f"not all: {', '.join(_LIMITS)}; may be given again")
    parser.add_argument("--json", action="store_true", help="each figure as a JSON object on a line of its own")
    parser.add_argument("--markdown", action="store_true", help="a table for a document")
    parser.add_argument("--plot", metavar="FILE.svg", help="the round trips as a plot, too")
    parser.add_argument("--from", dest="earlier", metavar="FILE",
                        help="measure nothing: the figures are those that --json wrote in an earlier run")
    parser.add_argument("--size", type=nbytes, default="10GiB", help="of the weights (10GiB)")
    parser.add_argument("--quick", action="store_true", help="few rounds; the figures are rough")
    parser.add_argument("--in-child", choices=list(_LIMITS), help=argparse.SUPPRESS)
    return parser.parse_args()


def _earlier(file: str) -> Iterator[Figure]:
    with open(file) as f:
        for line in f:
            if line.startswith("{"):
                yield json.loads(line)


def _measured(chosen: argparse.Namespace) -> Iterator[Figure]:
    if chosen.earlier:
        yield from _earlier(chosen.earlier)
        return
    for name in chosen.only or _LIMITS:
        yield from _run(name, chosen.quick, chosen.size)


def main() -> int:
    chosen = _arguments()
    if chosen.in_child:
        _child(chosen.in_child, chosen.quick, chosen.size)
        return 0
    found: list[Figure] = []
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # with what it started
    if not chosen.json and not chosen.markdown:
        print(f"libshare {libshare.__version__}, {os.cpu_count()} cores", figures.heading(), sep="\n")
    for figure in _measured(chosen):
        found.append(figure)
        if not chosen.markdown:
            print(json.dumps(figure) if chosen.json else figures.row(figure), flush=True)
    if chosen.markdown:
        print(figures.markdown(found))
    if chosen.plot:
        try:
            drawing = plot.svg(found)
        except ValueError as e:
            print(f"libshare.bench: {chosen.plot}: {e}", file=sys.stderr)
            return 1
        with open(chosen.plot, "w") as f:
            f.write(drawing)
    if any("failed" in f for f in found):
        return 1
    return 0 if any("value" in f for f in found) else 77


if __name__ == "__main__":
    sys.exit(main())
