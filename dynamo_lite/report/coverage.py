"""Coverage: the share of a program's torch work that runs in captured graphs, and the breaks that prevent more.

Input: the calls of compiled functions and graphs while a `Measurement` is entered, and the records that capture writes meanwhile.
Output: a `Coverage`, whose `str` is the report.
Invariant: what is measured runs as it does without: the C side tells of calls (`_eval_frame.observe`), nothing is wrapped, and the cache of
versions is neither read nor written.

Units. An operator is a call node of a graph, or an operator that torch's profiler sees at top level in eager code: both
are one call at the level of the user's program. Eager operators are counted between entry to and return from a compiled
function, outside of graphs and of capture itself. Time is wall time in compiled functions without capture.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import types
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from dynamo_lite import _eval_frame
from dynamo_lite.breaks import UserFrame
from dynamo_lite.config import config
from dynamo_lite.exc import many
from dynamo_lite.messages import place_of_builtin, short_path
from dynamo_lite.record import BreakRecord, CallChain, FrameRecord, GraphRecord, OfFrames, log

GRAPH_RANGE = "dynamo_lite::graph "
FUNCTION_RANGE = "dynamo_lite::function "
CAPTURE_RANGE = "dynamo_lite::capture"

BETWEEN_GRAPHS = "between graphs (breaks)"
MAX_EVENTS = 2000
"""Calls of functions and graphs that are kept one by one, for the timeline."""


class FrameText(NamedTuple):
    """The texts of a frame, which are gone with the compiled version."""

    graphs: list[str]
    guards: str
    origins: list[Counter[CallChain]]


class ProfilerEvent(NamedTuple):
    """A call of a function (by its position) or of a graph (by its id), in seconds of `time.perf_counter`."""

    kind: str
    number: int
    started: float
    seconds: float


@dataclass(slots=True)
class Gap:
    """The passes from the end of one graph to the start of the next, or to the edge of the function: their number and duration."""

    count: int = 0
    seconds: float = 0.0


@dataclass
class FunctionCoverage(OfFrames):
    """One function or module given to `compile`, with all frames that were captured while it ran."""

    name: str
    calls: int = 0
    seconds: float = 0.0
    graph_seconds: float = 0.0
    captured_ops: int = 0
    eager_ops: int = 0
    frames: list[FrameRecord] = field(default_factory=list)
    gaps: dict[tuple[int | None, int | None], Gap] = field(default_factory=dict)
    """Between two graphs, by their ids; None is the edge of the function."""

    @property
    def total_ops(self) -> int:
        return self.captured_ops + self.eager_ops


@dataclass
class Coverage(OfFrames):
    """The result of a `Measurement`. `str(coverage)` is the report that `run --coverage` prints."""

    functions: list[FunctionCoverage] = field(default_factory=list)
    window_seconds: float | None = None
    events: list[ProfilerEvent] = field(default_factory=list)
    texts: dict[int, FrameText] = field(default_factory=dict)
    """Of frames, by the `id` of their record; empty unless the measurement was to keep them."""
    names: list[str] = field(default_factory=list)
    """Names of functions by their number in events, also of functions that were not called."""

    @property
    def frames(self) -> list[FrameRecord]:  # type: ignore[override]
        return [frame for function in self.functions for frame in function.frames]

    @property
    def captured_ops(self) -> int:
        return sum(function.captured_ops for function in self.functions)

    @property
    def total_ops(self) -> int:
        return sum(function.total_ops for function in self.functions)

    @property
    def graph_calls(self) -> int:
        return sum(graph.calls for graph in self.graphs)

    @property
    def time_share(self) -> float:
        """The part of the time in compiled functions that is spent in graphs, 0 to 1."""
        return self.graph_seconds / self.seconds if self.seconds else 0.0

    @property
    def graph_seconds(self) -> float:
        """The time in graphs while compiled functions run."""
        return sum(function.graph_seconds for function in self.functions)

    @property
    def seconds(self) -> float:
        """The time in compiled functions, captures left out."""
        return sum(function.seconds for function in self.functions)

    @property
    def outside_graphs(self) -> list[tuple[str, float]]:
        """What of the time in compiled functions is not spent in graphs, in seconds, the longest first."""
        spent: Counter[str] = Counter()
        for function in self.functions:
            for (before, after), gap in function.gaps.items():
                spent[_part_of_time(before, after)] += gap.seconds
        return spent.most_common()

    @property
    def rest_of_time(self) -> str:
        """Where the time in compiled functions goes that is not spent in graphs; empty without graphs."""
        seconds = self.seconds
        parts = [f"{share / seconds:.1%} {part}" for part, share in self.outside_graphs if share > seconds / 1000]
        return "the rest of the time: " + ", ".join(parts) if parts and self.graphs else ""

    def __str__(self) -> str:
        return "\n".join(_report(self))


def _part_of_time(before: int | None, after: int | None) -> str:
    """What runs between two graphs; None is the edge of the function."""
    if before is None and after is None:
        return "in calls without a graph"
    if before is None:
        return "before the first graph (guards, Python)"
    return "behind the last graph (Python)" if after is None else BETWEEN_GRAPHS


class Measurement:
    """Measures while it is entered, in all threads.

    The operators are counted for at most `window` seconds, because the profiler keeps every event in memory; graph
    calls and times are counted to the end. With `keep_texts` the coverage has code and guards of frames also when these are gone: `runpy`
    drops the globals of a script at its end, and with them its functions and their versions.
    """

    def __init__(self, window: float = 60.0, *, keep_texts: bool = False) -> None:
        self.window = window
        self.keep_texts = keep_texts
        self._texts: dict[int, FrameText] = {}
        self._functions: list[FunctionCoverage] = []
        self._by_key: dict[tuple[Any, ...], int] = {}
        self._current = _CurrentFunction([])
        self._profiler: profile | None = None
        self._started = 0.0
        self._window_ended_at: float | None = None
        self._stop: Callable[[], None] = lambda: None

    def __enter__(self) -> Measurement:
        # The profiler's library writes its own progress to the terminal unless told so before its first use.
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")
        self._stop = log.listen(self._frame_done)
        log.capture_context = self._capture
        self._profiler = profile(activities=[ProfilerActivity.CPU], acc_events=True)
        self._profiler.__enter__()
        self._observed = _eval_frame.observe(self._call_begins, self._graph_begins)
        self._cache = config.patch(cache=False)
        self._cache.__enter__()
        self._started = time.perf_counter()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._cache.__exit__(*exc_info)
        _eval_frame.observe(*self._observed)
        self._end_window()
        log.capture_context = contextlib.nullcontext
        self._stop()

    def coverage(self) -> Coverage:
        """The measurements so far; complete after the exit."""
        functions = [function for function in self._functions if function.calls]
        events = sorted(self._current.events, key=lambda event: event.started)
        names = [function.name for function in self._functions]
        return Coverage(functions, self._window_ended_at, events, self._texts, names)

    def _call_begins(self, fn: types.FunctionType, first: object) -> Callable[[], None] | None:
        """A compiled function begins; None within another one."""
        current = self._current
        if current.function is not None:
            return None
        if time.perf_counter() - self._started > self.window:
            self._end_window()
        position = self._position_of(fn, first)
        function = self._functions[position]
        current.begin(function, fn, getattr(type(first), "forward", fn))
        profiled = record_function(f"{FUNCTION_RANGE}{position}")
        profiled.__enter__()
        start = time.perf_counter()
        current.after(None, start)

        def end() -> None:
            now = time.perf_counter()
            profiled.__exit__(None, None, None)
            current.before(None, now)
            current.keep("function", position, start, now)
            function.calls += 1
            function.seconds += now - start - current.left_out
            current.function = None

        return end

    def _position_of(self, fn: types.FunctionType, first: object) -> int:
        """Where the calls of a function, or of a module, are counted."""
        builtin = place_of_builtin(fn)
        key: tuple[Any, ...] = (fn.__code__, builtin)
        name = fn.__qualname__ if builtin is None else builtin[0]
        if isinstance(first, torch.nn.Module) and fn.__module__ == torch.nn.Module.__module__:
            key, name = (type(first), id(first)), type(first).__qualname__
        if key not in self._by_key:
            self._by_key[key] = len(self._functions)
            self._functions.append(FunctionCoverage(name))
        return self._by_key[key]

    def _graph_begins(self, call: _eval_frame.GraphCall, _: None) -> Callable[[], None] | None:
        record = getattr(call.on_failure, "record", None)
        if not isinstance(record, GraphRecord):
            return None
        current = self._current
        profiled = record_function(f"{GRAPH_RANGE}{record.id}")
        reached = time.perf_counter()
        current.before(record.id, reached)
        profiled.__enter__()
        start = time.perf_counter()
        current.left_out += start - reached

        def end() -> None:
            now = time.perf_counter()
            profiled.__exit__(None, None, None)
            record.calls += 1
            record.seconds += now - start
            if current.function is not None:
                current.function.graph_seconds += now - start
                current.keep("graph", record.id, start, now)
            current.left_out += (left := time.perf_counter()) - now
            current.after(record.id, left)

        return end

    @contextlib.contextmanager
    def _capture(self) -> Iterator[None]:
        start = time.perf_counter()
        try:
            with record_function(CAPTURE_RANGE):
                yield
        finally:
            self._current.left_out += time.perf_counter() - start

    def _frame_done(self, frame: FrameRecord) -> None:
        if self._current.function is not None:
            self._current.function.frames.append(frame)
        else:
            self._current.waiting.append(frame)
        if self.keep_texts:
            self._texts[id(frame)] = FrameText(
                [graph.code_text() for graph in frame.graphs],
                frame.guards.text() if frame.guards is not None else "",
                [graph.origins() for graph in frame.graphs],
            )

    def _end_window(self) -> None:
        if self._profiler is None:
            return
        profiler, self._profiler = self._profiler, None
        elapsed = time.perf_counter() - self._started
        profiler.__exit__(None, None, None)
        self._window_ended_at = elapsed if elapsed > self.window else None
        self._count_operators(profiler.events())

    def _count_operators(self, events: Any) -> None:
        ops_of_graph = {graph.id: graph.op_count for function in self._functions for graph in function.graphs}
        for event in events:
            parents = _parent_names(event)
            function = next((name for name in parents if name.startswith(FUNCTION_RANGE)), None)
            if function is None:
                continue
            coverage = self._functions[int(function.removeprefix(FUNCTION_RANGE))]
            if event.name.startswith(GRAPH_RANGE):
                coverage.captured_ops += ops_of_graph.get(int(event.name.removeprefix(GRAPH_RANGE)), 0)
            elif _is_operator(event.name) and not any(
                _is_operator(name) or name == CAPTURE_RANGE or name.startswith(GRAPH_RANGE) for name in parents
            ):
                coverage.eager_ops += 1


class _CurrentFunction(threading.local):
    """The outermost compiled function that runs in this thread, the time in it that does not count (capture, and measuring itself), and the
    graph that ran last."""

    function: FunctionCoverage | None = None
    left_out: float = 0.0
    last: int | None = None
    since: float = 0.0
    left_out_since: float = 0.0

    def __init__(self, events: list[ProfilerEvent]) -> None:
        self.events = events  # of all threads
        self.waiting: list[
            FrameRecord
        ] = []  # captured before their call began: the outermost ones of `with optimize(…)`

    def begin(self, function: FunctionCoverage, fn: types.FunctionType, forward: Any) -> None:
        """A function begins, the outermost one. The analysis of its frame, which may be called by the `forward` of a module, may have ended
        already."""
        codes = (fn.__code__, getattr(forward, "__code__", fn.__code__))
        builtin = place_of_builtin(fn)
        places = [(c.co_filename, c.co_firstlineno) for c in codes] if builtin is None else [builtin[1:]]
        function.frames += [frame for frame in self.waiting if (frame.filename, frame.lineno) in places]
        self.waiting.clear()
        self.function, self.left_out = function, 0.0

    def after(self, graph: int | None, now: float) -> None:
        """A graph has ended, or the function begins."""
        self.last, self.since, self.left_out_since = graph, now, self.left_out

    def before(self, graph: int | None, now: float) -> None:
        """A graph begins, or the function has ended."""
        if self.function is not None:
            gap = self.function.gaps.setdefault((self.last, graph), Gap())
            gap.count += 1
            gap.seconds += now - self.since - (self.left_out - self.left_out_since)

    def keep(self, kind: str, number: int, start: float, end: float) -> None:
        """Remember an event, if there are not too many."""
        if len(self.events) < MAX_EVENTS:
            self.events.append(ProfilerEvent(kind, number, start, end - start))


def _is_operator(name: str) -> bool:
    """Operators are `namespace::name`; the profiler's other events and our own ranges are not."""
    namespace, separator, _ = name.partition("::")
    return bool(separator) and namespace.isidentifier() and namespace not in ("dynamo_lite", "autograd", "torch")


def _parent_names(event: Any) -> list[str]:
    names = []
    while (event := event.cpu_parent) is not None:
        names.append(event.name)
    return names


# The report


def _report(coverage: Coverage) -> Iterator[str]:
    trace = sum(frame.trace_seconds for frame in coverage.frames)
    backend = sum(frame.backend_seconds for frame in coverage.frames)
    yield (
        f"dynamo_lite coverage: {many(len(coverage.functions), 'function')}, {many(len(coverage.frames), 'frame')}, "
        f"{many(len(coverage.graphs), 'graph')}, {many(coverage.graph_calls, 'graph call')}"
    )
    yield (
        f"captured {_share(coverage.captured_ops, coverage.total_ops)} operators, "
        f"{coverage.time_share:.1%} of the time; {many(len(coverage.breaks), 'graph break')}, "
        f"{many(len(coverage.recompiles), 'recompile')}; "
        f"trace {trace:.2f} s, backend {backend:.2f} s"
    )
    if coverage.rest_of_time:
        yield coverage.rest_of_time
    if coverage.window_seconds is not None:
        seconds = coverage.window_seconds
        yield f"operators were counted in the first {seconds:.{0 if seconds >= 10 else 3}f} s only"
    for function in coverage.functions:
        yield ""
        yield from _function_lines(function)
    yield from _break_lines(coverage.breaks)
    yield from _late_lines(coverage.frames)
    yield from _recompile_lines(coverage.recompiles)


def _function_lines(function: FunctionCoverage) -> Iterator[str]:
    share = function.graph_seconds / function.seconds if function.seconds else 0.0
    yield (
        f"{function.name}: {many(function.calls, 'call')}, "
        f"captured {_share(function.captured_ops, function.total_ops)} operators, "
        f"{share:.1%} of {function.seconds:.3f} s"
    )
    rows = [("frame", "where", "graphs", "calls", "ops", "time", "breaks", "recompiles", "trace s")]
    for (name, where), frames in _by_place(function.frames).items():
        graphs = [graph for frame in frames for graph in frame.graphs]
        seconds = sum(graph.seconds for graph in graphs)
        rows.append(
            (
                name,
                where,
                str(len(graphs)),
                str(sum(graph.calls for graph in graphs)),
                str(sum(graph.calls * graph.op_count for graph in graphs)),
                f"{seconds / function.seconds if function.seconds else 0:.1%}",
                str(sum(len(frame.breaks) for frame in frames)),
                str(sum(frame.is_recompile for frame in frames)),
                f"{sum(frame.trace_seconds for frame in frames):.3f}",
            )
        )
    yield from _table(rows, left=2)


def _by_place(frames: list[FrameRecord]) -> dict[tuple[str, str], list[FrameRecord]]:
    places: dict[tuple[str, str], list[FrameRecord]] = {}
    for frame in frames:
        places.setdefault((frame.name, f"{short_path(frame.filename)}:{frame.lineno}"), []).append(frame)
    return places


def _break_lines(breaks: list[BreakRecord]) -> Iterator[str]:
    """Breaks by number and line, the most frequent first."""
    counts = Counter((record.reason, record.user_frame) for record in breaks)
    if counts:
        yield ""
        yield "graph breaks"
    for (reason, place), count in counts.most_common():
        yield f"  {count}x {reason}"
        if isinstance(place, UserFrame):
            yield f"      {short_path(place.filename)}:{place.lineno}  {place.line}"


def _late_lines(frames: list[FrameRecord]) -> Iterator[str]:
    """What is written behind graphs instead of breaking them, in the order of the program."""
    counts = Counter(text for frame in frames for text in frame.delayed)
    if counts:
        yield ""
        yield "behind the graphs, without a break"
    for text, count in counts.items():
        yield f"  {count}x {text}"


def _recompile_lines(frames: list[FrameRecord]) -> Iterator[str]:
    if frames:
        yield ""
        yield "recompiles"
    for frame in frames:
        reasons = str(frame.recompile_reason).replace("\n", "\n      ")
        yield f"  {frame.name} {short_path(frame.filename)}:{frame.lineno}: {reasons}"


def _table(rows: list[tuple[str, ...]], left: int) -> Iterator[str]:
    """Rows in aligned columns, the first `left` columns flush left, indented by two."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  " + "  ".join(cells).rstrip()


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole}" + (f" ({part / whole:.1%})" if whole else "")
