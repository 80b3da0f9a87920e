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
from dynamo_lite.testing import differences
from examples.models import import_torchvision

dynamo_lite.config.cache = False  # what is measured here is capture
import_torchvision()
import timm  # noqa: E402, F401
import transformers.modeling_utils  # noqa: E402

from . import zoo_timm, zoo_transformers  # noqa: E402
from .steps import backward, far_apart  # noqa: E402
from .zoo_engines import (  # noqa: E402
    BATCHES,
    SHOWN,
    TOLERANCE,
    Counter,
    Record,
    call,
    engine_of,
    forward_only,
    verdict,
)
from .zoo_export import export  # noqa: E402
from .zoo_inputs import Entry  # noqa: E402
from .zoo_shapes import shapes  # noqa: E402

SUITES = {"hf": zoo_transformers.MODELS, "timm": zoo_timm.MODELS}


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
    return KINDS[kind](engine, entry)


def guarded(*args: Any) -> Record:
    """What `measure` says, or why it could not."""
    try:
        return measure(*args)
    except Exception as error:
        where = [f"{frame.filename}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)[-SHOWN:]]
        return {"pass": False, "error": f"{type(error).__name__}: {error}"[:2000], "where": where}


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


def inference(engine: Any, entry: Entry) -> Record:
    """Three batch sizes, the first of them twice, compared with eager execution of a copy."""
    model, make = entry.build()
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


def training(engine: Any, entry: Entry) -> Record:
    """Two steps of forward, loss and backward under `aot_eager`: loss, gradients and buffers as in eager execution."""
    model, make = entry.build()
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


KINDS = {"inference": inference, "training": training, "shapes": shapes, "export": export}
