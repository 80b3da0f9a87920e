"""A branch of the program inside a graph.

Input: a condition, the two sides as graph modules, and their operands. Output: the results of the side that the condition chooses.
Invariant: run as it is, a graph with such a node does what the program does: the side that is not taken gives no gradients, draws no random
numbers and raises nothing. While a compiler traces the graph, the node is the operator `torch.cond`, whose gradients are zeros on
the side that is not taken; what becomes of those is in `undefined_gradients`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.fx import GraphModule


def branch(condition: Any, true_side: GraphModule, false_side: GraphModule, operands: Sequence[Any]) -> Any:
    """`torch.cond` where tensors stand for others; else a call of one side."""
    if is_traced(condition):
        from torch._higher_order_ops.cond import cond_op

        return cond_op(condition, true_side, false_side, operands)
    return (true_side if condition else false_side).forward(*operands)


def is_traced(condition: Any) -> bool:
    """Whether the operators that run now are not computed, or not only: by fakes, proxies, transforms, or `torch.jit.trace`."""
    import torch

    return (
        type(condition) is not torch.Tensor
        or torch._C._len_torch_dispatch_stack() > 0
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch._C._get_tracing_state() is not None
    )


def silenced(module: GraphModule) -> GraphModule:
    """A body of an operator that calls it as a module: an error of it is not printed on stderr, as `torch.fx` does."""
    module._wrapped_call = _call
    return module


def _call(module: GraphModule, *args: Any, **kwargs: Any) -> Any:
    import torch

    return torch.nn.Module.__call__(module, *args, **kwargs)
