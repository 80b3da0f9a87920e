"""Floats that Python computes behind the graph, from numbers that only tensor data decide and floats that vary.

Input: a function of numbers and its arguments, such as `total + loss.item()`. Output: a `LateNumberVariable`, which generated code computes
by calling the function when the graph has run.
Invariant: the function raises nothing, for whatever numbers, and gives a float: it may run late. Any question about the float, and any
operator of the graph that it is given to, breaks the graph there: the algebra of symbolic sizes would round differently.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from dynamo_lite.exc import unsupported
from dynamo_lite.graph.core.arguments import MODELS, Packing, packs
from dynamo_lite.graph.core.varying_floats import FloatValue
from dynamo_lite.graph.shapes.sizes import UNBOUNDED
from dynamo_lite.variables.protocol.base import VariableTracker
from dynamo_lite.variables.protocol.constant import ConstantVariable
from dynamo_lite.variables.protocol.dispatch import HANDLERS
from dynamo_lite.variables.protocol.native import emit_call

from ..data_checks import check
from ..symnode import QUOTIENTS, SymNodeVariable, is_unbacked, scalar_tensor
from ..symnode import is_from_data as is_item

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.interp.frame import Frame

_TOTAL = (operator.add, operator.sub, operator.mul, operator.neg, operator.pos, operator.abs, abs, min, max)
_GIVE_FLOATS = frozenset(
    getattr(math, name)
    for name in "asinh atan atan2 cbrt copysign degrees erf erfc fabs hypot radians tanh".split()
    if hasattr(math, name)  # cbrt: 3.11
)
"""Functions that give a float for all numbers, infinities and nan too."""

_EXPONENTS = (-709.0, 709.0)  # exp(709.78…) is the largest float
_LOGARITHMS = (math.ulp(0.0), math.inf)
_ANGLES = (-sys.float_info.max, sys.float_info.max)
_DOMAINS: dict[Callable[..., Any], tuple[float, float]] = {
    **dict.fromkeys([math.exp, math.expm1], (-math.inf, _EXPONENTS[1])),
    **dict.fromkeys([math.cosh, math.sinh], _EXPONENTS),
    **dict.fromkeys([math.log, math.log2, math.log10], _LOGARITHMS),
    **dict.fromkeys([math.sin, math.cos, math.tan], _ANGLES),
    **dict.fromkeys([math.asin, math.acos], (-1.0, 1.0)),
    math.sqrt: (0.0, math.inf),
    math.log1p: (math.nextafter(-1.0, 0.0), math.inf),
}
"""Functions of one number that raise nothing from the first number to the second, and give a float."""


class LateFloat(FloatValue):
    """The value of a `LateNumberVariable`, which is unknown in the present call too."""

    __slots__ = ("text",)

    def __init__(self, decide: Any, text: str) -> None:
        self.decide, self.text = decide, text
        self.origin, self.node = ("late",), None

    @property
    def real(self) -> float:  # type: ignore[override]
        return self.refuse()

    @property
    def sym(self) -> float:
        return self.refuse()

    def refuse(self) -> NoReturn:
        unsupported("data-dependent-size", self.text)

    def __repr__(self) -> str:
        return self.text


class LateNumberVariable(SymNodeVariable):
    """The float that `function` gives for these numbers."""

    is_rebuilt = True

    def __init__(self, tx: Frame, function: Callable[..., Any], operands: Sequence[VariableTracker]) -> None:
        text = f"{function.__name__}({', '.join([vt.describe() for vt in operands])})"
        super().__init__(LateFloat(tx.tr.graph.symbols.decide, text))
        self.function, self.operands = function, tuple(operands)

    def as_python_constant(self) -> Any:
        self.proxy.refuse()

    def present(self) -> Any:
        return None

    def children(self) -> Any:
        return self.operands

    def emit_new(self, cg: Codegen) -> None:
        emit_call(cg, self.function, *self.operands)


def late_number(tx: Frame, function: Callable[..., Any], operands: Sequence[VariableTracker]) -> VariableTracker:
    """`function(*operands)`, numbers of which data decide one; breaks the graph if the function is not known to give a float."""
    floats = [vt.python_type() is float for vt in operands]
    is_of_floats = function in _GIVE_FLOATS or function in _DOMAINS
    gives_float = all(floats) if function in (min, max) else any(floats) or is_of_floats
    if gives_float and _is_total(tx, function, operands) and not any(map(_may_exceed_floats, operands)):
        return LateNumberVariable(tx, function, operands)
    return unsupported("data-dependent-size", str(function))


def _is_total(tx: Frame, function: Callable[..., Any], operands: Sequence[VariableTracker]) -> bool:
    """Whether the function raises for no value of the operands that vary."""
    if function in QUOTIENTS:
        return _is_not_zero(tx, operands[1])
    if function is float.__round__:
        return len(operands) == 2 and _is_number_of_places(operands[1])
    return function in _TOTAL or function in _GIVE_FLOATS or _is_held_to_domain(tx, function, operands)


def _is_held_to_domain(tx: Frame, function: Callable[..., Any], operands: Sequence[VariableTracker]) -> bool:
    """Whether the graph may assert that a number lies where the function raises nothing. Where it doesn't, the frame starts again and the
    function says so itself."""
    bounds = _DOMAINS.get(function)
    if bounds is None or len(operands) != 1:
        return False
    (number,) = operands
    if is_item(number):
        _assert_item(tx, number, bounds, str(function))
        return True
    held = _in_graph(tx, number)
    for bound, outside in zip(bounds, (torch.lt, torch.gt), strict=True):
        if not math.isinf(bound):
            flag = tx.tr.graph.call(tx, "call_function", outside, [held, ConstantVariable(bound)])
            check(tx, flag, False, "data-dependent-size", str(function))
    return True


_SIGNS = ((">=", "<"), ("<=", ">"))
"""How numbers within the lower bound and beyond it compare with it; and with the upper bound."""


def _assert_item(tx: Frame, item: VariableTracker, bounds: tuple[float, float], text: str) -> None:
    """Have the graph assert that an item lies between these floats: as a fact about numbers where the graph may break instead (nan is no
    such number then), else as a check of data, which is undone."""
    sizes = tx.tr.graph.passes.sizes
    for bound, (within, beyond), nearest_int in zip(bounds, _SIGNS, (math.ceil, math.floor), strict=True):
        if math.isinf(bound) or (item.python_type() is not float and abs(bound) > UNBOUNDED):
            continue
        limit = ConstantVariable(bound if item.python_type() is float else nearest_int(bound))
        if sizes.needs_no_data:
            sizes.assume(item.tp_richcompare(tx, limit, within).proxy)
            continue
        outside = item.tp_richcompare(tx, limit, beyond)
        if isinstance(outside, SymNodeVariable):
            check(tx, outside.as_tensor(tx), False, "data-dependent-size", text)


_IN_GRAPH = {
    **{operator.add: torch.add, operator.sub: torch.sub, operator.mul: torch.mul, operator.truediv: torch.div},
    **{operator.neg: torch.neg, operator.pos: torch.positive, operator.abs: torch.abs, abs: torch.abs},
}
"""Functions of numbers → what gives the same of tensors of doubles."""


def _in_graph(tx: Frame, vt: VariableTracker) -> VariableTracker:
    """A number that Python computes behind the graph as a tensor of one double, which checks may ask; a compiler may round it differently,
    so that the function itself raises at the edge of its domain, behind the graph. Breaks the graph for other functions."""
    if isinstance(vt, LateNumberVariable):
        if vt.function not in _IN_GRAPH:
            vt.proxy.refuse()
        operands = [_in_graph(tx, operand) for operand in vt.operands]
        return tx.tr.graph.call(tx, "call_function", _IN_GRAPH[vt.function], operands)
    return scalar_tensor(tx, vt, float)


def _is_not_zero(tx: Frame, divisor: VariableTracker) -> bool:
    """Whether a number is none that a division raises for; one that varies is held to the answer."""
    if isinstance(divisor, ConstantVariable):
        return divisor.value != 0
    if not isinstance(divisor, SymNodeVariable) or is_from_data(divisor.proxy):
        return False
    truth = divisor.nb_bool(tx)
    return isinstance(truth, ConstantVariable) and truth.value is True


def _is_number_of_places(digits: VariableTracker) -> bool:
    """Whether no float is too large to be rounded: those that have places behind the point are far from the largest one."""
    return isinstance(digits, ConstantVariable) and type(digits.value) is int and 0 <= digits.value < UNBOUNDED


def _may_exceed_floats(vt: VariableTracker) -> bool:
    """Whether a number may be an int that is no float."""
    return isinstance(vt, ConstantVariable) and type(vt.value) is int and not -UNBOUNDED < vt.value < UNBOUNDED


def _ask_in_graph(function: Callable[[Any], bool], in_graph: Callable[[Any], Any]) -> None:
    """Questions about an item of a tensor, which the algebra takes for a finite number, are asked of a tensor that holds it."""
    of_others = HANDLERS[function]

    def handler(tx: Frame, x: VariableTracker, /) -> VariableTracker:
        if not is_item(x) or x.python_type() is not float:
            return of_others(tx, x)
        answer = tx.tr.graph.call(tx, "call_function", in_graph, [scalar_tensor(tx, x)])
        return tx.call(answer.tp_getattro(tx, "item"), [])

    HANDLERS[function] = handler


for _name in ("isfinite", "isinf", "isnan"):
    _ask_in_graph(getattr(math, _name), getattr(torch, _name))


def is_from_data(operand: Any) -> bool:
    """Whether only tensor data decide an operand of arithmetic."""
    return isinstance(operand, LateFloat) or (
        not isinstance(operand, FloatValue) and is_unbacked(getattr(operand, "sym", None))
    )


@packs(LateNumberVariable)
def pack_late_number(packing: Packing, vt: LateNumberVariable) -> NoReturn:
    vt.proxy.refuse()


MODELS.late_number, MODELS.is_from_data = late_number, is_from_data
