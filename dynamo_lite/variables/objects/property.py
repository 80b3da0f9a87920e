"""Properties, static methods and class methods: descriptors that hold functions of the program.

Input: trackers of the constructor's arguments, or a real descriptor. Output: `PropertyVariable`, `StaticMethodVariable`,
`ClassMethodVariable`, for subclasses of these types too.
Invariant: what a real descriptor holds is read, and guarded, when it is used; a new one is built empty and initialised when everything
it refers to exists.
Mirrors the property part of `Objects/descrobject.c`, and classmethod and staticmethod of `Objects/funcobject.c`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dynamo_lite.exc import unsupported
from dynamo_lite.guards import ir
from dynamo_lite.variables.builtin.dict import DictVariable
from dynamo_lite.variables.protocol.abstract import is_true, set_attr
from dynamo_lite.variables.protocol.base import MISSING, Child, Children, ObservedException, Plain, VariableTracker
from dynamo_lite.variables.protocol.constant import NONE, boolean, is_none
from dynamo_lite.variables.protocol.descr import generic_getattr, getset
from dynamo_lite.variables.protocol.dispatch import builtin, constructor, method
from dynamo_lite.variables.protocol.native import NativeVariable, emit_call, optional_attr, readonly
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
        return repr(self.value) if self.value is not MISSING else f"new {self.python_type().__name__}"

    def part(self, tx: Frame, name: str) -> VariableTracker:
        """The tracker of a member; None of the program where C has NULL."""
        found = self.parts.get(name)
        if found is None:
            if self.source is None:
                return NONE
            real = self.base.__dict__[name].__get__(self.value)
            found = self.parts[name] = tx.tr.wrap(real, tx.tr.source(self.source, ir.ATTR, name))
        return found

    def tp_getattro(self, tx: Frame, name: str) -> VariableTracker:
        return generic_getattr(tx, self, name)

    def emit_new(self, cg: Codegen) -> None:
        cg.load_callable(self.base.__new__)
        cg.load_const(self.python_type())
        cg.asm.call(1)


def _member(descriptor: Any) -> None:
    """A read-only member that is one of the parts."""
    name = descriptor.__name__

    @getset(descriptor, readonly(descriptor))
    def get(tx: Frame, self: _HolderVariable, /) -> VariableTracker:
        return self.part(tx, name)


def _is_abstract(tx: Frame, *functions: VariableTracker) -> VariableTracker:
    """`_PyObject_IsAbstract` of any."""
    for function in functions:
        flag = None if is_none(function) else optional_attr(tx, function, "__isabstractmethod__")
        if flag is not None and is_true(tx, flag):
            return boolean(True)
    return boolean(False)


# -- property


class PropertyVariable(_HolderVariable):
    """A property. `name` is what `__set_name__` was told; `getter_doc`: the docstring is the getter's."""

    cls = base = property

    name: VariableTracker | None = Child(None, init=False)
    getter_doc = False

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

    def document(self, tx: Frame, doc: VariableTracker) -> None:
        """Store the docstring of an instance of a subclass, whose class would hide the member's."""
        try:
            set_attr(tx, self, "__doc__", doc)
        except ObservedException as observed:
            if not _DOCUMENTS_INSTANCES or not issubclass(observed.exc.python_type(), AttributeError):
                raise

    def emit_fill(self, cg: Codegen) -> None:
        doc = NONE if self.getter_doc else self.parts.get("__doc__", NONE)
        functions = [self.parts.get(name, NONE) for name in ("fget", "fset", "fdel")]
        emit_call(cg, property.__init__, self, *functions, doc)
        cg.asm.pop_top()
        if self.name is not None:
            emit_call(cg, property.__set_name__, self, NONE, self.name)
            cg.asm.pop_top()


@builds(property)
def build_property(tr: Trace, value: property, source: GuardNode | None) -> PropertyVariable:
    if type(value) is property:
        tr.guard(source, ir.TYPE_IS, property)
    return PropertyVariable(value, source)


@builtin(property.__new__)
def new_property(tx: Frame, cls: VariableTracker, /, *args: VariableTracker, **kwargs: VariableTracker) -> Any:
    return PropertyVariable() if cls.value is property else tx.tr.new_instance(tx, cls.value)


@constructor(property)
def make_property(
    tx: Frame, cls: VariableTracker, /, *args: VariableTracker, **kwargs: VariableTracker
) -> VariableTracker:
    result = PropertyVariable()
    property_init(tx, result, *args, **kwargs)
    return result


def _documents_instances() -> bool:
    """Whether a subclass's own docstring goes into the instance (3.12), or only one that comes from the getter."""

    class Sub(property):
        pass

    return "__doc__" in Sub(None, None, None, "text").__dict__


_DOCUMENTS_INSTANCES = _documents_instances()


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
    if self.source is not None:
        unsupported("mutation-of-unknown-object", self.describe())
    self.parts = {"fget": fget, "fset": fset, "fdel": fdel, "__doc__": doc}
    self.name, self.getter_doc = None, False
    if is_none(doc) and not is_none(fget):
        found = optional_attr(tx, fget, "__doc__")
        if found is not None and not is_none(found):
            self.getter_doc = True
            doc = found
    if self.python_type() is property:
        self.parts["__doc__"] = doc
    elif self.getter_doc or _DOCUMENTS_INSTANCES:
        self.document(tx, doc)


for _name in ("fget", "fset", "fdel"):
    _member(property.__dict__[_name])


def _set_doc(tx: Frame, self: PropertyVariable, value: VariableTracker | None) -> None:
    if self.source is not None:
        unsupported("mutation-of-unknown-object", self.describe())
    self.parts["__doc__"] = NONE if value is None else value
    self.getter_doc = False


@getset(property.__dict__["__doc__"], _set_doc)
def property_doc(tx: Frame, self: PropertyVariable, /) -> VariableTracker:
    return self.part(tx, "__doc__")


@getset(property.__dict__["__isabstractmethod__"])
def property_is_abstract(tx: Frame, self: PropertyVariable, /) -> VariableTracker:
    return _is_abstract(tx, *(self.part(tx, name) for name in ("fget", "fset", "fdel")))


def _copy(tx: Frame, self: PropertyVariable, **changed: VariableTracker) -> VariableTracker:
    """`property_copy`."""
    parts = {name: self.part(tx, name) for name in ("fget", "fset", "fdel")}
    parts.update({name: value for name, value in changed.items() if not is_none(value)})
    from_getter = self.getter_doc or (self.value is not MISSING and _documented_by_getter(self.value))
    doc = NONE if from_getter and not is_none(changed.get("fget")) else self.part(tx, "__doc__")
    if from_getter and doc is not NONE:
        doc = NONE  # the getter is the same: the copy finds its docstring again
    made = tx.call(tx.tr.type_of(tx, self), [*parts.values(), doc])
    if isinstance(made, PropertyVariable):
        if self.source is not None:
            unsupported("attribute-of-unknown-object", "the name that a property was given")
        made.name = self.name
    return made


def _documented_by_getter(value: property) -> bool:
    return value.fget is not None and getattr(value.fget, "__doc__", None) is property.__dict__["__doc__"].__get__(
        value
    )


@method(property.getter)
def property_getter(tx: Frame, self: PropertyVariable, getter: VariableTracker, /) -> VariableTracker:
    return _copy(tx, self, fget=getter)


@method(property.setter)
def property_setter(tx: Frame, self: PropertyVariable, setter: VariableTracker, /) -> VariableTracker:
    return _copy(tx, self, fset=setter)


@method(property.deleter)
def property_deleter(tx: Frame, self: PropertyVariable, deleter: VariableTracker, /) -> VariableTracker:
    return _copy(tx, self, fdel=deleter)


@method(property.__set_name__)
def property_set_name(tx: Frame, self: PropertyVariable, *args: VariableTracker) -> None:
    if len(args) != 2:
        tx.raises(TypeError, f"__set_name__() takes 2 positional arguments but {len(args)} were given")
    if self.source is not None:
        unsupported("mutation-of-unknown-object", self.describe())
    self.name = args[1]


# -- static methods and class methods


_COPIED = tuple(staticmethod(lambda: None).__dict__)
"""What `functools_wraps` of funcobject.c copies from the function, in its order."""


class _FunctionHolderVariable(_HolderVariable):
    """The base of static methods and class methods: they hold one callable, whose name and documentation they take over."""

    function: VariableTracker | None = Plain(None)
    dict: Any = Child(MISSING, init=False)

    def __post_init__(self) -> None:
        if self.function is not None:
            self.parts["__func__"] = self.function

    def instance_dict(self, tx: Frame) -> Any:
        """The descriptor's `__dict__`, with what `functools_wraps` of funcobject.c copies."""
        if self.dict is MISSING:
            if self.source is not None:
                self.dict = tx.tr.wrap(self.value.__dict__, tx.tr.source(self.source, ir.INSTANCE_DICT))
            else:
                self.dict = DictVariable()
                self._wraps(tx)
        return self.dict

    def _wraps(self, tx: Frame) -> None:
        for name in _COPIED:
            found = optional_attr(tx, self.part(tx, "__func__"), name) if "__func__" in self.parts else None
            if found is not None:
                self.instance_dict(tx).store(tx, name, found)

    def emit_fill(self, cg: Codegen) -> None:
        if "__func__" in self.parts:
            emit_call(cg, self.base.__init__, self, self.parts["__func__"])
            cg.asm.pop_top()
        if self.dict is not MISSING and self.dict.source is None:
            for key, value in self.dict.pairs():
                cg.load(value)
                cg.load(self)
                cg.asm.load_attr("__dict__")
                cg.load(key)
                cg.asm.store_subscr()


class StaticMethodVariable(_FunctionHolderVariable):
    """A staticmethod object."""

    cls = base = staticmethod

    def tp_descr_get(self, tx: Frame, obj: VariableTracker | None, cls: VariableTracker) -> VariableTracker:
        if self.source is None and "__func__" not in self.parts:
            tx.raises(RuntimeError, "uninitialized staticmethod object")
        return self.part(tx, "__func__")

    def tp_call(self, tx: Frame, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        return tx.call(self.tp_descr_get(tx, None, NONE), args, kwargs)


def _binds_descriptors() -> bool:
    """Whether a classmethod calls the `__get__` of what it holds (before 3.13)."""
    return classmethod(property(lambda cls: True)).__get__(None, object) is True


_BINDS_DESCRIPTORS = _binds_descriptors()


class ClassMethodVariable(_FunctionHolderVariable):
    """A classmethod object."""

    cls = base = classmethod

    def tp_descr_get(self, tx: Frame, obj: VariableTracker | None, cls: VariableTracker) -> VariableTracker:
        if self.source is None and "__func__" not in self.parts:
            tx.raises(RuntimeError, "uninitialized classmethod object")
        if is_none(cls):
            cls = tx.tr.type_of(tx, obj)
        function = self.part(tx, "__func__")
        if function.tp_descr_get is None or not _BINDS_DESCRIPTORS:
            return tx.tr.bound_method(function, cls)
        return function.tp_descr_get(tx, cls, cls)


def _register(model: Any) -> None:
    cls = model.cls

    @builds(cls)
    def build(tr: Trace, value: object, source: GuardNode | None) -> VariableTracker:
        if (
            type(value) is cls
        ):  # not by identity: no weak reference tells whether it is still there, and its function may go
            tr.guard(source, ir.TYPE_IS, cls)
        return model(value, source=source)

    @builtin(cls.__new__)
    def new(tx: Frame, kind: VariableTracker, /, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
        return model() if kind.value is cls else tx.tr.new_instance(tx, kind.value)

    @method(cls.__init__)
    def init(tx: Frame, self: Any, function: VariableTracker, /) -> None:
        if self.source is not None:
            unsupported("mutation-of-unknown-object", self.describe())
        self.parts["__func__"] = function
        if self.python_type() is not cls:
            self._wraps(tx)

    @constructor(cls)
    def make(tx: Frame, kind: VariableTracker, function: VariableTracker, /) -> VariableTracker:
        return model(function=function)

    for name in ("__func__", "__wrapped__"):
        descriptor = cls.__dict__[name]

        @getset(descriptor, readonly(descriptor))
        def get(tx: Frame, self: Any, /) -> VariableTracker:
            return self.part(tx, "__func__")

    @getset(cls.__dict__["__isabstractmethod__"])
    def is_abstract(tx: Frame, self: Any, /) -> VariableTracker:
        return _is_abstract(tx, self.part(tx, "__func__"))

    @getset(cls.__dict__["__dict__"])
    def dictionary(tx: Frame, self: Any, /) -> VariableTracker:
        return self.instance_dict(tx)


for _model in (StaticMethodVariable, ClassMethodVariable):
    _register(_model)
