"""Numbers that data decide, as fake tensors remember them: a second `item()` gives the same one, a second selection by a mask is as long.

Input: the fake tensors that operators have asked for such a number (`PropagationMode.asked`), and the values of the graph that they stand
for. Output: for a mask that is computed once more the first one, whose number is known (`loss(x[t > 0], t[t > 0])`); numbers that may no
longer be those of the data are forgotten.
Invariant: torch forgets them where the version counter of the very fake tensor moves. An outcome that is remembered, or follows from
metadata, moves none; nor do the fakes of views need to share memory, nor does a write to `data` count. So a write forgets the numbers of
all values in its memory, as the graph knows it.
Mirrors `torch/_subclasses/fake_tensor.py` (`SymNumberMemoDescriptor`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import Node

from dynamo_lite.graph.core.operator_names import operator_name
from dynamo_lite.graph.core.storages import hold_apart, is_written_since, maker, origin
from dynamo_lite.graph.core.values import TensorValue

if TYPE_CHECKING:
    from dynamo_lite.graph.builder import GraphBuilder

_NAMES = ("nonzero_memo", "item_memo", "unique_memo", "unique_consecutive_memo")


_SELECTORS = frozenset({"argwhere", "getitem", "item", "masked_select", "nonzero", "setitem", "where"})
"""Operators that count what a mask selects, or read a number. What `getitem` and `setitem` select from is no mask."""

_FUNCTIONS = frozenset(
    {
        *("abs", "all", "any", "argmax", "bool", "detach", "flatten", "float", "getitem", "int", "long"),
        *("reshape", "squeeze", "to", "unsqueeze", "view", "isfinite", "isinf", "isnan"),
        *("eq", "ge", "greater", "greater_equal", "gt", "le", "less", "less_equal", "lt", "ne", "not_equal"),
        *("and_", "or_", "xor", "invert", "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor"),
        *("logical_and", "logical_not", "logical_or", "logical_xor"),
    }
)
"""Operators that masks are computed by, whose results depend on nothing but their arguments."""


class DataMemos:
    """The fakes of one trace that remember such numbers, each with its value; None: it is of no value, but of a part of one perhaps."""

    def __init__(self, builder: GraphBuilder) -> None:
        self.builder = builder
        self.asked: list[FakeTensor] = builder.propagator.mode.asked
        self.known: list[tuple[FakeTensor, TensorValue | None]] = []

    def settle(self, values: Iterable[Any]) -> None:
        """Find the values of the fakes that have been asked since the last time, among these."""
        owners = [value for value in values if isinstance(value, TensorValue)] if self.asked else []
        for fake in self.asked:
            self.known.append((fake, next((value for value in owners if value.fake is fake), None)))
        self.asked.clear()

    def forget(self, written: Collection[TensorValue]) -> None:
        """These have been written to. What inputs in other memory remember holds as long as the memory is another one in each call."""
        if not self.known or not written:
            return
        memories = set(map(origin, written))
        kept: list[tuple[FakeTensor, TensorValue | None]] = []
        for fake, value in self.known:
            if value is None or origin(value) in memories:
                _clear(fake)
            else:
                kept.append((fake, value))
        self.known = kept
        hold_apart(self.builder, memories, (origin(value) for _, value in kept if value is not None))

    def earlier(self, target: object) -> Callable[[TensorValue, int], TensorValue] | None:
        """For a call of this operator, if it selects by masks: what to take for its n-th tensor, the same one computed before."""
        name = operator_name(target)
        if not self.known or name not in _SELECTORS:
            return None
        first = 1 if name in ("getitem", "setitem") else 0
        of_all = name == "item"
        return lambda value, n: (
            self._earlier(value) if n >= first and (of_all or value.meta.dtype is torch.bool) else value
        )

    def _earlier(self, mask: TensorValue) -> TensorValue:
        made = _made(mask)
        for _, value in self.known if made is not None else ():
            other = None if value is None or value is mask else _made(value)
            if other is None or other[1] != made[1] or value.is_inference != mask.is_inference:
                continue
            read: dict[TensorValue, None] = {value: None, mask: None}
            if _is_computed_alike(other[0], made[0], read, set()) and not is_written_since(self.builder, read, 0):
                return value
        return mask

    def leave(self, is_inside: Callable[[TensorValue], bool]) -> None:
        """A body is finished, with its values: nothing tells any more what they were made of."""
        self.known = [(fake, value) for fake, value in self.known if value is None or not is_inside(value)]


def _clear(fake: FakeTensor) -> None:
    for name in _NAMES:
        setattr(fake, name, None)


def _made(value: TensorValue) -> tuple[Any, tuple[int, ...]] | None:
    """The operator that has made a value, and which item of its result that is; None of an input."""
    return None if value.is_input else maker(value)


def _is_computed_alike(one: Any, other: Any, read: dict[TensorValue, None], alike: set[tuple[Node, Node]]) -> bool:
    """Whether two arguments, or nodes, are the same, as long as the values that are added to `read` have not changed. `alike`: nodes that
    were found to be."""
    if type(one) is not type(other):
        return False
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(
            _is_computed_alike(a, b, read, alike) for a, b in zip(one, other, strict=True)
        )
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_is_computed_alike(one[key], other[key], read, alike) for key in one)
    if not isinstance(one, Node):
        return type(one) in _CONSTANTS and repr(one) == repr(other)
    value = getattr(one.meta, "subject", None)
    if isinstance(value, TensorValue):
        read[value] = None
    if one is other or (one, other) in alike:
        return True
    if one.op != other.op or one.target != other.target or operator_name(one.target) not in _FUNCTIONS:
        return False
    given = (one.args, one.kwargs), (other.args, other.kwargs)
    if not _is_computed_alike(*given, read, alike):
        return False
    alike.add((one, other))
    return True


_CONSTANTS = (type(None), bool, int, float, torch.dtype, type(...))
