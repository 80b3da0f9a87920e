"""Numpy: scalars and dtypes are constants, functions of constants are folded, arrays are a break.

Input: real numpy objects. Output: constants; `NumpyFunctionVariable`; a break for everything that holds data.
Invariant: numpy is not imported here: if the program (or torch) has not loaded it, there is nothing to model.
"""

from __future__ import annotations

import sys
from typing import Any

from ..exc import unsupported
from ..guards import ir
from .base import VariableTracker
from .constant import ConstantVariable, fold, is_constant
from .descr import DescriptorVariable
from .dispatch import PURE
from .wrap import builds, builds_subclasses

numpy: Any = sys.modules.get("numpy")


class NumpyFunctionVariable(DescriptorVariable):
    """A ufunc or array function. Of constants it is computed; of anything else it is a break."""

    def tp_call(self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        if not is_constant(*args, *kwargs.values()):
            return unsupported("numpy", f"numpy.{self.value.__name__}")
        return fold(tx, self.value, args, kwargs)


def build_by_value(tr: Any, value: Any, source: Any) -> ConstantVariable:
    tr.guard(source, ir.EQUALS, value)
    return ConstantVariable(value, source)


def build_array(tr: Any, value: Any, source: Any) -> VariableTracker:
    return unsupported("numpy", type(value).__name__)


def build_function(tr: Any, value: Any, source: Any) -> NumpyFunctionVariable:
    tr.guard(source, ir.IS, value)
    return NumpyFunctionVariable(value, source)


def host_number(value: Any) -> Any:
    """A numpy scalar as the Python number that a graph can hold; anything else as it is."""
    return value.item() if numpy is not None and isinstance(value, numpy.generic) else value


if numpy is not None:
    builds_subclasses(numpy.generic, numpy.dtype)(build_by_value)
    builds_subclasses(numpy.ndarray)(build_array)
    builds(numpy.ufunc, type(numpy.sum))(build_function)
    PURE.update(numpy.sctypeDict.values(), (numpy.dtype,))
