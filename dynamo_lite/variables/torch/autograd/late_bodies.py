"""Bodies that run later than they were followed: the `backward` of a function, hooks of tensors made in the graph.

Input: a body, and how to follow it again. Output: the graph ends before the operator that the body belongs to where the traced code has
changed, before a gradient is computed or the frame ends, what the body reads of the program's objects.
Invariant: bodies are followed again only if anything has been changed since.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dynamo_lite.exc import Unsupported
from dynamo_lite.variables.torch.body import CapturedBody, argument_of, structure

if TYPE_CHECKING:
    from torch.fx import Node

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
        results = [str(argument_of(tx.tr.graph, leaf)) for leaf in captured.leaves]
    nodes = [(node.op, str(node.target), str(node.args), str(node.kwargs)) for node in body.graph.nodes]
    inner = {name: str(module.code) for name, module in body.bodies.items()}
    return nodes, results, inner, captured.lifted, structure(tx, captured.result)
