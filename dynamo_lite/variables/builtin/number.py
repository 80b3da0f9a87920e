"""Numbers, None, Ellipsis and literals: the slots that every constant has, and those of numbers.

Input: `ConstantVariable`s. Output: their slots (registered on `ConstantVariable`), and the pure methods and functions
on numbers.
Invariant: an operation between constants is carried out by the real object; against any other operand a constant
declines (NotImplemented), so that the other operand's slot decides; those that would not decline break the graph.
Mirrors `Objects/longobject.c`, `floatobject.c`, `complexobject.c`, `boolobject.c`.
"""

from __future__ import annotations

import cmath
import math
import operator
import struct
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dynamo_lite.exc import unsupported
from dynamo_lite.isa.typeobject import qualname_of
from dynamo_lite.variables.protocol.abstract import BINARY_OPS, COMPARE_OPS, UNARY_OPS
from dynamo_lite.variables.protocol.base import VariableTracker
from dynamo_lite.variables.protocol.constant import ATOMIC_TYPES, NOT_IMPLEMENTED, ConstantVariable, constant_slot, fold
from dynamo_lite.variables.protocol.dispatch import HANDLERS, PURE, method, pure
from dynamo_lite.variables.protocol.native import atom_value, method_or_attribute
from dynamo_lite.variables.protocol.slots import SLOTDEFS

from .host_proxy import call_host

if TYPE_CHECKING:
    from dynamo_lite.interp.frame import Frame

# -- every constant

CONVERTING: list[type] = []
"""Classes of constants that don't decline: they make arrays of operands of any kind."""


def _declines(vt: ConstantVariable, other: VariableTracker) -> VariableTracker:
    """The answer of a constant to an operand that is none."""
    if issubclass(type(vt.value), tuple(CONVERTING)) and "proxy" not in other.__dict__:
        unsupported("numpy", f"{type(vt.value).__name__} and {other.python_type().__name__}")
    return NOT_IMPLEMENTED


def _binary(function: Callable[..., Any], dunder: str) -> Any:
    reflected = f"__r{dunder[2:]}"

    def slot(tx: Frame, v: VariableTracker, w: VariableTracker) -> VariableTracker:
        if isinstance(v, ConstantVariable) and isinstance(w, ConstantVariable):
            return fold(tx, function, [v, w], {})
        mine, other, name = (v, w, dunder) if isinstance(v, ConstantVariable) else (w, v, reflected)
        if isinstance(mine.value, str | bytes) and function in _OF_SEQUENCES:
            return NOT_IMPLEMENTED
        method = getattr(type(mine.value), name, None) if other.is_atom else None
        return _declines(mine, other) if method is None else call_host(tx, method, [mine, other])

    return staticmethod(slot)


_OF_SEQUENCES = (operator.add, operator.mul)
"""Texts have these in the slots of sequences."""


def _unary(function: Callable[..., Any]) -> Any:
    return lambda vt, tx: fold(tx, function, [vt], {})


_DUNDERS = {definition.slot: name for name, definition in SLOTDEFS.items() if definition.kind == "binary_l"}
for _function, _row in BINARY_OPS.items():
    if _row.inplace is None:
        constant_slot(_row.slot)(_binary(_function, _DUNDERS[_row.slot]))
for _function, (_slot, _) in UNARY_OPS.items():
    constant_slot(_slot)(_unary(_function))
LONG_TEXT = 5000
"""Longer texts of numbers are converted by the functions of `_pylong`, which a program may replace."""


def _text(function: Callable[..., Any]) -> Any:
    def slot(vt: ConstantVariable, tx: Frame) -> VariableTracker:
        if type(vt.value) is int and vt.value.bit_length() > 3 * LONG_TEXT:
            return unsupported("code-size", "the text of a number that Python code may convert")
        return fold(tx, function, [vt], {})

    return slot


constant_slot("tp_repr")(_text(repr))
constant_slot("tp_str")(_text(str))


@constant_slot("tp_hash")
def constant_hash(vt: ConstantVariable, tx: Frame) -> VariableTracker:
    if type(vt.value) in (float, complex):
        return float_hash(tx, vt)
    if not isinstance(vt.value, int):
        tx.tr.heap.bind_to_process(f"the hash of a {qualname_of(type(vt.value))}")
    return fold(tx, hash, [vt], {})


@method(float.__hash__, complex.__hash__)
def float_hash(tx: Frame, self: VariableTracker, /) -> VariableTracker:
    value = atom_value(self)
    return ConstantVariable(hash(value)) if value == value else unsupported("object-identity", "hash of a nan")


@constant_slot("tp_richcompare")
def constant_richcompare(vt: ConstantVariable, tx: Frame, other: VariableTracker, op: str) -> VariableTracker:
    if isinstance(other, ConstantVariable) or (type(vt.value) not in ATOMIC_TYPES and other.is_python_constant()):
        return fold(tx, COMPARE_OPS[op], [vt, other], {})
    if other.is_atom:
        return call_host(tx, getattr(type(vt.value), _COMPARE_NAMES[op]), [vt, other])
    return _declines(vt, other)


_COMPARE_NAMES = {definition.kind: name for name, definition in SLOTDEFS.items() if definition.slot == "tp_richcompare"}


@constant_slot("tp_getattro")
def constant_getattro(vt: ConstantVariable, tx: Frame, name: str) -> VariableTracker:
    return method_or_attribute(tx, vt, type(vt.value), name)


@constant_slot("tp_setattro")
def constant_setattro(vt: ConstantVariable, tx: Frame, name: str, value: VariableTracker | None) -> None:
    # Values of these types have no settable attribute, so the real operation fails with the right message.
    if type(vt.value) not in ATOMIC_TYPES:
        tx.raises(AttributeError, f"'{type(vt.value).__name__}' object has no attribute '{name}'")
    try:
        delattr(vt.value, name) if value is None else setattr(vt.value, name, None)
    except (AttributeError, TypeError) as error:
        tx.raises_like(error)


# -- numbers


@constant_slot("nb_index", int)
def int_index(vt: ConstantVariable, tx: Frame) -> VariableTracker:
    return vt


@constant_slot("nb_int", int, float)
def number_int(vt: ConstantVariable, tx: Frame) -> VariableTracker:
    return fold(tx, int, [vt], {})


@constant_slot("nb_float", int, float)
def number_float(vt: ConstantVariable, tx: Frame) -> VariableTracker:
    return fold(tx, float, [vt], {})


# -- functions without effects


_KINDS = (
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
    types.BuiltinFunctionType,
)
# What has effects, or gives a new object with a state.
_IMPURE = frozenset(
    "__init__ __new__ __call__ __enter__ __exit__ __iter__ __getattribute__ __setattr__ __delattr__ finditer scanner".split()
)


def pure_methods(*classes: type) -> None:
    """Declare the methods of these types pure, unless they have a handler."""
    for cls in classes:
        for name, raw in cls.__dict__.items():
            if issubclass(type(raw), staticmethod):
                raw = raw.__func__
            if isinstance(raw, _KINDS) and name not in _IMPURE and raw not in HANDLERS:
                PURE.add(raw)
                if type(raw) is types.ClassMethodDescriptorType:
                    PURE.add(getattr(cls, name))


pure_methods(int, float, complex, bool, *map(type, (None, NotImplemented, ...)))
for _module in (math, cmath):
    pure(*[_f for _f in vars(_module).values() if issubclass(type(_f), types.BuiltinFunctionType)])
pure(operator.index, struct.pack, struct.unpack, struct.unpack_from, struct.calcsize)
