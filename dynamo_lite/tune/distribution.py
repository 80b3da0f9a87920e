"""The distribution of a tensor's elements, in two numbers, and other elements of the same distribution.

Input: a dense tensor. Output: a `Distribution`, which fills tensors of that dtype.
Invariant: elements that are not finite count for nothing, so that others of the same distribution are finite.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

MOST = torch.iinfo(torch.int64).max


class Distribution(NamedTuple):
    """Mean and deviation of numbers with a fraction; the smallest and the largest of whole numbers and truth values."""

    first: float
    second: float

    @classmethod
    def of(cls, value: torch.Tensor) -> Distribution:
        """The distribution of a tensor's elements."""
        with torch.no_grad():
            if not _has_fraction(value.dtype):
                return cls(int(value.min()), int(value.max())) if value.numel() else cls(0, 0)
            wide = (torch.view_as_real(value.resolve_conj()) if value.is_complex() else value).double()
            wide = wide[wide.isfinite()]
            return cls(float(wide.mean()), float(wide.std(correction=0))) if wide.numel() else cls(0.0, 1.0)

    def fill(self, value: torch.Tensor, generator: torch.Generator | None = None) -> None:
        """Fill a tensor with elements of the distribution, drawn on the CPU."""
        if _has_fraction(value.dtype):
            parts = torch.view_as_real(value) if value.is_complex() else value
            parts.copy_(torch.randn(parts.shape, generator=generator) * self.second + self.first)
        else:
            high = min(int(self.second) + 1, MOST)
            value.copy_(torch.randint(int(self.first), high, value.shape, generator=generator))


def _has_fraction(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex
