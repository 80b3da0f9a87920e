"""Operators that would ask for numbers which only tensor data decide, in other operators, which do not.

`one_hot`: a tensor of classes, the number of them or None. Output: the tensor that compares each with all classes, whose last size is a
number of the graph; checks of the graph raise what the operator raises. `pad_sequence`: tensors of lengths that data decide. Output: the
tensor that they are written into, as long as the longest. `_pack_padded_sequence`, `_pad_packed_sequence`: a tensor and the lengths,
or batch sizes, in it. Recurrent layers of packed sequences: the same calls of `backends.packed_rnn`.
Mirrors `one_hot` of `aten/src/ATen/native/Onehot.cpp`, and `aten/src/ATen/native/PackedSequence.cpp`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from dynamo_lite.backends import packed_rnn
from dynamo_lite.polyfills.torch_nn import one_hot as by_comparison
from dynamo_lite.polyfills.torch_nn import pack_padded_sequence as by_mask
from dynamo_lite.polyfills.torch_nn import pad_packed_sequence as by_positions
from dynamo_lite.polyfills.torch_nn import pad_sequence as by_writes
from dynamo_lite.variables.builtin.list import ListVariable
from dynamo_lite.variables.builtin.tuple import TupleVariable
from dynamo_lite.variables.protocol.base import VariableTracker
from dynamo_lite.variables.protocol.constant import ConstantVariable, is_none
from dynamo_lite.variables.protocol.dispatch import HANDLERS

from ..symnode import is_from_data
from ..tensor import TensorVariable, dimension, has_numbers

if TYPE_CHECKING:
    from dynamo_lite.interp.frame import Frame

_one_hot = torch._C._nn.one_hot
_pad_sequence = torch._C._nn.pad_sequence
_pack_padded = torch._C._VariableFunctions._pack_padded_sequence
_pad_packed = torch._C._VariableFunctions._pad_packed_sequence


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
    return _follow(tx, by_writes, [torch.full], named)


def _follow(tx: Frame, stand_in: object, needs: list[Any], named: dict[str, VariableTracker]) -> VariableTracker:
    """The result of a stand-in, which is given the functions of torch that it needs."""
    function, *given = [tx.tr.build_constant_object(f) for f in (stand_in, *needs)]
    return tx.call(function, given, named)


def _has_late_length(tensor: TensorVariable) -> bool:
    return tensor.proxy.meta.ndim > 0 and is_from_data(dimension(tensor, 0))


def call_pack_padded(tx: Frame, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    """The operator itself, unless it describes its result by the lengths."""
    named = dict(zip(("input", "lengths", "batch_first"), args, strict=False), **kwargs)
    tensor, lengths = named.get("input"), named.get("lengths")
    if len(named) != 3 or not (_is_vector(tx, lengths) and _is_dense(tensor) and tensor.proxy.meta.ndim >= 2):
        return tx.tr.graph.call(tx, "call_function", _pack_padded, list(args), kwargs)
    return _follow(tx, by_mask, [torch.arange, torch._check], named)


def call_pad_packed(tx: Frame, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    """The operator itself, unless it describes its result by the batch sizes."""
    names = ("data", "batch_sizes", "batch_first", "padding_value", "total_length")
    named = dict(zip(names, args, strict=False), **kwargs)
    if len(named) != len(names) or not (_is_vector(tx, named["batch_sizes"]) and _is_dense(named["data"])):
        return tx.tr.graph.call(tx, "call_function", _pad_packed, list(args), kwargs)
    return _follow(tx, by_positions, [torch.arange, torch.cat], named)


def _is_vector(tx: Frame, lengths: VariableTracker | None) -> bool:
    """Whether these are lengths, or batch sizes, that the operators take."""
    if not (has_numbers(tx) and isinstance(lengths, TensorVariable) and lengths.cls is torch.Tensor):
        return False
    meta = lengths.proxy.meta
    return meta.dtype is torch.int64 and meta.ndim == 1 and meta.device.type == "cpu"


def _is_dense(tensor: VariableTracker | None) -> bool:
    """Whether a tensor has rows. An empty one is refused by the operator."""
    if not isinstance(tensor, TensorVariable) or tensor.cls is not torch.Tensor:
        return False
    return all(type(size) is not int or size > 0 for size in tensor.proxy.meta.shape)


def _recurrent(function: object, of_packed: object) -> Callable[..., VariableTracker]:
    def call_recurrent(tx: Frame, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
        """The function, or that for packed sequences: the weights come one argument later. Under autocast it casts what it is given, which
        the operator that compilers see does not."""
        is_packed = len(args) > 3 and isinstance(args[3], ListVariable | TupleVariable)
        is_packed = is_packed and not torch._C._is_any_autocast_enabled()
        return tx.tr.graph.call(tx, "call_function", of_packed if is_packed else function, list(args), kwargs)

    return call_recurrent


HANDLERS[_one_hot] = call_one_hot
HANDLERS[_pad_sequence] = call_pad_sequence
HANDLERS[_pack_padded] = call_pack_padded
HANDLERS[_pad_packed] = call_pad_packed
for _name in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
    _function = getattr(torch._C._VariableFunctions, _name)
    HANDLERS[_function] = _recurrent(_function, getattr(packed_rnn, _name))
