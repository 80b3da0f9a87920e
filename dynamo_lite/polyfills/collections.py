"""Stand-ins for the C half of `collections`."""

from __future__ import annotations

import collections
from collections.abc import Iterable
from typing import Any

from .registry import polyfill


@polyfill(collections._count_elements)
def _count_elements(mapping: Any, iterable: Iterable[Any], /) -> None:
    """Counts the elements: what `collections.Counter` is made by."""
    get = mapping.get
    for element in iterable:
        if type(element).__hash__ is None:
            hash(element)  # raises; tables may use other words
        mapping[element] = get(element, 0) + 1
