"""Views of tensors with symbolic sizes.

Input: fake tensors, or sketches of them, and what a view takes. Output: the view, or None where torch's own rule has to be asked.
Invariant: as in `direct_rules`. A view has the very sizes that the program asks for: torch's rule computes each size from the sizes around
it, so that a `2` of the program becomes `H // (H // 2)`, and expressions grow without need.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .meta_tensor import is_symbolic
from .size_algebra import Extents


def view(extents: Extents, x: Any, shape: Any) -> Any:
    """`view`."""
    sizes = _sizes(extents, x, shape)
    return None if sizes is None else _view(extents, x, sizes)


def reshape(extents: Extents, x: Any, shape: Any) -> Any:
    """`reshape`: a view, or a copy where there can't be one."""
    sizes = _sizes(extents, x, shape)
    if sizes is None:
        return None
    found = _view(extents, x, sizes)
    return extents.new_contiguous(x, sizes) if found is None else found


def _view(extents: Extents, x: object, sizes: Sequence[Any]) -> Any:
    strides = extents.strides_of_view(extents.of(x), extents.expressions(sizes))
    return None if strides is None else extents.view(x, sizes, list(map(extents.number, strides)))


def _sizes(extents: Extents, x: object, sizes: Sequence[Any]) -> list[Any] | None:
    """The sizes asked for with the one that is left open, if they make as many elements as a tensor has, and that has some."""
    if not is_symbolic(x):
        return None
    extent, wanted = extents.of(x), extents.expressions(sizes)
    if extent is None or wanted is None or not extents.is_filled(x):
        return None
    shape = extent.shape
    open_ = [i for i, n in enumerate(wanted) if n == -1]
    given = [n for n in wanted if n != -1]
    if len(open_) > 1 or any(type(n) is int and n <= 0 for n in given):
        return None
    rest = extents.divided(shape, given)
    found = list(sizes)
    if open_:
        if rest is None:
            rest = extents.quotient(shape, given)
        if rest is None:
            return None
        given.append(rest)
        found[open_[0]] = extents.number(rest)
    elif rest != 1 and not extents.is_as_many(shape, given):
        return None
    extents.positive.update(n for n in given if type(n) is not int)
    return found


def permute(extents: Extents, x: Any, dims: Any) -> Any:
    """`permute`."""
    if not is_symbolic(x) or len(dims) != x.dim() or not all(type(d) is int for d in dims):
        return None
    if sorted(d % x.dim() for d in dims) != list(range(x.dim())):
        return None
    sizes, strides = x.shape, x.stride()
    return extents.view(x, [sizes[d] for d in dims], [strides[d] for d in dims])


def transpose(extents: Extents, input: Any, dim0: int, dim1: int) -> Any:
    """`transpose`."""
    n = input.dim()
    if not n or type(dim0) is not int or type(dim1) is not int or not (-n <= dim0 < n and -n <= dim1 < n):
        return None
    dims = list(range(n))
    dims[dim0], dims[dim1] = dims[dim1], dims[dim0]
    return permute(extents, input, dims)


def t(extents: Extents, x: Any) -> Any:
    """`t` of a matrix."""
    return transpose(extents, x, 0, 1) if x.dim() == 2 else None


def unsqueeze(extents: Extents, input: Any, dim: int) -> Any:
    """`unsqueeze`."""
    n = input.dim() + 1
    if not is_symbolic(input) or type(dim) is not int or not -n <= dim < n or extents.of(input) is None:
        return None
    sizes, strides = list(input.shape), list(input.stride())
    _insert(extents, sizes, strides, dim % n)
    return extents.view(input, sizes, strides)


def _insert(extents: Extents, sizes: list[Any], strides: list[Any], dim: int) -> None:
    """A dimension of size 1."""
    step: Any = 1
    if dim < len(sizes):
        step = extents.number(extents.expression(sizes[dim]) * extents.expression(strides[dim]))
    sizes.insert(dim, 1)
    strides.insert(dim, step)


def select(extents: Extents, x: Any, dim: int, index: int) -> Any:
    """`select`, if the index is a number."""
    n = x.dim()
    if not is_symbolic(x) or type(index) is not int or type(dim) is not int or not -n <= dim < n:
        return None
    return subscript(extents, x, (*[slice(None)] * (dim % n), index))


def slice_(extents: Extents, x: Any, dim: int = 0, start: object = None, end: object = None, step: object = 1) -> Any:
    """`slice`, if its ends are numbers."""
    n = x.dim()
    if not is_symbolic(x) or type(dim) is not int or not -n <= dim < n:
        return None
    return subscript(extents, x, (*[slice(None)] * (dim % n), slice(start, end, step)))


def subscript(extents: Extents, x: Any, key: Any) -> Any:
    """`x[key]` for a key of numbers, slices between numbers, None and `...`."""
    items = list(key) if type(key) is tuple else [key]
    if not is_symbolic(x) or extents.of(x) is None or not all(type(i) in _KEYS for i in items):
        return None
    taken = sum([type(i) in (int, slice) for i in items])
    if items.count(...) > 1 or taken > x.dim():
        return None
    if ... not in items:
        items.append(...)
    at = items.index(...)
    items[at : at + 1] = [slice(None)] * (x.dim() - taken)
    sizes, strides, offset = list(x.shape), list(x.stride()), extents.expression(x.storage_offset())
    dim = 0
    for item in items:
        if item is None:
            _insert(extents, sizes, strides, dim)
            dim += 1
        elif type(item) is int:
            if not extents.env.exceeds(sizes[dim], item if item >= 0 else -item - 1):
                return None
            step = extents.expression(strides.pop(dim))
            size = extents.expression(sizes.pop(dim))
            offset = offset + (item if item >= 0 else size + item) * step
        else:
            bounds = _bounds(extents, sizes[dim], item)
            if bounds is None:
                return None
            start, sizes[dim], step = bounds
            if start != 0:
                offset = offset + start * extents.expression(strides[dim])
            if step != 1:
                strides[dim] = extents.number(extents.expression(strides[dim]) * step)
            dim += 1
    return extents.view(x, sizes, strides, extents.number(offset))


_KEYS = frozenset({int, slice, type(None), type(Ellipsis)})


def _bounds(extents: Extents, size: Any, part: slice) -> tuple[int, Any, int] | None:
    """The start of a slice of a dimension, its length and its step; None if it counts from the end, or may be empty."""
    start = 0 if part.start is None else part.start
    step = 1 if part.step is None else part.step
    if type(start) is not int or start < 0 or type(step) is not int or step < 1:
        return None
    if part.stop is None or (type(part.stop) is int and part.stop >= _END):
        if start == 0 and step == 1:
            return 0, size, 1
        stop = size
    elif type(part.stop) is not int or part.stop <= start:
        return None
    else:
        stop = part.stop if extents.env.exceeds(size, part.stop - 1) else size
    if start and not extents.env.exceeds(size, start):
        return None
    length = stop - start
    return start, length if step == 1 else (length + step - 1) // step, step


_END = 2**63 - 1


def squeeze(extents: Extents, input: Any, dim: int) -> Any:
    """`squeeze` of a dimension that is 1, or known to be none."""
    n = input.dim()
    if not is_symbolic(input) or type(dim) is not int or not -n <= dim < n:
        return None
    sizes, strides = list(input.shape), list(input.stride())
    if type(sizes[dim]) is not int and sizes[dim] == 1:
        return None
    if sizes[dim] == 1:
        del sizes[dim], strides[dim]
    return extents.view(input, sizes, strides)


def contiguous(extents: Extents, x: object) -> Any:
    """The tensor itself, or a copy if it is seen not to be contiguous."""
    if not is_symbolic(x):
        return None
    extent = extents.of(x)
    known = extents.is_contiguous(extent) if extent is not None else None
    if known is None:
        return None
    return x if known else extents.new_contiguous(x, extent.sizes)


def given(rule: Any) -> Any:
    """A rule whose sizes or dimensions come as one sequence, or one by one."""

    def call(extents: Extents, input: object, *numbers: Any) -> Any:
        if len(numbers) == 1 and isinstance(numbers[0], tuple | list):
            numbers = tuple(numbers[0])
        return rule(extents, input, numbers) if all(type(n) in _NUMBERS for n in numbers) else None

    return call


_NUMBERS = (int, torch.SymInt)


def flatten(extents: Extents, input: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
    """`flatten` of a contiguous tensor."""
    n = input.dim()
    if not n or not (-n <= start_dim < n and -n <= end_dim < n) or start_dim % n > end_dim % n:
        return None
    first, last = start_dim % n, end_dim % n
    if first == last:
        return input
    sizes = input.shape
    return view(extents, input, (*sizes[:first], extents.count(sizes[first : last + 1]), *sizes[last + 1 :]))
