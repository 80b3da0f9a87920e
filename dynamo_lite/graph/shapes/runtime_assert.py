"""Assertions of the conditions that the trace assumed about numbers which only the graph computes (unbacked symbols).

Input: a builder with all its operators, before dead ones are removed. Output: nodes that raise if such a condition does not hold.
Invariant: an assertion stands directly behind the nodes of its numbers, before every operator that relies on it. Conditions on numbers of
the inputs are guards.
Mirrors `torch/fx/passes/runtime_assert.py`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import sympy
import torch
from torch.fx import Node, Proxy
from torch.fx.proxy import GraphAppendingTracer
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.reference import PythonReferenceAnalysis
from torch.utils._sympy.symbol import SymT, symbol_is_type

from dynamo_lite.backends.aot import WRAPS_INTS
from dynamo_lite.graph.core.keep_dynamo_unloaded import without_compiler
from dynamo_lite.graph.core.nodes import NodeMeta
from dynamo_lite.graph.core.values import SymValue, TensorValue

if TYPE_CHECKING:
    from dynamo_lite.graph.builder import GraphBuilder

    from .symbols import Symbols

_UNBACKED = (SymT.UNBACKED_INT, SymT.UNBACKED_FLOAT)
_set_meta = torch._C._NodeBase.meta.__set__


def add_runtime_asserts(builder: GraphBuilder, symbols: Symbols) -> bool:
    """Add the nodes. Returns whether there are any."""
    known = set(builder.graph.nodes)
    with without_compiler:
        writer = _Writer(builder, symbols)
        for fact in _facts(symbols, writer.made_at):
            writer.add(fact)
        if getattr(builder.tr.backend, WRAPS_INTS, False):
            for number in _large_numbers(builder, symbols, writer.made_at):
                writer.add(sympy.And(sympy.Ge(number, -(1 << 63)), sympy.Lt(number, 1 << 63)))
    place = None
    for node in builder.graph.nodes:
        if node not in known and type(node.meta) is not NodeMeta:
            _set_meta(node, NodeMeta(builder.propagator, None, place))
        place = getattr(node.meta, "place", None)
    return len(builder.graph.nodes) > len(known)


def _facts(symbols: Symbols, made_at: dict[Any, _Place]) -> list[Any]:
    """The conditions on numbers that the graph computes: the ends of narrowed ranges, and assumptions of operators and of the program."""
    facts: dict[Any, None] = {}
    env = symbols.env
    for symbol in made_at:
        bounds, first = env.var_to_range.get(symbol), symbols.first_ranges.get(symbol)
        if bounds is None or first is None or not bounds.is_int:
            continue
        if bounds.lower.is_Integer and bounds.lower > first.lower:
            facts[sympy.Ge(symbol, bounds.lower)] = None
        if bounds.upper.is_Integer and bounds.upper < min(first.upper, sys.maxsize - 1):
            facts[sympy.Le(symbol, bounds.upper)] = None
    for asserted in env.deferred_runtime_asserts.values():
        facts.update(dict.fromkeys([item.expr for item in asserted if item.expr.free_symbols & made_at.keys()]))
    return list(facts)


def _large_numbers(builder: GraphBuilder, symbols: Symbols, made_at: dict[Any, _Place]) -> dict[Any, None]:
    """The ints that operators on tensors need, computed from numbers of the graph, and that 64 bits may not hold. (Sums of some numbers
    pass: an index or a length is far from that.)"""
    found: dict[Any, None] = {}
    needed: set[Node] = set()
    for node in reversed(builder.graph.nodes):
        number = getattr(node.meta, "subject", None)
        is_number = type(number) is SymValue
        if node.op == "output" or (is_number and node not in needed):
            continue
        needed.update(node.all_input_nodes)
        expr = number.sym.node.expr if is_number and isinstance(number.sym, torch.SymInt) else sympy.Integer(0)
        symbols_of = expr.free_symbols
        if symbols_of & made_at.keys() and all(s.is_integer for s in symbols_of) and not _is_sum(expr):
            bounds = symbols.env.bound_sympy(expr)
            if bounds.lower < -(1 << 63) or bounds.upper >= 1 << 63:
                found[expr] = None
    return found


def _is_sum(expr: Any) -> bool:
    """Whether an expression adds numbers, with small factors."""
    terms = [term.as_coeff_Mul() for term in sympy.Add.make_args(expr)]
    return all(abs(factor) < 1 << 31 and (rest.is_Symbol or rest == 1) for factor, rest in terms)


class _Nodes(PythonReferenceAnalysis):
    """The functions of an expression, as calls in the graph."""

    @staticmethod
    def _call(function: Callable[..., Any], *args: Any) -> Any:
        if not any(isinstance(a, Proxy) for a in args):
            return function(*args)
        tracer = next(a.tracer for a in args if isinstance(a, Proxy))
        return tracer.create_proxy("call_function", function, args, {})

    @staticmethod
    def trunc_to_int(x: object, dtype: object) -> Any:
        return _Nodes._call(torch.sym_int, x)

    @staticmethod
    def ceil_to_int(x: object, dtype: object) -> Any:
        return _Nodes._call(math.ceil, x)

    @staticmethod
    def floor_to_int(x: object, dtype: object) -> Any:
        return _Nodes._call(math.floor, x)

    @staticmethod
    def to_dtype(x: object, dtype: object) -> Any:
        return _Nodes._call(torch.sym_float, x)


class _Place:
    """The origin of a symbol: a node that stands for a number, or for a tensor with this size in the given dimension."""

    def __init__(self, node: Node, position: int, dim: int | None = None) -> None:
        self.node = node
        self.next = node.next
        self.position = position
        self.dim = dim


def _places(builder: GraphBuilder, symbols: Symbols) -> dict[Any, _Place]:
    """The symbols that nodes of the graph have made, with the node; a symbol counts even if its number is known by now."""
    found: dict[Any, _Place] = {}
    inputs = symbols.inputs
    for position, node in enumerate(builder.graph.nodes):
        subject = getattr(node.meta, "subject", None)
        if node.op == "placeholder":
            continue
        if type(subject) is SymValue:  # a float that varies has no symbol
            numbers = [(None, subject.sym)]
        elif isinstance(subject, TensorValue) and subject.meta.live:
            numbers = list(enumerate(subject.meta.shape))
        else:
            continue
        for dim, number in numbers:
            expr = number.node._expr if isinstance(number, torch.SymInt | torch.SymFloat) else None
            if isinstance(expr, sympy.Symbol) and expr not in inputs and symbol_is_type(expr, _UNBACKED):
                found.setdefault(expr, _Place(node, position, dim))
    return found


class _Writer:
    def __init__(self, builder: GraphBuilder, symbols: Symbols) -> None:
        self.builder = builder
        self.inputs = symbols.inputs
        self.graph = builder.graph
        self.tracer = GraphAppendingTracer(self.graph)
        self.made_at = _places(builder, symbols)
        self.sizes: dict[Any, Node] = {}

    def add(self, fact: sympy.Basic) -> None:
        """Write a condition and its assertion behind the last of its numbers."""
        made = sorted(fact.free_symbols & self.made_at.keys(), key=lambda s: self.made_at[s].position)
        inputs = fact.free_symbols - set(made)
        if not made or not inputs <= self.inputs.keys():
            return
        values = {s: self.builder.node(self.inputs[s]) for s in inputs}
        values.update((s, self._number(s)) for s in made)
        with self.graph.inserting_before(self.made_at[made[-1]].next):
            holds = sympy_interp(_Nodes, {s: Proxy(n, self.tracer) for s, n in values.items()}, fact)
            if isinstance(holds, Proxy):
                text = f"{fact} does not hold, on which the compiled program rests"
                self.graph.call_function(torch.ops.aten._assert_scalar.default, (holds.node, text))

    def _number(self, symbol: sympy.Symbol) -> Node:
        place = self.made_at[symbol]
        if place.dim is None:
            return place.node
        if symbol not in self.sizes:
            with self.graph.inserting_before(place.next):
                self.sizes[symbol] = self.graph.call_method("size", (place.node, place.dim))
        return self.sizes[symbol]
