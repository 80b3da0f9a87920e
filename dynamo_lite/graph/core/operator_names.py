"""Facts about operators that follow from their names.

Input: the target of a node: an operator of the dispatcher, a function of torch or of `operator`, the name of a method. Output: the name of
the method of tensors that does the same; whether it writes to its arguments; whether torch has tagged it, gives it numbers of any kind, or
computes otherwise by what these are.
Invariant: an operator that is not known by its name has no name, and no tag.
"""

from __future__ import annotations

import functools
import operator
import types
from typing import Any

import torch


def operator_name(target: Any) -> str | None:
    """The operator of torch that a node calls, as the method of tensors is called; None for any other function."""
    if isinstance(target, str):
        return target
    if isinstance(target, torch._ops.OpOverload):
        return target._opname if target.namespace == "aten" else None
    if not isinstance(target, types.BuiltinFunctionType):
        return None
    name = target.__name__
    return _OF_OPERATORS.get(name, name) if target.__module__ == "_operator" else name


_OF_OPERATORS = {
    "truediv": "div",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "itruediv": "div_",
    "ifloordiv": "floor_divide_",
    "imod": "remainder_",
    **{f"i{name}": f"{name}_" for name in ("add", "sub", "mul", "pow")},
}


@functools.cache
def has_tag(name: str, tag: torch.Tag) -> bool:
    """Whether torch has tagged a form of the operator of this name."""
    packet = getattr(torch.ops.aten, name, None)
    return isinstance(packet, torch._ops.OpOverloadPacket) and any(
        tag in getattr(packet, overload).tags for overload in packet.overloads()
    )


@functools.cache
def takes_scalars(name: str) -> bool:
    """Whether a form of the operator of this name has an argument for numbers of any kind (`Scalar`). Such a number is an element of the
    result, or a factor, unless `branches_on`."""
    return any(_is_scalar(argument.type) for form in _forms_of(name) for argument in form.arguments)


@functools.cache
def branches_on(name: str, place: int | str) -> bool:
    """Whether a number of any kind in an argument, given by its position or its name, decides which computation the operator of this name
    is: decompositions compare it with constants."""
    arguments = [pair for form in _forms_of(name.removesuffix("_")) for pair in enumerate(form.arguments)]
    return any(place in (i, a.name) and a.name in _DECIDING and _is_scalar(a.type) for i, a in arguments)


_DECIDING = frozenset({"correction", "ord", "p"})
"""The names of arguments for such numbers: of norms and variances."""


def _forms_of(name: str) -> list[Any]:
    """The schemas of the operator of this name."""
    packet = getattr(torch.ops.aten, name, None)
    overloads = packet.overloads() if isinstance(packet, torch._ops.OpOverloadPacket) else []
    return [getattr(packet, overload)._schema for overload in overloads]


def _is_scalar(kind: Any) -> bool:
    if isinstance(kind, torch.OptionalType):
        kind = kind.getElementType()
    return isinstance(kind, torch.NumberType)


def may_write(target: object, kwargs: dict[str, Any]) -> bool:
    """Whether an operator of this name may change its arguments in place."""
    schema = getattr(target, "_schema", None)
    if schema is not None:
        return schema.is_mutable
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    if name.startswith("__"):
        return name.startswith("__i") and name not in ("__index__", "__int__", "__invert__", "__iter__")
    return name.endswith("_") or target in _WRITING or "out" in kwargs


_WRITING = frozenset(
    {
        operator.setitem,
        *(f for name, f in vars(operator).items() if name.startswith("__i") and hasattr(operator, name[3:-2])),
    }
)


VIEWS_IN_PLACE = frozenset(
    {"t_", "transpose_", "swapaxes_", "swapdims_", "squeeze_", "unsqueeze_", "as_strided_", "detach_"}
)
"""The methods that make a tensor another view of the storage that it has."""
