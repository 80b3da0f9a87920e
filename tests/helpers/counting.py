"""How many graphs each call of a program compiles."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

import dynamo_lite
from dynamo_lite.testing import CompileCounter


def graphs_per_call(f: Callable[..., Any], calls: Iterable[tuple[Any, ...]], dynamic: bool | None = None) -> list[int]:
    """Graphs compiled by a call with each of the arguments; results are those of eager execution."""
    counter = CompileCounter()
    compiled = dynamo_lite.compile(f, backend=counter, dynamic=dynamic, isolate_recompiles=True)
    found = []
    for args in calls:
        before = counter.frame_count
        torch.testing.assert_close(compiled(*args), f(*args))
        found.append(counter.frame_count - before)
    return found
