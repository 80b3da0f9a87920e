"""What the runs of one analysis have learned.

Input: the facts that runs end with (`exc.Fact`). Output: `Facts`, which the next run is made with.
Invariant: a run never changes the record that it was made with; each restart adds a fact, or the region remembers something, so that
the next run goes another way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from dynamo_lite import exc


@dataclass(frozen=True)
class Facts:
    """The facts that hold for a run. `break_step` is -1 where the run need not break; `cut` is the name of the node before which the
    graph has to end, and why."""

    break_step: int = -1
    break_reason: exc.Unsupported | None = None
    open_ranges: frozenset[int] = frozenset()
    cut: tuple[str | None, exc.Unsupported | None] = (None, None)
    followed_hooks: Mapping[int, exc.Unsupported] = field(default_factory=dict)
    numbers_in_texts: frozenset[tuple[int, int]] = frozenset()
    reads_arguments: bool = False
    asks_by_node: bool = False
    state_changed: bool = False
    leaves_data: bool = False
    assumes_large_sizes: bool = False
    selections: frozenset[tuple[int, int]] = frozenset()
    followed_to_return: Mapping[tuple[int, int], exc.Unsupported] = field(default_factory=dict)

    def learned(self, fact: exc.Fact) -> Facts:
        """These facts and one more."""
        match fact:
            case exc.BreakAt(step, reason, open_ranges):
                return replace(self, break_step=step, break_reason=reason, open_ranges=self.open_ranges | open_ranges)
            case exc.EndGraphBefore(node, reason):
                return replace(self, cut=(node, reason))
            case exc.FollowHook(step, reason):
                return replace(self, followed_hooks={**self.followed_hooks, step: reason})
            case exc.TextIsRead(place):
                return replace(self, numbers_in_texts=self.numbers_in_texts | {place})
            case exc.ReadArguments():
                return replace(self, reads_arguments=True)
            case exc.AskClassesByNode():
                return replace(self, asks_by_node=True)
            case exc.MakeSelection(place):
                return replace(self, selections=self.selections | {place})
            case exc.FollowToReturn(place, reason):
                return replace(self, followed_to_return={**self.followed_to_return, place: reason})
            case exc.LeaveData():
                return replace(self, leaves_data=True)
            case exc.AssumeLargeSizes():
                return replace(self, assumes_large_sizes=True)
            case exc.StateChanged():
                return replace(self, state_changed=True)
        raise NotImplementedError(type(fact).__name__)
