"""Floats that may differ from call to call.

Input: floats from outside, and Python functions of them. Output: `FloatValue`s; decisions about them, as guards.
Invariant: a float is never reasoned about algebraically, which would round differently from the program: a guard computes each decision
as the program does, from the inputs of the next call. An operator whose metadata might depend on the float makes it a constant.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.fx import Node

from dynamo_lite.exc import unsupported
from dynamo_lite.guards import ir
from dynamo_lite.record import Specialization

from .operator_names import branches_on, has_tag, operator_name, takes_scalars
from .values import SymValue

if TYPE_CHECKING:
    from dynamo_lite.frontend.tracing import Trace


class FloatValue(SymValue):
    """A float. `real` is its value in the present call, `origin` as for other numbers, its operands being numbers and values."""

    __slots__ = ("decide", "real")

    def __init__(self, decide: Decisions, real: float, origin: Any) -> None:
        self.decide = decide
        self.real = real
        self.origin = origin
        self.node = None

    @property
    def sym(self) -> float:
        """The number as a constant: those who know symbols only cannot have it otherwise."""
        return self.decide.value(self)

    def __repr__(self) -> str:
        return f"FloatValue({self.real})"


def present(operand: Any) -> Any:
    """The number that an operand is in the present call."""
    if isinstance(operand, FloatValue):
        return operand.real
    return operand.sym.node.hint if isinstance(operand, SymValue) else operand


def are_same(x: Any, y: Any) -> bool:
    """Whether two numbers are the same object to a program that does not look at addresses."""
    if type(x) is not type(y):
        return False
    if x != y:
        return x != x and y != y
    return type(x) is not float or math.copysign(1.0, x) == math.copysign(1.0, y)


class Decision(NamedTuple):
    """`function(*operands)` was `answer`, which the trace relies on; `user` is the line that asked."""

    function: Callable[..., Any]
    operands: tuple[Any, ...]
    answer: Any
    user: Any


class Decisions:
    """The assumptions of a trace about floats."""

    def __init__(self, tr: Trace) -> None:
        self.tr = tr
        self.made: dict[Any, Decision] = {}
        self.computed: dict[FloatValue, Any] = {}  # number → access path that computes it

    def __call__(self, function: Callable[..., Any], *operands: Any) -> Any:
        """The result of the function for the numbers of this call; guards require the same result at the next. Exceptions propagate."""
        key = (function, *[o if isinstance(o, SymValue) else (type(o), repr(o)) for o in operands])
        if key not in self.made:
            for operand in operands:
                self._refuse_unknown(operand)
                if function is _itself and any(map(_is_random, _inputs_of(operand))):
                    unsupported("random-state", "a random number where a constant is needed")
            answer = function(*[present(o) for o in operands])
            self.made[key] = Decision(function, operands, answer, self.tr.thread.here())
        return self.made[key].answer

    def value(self, number: object) -> Any:
        """A number itself, as a constant."""
        return self(_itself, number) if isinstance(number, SymValue) else number

    def source_of(self, number: Any) -> Any:
        """The access path of a float that varies: it is from outside, or computed from one such float and constants. None for any other
        number."""
        found = _inputs_of(number)
        outside = found.pop() if len(found) == 1 else None
        if not isinstance(outside, FloatValue) or outside.origin[0] != "input" or self.is_constant(outside):
            return None
        if number is outside:
            return outside.origin[1]
        if number not in self.computed:
            function = Computed(_steps(number), f"float_{len(self.computed)}")
            self.computed[number] = self.tr.source(outside.origin[1], ir.CALL, function)
        return self.computed[number]

    def is_constant(self, number: FloatValue) -> bool:
        """Whether the version is for this very number."""
        return (_itself, number) in self.made

    def _refuse_unknown(self, operand: Any) -> None:
        if isinstance(operand, FloatValue):
            for part in operand.origin[2] if operand.origin[0] == "call" else ():
                self._refuse_unknown(part)
        elif isinstance(operand, SymValue) and not operand.sym.node.has_hint():
            unsupported("data-dependent-size", str(operand.sym))

    def specializations(self) -> list[Specialization]:
        """The floats from outside that became constants."""
        inputs = [d for d in self.made.values() if _is_float_from_outside(d)]
        return [Specialization(d.operands[0].origin[1].path, d.answer, d.user) for d in inputs]

    def add_guards(self, leaf: Callable[[SymValue], tuple[str, list[tuple[Any, str]]] | None]) -> None:
        """Give the decisions to the guards. `leaf(value)` is the text of an int as an expression, and the name of each number in it
        with its access path."""
        for decision in self.made.values():
            _Check(self.tr, leaf).add(decision)
        self.made.clear()
        self.computed.clear()


def is_random(source: Any) -> bool:
    """Whether a path leads to a number that is drawn from a generator, and is not going to come again."""
    return source is not None and getattr(source.arg, "is_random", False)


def is_drawn(source: Any) -> bool:
    """Whether a path leads to a number that is drawn from a generator."""
    return source is not None and hasattr(source.arg, "is_random")


def _is_random(number: Any) -> bool:
    return isinstance(number, FloatValue) and number.origin[0] == "input" and is_random(number.origin[1])


def _inputs_of(number: Any) -> set[Any]:
    """The floats from outside that a float is computed from, and an int that varies for each that takes part."""
    if not isinstance(number, FloatValue):
        return {number} if isinstance(number, SymValue) else set()
    kind, *parts = number.origin
    if kind != "call":
        return {number}
    return set().union(*map(_inputs_of, parts[1]))


class _Step(NamedTuple):
    """A call by which a float is computed. An operand is a step, a constant (which may be a tuple), or `...` for the float from outside."""

    function: Callable[..., Any]
    operands: tuple[Any, ...]


def _steps(number: Any) -> Any:
    """How a float is computed from the one from outside."""
    if not isinstance(number, FloatValue):
        return number
    kind, *parts = number.origin
    return _Step(parts[0], tuple(map(_steps, parts[1]))) if kind == "call" else ...


class Computed:
    """A function of one float: what a program computes from it. For guards."""

    def __init__(self, steps: Any, name: str) -> None:
        self.steps = steps
        self.__name__ = name

    def __call__(self, number: float) -> float:
        return _run(self.steps, number)


def _run(steps: Any, number: float) -> Any:
    if type(steps) is not _Step:
        return number if steps is ... else steps
    return steps.function(*[_run(operand, number) for operand in steps.operands])


def _itself(number: float) -> float:
    return number


def _is_float_from_outside(decision: Decision) -> bool:
    """Whether a float of the inputs became a constant. (The origins of ints are gone by now; their guards are of expressions.)"""
    (number, *_) = decision.operands
    return decision.function is _itself and isinstance(number, FloatValue) and number.origin[0] == "input"


class _Check:
    """The predicate of one decision: a function of the inputs that does what the traced program did."""

    def __init__(self, tr: Trace, leaf: Any) -> None:
        self.tr = tr
        self.leaf = leaf
        self.lines: list[str] = []
        self.names: dict[Any, str] = {}  # value → variable
        self.inputs: dict[Any, str] = {}  # access path → parameter
        self.scope: dict[str, Any] = {
            "are_same": are_same,
            "math": math,
            "torch": torch,
        }  # as the text of ints needs them

    def add(self, decision: Decision) -> None:
        if _is_float_from_outside(decision):
            node = decision.operands[0].origin[1]
            self.tr.guard(node, ir.EQUALS, decision.answer)
            return
        arguments = [self._argument(o) for o in decision.operands]
        result = arguments[0] if decision.function is _itself else self._call(decision.function, arguments)
        source = "\n  ".join(
            [
                f"def holds({', '.join(self.inputs.values())}):",
                *self.lines,
                f"return are_same({result}, {self._constant(decision.answer)})",
            ]
        )
        exec(compile(source, f"{__file__}:holds", "exec"), self.scope)  # the package's own: nobody captures it
        paths = ", ".join(node.path for node in self.inputs)
        text = f"{_name(decision.function)} of what is computed from {paths} is {decision.answer!r}"
        self.tr.guards.predicate(self.scope["holds"], list(self.inputs), text, decision.user)

    def _argument(self, operand: Any) -> str:
        if not isinstance(operand, SymValue):
            return self._constant(operand)
        name = self.names.get(operand)
        if name is None:
            name = self.names[operand] = self._variable(operand)
        return name

    def _variable(self, value: SymValue) -> str:
        if not isinstance(value, FloatValue):
            text, parts = self.leaf(value)
            for path, name in parts:
                self.inputs[path] = name
            # What the algebra has simplified may be written as an int.
            return f"float({text})" if type(value.sym) is torch.SymFloat else f"({text})"
        kind, *parts = value.origin
        if kind == "input":
            return self.inputs.setdefault(parts[0], f"float_{len(self.inputs)}")
        return self._call(parts[0], [self._argument(o) for o in parts[1]])

    def _call(self, function: Callable[..., Any], arguments: list[str]) -> str:
        name = f"v{len(self.lines)}"
        self.lines.append(f"{name} = {self._constant(function)}({', '.join(arguments)})")
        return name

    def _constant(self, value: Any) -> str:
        name = f"c{len(self.scope)}"
        self.scope[name] = value
        return name


def _name(function: object) -> str:
    return "the value" if function is _itself else getattr(function, "__name__", str(function))


# -- operators


def is_indifferent(target: object, tensors: list[Any], places: list[int | str]) -> bool:
    """Whether the metadata of the results is the same whatever the floats are, which are the arguments at these places."""
    if tensors and all(t.fake is not None and t.fake.constant is not None for t in tensors):
        return False  # the result would be known as well
    name = operator_name(target)
    return name is not None and not any(branches_on(name, place) for place in places) and _keeps_sizes(name)


def floats_at(values: dict[Node, Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[int | str]:
    """The positions and names of the arguments that are floats that vary. `values`: what nodes stand for."""
    given: list[tuple[int | str, Any]] = [*enumerate(args), *kwargs.items()]
    return [place for place, a in given if isinstance(a, Node) and isinstance(values.get(a), FloatValue)]


_SIZED = frozenset({"arange", "range"})
"""The operators that have as many elements as numbers of any kind say."""


def _keeps_sizes(name: str) -> bool:
    """True for operators that change their argument, compute each element from those at its place, or take numbers of any kind: as elements
    of the result and factors, whose type says all about the result. (What decides about sizes is an int, or a float by its schema.)"""
    if name.startswith("_foreach_") or name.endswith("_") or name == "setitem":
        return True
    return has_tag(name, torch.Tag.pointwise) or (name not in _SIZED and takes_scalars(name))
