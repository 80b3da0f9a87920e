"""A branch on data as a graph break, as `torch.cond`, as `torch.where`, and chosen: microseconds per call, beside torch.compile.

The sides are element by element (`pointwise`), layers (`linear`), or forty operators (`long`), of few to many elements; the condition
changes from call to call. The five take turns in one process; the result is the median over the rounds. Run it
with `python -m benchmarks.branches`.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

import dynamo_lite

from .common import finish, parse_options, row, take_turns

SIZES = (1_000, 65_536, 1_000_000)
CHOICES = {"break": False, "cond": "cond", "where": "where", "chosen": True}
LAYER, OTHER = torch.nn.Linear(256, 256), torch.nn.Linear(256, 256)


def pointwise(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    z = y.sin() + x if y[0] > 0 else y * 3 - x
    return z + 1


def long(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    if y[0] > 0:
        for _ in range(20):
            y = y.tanh() + x
    else:
        for _ in range(20):
            y = y.sigmoid() - x
    return y + 1


def linear(x: torch.Tensor) -> torch.Tensor:
    y = x.view(-1, 256)
    z = LAYER(y) if x[0] > 0 else OTHER(y)
    return z + 1


def inputs(n: int) -> list[torch.Tensor]:
    x = torch.linspace(0.5, 1, n // 256 * 256)
    return [x, -x]


def per_call(compiled: Callable[..., Any], calls: list[torch.Tensor], turns: int) -> float:
    start = time.perf_counter()
    for _ in range(turns):
        for x in calls:
            compiled(x)
    return (time.perf_counter() - start) / (turns * len(calls))


def sides(function: Callable[..., Any], backend: str) -> dict[str, Callable[..., Any]]:
    made: dict[str, Callable[..., Any]] = {}
    for name, choice in CHOICES.items():
        with dynamo_lite.config.patch(capture_branches=choice):
            made[name] = compiled = dynamo_lite.compile(function, backend=backend, dynamic=False, name=name)
            for n in SIZES:
                for x in inputs(n) * 2:
                    compiled(x)
    made["torch.compile"] = torch.compile(function, backend=backend, dynamic=False)
    return made


@torch.no_grad()
def main() -> None:
    options = parse_options(__doc__.splitlines()[0])
    torch.set_num_threads(options.threads)
    rows = []
    for backend in ("eager", "inductor"):
        for function in (pointwise, long, linear):
            torch.compiler.reset()
            dynamo_lite.reset()
            compiled = sides(function, backend)
            for n in SIZES:
                calls = inputs(n)
                for side in compiled.values():
                    per_call(side, calls, 3)
                turns = max(1, 1_000_000 // n // 4)
                timed = {name: partial(per_call, side, calls, min(turns, 200)) for name, side in compiled.items()}
                times = take_turns(timed, 3 if options.quick else 15)
                others = {
                    f"{name} µs": round(statistics.median(times[name]) * 1e6, 1) for name in ("break", "cond", "where")
                }
                name = f"{backend}, {function.__name__}, {n:,} elements"
                rows.append(row(name, times["chosen"], times["torch.compile"], **others))
    finish("branches", "µs", 1e6, rows, options)


if __name__ == "__main__":
    main()
