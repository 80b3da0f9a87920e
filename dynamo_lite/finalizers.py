"""Objects whose end the program can see.

Input: a trace that has come to its end. Output: nothing, or the break at the step where the program first changed an object that now
lets go of such an object.
Invariant: changes are replayed after the graph has run, so what they let go dies later than in eager execution; nothing whose death
runs code of the program may die in a replay.
Mirrors `PyObject_CallFinalizerFromDealloc` (`Objects/object.c`) and `slot_tp_finalize` (`Objects/typeobject.c`).
"""

from __future__ import annotations

import gc
import types
from typing import Any

from .exc import Unsupported
from .guards import ir
from .isa.canon import Op
from .isa.lift import lift
from .variables.base import MISSING
from .variables.constant import ATOMIC_TYPES
from .variables.slot_functions import has_finalizer

MAX_FOLLOWED = 1000
"""Objects looked at for one that is let go. What is larger than that is taken to outlive the call."""

_BINDING = frozenset({Op.STORE_FAST, Op.DELETE_FAST, Op.STORE_DEREF, Op.DELETE_DEREF})
_HELD_ELSEWHERE = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.CodeType)


def check_finalizers(tr: Any) -> None:
    """Raise `Unsupported` if replaying the changes would end an object too late. What is let go without that is guarded."""
    for vt in tr.mutations:
        for source, real in vt.let_go(tr)[:MAX_FOLLOWED]:
            found = _finalized(real)
            if found is not None:
                reason = Unsupported("del-finalizer", found.__qualname__)
                reason.break_step = vt.mutated_at
                raise reason
            if source is not None and not _has_known_type(source):
                tr.guard(source, ir.NO_FINALIZER)


def rebinds_finalized(tr: Any) -> bool:
    """Whether a variable that is bound anew may have held the last reference to an argument with a finalizer."""
    rebound = {instr.arg for instr in lift(tr.root.code).instrs if instr.op in _BINDING}
    found = False
    for slot, value in enumerate(tr.analysis.values):
        if slot in rebound and value is not MISSING:
            source = tr.source(None, ir.LOCAL, slot)
            if _finalized(value) is not None:
                found = True
                tr.guard(source, ir.TYPE_IS, type(value))
            elif not _has_known_type(source):
                tr.guard(source, ir.NO_FINALIZER)
    return found


def _has_known_type(source: Any) -> bool:
    return any(check.kind in (ir.TYPE_IS, ir.REF_TYPE_IS, ir.IS, ir.REF_IS, ir.TENSOR) for check in source.checks)


def _finalized(real: Any) -> type | None:
    """The class of an object that would die with `real` and whose death runs code of the program, if it holds the last references."""
    pending, seen = [real], {id(real)}
    while pending and len(seen) < MAX_FOLLOWED:
        value = pending.pop()
        cls = type(value)
        if has_finalizer(cls) or (cls is types.GeneratorType and value.gi_suspended):
            return cls
        for child in gc.get_referents(value):
            if (
                type(child) not in ATOMIC_TYPES
                and id(child) not in seen
                and not issubclass(type(child), _HELD_ELSEWHERE)
            ):
                seen.add(id(child))
                pending.append(child)
    return None
