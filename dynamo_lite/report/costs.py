"""The cost of graph breaks: the time between the graphs before and after each, while the program runs.

Input: a `Coverage` with its gaps. Output: `BreakCost`s, the most costly first. Between two graphs run the
instruction that breaks the graph (an `.item()`, a print), the generated code of both parts, and the guards of the second one. Captures are
left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from dynamo_lite.record import BreakRecord, FrameRecord

from .coverage import Coverage, FunctionCoverage


@dataclass
class BreakCost:
    """One kind of break at one line: the versions that have it, how often it was passed, and for how long."""

    record: BreakRecord
    frames: list[FrameRecord] = field(default_factory=list)
    passes: int = 0
    seconds: float = 0.0


def break_costs(coverage: Coverage) -> list[BreakCost]:
    """All breaks, the most costly first; those that were not passed between graphs, or not measured, come last."""
    costs: dict[tuple[object, ...], BreakCost] = {}
    for function in coverage.functions:
        for frame in function.frames:
            for record in frame.breaks:
                costs.setdefault(_key(record), BreakCost(record)).frames.append(frame)
        for record, passes, seconds in _passed(function):
            cost = costs[_key(record)]
            cost.passes += passes
            cost.seconds += seconds
    return sorted(costs.values(), key=lambda cost: -cost.seconds)


def _key(record: BreakRecord) -> tuple[object, ...]:
    return record.slug, record.context, record.user_frame


def _passed(function: FunctionCoverage) -> Iterable[tuple[BreakRecord, int, float]]:
    """The gaps that a break is the reason of."""
    frame_of = {graph.id: frame for frame in function.frames for graph in frame.graphs}
    for (before, after), gap in function.gaps.items():
        broken = _broken(function.frames, frame_of.get(before), next_ := frame_of.get(after))
        if broken is None:
            continue
        record = broken.breaks[-1]
        # Behind the graphs of a function that was called at the break the time goes on, of the same pass; and where the break lies in the
        # function that is called, it is passed there.
        goes_on = broken is not frame_of.get(before) and bool(broken.graphs)
        is_inside = next_ is not None and not next_.is_resume and _key(record) in map(_key, next_.breaks)
        yield record, 0 if goes_on or is_inside else gap.count, gap.seconds


def _broken(frames: list[FrameRecord], before: FrameRecord | None, after: FrameRecord | None) -> FrameRecord | None:
    """The frame whose break a gap belongs to: that of the graph before; for a resume function behind a graph of another frame, or behind
    none, its original frame."""
    if before is not None and before.breaks:
        return before
    if after is None or not after.is_resume:
        return None
    place = after.filename, after.lineno
    earlier = [f for f in frames if (f.filename, f.lineno) == place and f.breaks and f is not after]
    return earlier[-1] if earlier else None
