"""Powers with the exponent one half: numpy makes a root of some and computes others, and so does torch, of other ones.

Input: a call of numpy. Output: the name for `functional.numpy_function` of what computes as numpy does.
Invariant: numpy itself, asked for a power of minus infinity, tells what it does for operands of this kind. (The power is infinity and the
root nan; of the negative zero the power is zero, the root its argument.)
Mirrors `numpy/_core/src/umath/scalarmath.c.src`, `numpy/_core/src/multiarray/number.c` (`fast_scalar_power`), `loops.c.src` (`power`).
"""

from __future__ import annotations

import math
import sys
import warnings
from typing import TYPE_CHECKING, Any

from dynamo_lite.graph.core.functional import OR_ROOT
from dynamo_lite.variables.protocol.abstract import is_true, richcompare
from dynamo_lite.variables.protocol.base import VariableTracker
from dynamo_lite.variables.protocol.constant import ConstantVariable
from dynamo_lite.variables.torch.symnode import SymNodeVariable

from .arrays import ArrayVariable, dtype_of
from .scalarmath import ScalarVariable

if TYPE_CHECKING:
    from dynamo_lite.interp.frame import Frame

    from .calls import NumpyCall

numpy: Any = sys.modules.get("numpy")

_POWERS = frozenset({"float_power", "power", "operator.pow", "operator.ipow"})


def settle(tx: Frame, call: NumpyCall) -> None:
    """Decide whether an exponent that varies is one half, which is a constant then, and choose what computes the power."""
    if call.path not in _POWERS or len(call.args) < 2:
        return
    base, exponent = call.args[:2]
    if not isinstance(base, ArrayVariable) or dtype_of(base).kind != "f":
        return
    call.args[1] = exponent = _known_half(tx, exponent)
    may_be_half = dtype_of(exponent).kind == "f" if isinstance(exponent, ArrayVariable) else _is_half(exponent)
    if may_be_half and _makes_root(call, base, exponent):
        call.function = call.path + OR_ROOT


def _known_half(tx: Frame, exponent: VariableTracker) -> VariableTracker:
    """One half as a constant for a float that is it now, which the guards hold it to; else the exponent."""
    number = exponent.number if isinstance(exponent, ScalarVariable) else exponent
    if not isinstance(number, SymNodeVariable) or number.python_type() is not float:
        return exponent
    if not is_true(tx, richcompare(tx, number, ConstantVariable(0.5), "==")):
        return exponent
    return ConstantVariable(exponent.python_type()(0.5))


def _is_half(exponent: VariableTracker) -> bool:
    if not isinstance(exponent, ConstantVariable):
        return False
    return isinstance(exponent.value, float | numpy.floating) and exponent.value == 0.5


def _makes_root(call: NumpyCall, base: ArrayVariable, exponent: VariableTracker) -> bool:
    """Whether numpy makes a root of a power with one half, for operands of this kind."""
    operands = [_filled(call.sample(base), -math.inf), _filled(call.sample(exponent), 0.5)]
    with numpy.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return bool(numpy.isnan(call.real(*operands)).any())


def _filled(sample: Any, number: float) -> Any:
    """An operand of the kind of the sample with this number everywhere."""
    return numpy.full_like(sample, number) if isinstance(sample, numpy.ndarray) else type(sample)(number)
