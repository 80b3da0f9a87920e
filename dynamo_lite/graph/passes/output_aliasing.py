"""Results that share memory with other tensors but take no part in their gradients (`data`, `detach()`, views made without gradients), and
results that are one of several views made by one operator.

Input: a builder with its finished graph. Output: `Aliases`, by which the operators that make such results run after the compiled graph,
on the tensors that they are made of.
Invariant: writes to such a result show in every tensor with that memory, and in the version counters that it shares with them, as in
eager execution. A compiler returns copies, or the very tensors that it keeps for gradients.
Mirrors `torch/csrc/autograd/variable.h` (`VariableVersion`) and `torch/csrc/autograd/VariableTypeManual.cpp` (`detach`).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.fx import Node

from dynamo_lite.exc import Refused
from dynamo_lite.graph.core.autograd import history
from dynamo_lite.graph.core.effect import Compiled, GraphEffect, Wrapper, computes
from dynamo_lite.graph.core.failure import is_own
from dynamo_lite.graph.core.nodes import read_argument, write_argument
from dynamo_lite.graph.core.operator_names import VIEWS_IN_PLACE
from dynamo_lite.graph.core.storages import base_of, is_data, maker
from dynamo_lite.graph.core.values import TensorValue, requires_grad

if TYPE_CHECKING:
    from dynamo_lite.graph.builder import GraphBuilder


class Step(NamedTuple):
    """One operator after the graph, on value number `of`: `path` leads from its result to a new value. `grad_mode`: None if it is as it is
    outside."""

    of: int
    op: str
    target: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    grad_mode: bool | None
    path: tuple[int, ...]


class Aliases(NamedTuple):
    """`roots`: the first values, each input (True) or output (False) number n of the compiled graph. `results`: each is output number n of
    the compiled graph (False), or value number n (True)."""

    roots: list[tuple[bool, int]]
    steps: list[Step]
    results: list[tuple[bool, int]]


@dataclass(eq=False)
class OutputAliasing(GraphEffect):
    """`aliases`: the operators that run after the graph, None if there are none."""

    aliases: Aliases | None = None

    def finish(self, results: list[Node]) -> None:
        """The results become those of the compiled graph."""
        builder = self.builder
        values = [node.meta.subject for node in results]
        chains = [_chain(value, values) for value in values]
        if not any(_is_detached(chain) or _is_one_of_several(chain) for chain in chains) or not self._has_following():
            return
        made = _Making(builder)
        chosen = [made.is_due(i, chains) and _may_run_again(builder, chain) for i, chain in enumerate(chains)]
        if any(chosen):
            self.aliases, results[:] = made.choose(chains, chosen)

    def _has_following(self) -> bool:
        """Whether anything can be done after the graph: not if the backend only wants to have the graph, and computes nothing."""
        builder = self.builder
        return (
            computes(builder.tr.backend)
            and not builder.state.has_inference
            and not any(map(_replaces_memory, builder.graph.nodes))
        )

    def may_follow(self, value: TensorValue) -> bool:
        """Whether a result can be made after the graph."""
        chain = _chain(value, ())
        return self._has_following() and _is_detached(chain) and _may_run_again(self.builder, chain)

    def is_made_after(self, i: int, first: TensorValue) -> bool:
        """Whether result number `i`, whose version counter begins with the value `first`, gets this counter after the graph."""
        is_late = self.aliases is not None and self.aliases.results[i][0]
        return is_late and first.origin is None and is_data(maker(first)[0])

    def call_wrapper(self) -> Wrapper | None:
        return None if self.aliases is None else functools.partial(with_aliases_after, self.aliases)

    def write_data(self, writer: Any) -> Any:
        if self.aliases is None:
            return None
        steps = []
        for step in self.aliases.steps:
            if step.op == "call_function" and not is_own(step.target):
                raise Refused(f"{step.target} after the graph, whose rules may change")
            target = step.target if step.op == "call_method" else writer(step.target)
            args, kwargs = (write_argument(given, writer, {}) for given in (step.args, step.kwargs))
            steps.append((step.of, step.op, target, args, kwargs, step.grad_mode, step.path))
        return self.aliases.roots, steps, self.aliases.results

    def read_data(self, data: Any, reader: Any, graph: Any) -> None:
        roots, steps, results = data
        made = []
        for of, op, target, args, kwargs, grad_mode, path in steps:
            function = target if op == "call_method" else reader(target)
            args, kwargs = (read_argument(given, (), reader) for given in (args, kwargs))
            made.append(Step(of, op, function, args, kwargs, grad_mode, path))
        self.aliases = Aliases(roots, made, results)


def _chain(value: Any, outputs: Sequence[Any]) -> list[TensorValue]:
    """A value, what it is an alias of, and so on, up to an output that takes part in gradients and is none of several views."""
    found = []
    while isinstance(value, TensorValue):
        found.append(value)
        value = base_of(value)
    ends = (i for i, v in enumerate(found) if _has_history(v) and v in outputs and not _is_one_of_several(found[i:]))
    return found[: next(ends, len(found)) + 1]


def _has_history(value: TensorValue) -> bool:
    return value.meta.requires_grad and not value.meta.is_leaf


def _is_detached(chain: list[TensorValue]) -> bool:
    """Whether gradients end between a value and the first that it is an alias of."""
    if len(chain) < 2 or _has_history(chain[0]):
        return False
    return any(_ends_gradients(value) for value in chain[:-1])


def _is_one_of_several(chain: list[TensorValue]) -> bool:
    """Whether a value is one of several views that an operator returns, or a view of one: autograd refuses to change it in place, and to
    use it after its base has changed. AOTAutograd returns a tensor that it knows nothing of."""
    return (
        len(chain) > 1
        and _has_history(chain[0])
        and any(v.origin is not None and v.origin[0] == "item" for v in chain[:-1])
    )


def _ends_gradients(value: TensorValue) -> bool:
    of = base_of(value).meta.requires_grad
    return is_data(maker(value)[0]) or (of and (not value.meta.requires_grad or value.meta.is_leaf))


def _replaces_memory(node: Node) -> bool:
    """Whether an operator makes a tensor another view, or one of other memory."""
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return name in VIEWS_IN_PLACE or name == "set_" or name.startswith("resize_")


class _Making:
    def __init__(self, builder: GraphBuilder) -> None:
        self.builder = builder
        self.inputs = {item.node.meta.subject: i for i, item in enumerate(builder.inputs)}
        self.modes = dict(_grad_modes(builder.graph.nodes))
        grads = [node for node in builder.outputs if requires_grad(node)]
        self.past = {subject for _, subject, _ in history(builder, grads)}

    def is_due(self, i: int, chains: list[list[TensorValue]]) -> bool:
        """Whether anybody could tell that an output is a copy, or what gradients need."""
        chain = chains[i]
        if not chain:
            return False
        root = chain[-1]
        if _is_one_of_several(chain):
            return root not in self.inputs  # AOTAutograd makes views of inputs by the operators of the graph
        if not _is_detached(chain):
            return False
        others = [other[-1] for k, other in enumerate(chains) if k != i and other]
        if root in self.inputs or root in self.past:
            return True
        # A tensor that requires gradients because of a leaf made in the graph can't be an output.
        is_free = not (self.builder.passes.leaves.made and root.meta.requires_grad)
        return is_free and (chain[0].meta.requires_grad or root in others)

    def choose(self, chains: list[list[TensorValue]], chosen: list[bool]) -> tuple[Aliases, list[Node]]:
        """The steps for these outputs."""
        outputs: list[Node] = []
        numbers: dict[TensorValue, int] = {}
        found = Aliases([], [], [])

        def output(node: Node) -> tuple[bool, int]:
            if node not in outputs:
                outputs.append(node)
            return False, outputs.index(node)

        for node, is_chosen in zip(self.builder.outputs, chosen, strict=True):
            found.results.append((True, -1) if is_chosen else output(node))
        for root in dict.fromkeys(chain[-1] for chain, due in zip(chains, chosen, strict=True) if due):
            numbers[root] = len(found.roots)
            place = self.inputs.get(root)
            found.roots.append((True, place) if place is not None else output(self.builder.node(root)))
        for i, chain in enumerate(chains):
            if chosen[i]:
                for value in reversed(chain[:-1]):
                    if value not in numbers:
                        numbers[value] = len(found.roots) + len(found.steps)
                        found.steps.append(self._step(value, numbers[base_of(value)]))
                found.results[i] = True, numbers[chain[0]]
        return found, outputs

    def _step(self, value: TensorValue, of: int) -> Step:
        node, path = maker(value)
        return Step(of, node.op, node.target, tuple(node.args[1:]), dict(node.kwargs), self.modes[node], path)


def _may_run_again(builder: GraphBuilder, chain: list[TensorValue]) -> bool:
    """Whether the operators are aliases of one tensor by constants only."""
    if chain[-1] in builder.passes.leaves.made or any(value.pinned or not _is_plain(value) for value in chain):
        return False
    nodes = [maker(value)[0] for value in chain[:-1]]
    return all(node.args and node.all_input_nodes == [node.args[0]] for node in nodes)


def _is_plain(value: TensorValue) -> bool:
    return value.meta.interned and value.meta.layout is torch.strided


def _grad_modes(nodes: Any) -> Iterator[tuple[Node, bool | None]]:
    """The grad mode that each node finds, None as long as it is that of the graph."""
    mode = None
    for node in nodes:
        if node.target is torch._C._set_grad_enabled:
            mode = node.args[0]
        yield node, mode


def with_aliases_after(known: Aliases, compiled: Compiled) -> Compiled:
    """A graph with all its results."""

    def run(*args: Any) -> Any:
        made = compiled(*args)
        values = [args[n] if is_input else made[n] for is_input, n in known.roots]
        for step in known.steps:
            values.append(_run(step, values[step.of]))
        return (*[values[n] if is_value else made[n] for is_value, n in known.results], *made[known_outputs:])

    known_outputs = 1 + max([n for is_other, n in (*known.results, *known.roots) if not is_other], default=-1)
    return run


def _run(step: Step, value: Any) -> Any:
    if step.grad_mode is not None:
        with torch.set_grad_enabled(step.grad_mode):
            return _run(step._replace(grad_mode=None), value)
    if step.op == "call_method":
        value = getattr(value, step.target)(*step.args, **step.kwargs)
    else:
        value = step.target(value, *step.args, **step.kwargs)
    for i in step.path:
        value = value[i]
    return value
