"""Symbolic numbers.

Input: a `SymValue` of the graph. Output: `SymNodeVariable`, an int, float or bool whose value may differ from call to
call.
Invariant: arithmetic stays symbolic and makes no graph node until one is needed; a comparison, a loop bound or anything
else that needs to know the number decides by the present one and leaves a guard.
Mirrors `Objects/longobject.c`, as far as symbolic ints go.
"""

from __future__ import annotations

import functools
import math
import operator
import types
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from dynamo_lite.exc import Unsupported, unsupported
from dynamo_lite.graph.core.arguments import MODELS, Packing, packs
from dynamo_lite.graph.core.functional import numpy_number
from dynamo_lite.graph.core.keep_dynamo_unloaded import without_compiler
from dynamo_lite.graph.core.values import SymValue
from dynamo_lite.graph.core.varying_floats import FloatValue, is_random, present
from dynamo_lite.graph.shapes.sizes import UNBOUNDED
from dynamo_lite.guards import ir
from dynamo_lite.polyfills.math import checked_for_int, checked_radicand
from dynamo_lite.polyfills.registry import find_polyfill
from dynamo_lite.variables.builtin import number  # the slots of constants come first
from dynamo_lite.variables.builtin.host_proxy import call_host, can_be_host
from dynamo_lite.variables.objects.function import call_stand_in
from dynamo_lite.variables.protocol.abstract import BINARY_OPS, COMPARE_OPS, UNARY_OPS, richcompare
from dynamo_lite.variables.protocol.base import MISSING, VariableTracker
from dynamo_lite.variables.protocol.constant import (
    NOT_IMPLEMENTED,
    ConstantVariable,
    boolean,
    fold,
    is_constant,
    is_none,
)
from dynamo_lite.variables.protocol.deferred_str import number_text
from dynamo_lite.variables.protocol.dispatch import HANDLERS

from .data_checks import checked_truth, expected_truth

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.guards.ir import GuardNode
    from dynamo_lite.interp.frame import Frame

_TYPES = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}


_SHIFTS = frozenset({operator.lshift, operator.rshift})
_TOTAL = frozenset(
    {operator.add, operator.sub, operator.mul, operator.neg, operator.pos, abs, operator.abs, numpy_number}
)
_QUOTIENTS = frozenset({operator.floordiv, operator.mod})
QUOTIENTS = _QUOTIENTS | {operator.truediv}
MOST_NESTED = 24
"""Quotients and remainders within each other, of which the algebra makes an expression that it takes ever longer to compare: beyond so many
the number is a constant."""
_BITWISE = frozenset({operator.and_, operator.or_, operator.xor})
_OF_INTS = frozenset({operator.add, operator.sub, operator.mul, operator.neg, operator.pos, abs})
"""Functions that take bools for ints."""
_PARTIAL = frozenset({operator.truediv, operator.floordiv, operator.mod}) | _SHIFTS


class SymNodeVariable(VariableTracker):
    """A symbolic int, float or bool. `proxy` is its graph value."""

    is_symbolic = True
    flag: tuple[VariableTracker, object] | None = None  # the tensor that a bool was read from, and when

    def __init__(self, proxy: SymValue) -> None:
        self.proxy = proxy
        self.source = None
        self.value = MISSING

    def python_type(self) -> type:
        return float if isinstance(self.proxy, FloatValue) else _TYPES[type(self.proxy.sym)]

    def as_python_constant(self) -> Any:
        """The number it is now; the guards will hold it to that."""
        if isinstance(self.proxy, FloatValue):
            return self.proxy.decide.value(self.proxy)
        if is_random(self.source):
            unsupported("random-state", "a random number where a constant is needed")
        sym = self.proxy.sym
        return evaluate(self.python_type(), sym)

    def as_proxy(self) -> SymValue:
        return self.proxy

    def present(self) -> Any:
        """The number it is now, which nothing may rest on; None if that depends on tensor data."""
        if isinstance(self.proxy, FloatValue):
            return self.proxy.real
        return None if is_unbacked(self.proxy.sym) else self.proxy.sym.node.hint

    def describe(self) -> str:
        return self.source.path if self.source is not None else str(self.proxy)

    def constant(self) -> ConstantVariable:
        """The number it is now as a constant, guarded."""
        return ConstantVariable(self.as_python_constant())

    # -- slots

    def nb_bool(self, tx: Frame) -> VariableTracker:
        if isinstance(self.proxy, FloatValue):
            return boolean(self.proxy.decide(bool, self.proxy))
        if is_unbacked(self.proxy.sym) and expected_truth(tx) is not None:
            return checked_truth(tx, self.as_tensor(tx))
        try:
            return boolean(evaluate(bool, self.proxy.sym))
        except Unsupported:
            if is_unbacked(self.proxy.sym):
                MODELS.follow_both(tx, lambda: self.as_tensor(tx))
            raise

    def as_tensor(self, tx: Frame) -> VariableTracker:
        """The truth of the number as a tensor."""
        if self.flag is not None and self.flag[0].moment(tx) == self.flag[1]:
            return self.flag[0]
        number = self if self.python_type() is bool else self.tp_richcompare(tx, ConstantVariable(0), "!=")
        return scalar_tensor(tx, number)

    def _itself(self, tx: Frame) -> VariableTracker:
        return self

    @property
    def nb_index(self) -> Callable[[Any], VariableTracker] | None:
        return None if self.python_type() is float else self._itself

    def nb_int(self, tx: Frame) -> VariableTracker:
        if _is_bool_from_data(self):  # whose number the algebra would ask for
            return tx.call(scalar_tensor(tx, self, int).tp_getattro(tx, "item"), [])
        return self if self.python_type() is int else apply_number_function(tx, torch.sym_int, self)

    def nb_float(self, tx: Frame) -> VariableTracker:
        if self.python_type() is float:
            return self
        # Of a bool torch's algebra can't bound the float.
        number = apply_number_function(tx, torch.sym_int, self) if self.python_type() is bool else self
        return apply_number_function(tx, torch.sym_float, number)

    def tp_hash(self, tx: Frame) -> VariableTracker:
        return ConstantVariable(hash(self.as_python_constant()))

    def tp_repr(self, tx: Frame) -> VariableTracker:
        return number_text(tx, self)

    def tp_richcompare(self, tx: Frame, other: VariableTracker, op: str) -> VariableTracker:
        if _is_bool_from_data(self) or _is_bool_from_data(other):  # which the algebra doesn't compare
            one, operand = [vt.nb_int(tx) if _is_bool_from_data(vt) else vt for vt in (self, other)]
            return richcompare(tx, one, operand, op)
        operand = operand_of(other)
        if operand is MISSING:
            return NOT_IMPLEMENTED
        if type(operand) is bool and self.python_type() is not bool:
            operand = int(operand)
        compare = COMPARE_OPS[op]
        if isinstance(self.proxy, FloatValue) or isinstance(operand, FloatValue):
            return boolean(tx.tr.graph.symbols.decide(compare, self.proxy, operand))
        is_finite = type(operand) is not float or math.isfinite(operand)
        if not is_finite and is_from_data(self) and self.python_type() is not float:
            return boolean(compare(0, operand))  # any int is on the same side
        if _has_float_from_data(self.proxy) or _has_float_from_data(operand) or not is_finite and is_from_data(self):
            return _compare_floats(tx, self, other, compare, is_finite)
        result = evaluate(compare, self.proxy.sym, _host(operand))
        if is_unbacked(result):
            return SymNodeVariable(SymValue(result, None, ("call", compare, (self.proxy, operand))))
        return boolean(evaluate(bool, result))

    @staticmethod
    def extreme(tx: Frame, function: object, best: VariableTracker, item: VariableTracker) -> VariableTracker | None:
        """`min(best, item)`, or `max`, of ints as a number of the graph, unless it is known which one that is: this call must not decide
        for later ones. Floats that vary, and infinities, are none of the algebra: None if the analysis compares them, a number that Python
        computes behind the graph if only data decide."""
        proxies = [vt.proxy for vt in (best, item) if isinstance(vt, SymNodeVariable)]
        if (
            not proxies
            or any(isinstance(p, FloatValue) for p in proxies)
            or any(map(_is_huge, map(operand_of, (best, item))))
        ):
            is_late = any(map(MODELS.is_from_data, proxies)) and best.python_type() is item.python_type() is float
            return MODELS.late_number(tx, function, (best, item)) if is_late else None
        if best.python_type() is not item.python_type() or best.python_type() is bool:
            return None  # the result would be of either type
        one, other = (_host(operand_of(vt)) for vt in (best, item))
        if one is MISSING or other is MISSING:
            return None
        is_certain = tx.tr.graph.symbols.is_certain
        is_less, is_greater = is_certain(operator.le, one, other), is_certain(operator.ge, one, other)
        if (is_less or is_greater) and any(map(_has_float_from_data, proxies)):
            first, later = _doubles(tx, best, item)
            is_later = _of_tensors(tx, operator.lt if function is min else operator.gt, later, first)
            return _item(tx, tx.tr.graph.call(tx, "call_function", torch.where, [is_later, later, first]))
        if is_less or is_greater:
            return best if is_less is (function is min) else item
        result = apply_number_function(tx, torch.sym_min if function is min else torch.sym_max, best, item)
        return None if result is NOT_IMPLEMENTED else result

    def tp_getattro(self, tx: Frame, name: str) -> VariableTracker:
        return self.constant().tp_getattro(tx, name)

    def formula(self, tr: Trace) -> Any:
        """`(function, access paths)` of an int that is computed from ints of the program; None for what the graph computes."""
        return None if isinstance(self.proxy, FloatValue) else tr.graph.symbols.formula(self.proxy)

    def emit_new(self, cg: Codegen) -> None:
        formula = self.formula(cg.tr)
        if formula is None:
            cg.load_graph_output(cg.tr.graph.output(self))
            return
        function, nodes = formula
        cg.load_callable(function)
        for node in nodes:
            cg.load_source(node)
        cg.asm.call(len(nodes))


def evaluate(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function that looks at symbolic numbers. Raises `Unsupported` if the answer depends on tensor data."""
    try:
        with without_compiler:
            return function(*args)
    except Unsupported:
        raise
    except Exception as error:
        if "DataDependent" not in type(error).__name__:
            raise
        return unsupported("data-dependent-size", _question(function, args), error)


def _question(function: Callable[..., Any], args: tuple[Any, ...]) -> str:
    """The text of a question about numbers, in terms of the inputs."""
    texts = [a.node.shape_env.describe(a) if hasattr(a, "node") else str(a) for a in args]
    return texts[0] if function in (bool, int) else f"{getattr(function, '__name__', function)}({', '.join(texts)})"


def is_unbacked(sym: object) -> bool:
    """True for a symbolic number that depends on tensor data: there is no present value to decide by."""
    node = getattr(sym, "node", None)
    return node is not None and any(s.name.startswith(("u", "zuf")) for s in node.expr.free_symbols)


def operand_of(vt: VariableTracker) -> Any:
    """The operand that stands for a tracker in arithmetic: a graph value or a number; `MISSING` if there is none."""
    if isinstance(vt, SymNodeVariable):
        return vt.proxy
    if isinstance(vt, ConstantVariable) and isinstance(vt.value, int | float):
        return MISSING if isinstance(vt.value, tuple(number.CONVERTING)) else vt.value
    return MISSING


def _host(operand: Any) -> Any:
    return operand.sym if type(operand) is SymValue else operand


def apply_number_function(tx: Frame, function: Callable[..., Any], *trackers: VariableTracker) -> VariableTracker:
    """A function of numbers, some of them symbolic."""
    if function in _OF_INTS and any(map(_is_bool_from_data, trackers)):  # True + 1
        trackers = tuple([vt.nb_int(tx) if _is_bool_from_data(vt) else vt for vt in trackers])
    operands = [operand_of(vt) for vt in trackers]
    if any(o is MISSING for o in operands):
        return _with_complex(tx, function, trackers)
    if any(type(o) is SymValue and type(o.sym) is not torch.SymBool for o in operands):
        operands = [int(o) if type(o) is bool else o for o in operands]
    if function in _BITWISE and any(type(o) is SymValue and type(o.sym) is torch.SymInt for o in operands):
        return _bitwise(tx, function, trackers, operands)
    # The quotient of floats is no floor of a division: the algebra rounds differently, and fails at infinities.
    if any(isinstance(o, FloatValue) or (function in _QUOTIENTS and _is_float(o)) or _is_huge(o) for o in operands) or (
        function is operator.pow and _is_float_that_varies(operands[0])
    ):
        return of_floats(tx, function, tuple(operands), trackers)
    if (function in _PARTIAL and _is_refused(function, operands[1])) or (
        function is operator.pow and not _is_power_of_symbols(tx, *operands)
    ):
        trackers = tuple(specialized(vt) for vt in trackers)
        operands = [vt.value for vt in trackers]
    if function in _SHIFTS and _is_known_int(operands[1]) and issubclass(trackers[0].python_type(), int):
        return _shift(tx, function, *trackers)
    may_be_infinite = function in _TO_INT and is_from_data(trackers[0]) and trackers[0].python_type() is float
    may_raise = may_be_infinite or (function in QUOTIENTS and _is_zero_for_some(tx, trackers[1]))
    nested = max([getattr(o, "nested", 0) for o in operands]) + (function in _QUOTIENTS)
    if nested > MOST_NESTED:
        return with_present_numbers(tx, function, trackers)
    try:
        result = evaluate(function, *[_host(o) for o in operands])
    except (ZeroDivisionError, OverflowError, ValueError) as error:
        for operand in operands:
            tx.tr.graph.symbols.decide.value(operand)
        return tx.raises_like(error)
    except (TypeError, NotImplementedError, AttributeError):
        return with_present_numbers(tx, function, trackers)
    if _cancels(result, operands) and function in _EXACT:
        return _item(tx, _of_tensors(tx, function, *_doubles(tx, *trackers)))
    if _is_huge(result):
        return of_floats(tx, function, tuple(operands), trackers)
    hint = result.node.hint if type(result) is torch.SymInt and result.node.has_hint() else None
    if type(hint) is int and not -UNBOUNDED < hint < UNBOUNDED:
        return with_present_numbers(tx, function, trackers)  # the algebra has infinities there
    made = from_number(result, ("call", function, tuple(operands)))
    if nested and isinstance(made, SymNodeVariable):
        made.proxy.nested = nested
    if may_raise and (isinstance(made, SymNodeVariable) or function in QUOTIENTS):
        _keep(tx, made.proxy if isinstance(made, SymNodeVariable) else _like(function, operands[1]))
    return made


def _cancels(result: Any, operands: Sequence[Any]) -> bool:
    """Whether the algebra has dropped a float from data, as in `x - x`, which an infinity or nan doesn't."""
    used = {symbol for o in map(_host, operands) if hasattr(o, "node") for symbol in o.node.expr.free_symbols}
    floats = {symbol for symbol in used if symbol.name.startswith("zuf")}
    left = result.node.expr.free_symbols if hasattr(result, "node") else set()
    return not floats <= left and left <= floats


_EXACT = frozenset({operator.add, operator.sub, operator.mul})
"""Functions of two floats, which compute the same of tensors of 64 bits."""


def _doubles(tx: Frame, *numbers: VariableTracker) -> list[VariableTracker]:
    """Numbers as tensors that compute and compare as Python's floats do, infinities and nan among them."""
    return [scalar_tensor(tx, number, float) for number in numbers]


def _of_tensors(tx: Frame, op: Callable[..., Any], one: VariableTracker, other: VariableTracker) -> VariableTracker:
    """A function of `operator` of two tensors."""
    return tx.call(one.tp_getattro(tx, f"__{op.__name__}__"), [other])


def _item(tx: Frame, tensor: VariableTracker) -> VariableTracker:
    return tx.call(tensor.tp_getattro(tx, "item"), [])


def _is_known_int(operand: Any) -> bool:
    """Whether a number is a symbolic int, and known for this call."""
    return type(_host(operand)) is torch.SymInt and not is_unbacked(_host(operand))


def _shift(tx: Frame, function: Callable[..., Any], base: VariableTracker, count: VariableTracker) -> VariableTracker:
    """A shift by a count that varies, as the product or floored quotient with a power of two: torch 2.11 can't print the `RShift` that the
    algebra would make. `_is_refused` has seen to it that the count is not negative."""
    power = apply_number_function(tx, operator.pow, ConstantVariable(2), count)
    return apply_number_function(tx, operator.mul if function is operator.lshift else operator.floordiv, base, power)


def _like(function: Callable[..., Any], divisor: Any) -> SymValue:
    """A quotient that raises where one raises that the algebra takes for a number: `0 // n`, `n % n`."""
    return SymValue(evaluate(function, 1, _host(divisor)), None, ("call", function, (1, divisor)))


def _keep(tx: Frame, number: SymValue) -> None:
    """Have a number computed, for the error, even if nobody wants it; one in a side of a branch in that side only."""
    graph = tx.tr.graph
    if graph.scope is None:
        graph.passes.sizes.may_raise.append(number)
    else:
        graph.node(number)


def _is_zero_for_some(tx: Frame, divisor: VariableTracker) -> bool:
    """Whether data decide a divisor, and may decide that it is 0."""
    return is_from_data(divisor) and not tx.tr.graph.symbols.is_certain(operator.ne, divisor.proxy.sym, 0)


def _bitwise(
    tx: Frame, function: Callable[..., Any], trackers: tuple[VariableTracker, ...], operands: list[Any]
) -> VariableTracker:
    """`&`, `|` or `^` of ints. The algebra knows nothing of them, not even that such a number is not above itself (torch 2.13 has
    `(s ^ 0) > (s ^ 0)` for true). The low bits of a number are a remainder; other results are constants."""
    if any(vt.python_type() is float for vt in trackers):
        return NOT_IMPLEMENTED
    for vt, mask in zip(trackers, operands[::-1], strict=True):
        if function is operator.and_ and type(mask) is int and mask >= 0 and not mask & mask + 1:
            return apply_number_function(tx, operator.mod, vt, ConstantVariable(mask + 1))
        if mask == (-1 if function is operator.and_ else 0) and type(mask) is int:
            return apply_number_function(tx, operator.pos, vt)
    return with_present_numbers(tx, function, trackers)


def _with_complex(tx: Frame, function: Callable[..., Any], trackers: tuple[VariableTracker, ...]) -> VariableTracker:
    """A function of numbers that vary and complex constants: a constant."""
    if all(isinstance(vt, SymNodeVariable) or _is_complex(vt) for vt in trackers):
        return with_present_numbers(tx, function, trackers)
    return NOT_IMPLEMENTED


def _is_complex(vt: VariableTracker) -> bool:
    return isinstance(vt, ConstantVariable) and type(vt.value) is complex


def _is_float(operand: Any) -> bool:
    return type(_host(operand)) in (float, torch.SymFloat)


_HUGE = 1e200
"""Far less than the largest float divided by the largest int."""


def _is_huge(number: Any) -> bool:
    """Whether a number is a float that is nan, infinite, or may be for other ints: the algebra has no largest float."""
    if type(number) is torch.SymFloat and number.node.has_hint():
        number = number.node.hint
    return type(number) is float and not -_HUGE < number < _HUGE


def _compare_floats(
    tx: Frame, one: SymNodeVariable, other: VariableTracker, compare: Callable[..., bool], is_finite: bool
) -> VariableTracker:
    """Compare numbers, one of which hangs on a float from data. The algebra fails at infinities, decides as if there were no nan, and
    takes a number (torch 2.13) for one that is less than itself: what it would decide, but for what is asserted, tensors compare."""
    operand = operand_of(other)
    if is_finite:
        numbers = one.proxy.sym, _host(operand)
        result = evaluate(compare, *numbers)
        known = _asserted(result)
        if known is not None:
            return boolean(known)
        is_certain = tx.tr.graph.symbols.is_certain
        if is_unbacked(result) and not is_certain(compare, *numbers) and not is_certain(_OPPOSITE[compare], *numbers):
            return SymNodeVariable(SymValue(result, None, ("call", compare, (one.proxy, operand))))
    if any(isinstance(vt, SymNodeVariable) and vt.python_type() is not float for vt in (one, other)):
        # Python compares ints as they are.
        return unsupported("data-dependent-size", _question(compare, (one.proxy.sym, _host(operand))))
    return _item(tx, _of_tensors(tx, compare, *_doubles(tx, one, other)))


def _asserted(condition: Any) -> bool | None:
    """The truth of an inequality of one number from data with a constant, if the graph asserts it, or its opposite; None otherwise. (Of
    others an assertion has other terms on either side, which is not the same for floats.)"""
    form = _form(condition.node.expr) if is_unbacked(condition) else None
    if form is None:
        return None
    (symbol,) = condition.node.expr.free_symbols
    facts = [_form(fact.expr) for fact in condition.node.shape_env.deferred_runtime_asserts.get(symbol, ())]
    return True if form in facts else False if _form(condition.node.expr.negated) in facts else None


def _form(inequality: Any) -> tuple[bool, Any, Any] | None:
    """An inequality of a symbol and a number: whether it is strict, the lesser side and the greater one; None for anything else."""
    sides = getattr(inequality, "lts", None), getattr(inequality, "gts", None)
    if None in sides or not any(side.is_Symbol for side in sides) or not any(side.is_number for side in sides):
        return None
    return "=" not in inequality.rel_op, *[float(side) if side.is_number else side for side in sides]


def _has_float_from_data(operand: Any) -> bool:
    """Whether a number is computed from a float that data decide, which may be infinite or nan."""
    node = getattr(_host(operand), "node", None)
    return node is not None and any(symbol.name.startswith("zuf") for symbol in node.expr.free_symbols)


_OPPOSITE = {
    operator.lt: operator.ge,
    operator.ge: operator.lt,
    operator.gt: operator.le,
    operator.le: operator.gt,
    operator.eq: operator.ne,
    operator.ne: operator.eq,
}


def of_floats(
    tx: Frame, function: Callable[..., Any], operands: tuple[Any, ...], trackers: Sequence[VariableTracker] = ()
) -> VariableTracker:
    """The result of a function of which an operand or the result is a float: another float, or a decision."""
    decide = tx.tr.graph.symbols.decide
    if any(map(MODELS.is_from_data, operands)):
        return MODELS.late_number(tx, function, trackers)
    try:
        result = function(*[present(o) for o in operands])
        if type(result) is float:
            if function not in _TOTAL:
                decide(_gives_float(function), *operands)
            return SymNodeVariable(FloatValue(decide, result, ("call", function, operands)))
        if type(result) is int and function in _TO_INT and len(operands) == 1 and abs(result) < UNBOUNDED:
            source = decide.source_of(operands[0])
            if source is not None:
                return _int_of_float(tx, _TO_INT[function], result, source)
        if type(result) in (int, bool):
            return ConstantVariable(decide(function, *operands))
    except TypeError:
        return NOT_IMPLEMENTED
    except (ZeroDivisionError, OverflowError, ValueError) as error:
        for operand in operands:
            decide.value(operand)
        return tx.raises_like(error)
    return tx.tr.wrap_new(function(*[decide.value(o) for o in operands]))


_TO_INT: dict[Any, Callable[[float], int]] = {
    torch.sym_int: int,
    **{function: function for function in (int, math.trunc, math.floor, math.ceil, round)},
    **{getattr(float, name): int for name in ("__int__", "__trunc__")},
    float.__floor__: math.floor,
    float.__ceil__: math.ceil,
    float.__round__: round,
}
"""Function of a float that gives an int → what guards compute it with."""


def _int_of_float(
    tx: Frame, function: Callable[[float], int], present: int, source: GuardNode | None
) -> VariableTracker:
    """A float from outside as an int: a number that varies like the float."""
    return tx.tr.graph.outside.symint(present, tx.tr.source(source, ir.CALL, function))


@functools.cache
def _gives_float(function: Callable[..., Any]) -> Callable[..., bool]:
    """A function that tells whether this one raises nothing, and gives no complex number."""

    def gives_float(*numbers: Any) -> bool:
        try:
            return type(function(*numbers)) is float
        except (ZeroDivisionError, OverflowError, ValueError):
            return False

    return gives_float


def _is_bounded_power(base: float, exponent: float) -> bool:
    """Whether a power is a float, or an int that graphs can have. (Larger ones may not have a float any more.)"""
    try:
        power = base**exponent
    except (ZeroDivisionError, OverflowError, ValueError):
        return False
    return type(power) is float or (type(power) is int and abs(power) < UNBOUNDED)


def with_present_numbers(
    tx: Frame, function: Callable[..., Any], trackers: tuple[VariableTracker, ...]
) -> VariableTracker:
    """The result for the numbers as they are now, where there is no symbolic form."""
    try:
        return tx.tr.wrap_new(function(*[vt.as_python_constant() for vt in trackers]))
    except TypeError:
        return NOT_IMPLEMENTED
    except (ZeroDivisionError, OverflowError, ValueError) as error:
        return tx.raises_like(error)


def _is_float_that_varies(base: Any) -> bool:
    """Whether the powers of a number may overflow, or be complex, and it is known for this call."""
    return type(_host(base)) is torch.SymFloat and not is_unbacked(_host(base))


def _present_number(vt: VariableTracker) -> int | float | None:
    """The number it is now, which nothing may rest on; None if that depends on tensor data."""
    return vt.present() if isinstance(vt, SymNodeVariable) else vt.value


def _division_by_zero(
    tx: Frame, function: Callable[..., Any], dividend: VariableTracker, divisor: ConstantVariable
) -> VariableTracker:
    """The error of CPython, whose text depends on the operator and on the types, but not on the dividend."""
    number = _present_number(dividend)
    try:
        return tx.tr.wrap_new(function(dividend.python_type()(1) if number is None else number, divisor.value))
    except ZeroDivisionError as error:
        return tx.raises_like(error)


def _is_refused(function: Callable[..., Any], operand: Any) -> bool:
    """Whether a right operand is one that the function raises for: the algebra of symbols would not ask. Or one for which that has an
    infinity."""
    if function is operator.lshift and type(operand) is int:
        return operand >= UNBOUNDED.bit_length()
    if type(operand) is not SymValue or is_unbacked(operand.sym):
        return False
    return evaluate(bool, operand.sym < 0 if function in _SHIFTS else operand.sym == 0)


def _is_power_of_symbols(tx: Frame, base: Any, exponent: object) -> bool:
    """Whether a power is a number that the algebra of symbols knows. It has no powers of negative numbers with an exponent that is negative
    or a float, where Python has floats, complex numbers and errors. And AOTAutograd writes `-2 ** s`, which is another number, for the
    power of a negative constant."""
    if type(base) is not SymValue and base < 0:
        return False
    if any(is_unbacked(_host(o)) for o in (base, exponent)):
        return True
    is_natural = type(_host(exponent)) in (int, torch.SymInt) and evaluate(bool, _host(exponent) >= 0)
    if not is_natural and not evaluate(bool, _host(base) > 0):
        return False
    return tx.tr.graph.symbols.decide(_is_bounded_power, base, exponent)


def from_number(result: Any, origin: object) -> VariableTracker:
    """The tracker of a number that may be symbolic."""
    if type(result) not in _TYPES:
        return ConstantVariable(result)
    if type(result) is torch.SymInt:
        known = result.node.maybe_as_int()
        if known is not None:
            return ConstantVariable(known)
    return MODELS.symbol(SymValue(result, None, origin))


def _binary_slot(function: Callable[..., Any]) -> Any:
    return staticmethod(lambda tx, v, w: apply_number_function(tx, function, v, w))


def _unary_slot(function: Callable[..., Any], symbol: str) -> Any:
    def slot(self: VariableTracker, tx: Frame) -> VariableTracker:
        result = apply_number_function(tx, function, self)
        if result is NOT_IMPLEMENTED:
            return tx.raises(TypeError, f"bad operand type for {symbol}: '{self.python_type().__name__}'")
        return result

    return slot


def _shared_slot(of_constants: Any, of_symbols: Any) -> Any:
    """The slot of `int` for constants that also takes symbolic operands: operands of one type have one slot. A constant that is no number
    keeps its own: `str % int` formats."""

    def slot(tx: Frame, v: VariableTracker, w: VariableTracker) -> VariableTracker:
        is_arithmetic = isinstance(w, SymNodeVariable) and (operand_of(v) is not MISSING or _is_complex(v))
        return (of_symbols if is_arithmetic else of_constants)(tx, v, w)

    return staticmethod(slot)


for _function, _row in BINARY_OPS.items():
    if _row.inplace is None and _function is not operator.matmul and _function is not divmod:
        _slot = _binary_slot(_function)
        setattr(SymNodeVariable, _row.slot, _slot)
        setattr(ConstantVariable, _row.slot, _shared_slot(getattr(ConstantVariable, _row.slot), _slot.__func__))
for _function, (_slot, _symbol) in UNARY_OPS.items():
    setattr(SymNodeVariable, _slot, _unary_slot(_function, _symbol))


def _divmod(tx: Frame, v: VariableTracker, w: VariableTracker) -> VariableTracker:
    if MISSING in (operand_of(v), operand_of(w)):
        return _with_complex(tx, divmod, (v, w))
    if _present_number(w) == 0:
        return _division_by_zero(tx, divmod, v, specialized(w))  # the quotient alone raises with another text
    quotient = apply_number_function(tx, operator.floordiv, v, w)
    if quotient is NOT_IMPLEMENTED:
        return quotient
    return MODELS.sequence(tx, tuple, [quotient, apply_number_function(tx, operator.mod, v, w)])


SymNodeVariable.nb_divmod = staticmethod(_divmod)
ConstantVariable.nb_divmod = _shared_slot(ConstantVariable.nb_divmod, _divmod)


# -- C functions of numbers


def specialized(vt: VariableTracker) -> VariableTracker:
    """The present value of a number that varies, as a guarded constant; any other object itself."""
    return vt.constant() if isinstance(vt, tuple(SPECIALIZED)) else vt


SPECIALIZED: list[Any] = [SymNodeVariable]
"""Models of numbers that vary, which have `constant()`."""


def _register(function: Any, symbolic: Any = None) -> None:
    """Fold a pure function of numbers; of symbolic ones it is `symbolic`, or they are made constants."""

    def handler(tx: Frame, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
        if symbolic is not None and any(isinstance(a, SymNodeVariable) for a in args):
            result = apply_number_function(tx, symbolic, *args)
            if result is not NOT_IMPLEMENTED:
                return result
        elif not kwargs and any(isinstance(a, SymNodeVariable) for a in args):
            operands = tuple([operand_of(a) for a in args])
            if MISSING not in operands:
                result = of_floats(tx, function, operands, args)
                if result is not NOT_IMPLEMENTED:  # else the function raises TypeError, which says what it wants
                    return result
        args = tuple([specialized(a) for a in args])
        kwargs = {name: specialized(a) for name, a in kwargs.items()}
        if is_constant(*args, *kwargs.values()):
            return fold(tx, function, list(args), kwargs)
        if can_be_host(*args, *kwargs.values()):
            return call_host(tx, function, args, kwargs)
        # Not numbers at all: `math.floor(x)` asks the object's type.
        dunder = f"__{getattr(function, '__name__', '')}__"
        method = tx.tr.lookup_special(tx, args[0], dunder) if args else None
        return tx.call(method, []) if method is not None else tx.tr.call_foreign(tx, function, list(args), kwargs)

    HANDLERS[function] = handler


def _format_number(function: Any) -> None:
    """`int.__format__`, `float.__format__`."""
    of_constants = HANDLERS[function]

    def handler(tx: Frame, self: VariableTracker, format_spec: VariableTracker, /) -> VariableTracker:
        spec = format_spec.value if isinstance(format_spec, ConstantVariable) else None
        if isinstance(self, SymNodeVariable) and type(spec) is str and _formats_all(self.python_type(), spec):
            return number_text(tx, self, spec)
        return of_constants(tx, self, format_spec)

    HANDLERS[function] = handler


def _formats_all(cls: type, spec: str) -> bool:
    """Whether a format takes all numbers of a class. (`c` wants the number of a character.)"""
    try:
        format(cls(), spec)
    except ValueError:
        return False
    return not spec.endswith("c") and len(spec) <= _LONG_SPEC


_LONG_SPEC = 16
"""Longer formats may ask for texts that no memory holds."""

for _cls in (int, float):
    for _raw in vars(_cls).values():
        if isinstance(_raw, types.MethodDescriptorType) and _raw not in HANDLERS:
            _register(_raw)
_format_number(int.__format__)
_format_number(float.__format__)
for _raw in vars(math).values():
    if isinstance(_raw, types.BuiltinFunctionType) and _raw not in HANDLERS and find_polyfill(_raw) is None:
        _register(_raw, _raw if _raw in (math.floor, math.ceil, math.trunc) else None)


_sqrt_of_others = HANDLERS[math.sqrt]


def math_sqrt(tx: Frame, x: VariableTracker, /) -> VariableTracker:
    """A root is correctly rounded by all compilers, so that the graph may compute that of data."""
    if not is_from_data(x):
        return _sqrt_of_others(tx, x)
    return apply_number_function(tx, torch.sym_sqrt, call_stand_in(tx, math.sqrt, checked_radicand, [x], {}))


HANDLERS[math.sqrt] = math_sqrt
_round_of_others = HANDLERS[float.__round__]


def float_round(tx: Frame, self: VariableTracker, *ndigits: VariableTracker) -> VariableTracker:
    """Rounding to an int is exact."""
    if not is_from_data(self) or not all(map(is_none, ndigits)) or len(ndigits) > 1:
        return _round_of_others(tx, self, *ndigits)
    return apply_number_function(tx, round, call_stand_in(tx, float.__round__, checked_for_int, [self], {}))


HANDLERS[float.__round__] = float_round


def is_from_data(vt: VariableTracker) -> bool:
    """Whether it is a number of the graph that only tensor data decide."""
    return isinstance(vt, SymNodeVariable) and not isinstance(vt.proxy, FloatValue) and is_unbacked(vt.proxy.sym)


DTYPES = {bool: torch.bool, int: torch.int64, float: torch.float64}
"""Of the tensors that stand for numbers."""


def scalar_tensor(tx: Frame, number: VariableTracker, kind: type | None = None) -> VariableTracker:
    """A number as a tensor, of its own kind or of another one."""
    dtype = {"dtype": ConstantVariable(DTYPES[kind or number.python_type()])}
    return tx.tr.graph.call(tx, "call_function", torch.scalar_tensor, [number], dtype)


def _is_bool_from_data(vt: VariableTracker) -> bool:
    return isinstance(vt, SymNodeVariable) and vt.python_type() is bool and is_from_data(vt)


@packs(SymNodeVariable)
def pack_symbol(packing: Packing, vt: SymNodeVariable) -> Any:
    if isinstance(vt.proxy, FloatValue):
        return packing.symbol(vt.proxy)
    sym = vt.proxy.sym
    if type(sym) is torch.SymInt:
        known = sym.node.maybe_as_int()
        if known is not None:
            return packing.constant(known)
    return packing.symbol(vt.proxy)


MODELS.symbol = SymNodeVariable
MODELS.number = from_number
