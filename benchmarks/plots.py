"""Plots as SVG: bars beside each other, values over time, and one dot for each model.

Input: numbers and their labels. Output: the text of an `svg` element, whose colours are those of the page around it (`standalone` gives it
colours for light and dark of its own). Texts are escaped.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import NamedTuple

WIDTH = 360
ROW = 16
SERIES = 4  # colours that there are

STYLE = """
:root { --quiet: #5a6577; --edge: #d9dee7; --series-1: #2f6fde; --series-2: #c2571a; --series-3: #14713d; --series-4: #7b3fb5; }
@media (prefers-color-scheme: dark) { :root { --quiet: #9aa6b8; --edge: #323b49;
  --series-1: #7fabff; --series-2: #ff9d66; --series-3: #6fd498; --series-4: #c79bf5; } }
text { fill: var(--quiet); font: 12px system-ui, sans-serif; }
"""


class Value(NamedTuple):
    """One bar: of which series, how long, and what is written beside it."""

    series: str
    value: float
    text: str


def standalone(svg: str) -> str:
    """The plot as a file of its own."""
    return svg.replace(">", f"><style>{STYLE}</style>", 1) + "\n"


def bars(title: str, groups: Sequence[tuple[str, Sequence[Value]]], width: int = WIDTH) -> str:
    """For each group its label, and below it a bar for each series, from zero."""
    colours = _colours(value.series for _, values in groups for value in values)
    largest = max((value.value for _, values in groups for value in values), default=0.0) or 1.0
    room = width - 110
    parts, y = [*_legend(colours, width)], 14 + (22 if len(colours) > 1 else 0)
    for label, values in groups:
        parts.append(_text(0, y + 2, label))
        y += 8
        for value in values:
            length = max(room * value.value / largest, 1.0)
            about = f"{label}, {value.series}: {value.text}" if value.series else f"{label}: {value.text}"
            parts.append(
                f'<rect x="0" y="{y}" width="{length:.1f}" height="{ROW - 4}" rx="2" fill="{colours[value.series]}">'
                f"<title>{escape(about)}</title></rect>"
            )
            parts.append(_text(length + 6, y + 10, value.text))
            y += ROW
        y += 18
    return _svg(title, width, y - 8, parts)


def lines(
    title: str,
    series: Mapping[str, Sequence[tuple[str, float]]],
    moments: Sequence[str],
    unit: str = "",
    width: int = WIDTH,
    height: int = 180,
) -> str:
    """Values over time, at some of the moments, whose texts are given in order: of these, those with a value are equally far apart. The
    last value of a series holds to the end. What follows a comma in the text of a moment is not written below the axis."""
    colours = _colours(series)
    with_values = {moment for points in series.values() for moment, _ in points}
    moments = [moment for moment in moments if moment in with_values]
    largest = max((value for points in series.values() for _, value in points), default=0.0) or 1.0
    left, top, bottom = 62, 34, height - 24
    step = (width - left - 24) / max(len(moments) - 1, 1)
    parts = [*_legend(colours, width)]
    for share in (0.0, 0.5, 1.0):
        y = bottom - (bottom - top) * share
        parts.append(f'<line x1="{left}" y1="{y:.1f}" x2="{width}" y2="{y:.1f}" stroke="var(--edge)"/>')
        parts.append(_text(left - 6, y + 4, f"{_short(largest * share)} {unit}".strip(), "end"))
    for moment in (moments[0], moments[-1]) if len(moments) > 1 else moments:
        first = moment == moments[0]
        parts.append(_text(left if first else width, height - 6, moment.partition(",")[0], "start" if first else "end"))
    for name, points in series.items():
        at = [(left + step * moments.index(m), bottom - (bottom - top) * v / largest, m, v) for m, v in points]
        held = f" {left + step * (len(moments) - 1):.1f},{at[-1][1]:.1f}" if at else ""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y, _, _ in at) + held
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colours[name]}" stroke-width="2"/>')
        for x, y, moment, value in at:
            about = escape(f"{name}, {moment}: {_short(value)} {unit}".strip())
            parts.append(
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colours[name]}"><title>{about}</title></circle>'
            )
    return _svg(title, width, height, parts)


def dots(
    title: str, series: Mapping[str, Mapping[str, float]], width: int = WIDTH, height: int = 200, unit: str = "x"
) -> str:
    """A dot for each name, the smallest first, on a logarithmic axis, with a line at one. Values are above zero."""
    colours = _colours(series)
    values = [value for named in series.values() for value in named.values()]
    low, high = min([0.5, *values]), max([2.0, *values])
    left, top, bottom = 46, 34 if len(colours) > 1 else 12, height - 14
    spread = math.log(high / low)

    def y_of(value: float) -> float:
        return bottom - (bottom - top) * math.log(value / low) / spread

    parts = [*_legend(colours, width)]
    for tick in _ticks(low, high):
        y, edge = y_of(tick), "var(--quiet)" if tick == 1 else "var(--edge)"
        parts.append(f'<line x1="{left}" y1="{y:.1f}" x2="{width}" y2="{y:.1f}" stroke="{edge}"/>')
        parts.append(_text(left - 6, y + 4, _fraction(tick) + unit, "end"))
    for name, named in series.items():
        step = (width - left - 16) / max(len(named) - 1, 1)
        for i, (label, value) in enumerate(sorted(named.items(), key=lambda item: item[1])):
            about = escape(f"{label}, {name}: {value:.3g}{unit}")
            x = left + 8 + step * i
            parts.append(
                f'<circle cx="{x:.1f}" cy="{y_of(value):.1f}" r="2.6" fill="{colours[name]}"><title>{about}</title></circle>'
            )
    return _svg(title, width, height, parts)


def _ticks(low: float, high: float) -> list[float]:
    """Round values: powers of two, or of ten where these would be many."""
    base = 2 if high / low < 200 else 10
    first, last = math.ceil(math.log(low, base) - 1e-9), math.floor(math.log(high, base) + 1e-9)
    return [float(base) ** power for power in range(first, last + 1)]


def _fraction(value: float) -> str:
    return _short(value) if value >= 1 else f"1/{_short(1 / value)}"


def _colours(names: Iterator[str] | Mapping[str, object]) -> dict[str, str]:
    return {name: f"var(--series-{i % SERIES + 1})" for i, name in enumerate(dict.fromkeys(names))}


def _legend(colours: Mapping[str, str], width: int) -> Iterator[str]:
    x = 0
    for name, colour in colours.items() if len(colours) > 1 else ():
        yield f'<rect x="{x}" y="2" width="11" height="11" rx="2" fill="{colour}"/>'
        yield _text(x + 16, 12, name)
        x += 32 + 7 * len(name)


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _short(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def _svg(title: str, width: int, height: float, parts: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height:.0f}" width="{width}" height="{height:.0f}" '
        f'role="img" aria-label="{escape(title)}"><title>{escape(title)}</title>{"".join(parts)}</svg>'
    )
