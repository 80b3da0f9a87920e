"""Finding the right entry among many: one function compiled for 1, 8 and 64 constants, or sizes, called with each in turn.

The graphs return a precomputed output, so that guards and glue are left. dynamo_lite and torch.compile take turns in one process; the
result is the median over the rounds, in microseconds per call. Run it with `python -m benchmarks.lookup`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

import dynamo_lite

from .common import finish, parse_options, row, take_turns

ENTRIES = (1, 8, 64)
X = torch.ones(3)


def function(x: torch.Tensor, key: str) -> torch.Tensor:
    return x + len(key)


def backend(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    return lambda *inputs: (X,)


def arguments(kind: str, n: int) -> list[tuple[torch.Tensor, str]]:
    """The calls that need `n` entries."""
    if kind == "constant":
        return [(X, "k" * i) for i in range(1, n + 1)]
    return [(torch.ones(i + 2), "k") for i in range(n)]


def per_call(compiled: Callable[..., Any], calls: list[Any]) -> float:
    repeat = range(max(1, 2000 // len(calls)))
    start = time.perf_counter()
    for _ in repeat:
        for args in calls:
            compiled(*args)
    return (time.perf_counter() - start) / (len(repeat) * len(calls))


def measure(kind: str, n: int, rounds: int) -> dict[str, Any]:
    dynamo_lite.reset()
    torch.compiler.reset()
    sides = {
        "dynamo_lite": dynamo_lite.compile(function, backend=backend, dynamic=False),
        "torch.compile": torch.compile(function, backend=backend, dynamic=False),
    }
    calls = arguments(kind, n)
    for compiled in sides.values():
        for args in calls * 2:
            compiled(*args)
    times = take_turns({side: partial(per_call, compiled, calls) for side, compiled in sides.items()}, rounds)
    return row(f"{n} x {kind}", times["dynamo_lite"], times["torch.compile"])


def main() -> None:
    options = parse_options(__doc__)
    dynamo_lite.config.recompile_limit = dynamo_lite.config.accumulated_recompile_limit = 1000
    torch._dynamo.config.cache_size_limit = torch._dynamo.config.accumulated_cache_size_limit = 1000
    rows = [measure(kind, n, 5 if options.quick else 30) for kind in ("constant", "size") for n in ENTRIES]
    finish("lookup", "us", 1e6, rows, options)


if __name__ == "__main__":
    main()
