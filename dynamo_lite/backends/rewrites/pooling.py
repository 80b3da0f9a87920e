"""Average pooling under Inductor.

Input: a copy of a captured graph. Output: calls of `avg_pool1d`, `avg_pool2d` and `avg_pool3d` whose gradients Inductor computes right.
Invariant: under `ceil_mode` the last window may reach beyond the input, and elements out there are not counted. Inductor's backward
(`avg_pool2d_backward`, `avg_pool3d_backward` in `torch/_inductor/lowering.py`) divides by the size of the whole window if padding is
counted, with fixed sizes too.
"""

from __future__ import annotations

from typing import Any

PARAMETERS = ("input", "kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override")


def count_windows_right(graph: Any) -> None:
    """Rewrite the calls in a `GraphModule`. Raises NotImplementedError where there is no other call with the same results."""
    import torch

    pools = {torch.avg_pool1d, torch._C._nn.avg_pool2d, torch._C._nn.avg_pool3d}
    for node in graph.graph.nodes:
        if node.op != "call_function" or node.target not in pools:
            continue
        given = dict(zip(PARAMETERS, node.args, strict=False)) | node.kwargs
        counts_padding = given.get("count_include_pad", True) and given.get("divisor_override") is None
        if not (given.get("ceil_mode") and counts_padding):
            continue
        if _is_zero(given.get("padding", 0)):  # there is none to be counted
            node.args, node.kwargs = (given.pop("input"),), {**given, "count_include_pad": False}
        elif node.meta["example_value"].requires_grad:
            raise NotImplementedError(f"gradients of {node.target.__name__} with padding and ceil_mode in Inductor")


def _is_zero(padding: object) -> bool:
    return all(n == 0 for n in (padding if isinstance(padding, list | tuple) else [padding]))
