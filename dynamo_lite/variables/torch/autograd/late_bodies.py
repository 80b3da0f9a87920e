"""Bodies that run later than they were followed: the `backward` of a function, hooks of tensors made in the graph.

Input: a body, and how to follow it again. Output: the graph ends before the operator that the body belongs to where the traced code has
changed, before a gradient is computed or the frame ends, what the body reads of the program's objects.
Invariant: bodies are followed again only if anything has been changed since, or if they read or change torch's state (autocast ...): that
in which they will run is not known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from torch.fx.node import map_arg

from dynamo_lite.exc import Unsupported, unsupported
from dynamo_lite.graph.bodies import BREAK
from dynamo_lite.graph.core.state import SETTINGS, another
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
        captured = follow_later(tx, self.follow)
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
                computes = [_signature(tx, body) for body in follow_later(tx, self.follow)]
        except Unsupported:
            computes = []
        self.writes = tr.effects.writes
        if computes != self.computes:
            tr.graph.end_before(self.node, Unsupported(self.slug, f"{self.what} reads what changes later"))


def follow_later(tx: Frame, follow: Callable[[Frame], list[CapturedBody]]) -> list[CapturedBody]:
    """Follow bodies that will run in another state of torch than that of now. What they set is in their graphs even where it is so now.

    If they read or set a part of the state, they are followed once more with another value of it. What they set alike both times is meant;
    where they set what they have found, the graph puts back what it finds. Anything else that differs is a break. What only hangs on the
    state by the dtype of a result under autocast is not seen."""
    state = tx.tr.state
    with state.later() as found:
        captured = follow(tx)
        _check_left(found)
    if not found:
        return captured
    with state.later({key: another(value) for key, value in found.items()}) as others:
        again = follow(tx)
        _check_left(others)
    for one, two in zip(captured, again, strict=True):
        _put_back(tx, one, two, found, others)
        if _signature(tx, one) != _signature(tx, two):
            unsupported(
                BREAK, "what is computed with gradients depends on the state of torch (autocast ...) at that time"
            )
    return captured


def _check_left(found: dict[tuple[Any, ...], Any]) -> None:
    for (write, *key), value in found.items():
        if SETTINGS[write].read(*key) != value:
            unsupported(BREAK, f"what is computed with gradients leaves a change of {write.__name__}")


def _put_back(tx: Frame, one: CapturedBody, two: CapturedBody, found: dict[Any, Any], others: dict[Any, Any]) -> None:
    """Have both bodies read at their beginning what each sets to what it has found."""
    # Where one has more nodes than the other, their signatures differ.
    pairs = list(zip(one.body.graph.nodes, two.body.graph.nodes, strict=False))
    nodes: dict[Any, tuple[Node, Node]] = {}
    for first, second in pairs:
        key = (first.target, *first.args[:-1])
        if first.target is not second.target or first.target not in SETTINGS or first.args == second.args:
            continue
        if first.args == (*key[1:], found.get(key)) and second.args == (*key[1:], others.get(key)):
            if key not in nodes:
                nodes[key] = _reading(tx, one, key), _reading(tx, two, key)
            for node, read in zip((first, second), nodes[key], strict=True):
                node.args = (*key[1:], read)


def _reading(tx: Frame, captured: CapturedBody, key: tuple[Any, ...]) -> Node:
    body = captured.body
    first = next(node for node in body.graph.nodes if node.op != "placeholder")
    with body, body.graph.inserting_before(first):
        return tx.tr.graph.add("call_function", SETTINGS[key[0]].read, key[1:])


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
