"""What calls of torch's functions on symbolic sizes come to, without a fake tensor.

Input: a function or the name of a method, and arguments with metas in the place of tensors. Output: the `Propagation` of the call, or None
where it has to be run on fake tensors.
Invariant: where there is an outcome, it is the one that fake tensors would have shown, and the guards are the same or follow from those.

The functions that programs call are told here in terms of the operators of `direct_rules`, from where their sizes come.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch.fx import Node

from dynamo_lite.graph.core.values import Propagation, SameResult, SymValue, TensorResult, TensorValue

from . import direct_rules, view_rules
from .meta_tensor import Sketch, sketch_of
from .norm_rules import batch_norm, layer_norm
from .size_algebra import CONTIGUOUS, Extents

_C = torch._C


def outcome(
    mode: Any, op: str, target: object, args: Any, kwargs: dict[str, Any], tensors: list[TensorValue], values: object
) -> Propagation | None:
    """The outcome of a call; `mode` holds the trace's extents and metas, the other arguments are those of `propagate`."""
    function = CALLS.get(target)
    if function is None or not function.takes(len(args), kwargs) or _is_altered():
        return None
    call = _Call(tensors, values)
    try:
        given = [call.argument(a) for a in args]
        named = {name: call.argument(a) for name, a in kwargs.items()}
    except _Undescribed:
        return None
    result = function.rule(mode.extents, *given, **named)
    if result is None:
        return None
    with_grad = any(t.meta.requires_grad for t in tensors)
    if type(result) is Written:
        index = call.index(result.tensor)
        if with_grad or index is None:
            return None
        family = tensors[index].family or tensors[index : index + 1]
        if sum([t in family for t in tensors]) > 1:
            return None  # the memory is that of several arguments
        return Propagation(SameResult(index), (), ((index, 1),))
    index = call.index(result)
    if index is not None:
        return Propagation(SameResult(index))
    base, root = None, result.base
    while root is not None and base is None:
        base, root = call.index(root), root.base
    requires_grad = with_grad and (result.dtype.is_floating_point or result.dtype.is_complex)
    if with_grad and not torch.is_grad_enabled():
        if base is not None:
            return None  # there, views of leaves require gradients all the same
        requires_grad = False
    meta = mode.symbolic_metas.of_sketch(result, requires_grad, not requires_grad)
    return Propagation(TensorResult(meta, base))


def _is_altered() -> bool:
    """Whether more than the sizes decides what calls do."""
    return (
        torch.is_inference_mode_enabled()
        or _C._is_any_autocast_enabled()
        or _C._len_torch_function_stack() > 0
        or _C._functorch.peek_interpreter_stack() is not None
    )


class _Undescribed(Exception):
    """An argument is none that rules know."""


class _Call:
    """The arguments of one call."""

    def __init__(self, tensors: list[TensorValue], values: Any) -> None:
        self.tensors = tensors
        self.values = values
        self.sketches: list[Sketch | None] = [None] * len(tensors)

    def argument(self, arg: Any) -> Any:
        """An argument with sketches for tensors. Raises `_Undescribed`."""
        kind = type(arg)
        if kind is Node:
            value = self.values[arg]
            if type(value) is TensorValue:
                return self._sketch(value)
            if type(value) is SymValue and type(value.sym) is torch.SymInt:
                return value.sym
            raise _Undescribed
        if kind is tuple or kind is list:
            return kind([self.argument(item) for item in arg])
        if kind is slice:
            return slice(*[self.argument(item) for item in (arg.start, arg.stop, arg.step)])
        if kind not in _CONSTANTS:
            raise _Undescribed
        return arg

    def _sketch(self, value: TensorValue) -> Sketch:
        i = self.tensors.index(value)
        sketch = self.sketches[i]
        if sketch is None:
            sketch = self.sketches[i] = sketch_of(value.meta)
            if sketch is None:
                raise _Undescribed
        return sketch

    def index(self, sketch: object) -> int | None:
        """The position of a tensor argument."""
        return next((i for i, known in enumerate(self.sketches) if known is sketch), None)


_CONSTANTS = frozenset(
    {int, float, bool, str, type(None), type(Ellipsis), torch.Size, torch.dtype, torch.memory_format, torch.device}
)


class Written(NamedTuple):
    """The call changes the data of its argument and returns it."""

    tensor: Sketch


class CallRule:
    """A rule, and which arguments it takes."""

    def __init__(self, rule: Callable[..., Any]) -> None:
        self.rule = rule
        parameters = list(inspect.signature(rule).parameters.values())[1:]
        self.is_open = any(p.kind is p.VAR_POSITIONAL for p in parameters)
        named = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
        self.names = [p.name for p in named]
        self.needed = [p.name for p in named if p.default is p.empty]

    def takes(self, count: int, kwargs: dict[str, Any]) -> bool:
        """Whether it can be called with so many positional arguments, and keywords."""
        if count > len(self.names) and not self.is_open:
            return False
        free = self.names[count:]
        return all(name in free for name in kwargs) and all(name in kwargs for name in self.needed if name in free)


# -- element by element


def _unary(extents: Extents, input: Any, inplace: bool = False) -> Any:
    result = direct_rules.unary(extents, input)
    return Written(input) if result is not None and inplace else result


def _gelu(extents: Extents, input: object, approximate: str = "none") -> Any:
    return direct_rules.unary(extents, input)


def _either(rule: Callable[..., Any]) -> Callable[..., Any]:
    """An operator on two tensors, or a tensor and a number, in any order."""

    def call(extents: Extents, input: Any, other: Any) -> Any:
        if type(input) is not Sketch:
            input, other = other, input
        if type(input) is not Sketch:
            return None
        return rule(extents, input, other)

    return call


def _written(extents: Extents, input: object, other: object) -> Any:
    if type(input) is not Sketch or direct_rules.add_in_place(extents, input, other) is None:
        return None
    return Written(input)


def _pow(extents: Extents, input: object, exponent: object) -> Any:
    if type(input) is not Sketch or type(exponent) not in (int, float):
        return None
    return direct_rules.unary(extents, input)


def _dropout(extents: Extents, input: object, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    return input if training is False and inplace is False and type(p) is float and 0 <= p <= 1 else None


def _where(extents: Extents, condition: Any, input: object, other: object) -> Any:
    if type(condition) is not Sketch or condition.dtype is not torch.bool:
        return None
    return direct_rules.where(extents, condition, input, other)


def _to(extents: Extents, input: Any, dtype: object) -> Any:
    """`to` a data type, or to the CPU, where the tensor is."""
    if type(dtype) is str or type(dtype) is torch.device:
        return input if str(dtype) == "cpu" else None
    if type(dtype) is not torch.dtype:
        return None
    return input if input.dtype is dtype else direct_rules.cast(extents, input, dtype)


def _float(extents: Extents, input: object) -> Any:
    return _to(extents, input, torch.float32)


def _double(extents: Extents, input: object) -> Any:
    return _to(extents, input, torch.float64)


# -- products


def _linear(extents: Extents, input: Any, weight: Any, bias: object = None) -> Any:
    if weight.dim() != 2 or input.dim() < 2:
        return None
    extent = extents.of(input)
    if extent is None or extent.kind != CONTIGUOUS or extents.of(weight) is None:
        return None
    rows = extents.count(extent.sizes[:-1])
    flat = extents.view(input, (rows, input.shape[-1]), (input.shape[-1], 1))
    turned = extents.view(weight, weight.shape[::-1], weight.stride()[::-1])
    if bias is None:
        whole = direct_rules.mm(extents, flat, turned)
    else:
        whole = direct_rules.addmm(extents, bias, flat, turned)
    return whole and extents.new_contiguous(input, (*input.shape[:-1], weight.shape[0]))


def _conv(
    extents: Extents,
    input: Any,
    weight: Any,
    bias: object = None,
    stride: object = 1,
    padding: object = 0,
    dilation: object = 1,
    groups: int = 1,
) -> Any:
    settings = [(v,) if type(v) is int else v for v in (stride, padding, dilation)]
    if any(type(v) not in (tuple, list) for v in settings) or input.dim() != weight.dim():
        return None
    return direct_rules.convolution(extents, input, weight, bias, *settings, False, (0,), groups)


def _embedding(
    extents: Extents,
    input: object,
    weight: Any,
    padding_idx: int | None = None,
    max_norm: object = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Any:
    if max_norm is not None or (padding_idx is not None and weight._has_symbolic_sizes_strides):
        return None
    if padding_idx is not None and not -weight.shape[0] <= padding_idx < weight.shape[0]:
        return None
    return direct_rules.embedding(extents, weight, input)


def _embedding_bag(
    extents: Extents,
    input: Any,
    weight: Any,
    offsets: object = None,
    max_norm: object = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: object = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Any:
    """One bag in each row of `input`."""
    if offsets is not None or max_norm is not None or per_sample_weights is not None or padding_idx is not None:
        return None
    if mode not in ("sum", "mean", "max") or include_last_offset or scale_grad_by_freq or sparse:
        return None
    extent = extents.of(input)
    if extent is None or input.dim() != 2 or not all(map(extents.is_positive, extent.shape)):
        return None
    if not weight.dtype.is_floating_point or direct_rules.embedding(extents, weight, input) is None:
        return None
    return extents.new_contiguous(weight, (input.shape[0], weight.shape[1]))


def _matmul(extents: Extents, input: Any, other: Any) -> Any:
    """The product of two batches with equally many matrices."""
    if type(input) is not Sketch or type(other) is not Sketch or input.dim() != other.dim() or input.dim() < 2:
        return None
    if input.dim() == 2:
        return direct_rules.mm(extents, input, other)
    one, two = extents.of(input), extents.of(other)
    if one is None or two is None or one.shape[:-2] != two.shape[:-2]:
        return None
    if not all(map(extents.is_positive, one.shape[:-2])):
        return None
    batch = extents.count(one.sizes[:-2])
    flat = [Sketch((batch, *t.shape[-2:]), (0, 0, 0), 0, t.dtype, t.device) for t in (input, other)]
    made = direct_rules.bmm(extents, *flat)
    return made and extents.new_contiguous(input, (*input.shape[:-1], other.shape[-1]))


# -- over dimensions


def _softmax(extents: Extents, input: object, dim: object = None, dtype: object = None) -> Any:
    return direct_rules.softmax(extents, input, dim, False) if type(dim) is int and dtype is None else None


def _f_softmax(extents: Extents, input: object, dim: object = None, _stacklevel: int = 3, dtype: object = None) -> Any:
    return _softmax(extents, input, dim, dtype)


def _mean(extents: Extents, input: Any, dim: Any, keepdim: bool = False) -> Any:
    dims = (dim,) if type(dim) is int else dim
    if type(dims) not in (tuple, list) or not all(type(d) is int for d in dims):
        return None
    return direct_rules.mean(extents, input, dims, keepdim)


def _pooled_to_one(extents: Extents, input: Any, output_size: object) -> Any:
    """`adaptive_avg_pool2d` to one number per channel."""
    if output_size not in (1, (1, 1), [1, 1]) or input.dim() != 4:
        return None
    return direct_rules.mean(extents, input, (-1, -2), True)


def _max_pool2d(
    extents: Extents,
    input: Any,
    kernel_size: object,
    stride: Any = None,
    padding: object = 0,
    dilation: object = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    if ceil_mode or return_indices or input.dim() != 4:
        return None
    stride = kernel_size if stride is None else stride
    return direct_rules.max_pool(extents, input, kernel_size, stride, padding, dilation)


# -- normalisation


def _batch_norm(
    extents: Extents,
    input: object,
    running_mean: object,
    running_var: object,
    weight: object = None,
    bias: object = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    if training or running_mean is None or running_var is None or not direct_rules.is_symbolic(input):
        return None
    result = batch_norm(extents, input, weight, bias, running_mean, running_var, momentum, eps)
    return result and result[0]


def _layer_norm(
    extents: Extents,
    input: object,
    normalized_shape: object,
    weight: object = None,
    bias: object = None,
    eps: float = 1e-5,
) -> Any:
    if type(normalized_shape) not in (tuple, list, torch.Size) or not direct_rules.is_symbolic(input):
        return None
    result = layer_norm(extents, input, normalized_shape, weight, bias, eps)
    return result and result[0]


# -- the table

_UNARY = ("relu", "sigmoid", "tanh", "exp", "erf", "sqrt", "rsqrt", "neg", "sin", "cos", "log")
_COMPARISONS = ("lt", "le", "eq", "ne", "gt", "ge")

_RULES: tuple[tuple[Callable[..., Any], tuple[Any, ...]], ...] = (
    (
        _unary,
        (
            *_UNARY,
            *(getattr(torch, name) for name in _UNARY),
            *(operator.neg, F.relu, F.silu, F.sigmoid, F.tanh, F.hardswish, F.hardsigmoid),
        ),
    ),
    (_gelu, (F.gelu,)),
    (
        _either(direct_rules.binary),
        (operator.add, operator.mul, operator.sub, torch.add, torch.mul, torch.sub, "add", "mul", "sub"),
    ),
    (_either(direct_rules.quotient), (operator.truediv, torch.div, "div")),
    (_either(direct_rules.comparison), (*_COMPARISONS, *(getattr(operator, name) for name in _COMPARISONS))),
    (_written, (operator.iadd, operator.isub, operator.imul, "add_", "sub_", "mul_")),
    (_pow, (operator.pow, torch.pow, "pow")),
    (_dropout, (F.dropout,)),
    (_where, (torch.where,)),
    (_to, ("to",)),
    (_float, ("float",)),
    (_double, ("double",)),
    (_linear, (F.linear,)),
    (_conv, (F.conv2d, F.conv3d)),
    (_embedding, (F.embedding,)),
    (_embedding_bag, (F.embedding_bag,)),
    (_matmul, (torch.matmul, operator.matmul, "matmul")),
    (direct_rules.bmm, (torch.bmm, "bmm")),
    (_softmax, (torch.softmax, "softmax")),
    (_f_softmax, (F.softmax,)),
    (_mean, (torch.mean, "mean")),
    (_pooled_to_one, (F.adaptive_avg_pool2d,)),
    (_max_pool2d, (F.max_pool2d,)),
    (_batch_norm, (F.batch_norm,)),
    (_layer_norm, (F.layer_norm,)),
    (direct_rules.cat, (torch.cat,)),
    (direct_rules.stack, (torch.stack,)),
    (view_rules.subscript, (operator.getitem,)),
    (view_rules.given(view_rules.view), ("view",)),
    (view_rules.given(view_rules.reshape), ("reshape", torch.reshape)),
    (view_rules.given(view_rules.permute), ("permute", torch.permute)),
    (view_rules.transpose, ("transpose", torch.transpose)),
    (view_rules.t, ("t", torch.t)),
    (view_rules.unsqueeze, ("unsqueeze", torch.unsqueeze)),
    (view_rules.squeeze, ("squeeze", torch.squeeze)),
    (view_rules.flatten, ("flatten", torch.flatten)),
    (view_rules.contiguous, ("contiguous",)),
)

CALLS: dict[Any, CallRule] = {target: CallRule(rule) for rule, targets in _RULES for target in targets}
"""Function, or name of a method → its rule."""
