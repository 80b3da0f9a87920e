"""Operators of the dispatcher as Python objects: `torch.ops`, its namespaces, and attributes of operators.

Input: `torch.ops`, a namespace, an operator. Output: models whose attributes are those of the real objects.
Invariant: an operator that is looked up for the first time is looked up for real, which only creates the Python object; the same lookup
guards that an operator does not exist.
Mirrors `torch/_ops.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch._library.custom_ops import CustomOpDef
from torch._ops import OpOverload, OpOverloadPacket

from dynamo_lite.exc import unsupported
from dynamo_lite.guards import ir
from dynamo_lite.variables.objects.module import ModuleVariable
from dynamo_lite.variables.protocol.abstract import get_attr
from dynamo_lite.variables.protocol.base import VariableTracker
from dynamo_lite.variables.protocol.constant import ConstantVariable
from dynamo_lite.variables.protocol.dispatch import builtin
from dynamo_lite.variables.protocol.hashing import IDENTITY_HASHES
from dynamo_lite.variables.protocol.wrap import builds, guarded
from dynamo_lite.variables.stdlib.delayed_errors import is_noticed

from .functions import VARIABLES, TorchFunctionVariable

if TYPE_CHECKING:
    from dynamo_lite.interp.frame import Frame

_NAMESPACES = (type(torch.ops), type(torch.ops.aten), type(torch.ops.higher_order))


class OperatorNamespaceVariable(ModuleVariable):
    """`torch.ops`, `torch.ops.aten`, …: modules that make their attributes when they are asked for."""

    def plain_getattr(self, tx: Frame, name: str) -> VariableTracker:
        if name not in self.names and not name.startswith("__"):
            try:
                getattr(self.value, name)  # from now on the module has it
            except AttributeError as error:
                if self.source is not None:
                    tx.tr.guard(tx.tr.source(self.source, ir.ATTR, name), ir.ABSENT, None)
                return tx.raises_like(error)
        return super().plain_getattr(tx, name)


builds(*_NAMESPACES)(guarded(ir.IS, OperatorNamespaceVariable))


class OperatorVariable(TorchFunctionVariable):
    """An operator, or the packet of its overloads."""

    def tp_call(self, tx: Frame, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        if name_of(self.value).startswith("_c10d_functional"):
            check_unnoticed(tx, name_of(self.value))
        return super().tp_call(tx, args, kwargs)

    def tp_getattro(self, tx: Frame, name: str) -> VariableTracker:
        if name == "_op":
            return self  # what it calls when it is called
        try:
            real = getattr(self.value, name)
        except AttributeError as error:
            if self.source is not None:
                tx.tr.guard(tx.tr.source(self.source, ir.ATTR, name), ir.ABSENT, None)
            return tx.raises_like(error)
        return tx.tr.build_constant_object(real)

    def tp_repr(self, tx: Frame) -> VariableTracker:
        return ConstantVariable(repr(self.value))

    def tp_str(self, tx: Frame) -> VariableTracker:
        return ConstantVariable(str(self.value))


def name_of(operator: OpOverload | OpOverloadPacket) -> str:
    """With its namespace."""
    return operator.name() if isinstance(operator, OpOverload) else operator._qualified_op_name


def notices_errors(tx: Frame) -> bool:
    """Whether the graph must end before a collective, since a block of the program around it would notice its error (of one of these
    classes). A frame whose graph has communicated does not start again: the other processes would have to take part once more."""
    return not tx.tr.breaks_raise and is_noticed(tx, (RuntimeError, ValueError))


def check_unnoticed(tx: Frame, name: str) -> None:
    """Break before a collective where a block of the program would notice its error."""
    if notices_errors(tx):
        unsupported("call-c-function", f"{name} in a block that would notice its error")


VARIABLES.update({OpOverload: OperatorVariable, OpOverloadPacket: OperatorVariable})
IDENTITY_HASHES.update({OpOverload.__hash__, OpOverloadPacket.__hash__})


@builtin(OpOverload.name)
def operator_name(tx: Frame, self: OperatorVariable) -> VariableTracker:
    return ConstantVariable(self.value.name())


@builtin(OpOverloadPacket.overloads)
def packet_overloads(tx: Frame, self: OperatorVariable) -> VariableTracker:
    return tx.tr.wrap_new(self.value.overloads())


@builtin(CustomOpDef.__call__)
def call_custom_op(
    tx: Frame, self: VariableTracker, *args: VariableTracker, **kwargs: VariableTracker
) -> VariableTracker:
    """An object that `torch.library.custom_op` has made is itself no operator, but has one."""
    return tx.call(get_attr(tx, self, "_opoverload"), list(args), kwargs)


@builtin(CustomOpDef._qualname.fget)
def custom_op_name(tx: Frame, self: VariableTracker) -> VariableTracker:
    return get_attr(tx, get_attr(tx, self, "_opoverload"), "_name")
