"""Metadata with symbolic sizes.

Input: a fake tensor with symbolic sizes, or a meta tensor of one. Output: a `SymbolicMeta`, interned in the trace: tensors whose sizes and
strides are equal expressions have one meta, so that the outcome of an operator is computed once for all of them.
Invariant: sizes that depend on data are never interned: an operator makes new ones each time.

Loaded with the first symbol of a process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, in_kernel_invocation_manager
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils._mode_utils import no_dispatch

from dynamo_lite.graph.core.meta import LiveMeta, intern

from .meta_tensor import MetaTensor, Size
from .size_algebra import SizeAlgebra

if TYPE_CHECKING:
    from dynamo_lite.graph.core.fake import FakeTensorMode


class SymbolicMeta(LiveMeta):
    """Metadata of a plain strided tensor with symbolic sizes. `fake` is nobody's tensor: it never changes, and is made when needed."""

    __slots__ = ("_facts", "_fake", "is_leaf", "meta_tensor", "owner", "requires_grad")

    interned = True
    layout = torch.strided

    def __init__(self, owner: SymbolicMetas, meta_tensor: MetaTensor, requires_grad: bool, is_leaf: bool) -> None:
        self._fake: Any = None
        self._facts = -1  # the number of facts for which `meta_tensor` was looked through
        self.meta_tensor = meta_tensor
        self.owner = owner
        self.requires_grad = requires_grad
        self.is_leaf = is_leaf

    shape = property(lambda self: self.now().shape)
    stride = property(lambda self: self.now().strides)
    offset = property(lambda self: self.now().offset)
    dtype = property(lambda self: self.meta_tensor.dtype)
    device = property(lambda self: self.meta_tensor.device)
    ndim = property(lambda self: len(self.meta_tensor.shape))
    size = property(lambda self: torch.Size(self.shape))

    def now(self) -> MetaTensor:
        """The meta tensor, with ints for symbols that have become constants."""
        facts = self.owner.algebra.env._version_counter
        if self._facts != facts:
            self._facts = facts
            old = self.meta_tensor
            shape, strides = tuple(map(_now, old.shape)), tuple(map(_now, old.strides))
            self.meta_tensor = MetaTensor(shape, strides, _now(old.offset), old.dtype, old.device)
        return self.meta_tensor

    @property
    def fake(self) -> FakeTensor:
        if self._fake is None:
            self._fake = self.owner.algebra.fake(self.owner.mode, self.meta_tensor)
        return self._fake

    def numel(self) -> Any:
        """The number of elements."""
        return self.owner.algebra.count(self.shape)

    def replace(self, requires_grad: bool, is_leaf: bool) -> SymbolicMeta | LiveMeta:
        """The meta with another relation to autograd."""
        return self.owner.of_meta_tensor(self.meta_tensor, requires_grad, is_leaf)

    def make_fake(self) -> FakeTensor:
        """A new fake tensor with this metadata, except that it is no result of autograd's."""
        fake = _twin(self.fake)
        return fake.requires_grad_() if self.requires_grad else fake


class SymbolicMetas:
    """The metas of one trace."""

    def __init__(self, mode: FakeTensorMode, algebra: SizeAlgebra) -> None:
        self.mode = mode
        self.algebra = algebra
        self.known: dict[tuple[Any, ...], SymbolicMeta] = {}

    def of(self, fake: FakeTensor, requires_grad: bool, is_leaf: bool) -> SymbolicMeta | LiveMeta:
        """The meta of a fake tensor with symbolic sizes."""
        key = _key(fake.shape, fake.stride(), fake.storage_offset(), fake.dtype, fake.fake_device)
        meta = self.known.get((*key, requires_grad, is_leaf))
        if meta is None:
            if free_unbacked_symbols(fake):
                return LiveMeta(fake)
            meta_tensor = MetaTensor(fake.shape, fake.stride(), fake.storage_offset(), fake.dtype, fake.fake_device)
            meta = self.known[*key, requires_grad, is_leaf] = SymbolicMeta(self, meta_tensor, requires_grad, is_leaf)
        return meta

    def of_meta_tensor(self, meta_tensor: MetaTensor, requires_grad: bool, is_leaf: bool) -> Any:
        """The meta of a meta tensor, whose sizes do not depend on data; a `TensorMeta` where all of them are constants."""
        key = _key(meta_tensor.shape, meta_tensor.strides, meta_tensor.offset, meta_tensor.dtype, meta_tensor.device)
        if not meta_tensor._has_symbolic_sizes_strides and type(meta_tensor.offset) is int:
            return intern(*key, requires_grad, is_leaf)
        meta = self.known.get((*key, requires_grad, is_leaf))
        if meta is None:
            meta = self.known[*key, requires_grad, is_leaf] = SymbolicMeta(self, meta_tensor, requires_grad, is_leaf)
        return meta


def _now(number: Size) -> Size:
    """A number, as an int if it has become one."""
    if isinstance(number, int):
        return number
    known = number.node.maybe_as_int()
    return number if known is None else known


def _key(
    shape: Sequence[Size], strides: Sequence[Size], offset: Size, dtype: torch.dtype, device: torch.device
) -> tuple[Any, ...]:
    """The key of a meta: the same for equal metas, which have the same expressions now."""
    return tuple(map(_known, shape)), tuple(map(_known, strides)), _known(offset), dtype, device


def _known(number: Size) -> Any:
    """The key of a symbolic number: the same for numbers that are always equal."""
    if isinstance(number, int):
        return number
    expr = number.node.expr
    return int(expr) if expr.is_Integer else expr


def _twin(fake: FakeTensor) -> FakeTensor:
    """A fake tensor with the metadata of another one, symbolic sizes and what is known of them included, that shares no more with
    it. This takes 20 µs; making one by an operator on symbolic sizes takes 0.5 ms."""
    mode = fake.fake_mode
    with in_kernel_invocation_manager(mode), no_dispatch():
        sample = torch._C.TensorBase.detach(fake)
    return FakeTensor(mode, sample, fake.fake_device)
