"""Numbers in arrays of ints that no data meet (`np.arange(x.ndim)`): they follow from the constants of the graph.

Input: the graph so far, an array. Output: its values, `None` where they depend on anything but constants.
Invariant: the operators between the constants and the array are run, in the order of the graph, with the functions that the graph has. Ints
and truths only, whose results don't depend on how something is rounded. What any other operator takes is not known any more, as it may have
written to it.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Graph, Node
from torch.utils._python_dispatch import _disable_current_modes

from dynamo_lite.graph.core import functional
from dynamo_lite.graph.core.nodes import run_node
from dynamo_lite.graph.core.values import TensorValue
from dynamo_lite.signals import let_through

if TYPE_CHECKING:
    from dynamo_lite.graph.builder import GraphBuilder

    from .arrays import ArrayVariable

_MOST_ELEMENTS = 256
_UNDEFINED = ("empty", "empty_like")
_FUNCTIONS = (operator.getitem, torch.full, torch.tensor)
_METHODS = ("clone", "detach", "to", "view")


class KnownTensors:
    """What the operators of a graph make of its constants, up to the last one that was looked at."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.values: dict[Node, Any] = {}
        self.last: Node = graph._root

    def value(self, node: Node) -> Any:
        if self.last._erased:  # the trace has gone back: what was run since may have been changed in place
            self.values, self.last = {}, self.graph._root
        with _disable_current_modes(), torch._C.DisableTorchFunction(), torch.no_grad():
            while (following := self.last.next) is not self.graph._root:
                self.last = following
                self._take(following)
        return self.values.get(node)

    def _take(self, node: Node) -> None:
        inputs = node.all_input_nodes
        if _is_followed(node) and all(given in self.values for given in inputs):
            try:
                result = run_node(node, self.values)
            except Exception as error:  # numpy's, which the graph raises when it runs
                let_through(error)
                result = NotImplemented
            if result is None or (isinstance(result, torch.Tensor) and _is_small(result)):
                self.values[node] = result
                return
        if not self.values.keys().isdisjoint(inputs):
            self._forget({_memory(self.values.get(given)) for given in inputs})

    def unused(self, wanted: set[Node]) -> list[Node]:
        """The operators of which nothing is left but what Python has got of them, users first: with all that they write to."""
        unseen, dead = {node for node in self.values if not node._erased}, set[Node]()
        while unseen:
            part = {unseen.pop()}
            pending = list(part)
            while pending:
                node = pending.pop()
                near = unseen.intersection((*node.all_input_nodes, *node.users))
                unseen -= near
                part |= near
                pending += near
            neighbours = {other for node in part for other in (*node.all_input_nodes, *node.users)}
            if part.isdisjoint(wanted) and neighbours <= part:
                dead |= part
        return [node for node in reversed(self.graph.nodes) if node in dead]

    def _forget(self, memories: set[int | None]) -> None:
        """Drop the tensors in this memory, and the operators that have written to them."""
        lost = {node for node, value in self.values.items() if value is not None and _memory(value) in memories}
        lost |= {
            node for node, value in self.values.items() if value is None and not lost.isdisjoint(node.all_input_nodes)
        }
        self.values = {node: value for node, value in self.values.items() if node not in lost}


def _is_followed(node: Node) -> bool:
    subject = getattr(node.meta, "subject", None)
    if isinstance(subject, TensorValue) and not _is_small(subject.meta):
        return False
    if node.target is functional.numpy_function:
        return node.args[0] not in _UNDEFINED
    return node.target in (_METHODS if node.op == "call_method" else _FUNCTIONS)


def _is_small(tensor: Any) -> bool:
    """Whether a tensor, or what has its metadata, holds a few ints or truths of the CPU."""
    dtype, shape = tensor.dtype, tensor.shape
    is_exact = not (dtype.is_floating_point or dtype.is_complex)
    is_fixed = tensor.device.type == "cpu" and all(type(n) is int for n in shape)
    return is_exact and is_fixed and torch.Size(shape).numel() <= _MOST_ELEMENTS


def _memory(value: Any) -> int | None:
    return value.untyped_storage()._cdata if isinstance(value, torch.Tensor) else None


def known_number(builder: GraphBuilder, array: ArrayVariable) -> Any:
    """The only element of an array without dimensions as a Python number, None if it depends on more than constants."""
    known = known_values(builder, array) if not array.proxy.meta.ndim else None
    return None if known is None else known.item()


def known_values(builder: GraphBuilder, array: ArrayVariable) -> Any:
    """A tensor with the values of an array, None if they depend on more than constants."""
    node = array.proxy.node
    if node is None or node.graph is not builder.graph:  # one from outside of a body
        return None
    if (known := builder.operators.known.get(builder.graph)) is None:
        known = builder.operators.known[builder.graph] = KnownTensors(builder.graph)
    return known.value(node)
