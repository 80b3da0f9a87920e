"""A function run eagerly and compiled, and how many graphs and operators that takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dynamo_lite
from dynamo_lite.testing import CompileCounterWithBackend, Run, differences, run_both


def whole(fn: Callable[..., Any], *args: Any, graphs: int = 1, ops: int | None = None, **options: Any) -> Run:
    """The results of eager execution without a break, in so many graphs and operators."""
    run = run_both(fn, *args, **options)
    assert run.graph_count == graphs and not run.breaks, (run.graph_count, run.breaks)
    if ops is not None:
        assert run.op_count == ops, [g.code for g in run.graphs]
    return run


def check(fn: Callable[..., Any], *args: Any, graphs: int = 1, ops: int | None = None, **options: Any) -> Run:
    """The results of eager execution in so many graphs and operators; where one graph is expected, a break is an error."""
    run = run_both(fn, *args, _fullgraph=graphs == 1, **options)
    assert run.graph_count == graphs, [str(b) for b in run.breaks]
    if ops is not None:
        assert run.op_count == ops, [g.code for g in run.graphs]
    return run


def graphs_of(outcomes: Callable[[Any], Any], fn: Callable[..., Any], backend: str, **options: Any) -> int:
    """Compare what `outcomes(fn)` tells of calls with eager execution; how many graphs were compiled."""
    dynamo_lite.reset()
    counter = CompileCounterWithBackend(backend)
    compiled = dynamo_lite.compile(fn, backend=counter, **options)
    assert not list(differences(outcomes(fn), outcomes(compiled), tol=1e-6))
    return counter.frame_count
