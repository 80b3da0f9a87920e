"""Enum members: singletons known by identity.

Input: a real member. Output: `EnumVariable`, a constant that is used by the methods of its class.
Invariant: operators, truth and comparison of members are methods written in Python: they are followed, since a Flag notes new members.
Mirrors `Lib/enum.py`.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from dynamo_lite.guards import ir
from dynamo_lite.isa.typeobject import qualname_of
from dynamo_lite.variables.protocol.base import VariableTracker
from dynamo_lite.variables.protocol.constant import ConstantVariable
from dynamo_lite.variables.protocol.descr import type_lookup
from dynamo_lite.variables.protocol.wrap import builds_if

from .instance import InstanceVariable

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.guards.ir import GuardNode
    from dynamo_lite.interp.frame import Frame

_SHORT = {enum.Enum.__dict__["name"]: "_name_", enum.Enum.__dict__["value"]: "_value_"}
"""Properties of Enum → the attribute that each returns for a member."""


class EnumVariable(InstanceVariable, ConstantVariable):
    """A member of an Enum class."""

    folds = False

    def __init__(self, value: enum.Enum, source: GuardNode | None) -> None:
        super().__init__(type(value), value, source)

    def describe(self) -> str:
        return f"{qualname_of(self.cls)}.{self.value._name_}"

    def tp_getattro(self, tx: Frame, name: str) -> VariableTracker:
        short = _SHORT.get(type_lookup(self.cls, name)) if name in ("name", "value") else None
        return super().tp_getattro(tx, name if short is None else short)

    def emit_new(self, cg: Codegen) -> None:
        cg.load_const(self.value)


@builds_if(lambda value: issubclass(type(value), enum.Enum))
def build_enum(tr: Trace, value: enum.Enum, source: GuardNode | None) -> EnumVariable:
    tr.guard(source, ir.IS, value)
    return EnumVariable(value, source)
