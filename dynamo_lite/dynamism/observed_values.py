"""What this room asks about the values of a call: whether one is a module, and which sizes a tensor has.

Input: any object of the program. Output: plain facts. Without torch there are neither modules nor tensors.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

_HAS_TORCH = find_spec("torch") is not None
if _HAS_TORCH:
    import torch


def is_module(value: object) -> bool:
    """True for instances of nn.Module."""
    return _HAS_TORCH and issubclass(type(value), torch.nn.Module)


def sizes_of(value: Any) -> tuple[int | None, ...] | None:
    """The sizes of a plain tensor, None in the place of one that is no int; None for other objects, and nested tensors, which have none."""
    if not _HAS_TORCH or (type(value) is not torch.Tensor and type(value) is not torch.nn.Parameter) or value.is_nested:
        return None
    return tuple([n if type(n) is int else None for n in value.shape])
