"""What makes two nodes of a graph alike.

Input: the nodes of a flat graph, with their fake values in `meta["example_value"]`. Output: a label per node, equal for nodes that compute
the same from inputs of equal metadata; the key of a value.
Invariant: equal labels say nothing of where the inputs come from: `region` compares that.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import torch
from torch.fx import Node


def labels_of(nodes: Sequence[Node]) -> list[int]:
    """The label of each node. A node that must stay where it is gets a label of its own; between two that change torch's state (grad
    mode, autocast) all labels differ from those elsewhere."""
    numbers: dict[Hashable, int] = {}
    found, state = [], 0
    for node in nodes:
        if _changes_state(node):
            state += 1
        key = _key(node)
        found.append(numbers.setdefault(node if key is None else (state, *key), len(numbers)))
    return found


def _changes_state(node: Node) -> bool:
    """Whether the node may change what other nodes do: it makes no value."""
    return node.meta.get("example_value") is None


def _key(node: Node) -> tuple[Hashable, ...] | None:
    """What equal nodes have in common; None for a node that is unlike all others."""
    if node.op not in ("call_function", "call_method") or isinstance(node.target, torch._ops.HigherOrderOperator):
        return None
    value = key_of(node.meta.get("example_value"))
    constants = _constants((node.args, node.kwargs))
    return None if value is None or constants is None else (node.op, node.target, constants, value)


def key_of(value: Any) -> Hashable:
    """The metadata of a value, where it is a plain tensor, a number or a sequence of them; None for all else."""
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided or value.is_quantized or value.is_conj() or value.is_neg():
            return None
        sizes = tuple(map(str, (*value.shape, *value.stride())))
        return (type(value), sizes, value.dtype, value.device, value.requires_grad)
    if isinstance(value, list | tuple):
        items = tuple(map(key_of, value))
        return None if None in items else (type(value), items)
    return (type(value), str(value)) if isinstance(value, _NUMBERS) else None


_NUMBERS = (bool, int, float, complex, str, torch.SymInt, torch.SymFloat, torch.SymBool, torch.dtype, torch.device)


def _constants(argument: Any) -> Hashable:
    """The arguments of a node, of the nodes among them the metadata; None if there is something that can't be compared."""
    if isinstance(argument, Node):  # the result does not always tell what was broadcast
        return (Node, argument.target if argument.op == "get_attr" else key_of(argument.meta.get("example_value")))
    if isinstance(argument, list | tuple):
        items: tuple[Hashable, ...] = tuple(map(_constants, argument))
        return None if None in items else (type(argument).__name__, items)
    if isinstance(argument, dict):
        items = tuple((name, _constants(value)) for name, value in sorted(argument.items()))
        return None if any(value is None for _, value in items) else items
    if isinstance(argument, slice):
        return _constants((slice.__name__, argument.start, argument.stop, argument.step))
    if argument is None or argument is Ellipsis:
        return type(argument)
    if isinstance(argument, float):
        return (float, argument.hex())
    if isinstance(argument, _CONSTANTS):
        return (type(argument), str(argument))
    return None


_CONSTANTS = (bool, int, complex, str, torch.dtype, torch.device, torch.layout, torch.memory_format)
