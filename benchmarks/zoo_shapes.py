"""One model of the zoo at thirteen batch sizes, lengths or image sizes: when is it compiled again, and is it right each time?

Input: an engine of `zoo_engines`, an entry of the zoo. Output: a record of plain values: for each axis along which the model's inputs
may grow, how many graphs each call compiled. What is looked for: at most each graph once more at the first change, then none.
"""

from __future__ import annotations

import copy
from typing import Any

import torch

from dynamo_lite.testing import differences

from .zoo_engines import SHOWN_TEXT, TOLERANCE, Counter, Record, call, forward_only, verdict
from .zoo_inputs import Entry, Make

# Steps by which the inputs are larger than the smallest ones: that of the first version, that of the first change, eleven more.
# Each axis has one or more series: the first that the model takes in eager execution is the one that counts.
SERIES: dict[str, tuple[tuple[int, ...], ...]] = {
    "batch": ((2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14),),
    "length": ((0, 3, 8, 1, 2, 4, 5, 6, 7, 9, 11, 12, 16), tuple([8 * n for n in range(13)])),
    "image": (tuple(range(13)), tuple([4 * n for n in range(13)])),
}
SHOWN = 3  # reasons of an axis that are recorded


def shapes(engine: Any, entry: Entry) -> Record:
    """All axes of a model."""
    model, make = entry.build()
    model.eval()
    record: Record = {"pass": True, "axes": {}}
    found: list[str] = []
    for axis in ("batch", *entry.axes):
        for series in SERIES[axis]:
            refused = refusal(model, make, axis, series)
            if refused is None:
                record["axes"][axis], wrong = along(engine, model, make, axis, series)
                found += wrong
                break
            record.setdefault("refused", []).append(refused)
    return verdict(record, found)


def inputs_of(make: Make, axis: str, step: int) -> Record:
    return make(step) if axis == "batch" else make(2, **{axis: step})


def refusal(model: torch.nn.Module, make: Make, axis: str, series: tuple[int, ...]) -> str | None:
    """Why the model does not take the sizes of a series in eager execution, if so. Which errors say that is up to the model."""
    tried = copy.deepcopy(model)
    for step in series:
        try:
            call(tried, inputs_of(make, axis, step))
        except Exception as error:
            return f"{axis} {step}: {type(error).__name__}: {error}"[:SHOWN_TEXT]
    return None


def along(
    engine: Any, model: torch.nn.Module, make: Make, axis: str, series: tuple[int, ...]
) -> tuple[Record, list[str]]:
    """One series; what differs from eager execution."""
    engine.reset()
    eager_model = copy.deepcopy(model)
    counter = Counter(forward_only)
    compiled = engine.compile(copy.deepcopy(model), backend=counter)
    counts, found = [], []
    record: Record = {}
    for index, step in enumerate(series):
        expected, eager_wall, eager_cpu = call(eager_model, inputs_of(make, axis, step))
        before, frames = counter.graphs, engine.frames()
        actual, wall, cpu = call(compiled, inputs_of(make, axis, step))
        counts.append(counter.graphs - before)
        if index == 1:
            record.update(trace=wall - eager_wall, trace_cpu=cpu - eager_cpu, guards=engine.guards(frames))
        if index > 1 and counts[-1]:
            record["reasons"] = [*record.get("reasons", ()), *engine.reasons(frames)][:SHOWN]
        found += differences(expected, actual, tol=TOLERANCE, path=f"result for {axis} {step}")
    record.update(graphs=counts[0], change=counts[1], more=sum(counts[2:]), counts=counts)
    return record, found
