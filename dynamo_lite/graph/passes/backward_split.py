"""A backward pass in stages, between which the traced program runs the hooks of modules.

Input: a builder; nodes whose gradients are asked for. Output: the graph, cut behind the nodes at which such hooks are registered, so that
the gradients of the part behind a cut can be computed by themselves.
Invariant: autograd runs the backward functions in the reverse order in which the forward operators ran. When a hook runs, the backward
functions of all later operators are done and none of an earlier one; gradients that have arrived at earlier tensors by then go into the
next stage first, so that sums are those of one pass.
Mirrors `torch/csrc/autograd/engine.cpp`.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node

from dynamo_lite.exc import Unsupported, unsupported
from dynamo_lite.graph.core import functional, module_hooks
from dynamo_lite.graph.core.autograd import SLUG, history
from dynamo_lite.graph.core.effect import GraphEffect
from dynamo_lite.graph.core.values import TensorValue, requires_grad

if TYPE_CHECKING:
    from dynamo_lite.graph.builder import GraphBuilder

HOOKS = (module_hooks.arguments, module_hooks.results)


class Reached:
    """The nodes that the gradients of some outputs flow through, and their positions in the graph."""

    def __init__(self, builder: GraphBuilder, outputs: list[Node]) -> None:
        self.builder = builder
        self.nodes = {node for node, _, _ in history(builder, outputs)}
        self.position = {node: i for i, node in enumerate(builder.graph.nodes)}

    def hooks(self) -> list[Node]:
        """The nodes of calls with hooks, of what goes through them or of what they return, in order."""
        found = {node for node in self.nodes if node.target in HOOKS}
        for node, hooks in self.builder.passes.backward.tensor_hooks.items():
            if node in self.nodes and not all(hook.removed for hook in hooks):
                is_item = node.target is operator.getitem and not _is_tensor(node.args[0])
                found.add(node.args[0] if is_item else node)
        return sorted(found, key=self.position.__getitem__)

    def users(self, node: Node) -> Iterable[Node]:
        """The users of a node among them."""
        return [user for user in node.users if user in self.nodes]


def cut(builder: GraphBuilder, outputs: list[Node], hooks: list[Node]) -> list[Node]:
    """Have what the gradients of these outputs flow through use, behind each hook's node, aliases without a history of what was made
    up to there. The outputs to begin with."""
    nodes = Reached(builder, outputs).nodes
    for hook in hooks:
        _move_items(builder)
        cuts = builder.passes.backward.cuts.setdefault(hook, {})
        last = last_item(hook)
        before, rest = _split(builder, last)
        behind = rest & nodes - set(cuts.values())
        for node in before:
            if _may_be_cut(builder, node) and (node in outputs or any(user in behind for user in node.users)):
                for user in node.users:
                    if user in builder.passes.backward.body_hooks and user in rest:
                        builder.passes.backward.body_hooks[user].follow()
                if node not in cuts:
                    cuts[node] = builder.add_after(last, node.meta.subject, functional.cut, (node,))
                    nodes.add(cuts[node])
                node.replace_all_uses_with(cuts[node], behind.__contains__)
                outputs = [cuts[node] if output is node else output for output in outputs]
    _check_others(builder)
    return outputs


def cut_leaf(builder: GraphBuilder, outputs: list[Node], leaf: Node) -> Node:
    """An alias of an input, whose hooks autograd does not know, in the place of that where these outputs come from."""
    cuts = builder.passes.backward.cuts.setdefault(leaf, {})
    if leaf not in cuts:
        last = builder.inputs[-1].node if leaf.op == "placeholder" else leaf
        cuts[leaf] = builder.add_after(last, leaf.meta.subject, functional.cut, (leaf,))
    users = Reached(builder, outputs).nodes - {cuts[leaf]}
    leaf.replace_all_uses_with(cuts[leaf], users.__contains__)
    _check_others(builder)
    return cuts[leaf]


def _check_others(builder: GraphBuilder) -> None:
    """Break if gradients that are asked for elsewhere in the graph flow through a cut."""
    for node in builder.graph.nodes:
        if node.target is torch.autograd.grad and node not in builder.passes.backward.stages:
            if any(inner.target is functional.cut for inner, _, _ in history(builder, list(node.args[0]))):
                unsupported(SLUG, "two backward passes that share a part, one of them with hooks of modules")


def last_item(hook: Node) -> Node:
    """The last of the node and the items of its result, which come right after it."""
    node = hook
    while not _is_tensor(hook) and node.next.target is operator.getitem and node.next.args[0] is hook:
        node = node.next
    return node


def _split(builder: GraphBuilder, last: Node) -> tuple[list[Node], set[Node]]:
    nodes = list(builder.graph.nodes)
    n = nodes.index(last) + 1
    return nodes[:n], set(nodes[n:])


def _may_be_cut(builder: GraphBuilder, node: Node) -> bool:
    """Whether a node stands for a tensor with a history."""
    return requires_grad(node) and not node.meta.subject.meta.is_leaf


def _move_items(builder: GraphBuilder) -> None:
    """Have tensors that an operator returns together follow it."""
    for node in list(builder.graph.nodes):
        if node.target is operator.getitem and not _is_tensor(node.args[0]):
            last = last_item(node.args[0])
            if not _follows(node, node.args[0]):
                last.append(node)


def _is_tensor(node: Node) -> bool:
    return isinstance(getattr(node.meta, "subject", None), TensorValue)


def _follows(item: Node, parent: Node) -> bool:
    """Whether only other items are between an item and the call."""
    node = item.prev
    while node.target is operator.getitem and node.args[0] is parent:
        node = node.prev
    return node is parent


@dataclass(eq=False)
class BackwardSplit(GraphEffect):
    """The hooks and the stages of backward passes in the traced code.

    - `hook_calls`: nodes of calls of modules with hooks → their models.
    - `tensor_hooks`: nodes of tensors → hooks that a backward pass in the traced code follows.
    - `body_hooks`: nodes → hooks of tensors that are bodies in the graph.
    - `cuts`: nodes where stages of a backward pass end → nodes whose history is cut there → the aliases that stand for them behind it.
    - `cut_step`: the step of the trace at which the last cut was made.
    - `stages`: the nodes that compute the gradients of a stage.
    """

    never_kept = {
        "hook_calls": "a graph of a module with backward hooks",
        "tensor_hooks": "a graph with hooks of tensors that a backward pass follows",
        "cuts": "a graph whose backward pass is taken in stages",
    }

    hook_calls: dict[Node, Any] = field(default_factory=dict)
    tensor_hooks: dict[Node, list[Any]] = field(default_factory=dict)
    body_hooks: dict[Node, Any] = field(default_factory=dict)
    cuts: dict[Node, dict[Node, Node]] = field(default_factory=dict)
    cut_step: int = 0
    stages: set[Node] = field(default_factory=set)

    def kept_nodes(self) -> set[Node]:
        """Nodes by which this effect knows tensors."""
        return {*self.hook_calls, *self.body_hooks, *self.tensor_hooks, *self.cuts, *self.stages}

    def finish(self, results: list[Node]) -> None:
        """Break if gradients of an output are to flow by hooks that nobody outside knows, or through a cut."""
        if not (self.hook_calls or self.cuts or self.tensor_hooks):
            return
        builder = self.builder
        used_up = builder.passes.gradients.used_up
        for output in builder.outputs:
            if output not in used_up and requires_grad(output):
                for node, _, _ in history(builder, [output]):
                    self._check_passed(node)

    def _check_passed(self, node: Node) -> None:
        """A gradient from outside comes by this node."""
        call = self.hook_calls.get(node)
        for hook in self.tensor_hooks.get(node, ()):
            hook.leave()
        if node.target is functional.cut:
            _refuse("the history of a result, used for gradients in the graph", self.cut_step)
        if call is not None and not call.is_registered:
            _refuse("a backward hook made by the traced code", call.step)


def _refuse(why: str, step: int) -> None:
    error = Unsupported(SLUG, why)
    error.break_step = step
    raise error
