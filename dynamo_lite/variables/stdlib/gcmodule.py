"""The garbage collector as the program sees it: `gc.collect`, `gc.is_tracked`.

Input: the calling frame; a tracker. Output: for a collection an object that the program can't use; for `is_tracked` whether the collector
tracks the object.
Invariant: garbage from before the call of the frame is collected when the guards begin, as a collector may do at any time. A frame that
has dropped no object from before has made no other garbage that the program could notice.
Mirrors `Modules/gcmodule.c` (`Python/gc.c`).
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

from dynamo_lite.exc import GarbageCollected, Restart, unsupported
from dynamo_lite.isa.canon import Op
from dynamo_lite.isa.typeobject import Py_TPFLAGS_HAVE_GC, flags
from dynamo_lite.variables.builtin.dict import DictVariable
from dynamo_lite.variables.builtin.tuple import TupleVariable
from dynamo_lite.variables.objects.weakref import is_alive, still_held
from dynamo_lite.variables.protocol.base import VariableTracker, is_lazy
from dynamo_lite.variables.protocol.constant import ATOMIC_TYPES, ConstantVariable, boolean
from dynamo_lite.variables.protocol.dispatch import builtin
from dynamo_lite.variables.protocol.native import NativeVariable, host_index

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.interp.frame import Frame


class CollectedVariable(NativeVariable):
    """How many objects a collection has found: nobody knows before the program runs."""

    def python_type(self) -> type:
        return int  # of which it is not the model

    def refuse(self, tx: Frame, *args: Any) -> VariableTracker:
        return unsupported("call-c-function", "what gc.collect() returns")

    tp_hash = tp_repr = tp_richcompare = nb_bool = nb_index = nb_int = nb_float = refuse

    def emit_new(self, cg: Codegen) -> None:
        self.refuse(None)


@builtin(gc.collect)
def gc_collect(tx: Frame, generation: VariableTracker | None = None) -> VariableTracker:
    tr = tx.tr
    wanted = 2 if generation is None else host_index(tx, generation)
    if not 0 <= wanted <= 2:
        return tx.raises(ValueError, "invalid generation")
    if tx.lifted.instrs[tx.ip].op is not Op.POP_TOP or not tr.graph.is_empty or _may_have_made_garbage(tx):
        return unsupported("call-c-function", "gc.collect() in the middle of what it could collect")
    if not tr.facts.collected:
        gc.collect(wanted)  # what finalizers do now is there when the frame is followed
        raise Restart("garbage is collected first", fact=GarbageCollected())
    tr.guards.global_state(lambda: gc.collect(wanted) >= 0, "garbage is collected first")
    return CollectedVariable()


def _may_have_made_garbage(tx: Frame) -> bool:
    """Whether the frame has let go of objects whose end could be noticed. New ones with finalizers or callbacks break by themselves."""
    tr = tx.tr
    if tr.effects.mutations or tr.classes.new:  # which their bases know of
        return True
    referents = [vt.target for table in (tr.lifetimes.references, tr.lifetimes.proxies) for vt in table.values()]
    if not all(is_alive(tx, target) for target in referents):
        return True
    return not all(
        vt is None or type(_value(vt)) in ATOMIC_TYPES or still_held(tx, slot, vt)
        for slot, vt in enumerate(tr.root.arguments)
    )


def _value(vt: VariableTracker) -> Any:
    return vt.__dict__["_lazy"][1] if is_lazy(vt) else vt.value


def is_tracked(v: VariableTracker) -> bool | None:
    """Whether the collector tracks an object; None where that hangs on what it has done so far."""
    cls = v.python_type()
    if not flags(cls) & Py_TPFLAGS_HAVE_GC:
        return False
    if cls not in (tuple, dict):
        return True
    if v.source is not None or not isinstance(v, (TupleVariable, DictVariable)):
        return None
    items = v.items if isinstance(v, TupleVariable) else [part for pair in v.pairs() for part in pair]
    return True if any(is_tracked(item) for item in items) else None


@builtin(gc.is_tracked)
def gc_is_tracked(tx: Frame, obj: VariableTracker, /) -> VariableTracker:
    if isinstance(obj, ConstantVariable) and not flags(type(obj.value)) & Py_TPFLAGS_HAVE_GC:
        return boolean(False)
    tracked = is_tracked(obj)
    return (
        boolean(tracked)
        if tracked is not None
        else unsupported("call-c-function", "gc.is_tracked() of a tuple or dict")
    )
