"""Tensors that consist of others: subclasses with `__torch_dispatch__` which say how to take them apart.

Input: real or fake tensors. Output: what a guard compares; whether the graph can hold such a tensor.
Invariant: the graph holds the whole tensor; its class computes with fake parts as it does with real ones.
Mirrors `torch/utils/_python_dispatch.py` (`is_traceable_wrapper_subclass`).
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from ..exc import SkipFrame

_C = torch._C


def is_wrapper_class(cls: type) -> bool:
    """True for a class that can be taken apart and put together."""
    return hasattr(cls, "__tensor_flatten__") and hasattr(cls, "__tensor_unflatten__")


def is_wrapper(value: Any) -> bool:
    """True for a tensor of such a class."""
    return isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor) and is_wrapper_class(type(value))


def has_fixed_sizes(value: torch.Tensor) -> bool:
    """Whether all sizes, also of the parts, are numbers (a jagged tensor has one that stands for its offsets)."""
    with _C.DisableTorchFunctionSubclass():
        if not all(type(n) is int for n in value.shape):
            return False
        return not is_wrapper(value) or all(has_fixed_sizes(getattr(value, name)) for name in part_names(value))


def part_names(value: torch.Tensor) -> list[str]:
    """The attributes that hold the parts that are tensors."""
    return [name for name in value.__tensor_flatten__()[0] if isinstance(getattr(value, name), torch.Tensor)]


def _memory(value: torch.Tensor) -> set[int]:
    if not is_wrapper(value):
        return {value.untyped_storage()._cdata} if value.layout is torch.strided else set()
    return set().union(*(_memory(getattr(value, name)) for name in part_names(value)))


def are_disjoint(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Guard: tensors that share no memory, whose parts don't either."""
    with _C.DisableTorchFunctionSubclass():
        return _memory(one).isdisjoint(_memory(other))


def check_shared_parts(builder: Any) -> None:
    """Compilers see a change of a tensor neither in a part of another one nor the other way round: leave such a frame alone."""
    wrappers = [i for i in builder.inputs if is_wrapper(i.value)]
    if not wrappers:
        return
    for changed in builder.inputs:
        subject = getattr(changed.node.meta, "subject", None)
        if subject is None or subject.node is changed.node or not isinstance(changed.value, torch.Tensor):
            continue
        for other in builder.inputs if is_wrapper(changed.value) else wrappers:
            if other is changed or not isinstance(other.value, torch.Tensor):
                continue
            if not are_disjoint(changed.value, other.value):
                raise SkipFrame(f"{changed.source.path} is changed and shares memory with {other.source.path}")
            builder.tr.guards.predicate(are_disjoint, (changed.source, other.source), "share no memory")


def description(value: torch.Tensor) -> tuple[Any, ...]:
    """All that a graph depends on: metadata of the tensor and of its parts, and what else its class says about it."""
    own = (
        type(value),
        value.dtype,
        value.device,
        value.layout,
        value.requires_grad,
        value.is_leaf,
        tuple(value.shape),
        value.stride() if value.layout is torch.strided else None,
        _C._dispatch_keys(value).raw_repr(),
    )
    if not is_wrapper(value):
        return own
    names, context = value.__tensor_flatten__()
    parts = [getattr(value, name) for name in names]
    return (*own, context, *(description(p) if isinstance(p, torch.Tensor) else p for p in parts))


class SameDescription:
    """Guard: a tensor with equal description."""

    def __init__(self, value: torch.Tensor) -> None:
        with _C.DisableTorchFunctionSubclass():
            self.expected = description(value)

    def __call__(self, value: Any) -> bool:
        with _C.DisableTorchFunctionSubclass():
            return bool(description(value) == self.expected)
