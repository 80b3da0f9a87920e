"""`FakeTensor`s of the program: tensors without data, of a `FakeTensorMode` that the program has made.

Input: real objects of that class, and operators on them, or on any tensors under such a mode. Output: guards on the objects; whether what
an operator returns is a `FakeTensor` for the program, too.
Invariant: for the graph such a tensor is one like others; its class is known to the models alone (`TensorValue.is_fake`). The graph runs
on the program's own objects, where eager execution has its mode, so that it raises what eager execution raises. Where it is not known
whether a result has data, or how an operator changes a tensor that has some, the graph breaks.
Mirrors `torch/_subclasses/fake_tensor.py` (`FakeTensor.__torch_dispatch__`, `FakeTensorMode.validate_and_convert_non_fake_tensors`).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import Node
from torch.nn import functional

from dynamo_lite.exc import unsupported
from dynamo_lite.graph.core import modes
from dynamo_lite.graph.core.functional import transforms_around
from dynamo_lite.graph.core.meta import is_plain
from dynamo_lite.graph.core.operator_names import operator_name
from dynamo_lite.graph.core.values import TensorValue
from dynamo_lite.guards.mirror import tensor as matches

if TYPE_CHECKING:
    from dynamo_lite.graph.builder import GraphBuilder
    from dynamo_lite.guards.ir import GuardNode

SLUG = "fake-tensor-of-program"


def is_param(value: FakeTensor) -> bool:
    """Whether a `FakeTensor` is an instance of `Parameter`."""
    return bool(value.__dict__.get("_is_param", False))


class SameFake:
    """Guard: a `FakeTensor` with the metadata of a `TENSOR` check, of the mode that is active if there was one. Symbolic sizes are not
    compared with numbers, which would be an assumption in the program's `ShapeEnv`."""

    def __init__(self, value: FakeTensor, spec: tuple[Any, ...]) -> None:
        self.spec = spec
        self.is_param = is_param(value)
        self.is_of_active_mode = modes.fake_mode() is not None
        self.takes_others = value.fake_mode.allow_non_fake_inputs

    def __call__(self, value: Any) -> bool:
        return (
            type(value) is FakeTensor
            and not value._has_symbolic_sizes_strides
            and is_param(value) is self.is_param
            and value.fake_mode.allow_non_fake_inputs is self.takes_others
            and (not self.is_of_active_mode or value.fake_mode is modes.active_fake_mode())
            and matches(value, self.spec)
        )


def have_one_mode(value: FakeTensor, other: FakeTensor) -> bool:
    """Guard: two `FakeTensor`s of the same mode."""
    return value.fake_mode is other.fake_mode


def check_input(builder: GraphBuilder, value: FakeTensor, source: GuardNode) -> None:
    """A `FakeTensor` comes into a graph. Break for one whose sizes, or data, guards can't tell, and for one of another mode than the
    others, at which operators raise."""
    mode, first = modes.fake_mode(), builder.passes.fakes.first
    if value.fake_mode is not (first[1].fake_mode if mode is None and first is not None else mode or value.fake_mode):
        unsupported(SLUG, "FakeTensor of another FakeTensorMode")
    if mode is None and first is not None:
        builder.tr.guards.predicate(have_one_mode, (first[0], source), "FakeTensors of one mode")
    if value._has_symbolic_sizes_strides:
        unsupported(SLUG, "FakeTensor with symbolic sizes, of a ShapeEnv of the program")
    if not is_plain(value):
        unsupported(SLUG, f"FakeTensor of layout {value.layout}")
    if builder.scope is not None and modes.fake_mode() is None:
        unsupported(SLUG, "FakeTensor in the body of a higher-order operator")


def check_call(builder: GraphBuilder, target: object, tensors: Sequence[TensorValue], args: tuple[Any, ...]) -> None:
    """Break at an operator of which it is not known what it makes of tensors with data among, or under the mode of, those without."""
    mode, name = modes.fake_mode(), getattr(target, "__name__", target)
    are_fake = [value.is_fake for value in tensors]
    if mode is None:
        if not any(are_fake):
            return
        if not all(are_fake) and not (_takes_others(builder) and _computes_with_all(target)):
            unsupported(SLUG, f"{name} of tensors some of which are FakeTensors")
        if name in _MAKES_DATA:
            unsupported(SLUG, f"{name} of a FakeTensor")
    elif not all(are_fake):
        if not mode.allow_non_fake_inputs:
            unsupported(SLUG, f"{name} of a tensor that is no FakeTensor, under a FakeTensorMode that takes no others")
        if target is getattr and args[-1] == "data":
            unsupported(SLUG, "the data of a tensor that is no FakeTensor, under a FakeTensorMode")
    transforms = transforms_around(builder)
    if transforms and not any(type(is_fake) is str for is_fake in are_fake):
        unsupported(SLUG, f"{name} inside of {transforms[-1]}, not of what that is given")


def _takes_others(builder: GraphBuilder) -> bool:
    """Whether the mode of the `FakeTensor`s takes tensors with data for arguments; guarded with each of them."""
    first = builder.passes.fakes.first
    return first is not None and first[1].fake_mode.allow_non_fake_inputs


def _computes_with_all(target: object) -> bool:
    """Whether a `FakeTensor` among the arguments of an operator makes `FakeTensor`s of all results: the dispatcher gets all arguments at
    once, instead of a function that may only look at the sizes of some."""
    name = operator_name(target)
    return target in _FUNCTIONS or name in _OPERATORS or (name is not None and _is_primitive(name))


@functools.cache
def _is_primitive(name: str) -> bool:
    """Whether no form of an operator is made of other operators, but for those (of older torch) that take dimensions by their names: they
    look these up and call the others."""
    packet = getattr(torch.ops.aten, name, None)
    if packet is None:
        return False
    overloads = [overload for overload in packet.overloads() if not overload.startswith("names")]
    names = [getattr(packet, overload).name() for overload in overloads]
    names = [full for full in names if torch._C._dispatch_has_kernel(full)]  # the others are TorchScript's alone
    return bool(names) and not any(map(_is_composite, names))


def _is_composite(name: str) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeImplicitAutograd")


_OPERATORS = frozenset("linear matmul conv1d conv2d conv3d layer_norm group_norm batch_norm".split())
_FUNCTIONS = frozenset({functional.layer_norm, functional.group_norm, functional.batch_norm, functional.embedding})
"""Operators, and functions, that are made of others and whose result is computed with all arguments."""

_MAKES_DATA = frozenset({"new", "new_tensor"})
"""Methods that make a tensor from numbers, which has data where no mode is active."""


def check_changes(tensors: Sequence[TensorValue], changes: Sequence[tuple[int, Any]]) -> None:
    """Break where an operator changes sizes or strides of a tensor with data: beside a `FakeTensor`, or under a mode, it changes a fake
    of that tensor."""
    if modes.fake_mode() is None and not any(value.is_fake for value in tensors):
        return
    for position, meta in changes:
        value = tensors[position]
        if not value.is_fake and (meta.live or (meta.shape, meta.stride) != (value.meta.shape, value.meta.stride)):
            unsupported(SLUG, "change of the sizes of a tensor that is no FakeTensor")


def result_is_fake(builder: GraphBuilder, tensors: Sequence[TensorValue]) -> bool | str:
    """Whether an operator on these tensors, which has been checked, returns a `FakeTensor` (`TensorValue.is_fake`)."""
    if transforms := transforms_around(builder):
        return transforms[-1]  # one of them is a wrapper
    return modes.fake_mode() is not None or any(value.is_fake for value in tensors)


def tensors_of(nodes: object) -> list[TensorValue]:
    """The tensors that the nodes among arguments stand for."""
    found: list[TensorValue] = []

    def note(node: Node) -> Node:
        subject = getattr(node.meta, "subject", None)
        if isinstance(subject, TensorValue):
            found.append(subject)
        return node

    torch.fx.node.map_arg(nodes, note)
    return found
