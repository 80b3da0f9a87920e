"""Torch's state at the places of a graph that changes it: grad mode and autocast.

Input: the nodes of a flat graph, torch's state as it is before the graph runs. Output: for each node the state before it, and the calls
that enter it and leave it.
Invariant: a graph leaves the state as it has found it. Behind a node that changes something else the state is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.fx import Node

Call = tuple[Callable[..., Any], tuple[Any, ...]]
"""A function, and its arguments."""

READERS: dict[Callable[..., Any], Callable[..., Any]] = {
    torch._C._set_grad_enabled: torch.is_grad_enabled,
    torch.set_autocast_enabled: torch.is_autocast_enabled,
    torch.set_autocast_dtype: torch.get_autocast_dtype,
    torch.set_autocast_cache_enabled: torch.is_autocast_cache_enabled,
}
"""Setters → what reads the setting, given all arguments but the last."""

LEAVE = "leave_autocast"
"""Name of the function that ends a block of autocast; only graphs have it."""


class SegmentState(NamedTuple):
    """What is other than before the graph: `settings`, as calls of setters, each with the call that puts it back, and how often autocast
    has been entered. `end`: the function that ends one block of it."""

    settings: tuple[tuple[Call, Call], ...] = ()
    depth: int = 0
    end: Callable[..., Any] | None = None

    def enter(self) -> list[Call]:
        """The calls that lead here from the first state."""
        return [call for call, _ in self.settings] + [(torch.autocast_increment_nesting, ())] * self.depth

    def leave(self) -> list[Call]:
        """The calls that lead back."""
        ends: list[Call] = [(self.end, ())] * self.depth if self.end is not None else []
        return ends + [back for _, back in self.settings]


FIRST_STATE = SegmentState()


def states_before(nodes: Sequence[Node]) -> list[SegmentState | None]:
    """The state before each node; None where it is not known."""
    found: list[SegmentState | None] = []
    end = next((node.target for node in nodes if getattr(node.target, "__name__", None) == LEAVE), None)
    changed: dict[Any, tuple[Call, Call]] = {}
    depth, known = 0, True
    for node in nodes:
        first = not changed and not depth
        state = FIRST_STATE if first else SegmentState(tuple(changed.values()), depth, end)  # type: ignore[arg-type]
        found.append(state if known and (depth == 0 or end is not None) else None)
        if node.target in READERS:
            _note(changed, node)
        elif node.target is torch.autocast_increment_nesting:
            depth += 1
        elif node.target is end and end is not None:
            depth -= 1
        elif node.meta.get("example_value") is None and not node.users:
            known = False
    return found


def _note(changed: dict[Any, tuple[Call, Call]], node: Node) -> None:
    """Take the setting that a node makes for changed, or for put back."""
    setter: Any = node.target
    *key, value = node.args
    first = READERS[setter](*key)
    changed.pop((setter, *key), None)
    if value != first:
        changed[setter, *key] = (setter, (*key, value)), (setter, (*key, first))
