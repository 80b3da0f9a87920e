"""Keywords that a pattern of Inductor does not name.

Input: a pattern of a call, and a node that it matches. Output: no match where the node has a keyword that the pattern leaves out.
Invariant: what takes the place of a match computes what the match did. Inductor (2.13) leaves such keywords out of the comparison, and of
what it puts there: `add(w, a @ b, alpha=2)` was `addmm(w, a, b)`, and `full(…).cumsum(dim, dtype=…)` had the dtype of `full`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .patches import Substitute

PLACES = frozenset({"layout", "device", "pin_memory"})
"""They say where a new tensor lies, not what it holds. The operands of what uses it lie there too, and Inductor has no other layouts."""


def substitutes() -> Iterator[Substitute]:
    """For `Patches`."""
    from torch._inductor.pattern_matcher import _TargetArgsExpr

    yield Substitute(_TargetArgsExpr, "_match", _and_keywords)


def _and_keywords(original: Any) -> Any:
    from torch._inductor.pattern_matcher import FailedMatch

    def _match(self: Any, node: Any, ctx: Any) -> Any:
        match = original(self, node, ctx)
        if match and not _are_defaults(node, node.kwargs.keys() - self.kwargs.keys() - PLACES):
            return FailedMatch("keywords without a pattern: node={}, pattern={}", node, self)
        return match

    return _match


def _are_defaults(node: Any, names: set[str]) -> bool:
    """Whether the call would do the same without these keywords. Functions that are no operators have no schema that could say so."""
    if not names:
        return True
    schema = getattr(node.target, "_schema", None)
    defaults = {} if schema is None else {a.name: a.default_value for a in schema.arguments if a.has_default_value()}
    return all(name in defaults and _is(node.kwargs[name], defaults[name]) for name in names)


def _is(value: object, default: object) -> bool:
    return value is default or (type(value) in (int, float, bool) and value == default)
