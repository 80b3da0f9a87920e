"""Lists of tensors that are handled together: groups for `_foreach` operators.

Input: lists of tensors. Output: the dict of groups.
Invariant: groups come in the order of their first tensors (torch's own order is that of a hash table).
Mirrors `torch/csrc/Module.cpp` (`_group_tensors_by_device_and_dtype`) and `aten/src/ATen/native/ForeachUtils.h`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from dynamo_lite.exc import unsupported
from dynamo_lite.variables.builtin.list import ListVariable
from dynamo_lite.variables.builtin.tuple import TupleVariable
from dynamo_lite.variables.protocol.base import VariableTracker
from dynamo_lite.variables.protocol.constant import FALSE, ConstantVariable
from dynamo_lite.variables.protocol.dispatch import builtin

from .tensor import TensorVariable

if TYPE_CHECKING:
    from dynamo_lite.interp.frame import Frame


@builtin(torch._C._group_tensors_by_device_and_dtype)
def group_tensors(tx: Frame, tensorlistlist: VariableTracker, with_indices: VariableTracker = FALSE) -> VariableTracker:
    lists = [tx.tr.unpack(tx, items) for items in tx.tr.unpack(tx, tensorlistlist)]
    if (
        not lists
        or not all(isinstance(item, TensorVariable) for item in lists[0])
        or not with_indices.is_python_constant()
    ):
        return unsupported("call-c-function", "_group_tensors_by_device_and_dtype")
    groups: dict[Any, list[int]] = {}
    for i, item in enumerate(lists[0]):
        groups.setdefault((item.proxy.meta.device, item.proxy.meta.dtype), []).append(i)
    result = tx.tr.wrap_new({})
    for (device, dtype), indices in groups.items():
        key = TupleVariable([ConstantVariable(device), ConstantVariable(dtype)])
        parts = ListVariable([ListVariable([items[i] for i in indices] if items else []) for items in lists])
        kept = indices if with_indices.as_python_constant() else []
        result.mp_ass_subscript(tx, key, TupleVariable([parts, ListVariable(list(map(ConstantVariable, kept)))]))
    return result


@builtin(torch.optim.Optimizer.zero_grad)
def zero_grad(tx: Frame, self: VariableTracker, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    """Kept from torch's own compiler; it only stores and changes gradients."""
    return tx.call(tx.tr.build_constant_object(torch.optim.Optimizer.zero_grad.__wrapped__), [self, *args], kwargs)
