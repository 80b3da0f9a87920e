"""The difference between the results of two executions.

Input: two lists of tensors and numbers. Output: None, or the first difference as text.
Invariant: the largest difference is measured against the largest value of that tensor in the first list, with a tolerance for its dtype;
whole numbers and truth values must be equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any


@cache
def tolerances() -> dict[Any, float]:
    """Per dtype, relative to the largest value. Sums in another order differ by about the square root of the depth times the unit
    round-off; these are thousands of float32's and ten of the others' unit round-offs, which a wrong operator exceeds at once."""
    import torch

    return {
        torch.float64: 1e-7,
        torch.complex128: 1e-7,
        torch.float32: 1e-3,
        torch.complex64: 1e-3,
        torch.float16: 1e-2,
        torch.bfloat16: 5e-2,
    }


def problem(expected: Sequence[Any], actual: Sequence[Any], values_count: bool = True) -> str | None:
    """The first difference between two lists of tensors and numbers, as text."""
    import torch

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


def _difference(one: Any, other: Any) -> str | None:
    import torch

    if one.numel() == 0 or torch.equal(one, other):  # parameters mostly are: all the rest takes a hundred times as long
        return None
    tolerance = tolerances().get(one.dtype)
    if tolerance is None:
        return f"{int((one != other).sum())} elements of {one.numel()} differ"
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
