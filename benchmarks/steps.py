"""Steps of a training loop, and what can be compared after them.

Input: a model, and inputs as keyword arguments (a dict) or positional ones (a tuple). Output: losses, gradients and buffers by name.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy
import torch

Inputs = dict[str, Any] | tuple[Any, ...]


def seed() -> None:
    """All random numbers that a model may draw (wav2vec2 masks with numpy's)."""
    torch.manual_seed(0)
    numpy.random.seed(0)
    random.seed(0)


def backward(forward: Callable[..., Any], model: torch.nn.Module, inputs: Inputs) -> dict[str, torch.Tensor | None]:
    """One step; the loss, the gradients and the buffers by name."""
    seed()
    loss = step(forward, model, inputs)
    gradients = {f"gradient of {name}": parameter.grad for name, parameter in model.named_parameters()}
    return {"loss": loss.detach(), **gradients, **dict(model.named_buffers())}


def step(forward: Callable[..., Any], model: torch.nn.Module, inputs: Inputs) -> torch.Tensor:
    """Forward, loss and backward: the loss."""
    model.zero_grad()
    result = forward(**inputs) if isinstance(inputs, dict) else forward(*inputs)
    loss = torch.stack([value.float().pow(2).mean() for value in differentiable(result)]).sum()
    loss.backward()
    return loss


def differentiable(value: Any) -> Iterator[torch.Tensor]:
    """The tensors of a model's output through which gradients flow."""
    if isinstance(value, torch.Tensor):
        if value.requires_grad:
            yield value
    elif isinstance(value, (list, tuple, Mapping)):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from differentiable(item)


def far_apart(
    expected: torch.Tensor | None, actual: torch.Tensor | None, path: str, tolerance: float = 1e-4
) -> Iterator[str]:
    """Tensors that differ by more than rounding, measured by the largest of their elements."""
    if expected is None or actual is None:
        # AOTAutograd fills in zeros for gradients that do not arrive at an output of its graph.
        if expected is not actual and (actual is None or actual.any()):
            yield f"{path}: {type(expected).__name__} became {type(actual).__name__}"
        return
    if expected.numel() == 0 or (expected.isnan() & actual.isnan()).all():
        return
    distance = (expected.double() - actual.double()).abs().max().item()
    size = expected.double().abs().max().item()
    if not distance <= tolerance * size + 1e-6:
        yield f"{path}: {distance:.2e} apart, of {size:.2e}"
