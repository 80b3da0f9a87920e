"""Values from outside of a graph: tensors, numbers and objects of the program that may become inputs.

Input: a real value and its access path. Output: its model or graph value, guarded; its placeholder is made when something first uses it.
Invariant: the guards on a value allow each value for which the graph is right, and no other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import Node

from dynamo_lite.config import config
from dynamo_lite.dynamism import dynamic_shapes
from dynamo_lite.dynamism.mark_constraints import check_marks, spoken
from dynamo_lite.graph.core import modes
from dynamo_lite.graph.core.arguments import MODELS
from dynamo_lite.graph.core.fake import fake_of_known
from dynamo_lite.graph.core.meta import LiveMeta, is_plain, meta_of_fake, meta_of_input
from dynamo_lite.graph.core.nested_int import is_nested, nested_int_of
from dynamo_lite.graph.core.values import SymValue, TensorValue
from dynamo_lite.graph.core.wrapper_tensors import SameDescription
from dynamo_lite.guards import ir
from dynamo_lite.guards.tensor_guards import tensor_spec
from dynamo_lite.markers import HAS_MARKS

from .buffers import known_number
from .fake_inputs import SameFake, check_input
from .wrapper_inputs import fake_wrapper, give_nested_int

if TYPE_CHECKING:
    from dynamo_lite.graph.builder import GraphBuilder
    from dynamo_lite.guards.ir import GuardNode


class OutsideValues:
    """Takes values of the program into a graph."""

    def __init__(self, builder: GraphBuilder) -> None:
        self.builder = builder
        self.tr = builder.tr
        self.propagator = builder.propagator
        self.fakes = builder.passes.fakes

    def opaque(self, value: Any, source: GuardNode) -> Node:
        """The placeholder of an object which is neither a tensor nor a number, known by identity."""
        node = next((i.node for i in self.builder.inputs if i.value is value), None)
        if node is None:
            node = self.builder.add_input(None, source, value)
            node.meta["example_value"] = value
        return node

    def tensor(self, value: torch.Tensor, source: GuardNode) -> Any:
        """The model of a real tensor, guarded. Its placeholder is made when something uses it."""
        made = self.value(value, source)
        if value.is_inference():
            self.builder.passes.state.has_inference_tensors = made.is_inference = True
        vt = MODELS.tensor(made)
        vt.source, vt.value = source, value
        return vt

    def value(self, value: torch.Tensor, source: GuardNode) -> TensorValue:
        """The graph value of a real tensor, guarded."""
        origin = ("input", source, value)
        if type(value) is FakeTensor:
            check_input(self.builder, value, source)
            made = self._plain_input(value, source, origin)
            made.is_fake = True
            self.fakes.first = self.fakes.first or (source, value)
            self.fakes.meet()
            return made
        if not is_plain(value):
            fake = self.propagator.slow_fake(value)
            self.tr.guard(source, ir.TENSOR, tensor_spec(value))
            return TensorValue(LiveMeta(fake), origin=origin, fake=fake)
        made = self._plain_input(value, source, origin)
        if nested_int_of(value) is not None:
            give_nested_int(self.builder, self.propagator.fake_of(made), value, source)
        return made

    def wrapper(self, value: torch.Tensor, source: GuardNode) -> TensorValue:
        """The graph value of a real wrapper tensor, guarded."""
        fake, free = fake_wrapper(self.builder, value, source)
        self.tr.guard(source, ir.PYTHON, SameDescription(value, free))
        made = TensorValue(LiveMeta(fake), origin=("input", source, value), fake=fake)
        self.builder.passes.wrappers.meet(fake, MODELS.meet_overrides)
        for dim, size in enumerate(fake.shape):
            if is_nested(size):
                self.builder.symbols.ragged.setdefault(
                    size.node.expr, SymValue(size, None, ("method", made, "size", dim))
                )
        return made

    def _plain_input(self, value: torch.Tensor, source: GuardNode, origin: object) -> TensorValue:
        if HAS_MARKS in value.__dict__:
            check_marks(value, spoken(source, self.tr))
        is_parameter = isinstance(value, torch.nn.Parameter)
        dynamic = dynamic_shapes.dynamic_dims(self.tr, value, source, is_parameter)
        unbacked = dynamic_shapes.unbacked_dims(value) | dynamic_shapes.automatic_unbacked_dims(
            self.tr, value, source, is_parameter
        )
        dynamic -= unbacked
        own_strides = self.own_strides(value, source, bool(dynamic or unbacked))
        if not dynamic and not unbacked and not own_strides:
            self._guard_tensor(value, source, tensor_spec(value))
            known = modes.fake_mode() is None and known_number(self.tr, value, source)
            fake = fake_of_known(self.propagator.mode, value, value.clone()) if known else None
            return TensorValue(meta_of_input(value), origin=origin, fake=fake)
        strict = dynamic_shapes.strict_dims(value)
        size, stride = self.builder.symbols.shape_of(value, source, dynamic, strict, unbacked, own_strides)
        fixed = [s if type(s) is int else None for s in stride]
        self._guard_tensor(value, source, tensor_spec(value, dynamic | unbacked, fixed))
        fake = self.propagator.symbolic_fake(size, stride, value)
        return TensorValue(meta_of_fake(fake), origin=origin, fake=fake)

    def _guard_tensor(self, value: torch.Tensor, source: GuardNode, spec: tuple[Any, ...]) -> None:
        if type(value) is FakeTensor:
            self.tr.guard(source, ir.PYTHON, SameFake(value, spec))
        else:
            self.tr.guard(source, ir.TENSOR, spec)

    def own_strides(self, value: torch.Tensor, source: GuardNode, has_symbols: bool) -> frozenset[int]:
        """The dimensions of an input whose stride is a symbol of its own."""
        if isinstance(value, torch.nn.Parameter) and config.force_parameter_static_shapes:
            return dynamic_shapes.NONE
        return dynamic_shapes.symbolic_strides(self.tr, source, value.shape, value.stride(), has_symbols)

    def int_if_dynamic(self, value: int, source: GuardNode) -> Any:
        """The model of an int from outside if it is to be symbolic, else None."""
        return self.symint(value, source) if dynamic_shapes.is_dynamic_int(self.tr, value, source) else None

    def float_if_dynamic(self, value: float, source: GuardNode) -> Any:
        """The model of a float from outside if it is one that varies, else None."""
        return self.symfloat(value, source) if dynamic_shapes.is_dynamic_float(self.tr, value, source) else None

    def symfloat(self, value: float, source: GuardNode) -> Any:
        """The model of a float whose value is not fixed."""
        self.tr.guard(source, ir.TYPE_IS, float)
        vt = MODELS.symbol(self.builder.symbols.float_of(value, source))
        vt.source, vt.real = source, value
        return vt

    def symint(self, value: int, source: GuardNode) -> Any:
        """The model of an int whose value is not fixed."""
        self.tr.guard(source, ir.INT64)
        vt = MODELS.symbol(self.builder.symbols.int_of(value, source))
        vt.source, vt.real = source, value
        return vt
