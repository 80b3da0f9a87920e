"""Tensors that consist of others (wrapper subclasses with `__torch_dispatch__`), and their classes.

Input: real tensors of such classes, results of operators, calls of the classes. Output: `WrapperTensorVariable`.
Invariant: the whole tensor is a value of the graph; its parts are read from it by nodes. Its other attributes follow from its class's code
and from what `__tensor_flatten__` tells, which is guarded.
Mirrors `torch/utils/_python_dispatch.py` and `torch/_subclasses/meta_utils.py`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import torch

from ..exc import unsupported
from ..graph.builder import MODELS
from ..graph.meta import LiveMeta
from ..graph.values import TensorValue
from ..graph.wrappers import SameDescription, has_fixed_sizes, is_wrapper, is_wrapper_class, part_names
from ..guards import ir
from .base import VariableTracker
from .constant import ConstantVariable
from .tensor import TensorVariable
from .type import TypeVariable, build_type
from .wrap import builds_if

SLUG = "tensor-subclass"
_C = torch._C
_METACLASS = type(torch.Tensor)


class WrapperTensorVariable(TensorVariable):
    """A tensor that consists of others."""

    def __init__(self, proxy: TensorValue) -> None:
        super().__init__(proxy)
        self.cls = type(proxy.fake)

    def tp_getattro(self, tx: Any, name: str) -> VariableTracker:
        stored = self.attributes is not None and name in self.attributes
        if not stored and name in part_names(self.proxy.fake):
            return tx.tr.graph.call(tx, "call_function", getattr, [self, ConstantVariable(name)])
        return super().tp_getattro(tx, name)

    def instance_attribute(self, tx: Any, name: str) -> VariableTracker | None:
        own = self.proxy.fake.__dict__
        if self.source is not None or name not in own or (self.attributes is not None and name in self.attributes):
            return super().instance_attribute(tx, name)
        found = tx.tr.wrap_new(own[name]) if not isinstance(own[name], torch.Tensor) else None
        return found if found is not None else unsupported(SLUG, f"{self.cls.__qualname__}.{name}")

    def tp_setattro(self, tx: Any, name: str, value: VariableTracker | None) -> None:
        if name in part_names(self.proxy.fake):
            unsupported(SLUG, f"assignment to {self.cls.__qualname__}.{name}")
        super().tp_setattro(tx, name, value)


def make_tensor(value: TensorValue) -> TensorVariable:
    """The model of a tensor of the graph."""
    return WrapperTensorVariable(value) if value.meta.live and is_wrapper(value.fake) else TensorVariable(value)


MODELS.tensor = make_tensor

_LATE = {"torch.distributed.tensor": "torch_dtensor"}
"""What the program has to have loaded → our module about it."""


def load_late() -> None:
    """Called when a trace begins."""
    for name in [name for name in _LATE if name in sys.modules]:
        import_module(f"{__package__}.{_LATE.pop(name)}")


MODELS.load_late = load_late


def _is_transparent(cls: type) -> bool:
    """Whether calls of torch functions reach the class's `__torch_dispatch__` without code of the program before."""
    override = cls.__torch_function__
    if override is _C._disabled_torch_function_impl or cls.__module__.partition(".")[0] == "torch":
        return True
    return getattr(override, "__func__", None) is torch.Tensor.__torch_function__.__func__


def build_wrapper(tr: Any, value: torch.Tensor, source: Any) -> VariableTracker:
    """The model of a real tensor that consists of others."""
    cls = type(value)
    if not _is_transparent(cls) or not has_fixed_sizes(value):
        return unsupported(SLUG, f"{cls.__module__}.{cls.__qualname__}")
    tr.guard(source, ir.TYPE_IS, cls)
    tr.guard(source, ir.PYTHON, SameDescription(value))
    fake = tr.graph.propagator.slow_fake(value)
    vt = WrapperTensorVariable(TensorValue(LiveMeta(fake), origin=("input", source, value), fake=fake))
    vt.source, vt.value = source, value
    return vt


# -- their classes


class WrapperClassVariable(TypeVariable):
    """The class; calling it is a node."""

    def tp_call(self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        return tx.tr.graph.call(tx, "call_function", self.value, args, kwargs, memo=False)


def _is_class_of_wrappers(value: Any) -> bool:
    return type(value) is _METACLASS and is_wrapper_class(value)


@builds_if(_is_class_of_wrappers)
def build_wrapper_class(tr: Any, value: type, source: Any) -> TypeVariable:
    found = build_type(tr, value, source)
    found.__class__ = WrapperClassVariable
    return found
