"""Inputs to whose `data` the traced code assigns a tensor.

Input: these inputs. Output: a wrapper that gives the compiled graph aliases of them.
Invariant: a tensor that gets other data after the graph is not the tensor that the graph keeps for its gradients.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node

from dynamo_lite.graph.core.effect import Compiled, GraphEffect, Wrapper
from dynamo_lite.graph.core.values import TensorValue

if TYPE_CHECKING:
    pass


@dataclass(eq=False)
class AssignedData(GraphEffect):
    """`values`: the inputs to whose `data` something is assigned after the graph. `positions`: those of them that the compiled graph gets
    an alias of, if it keeps anything for gradients."""

    kept = "positions"

    values: list[TensorValue] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)

    def finish(self, results: list[Node]) -> None:
        if self.values and self.builder.returns_gradients:
            inputs = enumerate(self.builder.inputs)
            self.positions = [i for i, item in inputs if item.node.meta.subject in self.values]

    def call_wrapper(self) -> Wrapper | None:
        return functools.partial(with_aliases, self.positions) if self.positions else None


def with_aliases(replaced: list[int], compiled: Compiled) -> Compiled:
    """A graph that gets aliases of these inputs, with the data that they have now: AOTAutograd saves leaf inputs as the tensors themselves,
    and the backward pass would find the data that have been assigned meanwhile."""

    def run(*args: Any) -> Any:
        given = list(args)
        with torch.enable_grad():
            for i in replaced if args else ():
                given[i] = args[i].view_as(args[i]) if args[i].requires_grad else args[i].detach()
        return compiled(*given)

    return run
