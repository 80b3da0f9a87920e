"""Stands for the `ctx` of a `torch.autograd.Function` whose forward runs without a backward to come."""

from __future__ import annotations

from typing import Any


class Context:
    """What `forward` and `setup_context` may use; nothing outlives them, since there is no backward."""

    def __init__(self, n_inputs: int) -> None:
        self.needs_input_grad = (False,) * n_inputs
        self.saved_tensors: tuple[Any, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        self.saved_tensors = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        """For forward-mode differentiation."""

    def mark_dirty(self, *args: Any) -> None:
        """For version counters of autograd."""

    def mark_non_differentiable(self, *args: Any) -> None:
        """For backward."""

    def set_materialize_grads(self, value: bool) -> None:
        """For backward."""
