"""Tensors that consist of others (wrapper subclasses with `__torch_dispatch__`), and their classes.

Input: real tensors of such classes, results of operators, calls of the classes. Output: `WrapperTensorVariable`.
Invariant: the whole tensor is a value of the graph; its parts are read from it by nodes. Its other attributes follow from its class's code
and from what `__tensor_flatten__` tells, which is guarded.
Mirrors `torch/utils/_python_dispatch.py` and `torch/_subclasses/meta_utils.py`.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from dynamo_lite.exc import unsupported
from dynamo_lite.graph.core.arguments import MODELS, Overridden
from dynamo_lite.graph.core.modes import asking
from dynamo_lite.graph.core.values import TensorValue
from dynamo_lite.graph.core.wrapper_tensors import (
    WrapperPart,
    has_parts,
    is_followed,
    is_wrapper,
    is_wrapper_class,
    maker_of,
    part_names,
)
from dynamo_lite.graph.inputs.fake_inputs import SLUG as FAKE_INPUTS
from dynamo_lite.guards import ir
from dynamo_lite.guards.mirror import has_finalizer
from dynamo_lite.variables.builtin.dict import DictVariable
from dynamo_lite.variables.builtin.list import ListVariable
from dynamo_lite.variables.builtin.tuple import TupleVariable
from dynamo_lite.variables.objects.type import TypeVariable, build_type
from dynamo_lite.variables.protocol.base import VariableTracker
from dynamo_lite.variables.protocol.constant import ConstantVariable
from dynamo_lite.variables.protocol.descr import generic_getattr
from dynamo_lite.variables.protocol.wrap import builds_if
from dynamo_lite.variables.torch.tensor import TensorVariable, ValueVariable, class_attribute
from dynamo_lite.variables.torch.tensor_slots import guard_slots, with_own_slots

from .fake_tensor import FakeTensorVariable

if TYPE_CHECKING:
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.guards.ir import GuardNode
    from dynamo_lite.interp.frame import Frame

SLUG = "tensor-subclass"
_METACLASS = type(torch.Tensor)


class WrapperTensorVariable(TensorVariable):
    """A tensor that consists of others."""

    def __init__(self, proxy: TensorValue) -> None:
        super().__init__(proxy)
        self.cls = type(proxy.fake)

    def tp_getattro(self, tx: Frame, name: str) -> VariableTracker:
        stored = self.attributes is not None and name in self.attributes
        if not stored and name in part_names(self.proxy.fake):
            return self._part(tx, name)
        if class_attribute(self.cls, name) is not class_attribute(torch.Tensor, name):
            found = self.instance_attribute(tx, name) if self.has_attribute(name) else None
            return found if found is not None else generic_getattr(tx, self, name)
        return super().tp_getattro(tx, name)

    def _part(self, tx: Frame, name: str) -> VariableTracker:
        """One of the tensors that this one consists of; other wrapper tensors may have it as well."""
        fake, graph = getattr(self.proxy.fake, name), tx.tr.graph
        part = graph.passes.wrappers.parts.get(id(fake)) or WrapperPart(fake, self, name)
        if part.tracker is not None:
            return part.tracker
        found = part.owner._read_part(tx, part.name)
        if graph.scope is None:
            part.tracker = found
            graph.passes.wrappers.parts[id(fake)] = part
        return found

    def _read_part(self, tx: Frame, name: str) -> VariableTracker:
        tr = tx.tr
        if self.source is None:
            return self._attribute_node(tx, name)
        real, source = getattr(self.value, name), tr.source(self.source, ir.ATTR, name)
        if id(real) in tr.heap:
            return tr.wrap(real, source)
        found = self._attribute_node(tx, name)
        found.source, found.value = source, real
        if tr.graph.scope is None:
            tr.heap.add(real, found)
        return found

    def _attribute_node(self, tx: Frame, name: str) -> VariableTracker:
        return tx.tr.graph.call(tx, "call_function", getattr, [ValueVariable(self.proxy), ConstantVariable(name)])

    def has_attribute(self, name: str) -> bool:
        return super().has_attribute(name) or (self.source is None and name in self.proxy.fake.__dict__)

    def instance_attribute(self, tx: Frame, name: str) -> VariableTracker | None:
        own = self.proxy.fake.__dict__
        if self.source is not None or name not in own or (self.attributes is not None and name in self.attributes):
            return super().instance_attribute(tx, name)
        found = tx.tr.wrap_new(own[name]) if not _has_tensors(own[name]) else None
        if found is None:
            return unsupported(SLUG, f"{self.cls.__qualname__}.{name}")
        if type(own[name]) in _CONTAINERS:
            self.store(tx, name, found)
        return found

    def tp_setattro(self, tx: Frame, name: str, value: VariableTracker | None) -> None:
        if name in part_names(self.proxy.fake):
            unsupported(SLUG, f"assignment to {self.cls.__qualname__}.{name}")
        super().tp_setattro(tx, name, value)


_CONTAINERS = (list, dict, set)


def _has_tensors(value: Any) -> bool:
    if type(value) is dict:
        return any(map(_has_tensors, value.values()))
    if type(value) in (list, tuple, set):
        return any(map(_has_tensors, value))
    return issubclass(type(value), torch.Tensor)


def make_tensor(value: TensorValue) -> TensorVariable:
    """The model of a tensor of the graph."""
    if value.meta.live and is_wrapper(value.fake):
        if value.is_fake:
            unsupported(FAKE_INPUTS, f"{type(value.fake).__qualname__} of FakeTensors")
        if has_finalizer(type(value.fake)):
            unsupported("del-finalizer", type(value.fake).__qualname__)
        return with_own_slots(WrapperTensorVariable(value))
    return FakeTensorVariable(value) if value.is_fake is True else TensorVariable(value)


MODELS.tensor = make_tensor


def _has_fake_parts(value: torch.Tensor) -> bool:
    parts = [getattr(value, name) for name in part_names(value)]
    return any(type(part) is FakeTensor or (is_wrapper(part) and _has_fake_parts(part)) for part in parts)


def build_wrapper(tr: Trace, value: torch.Tensor, source: GuardNode | None) -> VariableTracker:
    """The model of a real tensor that consists of others."""
    if not has_parts(value):
        unsupported(SLUG, f"{type(value).__qualname__} without its parts")
    if _has_fake_parts(value):
        unsupported(FAKE_INPUTS, f"{type(value).__qualname__} of FakeTensors")
    tr.guard(source, ir.TYPE_IS, type(value))
    guard_slots(tr, type(value))
    vt = with_own_slots(WrapperTensorVariable(tr.graph.outside.wrapper(value, source)))
    vt.source, vt.value = source, value
    for name in part_names(vt.proxy.fake):
        part = getattr(vt.proxy.fake, name)
        tr.graph.passes.wrappers.parts[id(part)] = WrapperPart(part, vt, name)
    return vt


# -- their classes


class WrapperClassVariable(TypeVariable):
    """The class; calling it is a node."""

    def tp_call(self, tx: Frame, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        function = self.value
        guard_slots(tx.tr, self.value)
        if any(isinstance(a, ListVariable | DictVariable | TupleVariable) for a in (*args, *kwargs.values())):
            function = maker_of(self.value)
        if is_followed(self.value):
            overrides = MODELS.meet_overrides(tx.tr)
        elif (overrides := tx.tr.overrides) is not None and not overrides.ignores_subclasses:
            function = asking(function)  # what the class asks of the parts
        below = overrides.below() if overrides is not None else nullcontext()
        try:
            with below:
                return tx.tr.graph.call(tx, "call_function", function, args, kwargs, memo=False)
        except Overridden:  # by an argument that nobody had looked at
            return self.tp_call(tx, args, kwargs)


def _is_class_of_wrappers(value: Any) -> bool:
    return type(value) is _METACLASS and is_wrapper_class(value)


@builds_if(_is_class_of_wrappers)
def build_wrapper_class(tr: Trace, value: type, source: GuardNode | None) -> TypeVariable:
    found = build_type(tr, value, source)
    found.__class__ = WrapperClassVariable
    return found
