"""Is what a backend computes what eager execution computes?

Input: a graph, copies of its inputs. Output: None, or what differs. Compared: outputs, gradients where the graph is trained, and the inputs
that the graph writes to; on the real inputs and on others of the same distribution.
Invariant: the largest difference is measured against the largest value of that tensor in eager execution, with a tolerance for its dtype;
whole numbers and truth values must be equal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .inputs import Inputs

TOLERANCE = {
    torch.float64: 1e-7,
    torch.complex128: 1e-7,
    torch.float32: 1e-3,
    torch.complex64: 1e-3,
    torch.float16: 1e-2,
    torch.bfloat16: 5e-2,
}
"""Per dtype, relative to the largest value. Sums in another order differ by about the square root of the depth times the unit round-off;
these are thousands of float32's and ten of the others' unit round-offs, which a wrong operator exceeds at once."""
SEED = 20220


class Expected:
    """The outcome of eager execution on some sets of inputs."""

    def __init__(self, gm: Any, inputs: Inputs, training: bool) -> None:
        self.inputs = inputs
        self.training = training
        self.devices = {v.device for v in inputs.examples if isinstance(v, torch.Tensor) and v.device.type != "cpu"}
        first = inputs.fresh()
        self.cases = [(inputs.fresh, self.observe(gm.forward, first))]
        self.is_random = problem(self.cases[0][1], self.observe(gm.forward, inputs.fresh(), SEED + 1)) is not None
        inputs.settle(first)
        self._add_shuffled(gm)

    def _add_shuffled(self, gm: Any) -> None:
        def make() -> list[Any]:
            return self.inputs.shuffled(torch.Generator().manual_seed(SEED))

        try:
            self.cases.append((make, self.observe(gm.forward, make())))
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


def problem(expected: Sequence[Any], actual: Sequence[Any], values_count: bool = True) -> str | None:
    """The first difference between two lists of tensors and numbers, as text."""
    if len(expected) != len(actual):
        return f"{len(actual)} results instead of {len(expected)}"
    for i, (one, other) in enumerate(zip(expected, actual, strict=True)):
        if not isinstance(one, torch.Tensor):
            if type(one) is not type(other) or (values_count and one != other):
                return f"result {i}: {other!r} instead of {one!r}"
        elif not isinstance(other, torch.Tensor):
            return f"result {i}: {type(other).__name__} instead of a tensor"
        elif (one.shape, one.dtype, one.device) != (other.shape, other.dtype, other.device):
            return f"result {i}: {tuple(other.shape)} {other.dtype} instead of {tuple(one.shape)} {one.dtype}"
        elif values_count:
            found = _difference(one, other)
            if found is not None:
                return f"result {i}: {found}"
    return None


def _difference(one: torch.Tensor, other: torch.Tensor) -> str | None:
    if one.numel() == 0:
        return None
    tolerance = TOLERANCE.get(one.dtype)
    if tolerance is None:
        return None if torch.equal(one, other) else f"{int((one != other).sum())} elements of {one.numel()} differ"
    finite = torch.isfinite(one)
    if not torch.equal(finite, torch.isfinite(other)) or not torch.allclose(
        one[~finite], other[~finite], equal_nan=True
    ):
        return "other elements are infinite or no numbers"
    wide = torch.complex128 if one.dtype.is_complex else torch.float64
    a, b = one[finite].to(wide), other[finite].to(wide)
    if a.numel() == 0:
        return None
    largest, error = float(a.abs().max()), float((a - b).abs().max())
    return (
        None
        if error <= tolerance * max(largest, 1e-6)
        else f"off by {error:.3g} where the largest value is {largest:.3g}"
    )
