"""LSTMs under AOTAutograd.

Input: a copy of a captured graph. Output: its calls of `lstm` are traced into operators that have gradients.
Invariant: the kernel that torch has for a whole layer keeps what its gradient needs only where gradients are recorded while it runs,
which is nowhere in a graph of AOTAutograd's. torch's decomposition takes it wherever the layer's input requires no gradients, whatever
its weights do.
"""

from __future__ import annotations

from typing import Any


def keep_gradients(graph: Any) -> None:
    """Replace the calls of `lstm` in a `GraphModule`."""
    import torch

    for node in graph.graph.nodes:
        if node.target is torch.lstm or node.target is torch._VF.lstm:
            node.target = lstm


def lstm(*args: Any) -> Any:
    """`torch.lstm`, without that kernel if something requires gradients."""
    import torch

    tensors = [t for arg in args for t in (arg if isinstance(arg, list | tuple) else [arg])]
    needs_grad = any(isinstance(t, torch.Tensor) and t.requires_grad for t in tensors)
    if not (needs_grad and torch.is_grad_enabled()):
        return torch.lstm(*args)
    enabled = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        return torch.lstm(*args)
    finally:
        torch._C._set_mkldnn_enabled(enabled)
