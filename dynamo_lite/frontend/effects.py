"""What the traced code has changed.

Input: announcements of models (`mutating`) before they change. Output: the changed objects that codegen has to replay, in order; guards
that keep them apart from others.
Invariant: an object that existed before the frame is announced before its first change, and is in `mutations` once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dynamo_lite.breaks import UserFrame
from dynamo_lite.exc import unsupported
from dynamo_lite.guards import ir
from dynamo_lite.variables.objects.module import GlobalsNamespace
from dynamo_lite.variables.protocol.base import VariableTracker, is_lazy
from dynamo_lite.variables.stdlib.printing import LateOutput

from .heap import is_sourced

if TYPE_CHECKING:
    from .tracing import Trace


class SideEffects:
    """The effects of one run.

    Attributes:
        changes: how many changes there were of objects that existed before.
        cached: results of functions with a cache that were followed.
        provisos: conditions that can be checked once it is known which objects escape; `check(tr, escaping)` raises where one fails.
        profilers, collectives: models of the profilers and collectives that the traced code has begun and not yet ended.
        clocks: the times that the traced code has asked for, in order, each a `ClockReading`.
        watches: functions that are told of an object that existed before, before its first change.
        writes: how many changes there were of any objects.
        stacks: where the user's program was, outermost first, at the first change of each of `mutations`, by the `id` of its model; only
            for a backend that leaves changes out.
        late_bodies: bodies that run later than they were followed; `check(tr)` raises where one would be followed differently by now.
    """

    def __init__(self, tr: Trace) -> None:
        self.tr = tr
        self.mutations: list[VariableTracker] = []
        self.changes = 0
        self.cached: list[Any] = []
        self.provisos: list[Any] = []
        self.profilers: list[Any] = []
        self.collectives: list[Any] = []
        self.clocks: list[Any] = []
        self.watches: list[Callable[[VariableTracker], None]] = []
        self.writes = 0
        self.stacks: dict[int, list[UserFrame]] = {}
        self.keeps_stacks = hasattr(tr.backend, "dynamo_lite_leaves_out")
        self.late_bodies: list[Any] = []

    def mutating(self, vt: VariableTracker) -> None:
        """Announce the change of an object. One that existed before must know how to replay the change."""
        self.writes += 1
        if vt.source is None:
            return
        self.changes += 1
        if vt.mutated:
            return
        if getattr(vt.emit_update, "__func__", None) is VariableTracker.emit_update:
            unsupported("mutation-of-unknown-object", vt.describe())
        if type(vt.value) is dict and is_namespace(vt.value) and type(vt) is not GlobalsNamespace:
            # Names are looked up in the namespace's own model, which would not see the change.
            unsupported("mutation-of-unknown-object", f"the dictionary of module {vt.value.get('__name__')}")
        for watch in self.watches:
            watch(vt)
        vt.mutated, vt.mutated_at = True, self.tr.thread.failing_step()
        self.mutations.append(vt)
        if self.keeps_stacks:
            self.stacks[id(vt)] = self.tr.thread.user_stack()

    def check_late_bodies(self) -> None:
        """A gradient may be computed now: raise where what runs then would be followed differently by now."""
        for body in self.late_bodies:
            body.check(self.tr)

    def delayed(self) -> list[str]:
        """The lines of the program that write behind the graph."""
        return [vt.place for vt in self.mutations if isinstance(vt, LateOutput)]

    def comes_from_cache(self, vt: VariableTracker) -> Any:
        """The result of a followed function with a cache that has this object; None if there is none."""
        return next((result for result in self.cached if result.holds(vt)), None)

    def guard_distinct(self) -> None:
        """Objects that were changed must not be the same as others of their type at the next call: the change would show there too.
        Nor must those that are keys."""
        guards, here = self.tr.guards, self.tr.thread.here()
        changed = {id(self._owner(vt)): self._owner(vt) for vt in self.mutations}
        types_ = {vt.python_type() for vt in changed.values()}
        known = list(self.tr.heap.values())  # asking a model for its type may read more of the program's objects
        for cls in types_:
            group = [vt for vt in known if not is_lazy(vt) and is_sourced(vt) and vt.python_type() is cls]
            if cls is dict:
                group = [vt for vt in group if id(vt) in changed or self._owner(vt) is vt]
            guards.distinct([vt.source for vt in group], here)
        sourced = [vt for vt in known if not is_lazy(vt) and is_sourced(vt)]
        # Two objects may have one `__dict__`, and two modules one `_parameters`: a store to an attribute of either changes it.
        for is_such in (_is_instance_dict, _is_module_dict):
            dicts = [vt for vt in sourced if is_such(vt.source)]
            if any(vt.mutated for vt in dicts):
                guards.distinct([vt.source for vt in dicts], here)
        guards.tell_apart()

    def _owner(self, vt: VariableTracker) -> VariableTracker:
        """The instance whose attribute dictionary `vt` is (nn.Module keeps three more), else `vt`: such a dictionary is nobody else's."""
        node = vt.source.parent if _is_module_dict(vt.source) else vt.source
        if not _is_instance_dict(node):
            return vt
        return next((o for o in self.tr.heap.values() if o.__dict__["source"] is node.parent), vt)


_MODULE_DICTS = frozenset({"_parameters", "_buffers", "_modules"})


def _is_instance_dict(node: ir.GuardNode | None) -> bool:
    return node is not None and node.kind == ir.INSTANCE_DICT


def _is_module_dict(node: ir.GuardNode) -> bool:
    return node.kind == ir.DICT_ITEM and node.arg in _MODULE_DICTS and _is_instance_dict(node.parent)


def is_namespace(dictionary: dict[str, Any]) -> bool:
    """True for the globals of a module or of `exec`."""
    return "__builtins__" in dictionary or "__spec__" in dictionary
