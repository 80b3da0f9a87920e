"""torch's `ShapeEnv`, as one trace needs it.

Input: expressions over the sizes and ints of the inputs. Output: the answers of torch's own, with the same guards.
Invariant: comparisons of one symbol with a number are answered here without torch's algebra, and have the same answer.

A guard has the user's line as its place, not a Python stack; `symbolic_budget` ends reasoning that takes too long.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from math import inf
from typing import Any

import sympy
from torch import SymInt
from torch._guards import SLoc
from torch.fx.experimental import _config as torch_config
from torch.fx.experimental import sym_node
from torch.fx.experimental.sym_node import SymNode
from torch.fx.experimental.symbolic_shapes import ShapeEnv, ShapeGuard
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import ValueRanges

from dynamo_lite.dynamism.symbolic_budget import Effort, TooMuchReasoning
from dynamo_lite.record import Function

_log = logging.getLogger(__name__)
_log.setLevel(logging.ERROR)  # torch warns of each question that raises


_optimized_add = sym_node._optimized_add


def _sound_add(lhs: Any, rhs: Any, lhs_is_sum: bool = False, rhs_is_sum: bool = False) -> tuple[bool, Any]:
    """torch's addition. That takes the parts of a node's expression for the symbols of a sum, which they were when it was made; a fact may
    have made a number or a product of it since (`a + b`, where `a == b` is a guard, is `2*a`), whose parts are no summands (torch 2.13)."""
    return _optimized_add(lhs, rhs, lhs_is_sum and _adds_symbols(lhs), rhs_is_sum and _adds_symbols(rhs))


def _adds_symbols(expr: Any) -> bool:
    return bool(expr.is_Add) and all(part.is_symbol for part in expr.args)


sym_node._optimized_add = _sound_add


class IntNode(SymNode):
    """The node of a symbolic int. C++ calls the first two methods whenever such a number comes from Python, often several times."""

    _seen: tuple[int, Any, int | None] = (
        -1,
        None,
        None,
    )  # the number of facts then, the expression, and the int that it has become

    def is_int(self) -> bool:
        return True

    def maybe_as_int(self) -> int | None:
        seen = self._seen
        return seen[2] if seen[0] == self.shape_env._version_counter else self._look()[2]

    @property
    def expr(self) -> Any:
        seen = self._seen
        return seen[1] if seen[0] == self.shape_env._version_counter else self._look()[1]

    def _look(self) -> tuple[int, Any, int | None]:
        env = self.shape_env
        expr = env.replace(self._expr)
        self._seen = seen = env._version_counter, expr, int(expr) if expr.is_Integer else None
        return seen


class Env(ShapeEnv):
    """The `ShapeEnv` of one trace."""

    here: Callable[[], Any] = staticmethod(lambda: None)
    functions: Callable[[], tuple[Function, ...]] = staticmethod(tuple)
    describe: Callable[[Any], str] = staticmethod(str)
    given_up: Callable[[Any], None] = staticmethod(lambda symbol: None)
    effort = Effort(None)

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.log = _log
        self.functions_at: dict[Any, tuple[Function, ...]] = {}  # by the user's line: the calls that led to it
        self._asked: set[Any] = set()  # guards about expressions that are not reasoned about
        self._serves_backend = False
        self.is_exhausted = False  # whether a backend has asked too much

    def release(self) -> None:
        """The trace is over: let go of what leads to it. The environment lives as long as fake tensors of the graph do."""
        for name in ("here", "functions", "describe", "given_up"):
            self.__dict__.pop(name, None)
        forget_answers()

    def int_of(self, expr: Any, hint: int) -> Any:
        """A symbolic int for an expression of symbols that have values; an int for a number."""
        if expr.is_Integer:
            return int(expr)
        return SymInt(IntNode(expr, self, int, hint))

    # -- facts

    def _evaluate_expr(self, orig_expr: Any, hint: Any = None, *args: Any, **kwargs: Any) -> Any:
        known = self._compared(orig_expr)
        if known is not None:
            return known
        effort = self.effort
        plain = not effort.is_worth(orig_expr)
        as_asked = plain and type(hint) is bool and self._is_backed(orig_expr) and not self._is_watched()
        if effort.spend(orig_expr, not plain and self._resimplify_floor_div_axioms, as_asked):
            self._had_enough(effort.worst())
            orig_expr = self.replace(orig_expr)
        elif as_asked:
            return self._as_asked(orig_expr, hint)
        known = len(self.guards)
        result = super()._evaluate_expr(orig_expr, hint, *args, **kwargs)
        for guard in self.guards[known:]:
            effort.note_fact(guard.expr)
        return result

    def _compared(self, expr: object) -> Any:
        """The truth of a comparison of a symbol with a number, and the guard that goes with it; None if it is none such, or has to be
        left to the algebra."""
        found = self._comparison(expr)
        if found is None:
            return None
        symbol, relation, number, low, high = found
        allowed = _ranges(relation, number)
        known = _known(allowed, low, high)
        if known is not None:
            return sympy.true if known else sympy.false
        value = int(self.backed_var_to_val[symbol])
        truth = any(a <= value <= b for a, b in allowed)
        if not truth:
            allowed = _ranges(_OPPOSITE[relation], number)
        if len(allowed) > 1 or self._suppress_guards_tls() or self._is_watched():
            return None  # a range says nothing of a gap
        ((a, b),) = allowed
        self._narrow(symbol, max(a, low), min(b, high))
        self._note(expr if truth else sympy.Not(expr))
        return sympy.true if truth else sympy.false

    def _note(self, fact: object) -> None:
        """A fact that is a guard from now on."""
        self.guards.append(ShapeGuard(fact, self._get_sloc(), size_oblivious=False))

    def begin_backend(self) -> None:
        """The graph is done: what is asked from now on is asked by the backend. Symbols stay what they are."""
        self._serves_backend = True
        self.effort.begin_backend()

    def end_backend(self) -> None:
        """The backend has returned: questions that come now are those of guards, which have to be made."""
        self._serves_backend = False
        self.effort.endurance = inf

    def _had_enough(self, symbols: list[Any]) -> None:
        """Make constants of symbols; where the graph is done already, in the next analysis. That raises `TooMuchReasoning`."""
        if not self._serves_backend:
            for symbol in symbols:
                self._give_up(symbol)
            return
        for symbol in symbols:
            self.given_up(symbol)
        self.is_exhausted = True
        raise TooMuchReasoning(", ".join(map(str, symbols)))

    def _as_asked(self, expr: object, truth: bool) -> Any:
        """The truth of a condition as it is for the sizes at hand, and a guard."""
        fact = expr if truth else sympy.Not(expr)
        if not self._suppress_guards_tls() and fact not in self._asked:
            self._asked.add(fact)
            self._note(fact)
        return sympy.true if truth else sympy.false

    def _is_backed(self, expr: Any) -> bool:
        return expr.free_symbols <= self.backed_var_to_val.keys()

    def _is_worth(self, expr: object) -> bool:
        """Whether to reason about an expression. Backends ask most of what they ask without a guard: beyond the limit it counts."""
        worth = self.effort.is_worth(expr)
        if not worth and self._serves_backend and self.effort.spend(expr, False):
            self._had_enough(self.effort.worst())
        return worth

    def simplify(self, expr: object, size_oblivious: bool = False) -> Any:
        return super().simplify(expr, size_oblivious) if self._is_worth(expr) else self.replace(expr)

    def _maybe_evaluate_static(self, expr: object, **kwargs: Any) -> Any:
        if self._is_worth(expr) or kwargs.get("unbacked_only") or not self._is_backed(expr):
            return super()._maybe_evaluate_static(expr, **kwargs)
        return None

    # torch's are caches that are emptied here and there
    _maybe_evaluate_static.cache_clear = ShapeEnv._maybe_evaluate_static.cache_clear  # type: ignore[attr-defined]
    simplify.cache_clear = ShapeEnv.simplify.cache_clear  # type: ignore[attr-defined]

    def exceeds(self, number: Any, n: int) -> bool:
        """Whether an int, which may be symbolic, is greater than a number. If so it is a fact from then on."""
        if type(number) is int:
            return number > n
        known = self._compared(sympy.StrictGreaterThan(number.node.expr, sympy.Integer(n), evaluate=False))
        return bool(number > n) if known is None else known is sympy.true

    def _comparison(self, expr: Any) -> tuple[Any, Any, int, Any, Any] | None:
        """The parts of a comparison of a symbol, which has a value, with a number: both, the relation, and the symbol's range."""
        relation = type(expr)
        if relation not in _FLIPPED:
            return None
        symbol, number = expr.args
        if symbol.is_Integer:
            symbol, number, relation = number, symbol, _FLIPPED[relation]
        if not symbol.is_Symbol or not number.is_Integer or symbol in self.replacements or symbol in self.size_like:
            return None
        bounds = self.var_to_range.get(symbol)
        if bounds is None or not isinstance(self.backed_var_to_val.get(symbol), sympy.Integer):
            return None
        low, high = _bound(bounds.lower), _bound(bounds.upper)
        return None if low is None or high is None else (symbol, relation, int(number), low, high)

    def is_in_range(self, expr: object) -> bool:
        """Whether a condition is seen to follow from the range of one symbol."""
        found = self._comparison(expr)
        return found is not None and bool(_known(_ranges(*found[1:3]), *found[3:]))

    def _is_watched(self) -> bool:
        """Whether torch's settings ask for more to happen with each guard."""
        limited = torch_config.symbol_guard_limit_before_specialize is not None
        return limited or self.frozen or self._translation_validation_enabled

    def _narrow(self, symbol: Any, low: object, high: object) -> None:
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

    def _update_var_to_range(self, symbol: object, vr: object, *args: Any, **kwargs: Any) -> None:
        if self.var_to_range.get(symbol) != vr:
            super()._update_var_to_range(symbol, vr, *args, **kwargs)

    def _give_up(self, symbol: object) -> None:
        """Make a constant of a symbol, and forget what was known of it besides."""
        if symbol in self.replacements or symbol not in self.backed_var_to_val:
            return
        self.given_up(symbol)
        super()._evaluate_expr(symbol)
        self.axioms = {fact: known for fact, known in self.axioms.items() if symbol not in fact.free_symbols}
        self.guards = [guard for guard in self.guards if guard.expr.free_symbols != {symbol}]

    # -- places

    def _get_sloc(self, framework_loc: object = None) -> SLoc:
        line = self.here()
        if line not in self.functions_at:
            self.functions_at[line] = self.functions()
        return SLoc("", line)

    def _get_stack_summary(self, is_debug: bool = False, framework_loc: object = None) -> tuple[SLoc, str]:
        return self._get_sloc(), ""

    def _log_guard(self, *args: Any, **kwargs: Any) -> None:
        return None


_ANSWERS = [method for method in vars(ShapeEnv).values() if hasattr(method, "cache_clear")]


def forget_answers() -> None:
    """Empty the caches of torch's reasoning: they belong to the class and would keep each environment that has asked."""
    for method in _ANSWERS:
        method.cache_clear()


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


def _bound(number: Any) -> float | None:
    """The end of a range; None if it is neither an int nor infinite."""
    if number.is_Integer:
        return int(number)
    return inf if number == int_oo else -inf if number == -int_oo else None


def _known(allowed: list[tuple[float, float]], low: float, high: float) -> bool | None:
    """Whether all numbers of a range are allowed, or none."""
    if any(a <= low and high <= b for a, b in allowed):
        return True
    return False if all(b < low or high < a for a, b in allowed) else None


def _ranges(relation: object, number: int) -> list[tuple[float, float]]:
    """The ranges of the ints that have this relation to a number."""
    if relation is sympy.Eq:
        return [(number, number)]
    if relation is sympy.Ne:
        return [(-inf, number - 1), (number + 1, inf)]
    if relation in (sympy.Lt, sympy.Le):
        return [(-inf, number - (relation is sympy.Lt))]
    return [(number + (relation is sympy.Gt), inf)]
