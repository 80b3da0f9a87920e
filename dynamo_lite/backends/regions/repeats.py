"""Repeated stretches of a sequence.

Input: a list of labels, one per node of a graph in program order. Output: stretches of equal labels that come several times.
Invariant: stretches do not overlap; each label of the sequence is in at most one of them.

Ranks by prefix doubling (Karp, Miller and Rosenberg, "Rapid identification of repeated patterns in strings, trees and arrays",
STOC 1972): two windows of 2**k labels are equal exactly if they have one rank at level k.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple


class Repeat(NamedTuple):
    """`length` labels that begin at each of `starts`, which ascend."""

    starts: tuple[int, ...]
    length: int

    @property
    def saved(self) -> int:
        """The labels that need not be looked at if the stretch is handled once."""
        return (len(self.starts) - 1) * self.length


def repeats(labels: Sequence[int], shortest: int, toll: int = 0) -> Iterator[Repeat]:
    """The stretches of at least `shortest` labels, the one that saves most first. In a chain of equal layers the stretch is one layer, not
    two: n layers save n - 1 of them, n / 2 pairs only n - 2. For the first stretch each place counts for `toll` labels less: it is a longer
    one then, where layers of two kinds have a part in common."""
    rest = list(labels)
    unique = -1
    while (best := _best(rest, shortest, toll)) is not None:
        toll = 0
        yield best
        for start in best.starts:
            for i in range(start, start + best.length):
                rest[i] = unique
                unique -= 1


def _best(labels: Sequence[int], shortest: int, toll: int) -> Repeat | None:
    def gain(repeat: Repeat) -> int:
        return repeat.saved - toll * len(repeat.starts)

    best: Repeat | None = None
    for window, groups in _windows(labels, shortest):
        for places in groups:
            found = _extended(labels, places, window)
            if found is not None and found.length >= shortest and (best is None or gain(found) > gain(best)):
                best = found
    return best


def _windows(labels: Sequence[int], shortest: int) -> Iterator[tuple[int, list[list[int]]]]:
    """For window sizes that are powers of two: the places of equal windows, where there are several. A window that always has the same
    label before it is part of a longer one, which has been given."""
    ranks, window = list(labels), 1
    while len(ranks) > 1:
        if 2 * window > shortest:
            groups = defaultdict(list)
            for place, rank in enumerate(ranks):
                groups[rank].append(place)
            yield window, [p for p in groups.values() if len(p) > 1 and not _continues(ranks, p)]
        numbers: dict[tuple[int, int], int] = {}
        pairs = zip(ranks, ranks[window:], strict=False)
        ranks = [numbers.setdefault(pair, len(numbers)) for pair in pairs]
        window *= 2


def _continues(ranks: Sequence[int], places: list[int]) -> bool:
    """Whether the windows one label before are equal as well."""
    return places[0] > 0 and len({ranks[place - 1] for place in places}) == 1


def _extended(labels: Sequence[int], places: list[int], window: int) -> Repeat | None:
    """The places that do not overlap, with as many labels as all of them share; None if there is one place only."""
    starts = [places[0]]
    starts.extend(place for place in places[1:] if place - starts[-1] >= window)
    if len(starts) < 2:
        return None
    room = min(b - a for a, b in zip(starts, starts[1:], strict=False))
    after = window
    while after < room and starts[-1] + after < len(labels) and _agree(labels, starts, after):
        after += 1
    before = 0
    while before + after < room and starts[0] > before and _agree(labels, starts, -before - 1):
        before += 1
    return Repeat(tuple([start - before for start in starts]), before + after)


def _agree(labels: Sequence[int], starts: list[int], offset: int) -> bool:
    first = labels[starts[0] + offset]
    return all(labels[start + offset] == first for start in starts)
