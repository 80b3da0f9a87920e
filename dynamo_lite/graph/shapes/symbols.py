"""Symbolic sizes and ints of one trace, and the guards that they leave behind.

Input: real tensors and ints with their access paths. Output: SymInts; after the trace, predicates over the access
paths.
Invariant: the compiled code is used only for inputs that satisfy every predicate, the ranges of the symbols included.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import ref

import sympy
import torch
import torch.fx.experimental.symbolic_shapes as symbolic_shapes
from torch._guards import Source
from torch.fx.experimental.symbolic_shapes import DimDynamic, StrictMinMaxConstraint, statically_known_true
from torch.utils._sympy.functions import Max, Mod, PythonMod
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.printers import PythonPrinter
from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

from dynamo_lite.config import config
from dynamo_lite.dynamism.dynamic_shapes import fix, followed_dims
from dynamo_lite.dynamism.mark_constraints import (
    Bounds,
    Promise,
    bounds_of,
    check_range,
    name_of,
    refuse_condition,
    refuse_constant,
    spoken,
)
from dynamo_lite.dynamism.symbolic_budget import Effort
from dynamo_lite.graph.core.keep_dynamo_unloaded import without_compiler
from dynamo_lite.graph.core.nested_int import is_nested, new_nested_int
from dynamo_lite.graph.core.values import SymValue
from dynamo_lite.graph.core.varying_floats import Decisions, FloatValue
from dynamo_lite.guards import ir
from dynamo_lite.markers import SHAPE_IDS
from dynamo_lite.messages import short_path
from dynamo_lite.record import Specialization

from .captured_calls import outcome
from .formulas import formula
from .rule_table import ATEN_RULES
from .runtime_assert import add_runtime_asserts
from .shape_env import Env
from .size_algebra import SizeAlgebra
from .sizes import UNBOUNDED, Number, size_getter, stride_getter
from .symbolic_meta import SymbolicMetas

if TYPE_CHECKING:
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.graph.builder import GraphBuilder
    from dynamo_lite.guards.ir import GuardNode

without_compiler.loggers.extend(
    (symbolic_shapes, name) for name in ("trace_structured", "dtrace_structured") if hasattr(symbolic_shapes, name)
)


class InputSource(Source):
    """An access path for torch's shape reasoning, which knows its name only."""

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


class Tracked(NamedTuple):
    """A number of the inputs: how guards reach it, what it is called in reports, its symbol (`first`: as it was made), and what
    `mark_dynamic` promises about it."""

    node: Any
    text: str
    sym: Any
    first: Any = None
    promise: Promise | None = None
    owner: Any = None
    dim: int = 0
    is_stride: bool = False


class Symbols:
    """The symbols of one trace; `here()` tells the user's line."""

    def __init__(self, mode: Any, tr: Trace, has_numbers: bool, has_lengths: bool) -> None:
        self.tr = tr
        with without_compiler:
            self.env = Env(
                allow_scalar_outputs=has_numbers,
                allow_dynamic_output_shape_ops=has_lengths,
                specialize_zero_one=config.specialize_zero_one,
                duck_shape=None if config.use_duck_shape else False,  # None: as torch's own setting says
            )
        self.env.here = tr.thread.here
        self.env.functions = tr.thread.functions
        self.env.describe = self.describe
        self.env.given_up = self._give_up
        self.env.effort = Effort(config.symbolic_effort)
        self.tracked: list[Tracked] = []
        self.specializations: list[Specialization] = []
        self.given_up: set[str] = set()  # texts of numbers that would have taken too much reasoning
        self.shape_ids: dict[str, Any] = {}
        self.first_ranges: dict[Any, Any] = {}  # of numbers that only the graph knows, as they were made
        self.made_by: dict[Any, Any] = {}  # number that only the graph knows → the user's line that makes it
        self.has_unbacked = False  # whether sizes of inputs are not looked at
        self.inputs: dict[Any, SymValue] = {}
        self.numbers: dict[Any, Any] = {}  # symbol → access path of an int of the program
        self.decide = Decisions(tr)
        self.ints: dict[Any, SymValue] = {}  # access path → int from outside
        self.floats: dict[Any, FloatValue] = {}  # access path → float from outside
        self.ragged: dict[Any, SymValue] = {}  # symbol of a nested int → the size of a tensor
        # (path, symbolic sizes, strides with a symbol of their own) of each input with symbols, in order
        self.made_for: list[tuple[Any, tuple[int, ...], tuple[int, ...]]] = []
        mode.shape_env = self.env
        mode.aten_rules, mode.size_algebra = ATEN_RULES, SizeAlgebra(self.env, Max)
        mode.direct_outcome = outcome
        mode.symbolic_metas = SymbolicMetas(mode, mode.size_algebra)
        # FakeTensor's own cache costs more than it saves where sizes are symbolic: repeated calls do not get there.
        mode.cache_enabled = False
        mode.static_shapes = False

    # -- making symbols

    def shape_of(
        self,
        tensor: torch.Tensor,
        source: GuardNode | None,
        dynamic: frozenset[int],
        strict: frozenset[int],
        unbacked: frozenset[int] = frozenset(),
        own_strides: frozenset[int] = frozenset(),
    ) -> tuple[Any, Any]:
        """Symbolic sizes and strides of a real tensor: the given dimensions, the strides that follow from them, and those that have
        symbols of their own (`own_strides`). Sizes of `unbacked` have no present value."""
        sizes: list[Any] = list(tensor.shape)
        path = spoken(source, self.tr)
        self.made_for.append((source, tuple(sorted(dynamic)), tuple(sorted(own_strides))))
        for dim in sorted(dynamic | unbacked):
            node = self.tr.source(source, ir.CALL, size_getter(dim))
            text = f"{path}.size({dim})"
            bounds = bounds_of(tensor, dim)
            if dim in unbacked:
                sizes[dim] = self._unbacked(sizes[dim], node, text, bounds, getattr(tensor, SHAPE_IDS, {}).get(dim))
                continue
            kind = DimDynamic.DYNAMIC if dim in strict else DimDynamic.DUCK
            promise = Promise(name_of(dim, path), bounds) if dim in strict else None
            sizes[dim] = self._symbol(sizes[dim], node, text, kind, bounds, promise, (ref(tensor), dim))
        strides = contiguous_strides(tensor, sizes) if unbacked else None
        strides = self._strides(tensor, sizes, own_strides, source, path) if strides is None else strides
        for dim, stride in enumerate(strides):
            if type(stride) is not int and dim not in own_strides:
                node = self.tr.source(source, ir.CALL, stride_getter(dim))
                self.tracked.append(Tracked(node, f"{path}.stride({dim})", stride))
        return sizes, strides

    def _symbol(
        self,
        value: int,
        node: object,
        text: str,
        kind: object,
        bounds: Bounds | None = None,
        promise: Promise | None = None,
        place: tuple[Any, ...] = (),
    ) -> Any:
        source = InputSource(text)
        constraint = None
        if bounds is not None:
            low = bounds.min if bounds.min is not None else 2 if config.specialize_zero_one else 0
            constraint = StrictMinMaxConstraint(
                warn_only=False, vr=ValueRanges(low, int_oo if bounds.max is None else bounds.max)
            )
        with without_compiler:
            symbol = self.env.create_symbol(value, source, kind, constraint_dim=constraint)
            sym = self.env.int_of(symbol, value)
        self.tracked.append(Tracked(node, text, sym, symbol, promise, *place))
        self.inputs.setdefault(symbol, SymValue(sym, origin=("input", node, value)))
        return sym

    def _unbacked(self, value: int, node: object, text: str, bounds: Bounds | None, shape_id: str | None) -> Any:
        """A size that the trace does not know. Those with one `shape_id` are one symbol."""
        self.has_unbacked = True
        sym = self.shape_ids.get(shape_id) if shape_id is not None else None
        if sym is None:
            with without_compiler, self.env.ignore_fresh_unbacked_symbols():
                source = InputSource(text)
                symbol = self.env.create_symbol(value, source, DimDynamic.UNBACKED)
                sym = self.env.create_symintnode(symbol, hint=None, source=source)
                if bounds is not None and bounds.min is not None:
                    torch._check(sym >= bounds.min)
                if bounds is not None and bounds.max is not None:
                    torch._check(sym <= bounds.max)
            self.inputs.setdefault(symbol, SymValue(sym, origin=("input", node, value)))
            if shape_id is not None:
                self.shape_ids[shape_id] = sym
        self.tracked.append(Tracked(node, text, sym, sym.node.expr))
        return sym

    def unknown_int(self) -> Any:
        """A number that only the graph knows."""
        with without_compiler, self.env.ignore_fresh_unbacked_symbols():
            return self.env.create_unbacked_symint()

    def input_of(self, value: SymValue) -> SymValue:
        """The graph input that has the same number, or the value itself."""
        if isinstance(value, FloatValue):
            return value
        if not isinstance(value.sym, torch.SymInt):
            return value
        expr = value.sym.node.expr
        return self.inputs.get(expr) or self.ragged.get(expr, value)

    def _strides(
        self, tensor: torch.Tensor, sizes: list[Any], own: frozenset[int], source: GuardNode | None, path: str
    ) -> list[Any]:
        """Strides as products of an inner size and stride, wherever they are such products; those of `own` as symbols of their own."""
        strides: list[Any] = list(tensor.stride())
        for dim, followed in followed_dims(tensor.shape, tensor.stride()):
            if dim in own:
                node = self.tr.source(source, ir.CALL, stride_getter(dim))
                text = f"{path}.stride({dim})"
                strides[dim] = self._symbol(strides[dim], node, text, DimDynamic.DYNAMIC, place=(None, dim, True))
            elif followed is not None:
                strides[dim] = strides[followed] * sizes[followed]
        return strides

    def int_of(self, value: int, source: GuardNode | None) -> SymValue:
        """The graph value of an int input."""
        known = self.ints.get(source)
        if known is None:
            known = self.ints[source] = self._int_of(value, source)
        return known

    def _int_of(self, value: int, source: GuardNode | None) -> SymValue:
        self.made_for.append((source, (), ()))
        if config.automatic_dynamic_shapes_mark_as == "unbacked" and self.tr.dynamic is None:
            sym = self._unbacked(value, source, spoken(source, self.tr), None, None)
            return self.inputs[sym.node.expr]
        with without_compiler:
            name = InputSource(source.path)
            symbol = self.env.create_unspecified_symbol(value, name, DimDynamic.DYNAMIC)
            sym = self.env.int_of(symbol, value)
        self.tracked.append(Tracked(source, spoken(source, self.tr), sym, symbol))
        self.numbers[symbol] = source
        return self.inputs.setdefault(symbol, SymValue(sym, origin=("input", source, value)))

    def formula(self, value: SymValue) -> Any:
        """`(function, access paths)` that computes an int from ints which the program has as such, by sums and products; else None."""
        sym = value.sym
        if type(sym) is not torch.SymInt:
            return None
        with without_compiler:
            expr = sym.node.expr
        symbols = sorted(expr.free_symbols, key=str)
        if not all(s in self.numbers for s in symbols) or not all(
            isinstance(part, _ARITHMETIC) for part in sympy.preorder_traversal(expr)
        ):
            return None
        return formula(_printed(expr), tuple(map(str, symbols))), [self.numbers[s] for s in symbols]

    def source_of(self, value: SymValue) -> GuardNode | None:
        """The access path of an int that the program has as such, or computes from one by sums and products; None for any other number."""
        found = self.formula(value)
        if found is None or len(found[1]) != 1:
            return None
        function, (node,) = found
        return node if value.sym.node.expr.is_symbol else self.tr.source(node, ir.CALL, function)

    @staticmethod
    def is_certain(compare: Callable[[Any, Any], Any], one: object, other: object) -> bool:
        """Whether a comparison of ints, of which some are symbolic, follows from what is known of them."""
        with without_compiler:
            return statically_known_true(compare(one, other))

    def _give_up(self, symbol: object) -> None:
        """Reasoning about a number has become too much: it is a constant from now on, in later versions as well."""
        for item in self.tracked:
            if symbol in (item.first, item.sym.node.expr):
                self.given_up.add(item.text)
                fix(self.tr, item.node, item.dim, item.is_stride)

    # -- nested ints

    def nested(self, value: Any) -> Any:
        """The symbol of a real nested int. Equal ones are one symbol."""
        number, coeff = value.node.nested_int(), value.node.nested_int_coeff()
        hint, source = new_nested_int(number), InputSource(f"j{number}")
        with without_compiler:
            symbol = self.env.create_symbol(hint, source, DimDynamic.DUCK)
            sym = self.env.create_symintnode(symbol, hint=hint, source=source)
            return sym if coeff == 1 else sym * coeff

    def nested_int(self, value: object, node: object, text: str) -> Any:
        """The symbol of a nested int that guards find at `node`."""
        sym = self.nested(value)
        self.track_nested_int(sym, node, text)
        return sym

    def track_nested_int(self, sym: object, node: object, text: str) -> None:
        """Say where guards find a nested int, and whose it is."""
        self.tracked.append(Tracked(node, text, sym))

    def release(self) -> None:
        """The run is over. Fake tensors of a graph that lives on lead to the `ShapeEnv`, which must not lead to the trace."""
        self.env.release()
        self.decide.tr = None
        self.__dict__.clear()

    # -- for the cache

    def names(self) -> list[str]:
        """Which symbols the numbers of the inputs were made of: one for two of them where they are taken for equal."""
        return [str(item.sym.node._expr) for item in self.tracked]

    def written(self, number: Any) -> Any:
        """A number as plain data: itself, or an expression and the names of the symbols in it."""
        if type(number) is int:
            return number
        expr = number.node.expr
        if not expr.free_symbols:
            return int(expr)
        return _printed(expr), tuple(sorted(map(str, expr.free_symbols)))

    def read(self, data: Any) -> Any:
        """The number again."""
        if type(data) is int:
            return data
        text, names = data
        known = {str(item.first): item.sym for item in self.tracked if item.first is not None}
        return formula(text, names)(*[known[name] for name in names])

    def is_of_inputs(self, others: Iterable[Any] = ()) -> bool:
        """Whether all symbols but these stand for numbers of the inputs."""
        made = {item.first for item in self.tracked if item.first is not None}.union(others)
        has_hints = all(item.sym.node.has_hint() for item in self.tracked)
        return has_hints and self.env.var_to_range.keys() <= made and not self.env.deferred_runtime_asserts

    # -- floats

    def float_of(self, value: float, source: GuardNode | None) -> FloatValue:
        """The graph value of a float input."""
        found = self.floats.get(source)
        if found is None:
            found = self.floats[source] = FloatValue(self.decide, value, ("input", source, value))
        return found

    def _text_of(self, value: SymValue, canonical: dict[Any, Tracked]) -> tuple[str, list[tuple[Any, str]]]:
        expr = value.sym.node.expr
        return _printed(expr), [(canonical[s].node, str(s)) for s in sorted(expr.free_symbols, key=str)]

    # -- guards

    def note_new_numbers(self) -> bool:
        """An operator has been run; whether it has made numbers."""
        made = self.env.pending_fresh_unbacked_symbols
        has_made = len(made) > len(self.first_ranges)
        if has_made:
            stack = self.tr.thread.user_stack()
            for symbol in made:
                self.first_ranges.setdefault(symbol, self.env.var_to_range.get(symbol))
                self.made_by.setdefault(symbol, stack[-1] if stack else None)
            if self.tr.facts.assumes_large_sizes:
                self._assume_at_least(2, made)
        return has_made

    def _assume_at_least(self, n: int, numbers: Iterable[Any]) -> None:
        """Take for granted that those of the numbers which are sizes are not below one. The graph will assert it."""
        for size in numbers:
            bounds = self.env.var_to_range.get(size)
            if bounds is not None and 0 <= bounds.lower < n <= bounds.upper:  # an `item()` may be negative
                self.env._narrow(size, n, bounds.upper)

    def assume_elements(self, asked: Any) -> bool:
        """An operator asks for this condition. If it is known as soon as sizes that data decide are not zero, take that for granted: many
        operators have a way of their own for empty tensors."""
        ranges = self.env.var_to_range
        may_be_zero = [size for size in asked.free_symbols & self.first_ranges.keys() if ranges[size].lower == 0]
        positive = {size: ValueRanges(1, ranges[size].upper) for size in may_be_zero}
        if not positive or not bound_sympy(asked, {**ranges, **positive}).is_singleton():
            return False
        self._assume_at_least(1, positive)
        return True

    def add_runtime_asserts(self, builder: GraphBuilder) -> bool:
        """Have the graph assert what was assumed about numbers that it makes. Returns whether there is anything to assert."""
        return not self.is_of_inputs() and add_runtime_asserts(builder, self)

    def add_guards(self) -> None:
        """Give everything that was assumed about the inputs' numbers to the guards. Raises UserError if a promise
        was broken."""
        canonical: dict[Any, Tracked] = {}
        facts: list[tuple[Any, Any]] = []
        with without_compiler:
            self.specializations = []
            for item, found in self._constants():
                self.specializations.append(found)
                if item.promise is not None:
                    refuse_constant(item.promise, found)
            for item in self.tracked:
                expr = item.sym.node.expr
                if isinstance(expr, sympy.Symbol) and expr not in canonical:
                    canonical[expr] = item
            for item in self.tracked:
                expr = item.sym.node.expr
                if canonical.get(expr) is not item:
                    facts.append((expr, item))
            self._add_equalities(facts, canonical)
            for symbol, item in canonical.items():
                if not is_nested(item.sym):
                    self._add_range(symbol, item)
            promises = self._check_ranges()
            for expr, user in self._conditions():
                if len(expr.free_symbols) == 1 and expr.free_symbols <= promises.keys():
                    (symbol,) = expr.free_symbols
                    refuse_condition(
                        promises[symbol], self._readable(_printed(expr), expr.free_symbols, canonical), user
                    )
                self._add(_printed(expr), sorted(expr.free_symbols, key=str), canonical, user)
            for asserted in self.env.deferred_runtime_asserts.values():
                for item in asserted:
                    self._add(_printed(item.expr), sorted(item.expr.free_symbols, key=str), canonical, None)
            self.specializations += self.decide.specializations()
            self.tr.guards.sizes = self._numbers(canonical)
            self.decide.add_guards(lambda value: self._text_of(value, canonical))

    def _numbers(self, canonical: dict[Any, Tracked]) -> list[Number]:
        """The demands of the guards, number by number."""
        numbers: dict[str, Number] = {}
        for item in self.tracked:
            expr = item.sym.node.expr
            if item.first is None or not all(s in canonical for s in expr.free_symbols):
                continue
            number = numbers[item.text] = Number(item.text, item.node)
            number.symbol, number.owner, number.dim = str(expr), item.owner, item.dim
            number.present = item.sym.node.hint if item.sym.node.has_hint() else None
            if canonical.get(expr) is item:
                bounds = self.env.var_to_range[expr]
                number.low = int(bounds.lower) if bounds.lower.is_Integer else None
                number.high = int(bounds.upper) if bounds.upper.is_Integer and bounds.upper < UNBOUNDED else None
                continue
            symbols = sorted(expr.free_symbols, key=str)
            number.equals = self._readable(_printed(expr), expr.free_symbols, canonical)
            involved = [item, *(canonical[s] for s in symbols)]  # either may be the one that was replaced
            lines = [self.env.replacements_slocs.get(i.first) for i in involved]
            number.user = next((line.maybe_user_loc for line in lines if line is not None), None)
            number.parts = tuple([canonical[s].text for s in symbols])
            number.follows = formula(_printed(expr), tuple(map(str, symbols)))
        for expr, _ in self._conditions():
            item = canonical.get(*expr.free_symbols) if len(expr.free_symbols) == 1 else None
            if item is not None and item.text in numbers:
                _restrict(numbers[item.text], expr, self._readable(_printed(expr), expr.free_symbols, canonical))
        return list(numbers.values())

    def _conditions(self) -> Iterator[tuple[Any, Any]]:
        """The conditions beside the ranges, and the user's lines that made them necessary."""
        for guard in self.env.guards:
            if self.env.is_in_range(guard.expr):
                continue
            expr = self.env.simplify(guard.expr)
            if self.env._maybe_evaluate_static(expr, axioms=()) is None:
                yield expr, guard.sloc.maybe_user_loc

    def _constants(self) -> Iterator[tuple[Tracked, Specialization]]:
        """The numbers of the inputs that the trace has made constants."""
        for item in self.tracked:
            expr = item.sym.node.expr
            if item.first is not None and not expr.free_symbols:
                why = "its use takes too much reasoning" if item.text in self.given_up else None
                yield item, Specialization(item.text, int(expr), self._who_fixed(item.first), why)

    def constants(self) -> list[Specialization]:
        """The sizes and numbers that the trace has made constants so far."""
        with without_compiler:
            return [constant for _, constant in self._constants()]

    def _who_fixed(self, symbol: Any) -> Any:
        """The user's line that made a constant of a symbol."""
        env = self.env
        while isinstance(env.replacements.get(symbol), sympy.Symbol):
            symbol = env.replacements[symbol]
        where = env.replacements_slocs.get(symbol)
        return where.maybe_user_loc if where is not None else None

    def _check_ranges(self) -> dict[Any, Promise]:
        """Hold the ranges against those that were promised; the promises that name a range, by symbol."""
        promises = {}
        for item in self.tracked:
            expr = item.sym.node.expr
            if item.promise is None or item.promise.bounds is None or not isinstance(expr, sympy.Symbol):
                continue
            bounds, where = self.env.var_to_range[expr], self.env.var_to_range_sloc[expr]
            high = int(bounds.upper) if bounds.upper.is_Integer else None
            users = where.lower.maybe_user_loc, where.upper.maybe_user_loc
            check_range(item.promise, int(bounds.lower), high, users)
            promises[expr] = item.promise
        return promises

    def _add_equalities(self, facts: list[tuple[Any, Tracked]], canonical: dict[Any, Tracked]) -> None:
        for expr, item in facts:
            own = sympy.Symbol("value")
            symbols = [own, *sorted(expr.free_symbols, key=str)]
            bounds = (item.text, int(expr), int(expr)) if expr.is_Integer else None
            self._add(f"value == {_printed(expr)}", symbols, {own: item, **canonical}, None, bounds)

    def _add_range(self, symbol: Any, item: Tracked) -> None:
        bounds = self.env.var_to_range[symbol]
        low, high = bounds.lower, bounds.upper
        parts = []
        least = int(low) if low.is_Integer else None
        most = int(high) if high.is_Integer and high < UNBOUNDED else None
        if least is not None:
            parts.append(f"{least} <= {symbol}")
        if most is not None:
            parts.append(f"{symbol} <= {most}")
        if parts:
            self._add(" and ".join(parts), [symbol], {symbol: item}, None, (item.text, least, most))

    def _add(
        self, text: str, symbols: list[Any], where: dict[Any, Tracked], user: Any, bounds: ir.Bounds | None = None
    ) -> None:
        if any(s not in where for s in symbols):
            return  # of numbers that only the graph knows: a runtime matter
        function = formula(text, tuple(map(str, symbols)))
        nodes = [where[s].node for s in symbols]
        self.tr.guards.predicate(function, nodes, self._readable(text, symbols, where), user, bounds)

    @staticmethod
    def _readable(text: str, symbols: Iterable[Any], where: dict[Any, Tracked]) -> str:
        """A condition on these symbols in terms of the inputs."""
        names = {str(symbol): where[symbol].text for symbol in symbols if symbol in where}
        return _identifier.sub(lambda match: names.get(match.group(), match.group()), text)

    def describe(self, sym: Any) -> str:
        """A symbolic number in terms of the inputs that it is made of."""
        return self.describe_expr(sym.node.expr)

    def describe_expr(self, expr: Any) -> str:
        """The same for an expression."""
        where = {item.first: item for item in reversed(self.tracked) if item.first is not None}
        marked = [where[s].text for s in expr.free_symbols if s in where and self.env.is_unbacked_symint(s)]
        notes = [f" ({text} is marked unbacked: no guard may depend on it)" for text in marked]
        for symbol in sorted(expr.free_symbols & self.made_by.keys(), key=str):
            line = self.made_by[symbol]
            if line is not None:
                notes.append(f" ({symbol} is made at {short_path(line.filename)}:{line.lineno}: {line.line.strip()})")
        return self._readable(str(expr), expr.free_symbols, where) + "".join(notes)


def contiguous_strides(tensor: torch.Tensor, sizes: list[Any]) -> list[Any] | None:
    """The strides of a contiguous tensor from its sizes, some of them symbolic; None if the tensor has others."""
    if torch.empty(tensor.shape, device="meta").stride() != tensor.stride():
        return None
    strides: list[Any] = []
    span: Any = 1
    with without_compiler:
        for size in reversed(sizes):
            strides.append(span)
            span = span * torch.sym_max(size, 1)
    return strides[::-1]


_ARITHMETIC = (sympy.Add, sympy.Mul, sympy.Integer, sympy.Symbol)
_identifier = re.compile(r"\b[a-z]\w*\b")
_printed = PythonPrinter().doprint


def _restrict(number: Number, expr: object, text: str) -> None:
    """Note a condition on this number alone."""
    found = _divisibility(expr)
    if found is not None and number.divisor == 1:
        number.divisor, number.remainder = found
    else:
        number.others.append(text)


def _divisibility(expr: Any) -> tuple[int, int] | None:
    """`(m, r)` if the condition is that a symbol is r modulo m."""
    if not isinstance(expr, sympy.Eq):
        return None
    for rest, modulo in (expr.args, expr.args[::-1]):
        if isinstance(modulo, Mod | PythonMod | sympy.Mod) and rest.is_Integer:
            symbol, divisor = modulo.args
            if isinstance(symbol, sympy.Symbol) and divisor.is_Integer:
                return int(divisor), int(rest)
    return None
