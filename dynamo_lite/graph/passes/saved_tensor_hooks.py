"""Hooks of saved tensors (`torch.autograd.graph.saved_tensors_hooks`) inside of a graph and around it.

Input: the blocks with hooks that the traced code has. Output: a wrapper that leaves blocks in which the graph has raised; for hooks of the
program around a graph that autograd records, the captured graph in place of the compiled one.
Invariant: hooks see the tensors that operators save in eager execution. A compiled graph saves other tensors: it runs only under hooks
that return what they got.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node

from dynamo_lite.graph.core.effect import Captured, Compiled, GraphEffect, Replacement, Wrapper
from dynamo_lite.graph.core.saved_tensors import are_lossless, closed

if TYPE_CHECKING:
    pass


@dataclass(eq=False)
class SavedTensorHooks(GraphEffect):
    """`regions`: the blocks with hooks that the traced code has, in order. `is_recorded`: whether autograd keeps tensors of the graph."""

    takes_boxed = True
    kept = "is_recorded"
    never_kept = {"regions": "a graph with hooks of saved tensors"}

    regions: list[Any] = field(default_factory=list)
    is_recorded: bool = False

    def finish(self, results: list[Node]) -> None:
        self.is_recorded = self.builder.records_gradients

    def replacement(self) -> Replacement | None:
        return under_hooks if self.is_recorded else None

    def call_wrapper(self) -> Wrapper | None:
        return closing if self.regions else None


def closing(compiled: Compiled) -> Compiled:
    """A graph with such blocks that may raise inside of one."""

    def run(*args: Any) -> Any:
        with closed():
            return compiled(*args)

    return run


def under_hooks(compiled: Compiled, captured: Captured, is_boxed: bool) -> Compiled:
    """A compiled graph that takes part in autograd, for calls under which the program may have hooks: the graph from `captured` is called
    then."""
    top = torch._C._autograd._top_saved_tensors_default_hooks

    def run(*args: Any) -> Any:
        hooks = top(False)
        if hooks is None or are_lossless(hooks[0]) or not torch.is_grad_enabled():
            return compiled(*args)
        return captured()(*args)

    return run
