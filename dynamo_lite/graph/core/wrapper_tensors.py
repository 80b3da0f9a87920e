"""Tensors that consist of others: subclasses with `__torch_dispatch__` which say how to take them apart.

Input: real or fake tensors. Output: what a guard compares; whether the graph can hold such a tensor.
Invariant: the graph holds the whole tensor; its class computes with fake parts as it does with real ones.
Mirrors `torch/utils/_python_dispatch.py` (`is_traceable_wrapper_subclass`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

if TYPE_CHECKING:
    from dynamo_lite.graph.builder import GraphBuilder

_C = torch._C


def is_wrapper_class(cls: type) -> bool:
    """True for a class that can be taken apart and put together."""
    return hasattr(cls, "__tensor_flatten__") and hasattr(cls, "__tensor_unflatten__")


def is_wrapper(value: object) -> bool:
    """True for a tensor of such a class."""
    cls = type(value)  # `isinstance` may ask the value for its `__class__`
    return issubclass(cls, torch.Tensor) and not issubclass(cls, FakeTensor) and is_wrapper_class(cls)


def is_followed(cls: type[torch.Tensor]) -> bool:
    """Whether a class of tensors has a `__torch_function__` that is code of the program: the trace follows it. Those of torch's own
    wrappers run where the graph runs."""
    override = cls.__torch_function__
    if override is _C._disabled_torch_function_impl or cls.__module__.partition(".")[0] == "torch":
        return False
    return getattr(override, "__func__", None) is not torch.Tensor.__torch_function__.__func__


def runs_code(value: torch.Tensor) -> bool:
    """Whether torch finds a `__torch_function__` to call when operators get a tensor, or its parts, that the trace does not follow."""
    cls = type(value)
    if not is_wrapper(value) or is_followed(cls):
        return False
    if cls.__torch_function__ is not _C._disabled_torch_function_impl:
        return True
    parts = [getattr(value, name) for name in part_names(value)]
    return any(is_followed(type(part)) or runs_code(part) for part in parts)


def is_asked(builder: GraphBuilder, tensors: list[Any]) -> bool:
    """Whether an operator on these, called where the trace is, meets a class that torch asks while the graph runs."""
    overrides = builder.tr.overrides
    if overrides is not None and overrides.ignores_subclasses:
        return False
    return any(t.meta.live and is_wrapper(t.fake) and not is_followed(type(t.fake)) for t in tensors)


def maker_of(cls: type) -> Callable[..., Any]:
    """Calls a class. A graph that is run node by node hands over its own kinds of lists and dictionaries, which the tensor might keep."""

    def make(*args: Any, **kwargs: Any) -> Any:
        return cls(*map(_as_given, args), **{name: _as_given(a) for name, a in kwargs.items()})

    make.__name__ = cls.__name__
    return make


def _as_given(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _as_given(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_as_given(item) for item in value]
    return tuple(map(_as_given, value)) if type(value) is tuple else value


def takes_gradients_apart(value: torch.Tensor) -> bool:
    """Whether a part requires gradients, which are then no gradients of the whole tensor."""
    parts = [getattr(value, name) for name in part_names(value)]
    return any(part.requires_grad or (is_wrapper(part) and takes_gradients_apart(part)) for part in parts)


def part_names(value: torch.Tensor) -> list[str]:
    """The attributes that hold the parts that are tensors."""
    return [name for name in value.__tensor_flatten__()[0] if isinstance(getattr(value, name), torch.Tensor)]


def has_parts(value: torch.Tensor) -> bool:
    """False for a tensor whose `__init__` is not done."""
    try:
        with _C.DisableTorchFunctionSubclass():
            part_names(value)
    except AttributeError:
        return False
    return True


class WrapperPart:
    """A fake tensor that is part of wrapper tensors. `tracker`: its model, made of the part `name` of `owner` when it is first read."""

    __slots__ = ("fake", "name", "owner", "tracker")

    def __init__(self, fake: Any, owner: Any, name: str, tracker: Any = None) -> None:
        self.fake = fake
        self.owner = owner
        self.name = name
        self.tracker = tracker


def pin_parts(parts: dict[int, WrapperPart], value: Any, tensors: list[Any]) -> None:
    """A wrapper tensor that an operator returns may have arguments of that operator as parts: they are the same objects."""
    for name in part_names(value.fake):
        part = getattr(value.fake, name)
        given = next((t for t in tensors if t.fake is part), None)
        if given is not None and id(part) not in parts:
            given.pinned = True
            parts[id(part)] = WrapperPart(part, None, name, given.tracker)


def memories_of(value: torch.Tensor) -> set[int]:
    """Keys of memories: tensors that share memory have a key in common."""
    if not is_wrapper(value):
        return {value.untyped_storage()._cdata} if value.layout is torch.strided else set()
    return set().union(*(memories_of(getattr(value, name)) for name in part_names(value)))


def mask_buffers(value: torch.Tensor) -> list[Any]:
    """What the placements of a distributed tensor remember between the look-up in a part of a table and the sum over all parts: which
    positions are not in that part. Torch shares placements between equal calls, those on fakes too."""
    placements = getattr(getattr(value, "_spec", None), "placements", ())
    return [p.mask_buffer for p in placements if hasattr(p, "mask_buffer")]


def are_disjoint(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Guard: tensors that share no memory, whose parts don't either."""
    with _C.DisableTorchFunctionSubclass():
        return memories_of(one).isdisjoint(memories_of(other))


def share_memory(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Guard: the opposite."""
    return not are_disjoint(one, other)


@dataclass(slots=True)
class Free:
    """The numbers that may differ at the next call: sizes and strides by dimension, and the same for the parts."""

    sizes: frozenset[int] = frozenset()
    strides: frozenset[int] = frozenset()
    parts: Mapping[str, Free] = field(default_factory=dict)


FIXED = Free()


def description(value: torch.Tensor, free: Free = FIXED) -> tuple[Any, ...]:
    """All that a graph depends on: metadata of the tensor and of its parts, and what else its class says about it."""
    own = (
        type(value),
        value.dtype,
        value.device,
        value.layout,
        value.requires_grad,
        value.is_leaf,
        _fixed(value.shape, free.sizes),
        _fixed(value.stride(), free.strides) if value.layout is torch.strided else None,
        _C._dispatch_keys(value).raw_repr(),
    )
    if not is_wrapper(value):
        return own
    names, context = value.__tensor_flatten__()
    if hasattr(type(value), "__metadata_guard__"):
        context = OwnComparison(type(value), context)
    parts: list[Any] = []
    for name in names:
        part = getattr(value, name)
        parts.append(description(part, free.parts.get(name, FIXED)) if isinstance(part, torch.Tensor) else part)
    return (*own, context, tuple(names), *parts)


def _fixed(numbers: Sequence[Any], free: frozenset[int]) -> tuple[Any, ...]:
    return tuple([None if i in free else n for i, n in enumerate(numbers)]) if free else tuple(numbers)


class OwnComparison:
    """The metadata that a class of tensors gives for one of them and compares itself: equal to those of other tensors for which a graph
    holds too."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, cls: Any, context: Any) -> None:
        self.cls = cls
        self.context = context

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, OwnComparison):
            return NotImplemented
        return self.cls is other.cls and bool(self.cls.__metadata_guard__(self.context, other.context))


class SameDescription:
    """Guard: a tensor with equal description."""

    def __init__(self, value: torch.Tensor, free: Free = FIXED) -> None:
        self.free = free
        with _C.DisableTorchFunctionSubclass():
            self.expected = description(value, free)

    def __call__(self, value: object) -> bool:
        with _C.DisableTorchFunctionSubclass():
            return bool(self.expected == description(value, self.free))
