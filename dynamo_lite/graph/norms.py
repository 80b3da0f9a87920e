"""What normalisations return on fake tensors with symbolic sizes.

Input: an operator and its arguments. Output: its result, or None where torch's own rule has to be asked.
Invariant: sizes, strides and data types are those of torch's rule, which takes these operators apart into ten others: with symbolic sizes
that is most of what a trace costs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_FLOATS = frozenset({torch.float32, torch.float64})  # of smaller ones the statistics have another data type


def _is_plain(x: torch.Tensor, shape: tuple[Any, ...], *others: torch.Tensor | None) -> bool:
    """On the CPU, all of one data type, `others` of one shape, which makes guards on sizes."""
    return (
        x.device.type == "cpu"
        and x.dtype in _FLOATS
        and all(other is None or (other.dtype == x.dtype and tuple(other.shape) == shape) for other in others)
    )


def batch_norm(
    x: torch.Tensor, weight: Any, bias: Any, mean: torch.Tensor, var: torch.Tensor, momentum: float, eps: float
) -> Any:
    """`_native_batch_norm_legit_no_training`."""
    if x.dim() < 2 or not _is_plain(x, (x.shape[1],), weight, bias, mean, var):
        return None
    if not x.is_contiguous() and not (x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)):
        return None
    return torch.empty_like(x), x.new_empty((0,)), x.new_empty((0,))


def layer_norm(x: torch.Tensor, normalized_shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    """`native_layer_norm`."""
    outer = x.dim() - len(normalized_shape)
    shape = tuple(normalized_shape)
    if outer < 0 or tuple(x.shape[outer:]) != shape or not _is_plain(x, shape, weight, bias) or not x.is_contiguous():
        return None
    statistics = (*x.shape[:outer], *[1] * len(normalized_shape))
    return torch.empty_like(x), x.new_empty(statistics), x.new_empty(statistics)


RULES: dict[Any, Callable[..., Any]] = {
    torch.ops.aten._native_batch_norm_legit_no_training.default: batch_norm,
    torch.ops.aten.native_layer_norm.default: layer_norm,
}
