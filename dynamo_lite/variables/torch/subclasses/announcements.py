"""What torch's C code tells `__torch_function__` about a call: the function, and whose classes.

Input: a function, and what kind of object stands at each position of its call. Output: the function that overrides see, the positions whose
classes they see, and whether a TypeError of theirs is the operator's NotImplemented. torch itself is asked, with samples; answers are kept.
Invariant: no sample has data that anybody else sees. Who is asked answers with an argument; a function that asks nobody raises, or runs on
a sample.
Mirrors `torch/csrc/utils/python_arg_parser.cpp` (`handle_torch_function`, `handle_torch_function_getter`),
`torch/csrc/autograd/python_variable.cpp` and the generated `python_variable_methods.cpp`.
"""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode

from dynamo_lite.variables.protocol.descr import METHOD_DESCRIPTORS

_C = torch._C


def is_method_of_tensors(function: object) -> bool:
    """True for a method of tensors in C, and for the read or write of an attribute in C."""
    if type(function) is types.MethodWrapperType:
        function = function.__self__
    return isinstance(function, (types.GetSetDescriptorType, *METHOD_DESCRIPTORS)) and issubclass(
        function.__objclass__, _C.TensorBase
    )


@functools.cache
def asks_in_code(code: types.CodeType) -> bool:
    """Whether a Python function asks overrides itself."""
    nested = [const for const in code.co_consts if isinstance(const, types.CodeType)]
    return "handle_torch_function" in code.co_names or any(map(asks_in_code, nested))


class Told(NamedTuple):
    """What was told first: a function, and the positions of the arguments whose classes were named."""

    function: Any
    positions: frozenset[int]


class _Listener:
    """Keeps what it is told."""

    first: tuple[Any, Any] | None = None

    @classmethod
    def __torch_function__(
        cls, func: object, classes: object, args: tuple[Any, ...] = (), kwargs: object = None
    ) -> Any:
        if _Listener.first is None:
            _Listener.first = func, classes
        return args[0]


class _ListenerMode(TorchFunctionMode):
    """Sees what a mode sees, as `_Listener` does what a class sees."""

    def __torch_function__(
        self, func: object, classes: object, args: tuple[Any, ...] = (), kwargs: object = None
    ) -> Any:
        return _Listener.__torch_function__(func, classes, args, kwargs)


class _Refuses:
    """Raises a TypeError of its own."""

    @classmethod
    def __torch_function__(cls, func: object, classes: object, args: object = (), kwargs: object = None) -> Any:
        raise TypeError(_Refuses)


class _Plain(torch.Tensor):
    """A tensor that overrides nothing. It is no base of a class that does: CPython would ask that one first."""

    __torch_function__ = _C._disabled_torch_function_impl


@functools.cache
def _class_of_sample(kind: str, listener: type, position: int) -> type:
    """The class of samples of a kind, another one for each position."""
    bases: dict[str, tuple[type, ...]] = {
        "tensor": (listener, torch.Tensor),
        "object": (listener,),
        "plain": (_Plain,),
        "number": (int,),
    }
    return type(f"_Sample{position}", bases[kind], {})


def _samples(kinds: tuple[str, ...], listener: type) -> list[Any]:
    """Operands of such kinds, each of a class of its own."""
    with _C.DisableTorchFunctionSubclass():
        tensor = torch.zeros(1)
        classes = [_class_of_sample(kind, listener, position) for position, kind in enumerate(kinds)]
        return [tensor.as_subclass(cls) if issubclass(cls, torch.Tensor) else cls() for cls in classes]


def _error_of(function: Callable[..., Any], samples: list[Any], in_mode: bool) -> Exception | None:
    """The error of a call, in which the samples and perhaps a mode are asked."""
    try:
        with _C._EnableTorchFunction(), _ListenerMode() if in_mode else contextlib.nullcontext():
            function(*samples)
    except Exception as error:
        return error.with_traceback(None)
    return None


def _asks_nobody(function: Callable[..., Any]) -> bool:
    """Whether it writes or deletes an attribute past all overrides: `THPVariable_set_real` and `THPVariable_set_imag`, which nothing may
    delete."""
    is_write = type(function) is types.MethodWrapperType and function.__name__ in ("__set__", "__delete__")
    return is_write and function.__self__.__name__ in ("real", "imag")


def _overrides(kinds: tuple[str, ...]) -> bool:
    return "tensor" in kinds or "object" in kinds


@functools.cache
def told(function: Callable[..., Any], kinds: tuple[str, ...], in_mode: bool) -> Told | None:
    """What overrides see of a call with arguments of such kinds, in a mode or without. None if torch takes no such arguments, or asks
    nobody."""
    if _asks_nobody(function):
        return None
    samples = _samples(kinds, _Listener)
    _Listener.first = None
    error = _error_of(function, samples, in_mode or not _overrides(kinds))
    first, _Listener.first = _Listener.first, None
    if error is not None or first is None:
        return None
    public, classes = first
    return Told(public, frozenset(i for i, sample in enumerate(samples) if type(sample) in classes))


def public_function(function: Callable[..., Any], kinds: tuple[str, ...], in_mode: bool = False) -> Any:
    """The function that overrides see when `function` of the `operator` module meets such operands; None if it takes none."""
    found = told(function, kinds, in_mode)
    return None if found is None else found.function


@functools.cache
def declines_by_type_error(function: Callable[..., Any], kinds: tuple[str, ...]) -> bool:
    """Whether the operator takes a TypeError for a NotImplemented (`TypeError_to_NotImplemented_` in python_variable_methods.cpp). It
    raises none if it is a comparison for which something else answers."""
    if not _overrides(kinds):  # a mode raised it
        kinds = tuple("tensor" if kind == "plain" else kind for kind in kinds)
    error = _error_of(function, _samples(kinds, _Refuses), False)
    return error is None or error.args != (_Refuses,)
