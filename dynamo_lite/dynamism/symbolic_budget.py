"""How much a trace may reason about symbolic sizes.

Input: the expressions that are evaluated, one by one. Output: whether an expression is worth reasoning about, whether the budget is used
up, and the symbols to blame.
Invariant: the budget counts nodes of expressions, never time: equal programs give up at equal places.

An expression that rounds (a floor, a remainder, a maximum) has no normal form together with others: where such expressions nest, as in
networks that pad to windows again and again, each question takes longer than the last, without end. Once the limit is reached, facts
about such expressions become guards as they are asked, whether they follow from other guards or not. Where even these expressions grow
too large, symbols become constants.
"""

from __future__ import annotations

from typing import Any

import sympy
from torch.utils._sympy.functions import Max, Min

ENDURANCE = 10
"""How many times the limit until a symbol becomes a constant."""
MUCH = 0.1
"""The share of the limit that tells captures which round often from those that hardly do: convolutions spend tens of nodes."""


class TooMuchReasoning(Exception):
    """A backend asks more about sizes than there is an end to."""


class Effort:
    """The reasoning of one trace, in nodes of expressions. `limit`: how many before facts are taken as they are asked; None: any number.
    A symbol becomes a constant at `endurance` times as many."""

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self.spent = 0
        self.endurance: float = ENDURANCE
        self.had_enough = False  # whether a symbol has become a constant
        self.blame: dict[Any, int] = {}  # symbol → nodes of the evaluated expressions that round something of it
        self.facts = 0  # nodes of the guards so far
        self._sizes: dict[Any, int] = {}
        self._rounded: dict[Any, frozenset[Any]] = {}

    def spend(self, expr: object, with_facts: bool, as_asked: bool = False) -> bool:
        """Note that an expression is evaluated, and whether all guards that round are simplified anew for it; what is only taken as it is
        asked costs half. True if that is too much."""
        if self.limit is None:
            return False
        size = self.size(expr)
        self.spent += size // 2 if as_asked else size + (self.facts if with_facts else 0)
        for symbol in self._rounds(expr):
            self.blame[symbol] = self.blame.get(symbol, 0) + size
        return self.spent > self.endurance * self.limit and bool(self.blame)

    def begin_backend(self) -> None:
        """The capture is done. Backends ask more of each expression than a capture does: if that has taken much already, they get facts as
        they are asked."""
        if self.limit is not None and self.spent > self.limit * MUCH:
            self.spent = max(self.spent, self.limit + 1)

    def is_worth(self, expr: object) -> bool:
        """Whether to reason about an expression."""
        return self.limit is None or self.spent <= self.limit or not self._rounds(expr)

    def note_fact(self, expr: object) -> None:
        """A guard was added."""
        if self._rounds(expr):
            self.facts += self.size(expr)

    def worst(self) -> list[Any]:
        """The symbols to make constants: first the one that has cost most, then all that something is rounded of."""
        symbols = sorted(self.blame, key=lambda s: (-self.blame[s], str(s)))
        chosen = symbols if self.had_enough else symbols[:1]
        self.had_enough = True
        self.spent = self.facts = 0
        for symbol in chosen:
            del self.blame[symbol]
        return chosen

    def size(self, expr: Any) -> int:
        """The number of nodes of an expression."""
        known = self._sizes.get(expr)
        if known is None:
            known = self._sizes[expr] = 1 + sum(map(self.size, expr.args))
        return known

    def _rounds(self, expr: Any) -> frozenset[Any]:
        """The symbols in an expression's functions, which are those that are no sums and products."""
        known = self._rounded.get(expr)
        if known is None:
            functions = expr.atoms(sympy.Function, Max, Min)
            known = self._rounded[expr] = frozenset().union(*[f.free_symbols for f in functions])
        return known
