"""Functions of `sys` and `warnings` that ask about the interpreter or the running frames.

Input: nothing but the calling frame. Output: the handled exception; settings of the interpreter, guarded.
Invariant: what looks at the calling frames gets real ones.
Mirrors `Python/sysmodule.c`, `Python/_warnings.c`.
"""

from __future__ import annotations

import gc
import sys
import warnings
from typing import TYPE_CHECKING, Any

from dynamo_lite._eval_frame import program_recursion_limit
from dynamo_lite.guards import ir
from dynamo_lite.variables.builtin.tuple import TupleVariable
from dynamo_lite.variables.protocol.base import VariableTracker
from dynamo_lite.variables.protocol.constant import NONE, ConstantVariable
from dynamo_lite.variables.protocol.dispatch import builtin, pure, refuse
from dynamo_lite.variables.protocol.native import NativeVariable, emit_call

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.guards.ir import GuardNode
    from dynamo_lite.interp.frame import Frame

pure(sys.intern)


@builtin(sys.exc_info)
def sys_exc_info(tx: Frame, /) -> VariableTracker:
    exc = tx.tr.thread.active_exception()
    if exc is None:
        return TupleVariable([NONE, NONE, NONE])
    return TupleVariable([tx.tr.type_of(tx, exc), exc, exc.get(tx, "__traceback__")])


@builtin(sys.exception)
def sys_exception(tx: Frame, /) -> VariableTracker:
    return tx.tr.thread.active_exception() or NONE


refuse("call-print", warnings.warn, context="warnings.warn()", sees_callers=True)


class FilterVersion(NativeVariable):
    """The number by which modules know that the warning filters have changed; a change is announced with the others."""

    def __init__(self, source: GuardNode | None) -> None:
        self.source = source

    def python_type(self) -> type:
        return FilterVersion

    def emit_update(self, cg: Codegen) -> None:
        emit_call(cg, warnings._filters_mutated)
        cg.asm.pop_top()


if hasattr(warnings, "_filters_mutated"):

    @builtin(warnings._filters_mutated)
    def filters_mutated(tx: Frame, /) -> VariableTracker:
        tx.tr.effects.mutating(FilterVersion(tx.tr.constant_source(warnings)))
        return NONE


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
