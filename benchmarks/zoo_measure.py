"""One model of the zoo under one engine: is it right, in how many graphs, how long does the capture take, when is it redone?

Input: a suite, a model's name, an engine. Output: a record of plain values. Runs in a process of its own, which is forked
from one that has imported this module and with it everything that is slow to import.
"""

from __future__ import annotations

import copy
import gc
import statistics
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import torch

import dynamo_lite
from dynamo_lite.record import log
from dynamo_lite.testing import count_ops, differences
from examples.models import import_torchvision

dynamo_lite.config.cache = False  # what is measured here is capture
import_torchvision()
import timm  # noqa: E402, F401
import transformers.modeling_utils  # noqa: E402

from . import zoo_timm, zoo_transformers  # noqa: E402
from .steps import backward, far_apart, seed  # noqa: E402

Record = dict[str, Any]
SUITES = {"hf": zoo_transformers.MODELS, "timm": zoo_timm.MODELS}
ENGINES = ("dynamo_lite", "torch.compile")
BATCHES = (2, 3, 4)
TOLERANCE = 1e-5
SHOWN = 5  # differences and breaks of a model that are recorded


def forward_only(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    return gm.forward


class Counter:
    """A backend that counts what it is given."""

    def __init__(self, inner: Callable[..., Any]) -> None:
        self.inner = inner
        self.graphs = self.ops = 0

    def __call__(self, gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Any:
        self.graphs += 1
        self.ops += count_ops(gm)
        return self.inner(gm, example_inputs)


class Ours:
    """dynamo_lite."""

    compile = staticmethod(dynamo_lite.compile)

    def reset(self) -> None:
        dynamo_lite.reset()
        log.reset()

    def aot_eager(self) -> Callable[..., Any]:
        return dynamo_lite.lookup_backend("aot_eager")

    def breaks(self) -> list[str]:
        return [
            f"{record.user_frame.location if record.user_frame else '?'} {record.reason}" for record in log.breaks()
        ]


class Theirs:
    """torch.compile."""

    compile = staticmethod(torch.compile)

    def reset(self) -> None:
        import torch._dynamo

        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()

    def aot_eager(self) -> Callable[..., Any]:
        import torch._dynamo

        return torch._dynamo.lookup_backend("aot_eager")

    def breaks(self) -> list[str]:
        import torch._dynamo

        return [" ".join(str(reason).split()) for reason in torch._dynamo.utils.counters["graph_break"]]


def engine_of(name: str) -> Any:
    return Ours() if name == "dynamo_lite" else Theirs()


def measure(suite: str, name: str, engine_name: str, kind: str, rounds: int = 0) -> Record:
    """One record. `rounds`: only the time of the capture, the median of so many."""
    warnings.simplefilter("ignore")
    transformers.utils.logging.set_verbosity_error()
    torch.set_num_threads(1)
    gc.freeze()  # what is imported is left out of the collections before each call
    engine = engine_of(engine_name)
    entry = SUITES[suite][name]
    engine.compile(torch.nn.Linear(2, 2), backend=forward_only)(torch.ones(1, 2))  # what is slow once
    if rounds:
        return trace_times(engine, *entry.build(), rounds)
    return (training if kind == "training" else inference)(engine, *entry.build())


def guarded(*args: Any) -> Record:
    """What `measure` says, or why it could not."""
    try:
        return measure(*args)
    except Exception as error:
        where = [f"{frame.filename}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)[-SHOWN:]]
        return {"pass": False, "error": f"{type(error).__name__}: {error}"[:2000], "where": where}


def call(model: Callable[..., Any], inputs: Record) -> tuple[Any, float, float]:
    """The result of a call without autograd, its wall time and its processor time."""
    seed()
    gc.collect()
    wall, cpu = time.perf_counter(), time.process_time()
    with torch.no_grad():
        result = model(**inputs)
    return result, time.perf_counter() - wall, time.process_time() - cpu


def trace_times(engine: Any, model: torch.nn.Module, make: Callable[[int], Record], rounds: int) -> Record:
    """The median of what the first call costs beyond an eager one; everything compiled is forgotten in between."""
    model.eval()
    inputs = make(BATCHES[0])
    eager = min(call(model, inputs)[1:] for _ in range(3))
    times = []
    for _ in range(rounds):
        engine.reset()
        times.append(call(engine.compile(model, backend=forward_only), inputs)[1:])
    wall, cpu = (statistics.median(column) for column in zip(*times, strict=True))
    return {"trace": wall - eager[0], "trace_cpu": cpu - eager[1]}


def inference(engine: Any, model: torch.nn.Module, make: Callable[[int], Record]) -> Record:
    """Three batch sizes, the first of them twice, compared with eager execution of a copy."""
    model.eval()
    eager_model = copy.deepcopy(model)
    engine.reset()
    counter = Counter(forward_only)
    compiled = engine.compile(model, backend=counter)
    record: Record = {"pass": True}
    found: list[str] = []
    counts = []
    for batch in (BATCHES[0], *BATCHES):
        expected_inputs, inputs = make(batch), make(batch)
        if not counts:
            call(eager_model, make(batch))  # the first eager call does things that are done once, too
        expected, eager_wall, eager_cpu = call(eager_model, expected_inputs)
        actual, wall, cpu = call(compiled, inputs)
        if not counts:
            record.update(graphs=counter.graphs, ops=counter.ops, trace=wall - eager_wall, trace_cpu=cpu - eager_cpu)
            record["breaks"] = engine.breaks()[:SHOWN]
        counts.append(counter.graphs)
        found += differences(expected, actual, tol=TOLERANCE, path=f"result for batch {batch}")
        found += differences(expected_inputs, inputs, tol=TOLERANCE, path=f"inputs of batch {batch}")
    again, second, third = (after - before for before, after in zip(counts, counts[1:], strict=False))
    record.update(again=again, second=second, third=third)
    return verdict(record, found)


def training(engine: Any, model: torch.nn.Module, make: Callable[[int], Record]) -> Record:
    """Two steps of forward, loss and backward under `aot_eager`: loss, gradients and buffers as in eager execution."""
    model.train()
    eager_model = copy.deepcopy(model)
    engine.reset()
    counter = Counter(engine.aot_eager())
    compiled = engine.compile(model, backend=counter)
    record: Record = {"pass": True}
    found: list[str] = []
    for step in (1, 2):
        expected = backward(eager_model, eager_model, make(BATCHES[0]))
        start = time.perf_counter(), time.process_time()
        actual = backward(compiled, model, make(BATCHES[0]))
        if step == 1:
            record.update(graphs=counter.graphs, ops=counter.ops, seconds=time.perf_counter() - start[0])
            record["breaks"] = engine.breaks()[:SHOWN]
        for path, value in expected.items():
            found += far_apart(value, actual[path], f"{path} in step {step}")
    record["again"] = counter.graphs - record["graphs"]
    return verdict(record, found)


def verdict(record: Record, found: list[str]) -> Record:
    if found:
        record.update({"pass": False, "differences": [text[:400] for text in found[:SHOWN]]})
    return record
