"""Writes to an input through its `data`, and inputs whose version counter the traced code reads.

Input: these inputs. Output: a wrapper around the compiled graph that leaves their version counters as eager execution does.
Invariant: `tensor.data` has a version counter of its own: a write to it does not count for the tensor. Compilers treat both as one
memory, and count it; of several changes of an input they count one.
Mirrors `torch/csrc/autograd/variable.h` (`VariableVersion`).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.fx import Node

from dynamo_lite.graph.core.autograd import at_the_end
from dynamo_lite.graph.core.effect import Compiled, GraphEffect, Wrapper
from dynamo_lite.graph.core.operator_names import operator_name
from dynamo_lite.graph.core.storages import is_data, origin
from dynamo_lite.graph.core.values import TensorValue

if TYPE_CHECKING:
    from dynamo_lite.graph.builder import GraphBuilder


class WrittenInput(NamedTuple):
    """Input number `position`, which the graph changes `n` times otherwise than through its `data`. `by_data`: the compiled graph gets its
    `data` in its place. Then the tensors that it keeps for gradients have a counter of their own; results in that memory would have it
    too. `more`: the output with the number of further changes, if data decide it."""

    position: int
    n: int
    by_data: bool
    more: int | None


@dataclass(eq=False)
class WrittenData(GraphEffect):
    """`counters`: the paths of version counters that the traced code reads, and whose they are. `inputs`: those whose counters the wrapper
    sets."""

    counters: dict[Any, TensorValue] = field(default_factory=dict)
    inputs: list[WrittenInput] = field(default_factory=list)

    def paths_to_read(self) -> Iterable[Any]:
        return self.counters

    def finish(self, results: list[Node]) -> None:
        builder = self.builder
        getters = [node for node in builder.graph.nodes if is_data(node)]
        owners = {_input_behind(builder, node.args[0]) for node in getters if any(map(_may_write, _uses(node)))}
        if self.counters and not builder.records_gradients:  # compilers count one change of an input
            asked = set(self.counters.values())
            owners.update(i for i, item in enumerate(builder.inputs) if item.node.meta.subject in asked)
        decided = builder.passes.versions.results
        owners.update(i for i, item in enumerate(builder.inputs) if item.node.meta.subject in decided)
        written = sorted(i for i in owners if i is not None)
        if not written:
            return
        values = [getattr(node.meta, "subject", None) for node in builder.outputs]
        returned = {origin(value) for value in values if isinstance(value, TensorValue)}

        def ask(values: dict[Node, Any]) -> list[WrittenInput]:
            found = []
            for i in written:
                node = builder.inputs[i].node
                value = node.meta.subject
                by_data = not value.meta.requires_grad and origin(value) not in returned
                n, more = decided.get(value, (0, None))
                found.append(WrittenInput(i, values[node]._version - n, by_data, more))
            return found

        self.inputs = at_the_end(builder, ask)

    def call_wrapper(self) -> Wrapper | None:
        return functools.partial(with_versions, self.inputs) if self.inputs else None

    def write_data(self, writer: Any) -> Any:
        return [tuple(item) for item in self.inputs] or None

    def read_data(self, data: Any, reader: Any, graph: Any) -> None:
        self.inputs = [WrittenInput(*item) for item in data]


def _uses(node: Node) -> Iterator[Node]:
    """The operators that get a value or a view of it, as far as that can be told: all that follow."""
    seen, pending = set(), [node]
    while pending:
        for user in pending.pop().users:
            if user not in seen:
                seen.add(user)
                pending.append(user)
                yield user


def _may_write(node: Node) -> bool:
    name = operator_name(node.target)
    return name is None or name.endswith("_") or name == "setitem" or "out" in node.kwargs


def _input_behind(builder: GraphBuilder, node: Node) -> int | None:
    """The position of the input whose memory a value has."""
    value = getattr(node.meta, "subject", None)
    members = (value.family or [value]) if isinstance(value, TensorValue) else []
    return next((i for i, item in enumerate(builder.inputs) if item.node.meta.subject in members), None)


def with_versions(written: list[WrittenInput], compiled: Compiled) -> Compiled:
    """A graph that leaves the counters of these inputs as eager execution does."""

    def run(*args: Any) -> Any:
        counted = [item for item in written if args and not args[item[0]].is_inference()]
        inputs = [args[item.position] for item in counted]
        before = [tensor._version + item.n for tensor, item in zip(inputs, counted, strict=True)]
        given = list(args)
        for i, _, by_data, _ in counted:
            if by_data:
                given[i] = args[i].data
        made = compiled(*given)
        after = [n if more is None else n + int(made[more]) for n, (*_, more) in zip(before, counted, strict=True)]
        torch._C._autograd._unsafe_set_version_counter(tuple(inputs), tuple(after))
        return made

    return run
