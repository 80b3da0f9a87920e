"""Recurrent layers under AOTAutograd.

Input: a copy of a captured graph. Output: its calls of `lstm`, `gru` and `rnn`, traced into operators that have gradients and apply the
dropout of eager execution.
Invariant: torch's kernel for a whole LSTM layer keeps the tensors for its gradient only if gradients are recorded while it runs, which
they never are in a graph of AOTAutograd. torch's decomposition uses that kernel if the layer's input requires no gradients, even if its
weights do. The decompositions also leave out the dropout between layers (torch 2.13): so layers are called one by one.
"""

from __future__ import annotations

from typing import Any


def keep_gradients_and_dropout(graph: Any) -> None:
    """Replace the calls of recurrent layers in a `GraphModule`."""
    import torch

    replacements = {torch.lstm: lstm, torch.gru: gru, torch.rnn_tanh: rnn_tanh, torch.rnn_relu: rnn_relu}
    for node in graph.graph.nodes:
        if node.op == "call_function" and not node.kwargs:
            node.target = replacements.get(node.target, node.target)


def lstm(*args: Any) -> Any:
    """`torch.lstm`."""
    return layer_by_layer(_lstm_with_gradients, args)


def _layered(name: str) -> Any:
    """A function of torch of this name."""

    def call(*args: Any) -> Any:
        import torch

        return layer_by_layer(getattr(torch, name), args)

    call.__name__ = call.__qualname__ = name  # under which the text of a graph finds it in this module
    return call


gru, rnn_tanh, rnn_relu = map(_layered, ("gru", "rnn_tanh", "rnn_relu"))


def _lstm_with_gradients(*args: Any) -> Any:
    """`torch.lstm`, without its kernel for a whole layer if something requires gradients."""
    import torch

    tensors = [t for arg in args for t in (arg if isinstance(arg, list | tuple) else [arg])]
    needs_grad = any(isinstance(t, torch.Tensor) and t.requires_grad for t in tensors)
    if not (needs_grad and torch.is_grad_enabled()):
        return torch.lstm(*args)
    enabled = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        output, *states = torch.lstm(*args)
    finally:
        torch._C._set_mkldnn_enabled(enabled)
    before = args[2 if isinstance(args[3], list | tuple) else 1]
    # torch 2.11 decomposes into states with a dimension too many.
    return (output, *[state.reshape(first.shape) for state, first in zip(states, before, strict=True)])


def layer_by_layer(function: Any, args: tuple[Any, ...]) -> Any:
    """A recurrent function, called for each layer alone if there is dropout between them. Its arguments are `(input, hx, params, …,
    batch_first)`, or `(data, batch_sizes, hx, params, …)` of a packed sequence."""
    is_packed = isinstance(args[3], list | tuple)
    hx, params, has_biases, num_layers, dropout, train, bidirectional, *rest = args[1 + is_packed :]
    if num_layers == 1 or not train or dropout == 0:
        return function(*args)
    import torch

    batch_first = bool(rest) and rest[0]
    output = args[0].transpose(0, 1) if batch_first else args[0]
    states = [hx] if isinstance(hx, torch.Tensor) else hx
    directions = 2 if bidirectional else 1
    n_params = len(params) // num_layers
    finals: list[list[Any]] = [[] for _ in states]
    for i in range(num_layers):
        before = [state[i * directions : (i + 1) * directions] for state in states]
        given = (before[0] if isinstance(hx, torch.Tensor) else before, params[i * n_params : (i + 1) * n_params])
        options = (has_biases, 1, 0.0, train, bidirectional, *([False] if rest else []))
        output, *after = function(output, *args[1 : 1 + is_packed], *given, *options)
        if i < num_layers - 1:
            output = torch.dropout(output, dropout, True)
        for final, state in zip(finals, after, strict=True):
            final.append(state)
    output = output.transpose(0, 1) if batch_first else output
    return (output, *[torch.cat(final) for final in finals])
