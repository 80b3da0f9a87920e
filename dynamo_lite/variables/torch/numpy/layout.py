"""How an array lies in memory, whether it may be written to, and which other arrays have its memory.

Input: arrays that numpy has made of samples, values of the graph. Output: `Layout`s, samples with a layout, answers about shared memory.
Invariant: a sample has the dtype, shape, strides and flags of the array that it stands for, and memory of its own.
Mirrors `numpy/_core/src/multiarray/flagsobject.c` and `mem_overlap.c`.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

from dynamo_lite.graph.core.values import TensorValue

numpy: Any = sys.modules.get("numpy")


class Layout(NamedTuple):
    """The layout of an array: its strides where they are not those of its tensor, and two flags."""

    strides: tuple[int, ...] | None = None
    writeable: bool = True
    owndata: bool = False


def hint(n: Any) -> int:
    """The size that is, or that a symbolic one is now. One that data decide is a number that is no likely size: what numpy makes of it
    holds for all, since torch breaks where it would have to ask for more."""
    if type(n) is int:
        return n
    return n.node.hint if n.node.has_hint() else _stand_in(n)


def _stand_in(n: Any) -> int:
    node = n.node
    numbers = {s: 101 + 2 * int("".join(filter(str.isdigit, str(s)))) for s in node.expr.free_symbols}
    return int(node.expr.xreplace(numbers | node.shape_env.backed_var_to_val))


def is_of_data(value: TensorValue) -> bool:
    """Whether data decide a size of it."""
    return not all(type(n) is int or n.node.has_hint() for n in value.meta.shape)


def shape_now(value: TensorValue) -> tuple[int, ...]:
    """The shape of a value of the graph."""
    return tuple(map(hint, value.meta.shape))


def strides_now(value: TensorValue, layout: Layout) -> tuple[int, ...]:
    """The strides of the array that a value of the graph stands for, in bytes."""
    if layout.strides is not None:
        return layout.strides
    size = value.meta.dtype.itemsize
    return tuple(hint(n) * size for n in value.meta.stride)


def differs(value: TensorValue, strides: tuple[int, ...]) -> bool:
    """Whether an array of numpy's with these strides lies otherwise than the tensor of the graph."""
    return strides != strides_now(value, Layout()) and (is_of_data(value) or value.meta.numel() != 0)


def is_only_named_otherwise(value: TensorValue, strides: tuple[int, ...]) -> bool:
    """Whether the strides differ only where they are never used: of dimensions with one element."""
    pairs = zip(shape_now(value), strides, strides_now(value, Layout()), strict=True)
    return all(n == 1 or a == b for n, a, b in pairs)


def layout_of(array: Any, value: TensorValue) -> Layout:
    """The layout of numpy's result, for the value of the graph that stands for it."""
    strides = array.strides if differs(value, array.strides) else None
    return Layout(strides, array.flags.writeable, array.flags.owndata)
