"""Instances of user classes that derive from builtin types: the native model mixed with `InstanceVariable`.

Input: a real class. Output: the tracker class for its instances.
Invariant: the builtin base decides the native model (the first one in the MRO that has one); special methods are looked up first.
Mirrors the layout part of `Objects/typeobject.c` (`best_base`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dynamo_lite.guards import ir
from dynamo_lite.isa.typeobject import Py_TPFLAGS_HEAPTYPE, flags, mro_of
from dynamo_lite.variables.protocol.base import MISSING, VariableTracker
from dynamo_lite.variables.protocol.wrap import BUILDERS, SUBCLASS_BUILDERS

from .exception_instance import ExceptionVariable
from .instance import InstanceVariable

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.guards.ir import GuardNode

NATIVES: dict[type, type[VariableTracker]] = {}
"""Builtin type that user classes may derive from → tracker class."""

NATIVE_MODELS: dict[type, type[VariableTracker]] = {}
"""Every builtin type with a model → tracker class, by which its wrapper descriptors work."""

INSTANCE_MODELS: dict[type, type[InstanceVariable]] = {}
"""Base class written in Python whose instances have a model of their own → tracker class."""

_mixed: dict[type[VariableTracker], type[InstanceVariable]] = {}


def register_native(cls: type, model: type[VariableTracker]) -> None:
    """Declare the native model of a builtin type; its subclasses' instances get a mixture."""
    NATIVES[cls] = NATIVE_MODELS[cls] = model
    SUBCLASS_BUILDERS[cls] = build_native_instance


def native_class(cls: type) -> type[VariableTracker] | None:
    """The native model of a builtin type."""
    return NATIVE_MODELS.get(cls)


def native_base(cls: type) -> type | None:
    """The builtin type whose storage instances of `cls` have."""
    return next((base for base in mro_of(cls) if base in NATIVES), None)


def instance_class(cls: type) -> type[InstanceVariable]:
    """The tracker class for instances of a user class."""
    if issubclass(cls, BaseException):
        return ExceptionVariable
    for base in mro_of(cls):
        if base in INSTANCE_MODELS:
            return INSTANCE_MODELS[base]
    base = native_base(cls)
    return InstanceVariable if base is None else _mix(NATIVES[base])


def _mix(native: type[VariableTracker]) -> type[InstanceVariable]:
    found = _mixed.get(native)
    if found is None:
        found = type(
            f"{native.__name__}Instance",
            (NativeInstance, native),
            {"native": native, "opaque": False},
        )
        _mixed[native] = found
    return found


class NativeInstance(InstanceVariable):
    """Base of the mixtures: attributes and special methods from InstanceVariable, storage from the native model."""

    native: type[VariableTracker]

    def __init__(self, cls: type, value: object = MISSING, source: GuardNode | None = None) -> None:
        InstanceVariable.__init__(self, cls, value, source)

    def adopt(self, native: VariableTracker) -> None:
        """Take over the state of a native tracker."""
        mine = dict(self.__dict__)
        self.__dict__.update(native.__dict__)
        self.__dict__.update(mine)

    def lacks_layout(self, cls: type) -> bool:
        return cls is not object and cls not in mro_of(native_base(self.cls))

    def is_python_constant(self) -> bool:
        return False

    def children(self) -> Any:
        return [*InstanceVariable.children(self), *self.native.children(self)]

    def emit_new(self, cg: Codegen) -> None:
        if self.native.emit_fill is None or self.native.emits_subclasses:
            self.native.emit_new(self, cg)
            return
        cg.load_callable(native_base(self.cls).__new__)
        cg.load_const(self.cls)
        cg.asm.call(1)

    def emit_fill(self, cg: Codegen) -> None:
        if self.native.emit_fill is not None:
            self.native.emit_fill(self, cg)
        self.emit_attributes(cg)

    def emit_update(self, cg: Codegen) -> None:
        if self.native.emit_update is not VariableTracker.emit_update:
            self.native.emit_update(self, cg)
        InstanceVariable.emit_update(self, cg)


def build_native_instance(tr: Trace, value: object, source: GuardNode | None) -> VariableTracker:
    """The model of a real instance: the native builder's, with attributes."""
    cls = type(value)
    base = native_base(cls)
    tr.guard(source, ir.TYPE_IS, cls)
    model = instance_class(cls)(cls, value, source)
    model.adopt(BUILDERS[base](tr, value, source))
    return model


def new_instance(tr: Trace, cls: type) -> VariableTracker:
    """An empty new instance of a user class, or of a builtin container."""
    if cls in NATIVES:
        return empty_model(cls)
    model = instance_class(cls)(cls)
    if isinstance(model, NativeInstance):
        model.adopt(empty_model(native_base(cls)))
    return model


def empty_model(cls: type) -> VariableTracker:
    """The model of an empty builtin container."""
    return NATIVES[cls]([]) if cls is tuple else NATIVES[cls]()


PLAIN_BASES: set[type] = {object}
"""Types in C, besides those with a native model, whose subclasses take part in the ordinary instantiation algorithm."""


def can_instantiate(cls: type) -> bool:
    """True if instances of `cls` have a layout that the models know: plain objects, exceptions and native models."""
    for base in mro_of(cls):
        heap = flags(base) & Py_TPFLAGS_HEAPTYPE
        if not heap and base not in PLAIN_BASES and base not in NATIVES and not issubclass(base, BaseException):
            return False
    return True
