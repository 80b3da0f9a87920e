"""Operators under a default dtype that the traced code has set.

Input: a call of an operator. Output: the dtype by which it does the same under the default dtype with which the graph begins.
Invariant: a graph runs under one default dtype, since compilers keep operators without the dtype that they had by default.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node
from torch.utils._pytree import tree_iter

from dynamo_lite.exc import Unsupported

from .operator_names import may_write
from .values import ConstantResult, SequenceResult, TensorResult, TensorValue
from .varying_floats import FloatValue

if TYPE_CHECKING:
    from dynamo_lite.graph.builder import GraphBuilder


def needed_dtype(
    builder: GraphBuilder,
    op: str,
    target: object,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    tensors: list[TensorValue],
    values: dict[Node, Any],
) -> torch.dtype | None:
    """The dtype to give to the call, None if it needs none. Breaks where the default dtype was set if the call can't do without."""
    computes_in_default = _converts(args, kwargs, tensors, values)
    if may_write(target, kwargs) or computes_in_default:
        return builder.state.refuse_default_dtype() if computes_in_default else None

    def result(**more: Any) -> Any:
        given = builder.propagator.propagate(op, target, args, {**kwargs, **more}, tensors, values, None, {})
        return given[0].result

    here = result()
    with builder.state.first_default_dtype():
        try:
            if _dtypes(result()) == _dtypes(here):
                return None
            if type(here) is TensorResult and kwargs.get("dtype") is None:
                dtype = here.meta.dtype
                if _dtypes(result(dtype=dtype)) == [dtype]:
                    return dtype
        except Unsupported:
            pass  # it has no such argument
    return builder.state.refuse_default_dtype()


def _converts(
    args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[TensorValue], values: dict[Node, Any]
) -> bool:
    """Whether integers in tensors meet floats: they are converted to the default dtype, whatever that of the result is."""
    if not tensors or any(t.meta.dtype.is_floating_point or t.meta.dtype.is_complex for t in tensors):
        return False
    return any(
        isinstance(value, float | complex | FloatValue) for value in (*tree_iter((args, kwargs)), *values.values())
    )


def _dtypes(result: Any) -> list[Any]:
    if type(result) is TensorResult:
        return [result.meta.dtype]
    if type(result) is SequenceResult:
        return [dtype for item in result.items for dtype in _dtypes(item)]
    return [result.value] if type(result) is ConstantResult else []
