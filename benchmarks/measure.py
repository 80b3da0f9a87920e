"""One model under dynamo_lite: what is captured of it, is it right, how much faster is it?

Input: the name of a model in a suite, and `Settings`. Output: a record of plain values, whose keys are the columns of `results`.
Coverage is counted with the backend "eager" and torch's profiler; right or wrong and the times are those of the backend asked for. Each
side is compiled with empty caches; then they run in turns.
"""

from __future__ import annotations

import copy
import gc
import statistics
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_map_only

import dynamo_lite
from dynamo_lite.record import FrameRecord, log
from dynamo_lite.report.coverage import Measurement
from dynamo_lite.report.timing import summary
from dynamo_lite.testing import differences

from .common import take_turns
from .memory import forget_peak, resident_mib
from .overhead import per_call, precomputed
from .significance import compare
from .steps import Inputs, backward, far_apart, seed, step
from .suites import entries
from .zoo_inputs import Entry

Record = dict[str, Any]

BATCH = 2
OTHER_BATCHES = (3, 4)
COVERED_CALLS = 3
BLOCK_SECONDS = 0.02
OVERHEAD_ROUNDS = 7
TOLERANCE = {torch.float32: 1e-3, torch.float16: 2e-2, torch.bfloat16: 1e-1}
"""Per dtype, of the largest element: sums in another order, through dozens of layers."""
SHOWN = 5


class Settings(NamedTuple):
    """What is the same for all models of a run."""

    device: str = "cpu"
    dtype: str = "float32"
    training: bool = False
    dynamic: bool = False
    backend: str = "inductor"
    budget: str | None = None
    rivals: tuple[str, ...] = ()
    parts: tuple[str, ...] = ("coverage", "accuracy", "speed")
    repeats: int = 20
    seconds: float = 20.0
    threads: int = 1
    torchbench: str | None = None


class Side(NamedTuple):
    """One of those that take turns: what is called, the model in it, and inputs for the calls that are timed."""

    forward: Callable[..., Any]
    model: Any
    inputs: Inputs


class Subject:
    """A model on its device, and the calls of it that are compared."""

    def __init__(self, entry: Entry, settings: Settings) -> None:
        seed()
        model, self.make = entry.build()
        self.settings = settings
        self.device = torch.device(settings.device)
        self.dtype = getattr(torch, settings.dtype)
        self.is_module = isinstance(model, torch.nn.Module)
        self.model = model.to(self.device, self.dtype).train(settings.training) if self.is_module else model

    def copy(self) -> Any:
        """The model for one side: gradients and buffers are its own."""
        return copy.deepcopy(self.model) if self.is_module else self.model

    def inputs(self, batch: int = BATCH) -> Inputs:
        def moved(value: torch.Tensor) -> torch.Tensor:
            return value.to(self.device, self.dtype if value.is_floating_point() else None)

        return tree_map_only(torch.Tensor, moved, self.make(batch))

    def call(self, forward: Callable[..., Any], model: Any, inputs: Inputs) -> Any:
        """A forward pass without autograd, or a step."""
        if self.settings.training:
            return step(forward, model, inputs)
        with torch.no_grad():
            return forward(**inputs) if isinstance(inputs, dict) else forward(*inputs)

    def observed(self, forward: Callable[..., Any], model: Any, inputs: Inputs) -> Any:
        """What is compared of one call: its result, or the loss, gradients and buffers."""
        if self.settings.training:
            found = backward(forward, model, inputs)
            return {name: value.clone() if value is not None else None for name, value in found.items()}
        seed()
        return self.call(forward, model, inputs)

    def synchronize(self) -> None:
        if self.device.type != "cpu":
            torch.accelerator.synchronize(self.device)

    def difference(self, expected: Any, actual: Any) -> list[str]:
        """Where two observations differ."""
        tolerance = TOLERANCE[self.dtype]
        if not self.settings.training:
            return list(differences(expected, actual, tol=tolerance, by_largest=True))
        return [text for name in expected for text in far_apart(expected[name], actual[name], name, tolerance)]


def guarded(suite: str, name: str, settings: Settings) -> Record:
    """`measure`, or why it could not."""
    torch.set_num_threads(settings.threads)
    try:
        prime(settings)
        entry = entries(suite, settings.torchbench, training=settings.training, device=settings.device)[name]
        return measure(entry, settings)
    except Exception as error:
        where = [f"{frame.filename}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)[-SHOWN:]]
        return {"pass": False, "error": f"{type(error).__name__}: {error}"[:2000], "where": where}
    finally:
        forget()


def measure(entry: Entry, settings: Settings) -> Record:
    """The record of one model. Raises what the model, or a compiler, raises."""
    warnings.simplefilter("ignore")
    subject = Subject(entry, settings)
    record: Record = {"pass": True}
    if "coverage" in settings.parts:
        record |= coverage(subject)
        if record["graphs"] == 1 and not record["breaks"] and not settings.training:
            record["overhead_us"] = overhead(subject)
    if "accuracy" in settings.parts or "speed" in settings.parts:
        record |= against_eager(subject)
    return record


@cache
def prime(settings: Settings) -> None:
    """Imports and what else each side does once in a process are not what is measured."""
    model = torch.nn.Linear(2, 2, device=settings.device)
    for rival in ("", *settings.rivals):
        with fresh_caches():
            compiled_by(rival, model, settings)(torch.ones(1, 2, device=settings.device))
    forget()


def forget() -> None:
    """Everything compiled so far."""
    dynamo_lite.reset()
    torch.compiler.reset()
    log.reset()
    gc.collect()


def coverage(subject: Subject) -> Record:
    """Graphs, operators and breaks, over a few calls of one size."""
    forget()
    model = subject.copy()
    with Measurement() as measurement:
        compiled = dynamo_lite.compile(model, backend="eager", dynamic=subject.settings.dynamic or None)
        for _ in range(COVERED_CALLS):
            seed()
            subject.call(compiled, model, subject.inputs())
    found = measurement.coverage()
    frames = found.frames
    return {
        "frames_ok": sum(frame.skipped is None for frame in frames),
        "frames": len(frames),
        "graphs": len(found.graphs),
        "graph_calls": found.graph_calls,
        "captured_ops": found.captured_ops,
        "total_ops": found.total_ops,
        "pct_ops": 100 * found.captured_ops / found.total_ops if found.total_ops else 0.0,
        "pct_time": 100 * found.time_share,
        "breaks": len(found.breaks),
        "recompiles": len(found.recompiles),
        "trace_s": sum(frame.trace_seconds for frame in frames),
        "break_reasons": [f"{b.user_frame.location if b.user_frame else '?'} {b.reason}" for b in found.breaks][:SHOWN],
    }


def overhead(subject: Subject) -> float:
    """Microseconds of guards and glue per call: the graph returns what it has returned before."""
    forget()
    model, inputs = subject.copy(), subject.inputs()
    side = Side(dynamo_lite.compile(model, backend=precomputed), model, inputs)
    for _ in range(3):
        subject.call(*side)
    return 1e6 * statistics.median(take_turns({"": block_of(subject, side)}, OVERHEAD_ROUNDS)[""])


def against_eager(subject: Subject) -> Record:
    """Compile with the backend, and with the rivals; compare what they compute, then how fast."""
    settings = subject.settings
    eager = subject.copy()
    subject.observed(eager, eager, subject.inputs())  # the first call does things that are done once
    expected = subject.observed(eager, eager, subject.inputs())
    sides = {"eager": Side(eager, eager, subject.inputs())}
    eager_seconds = seconds_of(subject, sides["eager"])
    record: Record = {}
    forget()
    for name in ("", *settings.rivals):
        found, side = compiled_side(subject, name, expected, eager_seconds)
        record |= found
        if side is not None:
            sides[name or "dynamo_lite"] = side
        if not name:
            record |= what_was_made(log.snapshot())
            if settings.dynamic and side is not None:
                record |= other_sizes(subject, side, eager)
    if "speed" in settings.parts:
        record |= speeds(subject, sides)
    return record


def compiled_side(subject: Subject, rival: str, expected: Any, eager_seconds: float) -> tuple[Record, Side | None]:
    """The first call, with empty caches of the backend; its columns, and what to time. Ours (`rival` is empty) raises what it raises."""
    prefix = f"{rival} " if rival else ""
    model = subject.copy()
    compiled = compiled_by(rival, model, subject.settings)
    peak = peak_of(subject)
    started = time.perf_counter()
    try:
        with fresh_caches():
            actual = subject.observed(compiled, model, subject.inputs())
    except Exception as error:
        if not rival:
            raise
        return {f"{prefix}error": f"{type(error).__name__}: {error}"[:500]}, None
    record: Record = {
        f"{prefix}compile_s": max(time.perf_counter() - started - eager_seconds, 0.0),
        f"{prefix}mib": peak(),
    }
    # The first call of a stateful model has left its traces: what is compared is the second, as it is of eager execution.
    actual = subject.observed(compiled, model, subject.inputs())
    found = subject.difference(expected, actual) if "accuracy" in subject.settings.parts else []
    if found:
        record |= {f"{prefix}pass": False, f"{prefix}differences": [text[:300] for text in found[:SHOWN]]}
    return record, Side(compiled, model, subject.inputs())


def compiled_by(rival: str, model: Any, settings: Settings) -> Any:
    dynamic = settings.dynamic or None
    if not rival:
        return ours(model, settings.backend, dynamic, settings.budget)
    if rival == "torch.compile":
        backend = "inductor" if settings.backend == "autotune" else settings.backend
        return torch.compile(model, backend=backend, dynamic=dynamic)
    return ours(model, rival, dynamic)


def ours(model: Any, backend: str, dynamic: bool | None, budget: str | None = None) -> Any:
    """Compiled by dynamo_lite; races are run here and now, whatever earlier ones have shown."""
    options = {"store": False, "budget": budget} if backend == "autotune" else None
    return dynamo_lite.compile(model, backend=backend, dynamic=dynamic, options=options)


def what_was_made(frames: list[FrameRecord]) -> Record:
    """Which backend each graph has and what its race has shown, and the lines of TIMING and STATS."""
    graphs = [graph for frame in frames for graph in frame.graphs]
    return {
        "backends": dict(Counter(graph.backend for graph in graphs).most_common()),
        "races": [graph.race for graph in graphs if graph.race],
        "backend_s": sum(frame.backend_seconds for frame in frames),
        "timing": summary(frames),
    }


def other_sizes(subject: Subject, side: Side, eager: Any) -> Record:
    """Results and recompilations for other batch sizes, which are none where sizes are symbolic."""
    before = len(log.graphs())
    found: list[str] = []
    for batch in OTHER_BATCHES:
        expected = subject.observed(eager, eager, subject.inputs(batch))
        found += subject.difference(expected, subject.observed(side.forward, side.model, subject.inputs(batch)))
    record: Record = {"recompiled_for_sizes": len(log.graphs()) - before}
    if found:
        record |= {"pass": False, "differences": [text[:300] for text in found[:SHOWN]]}
    return record


def speeds(subject: Subject, sides: dict[str, Side]) -> Record:
    """Milliseconds per call, and each side's speedup over eager execution."""
    blocks = {name: block_of(subject, side) for name, side in sides.items()}
    times = take_turns(blocks, subject.settings.repeats, budget=subject.settings.seconds)
    record: Record = {"rounds": len(times["eager"]), "eager_ms": 1e3 * statistics.median(times["eager"])}
    for name in list(sides)[1:]:
        prefix = "" if name == "dynamo_lite" else f"{name} "
        found = compare(times["eager"], times[name])
        record[f"{prefix}ms"] = 1e3 * statistics.median(times[name])
        record |= {f"{prefix}{key}": finite(value) for key, value in found._asdict().items()}
    return record


def finite(value: float) -> float | None:
    """JSON has no infinity."""
    return value if abs(value) < float("inf") else None


def block_of(subject: Subject, side: Side) -> Callable[[], float]:
    """A function that makes some calls, and returns the seconds of each of them."""
    seconds_of(subject, side)
    calls = max(1, int(BLOCK_SECONDS / max(seconds_of(subject, side), 1e-7)))
    return partial(seconds_of, subject, side, calls)


def seconds_of(subject: Subject, side: Side, calls: int = 1) -> float:
    """Seconds per call, of so many, until the device has done its work."""
    subject.synchronize()
    started = time.perf_counter()
    if subject.settings.training:
        for _ in range(calls):
            step(*side)
    else:
        named = isinstance(side.inputs, dict)
        per_call(side.forward, (side.model, () if named else side.inputs, side.inputs if named else {}), calls)
    subject.synchronize()
    return (time.perf_counter() - started) / calls


def peak_of(subject: Subject) -> Callable[[], float]:
    """Begins to watch memory; the function says by how many MiB its peak has risen since."""
    if subject.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(subject.device)
        start = torch.cuda.memory_allocated(subject.device)
        return lambda: (torch.cuda.max_memory_allocated(subject.device) - start) / 2**20
    gc.collect()
    forget_peak()
    resident = resident_mib("VmRSS")
    return lambda: resident_mib("VmHWM") - resident


def fresh_caches() -> Any:
    """Inductor's caches, empty: the second side must not find what the first has compiled."""
    from torch._inductor.utils import fresh_cache

    return fresh_cache()
