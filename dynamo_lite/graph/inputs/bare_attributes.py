"""Attributes of tensors that are read and written below `__torch_function__`: dynamo_lite's own accesses, of which the program's classes
and modes are told nothing.

Input: a real tensor of any class. Output: the attribute. The functions are called by the analysis, by guards and by the code that replaces
a frame. Invariant: torch's flag that skips the next question (`_skip_one_hop_torch_function`) is what it was.
Mirrors `torch/csrc/utils/disable_torch_function.cpp`.
"""

from __future__ import annotations

import torch

_C = torch._C

SKIPS_NEXT = getattr(_C, "_peek_should_skip_torch_function", None)


class untold:
    """A context in which no class and no mode is asked. Guards enter it at each call."""

    __slots__ = "_below", "_skips_next"

    def __enter__(self) -> None:
        self._skips_next = SKIPS_NEXT is not None and SKIPS_NEXT()
        self._below = _C.DisableTorchFunction()
        self._below.__enter__()

    def __exit__(self, *error: object) -> None:
        self._below.__exit__(*error)
        if self._skips_next:  # it is for the next call of a torch function, and an access here takes it away
            _C._set_skip_next_torch_function(True)


def grad_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """`tensor.grad`"""
    with untold():
        return _C.TensorBase.grad.__get__(tensor)


def is_leaf_of(tensor: torch.Tensor) -> bool:
    """`tensor.is_leaf`"""
    with untold():
        return _C.TensorBase.is_leaf.__get__(tensor)


def is_inference_of(tensor: torch.Tensor) -> bool:
    """`tensor.is_inference()`"""
    with untold():
        return _C.TensorBase.is_inference(tensor)


def set_grad(tensor: torch.Tensor, value: torch.Tensor | None) -> None:
    """`tensor.grad = value`"""
    with untold():
        _C.TensorBase.grad.__set__(tensor, value)


def set_data(tensor: torch.Tensor, value: torch.Tensor) -> None:
    """`tensor.data = value`"""
    with untold():
        _C.TensorBase.data.__set__(tensor, value)
