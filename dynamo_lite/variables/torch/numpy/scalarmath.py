"""Numpy's scalars that are computed from numbers which vary from call to call: `np.prod(x.shape)`, `np.sqrt(x.shape[-1])`.

Input: a call of numpy, or an operator, on symbolic numbers, constants and such scalars. Output: `ScalarVariable`s, constants.
Invariant: numpy itself computes each float, of the numbers of the call at hand; of ints only sums, differences and products are symbolic,
where numpy's int64 is Python's int. Every other use of a scalar makes it a constant.
Mirrors `numpy/_core/src/umath/scalarmath.c.src`.
"""

from __future__ import annotations

import functools
import operator
import sys
import types
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch

from dynamo_lite.exc import NotConstant, unsupported
from dynamo_lite.graph.core import functional
from dynamo_lite.graph.core.arguments import Packing, packs
from dynamo_lite.graph.core.varying_floats import present
from dynamo_lite.variables.builtin.list import ListVariable
from dynamo_lite.variables.builtin.tuple import TupleVariable
from dynamo_lite.variables.objects.function import MethodVariable
from dynamo_lite.variables.protocol.abstract import BINARY_OPS, COMPARE_OPS, UNARY_OPS, get_attr, is_true, richcompare
from dynamo_lite.variables.protocol.base import MISSING, VariableTracker
from dynamo_lite.variables.protocol.constant import ATOMIC_TYPES, NOT_IMPLEMENTED, ConstantVariable, fold, is_constant
from dynamo_lite.variables.protocol.dispatch import CONSTRUCTORS
from dynamo_lite.variables.torch.symnode import (
    SPECIALIZED,
    SymNodeVariable,
    apply_number_function,
    of_floats,
    operand_of,
    specialized,
    with_present_numbers,
)

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.guards.ir import GuardNode
    from dynamo_lite.interp.frame import Frame

numpy: Any = sys.modules.get("numpy")


class ScalarVariable(VariableTracker):
    """A float of numpy's. `number` is the Python number that it is."""

    def __init__(
        self, cls: type, number: VariableTracker, value: Any = MISSING, source: GuardNode | None = None
    ) -> None:
        self.cls = cls
        self.number = number
        self.source = source
        self.value = value

    def python_type(self) -> type:
        return self.cls

    def children(self) -> Any:
        return (self.number,)

    def as_python_constant(self) -> Any:
        """The scalar that it is now; the guards will hold it to that."""
        return self.cls(self.number.as_python_constant())

    def constant(self) -> ConstantVariable:
        """The scalar that it is now as a constant, guarded."""
        return ConstantVariable(self.as_python_constant())

    def describe(self) -> str:
        return f"{self.cls.__name__} {self.number.describe()}"

    # -- slots

    def nb_bool(self, tx: Frame) -> VariableTracker:
        return self.number.nb_bool(tx)

    def nb_int(self, tx: Frame) -> VariableTracker:
        return self.number.nb_int(tx)

    def nb_float(self, tx: Frame) -> VariableTracker:
        return self.number.nb_float(tx)

    def tp_hash(self, tx: Frame) -> VariableTracker:
        return self.constant().tp_hash(tx)

    def tp_repr(self, tx: Frame) -> VariableTracker:
        return self.constant().tp_repr(tx)

    def tp_str(self, tx: Frame) -> VariableTracker:
        return self.constant().tp_str(tx)

    def tp_richcompare(self, tx: Frame, other: VariableTracker, op: str) -> VariableTracker:
        found = _operate(tx, COMPARE_OPS[op], self, other)
        if found is not None:
            return found
        # A tensor or an array has its own way; of a list numpy makes an array.
        return NOT_IMPLEMENTED if "proxy" in other.__dict__ else self.constant().tp_richcompare(tx, other, op)

    def mp_subscript(self, tx: Frame, key: VariableTracker) -> VariableTracker:
        return unsupported("numpy", f"item of a {self.cls.__name__}")

    def tp_getattro(self, tx: Frame, name: str) -> VariableTracker:
        raw = getattr(self.cls, name, None)
        if isinstance(raw, types.MethodDescriptorType) and raw in METHODS:
            return MethodVariable(tx.tr.build_constant_object(raw), self)
        known = self.cls(0) if name in _OF_ALL else self.as_python_constant()
        return ConstantVariable(known).tp_getattro(tx, name)

    def emit_new(self, cg: Codegen) -> None:
        cg.load_callable(self.cls)
        cg.load(self.number)
        cg.asm.call(1)


class IntScalarVariable(ScalarVariable):
    """An int."""

    def nb_index(self, tx: Frame) -> VariableTracker:
        return self.number


_OF_ALL = frozenset({"dtype", "itemsize", "nbytes", "ndim", "shape", "size", "strides"})
"""Attributes that are the same for all numbers of a class."""

SPECIALIZED.append(ScalarVariable)


def is_number(vt: VariableTracker) -> bool:
    """Whether this is a number of Python's or of numpy's, known or not."""
    if isinstance(vt, ConstantVariable):
        return isinstance(vt.value, (int, float, numpy.generic))
    return isinstance(vt, SymNodeVariable | ScalarVariable)


def any_within(vt: VariableTracker, holds: Callable[[VariableTracker], bool]) -> bool:
    """Whether something holds for an object; for a sequence, whether it does for anything in it."""
    if isinstance(vt, ListVariable | TupleVariable):
        return any(any_within(item, holds) for item in vt.items)
    return holds(vt)


def varies(vt: VariableTracker) -> bool:
    """Whether this is a number that may be another one at the next call, or a sequence with one."""
    return any_within(vt, lambda item: isinstance(item, SymNodeVariable | ScalarVariable))


def with_constants(vt: VariableTracker) -> VariableTracker:
    """The object with all varying numbers replaced by their present values as constants."""
    if not isinstance(vt, ListVariable | TupleVariable) or not varies(vt):
        return specialized(vt)
    items = [with_constants(item) for item in vt.items]
    return ListVariable(items) if isinstance(vt, ListVariable) else TupleVariable(items)


# -- calls


def call_on_numbers(
    tx: Frame, path: str, real: Callable[..., Any], args: list[VariableTracker], kwargs: dict[str, VariableTracker]
) -> VariableTracker | None:
    """The result of numpy's function `real`, of which `path` is the name for `functional.numpy_number`; None where no scalar says it."""
    numbers: list[VariableTracker] = []
    try:
        form = tuple([_form(vt, numbers) for vt in args])
        named = tuple([(name, _form(vt, numbers)) for name, vt in kwargs.items()])
    except NotConstant:
        return None
    operands = [vt.value if isinstance(vt, ConstantVariable) else operand_of(vt) for vt in numbers]
    try:
        with numpy.errstate(all="ignore"):
            now = functional.numpy_scalar(path, form, named, *map(present, operands))
    except Exception:  # the program gets it from the call with constants
        return None
    if not isinstance(now, numpy.generic) or now.dtype.kind not in "biuf":
        return None
    number = None if kwargs else _of_ints(tx, real, args, numbers, type(now))
    if number is None:
        call = (functional.numpy_number, path, form, named, *operands)
        is_float = now.dtype.kind == "f" and type(now) in MODELS
        number = of_floats(tx, call[0], call[1:]) if is_float else ConstantVariable(tx.tr.graph.symbols.decide(*call))
    if not isinstance(number, SymNodeVariable):
        return ConstantVariable(type(now)(number.value))
    return MODELS[type(now)](type(now), number)


def _form(vt: VariableTracker, numbers: list[VariableTracker]) -> Any:
    """How an argument is made of numbers (or other constants), which are appended: sequences of the names of classes. Raises
    `NotConstant`."""
    if isinstance(vt, ListVariable | TupleVariable):
        items = tuple([_form(item, numbers) for item in vt.items])
        return ("list" if isinstance(vt, ListVariable) else "tuple", items)
    if isinstance(vt, ScalarVariable):
        numbers.append(vt.number)
        return vt.cls.__name__
    if isinstance(vt, SymNodeVariable) and vt.python_type() in (int, float):
        numbers.append(vt)
        return ""
    if not isinstance(vt, ConstantVariable):
        raise NotConstant(vt.describe())
    value = vt.value
    if type(value) in _EXACT:
        numbers.append(ConstantVariable(value.item()))
        return type(value).__name__
    if type(value) not in ATOMIC_TYPES:
        raise NotConstant(vt.describe())
    numbers.append(vt)
    return ""


def _of_ints(
    tx: Frame, real: object, args: list[VariableTracker], numbers: list[VariableTracker], cls: type
) -> VariableTracker | None:
    """The number of class `cls` that the function makes of ints; None where it is not sums and products, or the larger, of them."""
    if not all(vt.python_type() is int for vt in numbers) or not issubclass(cls, _INTEGERS):
        return None
    if cls is numpy.bool_ or (cls is numpy.int64 and not any(_is_of_program(tx, vt) for vt in numbers)):
        return _number_of_ints(tx, real, args, numbers)  # sizes have room
    if not all(has_room(tx, cls, vt) for vt in numbers):
        return None
    try:
        number = _number_of_ints(tx, real, args, numbers)
        return number if number is not None and has_room(tx, cls, number) else None
    except OverflowError:  # torch's symbolic ints have 64 bits as well
        return None


def _is_of_program(tx: Frame, number: VariableTracker) -> bool:
    """Whether a symbolic int is made of numbers of the program that are no sizes."""
    sym = number.proxy.sym if isinstance(number, SymNodeVariable) else None
    return isinstance(sym, torch.SymInt) and not sym.node.expr.free_symbols.isdisjoint(tx.tr.graph.symbols.numbers)


def has_room(tx: Frame, cls: Any, number: VariableTracker) -> bool:
    """Whether an int is one of numpy's class, or dtype, which the guards hold it to: others wrap around, or are refused."""
    # torch's reasoning takes all symbolic ints for ones of 64 bits, so that a condition on the last of them would be dropped.
    most = ConstantVariable(min(int(numpy.iinfo(cls).max), 1 << 62))
    least = max(int(numpy.iinfo(cls).min), -1 << 62)
    return is_at_least(tx, number, least) and is_true(tx, richcompare(tx, number, most, "<="))


def is_at_least(tx: Frame, number: VariableTracker, least: int) -> bool:
    """Whether an int is no less than another, which the guards hold it to."""
    return is_true(tx, richcompare(tx, number, ConstantVariable(least), ">="))


def _number_of_ints(
    tx: Frame, real: Any, args: list[VariableTracker], numbers: list[VariableTracker]
) -> VariableTracker | None:
    if real in _COMPARISONS:
        return richcompare(tx, *numbers, _COMPARISONS[real])
    function = _ARITHMETIC.get(real)
    if function in (operator.floordiv, operator.mod) and 0 in map(present, map(operand_of, numbers[1:])):
        return None  # numpy says 0
    if function is not None:
        return apply_number_function(tx, function, *numbers)
    best = _OF_TWO.get(real)
    if best is None:
        if len(args) != 1 or len(numbers) != len(getattr(args[0], "items", ())):
            return None
        best = _OF_MANY.get(real)
    return None if best is None else functools.reduce(lambda a, b: best(tx, a, b), numbers)


def _arithmetic(function: Callable[..., Any]) -> Any:
    return lambda tx, a, b: apply_number_function(tx, function, a, b)


def _extreme(op: str) -> Any:
    return lambda tx, a, b: b if is_true(tx, richcompare(tx, b, a, op)) else a


_COMPARISONS: dict[Any, str] = {function: op for op, function in COMPARE_OPS.items()}
_ARITHMETIC: dict[Any, Callable[..., Any]] = {
    f: f for f in (operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, operator.neg, abs)
}
MODELS: dict[type, type[ScalarVariable]] = {}
"""Class of numpy's → model of its scalars that vary."""

_OF_TWO: dict[Any, Any] = {}
_OF_MANY: dict[Any, Any] = {}
_EXACT: tuple[type, ...] = ()
"""Classes of numpy's whose scalars are exactly the Python number that `item()` gives."""

_INTEGERS: tuple[type, ...] = ()
"""Classes of numpy's scalars that may be sums and products of symbolic ints."""

_EFFECTS = frozenset("dump fill put resize setfield setflags sort tofile".split())
METHODS: dict[Any, str] = {}
"""Methods of numpy's scalars without effects → name."""

if numpy is not None:
    _ARITHMETIC |= {numpy.add: operator.add, numpy.subtract: operator.sub, numpy.multiply: operator.mul}
    _ARITHMETIC |= {numpy.floor_divide: operator.floordiv, numpy.mod: operator.mod}
    _ARITHMETIC |= {numpy.negative: operator.neg, numpy.absolute: abs}
    _ARITHMETIC[numpy.int64] = operator.pos
    MODELS |= dict.fromkeys((numpy.float16, numpy.float32, numpy.float64), ScalarVariable)
    MODELS |= dict.fromkeys((numpy.int8, numpy.int16, numpy.int32, numpy.int64, numpy.uint8), IntScalarVariable)
    _EXACT = tuple(MODELS)
    _INTEGERS = (numpy.bool_, *[_cls for _cls, _model in MODELS.items() if _model is IntScalarVariable])
    for _name, _raw in vars(numpy.generic).items():
        if isinstance(_raw, types.MethodDescriptorType) and _name not in _EFFECTS and _name[:2] != "__":
            METHODS[_raw] = _name
    _OF_TWO |= {numpy.minimum: _extreme("<"), numpy.maximum: _extreme(">")}
    _OF_MANY |= {numpy.prod: _arithmetic(operator.mul), numpy.sum: _arithmetic(operator.add)}
    _OF_MANY |= {function: _extreme(">") for function in (numpy.max, numpy.amax)}
    _OF_MANY |= {function: _extreme("<") for function in (numpy.min, numpy.amin)}


def call_method(
    tx: Frame, raw: Any, self: VariableTracker, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
) -> VariableTracker | None:
    """A method of a scalar that varies; None where it has to be a constant, and for those that are."""
    if not isinstance(self, ScalarVariable):
        return None
    if METHODS[raw] in ("item", "tolist") and not args and not kwargs:
        return self.number
    return call_on_numbers(tx, f"generic.{METHODS[raw]}", raw, [self, *args], kwargs)


def all_constants(
    args: Iterable[VariableTracker], kwargs: dict[str, VariableTracker]
) -> tuple[list[VariableTracker], dict[str, VariableTracker]]:
    """The arguments of a call, `with_constants`."""
    return list(map(with_constants, args)), {name: with_constants(vt) for name, vt in kwargs.items()}


def new_scalar(tx: Frame, cls: VariableTracker, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    """`numpy.float64(number)` and the like."""
    real = cls.value
    if not kwargs and len(args) == 1 and varies(args[0]):
        found = call_on_numbers(tx, real.__name__, real, list(args), {})
        if found is not None:
            return found
    if len(args) == 1 and not kwargs and getattr(args[0], "proxy", None) is not None:
        if issubclass(args[0].python_type(), numpy.generic) and not issubclass(real, numpy.character):
            return tx.call(get_attr(tx, args[0], "astype"), [cls])  # what an array of the graph has as a number
    trackers, named = all_constants(args, kwargs)
    if not is_constant(*trackers, *named.values()):
        return unsupported("numpy", f"{real.__name__}() of what is no number")
    return fold(tx, real, trackers, named)


# -- operators


def _operate(tx: Frame, function: Callable[..., Any], *trackers: VariableTracker) -> VariableTracker | None:
    """An operator on numbers; None for others."""
    if not all(map(is_number, trackers)):
        return None
    found = call_on_numbers(tx, f"operator.{function.__name__}", function, list(trackers), {})
    return found if found is not None else with_present_numbers(tx, function, trackers)


def _unary(tx: Frame, function: Callable[..., Any], scalar: ScalarVariable) -> VariableTracker:
    found = _operate(tx, function, scalar)
    return fold(tx, function, [scalar.constant()], {}) if found is NOT_IMPLEMENTED else found


def _takes_part(v: VariableTracker, w: VariableTracker) -> bool:
    """Whether an operator has numpy's scalars that vary, or numpy's with numbers that do."""
    if isinstance(v, ScalarVariable) or isinstance(w, ScalarVariable):
        return True
    return any(isinstance(x, SymNodeVariable) for x in (v, w)) and any(
        isinstance(x, ConstantVariable) and isinstance(x.value, numpy.generic) for x in (v, w)
    )


def _binary(function: Callable[..., Any], otherwise: Any) -> Any:
    """The slot for scalars, and for the constants that meet them."""

    def slot(tx: Frame, v: VariableTracker, w: VariableTracker) -> VariableTracker:
        if not (type(v) is type(w) is ConstantVariable) and _takes_part(v, w):
            found = _operate(tx, function, v, w)
            if found is not None:
                return found
            if "proxy" in v.__dict__ or "proxy" in w.__dict__:
                return NOT_IMPLEMENTED  # a tensor or an array, which has its own way
            v, w = specialized(v), specialized(w)
        return otherwise(tx, v, w)

    return staticmethod(slot)


if numpy is not None:
    CONSTRUCTORS.update(dict.fromkeys(numpy.sctypeDict.values(), new_scalar))
    for _function, _row in BINARY_OPS.items():
        if _row.inplace is None:
            _slot = _binary(_function, getattr(ConstantVariable, _row.slot))
            setattr(ConstantVariable, _row.slot, _slot)
            setattr(ScalarVariable, _row.slot, _slot)
    for _function, (_slot, _) in UNARY_OPS.items():
        setattr(ScalarVariable, _slot, lambda self, tx, f=_function: _unary(tx, f, self))


@packs(ScalarVariable, IntScalarVariable)
def pack_scalar(packing: Packing, vt: ScalarVariable) -> Any:
    return packing.pack(vt.number)
