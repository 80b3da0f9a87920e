"""Objects whose end the program can see.

Input: a trace. Output: breaks: at the step where the program first changed an object that now lets go of such an object, or where it binds
a variable anew that held one.
Invariant: changes are replayed after the graph has run, so what they let go dies later than in eager execution; nothing whose death
runs code of the program may die in a replay.
Mirrors `PyObject_CallFinalizerFromDealloc` (`Objects/object.c`) and `slot_tp_finalize` (`Objects/typeobject.c`).
"""

from __future__ import annotations

import gc
import types
from collections.abc import Sequence
from typing import Any

from .exc import SkipFrame, Unsupported, unsupported
from .guards import ir
from .guards.mirror import has_finalizer
from .isa.canon import Op
from .isa.lift import lift
from .variables.base import MISSING
from .variables.constant import ATOMIC_TYPES

MAX_FOLLOWED = 1000
"""Objects looked at for one that is let go. What is larger than that is taken to outlive the call."""

_BINDING = frozenset({Op.STORE_FAST, Op.DELETE_FAST, Op.STORE_DEREF, Op.DELETE_DEREF, Op.LOAD_FAST_AND_CLEAR})
_HELD_ELSEWHERE = (
    type,
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.CodeType,
    types.FrameType,
)


def check_finalizers(tr: Any) -> None:
    """Raise `Unsupported` if replaying the changes would end an object too late. What is let go without that is guarded."""
    guard_arguments(tr)
    for vt in tr.mutations:
        for source, real in vt.let_go(tr)[:MAX_FOLLOWED]:
            found = _finalized(real)
            if found is not None:
                reason = Unsupported("del-finalizer", found.__qualname__)
                reason.break_step = vt.mutated_at
                raise reason
            if source is not None and not _has_known_type(source):
                tr.guard(source, ir.NO_FINALIZER)


def watch_arguments(tr: Any) -> None:
    """Have the trace break where a variable that is bound anew may hold the last reference to an argument with a finalizer."""
    watched: dict[int, Any] = {}
    for slot, found in tr.analysis.rebound_arguments:
        if found is not None:
            tr.guard(tr.source(None, ir.LOCAL, slot), ir.TYPE_IS, type(tr.analysis.values[slot]))
            watched[id(tr.arguments[slot])] = tr.arguments[slot]
            if lift(tr.root.code).is_cell[slot]:
                raise SkipFrame(found.__qualname__, Unsupported("del-finalizer", found.__qualname__))
    if watched:
        tr.finalized = list(watched.values())
        tr.handlers = list(tr.handlers)
        for op in (Op.STORE_FAST, Op.DELETE_FAST):
            tr.handlers[op] = _watching(watched, tr.handlers[op])


def _watching(watched: dict[int, Any], handler: Any) -> Any:
    def watch(f: Any, instr: Any) -> Any:
        if f.parent is None:
            held = f.locals[instr.arg]
            if id(held) in watched and sum(other is held for other in (*f.stack, *f.locals)) == 1:
                unsupported("del-finalizer", f"the variable {f.lifted.local_names[instr.arg]}")
        return handler(f, instr)

    return watch


def loses_argument(tr: Any, result: Any) -> bool:
    """Whether an argument with a finalizer has died on the way, nobody knows where: its variable was only its first place."""
    kept = [result, *tr.root_frame.held()]
    return any(not tr.is_reachable(vt, kept) for vt in tr.finalized)


def guard_arguments(tr: Any) -> None:
    """Other arguments of variables that are bound anew have no finalizer at the next call either."""
    for slot, _ in tr.analysis.rebound_arguments:
        source = tr.source(None, ir.LOCAL, slot)
        if not _has_known_type(source):
            tr.guard(source, ir.NO_FINALIZER)


def rebound_arguments(code: types.CodeType, values: Sequence[Any]) -> list[tuple[int, type | None]]:
    """`(slot, class that has the finalizer)` of the arguments whose variables the code binds anew; None for no finalizer."""
    rebound = sorted({instr.arg for instr in lift(code).instrs if instr.op in _BINDING})
    return [(slot, _finalized(values[slot])) for slot in rebound if slot < len(values) and values[slot] is not MISSING]


def _has_known_type(source: Any) -> bool:
    return any(check.kind in (ir.TYPE_IS, ir.REF_TYPE_IS, ir.IS, ir.REF_IS, ir.TENSOR) for check in source.checks)


def _finalized(real: Any) -> type | None:
    """The class of an object that would die with `real` and whose death runs code of the program, if it holds the last references."""
    pending, seen = [] if issubclass(type(real), _HELD_ELSEWHERE) else [real], {id(real)}
    while pending and len(seen) < MAX_FOLLOWED:
        value = pending.pop()
        cls = type(value)
        if has_finalizer(cls) or (cls is types.GeneratorType and value.gi_suspended):
            return cls
        for child in _referents(value):
            if (
                type(child) not in ATOMIC_TYPES
                and id(child) not in seen
                and not issubclass(type(child), _HELD_ELSEWHERE)
            ):
                seen.add(id(child))
                pending.append(child)
    return None


def _referents(value: Any) -> list[Any]:
    # Since 3.13 the values in an object's dictionary may be the object's: the dictionary does not show them to the collector.
    items = list(dict.values(value)) if issubclass(type(value), dict) else []
    return items + gc.get_referents(value)
