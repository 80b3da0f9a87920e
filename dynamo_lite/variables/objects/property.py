"""Properties, static methods and class methods: descriptors that hold functions of the program.

Input: a real descriptor. Output: `PropertyVariable`, `StaticMethodVariable`, `ClassMethodVariable`, for subclasses of these types too.
Invariant: what a descriptor holds is read, and guarded, when it is used. Making one, and copies of a property, break the graph.
Mirrors the property part of `Objects/descrobject.c`, and classmethod and staticmethod of `Objects/funcobject.c`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dynamo_lite.exc import unsupported
from dynamo_lite.guards import ir
from dynamo_lite.variables.protocol.base import MISSING, Children, Plain, VariableTracker
from dynamo_lite.variables.protocol.constant import NONE, is_none
from dynamo_lite.variables.protocol.descr import generic_getattr, getset
from dynamo_lite.variables.protocol.native import NativeVariable, readonly
from dynamo_lite.variables.protocol.wrap import builds

if TYPE_CHECKING:
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.guards.ir import GuardNode
    from dynamo_lite.interp.frame import Frame


class _HolderVariable(NativeVariable):
    """A descriptor whose members are trackers. `parts`: member name → tracker, as far as known; `base`: the type written in C."""

    base: Any

    value: Any = Plain(MISSING)
    parts: dict[str, VariableTracker] = Children(factory=dict, init=False)

    def describe(self) -> str:
        return repr(self.value)

    def part(self, tx: Frame, name: str) -> VariableTracker:
        """The tracker of a member."""
        found = self.parts.get(name)
        if found is None:
            real = self.base.__dict__[name].__get__(self.value)
            found = self.parts[name] = tx.tr.wrap(real, tx.tr.source(self.source, ir.ATTR, name))
        return found

    def tp_getattro(self, tx: Frame, name: str) -> VariableTracker:
        return generic_getattr(tx, self, name)


class PropertyVariable(_HolderVariable):
    """A property."""

    cls = base = property

    def tp_descr_get(self, tx: Frame, obj: VariableTracker | None, cls: VariableTracker) -> VariableTracker:
        if obj is None or is_none(obj):
            return self
        getter = self.part(tx, "fget")
        if is_none(getter):
            return unsupported("attribute-of-unknown-object", "a property without a getter")
        return tx.call(getter, [obj])

    def tp_descr_set(self, tx: Frame, obj: VariableTracker, value: VariableTracker | None) -> None:
        function = self.part(tx, "fdel" if value is None else "fset")
        if is_none(function):
            unsupported("mutation-of-unknown-object", "a property that can't be set or deleted")
        tx.call(function, [obj] if value is None else [obj, value])


class StaticMethodVariable(_HolderVariable):
    """A staticmethod object."""

    cls = base = staticmethod

    def tp_descr_get(self, tx: Frame, obj: VariableTracker | None, cls: VariableTracker) -> VariableTracker:
        return self.part(tx, "__func__")

    def tp_call(self, tx: Frame, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        return tx.call(self.tp_descr_get(tx, None, NONE), args, kwargs)


def _binds_descriptors() -> bool:
    """Whether a classmethod calls the `__get__` of what it holds (before 3.13)."""
    return classmethod(property(lambda cls: True)).__get__(None, object) is True


_BINDS_DESCRIPTORS = _binds_descriptors()


class ClassMethodVariable(_HolderVariable):
    """A classmethod object."""

    cls = base = classmethod

    def tp_descr_get(self, tx: Frame, obj: VariableTracker | None, cls: VariableTracker) -> VariableTracker:
        if is_none(cls):
            cls = tx.tr.type_of(tx, obj)
        function = self.part(tx, "__func__")
        if function.tp_descr_get is None or not _BINDS_DESCRIPTORS:
            return tx.tr.bound_method(function, cls)
        return function.tp_descr_get(tx, cls, cls)


def _register(model: Any, *members: str) -> None:
    cls = model.cls

    @builds(cls)
    def build(tr: Trace, value: object, source: GuardNode | None) -> VariableTracker:
        if (
            type(value) is cls
        ):  # not by identity: no weak reference tells whether it is still there, and its function may go
            tr.guard(source, ir.TYPE_IS, cls)
        return model(value, source=source)

    for name in members:
        descriptor = cls.__dict__[name]
        getset(descriptor, readonly(descriptor))(lambda tx, self, name=name: self.part(tx, name))


_register(PropertyVariable, "fget", "fset", "fdel", "__doc__")
_register(StaticMethodVariable, "__func__", "__wrapped__")
_register(ClassMethodVariable, "__func__", "__wrapped__")
