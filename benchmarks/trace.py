"""Trace time: what the first call of a compiled model costs beyond an eager call, with a backend that compiles nothing.

dynamo_lite and torch.compile take turns in one warm process; before each measurement everything compiled is forgotten.
The result is the median over the rounds, in milliseconds; `first` and `first torch` are the first round alone, in which
neither side has met the model's code before. Run it with `python -m benchmarks.trace [--models a,b] [--quick]`.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import torch

import dynamo_lite

from .common import Example, call, examples, finish, parse_options, row, seconds


def forward_only(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    return gm.forward


def trace_seconds(compile: Callable[..., Any], reset: Callable[[], None], example: Example, eager: float) -> float:
    reset()
    gc.collect()
    model = compile(example[0], backend=forward_only, fullgraph=True)
    return seconds(model, example) - eager


def main() -> None:
    options = parse_options(__doc__)
    rounds = 2 if options.quick else 5
    sides = {
        "dynamo_lite": (dynamo_lite.compile, dynamo_lite.reset),
        "torch.compile": (torch.compile, torch.compiler.reset),
    }
    for _, example in examples(["linear_relu"]):  # imports and first-use costs of both are not what is measured
        for side in sides.values():
            trace_seconds(*side, example, 0.0)
    rows = []
    for name, example in examples(options.models):
        call(example[0], example)
        eager = min(seconds(example[0], example) for _ in range(3))
        times: dict[str, list[float]] = {side: [] for side in sides}
        for i in range(rounds):
            for side in list(sides) if i % 2 == 0 else list(sides)[::-1]:
                times[side].append(trace_seconds(*sides[side], example, eager))
        ours, theirs = times["dynamo_lite"], times["torch.compile"]
        rows.append(row(name, ours, theirs, **{"first": ours[0] * 1e3, "first torch": theirs[0] * 1e3}))
        print(f"{name}: {rows[-1]}", flush=True)
    finish("trace", "ms", 1e3, rows, options)


if __name__ == "__main__":
    main()
