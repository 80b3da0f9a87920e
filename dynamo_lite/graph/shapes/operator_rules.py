"""Shape rules of operators that compute: element by element, products, over dimensions, of several tensors, normalisations.

Input: the arguments of an operator, with fake tensors or meta tensors. Output: its result.
Invariant: that of `rule_table`; guards that torch's rule leaves only to choose among ways to compute the same are left out. Torch's rules
take these operators apart into many others: with symbolic sizes that is most of what a trace costs.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor

from .meta_tensor import MetaTensor, Operand, Size, is_known
from .rule_table import Written, shape_rule
from .size_algebra import CHANNELS_LAST, CONTIGUOUS, MemoryLayout, SizeAlgebra, require

aten = torch.ops.aten

FLOATS = frozenset({torch.float32, torch.float64, torch.bfloat16, torch.float16})
INTS = frozenset({torch.int64, torch.int32})
TENSORS = (MetaTensor, FakeTensor)
NUMBERS = (int, float)


def _overloads(names: str, overload: str = "default") -> list[OpOverload]:
    return [getattr(getattr(aten, name), overload) for name in names.split()]


def _functions(names: str, *modules: object) -> list[object]:
    """The methods of these names, and the functions in modules."""
    return [*names.split(), *[getattr(module, name) for module in modules for name in names.split()]]


# -- element by element


def _dense(algebra: SizeAlgebra, x: Operand) -> MemoryLayout:
    """The layout of a tensor with symbolic sizes that has neither gaps nor elements which share memory."""
    require(is_known(x))
    layout = algebra.layout(x)
    require(layout.kind is not None)
    return layout


@shape_rule(
    *_functions("relu sigmoid tanh exp erf sqrt rsqrt neg sin cos log", torch),
    *(operator.neg, F.relu, F.silu, F.sigmoid, F.tanh, F.hardswish, F.hardsigmoid),
    aten=_overloads("relu gelu silu sigmoid tanh exp erf sqrt rsqrt neg sin cos log hardswish hardsigmoid"),
    forms={F.gelu: "input [approximate]"},
)
def unary(algebra: SizeAlgebra, input: Operand, inplace: bool = False) -> Operand | Written:
    """A function of each element that keeps the data type."""
    require(is_known(input) and input.dtype in FLOATS)
    layout = _dense(algebra, input)
    return Written(input) if inplace else algebra.new_alike(input, layout)


@shape_rule(aten=_overloads("relu_ silu_ hardswish_"))
def _unary_in_place(algebra: SizeAlgebra, input: Operand) -> Operand | Written:
    return unary(algebra, input, True)


@shape_rule(operator.pow, torch.pow, "pow", aten=[aten.pow.Tensor_Scalar])
def _power(algebra: SizeAlgebra, input: Operand, exponent: object) -> Operand | Written:
    require(type(input) in TENSORS and type(exponent) in NUMBERS)
    return unary(algebra, input)


@shape_rule(*_functions("add sub mul", torch, operator), aten=_overloads("add sub mul", "Tensor"))
def _arithmetic(algebra: SizeAlgebra, input: Any, other: Any) -> Operand:
    """A function of pairs of elements that keeps their data type."""
    x, y = _tensor_first(input, other)
    require(x.dtype in FLOATS or (x.dtype in INTS and type(y) is not float))
    return _paired(algebra, x, y, x.dtype)


@shape_rule(operator.truediv, torch.div, "div", aten=[aten.div.Tensor])
def _quotient(algebra: SizeAlgebra, input: Any, other: Any) -> Operand:
    x, y = _tensor_first(input, other)
    require(x.dtype in FLOATS)
    return _paired(algebra, x, y, x.dtype)


@shape_rule(
    *_functions("lt le eq ne gt ge", operator),
    aten=[*_overloads("lt le eq ne gt ge", "Tensor"), *_overloads("lt le eq ne gt ge", "Scalar")],
)
def _comparison(algebra: SizeAlgebra, input: Any, other: Any) -> Operand:
    x, y = _tensor_first(input, other)
    require(x.dtype in FLOATS or x.dtype in INTS)
    return _paired(algebra, x, y, torch.bool)


def _tensor_first(input: Any, other: Any) -> tuple[Operand, Any]:
    """The operands of an operator on two tensors, or a tensor and a number, in any order."""
    if type(input) not in TENSORS:
        input, other = other, input
    require(type(input) in TENSORS)
    return input, other


def _paired(algebra: SizeAlgebra, x: Operand, y: Any, dtype: torch.dtype) -> Operand:
    """The result of a function of pairs of elements, or of elements and a number."""
    if type(y) in NUMBERS:
        return algebra.new_alike(x, _dense(algebra, x), dtype)
    require(is_known(x, y) and x.dtype == y.dtype)
    one, two = algebra.layout(x), algebra.layout(y)
    require(one.kind is not None and two.kind is not None)
    if one.shape == two.shape and one.strides == two.strides:
        return algebra.new_alike(x, one, dtype)
    for whole, part, tensor in ((one, two, x), (two, one, y)):
        if whole.kind == CHANNELS_LAST and part.kind == CONTIGUOUS and part.shape == (1, whole.shape[1], 1, 1):
            return algebra.new_alike(tensor, whole, dtype)
    sizes = _broadcast(one, two)
    require(one.kind == CONTIGUOUS and two.kind == CONTIGUOUS)
    whole = one if len(one.sizes) >= len(two.sizes) else two
    require(algebra.expressions(sizes) == whole.shape)
    return algebra.new_contiguous(x, sizes, dtype)


@shape_rule(
    *(operator.iadd, operator.isub, operator.imul, "add_", "sub_", "mul_"),
    aten=_overloads("add_ mul_ sub_ div_", "Tensor"),
)
def _arithmetic_in_place(algebra: SizeAlgebra, input: Operand, other: Any) -> Operand | Written:
    if type(other) in NUMBERS:
        return unary(algebra, input, True)
    require(is_known(input, other) and input.dtype == other.dtype and input.dtype in FLOATS)
    one, two = algebra.layout(input), algebra.layout(other)
    require(one.kind is not None and algebra.expressions(_broadcast(one, two)) == one.shape)
    return Written(input)


@shape_rule(aten=[aten.copy_.default])
def _copy_in_place(algebra: SizeAlgebra, input: Operand, other: object) -> Operand | Written:
    require(type(other) in TENSORS)
    return _arithmetic_in_place(algebra, input, other)


def _broadcast(one: MemoryLayout, two: MemoryLayout) -> list[Size]:
    """The sizes of two tensors together, if no two of them could differ."""
    long, short = (one, two) if len(one.sizes) >= len(two.sizes) else (two, one)
    skipped = len(long.sizes) - len(short.sizes)
    sizes = list(long.sizes)
    for i, (a, b) in enumerate(zip(long.shape[skipped:], short.shape, strict=True), skipped):
        if a == b or b == 1:
            continue
        require(a == 1)
        sizes[i] = short.sizes[i - skipped]
    return sizes


@shape_rule(aten=[aten.clone.default])
def _clone(algebra: SizeAlgebra, input: Operand) -> Operand:
    return algebra.new_alike(input, _dense(algebra, input))


@shape_rule("to")
def _to(algebra: SizeAlgebra, input: Operand, dtype: object) -> Operand:
    """`to` a data type, or to the CPU, where the tensor is."""
    if type(dtype) is str or type(dtype) is torch.device:
        require(str(dtype) == "cpu")
        return input
    require(type(dtype) is torch.dtype)
    return input if input.dtype is dtype else algebra.new_alike(input, _dense(algebra, input), dtype)


@shape_rule("float")
def _float(algebra: SizeAlgebra, input: Operand) -> Operand:
    return _to(algebra, input, torch.float32)


@shape_rule("double")
def _double(algebra: SizeAlgebra, input: Operand) -> Operand:
    return _to(algebra, input, torch.float64)


@shape_rule(F.dropout)
def _dropout(
    algebra: SizeAlgebra, input: Operand, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Operand:
    require(training is False and inplace is False and type(p) is float and 0 <= p <= 1)
    return input


# -- products


def _require_factors(*tensors: Operand) -> None:
    require(is_known(*tensors))
    require(len({t.dtype for t in tensors}) == 1 and tensors[0].dtype in FLOATS)


def _require_equal(one: Size, two: Size) -> None:
    """Two sizes are equal, which the operator demands: a guard if they need not be."""
    require(one == two)


@shape_rule(aten=[aten.mm.default])
def mm(algebra: SizeAlgebra, x: Operand, y: Operand) -> Operand:
    """The product of two matrices."""
    _require_factors(x, y)
    require(x.dim() == 2 and y.dim() == 2)
    algebra.require_known((*x.shape, *y.shape))
    _require_equal(x.shape[1], y.shape[0])
    return algebra.new_contiguous(x, (x.shape[0], y.shape[1]))


@shape_rule(aten=[aten.addmm.default])
def _addmm(algebra: SizeAlgebra, bias: Operand, x: Operand, y: Operand) -> Operand:
    _require_factors(bias, x, y)
    require(bias.dim() == 1 and y.dim() == 2)
    algebra.require_known((*bias.shape, *y.shape))
    _require_equal(bias.shape[0], y.shape[1])
    return mm(algebra, x, y)


@shape_rule(torch.bmm, "bmm", aten=[aten.bmm.default])
def bmm(algebra: SizeAlgebra, input: Operand, mat2: Operand) -> Operand:
    """The products of two batches of matrices."""
    _require_factors(input, mat2)
    require(input.dim() == 3 and mat2.dim() == 3)
    algebra.require_known((*input.shape, *mat2.shape))
    _require_equal(input.shape[2], mat2.shape[1])
    _require_equal(input.shape[0], mat2.shape[0])
    return algebra.new_contiguous(input, (input.shape[0], input.shape[1], mat2.shape[2]))


@shape_rule(torch.matmul, operator.matmul, "matmul")
def _matmul(algebra: SizeAlgebra, input: Operand, other: Operand) -> Operand:
    """The product of two batches with equally many matrices."""
    require(type(input) in TENSORS and type(other) in TENSORS)
    require(input.dim() == other.dim() >= 2)
    if input.dim() == 2:
        return mm(algebra, input, other)
    one, two = algebra.layout(input), algebra.layout(other)
    require(one.shape[:-2] == two.shape[:-2])
    require(all(map(algebra.is_positive, one.shape[:-2])))
    batch = algebra.count(one.sizes[:-2])
    bmm(algebra, *[MetaTensor((batch, *t.shape[-2:]), (0, 0, 0), 0, t.dtype, t.device) for t in (input, other)])
    return algebra.new_contiguous(input, (*input.shape[:-1], other.shape[-1]))


@shape_rule(F.linear)
def _linear(algebra: SizeAlgebra, input: Operand, weight: Operand, bias: Operand | None = None) -> Operand:
    require(weight.dim() == 2 and input.dim() >= 2)
    layout = algebra.layout(input)
    require(layout.kind == CONTIGUOUS)
    algebra.layout(weight)
    flat = algebra.view(input, (algebra.count(layout.sizes[:-1]), input.shape[-1]), (input.shape[-1], 1))
    turned = algebra.view(weight, weight.shape[::-1], weight.stride()[::-1])
    if bias is None:
        mm(algebra, flat, turned)
    else:
        _addmm(algebra, bias, flat, turned)
    return algebra.new_contiguous(input, (*input.shape[:-1], weight.shape[0]))


_CONVOLUTION = "input weight bias=None stride=1 padding=0 dilation=1 groups=1"


@shape_rule(
    forms={
        F.conv2d: _CONVOLUTION,
        F.conv3d: _CONVOLUTION,
        aten.convolution.default: "input weight bias stride padding dilation transposed=False output_padding groups",
    }
)
def _convolution(
    algebra: SizeAlgebra,
    input: Operand,
    weight: Operand,
    bias: Operand | None,
    stride: object,
    padding: object,
    dilation: object,
    groups: int,
) -> Operand:
    """A convolution with constant weights, of images that are contiguous, or whose channels lie side by side."""
    _require_factors(input, weight, *([] if bias is None else [bias]))
    require(weight.dim() == input.dim() in (4, 5))
    require(not weight._has_symbolic_sizes_strides and input.dtype == torch.float32)
    layout = algebra.layout(input)
    require(weight.shape[0] % groups == 0)
    _require_equal(input.shape[1], weight.shape[1] * groups)
    require(bias is None or tuple(bias.shape) == (weight.shape[0],))
    settings = [_each(v, input.dim() - 2) for v in (stride, padding, dilation)]
    require(_is_as_made(weight) and 0 not in weight.shape and algebra.is_positive(layout.shape[0]))
    sizes = [input.shape[0], weight.shape[0]]
    sizes += [
        algebra.windows(size, spread * (kernel - 1) + 1, step, pad)
        for size, kernel, step, pad, spread in zip(input.shape[2:], weight.shape[2:], *settings, strict=True)
    ]
    if layout.kind == CONTIGUOUS:
        return algebra.new_contiguous(input, sizes)
    require(layout.kind == CHANNELS_LAST and _keeps_channels_last(algebra, layout, weight, settings, groups))
    return algebra.new(input, sizes, algebra.channels_last(sizes))


def _keeps_channels_last(
    algebra: SizeAlgebra, layout: MemoryLayout, weight: Operand, settings: list[list[int]], groups: int
) -> bool:
    """Whether every library that could compute a convolution of two dimensions returns the layout of the images, whatever the sizes are."""
    steps, _, spreads = settings
    batch, kernel = layout.shape[0], weight.shape[2:]
    if type(batch) is int and batch < 16 and max(spreads) == 1:
        return True  # oneDNN, or torch's own; NNPACK, which does not, takes more images
    if not (torch.backends.mkldnn.is_available() and torch._C._get_mkldnn_enabled()):
        return False
    some_work = max(*steps, *spreads, *kernel) > 1
    return some_work and (groups > 1 or min(kernel) > 3 or algebra.is_several(batch))


def _each(setting: Any, dims: int) -> list[int]:
    """A setting of a convolution for each dimension."""
    setting = (setting,) if type(setting) is int else setting
    require(
        isinstance(setting, tuple | list)
        and all(type(n) is int and n >= 0 for n in setting)
        and len(setting) in (1, dims)
    )
    return list(setting) * (dims if len(setting) == 1 else 1)


def _is_as_made(weight: Operand) -> bool:
    """Whether the weights of a convolution lie as those of new modules do."""
    span: Size = 1
    for size, stride in zip(reversed(weight.shape), reversed(weight.stride()), strict=True):
        if stride != span:
            return False
        span *= size
    return True


# -- over dimensions


def _contiguous_floats(algebra: SizeAlgebra, x: Operand) -> MemoryLayout:
    require(is_known(x) and x.dtype in FLOATS)
    layout = algebra.layout(x)
    require(layout.kind == CONTIGUOUS)
    return layout


@shape_rule(torch.mean, "mean", aten=[aten.mean.dim])
def _mean(algebra: SizeAlgebra, input: Operand, dim: Any, keepdim: bool = False) -> Operand:
    dims = (dim,) if type(dim) is int else dim
    require(isinstance(dims, tuple | list) and dims and all(type(d) is int for d in dims))
    require(all(-input.dim() <= d < input.dim() for d in dims))
    _contiguous_floats(algebra, input)
    gone = {d % input.dim() for d in dims}
    require(len(gone) == len(dims))
    sizes = [1 if d in gone else n for d, n in enumerate(input.shape) if keepdim or d not in gone]
    return algebra.new_contiguous(input, sizes)


@shape_rule(F.adaptive_avg_pool2d)
def _pooled_to_one(algebra: SizeAlgebra, input: Operand, output_size: object) -> Operand:
    """`adaptive_avg_pool2d` to one number per channel."""
    require(output_size in (1, (1, 1), [1, 1]) and input.dim() == 4)
    return _mean(algebra, input, (-1, -2), True)


@shape_rule(
    forms={
        torch.softmax: "input dim dtype=None",
        "softmax": "input dim dtype=None",
        F.softmax: "input dim=None [_stacklevel] dtype=None",
        aten._softmax.default: "input dim half_to_float=False",
    }
)
def _softmax(algebra: SizeAlgebra, input: Operand, dim: Any) -> Operand:
    require(type(dim) is int and -input.dim() <= dim < input.dim())
    return algebra.new_contiguous(input, _contiguous_floats(algebra, input).sizes)


@shape_rule(
    forms={F.max_pool2d: "input kernel_size stride=None padding=0 dilation=1 ceil_mode=False return_indices=False"}
)
def _max_pool2d(
    algebra: SizeAlgebra, input: Operand, kernel_size: object, stride: object, padding: object, dilation: object
) -> Operand:
    """`max_pool2d` of contiguous images."""
    require(input.dim() == 4)
    layout = _contiguous_floats(algebra, input)
    stride = kernel_size if stride in (None, (), []) else stride
    settings = [_each(v, 2) for v in (kernel_size, stride, padding, dilation)]
    require(all(map(algebra.is_positive, layout.shape[:2])))
    require(not any(k < 1 or s < 1 or 2 * p > k for k, s, p, _ in zip(*settings, strict=True)))
    sizes = [
        algebra.windows(n, d * (k - 1) + 1, s, p) for n, k, s, p, d in zip(input.shape[2:], *settings, strict=True)
    ]
    return algebra.new_contiguous(input, (*input.shape[:2], *sizes))


@shape_rule(
    forms={aten.max_pool2d_with_indices.default: "input kernel_size stride=() padding=0 dilation=1 ceil_mode=False"}
)
def _max_pool_with_indices(
    algebra: SizeAlgebra, input: Operand, kernel_size: object, stride: object, padding: object, dilation: object
) -> tuple[Operand, Operand]:
    made = _max_pool2d(algebra, input, kernel_size, stride, padding, dilation)
    return made, algebra.new_contiguous(input, made.shape, torch.int64)


# -- of several tensors


@shape_rule(torch.where, aten=[aten.where.self])
def _where(algebra: SizeAlgebra, condition: Operand, input: Operand, other: Operand) -> Operand:
    """`where`, if two of the three tensors have all sizes."""
    tensors = (condition, input, other)
    require(is_known(*tensors) and condition.dtype is torch.bool and input.dtype is other.dtype)
    layouts = [algebra.layout(t) for t in tensors]
    require(all(layout.kind == CONTIGUOUS for layout in layouts))
    whole = max(layouts, key=lambda layout: len(layout.sizes))
    for layout in layouts:
        require(algebra.expressions(_broadcast(whole, layout)) == whole.shape)
    return algebra.new_contiguous(input, whole.sizes)


@shape_rule(
    forms={
        F.embedding: "input weight padding_idx=None max_norm=None [norm_type] [scale_grad_by_freq] [sparse]",
        aten.embedding.default: "weight input [_padding_idx] [scale_grad_by_freq] [sparse]",
    }
)
def _embedding(algebra: SizeAlgebra, input: Operand, weight: Operand, padding_idx: int | None = None) -> Operand:
    """The rows of a table."""
    if padding_idx is not None:
        require(not weight._has_symbolic_sizes_strides and -weight.shape[0] <= padding_idx < weight.shape[0])
    require(is_known(weight, input) and weight.dim() == 2 and input.dtype in INTS)
    algebra.require_known((*input.shape, *weight.shape))
    return algebra.new_contiguous(weight, (*input.shape, weight.shape[1]))


@shape_rule(
    forms={
        F.embedding_bag: "input weight offsets=None max_norm=None [norm_type] scale_grad_by_freq=False mode='mean' "
        "sparse=False per_sample_weights=None include_last_offset=False padding_idx=None"
    }
)
def _embedding_bag(algebra: SizeAlgebra, input: Operand, weight: Operand, mode: str) -> Operand:
    """One bag in each row of `input`."""
    layout = algebra.layout(input)
    require(mode in ("sum", "mean", "max") and input.dim() == 2 and all(map(algebra.is_positive, layout.shape)))
    require(weight.dtype.is_floating_point)
    _embedding(algebra, input, weight)
    return algebra.new_contiguous(weight, (input.shape[0], weight.shape[1]))


def _alike(algebra: SizeAlgebra, tensors: Sequence[Operand], dim: object) -> list[MemoryLayout]:
    """The layouts of tensors to be put together, which are contiguous, of one data type and of equally many dimensions."""
    require(type(dim) is int and tensors and is_known(*tensors))
    layouts = [algebra.layout(t) for t in tensors]
    require(all(layout.kind == CONTIGUOUS for layout in layouts))
    require(len({t.dtype for t in tensors}) == len({t.dim() for t in tensors}) == 1)
    return layouts


@shape_rule(torch.cat, aten=[aten.cat.default])
def _cat(algebra: SizeAlgebra, tensors: Sequence[Operand], dim: int = 0) -> Operand:
    """Contiguous tensors, one behind the other."""
    layouts = _alike(algebra, tensors, dim)
    first, rank = tensors[0], tensors[0].dim()
    require(-rank <= dim < rank)
    dim %= rank
    require(len({(*layout.shape[:dim], *layout.shape[dim + 1 :]) for layout in layouts}) == 1)
    require(rank > 1 or all(algebra.is_positive(layout.shape[0]) for layout in layouts))
    length: Any = 0
    for layout in layouts:
        length = length + layout.shape[dim]
    return algebra.new_contiguous(first, (*first.shape[:dim], algebra.number(length), *first.shape[dim + 1 :]))


@shape_rule(torch.stack, aten=[aten.stack.default])
def _stack(algebra: SizeAlgebra, tensors: Sequence[Operand], dim: int = 0) -> Operand:
    """Contiguous tensors of one shape, side by side."""
    layouts = _alike(algebra, tensors, dim)
    rank = tensors[0].dim() + 1
    require(-rank <= dim < rank and all(layout.shape == layouts[0].shape for layout in layouts))
    dim %= rank
    sizes = layouts[0].sizes
    return algebra.new_contiguous(tensors[0], (*sizes[:dim], len(tensors), *sizes[dim:]))


# -- normalisations


def _require_plain(x: Operand, shape: tuple[Size, ...], others: Iterable[Operand | None]) -> None:
    """All on the CPU and of one data type, for which the statistics have the same; `others` of one shape, which makes guards on sizes."""
    require(isinstance(x, MetaTensor) or (type(x) is FakeTensor and x.fake_device.type == "cpu"))
    require(x.dtype in (torch.float32, torch.float64))
    require(all(other is None or (other.dtype == x.dtype and tuple(other.shape) == shape) for other in others))


@shape_rule(
    forms={
        F.batch_norm: "input running_mean running_var weight=None bias=None training=False [momentum] [eps]",
        aten._native_batch_norm_legit_no_training.default: "input weight bias running_mean running_var [momentum] [eps]",
    }
)
def _batch_norm(
    algebra: SizeAlgebra,
    input: Operand,
    weight: Operand | None,
    bias: Operand | None,
    running_mean: Operand | None,
    running_var: Operand | None,
) -> tuple[Operand, Operand, Operand]:
    """A normalisation by known statistics."""
    require(input.dim() >= 2 and running_mean is not None and running_var is not None)
    _require_plain(input, (input.shape[1],), (weight, bias, running_mean, running_var))
    layout = algebra.layout(input)
    is_clear = layout.kind == CHANNELS_LAST and not any(type(n) is int and n == 1 for n in input.shape)
    require(layout.kind == CONTIGUOUS or is_clear)  # else the kernel takes it for contiguous
    return algebra.new_alike(input, layout), algebra.new(input, (0,), (1,)), algebra.new(input, (0,), (1,))


@shape_rule(
    forms={
        F.layer_norm: "input normalized_shape weight=None bias=None [eps]",
        aten.native_layer_norm.default: "input normalized_shape weight bias [eps]",
    }
)
def _layer_norm(
    algebra: SizeAlgebra, input: Operand, normalized_shape: Any, weight: Operand | None, bias: Operand | None
) -> tuple[Operand, Operand, Operand]:
    require(isinstance(normalized_shape, tuple | list))
    outer = input.dim() - len(normalized_shape)
    shape = tuple(normalized_shape)
    require(outer >= 0 and tuple(input.shape[outer:]) == shape)
    _require_plain(input, shape, (weight, bias))
    layout = algebra.layout(input)
    require(layout.kind == CONTIGUOUS or algebra.order(layout) not in (None, CONTIGUOUS))
    statistics = (*input.shape[:outer], *[1] * len(normalized_shape))
    mean, rstd = [algebra.new_contiguous(input, statistics) for _ in range(2)]
    return algebra.new_contiguous(input, layout.sizes), mean, rstd
