"""Leaves that the traced code makes: parameters, and tensors that begin to require gradients.

Input: a builder whose outputs are known. Output: its graph, changed so that these leaves are what the program outside needs.
Invariant: a compiled graph is one node of autograd, which ends at the graph's inputs. A leaf that no gradient from outside has to reach is
made after the graph, from its data. A leaf that gradients from outside have to reach is an input: it is made empty before the graph and
gets its data after it. All others are leaves within the graph.
Mirrors `torch/csrc/autograd/functions/accumulate_grad.h` and `torch/nn/parameter.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.fx import Node

from dynamo_lite.exc import Unsupported, unsupported
from dynamo_lite.graph.core import modes
from dynamo_lite.graph.core.autograd import SLUG, history
from dynamo_lite.graph.core.effect import Compiled, GraphEffect, Wrapper
from dynamo_lite.graph.core.functional import with_data
from dynamo_lite.graph.core.meta import intern
from dynamo_lite.graph.core.values import (
    Propagation,
    SameResult,
    TensorResult,
    TensorValue,
)
from dynamo_lite.graph.inputs.fake_inputs import SLUG as FAKE_INPUTS
from dynamo_lite.guards import ir

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
    with torch._C.DisableTorchFunction():  # who overrides has been asked
        return data.requires_grad_(requires_grad)


class Leaf(NamedTuple):
    """A kind of leaf. `shape`: None for the shape that the tensor has."""

    shape: tuple[int, ...] | None
    dtype: torch.dtype
    device: torch.device


class Revived(NamedTuple):
    """A tensor from outside that becomes a leaf of another kind: the position of the input that it is as it was, if the graph needs that,
    and of the one that it is as a leaf."""

    before: int | None
    after: int
    kind: Leaf


@dataclass(eq=False)
class Leaves(GraphEffect):
    """`made`: tensors that begin to require gradients in the graph. `viewed`: views made without gradients, leaves as well → the tensors
    that they are views of. `revived`: the inputs that become leaves of another kind."""

    never_kept = {"revived": "a graph in which tensors become other leaves"}

    made: dict[TensorValue, MadeLeaf] = field(default_factory=dict)
    viewed: dict[TensorValue, TensorValue] = field(default_factory=dict)
    _revived: list[tuple[Node | None, Node, Leaf]] = field(default_factory=list)
    revived: list[Revived] = field(default_factory=list)

    # -- while the graph is built

    def begins(self, value: TensorValue) -> MadeLeaf:
        """An operator has made a tensor a leaf that requires gradients."""
        if value.is_fake and modes.fake_mode() is None:
            unsupported(FAKE_INPUTS, "leaf made of FakeTensors")
        if self.builder.scope is not None and self.builder.scope.is_in_branch:  # whose results are no leaves
            unsupported("data-dependent-branch", "a side that makes a leaf of autograd")
        leaf = self.made.setdefault(value, MadeLeaf())
        leaf.step = self.builder.tr.thread.failing_step()
        return leaf

    def on_node(self, node: Node, outcome: Propagation, tensors: Sequence[TensorValue]) -> None:
        result = outcome.result
        kind = type(result)
        if kind is TensorResult and result.meta.requires_grad and result.meta.is_leaf:
            value = node.meta.subject
            self.begins(value).nodes.append(node)
            if result.base is not None and tensors[result.base].meta.requires_grad:
                self.viewed[value] = tensors[result.base]
        elif kind is SameResult and node.target == "requires_grad_" and tensors[result.position].meta.requires_grad:
            leaf = self.made.get(tensors[result.position])
            if leaf is not None and node.meta.subject is tensors[result.position]:
                leaf.nodes.append(node)

    def outlet(self, value: TensorValue) -> Node | None:
        """The output for a leaf made in the graph: its data; None for other tensors. Breaks before a view that is a leaf as well and
        can't be made after the graph: compilers make it anew in the grad mode in which the graph began."""
        builder = self.builder
        base = _base(builder, value)
        leaf = self.made.get(base)
        is_anew = base is not value and leaf is None and builder.state.initial.get(_GRAD_MODE)
        if is_anew and builder.module is None and not builder.passes.outputs.may_follow(value):
            _refuse(self.made[value])
        if leaf is None:
            return None
        if leaf.escaping is None or base is not value:
            if base is not value or leaf.has_hooks or value.tracker.cls not in _PLAIN:
                _refuse(leaf)
            leaf.escaping = builder.add_detached(builder.node(value), leaf.nodes[-1])
        return leaf.escaping

    # -- when it is complete

    def prepare(self) -> Sequence[Node]:
        """Make the leaves that gradients from outside reach inputs of the graph. Raises `Unsupported` for one that can't be."""
        if self.made:
            reached = self._reached()
            for made, _ in reached:
                for value, leaf in made.items():
                    if leaf.escaping is not None or leaf.owner is not None:
                        if any(_is_view(node, value) for node in self.builder.outputs):
                            _refuse(
                                leaf
                            )  # compilers take the history of one output for that of all that share its memory
                        self._make_input(value, leaf)
            for made, has_inputs in reached:  # one reason for a gradient is enough
                if not has_inputs and all(leaf.input is None for leaf in made.values()):
                    self._make_input(*max(made.items(), key=lambda item: item[1].step))
            self._forget_unused({value for made, _ in reached for value in made})
        return ()

    def _reached(self) -> list[tuple[dict[TensorValue, MadeLeaf], bool]]:
        """For each output that gradients flow from to leaves made in the graph: these, and whether gradients flow to inputs as well."""
        builder = self.builder
        reached: list[tuple[dict[TensorValue, MadeLeaf], bool]] = []
        inputs: set[TensorValue] = set()
        for node in builder.outputs:
            value = node.meta.subject
            start = _base(builder, value).node if isinstance(value, TensorValue) else node
            ends = [end for _, end, is_end in history(builder, [start]) if is_end]
            made = {end: self.made[end] for end in ends if end in self.made}
            inputs.update(end for end in ends if end not in made)
            if made:
                reached.append((made, len(made) < len(ends)))
        for made, _ in reached:
            for leaf in made.values():
                if leaf.owner in inputs:  # gradients of one kind and of another
                    _refuse(leaf)
        return reached

    def _forget_unused(self, inside: set[TensorValue]) -> None:
        """Leave out that leaves which no gradient reaches require gradients."""
        builder = self.builder
        if not builder.passes.gradients.are_asked_for and not builder.passes.saved_hooks.regions:
            for value, leaf in self.made.items():
                if value not in inside and not leaf.has_hooks and _is_made_alone(builder, value, leaf):
                    _forget(builder, value, leaf.nodes[0])

    def _make_input(self, value: TensorValue, leaf: MadeLeaf) -> None:
        if leaf.input is not None:
            return
        builder, meta, node = self.builder, value.meta, leaf.nodes[0]
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
            kind = Leaf(None if meta.live else shape, meta.dtype, meta.device)
            self._revived.append((leaf.owner.node, given.node, kind))
        data = node.args[0] if _is_switch(node) else node
        made = builder.add_after(node, value, with_data, (given.node, data))
        _replace(builder, value, node, made)
        _forget(builder, value, node)

    def finish(self, results: list[Node]) -> None:
        if self._revived:
            at = {item.node: i for i, item in enumerate(self.builder.inputs)}
            self.revived = [
                Revived(None if before is None else at.get(before), at[after], kind)
                for before, after, kind in self._revived
            ]

    def call_wrapper(self) -> Wrapper | None:
        return functools.partial(with_revived, self.revived) if self.revived else None


def _base(builder: GraphBuilder, value: TensorValue) -> TensorValue:
    """The tensor of which this one is a view made under `no_grad`: who has that tensor makes the view anew. Such a view of a leaf is a leaf
    that requires gradients too; once one of the two is changed in place, torch refuses to say whether the view is a leaf."""
    while value in builder.passes.leaves.viewed:
        value = builder.passes.leaves.viewed[value]
    return value


def is_unused(builder: GraphBuilder, value: TensorValue) -> bool:
    """Whether a tensor is a leaf made in the graph of which nothing has gradients."""
    if value not in builder.passes.leaves.made or builder.passes.gradients.are_asked_for:
        return False
    nodes = [node for node in builder.graph.nodes if getattr(node.meta, "subject", None) is value]
    users = [user.meta.subject for node in nodes for user in node.users]
    return all(
        isinstance(subject, TensorValue) and not subject.meta.requires_grad for subject in users if subject is not value
    )


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
    if len(leaf.nodes) > 1 or value in builder.passes.leaves.viewed or node.graph is not builder.graph:
        return False
    return _is_switch(node) or node.kwargs.get("requires_grad") is True


def _is_switch(node: Node) -> bool:
    return node.op == "call_method" and node.target == "requires_grad_"


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
    leaf = builder.passes.leaves.made[value]
    leaf.nodes = [new if known is node else known for known in leaf.nodes]


def with_revived(revived: list[Revived], compiled: Compiled) -> Compiled:
    """A graph that makes these inputs leaves of their new kind before it runs: a tensor of another dtype needs another `AccumulateGrad`
    node, to which the graph leads. If it raises, they are what they were."""

    def run(*args: Any) -> Any:
        given = list(args)
        undo = []
        try:
            for before, after, (shape, dtype, device) in revived if args else ():
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
