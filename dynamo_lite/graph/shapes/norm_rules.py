"""What normalisations return on fake tensors with symbolic sizes.

Input: an operator and its arguments. Output: its result, or None where torch's own rule has to be asked.
Invariant: sizes, strides and data types are those of torch's rule, which takes these operators apart into ten others: with symbolic sizes
that is most of what a trace costs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from .meta_tensor import Sketch
from .size_algebra import CHANNELS_LAST, CONTIGUOUS, Extents

_FLOATS = frozenset({torch.float32, torch.float64})  # of smaller ones the statistics have another data type


def _is_plain(x: Any, shape: tuple[Any, ...], *others: Any) -> bool:
    """On the CPU, all of one data type, `others` of one shape, which makes guards on sizes."""
    return (
        (type(x) is Sketch or (type(x) is FakeTensor and x.fake_device.type == "cpu"))
        and x.dtype in _FLOATS
        and all(other is None or (other.dtype == x.dtype and tuple(other.shape) == shape) for other in others)
    )


def batch_norm(
    extents: Extents, x: Any, weight: object, bias: object, mean: object, var: object, momentum: float, eps: float
) -> Any:
    """`_native_batch_norm_legit_no_training`."""
    if x.dim() < 2 or not _is_plain(x, (x.shape[1],), weight, bias, mean, var):
        return None
    extent = extents.of(x)
    if extent is None or extent.kind not in (CONTIGUOUS, CHANNELS_LAST):
        return None
    return extents.new_alike(x, extent), extents.new(x, (0,), (1,)), extents.new(x, (0,), (1,))


def layer_norm(extents: Extents, x: Any, normalized_shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    """`native_layer_norm`."""
    outer = x.dim() - len(normalized_shape)
    shape = tuple(normalized_shape)
    if outer < 0 or tuple(x.shape[outer:]) != shape or not _is_plain(x, shape, weight, bias):
        return None
    extent = extents.of(x)
    if extent is None or (extent.kind != CONTIGUOUS and extents.order(extent) in (None, CONTIGUOUS)):
        return None
    statistics = (*x.shape[:outer], *[1] * len(normalized_shape))
    return extents.new_contiguous(x, extent.sizes), *[extents.new_contiguous(x, statistics) for _ in range(2)]
