"""When a program captured, compiled and ran: for the HTML report, one lane per compiled function.

Input: a `Coverage`. Output: `Timeline`s: the whole run, and its last calls, in which breaks are the gaps between graphs. Nothing is HTML
here; places and widths are in percent of the time that is shown.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from .coverage import Coverage

MAX_BARS = 1500
"""Bars of one timeline: the longest."""
MAX_LANES = 12
"""Functions with a lane of their own: those with the most time."""
LAST_CALLS = 5
MAX_TICKS = 9
KINDS = {"call": "Python, guards, breaks", "capture": "capture", "backend": "backend", "graph": "graph"}
"""What a bar shows, in the order in which bars are drawn over each other."""


class Span(NamedTuple):
    """Something that took time: in seconds of `time.perf_counter`."""

    kind: str
    started: float
    seconds: float
    text: str


@dataclass
class TimeBar:
    """A span as it is drawn."""

    kind: str
    left: float
    width: float
    text: str


@dataclass
class Lane:
    """The spans of one function."""

    name: str
    bars: list[TimeBar]


@dataclass
class Timeline:
    """A part of the run: its lanes, and ticks (place, text) on a scale of round numbers."""

    title: str
    seconds: float
    lanes: list[Lane]
    ticks: list[tuple[float, str]]
    left_out: int

    @property
    def longest(self) -> list[TimeBar]:
        """The bars of all lanes, the longest first."""
        return sorted((bar for lane in self.lanes for bar in lane.bars), key=lambda bar: -bar.width)


def timelines(coverage: Coverage) -> list[Timeline]:
    """The whole run, and its last calls if there are more; none of an empty coverage."""
    lanes = _lanes(coverage)
    spans = [span for lane in lanes.values() for span in lane]
    if not spans:
        return []
    start, end = min(span.started for span in spans), max(span.started + span.seconds for span in spans)
    found = [_drawn("The whole run", lanes, start, end)]
    calls = sorted((span for span in spans if span.kind == "call"), key=lambda span: span.started)
    if len(calls) > LAST_CALLS:
        found.append(_drawn(f"The last {LAST_CALLS} calls of these", lanes, calls[-LAST_CALLS].started, end))
    return found


def _lanes(coverage: Coverage) -> dict[str, list[Span]]:
    """The spans of the functions of each name; those of names with little time together."""
    lanes: dict[str, list[Span]] = {function.name: [] for function in coverage.functions}
    of_graph = {}
    for function in coverage.functions:
        of_graph.update({graph.id: lanes[function.name] for graph in function.graphs})
        for frame in function.frames:
            at = frame.started + frame.trace_seconds
            lanes[function.name].append(Span("capture", frame.started, frame.trace_seconds, f"capture of {frame.name}"))
            for graph in frame.graphs:
                text = f"{graph.backend} compiles graph {graph.id}"
                lanes[function.name].append(Span("backend", at, graph.compile_seconds, text))
                at += graph.compile_seconds
    for event in coverage.events:
        if event.kind == "function":
            name = coverage.names[event.number]
            lanes.setdefault(name, []).append(Span("call", event.started, event.seconds, f"call of {name}"))
        elif event.number in of_graph:
            of_graph[event.number].append(Span("graph", event.started, event.seconds, f"graph {event.number}"))
    lanes = {name: spans for name, spans in lanes.items() if spans}
    by_time = sorted(lanes, key=lambda name: -sum(span.seconds for span in lanes[name]))
    rest = set(by_time[MAX_LANES:])
    kept = {name: spans for name, spans in lanes.items() if name not in rest}
    return {**kept, f"{len(rest)} others": [s for name in rest for s in lanes[name]]} if rest else kept


def _drawn(title: str, lanes: dict[str, list[Span]], start: float, end: float) -> Timeline:
    """What lies between two points in time."""
    length = end - start or 1.0
    spans = [(name, span) for name, of in lanes.items() for span in of if span.started + span.seconds > start]
    shown = sorted(spans, key=lambda item: -item[1].seconds)[:MAX_BARS]
    order = {kind: i for i, kind in enumerate(KINDS)}
    drawn: dict[str, list[TimeBar]] = {name: [] for name in dict.fromkeys(name for name, _ in spans)}
    for name, span in sorted(shown, key=lambda item: order[item[1].kind]):
        left, right = max(span.started, start) - start, span.started + span.seconds - start
        text = f"{span.text}: {duration(span.seconds)}"
        drawn[name].append(TimeBar(span.kind, 100 * left / length, 100 * (right - left) / length, text))
    lanes_drawn = [Lane(name, bars) for name, bars in drawn.items()]
    return Timeline(title, length, lanes_drawn, list(_ticks(length)), len(spans) - len(shown))


def _ticks(length: float) -> Iterator[tuple[float, str]]:
    """Places in percent, and the times there, on multiples of 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(length / MAX_TICKS))
    step = next(power * factor for factor in (1, 2, 5, 10, 20) if power * factor * MAX_TICKS >= length)
    for i in range(math.floor(length / step + 1e-9) + 1):
        yield 100 * i * step / length, duration(i * step)


def duration(seconds: float) -> str:
    """Seconds in a unit in which they have one to three digits before the point."""
    if seconds >= 1000:
        return f"{seconds:,.0f} s"
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds * 1e6:.1f} µs" if seconds else "0"
