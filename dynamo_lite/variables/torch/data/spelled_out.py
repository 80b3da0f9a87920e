"""Operators that would ask for numbers which only tensor data decide, in other operators, which do not.

`one_hot`: a tensor of classes, the number of them or None. Output: the tensor that compares each with all classes, whose last size is a
number of the graph; checks of the graph raise what the operator raises. `pad_sequence`: tensors of lengths that data decide. Output: the
tensor that they are written into, as long as the longest.
Mirrors `one_hot` of `aten/src/ATen/native/Onehot.cpp`, `pad_sequence` of `aten/src/ATen/native/PackedSequence.cpp`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from dynamo_lite.polyfills.torch_nn import one_hot as by_comparison
from dynamo_lite.polyfills.torch_nn import pad_sequence as by_writes
from dynamo_lite.variables.protocol.base import VariableTracker
from dynamo_lite.variables.protocol.constant import ConstantVariable, is_none
from dynamo_lite.variables.protocol.dispatch import HANDLERS

from ..symnode import is_from_data
from ..tensor import TensorVariable, dimension, has_numbers

if TYPE_CHECKING:
    from dynamo_lite.interp.frame import Frame

_one_hot = torch._C._nn.one_hot
_pad_sequence = torch._C._nn.pad_sequence


def call_one_hot(tx: Frame, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    """The operator itself, unless it would need a number that the graph does not know."""
    named = dict(zip(("self", "num_classes"), args, strict=False), **kwargs)
    tensor, n = named.pop("input", named.get("self")), named.get("num_classes")  # it has both names
    is_inferred = n is None or is_none(n) or (isinstance(n, ConstantVariable) and n.value == -1)
    if not isinstance(tensor, TensorVariable) or not (is_inferred or is_from_data(n)) or not _is_plain(tx, tensor):
        return tx.tr.graph.call(tx, "call_function", _one_hot, list(args), kwargs)
    functions = [tx.tr.build_constant_object(f) for f in (by_comparison, torch.arange)]
    return tx.call(functions[0], [tensor, ConstantVariable(None) if is_inferred else n, functions[1]])


def _is_plain(tx: Frame, tensor: TensorVariable) -> bool:
    """Whether the tensor is one that the operator takes. An empty one has no largest class."""
    meta = tensor.proxy.meta
    is_there = all(type(size) is int and size > 0 or type(size) is torch.SymInt for size in meta.shape)
    return has_numbers(tx) and tensor.cls is torch.Tensor and meta.dtype is torch.int64 and is_there


def call_pad_sequence(tx: Frame, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    """The operator itself, unless the lengths come from data: it compares them."""
    named = dict(zip(("sequences", "batch_first", "padding_value", "padding_side"), args, strict=False), **kwargs)
    sequences = tx.tr.unpack(tx, named["sequences"]) if "sequences" in named else []
    if not any(isinstance(one, TensorVariable) and _has_late_length(one) for one in sequences):
        return tx.tr.graph.call(tx, "call_function", _pad_sequence, list(args), kwargs)
    functions = [tx.tr.build_constant_object(f) for f in (by_writes, torch.full)]
    return tx.call(functions[0], [functions[1]], named)


def _has_late_length(tensor: TensorVariable) -> bool:
    return tensor.proxy.meta.ndim > 0 and is_from_data(dimension(tensor, 0))


HANDLERS[_one_hot] = call_one_hot
HANDLERS[_pad_sequence] = call_pad_sequence
