"""Results whose gradients a call of `torch.autograd.grad` in the graph has used up.

Input: a builder with its finished graph. Output: such results come out as tensors that require gradients which nobody can compute.
Invariant: asking for these gradients raises the error of eager execution. A compiled graph is one node of autograd, which would compute
them once more.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node

from dynamo_lite.graph.core.autograd import at_the_end, history
from dynamo_lite.graph.core.effect import Compiled, GraphEffect, Wrapper
from dynamo_lite.graph.core.functional import cut

if TYPE_CHECKING:
    pass


@dataclass(eq=False)
class UsedGradients(GraphEffect):
    """`are_asked_for`: the graph computes gradients. `used_up`: the results of the program whose gradients it has used up. `outputs`: the
    positions of such results of the compiled graph, each with the name of its node of autograd in eager execution. They require gradients,
    and asking for these raises; what is made of them after the graph inherits that."""

    kept = "outputs"

    are_asked_for: bool = False
    used_up: set[Node] = field(default_factory=set)
    outputs: dict[int, str] = field(default_factory=dict)

    def finish(self, results: list[Node]) -> None:
        if self.are_asked_for and self.builder.returns_gradients:
            self.used_up.update(self._names(self.builder.outputs))

    def settle(self, results: list[Node]) -> None:
        """The graph detaches these results."""
        if not self.used_up:
            return
        names = self._names(results)  # those of which others are made after the graph may be no results of the program
        self.outputs = {i: names[node] for i, node in enumerate(results) if node in names}
        for i in self.outputs:
            results[i] = self.builder.add("call_method", "detach", (results[i],))

    def release(self) -> None:
        super().release()
        self.used_up.clear()

    def _names(self, nodes: list[Node]) -> dict[Node, str]:
        """Those of the nodes whose gradients are used up, each with the name of its node of autograd."""
        found: dict[Node, str] = at_the_end(self.builder, functools.partial(self._used_up, nodes))
        return found

    def _used_up(self, nodes: list[Node], values: dict[Node, Any]) -> dict[Node, str]:
        builder = self.builder
        cuts = builder.passes.backward.cuts
        ends = [*(i.node for i in builder.inputs), *(made for found in cuts.values() for made in found.values())]
        leaves = [values[node] for node in ends if getattr(values[node], "requires_grad", False)]

        def is_used_up(output: Node) -> bool:
            pieces = [output]
            if cuts:
                pieces += [node.args[0] for node, _, _ in history(builder, [output]) if node.target is cut]
            return any(_is_freed(values[node], leaves) for node in pieces)

        found = [node for node in nodes if leaves and is_used_up(node)]
        return {node: type(values[node].grad_fn).__name__ for node in found}

    def call_wrapper(self) -> Wrapper | None:
        return functools.partial(with_freed, self.outputs) if self.outputs else None


def _is_freed(value: object, leaves: list[Any]) -> bool:
    if not getattr(value, "requires_grad", False):
        return False
    try:
        torch.autograd.grad(value, leaves, torch.ones_like(value), retain_graph=True, allow_unused=True)
    except RuntimeError:
        return True
    return False


class _Freed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, value: torch.Tensor, *sources: torch.Tensor) -> torch.Tensor:
        return value.detach()  # no view, which could not be changed in place

    @staticmethod
    def backward(ctx: object, *grads: Any) -> Any:
        raise RuntimeError(_AGAIN)


@functools.cache
def _freed_as(name: str) -> type[_Freed]:
    """The function whose node of autograd has this name."""
    cls = type("_Freed", (_Freed,), {})
    node = cls._backward_cls  # type: ignore[attr-defined]
    node.__name__ = node.__qualname__ = name
    node.__module__ = "builtins"  # as that of torch's own
    return cls


_AGAIN = (
    "Trying to backward through the graph a second time (or directly access saved tensors after they have already been freed). Saved"
    " intermediate values of the graph are freed when you call .backward() or autograd.grad(). Specify retain_graph=True if you need to"
    " backward through the graph a second time or if you need to access saved tensors after calling backward."
)


def with_freed(outputs: dict[int, str], compiled: Compiled) -> Compiled:
    """A graph that detaches these outputs; they come out as tensors that require gradients which nobody can compute."""
    functions = {i: _freed_as(name) for i, name in outputs.items()}

    def run(*args: Any) -> Any:
        results = list(compiled(*args))
        sources = [a for a in args if isinstance(a, torch.Tensor) and a.requires_grad]
        with torch.enable_grad():
            for i, function in functions.items():
                results[i] = function.apply(results[i], *sources)
        return tuple(results)

    return run
