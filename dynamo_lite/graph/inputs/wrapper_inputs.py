"""Wrapper tensors as inputs whose sizes, or whose parts' sizes, may vary; jagged tensors are such.

Input: a real tensor that consists of others, and its access path. Output: its fake, put together by its class from fake parts; which of its
numbers are free.
Invariant: every number that is free is a symbol of the trace, or follows from symbols by the code of the class.
Mirrors `torch/_subclasses/meta_utils.py` (`_empty_create_subclass`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from dynamo_lite.dynamism import dynamic_shapes
from dynamo_lite.dynamism.mark_constraints import spoken
from dynamo_lite.exc import unsupported
from dynamo_lite.graph.core.keep_dynamo_unloaded import without_compiler
from dynamo_lite.graph.core.meta import is_leaf, is_plain, meta_of_input
from dynamo_lite.graph.core.nested_int import is_nested, nested_int_of, ragged_key
from dynamo_lite.graph.core.wrapper_tensors import FIXED, Free, is_wrapper, part_names
from dynamo_lite.graph.shapes.sizes import size_getter
from dynamo_lite.guards import ir
from dynamo_lite.isa.typeobject import module_of, qualname_of

if TYPE_CHECKING:
    from dynamo_lite.graph.builder import GraphBuilder
    from dynamo_lite.guards.ir import GuardNode

_C = torch._C


@dataclass(slots=True)
class _Tensor:
    """A tensor, or a part of one, which of its sizes are to be symbolic, and which strides are to have a symbol of their own."""

    value: torch.Tensor
    source: Any
    sizes: frozenset[int]
    unbacked: frozenset[int]
    own_strides: frozenset[int]
    nested: bool  # has a nested int among its sizes, or a nested int stands for it
    parts: dict[str, _Tensor] = field(default_factory=dict)

    @property
    def varies(self) -> bool:
        own = self.sizes or self.unbacked or self.own_strides or self.nested
        return bool(own) or any(p.varies for p in self.parts.values())


def fake_wrapper(builder: GraphBuilder, value: torch.Tensor, source: GuardNode) -> tuple[torch.Tensor, Free]:
    """The fake of a real wrapper tensor, and what guards must leave open. Raises `Unsupported` if there is none."""
    with _C.DisableTorchFunctionSubclass():
        plan = _plan(builder, value, source, None)
        if not plan.varies or _may_hold_sizes(plan):
            return builder.propagator.slow_fake(value), FIXED
        try:
            return _fake(builder, plan)
        except (AssertionError, NotImplementedError, RuntimeError, TypeError, ValueError) as error:
            cls = type(value)
            return unsupported("tensor-subclass", f"{module_of(cls)}.{qualname_of(cls)} of these sizes", error)


def _may_hold_sizes(plan: _Tensor) -> bool:
    """Whether what a class says besides the parts has objects of its own: a specification with sizes, such as `DTensor` has, fixes them."""
    if not is_wrapper(plan.value):
        return False
    names, context = plan.value.__tensor_flatten__()
    return len(plan.parts) != len(names) or not _is_data(context) or any(map(_may_hold_sizes, plan.parts.values()))


def _is_data(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_is_data, value.values()))
    if type(value) in (tuple, list):
        return all(map(_is_data, value))
    return value is None or isinstance(value, _DATA)


_DATA = (bool, int, float, str, type, torch.dtype, torch.device, torch.layout, torch.memory_format)


def _plan(builder: GraphBuilder, value: torch.Tensor, source: GuardNode, owner: _Tensor | None) -> _Tensor:
    tr = builder.tr
    whole = owner or _Tensor(value, source, dynamic_shapes.NONE, dynamic_shapes.NONE, dynamic_shapes.NONE, False)
    fixed = isinstance(whole.value, torch.nn.Parameter)
    sizes = dynamic_shapes.dynamic_dims(tr, value, source, fixed, dynamic_shapes.is_buffer(whole.source))
    nested = any(is_nested(n) for n in value.shape) or (not is_wrapper(value) and nested_int_of(value) is not None)
    unbacked, own = dynamic_shapes.unbacked_dims(value), dynamic_shapes.NONE
    if value.layout is torch.strided and not fixed and all(type(n) is int for n in (*value.shape, *value.stride())):
        own = builder.outside.own_strides(value, source, bool(sizes or unbacked))
    plan = _Tensor(value, source, sizes, unbacked, own, nested)
    if is_wrapper(value):
        for name in value.__tensor_flatten__()[0]:
            part = getattr(value, name)
            if isinstance(part, torch.Tensor):
                plan.parts[name] = _plan(builder, part, tr.source(source, ir.ATTR, name), owner or plan)
    return plan


def _fake(builder: GraphBuilder, plan: _Tensor) -> tuple[torch.Tensor, Free]:
    return _fake_whole(builder, plan) if is_wrapper(plan.value) else _fake_part(builder, plan)


def _fake_part(builder: GraphBuilder, plan: _Tensor) -> tuple[torch.Tensor, Free]:
    value, propagator = plan.value, builder.propagator
    if not is_plain(value):
        return propagator.slow_fake(value), FIXED
    if not plan.sizes and not plan.unbacked and not plan.own_strides:
        fake, free = propagator.make_fake(meta_of_input(value)), FIXED
    else:
        size, stride = builder.symbols.shape_of(
            value, plan.source, plan.sizes, dynamic_shapes.NONE, plan.unbacked, plan.own_strides
        )
        fake, free = propagator.symbolic_fake(size, stride, value), _free(size, stride)
    give_nested_int(builder, fake, value, plan.source)
    return fake, free


def give_nested_int(builder: GraphBuilder, fake: Any, value: torch.Tensor, source: GuardNode) -> None:
    """Let the fake of a tensor of offsets stand for the same nested int as the tensor does."""
    known = nested_int_of(value)
    if known is not None:
        node = builder.tr.source(source, ir.CALL, ragged_key)
        fake.nested_int_memo = builder.symbols.nested_int(known, node, node.path)


def _fake_whole(builder: GraphBuilder, plan: _Tensor) -> tuple[torch.Tensor, Free]:
    value = plan.value
    names, context = value.__tensor_flatten__()
    made = {name: _fake(builder, part) for name, part in plan.parts.items()}
    parts = {name: made[name][0] if name in made else getattr(value, name) for name in names}
    size, stride = _outer(builder, plan)
    propagator = builder.propagator
    before = [_nested_int(made[name][0]) for name in made]
    with propagator.mode, without_compiler, propagator.dispatcher():
        fake = type(value).__tensor_unflatten__(parts, context, size, stride)
        if value.requires_grad and not fake.requires_grad:
            fake.requires_grad_()
        if value.requires_grad and not is_leaf(value):
            with torch.enable_grad():
                fake = fake.clone(memory_format=torch.preserve_format)
    if isinstance(value, torch.nn.Parameter):
        fake._is_param = True
    if not all(map(_agree, fake.shape, value.shape)) or before != [_nested_int(made[name][0]) for name in made]:
        raise ValueError(f"{qualname_of(type(value))} is put together with other sizes than it has")
    strides = fake.stride() if value.layout is torch.strided else ()
    return fake, _free(fake.shape, strides, {name: free for name, (_, free) in made.items()})


def _outer(builder: GraphBuilder, plan: _Tensor) -> tuple[Any, Any]:
    """The sizes and strides of the whole tensor. Where one is a nested int, they follow from the parts: one that stands for other
    offsets than its own (`copy.deepcopy` makes such tensors) is none for a graph."""
    value, symbols = plan.value, builder.symbols
    if not plan.nested:
        sizes, strides = symbols.shape_of(
            value, plan.source, plan.sizes, dynamic_shapes.NONE, plan.unbacked, plan.own_strides
        )
        return tuple(sizes), tuple(strides)
    path = spoken(plan.source, builder.tr)
    outer: list[Any] = list(value.shape)
    for dim, size in enumerate(outer):
        if is_nested(size):
            node = builder.tr.source(plan.source, ir.CALL, size_getter(dim))
            outer[dim] = symbols.nested_int(size, node, f"{path}.size({dim})")
    return tuple(outer), tuple([symbols.nested(n) if is_nested(n) else n for n in value.stride()])


def _nested_int(fake: Any) -> Any:
    """The nested int that the fake of a tensor of offsets stands for."""
    known = fake.nested_int_memo if isinstance(fake, FakeTensor) else None
    return None if known is None else known.node.expr


def _free(sizes: Any, strides: Any, parts: Any = None) -> Free:
    symbolic = [frozenset([i for i, n in enumerate(ns) if type(n) is not int]) for ns in (sizes, strides)]
    return Free(symbolic[0], symbolic[1], parts or {})


def _agree(sym: Any, real: object) -> bool:
    """Whether the fake has the size that the tensor has."""
    if type(sym) is int:
        return sym == real
    return is_nested(sym) == is_nested(real) and (is_nested(sym) or sym.node.hint in (None, real))


def settle_inputs(builder: GraphBuilder) -> None:
    """Have guards tell tensors of offsets apart that the traced code made the first jagged tensor with. Compilers trace the graph anew:
    they have to find these tensors as they were, and count from where the trace began."""
    for node, source, value in builder.inputs:
        subject = getattr(node.meta, "subject", None)
        fake = getattr(subject, "fake", None)
        if isinstance(value, torch.Tensor) and fake is not None:
            _settle(builder, fake, value, source)
    # AOTAutograd numbers nested ints anew from where its mode began: the numbers given during the trace are taken back.
    builder.propagator.mode.reset_nt_tensor_id_counter()


def _settle(builder: GraphBuilder, fake: Any, value: torch.Tensor, source: GuardNode) -> None:
    if is_wrapper(fake):
        for name in part_names(fake):
            _settle(builder, getattr(fake, name), getattr(value, name), builder.tr.source(source, ir.ATTR, name))
    elif isinstance(fake, FakeTensor) and fake.nested_int_memo is not None and nested_int_of(value) is None:
        node = builder.tr.source(source, ir.CALL, ragged_key)
        builder.symbols.track_nested_int(fake.nested_int_memo, node, node.path)
        fake.nested_int_memo = None
