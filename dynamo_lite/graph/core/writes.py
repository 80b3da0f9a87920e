"""What operators write to, as their schemas say it, and which of them draw random numbers.

Input: an operator of the dispatcher and its arguments. Output: the arguments that it changes in place.
Invariant: where the version counters of fake tensors don't move as those of real ones do, they are moved here; changes that no counter
tells of, not even in eager execution, are listed.
Mirrors `aten/src/ATen/native/native_functions.yaml`.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch.fx import Node
from torch.fx.node import map_arg
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from dynamo_lite.exc import Unsupported, unsupported

from .keep_dynamo_unloaded import without_compiler
from .meta import meta_of_fake
from .operator_names import has_tag, operator_name
from .storages import origin
from .values import SequenceResult, TensorResult, TensorValue
from .wrapper_tensors import memories_of


class Effects(NamedTuple):
    """`names`: arguments that an operator changes although the counters of fake tensors don't tell; `counts`: those of real tensors do.
    `asks`: its first argument remembers a number that its data decide."""

    names: frozenset[str]
    counts: bool
    is_random: bool
    asks: bool


_KNOWN: dict[Any, Effects | None] = {}


def effects_of(func: Any) -> Effects | None:
    """The effects of an operator that fake tensors don't show; None for nearly all."""
    try:
        return _KNOWN[func]
    except KeyError:
        found = _KNOWN[func] = _find(func) if isinstance(func, torch._ops.OpOverload) else None
        return found


def _find(func: Any) -> Effects | None:
    names = [a.name for a in func._schema.arguments if is_written(func, a) and (_is_list(a) or not _is_declared(a))]
    is_random = torch.Tag.nondeterministic_seeded in func.tags
    asks = func in _ASKING
    return Effects(frozenset(names), _is_foreach(func), is_random, asks) if names or is_random or asks else None


_ASKING = frozenset(
    getattr(torch.ops.aten, name).default
    for name in ("nonzero", "item", "_local_scalar_dense", "_unique", "_unique2", "unique_dim", "unique_consecutive")
    if hasattr(torch.ops.aten, name)
)
"""The operators whose rules for fake tensors remember the number that they find: a length, or the only element."""


def _is_declared(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def _is_list(argument: Any) -> bool:
    return isinstance(argument.type, torch.ListType)


def _is_foreach(func: Any) -> bool:
    """The kernels of `_foreach_` operators count for each tensor, fused ones and batch normalisation do not."""
    return "::_foreach_" in func._schema.name


def is_written(func: Any, argument: Any) -> bool:
    """Whether an operator changes an argument of its schema. That of batch normalisation does not say so."""
    name = func._schema.name
    is_hidden = argument.name.startswith("running_") and "batch_norm" in name and "backward" not in name
    return is_hidden or _is_declared(argument)


_OBSERVERS = frozenset(
    getattr(of, name)
    for of in (torch, torch.ops.aten)
    for name in ("fused_moving_avg_obs_fake_quant", "_fused_moving_avg_obs_fq_helper")
    if hasattr(of, name)
)
_OBSERVERS |= {packet.default for packet in _OBSERVERS if isinstance(packet, torch._ops.OpOverloadPacket)}
_RESIZED = ("running_min", "running_max", "scale", "zero_point")


def resizes_silently(target: object, args: tuple[Any, ...], kwargs: dict[str, Any], shape_of: Any) -> bool:
    """Whether an operator is going to resize what it writes to, of which fake tensors know nothing: the first call of a fused observer that
    keeps numbers per channel. `shape_of(node)` is the shape of a tensor argument."""
    if target not in _OBSERVERS:
        return False
    names = [parameter.name for parameter in torch.ops.aten.fused_moving_avg_obs_fake_quant.default._schema.arguments]
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    if not given.get("per_row_fake_quant") or not given.keys() >= {"self", "ch_axis", *_RESIZED}:
        return False
    channels = shape_of(given["self"])[given["ch_axis"]]
    return any(tuple(shape_of(given[name])) != (channels,) for name in _RESIZED)


_IGNORE_STRIDES_OF_OUT = frozenset(
    getattr(of, name)
    for of, name in (
        (torch, "matmul"),
        (torch, "narrow_copy"),
        (torch._C._nn, "avg_pool3d"),
        (torch._C._nn, "gelu"),
        (torch._C._nn, "linear"),
        (torch.fft, "ihfft2"),
        (torch.fft, "ihfftn"),
        (torch.linalg, "pinv"),
    )
)
_IGNORE_STRIDES_OF_OUT |= {getattr(torch.ops.aten, of.__name__).out for of in _IGNORE_STRIDES_OF_OUT}
"""Operators whose kernels for the CPU (torch 2.13) write to the memory of `out=` as if it were contiguous, make it so, or write nothing.
Compilers compute the result and copy it, which is right and differs from eager execution. Found by comparing an `out=` of stride 2 with
the plain result for all samples of torch's database of operators."""


def check_out(
    propagator: Any,
    op: str,
    target: Any,
    args: object,
    kwargs: dict[str, Any],
    tensors: list[Any],
    values: dict[Any, Any],
) -> None:
    """Break where eager execution does something else with `out=` than to copy the result into it, as compilers do: where its dtype is not
    the result's, which most operators refuse, where the kernel takes no notice of its strides, and where strides decide in which order
    random numbers are drawn."""
    out = kwargs["out"]
    strides_matter = target in _IGNORE_STRIDES_OF_OUT or has_tag(
        getattr(target, "__name__", "").partition(".")[0], torch.Tag.nondeterministic_seeded
    )
    if strides_matter and isinstance(out, Node) and not values[out].meta.is_contiguous():
        unsupported("tensor-attribute", f"{target.__name__} with out= that is not contiguous")
    rest = {name: value for name, value in kwargs.items() if name != "out"}
    given = [out] if isinstance(out, Node) else out
    if not isinstance(given, tuple | list) or len(tensors) <= len(
        given
    ):  # what makes numbers makes them of the dtype of `out`
        return
    try:
        result = propagator.propagate(op, target, args, rest, tensors, values, None, {})[0].result
    except Unsupported:
        return
    made = result.items if isinstance(result, SequenceResult) else [result]
    if len(given) != len(made):
        return
    for node, item in zip(given, made, strict=True):
        value = values.get(node)
        if (
            not isinstance(value, TensorValue)
            or not isinstance(item, TensorResult)
            or value.meta.dtype == item.meta.dtype
        ):
            continue
        if len(given) > 1 or not _casts(target, args, rest, value.meta.dtype, values):
            name = getattr(target, "__name__", target)
            unsupported(
                "fake-tensor-error", f"{name} with out= of {value.meta.dtype}, where the result is {item.meta.dtype}"
            )


def _casts(target: Any, args: Any, kwargs: dict[str, Any], dtype: torch.dtype, values: dict[Any, Any]) -> bool:
    """Whether an elementwise operator takes an `out=` of this dtype: whether it does so with one element."""
    if not has_tag(getattr(target, "__name__", ""), torch.Tag.pointwise):
        return False

    def one(node: Node) -> Any:
        value = values[node]
        return torch.ones(1, dtype=value.meta.dtype) if isinstance(value, TensorValue) else value

    args, kwargs = map_arg((args, kwargs), one)
    try:
        with without_compiler, torch._C._DisableTorchDispatch():
            target(*args, **kwargs, out=torch.ones(1, dtype=dtype))
    except Exception:
        return False
    return True


def check_overlap(
    propagator: Any,
    target: Any,
    args: tuple[Any, ...],
    written: list[TensorValue],
    tensors: list[TensorValue],
    values: dict[Any, Any],
) -> None:
    """Break where an operator of tensors that are as large as its result writes to memory that it reads as another tensor: it refuses that
    when it runs. Compilers compute the result first. Other operators and sizes that vary are not looked at."""
    is_assignment = target is operator.setitem
    name = operator_name(target) or ""
    if len(written) != 1 or not (is_assignment or name == "copy_" or has_tag(name, torch.Tag.pointwise)):
        return
    (value,) = written
    others = [other for other in tensors if other is not value and origin(other) is origin(value)]
    if not others:
        return
    meta = _meta_of_items(propagator, value, args, values) if is_assignment else value.meta
    place = None if meta is None else _place_of(meta)
    if place is None:
        return
    for other in others:
        read = _place_of(other.meta) if other.meta.shape == meta.shape else None
        if read is not None and place != read and place[0] < read[1] and read[0] < place[1]:
            unsupported("fake-tensor-error", f"{name} writes to memory that it reads as another tensor")


def _place_of(meta: Any) -> tuple[int, ...] | None:
    """Begin and end in memory, and the strides, of a tensor without gaps; None for another one: torch does not look at those."""
    if meta.layout is not torch.strided or any(type(n) is not int for n in (*meta.shape, *meta.stride, meta.offset)):
        return None
    length = 1
    for n, step in sorted(zip(meta.shape, meta.stride, strict=True), key=operator.itemgetter(1)):
        if n != 1:
            if n == 0 or step != length:
                return None
            length *= n
    begin, size = meta.offset, meta.dtype.itemsize
    return begin * size, (begin + length) * size, *meta.stride


def _meta_of_items(propagator: Any, value: TensorValue, args: tuple[Any, ...], values: dict[Any, Any]) -> Any:
    """The meta of the view that an assignment of items changes; None if it is no view."""
    index = propagator.substitute(args[1:2], values)[0]
    parts = index if isinstance(index, tuple) else (index,)
    if not all(p is None or p is ... or isinstance(p, slice) or type(p) is int for p in parts):
        return None
    with propagator.mode, without_compiler, torch.no_grad():
        return meta_of_fake(propagator.fake_of(value)[index])


def arguments(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[str, Any, bool]]:
    """(name, value, whether it is written to) of the arguments of a call."""
    for i, argument in enumerate(func._schema.arguments):
        if i < len(args) or argument.name in kwargs:
            value = args[i] if i < len(args) else kwargs[argument.name]
            yield argument.name, value, is_written(func, argument)


def note_writes(func: Any, effects: Effects, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """The tensors that a call has changed without their counters telling; those that would tell in eager execution are moved."""
    given = {name: value for name, value, _ in arguments(func, args, kwargs)}
    if given.get("training", given.get("train", True)) is False:
        return []
    values = [given[name] for name in effects.names if given.get(name) is not None]
    tensors = [t for value in values for t in (value if isinstance(value, list | tuple) else (value,))]
    if effects.counts:
        torch.autograd.graph.increment_version([t for t in tensors if not t.is_inference()])
    return tensors


class WatchesWrites(TorchDispatchMode):
    """Sees which tensors operators write to, by their schemas: inference tensors have no counters. `written`: their memories."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self.written: set[Any] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        for _, value, is_changed in arguments(func, args, kwargs) if isinstance(func, torch._ops.OpOverload) else ():
            self.written |= keys_of(tree_iter(value) if is_changed else ())
        return func(*args, **kwargs)


def keys_of(values: Iterable[Any]) -> set[int]:
    """Keys of the memories of tensors; of the objects, where they have none that is known."""
    return {key for t in values if isinstance(t, torch.Tensor) for key in memories_of(t) or {id(t)}}
