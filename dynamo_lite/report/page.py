"""The content of the HTML report, as plain data for its template.

Input: a `Coverage` that has kept its texts. Output: a `Page`. Sources are read from the program's files; nothing is HTML here.
"""

from __future__ import annotations

import inspect
import linecache
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from dynamo_lite.breaks import format_location
from dynamo_lite.isa.resume import original_name
from dynamo_lite.messages import short_path
from dynamo_lite.record import FrameRecord, Function, GraphRecord, OfFrames

from .call_tree import CalledFunction, tree_of
from .costs import BreakCost, break_costs
from .coverage import BETWEEN_GRAPHS, Coverage, FrameText, FunctionCoverage
from .recompiles import Difference, RecompiledFunction, differences, recompiled_functions
from .timeline import Timeline, timelines

MAX_GUARD_LINES = 400
MAX_SOURCE_LINES = 600
MAX_CALLS = 100
"""Calls in the tree of one function that are shown with their source: those with the most operators."""
MAX_DEPTH = 30
"""Calls within calls that are shown."""
MAX_GRAPHS = 200
"""Graphs in the table of graphs: those with the most time."""

CAPTURED, BROKEN, EAGER = "captured", "broken", "eager"
NO_TEXT = FrameText([], "", [])


@dataclass
class Line:
    """A line of the program: how many operators were captured from it, and the codes of the breaks at it or in calls from it."""

    number: int
    text: str
    operators: int = 0
    breaks: list[str] = field(default_factory=list)
    state: str = ""


@dataclass
class Source:
    """A function of the program with its lines."""

    name: str
    where: str
    lines: list[Line]
    left_out: int = 0


@dataclass
class CallView:
    """A call that was followed: from which line, what is called, and the calls in there."""

    line: int
    state: str
    operators: int
    source: Source
    calls: list[CallView]
    calls_left_out: int


@dataclass
class Bar:
    """One candidate of a race."""

    name: str
    microseconds: float | None
    percent: float
    text: str
    is_chosen: bool


@dataclass
class GraphView:
    """A graph: its record, its code, and the race that chose its backend."""

    record: GraphRecord
    code: str
    bars: list[Bar]


@dataclass
class VersionView:
    """One analysis of a frame."""

    record: FrameRecord
    graphs: list[GraphView]
    guards: str
    guards_left_out: int
    differences: list[Difference]


@dataclass
class PlaceView(OfFrames):
    """A function of the program in which frames were captured, with its versions and those of its rest after breaks."""

    name: str
    where: str
    state: str
    source: Source
    versions: list[VersionView]
    calls: list[CallView]
    calls_left_out: int

    @property
    def frames(self) -> list[FrameRecord]:  # type: ignore[override]
        return [version.record for version in self.versions]


@dataclass
class FunctionView:
    """A function or module that was given to `compile`."""

    record: FunctionCoverage
    places: list[PlaceView]


@dataclass
class BreakView:
    """A break with its cost, and the user's line with carets below the expression that broke."""

    cost: BreakCost
    percent: float
    location: str


@dataclass
class BackendView:
    """A backend: its graphs, the time in them, and what compiling them took."""

    name: str
    graphs: int = 0
    calls: int = 0
    seconds: float = 0.0
    compile_seconds: float = 0.0


@dataclass
class PartOfTime:
    """A part of the time in compiled functions and in compiling them. `kind` gives its colour, `section` is where there is more of it."""

    kind: str
    text: str
    seconds: float
    percent: float
    section: str


@dataclass
class Page:
    """Everything that the template asks for."""

    coverage: Coverage
    functions: list[FunctionView]
    breaks: list[BreakView]
    recompiles: list[RecompiledFunction]
    backends: list[BackendView]
    graphs: list[tuple[str, GraphRecord]]
    """Function and graph, those with the most time first."""
    parts: list[PartOfTime]
    timelines: list[Timeline]


def page_of(coverage: Coverage) -> Page:
    """The page of a coverage."""
    functions = [
        FunctionView(function, [_place(frames, coverage.texts) for frames in _by_place(function.frames)])
        for function in coverage.functions
    ]
    graphs = [(place.name, graph) for f in functions for place in f.places for graph in place.graphs]
    return Page(
        coverage=coverage,
        functions=functions,
        breaks=list(_breaks(coverage)),
        recompiles=recompiled_functions(coverage.frames),
        backends=_backends(coverage.graphs),
        graphs=sorted(graphs, key=lambda item: -item[1].seconds)[:MAX_GRAPHS],
        parts=_parts(coverage),
        timelines=timelines(coverage),
    )


def _parts(coverage: Coverage) -> list[PartOfTime]:
    """Where the time goes, in the order in which a call gets there."""
    parts = [
        ("capture", "capturing graphs", sum(frame.trace_seconds for frame in coverage.frames), "frames"),
        ("backend", "compiling graphs", sum(frame.backend_seconds for frame in coverage.frames), "backends"),
        ("graph", "in graphs", coverage.graph_seconds, "backends"),
        *(
            ("broken", text, seconds, "breaks") if text == BETWEEN_GRAPHS else ("call", text, seconds, "frames")
            for text, seconds in coverage.outside_graphs
        ),
    ]
    whole = sum(seconds for _, _, seconds, _ in parts) or 1.0
    return [PartOfTime(kind, text, s, 100 * s / whole, section) for kind, text, s, section in parts if s > whole / 1000]


def _backends(graphs: Iterable[GraphRecord]) -> list[BackendView]:
    """The backends of the graphs, those with the most graphs first."""
    found: dict[str, BackendView] = {}
    for graph in graphs:
        backend = found.setdefault(graph.backend, BackendView(graph.backend))
        backend.graphs += 1
        backend.calls += graph.calls
        backend.seconds += graph.seconds
        backend.compile_seconds += graph.compile_seconds
    return sorted(found.values(), key=lambda backend: -backend.graphs)


def _by_place(frames: Iterable[FrameRecord]) -> Iterator[list[FrameRecord]]:
    """Frames of one function together with its resume functions: their code begins at one line."""
    places: dict[tuple[str, int], list[FrameRecord]] = {}
    for frame in frames:
        places.setdefault((frame.filename, frame.lineno), []).append(frame)
    yield from places.values()


def _place(frames: list[FrameRecord], texts: dict[int, FrameText]) -> PlaceView:
    first = next((frame for frame in frames if not frame.is_resume), frames[0])
    name = original_name(first.name)
    function = Function(first.filename, first.lineno, name)
    root = tree_of(function, (counts for frame in frames for counts in texts.get(id(frame), NO_TEXT).origins))
    broken = _broken_lines(frames)
    skipped = all(frame.skipped is not None for frame in frames)
    has_break = any(frame.breaks for frame in frames)
    has_graph = any(frame.graphs for frame in frames)
    calls, left_out = _calls(root, broken, _shown(root))
    return PlaceView(
        name=name,
        where=f"{short_path(first.filename)}:{first.lineno}",
        state=EAGER if skipped or not (has_break or has_graph) else BROKEN if has_break else CAPTURED,
        source=_source(function, root.operators, broken, skipped),
        versions=[_version(frame, texts.get(id(frame), NO_TEXT)) for frame in frames],
        calls=calls,
        calls_left_out=left_out,
    )


def _shown(root: CalledFunction) -> set[int]:
    """The ids of the calls below `root` that are shown: those with the most operators. A caller has at least as many as its callees."""
    found, level = [], [root]
    for _ in range(MAX_DEPTH):
        level = [called for parent in level for _, called in parent.shown()]
        found += level
    found.sort(key=lambda called: -called.total)  # stable: callers stay before callees
    return {id(called) for called in found[:MAX_CALLS]}


def _calls(
    parent: CalledFunction, broken: dict[tuple[str, int], list[str]], shown: set[int]
) -> tuple[list[CallView], int]:
    """The calls from a function, and how many more there are."""
    views, left_out = [], 0
    for line, called in parent.shown():
        if id(called) not in shown:
            left_out += 1
            continue
        calls, more = _calls(called, broken, shown)
        source = _source(called.function, called.operators, broken, False)
        has_break = any(line.breaks for line in source.lines)
        views.append(CallView(line, BROKEN if has_break else CAPTURED, called.total, source, calls, more))
    return views, left_out


def _broken_lines(frames: Iterable[FrameRecord]) -> dict[tuple[str, int], list[str]]:
    """The lines at which breaks are, or calls in which they are, with the codes of these."""
    found: dict[tuple[str, int], list[str]] = {}
    for frame in frames:
        for record in frame.breaks:
            for place in record.user_stack:
                codes = found.setdefault((place.filename, place.lineno), [])
                if record.code not in codes:
                    codes.append(record.code)
    return found


def _source(
    function: Function, counts: Counter[int], broken: dict[tuple[str, int], list[str]], skipped: bool
) -> Source:
    lines = []
    first, block = _block(function, max(counts, default=function.firstlineno))
    for number, text in enumerate(block, first):
        codes = broken.get((function.filename, number), [])
        state = BROKEN if codes else CAPTURED if counts[number] else EAGER if skipped and text.strip() else ""
        lines.append(Line(number, text.rstrip("\n"), counts[number], codes, state))
    where = f"{short_path(function.filename)}:{function.firstlineno}"
    return Source(function.name, where, lines[:MAX_SOURCE_LINES], max(0, len(lines) - MAX_SOURCE_LINES))


def _block(function: Function, last: int) -> tuple[int, list[str]]:
    """The lines of a function; at least those up to `last`. None where the file can't be read any more."""
    lines = linecache.getlines(function.filename)[function.firstlineno - 1 :]
    try:
        block = inspect.getblock(lines)
    except (SyntaxError, IndentationError):  # a lambda in the middle of an expression, a file that has changed
        block = lines[:1]
    return function.firstlineno, lines[: max(len(block), last - function.firstlineno + 1)]


def _version(frame: FrameRecord, text: FrameText) -> VersionView:
    codes = text.graphs or [""] * len(frame.graphs)
    guards = text.guards.strip().splitlines()
    return VersionView(
        record=frame,
        graphs=[GraphView(g, code.strip(), _bars(g)) for g, code in zip(frame.graphs, codes, strict=False)],
        guards="\n".join(guards[:MAX_GUARD_LINES]),
        guards_left_out=max(0, len(guards) - MAX_GUARD_LINES),
        differences=differences(frame),
    )


def _bars(graph: GraphRecord) -> list[Bar]:
    race = graph.race or []
    slowest = max((time for _, time, *_ in race if time is not None), default=0.0) or 1.0
    return [
        Bar(name, time, 100 * time / slowest if time is not None else 0.0, text, name == graph.backend)
        for name, time, text, *_ in race
    ]


def _breaks(coverage: Coverage) -> Iterator[BreakView]:
    total = coverage.seconds
    for cost in break_costs(coverage):
        place = cost.record.user_frame
        lines = format_location(place)[1:] if place is not None else []
        location = "\n".join(line.removeprefix("    ") for line in lines)
        yield BreakView(cost, 100 * cost.seconds / total if total else 0.0, location)
