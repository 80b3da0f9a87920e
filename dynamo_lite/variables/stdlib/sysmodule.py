"""Functions of `sys` and `warnings` that ask about the interpreter or the running frames.

Input: nothing but the calling frame. Output: the handled exception; settings of the interpreter, guarded.
Invariant: what looks at the calling frames gets real ones.
Mirrors `Python/sysmodule.c`, `Python/_warnings.c`.
"""

from __future__ import annotations

import _warnings
import gc
import sys
import types
import warnings
from typing import TYPE_CHECKING, Any

from dynamo_lite._eval_frame import program_recursion_limit
from dynamo_lite.exc import unsupported
from dynamo_lite.guards import ir
from dynamo_lite.variables.builtin.tuple import TupleVariable
from dynamo_lite.variables.protocol.base import VariableTracker
from dynamo_lite.variables.protocol.constant import NONE, ConstantVariable
from dynamo_lite.variables.protocol.dispatch import builtin, pure
from dynamo_lite.variables.protocol.native import NativeVariable, emit_call
from dynamo_lite.variables.protocol.trace_rules import WARNINGS, is_one_step

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.guards.ir import GuardNode
    from dynamo_lite.interp.frame import Frame

pure(sys.intern)

ONE = ConstantVariable(1)


@builtin(sys.exc_info)
def sys_exc_info(tx: Frame, /) -> VariableTracker:
    exc = tx.tr.thread.active_exception()
    if exc is None:
        return TupleVariable([NONE, NONE, NONE])
    return TupleVariable([tx.tr.type_of(tx, exc), exc, exc.get(tx, "__traceback__")])


@builtin(sys.exception)
def sys_exception(tx: Frame, /) -> VariableTracker:
    return tx.tr.thread.active_exception() or NONE


class IssuedWarning(NativeVariable):
    """A warning of constants: it is issued behind the graph, as if at the line that `place` (file, line and globals) names."""

    def __init__(
        self, source: GuardNode | None, text: str, category: type, place: tuple[str, int, dict[str, Any]]
    ) -> None:
        self.source = source
        self.arguments = (text, category, *place)

    def python_type(self) -> type:
        return IssuedWarning

    def differs(self) -> bool:
        return False  # an exported graph does without

    def emit_update(self, cg: Codegen) -> None:
        cg.load_callable(issue)
        for argument in self.arguments:
            cg.load_const(argument)
        cg.asm.call(len(self.arguments))
        cg.asm.pop_top()


def issue(text: str, category: type, filename: str, lineno: int, space: dict[str, Any]) -> None:
    """`warnings.warn(text, category)` of a frame with these globals."""
    module = space.get("__name__", "<string>")
    registry = space.setdefault("__warningregistry__", {})
    warnings.warn_explicit(text, category, filename, lineno, module, registry)


def shows_warnings() -> bool:
    """Whether a warning is written or dropped, as Python itself does it: none is raised, and no function of the program is told."""
    show: Any = warnings._showwarnmsg_impl  # type: ignore[attr-defined]
    return (
        warnings.showwarning is warnings._showwarning_orig  # type: ignore[attr-defined]
        and warnings.formatwarning is warnings._formatwarning_orig  # type: ignore[attr-defined]
        and getattr(show, "__globals__", {}).get("__name__") in WARNINGS
        and not getattr(sys.flags, "context_aware_warnings", False)  # from 3.14 on: other filters than these
        and warnings.defaultaction != "error"  # type: ignore[attr-defined]
        and all(action != "error" for action, *_ in warnings.filters)
    )


@builtin(warnings.warn)
def warn(
    tx: Frame,
    message: VariableTracker,
    category: VariableTracker = NONE,
    stacklevel: VariableTracker = ONE,
    **other: VariableTracker,
) -> VariableTracker:
    given = (message, category, stacklevel)
    values = [vt.as_python_constant() for vt in given] if all(vt.is_python_constant() for vt in given) else [None] * 3
    text, kind, level = values[0], UserWarning if values[1] is None else values[1], values[2]
    frame: Frame | None = tx
    for _ in range(level - 1 if type(level) is int else 0):
        frame = None if frame is None else frame.parent
    changed = any(type(vt) is FilterVersion or vt.value is vars(warnings) for vt in tx.tr.effects.mutations)
    is_plain = not other and type(text) is str and type(level) is int and _is_of_c(kind)
    if frame is None or frame.globals.is_fixed or changed or not is_plain or not shows_warnings():
        return tx.needs_real_callers("call-print", "warnings.warn()")
    tx.tr.guards.global_state(shows_warnings, "warnings are written, not raised")
    place = (frame.code.co_filename, frame.lineno, frame.globals.value)
    tx.tr.effects.mutating(IssuedWarning(tx.tr.constant_source(warnings), text, kind, place))
    return NONE


def _is_of_c(category: Any) -> bool:
    """Whether a class of warnings has instances and texts that no code of the program makes."""
    parts = (
        (category.__init__, category.__str__)
        if issubclass(type(category), type) and issubclass(category, Warning)
        else (None,)
    )
    return (
        all(type(part) is types.WrapperDescriptorType for part in parts)
        and type(category.__new__) is types.BuiltinFunctionType
    )


class FilterVersion(NativeVariable):
    """The number by which modules know that the warning filters have changed; a change is announced with the others."""

    def __init__(self, source: GuardNode | None) -> None:
        self.source = source

    def python_type(self) -> type:
        return FilterVersion

    def emit_update(self, cg: Codegen) -> None:
        emit_call(cg, _tell_of_filters)
        cg.asm.pop_top()


def filters_mutated(tx: Frame, /) -> VariableTracker:
    if any(type(vt) is IssuedWarning for vt in tx.tr.effects.mutations):
        return unsupported("call-print", "filters that change behind warnings.warn()")
    tx.tr.effects.mutating(FilterVersion(tx.tr.constant_source(warnings)))
    return NONE


if hasattr(warnings, "_filters_mutated_lock_held"):  # from 3.14 on

    def _tell_of_filters() -> None:
        with warnings._lock:
            warnings._filters_mutated_lock_held()

    @builtin(_warnings._acquire_lock, _warnings._release_lock)
    def warnings_lock(tx: Frame, /) -> VariableTracker:
        """Nothing happens while the functions of `warnings` are captured, each of them as a whole."""
        if not is_one_step(tx.parent.globals.value):
            unsupported("call-c-function", "the lock of the warnings")
        return NONE

    builtin(warnings._filters_mutated_lock_held)(filters_mutated)
else:
    _tell_of_filters = warnings._filters_mutated
    builtin(warnings._filters_mutated)(filters_mutated)


def _setting(function: Any, ask: Any = None) -> None:
    """A setting of the interpreter is read now, and compared by the guards at each call; `ask` tells the program's own during an
    analysis."""

    def read(module: Any) -> Any:
        return (ask or function)()

    @builtin(function)
    def setting(tx: Frame, /) -> VariableTracker:
        return tx.tr.wrap(read(sys), tx.tr.source(tx.tr.constant_source(sys), ir.CALL, read))


for _function in (
    sys.get_int_max_str_digits,
    sys.getdefaultencoding,
    sys.getfilesystemencoding,
    sys.gettrace,
    sys.getprofile,
):
    _setting(_function)
_setting(sys.getrecursionlimit, program_recursion_limit)


@builtin(sys.getsizeof)
def sys_getsizeof(tx: Frame, object: VariableTracker, default: VariableTracker = NONE) -> VariableTracker:
    """How big most objects are depends on how they came to be."""
    if isinstance(object, ConstantVariable) and type(object.value) in _OF_ONE_SIZE:
        return ConstantVariable(sys.getsizeof(object.value))
    return look_at_memory(tx)


_OF_ONE_SIZE = (type(None), bool, int, float, complex)


@builtin(gc.get_objects)
def look_at_memory(tx: Frame, /, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    """How many objects there are depends on what the engine does between two looks."""
    return tx.needs_real_frame("frame-introspection", "sys.getsizeof() or gc.get_objects()", callees=False)


@builtin(sys.getrefcount, gc.get_referrers)
def count_references(tx: Frame, /, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    """The references that a program has to its objects are only all there if its frames are real."""
    return tx.needs_real_frame("frame-introspection", "references counted")


@builtin(sys.settrace, sys.setprofile)
def set_hook(tx: Frame, /, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    """What such a hook is told about are the frames and lines of the program."""
    if tx.parent is None:
        return tx.needs_real_frame("debugger", "sys.settrace() or sys.setprofile()")
    return tx.needs_real_callers("debugger", "sys.settrace() or sys.setprofile()")
