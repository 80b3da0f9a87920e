"""Symbolic numbers of a graph: sizes and strides of inputs, and numbers that depend on data.

Input: the numbers that vary. Output: guards on them at the end of the trace; assertions in the graph for assumptions about numbers that
only the graph knows; data from which the symbols of a graph that was read are made again.
Invariant: the machinery of symbols (`shapes.symbols`) is loaded with the first symbol of a process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from math import inf
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node

from dynamo_lite.config import config
from dynamo_lite.dynamism import dynamic_shapes
from dynamo_lite.exc import AssumeLargeSizes, LeaveData, Mismatch, NumbersSeen, Refused, Restart
from dynamo_lite.graph.core.effect import GraphEffect
from dynamo_lite.graph.core.failure import trace_left
from dynamo_lite.graph.core.keep_dynamo_unloaded import without_compiler
from dynamo_lite.graph.core.meta import meta_of_fake
from dynamo_lite.graph.core.values import SymValue, TensorValue
from dynamo_lite.graph.inputs.wrapper_inputs import settle_inputs
from dynamo_lite.graph.shapes.formulas import recipe_of
from dynamo_lite.guards import ir
from dynamo_lite.markers import HAS_MARKS
from dynamo_lite.signals import raise_waiting

if TYPE_CHECKING:
    from torch.fx import GraphModule

    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.graph.core.fake import Propagator
    from dynamo_lite.graph.shapes.symbols import Symbols
    from dynamo_lite.record import Function


_ASKED = "on data-dependent expression"  # in `GuardOnDataDependentSymNode`, also where a compiler has wrapped that

MAX_FAILURES = 4
"""A version whose assumptions about numbers from data have failed so many times is compiled anew, with breaks where these are made."""


@dataclass(eq=False)
class SymbolicSizes(GraphEffect):
    """`known`: the symbols of the trace; None if there are none. `is_of_inputs`: whether they are of inputs, but for numbers that the graph
    only returns, before compilers add others. `stored`: the symbols of a graph that was read. `asserts`: whether the graph asserts
    something of numbers that data decide although it need not have them; `failures`: how often it has raised. `branches`: what became of
    branches of the program that data decide, for reports; `sides`: how many sides of such branches have been followed. `may_raise`:
    quotients whose divisor data decide, and ints of floats that they decide."""

    known: Symbols | None = None
    is_of_inputs: bool = False
    stored: StoredSizes | None = None
    asserts: bool = False
    failures: int = 0
    branches: list[str] = field(default_factory=list)
    sides: int = 0
    may_raise: list[SymValue] = field(default_factory=list)

    def needs_symbols(self) -> Symbols:
        """The symbols, made with the first one."""
        if self.known is None:
            self.known = new_symbols(self.builder.propagator.mode, self.builder.tr, self.has_numbers, self.has_lengths)
        return self.known

    @property
    def has_numbers(self) -> bool:
        """Whether numbers that data decide are values of this graph."""
        return self._is_on(config.capture_scalar_outputs)

    @property
    def has_lengths(self) -> bool:
        """Whether operators whose results have sizes that data decide are in this graph."""
        return self._is_on(config.capture_dynamic_output_shape_ops)

    def _is_on(self, setting: bool | None) -> bool:
        if setting is not None:
            return setting
        tr = self.builder.tr
        return not self.builder.passes.fakes.are_there and (tr.breaks_raise or not tr.facts.leaves_data)

    def assume(self, condition: SymValue) -> None:
        """Take a condition on numbers that only the graph knows for granted. The graph will assert it, see `runtime_assert`."""
        self.builder.node(condition)
        with without_compiler:
            torch._check(condition.sym)

    def without_floats(self, error: Exception) -> None:
        """The backend needs the floats of this graph as constants: have the frame analysed again."""
        self.without_data(error)
        constants = {
            (dynamic_shapes.NUMBER, source.steps): dynamic_shapes.STATIC_FLOAT for source in self.needs_symbols().floats
        }
        raise Restart(f"a graph with floats that vary cannot be compiled: {error}", fact=NumbersSeen(constants))

    @property
    def needs_no_data(self) -> bool:
        """Whether the graph has numbers or branches that data decide, and may break where they are made instead. One that was read from the
        warm cache only returns such numbers, and no frame is being analysed that could break."""
        if self.builder is None or self.builder.tr.breaks_raise or self.builder.tr.facts.leaves_data:
            return False
        if self.branches:
            return True
        if self.known is None or not self.known.first_ranges:
            return False
        return None in (config.capture_scalar_outputs, config.capture_dynamic_output_shape_ops)

    def without_data(self, why: object) -> None:
        """If the graph has numbers or branches that data decide, and need not, have the frame analysed again, with a break where they are
        made."""
        if self.needs_no_data:
            raise Restart(f"a graph with numbers that data decide cannot be used: {why}", fact=LeaveData())

    def with_large_sizes(self, error: Exception) -> None:
        """If a compiler has asked for sizes that data decide, and no break may be made, have the frame analysed again, with what answers
        most of such questions."""
        builder = self.builder
        if builder is None or self.known is None or builder.tr.facts.assumes_large_sizes:
            return
        if self.known.first_ranges and _ASKED in str(error):
            raise Restart(f"a compiler asks for sizes: {error}", fact=AssumeLargeSizes())

    def require_undoable(self, gm: GraphModule, args: list[Any], protect: Callable[[Any], Any]) -> None:
        """Do that if the graph leaves something behind where it raises: eager execution may not raise there, or another error."""
        left = trace_left(gm, len(gm.graph.nodes), args, protect)
        if left.reason is not None:
            self.without_data(f"it asserts something, and has {left.reason}")

    def failed(self) -> None:
        """Take note that the graph has raised. If it does so often, the frame is analysed again, with breaks."""
        self.failures += 1
        if self.asserts and self.failures == MAX_FAILURES:
            self.leave()

    def hold(self) -> bool:
        """The guard of a version that asserts something."""
        return self.failures < MAX_FAILURES

    # -- at the end of the trace

    def prepare(self) -> Sequence[Node]:
        self._return_what_may_raise()
        if self.known is not None and self.known.add_runtime_asserts(self.builder) and self.needs_no_data:
            tr = self.builder.tr
            self.asserts = True
            self.leave = partial(tr.region.strikes.without_data.add, tr.root.call.fn.__code__)
            tr.guards.global_state(self.hold, "what this version assumes of numbers from data has held so far")
        return ()

    def _return_what_may_raise(self) -> None:
        """Numbers of which the program wants no more than the error, if there is one, become results that it does not see: compilers
        leave out what nothing uses."""
        builder = self.builder
        for value in self.may_raise:
            node = builder.node(value)
            if not node.users and node not in builder.outputs:
                builder.outputs.append(node)

    def finish(self, results: list[Node]) -> None:
        if self.known is not None:
            settle_inputs(self.builder)
            self.is_of_inputs = self.known.is_of_inputs(_only_returned(self.builder.graph))

    def release(self) -> None:
        super().release()
        if self.known is not None:
            self.known.release()

    def add_guards(self, tr: Trace) -> None:
        """Add the guards. Raises UserError for a broken `mark_dynamic`."""
        if self.known is not None:
            self.known.add_guards()
            record = tr.root.call.record
            record.specializations = self.known.specializations
            record.size_lines = self.known.env.functions_at
            tr.root.call.log.sizes(self.known)

    def who_made_constants(self) -> set[Function]:
        """The functions whose lines, or whose calls, have made constants of numbers that vary."""
        if self.known is None:
            return set()
        lines = {constant.user for constant in self.known.constants()}
        return {function for line in lines for function in self.known.env.functions_at.get(line, ())}

    @property
    def are_assumed(self) -> bool:
        """Whether sizes of inputs are taken to be as the program says, without a look at them."""
        return self.known is not None and self.known.has_unbacked

    # -- in the warm cache

    def write_data(self, writer: Any) -> dict[str, Any] | None:
        """The data from which the symbols of the inputs are made again. Raises `Refused` for those that depend on data, on marks or on
        floats."""
        symbols = self.known
        if symbols is None:
            return None
        if symbols.floats or symbols.shape_ids or any(item.promise is not None for item in symbols.tracked):
            raise Refused("a graph with marked sizes, or with floats that vary")
        if not self.is_of_inputs:
            raise Refused("a graph with sizes that depend on data")
        numbers = writer.numbers
        if not all(id(source) in numbers for source, *_ in symbols.made_for):
            raise Refused("a graph with sizes of objects on which nothing depends")
        return {
            "made for": [(numbers[id(source)], dims, strides) for source, dims, strides in symbols.made_for],
            "names": symbols.names(),
        }

    def read_data(self, data: Any, reader: Any, graph: Any) -> None:
        self.stored = StoredSizes(data, reader, graph.guards(), graph.propagator)
        self.known = self.stored.symbols


def _only_returned(graph: Any) -> set[Any]:
    """The symbols of numbers that the graph reads from tensors and returns, and does nothing with."""
    found: set[Any] = set()
    for node in graph.nodes:
        if node.target == "item" and all(user.op == "output" for user in node.users):
            found |= node.meta.subject.sym.node.expr.free_symbols
    return found


def new_symbols(mode: object, tr: Trace | _Paths, has_numbers: bool = False, has_lengths: bool = False) -> Symbols:
    """The symbolic numbers of a trace. Their machinery is loaded with the first one of a process. `has_numbers`, `has_lengths`: whether
    operators make new ones."""
    symbols = import_module("dynamo_lite.graph.shapes.symbols")
    raise_waiting()
    return symbols.Symbols(mode, tr, has_numbers, has_lengths)


class StoredSizes:
    """The symbols of a graph that was read, made for the inputs of the call under way, with everything that the guards say of them.
    `subjects`: number of a path → what the placeholder of its value stands for."""

    def __init__(self, data: dict[str, Any], reader: Any, guards: ir.GuardSet, propagator: Propagator) -> None:
        """Raises `Mismatch` where other symbols come out: two sizes that happen to be equal are one symbol, say."""
        self.guards = guards
        self.conditions: list[tuple[Any, list[ir.GuardNode], str, Any, ir.Bounds | None]] = []
        self.known = {_condition(g.arg, g.nodes): g for g in guards.relations if g.kind == ir.PREDICATE}
        paths = _Paths(self, reader.values)
        self.symbols = symbols = new_symbols(propagator.mode, paths)
        symbols.env.effort.endurance = inf  # it was enough when the graph was made
        self.subjects: dict[int, TensorValue | SymValue] = {}
        for number, dims, own_strides in data["made for"]:
            real, source = reader.at(number), guards.nodes[number]
            if not dims and not own_strides:
                self.subjects[number] = _symbol_of(real, source, symbols)
                continue
            if (
                not isinstance(real, torch.Tensor)
                or HAS_MARKS in real.__dict__
                or real.dim() <= max(*dims, *own_strides, -1)
            ):
                raise Mismatch("a tensor is another one")
            if config.specialize_zero_one and any(real.shape[dim] in (0, 1) for dim in dims):
                raise Mismatch("a size is a constant")
            if any(real.stride(dim) in (0, 1) for dim in own_strides):
                raise Mismatch("a stride is a constant")
            shape = symbols.shape_of(real, source, frozenset(dims), frozenset(), own_strides=frozenset(own_strides))
            fake = propagator.symbolic_fake(*shape, real)
            self.subjects[number] = TensorValue(meta_of_fake(fake), fake=fake)
        if symbols.names() != data["names"]:
            raise Mismatch("sizes are equal by accident")
        numbers = {id(node): number for number, node in enumerate(guards.nodes)}
        syms = {item.node: item.sym for item in symbols.tracked}
        for item in symbols.tracked:
            if item.first is not None and id(item.node) in numbers:
                self.subjects.setdefault(numbers[id(item.node)], symbols.inputs[item.first])
        self._assume(syms)
        paths.values = ()  # the program's

    def _assume(self, syms: dict[ir.GuardNode, Any]) -> None:
        """Have the symbols know what the guards demand."""
        with without_compiler:
            for guard in self.known.values():
                if recipe_of(guard.arg) is None or not all(node in syms for node in guard.nodes):
                    continue
                if not guard.arg(*[syms[node] for node in guard.nodes]):
                    raise Mismatch("a condition on sizes does not hold")

    def finish(self) -> bool:
        """The graph is compiled: whether the guards demand more than those that were kept."""
        self.conditions.clear()
        self.symbols.add_guards()
        for condition in self.conditions:
            self.guards.predicate(*condition)
        return bool(self.conditions)


class _Paths:
    """In the place of a trace: the paths of guards that are there already."""

    def __init__(self, shapes: StoredSizes, values: tuple[Any, ...]) -> None:
        self.shapes = shapes
        self.values = values
        self.guards = self
        self.root = self.thread = self
        self.source = shapes.guards.node
        self.here = lambda: None
        self.functions = tuple

    @property
    def sizes(self) -> Any:
        """For reports: what is demanded of each size."""
        return self.shapes.guards.sizes

    @sizes.setter
    def sizes(self, sizes: Any) -> None:
        self.shapes.guards.sizes = sizes

    def predicate(
        self, function: object, nodes: list[ir.GuardNode], text: str, user: object, bounds: ir.Bounds | None
    ) -> None:
        """Take note of a condition that is not among the guards."""
        if _condition(function, nodes) not in self.shapes.known:
            self.shapes.conditions.append((function, nodes, text, user, bounds))


def _condition(function: Any, nodes: Any) -> tuple[Any, ...]:
    """The key of a condition: the same for equal conditions."""
    return recipe_of(function) or id(function), *map(id, nodes)


def _symbol_of(real: object, source: ir.GuardNode, symbols: Any) -> SymValue:
    if type(real) is not int:
        raise Mismatch("a number is another one")
    return symbols.int_of(real, source)
