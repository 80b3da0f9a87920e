"""The one two-way table between special method names and type slots.

Input: a dunder name. Output: how to call the slot it wraps (`x.__add__(y)` on a native model), and the other way round, which dunders
make up a slot (a user class that defines `__add__` gets an `nb_add`).
Invariant: no other module spells a dunder that is an operator.
Mirrors `slotdefs` and the `wrap_*` and `slot_*` functions of `Objects/typeobject.c`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from dynamo_lite.exc import unsupported
from dynamo_lite.isa import c_facts

from .abstract import size_index
from .base import VariableTracker
from .constant import ConstantVariable, is_none

if TYPE_CHECKING:
    from dynamo_lite.interp.frame import Frame


class SlotDef(NamedTuple):
    """`dunder` is implemented by `slot`; `kind` names the calling convention (see `CONVENTIONS`)."""

    dunder: str
    slot: str
    kind: str


_BINARY = {
    "add": "nb_add",
    "sub": "nb_subtract",
    "mul": "nb_multiply",
    "mod": "nb_remainder",
    "divmod": "nb_divmod",
    "pow": "nb_power",
    "lshift": "nb_lshift",
    "rshift": "nb_rshift",
    "and": "nb_and",
    "xor": "nb_xor",
    "or": "nb_or",
    "floordiv": "nb_floor_divide",
    "truediv": "nb_true_divide",
    "matmul": "nb_matrix_multiply",
}
_UNARY = {
    "neg": "nb_negative",
    "pos": "nb_positive",
    "abs": "nb_absolute",
    "invert": "nb_invert",
    "index": "nb_index",
    "int": "nb_int",
    "float": "nb_float",
    "bool": "nb_bool",
    "iter": "tp_iter",
    "hash": "tp_hash",
    "repr": "tp_repr",
    "str": "tp_str",
}
_COMPARE = {"lt": "<", "le": "<=", "eq": "==", "ne": "!=", "gt": ">", "ge": ">="}

SLOTDEFS: dict[str, SlotDef] = {}


def _add(dunder: str, slot: str, kind: str) -> None:
    SLOTDEFS[dunder] = SlotDef(dunder, slot, kind)


for _name, _slot in _BINARY.items():
    _add(f"__{_name}__", _slot, "binary_l")
    _add(f"__r{_name}__", _slot, "binary_r")
    if _name != "divmod":
        _add(f"__i{_name}__", _slot.replace("nb_", "nb_inplace_"), "binary_l")
for _name, _slot in _UNARY.items():
    _add(f"__{_name}__", _slot, "unary")
for _name, _op in _COMPARE.items():
    _add(f"__{_name}__", "tp_richcompare", _op)
_add("__len__", "mp_length", "unary")
_add("__getitem__", "mp_subscript", "objarg")
_add("__setitem__", "mp_ass_subscript", "set")
_add("__delitem__", "mp_ass_subscript", "delete")
_add("__contains__", "sq_contains", "objarg")
_add("__next__", "tp_iternext", "next")
_add("__call__", "tp_call", "call")
_add("__get__", "tp_descr_get", "descr_get")
_add("__set__", "tp_descr_set", "set")
_add("__delete__", "tp_descr_set", "delete")

# Sequence types wrap these instead; tried when the slot above is NULL.
SEQUENCE_ALTERNATIVES = {
    "nb_add": "sq_concat",
    "nb_multiply": "sq_repeat",
    "nb_inplace_add": "sq_inplace_concat",
    "nb_inplace_multiply": "sq_inplace_repeat",
    "mp_length": "sq_length",
    "mp_subscript": "sq_item",
    "mp_ass_subscript": "sq_ass_item",
}

NONE = ConstantVariable(None)


# Each calls a slot, bound to its object, as the wrapper descriptor of one convention does.


def _unary(tx: Frame, slot: Any) -> VariableTracker:
    return slot(tx)


def _next(tx: Frame, slot: Any) -> VariableTracker:
    item = slot(tx)
    return item if item is not None else tx.raises(StopIteration)


def _objarg(tx: Frame, slot: Any, arg: VariableTracker) -> VariableTracker:
    return slot(tx, arg)


def _set(tx: Frame, slot: Any, key: VariableTracker, value: VariableTracker) -> VariableTracker:
    slot(tx, key, value)
    return NONE


def _delete(tx: Frame, slot: Any, key: VariableTracker) -> VariableTracker:
    slot(tx, key, None)
    return NONE


def _descr_get(tx: Frame, slot: Any, obj: VariableTracker, cls: VariableTracker = NONE) -> VariableTracker:
    instance = None if is_none(obj) else obj
    if instance is None and is_none(cls):
        return tx.raises(TypeError, "__get__(None, None) is invalid")
    return slot(tx, instance, cls)


def _compare(op: str) -> Any:
    return lambda tx, slot, other: slot(tx, other, op)


class Convention(NamedTuple):
    """`arguments`: their number beside self, None if the wrapper counts them itself."""

    arguments: int | None
    wrapper: Callable[..., VariableTracker]


CONVENTIONS = {
    "unary": Convention(0, _unary),
    "next": Convention(0, _next),
    "objarg": Convention(1, _objarg),
    "binary_l": Convention(1, _objarg),
    "binary_r": Convention(1, _objarg),
    "set": Convention(2, _set),
    "delete": Convention(1, _delete),
    "descr_get": Convention(None, _descr_get),
    **{op: Convention(1, _compare(op)) for op in _COMPARE.values()},
}
NUMBER_CONVENTIONS = {"binary_l": lambda v, w: (v, w), "binary_r": lambda v, w: (w, v)}
"""The slots of numbers are functions of both operands: in which order."""


def call_slot(
    tx: Frame,
    definition: SlotDef,
    owner: type,
    self: VariableTracker,
    args: list[VariableTracker],
    kwargs: dict[str, Any],
) -> VariableTracker:
    """Call the slot of `self` that `owner` (a tracker class) implements, as the wrapper descriptor of `definition` would.

    `owner` is named so that `dict.__getitem__(d, k)` reaches the native slot even where `d`'s own class overrides it.
    Raises TypeError in the traced program if the arguments don't fit.
    """
    kind = definition.kind
    function, is_position = getattr(owner, definition.slot, None), False
    order = NUMBER_CONVENTIONS.get(kind) if function is not None and definition.slot.startswith("nb_") else None
    if function is None:
        slot = SEQUENCE_ALTERNATIVES.get(definition.slot, definition.slot)
        function, is_position = getattr(owner, slot, None), slot in _OF_POSITIONS
    if function is None:  # the real type has it, the model does not
        unsupported("call-c-function", f"{self.python_type().__qualname__}.{definition.dunder}")
    if kind == "call":
        return function(self, tx, args, kwargs)
    check_arguments(tx, definition, args, kwargs)
    if is_position:
        args = [size_index(tx, args[0], OverflowError), *args[1:]]
    wrapper = CONVENTIONS[kind].wrapper
    return wrapper(tx, function.__get__(self), *args) if order is None else function(tx, *order(self, args[0]))


def check_arguments(tx: Frame, definition: SlotDef, args: Sequence[VariableTracker], kwargs: Mapping[str, Any]) -> None:
    """What wrapper descriptors say of arguments of the wrong number (`check_num_args`, for setters `PyArg_UnpackTuple`)."""
    if kwargs:
        tx.raises(TypeError, f"wrapper {definition.dunder}() takes no keyword arguments")
    expected = CONVENTIONS[definition.kind].arguments
    if expected is not None and len(args) != expected:
        text = c_facts.SETTER_EXPECTED.format(dunder=definition.dunder) if definition.kind == "set" else "expected"
        tx.raises(TypeError, f"{text} {expected} argument{'s' * (expected != 1)}, got {len(args)}")


_OF_POSITIONS = frozenset({"sq_item", "sq_ass_item"})
COMPARISONS = frozenset(_COMPARE.values())
