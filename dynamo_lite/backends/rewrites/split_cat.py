"""`cat` of all pieces of a `split` under Inductor.

Input: an ATen graph. Output: the same graph with a copy of what was split in the place of what was put together again.
Invariant: results share memory with inputs only where they do in the graph. Inductor (2.13) takes the tensor itself for such a `cat`, also
where that is an input which the forward pass keeps for the backward pass, whose kernels then write over it: the program's parameter.
"""

from __future__ import annotations

import operator
from typing import Any


def copy_wholes(graph: Any) -> None:
    """Rewrite the calls in a `GraphModule`. (Inductor leaves copies out where nobody can tell.)"""
    import torch

    aten = torch.ops.aten
    for node in graph.graph.find_nodes(op="call_function", target=aten.cat.default):
        whole = _whole(node, aten.split_with_sizes.default)
        if whole is not None:
            is_contiguous = node.meta["val"].is_contiguous()  # a clone keeps other strides, a `cat` does not always
            node.target, node.args = aten.clone.default, (whole,)
            node.kwargs = {"memory_format": torch.contiguous_format} if is_contiguous else {}


def _whole(cat: Any, split: Any) -> Any:
    """What was split into the operands of a `cat`, if they are all pieces, in their order."""
    pieces, dim = cat.args[0], cat.args[1] if len(cat.args) > 1 else 0
    origins = {piece.args[0] for piece in pieces if piece.target is operator.getitem}
    origin = origins.pop() if len(origins) == 1 else None
    if (
        origin is None
        or origin.target is not split
        or [piece.args[1:] for piece in pieces] != [(i,) for i in range(len(origin.args[1]))]
    ):
        return None
    same_dim = dim == (origin.args[2] if len(origin.args) > 2 else 0)
    return origin.args[0] if same_dim else None
