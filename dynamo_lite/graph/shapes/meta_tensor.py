"""A tensor of which there are only sizes, strides, a data type and a device.

Input: a meta. Output: a `Sketch`, which rules over sizes (`direct_rules`) take in the place of a fake tensor, at a tenth of its cost.
Invariant: it stands for a plain tensor on the CPU; relations to autograd are not its business.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor


class Sketch:
    """Stands in the place of a fake tensor. `base`: the sketch that this one is a view of."""

    __slots__ = ("base", "device", "dtype", "extent", "offset", "origin", "shape", "strides")

    def __init__(
        self, shape: Sequence[Any], strides: Sequence[Any], offset: Any, dtype: Any, device: Any, base: Any = None
    ) -> None:
        self.shape = tuple(shape)
        self.strides = tuple(strides)
        self.offset = offset
        self.dtype = dtype
        self.device = device
        self.base = base
        self.extent: Any = None  # once it is known
        self.origin: Sketch | None = None  # that of the meta

    def stride(self) -> tuple[Any, ...]:
        """As of a tensor."""
        return self.strides

    def storage_offset(self) -> Any:
        """As of a tensor."""
        return self.offset

    def dim(self) -> int:
        """As of a tensor."""
        return len(self.shape)

    @property
    def _has_symbolic_sizes_strides(self) -> bool:
        return any(type(n) is not int for n in (*self.shape, *self.strides))


def sketch_of(meta: Any) -> Sketch | None:
    """The sketch of an interned meta, for one argument; None for one on another device."""
    if meta.device.type != "cpu":
        return None
    sketch = Sketch(meta.shape, meta.stride, meta.offset, meta.dtype, meta.device)
    if meta.live:
        sketch.origin = meta.now()
    return sketch


def is_symbolic(*tensors: Any) -> bool:
    """Whether sizes of one of the tensors are symbolic. All have to be plain, unknown and on the CPU."""
    found = False
    for t in tensors:
        if type(t) is FakeTensor:
            if t.constant is not None or t.fake_device.type != "cpu" or t.layout is not torch.strided:
                return False
            if t.is_conj() or t.is_neg() or t.is_quantized:
                return False
        elif type(t) is not Sketch:
            return False
        found = found or t._has_symbolic_sizes_strides
    return found
