"""Copies of a graph's inputs that may be written to.

Input: the real inputs of a captured graph: tensors, and numbers for symbolic sizes. Output: lists of inputs as fresh as the first.
Invariant: the program's own tensors are never handed out; tensors that share memory do so in the copies; a leaf is a leaf again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch

from dynamo_lite.backends.tensor_copies import copy_of, memory_of


class CannotCopy(Exception):
    """An input is of a kind whose copies could not stand for it; the message names it."""


class Inputs:
    """The inputs of one graph. What the graph does not write to (`settle`) is copied once, and then shared by all lists."""

    def __init__(self, examples: Sequence[Any]) -> None:
        for i, value in enumerate(examples):
            _check(i, value)
        self.examples = list(examples)
        self.kept: dict[int, torch.UntypedStorage] = {}

    def fresh(self) -> list[Any]:
        """A new list: what the graph writes to is a copy of its own."""
        copies = dict(self.kept)
        return [copy_of(value, copies) for value in self.examples]

    def shuffled(self, generator: torch.Generator) -> list[Any]:
        """As `fresh`, with the elements of floating-point inputs in another order: other values of the same distribution. Parameters, and
        tensors that share memory, keep theirs."""
        owners = Counter(memory_of(v) for v in self.examples if isinstance(v, torch.Tensor))
        copies: dict[int, torch.UntypedStorage] = {}
        values = [copy_of(value, copies) for value in self.examples]
        for value, example in zip(values, self.examples, strict=True):
            if (
                isinstance(value, torch.Tensor)
                and not isinstance(example, torch.nn.Parameter)
                and (value.is_floating_point() or value.is_complex())
                and owners[memory_of(example)] == 1
            ):
                order = torch.randperm(value.numel(), generator=generator).to(value.device)
                value.detach().copy_(value.detach().reshape(-1)[order].reshape(value.shape))
        return values

    def settle(self, used: Sequence[Any]) -> None:
        """Take a list that the graph has been run on: memory that is as it was before needs no copy at the next time."""
        for example, value in zip(self.examples, used, strict=True):
            if isinstance(example, torch.Tensor):
                before, after = example.untyped_storage(), value.untyped_storage()
                if before.size() == after.size() and torch.equal(_bytes(before), _bytes(after)):
                    self.kept[memory_of(example)] = after


def _check(i: int, value: Any) -> None:
    if not isinstance(value, torch.Tensor):
        return
    plain = type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout is torch.strided
    if not plain or value.is_quantized or value.device.type == "meta" or value.is_neg() or value.is_conj():
        kind = type(value).__name__ if value.layout is torch.strided else str(value.layout)
        raise CannotCopy(f"input {i} is no plain dense tensor ({kind})")


def _bytes(storage: torch.UntypedStorage) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
