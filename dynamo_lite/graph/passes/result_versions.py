"""Version counters of results that the graph has changed in place.

Input: the changes that operators count. Output: a wrapper that sets the counters of results to what they are in eager execution.
Invariant: compilers count nothing for tensors that they return; autograd would not notice that such a result has been changed since it
was saved.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.fx import Node

from dynamo_lite.graph.core.effect import Compiled, GraphEffect, Wrapper
from dynamo_lite.graph.core.storages import counter
from dynamo_lite.graph.core.values import TensorValue

if TYPE_CHECKING:
    pass


@dataclass(eq=False)
class ResultVersions(GraphEffect):
    """`writes`: which tensors operators have changed, and how many times. `counts`: the outputs that the graph has changed in place and
    that no input shares a counter with, and how many times it has. `decided`: tensors that branches on data have changed once, each with
    the node of how many times eager execution would have. `results`: the first tensor with a counter → how many such changes it has, and
    the output with the sum of these numbers."""

    kept = "counts"

    writes: list[tuple[TensorValue, int]] = field(default_factory=list)
    counts: list[tuple[int, int, int | None]] = field(default_factory=list)
    decided: list[tuple[TensorValue, Node]] = field(default_factory=list)
    results: dict[TensorValue, Decided] = field(default_factory=dict)

    def on_write(
        self, target: object, args: tuple[Any, ...], values: dict[Any, Any], written: list[tuple[TensorValue, int]]
    ) -> None:
        scope = self.builder.scope
        (self if scope is None else scope).writes += written
        if scope is not None and torch.is_grad_enabled():
            scope.recorded.update(value for value, _ in written)

    def prepare(self) -> Sequence[Node]:
        """The numbers of changes that data decide become results that the program does not see."""
        builder = self.builder
        sums: dict[TensorValue, list[Node]] = {}
        for value, node in self.decided:
            sums.setdefault(counter(value), []).append(node)
        for first, nodes in sums.items():
            total = functools.reduce(lambda a, b: builder.add("call_function", torch.add, (a, b)), nodes)
            self.results[first] = Decided(len(nodes), len(builder.outputs))
            builder.outputs.append(total)
        return ()

    def finish(self, results: list[Node]) -> None:
        """Compilers count nothing. The tensors that they keep for gradients look at the counters of results: of these only those that begin
        after the graph are told."""
        if not self.writes:
            return
        builder = self.builder
        counts: Counter[TensorValue] = Counter()
        for value, n in self.writes:
            counts[counter(value)] += n
        is_safe = not builder.records_gradients
        for i, node in enumerate(builder.outputs):
            result = getattr(node.meta, "subject", None)
            if isinstance(result, TensorValue):
                first = counter(result)
                n = counts[first] if first.origin is None or first.origin[0] != "input" else 0
                more = self.results.get(first, Decided(0, None))
                if n > 0 and (is_safe or builder.passes.outputs.is_made_after(i, first)):
                    self.counts.append((i, n - more.n, more.output))

    def call_wrapper(self) -> Wrapper | None:
        return functools.partial(with_counts, self.counts) if self.counts else None


class Decided(NamedTuple):
    """How often branches on data have changed a tensor in the graph, and the output that tells how often in eager execution."""

    n: int
    output: int | None


def with_counts(counts: list[tuple[int, int, int | None]], compiled: Compiled) -> Compiled:
    """A graph whose results have been changed as often as in eager execution."""

    def run(*args: Any) -> Any:
        results = compiled(*args)
        after = [(results[i], n if k is None else n + int(results[k]), k) for i, n, k in counts]
        late = [
            (result, n)
            for result, n, k in after
            if not result.is_inference() and (result._version < n or (k is not None and result._version > n))
        ]
        if late:
            torch._C._autograd._unsafe_set_version_counter(*zip(*late, strict=True))
        return results

    return run
