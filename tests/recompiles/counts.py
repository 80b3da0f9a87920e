"""How much a program compiles, with dynamo_lite or with torch.compile."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.utils._pytree as pytree

from .programs import PROGRAMS


class Counts(NamedTuple):
    """Graphs given to the backend, and operators that graphs have run in all calls."""

    graphs: int
    operators: int


class Counter:
    """A backend that runs graphs as they are and counts."""

    def __init__(self) -> None:
        self.graphs = self.operators = 0

    def __call__(self, gm: torch.fx.GraphModule, example_inputs: Any) -> Callable[..., Any]:
        self.graphs += 1
        found = sum(map(_is_operator, gm.graph.nodes))

        def run_graph(*args: Any) -> Any:
            self.operators += found
            return gm.forward(*args)

        return run_graph


def _is_operator(node: torch.fx.Node) -> bool:
    """Whether a node computes a tensor: not a number, a setting or a tuple."""
    value = node.meta.get("example_value", node.meta.get("val"))
    return node.op.startswith("call_") and isinstance(value, torch.Tensor)


def run(name: str, compile: Callable[..., Any]) -> Counts:
    """Run a program eagerly and compiled. Raises AssertionError where the results differ."""
    fn, calls = PROGRAMS[name]()
    expected = [fn(*args) for args in calls]
    fn, calls = PROGRAMS[name]()
    counter = Counter()
    compiled = compile(fn, backend=counter)
    for i, (args, result) in enumerate(zip(calls, expected, strict=True)):
        _assert_same(compiled(*args), result, f"{name}, call {i}")
    return Counts(counter.graphs, counter.operators)


def _assert_same(one: Any, other: Any, place: str) -> None:
    for a, b in zip(pytree.tree_leaves(one), pytree.tree_leaves(other), strict=True):
        if isinstance(a, torch.Tensor) and a.is_nested:
            a, b = a.values(), b.values()
        torch.testing.assert_close(a, b, msg=lambda text: f"{place}: {text}")


STORED = pathlib.Path(__file__).parent / "torch_counts.json"
"""What torch.compile comes to; `python -m tests.recompiles --write` measures it again."""


def is_more(ours: Counts, theirs: Counts) -> bool:
    """Whether more graphs are compiled, or fewer operators captured, than by torch.compile."""
    return ours.graphs > theirs.graphs or ours.operators < theirs.operators
