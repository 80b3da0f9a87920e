"""Stand-ins for functions of `torch._C._nn` and of packed sequences where only tensor data decide sizes: the number of classes, the
longest of several lengths.

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


def pack_padded_sequence(
    arange: Callable[..., Any], check: Callable[[bool], None], input: Any, lengths: Any, batch_first: bool
) -> Any:
    """`_pack_padded_sequence`; what a length has beyond the steps that are there is left out."""
    rows = input.transpose(0, 1) if batch_first else input
    steps, n = rows.size(0), rows.size(1)
    if lengths.size(0) != n:
        raise RuntimeError(
            f"Expected `len(lengths)` to be equal to batch_size, but got {lengths.size(0)} (batch_size={n})"
        )
    if int(lengths[n - 1]) <= 0:
        raise RuntimeError(
            "Length of all samples has to be greater than 0, but found an element in 'lengths' that is <= 0"
        )
    if (lengths[1:] > lengths[:-1]).any():
        raise RuntimeError(
            "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You can pass `enforce_sorted=False` "
            "to pack_padded_sequence and/or pack_sequence to sidestep this requirement if you do not need ONNX exportability."
        )
    batch_sizes = (arange(int(lengths[0])).unsqueeze(1) < lengths).sum(1)
    check(int(batch_sizes[0]) == n)  # so it is: who reads `batch_sizes[0]` later has a number that is known
    is_there = arange(steps).unsqueeze(1) < lengths
    return rows[is_there.to(input.device)].contiguous(), batch_sizes


def pad_packed_sequence(
    arange: Callable[..., Any],
    cat: Callable[..., Any],
    data: Any,
    batch_sizes: Any,
    batch_first: bool,
    padding_value: float,
    total_length: int,
) -> Any:
    """`_pad_packed_sequence`. The rows of a step stand behind those of the steps before."""
    n = int(batch_sizes[0])
    if (batch_sizes[1:] > batch_sizes[:-1]).any():
        raise RuntimeError("the batch sizes grow")
    if int(batch_sizes.sum()) > data.size(0):
        raise RuntimeError(f"there are {data.size(0)} rows, which are fewer than the sum of the batch sizes")
    sizes = cat([batch_sizes, batch_sizes.new_zeros(total_length - batch_sizes.size(0))])
    is_there = arange(n) < sizes.unsqueeze(1)
    starts = (sizes.cumsum(0) - sizes).unsqueeze(1)
    rows = data[((starts + arange(n)) * is_there).to(data.device)]
    is_padding = is_there.logical_not().to(data.device).reshape(total_length, n, *[1] * (data.dim() - 1))
    padded = rows.masked_fill(is_padding, padding_value)
    return padded.transpose(0, 1) if batch_first else padded, is_there.sum(0)
