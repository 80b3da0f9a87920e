"""Values of a graph that share memory, and the version counters that they share.

Input: values whose nodes are in the graph. Output: the value that another one is an alias or a view of, the first value in its memory, the
first one with its version counter; how often the graph changes a value in place.
Invariant: a value and its `detach()` share memory and counter; `tensor.data` shares the memory but has a counter of its own.
Mirrors `torch/csrc/autograd/variable.h` (`VariableVersion`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.fx import Node

from dynamo_lite.exc import Unsupported

from .autograd import at_the_end
from .values import TensorValue

if TYPE_CHECKING:
    from dynamo_lite.graph.builder import GraphBuilder


def is_of_an_input(value: TensorValue) -> bool:
    """Whether a tensor is an input or a view of one."""
    return any(member.is_input for member in value.family or (value,))


def base_of(value: TensorValue) -> Any:
    """The value of which an operator has made this one an alias or a view; None if there is none."""
    if value.is_input:
        return None
    node, _ = maker(value)
    given = node.args[0] if node.args else None
    other = getattr(given.meta, "subject", None) if isinstance(given, Node) else None
    is_alias = value.family is not None and getattr(other, "family", None) is value.family
    return other if is_alias or is_data(node) or _is_detached_view(node, other) else None


def _is_detached_view(node: Node, other: Any) -> bool:
    """Whether a result is a detached view. AOTAutograd (2.13) makes one from the base of the view by the last operator alone: wrong data,
    under torch.compile too."""
    return node.target in _DETACH and getattr(other, "family", None) is not None and other.family[0] is not other


def origins(value: Any) -> set[TensorValue]:
    """All values that have, or lead to, the memory of one."""
    found: set[TensorValue] = set()
    while isinstance(value, TensorValue):
        found.update(value.family or (value,))
        value = base_of(value) or _detached_from(value)
    return found


def origin(value: TensorValue) -> TensorValue:
    """The first value in the memory of this one."""
    return _first(value, lambda first: base_of(first) or _detached_from(first))


def derivation(value: TensorValue) -> list[TensorValue]:
    """The values from the first one in the memory of this one to it, each a view of, or detached from, the one before."""
    steps: list[Any] = [value]
    while isinstance(before := base_of(steps[-1]) or _detached_from(steps[-1]), TensorValue):
        steps.append(before)
    return steps[::-1]


def counter(value: TensorValue) -> TensorValue:
    """The first value that has the version counter of this one: that of `data` is a new one."""
    return _first(value, _detached_from)


def _first(value: TensorValue, before: Callable[[TensorValue], Any]) -> TensorValue:
    """From value to value, where `before` tells what the first of a family was made of."""
    while True:
        first = value.family[0] if value.family else value
        value = before(first)
        if not isinstance(value, TensorValue):
            return first


def _detached_from(value: TensorValue) -> Any:
    """The value from which this one was detached: it has the same memory, and is no view to autograd."""
    if value.is_input:
        return None
    node, _ = maker(value)
    return getattr(node.args[0].meta, "subject", None) if node.target in _DETACH else None


_DETACH = ("detach", torch.detach, torch.Tensor.detach)


def maker(value: TensorValue) -> tuple[Node, tuple[int, ...]]:
    """The node that has made a value, and which item of its result it is; later ones only change it in place."""
    if value.origin is not None and value.origin[0] == "item":
        return value.origin[1], value.origin[2:]
    node = value.node
    while True:
        earlier = [n for n in node.all_input_nodes if getattr(n.meta, "subject", None) is value]
        if not earlier:
            return node, ()
        node = earlier[0]


def is_data(node: Node) -> bool:
    return node.target is getattr and node.args[1] == "data"


# -- version counters


def is_written_since(builder: GraphBuilder, values: Iterable[TensorValue], n: int) -> bool:
    """Whether an operator behind the first `n` changes of the graph may have written to the memory of these values. Inputs in other memory
    count as unchanged as long as their memory is another one in each call."""
    memories, read = set(map(origin, builder.operators.changed[n:])), set(map(origin, values))
    hold_apart(builder, memories, read)
    return not memories.isdisjoint(read)


def hold_apart(builder: GraphBuilder, written: Iterable[TensorValue], others: Iterable[TensorValue]) -> None:
    """Inputs among these first values of memories have other memory than those that the graph writes to: a precondition from now on."""
    if any(map(is_of_an_input, written)) and any(map(is_of_an_input, others)):
        builder.passes.inputs.are_apart = True


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
