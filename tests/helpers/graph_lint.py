"""Checks of a finished graph, for debugging and tests.

Input: a `GraphBuilder` after `finish`, or any FX graph. Output: a list of texts, one per problem; empty if there is
none.
Invariant: nothing is changed. The rules are data: (what is wrong, predicate that holds for a node that is wrong).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node

from dynamo_lite.graph.core.nodes import NodeMeta
from dynamo_lite.graph.core.values import TensorValue

if TYPE_CHECKING:
    from dynamo_lite.graph.builder import GraphBuilder

Rule = tuple[str, Callable[[Any, Node], bool]]


def _is_operator(node: Node) -> bool:
    return node.op in ("call_function", "call_method")


def _has_wrong_fake(builder: GraphBuilder, node: Node) -> bool:
    subject = node.meta.subject if isinstance(node.meta, NodeMeta) else None
    if not isinstance(subject, TensorValue) or subject.fake is None or subject.meta.live:
        return False
    fake, meta = subject.fake, subject.meta
    return (tuple(fake.shape), fake.stride(), fake.dtype) != (meta.shape, meta.stride, meta.dtype)


def _is_foreign_fake(builder: GraphBuilder, node: Node) -> bool:
    value = node.meta.get("example_value")
    return isinstance(value, torch.Tensor) and getattr(value, "fake_mode", None) is not builder.propagator.mode


RULES: tuple[Rule, ...] = (
    ("is of a kind that graphs don't have", lambda builder, node: node.op == "call_module"),
    ("names no body", lambda builder, node: node.op == "get_attr" and node.target not in builder.bodies),
    ("has no value", lambda builder, node: node.op == "placeholder" and node.meta.get("example_value") is None),
    ("has a value of another trace", _is_foreign_fake),
    ("has a fake tensor that contradicts its metadata", _has_wrong_fake),
    (
        "uses a node of another graph",
        lambda builder, node: any(n.graph is not node.graph for n in node.all_input_nodes),
    ),
    ("uses an erased node", lambda builder, node: any(n._erased for n in node.all_input_nodes)),
    (
        "calls a method by something else than its name",
        lambda builder, node: node.op == "call_method" and type(node.target) is not str,
    ),
)


def verify(builder: GraphBuilder) -> list[str]:
    """The faults of a builder's graph, as texts."""
    return [*_order(builder.graph), *_inputs(builder), *_nodes(builder)]


def _order(graph: Any) -> Iterator[str]:
    seen: set[Node] = set()
    only_placeholders = True
    for node in graph.nodes:
        for used in node.all_input_nodes:
            if used not in seen:
                yield f"{node.name} uses {used.name} before it is computed"
        if node.op == "placeholder" and not only_placeholders:
            yield f"placeholder {node.name} comes after an operator"
        only_placeholders = only_placeholders and node.op == "placeholder"
        seen.add(node)


def _inputs(builder: GraphBuilder) -> Iterator[str]:
    placeholders = [node for node in builder.graph.nodes if node.op == "placeholder"]
    if placeholders != [i.node for i in builder.inputs]:
        yield "the inputs are not the placeholders in order"
    for i in builder.inputs:
        if i.source is None:
            yield f"input {i.node.name} can't be loaded"


def _nodes(builder: GraphBuilder) -> Iterator[str]:
    for node in builder.graph.nodes:
        for problem, is_wrong in RULES:
            if is_wrong(builder, node):
                yield f"{node.name} {problem}"
        if (
            _is_operator(node)
            and isinstance(node.meta, NodeMeta)
            and node.meta.place is None
            and node.meta.subject is None
        ):
            # Changes of the ambient state belong to no line when they put it back at the end.
            if not (getattr(node.target, "__module__", None) or "").startswith(("torch", "dynamo_lite")):
                yield f"{node.name} has no source line"
