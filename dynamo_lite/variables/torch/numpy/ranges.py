"""Python's ints beside arrays: numpy takes them for numbers of the array's dtype, or of 64 bits.

Input: a call of numpy, numbers among its arguments. Output: guards that hold numbers which vary to what their place has room for.
Invariant: where an int becomes a number of an array in the graph, the dtype has it: numpy refuses others, where torch wraps them around.
Ints are compared as they are, by tensors of 64 bits; what `torch._numpy` itself makes a tensor of has 32 bits.
Mirrors `numpy/_core/src/multiarray/convert_datatype.c` (`npy_update_operand_for_scalar`), `abstractdtypes.c`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dynamo_lite.variables.protocol.abstract import COMPARE_OPS
from dynamo_lite.variables.protocol.base import VariableTracker
from dynamo_lite.variables.protocol.constant import ConstantVariable
from dynamo_lite.variables.torch.symnode import SymNodeVariable, specialized

from .arrays import ArrayVariable, dtype_of
from .scalarmath import ScalarVariable, has_room, is_at_least

if TYPE_CHECKING:
    from dynamo_lite.interp.frame import Frame

    from .calls import NumpyCall

numpy: Any = sys.modules.get("numpy")

_COMPARISONS = frozenset(
    {
        *(f"operator.{function.__name__}" for function in COMPARE_OPS.values()),
        *("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"),
    }
)
_POWERS = frozenset({"power", "operator.pow", "operator.ipow"})
_OF_PLACES = frozenset(
    "all any argmax argmin argsort concatenate count_nonzero cumprod cumsum diag diagflat diagonal empty expand_dims eye flip full"
    " identity indices max mean median min moveaxis nonzero ones prod ptp ravel repeat reshape resize roll rollaxis rot90 sort split"
    " squeeze stack std sum swapaxes take tile trace transpose tri tril triu unique var zeros".split()
)
"""Functions, and methods, whose ints are sizes, positions and axes. (`full` asks itself whether there is room.)"""
_MAKERS = frozenset("empty eye identity indices ones tri zeros".split())
"""Of these, those without an array; the first argument of the others is one, or becomes one."""
_OF_SIZES = frozenset({"arange", "operator.getitem"})
"""Functions that take ints as they are."""
_PLACES = frozenset("axes axis axis1 axis2 ddof decimals k kth minlength n num offset repeats reps shape shift".split())
"""Names of parameters of that kind."""


def compares_exactly(call: NumpyCall) -> bool:
    """Whether a number is compared as one of 64 bits, of which every int that varies is one."""
    dtypes = [sample.dtype for _, sample in call.samples.values()]
    return call.path in _COMPARISONS and all(d.kind in "biu" and d.name != "uint64" for d in dtypes)


def have_room(tx: Frame, call: NumpyCall, expected: object) -> bool:
    """Whether each int of Python's is one of the dtypes of the arrays of ints beside it, and of the result's; the guards hold those that
    vary to that.

    Of int64 there is nothing to ask: a number that varies is one. Constants may be out of the result's dtype: numpy has made the result."""
    dtypes = {sample.dtype for _, sample in call.samples.values() if sample.dtype.kind in "iu"}
    made = dtypes | {d for d in [getattr(expected, "dtype", None)] if isinstance(d, numpy.dtype) and d.kind in "iu"}
    is_exact = compares_exactly(call)
    for number in _ints(call):
        if isinstance(number, SymNodeVariable):
            if not is_exact and not all(has_room(tx, dtype, number) for dtype in made if dtype != numpy.int64):
                return False
        elif not all(numpy.iinfo(d).min <= number.value <= numpy.iinfo(d).max for d in dtypes):
            return False
    return True


def is_place(path: str, position: int) -> bool:
    """Whether ints in this argument of a function are sizes, positions and axes."""
    if path in _OF_SIZES or (path == "operator.setitem" and position == 1):
        return True
    name = path.removeprefix("ndarray.")
    if name not in _OF_PLACES or name == "full":
        return name == "full" and position == 0
    return name in _MAKERS or position > 0


def is_named_place(name: str) -> bool:
    """Whether a parameter of this name takes sizes, positions or axes."""
    return name in _PLACES


def within_32_bits(tx: Frame, vt: VariableTracker) -> VariableTracker:
    """A number that varies as `torch._numpy` makes a tensor of it: an int has 32 bits under AOTAutograd, which the guards hold it to. One
    that has more is a constant."""
    if not isinstance(vt, SymNodeVariable) or vt.python_type() is not int:
        return vt
    return vt if has_room(tx, numpy.int32, vt) else specialized(vt)


def _ints(call: NumpyCall) -> Iterator[VariableTracker]:
    """The ints among the arguments that may become numbers of an array."""
    is_of_places = call.path.removeprefix("ndarray.") in _OF_PLACES
    named = [vt for name, vt in call.kwargs.items() if name not in _PLACES]
    for vt in (*(() if is_of_places else call.args), *named):
        if vt.python_type() is int and (isinstance(vt, SymNodeVariable) or vt.is_python_constant()):
            yield vt if isinstance(vt, SymNodeVariable) else ConstantVariable(vt.as_python_constant())


def refuses_exponents(tx: Frame, call: NumpyCall) -> bool:
    """Whether ints may be raised to a negative power: numpy raises ValueError, where torch has a number. The guards hold an exponent that
    varies to others."""
    if (
        call.path not in _POWERS
        or len(call.args) < 2
        or any(s.dtype.kind not in "biu" for _, s in call.samples.values())
    ):
        return False
    exponent = call.args[1]
    if isinstance(exponent, ArrayVariable):
        return dtype_of(exponent).kind == "i"
    number = exponent.number if isinstance(exponent, ScalarVariable) else exponent
    if not isinstance(number, SymNodeVariable) or number.python_type() is not int:
        return False
    return not is_at_least(tx, number, 0)
