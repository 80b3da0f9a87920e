"""Shape rules of operators that return views.

Input: the arguments of an operator, with fake tensors or meta tensors. Output: the view.
Invariant: that of `rule_table`. A view has the very sizes that the program asks for: torch's rule computes each size from the sizes around
it, so that a `2` of the program becomes `H // (H // 2)`, and expressions grow without need.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Sequence
from typing import Any

import torch

from .meta_tensor import Operand, Size, is_known
from .rule_table import shape_rule
from .size_algebra import NoRule, SizeAlgebra, require

aten = torch.ops.aten


@shape_rule("view", aten=[aten.view.default, aten._unsafe_view.default])
def _view(algebra: SizeAlgebra, input: Operand, *shape: Any) -> Operand:
    found = _view_of_sizes(algebra, input, _sizes(algebra, input, _one_sequence(shape)))
    if found is None:
        raise NoRule
    return found


@shape_rule("reshape", torch.reshape)
def _reshape(algebra: SizeAlgebra, input: Operand, *shape: Any) -> Operand:
    """A view, or a copy where there can't be one."""
    sizes = _sizes(algebra, input, _one_sequence(shape))
    found = _view_of_sizes(algebra, input, sizes)
    return algebra.new_contiguous(input, sizes) if found is None else found


def _one_sequence(numbers: tuple[Any, ...]) -> Sequence[Any]:
    """Sizes or dimensions that come as one sequence, or one by one."""
    if len(numbers) == 1 and isinstance(numbers[0], tuple | list):
        numbers = tuple(numbers[0])
    require(all(type(n) in (int, torch.SymInt) for n in numbers))
    return numbers


def _view_of_sizes(algebra: SizeAlgebra, x: Operand, sizes: Sequence[Size]) -> Operand | None:
    strides = algebra.strides_of_view(algebra.layout(x), algebra.require_known(sizes))
    return None if strides is None else algebra.view(x, sizes, list(map(algebra.number, strides)))


def _sizes(algebra: SizeAlgebra, x: Operand, sizes: Sequence[Size]) -> list[Size]:
    """The sizes asked for with the one that is left open, if they make as many elements as a tensor has, and that has some."""
    require(is_known(x))
    shape, wanted = algebra.layout(x).shape, algebra.require_known(sizes)
    require(algebra.is_filled(x))
    open_ = [i for i, n in enumerate(wanted) if n == -1]
    given = [n for n in wanted if n != -1]
    require(len(open_) <= 1 and not any(type(n) is int and n <= 0 for n in given))
    rest = algebra.divided(shape, given)
    found = list(sizes)
    if open_:
        if rest is None:
            rest = algebra.quotient(shape, given)
        require(rest is not None)
        given.append(rest)
        found[open_[0]] = algebra.number(rest)
    else:
        require(rest == 1 or algebra.is_as_many(shape, given))
    algebra.positive.update(n for n in given if type(n) is not int)
    return found


@shape_rule("permute", torch.permute, aten=[aten.permute.default])
def _permute(algebra: SizeAlgebra, input: Operand, *dims: Any) -> Operand:
    numbers = _one_sequence(dims)
    require(is_known(input) and len(numbers) == input.dim() and all(type(d) is int for d in numbers))
    require(sorted(d % input.dim() for d in numbers) == list(range(input.dim())))
    sizes, strides = input.shape, input.stride()
    return algebra.view(input, [sizes[d] for d in numbers], [strides[d] for d in numbers])


def _dim(dim: int, count: int) -> int:
    """A dimension, counted from the front."""
    require(type(dim) is int and -count <= dim < count)
    return dim % count


@shape_rule("transpose", torch.transpose, aten=[aten.transpose.int])
def _transpose(algebra: SizeAlgebra, input: Operand, dim0: int, dim1: int) -> Operand:
    dims = list(range(input.dim()))
    one, two = _dim(dim0, len(dims)), _dim(dim1, len(dims))
    dims[one], dims[two] = two, one
    return _permute(algebra, input, dims)


@shape_rule("t", torch.t, aten=[aten.t.default])
def _t(algebra: SizeAlgebra, input: Operand) -> Operand:
    require(input.dim() == 2)
    return _transpose(algebra, input, 0, 1)


@shape_rule("unsqueeze", torch.unsqueeze, aten=[aten.unsqueeze.default])
def _unsqueeze(algebra: SizeAlgebra, input: Operand, dim: int) -> Operand:
    require(is_known(input))
    algebra.layout(input)
    sizes, strides = list(input.shape), list(input.stride())
    _insert(algebra, sizes, strides, _dim(dim, len(sizes) + 1))
    return algebra.view(input, sizes, strides)


def _insert(algebra: SizeAlgebra, sizes: list[Size], strides: list[Size], dim: int) -> None:
    """Add a dimension of size 1."""
    step: Size = 1
    if dim < len(sizes):
        step = algebra.number(algebra.expression(sizes[dim]) * algebra.expression(strides[dim]))
    sizes.insert(dim, 1)
    strides.insert(dim, step)


_SQUEEZES = (aten.squeeze, aten.squeeze_, aten.squeeze_copy)


@shape_rule("squeeze", torch.squeeze)
def _squeeze(algebra: SizeAlgebra, input: Operand, dim: int) -> Operand:
    """`squeeze` of a dimension that is 1, or known to be none."""
    require(is_known(input))
    sizes, strides = list(input.shape), list(input.stride())
    dim = _dim(dim, len(sizes))
    require(type(sizes[dim]) is int or (algebra.expression(sizes[dim]) is not None and sizes[dim] != 1))
    if sizes[dim] == 1:
        del sizes[dim], strides[dim]
    return algebra.view(input, sizes, strides)


@shape_rule(aten=[getattr(op, form) for op in _SQUEEZES for form in ("default", "dim", "dims")])
def _keep_sizes_of_data(algebra: SizeAlgebra, input: Operand, dims: Any = None) -> Operand:
    """`squeeze` of sizes that data decide: torch's rule keeps these dimensions, and leaves nothing that says so. The graph asserts it: the
    program's Python, and the operators behind, rest on how many dimensions there are."""
    shapes = sys.modules["torch.fx.experimental.symbolic_shapes"]
    count = len(input.shape)
    for dim in range(count) if dims is None else [dims] if type(dims) is int else dims:
        size = input.shape[dim] if -count <= dim < count else 1
        if type(size) is not int and shapes.free_unbacked_symbols(size) and not shapes.statically_known_true(size == 1):
            torch._check(size != 1)
    raise NoRule


@shape_rule("flatten", torch.flatten)
def _flatten(algebra: SizeAlgebra, input: Operand, start_dim: int = 0, end_dim: int = -1) -> Operand:
    first, last = _dim(start_dim, input.dim()), _dim(end_dim, input.dim())
    require(first <= last)
    if first == last:
        return input
    sizes = input.shape
    return _view(algebra, input, (*sizes[:first], algebra.count(sizes[first : last + 1]), *sizes[last + 1 :]))


@shape_rule("contiguous")
def _contiguous(algebra: SizeAlgebra, input: Operand) -> Operand:
    """The tensor itself, or a copy if it is seen not to be contiguous."""
    require(is_known(input))
    layout = algebra.layout(input)
    known = algebra.is_contiguous(layout)
    require(known is not None)
    return input if known else algebra.new_contiguous(input, layout.sizes)


# -- indexing


@shape_rule(aten=[aten.select.int])
def _select(algebra: SizeAlgebra, input: Operand, dim: int, index: int) -> Operand:
    """`select`, if the index is a number."""
    require(type(index) is int)
    return _subscript(algebra, input, (*[slice(None)] * _dim(dim, input.dim()), index))


@shape_rule(aten=[aten.slice.Tensor])
def _slice(
    algebra: SizeAlgebra, input: Operand, dim: int = 0, start: object = None, end: object = None, step: object = 1
) -> Operand:
    """`slice`, if its ends are numbers."""
    return _subscript(algebra, input, (*[slice(None)] * _dim(dim, input.dim()), slice(start, end, step)))


@shape_rule(operator.getitem)
def _subscript(algebra: SizeAlgebra, input: Operand, key: object) -> Operand:
    """`input[key]` for a key of numbers, slices between numbers, None and `...`."""
    items: list[Any] = list(key) if type(key) is tuple else [key]
    require(is_known(input) and all(type(i) in _KEYS for i in items))
    algebra.layout(input)
    taken = sum([type(i) in (int, slice) for i in items])
    require(items.count(...) <= 1 and taken <= input.dim())
    if ... not in items:
        items.append(...)
    at = items.index(...)
    items[at : at + 1] = [slice(None)] * (input.dim() - taken)
    sizes, strides = list(input.shape), list(input.stride())
    (offset,) = algebra.require_known([input.storage_offset()])
    dim = 0
    for item in items:
        if item is None:
            _insert(algebra, sizes, strides, dim)
            dim += 1
        elif type(item) is int:
            require(algebra.env.exceeds(sizes[dim], item if item >= 0 else -item - 1))
            step = algebra.expression(strides.pop(dim))
            size = algebra.expression(sizes.pop(dim))
            offset = offset + (item if item >= 0 else size + item) * step
        else:
            start, sizes[dim], step = _bounds(algebra, sizes[dim], item)
            if start != 0:
                offset = offset + start * algebra.expression(strides[dim])
            if step != 1:
                strides[dim] = algebra.number(algebra.expression(strides[dim]) * step)
            dim += 1
    return algebra.view(input, sizes, strides, algebra.number(offset))


_KEYS = frozenset({int, slice, type(None), type(Ellipsis)})


def _bounds(algebra: SizeAlgebra, size: Size, part: slice) -> tuple[int, Size, int]:
    """The start of a slice of a dimension, its length and its step. No rule for slices that count from the end, or may be empty."""
    start = 0 if part.start is None else part.start
    step = 1 if part.step is None else part.step
    require(type(start) is int and start >= 0 and type(step) is int and step >= 1)
    if part.stop is None or (type(part.stop) is int and part.stop >= _END):
        if start == 0 and step == 1:
            return 0, size, 1
        stop = size
    else:
        require(type(part.stop) is int and part.stop > start)
        stop = part.stop if algebra.env.exceeds(size, part.stop - 1) else size
    require(not start or algebra.env.exceeds(size, start))
    length = stop - start
    return start, length if step == 1 else (length + step - 1) // step, step


_END = 2**63 - 1
