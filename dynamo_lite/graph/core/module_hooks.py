"""Backward hooks of modules in a graph.

Input: a module and its hooks, registered under a number that the graph holds; the tensors that go into one call of the module and come out.
Output: the same tensors, on whose way back the hooks are called.
Invariant: hooks are functions of the program and run as they are, with real gradients, once per backward pass. A compiler that follows the
backward pass meets an operator which stands for the hook. Modules and hooks are held weakly here; what the graph returned holds them as
long as somebody may ask for its gradients.
Mirrors `BackwardHook` in `torch/utils/hooks.py`.
"""

from __future__ import annotations

import functools
import itertools
import sys
import warnings
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.autograd.graph import _engine_run_backward
from torch.nn.modules._functions import BackwardHookFunction

from dynamo_lite._eval_frame import Reference

_NONE_NEEDED = (
    "Full backward hook is firing when gradients are computed with respect to module outputs since no inputs require gradients. See "
    "https://docs.pytorch.org/docs/main/generated/torch.nn.Module.html#torch.nn.Module.register_full_backward_hook for more details."
)

_GRADIENTS_OF_NOTHING = (
    "Backward hook for Modules where no input requires gradient should always return None or None for all gradients."
)

_WARNING = -1
"""In the place of the number of a hook: torch's warning that the module's arguments require no gradients."""

_numbers = itertools.count()
_registered: dict[int, Registration] = {}


class Registration:
    """A module and the hooks that a call of it has."""

    def __init__(self, module: object, hooks: list[Any], pre_hooks: list[Any]) -> None:
        self.number = next(_numbers)
        self.n_hooks = len(hooks)
        self._refs = [Reference(value) for value in (module, *hooks, *pre_hooks)]
        _registered[self.number] = self
        weakref.finalize(module, _registered.pop, self.number, None)

    def objects(self) -> list[Any]:
        """The module, its hooks, its hooks before those. They live as long as guards hold, or a result of the graph does."""
        return [ref() for ref in self._refs]


class HookedCall:
    """One call of a module, with what is known on the way back: the gradients of its results. Without a number it has no hooks: the
    propagation of metadata needs none, nor does a graph which has them followed in its own backward pass."""

    def __init__(self, number: int | None = None) -> None:
        self.number = number
        self.module: Any = None
        self.hooks: list[Any] = []
        self.pre_hooks: list[Any] = []
        if number is not None:
            self.module, *hooks = _registered[number].objects()
            calls = [functools.partial(self._run, i, hook) for i, hook in enumerate(hooks)]
            n = _registered[number].n_hooks
            self.hooks, self.pre_hooks = calls[:n], calls[n:]
        self.got: tuple[Any, ...] | None = None
        self.positions: tuple[int, ...] | None = (
            None  # those of the tensors among the arguments, if some require gradients
        )
        self.n_args = 0

    def _run(self, i: int, hook: Any, *grads: tuple[Any, ...]) -> tuple[Any, ...]:
        """Call a hook with one or two tuples of gradients; its own for the first one, and the second."""
        if any(isinstance(g, FakeTensor | FunctionalTensor) for grad in grads for g in grad):
            alone = self.positions is None
            made = iter(_operator()(self.number, i, *([*grads, ()] if len(grads) == 1 else grads), alone))
            return tuple([tuple([None if g is None else next(made) for g in grad]) for grad in grads])
        return (_checked(hook(self.module, *grads), grads[0]), *grads[1:])

    def _warn(self, got: tuple[Any, ...]) -> tuple[Any, ...]:
        """Say that no argument requires gradients, at each backward pass: a compiler that traces one gets the operator."""
        return self._run(_WARNING, _warn_in_backward, got)[0]

    def on_results(self, n: int, positions: tuple[int, ...], grads: tuple[Any, ...]) -> tuple[Any, ...]:
        """The gradients of the call's results have been computed; those that replace them."""
        got = _spread(grads, positions, n)
        for hook in self.pre_hooks:
            (got,) = hook(got)
        self.got = got
        if self.positions is None:
            got = self._warn(got)
            nothing = (None,) * self.n_args
            for hook in self.hooks:
                given, got = hook(nothing, got)
                if any(g is not None for g in given):
                    raise RuntimeError(_GRADIENTS_OF_NOTHING)
            self.got = None
        return tuple([got[i] for i in positions])

    def on_arguments(self, grads: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """The gradients of the arguments have been computed; those that replace them."""
        if self.got is None:
            return None  # not by way of the call's results
        positions = self.positions or ()
        given = _spread(grads, positions, self.n_args)
        for hook in self.hooks:
            given, self.got = hook(given, self.got)
        self.got = None
        return tuple([given[i] for i in positions])


def _spread(values: tuple[Any, ...], positions: tuple[int, ...], n: int) -> tuple[Any, ...]:
    result = [None] * n
    for i, value in zip(positions, values, strict=True):
        result[i] = value
    return tuple(result)


def _checked(result: Any, given: tuple[Any, ...]) -> tuple[Any, ...]:
    if result is None:
        return given
    if len(result) != len(given):
        raise RuntimeError(
            f"Backward hook returned an invalid number of gradients, got {len(result)}, but expected {len(given)}"
        )
    return tuple(result)


def _warn_in_backward(module: Any, got: tuple[Any, ...]) -> None:
    warnings.warn(_NONE_NEEDED, stacklevel=_level_of_caller())


def warn_of_no_arguments() -> None:
    """Say what torch says where no argument of a module with hooks requires gradients, at the line of the caller."""
    warnings.warn(_NONE_NEEDED, stacklevel=2)


def _level_of_caller() -> int:
    """For its caller: the level of the line that torch's warning names, which is three frames above the one that runs the engine."""
    frame: FrameType | None = sys._getframe(1)
    level = 1
    while frame is not None and frame.f_code is not _engine_run_backward.__code__:
        frame, level = frame.f_back, level + 1
    return level + 3 if frame is not None else 1


# -- what graphs call


def arguments(call: HookedCall, n: int, positions: tuple[int, ...], *tensors: Any) -> tuple[Any, ...]:
    """The tensors among the n arguments of a call."""
    call.n_args = n
    if not any(t.requires_grad for t in tensors):
        return tensors
    call.positions = positions
    return _hooked(call, tensors, lambda given, got: call.on_arguments(given))


def results(call: HookedCall, n_args: int, n: int, positions: tuple[int, ...], *tensors: Any) -> tuple[Any, ...]:
    """The tensors among the n results of a call."""
    call.n_args = n_args
    return _hooked(call, tensors, lambda given, got: call.on_results(n, positions, got))


def _hooked(call: HookedCall, tensors: tuple[Any, ...], hook: Callable[[Any, Any], Any]) -> tuple[Any, ...]:
    made = BackwardHookFunction.apply(*tensors)
    if call.number is not None:
        next(t.grad_fn for t in made if t.requires_grad).register_hook(hook)
    return made


# -- the operator


_libraries: list[torch.library.Library] = []
"""The library of the operator, which is there as long as the process."""


@functools.cache
def _operator() -> Any:
    """`(number, i, gradients, others, alone)`: hook number `i` of a registration. It returns the new gradients, and the others for the
    sake of who has no other use for the call. `alone`: no argument of the module requires gradients."""
    library = torch.library.Library("dynamo_lite", "FRAGMENT")
    name = "module_hook"
    library.define(f"{name}(int number, int i, Tensor?[] grads, Tensor?[] others, bool alone) -> Tensor[]")
    library.impl(name, _run_hook, "CompositeExplicitAutograd")
    library.impl(name, _run_fake, "Meta")
    _libraries.append(library)
    return torch.ops.dynamo_lite.module_hook.default


def _run_hook(number: int, i: int, grads: list[Any], others: list[Any], alone: bool) -> list[Any]:
    module, *hooks = _registered[number].objects()
    if i == _WARNING:
        _warn_in_backward(module, tuple(grads))
        return _run_fake(number, i, grads, others, alone)
    # The hook may keep what it gets; Inductor reuses the memory of the arguments of operators that it does not compile.
    given = [tuple([None if g is None else g.clone() for g in some]) for some in (grads, others)]
    if i >= _registered[number].n_hooks:
        given.pop()
    made = _checked(hooks[i](module, *given), given[0])
    if alone and i < _registered[number].n_hooks and any(m is not None for m in made):
        raise RuntimeError(_GRADIENTS_OF_NOTHING)
    return [
        *(_like(g, m) for g, m in zip(grads, made, strict=True) if g is not None),
        *_run_fake(number, i, [], others, alone),
    ]


def _run_fake(number: int, i: int, grads: list[Any], others: list[Any], alone: bool) -> list[Any]:
    return [g.clone() for g in (*grads, *others) if g is not None]


def _like(grad: torch.Tensor, made: Any) -> torch.Tensor:
    """The gradient that a hook returned, in memory of its own and laid out as the compiler expects."""
    if made is None:
        return torch.zeros_like(grad)
    if made.shape != grad.shape:
        raise RuntimeError(f"a backward hook made a gradient of {list(made.shape)} from one of {list(grad.shape)}")
    return torch.empty_like(grad).copy_(made)


# -- lifetimes
