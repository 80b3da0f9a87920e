"""Stand-ins for functions of `torch._C._nn` where only tensor data decide sizes: the number of classes, the longest of several lengths.

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


def pad_sequence(
    full: Callable[..., Any],
    sequences: Any,
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Any:
    """`pad_sequence` of tensors that agree in all sizes but the first."""
    if padding_side not in ("left", "right"):
        raise RuntimeError(f"Expected padding_side to be one of left or right, but got {padding_side}.")
    lengths = [sequence.size(0) for sequence in sequences]
    longest, n, first = max(lengths), len(lengths), sequences[0]
    sizes = (n, longest) if batch_first else (longest, n)
    result = full((*sizes, *first.shape[1:]), padding_value, dtype=first.dtype, device=first.device)
    for i, (sequence, length) in enumerate(zip(sequences, lengths, strict=True)):
        start = longest - length if padding_side == "left" else 0
        part = (
            result.select(0, i).narrow(0, start, length)
            if batch_first
            else result.narrow(0, start, length).select(1, i)
        )
        part.copy_(sequence)
    return result
