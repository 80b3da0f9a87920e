"""What common operators return on fake tensors with symbolic sizes.

Input: an operator's arguments. Output: its result, or None where torch's own rule has to be asked.
Invariant: sizes, strides and data types are those of torch's rule, and so are the guards, but for those that only chose among ways to
compute the same. Torch's rules take these operators apart into many others: with symbolic sizes that is most of what a trace costs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from . import view_rules
from .meta_tensor import Sketch, is_symbolic
from .norm_rules import batch_norm, layer_norm
from .size_algebra import CHANNELS_LAST, CONTIGUOUS, Extent, Extents

aten = torch.ops.aten

_FLOATS = frozenset({torch.float32, torch.float64, torch.bfloat16, torch.float16})
_INTS = frozenset({torch.int64, torch.int32})


# -- element by element


def unary(extents: Extents, x: Any, *options: Any) -> Any:
    """A function of each element that keeps its type."""
    if not is_symbolic(x) or x.dtype not in _FLOATS or not all(type(o) in (bool, int, float, str) for o in options):
        return None
    extent = extents.of(x)
    return extents.new_alike(x, extent) if _is_dense(extent) else None


def _unary_in_place(extents: Extents, x: Any) -> Any:
    if not is_symbolic(x) or x.dtype not in _FLOATS:
        return None
    return x if _is_dense(extents.of(x)) else None


def _is_dense(extent: Extent | None) -> bool:
    """Whether a tensor is seen to have neither gaps nor elements that share memory."""
    return extent is not None and extent.kind is not None


def binary(extents: Extents, x: Any, y: object) -> Any:
    """A function of pairs of elements of one type, or of elements and a number, that keeps the type."""
    if x.dtype in _INTS and type(y) is not float:
        return _paired(extents, x, y, x.dtype)
    return quotient(extents, x, y)


def quotient(extents: Extents, x: Any, y: object) -> Any:
    return _paired(extents, x, y, x.dtype) if x.dtype in _FLOATS else None


def comparison(extents: Extents, x: Any, y: object) -> Any:
    return _paired(extents, x, y, torch.bool) if x.dtype in _FLOATS or x.dtype in _INTS else None


def _paired(extents: Extents, x: Any, y: Any, dtype: object) -> Any:
    if type(y) in (int, float):
        if not is_symbolic(x):
            return None
        extent = extents.of(x)
        return extents.new_alike(x, extent, dtype) if _is_dense(extent) else None
    if not is_symbolic(x, y) or x.dtype != y.dtype:
        return None
    one, two = extents.of(x), extents.of(y)
    if not (_is_dense(one) and _is_dense(two)):
        return None
    if one.shape == two.shape and one.strides == two.strides:
        return extents.new_alike(x, one, dtype)
    for whole, part, tensor in ((one, two, x), (two, one, y)):
        if whole.kind == CHANNELS_LAST and part.kind == CONTIGUOUS and part.shape == (1, whole.shape[1], 1, 1):
            return extents.new_alike(tensor, whole, dtype)
    sizes = _broadcast(one, two)
    if sizes is None or one.kind != CONTIGUOUS or two.kind != CONTIGUOUS:
        return None
    whole = one if len(one.sizes) >= len(two.sizes) else two
    if extents.expressions(sizes) != whole.shape:
        return None
    return extents.new_contiguous(x, sizes, dtype)


def add_in_place(extents: Extents, x: Any, y: Any) -> Any:
    if type(y) in (int, float):
        return _unary_in_place(extents, x)
    if not is_symbolic(x, y) or x.dtype != y.dtype or x.dtype not in _FLOATS:
        return None
    one, two = extents.of(x), extents.of(y)
    if not _is_dense(one) or two is None:
        return None
    sizes = _broadcast(one, two)
    return x if sizes is not None and extents.expressions(sizes) == one.shape else None


def _copy_in_place(extents: Extents, x: object, y: object) -> Any:
    return add_in_place(extents, x, y) if type(y) in (FakeTensor, Sketch) else None


def _broadcast(one: Extent, two: Extent) -> list[Any] | None:
    """The sizes of two tensors together, if no two of them could differ."""
    long, short = (one, two) if len(one.sizes) >= len(two.sizes) else (two, one)
    skipped = len(long.sizes) - len(short.sizes)
    sizes = list(long.sizes)
    for i, (a, b) in enumerate(zip(long.shape[skipped:], short.shape, strict=True), skipped):
        if a == b or b == 1:
            continue
        if a != 1:
            return None
        sizes[i] = short.sizes[i - skipped]
    return sizes


def _clone(extents: Extents, x: object) -> Any:
    if not is_symbolic(x):
        return None
    extent = extents.of(x)
    return extents.new_alike(x, extent) if _is_dense(extent) else None


# -- products


def _are_factors(*tensors: Any) -> bool:
    return is_symbolic(*tensors) and len({t.dtype for t in tensors}) == 1 and tensors[0].dtype in _FLOATS


def _are_equal(one: object, two: object) -> bool:
    """Whether two sizes are equal, which the operator demands: a guard if they need not be."""
    return bool(one == two)


def mm(extents: Extents, x: Any, y: Any) -> Any:
    if not _are_factors(x, y) or x.dim() != 2 or y.dim() != 2:
        return None
    one, two = extents.expressions(x.shape), extents.expressions(y.shape)
    if one is None or two is None or not _are_equal(x.shape[1], y.shape[0]):
        return None
    return extents.new_contiguous(x, (x.shape[0], y.shape[1]))


def addmm(extents: Extents, bias: Any, x: object, y: Any) -> Any:
    if not _are_factors(bias, x, y) or bias.dim() != 1 or y.dim() != 2:
        return None
    if extents.expressions(bias.shape) is None or extents.expressions(y.shape) is None:
        return None
    return mm(extents, x, y) if _are_equal(bias.shape[0], y.shape[1]) else None


def bmm(extents: Extents, x: Any, y: Any) -> Any:
    if not _are_factors(x, y) or x.dim() != 3 or y.dim() != 3:
        return None
    one, two = extents.expressions(x.shape), extents.expressions(y.shape)
    if one is None or two is None or not (_are_equal(x.shape[2], y.shape[1]) and _are_equal(x.shape[0], y.shape[0])):
        return None
    return extents.new_contiguous(x, (x.shape[0], x.shape[1], y.shape[2]))


def convolution(
    extents: Extents,
    x: Any,
    weight: Any,
    bias: Any,
    stride: object,
    padding: object,
    dilation: object,
    transposed: bool,
    output_padding: object,
    groups: int,
) -> Any:
    """A convolution with constant weights, of images that are contiguous, or whose channels lie side by side."""
    if transposed or not _are_factors(x, weight, *([] if bias is None else [bias])) or x.dim() not in (4, 5):
        return None
    if weight.dim() != x.dim() or weight._has_symbolic_sizes_strides or x.dtype != torch.float32:
        return None
    extent = extents.of(x)
    if extent is None or weight.shape[0] % groups or not _are_equal(x.shape[1], weight.shape[1] * groups):
        return None
    if bias is not None and tuple(bias.shape) != (weight.shape[0],):
        return None
    settings = [_each(v, x.dim() - 2) for v in (stride, padding, dilation)]
    if None in settings or not _is_as_made(weight) or 0 in weight.shape or not extents.is_positive(extent.shape[0]):
        return None
    sizes = [x.shape[0], weight.shape[0]]
    sizes += [
        extents.windows(size, spread * (kernel - 1) + 1, step, pad)
        for size, kernel, step, pad, spread in zip(x.shape[2:], weight.shape[2:], *settings, strict=True)
    ]
    if extent.kind == CONTIGUOUS:
        return extents.new_contiguous(x, sizes)
    if extent.kind == CHANNELS_LAST and _keeps_channels_last(extents, extent, weight, settings, groups):
        return extents.new(x, sizes, extents.channels_last(sizes))
    return None


def _keeps_channels_last(extents: Extents, extent: Extent, weight: Any, settings: list[Any], groups: int) -> bool:
    """Whether all that could compute a convolution of two dimensions, whatever the sizes are, return the layout of the images."""
    steps, _, spreads = settings
    batch, kernel = extent.shape[0], weight.shape[2:]
    if type(batch) is int and batch < 16 and max(spreads) == 1:
        return True  # oneDNN, or torch's own; NNPACK, which does not, takes more images
    if not (torch.backends.mkldnn.is_available() and torch._C._get_mkldnn_enabled()):
        return False
    some_work = max(*steps, *spreads, *kernel) > 1
    return some_work and (groups > 1 or min(kernel) > 3 or extents.is_several(batch))


def _each(setting: Any, dims: int) -> list[int] | None:
    """A setting of a convolution for each dimension."""
    if not all(type(n) is int and n >= 0 for n in setting) or len(setting) not in (1, dims):
        return None
    return list(setting) * (dims if len(setting) == 1 else 1)


def _is_as_made(weight: Any) -> bool:
    """Whether the weights of a convolution lie as those of new modules do."""
    span = 1
    for size, stride in zip(reversed(weight.shape), reversed(weight.stride()), strict=True):
        if stride != span:
            return False
        span *= size
    return True


# -- over dimensions


def mean(extents: Extents, x: Any, dims: Any, keepdim: bool = False) -> Any:
    if not is_symbolic(x) or x.dtype not in _FLOATS or not dims or not all(-x.dim() <= d < x.dim() for d in dims):
        return None
    extent = extents.of(x)
    gone = {d % x.dim() for d in dims}
    if extent is None or extent.kind != CONTIGUOUS or len(gone) != len(dims):
        return None
    sizes = [1 if d in gone else n for d, n in enumerate(x.shape) if keepdim or d not in gone]
    return extents.new_contiguous(x, sizes)


def softmax(extents: Extents, x: Any, dim: int, half_to_float: bool) -> Any:
    if half_to_float or not is_symbolic(x) or x.dtype not in _FLOATS or not -x.dim() <= dim < x.dim():
        return None
    extent = extents.of(x)
    return extents.new_contiguous(x, extent.sizes) if extent is not None and extent.kind == CONTIGUOUS else None


def max_pool(extents: Extents, x: Any, kernel: object, stride: object, padding: object, dilation: object) -> Any:
    """`max_pool2d` of contiguous images."""
    if not is_symbolic(x) or x.dtype not in _FLOATS or x.dim() != 4:
        return None
    extent = extents.of(x)
    settings = [_each((v,) if type(v) is int else v, 2) for v in (kernel, stride, padding, dilation)]
    if extent is None or extent.kind != CONTIGUOUS or None in settings:
        return None
    if not all(map(extents.is_positive, extent.shape[:2])):
        return None
    if any(k < 1 or s < 1 or 2 * p > k for k, s, p, _ in zip(*settings, strict=True)):
        return None
    sizes = [extents.windows(n, d * (k - 1) + 1, s, p) for n, k, s, p, d in zip(x.shape[2:], *settings, strict=True)]
    return extents.new_contiguous(x, (*x.shape[:2], *sizes))


def _max_pool_with_indices(
    extents: Extents,
    x: object,
    kernel: object,
    stride: object = (),
    padding: object = 0,
    dilation: object = 1,
    ceil_mode: bool = False,
) -> Any:
    made = None if ceil_mode else max_pool(extents, x, kernel, stride or kernel, padding, dilation)
    return None if made is None else (made, extents.new_contiguous(x, made.shape, torch.int64))


# -- of several tensors


def where(extents: Extents, condition: object, x: Any, y: Any) -> Any:
    """`where`, if two of the three have all sizes."""
    tensors = [t for t in (condition, x, y) if type(t) in (FakeTensor, Sketch)]
    if len(tensors) < 3 or not is_symbolic(*tensors) or x.dtype is not y.dtype:
        return None
    all_extents = [extents.of(t) for t in tensors]
    if not all(e is not None and e.kind == CONTIGUOUS for e in all_extents):
        return None
    whole = max(all_extents, key=lambda e: len(e.sizes))
    for extent in all_extents:
        sizes = _broadcast(whole, extent)
        if sizes is None or extents.expressions(sizes) != whole.shape:
            return None
    return extents.new_contiguous(x, whole.sizes)


def cast(extents: Extents, x: object, dtype: object) -> Any:
    """A copy of another data type."""
    if not is_symbolic(x):
        return None
    extent = extents.of(x)
    return extents.new_alike(x, extent, dtype) if _is_dense(extent) else None


def embedding(extents: Extents, weight: Any, indices: Any) -> Any:
    """The rows of a table."""
    if not is_symbolic(weight, indices) or weight.dim() != 2 or indices.dtype not in _INTS:
        return None
    if extents.expressions(indices.shape) is None or extents.expressions(weight.shape) is None:
        return None
    return extents.new_contiguous(weight, (*indices.shape, weight.shape[1]))


def _embedding(
    extents: Extents,
    weight: object,
    indices: object,
    padding_idx: int = -1,
    by_frequency: bool = False,
    sparse: bool = False,
) -> Any:
    return embedding(extents, weight, indices)


def cat(extents: Extents, tensors: Any, dim: int = 0) -> Any:
    """Contiguous tensors, one behind the other."""
    if type(dim) is not int or not tensors or not is_symbolic(*tensors):
        return None
    first, rank = tensors[0], tensors[0].dim()
    if not -rank <= dim < rank:
        return None
    dim %= rank
    length: Any = 0
    rest = None
    for t in tensors:
        extent = extents.of(t)
        if extent is None or extent.kind != CONTIGUOUS or t.dtype is not first.dtype or len(extent.shape) != rank:
            return None
        if rank == 1 and not extents.is_positive(extent.shape[0]):
            return None
        others = extent.shape[:dim] + extent.shape[dim + 1 :]
        if rest is not None and others != rest:
            return None
        rest = others
        length = length + extent.shape[dim]
    return extents.new_contiguous(first, (*first.shape[:dim], extents.number(length), *first.shape[dim + 1 :]))


def stack(extents: Extents, tensors: Any, dim: int = 0) -> Any:
    """Contiguous tensors of one shape, side by side."""
    if type(dim) is not int or not tensors or not is_symbolic(*tensors):
        return None
    first, rank = extents.of(tensors[0]), tensors[0].dim() + 1
    if first is None or not -rank <= dim < rank:
        return None
    for t in tensors:
        extent = extents.of(t)
        if (
            extent is None
            or extent.kind != CONTIGUOUS
            or extent.shape != first.shape
            or t.dtype is not tensors[0].dtype
        ):
            return None
    dim %= rank
    return extents.new_contiguous(tensors[0], (*first.sizes[:dim], len(tensors), *first.sizes[dim:]))


# -- the table

Rule = Callable[..., Any]

RULES: dict[Any, Rule] = {
    **dict.fromkeys(
        [
            *(aten.relu.default, aten.gelu.default, aten.silu.default, aten.sigmoid.default, aten.tanh.default),
            *(aten.exp.default, aten.erf.default, aten.sqrt.default, aten.rsqrt.default, aten.neg.default),
            *(aten.sin.default, aten.cos.default, aten.log.default, aten.hardswish.default, aten.hardsigmoid.default),
            aten.pow.Tensor_Scalar,
        ],
        unary,
    ),
    **dict.fromkeys([aten.relu_.default, aten.silu_.default, aten.hardswish_.default], _unary_in_place),
    **dict.fromkeys([aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor], binary),
    aten.div.Tensor: quotient,
    **dict.fromkeys([getattr(aten, f).Tensor for f in ("lt", "le", "eq", "ne", "gt", "ge")], comparison),
    **dict.fromkeys([getattr(aten, f).Scalar for f in ("lt", "le", "eq", "ne", "gt", "ge")], comparison),
    **dict.fromkeys([aten.add_.Tensor, aten.mul_.Tensor, aten.sub_.Tensor, aten.div_.Tensor], add_in_place),
    aten.copy_.default: _copy_in_place,
    aten.clone.default: _clone,
    aten.view.default: view_rules.view,
    aten._unsafe_view.default: view_rules.view,
    aten.permute.default: view_rules.permute,
    aten.t.default: view_rules.t,
    aten.unsqueeze.default: view_rules.unsqueeze,
    aten.select.int: view_rules.select,
    aten.slice.Tensor: view_rules.slice_,
    aten.embedding.default: _embedding,
    aten.cat.default: cat,
    aten.stack.default: stack,
    aten.where.self: where,
    aten.max_pool2d_with_indices.default: _max_pool_with_indices,
    aten.transpose.int: view_rules.transpose,
    aten.mm.default: mm,
    aten.addmm.default: addmm,
    aten.bmm.default: bmm,
    aten.convolution.default: convolution,
    aten.mean.dim: mean,
    aten._softmax.default: softmax,
    aten._native_batch_norm_legit_no_training.default: batch_norm,
    aten.native_layer_norm.default: layer_norm,
}
"""Operator → function(extents, *arguments) -> result. What has keyword arguments is not asked."""
