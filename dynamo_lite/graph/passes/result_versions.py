"""Version counters of results that the graph has changed in place.

Input: the changes that operators count. Output: a wrapper that sets the counters of results to what they are in eager execution.
Invariant: compilers count nothing for tensors that they return; autograd would not notice that such a result has been changed since it
was saved.
"""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

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
    that no input shares a counter with, and how many times it has."""

    kept = "counts"

    writes: list[tuple[TensorValue, int]] = field(default_factory=list)
    counts: list[tuple[int, int]] = field(default_factory=list)

    def on_write(
        self, target: object, args: tuple[Any, ...], values: dict[Any, Any], written: list[tuple[TensorValue, int]]
    ) -> None:
        if self.builder.scope is None:
            self.writes += written

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
                if n > 0 and (is_safe or builder.passes.outputs.is_made_after(i, first)):
                    self.counts.append((i, n))

    def call_wrapper(self) -> Wrapper | None:
        return functools.partial(with_counts, self.counts) if self.counts else None


def with_counts(counts: list[tuple[int, int]], compiled: Compiled) -> Compiled:
    """A graph whose results have been changed as often as in eager execution."""

    def run(*args: Any) -> Any:
        results = compiled(*args)
        late = [(results[i], n) for i, n in counts if not results[i].is_inference() and results[i]._version < n]
        if late:
            torch._C._autograd._unsafe_set_version_counter(*zip(*late, strict=True))
        return results

    return run
