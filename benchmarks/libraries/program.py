"""What the modules of libraries share: the mark of programs, and inputs.

Input: functions of modules. Output: `Programs`, by name, in the order in which they are written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch

Built: TypeAlias = tuple[Callable[..., Any], tuple[Any, ...]]
"""What is called, and with what."""


class Programs(dict[str, Callable[[], Built]]):
    """The programs of a library. `package` is the name of its distribution."""

    def __init__(self, package: str) -> None:
        super().__init__()
        self.package = package

    def __call__(self, build: Callable[[], Built]) -> Callable[[], Built]:
        self[build.__name__] = build
        return build


def image(batch: int = 2, channels: int = 3, size: int = 32) -> torch.Tensor:
    return torch.rand(batch, channels, size, size)


def tokens(batch: int = 2, length: int = 16, vocabulary: int = 20) -> torch.Tensor:
    return torch.randint(0, vocabulary, (batch, length))


def leaf(*shape: int) -> torch.Tensor:
    """A tensor of random numbers for which gradients are asked."""
    return torch.randn(*shape).requires_grad_()
