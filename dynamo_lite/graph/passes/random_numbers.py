"""Operators that draw random numbers which nothing that outlives the graph depends on.

Input: a builder with its finished graph. Output: names of nodes. Compilers leave out operators that nobody reads; the generator has to
advance all the same, because operators behind them would draw other numbers.
Invariant: an operator that is not named is read by an output, or by an operator that changes an input, as far as names and schemas tell;
one that is named without need costs a copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch.fx import GraphModule, Node

from dynamo_lite.graph.core.effect import GraphEffect
from dynamo_lite.graph.core.operator_names import may_write, operator_name
from dynamo_lite.graph.core.values import Propagation, TensorValue, tensors_made_by
from dynamo_lite.record import UNUSED_RANDOM

if TYPE_CHECKING:
    from dynamo_lite.graph.builder import GraphBuilder

OVERWRITING = frozenset(
    "copy_ fill_ zero_ normal_ uniform_ random_ bernoulli_ exponential_ geometric_ cauchy_ log_normal_".split()
)
"""Methods that replace all elements of a tensor whatever they were."""


@dataclass(eq=False)
class RandomNumbers(GraphEffect):
    """`nodes`: the operators that draw random numbers. `unused`: the names of those that draw them in vain."""

    kept = "unused"

    nodes: list[Node] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)

    def on_node(self, node: Node, outcome: Propagation, tensors: Sequence[TensorValue]) -> None:
        if outcome.is_random and self.builder.scope is None:
            self.nodes.append(node)
        elif outcome.is_random:
            self.builder.scope.note_random()

    @property
    def draws(self) -> tuple[int, bool]:
        """What is another where an operator has drawn random numbers since; in a body only the first one shows."""
        return len(self.nodes), self.builder.scope is not None and self.builder.scope.is_random

    def annotate(self, module: GraphModule) -> None:
        if self.nodes:
            self.unused = unused_random(self.builder, self.nodes)
        if self.unused:
            module.meta[UNUSED_RANDOM] = self.unused


def unused_random(builder: GraphBuilder, drawing: list[Node]) -> list[str]:
    """The names of the operators that draw random numbers in vain: a tensor that is drawn, read, and whose readers are overwritten is dead
    to compilers, so nodes are looked at backwards, and a tensor that is overwritten is not live before."""
    live = set().union(*map(_memory, builder.graph.output_node().all_input_nodes))
    live.update(key for item in builder.inputs for key in _memory(item.node))
    unused = []
    for node in reversed(builder.graph.nodes):
        if node.op == "placeholder" or node.op == "output":
            continue
        overwritten, written = _writes(node)
        if live.isdisjoint(_memory(node) | written):
            if node in drawing:
                unused.append(node.name)
            continue
        live -= overwritten
        # A derivative, say, does not need all that its function gets.
        if not any(given.target in builder.bodies for given in node.all_input_nodes if given.op == "get_attr"):
            live |= _read(node, _not_read(node) if not written else ()) - overwritten
    return unused[::-1]


def _memory(node: Node) -> set[Any]:
    """The keys of the memory of the tensors that a node returns; the node itself for other values."""
    return set(map(_first, tensors_made_by(node))) or {node}


def _first(value: TensorValue) -> TensorValue:
    return value.family[0] if value.family else value


def _read(node: Node, written: Any) -> set[Any]:
    return {key for given in node.all_input_nodes if given not in written for key in _memory(given)}


_LIKE = frozenset({"type_as", "to"})
"""Methods that want to know of tensors behind the first what these are, not what they hold; `new_tensor` and its like of the first."""


def _not_read(node: Node) -> list[Node]:
    """The tensors of which an operator reads no data: all, if its results are views of them, and those that are an example."""
    given = [arg for arg in node.all_input_nodes if tensors_made_by(arg)]
    made = tensors_made_by(node)
    if made and _memory(node) <= set().union(*map(_memory, given)):
        return given
    name = operator_name(node.target) or ""
    is_first = name.startswith("new_")
    return [arg for arg in given if (arg is given[0]) == is_first] if is_first or name in _LIKE else []


def _writes(node: Node) -> tuple[set[Any], set[Any]]:
    """The memory that an operator replaces whatever it held, and all that it writes to."""
    out = node.kwargs.get("out")
    written = [out] if isinstance(out, Node) else list(out) if isinstance(out, tuple | list) else []
    replaces = bool(written) or node.target in OVERWRITING
    if not written and node.args and isinstance(node.args[0], Node) and may_write(node.target, node.kwargs):
        written.append(node.args[0])
    memory = set().union(*map(_memory, written))
    if not replaces or any(_is_view(given) for given in written):
        return set(), memory
    return memory - _read(node, written), memory


def _is_view(node: Node) -> bool:
    """Whether a tensor may be a part of what its memory holds."""
    value = getattr(node.meta, "subject", None)
    return isinstance(value, TensorValue) and _first(value) is not value
