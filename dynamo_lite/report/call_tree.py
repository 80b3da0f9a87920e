"""Which calls were followed in a frame: a tree of the program's functions with the operators captured from each line.

Input: chains of calls with the number of operators that come from each. Output: a `CalledFunction` for the frame's function, without the
functions of torch that only pass a call on. A line that calls one function several times, as in a loop, has it once.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import torch

from dynamo_lite.isa.resume import original_name
from dynamo_lite.record import CallChain, Function

TORCH = os.path.dirname(torch.__file__) + os.sep


@dataclass
class CalledFunction:
    """A function with the operators of its lines, those of the calls from there counted too, and these calls by (line, function)."""

    function: Function
    operators: Counter[int] = field(default_factory=Counter)
    calls: dict[tuple[int, Function], CalledFunction] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return sum(self.operators.values())

    @property
    def passes_on(self) -> bool:
        """True for a function of torch all of whose operators come from one call that it makes."""
        if not self.function.filename.startswith(TORCH) or len(self.calls) != 1:
            return False
        (called,) = self.calls.values()
        return called.total == self.total

    def shown(self) -> Iterator[tuple[int, CalledFunction]]:
        """The calls that a reader wants to see, each with its line here, in the order of the lines."""
        for (line, _), called in sorted(self.calls.items(), key=lambda item: item[0][0]):
            while called.passes_on:
                (called,) = called.calls.values()
            yield line, called


def tree_of(function: Function, origins: Iterable[Counter[CallChain]]) -> CalledFunction:
    """The tree of the calls from `function`, which is where all chains begin. The rest of a function after a break counts as it."""
    root = CalledFunction(function)
    for counts in origins:
        for chain, count in counts.items():
            at = root
            for (_, line), (called, _) in zip(chain, chain[1:], strict=False):
                at.operators[line] += count
                called = called._replace(name=original_name(called.name))
                at = at.calls.setdefault((line, called), CalledFunction(called))
            at.operators[chain[-1][1]] += count
    return root
