"""Copies of tensors that share memory exactly as their originals do."""

from __future__ import annotations

from typing import Any


def memory_of(value: Any) -> int:
    """Equal for tensors in the same memory."""
    return value.untyped_storage()._cdata


def copy_of(value: Any, copies: dict[int, Any]) -> Any:
    """A copy with the same sizes, strides and position in its memory; that is copied once and kept in `copies`. Values that are no
    tensors are returned as they are."""
    import torch

    if not isinstance(value, torch.Tensor):
        return value
    memory = memory_of(value)
    if memory not in copies:
        copies[memory] = value.untyped_storage().clone()
    copy = torch.empty(0, dtype=value.dtype, device=value.device)
    copy.set_(copies[memory], value.storage_offset(), value.shape, value.stride())
    return copy.requires_grad_(value.requires_grad)
