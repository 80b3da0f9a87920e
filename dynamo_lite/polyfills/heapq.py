"""Stand-ins for the C half of `heapq`. Comparisons are made in the order in which the C code makes them."""

from __future__ import annotations

import heapq
from typing import Any

from .c_calls import leave_to_c
from .registry import polyfill


def _need_list(heap: Any) -> None:
    if not issubclass(type(heap), list):
        leave_to_c()


def _less(a: Any, b: Any) -> Any:
    return a < b


def _more(a: Any, b: Any) -> Any:
    return b < a


def _compare(heap: list[Any], before: Any, a: int, b: int) -> Any:
    """Compare two items; a comparison may not change the heap's length."""
    size = len(heap)
    result = before(heap[a], heap[b])
    if len(heap) != size:
        raise RuntimeError("list changed size during iteration")
    return result


def _sift_down(heap: list[Any], start: int, position: int, before: Any = _less) -> None:
    """Move the item at `position` up to its place (the C code's names: down towards index 0). The heap has all its items at any
    time: a comparison may look at it, or fail."""
    while position > start:
        parent = (position - 1) >> 1
        if not _compare(heap, before, position, parent):
            break
        heap[position], heap[parent] = heap[parent], heap[position]
        position = parent


def _sift_up(heap: list[Any], position: int, before: Any = _less) -> None:
    """Move the smaller child up until a leaf is reached, then the item from there to its place."""
    end, start = len(heap), position
    child = 2 * position + 1
    while child < end:
        right = child + 1
        if right < end and not _compare(heap, before, child, right):
            child = right
        heap[position], heap[child] = heap[child], heap[position]
        position = child
        child = 2 * position + 1
    _sift_down(heap, start, position, before)


@polyfill(heapq.heappush)
def heappush(heap: list[Any], item: Any, /) -> None:
    """Push item onto the heap."""
    _need_list(heap)
    heap.append(item)
    _sift_down(heap, 0, len(heap) - 1)


@polyfill(heapq.heappop)
def heappop(heap: list[Any], /) -> Any:
    """Pop the smallest item."""
    _need_list(heap)
    return _pop(heap, _less)


@polyfill(heapq._heappop_max, check_signature=False)
def _heappop_max(heap: list[Any], /) -> Any:
    _need_list(heap)
    return _pop(heap, _more)


def _pop(heap: list[Any], before: Any) -> Any:
    if not heap:
        raise IndexError("index out of range")
    last = heap.pop()
    if not heap:
        return last
    item = heap[0]
    heap[0] = last
    _sift_up(heap, 0, before)
    return item


@polyfill(heapq.heapreplace)
def heapreplace(heap: list[Any], item: Any, /) -> Any:
    """Pop the smallest item, then push `item`."""
    _need_list(heap)
    return _replace(heap, item, _less)


@polyfill(heapq._heapreplace_max, check_signature=False)
def _heapreplace_max(heap: list[Any], item: Any, /) -> Any:
    _need_list(heap)
    return _replace(heap, item, _more)


def _replace(heap: list[Any], item: Any, before: Any) -> Any:
    if not heap:
        raise IndexError("index out of range")
    smallest = heap[0]
    heap[0] = item
    _sift_up(heap, 0, before)
    return smallest


@polyfill(heapq.heappushpop)
def heappushpop(heap: list[Any], item: Any, /) -> Any:
    """Push `item`, then pop the smallest."""
    _need_list(heap)
    if heap and heap[0] < item:
        item, heap[0] = heap[0], item
        _sift_up(heap, 0)
    return item


@polyfill(heapq.heapify)
def heapify(heap: list[Any], /) -> None:
    """Make a heap of a list, in place."""
    _need_list(heap)
    for i in reversed(range(len(heap) // 2)):
        _sift_up(heap, i)


@polyfill(heapq._heapify_max, check_signature=False)
def _heapify_max(heap: list[Any], /) -> None:
    _need_list(heap)
    for i in reversed(range(len(heap) // 2)):
        _sift_up(heap, i, _more)
