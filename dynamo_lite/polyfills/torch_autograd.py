"""Stand-ins for objects of torch's C side: the `ctx` of a `torch.autograd.Function`, the guard object of an inference mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def note_unpacked(context: Context) -> None:
    """Tells the analysis that the tensors of a context are read."""


class Context:
    """What `forward`, `setup_context` and `backward` may use. The analysis reads the marks when `forward` is done."""

    def __init__(self, needs_input_grad: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs_input_grad
        self.to_save: tuple[Any, ...] | None = None
        self.saved_for_forward: tuple[Any, ...] | None = None
        self.dirty_tensors: tuple[Any, ...] | None = None
        self.non_differentiable: tuple[Any, ...] | None = None
        self.materialize_grads = True

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """The tensors, of which torch examines whether they were changed or freed."""
        note_unpacked(self)
        return self.to_save or ()

    def save_for_backward(self, *tensors: Any) -> None:
        self.to_save = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        """For forward-mode differentiation."""
        self.saved_for_forward = tensors

    def mark_dirty(self, *args: Any) -> None:
        self.dirty_tensors = args

    def mark_non_differentiable(self, *args: Any) -> None:
        self.non_differentiable = args

    def set_materialize_grads(self, value: bool) -> None:
        self.materialize_grads = value


class InferenceMode:
    """What `torch._C._InferenceMode(enabled)` makes. `enter(enabled)` returns what `leave` takes."""

    def __init__(self, enter: Callable[[bool], Any], leave: Callable[[Any], None], enabled: bool) -> None:
        self.enter = enter
        self.leave = leave
        self.enabled = enabled
        self.entered: Any = None

    def __enter__(self) -> None:
        self.entered = self.enter(self.enabled)

    def __exit__(self, *exc: Any) -> None:
        self.leave(self.entered)
        self.entered = None
