"""The sequence half of `Objects/abstract.c`, for stand-ins: Python's own `len` and `a[i]` prefer the mapping slots.

Input: any object. Output: its size, its item.
Invariant: in captured code `variables/protocol/sequence_slots.py` models each of them; the bodies here are right for sequences.
"""

from __future__ import annotations

from typing import Any


def sequence_size(a: Any) -> int:
    """`PySequence_Size`"""
    return len(a)


def need_items(a: Any) -> None:
    """Raise the TypeError of `PySequence_GetItem` if `a` has no slot for items."""


def sequence_item(a: Any, i: int) -> Any:
    """`PySequence_GetItem`"""
    return a[i]
