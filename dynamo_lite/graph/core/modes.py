"""The program's function modes, `FakeTensorMode` and switch of the `__torch_function__` protocol, while a frame is analysed or a graph
runs.

Input: torch's stack of function modes and its switch of the protocol, at an analysis or at a call of a compiled graph. Output: the stack
without the modes of the program, which would see every torch function that anybody calls, and the protocol switched off for operators
about which the trace has asked the subclasses already. The trace knows what was taken off. During an analysis, and during the
examination of a graph that failed, the program's `FakeTensorMode` is off torch's stack too: the analysis makes fake tensors of its own.
Where an operator fails, torch's masks of dispatch keys are put back too. Where a run of a graph stops half way, its inference modes are
left.
Invariant: afterwards the stacks and the switch are what they were. Contexts of a default device stay: they change what operators make.
Mirrors `torch/csrc/autograd/python_torch_functions_manual.cpp`, `torch/csrc/utils/disable_torch_function.cpp` and `torch/overrides.py`
(`_pop_mode_temporarily`).
"""

from __future__ import annotations

import contextlib
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.autograd.grad_mode import _enter_inference_mode, _exit_inference_mode
from torch.fx import Node
from torch.utils._device import DeviceContext

from dynamo_lite.exc import CAUSE, CONTEXT, TRACEBACK

_C = torch._C
_FAKE = _C._TorchDispatchModeKey.FAKE


class _Aside(threading.local):
    stack: tuple[Any, ...] = ()
    switched_off: Any = None  # what to leave at the end of an analysis below the protocol
    fake_mode: Any = None  # of the program, off the stack


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


def is_device_context(mode: object) -> bool:
    """True for what `torch.set_default_device` and `with torch.device(...)` push."""
    return type(mode) is DeviceContext


def subclasses_are_asked() -> bool:
    """Whether torch asks the classes of arguments, where the program is."""
    return _aside.switched_off is not None or _C._is_torch_function_enabled()


def go_below() -> None:
    """From now on, until the analysis ends, torch asks no class: the trace does."""
    if _C._is_torch_function_enabled():
        _aside.switched_off = _C.DisableTorchFunctionSubclass()
        _aside.switched_off.__enter__()


def below(compiled: Callable[..., Any]) -> Callable[..., Any]:
    """A graph about whose operators the classes of its tensors have been asked already."""

    def run(*args: Any) -> Any:
        with _C.DisableTorchFunctionSubclass():
            return compiled(*args)

    return run


def asking(target: Any) -> Callable[..., Any]:
    """For a graph that runs below the protocol: a function, or a method by its name, about which torch asks classes all the same."""
    is_method = isinstance(target, str)

    def run(*args: Any, **kwargs: Any) -> Any:
        with _C._EnableTorchFunction():
            return getattr(args[0], target)(*args[1:], **kwargs) if is_method else target(*args, **kwargs)

    run.__name__ = target if is_method else target.__name__
    return run


def as_now(body: Callable[..., Any]) -> Callable[..., Any]:
    """A function that a graph runs later, when gradients are computed: torch asks the same classes then as it does now."""
    return body if _C._is_torch_function_enabled() else below(body)


def fake_mode() -> Any:
    """The program's `FakeTensorMode` around the frame under analysis, None if there is none."""
    return _aside.fake_mode


def active_fake_mode() -> Any:
    """The `FakeTensorMode` on torch's stack, None if there is none."""
    return _C._get_dispatch_mode(_FAKE)


@contextlib.contextmanager
def fake_mode_aside() -> Iterator[None]:
    """Take a `FakeTensorMode` off torch's stack, if there is one."""
    outer, found = _aside.fake_mode, _C._unset_dispatch_mode(_FAKE)
    _aside.fake_mode = found
    try:
        yield
    finally:
        _aside.fake_mode = outer
        if found is not None:
            _C._set_dispatch_mode(found)


@contextlib.contextmanager
def _fake_mode_back() -> Iterator[None]:
    if _aside.fake_mode is None or active_fake_mode() is not None:
        yield
        return
    _C._set_dispatch_mode(_aside.fake_mode)
    try:
        yield
    finally:
        _C._unset_dispatch_mode(_FAKE)


@contextlib.contextmanager
def aside() -> Iterator[None]:
    """Take the program's modes off the stack."""
    outer, _aside.switched_off = _aside.switched_off, None
    try:
        with fake_mode_aside(), _modes_aside():
            yield
    finally:
        if _aside.switched_off is not None:
            _aside.switched_off.__exit__(None, None, None)
        _aside.switched_off = outer


@contextlib.contextmanager
def _modes_aside() -> Iterator[None]:
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
    """The stacks and the switch as the program has them, for a moment."""
    if _aside.switched_off is not None:
        with _fake_mode_back(), _C._EnableTorchFunction(), _modes_back():
            yield
    else:
        with _fake_mode_back(), _modes_back():
            yield


@contextlib.contextmanager
def _modes_back() -> Iterator[None]:
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
        with _modes_aside():
            return compiled(*args)

    return run


class dispatch_keys_kept:
    """A context for an operator that may raise. Torch keeps guards on dispatch keys in local variables (`torch/_tensor_str.py`). Where an
    exception ends the operator, they live as long as its traceback, end in any order, and leave the thread with the masks of the middle of
    the operator. So the frames of the exception are cleared at once, then the masks are set to those from before. The exception that
    the program is handling is not followed: its frames are the program's."""

    def __enter__(self) -> None:
        self._handled = sys.exc_info()[1]
        masks = _C._dispatch_tls_local_include_set(), _C._dispatch_tls_local_exclude_set()
        self._guard = _C._ForceDispatchKeyGuard(*masks)
        self._guard.__enter__()

    def __exit__(self, kind: Any, error: BaseException | None, place: Any) -> None:
        pending, seen = [error], {id(self._handled)}
        while pending:  # chains of causes and contexts may have cycles
            each = pending.pop()
            if each is not None and id(each) not in seen:
                seen.add(id(each))
                traceback.clear_frames(TRACEBACK.__get__(each))
                pending += [CAUSE.__get__(each), CONTEXT.__get__(each)]
        self._handled = None
        self._guard.__exit__(None, None, None)


@contextlib.contextmanager
def inference_modes_left(values: dict[Node, Any]) -> Iterator[None]:
    """A run of a graph that may end in any place. What is left at the end, the innermost first, are the inference modes that the graph
    has entered and not left: each would otherwise end when it is freed, and put back the state of the thread from when it began, with the
    contexts that were around the run. `values`: of the nodes that have run, in their order. Those that a run has left open before are
    entered again, for it goes on."""
    for node in _open_inference_modes(values):
        values[node] = _enter_inference_mode(*node.args)
    try:
        yield
    finally:
        for node in reversed(_open_inference_modes(values)):
            _exit_inference_mode(values[node])


def _open_inference_modes(values: dict[Node, Any]) -> list[Node]:
    return [
        node
        for node in values
        if node.target is _enter_inference_mode
        and not any(user.target is _exit_inference_mode and user in values for user in node.users)
    ]
