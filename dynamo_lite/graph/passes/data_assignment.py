"""Assignments to `tensor.data`, and the version counters by which autograd notices that a saved tensor was changed in place.

Input: a builder with its finished graph. Output: how often the program changes values in place; wrappers of the compiled graph.
Invariant: `tensor.data` has a version counter of its own: a write to it does not count for the tensor. Compilers treat both as one
memory, and count it. A tensor that gets other data after the graph is not the tensor that the graph keeps for its gradients.
Mirrors `torch/csrc/autograd/variable.h` (`VariableVersion`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.fx import Node

from dynamo_lite.exc import Unsupported
from dynamo_lite.graph.core.autograd import at_the_end
from dynamo_lite.graph.core.values import TensorValue, requires_grad
from dynamo_lite.graph.core.varying_floats import operator_name

from .output_aliasing import counter, is_made_after, origin

if TYPE_CHECKING:
    from dynamo_lite.graph.builder import GraphBuilder


def versions(builder: GraphBuilder, nodes: Sequence[Node]) -> int:
    """How many times the values of these nodes are changed in place by the graph."""
    return at_the_end(builder, lambda values: sum(values[node]._version for node in nodes))


class DataVersion(NamedTuple):
    """How often a value has been changed in place by the graph so far, and the input whose counter it has (None: one of its own)."""

    input: Any
    n: int


def version_of(builder: GraphBuilder, value: TensorValue) -> DataVersion | None:
    """The version of a value; None if it can't be known: inputs may share a counter, so that no other one may have been changed."""
    node = builder.node(value)
    inputs = [item for item in builder.inputs if isinstance(item.node.meta.subject, TensorValue)]

    def ask(values: dict[Node, Any]) -> DataVersion | None:
        before = [values[item.node]._version for item in inputs]
        n = values[node]._version
        torch.autograd.graph.increment_version(values[node])
        shared = [i for i, item in enumerate(inputs) if values[item.node]._version != before[i]]
        if not shared:
            return DataVersion(None, n)
        others = [n for i, n in enumerate(before) if i not in shared]
        return DataVersion(inputs[shared[0]], n) if len(shared) == 1 and not any(others) else None

    return at_the_end(builder, ask)


def changed_results(builder: GraphBuilder) -> list[tuple[int, int]]:
    """The outputs that the graph has changed in place and that no input shares a counter with, and how many times it has. Compilers count
    nothing. What they keep for gradients looks at the counters of results: of these only those that begin after the graph are told."""
    if not builder.writes:
        return []
    counts = Counter()
    for value, n in builder.writes:
        counts[counter(value)] += n
    is_safe = not builder.records_gradients
    found = []
    for i, node in enumerate(builder.outputs):
        value = getattr(node.meta, "subject", None)
        if isinstance(value, TensorValue):
            first = counter(value)
            n = counts[first] if first.origin is None or first.origin[0] != "input" else 0
            if n > 0 and (is_safe or is_made_after(builder.aliases, i, first)):
                found.append((i, n))
    return found


def check_views(builder: GraphBuilder, value: TensorValue, error: Unsupported) -> None:
    """Raise `error` if a value is one of several views that an operator has returned, or a view of one: autograd refuses to change it in
    place. If the operator is in the graph, that ends before it: compilers return views of another kind."""
    members = [member for member in value.family or (value,) if member.origin is not None]
    if any(member.origin[0] == "input" and _is_restricted(member.origin[2]) for member in members):
        raise error
    made = next((member for member in members if member.origin[0] == "item"), None)
    if made is not None and value.family is not None:
        node = builder.node(value)
        if at_the_end(builder, lambda values: _is_restricted(values[node])):
            builder.end_before(made.origin[1], error)


def _is_restricted(tensor: torch.Tensor) -> bool:
    autograd = torch._C._autograd
    with torch._C.DisableTorchFunctionSubclass():
        return tensor._is_view() and autograd._get_creation_meta(tensor) != autograd.CreationMeta.DEFAULT


def is_no_view(tensor: torch.Tensor) -> bool:
    """Guard: a tensor that is no view to autograd."""
    with torch._C.DisableTorchFunctionSubclass():
        return not tensor._is_view()


def advance_version(tensor: torch.Tensor, n: int) -> None:
    """Note that a tensor has been changed in place n times."""
    torch._C._autograd._unsafe_set_version_counter((tensor,), (tensor._version + n,))


def with_counts(counts: list[tuple[int, int]], compiled: Callable[..., Any]) -> Callable[..., Any]:
    """A graph whose results have been changed as often as in eager execution."""

    def run(*args: Any) -> Any:
        results = compiled(*args)
        late = [(results[i], n) for i, n in counts if not results[i].is_inference() and results[i]._version < n]
        if late:
            torch._C._autograd._unsafe_set_version_counter(*zip(*late, strict=True))
        return results

    return run


def written_past(builder: GraphBuilder) -> list[tuple[int, int, bool]]:
    """The inputs that the graph writes to through their `data`, or whose counter the program reads: position, how many times it changes
    them otherwise, and whether the compiled graph gets their `data` in their place. Then what it keeps for gradients has a counter of its
    own; results in that memory would have it too."""
    getters = [node for node in builder.graph.nodes if node.target is getattr and node.args[1] == "data"]
    owners = {_input_behind(builder, node.args[0]) for node in getters if any(map(_may_write, _uses(node)))}
    owners.discard(None)
    if not builder.records_gradients:  # compilers count one change of an input
        asked = set(builder.counters.values())
        owners.update(i for i, item in enumerate(builder.inputs) if item.node.meta.subject in asked)
    if not owners:
        return []
    results = {
        origin(value)
        for node in builder.outputs
        if isinstance(value := getattr(node.meta, "subject", None), TensorValue)
    }

    def ask(values: dict[Node, Any]) -> list[tuple[int, int, bool]]:
        found = []
        for i in sorted(owners):
            node = builder.inputs[i].node
            value = node.meta.subject
            found.append((i, values[node]._version, not value.meta.requires_grad and origin(value) not in results))
        return found

    return at_the_end(builder, ask)


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


def with_versions(written: list[tuple[int, int, bool]], compiled: Callable[..., Any]) -> Callable[..., Any]:
    """A graph that leaves the counters of these inputs as eager execution does."""

    def run(*args: Any) -> Any:
        counted = [item for item in written if args and not args[item[0]].is_inference()]
        inputs = [args[i] for i, _, _ in counted]
        after = [tensor._version + n for tensor, (_, n, _) in zip(inputs, counted, strict=True)]
        given = list(args)
        for i, _, by_data in counted:
            if by_data:
                given[i] = args[i].data
        made = compiled(*given)
        torch._C._autograd._unsafe_set_version_counter(tuple(inputs), tuple(after))
        return made

    return run


def replaced_inputs(builder: GraphBuilder) -> list[int]:
    """The positions of the inputs to whose `data` something is assigned after the graph, if it keeps anything for gradients."""
    if not any(map(requires_grad, builder.outputs)):
        return []
    return [i for i, item in enumerate(builder.inputs) if item.node.meta.subject in builder.replaced]


def with_aliases(replaced: list[int], compiled: Callable[..., Any]) -> Callable[..., Any]:
    """A graph that gets aliases of these inputs, with the data that they have now: AOTAutograd saves leaf inputs as the tensors themselves,
    and the backward pass would find the data that have been assigned meanwhile."""

    def run(*args: Any) -> Any:
        given = list(args)
        with torch.enable_grad():
            for i in replaced if args else ():
                given[i] = args[i].view_as(args[i]) if args[i].requires_grad else args[i].detach()
        return compiled(*given)

    return run
