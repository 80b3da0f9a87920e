"""Chains of additions, subtractions, multiplications and divisions on square matrices: what a fused graph saves, and what a call costs.

The suite of the post "Skipping Dispatcher with LazyTensor" (2022) and of Torchy, which it is from: 8 to 32 operators, matrices of 10 to
10,000 rows. Input: none. Output: `MODELS`, name → `Entry`; `chain_8_100` are 8 operators on 100 x 100.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from .zoo_inputs import Entry, Inputs

LENGTHS = (8, 16, 24, 32)
SIZES = (10, 100, 1000, 10000)


def chain(length: int) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """A function of so many operators, a multiple of four. Its results grow with the length and no faster."""

    def run(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        for _ in range(length // 4):
            x = x + y
            x = x * y
            x = x - y
            x = x / y
        return x

    return run


def case(length: int, size: int) -> Entry:
    def make(batch: int) -> Inputs:
        torch.manual_seed(1)
        return {"x": torch.rand(size, size), "y": torch.rand(size, size) + 1}

    return Entry(lambda: (chain(length), make))


MODELS = {f"chain_{length}_{size}": case(length, size) for size in SIZES for length in LENGTHS}
