"""`super`: attribute lookup that starts after a class in the MRO of an object's type.

Input: trackers of the class and of the object. Output: `SuperVariable`.
Invariant: a lookup rests, by guards, on what every class that it passes has under the name.
Mirrors the super part of `Objects/typeobject.c` and LOAD_SUPER_ATTR of `Python/bytecodes.c`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dynamo_lite.exc import unsupported
from dynamo_lite.guards import ir
from dynamo_lite.isa import c_facts
from dynamo_lite.variables.protocol.abstract import class_name, is_subtype, known_mro, message_name, type_name
from dynamo_lite.variables.protocol.base import Child, VariableTracker
from dynamo_lite.variables.protocol.constant import NONE, ConstantVariable, is_none
from dynamo_lite.variables.protocol.descr import generic_getattr, getset, has_own, type_attribute
from dynamo_lite.variables.protocol.dispatch import builtin, constructor, method
from dynamo_lite.variables.protocol.native import NativeVariable, emit_call, readonly
from dynamo_lite.variables.protocol.wrap import builds

from .instancecheck import claimed_class
from .type import TypeVariable

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.guards.ir import GuardNode
    from dynamo_lite.interp.frame import Frame


class SuperVariable(NativeVariable):
    """`super(start, obj)`: `start` a class, `obj` an instance or a class or None, `obj_type` the class whose MRO is searched."""

    cls = super

    start: VariableTracker = Child(NONE, init=False)
    obj: VariableTracker | None = Child(None, init=False)
    obj_type: VariableTracker | None = Child(None, init=False)

    @classmethod
    def of(cls, tx: Frame, start: VariableTracker, obj: VariableTracker | None) -> SuperVariable:
        """A super object of exactly that type."""
        result = cls()
        result.bind(tx, start, obj)
        return result

    def bind(self, tx: Frame, start: VariableTracker, obj: VariableTracker | None) -> None:
        """`super_init_impl`."""
        if obj is not None:
            self.obj_type = check(tx, start, obj)
        self.start, self.obj = start, obj

    def tp_getattro(self, tx: Frame, name: str) -> VariableTracker:
        """`super_getattro`."""
        if self.obj_type is not None and name != "__class__":
            found = self._after_start(tx, name)
            if found is not None:
                return found
        return generic_getattr(tx, self, name)

    def _after_start(self, tx: Frame, name: str) -> VariableTracker | None:
        mro = known_mro(tx, self.obj_type.value)
        if mro is None or self.start.value not in mro:
            unsupported("class-definition", f"super() in a class whose MRO is being made: {name}")
        for base in mro[mro.index(self.start.value) + 1 :]:
            attribute = type_attribute(tx, base, name)
            if has_own(tx, base, name):
                if attribute.tp_descr_get is None:
                    return attribute
                return attribute.tp_descr_get(tx, None if self.obj is self.obj_type else self.obj, self.obj_type)
        return None

    def tp_descr_get(self, tx: Frame, obj: VariableTracker | None, cls: VariableTracker) -> VariableTracker:
        if obj is None or self.obj is not None:
            return self
        if self.python_type() is super:
            return SuperVariable.of(tx, self.start, obj)
        return tx.call(tx.tr.type_of(tx, self), [self.start, obj])

    def tp_repr(self, tx: Frame) -> VariableTracker:
        what = "NULL" if self.obj_type is None else f"<{class_name(self.obj_type.value)} object>"
        return ConstantVariable(f"<super: <class '{class_name(self.start.value)}'>, {what}>")

    def emit_new(self, cg: Codegen) -> None:
        emit_call(cg, super, *([self.start] if self.obj is None else [self.start, self.obj]))


def check(tx: Frame, start: VariableTracker, obj: VariableTracker) -> VariableTracker:
    """`supercheck`: the class in whose MRO to search."""
    if isinstance(obj, TypeVariable) and is_subtype(tx, obj.value, start.value):
        return obj
    if is_subtype(tx, obj.python_type(), start.value):
        return tx.tr.type_of(tx, obj)
    claimed = claimed_class(tx, obj)
    if isinstance(claimed, TypeVariable) and is_subtype(tx, claimed.value, start.value):
        return claimed
    is_type = isinstance(obj, TypeVariable)
    what = f"type {message_name(obj.value)}" if is_type else f"instance of {type_name(obj)}"
    return tx.raises(TypeError, c_facts.NO_BASE.format(what=what, start=message_name(start.value)))


def _reader(descriptor: Any) -> Any:
    """A function for a CALL path: a member, where the object's own lookup would search an MRO first."""

    def read(obj: object) -> Any:
        return descriptor.__get__(obj)

    return read


_READERS = {name: _reader(super.__dict__[name]) for name in ("__thisclass__", "__self__", "__self_class__")}


@builds(super)
def build_super(tr: Trace, value: object, source: GuardNode | None) -> SuperVariable:
    tr.guard(source, ir.TYPE_IS, type(value))
    result = SuperVariable()
    result.value, result.source = value, source
    parts = [tr.wrap(read(value), tr.source(source, ir.CALL, read)) for read in _READERS.values()]
    result.start, result.obj, result.obj_type = [None if is_none(part) else part for part in parts]
    return result


@constructor(super)
def new_super(tx: Frame, cls: VariableTracker, /, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    if kwargs:
        return tx.raises(TypeError, "super() takes no keyword arguments")
    if len(args) > 2:
        return tx.raises(TypeError, f"super() expected at most 2 arguments, got {len(args)}")
    result = SuperVariable()
    super_init(tx, result, *args)
    return result


@builtin(super.__new__)
def super_new(tx: Frame, cls: VariableTracker, /, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    return SuperVariable() if cls.value is super else tx.tr.new_instance(tx, cls.value)


@method(super.__init__)
def super_init(
    tx: Frame, self: SuperVariable, start: VariableTracker | None = None, obj: VariableTracker | None = None, /
) -> None:
    """`super()`, `super(start)` and `super(start, obj)`; the empty form reads the frame's `__class__` cell and first argument."""
    if start is None:
        start, obj = _zero_arguments(tx)
    elif not isinstance(start, TypeVariable):
        tx.raises(TypeError, f"super() argument 1 must be a type, not {type_name(start)}")
    self.bind(tx, start, None if obj is None or is_none(obj) else obj)


def _zero_arguments(tx: Frame) -> tuple[VariableTracker, VariableTracker]:
    if tx.code.co_argcount == 0:
        tx.raises(RuntimeError, "super(): no arguments")
    first = tx.locals[0]
    if first is not None and tx.lifted.is_cell[0]:
        first = first.get(tx)
    if first is None:
        tx.raises(RuntimeError, "super(): arg[0] deleted")
    if "__class__" not in tx.code.co_freevars:
        tx.raises(RuntimeError, "super(): __class__ cell not found")
    slot = tx.lifted.first_free_slot + tx.code.co_freevars.index("__class__")
    start = tx.locals[slot].get(tx)
    if start is None:
        tx.raises(RuntimeError, "super(): empty __class__ cell")
    if not isinstance(start, TypeVariable):
        tx.raises(RuntimeError, f"super(): __class__ is not a type ({type_name(start)})")
    return start, first


@method(super.__getattribute__)
def super_getattribute(tx: Frame, self: SuperVariable, name: VariableTracker, /) -> VariableTracker:
    return SuperVariable.tp_getattro(self, tx, name.as_python_constant())


for _name in ("__thisclass__", "__self__", "__self_class__"):
    _part = {"__thisclass__": "start", "__self__": "obj", "__self_class__": "obj_type"}[_name]

    @getset(super.__dict__[_name], readonly(super.__dict__[_name]))
    def super_member(tx: Frame, self: Any, /, part: str = _part) -> VariableTracker:
        return getattr(self, part) or NONE


def super_attribute(
    tx: Frame, super_type: VariableTracker, cls: VariableTracker, self: VariableTracker, name: str
) -> VariableTracker:
    """LOAD_SUPER_ATTR; a `super` that was shadowed is called like any callable."""
    if super_type.value is not super:
        return tx.call(super_type, [cls, self]).tp_getattro(tx, name)
    if not isinstance(cls, TypeVariable):
        tx.raises(TypeError, f"super() argument 1 must be a type, not {type_name(cls)}")
    return SuperVariable.of(tx, cls, None if is_none(self) else self).tp_getattro(tx, name)
