"""Regions: stretches of a graph that are equal in all that a compiler sees.

Input: nodes in program order, a repeated stretch of their labels. Output: the `RepeatedRegion`: inputs and results of each copy.
Invariant: the copies are isomorphic: the n-th nodes of two copies have the same label, each argument is the same node of the copy or its
same input, inputs have equal metadata and are the same node in equal places; the same nodes are used after the copy.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch.fx import Node
from torch.fx.node import map_arg

from .labels import key_of
from .repeats import Repeat


@dataclass(frozen=True)
class Copy:
    """One place where a region comes: its nodes, and the nodes before it that it uses, in the order of their first use."""

    nodes: tuple[Node, ...]
    inputs: tuple[Node, ...]


@dataclass(frozen=True)
class RepeatedRegion:
    """Equal copies, and the offsets of the nodes in them that are used behind any of them."""

    copies: tuple[Copy, ...]
    results: tuple[int, ...]

    @property
    def saved(self) -> int:
        """The nodes that a compiler does not see any more."""
        return (len(self.copies) - 1) * len(self.copies[0].nodes)

    @property
    def width(self) -> int:
        """The values made by the graph that cross the border of a copy: each is a tensor that a compiler can't fuse away."""
        return len(self.results) + sum(node.op != "placeholder" for node in self.copies[0].inputs)


def regions_at(nodes: Sequence[Node], labels: Sequence[int], repeat: Repeat) -> list[RepeatedRegion]:
    """The regions that a repeat may be cut into, the best first: a chain of layers can be cut at each of its nodes, of which `_TRIED` are
    tried. Few values that cross the borders count for more than a node more that is saved."""
    places = {node: i for i, node in enumerate(nodes)}
    found = []
    for shift in range(0, repeat.length, max(1, repeat.length // _TRIED)):
        starts = [start + shift for start in repeat.starts if start + shift + repeat.length <= len(nodes)]
        region = _region(nodes, labels, places, starts, repeat.length)
        if region is not None:
            found.append(region)
    return sorted(found, key=lambda region: region.saved - _WORTH * region.width, reverse=True)


_TRIED = 64

_WORTH = 2
"""Nodes that a region may save less for one value less that crosses its border."""


def _region(
    nodes: Sequence[Node], labels: Sequence[int], places: Mapping[Node, int], starts: Sequence[int], length: int
) -> RepeatedRegion | None:
    """The largest set of equal copies among those that begin at `starts`; None if there are no two."""
    alike: dict[Hashable, list[tuple[Copy, set[int]]]] = defaultdict(list)
    for start in starts:
        copy = tuple(nodes[start : start + length])
        form, inputs = _form(copy, places, start)
        key = (tuple(labels[start : start + length]), form, tuple(map(_input_key, inputs)))
        if None not in key[2]:
            alike[key].append((Copy(copy, inputs), _used_behind(copy, places, start)))
    best = max(alike.values(), key=len, default=[])
    if len(best) < 2:
        return None
    results = set.union(*[used for _, used in best])
    return RepeatedRegion(tuple([copy for copy, _ in best]), tuple(sorted(results)))


def arguments_of(node: Node) -> list[Node]:
    """The nodes among the arguments of a node, each as often as it is there."""
    found: list[Node] = []
    map_arg((node.args, node.kwargs), found.append)
    return found


def _form(copy: Sequence[Node], places: Mapping[Node, int], start: int) -> tuple[Hashable, tuple[Node, ...]]:
    """Which node of the copy, or which of its inputs, each argument is; the inputs."""
    inputs: dict[Node, int] = {}
    form = []
    for argument in [given for node in copy for given in arguments_of(node) if given.op != "get_attr"]:
        offset = places.get(argument, -1) - start
        inside = 0 <= offset < len(copy)
        form.append(offset if inside else -1 - inputs.setdefault(argument, len(inputs)))
    return tuple(form), tuple(inputs)


def _input_key(node: Node) -> Hashable:
    """The metadata of an input; None for what can't be handed over."""
    value = node.meta.get("example_value")
    return key_of(value) if isinstance(value, torch.Tensor | torch.SymInt) else None


def _used_behind(copy: Sequence[Node], places: Mapping[Node, int], start: int) -> set[int]:
    """The offsets of the nodes that others than those of the copy use."""
    end = start + len(copy)
    return {
        offset
        for offset, node in enumerate(copy)
        if any(not start <= places.get(user, -1) < end for user in node.users)
    }
