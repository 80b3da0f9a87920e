"""Results whose gradients a call of `torch.autograd.grad` in the graph has used up.

Input: a builder with its finished graph. Output: such results come out as tensors that require gradients which nobody can compute.
Invariant: asking for these gradients raises the error of eager execution. A compiled graph is one node of autograd, which would compute
them once more.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Node

from dynamo_lite.graph.core.autograd import at_the_end, history
from dynamo_lite.graph.core.effect import Compiled, GraphEffect, Wrapper, computes
from dynamo_lite.graph.core.functional import cut


@dataclass(eq=False)
class UsedGradients(GraphEffect):
    """`are_asked_for`: the graph computes gradients. `used_up`: the results of the program whose gradients it has used up. `outputs`: the
    positions of such results of the compiled graph, each with the name of its node of autograd in eager execution and the text of the error
    that asking for its gradients raises there. They require gradients; what is made of them after the graph inherits that."""

    kept = "outputs"

    are_asked_for: bool = False
    used_up: set[Node] = field(default_factory=set)
    outputs: dict[int, tuple[str, str]] = field(default_factory=dict)

    def finish(self, results: list[Node]) -> None:
        if self.are_asked_for and self.builder.returns_gradients:
            self.used_up.update(self._errors(self.builder.outputs))

    def settle(self, results: list[Node]) -> None:
        """The graph detaches these results, unless it only is recorded: what runs its operators frees what these need, as eager execution
        does."""
        if not self.used_up or not computes(self.builder.tr.backend):
            return
        # Those of which others are made after the graph may be no results of the program.
        errors = self._errors(results)
        self.outputs = {i: errors[node] for i, node in enumerate(results) if node in errors}
        for i in self.outputs:
            results[i] = self.builder.add("call_method", "detach", (results[i],))

    def release(self) -> None:
        super().release()
        self.used_up.clear()

    def _errors(self, nodes: list[Node]) -> dict[Node, tuple[str, str]]:
        """Those of the nodes whose gradients are used up, each with the name of its node of autograd and the error of asking again."""
        found: dict[Node, tuple[str, str]] = at_the_end(self.builder, functools.partial(self._used_up, nodes))
        return found

    def _used_up(self, nodes: list[Node], values: dict[Node, Any]) -> dict[Node, tuple[str, str]]:
        builder = self.builder
        cuts = builder.passes.backward.cuts
        ends = [*(i.node for i in builder.inputs), *(made for found in cuts.values() for made in found.values())]
        leaves = [values[node] for node in ends if getattr(values[node], "requires_grad", False)]

        def error_of(output: Node) -> str | None:
            pieces = [output]
            if cuts:
                pieces += [node.args[0] for node, _, _ in history(builder, [output]) if node.target is cut]
            return next(filter(None, (_error_of_gradients(values[node], leaves) for node in pieces)), None)

        errors = {node: error_of(node) for node in nodes} if leaves else {}
        return {node: (type(values[node].grad_fn).__name__, error) for node, error in errors.items() if error}

    def call_wrapper(self) -> Wrapper | None:
        return functools.partial(with_freed, self.outputs) if self.outputs else None


def _error_of_gradients(value: object, leaves: list[Any]) -> str | None:
    """The error that the gradients of a value raise: what they need has been freed, or changed in place."""
    if not getattr(value, "requires_grad", False):
        return None
    try:
        torch.autograd.grad(value, leaves, torch.ones_like(value), retain_graph=True, allow_unused=True)
    except RuntimeError as error:
        return str(error)
    return None


class _Freed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, value: torch.Tensor, *sources: torch.Tensor) -> torch.Tensor:
        return value.detach()  # no view, which could not be changed in place


@functools.lru_cache(256)
def _freed_as(name: str, error: str) -> type[_Freed]:
    """The function whose node of autograd has this name and raises this error."""

    def backward(ctx: object, *grads: Any) -> Any:
        raise RuntimeError(error)

    cls = type("_Freed", (_Freed,), {"backward": staticmethod(backward)})
    node = cls._backward_cls  # type: ignore[attr-defined]
    node.__name__ = node.__qualname__ = name
    node.__module__ = "builtins"  # as that of torch's own
    return cls


def with_freed(outputs: dict[int, tuple[str, str]], compiled: Compiled) -> Compiled:
    """A graph that detaches these outputs; they come out as tensors that require gradients which nobody can compute."""
    functions = {i: _freed_as(*made) for i, made in outputs.items()}

    def run(*args: Any) -> Any:
        results = list(compiled(*args))
        sources = [a for a in args if isinstance(a, torch.Tensor) and a.requires_grad]
        with torch.enable_grad():
            for i, function in functions.items():
                results[i] = function.apply(results[i], *sources)
        return tuple(results)

    return run
