"""Recurrent layers of packed sequences inside a graph.

Input: the arguments of `torch.lstm(data, batch_sizes, hx, params, …)`, or of `gru`, `rnn_tanh`, `rnn_relu`: the rows of all sequences, how
many sequences are left at each step (on the CPU), the states before, the weights. Output: what those functions return.
Invariant: run as it is, a graph with such a node calls torch's function. While a compiler traces the graph, that function would read the
batch sizes, which only data decide; there the node is an operator of ours, whose kernel calls torch's function. The gradient is an
operator too: it runs the layer once more.
Mirrors `PackedLayer` of `aten/src/ATen/native/RNN.cpp`.
"""

from __future__ import annotations

import functools
from typing import Any

from .branch import is_traced
from .rewrites.recurrent import layer_by_layer


def _packed(name: str) -> Any:
    """The function of torch of this name, for packed sequences."""

    def call(*args: Any) -> Any:
        import torch

        if is_traced(args[0]):
            return layer_by_layer(functools.partial(_apply, name), args)
        return getattr(torch, name)(*args)

    call.__name__ = call.__qualname__ = name  # under which the text of a graph finds it in this module
    return call


lstm, gru, rnn_tanh, rnn_relu = map(_packed, ("lstm", "gru", "rnn_tanh", "rnn_relu"))


def _apply(name: str, data: Any, batch_sizes: Any, hx: Any, params: Any, *options: Any) -> tuple[Any, ...]:
    """The operator. Its dropout is nothing: layers with dropout between them come one by one."""
    has_biases, num_layers, _, _, bidirectional = options
    states = hx if isinstance(hx, list | tuple) else [hx]
    setting = (name, bool(has_biases), int(num_layers), bool(bidirectional), len(states))
    results: tuple[Any, ...] = _function().apply(setting, data, batch_sizes, *states, *params)
    return results


@functools.cache
def _function() -> Any:
    import torch

    forward_operator, backward_operator = _operators()

    class PackedRNN(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, setting: Any, data: Any, batch_sizes: Any, *rest: Any) -> Any:
            ctx.setting = setting
            ctx.save_for_backward(data, batch_sizes.clone(), *rest)  # the program may write to them
            *options, n = setting
            return tuple(forward_operator(*options, data, batch_sizes, rest[:n], rest[n:]))

        @staticmethod
        def backward(ctx: Any, *cotangents: Any) -> Any:
            data, batch_sizes, *rest = ctx.saved_tensors
            *options, n = ctx.setting
            needed = [ctx.needs_input_grad[1], *ctx.needs_input_grad[3:]]
            given = (data, batch_sizes, rest[:n], rest[n:])
            gradients = iter(backward_operator(*options, needed, cotangents, *given))
            each = [next(gradients) if is_needed else None for is_needed in needed]
            return None, each[0], None, *each[1:]

    return PackedRNN


# -- the operators

NAMESPACE = "dynamo_lite_rnn"
"""That of the operators, which do nothing but give their results."""

_SETTING = "str name, bool has_biases, int num_layers, bool bidirectional"
_TENSORS = "Tensor data, Tensor batch_sizes, Tensor[] hx, Tensor[] params"

_libraries: list[Any] = []
"""The library of the operators, which are there as long as the process."""


@functools.cache
def _operators() -> tuple[Any, Any]:
    """The layers, and their gradients: of those of `data, *hx, *params` that need one."""
    import torch

    _libraries.append(library := torch.library.Library(NAMESPACE, "DEF"))
    library.define(f"forward({_SETTING}, {_TENSORS}) -> Tensor[]")
    library.define(f"backward({_SETTING}, bool[] needed, Tensor[] grads, {_TENSORS}) -> Tensor[]")
    for name, kernel, rule in (("forward", _run, _describe), ("backward", _run_backward, _describe_backward)):
        library.impl(name, kernel, "CompositeExplicitAutograd")
        library.impl(name, rule, "Meta")
    operators = getattr(torch.ops, NAMESPACE)
    return operators.forward.default, operators.backward.default


def _run(
    name: str, has_biases: bool, num_layers: int, bidirectional: bool, data: Any, batch_sizes: Any, hx: Any, params: Any
) -> list[Any]:
    import torch

    states = hx if len(hx) > 1 else hx[0]
    options = (has_biases, num_layers, 0.0, False, bidirectional)
    return list(getattr(torch, name)(data, batch_sizes, states, params, *options))


def _describe(
    name: str, has_biases: bool, num_layers: int, bidirectional: bool, data: Any, batch_sizes: Any, hx: Any, params: Any
) -> list[Any]:
    output = data.new_empty((data.size(0), hx[0].size(-1) * (2 if bidirectional else 1)))
    return [output, *(data.new_empty(state.shape) for state in hx)]


def _run_backward(
    name: str, has_biases: bool, num_layers: int, bidirectional: bool, needed: list[bool], grads: list[Any], *given: Any
) -> list[Any]:
    import torch

    data, batch_sizes, hx, params = given
    taken = [t.detach().requires_grad_(is_needed) for t, is_needed in zip((data, *hx, *params), needed, strict=True)]
    states, weights = taken[1 : 1 + len(hx)], taken[1 + len(hx) :]
    with torch.enable_grad():
        results = _run(name, has_biases, num_layers, bidirectional, taken[0], batch_sizes, states, weights)
    return list(torch.autograd.grad(results, [t for t in taken if t.requires_grad], grads, materialize_grads=True))


def _describe_backward(*args: Any) -> list[Any]:
    import torch

    *_, needed, _, data, _, hx, params = args
    return [torch.empty_like(t) for t, is_needed in zip((data, *hx, *params), needed, strict=True) if is_needed]
