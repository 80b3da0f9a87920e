"""Symbolic sizes and ints of one trace, and the guards that they leave behind.

Input: real tensors and ints with their access paths. Output: SymInts; after the trace, predicates over the access
paths.
Invariant: the compiled code is used only for inputs that satisfy every predicate, the ranges of the symbols included.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import sympy
import torch
import torch.fx.experimental.symbolic_shapes as symbolic_shapes
from torch._guards import SLoc, Source
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StrictMinMaxConstraint
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.printers import PythonPrinter
from torch.utils._sympy.value_ranges import ValueRanges

from ..config import config
from ..exc import UserError, UserErrorType
from ..guards import ir
from ..markers import DYNAMIC_RANGE
from .lean import without_compiler
from .numbers import Decisions, FloatValue
from .symbolic_meta import SymbolicMetas
from .values import SymValue

without_compiler.loggers.extend(
    (symbolic_shapes, name) for name in ("trace_structured", "dtrace_structured") if hasattr(symbolic_shapes, name)
)


class InputSource(Source):
    """What torch's shape reasoning knows of an access path: a name."""

    def __init__(self, name: str) -> None:
        object.__setattr__(self, "_text", name)

    @property
    def name(self) -> str:
        return self._text

    @property
    def guard_source(self) -> Any:
        return None

    def __hash__(self) -> int:
        return hash(self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, InputSource) and other._text == self._text


class Env(ShapeEnv):
    """A `ShapeEnv` whose facts know the user's line, and which doesn't look at the Python stack for it."""

    here: Callable[[], Any] = staticmethod(lambda: None)

    def _get_sloc(self, framework_loc: Any = None) -> SLoc:
        return SLoc(None, self.here())

    def _get_stack_summary(self, is_debug: bool = False, framework_loc: Any = None) -> tuple[SLoc, str]:
        return SLoc(None, self.here()), ""

    def _log_guard(self, *args: Any, **kwargs: Any) -> None:
        return None


class Tracked(NamedTuple):
    """A number of the inputs: how guards reach it, what it is called in reports, its symbol."""

    node: Any
    text: str
    sym: Any
    strict: bool = False


class Symbols:
    """The symbols of one trace; `here()` tells the user's line."""

    def __init__(self, mode: Any, tr: Any) -> None:
        self.tr = tr
        with without_compiler:
            self.env = Env(
                allow_scalar_outputs=config.capture_scalar_outputs,
                allow_dynamic_output_shape_ops=config.capture_dynamic_output_shape_ops,
            )
        self.env.here = tr.here
        self.tracked: list[Tracked] = []
        self.inputs: dict[Any, SymValue] = {}
        self.decide = Decisions(tr)
        self.floats: dict[str, FloatValue] = {}  # access path → float from outside
        mode.shape_env = self.env
        mode.symbolic_metas = SymbolicMetas()
        mode.cache_enabled = (
            False  # what it costs with symbolic sizes is more than it saves: repeated calls do not get there
        )
        mode.static_shapes = False

    # -- making symbols

    def shape_of(
        self, tensor: torch.Tensor, source: Any, dynamic: frozenset[int], strict: frozenset[int]
    ) -> tuple[Any, Any]:
        """Symbolic sizes and strides of a real tensor: the given dimensions, and the strides that follow from them."""
        ranges = {r.dim: r for r in getattr(tensor, DYNAMIC_RANGE, ())}
        sizes: list[Any] = list(tensor.shape)
        for dim in sorted(dynamic):
            node = self.tr.source(source, ir.CALL, _size_getter(dim))
            text = f"{source.path}.size({dim})"
            kind = DimDynamic.DYNAMIC if dim in strict else DimDynamic.DUCK
            sizes[dim] = self._symbol(sizes[dim], node, text, kind, ranges.get(dim), dim in strict)
        strides = self._strides(tensor, sizes)
        for dim, stride in enumerate(strides):
            if type(stride) is not int:
                node = self.tr.source(source, ir.CALL, _stride_getter(dim))
                self.tracked.append(Tracked(node, f"{source.path}.stride({dim})", stride))
        return sizes, strides

    def _symbol(self, value: int, node: Any, text: str, kind: Any, bounds: Any, strict: bool) -> Any:
        source = InputSource(text)
        constraint = None
        if bounds is not None and (bounds.min is not None or bounds.max is not None):
            low = 2 if bounds.min is None else bounds.min
            constraint = StrictMinMaxConstraint(
                warn_only=False, vr=ValueRanges(low, int_oo if bounds.max is None else bounds.max)
            )
        with without_compiler:
            symbol = self.env.create_symbol(value, source, kind, constraint_dim=constraint)
            sym = self.env.create_symintnode(symbol, hint=value, source=source)
        self.tracked.append(Tracked(node, text, sym, strict))
        self.inputs.setdefault(symbol, SymValue(sym, origin=("input", node, value)))
        return sym

    def input_of(self, value: SymValue) -> SymValue:
        """The graph input that has the same number, or the value itself."""
        if isinstance(value, FloatValue):
            return value
        expr = value.sym.node.expr
        return self.inputs.get(expr, value) if isinstance(value.sym, torch.SymInt) else value

    @staticmethod
    def _strides(tensor: torch.Tensor, sizes: list[Any]) -> list[Any]:
        """Strides as products of inner sizes, wherever they are such products and a symbol takes part."""
        real_sizes, real_strides = tensor.shape, tensor.stride()
        strides: list[Any] = list(real_strides)
        order = sorted(range(len(strides)), key=lambda d: (real_strides[d], real_sizes[d]))
        spans = {1: 1}  # real extent of the dimensions so far → the same as an expression
        for dim in order:
            strides[dim] = spans.get(real_strides[dim], real_strides[dim])
            spans[real_strides[dim] * real_sizes[dim]] = strides[dim] * sizes[dim]
        return strides

    def int_of(self, value: int, source: Any) -> SymValue:
        """The graph value of an int input."""
        with without_compiler:
            name = InputSource(source.path)
            symbol = self.env.create_unspecified_symbol(value, name, DimDynamic.DYNAMIC)
            sym = self.env.create_symintnode(symbol, hint=value, source=name)
        self.tracked.append(Tracked(source, source.path, sym))
        return self.inputs.setdefault(symbol, SymValue(sym, origin=("input", source, value)))

    # -- floats

    def float_of(self, value: float, source: Any) -> FloatValue:
        """The graph value of a float input."""
        found = self.floats.get(source.path)
        if found is None:
            found = self.floats[source.path] = FloatValue(self.decide, value, ("input", source, value))
        return found

    def _text_of(self, value: SymValue, canonical: dict[Any, Tracked]) -> tuple[str, list[tuple[Any, str]]]:
        expr = value.sym.node.expr
        return _printed(expr), [(canonical[s].node, str(s)) for s in sorted(expr.free_symbols, key=str)]

    # -- guards

    def add_guards(self) -> None:
        """Give everything that was assumed about the inputs' numbers to the guards. Raises UserError if a promise
        was broken."""
        canonical: dict[Any, Tracked] = {}
        facts: list[tuple[Any, Any]] = []
        with without_compiler:
            for item in self.tracked:
                expr = item.sym.node.expr
                if item.strict and not expr.free_symbols:
                    raise UserError(
                        UserErrorType.CONSTRAINT_VIOLATION,
                        f"{item.text} was marked dynamic, but the code makes it the constant {expr}; remove the mark "
                        "or the use that needs the number (mark it with maybe_mark_dynamic to allow both)",
                    )
                if isinstance(expr, sympy.Symbol) and expr not in canonical:
                    canonical[expr] = item
            for item in self.tracked:
                expr = item.sym.node.expr
                if canonical.get(expr) is not item:
                    facts.append((expr, item))
            self._add_equalities(facts, canonical)
            for symbol, item in canonical.items():
                self._add_range(symbol, item)
            for guard in self.env.guards:
                expr = self.env.simplify(guard.expr)
                if self.env._maybe_evaluate_static(expr, axioms=()) is None:
                    self._add(_printed(expr), sorted(expr.free_symbols, key=str), canonical, guard.sloc.maybe_user_loc)
            self.decide.add_guards(lambda value: self._text_of(value, canonical))

    def _add_equalities(self, facts: list[tuple[Any, Tracked]], canonical: dict[Any, Tracked]) -> None:
        for expr, item in facts:
            own = sympy.Symbol("value")
            self._add(
                f"value == {_printed(expr)}", [own, *sorted(expr.free_symbols, key=str)], {own: item, **canonical}, None
            )

    def _add_range(self, symbol: Any, item: Tracked) -> None:
        bounds = self.env.var_to_range[symbol]
        low, high = bounds.lower, bounds.upper
        parts = []
        if low.is_Integer:
            parts.append(f"{low} <= {symbol}")
        if high.is_Integer and high < 2**62:
            parts.append(f"{symbol} <= {high}")
        if parts:
            self._add(" and ".join(parts), [symbol], {symbol: item}, None)

    def _add(self, text: str, symbols: list[Any], where: dict[Any, Tracked], user: Any) -> None:
        if any(s not in where for s in symbols):
            return  # of numbers that only the graph knows: a runtime matter
        function = eval(f"lambda {', '.join(map(str, symbols))}: {text}", _GLOBALS)
        names = {str(s): where[s].text for s in symbols}
        readable = _identifier.sub(lambda match: names.get(match.group(), match.group()), text)
        self.tr.guards.predicate(function, [where[s].node for s in symbols], readable, user)


_identifier = re.compile(r"\b[a-z]\w*\b")
_GLOBALS: dict[str, Any] = {"math": math, "torch": torch}
_printed = PythonPrinter().doprint

_getters: dict[tuple[str, int], Callable[[Any], int]] = {}


def _getter(method: str, dim: int) -> Callable[[Any], int]:
    function = _getters.get((method, dim))
    if function is None:
        function = eval(f"lambda tensor: tensor.{method}({dim})")
        function.__name__ = f"{method}_{dim}"
        _getters[method, dim] = function
    return function


def _size_getter(dim: int) -> Callable[[Any], int]:
    return _getter("size", dim)


def _stride_getter(dim: int) -> Callable[[Any], int]:
    return _getter("stride", dim)
