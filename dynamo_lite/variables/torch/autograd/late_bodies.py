"""Bodies that run later than they were followed: the `backward` of a function, hooks of tensors made in the graph.

Input: a body, and how to follow it again. Output: the graph ends before the operator that the body belongs to where the traced code has
changed, before a gradient is computed or the frame ends, what the body reads of the program's objects.
Invariant: bodies are followed again only if anything has been changed since.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from torch.fx.node import map_arg

from dynamo_lite.exc import Unsupported
from dynamo_lite.variables.torch.body import CapturedBody, argument_of, structure

if TYPE_CHECKING:
    from torch.fx import Graph, Node

    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.interp.frame import Frame


class LateBody:
    """The bodies of one node. `follow` follows them with the frame that asks; `slug` and `what` tell of the break."""

    def __init__(self, tr: Trace, follow: Callable[[Frame], list[CapturedBody]], slug: str, what: str) -> None:
        self.follow = follow
        self.slug = slug
        self.what = what
        self.node: Any = None
        self.computes: list[Any] = []
        self.writes = tr.effects.writes

    def followed(self, tx: Frame) -> list[CapturedBody]:
        """The bodies, followed for the first time."""
        captured = self.follow(tx)
        self.computes = [_signature(tx, body) for body in captured]
        self.writes = tx.tr.effects.writes
        return captured

    def belongs_to(self, tr: Trace, node: Node) -> None:
        """The node that the bodies belong to. One in a body of another operator is followed where it is."""
        self.node = node
        if tr.graph.scope is None:
            tr.effects.late_bodies.append(self)

    def check(self, tr: Trace) -> None:
        """End the graph before the node if the bodies would compute something else by now."""
        if self.writes == tr.effects.writes:
            return
        tx = tr.thread.current
        try:
            with tr.state.grad_mode(False):
                computes = [_signature(tx, body) for body in self.follow(tx)]
        except Unsupported:
            computes = []
        self.writes = tr.effects.writes
        if computes != self.computes:
            tr.graph.end_before(self.node, Unsupported(self.slug, f"{self.what} reads what changes later"))


def _signature(tx: Frame, captured: CapturedBody) -> tuple[Any, ...]:
    """What a body computes, for comparison; taken before it is finished."""
    body = captured.body
    with body:
        results = [argument_of(tx.tr.graph, leaf) for leaf in captured.leaves]
    return _form(body.graph, body.bodies, results), captured.lifted, structure(tx, captured.result)


def _form(graph: Graph, bodies: dict[str, Any], results: list[Any]) -> tuple[Any, ...]:
    """The operators of a graph, and those of its bodies. Nodes are numbered: the name of a placeholder is that which the value outside has
    by now, and one that no operator had used before has none yet."""
    numbers = {node: i for i, node in enumerate(graph.nodes)}

    def text(arguments: Any) -> str:
        return repr(map_arg(arguments, lambda node: _Numbered(numbers[node])))

    nodes = [_of_node(node, text) for node in graph.nodes]
    inner = {name: _form(module.graph, dict(module.named_children()), []) for name, module in bodies.items()}
    return nodes, inner, text(results)


def _of_node(node: Node, text: Callable[[Any], str]) -> tuple[str, ...]:
    target = "" if node.op == "placeholder" else str(node.target)
    return node.op, target, text(node.args), text(node.kwargs)


class _Numbered(NamedTuple):
    """Stands for a node among the arguments of others."""

    number: int
