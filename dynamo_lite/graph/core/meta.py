"""What is known about a tensor without its data.

Input: a real or fake tensor. Output: `TensorMeta`, interned for plain strided tensors: equal metadata is one object, so
that metadata can be compared, hashed and remembered at no cost.
Invariant: an interned meta never changes. One with symbolic sizes is interned in its trace. A `LiveMeta` reads everything from its
fake tensor; by itself it is used where the interned fields don't describe the tensor completely (sparse, conjugated, subclasses …) and
for sizes that depend on data.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from dynamo_lite.exc import unsupported

CONTIGUOUS = torch.contiguous_format


class TensorMeta:
    """Metadata of a plain strided tensor. `shape` and `stride` are tuples of int."""

    __slots__ = ("contiguity", "device", "dtype", "is_leaf", "offset", "requires_grad", "shape", "size", "stride")

    live = False
    interned = True
    layout = torch.strided

    def __init__(self, key: tuple[Any, ...]) -> None:
        self.shape, self.stride, self.offset, self.dtype, self.device, self.requires_grad, self.is_leaf = key
        self.size = torch.Size(self.shape)
        self.contiguity: dict[Any, bool] = {}

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def numel(self) -> int:
        """The number of elements."""
        return self.size.numel()

    def is_contiguous(self, memory_format: Any = CONTIGUOUS) -> bool:
        """`Tensor.is_contiguous`."""
        known = self.contiguity.get(memory_format)
        if known is None:
            sample = torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device="meta")
            known = self.contiguity[memory_format] = sample.is_contiguous(memory_format=memory_format)
        return known

    def replace(self, **changes: Any) -> TensorMeta:
        """The meta with some fields changed."""
        fields = {name: getattr(self, name) for name in FIELDS}
        return intern(*{**fields, **changes}.values())

    def __repr__(self) -> str:
        grad = ", requires_grad" if self.requires_grad else ""
        return f"{self.dtype}{list(self.shape)} on {self.device}{grad}"


FIELDS = ("shape", "stride", "offset", "dtype", "device", "requires_grad", "is_leaf")

_interned: dict[tuple[Any, ...], TensorMeta] = {}
MAX_INTERNED = 200_000


def intern(*key: Any) -> TensorMeta:
    """The one `TensorMeta` with the given fields (in the order of `FIELDS`)."""
    meta = _interned.get(key)
    if meta is None:
        meta = TensorMeta(key)
        if len(_interned) < MAX_INTERNED:
            _interned[key] = meta
    return meta


class LiveMeta:
    """Metadata that is read from the fake tensor whenever it is asked for. Only interned ones are keys of a memo."""

    __slots__ = ("fake",)

    live = True
    interned = False

    def __init__(self, fake: Any) -> None:
        self.fake = fake

    shape = property(lambda self: tuple(self.fake.shape))
    stride = property(lambda self: self.fake.stride())
    offset = property(lambda self: self.fake.storage_offset())
    dtype = property(lambda self: self.fake.dtype)
    device = property(lambda self: self.fake.device)
    layout = property(lambda self: self.fake.layout)
    ndim = property(lambda self: self.fake.dim())
    requires_grad = property(lambda self: self.fake.requires_grad)
    is_leaf = property(lambda self: self.fake.is_leaf)
    size = property(lambda self: self.fake.shape)

    def numel(self) -> Any:
        """The number of elements; may be symbolic."""
        return self.fake.numel()

    def is_contiguous(self, memory_format: object = CONTIGUOUS) -> bool:
        """`Tensor.is_contiguous`; may guard on symbolic sizes."""
        return self.fake.is_contiguous(memory_format=memory_format)

    def __repr__(self) -> str:
        return f"{self.dtype}{list(self.shape)} on {self.device}"


def is_plain(tensor: torch.Tensor) -> bool:
    """True if an interned meta describes the tensor: strided, not quantised, no lazy conjugation or negation."""
    return tensor.layout is torch.strided and not (
        tensor.is_quantized or tensor.is_conj() or tensor.is_neg() or tensor.is_nested or tensor._is_zerotensor()
    )


def is_leaf(tensor: torch.Tensor) -> bool:
    """`tensor.is_leaf`; breaks where torch can't say. (A view that was made without gradients, once one of its family has been changed.)"""
    try:
        return tensor.is_leaf
    except RuntimeError as error:
        return unsupported("fake-tensor-error", str(error).partition(". ")[0], error)


def meta_of_input(tensor: torch.Tensor) -> TensorMeta:
    """The meta of a real plain tensor that enters the graph. The offset into its storage is not guarded, so it
    counts as 0."""
    return intern(
        tuple(tensor.shape),
        tensor.stride(),
        0,
        tensor.dtype,
        tensor.device,
        tensor.requires_grad,
        is_leaf(tensor),
    )


def meta_of_fake(fake: Any) -> TensorMeta | LiveMeta:
    """The meta of a fake tensor that an operator returned."""
    if not isinstance(fake, FakeTensor) or not is_plain(fake):
        return LiveMeta(fake)
    requires_grad = fake.requires_grad
    if fake._has_symbolic_sizes_strides:
        return fake.fake_mode.symbolic_metas.of(fake, requires_grad, not requires_grad or is_leaf(fake))
    return intern(
        tuple(fake.shape),
        fake.stride(),
        fake.storage_offset(),
        fake.dtype,
        fake.fake_device,
        requires_grad,
        not requires_grad or is_leaf(fake),
    )
