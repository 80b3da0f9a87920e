"""Subscripts of numpy's arrays: `a[key]` and `a[key] = value`.

Input: an array and a key, whose numbers may vary. Output: graph nodes.
Invariant: keys with the same meaning for numpy and torch (ints, slices that go forwards, None, Ellipsis) become torch's own subscript,
where a position that varies is not made a constant; all other keys are those of `torch._numpy`.
Mirrors `numpy/_core/src/multiarray/mapping.c`.
"""

from __future__ import annotations

import operator
import sys
from typing import TYPE_CHECKING, Any

from dynamo_lite.config import config
from dynamo_lite.variables.builtin.slice import SliceVariable
from dynamo_lite.variables.builtin.tuple import TupleVariable
from dynamo_lite.variables.protocol.base import VariableTracker
from dynamo_lite.variables.protocol.constant import ConstantVariable, is_none

from .numpy.arrays import ArrayVariable
from .numpy.calls import NumpyCall, operate
from .symnode import SymNodeVariable
from .tensor import ValueVariable
from .tensor_indexing import as_int, picked

if TYPE_CHECKING:
    from dynamo_lite.interp.frame import Frame

numpy: Any = sys.modules.get("numpy")


def _is_basic(part: VariableTracker) -> bool:
    """Whether a part of an index means the same to numpy and to torch: ints, slices that go forwards, None, Ellipsis."""
    if isinstance(part, SliceVariable):
        step = part.step
        if not step.is_python_constant() or (step.as_python_constant() or 1) < 0:
            return False
        return all(is_none(p) or p.python_type() is int for p in (part.start, part.stop))
    if isinstance(part, SymNodeVariable):
        return part.python_type() is int
    return isinstance(part, ConstantVariable) and type(part.value) in (int, type(None), type(Ellipsis))


def _key_of(key: VariableTracker) -> tuple[VariableTracker, bool]:
    """An index with numpy's ints that vary as ints, and whether all its parts are basic."""
    if not isinstance(key, TupleVariable):
        return as_int(key), _is_basic(as_int(key))
    items = list(map(as_int, key.items))
    return TupleVariable(items), all(map(_is_basic, items))


def subscript(self: ArrayVariable, tx: Frame, key: VariableTracker) -> VariableTracker:
    """`a[key]`"""
    key, is_basic = _key_of(key)
    if not config.trace_numpy or not is_basic:
        return operate(tx, operator.getitem, [self, key])
    call = NumpyCall("operator.getitem", operator.getitem, [self, key], {})
    expected = call.expected()
    tensor = ValueVariable(self.proxy)
    part, rest = picked(tx, tensor, key) or (tensor, key)
    made = part if rest is None else tx.tr.graph.call(tx, "call_function", operator.getitem, [part, rest])
    return call.result(tx, expected, made)


def ass_subscript(self: ArrayVariable, tx: Frame, key: VariableTracker, value: VariableTracker | None) -> None:
    """`a[key] = value`"""
    if value is None:
        tx.raises(ValueError, "cannot delete array elements")
    key, is_basic = _key_of(key)
    found = picked(tx, ValueVariable(self.proxy), key) if is_basic and config.trace_numpy else None
    if found is not None:
        NumpyCall(
            "operator.getitem", operator.getitem, [self, key], {}
        ).expected()  # numpy refuses what is out of range
        self, key = ArrayVariable(found[0].proxy, numpy.ndarray), found[1] or ConstantVariable(...)
    operate(tx, operator.setitem, [self, key, value])


ArrayVariable.mp_subscript = subscript
ArrayVariable.mp_ass_subscript = ass_subscript
