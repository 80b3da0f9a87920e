"""Per-call overhead: a compiled model whose graphs return outputs computed once, so that only guards and glue are left.

dynamo_lite and torch.compile take turns in one process. The result is the median over the rounds, in microseconds per
call; `eager_us` is the model itself, for scale. Run it with `python -m benchmarks.overhead [--models a,b] [--quick]`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

import dynamo_lite

from .common import Example, call, examples, finish, parse_options, row, take_turns


def precomputed(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    """The outputs of the first call, for ever."""
    outputs: list[Any] = []

    def graph(*inputs: Any) -> Any:
        if not outputs:
            outputs.append(gm.forward(*inputs))
        return outputs[0]

    return graph


def per_call(model: Callable[..., Any], example: Example, calls: int) -> float:
    _, args, kwargs = example
    repeat = range(calls)
    with torch.no_grad():
        start = time.perf_counter()
        for _ in repeat:
            model(*args, **kwargs)
        return (time.perf_counter() - start) / calls


def main() -> None:
    options = parse_options(__doc__)
    rounds = 5 if options.quick else 40
    rows = []
    for name, example in examples(options.models):
        dynamo_lite.reset()
        torch.compiler.reset()
        model = example[0]
        sides = {
            "dynamo_lite": dynamo_lite.compile(model, backend=precomputed, fullgraph=True),
            "torch.compile": torch.compile(model, backend=precomputed, fullgraph=True),
        }
        for compiled in sides.values():
            for _ in range(3):
                call(compiled, example)
        calls = {side: max(1, int(0.02 / per_call(compiled, example, 10))) for side, compiled in sides.items()}
        times = take_turns({side: partial(per_call, sides[side], example, calls[side]) for side in sides}, rounds)
        eager = min(per_call(model, example, 1) for _ in range(5))
        rows.append(row(name, times["dynamo_lite"], times["torch.compile"], eager_us=eager * 1e6))
        print(f"{name}: {rows[-1]}", flush=True)
    finish("overhead", "us", 1e6, rows, options)


if __name__ == "__main__":
    main()
