"""The log of the compiler. `convert` and `codegen` write it; `report` and `testing` read it.

Input: one record per compiled graph, per graph break and per analysed frame. Output: `log`, a bounded list of frames
and the counters. Invariant: a record is complete when it is added and is not changed afterwards, except for its call
counts; texts (graph code, guards) are made only when a report asks. This module does not import torch.
"""

from __future__ import annotations

import itertools
import sys
import threading
import types
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from .breaks import OfKind, UserFrame, UserStack
from .config import config
from .exc import Unsupported
from .import_hook import loaded
from .messages import short_path

MAX_FRAMES = 10_000
"""Frames that the log keeps; the oldest are dropped, the counters keep counting."""


GRAPH_RECORD = "dynamo_lite_record"
"""The key of `GraphModule.meta` under which a graph's `GraphRecord` travels to the backend."""

AS_CAPTURED = "dynamo_lite_as_captured"
"""The key of `GraphModule.meta` under which a graph says why AOTAutograd would compute something else than it does."""

IN_INFERENCE = "dynamo_lite_in_inference"
"""The key of `GraphModule.meta` under which a graph says that all its operators are in an inference mode, in which it will be called."""

OF_FAKES = "dynamo_lite_of_fakes"
"""The key of `GraphModule.meta` under which a graph says that it computes with the program's own `FakeTensor`s, which have no data."""

UNUSED_RANDOM = "dynamo_lite_unused_random"
"""The key of `GraphModule.meta` under which a graph names the operators that draw random numbers which nobody uses."""

COPY_OF = "dynamo_lite_copy_of"
"""The key of `GraphModule.meta` under which the copy of a graph for a backend has a weak reference to the graph as captured."""

WRITTEN = "dynamo_lite_written"
"""The key of `GraphModule.meta` under which a graph names, per memory that it writes to, the nodes that share this memory."""


class MissedGuard(Protocol):
    """A failed guard of a `Miss`, for reports: the path of a value, the user's line, the expected and the actual value. `kind`: the kind of
    the check, None for a relation and for a missing value. For decisions: `paths`, the steps that lead to the values that the guard checks,
    and `bounds`, the name of a number with the smallest and the largest one allowed, if the guard says just that. `is_place`: it says
    where the program goes on."""

    @property
    def path(self) -> str: ...
    @property
    def user_line(self) -> tuple[str, int] | None: ...
    @property
    def expected(self) -> str: ...
    @property
    def found(self) -> str: ...
    @property
    def kind(self) -> int | None: ...
    @property
    def paths(self) -> tuple[tuple[tuple[int, Any], ...], ...]: ...
    @property
    def bounds(self) -> tuple[str, int | None, int | None] | None: ...
    @property
    def is_place(self) -> bool: ...


class GuardText(Protocol):
    """The guards of a `FrameRecord`, for reports: the number of checks, and the readable Python mirror."""

    def __len__(self) -> int: ...

    def text(self) -> str: ...


class Stats:
    """Counters of the whole process: operators run on fake tensors, answered from the memo of earlier ones, by a shape rule; frames that
    started again because their graph had raised, errors of graphs after which that could not be; checks that failed."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Start again at zero."""
        self.fake_calls = 0
        self.memo_hits = 0
        self.by_rule = 0
        self.started_again = 0
        self.errors_passed_on = 0
        self.cache_hits = 0
        self.cache_misses = 0
        self.cache_kept = 0
        self.cache_refusals: Counter[str] = Counter()
        self.cache_mismatches: Counter[str] = Counter()
        self.artifacts_used = 0
        self.artifacts_kept = 0
        self.artifact_refusals: Counter[str] = Counter()
        self.checks_failed = 0


STATS = Stats()


@dataclass(slots=True)
class BreakRecord(OfKind):
    """One graph break of one frame."""

    slug: str
    context: str
    user_stack: UserStack
    origin: UserFrame | None = None

    @classmethod
    def of(cls, exc: Unsupported) -> BreakRecord:
        """The record of a break that the interpreter raised."""
        return cls(exc.slug, exc.context, tuple(exc.user_stack), exc.origin)

    @property
    def user_frame(self) -> UserFrame | None:
        """The line that caused the break."""
        return self.user_stack[-1] if self.user_stack else None

    @property
    def graph_break(self) -> bool:
        """True; torch's records of why a graph ended have it, and are about its return as well."""
        return True

    @property
    def reason(self) -> str:
        """The break in one line."""
        return f"{self.code} {self.title}" + (f": {self.context}" if self.context else "")


class Function(NamedTuple):
    """A function of the program by its place."""

    filename: str
    firstlineno: int
    name: str

    @classmethod
    def of(cls, code: types.CodeType) -> Function:
        """The function of a code object."""
        return cls(code.co_filename, code.co_firstlineno, code.co_qualname)


CallChain = tuple[tuple[Function, int], ...]
"""Calls that were followed, outermost first: each function with the line of it that runs."""


@dataclass(slots=True)
class GraphRecord:
    """One FX graph handed to a backend, which finds this record as `gm.meta[GRAPH_RECORD]`.

    `calls` and `seconds` (time in the compiled graph) are counted only while a report measures; see `report.coverage`.
    """

    id: int
    op_count: int
    node_count: int
    backend: str
    compile_seconds: float = 0.0
    module: Callable[[], Any] = type(None)
    """The graph itself, None when it is gone."""
    code_text: Callable[[], str] = str
    origins: Callable[[], Counter[CallChain]] = Counter
    """How many operators come from each chain of calls."""
    calls: int = 0
    seconds: float = 0.0
    race: list[tuple[str, float | None, str]] | None = None  # of `autotune`: candidate, microseconds, what happened
    branches: list[str] = field(default_factory=list)
    """What became of each branch on data of which the graph has both sides, and why: `f.py:3: torch.cond (gradients)`."""
    notes: dict[str, list[str]] = field(default_factory=dict)  # of backends, by what they are about


@dataclass(slots=True)
class Specialization:
    """A size or number of the inputs that was symbolic until the program made it a constant; `user` is its line (file, line). `why`: a
    reason other than that the line needs the number."""

    text: str
    value: Any
    user: tuple[str, int] | None
    why: str | None = None

    def __str__(self) -> str:
        where = f", by {short_path(self.user[0])}:{self.user[1]}" if self.user is not None else ""
        return f"{self.text} = {self.value}{where}" + (f" ({self.why})" if self.why is not None else "")


class Miss(NamedTuple):
    """Why an earlier version did not fit: its number, and each of its guards that failed, in the user's terms."""

    entry_index: int
    failures: Sequence[MissedGuard]

    @property
    def is_elsewhere(self) -> bool:
        """Whether the version is for another place where the program goes on."""
        return any(failure.is_place for failure in self.failures)

    def __str__(self) -> str:
        return "\n".join(map(str, self.failures)) or "no guard of a compiled version fails now"


@dataclass(slots=True)
class FrameRecord:
    """One finished analysis of one code object: the entry that it made, its graphs, breaks, guards and times. It keeps none of these
    alive, nor the code.

    `entry_index` is the position among the entries of this code object: 0 for the first compilation, more for
    recompilations. `recompile_reason` says which guards of the `nearest` earlier entry failed; it is None for the first version for a place
    in a called function, as the other side of a branch that breaks is. `skipped` says why no entry was made, if so.
    """

    name: str
    filename: str
    lineno: int
    graphs: list[GraphRecord] = field(default_factory=list)
    breaks: list[BreakRecord] = field(default_factory=list)
    guards: GuardText | None = None
    trace_seconds: float = 0.0
    backend_seconds: float = 0.0
    restarts: int = 0
    recompile_reason: str | None = None
    nearest: Miss | None = None
    entry_index: int = 0
    is_resume: bool = False
    skipped: str | None = None
    started: float = 0.0
    """When the analysis began, in seconds of `time.perf_counter`."""
    specializations: list[Specialization] = field(default_factory=list)
    size_lines: dict[tuple[str, int] | None, tuple[Function, ...]] = field(default_factory=dict)
    """The user's lines that decide by sizes or need them as constants, and the functions that were called to get there."""
    guard_lines: dict[tuple[str, int] | None, tuple[Function, ...]] = field(default_factory=dict)
    """The user's lines that need a guard, and the functions that were called to get there."""
    delayed: list[str] = field(default_factory=list)
    """What the frame does behind its graph instead of breaking it, with the user's lines."""
    breaks_in_loop: bool = False
    """Whether the version ends with a break in a loop of the frame itself."""
    steps: int = 0
    """Instructions interpreted in the run that made the entry."""
    fake_calls: int = 0
    memo_hits: int = 0
    by_rule: int = 0
    from_cache: bool = False
    """Made by another process: nothing was traced in this one."""
    compile_id: str = ""
    """Number of the frame, and of its analyses before: what `TORCH_LOGS` has before each line."""

    @property
    def is_recompile(self) -> bool:
        """Whether it was made because earlier versions did not fit."""
        return self.entry_index > 0 and (self.nearest is None or not self.nearest.is_elsewhere)

    @property
    def location(self) -> str:
        """Where the function begins; the file as `short_path` has it."""
        return f"{short_path(self.filename)}:{self.lineno}"

    @property
    def ops_total(self) -> int:
        """Operations in all graphs of this frame."""
        return sum(graph.op_count for graph in self.graphs)

    def timing(self) -> str:
        """The line that `config.timing` prints for this frame."""
        return (
            f"TIMING: entire_frame_compile:{self.trace_seconds + self.backend_seconds:.5f} "
            f"backend_compile:{self.backend_seconds:.5f} {self.name} {self.location}"
        )

    def counts(self) -> dict[str, int]:
        """The numbers that this frame adds to the line of statistics."""
        return {
            "call_* op count": self.ops_total,
            "FakeTensor dispatches": self.fake_calls,
            "memo hits": self.memo_hits,
            "shape rules": self.by_rule,
            "instructions": self.steps,
            "guards": len(self.guards) if self.guards is not None else 0,
            "graphs": len(self.graphs),
            "breaks": len(self.breaks),
            "restarts": self.restarts,
            "recompiles": int(self.recompile_reason is not None),
            "from cache": int(self.from_cache),
        }


class OfFrames:
    """The graphs and breaks of several frames."""

    frames: Sequence[FrameRecord]

    @property
    def graphs(self) -> list[GraphRecord]:
        return [graph for frame in self.frames for graph in frame.graphs]

    @property
    def breaks(self) -> list[BreakRecord]:
        return [record for frame in self.frames for record in frame.breaks]

    @property
    def recompiles(self) -> list[FrameRecord]:
        """The versions that were made because earlier ones did not fit."""
        return [frame for frame in self.frames if frame.is_recompile]


class Counters(defaultdict[str, Counter[str]]):
    """Counts by name and text, in the shape of `torch._dynamo.utils.counters`. What torch's own compilers count ("inductor",
    "aot_autograd", …) is read where they keep it, once they are loaded."""

    def __init__(self) -> None:
        super().__init__(Counter)

    def __missing__(self, key: str) -> Counter[str]:
        if key in _COUNTED:
            return super().__missing__(key)
        return getattr(loaded("torch." + "_dynamo.utils"), "counters", defaultdict(Counter))[key]


_COUNTED = frozenset({"frames", "graph_break", "recompiles", "skipped", "stats", "unimplemented"})

Listener = Callable[[FrameRecord], None]


class RecordLog:
    """All frames in the order in which their analysis ended, and the counters. Safe to write from several threads.

    `counters["graph_break"][text]`, `counters["unimplemented"][kind of break]`, `counters["stats"]["unique_graphs"]`,
    `counters["frames"]["total" | "ok"]`, `counters["recompiles"][reason]`, `counters["skipped"][reason]`; see `Counters` for more.

    `convert` does its work inside `with log.capture_context():`, so that a report which measures can tell it from the
    user's program.
    """

    def __init__(self, max_frames: int = MAX_FRAMES) -> None:
        self.frames: deque[FrameRecord] = deque(maxlen=max_frames)
        self.counters = Counters()
        self.capture_context: Callable[[], AbstractContextManager[Any]] = nullcontext
        self._lock = threading.Lock()
        self._graph_ids = itertools.count()
        self._frame_ids = itertools.count()
        self._listeners: tuple[Listener, ...] = ()

    def next_graph_id(self) -> int:
        """A number for a new `GraphRecord`, unique in this log since the last `reset`."""
        return next(self._graph_ids)

    def next_frame_id(self) -> int:
        """A number for a frame that is analysed for the first time since the last `reset`."""
        return next(self._frame_ids)

    def add(self, frame: FrameRecord) -> None:
        """Append a finished frame, count it, and tell the listeners (in this thread, outside of the lock)."""
        with self._lock:
            self.frames.append(frame)
            frames, stats = self.counters["frames"], self.counters["stats"]
            frames["total"] += 1
            if frame.skipped is None:
                frames["ok"] += 1
            else:
                self.counters["skipped"][frame.skipped] += 1
            stats["unique_graphs"] += len(frame.graphs)
            stats["calls_captured"] += frame.ops_total
            stats["restarts"] += frame.restarts
            for record in frame.breaks:
                self.counters["graph_break"][f"{record.code} {record.title}"] += 1
                self.counters["unimplemented"][record.title] += 1
            if frame.recompile_reason is not None:
                self.counters["recompiles"][frame.recompile_reason] += 1
            listeners = self._listeners
        if config.timing:
            print(frame.timing(), file=sys.stderr)
        for listener in listeners:
            listener(frame)

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call `listener(frame)` for every frame added from now on. Returns a function that ends this."""
        with self._lock:
            self._listeners += (listener,)

        def remove() -> None:
            with self._lock:
                self._listeners = tuple(entry for entry in self._listeners if entry is not listener)

        return remove

    @contextmanager
    def recording(self) -> Iterator[list[FrameRecord]]:
        """The frames that are added within the block, as a list that grows."""
        frames: list[FrameRecord] = []
        stop = self.listen(frames.append)
        try:
            yield frames
        finally:
            stop()

    def snapshot(self) -> list[FrameRecord]:
        """The frames so far, as a list that later additions do not change."""
        with self._lock:
            return list(self.frames)

    def graphs(self) -> list[GraphRecord]:
        """The graphs of all frames."""
        return [graph for frame in self.snapshot() for graph in frame.graphs]

    def breaks(self) -> list[BreakRecord]:
        """The breaks of all frames."""
        return [record for frame in self.snapshot() for record in frame.breaks]

    def reset(self) -> None:
        """Forget all frames and counters. Listeners stay."""
        with self._lock:
            self.frames.clear()
            self.counters.clear()
            self._graph_ids = itertools.count()
            self._frame_ids = itertools.count()


log = RecordLog()

counters = log.counters
"""The counts of this process."""
