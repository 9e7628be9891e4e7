# SPDX-License-Identifier: MIT
"""The round trips as bars on a logarithmic scale, in SVG; nothing is needed for that."""

from __future__ import annotations

import math
from xml.sax.saxutils import escape

from .figures import Figure, short

_WIDTH, _LEFT, _RIGHT, _ROW, _TOP = 820, 250, 110, 26, 46
_STYLE = "font-family: sans-serif; font-size: 13px; fill: #222"


def _bars(figures: list[Figure]) -> list[tuple[str, float, bool]]:
    """Label, microseconds, whether it is ours."""
    bars: list[tuple[str, float, bool]] = []
    for f in figures:
        group, _, name = f["name"].partition(".")
        if group == "arrays" and "value" in f:
            bars.append((f"1 MiB array, {f['what'].partition(';')[0]}", f["value"], name == "libshare"))
        if group == "torch-cuda" and "value" in f and name in ("1MiB", "1MiB.spin"):
            how = ", looking" if name.endswith(".spin") else ""
            bars.append((f"1 MiB tensor, libshare{how}", f["value"], True))
            if not how:
                bars.append(("1 MiB tensor, torch.multiprocessing", f["against"], False))
    return bars


def svg(figures: list[Figure]) -> str:
    """Shorter is better. ValueError: there is no round trip among the figures."""
    bars = _bars(figures)
    if not bars:
        raise ValueError("there is no round trip to plot: measure arrays or torch-cuda")
    low = math.floor(math.log10(min(us for _, us, _ in bars)))
    high = max(math.ceil(math.log10(max(us for _, us, _ in bars))), low + 1)
    scale = (_WIDTH - _LEFT - _RIGHT) / (high - low)
    bottom = _TOP + _ROW * len(bars)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{bottom + 34}" '
           f'viewBox="0 0 {_WIDTH} {bottom + 34}" style="{_STYLE}">',
           f'<rect width="{_WIDTH}" height="{bottom + 34}" fill="#fff"/>',
           '<text x="10" y="22" style="font-weight: bold">There and back between two processes: '
           'microseconds, shorter is better</text>']
    for power in range(low, high + 1):
        x = _LEFT + (power - low) * scale
        out.append(f'<line x1="{x:.0f}" y1="{_TOP - 8}" x2="{x:.0f}" y2="{bottom}" stroke="#ddd"/>'
                   f'<text x="{x:.0f}" y="{bottom + 18}" text-anchor="middle">{10 ** power:,} µs</text>')
    for i, (label, us, ours) in enumerate(bars):
        y, length = _TOP + i * _ROW, (math.log10(us) - low) * scale
        out.append(f'<text x="{_LEFT - 8}" y="{y + 14}" text-anchor="end">{escape(label)}</text>'
                   f'<rect x="{_LEFT}" y="{y}" width="{length:.1f}" height="{_ROW - 8}" '
                   f'fill="{"#1b7f5c" if ours else "#9aa3ad"}"/>'
                   f'<text x="{_LEFT + length + 6:.1f}" y="{y + 14}">{short(us)} µs</text>')
    return "\n".join(out) + "\n</svg>\n"
