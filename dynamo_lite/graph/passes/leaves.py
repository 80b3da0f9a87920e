"""Leaves that the traced code makes: parameters, and tensors that begin to require gradients.

Input: a builder whose outputs are known. Output: its graph, changed so that these leaves are what the program outside needs.
Invariant: a compiled graph is one node of autograd, which ends at the graph's inputs. A leaf that no gradient from outside has to reach is
made after the graph, from its data. A leaf that gradients from outside have to reach is an input: it is made empty before the graph and
gets its data after it. All others are leaves within the graph.
Mirrors `torch/csrc/autograd/functions/accumulate_grad.h` and `torch/nn/parameter.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.fx import Node

from dynamo_lite.exc import Unsupported
from dynamo_lite.graph.core.autograd import SLUG, history
from dynamo_lite.graph.core.functional import with_data
from dynamo_lite.graph.core.meta import intern
from dynamo_lite.graph.core.values import TensorValue
from dynamo_lite.guards import ir

from .output_aliasing import may_follow

if TYPE_CHECKING:
    from dynamo_lite.graph.builder import GraphBuilder


class MadeLeaf:
    """One leaf. `step` is where it began to require gradients, `nodes` are the operators by which it did."""

    def __init__(self) -> None:
        self.step = 0
        self.nodes: list[Node] = []
        self.escaping: Node | None = None  # its data, as an output
        self.input: ir.GuardNode | None = None  # the path of the input that it is, if it is one
        self.owner: TensorValue | None = None  # the input whose tensor it is: one that was no leaf of this kind before
        self.has_hooks = False


class NewLeaf(NamedTuple):
    """Makes an empty leaf, before the graph."""

    cls: type
    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    def __call__(self) -> torch.Tensor:
        made = torch.empty(self.shape, dtype=self.dtype, device=self.device)
        return made.requires_grad_() if self.cls is torch.Tensor else self.cls(made)


_GRAD_MODE = (torch._C._set_grad_enabled,)
_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})


def as_leaf(data: torch.Tensor, requires_grad: bool) -> torch.Tensor:
    """A tensor that the graph gave without its history, as a leaf."""
    return data.requires_grad_(requires_grad)


def outlet(builder: GraphBuilder, value: TensorValue) -> Node | None:
    """The output for a leaf made in the graph: its data; None for other tensors. Breaks before a view that is a leaf as well and
    can't be made after the graph: compilers make it anew in the grad mode in which the graph began."""
    base = _base(builder, value)
    leaf = builder.made_leaves.get(base)
    is_anew = base is not value and leaf is None and builder.state.initial.get(_GRAD_MODE)
    if is_anew and builder.module is None and not may_follow(builder, value):
        _refuse(builder.made_leaves[value])
    if leaf is None:
        return None
    if leaf.escaping is None or base is not value:
        if base is not value or leaf.has_hooks or value.tracker.cls not in _PLAIN:
            _refuse(leaf)
        leaf.escaping = builder.add_detached(builder.node(value), leaf.nodes[-1])
    return leaf.escaping


def _base(builder: GraphBuilder, value: TensorValue) -> TensorValue:
    """The tensor of which this one is a view made under `no_grad`: who has that tensor makes the view anew. Such a view of a leaf is a leaf
    that requires gradients too; once one of the two is changed in place, torch refuses to say whether the view is a leaf."""
    while value in builder.viewed_leaves:
        value = builder.viewed_leaves[value]
    return value


def is_unused(builder: GraphBuilder, value: TensorValue) -> bool:
    """Whether a tensor is a leaf made in the graph of which nothing has gradients."""
    if value not in builder.made_leaves or builder.has_gradients:
        return False
    nodes = [node for node in builder.graph.nodes if getattr(node.meta, "subject", None) is value]
    users = [user.meta.subject for node in nodes for user in node.users]
    return all(
        isinstance(subject, TensorValue) and not subject.meta.requires_grad for subject in users if subject is not value
    )


def settle(builder: GraphBuilder) -> None:
    """Make the leaves that gradients from outside reach inputs of the graph. Raises `Unsupported` for one that can't be."""
    reached: list[tuple[dict[TensorValue, MadeLeaf], bool]] = []
    inputs: set[TensorValue] = set()
    for node in builder.outputs:
        value = node.meta.subject
        start = _base(builder, value).node if isinstance(value, TensorValue) else node
        ends = [end for _, end, is_end in history(builder, [start]) if is_end]
        made = {end: builder.made_leaves[end] for end in ends if end in builder.made_leaves}
        inputs.update(end for end in ends if end not in made)
        if made:
            reached.append((made, len(made) < len(ends)))
    for made, _ in reached:
        for value, leaf in made.items():
            if leaf.owner in inputs:  # gradients of one kind and of another
                _refuse(leaf)
            if leaf.escaping is not None or leaf.owner is not None:
                if any(_is_view(node, value) for node in builder.outputs):
                    _refuse(leaf)  # compilers take the history of one output for that of all that share its memory
                _make_input(builder, value, leaf)
    for made, has_inputs in reached:  # one reason for a gradient is enough
        if not has_inputs and all(leaf.input is None for leaf in made.values()):
            _make_input(builder, *max(made.items(), key=lambda item: item[1].step))
    if not builder.has_gradients and not builder.hook_regions:
        inside = {value for made, _ in reached for value in made}
        for value, leaf in builder.made_leaves.items():
            if value not in inside and not leaf.has_hooks and _is_made_alone(builder, value, leaf):
                _forget(builder, value, leaf.nodes[0])


def _is_view(node: Node, leaf: TensorValue) -> bool:
    """Whether an output is a differentiable view of a leaf."""
    value = node.meta.subject
    is_view = isinstance(value, TensorValue) and value is not leaf and value.family is not None
    return is_view and value.family is leaf.family and value.meta.requires_grad


def _refuse(leaf: MadeLeaf) -> None:
    error = Unsupported(SLUG, "a tensor that begins to require gradients in the graph leaves it")
    error.break_step = leaf.step
    raise error


def _is_made_alone(builder: GraphBuilder, value: TensorValue, leaf: MadeLeaf) -> bool:
    """Whether one operator is all that made it a leaf: `requires_grad_`, or one that makes tensors."""
    node = leaf.nodes[0]
    if len(leaf.nodes) > 1 or value in builder.viewed_leaves or node.graph is not builder.graph:
        return False
    return _is_switch(node) or node.kwargs.get("requires_grad") is True


def _is_switch(node: Node) -> bool:
    return node.op == "call_method" and node.target == "requires_grad_"


def _make_input(builder: GraphBuilder, value: TensorValue, leaf: MadeLeaf) -> None:
    if leaf.input is not None:
        return
    meta, node = value.meta, leaf.nodes[0]
    if not _is_made_alone(builder, value, leaf) or value.tracker.cls not in _PLAIN:
        _refuse(leaf)
    if leaf.owner is None:
        if meta.live:  # its sizes are known only in the graph
            _refuse(leaf)
        new = NewLeaf(value.tracker.cls, meta.shape, meta.dtype, meta.device)
        leaf.input, like = ir.GuardNode(builder.tr.guards, None, ir.MADE, new), new
    else:
        leaf.input, like = leaf.owner.origin[1:]
    shape = tuple(like.shape) if meta.live else meta.shape
    real = torch.empty(shape, dtype=meta.dtype, device=meta.device, requires_grad=True)
    given = TensorValue(meta if meta.live else intern(shape, real.stride(), 0, meta.dtype, meta.device, True, True))
    given.node = builder.add_input(given, leaf.input, real)
    if leaf.owner is not None:
        size = None if meta.live else shape
        builder.revived.append(Revived(leaf.owner.node, given.node, size, meta.dtype, meta.device))
    data = node.args[0] if _is_switch(node) else node
    made = builder.add_after(node, value, with_data, (given.node, data))
    _replace(builder, value, node, made)
    _forget(builder, value, node)


def _forget(builder: GraphBuilder, value: TensorValue, node: Node) -> None:
    """Leave out that the tensor requires gradients."""
    if _is_switch(node):
        _replace(builder, value, node, node.args[0])
        builder.graph.erase_node(node)
    else:
        node.kwargs = {name: arg for name, arg in node.kwargs.items() if name != "requires_grad"}


def _replace(builder: GraphBuilder, value: TensorValue, node: Node, new: Node) -> None:
    node.replace_all_uses_with(new, lambda user: user is not new)
    builder.outputs = [new if output is node else output for output in builder.outputs]
    if value.node is node:
        value.node = new
    leaf = builder.made_leaves[value]
    leaf.nodes = [new if known is node else known for known in leaf.nodes]


class Revived(NamedTuple):
    """A tensor from outside that becomes a leaf of another kind: the input that it is as it was, if the graph needs that, and the one
    that it is as a leaf of this shape (None: the shape that it has) and dtype on this device."""

    before: Any
    after: Any
    shape: tuple[int, ...] | None
    dtype: torch.dtype
    device: torch.device


def revived_inputs(builder: GraphBuilder) -> list[Revived]:
    """With the positions of the inputs."""
    at = {item.node: i for i, item in enumerate(builder.inputs)}
    return [item._replace(before=at.get(item.before), after=at[item.after]) for item in builder.revived]


def with_revived(revived: list[Revived], compiled: Callable[..., Any]) -> Callable[..., Any]:
    """A graph that makes these inputs leaves of their new kind before it runs: a tensor of another dtype needs another `AccumulateGrad`
    node, to which the graph leads. If it raises, they are what they were."""

    def run(*args: Any) -> Any:
        given = list(args)
        undo = []
        try:
            for before, after, shape, dtype, device in revived if args else ():
                tensor = args[after]
                undo.append((tensor, tensor.requires_grad, tensor.data))
                if before is not None:
                    given[before] = tensor.detach()
                size = tuple(tensor.shape) if shape is None else shape
                if (tuple(tensor.shape), tensor.dtype, tensor.device) != (size, dtype, device):
                    tensor.data = torch.empty(size, dtype=dtype, device=device)
                tensor.requires_grad_()
            return compiled(*given)
        except BaseException:
            for tensor, requires_grad, data in undo:
                tensor.data = data
                tensor.requires_grad_(requires_grad)
            raise

    return run
