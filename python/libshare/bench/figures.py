# SPDX-License-Identifier: MIT
"""Figures: what is measured becomes a row of a table, or a JSON object on a line of its own.

A figure is a dictionary: name, what, and either skipped (why), or failed (why), or value, unit, and
against (the same measured otherwise, or None), compared (as text), target (as text) and met, which
are None where there are none.
"""

from __future__ import annotations

import json
import statistics
from typing import Any, TextIO

Figure = dict[str, Any]


class Report:
    """What a benchmark says, as it becomes known, to whoever started it."""

    def __init__(self, to: TextIO, rows: dict[str, str], quick: bool, size: int):
        self._to, self._rows = to, rows
        #: Few rounds, to see that everything works.
        self.quick = quick
        #: Bytes of the weights.
        self.size = size

    def _say(self, name: str, **figure: Any) -> None:
        what = self._rows.pop(name)
        print(json.dumps({"name": name, "what": what} | figure), file=self._to, flush=True)

    def skip(self, reason: str, *names: str) -> None:
        """These figures are missing; without names, all that have not been reported yet."""
        for name in names or list(self._rows):
            self._say(name, skipped=reason)

    def value(self, name: str, value: float, unit: str, *, against: float | None = None,
              compared: str | None = None, target: str | None = None, met: bool | None = None) -> None:
        self._say(name, value=value, unit=unit, against=against, compared=compared, target=target,
                  met=met)

    def times(self, name: str, value: float, unit: str, against: float, least: float | None) -> None:
        """What takes against takes us value; least: so many times as long it should take."""
        self.value(name, value, unit, against=against, compared=f"{short(against / value)} x",
                   target=None if least is None else f">= {least:g} x",
                   met=None if least is None else against >= least * value)


def median_of_rounds(rounds: list[list[float]]) -> float:
    """A disturbance spoils a round, and the median over the rounds does not see it."""
    return statistics.median(statistics.median(one) for one in rounds)


def short(x: float) -> str:
    """Three digits that mean something; large numbers whole."""
    return f"{x:.2f}" if abs(x) < 10 else f"{x:.1f}" if abs(x) < 100 else f"{x:.0f}"


def _cells(f: Figure) -> tuple[str, ...]:
    if "value" not in f:
        word = "skipped" if "skipped" in f else "failed"
        return f["name"], word, "", "", "", f"{f[word]}"
    against = "" if f["against"] is None else f"{short(f['against'])} {f['unit']}"
    target = f["target"] or ""
    if target:
        target += ": met" if f["met"] else ": MISSED"
    return f["name"], f"{short(f['value'])} {f['unit']}", against, f["compared"] or "", target, f["what"]


_HEAD = ("figure", "value", "against", "compared", "target", "what")
_WIDTHS = (26, 14, 14, 10, 19)


def heading() -> str:
    return _line(_HEAD)


def row(f: Figure) -> str:
    return _line(_cells(f))


def _line(cells: tuple[str, ...]) -> str:
    left, *numbers, last = cells
    padded = [left.ljust(_WIDTHS[0])] + [c.rjust(w) for c, w in zip(numbers, _WIDTHS[1:])]
    return f"{' '.join(padded)}  {last}"


def markdown(figures: list[Figure]) -> str:
    """The same as a table of Markdown, for documents."""
    lines = ["| figure | value | against | compared | target |", "| --- | ---: | ---: | ---: | --- |"]
    for f in figures:
        name, value, against, compared, target, what = _cells(f)
        if "value" not in f:
            value, target = f"{value}: {what}", ""
        lines.append(f"| `{name}` | {value} | {against} | {compared.replace(' x', ' ×')} | "
                     f"{target.replace('>=', '≥').replace('<=', '≤').replace(' x', ' ×').replace('MISSED', 'missed')} |")
    return "\n".join(lines)
