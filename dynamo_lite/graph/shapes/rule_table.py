"""The table of shape rules: one declaration per operator, for the two front ends that ask.

Input: rules, each declared with `shape_rule`. Output: `CALLS` for calls as the traced code writes them (`captured_calls`), `ATEN_RULES` for
the operators that reach a fake tensor (`graph.core.fake`).
Invariant: a rule returns sizes, strides and data type of torch's own rule for the operator, and leaves the same guards, or raises
`NoRule`; then torch's own rule is asked. A lookup is one access to a dict.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any, NamedTuple

from torch._ops import OpOverload

from .meta_tensor import Operand
from .size_algebra import NoRule, SizeAlgebra, require

Rule = Callable[..., Any]
"""rule(algebra, *arguments) → the result, made with the same class of tensors that the arguments have."""


class Written(NamedTuple):
    """The result of an operator that changes the data of an argument and returns that argument."""

    tensor: Operand


class CallRule:
    """A rule as the target of captured calls. `optional`: its parameters by name, and whether they may be left out."""

    def __init__(self, rule: Rule, optional: Mapping[str, bool], takes_any_number: bool = False) -> None:
        self.rule = rule
        self.names = list(optional)
        self.needed = [name for name in optional if not optional[name]]
        self.takes_any_number = takes_any_number

    def takes(self, count: int, kwargs: dict[str, Any]) -> bool:
        """Whether the rule can be called with `count` positional arguments and these keywords."""
        if count > len(self.names) and not self.takes_any_number:
            return False
        free = self.names[count:]
        return all(name in free for name in kwargs) and all(name in kwargs for name in self.needed if name in free)


CALLS: dict[object, CallRule] = {}
"""Function of torch or of `operator`, or name of a method of tensors → its rule."""

ATEN_RULES: dict[OpOverload, Rule] = {}
"""ATen operator → function(algebra, *arguments) → the result, or None. Calls with keyword arguments are not asked."""


def shape_rule(
    *calls: object, aten: Iterable[OpOverload] = (), forms: Mapping[Any, str] | None = None
) -> Callable[[Rule], Rule]:
    """Declare the rule of an operator: its functions and methods, and its ATen operators, where these take the arguments of the rule;
    `forms` gives the parameters of those that take others (`_adapted`)."""

    def declare(rule: Rule) -> Rule:
        parameters = list(inspect.signature(rule).parameters.values())[1:]
        optional = {p.name: p.default is not p.empty for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD}
        CALLS.update(dict.fromkeys(calls, CallRule(rule, optional, len(optional) < len(parameters))))
        ATEN_RULES.update(dict.fromkeys(aten, _aten_rule(rule)))
        for target, form in (forms or {}).items():
            adapted = _adapted(rule, optional, form)
            if isinstance(target, OpOverload):
                ATEN_RULES[target] = _aten_rule(adapted.rule)
            else:
                CALLS[target] = adapted
        return rule

    return declare


def _adapted(rule: Rule, taken: Container[str], form: str) -> CallRule:
    """A rule for a function with other parameters, given in order: `name`; `name=default`, which holds only for the default if the rule
    does not have that parameter; `[name]`, optional. Parameters that the rule does not have are left out."""
    optional: dict[str, bool] = {}
    defaults: dict[str, Any] = {}
    fixed: dict[str, Any] = {}
    for part in form.split():
        name, has_default, default = part.strip("[]").partition("=")
        optional[name] = bool(has_default) or part[0] == "["
        if has_default:
            (defaults if name in taken else fixed)[name] = ast.literal_eval(default)
    ignored = [name for name in optional if name not in taken and name not in fixed]

    def call(algebra: SizeAlgebra, *args: object, **kwargs: object) -> Any:
        given = {**defaults, **dict(zip(optional, args, strict=False)), **kwargs}
        for name, value in fixed.items():
            found = given.pop(name, value)
            require(type(found) is type(value) and found == value)
        for name in ignored:
            given.pop(name, None)
        return rule(algebra, **given)

    return CallRule(call, optional)


def _aten_rule(rule: Rule) -> Rule:
    def answer(algebra: SizeAlgebra, *args: object) -> Any:
        try:
            result = rule(algebra, *args)
        except NoRule:
            return None
        return result.tensor if type(result) is Written else result

    return answer
