"""Objects of classes of the standard library that a Python class of `dynamo_lite.polyfills` stands for, as PyPy's app-level classes.

Input: the table `polyfills.registry.STAND_INS`. Output: a model for each of its classes, with constructors, methods and subclasses.
Invariant: to the program such an object is one of the real class. Its work is done by an `AppState`, an object in Python whose methods
the interpreter follows; the program never gets hold of that one. An object that leaves the trace is made by `rebuild` of its stand-in.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from types import WrapperDescriptorType
from typing import TYPE_CHECKING, Any

from dynamo_lite.exc import unsupported
from dynamo_lite.guards import ir
from dynamo_lite.polyfills import c_calls
from dynamo_lite.polyfills import functools as _functools  # noqa: F401  (fills the table)
from dynamo_lite.polyfills import itertools as _itertools  # noqa: F401
from dynamo_lite.polyfills import operator as _operator  # noqa: F401
from dynamo_lite.polyfills.registry import STAND_INS
from dynamo_lite.variables.builtin.iter import IteratorVariable, OpaqueIterator, ReversedVariable
from dynamo_lite.variables.builtin.zip import EnumerateVariable, FilterVariable, MapVariable, ZipVariable
from dynamo_lite.variables.objects.function import MethodVariable
from dynamo_lite.variables.objects.subclass import NATIVE_MODELS, NATIVES, instance_class
from dynamo_lite.variables.protocol.abstract import is_number
from dynamo_lite.variables.protocol.base import VariableTracker
from dynamo_lite.variables.protocol.constant import ConstantVariable, boolean
from dynamo_lite.variables.protocol.dispatch import HANDLERS, builtin, constructor
from dynamo_lite.variables.protocol.getargs import fits
from dynamo_lite.variables.protocol.native import NativeVariable, host_index, host_ssize, same_or_equal
from dynamo_lite.variables.protocol.slots import SLOTDEFS, SlotDef, check_arguments
from dynamo_lite.variables.protocol.wrap import BUILDERS, SUBCLASS_BUILDERS, builds

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.guards.ir import GuardNode
    from dynamo_lite.interp.frame import Frame


class AppState(VariableTracker):
    """The object in Python behind an `AppVariable`: fields, and the functions of the stand-in as methods."""

    def __init__(self, cls: type, stand_in: type) -> None:
        self.cls = cls
        self.stand_in = stand_in
        self.fields: dict[str, VariableTracker] = {}

    def python_type(self) -> type:
        return self.cls

    def tp_getattro(self, tx: Frame, name: str) -> VariableTracker:
        found = self.fields.get(name)
        return found if found is not None else MethodVariable(self.function(tx, name), self)

    def tp_setattro(self, tx: Frame, name: str, value: VariableTracker) -> None:
        self.fields[name] = value

    def tp_iter(self, tx: Frame) -> VariableTracker:
        return self

    def tp_iternext(self, tx: Frame) -> VariableTracker:
        return self.call(tx, "__next__", [])

    def function(self, tx: Frame, name: str) -> VariableTracker:
        """A function of the stand-in."""
        return tx.tr.build_constant_object(getattr(self.stand_in, name))

    def call(
        self, tx: Frame, name: str, args: Iterable[VariableTracker], kwargs: dict[str, VariableTracker] | None = None
    ) -> VariableTracker:
        """Call a method."""
        return tx.call(self.function(tx, name), [self, *args], kwargs or {})

    def children(self) -> Any:
        return self.fields.values()


class AppVariable(NativeVariable):
    """An object of a class with a stand-in."""

    real: type
    stand_in: Any
    state: AppState

    def __init__(self) -> None:
        self.state = AppState(self.cls, self.stand_in)

    def children(self) -> Any:
        return self.state.children()

    def emit_new(self, cg: Codegen) -> None:
        stand_in, cls, fields = self.stand_in, self.python_type(), self.state.fields
        initial = getattr(stand_in, "initial", None)
        if initial is not None and fields[initial].value:
            unsupported("reconstruct", f"a {cls.__name__} object that has been advanced")
        if hasattr(stand_in, "rebuild"):
            code = stand_in.rebuild.__code__
            names = code.co_varnames[1 : code.co_argcount]
            cg.load_callable(stand_in.rebuild)
        elif hasattr(stand_in, "arguments"):
            names = stand_in.arguments
            cg.load_callable(self.real.__new__)
        else:
            unsupported("reconstruct", f"a {cls.__name__} object")
        cg.load_const(cls)
        for name in names:
            cg.load(fields[name])
        cg.asm.call(1 + len(names))


class AppIteratorVariable(AppVariable, IteratorVariable):
    """One with `__next__`."""

    def tp_iternext(self, tx: Frame) -> VariableTracker | None:
        return self.state.call(tx, "__next__", [])


class AppCallableVariable(AppVariable):
    """One with `__call__`, which takes one argument."""

    def tp_call(self, tx: Frame, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        if kwargs or len(args) != 1:
            return unsupported("arguments-mismatch", self.cls.__name__)
        return self.state.call(tx, "__call__", args)


class AppKeyVariable(AppCallableVariable):
    """One with `__lt__`."""

    def tp_richcompare(self, tx: Frame, other: VariableTracker, op: str) -> VariableTracker:
        if op != "<":
            return unsupported("call-c-function", f"comparison of {self.cls.__name__} objects by {op}")
        return self.state.call(tx, "__lt__", [other])


_BASES: dict[str, type[AppVariable]] = {
    "__next__": AppIteratorVariable,
    "__lt__": AppKeyVariable,
    "__call__": AppCallableVariable,
}


def register(real: type, stand_in: Any) -> None:
    """The model of a class, what makes its objects, and their methods."""
    base = next((base for name, base in _BASES.items() if name in vars(stand_in)), AppVariable)
    model = type(f"{stand_in.__name__}Variable", (base,), {"cls": real, "real": real, "stand_in": stand_in})
    constructor(real)(_filled_by(real, model, stand_in.__init__))
    NATIVE_MODELS[real] = model
    if "__new__" in vars(real):
        register_subclasses(model, real)
    for name, function in [item for cls in stand_in.__mro__[:-1] for item in vars(cls).items()]:
        own = vars(real).get(name)
        if issubclass(type(function), classmethod):
            HANDLERS[own] = _filled_by(real, model, function.__func__)
        elif callable(function) and own is not None and own not in HANDLERS and not name.startswith("__init"):
            HANDLERS[own] = _method(name, SLOTDEFS.get(name) if type(own) is WrapperDescriptorType else None)
    if hasattr(stand_in, "fields_of"):
        builds(real)(_builder(model))


def _filled_by(
    real: type, model: Callable[[], AppVariable], function: Callable[..., None]
) -> Callable[..., VariableTracker]:
    """The handler of a constructor: a new object, which `function` fills."""

    def make(tx: Frame, cls: VariableTracker, /, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
        if not fits(function, 1 + len(args), kwargs):
            return unsupported("arguments-mismatch", real.__qualname__)
        made = model()
        tx.call(tx.tr.build_constant_object(function), [made.state, *args], kwargs)
        return made

    return make


def _method(name: str, wrapped: SlotDef | None) -> Callable[..., VariableTracker]:
    def call(tx: Frame, self: VariableTracker, /, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
        if wrapped is not None and wrapped.kind != "call":
            check_arguments(tx, wrapped, args, kwargs)
        if not isinstance(self, AppVariable):
            return unsupported("iterator-state", f"{name} of {self.describe()}")
        return self.state.call(tx, name, args, kwargs)

    return call


def _builder(model: Callable[[], AppVariable]) -> Callable[..., AppVariable]:
    """What models a real object that never changes."""

    def build(tr: Trace, value: object, source: GuardNode | None) -> AppVariable:
        tr.guard(source, ir.IS, value)
        made = model()
        made.source, made.value = source, value
        for name, field in made.stand_in.fields_of(value).items():
            made.state.fields[name] = tr.wrap(field, tr.source(source, ir.CALL, _field(made.stand_in, name)))
        return made

    return build


@functools.cache
def _field(stand_in: Any, name: str) -> Callable[[object], object]:
    """A function for a CALL path: a field of a real object."""

    def field(value: object) -> object:
        return stand_in.fields_of(value)[name]

    field.__name__ = f"field_{name}"
    return field


# -- subclasses


def register_subclasses(model: type[NativeVariable], base: type) -> None:
    """Let user classes derive from a type with a constructor."""
    NATIVES[base] = NATIVE_MODELS[base] = model

    @builtin(base.__new__)
    def new(tx: Frame, cls: VariableTracker, /, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
        real = cls.value
        if kwargs and real is not base and real.__init__ is not base.__init__:
            return unsupported("arguments-mismatch", f"{base.__name__}.__new__(), which may ignore keywords")
        made = tx.call(tx.tr.type_tracker(base), list(args), kwargs)
        return made if real is base or made.python_type() is not base else _instance_of(real, made)

    def build(tr: Trace, value: object, source: GuardNode | None) -> VariableTracker:
        made = BUILDERS[base](tr, value, source)
        return made if isinstance(made, OpaqueIterator) else _instance_of(type(value), made, value, source)

    SUBCLASS_BUILDERS[base] = build


def _instance_of(cls: type, native: VariableTracker, *origin: Any) -> VariableTracker:
    """The model of an instance of a subclass with the state of one of the builtin class."""
    instance: Any = instance_class(cls)(cls, *origin)
    instance.adopt(native)
    return instance


for _model, _base in (
    (ReversedVariable, reversed),
    (ZipVariable, zip),
    (MapVariable, map),
    (FilterVariable, filter),
    (EnumerateVariable, enumerate),
):
    register_subclasses(_model, _base)

for _real, _stand_in in STAND_INS.items():
    register(_real, _stand_in)


# -- what stand-ins need of C


@builtin(c_calls.leave_to_c)
def _leave_to_c(tx: Frame) -> VariableTracker:
    return unsupported("arguments-mismatch", tx.code.co_qualname)


@builtin(c_calls.host_index)
def _host_index(tx: Frame, n: VariableTracker) -> VariableTracker:
    return ConstantVariable(host_index(tx, n))


@builtin(c_calls.host_ssize)
def _host_ssize(tx: Frame, n: VariableTracker) -> VariableTracker:
    return ConstantVariable(host_ssize(tx, n))


@builtin(c_calls.same_or_equal)
def _same_or_equal(tx: Frame, a: VariableTracker, b: VariableTracker) -> VariableTracker:
    return boolean(same_or_equal(tx, a, b))


@builtin(c_calls.is_number)
def _is_number(tx: Frame, a: VariableTracker) -> VariableTracker:
    return boolean(is_number(a))


@builtin(c_calls.is_sequence)
def _is_sequence(tx: Frame, a: VariableTracker) -> VariableTracker:
    return boolean(not issubclass(a.python_type(), dict) and (a.sq_item is not None or a.mp_subscript is not None))


@builtin(c_calls.state_of)
def _state_of(tx: Frame, a: VariableTracker) -> VariableTracker:
    if isinstance(a, AppState):
        return a
    return a.state if isinstance(a, AppVariable) else unsupported("iterator-state", a.describe())
