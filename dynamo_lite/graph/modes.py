"""Function modes of the program that are active around a frame.

Input: torch's stack of function modes at the time of an analysis, or of a call of a compiled graph. Output: the stack without the
program's own modes, which see every torch function that anybody calls; what was taken off is known to the trace.
Invariant: afterwards the stack is what it was. Contexts of a default device stay: they change what operators make.
Mirrors `torch/csrc/autograd/python_torch_functions_manual.cpp` and `torch/overrides.py` (`_pop_mode_temporarily`).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._device import DeviceContext

_C = torch._C


class _Aside(threading.local):
    stack: tuple[Any, ...] = ()


_aside = _Aside()


def stack() -> tuple[Any, ...]:
    """The function modes now, outermost first."""
    n = _C._len_torch_function_stack()
    return tuple([_C._get_function_stack_at(i) for i in range(n)]) if n else ()


def _replace(modes: tuple[Any, ...]) -> None:
    for _ in range(_C._len_torch_function_stack()):
        _C._pop_torch_function_stack()
    for mode in modes:
        _C._push_on_torch_function_stack(mode)


def is_device_context(mode: Any) -> bool:
    """True for what `torch.set_default_device` and `with torch.device(...)` push."""
    return type(mode) is DeviceContext


@contextlib.contextmanager
def aside() -> Iterator[None]:
    """Take the program's modes off the stack."""
    before, outer = stack(), _aside.stack
    if all(map(is_device_context, before)):
        _aside.stack = ()
        try:
            yield
        finally:
            _aside.stack = outer
            if stack() != before:
                _replace(before)
        return
    _aside.stack = before
    _replace(tuple(filter(is_device_context, before)))
    try:
        yield
    finally:
        _aside.stack = outer
        _replace(before)


@contextlib.contextmanager
def back() -> Iterator[None]:
    """The stack as the program has it, for a moment."""
    if not _aside.stack:
        yield
        return
    now = stack()
    _replace(_aside.stack)
    try:
        yield
    finally:
        _replace(now)


def around() -> tuple[Any, ...]:
    """The stack that the program has around the frame under analysis, if there is more on it than contexts of a device."""
    return _aside.stack


def take_all() -> tuple[Any, ...]:
    """The stack that the program has around the frame; from now on torch has none until the analysis ends."""
    if not _aside.stack:
        _aside.stack = stack()
    _replace(())
    return _aside.stack


def without_modes(compiled: Callable[..., Any]) -> Callable[..., Any]:
    """A graph whose operators the program's modes have seen already."""

    def run(*args: Any) -> Any:
        with aside():
            return compiled(*args)

    return run
