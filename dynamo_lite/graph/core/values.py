"""Values of the graph under construction.

Input: nothing; this is the vocabulary of the package. Output: `TensorValue` and `SymValue`, what stands for a tensor or
a symbolic number between the models and the FX nodes, and `Propagation`, what an operator does to metadata.
Invariant: a value that nothing has used yet need not have a node; `builder.node(value)` makes it.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class TensorValue:
    """A tensor in the graph.

    Attributes:
        meta: a `TensorMeta`, or a `LiveMeta` for what that can't describe.
        node: the FX node, None until something needs it; `origin` says how to make it: `("input", source, real tensor)`
            or `("item", parent node, index)`.
        fake: the fake tensor if one has been made.
        family: all values known to share this one's storage through views, itself included; None if it is alone.
        tracker: the model of this tensor.
        pinned: a wrapper tensor has this fake as a part: no other may take its place.
        is_fake: the program itself gets a `FakeTensor`, of a mode of its own; the name of a function transform: that transform's wrapper
            of one, whose class is `Tensor`.
        is_inference: an inference tensor, as far as it is not a view of one; perhaps one that is none, if the traced code has made it.
    """

    __slots__ = ("fake", "family", "is_fake", "is_inference", "meta", "node", "origin", "pinned", "tracker")

    def __init__(self, meta: Any, node: Any = None, origin: Any = None, fake: Any = None) -> None:
        self.meta = meta
        self.node = node
        self.origin = origin
        self.fake = fake
        self.family: list[TensorValue] | None = None
        self.tracker: Any = None
        self.pinned = False
        self.is_fake: bool | str = False
        self.is_inference = False

    @property
    def is_input(self) -> bool:
        return self.origin is not None and self.origin[0] == "input"

    def __repr__(self) -> str:
        return f"TensorValue({self.node or self.origin}, {self.meta})"


def requires_grad(node: Any) -> bool:
    """Whether a node stands for a tensor that requires gradients."""
    subject = getattr(node.meta, "subject", None)
    return isinstance(subject, TensorValue) and subject.meta.requires_grad


class SymValue:
    """A number that is symbolic: `sym` is a SymInt, SymFloat or SymBool.

    `origin` is `("input", source, real number)`, `("method", tensor value, name, …)`, `("item", parent node, index)` or
    `("call", function, arguments)`, the arguments being values and constants. `nested`, where it is set: how many quotients are within each
    other in the number.
    """

    __slots__ = ("nested", "node", "origin", "sym")

    def __init__(self, sym: Any, node: Any = None, origin: Any = None) -> None:
        self.sym = sym
        self.node = node
        self.origin = origin

    def __repr__(self) -> str:
        return f"SymValue({self.sym})"


class SequenceValue(NamedTuple):
    """The value of a node with several results: an instance of `type` with these values and constants as items, or a dict with the given
    keys."""

    type: type
    items: list[Any]
    keys: tuple[Any, ...] | None = None


def tensors_made_by(node: Any) -> list[TensorValue]:
    """The tensors that a node of the captured graph stands for: one, or those of its several results."""
    values = [getattr(node.meta, "subject", None), *_items(getattr(node.meta, "sequence", None))]
    return [value for value in values if isinstance(value, TensorValue)]


def _items(sequence: SequenceValue | None) -> list[Any]:
    if sequence is None:
        return []
    return [part for item in sequence.items for part in (_items(item) if isinstance(item, SequenceValue) else (item,))]


class TensorResult(NamedTuple):
    """An operator returns a new tensor; `base` is the position among its tensor arguments of one that it is a view
    of."""

    meta: Any
    base: int | None


class SameResult(NamedTuple):
    """An operator returns its tensor argument number `position` itself."""

    position: int


class ArgumentResult(NamedTuple):
    """An operator returns the list or tuple that it was given, by position or by name, itself."""

    key: int | str


class SymResult(NamedTuple):
    """An operator returns a symbolic number."""

    sym: Any


class ConstantResult(NamedTuple):
    """An operator returns a Python value that follows from metadata."""

    value: Any


class SequenceResult(NamedTuple):
    """An operator returns a tuple, list or structure sequence of type `type`, or a dict with the given keys."""

    type: type
    items: tuple[Any, ...]
    keys: tuple[Any, ...] | None = None


def has_constant(result: Any) -> bool:
    """Whether there is a Python value in a result, besides None."""
    if type(result) is SequenceResult:
        return any(map(has_constant, result.items))
    return type(result) is ConstantResult and result.value is not None


class Propagation(NamedTuple):
    """The effect of an operator on metadata: its result, the new metas of arguments that it changed, by position, and the positions of
    those whose data it changed, each with how many times that was counted; of arguments that share memory the first; whether it draws
    random numbers."""

    result: Any
    changes: tuple[tuple[int, Any], ...] = ()
    written: tuple[tuple[int, int], ...] = ()
    is_random: bool = False
