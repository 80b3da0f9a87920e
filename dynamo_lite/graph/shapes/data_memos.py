"""Numbers that data decide, as fake tensors remember them: a second `item()` gives the same one, a second selection by a mask is as long.

Input: the fake tensors that operators have asked for such a number (`PropagationMode.asked`), and the values of the graph that they stand
for. Output: none; numbers that may no longer be those of the data are forgotten.
Invariant: torch forgets them where the version counter of the very fake tensor moves. An outcome that is remembered, or follows from
metadata, moves none; nor do the fakes of views need to share memory, nor does a write to `data` count. So a write forgets the numbers of
all values in its memory, as the graph knows it.
Mirrors `torch/_subclasses/fake_tensor.py` (`SymNumberMemoDescriptor`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any

from torch._subclasses.fake_tensor import FakeTensor

from dynamo_lite.graph.core.storages import hold_apart, origin
from dynamo_lite.graph.core.values import TensorValue

if TYPE_CHECKING:
    from dynamo_lite.graph.builder import GraphBuilder

_NAMES = ("nonzero_memo", "item_memo", "unique_memo", "unique_consecutive_memo")


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

    def leave(self, is_inside: Callable[[TensorValue], bool]) -> None:
        """A body is finished, with its values: nothing tells any more what they were made of."""
        self.known = [(fake, value) for fake, value in self.known if value is None or not is_inside(value)]


def _clear(fake: FakeTensor) -> None:
    for name in _NAMES:
        setattr(fake, name, None)
