"""The generic object algorithms: what an operation means for any two objects.

Input: trackers. Output: a tracker, or `ObservedException` for what CPython would raise, with its message.
Invariant: no builtin type is named here except where `abstract.c` names it; everything goes through slots.
Mirrors `Objects/abstract.c` (operators, subscripts, iteration, length), `Objects/object.c` (comparison, truth, attributes).
"""

from __future__ import annotations

import operator
import sys
import warnings
from collections.abc import Callable, Iterator
from types import FunctionType, NoneType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from dynamo_lite.exc import unsupported
from dynamo_lite.guards import ir
from dynamo_lite.isa import c_facts
from dynamo_lite.isa.typeobject import (
    can_change,
    dict_of,
    full_name,
    has_sequence_slots,
    is_heap_type,
    lookup,
    module_of,
    mro_of,
    name_of,
    qualname_of,
    tp_name,
)

from .base import MISSING, ObservedException, VariableTracker, running
from .constant import ATOMIC_TYPES, NOT_IMPLEMENTED, ConstantVariable, boolean, fold

if TYPE_CHECKING:
    from dynamo_lite.interp.frame import Frame


class BinaryOp(NamedTuple):
    """One row of the operator table: the number slot, its in-place slot, the symbol for messages, sequence fall-backs."""

    slot: str
    inplace: str | None
    symbol: str
    sequence: str | None = None


BINARY_OPS: dict[Callable[..., Any], BinaryOp] = {
    operator.add: BinaryOp("nb_add", None, "+", "sq_concat"),
    operator.sub: BinaryOp("nb_subtract", None, "-"),
    operator.mul: BinaryOp("nb_multiply", None, "*", "sq_repeat"),
    operator.mod: BinaryOp("nb_remainder", None, "%"),
    divmod: BinaryOp("nb_divmod", None, "divmod()"),
    operator.pow: BinaryOp("nb_power", None, "** or pow()"),
    operator.lshift: BinaryOp("nb_lshift", None, "<<"),
    operator.rshift: BinaryOp("nb_rshift", None, ">>"),
    operator.and_: BinaryOp("nb_and", None, "&"),
    operator.xor: BinaryOp("nb_xor", None, "^"),
    operator.or_: BinaryOp("nb_or", None, "|"),
    operator.floordiv: BinaryOp("nb_floor_divide", None, "//"),
    operator.truediv: BinaryOp("nb_true_divide", None, "/"),
    operator.matmul: BinaryOp("nb_matrix_multiply", None, "@"),
    operator.iadd: BinaryOp("nb_add", "nb_inplace_add", "+=", "sq_inplace_concat"),
    operator.isub: BinaryOp("nb_subtract", "nb_inplace_subtract", "-="),
    operator.imul: BinaryOp("nb_multiply", "nb_inplace_multiply", "*=", "sq_inplace_repeat"),
    operator.imod: BinaryOp("nb_remainder", "nb_inplace_remainder", "%="),
    operator.ipow: BinaryOp("nb_power", "nb_inplace_power", "**="),
    operator.ilshift: BinaryOp("nb_lshift", "nb_inplace_lshift", "<<="),
    operator.irshift: BinaryOp("nb_rshift", "nb_inplace_rshift", ">>="),
    operator.iand: BinaryOp("nb_and", "nb_inplace_and", "&="),
    operator.ixor: BinaryOp("nb_xor", "nb_inplace_xor", "^="),
    operator.ior: BinaryOp("nb_or", "nb_inplace_or", "|="),
    operator.ifloordiv: BinaryOp("nb_floor_divide", "nb_inplace_floor_divide", "//="),
    operator.itruediv: BinaryOp("nb_true_divide", "nb_inplace_true_divide", "/="),
    operator.imatmul: BinaryOp("nb_matrix_multiply", "nb_inplace_matrix_multiply", "@="),
}

UNARY_OPS: dict[Callable[..., Any], tuple[str, str]] = {
    operator.neg: ("nb_negative", "unary -"),
    operator.pos: ("nb_positive", "unary +"),
    operator.invert: ("nb_invert", "unary ~"),
    abs: ("nb_absolute", "abs()"),
}

SWAPPED_COMPARE = {"<": ">", "<=": ">=", "==": "==", "!=": "!=", ">": "<", ">=": "<="}
COMPARE_OPS: dict[str, Callable[..., Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    ">=": operator.ge,
}


def is_not_implemented(v: VariableTracker) -> bool:
    """True for the constant NotImplemented, by which a slot declines."""
    return v.value is NotImplemented


def type_name(v: VariableTracker) -> str:
    """`Py_TYPE(v)->tp_name`, as error messages print it. Only for the message of an exception that is raised next: the name is guarded
    once the program can see that exception."""
    cls = v.python_type()
    message_name(cls)
    return tp_name(cls)


def said(text: str, cls: type, **fields: object) -> str:
    """One of the `isa.c_facts` about an instance of the class, for the same use."""
    if "{full_name}" in text:
        name = class_path(cls) if can_change(cls) else full_name(cls)
        return text.format(full_name=name.removeprefix("__main__."), **fields)
    message_name(cls)
    return text.format(name=tp_name(cls), **fields)


def bad_argument(tx: Frame, function: str, argument: str, expected: str, v: VariableTracker) -> NoReturn:
    """`_PyArg_BadArgument`"""
    found = "None" if v.python_type() is NoneType else type_name(v)
    tx.raises(TypeError, f"{function}() {argument} must be {expected}, not {found}")


def message_name(cls: type) -> str:
    """The `__name__` of a class, for the same use."""
    if running.trace is not None and can_change(cls):
        running.trace.classes.named.append(cls)
    return name_of(cls)


def class_name(cls: type) -> str:
    """The `__name__` of a class, guarded: for a text that the program gets."""
    return guarded_name(cls, name_of)


def class_path(cls: type) -> str:
    """The module and the `__qualname__` of a class, guarded."""
    return f"{guarded_name(cls, module_of)}.{guarded_name(cls, qualname_of)}"


def guarded_name(cls: type, read: Callable[[type], Any]) -> Any:
    """One of the names of a class. An assignment to a name does not change the version of the class: a guard reads it at each call."""
    tr, name = running.trace, read(cls)
    if tr is not None and can_change(cls):
        # A metaclass may compute the attribute; without one, C reads it.
        path = (ir.ATTR, _ATTRIBUTES[read]) if type(cls) is type else (ir.CALL, read)
        tr.guard(tr.source(tr.constant_source(cls), *path), ir.EQUALS if type(name) is str else ir.IS, name)
    return name


_ATTRIBUTES: dict[Callable[[type], Any], str] = {
    name_of: "__name__",
    qualname_of: "__qualname__",
    module_of: "__module__",
}


# -- base classes


def known_mro(tx: Frame, cls: type) -> tuple[type, ...] | None:
    """`tp_mro`; a class of the program is to have the same at the next call. None while the class is being made."""
    mro = mro_of(cls)
    if mro is not None and can_change(cls):
        tx.tr.guards.same_mro(cls)
    return mro


def is_subtype(tx: Frame, cls: type, base: type) -> bool:
    """`PyType_IsSubtype`, which asks no metaclass."""
    if cls is base or base is object:
        return True
    mro = known_mro(tx, cls)
    if mro is None:
        return cls.__base__ is not None and is_subtype(tx, cls.__base__, base)
    return any(c is base for c in mro)


def _atomic(v: VariableTracker) -> bool:
    return isinstance(v, ConstantVariable) and type(v.value) in ATOMIC_TYPES


# -- operators


def binary_op(tx: Frame, fn: Callable[..., Any], v: VariableTracker, w: VariableTracker) -> VariableTracker:
    """`PyNumber_Add` and its kin, in-place forms included; `fn` is the function of the `operator` module (or `divmod`)."""
    if _atomic(v) and _atomic(w):
        return fold(tx, fn, [v, w], {})
    row = BINARY_OPS[fn]
    if row.inplace is not None:
        slot = getattr(v, row.inplace)
        if slot is not None:
            result = slot(tx, v, w)
            if not is_not_implemented(result):
                return result
        elif isinstance(v, ConstantVariable) and isinstance(w, ConstantVariable):
            return fold(tx, fn, [v, w], {})
    result = _binary_op1(tx, row.slot, v, w)
    if not is_not_implemented(result):
        return result
    if row.sequence is not None:
        result = _sequence_op(tx, row, v, w)
        if result is not None:
            return result
    return tx.raises(
        TypeError,
        f"unsupported operand type(s) for {row.symbol}: '{type_name(v)}' and '{type_name(w)}'",
    )


def _binary_op1(tx: Frame, slot: str, v: VariableTracker, w: VariableTracker) -> VariableTracker:
    """`binary_op1` of abstract.c: the right operand's slot first if its type is a proper subclass of the left one's."""
    slot_v = getattr(v, slot)
    slot_w = getattr(w, slot)
    if v.type_varies | w.type_varies:  # both: a lazy value becomes what it is
        return (slot_v if v.type_varies else slot_w)(tx, v, w)
    if slot_w is not None and v.python_type() is w.python_type():
        slot_w = None if slot_v is not None else slot_w
    if slot_v is not None:
        if slot_w is not None and is_subtype(tx, w.python_type(), v.python_type()):
            result = slot_w(tx, v, w)
            if not is_not_implemented(result):
                return result
            slot_w = None
        result = slot_v(tx, v, w)
        if not is_not_implemented(result):
            return result
    if slot_w is not None:
        return slot_w(tx, v, w)
    return ConstantVariable(NotImplemented)


def _sequence_op(tx: Frame, row: BinaryOp, v: VariableTracker, w: VariableTracker) -> VariableTracker | None:
    """The sequence half of `PyNumber_Add`, `PyNumber_Multiply` and their in-place forms."""
    if row.slot == "nb_add":
        slot = (getattr(v, row.sequence) if row.inplace else None) or v.sq_concat
        return slot(tx, w) if slot is not None else None
    slot = (getattr(v, row.sequence) if row.inplace else None) or v.sq_repeat
    if slot is not None:
        return slot(tx, _repeat_count(tx, w))
    if w.sq_repeat is not None and not (row.inplace and has_sequence_slots(v.python_type())):
        return w.sq_repeat(tx, _repeat_count(tx, v))
    return None


def concat(tx: Frame, v: VariableTracker, w: VariableTracker, inplace: bool = False) -> VariableTracker:
    """`PySequence_Concat`, `PySequence_InPlaceConcat`: the slots of sequences alone, those of numbers only if neither has them."""
    slot = (v.sq_inplace_concat if inplace else None) or v.sq_concat
    if slot is not None:
        return slot(tx, w)
    result = NOT_IMPLEMENTED
    if _is_sequence(v.python_type()) and _is_sequence(w.python_type()):
        if inplace and v.nb_inplace_add is not None:
            result = v.nb_inplace_add(tx, v, w)
        if is_not_implemented(result):
            result = _binary_op1(tx, "nb_add", v, w)
    if is_not_implemented(result):
        return tx.raises(TypeError, f"'{type_name(v)}' object can't be concatenated")
    return result


def _is_sequence(cls: type) -> bool:
    """`PySequence_Check`"""
    return any("__getitem__" in dict_of(base) for base in mro_of(cls)) and not issubclass(cls, dict)


def _repeat_count(tx: Frame, n: VariableTracker) -> VariableTracker:
    if n.nb_index is None:
        return tx.raises(TypeError, f"can't multiply sequence by non-int of type '{type_name(n)}'")
    return size_index(tx, n, OverflowError)


def _invert_of_bool_warns() -> bool:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        operator.invert(True)
    return bool(caught)


INVERT_OF_BOOL_WARNS = _invert_of_bool_warns()


def unary_op(tx: Frame, fn: Callable[..., Any], v: VariableTracker) -> VariableTracker:
    """`PyNumber_Negative` and its kin."""
    if _atomic(v):
        if fn is operator.invert and INVERT_OF_BOOL_WARNS and v.value.__class__ is bool:
            unsupported("call-print", "the warning that a bool is inverted")
        return fold(tx, fn, [v], {})
    slot_name, symbol = UNARY_OPS[fn]
    slot = getattr(v, slot_name)
    if slot is None:
        return tx.raises(TypeError, f"bad operand type for {symbol}: '{type_name(v)}'")
    return slot(tx)


def richcompare(tx: Frame, v: VariableTracker, w: VariableTracker, op: str) -> VariableTracker:
    """`PyObject_RichCompare`: subclass-first reflected rule, identity as the last resort for == and !=."""
    if _atomic(v) and _atomic(w):
        return fold(tx, COMPARE_OPS[op], [v, w], {})
    if v.type_varies | w.type_varies:  # both: a lazy value becomes what it is
        return v.tp_richcompare(tx, w, op) if v.type_varies else w.tp_richcompare(tx, v, SWAPPED_COMPARE[op])
    tried_reflected = False
    type_v, type_w = v.python_type(), w.python_type()
    if type_v is not type_w and w.tp_richcompare is not None and is_subtype(tx, type_w, type_v):
        tried_reflected = True
        result = w.tp_richcompare(tx, v, SWAPPED_COMPARE[op])
        if not is_not_implemented(result):
            return result
    if v.tp_richcompare is not None:
        result = v.tp_richcompare(tx, w, op)
        if not is_not_implemented(result):
            return result
    if not tried_reflected and w.tp_richcompare is not None:
        result = w.tp_richcompare(tx, v, SWAPPED_COMPARE[op])
        if not is_not_implemented(result):
            return result
    if op == "==":
        return is_same(tx, v, w)
    if op == "!=":
        return ConstantVariable(not is_same(tx, v, w).value)
    return tx.raises(TypeError, f"'{op}' not supported between instances of '{type_name(v)}' and '{type_name(w)}'")


def is_same(tx: Frame, v: VariableTracker, w: VariableTracker) -> VariableTracker:
    """`v is w`. One object has one tracker, so identity of trackers is identity of objects, constants aside."""
    return ConstantVariable(tx.tr.heap.same_object(v, w))


def equal(tx: Frame, v: VariableTracker, w: VariableTracker) -> bool:
    """`PyObject_RichCompareBool(v, w, Py_EQ)`: identity implies equality."""
    if not v.is_symbolic and not w.is_symbolic:
        if _is_nan(v) and _is_nan(w):
            return tx.tr.heap.identical(v, w)
        if tx.tr.heap.same_object(v, w):
            return True
    return is_true(tx, richcompare(tx, v, w, "=="))


def _is_nan(v: VariableTracker) -> bool:
    return isinstance(v, ConstantVariable) and type(v.value) is float and v.value != v.value


# -- truth, length, membership


def is_true(tx: Frame, v: VariableTracker) -> bool:
    """`PyObject_IsTrue`. Raises `Unsupported` if the truth is known only at run time."""
    if v.folds:
        if v.value is NotImplemented:
            unsupported("call-print", "the warning that NotImplemented is used as a truth value")
        return bool(v.value)
    if v.nb_bool is not None:
        result = v.nb_bool(tx)
        if (
            not v.type_varies
            and issubclass(getattr(v.python_type(), "__bool__", None).__class__, FunctionType)
            and result.python_type() is not bool
        ):
            tx.raises(TypeError, f"__bool__ should return bool, returned {type_name(result)}")
        if not isinstance(result, ConstantVariable):
            unsupported("data-dependent-branch", v.describe())
        return bool(result.value)
    if v.mp_length is not None or v.sq_length is not None:
        return is_true(tx, length(tx, v))
    return True


def truth(tx: Frame, v: VariableTracker) -> VariableTracker:
    """`bool(v)`: the answer of `is_true`, or a bool of the graph that only data decide."""
    late = None if v.late_truth is None else v.late_truth(tx)
    return boolean(is_true(tx, v)) if late is None else late


def length(tx: Frame, v: VariableTracker) -> VariableTracker:
    """`PyObject_Size`."""
    if v.folds:
        return fold(tx, len, [v], {})
    slot = v.sq_length or v.mp_length
    if slot is None:
        return tx.raises(TypeError, f"object of type '{type_name(v)}' has no len()")
    n = slot(tx)
    return n if n.value is MISSING else _checked_length(tx, n)


def too_many_values(tx: Frame, v: VariableTracker, wanted: int) -> NoReturn:
    """An object has more items than there are variables to unpack it to."""
    if v.python_type() in (list, tuple, dict):  # whose length C knows
        tx.raises(ValueError, c_facts.TOO_MANY_VALUES.format(wanted=wanted, there=length(tx, v).value))
    tx.raises(ValueError, c_facts.TOO_MANY_ITEMS.format(wanted=wanted))


def _checked_length(tx: Frame, n: VariableTracker) -> VariableTracker:
    """The length that `slot_sq_length` makes of the result of a `__len__`."""
    n = index(tx, n)
    if n.value < 0:
        return tx.raises(ValueError, "__len__() should return >= 0")
    if n.value > sys.maxsize:
        return tx.raises(OverflowError, "cannot fit 'int' into an index-sized integer")
    return n


def contains(tx: Frame, container: VariableTracker, item: VariableTracker) -> VariableTracker:
    """`PySequence_Contains`; falls back to iteration."""
    if _atomic(container) and _atomic(item):
        return fold(tx, operator.contains, [container, item], {})
    if container.sq_contains is not None:
        return container.sq_contains(tx, item)
    iterator = get_iter_or_say(tx, container, lambda: said(c_facts.NOT_A_CONTAINER, container.python_type()))
    while (candidate := iter_next(tx, iterator)) is not None:
        if equal(tx, candidate, item):
            return ConstantVariable(True)
    return ConstantVariable(False)


# -- subscripts


def get_item(tx: Frame, obj: VariableTracker, key: VariableTracker) -> VariableTracker:
    """`PyObject_GetItem`: mapping slot, sequence slot, `__class_getitem__` of a class."""
    if _atomic(obj) and key.is_python_constant():
        return fold(tx, operator.getitem, [obj, key], {})
    if obj.mp_subscript is not None:
        return obj.mp_subscript(tx, key)
    if obj.sq_item is not None:
        if key.nb_index is None:
            return tx.raises(TypeError, f"sequence index must be integer, not '{type_name(key)}'")
        return obj.sq_item(tx, size_index(tx, key, IndexError))
    return tx.raises(TypeError, f"'{type_name(obj)}' object is not subscriptable")


def set_item(tx: Frame, obj: VariableTracker, key: VariableTracker, value: VariableTracker | None) -> None:
    """`PyObject_SetItem`; `PyObject_DelItem` when `value` is None."""
    if obj.mp_ass_subscript is not None:
        obj.mp_ass_subscript(tx, key, value)
    elif obj.sq_ass_item is not None:
        if key.nb_index is None:
            tx.raises(TypeError, f"sequence index must be integer, not '{type_name(key)}'")
        obj.sq_ass_item(tx, size_index(tx, key, IndexError), value)
    else:
        # `PySequence_DelItem` has other words than `PyObject_DelItem`.
        cls, verb = obj.python_type(), "deletion" if value is None else "assignment"
        is_sequence = is_heap_type(cls) or any(lookup(cls, name) is not None for name in ("__len__", "__contains__"))
        does_not = "doesn't" if value is None and is_sequence and key.nb_index is not None else "does not"
        tx.raises(TypeError, f"'{type_name(obj)}' object {does_not} support item {verb}")


def is_number(v: VariableTracker) -> bool:
    """`PyNumber_Check`."""
    number = v.nb_index is not None or v.nb_int is not None or v.nb_float is not None
    return number or issubclass(v.python_type(), complex)


def index(tx: Frame, v: VariableTracker) -> VariableTracker:
    """`PyNumber_Index`."""
    if isinstance(v, ConstantVariable) and isinstance(v.value, int):
        return v if type(v.value) is int else ConstantVariable(int.__index__(v.value))
    if v.is_atom and issubclass(v.python_type(), int):
        return ConstantVariable(v.atom)
    if v.nb_index is None:
        return tx.raises(TypeError, f"'{type_name(v)}' object cannot be interpreted as an integer")
    result = v.nb_index(tx)
    if isinstance(result, ConstantVariable) and not isinstance(result.value, int):
        return tx.raises(TypeError, f"__index__ returned non-int (type {type_name(result)})")
    return result


def size_index(tx: Frame, v: VariableTracker, error: type[Exception]) -> VariableTracker:
    """`PyNumber_AsSsize_t`, with an error of this class for an int that has not the size of a pointer."""
    n = index(tx, v)
    if isinstance(n, ConstantVariable) and not -sys.maxsize - 1 <= n.value <= sys.maxsize:
        return tx.raises(error, f"cannot fit '{type_name(v)}' into an index-sized integer")
    return n


# -- iteration


def get_iter(tx: Frame, v: VariableTracker) -> VariableTracker:
    """`PyObject_GetIter`."""
    if v.tp_iter is not None:
        iterator = v.tp_iter(tx)
        if iterator.tp_iternext is None:
            return tx.raises(TypeError, f"iter() returned non-iterator of type '{type_name(iterator)}'")
        return iterator
    if v.sq_item is not None and not any("__iter__" in dict_of(base) for base in mro_of(v.python_type())):
        return tx.tr.sequence_iterator(v)
    return tx.raises(TypeError, f"'{type_name(v)}' object is not iterable")


def get_iter_or_say(tx: Frame, v: VariableTracker, message: Callable[[], str]) -> VariableTracker:
    """`PyObject_GetIter`, where C replaces a TypeError, whoever raised it, by one with this message."""
    try:
        return get_iter(tx, v)
    except ObservedException as observed:
        if not issubclass(observed.exc.python_type(), TypeError):
            raise
    return tx.raises(TypeError, message())


def iter_next(tx: Frame, iterator: VariableTracker) -> VariableTracker | None:
    """`PyIter_Next`: the next item, or None at the end (StopIteration swallowed)."""
    step = iterator.tp_iternext
    budget = tx.tr.budget
    budget.items += 1
    if budget.items > budget.max_items:
        budget.too_many_items()
    if step is None:  # `__next__` was deleted since
        return tx.raises(TypeError, f"'{type_name(iterator)}' object is not an iterator")
    try:
        return step(tx)
    except ObservedException as observed:
        if issubclass(observed.exc.python_type(), StopIteration):
            return None
        raise


def hint_length(tx: Frame, v: VariableTracker) -> VariableTracker | None:
    """`PyObject_LengthHint` of an object of a user class, whose methods may do something; None where neither of the two gives a number."""
    if not v.is_user_made:
        return None
    try:
        if v.mp_length is not None:
            return length(tx, v)
        method = tx.tr.lookup_special(tx, v, "__length_hint__")
        hint = tx.call(method, []) if method is not None else ConstantVariable(NotImplemented)
    except ObservedException as observed:
        if not issubclass(observed.exc.python_type(), TypeError):
            raise
        return None
    if is_not_implemented(hint):
        return None
    if not issubclass(hint.python_type(), int):
        tx.raises(TypeError, f"__length_hint__ must be an integer, not {type_name(hint)}")
    if isinstance(hint, ConstantVariable) and hint.value < 0:
        tx.raises(ValueError, "__length_hint__() should return >= 0")
    return hint


def unpack(tx: Frame, v: VariableTracker) -> list[VariableTracker]:
    """All items of an iterable, as `list(v)` would see them."""
    iterator = get_iter(tx, v)
    hint_length(tx, v)
    return list(rest(tx, iterator))


def unpack_to_tuple(tx: Frame, v: VariableTracker) -> list[VariableTracker]:
    """The same, as `PySequence_Tuple` sees them."""
    return unpack(tx, v) if c_facts.TUPLE_ASKS_FOR_LENGTH else list(iterated(tx, v))


def iterated(tx: Frame, v: VariableTracker) -> Iterator[VariableTracker]:
    """The items of an iterable one by one, as a `for` statement sees them: nobody is asked for a length."""
    return rest(tx, get_iter(tx, v))


def rest(tx: Frame, iterator: VariableTracker) -> Iterator[VariableTracker]:
    """The items that are left."""
    while (item := iter_next(tx, iterator)) is not None:
        yield item


# -- attributes, calls


def get_attr(tx: Frame, obj: VariableTracker, name: str) -> VariableTracker:
    """`PyObject_GetAttr`."""
    try:
        return obj.tp_getattro(tx, name)
    except ObservedException as observed:
        name_missing_attribute(tx, obj, name, observed.exc)
        raise


def name_missing_attribute(tx: Frame, obj: VariableTracker, name: str, exc: VariableTracker) -> None:
    """`set_attribute_error_context`: an AttributeError that does not say which attribute of what is missing."""
    if not issubclass(exc.python_type(), AttributeError):
        return
    if exc.get(tx, "name").value is None and exc.get(tx, "obj").value is None:
        exc.put(tx, "name", ConstantVariable(name))
        exc.put(tx, "obj", obj)


def set_attr(tx: Frame, obj: VariableTracker, name: str, value: VariableTracker | None) -> None:
    """`PyObject_SetAttr`; deletes when `value` is None."""
    if obj.tp_setattro is None:
        tx.raises(AttributeError, f"'{type_name(obj)}' object has no attribute '{name}'")
    obj.tp_setattro(tx, name, value)


def call(
    tx: Frame, fn: VariableTracker, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
) -> VariableTracker:
    """`PyObject_Call`."""
    if fn.tp_call is None:
        return tx.raises(TypeError, f"'{type_name(fn)}' object is not callable")
    return fn.tp_call(tx, args, kwargs)
