"""torch's `ShapeEnv`, as one trace needs it.

Input: expressions over the sizes and ints of the inputs. Output: what torch's own would answer, with the same guards.
Invariant: what is answered here without torch's algebra is what that comes to: comparisons of one symbol with a number.

Facts know the user's line, not the Python stack; reasoning ends where it becomes endless (`effort`).
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import sympy
from torch import SymInt
from torch._guards import SLoc
from torch.fx.experimental import _config as torch_config
from torch.fx.experimental.sym_node import SymNode
from torch.fx.experimental.symbolic_shapes import ShapeEnv, ShapeGuard
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import ValueRanges

from .effort import Effort


class IntNode(SymNode):
    """The node of a symbolic int. C++ asks for the first two whenever such a number passes from Python, often several times."""

    known: tuple[int, int | None] = -1, None  # the number of facts at which it was looked up, and what it has become

    def is_int(self) -> bool:
        return True

    def maybe_as_int(self) -> int | None:
        facts = self.shape_env._version_counter
        known = self.known
        if known[0] != facts:
            expr = self.expr
            self.known = known = facts, int(expr) if expr.is_Integer else None
        return known[1]


class Env(ShapeEnv):
    """The `ShapeEnv` of one trace."""

    here: Callable[[], Any] = staticmethod(lambda: None)
    describe: Callable[[Any], str] = staticmethod(str)
    given_up: Callable[[Any], None] = staticmethod(lambda symbol: None)
    effort = Effort(None)

    def int_of(self, expr: Any, hint: int) -> Any:
        """A symbolic int for an expression of symbols that have values; an int for a number."""
        if expr.is_Integer:
            return int(expr)
        return SymInt(IntNode(expr, self, int, hint))

    # -- facts

    def _evaluate_expr(self, orig_expr: Any, *args: Any, **kwargs: Any) -> Any:
        known = self._compared(orig_expr)
        if known is not None:
            return known
        effort = self.effort
        if effort.spend(orig_expr, self._resimplify_floor_div_axioms):
            for symbol in effort.worst():
                self._give_up(symbol)
            orig_expr = self.replace(orig_expr)
        known = len(self.guards)
        result = super()._evaluate_expr(orig_expr, *args, **kwargs)
        for guard in self.guards[known:]:
            effort.note_fact(guard.expr)
        return result

    def _compared(self, expr: Any) -> Any:
        """The truth of a comparison of a symbol with a number, and the guard that goes with it; None if it is none such, or has to be
        left to the algebra."""
        relation = type(expr)
        if relation not in _FLIPPED:
            return None
        symbol, number = expr.args
        if symbol.is_Integer:
            symbol, number, relation = number, symbol, _FLIPPED[relation]
        if not symbol.is_Symbol or not number.is_Integer or symbol in self.replacements or symbol in self.size_like:
            return None
        value, bounds = self.backed_var_to_val.get(symbol), self.var_to_range.get(symbol)
        if bounds is None or not isinstance(value, sympy.Integer):
            return None
        low, high = [int(n) if n.is_Integer else n for n in (bounds.lower, bounds.upper)]
        low, high = -inf if low == -int_oo else low, inf if high == int_oo else high
        if type(low) not in _NUMBERS or type(high) not in _NUMBERS:
            return None
        allowed = _ranges(relation, int(number))
        if any(a <= low and high <= b for a, b in allowed):
            return sympy.true
        if all(b < low or high < a for a, b in allowed):
            return sympy.false
        truth = any(a <= value <= b for a, b in allowed)
        if not truth:
            allowed = _ranges(_OPPOSITE[relation], int(number))
        if len(allowed) > 1 or self._suppress_guards_tls() or self._is_watched():
            return None  # a range says nothing of a gap
        ((a, b),) = allowed
        self._narrow(symbol, max(a, low), min(b, high))
        self.guards.append(ShapeGuard(expr if truth else sympy.Not(expr), self._get_sloc(), size_oblivious=False))
        return sympy.true if truth else sympy.false

    def _is_watched(self) -> bool:
        """Whether torch's settings ask for more to happen with each guard."""
        limited = torch_config.symbol_guard_limit_before_specialize is not None
        return limited or self.frozen or self._translation_validation_enabled

    def _narrow(self, symbol: Any, low: Any, high: Any) -> None:
        """Note that a symbol lies in a range, which is part of the one known so far."""
        known, place = self.var_to_range[symbol], self._get_sloc()
        now = ValueRanges(*[int_oo if n == inf else -int_oo if n == -inf else n for n in (low, high)])
        self.var_to_range[symbol] = now
        if now.lower != known.lower:
            self.var_to_range_sloc[symbol].lower = place
        if now.upper != known.upper:
            self.var_to_range_sloc[symbol].upper = place
        if low == high:
            self._set_replacement(symbol, sympy.Integer(low), "range_refined_to_singleton")
        self._maybe_evaluate_static.cache_clear()

    def _give_up(self, symbol: Any) -> None:
        """Make a constant of a symbol, and forget what was known of it besides."""
        if symbol in self.replacements or symbol not in self.backed_var_to_val:
            return
        self.given_up(symbol)
        super()._evaluate_expr(symbol)
        self.axioms = {fact: known for fact, known in self.axioms.items() if symbol not in fact.free_symbols}
        self.guards = [guard for guard in self.guards if guard.expr.free_symbols != {symbol}]

    # -- places

    def _get_sloc(self, framework_loc: Any = None) -> SLoc:
        return SLoc("", self.here())

    def _get_stack_summary(self, is_debug: bool = False, framework_loc: Any = None) -> tuple[SLoc, str]:
        return SLoc("", self.here()), ""

    def _log_guard(self, *args: Any, **kwargs: Any) -> None:
        return None


_FLIPPED = {
    sympy.Eq: sympy.Eq,
    sympy.Ne: sympy.Ne,
    sympy.Lt: sympy.Gt,
    sympy.Gt: sympy.Lt,
    sympy.Le: sympy.Ge,
    sympy.Ge: sympy.Le,
}
_OPPOSITE = {
    sympy.Eq: sympy.Ne,
    sympy.Ne: sympy.Eq,
    sympy.Lt: sympy.Ge,
    sympy.Ge: sympy.Lt,
    sympy.Gt: sympy.Le,
    sympy.Le: sympy.Gt,
}
_NUMBERS = (int, float)


def _ranges(relation: Any, number: int) -> list[tuple[float, float]]:
    """Where the ints lie that have this relation to a number."""
    if relation is sympy.Eq:
        return [(number, number)]
    if relation is sympy.Ne:
        return [(-inf, number - 1), (number + 1, inf)]
    if relation in (sympy.Lt, sympy.Le):
        return [(-inf, number - (relation is sympy.Lt))]
    return [(number + (relation is sympy.Gt), inf)]
