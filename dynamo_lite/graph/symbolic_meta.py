"""Metadata with symbolic sizes.

Input: a fake tensor with symbolic sizes. Output: a `SymbolicMeta`, interned in the trace: tensors whose sizes and strides are equal
expressions have one meta, so that what an operator does to them is found out once.
Invariant: sizes that depend on data are never interned: an operator makes new ones each time.

Loaded with the first symbol of a process.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, in_kernel_invocation_manager
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils._mode_utils import no_dispatch

from .meta import LiveMeta


class SymbolicMeta(LiveMeta):
    """Metadata of a plain strided tensor with symbolic sizes. `fake` is nobody's tensor: it never changes."""

    __slots__ = ("is_leaf", "owner", "requires_grad")

    interned = True

    def __init__(self, owner: SymbolicMetas, fake: FakeTensor, requires_grad: bool, is_leaf: bool) -> None:
        super().__init__(_twin(fake))
        self.owner = owner
        self.requires_grad = requires_grad
        self.is_leaf = is_leaf

    def replace(self, requires_grad: bool, is_leaf: bool) -> SymbolicMeta | LiveMeta:
        """The meta with another relation to autograd."""
        return self.owner.of(self.fake, requires_grad, is_leaf)

    def make_fake(self) -> FakeTensor:
        """A new fake tensor with this metadata, except that it is no result of autograd's."""
        fake = _twin(self.fake)
        return fake.requires_grad_() if self.requires_grad else fake


class SymbolicMetas:
    """The metas of one trace."""

    def __init__(self) -> None:
        self.known: dict[tuple[Any, ...], SymbolicMeta] = {}

    def of(self, fake: FakeTensor, requires_grad: bool, is_leaf: bool) -> SymbolicMeta | LiveMeta:
        """The meta of a fake tensor with symbolic sizes."""
        numbers = (*fake.shape, *fake.stride(), fake.storage_offset())
        key = (*map(_known, numbers), fake.dtype, fake.fake_device, requires_grad, is_leaf)
        meta = self.known.get(key)
        if meta is None:
            if free_unbacked_symbols(fake):
                return LiveMeta(fake)
            meta = self.known[key] = SymbolicMeta(self, fake, requires_grad, is_leaf)
        return meta


def _known(number: Any) -> Any:
    """What two symbolic numbers have in common that are always equal."""
    return number if type(number) is int else number.node.expr


def _twin(fake: FakeTensor) -> FakeTensor:
    """A fake tensor with the metadata of another one, symbolic sizes and what is known of them included, that shares no more with
    it. Unlike an operator on symbolic sizes, this costs next to nothing."""
    mode = fake.fake_mode
    with in_kernel_invocation_manager(mode), no_dispatch():
        sample = torch._C.TensorBase.detach(fake)
    return FakeTensor(mode, sample, fake.fake_device)
