"""Functions captured as graphs of their own: the bodies of higher-order operators.

Input: a builder; a body is opened, operators are added to it, and it is closed. Output: a `torch.fx.GraphModule` whose placeholders are
the explicit arguments and then every outer value that the body uses.
Invariant: a value of the enclosing graph keeps its own node; inside it is a placeholder. A value made inside is never used outside
except through the operator's result.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg

from dynamo_lite.backends.branch import silenced
from dynamo_lite.exc import Unsupported, gist, unsupported
from dynamo_lite.signals import let_through

from .core.keep_dynamo_unloaded import without_compiler
from .core.modes import dispatch_keys_kept
from .core.nodes import NodeMeta, set_meta
from .core.operator_names import may_write
from .core.storages import derivation, maker, origins
from .core.values import SymValue, TensorValue
from .core.varying_floats import FloatValue
from .core.writes import WatchesWrites, keys_of

if TYPE_CHECKING:
    from dynamo_lite.graph.builder import GraphBuilder

BREAK = "higher-order-operator"


def _is_view(node: Node, of: TensorValue) -> bool:
    """Whether a node makes a view of a value by numbers that are known: Inductor (2.13) forgets in a body those that data decide."""
    others = [n.meta.subject for n in node.all_input_nodes if n.meta.subject is not of]
    are_known = all(isinstance(n, SymValue) and type(n.sym) is torch.SymInt and n.sym.node.has_hint() for n in others)
    return are_known and not may_write(node.target, node.kwargs) and _is_of_mode(node, torch.is_grad_enabled())


def _is_of_mode(node: Node, records: bool) -> bool:
    """Whether a node runs in this grad mode: a view that is made where nothing is recorded hands no gradients on."""
    switches = list(node.graph.find_nodes(op="call_function", target=torch._C._set_grad_enabled))
    before = [switch for switch in switches if switch < node]
    return before[-1].args[0] is records if before else not switches


class Body:
    """One body under construction. `lifted` maps each outer value that it uses to the placeholder."""

    def __init__(self, builder: GraphBuilder, factory: Any) -> None:
        self.builder = builder
        self.parent: Body | None = builder.scope
        self.graph = Graph()
        self.create = factory(self.graph)
        self.bodies: dict[str, GraphModule] = {}
        self.arguments: list[Node] = []
        self.argument_values: list[TensorValue | SymValue] = []
        self.lifted: dict[Any, Node] = {}
        self.changed: set[TensorValue] = set()  # from outside, once it is finished
        self.writes: list[tuple[TensorValue, int]] = []  # the tensors that it changes in place, and how many times
        self.recorded: set[TensorValue] = set()  # those of them that it changes while autograd records
        self.counts: dict[TensorValue, list[Any]] = {}  # how many more times, where data decide it
        self.metas: dict[TensorValue, Any] = {}  # of those from outside, when it first uses them
        self.transform = ""  # that calls it: "vmap", "grad" or "jvp"
        self.branch: Any = None  # whose side it is: frame and instruction
        self.most_nested = 1  # sides of a branch that may be within each other here
        self.turn: Any = None  # the loop whose turn it is; its `loop`: frame and instructions
        self.is_random = False  # whether it draws random numbers
        self.unpacked: list[Any] = []  # the contexts of an `autograd.Function` whose saved tensors it reads
        self._local: list[SymValue] = []
        self._outer: tuple[Any, Any] = (None, None)

    def __enter__(self) -> Body:
        builder = self.builder
        self._outer = builder.graph, builder._create
        builder.graph, builder._create, builder.scope = self.graph, self.create, self
        builder.has_bodies = True
        return self

    def __exit__(self, *exc_info: object) -> None:
        builder = self.builder
        builder.graph, builder._create = self._outer
        builder.scope = self.parent
        for value in self._local:
            value.node = None

    @property
    def transforms(self) -> tuple[str, ...]:
        """The transforms around what is added now, outermost first."""
        around = self.parent.transforms if self.parent is not None else ()
        return (*around, self.transform) if self.transform else around

    def sides_of(self, branch: Any) -> int:
        """How many sides of a branch this is in, itself included."""
        return (self.branch == branch) + (0 if self.parent is None else self.parent.sides_of(branch))

    def is_turn_of(self, loop: Any) -> bool:
        """Whether this is a turn of a loop, or in one."""
        is_turn = self.turn is not None and self.turn.loop == loop
        return is_turn or (self.parent is not None and self.parent.is_turn_of(loop))

    @property
    def is_in_branch(self) -> bool:
        """Whether this is a side of a branch or a turn of a loop, or in one."""
        return self.branch is not None or (self.parent is not None and self.parent.is_in_branch)

    @property
    def is_in_branches_only(self) -> bool:
        """Whether this, and all around it, are sides of branches."""
        return self.branch is not None and (self.parent is None or self.parent.is_in_branches_only)

    def note_random(self) -> None:
        """An operator draws random numbers, here or in a body inside."""
        self.is_random = True
        if self.parent is not None:
            self.parent.note_random()

    def note_unpacked(self, context: object) -> None:
        """The tensors that a context has saved are read, here or in a body inside."""
        self.unpacked.append(context)
        if self.parent is not None:
            self.parent.note_unpacked(context)

    # -- inputs

    def argument(self, meta: object, fake: object = None) -> TensorValue:
        """A tensor that the operator passes to the body."""
        value = TensorValue(meta, None, None, fake)
        value.is_fake = self.builder.passes.fakes.are_there and (
            self.transform or True
        )  # that, or the transform's wrapper of one
        value.node = self._placeholder(f"arg_{len(self.arguments)}", value)
        self.arguments.append(value.node)
        self.argument_values.append(value)
        return value

    def number(self, sym: object) -> SymValue:
        """A symbolic int that the operator passes to the body."""
        value = SymValue(sym)
        value.node = self._placeholder(f"arg_{len(self.arguments)}", value)
        self.arguments.append(value.node)
        self.argument_values.append(value)
        return value

    def lift(self, value: Any) -> Node:
        """The placeholder of a value from outside."""
        known = self.lifted.get(value)
        if known is None:
            name = value.node.name if value.node is not None else "outer"
            known = self.lifted[value] = self._placeholder(name, value)
            if isinstance(value, TensorValue):
                self.metas[value] = value.meta
        return known

    def _placeholder(self, name: str, value: object) -> Node:
        with self.graph.inserting_before(self._first_call()):
            node = self.create("placeholder", name)
        node.target = node.name
        set_meta(node, NodeMeta(self.builder.propagator, value))
        return node

    def node(self, value: Any) -> Node:
        """The node of a value inside the body; called for values whose node is not in the body's graph."""
        if value in self.lifted:
            return self.lifted[value]
        if value.node is None and self._is_made_here(value):
            node = value.node = self.builder.make_node(value)
            if isinstance(value, SymValue):
                self._local.append(value)
            return node
        return self.lift(value)

    def _is_made_here(self, value: Any) -> bool:
        kind, *parts = value.origin
        if kind == "item":
            return parts[0].graph is self.graph
        if kind == "call" and isinstance(
            value, FloatValue
        ):  # one of numbers from outside is computed there, before the graph
            return any(isinstance(number, SymValue) and self._is_number_of_this(number) for number in parts[1])
        return kind in ("method", "call")

    def _is_number_of_this(self, number: SymValue) -> bool:
        return number.node.graph is self.graph if number.node is not None else self._is_made_here(number)

    def fix_floats(self) -> None:
        """Make constants of the floats from outside, for an operator that takes none."""
        for value in [value for value in self.lifted if isinstance(value, FloatValue)]:
            placeholder = self.lifted.pop(value)
            for user in list(placeholder.users):
                user.args, user.kwargs = map_arg(
                    (user.args, user.kwargs), lambda node, old=placeholder, new=value.sym: new if node is old else node
                )
            self.graph.erase_node(placeholder)

    def read_from(self, value: SymValue, tensor: TensorValue) -> None:
        """Read a number from outside from a tensor that holds it, for an operator that takes no such numbers. From a copy: fake tensors
        remember the number that `tensor` is made of, which Inductor has no name for inside."""
        held = self.lift(tensor)
        with self.graph.inserting_before(self._first_call()):
            number = self.create("call_method", "item", (self.create("call_method", "clone", (held,)),))
        set_meta(number, NodeMeta(self.builder.propagator, value))
        self._lift_no_more(value, number)

    def view_again(self, value: TensorValue) -> None:
        """Make a view from outside anew inside, of the first tensor in its memory, for an operator that refuses several tensors in one
        memory; if only views lead there."""
        steps = derivation(value)
        makers = [maker(step) for step in steps[1:]]
        if not makers or not all(_is_view(node, before) for (node, _), before in zip(makers, steps, strict=False)):
            return
        made = self.lift(steps[0])
        first = self._first_call()
        for before, step, (node, items) in zip(steps, steps[1:], makers, strict=False):
            known = {before: made}.get
            given = node.args, node.kwargs
            args, kwargs = map_arg(given, lambda n, known=known: known(n.meta.subject) or self.lift(n.meta.subject))
            with self.graph.inserting_before(first):
                made = self._again(node, args, kwargs, step if not items else None)
                for n, i in enumerate(items):
                    made = self.create("call_function", operator.getitem, (made, i))
                    set_meta(made, NodeMeta(self.builder.propagator, step if n + 1 == len(items) else None))
        self._lift_no_more(value, made)

    def _first_call(self) -> Node:
        """The node behind the placeholders."""
        return next((node for node in self.graph.nodes if node.op != "placeholder"), self.graph._root)

    def _lift_no_more(self, value: Any, made: Node) -> None:
        """Put a node in the place of a value from outside."""
        placeholder = self.lifted.pop(value)
        placeholder.replace_all_uses_with(made)
        self.graph.erase_node(placeholder)

    def _again(self, node: Node, args: Any, kwargs: Any, value: TensorValue | None) -> Node:
        made = self.create(node.op, node.target, args, kwargs)
        set_meta(made, NodeMeta(self.builder.propagator, value))
        made.meta.sequence = node.meta.sequence
        return made

    # -- the end

    def finish(self, outputs: list[Any], lifted: list[Any]) -> GraphModule:
        """The module: arguments, then `lifted` (this body's and possibly more), returning a tuple of the outputs' nodes."""
        for value in lifted:
            self.lift(value)
        order = [*self.arguments, *(self.lifted[value] for value in lifted)]
        root = self.graph._root
        for node in reversed(order):
            if root._next is not node:
                root.append(node)
        for node in reversed(list(self.graph.nodes)):
            # A number that nobody wants may keep AOTAutograd from taking the body.
            if (node.op, node.target) == ("call_method", "item") and not node.users and node not in outputs:
                self.graph.erase_node(node)
        self.graph.output(tuple(outputs))
        module = silenced(GraphModule(self.bodies, self.graph))
        self._pass_on_changes()
        self.builder.operators.memos.leave(self._is_inside)
        for node in self.graph.nodes:
            self._settle(node)
        return module

    def _pass_on_changes(self) -> None:
        """Put what is in the same memory outside in the place of the values inside that operators have changed: once the body is settled,
        nothing tells any more what these were made of."""
        changed = self.builder.passes.inputs.changed
        inside = set(filter(self._is_inside, changed))
        self.changed = {other for value in inside for other in origins(value) if not self._is_inside(other)}
        changed -= inside
        changed |= self.changed

    def is_made_inside(self, value: Any) -> bool:
        """Whether a value is one of the body's own, arguments included."""
        if isinstance(value, TensorValue):
            return self._is_inside(value)
        return value in self._local or (value.node is not None and value.node.graph is self.graph)

    def _is_inside(self, value: TensorValue) -> bool:
        node = value.origin[1] if value.origin is not None and value.origin[0] == "item" else value.node
        return node is not None and node.graph is self.graph

    @staticmethod
    def _settle(node: Node) -> None:
        """Make what tools ask of the ends of the graph, and cut what leads to trackers and real tensors."""
        meta = node.meta
        if node.op == "output":
            return
        subject = getattr(meta, "subject", None)
        if isinstance(subject, TensorValue):
            if node.op == "placeholder" or any(user.op == "output" for user in node.users):
                meta.get("example_value")
            meta.subject = TensorValue(subject.meta, fake=subject.fake)

    def run(
        self, module: GraphModule, lifted: list[Any], changed: Sequence[Any] = (), direct: Sequence[Any] = ()
    ) -> list[Any]:
        """Run the finished body on fake tensors: its results. Raises `Unsupported` if it changes a tensor from outside that is not among
        `changed`; those in `direct` it may change as well, but not through `data`."""
        propagator = self.builder.propagator
        values = [*self.argument_values, *lifted]
        # on floats that vary no metadata rest: operators have made those constants that theirs do
        fakes = [v.real if isinstance(v, FloatValue) else propagator.argument_of(v) for v in values]
        tensors = [
            fake
            for value, fake in zip(values, fakes, strict=True)
            if isinstance(fake, torch.Tensor) and value not in (*changed, *direct)
        ]
        counted = [f for f in tensors if not f.is_inference()]
        uncounted = [f for f in tensors if f.is_inference()]
        versions = [f._version for f in counted]
        grad, watch = torch.is_grad_enabled(), WatchesWrites()
        try:
            watching = watch if uncounted else nullcontext()
            with dispatch_keys_kept(), propagator.mode, watching, without_compiler, propagator.dispatcher():
                results = list(module.forward(*fakes))
        except Unsupported:
            raise
        except Exception as error:
            let_through(error)
            unsupported(BREAK, f"the body on its own: {gist(error)}", error)
        finally:
            torch._C._set_grad_enabled(grad)
            self.builder.operators.memos.settle(values)
        self.builder.operators.memos.forget(self.changed)
        # The versions do not tell of what is written to `data`.
        is_changed = [f._version for f in counted] != versions or not watch.written.isdisjoint(keys_of(uncounted))
        if is_changed or not self.changed <= set().union(*map(origins, changed)):
            unsupported(BREAK, "the body changes a tensor from outside")
        return results


def shares_memory(results: list[Any], inputs: list[Any]) -> bool:
    """Whether a result is in the memory of an input or of another result."""
    seen = {
        id(t.untyped_storage()._cdata) and t.untyped_storage()._cdata for t in inputs if isinstance(t, torch.Tensor)
    }
    for result in results:
        if isinstance(result, torch.Tensor):
            memory = result.untyped_storage()._cdata
            if memory in seen:
                return True
            seen.add(memory)
    return False
