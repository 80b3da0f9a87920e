"""Properties, static methods and class methods: descriptors that hold functions of the program.

Input: a real descriptor, or the arguments of a new property. Output: `PropertyVariable`, `StaticMethodVariable`, `ClassMethodVariable`,
for subclasses of these types too.
Invariant: what a real descriptor holds is read, and guarded, when it is used. Making a static or class method, and copies of a property,
break the graph.
Mirrors the property part of `Objects/descrobject.c`, and classmethod and staticmethod of `Objects/funcobject.c`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dynamo_lite.exc import unsupported
from dynamo_lite.guards import ir
from dynamo_lite.variables.protocol.abstract import set_attr
from dynamo_lite.variables.protocol.base import MISSING, Children, ObservedException, Plain, VariableTracker
from dynamo_lite.variables.protocol.constant import NONE, is_none
from dynamo_lite.variables.protocol.descr import generic_getattr, getset
from dynamo_lite.variables.protocol.dispatch import builtin, method
from dynamo_lite.variables.protocol.native import NativeVariable, emit_bare, emit_call, optional_attr, readonly
from dynamo_lite.variables.protocol.wrap import builds

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
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
            if self.source is None:
                return NONE  # of a new property before its __init__
            real = self.base.__dict__[name].__get__(self.value)
            found = self.parts[name] = tx.tr.wrap(real, tx.tr.source(self.source, ir.ATTR, name))
        return found

    def tp_getattro(self, tx: Frame, name: str) -> VariableTracker:
        return generic_getattr(tx, self, name)


class PropertyVariable(_HolderVariable):
    """A property. A new one has the part `doc`, the docstring that it was given, besides those that it shows."""

    cls = base = property

    def emit_new(self, cg: Codegen) -> None:
        emit_bare(cg, property, property)

    def emit_fill(self, cg: Codegen) -> None:
        emit_call(
            cg, property.__init__, self, *(self.parts.get(name, NONE) for name in ("fget", "fset", "fdel", "doc"))
        )
        cg.asm.pop_top()

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


@builtin(property.__new__)
def new_property(
    tx: Frame, cls: VariableTracker, /, *args: VariableTracker, **kwargs: VariableTracker
) -> VariableTracker:
    return PropertyVariable() if cls.value is property else tx.tr.new_instance(tx, cls.value)


class _Undocumented(property):
    pass


_DOCUMENTS_INSTANCES = "__doc__" in _Undocumented().__dict__
"""Whether an instance of a subclass gets a docstring of its own where there is none (3.12)."""


@method(property.__init__)
def property_init(
    tx: Frame,
    self: PropertyVariable,
    fget: VariableTracker = NONE,
    fset: VariableTracker = NONE,
    fdel: VariableTracker = NONE,
    doc: VariableTracker = NONE,
) -> None:
    """`property_init_impl`."""
    of_subclass = self.python_type() is not property
    if self.source is not None or self.parts or (of_subclass and not is_none(doc)):
        unsupported(
            "mutation-of-unknown-object", "a property that is initialised again, or a subclass of one with a docstring"
        )
    shown = doc
    if is_none(doc) and not is_none(fget):
        shown = optional_attr(tx, fget, "__doc__") or NONE
    self.parts = {"fget": fget, "fset": fset, "fdel": fdel, "doc": doc, "__doc__": shown}
    if of_subclass and (_DOCUMENTS_INSTANCES or not is_none(shown)):
        try:
            set_attr(tx, self, "__doc__", shown)
        except ObservedException:  # what becomes of it hangs on the version
            unsupported("mutation-of-unknown-object", "a property without room for its docstring")


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
