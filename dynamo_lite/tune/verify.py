"""Is what a backend computes what eager execution computes?

Input: a graph, copies of its inputs. Output: None, or what differs. Compared: outputs, gradients where the graph is trained, and the inputs
that the graph writes to; on the real inputs and on others of the same distribution.
`backends.difference` says what is equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from dynamo_lite.backends.difference import problem

from .inputs import Inputs

SEED = 20220


def wants_gradients(inputs: Iterable[Any]) -> bool:
    """Whether the graph is trained: gradients are recorded, and an input wants some."""
    return torch.is_grad_enabled() and any(isinstance(v, torch.Tensor) and v.requires_grad for v in inputs)


class Expected:
    """The outcome of eager execution, which is `eager`, on some sets of inputs: the real ones, with `others` one more."""

    def __init__(self, eager: Callable[..., Any], inputs: Inputs, training: bool, *, others: bool = True) -> None:
        self.inputs = inputs
        self.training = training
        self.devices = {v.device for v in inputs.examples if isinstance(v, torch.Tensor) and v.device.type != "cpu"}
        first = inputs.fresh()
        self.cases = [(inputs.fresh, self.observe(eager, first))]
        self.is_random = problem(self.cases[0][1], self.observe(eager, inputs.fresh(), SEED + 1)) is not None
        inputs.settle(first)
        if others:
            self._add_shuffled(eager)

    def _add_shuffled(self, eager: Callable[..., Any]) -> None:
        def make() -> list[Any]:
            return self.inputs.shuffled(torch.Generator().manual_seed(SEED))

        try:
            self.cases.append((make, self.observe(eager, make())))
        except Exception:  # the program's own operators refuse such values; the real inputs have to do
            return

    def run(self, fn: Callable[..., Any], values: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
        """Outputs, and gradients of the inputs that want some."""
        if not self.training:
            with torch.no_grad():
                return fn(*values), ()
        with torch.enable_grad():
            outputs = fn(*values)
            wanted = [v for v in values if isinstance(v, torch.Tensor) and v.requires_grad]
            ends = [o for o in outputs if isinstance(o, torch.Tensor) and o.requires_grad]
            if not ends:
                return outputs, ()
            return outputs, torch.autograd.grad(ends, wanted, [torch.ones_like(e) for e in ends], allow_unused=True)

    def observe(self, fn: Callable[..., Any], values: list[Any], seed: int = SEED) -> list[Any]:
        """All that can be seen of one call, detached."""
        torch.manual_seed(seed)
        outputs, gradients = self.run(fn, values)
        return [v.detach() if isinstance(v, torch.Tensor) else v for v in (*outputs, *gradients, *values)]

    def problem_of(self, fn: Callable[..., Any]) -> str | None:
        """How a backend's callable differs from eager execution. Random graphs: only in what is no matter of chance."""
        for make, expected in self.cases:
            found = problem(expected, self.observe(fn, make()), values_count=not self.is_random)
            if found is not None:
                return f"wrong: {found}"
        return None

    def synchronize(self) -> None:
        """Wait until the devices have done all their work."""
        for device in self.devices:
            torch.accelerator.synchronize(device)
