"""The stand-in for `torch._C._nn.one_hot` where only tensor data decide the number of classes.

The package knows no torch: what this needs of it is passed to it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def one_hot(tensor: Any, num_classes: int | None, arange: Callable[..., Any]) -> Any:
    """`one_hot` of integers of 64 bits that are there. A number of classes of -1, for which the operator takes the largest class, raises
    here in `arange`."""
    n = int(tensor.max()) + 1 if num_classes is None else num_classes
    if (tensor < 0).any():
        raise RuntimeError("Class values must be non-negative.")
    if num_classes is not None and (tensor >= n).any():
        raise RuntimeError("Class values must be smaller than num_classes.")
    return (tensor.contiguous().unsqueeze(-1) == arange(n, device=tensor.device)).long()
