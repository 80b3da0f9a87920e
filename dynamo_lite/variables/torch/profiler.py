"""Profilers and annotations for profilers.

Input: `torch.profiler.profile()`, `torch.autograd.profiler.profile()`, `record_function`, ranges of ITT. Output: objects that do nothing.
Invariant: a profiler that the traced code begins and ends, and whose results it never reads, is left out; if it reads them, or the frame
ends or breaks inside the block, the graph breaks before the profiler is made. Annotations are always left out: a profiler around the
frame sees the graph, not the calls that it was made of.
Mirrors `torch/autograd/profiler.py` and `torch/profiler/profiler.py`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd import profiler as autograd_profiler
from torch.autograd.profiler import emit_itt, record_function

from dynamo_lite.exc import Unsupported, unsupported
from dynamo_lite.guards import ir
from dynamo_lite.variables.builtin.list import ListVariable
from dynamo_lite.variables.builtin.tuple import TupleVariable
from dynamo_lite.variables.objects.function import MethodVariable
from dynamo_lite.variables.protocol.abstract import get_attr
from dynamo_lite.variables.protocol.base import MISSING, VariableTracker
from dynamo_lite.variables.protocol.constant import FALSE, NONE, TRUE, ConstantVariable, is_none
from dynamo_lite.variables.protocol.descr import type_attribute
from dynamo_lite.variables.protocol.dispatch import CONSTRUCTORS, HANDLERS, PURE, builtin, constructor, method

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.interp.frame import Frame

_BOOLEANS = {True, False}
_PROFILE_OPTIONS: dict[str, set[Any]] = {
    **dict.fromkeys(
        ("record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules", "acc_events"), _BOOLEANS
    ),
    **dict.fromkeys(("experimental_config", "custom_trace_id_callback", "post_processing_timeout_s"), {None}),
}
_OPTIONS: dict[type, dict[str, set[Any]]] = {
    torch.profiler.profile: {
        **_PROFILE_OPTIONS,
        **dict.fromkeys(("schedule", "on_trace_ready", "execution_trace_observer", "use_cuda"), {None}),
    },
    autograd_profiler.profile: {
        **_PROFILE_OPTIONS,
        **dict.fromkeys(("enabled", "use_kineto"), _BOOLEANS),
        **{"use_cpu": {True}, "use_cuda": {False}, "use_device": {None}, "activity_filters": {None}},
    },
    emit_itt: dict.fromkeys(("enabled", "record_shapes"), _BOOLEANS),
}
"""Profiler → keyword → the values with which making one neither warns nor raises, and using it calls nothing of the program's."""

_RETURNED_BY_EXIT = {torch.profiler.profile: NONE, autograd_profiler.profile: FALSE, emit_itt: FALSE}


class ProfilerVariable(VariableTracker):
    """A profiler or an annotation made by the traced code. `saved` is the break that leaving it out saves."""

    def __init__(self, cls: type, saved: Unsupported, enabled: bool = True) -> None:
        self.cls = cls
        self.saved = saved
        self.enabled = enabled
        self.source = None
        self.value = MISSING

    def python_type(self) -> type:
        return self.cls

    def describe(self) -> str:
        return f"{self.cls.__module__}.{self.cls.__qualname__}"

    def tp_getattro(self, tx: Frame, name: str) -> VariableTracker:
        """The attributes that a `with` statement looks up; all others may show results of the profiler."""
        if name not in ("__enter__", "__exit__"):
            raise self.saved
        return MethodVariable(type_attribute(tx, self.cls, name), self)

    def tp_setattro(self, tx: Frame, name: str, value: VariableTracker | None) -> None:
        raise self.saved

    def emit_new(self, cg: Codegen) -> None:
        raise self.saved


def _unused(tx: Frame, cls: type) -> Unsupported:
    context = f"{cls.__module__}.{cls.__qualname__}, of which more than the block is used"
    return Unsupported("call-skipped-function", context).at(tx.tr.thread.failing_step(), tx.tr.thread.user_stack())


# -- profilers


def _is_on(module: object) -> bool:
    """Whether a profiler runs in this thread."""
    return torch.autograd._profiler_enabled()


def _none_around(tx: Frame) -> bool:
    """Whether no profiler runs around the frame, which the guards demand from then on."""
    if _is_on(autograd_profiler):
        return False
    tx.tr.guard(tx.tr.source(tx.tr.constant_source(autograd_profiler), ir.CALL, _is_on), ir.IS, False)
    return True


def _is_harmless(cls: type, kwargs: dict[str, VariableTracker]) -> bool:
    """Whether nobody but the profiler itself sees that it runs."""
    if os.environ.get("ENABLE_PYTORCH_EXECUTION_TRACE", "0") != "0":
        return False
    options = _OPTIONS[cls]
    given = dict(kwargs)
    activities = given.pop("activities", NONE) if cls is torch.profiler.profile else NONE
    for name, vt in given.items():
        if not (isinstance(vt, ConstantVariable) and vt.value in options.get(name, ())):
            return False
    if isinstance(activities, ListVariable | TupleVariable):
        supported = torch.profiler.supported_activities()
        return bool(activities.items) and all(vt.value in supported for vt in activities.items)
    return is_none(activities)


def _constructor(real: type) -> Any:
    def new_profiler(
        tx: Frame, cls: VariableTracker, /, *args: VariableTracker, **kwargs: VariableTracker
    ) -> VariableTracker:
        saved = _unused(tx, real)
        if args or not _is_harmless(real, kwargs):
            raise saved
        enabled = kwargs.get("enabled", TRUE).value
        if enabled and not _none_around(tx):
            raise saved
        return ProfilerVariable(real, saved, enabled)

    return new_profiler


for _cls in _OPTIONS:
    CONSTRUCTORS[_cls] = _constructor(_cls)


def _is_enabled(tx: Frame, self: VariableTracker, name: str) -> bool:
    """Whether entering or leaving it does anything; a break if that can't be left out."""
    if isinstance(self, ProfilerVariable):
        return self.enabled
    cls = self.python_type()
    if cls is not torch.profiler.profile and not get_attr(tx, self, "enabled").as_python_constant():
        return False
    return unsupported("call-skipped-function", f"{cls.__module__}.{cls.__qualname__}.{name}")


@builtin(*(cls.__enter__ for cls in _OPTIONS))
def profiler_enter(tx: Frame, self: VariableTracker) -> VariableTracker:
    if not _is_enabled(tx, self, "__enter__"):
        return NONE
    if tx.tr.effects.profilers:
        raise tx.tr.effects.profilers[0].saved
    tx.tr.effects.profilers.append(self)
    return self


@builtin(*(cls.__exit__ for cls in _OPTIONS))
def profiler_exit(tx: Frame, self: VariableTracker, *exc_info: VariableTracker) -> VariableTracker:
    if not _is_enabled(tx, self, "__exit__"):
        return NONE
    if self not in tx.tr.effects.profilers:
        raise self.saved
    tx.tr.effects.profilers.remove(self)
    self.enabled = False
    return _RETURNED_BY_EXIT[self.cls]


@builtin(torch.autograd._profiler_enabled)
def profiler_enabled(tx: Frame) -> VariableTracker:
    if tx.tr.effects.profilers:
        raise tx.tr.effects.profilers[0].saved
    is_on = _is_on(autograd_profiler)
    tx.tr.guard(tx.tr.source(tx.tr.constant_source(autograd_profiler), ir.CALL, _is_on), ir.IS, is_on)
    return TRUE if is_on else FALSE


# -- annotations

_CALLBACKS = "run_callbacks_on_exit"


@builtin(record_function.__enter__)
def record_enter(tx: Frame, self: VariableTracker) -> VariableTracker:
    """A profiler sees the graph, not the calls in it. If the block is left after a break, there is nothing to end."""
    name, args = (self.tp_getattro(tx, part) for part in ("name", "args"))
    if not issubclass(name.python_type(), str) or not (is_none(args) or issubclass(args.python_type(), str)):
        return unsupported("call-skipped-function", "record_function with something else than texts")
    self.tp_setattro(tx, _CALLBACKS, FALSE)
    return self


@builtin(record_function.__exit__)
def record_exit(tx: Frame, self: VariableTracker, *exc_info: VariableTracker) -> VariableTracker:
    if self.tp_getattro(tx, _CALLBACKS).as_python_constant():
        return unsupported("call-skipped-function", "record_function.__exit__ of a block that was entered before")
    self.tp_setattro(tx, _CALLBACKS, TRUE)
    return NONE


_Fast: Any = torch._C._profiler._RecordFunctionFast


@constructor(_Fast)
def new_record_function_fast(
    tx: Frame,
    cls: VariableTracker,
    name: VariableTracker,
    input_values: VariableTracker = NONE,
    keyword_values: VariableTracker = NONE,
) -> VariableTracker:
    if not (name.is_python_constant() and isinstance(name.as_python_constant(), str)):
        raise _unused(tx, _Fast)
    return ProfilerVariable(_Fast, _unused(tx, _Fast), False)


@method(_Fast.__enter__, _Fast.__exit__)
def record_function_fast(tx: Frame, self: VariableTracker, /, *exc_info: VariableTracker) -> VariableTracker:
    return NONE if isinstance(self, ProfilerVariable) else unsupported("call-c-function", self.describe())


def _annotation(tx: Frame, *message: VariableTracker) -> VariableTracker:
    return NONE


_itt: Any = getattr(torch._C, "_itt", None)
if _itt is not None:
    for _function in (_itt.rangePush, _itt.rangePop, _itt.mark):
        HANDLERS[_function] = _annotation
    PURE.add(_itt.is_available)
