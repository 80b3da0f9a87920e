"""Trace time: what the first call of a compiled model costs beyond an eager call, with a backend that compiles nothing.

dynamo_lite and torch.compile take turns in one warm process; before each measurement everything compiled is forgotten. What each side
remembers of operators on metadata stays, as it does in a process that compiles many models.
The result is the median over the rounds, in milliseconds; `first` and `first torch` are the first round alone, in which
neither side has met the model's code before. Run it with `python -m benchmarks.trace [--models a,b] [--dynamic] [--quick]`.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

import dynamo_lite

from .common import Example, call, examples, finish, parse_options, row, seconds, take_turns


def forward_only(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    return gm.forward


SIDES: dict[str, tuple[Callable[..., Any], Callable[[], None]]] = {
    "dynamo_lite": (dynamo_lite.compile, dynamo_lite.reset_code_caches),
    "torch.compile": (torch.compile, torch.compiler.reset),
}


def trace_seconds(side: str, example: Example, eager: float, dynamic: bool | None = None) -> float:
    """Seconds that the first call of a model costs beyond the `eager` ones, on one of the `SIDES`."""
    compile_with, reset = SIDES[side]
    reset()
    gc.collect()
    model = compile_with(example[0], backend=forward_only, fullgraph=True, dynamic=dynamic)
    return seconds(model, example) - eager


def compare(example: Example, rounds: int, dynamic: bool | None = None) -> dict[str, list[float]]:
    """The trace times of both sides, which take turns."""
    call(example[0], example)
    eager = min(seconds(example[0], example) for _ in range(3))
    return take_turns({side: partial(trace_seconds, side, example, eager, dynamic) for side in SIDES}, rounds)


def prime() -> None:
    """Imports and first-use costs of both sides are not what is measured."""
    for _, example in examples(["linear_relu"]):
        for side in SIDES:
            trace_seconds(side, example, 0.0)


def main() -> None:
    options = parse_options(__doc__, dynamic="every size is symbolic from the start (dynamic=True)")
    rounds = 2 if options.quick else 5
    prime()
    rows = []
    for name, example in examples(options.models):
        times = compare(example, rounds, True if options.dynamic else None)
        ours, theirs = times["dynamo_lite"], times["torch.compile"]
        rows.append(row(name, ours, theirs, **{"first": ours[0] * 1e3, "first torch": theirs[0] * 1e3}))
        print(f"{name}: {rows[-1]}", flush=True)
    finish("trace-dynamic" if options.dynamic else "trace", "ms", 1e3, rows, options)


if __name__ == "__main__":
    main()
