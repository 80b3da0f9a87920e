"""Subscripts of tensors: `x[key]` and `x[key] = value`.

Input: a tensor and a key, whose numbers may vary. Output: graph nodes.
Invariant: a number that varies is not made a constant. Torch's own subscript asks for it (`__index__`) inside a tuple or a list, and a
compiler that traces the graph again asks for a single one as well. So a position that varies becomes a `select`, and a list with such
positions a tensor of them.
Mirrors `torch/csrc/autograd/python_variable_indexing.cpp`.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

import torch

from dynamo_lite.variables.builtin.list import ListVariable
from dynamo_lite.variables.builtin.slice import SliceVariable
from dynamo_lite.variables.builtin.tuple import TupleVariable
from dynamo_lite.variables.protocol.base import VariableTracker
from dynamo_lite.variables.protocol.constant import ConstantVariable, is_none

from .numpy.models import ArrayVariable, alias
from .numpy.scalarmath import IntScalarVariable
from .tensor import TensorVariable, ValueVariable, has_numbers, operate
from .tensor_new import is_varying_int, tensor_of_numbers

if TYPE_CHECKING:
    from dynamo_lite.interp.frame import Frame


def subscript(self: TensorVariable, tx: Frame, key: VariableTracker) -> VariableTracker:
    """`x[key]`"""
    key = positions_of(self, _arrays_as_tensors(tx, with_numbers(tx, key)))
    found = picked(tx, self, key)
    if found is None:
        return operate(tx, operator.getitem, [self, _lists_as_tensors(tx, self, key)])
    part, rest = found
    return part if rest is None else operate(tx, operator.getitem, [part, _lists_as_tensors(tx, self, rest)])


def ass_subscript(self: TensorVariable, tx: Frame, key: VariableTracker, value: VariableTracker | None) -> None:
    """`x[key] = value`"""
    if value is None:
        tx.raises(TypeError, "Tensor does not support deleting items")
    key = positions_of(self, _arrays_as_tensors(tx, with_numbers(tx, key)))
    found = picked(tx, self, key)
    part, rest = (self, key) if found is None else found
    rest = ConstantVariable(...) if rest is None else _lists_as_tensors(tx, self, rest)
    operate(tx, operator.setitem, [part, rest, value])


# -- numbers in tensors


def with_numbers(tx: Frame, key: VariableTracker) -> VariableTracker:
    """The key with the numbers that tensors hold, alone or in slices, as torch reads them, and with those of numpy's scalars, where the
    graph may have such numbers."""
    if not has_numbers(tx):
        return key
    if isinstance(key, TupleVariable) and any(
        isinstance(i, SliceVariable) or _holds_position(tx, i) for i in key.items
    ):
        return TupleVariable([with_numbers(tx, item) for item in key.items])
    if _holds_position(tx, key):
        return key.nb_index(tx)
    if not isinstance(key, SliceVariable):
        return key
    return SliceVariable(
        *[p.nb_index(tx) if isinstance(p, TensorVariable) or _is_scalar(p) else p for p in key.children()]
    )


def _holds_position(tx: Frame, item: VariableTracker) -> bool:
    """Whether torch reads the position that an item of a key means from it: of a tensor without dimensions and numpy's scalars, of ints
    (`applySlicing` in `TensorIndexing.h`; bools and bytes are masks). In the body of a `vmap` there may be many positions in it."""
    if not isinstance(item, TensorVariable):
        return _is_scalar(item)
    meta = item.proxy.meta
    return tx.tr.graph.scope is None and meta.ndim == 0 and meta.dtype in _POSITIONS


_POSITIONS = frozenset({torch.int8, torch.int16, torch.int32, torch.int64})


# -- arrays of numpy


def _is_scalar(vt: VariableTracker) -> bool:
    """Whether this is an int that numpy has computed from arrays."""
    return isinstance(vt, ArrayVariable) and vt.is_scalar and vt.proxy.meta.dtype is torch.int64


def _arrays_as_tensors(tx: Frame, key: VariableTracker) -> VariableTracker:
    """The key with tensors for its arrays of ints. An array that is the whole key may mean a tuple of its rows."""
    if isinstance(key, TupleVariable) and any(map(_is_array_of_ints, key.items)):
        return TupleVariable([alias(tx, item) if _is_array_of_ints(item) else item for item in key.items])
    return alias(tx, key) if _is_array_of_ints(key) and key.proxy.meta.ndim == 1 else key


def _is_array_of_ints(vt: VariableTracker) -> bool:
    return isinstance(vt, ArrayVariable) and not vt.is_scalar and vt.proxy.meta.dtype is torch.int64


# -- bools


def positions_of(tensor: TensorVariable, key: VariableTracker) -> VariableTracker:
    """An index with its lists of bools as lists of the positions that are true, whose number is known."""
    items: list[VariableTracker] = []
    dim = 0
    for item in map(as_int, key.items) if isinstance(key, TupleVariable) else (as_int(key),):
        if isinstance(item, TensorVariable) or item.is_python_constant() and item.as_python_constant() is Ellipsis:
            return key  # how many dimensions it takes is not looked into
        items.append(_positions(tensor, item, dim))
        dim += not is_none(item)
    return TupleVariable(items) if isinstance(key, TupleVariable) else items[0]


def as_int(item: VariableTracker) -> VariableTracker:
    """An int of numpy's that varies as the int that it is, also within a list."""
    if isinstance(item, IntScalarVariable):
        return item.number
    if isinstance(item, ListVariable) and any(isinstance(i, IntScalarVariable) for i in item.items):
        return ListVariable(list(map(as_int, item.items)))
    return item


def _positions(tensor: TensorVariable, item: VariableTracker, dim: int) -> VariableTracker:
    if not isinstance(item, ListVariable) or not item.items:
        return item
    flags = [i.as_python_constant() if i.is_python_constant() else None for i in item.items]
    shape = tensor.proxy.meta.shape
    if not all(flag is True or flag is False for flag in flags) or dim >= len(shape) or shape[dim] != len(flags):
        return item
    return ListVariable([ConstantVariable(i) for i, flag in enumerate(flags) if flag])


# -- numbers that vary


def picked(
    tx: Frame, tensor: TensorVariable | ValueVariable, key: VariableTracker
) -> tuple[VariableTracker, VariableTracker | None] | None:
    """What is left of a tensor when the positions in the key that vary are selected, and the rest of the key (None: nothing is left of
    it). None: there are no such positions, or it is not seen which dimensions they are of."""
    items = list(key.items) if isinstance(key, TupleVariable) else [key]
    if not any(map(is_varying_int, items)) or tx.tr.overrides is not None:
        return None
    dims = _dims_of(tensor, items)
    if dims is None:
        return None
    call = tx.tr.graph.call
    part: VariableTracker = tensor
    rest: list[VariableTracker] = []
    for item, dim in zip(reversed(items), reversed(dims), strict=True):
        if is_varying_int(item):
            part = call(tx, "call_method", "select", [part, ConstantVariable(dim), item])
        else:
            rest.append(item)
    if all(_takes_all(item) for item in rest):
        return part, None
    return part, TupleVariable(rest[::-1])


def _dims_of(tensor: TensorVariable | ValueVariable, items: list[VariableTracker]) -> list[int] | None:
    """The dimension that each item begins with; None if that is not seen."""
    taken = [_taken(item) for item in items]
    if None in taken or taken.count(_OPEN) > 1:
        return None
    left = tensor.proxy.meta.ndim - sum([n for n in taken if n != _OPEN])
    if left < 0:
        return None
    dims, dim = [], 0
    for n in taken:
        dims.append(dim)
        dim += left if n == _OPEN else n
    return dims


_OPEN = -1
"""Of `...`: as many dimensions as are left."""


def _taken(item: VariableTracker) -> int | None:
    """How many dimensions an item takes; None if that is not known."""
    if is_varying_int(item) or isinstance(item, SliceVariable):
        return 1
    if isinstance(item, TensorVariable):
        meta = item.proxy.meta
        return meta.ndim if meta.dtype in (torch.bool, torch.uint8) else 1
    if isinstance(item, ListVariable) and all(_is_int(i) for i in item.items):
        return 1
    if not item.is_python_constant():
        return None
    value = item.as_python_constant()
    return _TAKEN.get(type(value))


_TAKEN = {int: 1, type(None): 0, type(Ellipsis): _OPEN}


def _is_int(item: VariableTracker) -> bool:
    return is_varying_int(item) or item.is_python_constant() and type(item.as_python_constant()) is int


def _takes_all(item: VariableTracker) -> bool:
    """Whether an item leaves its dimensions as they are."""
    return item.is_python_constant() and item.as_python_constant() in (..., slice(None))


def _lists_as_tensors(tx: Frame, tensor: TensorVariable, key: VariableTracker) -> VariableTracker:
    """The key with its lists in which a number varies as tensors."""
    if isinstance(key, TupleVariable):
        items = [_list_as_tensor(tx, tensor, item) for item in key.items]
        return key if all(a is b for a, b in zip(items, key.items, strict=True)) else TupleVariable(items)
    return _list_as_tensor(tx, tensor, key)


def _list_as_tensor(tx: Frame, tensor: TensorVariable, item: VariableTracker) -> VariableTracker:
    if tx.tr.overrides is not None or not isinstance(item, ListVariable) or not any(map(is_varying_int, item.items)):
        return item
    if not all(map(_is_int, item.items)):
        return item
    options = {"dtype": torch.int64, "device": tensor.proxy.meta.device}
    return tensor_of_numbers(tx, item, {name: ConstantVariable(value) for name, value in options.items()})
