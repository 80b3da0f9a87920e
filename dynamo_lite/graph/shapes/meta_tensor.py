"""The metadata of a tensor: sizes, strides, data type and device.

Input: a meta. Output: a `MetaTensor`, which shape rules take in the place of a fake tensor, at a tenth of its cost.
Invariant: it stands for a plain tensor on the CPU; its relation to autograd is not known here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch._subclasses.fake_tensor import FakeTensor

if TYPE_CHECKING:
    import sympy

    from .size_algebra import MemoryLayout

Size: TypeAlias = "int | torch.SymInt"
"""A size, a stride or an offset."""

Expr: TypeAlias = "int | sympy.Expr"
"""A size as it is computed with."""


class MetaTensor:
    """Replaces a fake tensor in shape rules. `base`: the meta tensor that this one is a view of."""

    __slots__ = ("base", "device", "dtype", "layout", "offset", "origin", "shape", "strides")

    def __init__(
        self,
        shape: Sequence[Size],
        strides: Sequence[Size],
        offset: Size,
        dtype: torch.dtype,
        device: torch.device,
        base: MetaTensor | None = None,
    ) -> None:
        self.shape = tuple(shape)
        self.strides = tuple(strides)
        self.offset = offset
        self.dtype = dtype
        self.device = device
        self.base = base
        self.layout: MemoryLayout | None = None  # once it is known
        self.origin: MetaTensor | None = None  # the meta tensor of the meta

    def stride(self) -> tuple[Size, ...]:
        """As of a tensor."""
        return self.strides

    def storage_offset(self) -> Size:
        """As of a tensor."""
        return self.offset

    def dim(self) -> int:
        """As of a tensor."""
        return len(self.shape)

    @property
    def _has_symbolic_sizes_strides(self) -> bool:
        return any(type(n) is not int for n in (*self.shape, *self.strides))


Operand: TypeAlias = "MetaTensor | FakeTensor"
"""A tensor as rules take it: a meta tensor of a captured call, a fake tensor of an ATen operator."""


def is_known(*tensors: Any) -> bool:
    """Whether the rules answer for tensors: meta tensors, and fake ones of which some have symbolic sizes. All have to be plain, without
    known data and on the CPU."""
    found = False
    for t in tensors:
        if type(t) is MetaTensor:
            found = True
            continue
        if type(t) is not FakeTensor:
            return False
        if t.constant is not None or t.fake_device.type != "cpu" or t.layout is not torch.strided:
            return False
        if t.is_conj() or t.is_neg() or t.is_quantized:
            return False
        found = found or t._has_symbolic_sizes_strides
    return found
