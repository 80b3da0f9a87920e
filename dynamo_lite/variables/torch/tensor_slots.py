"""Special methods that a subclass of tensors defines.

Input: the model of a tensor of such a class. Output: the same object with slots that call these methods; the others stay those of tensors.
Invariant: a special method that no class of the program defines is torch's.
Mirrors `slot_nb_*` of `Objects/typeobject.c`.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch

from dynamo_lite.exc import unsupported
from dynamo_lite.guards import ir
from dynamo_lite.isa.typeobject import dict_of, mro_of, qualname_of
from dynamo_lite.variables.protocol.base import VariableTracker
from dynamo_lite.variables.protocol.descr import type_lookup
from dynamo_lite.variables.protocol.slot_functions import UserSlots
from dynamo_lite.variables.protocol.slots import SLOTDEFS

if TYPE_CHECKING:
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.interp.frame import Frame

TORCHS = frozenset({torch.Tensor, torch.nn.Parameter})
"""The classes that are torch's alone."""


def own_methods(cls: type) -> tuple[str, ...]:
    """The special methods that are the program's."""
    found: set[str] = set()
    for base in mro_of(cls):
        if base in TORCHS:
            break
        found.update(SLOTDEFS.keys() & dict_of(base).keys())
    return tuple(sorted(found))


def guard_slots(tr: Trace, cls: type) -> None:
    """A class of tensors comes in: guard that it defines the special methods that it does."""
    if cls not in TORCHS:
        tr.guard(tr.source(tr.constant_source(cls), ir.CALL, own_methods), ir.EQUALS, own_methods(cls))


def with_own_slots(vt: VariableTracker) -> Any:
    """The model of a tensor of a subclass, whose `cls` is known."""
    if vt.cls not in TORCHS:
        if type_lookup(vt.cls, "__getattribute__") is not object.__getattribute__:
            unsupported("tensor-subclass", f"{qualname_of(vt.cls)}.__getattribute__")
        own = own_methods(vt.cls)
        if own:
            vt.__class__ = _mixed(type(vt), own)
    return vt


@functools.cache
def _mixed(model: type[VariableTracker], own: tuple[str, ...]) -> type[VariableTracker]:
    slots: dict[str, Any] = {"torchs": model}
    for definition in map(SLOTDEFS.__getitem__, own):
        slot = definition.slot
        if definition.kind in ("binary_l", "binary_r") and not slot.startswith("nb_inplace"):
            left = next(d.dunder for d in SLOTDEFS.values() if d.slot == slot and d.kind == "binary_l")
            slots[slot] = staticmethod(_binary(model, slot, left))
        elif slot == "tp_richcompare":
            slots[slot] = _compare(model)
        elif slot in UserSlots.__dict__:
            slots[slot] = UserSlots.__dict__[slot]
    return type(f"{model.__name__}WithSlots", (model, UserSlots), slots)


def _binary(model: type[VariableTracker], slot: str, left: str) -> Any:
    """`SLOT1BINFULL`, for operands of which one may leave the method to torch."""
    right, ours = "__r" + left[2:], getattr(model, slot)

    def run(tx: Frame, v: VariableTracker, w: VariableTracker) -> VariableTracker:
        for operand, name in ((v, left), (w, right)):
            if isinstance(operand, UserSlots) and name in own_methods(operand.python_type()):
                return UserSlots.__dict__[slot].__get__(operand)(tx, v, w)
        return ours(tx, v, w)

    return run


def _compare(model: type[VariableTracker]) -> Any:
    names = {d.kind: d.dunder for d in SLOTDEFS.values() if d.slot == "tp_richcompare"}

    def tp_richcompare(self: Any, tx: Frame, other: VariableTracker, op: str) -> VariableTracker:
        if names[op] in own_methods(self.cls):
            return UserSlots.tp_richcompare.__get__(self)(tx, other, op)
        return model.tp_richcompare(self, tx, other, op)

    return tp_richcompare
