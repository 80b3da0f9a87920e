"""Gradients that eager execution leaves undefined, and AOTAutograd makes zeros.

A graph that AOTAutograd has compiled is one node of autograd: once any of its results gets a gradient, all of its inputs do. An optimizer
moves a parameter whose gradient is zero (by decay, by momentum), and leaves one alone whose `grad` is None: the head of a model that
the loss does not ask for, the expert that no token was sent to.

Input: a graph, and the fake tensors of its inputs. Output: the inputs to which the gradient of each result goes (`GradientPaths`), and what
keeps the others undefined when the graph has run (`Undefined`).
Invariant: an input keeps its gradient where it is not known that eager execution has none: inputs with hooks, which would get None
as their argument, and the history of inputs that this module has not seen.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from dynamo_lite.record import WRITTEN
from dynamo_lite.signals import let_through

from .branch import branch

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node

UNDEFINED = "dynamo_lite_undefined_gradients"
"""Name of an attribute of backends, True where gradients that eager execution leaves undefined stay so: by this module, or because the
graph runs as it was captured."""

Vertex: TypeAlias = "int | tuple[int, int]"
"""Where paths of gradients end or fork: the number of an input, or the number of a branch and of a result of it."""


class Edge(NamedTuple):
    """An edge of the graph of autograd: a gradient of one of its nodes."""

    node: Any
    output_nr: int


def edge_of(tensor: Any) -> Edge:
    """Where the gradient of a tensor goes."""
    from torch.autograd.graph import get_gradient_edge

    return Edge(*get_gradient_edge(tensor)[:2])


class GradientPaths(NamedTuple):
    """Where the gradients of a graph's results go. `results`: for each result; `forks`: for each result of a branch, if its condition is
    true and if it is false; `conditions`: the nodes of the conditions."""

    results: list[frozenset[Vertex]]
    forks: dict[Vertex, tuple[frozenset[Vertex], frozenset[Vertex]]]
    conditions: list[Node]

    def inputs(self, results: Iterable[int], truths: Sequence[bool]) -> set[int]:
        """The inputs that get gradients if these results do and the conditions are these."""
        pending = [vertex for i in results for vertex in self.results[i]]
        seen: set[Vertex] = set()
        while pending:
            vertex = pending.pop()
            if vertex not in seen:
                seen.add(vertex)
                if isinstance(vertex, tuple):
                    pending += self.forks[vertex][0 if truths[vertex[0]] else 1]
        return {vertex for vertex in seen if isinstance(vertex, int)}


def gradient_paths(gm: GraphModule, fakes: Sequence[Any]) -> GradientPaths | None:
    """The paths of a graph; None where AOTAutograd gives gradients to the same inputs, or where they are not known. (It knows which inputs
    no result depends on, but for those that the graph writes to.)"""
    import torch

    branches = gm.graph.find_nodes(op="call_function", target=branch)
    results = [node for node in gm.graph.output_node().args[0] if _may_require_grad(node)]
    written = _written(gm, fakes)
    is_simple = len(results) < 2 and not branches and not written  # then AOTAutograd knows
    if not results or not torch.is_grad_enabled() or is_simple or _share_memory(fakes):
        return None
    try:
        paths = _follow(gm, fakes, branches)
    except Exception as error:  # AOTAutograd runs the same operators, and tells
        let_through(error)
        return None
    distinct = {reached for reached in paths.results if reached}
    is_alike = len(distinct) < 2 and all(one == other for one, other in paths.forks.values())
    return None if is_alike and all(written <= reached for reached in distinct) else paths


def _written(gm: GraphModule, fakes: Sequence[Any]) -> set[int]:
    """The inputs that the graph writes to and that require gradients."""
    names = {name for touched in gm.meta.get(WRITTEN, ()) for name in touched}
    inputs = zip(gm.graph.find_nodes(op="placeholder"), fakes, strict=True)
    return {i for i, (node, fake) in enumerate(inputs) if node.name in names and _needs_grad(fake)}


def _may_require_grad(result: Any) -> bool:
    subject = getattr(getattr(result, "meta", None), "subject", None)
    meta = getattr(subject, "meta", None)
    return hasattr(result, "meta") and (meta is None or meta.requires_grad)


def _share_memory(fakes: Sequence[Any]) -> bool:
    """Whether inputs are views of one memory: autograd knows of one when another is written to."""
    import torch

    memories = [fake.untyped_storage()._cdata for fake in fakes if type(fake) is torch._subclasses.FakeTensor]
    return len(memories) > len(set(memories))


def _follow(gm: GraphModule, fakes: Sequence[Any], branches: list[Node]) -> GradientPaths:
    """Run the graph on fakes that have a history, and read where it leads."""
    import torch
    from torch._dispatch.python import enable_python_dispatcher
    from torch._guards import detect_fake_mode

    interpreter = torch.fx.Interpreter(gm)
    run_node = interpreter.run_node
    ends: dict[Edge, Vertex] = {}
    forks: dict[Vertex, tuple[frozenset[Vertex], frozenset[Vertex]]] = {}

    def run(node: Node) -> Any:
        if node not in branches:
            return run_node(node)
        number = branches.index(node)
        _, *sides, operands = interpreter.map_nodes_to_values(node.args, node)
        found = [_side(side, operands) for side in sides]
        made = []
        for k, ((one, if_true), (other, if_false)) in enumerate(zip(*found, strict=True)):
            forks[number, k] = _behind(operands, if_true, ends), _behind(operands, if_false, ends)
            needs_grad = _needs_grad(one) or _needs_grad(other)
            made.append(_beginning(one, needs_grad, (number, k), ends))
        return made

    interpreter.run_node = run
    with detect_fake_mode(fakes), enable_python_dispatcher():
        inputs = [_beginning(fake, _needs_grad(fake), i, ends) for i, fake in enumerate(fakes)]
        results = interpreter.run(*inputs)
        conditions = [node.args[0] for node in branches]
        return GradientPaths([frozenset(reached(result, ends)) for result in results], forks, conditions)


def _side(side: GraphModule, operands: Sequence[Any]) -> list[tuple[Any, set[Any]]]:
    """The results of one side of a branch, each with the numbers of the operands that its gradient goes to."""
    ends: dict[Edge, Any] = {}
    results = side.forward(*[_beginning(value, _needs_grad(value), i, ends) for i, value in enumerate(operands)])
    return [(result, reached(result, ends)) for result in results]


def _needs_grad(value: object) -> bool:
    import torch

    return isinstance(value, torch.Tensor) and value.requires_grad


def _behind(operands: Sequence[Any], numbers: Iterable[int], ends: Mapping[Edge, Vertex]) -> frozenset[Vertex]:
    return frozenset(vertex for number in numbers for vertex in reached(operands[number], ends))


def _beginning(value: Any, needs_grad: bool, vertex: Any, ends: dict[Edge, Any]) -> Any:
    """A copy of a fake with which a history begins: `ends` gets its edge."""
    import torch

    if not isinstance(value, torch.Tensor):
        return value
    with torch.no_grad():
        leaf = value.detach().clone()
    if not needs_grad:
        return leaf
    ends[edge_of(leaf.requires_grad_())] = vertex
    with torch.enable_grad():
        return leaf if isinstance(vertex, int) and value.is_leaf else leaf.clone()  # a leaf may not be written to


def reached(result: object, ends: Mapping[Edge, Any]) -> set[Any]:
    """What `ends` has for the edges that the gradient of a tensor goes to; no path is followed beyond them."""
    import torch

    if not isinstance(result, torch.Tensor) or not result.requires_grad:
        return set()
    pending, seen = [edge_of(result)], set()
    while pending:
        edge = pending.pop()
        if edge not in seen:
            seen.add(edge)
            if edge not in ends:
                pending += [Edge(*following) for following in edge.node.next_functions if following[0]]
    return {ends[edge] for edge in seen if edge in ends}


class Undefined:
    """Keeps gradients undefined in the calls of one compiled graph, whose results are those of `paths` and then the conditions.

    Gradients of the node are known by position: `outputs` has the results behind each one that it takes, `inputs` the inputs of each one
    that it gives. The first call that records gradients tells both. `watched`: inputs with a history, which may have hooks.
    """

    def __init__(self, paths: GradientPaths) -> None:
        self.paths = paths
        self.is_known = False
        self.place: tuple[int, int] | None = None  # number of a result, and of views between it and the node
        self.outputs: dict[int, list[int]] = {}
        self.inputs: dict[int, list[int]] = {}
        self.watched: list[int] = []
        self._left: dict[Any, frozenset[int]] = {}

    def around(self, compiled: Callable[..., Any]) -> Callable[..., Any]:
        """`compiled`, called with the inputs or with one list of them, which it empties."""

        def call(*args: Any) -> Any:
            inputs = args[0] if len(args) == 1 and type(args[0]) is list else args
            edges = None if self.is_known else _edges(inputs)
            hooked = [i for i in self.watched if inputs[i]._backward_hooks]
            results = compiled(*args)
            n = len(self.paths.results)
            if edges is not None:
                self._find_places(results[:n], edges)
            node = self._node(results)
            if node is not None:
                _Call(self, node, results[n:], hooked)
            return results[:n]

        return call

    def _node(self, results: Sequence[Any]) -> Any:
        """The graph's node of autograd in the history of its results."""
        if self.place is None:
            return None
        number, views = self.place
        node = results[number].grad_fn
        for _ in range(views if node is not None else 0):
            node = node.next_functions[0][0]
        return node

    def _find_places(self, results: Sequence[Any], edges: Mapping[int, Edge]) -> None:
        import torch

        before = {edge.node for edge in edges.values()}
        for number, result in enumerate(results):
            if isinstance(result, torch.Tensor) and result.grad_fn is not None:
                self.is_known = True
                edge, views = _below_views(edge_of(result), before)
                if edge is not None:
                    self.place = number, views
                    self.outputs.setdefault(edge.output_nr, []).append(number)
                    self.inputs = {
                        position: [i for i, known in edges.items() if known == following]
                        for position, following in enumerate(edge.node.next_functions)
                    }
        self.watched = [i for i, edge in edges.items() if not hasattr(edge.node, "variable")]

    def left(self, grads: Sequence[Any], truths: tuple[bool, ...]) -> frozenset[int]:
        """The positions of inputs that eager execution leaves without a gradient, if the results get these."""
        given = tuple([position for position, grad in enumerate(grads) if grad is not None])
        key = given, truths
        if key not in self._left:
            is_known = all(position in self.outputs for position in given)
            results = [number for position in given for number in self.outputs.get(position, ())]
            defined = self.paths.inputs(results, truths)
            self._left[key] = frozenset(
                position
                for position, inputs in self.inputs.items()
                if is_known and inputs and defined.isdisjoint(inputs)
            )
        return self._left[key]


def _below_views(edge: Edge, before: set[Any]) -> tuple[Edge | None, int]:
    """The edge to the graph's own node below views of its results, if it is there, and their number; `before` are nodes of its inputs."""
    from torch.autograd.function import BackwardCFunction

    views = 0
    while edge.node not in before:
        if isinstance(edge.node, BackwardCFunction):
            return edge, views
        following = edge.node.next_functions
        if len(following) != 1 or following[0][0] is None:
            break
        edge, views = Edge(*following[0]), views + 1
    return None, 0


def _edges(inputs: Sequence[Any]) -> dict[int, Edge]:
    import torch

    return {
        i: edge_of(value) for i, value in enumerate(inputs) if isinstance(value, torch.Tensor) and value.requires_grad
    }


class _Call:
    """One call of the graph: its node of autograd is asked, when its gradients have arrived, which of them there are."""

    def __init__(self, undefined: Undefined, node: Any, conditions: Sequence[Any], hooked: Sequence[int]) -> None:
        self.undefined, self.conditions, self.hooked = undefined, conditions, hooked
        self.node = weakref.ref(node)
        self.left: frozenset[int] = frozenset()
        self.has_hook = False
        node.register_prehook(self._before)

    def _before(self, grads: Sequence[Any]) -> None:
        self.left = self.undefined.left(grads, tuple(map(bool, self.conditions)))
        if (
            self.left and not self.has_hook
        ):  # only now: autograd keeps the gradients of the results for the hooks behind
            self.has_hook = True
            self.node().register_hook(self._after)

    def _after(self, grad_inputs: Sequence[Any], grad_outputs: object) -> Any:
        following, inputs = self.node().next_functions, self.undefined.inputs
        return tuple(
            None
            if position in self.left
            and _takes_none(following[position][0])
            and not any(i in self.hooked for i in inputs[position])
            else grad
            for position, grad in enumerate(grad_inputs)
        )


def _takes_none(node: Any) -> bool:
    """Whether nobody notices that a node of autograd runs without a gradient: a leaf without hooks, or a graph that was compiled."""
    variable = getattr(node, "variable", None)
    if variable is not None:
        return not (variable._backward_hooks or variable._post_accumulate_grad_hooks)
    return node.name() == _COMPILED


_COMPILED = "CompiledFunctionBackward"
"""AOTAutograd's node, which takes an undefined gradient for zeros; if it comes from this engine, it has a hook of this module."""
