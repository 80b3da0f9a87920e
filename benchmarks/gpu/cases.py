"""One measurement on the device: a model, what is done with it, a record of plain values.

Input: suite, name, device and what the case is about. Output: a record with "pass" and, where something differs, "differences"; times are
milliseconds per call until the device has done its work. Each runs in a process of its own.
"""

from __future__ import annotations

import gc
import os
import pathlib
import statistics
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

import dynamo_lite
from benchmarks import measure
from benchmarks.common import take_turns
from benchmarks.measure import Settings, Side, seconds_of
from benchmarks.steps import backward, far_apart, seed
from dynamo_lite.record import log
from dynamo_lite.testing import differences

from .models import entry

Record = dict[str, Any]
ROUNDS, BLOCK = 9, 0.05
TOLERANCE = {torch.float32: 2e-3, torch.bfloat16: 1e-1, torch.float16: 2e-2}
"""Of the largest element: sums in another order, TF32 in cuDNN."""


def guarded(function: str, *args: Any) -> Record:
    """What a case of this name says, or why it could not."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    started = time.perf_counter()
    try:
        record = CASES[function](*args)
    except Exception as error:
        where = [f"{frame.filename}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)[-6:]]
        record = {"pass": False, "error": f"{type(error).__name__}: {error}"[:1500], "where": where}
    return {**record, "seconds": round(time.perf_counter() - started, 1)}


def zoo(suite: str, name: str, device: str, training: bool = False) -> Record:
    """Coverage and results under `eager`, as the driver measures them."""
    backend = "aot_eager" if training else "eager"
    return measure.guarded(
        suite, name, Settings(device=device, backend=backend, training=training, parts=("coverage", "accuracy"))
    )


class Subject(measure.Subject):
    """A model on the device, its copies, and calls of it."""

    def __init__(self, suite: str, name: str, device: str, dtype: str = "float32", training: bool = False) -> None:
        super().__init__(entry(suite, name), Settings(device=device, dtype=dtype, training=training))
        self.model.train(training and suite != "hf")  # dropout would differ

    def seconds(self, forward: Callable[..., Any], model: Any, inputs: Any, calls: int = 1) -> float:
        return seconds_of(self, Side(forward, model, inputs), calls)

    def kept(self, forward: Callable[..., Any], model: Any) -> Any:
        """`observed`, in memory that no later call writes to."""
        return tree_map_only(torch.Tensor, torch.Tensor.clone, self.observed(forward, model, self.inputs()))


def sizes(suite: str, name: str, device: str, backend: str) -> Record:
    """A backend for inference at three batch sizes, the results of eager execution, random numbers, and memory that does not grow."""
    subject = Subject(suite, name, device)
    twin = subject.copy()
    compiled = dynamo_lite.compile(subject.model, backend=backend)
    found: list[str] = []
    record: Record = {"pass": True}

    def calls() -> None:
        for batch in (2, 2, 2, 3, 3, 3, 4, 4, 4, 2, 3, 4):
            results = []
            for run in (twin, compiled):
                seed()
                results.append((subject.call(run, run, subject.inputs(batch)), torch.rand(1, device=device)))
            found.extend(differences(*results, tol=TOLERANCE[subject.dtype], by_largest=True))

    reserved = []
    for _ in range(3):
        calls()
        if device != "cpu":
            gc.collect()
            torch.cuda.empty_cache()
            reserved.append(torch.cuda.memory_reserved() // 2**20)
    frames = log.snapshot()
    record["graphs"] = sum(len(frame.graphs) for frame in frames)
    record["breaks"] = [f"{b.code} {b.context}"[:200] for b in log.breaks()][:5]
    record["notes"] = sorted(
        {note for frame in frames for graph in frame.graphs for note in graph.notes.get(backend, [])}
    )
    record["reserved_mib"] = reserved
    if reserved and reserved[-1] > reserved[-2]:  # libraries take workspaces in the first two rounds
        found.append(f"memory grows with the calls: {reserved} MiB")
    if found:
        record |= {"pass": False, "differences": [text[:300] for text in found[:5]]}
    return record


RACING = ["eager", "cudagraphs", "inductor", "inductor_reduce_overhead"]
"""Not `inductor_max_autotune`, which tries kernels for a minute per model; the chunk `max-autotune` has it."""

SIDES: dict[str, Callable[[Any], Any]] = {
    "dynamo_lite inductor": lambda model: dynamo_lite.compile(model, backend="inductor"),
    "dynamo_lite regions": lambda model: dynamo_lite.compile(model, backend="inductor", regions=True),
    "dynamo_lite cudagraphs": lambda model: dynamo_lite.compile(model, backend="cudagraphs"),
    "dynamo_lite reduce-overhead": lambda model: dynamo_lite.compile(model, mode="reduce-overhead"),
    "dynamo_lite autotune": lambda model: dynamo_lite.compile(
        model, backend="autotune", options={"store": False, "budget": "30s", "candidates": RACING}
    ),
    "dynamo_lite max-autotune": lambda model: dynamo_lite.compile(model, mode="max-autotune"),
    "torch.compile": torch.compile,
    "torch.compile reduce-overhead": lambda model: torch.compile(model, mode="reduce-overhead"),
    "torch.compile max-autotune": lambda model: torch.compile(model, mode="max-autotune"),
}


def speed(suite: str, name: str, device: str, sides: tuple[str, ...], dtype: str, training: bool) -> Record:
    """Eager execution and the sides in turns; results (or gradients) of each beside those of eager execution."""
    torch.backends.cuda.matmul.allow_tf32 = True
    subject = Subject(suite, name, device, dtype, training)
    eager = subject.copy()
    subject.kept(eager, eager)
    expected = subject.kept(eager, eager)
    blocks: dict[str, Callable[[], float]] = {}
    record: Record = {"pass": True, "dtype": dtype, "training": training}
    for side in ("eager", *sides):
        model = subject.copy()
        run = model if side == "eager" else SIDES[side](model)
        started = time.perf_counter()
        try:
            subject.kept(run, model)
            record[f"{side} first_s"] = round(time.perf_counter() - started, 2)
            found = far(expected, subject.kept(run, model), subject.dtype, training)
            if found:
                record |= {"pass": False, f"{side} differences": found}
            inputs = subject.inputs()
            for _ in range(3):
                subject.seconds(run, model, inputs)
            calls = max(1, int(BLOCK / subject.seconds(run, model, inputs)))
        except Exception as error:
            record |= {"pass": False, f"{side} error": f"{type(error).__name__}: {error}"[:600]}
            continue
        blocks[side] = partial(subject.seconds, run, model, inputs, calls)
        if side == "dynamo_lite autotune":
            record["races"] = [[list(one) for one in g.race] for f in log.snapshot() for g in f.graphs if g.race]
            record["winners"] = sorted({g.backend for f in log.snapshot() for g in f.graphs if g.race})
    for side, times in take_turns(blocks, ROUNDS).items():
        record[f"{side} ms"] = round(1e3 * statistics.median(times), 4)
    return record


def far(expected: Any, actual: Any, dtype: torch.dtype, training: bool) -> list[str]:
    """Where results, or gradients, differ by more than rounding."""
    tolerance = TOLERANCE[dtype]
    if training:
        texts = [text for key in expected for text in far_apart(expected[key], actual.get(key), key, 10 * tolerance)]
    else:
        texts = list(differences(expected, actual, tol=tolerance, by_largest=True))
    return [text[:300] for text in texts[:3]]


def prepare(suite: str, name: str, device: str, side: str, dtype: str, training: bool) -> Record:
    """Compile once, so that what is timed later finds its kernels in Inductor's cache."""
    torch.backends.cuda.matmul.allow_tf32 = True
    subject = Subject(suite, name, device, dtype, training)
    subject.call(SIDES[side](subject.model), subject.model, subject.inputs())
    subject.synchronize()
    return {"pass": True}


def first_call(suite: str, name: str, device: str, side: str, dtype: str) -> Record:
    """Seconds of the first call with empty caches of this side, beyond an eager one, and milliseconds of later calls."""
    torch.backends.cuda.matmul.allow_tf32 = True
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"TORCHINDUCTOR_CACHE_DIR": folder, "DYNAMO_LITE_CACHE": "0"}
        subject = Subject(suite, name, device, dtype)
        eager = subject.copy()
        subject.kept(eager, eager)
        expected = subject.kept(eager, eager)
        run, inputs = SIDES[side](subject.model), subject.inputs()
        first = subject.seconds(run, subject.model, inputs) - subject.seconds(eager, eager, inputs)
        found = far(expected, subject.kept(run, subject.model), subject.dtype, False)
        calls = max(1, int(BLOCK / subject.seconds(run, subject.model, inputs)))
        times = [subject.seconds(run, subject.model, inputs, calls) for _ in range(ROUNDS)]
    graphs = sorted({note for f in log.snapshot() for g in f.graphs for note in g.notes.get("regions", ())})
    record = {"first_s": round(first, 2), "ms": round(1e3 * statistics.median(times), 4), "regions": graphs}
    return {"pass": not found, **record, **({"differences": found} if found else {})}


def forget_configurations(device: str) -> Record:
    """Drop the configurations of kernels that Inductor has chosen while others used the device; the compiled kernels stay."""
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    found = list(pathlib.Path(cache_dir()).rglob("*.best_config"))
    for path in found:
        path.unlink()
    return {"pass": True, "forgotten": len(found)}


def per_call(device: str) -> Record:
    """Microseconds on the CPU per call of small functions whose graph does one or three launches."""
    record: Record = {"pass": True}
    x = torch.randn(64, 64, device=device)
    layer = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU()).to(device)
    for title, fn in {"x + 1": lambda x: x + 1, "Linear+ReLU": layer}.items():
        sides = {
            "eager": fn,
            "dynamo_lite eager": dynamo_lite.compile(fn, backend="eager"),
            "torch.compile eager": torch.compile(fn, backend="eager"),
            **{side: make(fn) for side, make in SIDES.items() if "max-" not in side},
        }
        with torch.no_grad():
            for run in sides.values():
                for _ in range(20):
                    run(x)

            def block(run: Any) -> float:
                torch.cuda.synchronize() if device != "cpu" else None
                started = time.perf_counter()
                for _ in range(300):
                    run(x)
                torch.cuda.synchronize() if device != "cpu" else None
                return (time.perf_counter() - started) / 300

            times = take_turns({side: partial(block, run) for side, run in sides.items()}, 15)
        record[title] = {side: round(1e6 * statistics.median(values), 2) for side, values in times.items()}
    return record


def repeatable(suite: str, name: str, device: str) -> Record:
    """How far the gradients of a training step are from those of another eager step, of the largest element: eagerly again, under `eager`,
    `aot_eager` and torch.compile; with TF32 and the fastest convolutions, and without ("exact")."""
    record: Record = {"pass": True}
    for exact in (False, True):
        torch.backends.cudnn.allow_tf32 = not exact
        torch.backends.cudnn.deterministic = exact
        subject = Subject(suite, name, device, training=True)
        subject.model.train()
        reference = subject.copy()
        expected = backward(reference, reference, subject.inputs())
        for side, wrap in {
            "eager again": lambda model: model,
            "dynamo_lite eager": lambda model: dynamo_lite.compile(model, backend="eager"),
            "dynamo_lite aot_eager": lambda model: dynamo_lite.compile(model, backend="aot_eager"),
            "torch.compile aot_eager": lambda model: torch.compile(model, backend="aot_eager"),
        }.items():
            model = subject.copy()
            actual = backward(wrap(model), model, subject.inputs())
            distances = [
                float((value - actual[key]).abs().max() / value.abs().max().clamp(min=1e-30))
                for key, value in expected.items()
                if value is not None and actual[key] is not None and value.is_floating_point()
            ]
            record[f"{side}{' exact' * exact}"] = max(distances)
    return record


CASES: dict[str, Callable[..., Record]] = {
    "zoo": zoo,
    "sizes": sizes,
    "speed": speed,
    "prepare": prepare,
    "first_call": first_call,
    "forget_configurations": forget_configurations,
    "per_call": per_call,
    "repeatable": repeatable,
}
