"""Sizes and strides as sympy expressions, compared without torch's reasoning about them.

Input: fake tensors or meta tensors with symbolic sizes. Output: their layouts in memory, and new tensors with given sizes.
Invariant: two expressions are equal if they are the same expression or the same product; else the answer is "unknown". A method adds a
guard only if its docstring says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import gcd, prod
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensor, in_kernel_invocation_manager
from torch.utils._mode_utils import no_dispatch

from .meta_tensor import Expr, MetaTensor, Operand, Size

if TYPE_CHECKING:
    from torch.utils._sympy.functions import Max

    from dynamo_lite.graph.core.fake import FakeTensorMode

    from .shape_env import Env

CONTIGUOUS, CHANNELS_LAST, DENSE = "contiguous", "channels last", "dense"


class MemoryLayout(NamedTuple):
    """A tensor's sizes (as given, and as expressions), its strides as expressions, and the kind of its layout: one of the names above
    (DENSE: without gaps, in another order), or None for any other layout and for an unknown one."""

    sizes: tuple[Any, ...]
    shape: tuple[Any, ...]
    strides: tuple[Any, ...]
    kind: str | None


class NoRule(Exception):
    """The shape rules do not say what an operator returns: torch's own rule has to be asked."""


def require(condition: object) -> None:
    """Raise `NoRule` unless a condition holds. For a symbolic condition that makes a guard."""
    if not condition:
        raise NoRule


class Integers:
    """The `ShapeEnv` of a trace without symbols."""

    @staticmethod
    def exceeds(number: int, n: int) -> bool:
        """As `Env.exceeds`."""
        return number > n


class SizeAlgebra:
    """Computes with the sizes of one trace. `env` is its `ShapeEnv`, `maximum` torch's class of maxima (sympy is not imported here); None
    as long as all sizes are ints."""

    def __init__(self, env: Env | None = None, maximum: type[Max] | None = None) -> None:
        self.env: Any = Integers if env is None else env
        self.maximum = maximum
        self.positive: set[Any] = set()  # expressions that are 1 or more
        self._unsettled: dict[Any, int] = {}  # expressions not known to be, with the number of guards at that time
        self._plain: dict[Any, bool] = {}
        self._contiguous: dict[tuple[Any, ...], list[Any]] = {}  # shape → strides, and the number of elements
        self._kinds: dict[Any, str] = {}
        self._numbers: dict[Any, Any] = {}
        self._windows: dict[tuple[Any, ...], Any] = {}
        self._products: dict[tuple[Any, ...], Any] = {}
        self._composed: dict[Any, tuple[int, Counter[Any]]] = {}  # expressions that are known to be products

    # -- numbers

    def expression(self, number: Size) -> Any:
        """An int or a sympy expression; None if it depends on data or is no plain number."""
        if isinstance(number, int):
            return number
        expr = number.node.expr
        if expr.is_Integer:
            return int(expr)
        known = self._plain.get(expr)
        if known is None:
            values = self.env.backed_var_to_val
            known = self._plain[expr] = all(getattr(values.get(s), "is_Integer", False) for s in expr.free_symbols)
        return expr if known else None

    def expressions(self, numbers: Sequence[Any]) -> tuple[Any, ...] | None:
        """The expressions of several numbers; None if one of them depends on data."""
        found = tuple([self.expression(n) for n in numbers])
        return None if None in found else found

    def require_known(self, numbers: Sequence[Size]) -> tuple[Any, ...]:
        """The expressions of several numbers. Raises `NoRule` if one of them depends on data."""
        found = self.expressions(numbers)
        if found is None:
            raise NoRule
        return found

    def is_positive(self, expr: Expr) -> bool:
        """Whether a number is known to be 1 or more."""
        if type(expr) is int:
            return expr >= 1
        if expr in self.positive:
            return True
        facts = len(self.env.guards)
        if self._unsettled.get(expr) == facts:
            return False
        if self.env.bound_sympy(expr).lower >= 1:
            self.positive.add(expr)
            return True
        self._unsettled[expr] = facts
        return False

    def is_filled(self, tensor: Operand) -> bool:
        """Whether a tensor has elements. If it has, a guard demands it. False if that depends on data."""
        shape = self.expressions(tensor.shape)
        if shape is None:
            return False
        for size, expr in zip(tensor.shape, shape, strict=True):
            if not self.is_positive(expr):
                if not self.env.exceeds(size, 0):
                    return False
                self.positive.add(expr)
        return True

    def is_several(self, expr: Expr) -> bool:
        """Whether a number is known to be 2 or more."""
        return expr >= 2 if type(expr) is int else bool(self.env.bound_sympy(expr).lower >= 2)

    def number(self, expr: Expr) -> Any:
        """The symbolic int for an expression; always the same one."""
        if isinstance(expr, int):
            return expr
        number = self._numbers.get(expr)
        if number is None:
            number = self.env.int_of(expr, int(expr.xreplace(self.env.backed_var_to_val)))
            self._numbers[expr] = number
        return number

    def windows(self, size: Size, reach: int, step: int, pad: int) -> Any:
        """The number of windows over `reach` elements in a padded size. A guard demands that there is one, unless that is known."""
        key = self.expression(size), reach, step, pad
        count = self._windows.get(key)
        if count is None:
            room = size + 2 * pad
            if type(room) is int:
                require(room >= reach)
            elif 2 * pad < reach - 1 or not self.is_positive(key[0]):
                torch._check(room >= reach)
            count = self._windows[key] = (room - reach) // step + 1
            if type(count) is not int:
                self.positive.add(self.expression(count))
        return count

    def _settled(self, expr: Expr) -> Any:
        """A stride without the maxima that are not needed any more. torch writes `Max(1, e)` where it cannot prove that a size `e` is at
        least 1, and such expressions grow."""
        if isinstance(expr, int) or not expr.has(self.maximum):
            return expr
        known = {
            m: m.args[1]
            for m in expr.atoms(self.maximum)
            if len(m.args) == 2 and m.args[0] == 1 and self.is_positive(m.args[1])
        }
        return expr.xreplace(known) if known else expr

    # -- layouts

    def contiguous(self, sizes: Sequence[Any]) -> list[Any]:
        """The strides of a contiguous tensor."""
        shape = self.expressions(sizes)
        strides = self._contiguous.get(shape) if shape is not None else None
        if strides is not None:
            return strides
        strides = []
        span: Any = 1
        settled = shape is not None
        for size in reversed(sizes):
            strides.append(span)
            known = self.expression(size)
            if known is None or not self.is_positive(known):
                size = torch.sym_max(size, 1)
                settled = False
            span = span * size if not settled else self.number(self.expression(span) * known)
        strides.reverse()
        if settled and shape is not None:
            self._contiguous[shape] = strides
        return strides

    @staticmethod
    def channels_last(sizes: Sequence[Any]) -> list[Any]:
        """The strides of a batch of images whose channels lie side by side."""
        _, channels, height, width = sizes
        return [channels * width * height, 1, channels * width, channels]

    def layout(self, tensor: Operand) -> MemoryLayout:
        """The layout of a tensor. Raises `NoRule` if its sizes depend on data."""
        if type(tensor) is not MetaTensor:
            return self._layout(tensor)
        origin = tensor.origin or tensor
        layout = origin.layout
        if layout is None:
            layout = self._layout(origin)
            if layout.kind is not None:
                origin.layout = layout
        return layout

    def is_not_contiguous(self, tensor: Operand) -> bool:
        """Whether a tensor is known to lie otherwise than a contiguous one; False if its sizes depend on data."""
        try:
            return self.layout(tensor).kind != CONTIGUOUS
        except NoRule:
            return False

    def _layout(self, tensor: Operand) -> MemoryLayout:
        sizes = tuple(tensor.shape)
        shape = self.require_known(sizes)
        strides = tuple(map(self._settled, self.require_known(tensor.stride())))
        kind = self._kinds.get((shape, strides))
        if kind is None:
            kind = self._kind(sizes, shape, strides)
            if kind is not None:
                self._kinds[shape, strides] = kind
        return MemoryLayout(sizes, shape, strides, kind)

    def _kind(self, sizes: Sequence[Size], shape: tuple[Any, ...], strides: tuple[Any, ...]) -> str | None:
        if self._is_same(self.expressions(self.contiguous(sizes)), strides):
            return CONTIGUOUS
        images = len(sizes) == 4 and 1 not in shape[1:] and 0 not in shape
        if images and self._is_same(self.expressions(self.channels_last(sizes)), strides):
            return CHANNELS_LAST
        if 1 in shape or 0 in shape:
            return None  # strides that say nothing
        span: Any = 1
        rest = list(range(len(shape)))
        while rest:
            dim = next((d for d in rest if strides[d] == span), None)
            if dim is None:
                return None
            rest.remove(dim)
            span = span * shape[dim]
        return DENSE

    def is_contiguous(self, layout: MemoryLayout) -> bool | None:
        """Whether a tensor without gaps is contiguous, apart from strides of dimensions of size 1; None if that is unknown."""
        order = self.order(layout)
        if order is None or order == CONTIGUOUS:
            return True if order else None
        return False if all(n == 1 or self.is_several(n) for n in layout.shape) else None

    def order(self, layout: MemoryLayout) -> str | None:
        """The kind of a layout without the dimensions of size 1."""
        if layout.kind is not None or 0 in layout.shape:
            return layout.kind
        kept = [d for d, n in enumerate(layout.shape) if n != 1]
        shape, strides = [tuple([numbers[d] for d in kept]) for numbers in (layout.shape, layout.strides)]
        return self._kind([layout.sizes[d] for d in kept], shape, strides)

    def strides_of_view(self, layout: MemoryLayout, sizes: Sequence[Any]) -> list[Any] | None:
        """The strides, as expressions, of a view with other sizes, none of which is 0; None if no view has them. Adds guards.

        The algorithm is ATen's (computeStride in TensorUtils.cpp): dimensions that follow one another in memory are one piece of memory,
        which the new sizes divide anew.
        """
        if layout.kind == CONTIGUOUS:
            strides = self.expressions(self.contiguous([self.number(n) for n in sizes]))
            return None if strides is None else list(strides)
        found: list[Any] = []
        left = list(sizes)
        step, piece = layout.strides[-1], 1
        for i, (size, stride) in enumerate(reversed([*zip(layout.shape, layout.strides, strict=True)])):
            if i == 0 or self._equal(size, 1) or self._equal(stride, piece * step):
                piece = piece * size
                continue
            if not self._cut(piece, step, left, found):
                return None
            step, piece = stride, size
        return found[::-1] if self._cut(piece, step, left, found) and not left else None

    def _cut(self, piece: Expr, step: Expr, left: list[Any], strides: list[Any]) -> bool:
        """Divide a piece of memory, whose elements are `step` apart, among the last of the sizes `left`, and append their strides, the
        last one first. False if the sizes do not divide it."""
        span: Any = 1
        while left and (self._equal(left[-1], 1) or not self._equal(span, piece)):
            if self.divided([piece], [span, left[-1]]) is None and self.number(span) > self.number(piece):
                return False
            strides.append(span * step)
            span = span * left.pop()
        return self._equal(span, piece)

    def _equal(self, one: Expr, other: Expr) -> bool:
        """Whether two products are equal for the present sizes. Adds a guard unless the answer is known."""
        return self._is_same([one], [other]) or bool(self.number(one) == self.number(other))

    # -- tensors

    def new(
        self, like: Operand, sizes: Sequence[Size], strides: Sequence[Size], dtype: torch.dtype | None = None
    ) -> Operand:
        """A new tensor on the device of another one, and of its class."""
        dtype = dtype or like.dtype
        if isinstance(like, MetaTensor):
            return MetaTensor(sizes, strides, 0, dtype, like.device)
        return self._fake(like.fake_mode, self.count(sizes), sizes, strides, 0, dtype, like.fake_device)

    def fake(self, mode: FakeTensorMode, meta: MetaTensor) -> FakeTensor:
        """The fake tensor for a meta tensor."""
        span = self.span(meta.shape, meta.strides, meta.offset)
        return self._fake(mode, span, meta.shape, meta.strides, meta.offset, meta.dtype, meta.device)

    def span(self, sizes: Sequence[Any], strides: Sequence[Any], offset: Size) -> Size:
        """The number of elements of memory that a tensor reaches."""
        numbers = [self.expression(n) for n in (*sizes, *strides, offset)]
        if None in numbers or 0 in numbers[: len(sizes)]:
            return 0
        shape, steps = numbers[: len(sizes)], numbers[len(sizes) : -1]
        span = numbers[-1] + 1 + sum([(n - 1) * s for n, s in zip(shape, steps, strict=True)])
        return span if type(span) is int else self.number(span.expand())

    def is_without_gaps(self, tensor: Operand) -> bool:
        """Whether a tensor is known to begin where its memory begins, and to fill it."""
        try:
            layout = self.layout(tensor)
        except NoRule:
            return False
        return layout.kind is not None and self.expression(tensor.storage_offset()) == 0

    @staticmethod
    def _fake(
        mode: FakeTensorMode,
        count: Size,
        sizes: Sequence[Size],
        strides: Sequence[Size],
        offset: Size,
        dtype: torch.dtype,
        device: torch.device,
    ) -> FakeTensor:
        with in_kernel_invocation_manager(mode), no_dispatch():
            whole = torch.empty(count, dtype=dtype, device="meta")
            return FakeTensor(mode, whole.as_strided(tuple(sizes), tuple(strides), offset), device)

    def new_contiguous(self, like: Operand, sizes: Sequence[Size], dtype: torch.dtype | None = None) -> Operand:
        """A new contiguous tensor on the device of another one."""
        return self.new(like, sizes, self.contiguous(sizes), dtype)

    def new_alike(self, like: Operand, layout: MemoryLayout, dtype: torch.dtype | None = None) -> Operand:
        """A new tensor with the sizes of a layout and the strides of a tensor that has this layout."""
        return self.new(like, layout.sizes, like.stride(), dtype)

    def view(
        self, tensor: Operand, sizes: Sequence[Size], strides: Sequence[Size], offset: Size | None = None
    ) -> Operand:
        """A view of the memory of a tensor, beginning where that begins or at `offset`."""
        offset = tensor.storage_offset() if offset is None else offset
        if isinstance(tensor, MetaTensor):
            return MetaTensor(sizes, strides, offset, tensor.dtype, tensor.device, tensor)
        mode = tensor.fake_mode
        with in_kernel_invocation_manager(mode), no_dispatch():
            sample = torch._C.TensorBase.as_strided(tensor, tuple(sizes), tuple(strides), offset)
        return FakeTensor(mode, sample, tensor.fake_device)

    # -- products

    def count(self, sizes: Sequence[Any]) -> Any:
        """The number of elements."""
        shape = self.expressions(sizes)
        if shape is not None:
            count = self._products.get(shape)
            if count is None:
                count = self._products[shape] = self.number(prod(shape))
            return count
        count = 1
        for size in reversed(sizes):
            count = size * count
        return count

    def divided(self, shape: Sequence[Any], by: Sequence[Any]) -> Any:
        """The quotient of two products of sizes if it is known to be a whole number (an int or an expression), else None."""
        (number, factors), (divisor, others) = self._factors(shape), self._factors(by)
        if divisor == 0 or number % divisor or others - factors:
            return None
        return _product(number // divisor, factors - others)

    def quotient(self, shape: Sequence[Any], by: Sequence[Any]) -> Any:
        """The quotient of two products if it is a whole number for the present sizes, for which it adds a guard; else None."""
        number, divisor = self._cancelled(shape, by)
        if divisor == 0 or number % divisor != 0:
            return None
        return self.expression(number // divisor)

    def is_as_many(self, shape: Sequence[Any], others: Sequence[Any]) -> bool:
        """Whether two shapes have equally many elements for the present sizes. Adds a guard."""
        number, other = self._cancelled(shape, others)
        if number != other:
            return False
        self._learn(self.expression(number), self.expression(other))
        return True

    def _cancelled(self, shape: Sequence[Any], others: Sequence[Any]) -> tuple[Any, Any]:
        """Two products without their common factors, as ints that may be symbolic."""
        (number, factors), (other, of_other) = self._factors(shape), self._factors(others)
        common = gcd(number, other) or 1
        left, right = _product(number // common, factors - of_other), _product(other // common, of_other - factors)
        return self.number(left), self.number(right)

    def _learn(self, product: Expr, other: Expr) -> None:
        """Two products are equal: if one of them is a power of a single factor, remember this factor as a product of other numbers.

        Networks that divide images into windows have a height that is a multiple of the window's, and go from one to the other and back.
        """
        for whole, parts in ((product, other), (other, product)):
            (number, factors), (content, pieces) = self._factors([whole]), self._factors([parts])
            if number != 1 or len(factors) != 1 or content < 1:
                continue
            ((base, power),) = factors.items()
            root = round(content ** (1 / power))
            certain = power % 2 or self.is_positive(base)  # of two numbers with the same square
            if (
                certain
                and root**power == content
                and all(n % power == 0 for n in pieces.values())
                and base not in pieces
            ):
                self._composed[base] = root, Counter({piece: n // power for piece, n in pieces.items()})
                return

    def _factors(self, sizes: Sequence[Any]) -> tuple[int, Counter[Any]]:
        """A product as an int and its other factors with their powers."""
        number = 1
        factors: Counter[Any] = Counter()
        for size in sizes:
            if type(size) is int:
                number *= size
                continue
            for base, power in size.as_powers_dict().items():
                if not power.is_Integer or power <= 0:
                    factors[base**power] += 1
                    continue
                if base.is_Integer:
                    number *= int(base) ** int(power)
                    continue
                content, rest = base.primitive() if base.is_Add else (1, base)
                if not isinstance(content, int) and not content.is_Integer:
                    content, rest = 1, base
                number *= int(content) ** int(power)
                content, pieces = self._composed.get(rest, (1, None))
                number *= content ** int(power)
                for piece, n in ((rest, 1),) if pieces is None else pieces.items():
                    factors[piece] += n * int(power)
        return number, factors

    def _is_same(self, strides: Sequence[Any] | None, others: Sequence[Any]) -> bool:
        """Whether strides are known to be equal: the same expressions, or the same products."""
        if strides == others or strides is None:
            return strides is not None
        return all(a == b or self._factors([a]) == self._factors([b]) for a, b in zip(strides, others, strict=True))


def _product(number: int, factors: Counter[Any]) -> Any:
    """The product of an int and of factors with their powers."""
    product: Any = number
    for base, power in factors.items():
        product = product * base**power
    return product
