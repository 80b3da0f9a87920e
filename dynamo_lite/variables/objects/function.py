"""Functions with bytecode, bound methods, and callables without bytecode.

Input: a real callable with its access path, or the parts of a function made in the traced code. Output: `FunctionVariable`,
`MethodVariable`, `BuiltinVariable`.
Invariant: a Python function is followed, never called, unless it must be skipped; a C callable goes handler → polyfill → fold →
graph → break: to the first of these that there is.
Mirrors `Objects/funcobject.c`, `Objects/classobject.c`, `Objects/methodobject.c`.
"""

from __future__ import annotations

import functools
import re
import types
from typing import TYPE_CHECKING, Any

from dynamo_lite._eval_frame import has_annotations, keep_annotations
from dynamo_lite.exc import TRACEBACK, NotConstant, unsupported
from dynamo_lite.guards import ir
from dynamo_lite.isa import docstring
from dynamo_lite.isa.typeobject import mro_of, tp_name
from dynamo_lite.polyfills.registry import find_polyfill
from dynamo_lite.variables.builtin.dict import DictVariable
from dynamo_lite.variables.builtin.host_proxy import call_host, can_be_host, declines
from dynamo_lite.variables.builtin.tuple import TupleVariable
from dynamo_lite.variables.protocol.abstract import get_attr, type_name
from dynamo_lite.variables.protocol.abstract import is_subtype as is_subclass
from dynamo_lite.variables.protocol.base import MISSING, Child, Children, Plain, VariableTracker
from dynamo_lite.variables.protocol.constant import ConstantVariable, fold, is_constant, is_none
from dynamo_lite.variables.protocol.deferred_str import LateText, joined
from dynamo_lite.variables.protocol.descr import (
    GETSETS,
    METHOD_DESCRIPTORS,
    DescriptorVariable,
    PlainObject,
    foreign_attribute,
    generic_getattr,
    getset,
    refuse_finalizer,
    type_attribute,
    type_lookup,
)
from dynamo_lite.variables.protocol.dispatch import DIRECT_CALLS, HANDLERS, PURE, WITHOUT_STATE
from dynamo_lite.variables.protocol.getargs import fits
from dynamo_lite.variables.protocol.markers import refuse_marked
from dynamo_lite.variables.protocol.native import emit_call, object_repr, optional_attr, readonly
from dynamo_lite.variables.protocol.slots import SLOTDEFS, call_slot
from dynamo_lite.variables.protocol.wrap import builds

from .cell import CellVariable

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.guards.ir import GuardNode
    from dynamo_lite.interp.frame import Frame


class FunctionVariable(PlainObject):
    """A Python function.

    `defaults` and `kwdefaults` are host lists and dicts of trackers; `closure` the cells in `co_freevars` order. For a sourced
    function they are read from the real one when first needed.
    """

    cls = types.FunctionType
    code: types.CodeType = Plain()
    globals: Any = Plain()
    closure: list[CellVariable] = Children()
    value: Any = Plain(MISSING)
    made: dict[str, VariableTracker] = Children(factory=dict, init=False)
    dict: DictVariable | None = Child(None, init=False)

    def is_python_constant(self) -> bool:
        return self.value is not MISSING and not self.mutated

    def as_python_constant(self) -> Any:
        if self.value is MISSING:
            raise NotConstant(f"{self.code.co_qualname} was made by the traced code")
        return self.value

    def describe(self) -> str:
        return self.code.co_qualname

    # -- parts

    def default_values(self, tx: Frame) -> list[VariableTracker]:
        """Trackers of `__defaults__`."""
        if "__defaults__" in self.made:
            made = self.made["__defaults__"]
            return made.items if isinstance(made, TupleVariable) else []
        real = self.value.__defaults__ if self.value is not MISSING else None
        if self.source is None:
            return []
        if self.globals.is_fixed:
            return [tx.tr.build_constant_object(v) for v in real or ()]
        node = tx.tr.source(self.source, ir.FUNC_DEFAULTS, None)
        if real is None:
            tx.tr.guard(node, ir.IS, None)
            return []
        tx.tr.guard(node, ir.LEN, len(real))
        return [tx.tr.wrap(v, tx.tr.source(node, ir.INDEX, i)) for i, v in enumerate(real)]

    def keyword_default(self, tx: Frame, name: str) -> VariableTracker | None:
        """Tracker of one of `__kwdefaults__`, or None."""
        if "__kwdefaults__" in self.made:
            return self.made["__kwdefaults__"].lookup(tx, ConstantVariable(name))
        real = self.value.__kwdefaults__ if self.value is not MISSING else None
        if self.source is None:
            return None
        if self.globals.is_fixed:
            return tx.tr.build_constant_object(real[name]) if real and name in real else None
        node = tx.tr.source(self.source, ir.FUNC_KWDEFAULTS, None)
        if real is None:
            tx.tr.guard(node, ir.IS, None)
            return None
        if name not in real:
            tx.tr.guard(node, ir.LACKS_KEY, name)
            return None
        item = tx.tr.source(node, ir.DICT_ITEM, name)
        tx.tr.expect(item)
        return tx.tr.wrap(real[name], item)

    def set_made_attribute(self, tx: Frame, flag: int, value: VariableTracker) -> None:
        """What the compiler puts on the stack for a new function: a flag of MAKE_FUNCTION or SET_FUNCTION_ATTRIBUTE."""
        if flag == 8:
            self.closure = list(value.items)
            return
        if flag == 4 and isinstance(value, TupleVariable):  # flat: name, annotation, name, annotation …
            annotations = DictVariable()
            for name, annotation in zip(value.items[::2], value.items[1::2], strict=True):
                annotations.mp_ass_subscript(tx, name, annotation)
            value = annotations
        self.made[_ATTRIBUTE_OF_FLAG[flag]] = value

    def instance_dict(self, tx: Frame) -> DictVariable:
        """The function's `__dict__`."""
        if self.dict is None:
            if self.source is None:
                self.dict = DictVariable()
            else:
                self.dict = tx.tr.wrap(self.value.__dict__, tx.tr.source(self.source, ir.ATTR, "__dict__"))
        return self.dict

    # -- slots

    def tp_descr_get(self, tx: Frame, obj: VariableTracker | None, cls: VariableTracker) -> VariableTracker:
        return self if obj is None else MethodVariable(self, obj)

    def direct_call(self, tx: Frame, args: list[VariableTracker]) -> Any:
        """(function, arguments) if calling this object is exactly a call of a Python function."""
        return self, args

    def tp_call(self, tx: Frame, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        return tx.tr.inline(tx, self, args, kwargs, False)

    def store_member(self, tx: Frame, name: str, value: VariableTracker) -> None:
        """Store an attribute that C keeps in the function object."""
        tx.tr.effects.mutating(self)
        if name == "__annotations__" and _LATE_ANNOTATIONS:
            self.made["__annotate__"] = ConstantVariable(None)
        if name == "__annotate__" and not is_none(value):
            self.made.pop("__annotations__", None)
        self.made[name] = value

    # -- codegen

    def emit_new(self, cg: Codegen) -> None:
        made = self.made
        cg.load_callable(types.FunctionType)
        cg.load_const(self.code)
        cg.load_const(self.globals.value)
        cg.load_const(self.code.co_name)
        cg.load(made.get("__defaults__", ConstantVariable(None)))
        for cell in self.closure:
            cg.load(cell)
        if self.closure:
            cg.asm.build_tuple(len(self.closure))
        else:
            cg.load_const(None)
        cg.asm.call(5)

    def emit_fill(self, cg: Codegen) -> None:
        self._emit_members(cg, [name for name in self.made if name != "__defaults__"])
        if self.dict is not None and self.dict.source is None:
            for key, value in self.dict.pairs():
                cg.load(value)
                cg.load(self)
                cg.asm.store_attr(key.value)

    def emit_update(self, cg: Codegen) -> None:
        self._emit_members(cg, self.made)

    def _emit_members(self, cg: Codegen, names: Any) -> None:
        for name in sorted(names, key=lambda name: name == "__annotations__"):  # setting `__annotate__` removes them
            if name == "__annotations__" and not is_none(self.made.get("__annotate__", ConstantVariable(None))):
                emit_call(cg, keep_annotations, self, self.made[name])
                cg.asm.pop_top()
                continue
            cg.load(self.made[name])
            cg.load(self)
            cg.asm.store_attr(name)


_ATTRIBUTE_OF_FLAG = {1: "__defaults__", 2: "__kwdefaults__", 4: "__annotations__", 16: "__annotate__"}


_LATE_ANNOTATIONS = "__annotate__" in types.FunctionType.__dict__  # from 3.14 on


def _new_annotations(tx: Frame, f: FunctionVariable) -> VariableTracker:
    """`func_get_annotation_dict`: from 3.14 on a function makes them when they are first asked for."""
    annotate = f.made.get("__annotate__", ConstantVariable(None))
    value: VariableTracker = DictVariable()
    if not is_none(annotate):
        value = tx.call(annotate, [ConstantVariable(1)], {})
        if not issubclass(value.python_type(), dict):
            tx.raises(TypeError, f"__annotate__() must return a dict, not {type_name(value)}")
        tx.tr.effects.mutating(f)
    f.made["__annotations__"] = value
    return value


def _set_annotate(tx: Frame, f: FunctionVariable, value: VariableTracker | None) -> None:
    """`func_set_annotate`."""
    if value is None:
        tx.raises(TypeError, "__annotate__ cannot be deleted")
    if not is_none(value) and value.tp_call is None:
        tx.raises(TypeError, "__annotate__ must be callable or None")
    if is_none(value) and f.value is not MISSING:
        unsupported("mutation-of-unknown-object", f"{f.describe()}.__annotate__ = None")
    f.store_member(tx, "__annotate__", value)


def _member(name: str, default: Any, kind: type | None = None, optional: bool = True, own_write: Any = None) -> None:
    """An attribute of functions that can be stored: what a new function has, the type of its values, whether None will do."""

    def read(tx: Frame, f: FunctionVariable, /) -> VariableTracker:
        if name in f.made:
            return f.made[name]
        if f.value is MISSING or (name == "__annotations__" and "__annotate__" in f.made):
            return default(tx, f)
        if name == "__annotations__" and _LATE_ANNOTATIONS and not has_annotations(f.value) and f.value.__annotate__:
            return unsupported(
                "call-c-function", f"annotations of {f.describe()}, which it makes when they are first asked for"
            )
        return tx.tr.wrap(getattr(f.value, name), tx.tr.source(f.source, ir.ATTR, name))

    def write(tx: Frame, f: FunctionVariable, value: VariableTracker | None) -> None:
        absent = is_none(value)
        if kind is not None and not (absent and optional) and (absent or not issubclass(value.python_type(), kind)):
            what = "string" if kind is str else kind.__name__
            tx.raises(TypeError, f"{name} must be set to a {what} object")
        if absent:
            value = DictVariable() if name == "__annotations__" else ConstantVariable(None)
        f.store_member(tx, name, value)

    getset(types.FunctionType.__dict__[name], own_write or write)(read)


_none = lambda tx, f: ConstantVariable(None)  # noqa: E731
_member("__name__", lambda tx, f: ConstantVariable(f.code.co_name), str, False)
_member("__qualname__", lambda tx, f: ConstantVariable(f.code.co_qualname), str, False)
_member("__doc__", lambda tx, f: ConstantVariable(docstring(f.code)))
_member("__module__", lambda tx, f: f.globals.load(tx, "__name__") or ConstantVariable(None))
_member("__annotations__", _new_annotations, dict)
_member("__defaults__", _none, tuple)
_member("__kwdefaults__", _none, dict)
if _LATE_ANNOTATIONS:
    _member("__annotate__", _none, own_write=_set_annotate)
if "__type_params__" in types.FunctionType.__dict__:
    _member("__type_params__", lambda tx, f: TupleVariable([]), tuple, False)


def _readonly_member(name: str, read: object) -> None:
    def refuse(tx: Frame, f: FunctionVariable, value: VariableTracker | None) -> None:
        if type(types.FunctionType.__dict__[name]) is types.MemberDescriptorType:
            tx.raises(AttributeError, "readonly attribute")
        unsupported("mutation-of-unknown-object", f"{f.describe()}.{name}")

    getset(types.FunctionType.__dict__[name], refuse)(read)


def _set_code(tx: Frame, f: FunctionVariable, value: VariableTracker | None) -> None:
    """`func_set_code`."""
    if value is None or value.python_type() is not types.CodeType:
        tx.raises(TypeError, "__code__ must be set to a code object")
    code = value.as_python_constant()
    name = get_attr(tx, f, "__name__")
    if len(code.co_freevars) != len(f.closure):
        text = f"requires a code object with {len(f.closure)} free vars, not {len(code.co_freevars)}"
        tx.raises(ValueError, f"{name.as_python_constant()}() {text}")
    if f.value is not MISSING:
        unsupported("mutation-of-unknown-object", f"{f.describe()}.__code__")
    for kept in ("__name__", "__qualname__", "__doc__"):
        f.made.setdefault(kept, get_attr(tx, f, kept))
    f.code = code


getset(types.FunctionType.__dict__["__code__"], _set_code)(lambda tx, f: ConstantVariable(f.code))
_readonly_member("__globals__", lambda tx, f: f.globals.as_dict(tx))
_readonly_member("__closure__", lambda tx, f: TupleVariable(list(f.closure)) if f.closure else ConstantVariable(None))
_readonly_member("__dict__", lambda tx, f: f.instance_dict(tx))


def make_function(
    tx: Frame,
    code: VariableTracker,
    defaults: VariableTracker | None,
    kwdefaults: VariableTracker | None,
    annotations: VariableTracker | None,
    closure: TupleVariable | None,
) -> FunctionVariable:
    """MAKE_FUNCTION."""
    function = FunctionVariable(
        code.as_python_constant(), tx.globals, list(closure.items) if closure is not None else []
    )
    for flag, value in ((1, defaults), (2, kwdefaults), (4, annotations)):
        if value is not None:
            function.set_made_attribute(tx, flag, value)
    return function


@builds(types.FunctionType)
def build_function(tr: Trace, value: types.FunctionType, source: GuardNode | None) -> FunctionVariable:
    namespace = tr.heap.namespace_of(value)
    if source.kind != ir.CONST or not namespace.is_fixed:
        tr.guard(tr.source(source, ir.FUNC_CODE, None), ir.IS, value.__code__)
    closure = []
    if value.__closure__:
        node = tr.source(source, ir.FUNC_CLOSURE, None)
        closure = [tr.wrap(cell, tr.source(node, ir.INDEX, i)) for i, cell in enumerate(value.__closure__)]
    # The globals of a function can't be replaced; other functions with the same code may have others.
    if source.kind != ir.CONST:
        tr.guard(tr.source(source, ir.ATTR, "__globals__"), ir.IS, value.__globals__)
    return FunctionVariable(value.__code__, namespace, closure, value, source)


class MethodVariable(VariableTracker):
    """A bound method; `function` may be any callable."""

    function: VariableTracker = Child()
    self: VariableTracker = Child()
    value: Any = Plain(MISSING)

    def python_type(self) -> type:
        if not self._is_bound_by_c():
            return types.MethodType
        wrapper = type(self.function.value) is types.WrapperDescriptorType
        return types.MethodWrapperType if wrapper else types.BuiltinMethodType

    def _is_bound_by_c(self) -> bool:
        """Whether it is what a descriptor of a C type makes. (A builtin function can be bound like one in Python.)"""
        made_of = type(getattr(self.function, "value", None))
        return made_of in _METHODS_OF_C or (isinstance(self.function, BuiltinVariable) and hasattr(made_of, "__get__"))

    def is_python_constant(self) -> bool:
        return is_constant(self.function, self.self)

    def as_python_constant(self) -> Any:
        if self.value is not MISSING:
            return self.value
        self_ = self.self.as_python_constant()
        if self_ is None:  # which `__get__` takes for no object
            return getattr(None, self.function.as_python_constant().__name__)
        function = self.function.as_python_constant()
        bind = getattr(function, "__get__", None)
        return types.MethodType(function, self_) if bind is None else bind(self_, type(self_))

    def describe(self) -> str:
        return f"method {self.function.describe()}"

    def tp_repr(self, tx: Frame) -> VariableTracker:
        cls = self.python_type()
        if cls is types.MethodType:
            names = (optional_attr(tx, self.function, name) for name in ("__qualname__", "__name__"))
            name = next((name for name in names if name is not None), ConstantVariable(None))
            known = name if issubclass(name.python_type(), str) else "?"
            return joined(tx, ["<bound method ", known, " of ", object_repr(tx, self.self), ">"])
        return unsupported("object-identity", "text of a method, which contains an address")

    def direct_call(self, tx: Frame, args: list[VariableTracker]) -> Any:
        return self.function.direct_call(tx, [self.self, *args])

    def tp_call(self, tx: Frame, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        return tx.call(self.function, [self.self, *args], kwargs)

    def tp_getattro(self, tx: Frame, name: str) -> VariableTracker:
        if name == "__self__":
            return self.self
        if name == "__func__" and self.python_type() is types.MethodType:
            return self.function
        own = type_attribute(tx, self.python_type(), name)  # `method_getattro`: the type's first, then the function's
        if isinstance(own, BuiltinVariable) or (own is not None and own.value in GETSETS):
            return own.tp_descr_get(tx, self, tx.tr.type_of(tx, self))
        if own is None and self._is_bound_by_c():
            return generic_getattr(tx, self, name)
        return self.function.tp_getattro(tx, name)

    def tp_richcompare(self, tx: Frame, other: VariableTracker, op: str) -> VariableTracker:
        if op not in ("==", "!=") or not isinstance(other, MethodVariable):
            return ConstantVariable(NotImplemented)
        same = tx.tr.heap.same_object(self.self, other.self) and tx.tr.heap.same_object(self.function, other.function)
        return ConstantVariable(same is (op == "=="))

    def tp_hash(self, tx: Frame) -> VariableTracker:
        return tx.tr.heap.identity_hash(self)

    def emit_new(self, cg: Codegen) -> None:
        if is_none(self.self):
            cg.load_const(self.as_python_constant())
        elif self._is_bound_by_c():
            # With the type: without it, CPython 3.11's __get__ crashes for methods that want their defining class.
            of_class = isinstance(self.function, BuiltinClassMethodVariable)
            cg.load_callable(self.function.value.__get__)
            cg.load(ConstantVariable(None) if of_class else self.self)
            if of_class:
                cg.load(self.self)
            else:
                cg.load_const(self.self.python_type())
            cg.asm.call(2)
        elif self.function.tp_call is None:
            # Only a class method binds what can't be called.
            cg.load_callable(_bind_anything)
            cg.load(self.function)
            cg.load(self.self)
            cg.asm.call(2)
        else:
            cg.load_callable(types.MethodType)
            cg.load(self.function)
            cg.load(self.self)
            cg.asm.call(2)


_QUALNAME = vars(types.BuiltinMethodType)["__qualname__"]


@getset(_QUALNAME, readonly(_QUALNAME))
def qualified_name(tx: Frame, self: VariableTracker, /) -> VariableTracker:
    """`meth_get__qualname__`: the name of the class of which the method is got, not of the one that has it."""
    if not isinstance(self, MethodVariable):
        return foreign_attribute(tx, self, _QUALNAME)
    cls = self.self if issubclass(self.self.python_type(), type) else tx.tr.type_of(tx, self.self)
    return joined(tx, [get_attr(tx, cls, "__qualname__"), ".", get_attr(tx, self.function, "__name__")])


_METHODS_OF_C = (types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)


def _bind_anything(function: Any, self: Any) -> Any:
    return classmethod(function).__get__(None, self)


@builds(types.MethodType)
def build_method(tr: Trace, value: types.MethodType, source: GuardNode | None) -> MethodVariable:
    tr.guard(source, ir.TYPE_IS, types.MethodType)
    function = tr.wrap(value.__func__, tr.source(source, ir.METHOD_FUNC, None))
    self_ = tr.wrap(value.__self__, tr.source(source, ir.METHOD_SELF, None))
    return MethodVariable(function, self_, value, source)


class BuiltinVariable(DescriptorVariable):
    """A callable without bytecode, known by identity: a builtin function or a method descriptor of a C type."""

    def tp_descr_get(self, tx: Frame, obj: VariableTracker | None, cls: VariableTracker) -> VariableTracker:
        if not isinstance(self.value, METHOD_DESCRIPTORS) or obj is None:
            return self
        return MethodVariable(self, obj)

    def tp_repr(self, tx: Frame) -> VariableTracker:
        return ConstantVariable(repr(self.value))  # it is known by identity

    def direct_call(self, tx: Frame, args: list[VariableTracker]) -> Any:
        target = DIRECT_CALLS.get(self.value)
        return target(args) if target is not None else None

    def tp_call(self, tx: Frame, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        fn = self.value
        handler = HANDLERS.get(fn)
        if handler is not None:
            check_self(tx, fn, args)
            if type(fn) is types.BuiltinFunctionType and fn.__name__ == "__new__":
                check_new(tx, fn.__self__, args)
            return call_handler(tx, fn, handler, args, kwargs)
        if type(fn) is types.WrapperDescriptorType:
            owner = tx.tr.native_class(fn.__objclass__)
            definition = SLOTDEFS.get(fn.__name__)
            if owner is not None and definition is not None and args:
                check_self(tx, fn, args)
                if not isinstance(args[0], owner) and args[0].python_type() is fn.__objclass__:
                    owner = type(args[0])  # another model of the same type
                return call_slot(tx, definition, owner, args[0], args[1:], kwargs)
        polyfill = find_polyfill(fn)
        pure = fn in PURE
        if pure and is_constant(*args, *kwargs.values()):
            return fold(tx, fn, args, kwargs)
        if pure and any(a.is_symbolic for a in args):
            return self.tp_call(tx, [a.constant() if a.is_symbolic else a for a in args], kwargs)
        if polyfill is not None and tx.code is not polyfill.__code__:  # a stand-in that calls the original means it
            check_type(tx, fn, args)
            return call_stand_in(tx, fn, polyfill, args, kwargs)
        if pure and can_be_host(*args, *kwargs.values()):
            return call_host(tx, fn, args, kwargs)
        if pure and len(args) == 2 and declines(fn, args):
            return ConstantVariable(NotImplemented)
        if type(fn) is types.MethodDescriptorType and fn.__objclass__ is str:
            for vt in args:
                if isinstance(vt, LateText):
                    vt.as_python_constant()  # analyses again, with the number in the text as a constant
        return tx.tr.call_foreign(tx, fn, args, kwargs)


def check_new(tx: Frame, owner: type, args: list[VariableTracker]) -> None:
    """Break where `tp_new_wrapper` of `Objects/typeobject.c` refuses the class that `__new__` of a builtin type is called with."""
    if not args or not issubclass(args[0].python_type(), type) or not is_subclass(tx, args[0].value, owner):
        unsupported("arguments-mismatch", f"{tp_name(owner)}.__new__()")
    cls = base = args[0].value
    while base is not None and not issubclass(type(type_lookup(base, "__new__")), types.BuiltinFunctionType):
        base = base.__base__
    if base is not None and not _is_safe(owner, type_lookup(base, "__new__").__self__):
        unsupported("arguments-mismatch", f"{tp_name(owner)}.__new__({tp_name(cls)})")
    refuse_finalizer(tx, cls)


@functools.cache
def _is_safe(owner: type, made_by: type) -> bool:
    """Whether `__new__` of one builtin type makes what that of another one makes. Some have the same function in C."""
    if owner is made_by:
        return True
    try:
        owner.__new__(made_by)
    except TypeError as error:
        return " is not safe, use " not in str(error)
    return True


def call_stand_in(
    tx: Frame, original: object, stand_in: object, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
) -> VariableTracker:
    """Follow the Python function that stands for `original`. Breaks for arguments that don't fit."""
    if not fits(stand_in, len(args), kwargs):
        unsupported("arguments-mismatch", getattr(original, "__qualname__", repr(original)))
    return tx.call(tx.tr.build_constant_object(stand_in), args, kwargs)


def check_self(tx: Frame, fn: Any, args: list[VariableTracker]) -> None:
    """`check_type`; refuse an instance that is modelled without the state of the method's type."""
    owner = check_type(tx, fn, args)
    if owner is object or fn in WITHOUT_STATE:
        return
    if args[0].lacks_layout(owner) or args[0].refuses(fn):
        unsupported("call-c-function", f"{fn.__qualname__} of a {type_name(args[0])}")


def check_type(tx: Frame, fn: Any, args: list[VariableTracker]) -> type:
    """`descr_check`: a method of a builtin type wants an instance of it. Returns that type, `object` for other callables."""
    kind = type(fn)
    if not args or kind not in METHOD_DESCRIPTORS or fn.__objclass__ is object:
        return object
    owner = fn.__objclass__
    cls = args[0].python_type()
    if cls is owner or owner in mro_of(cls):
        return owner
    return unsupported("arguments-mismatch", f"{fn.__qualname__} of a {type_name(args[0])}")


def call_handler(
    tx: Frame, fn: Any, handler: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
) -> VariableTracker:
    """Call a registered handler. Breaks for arguments that don't fit."""
    refuse_marked(fn)
    try:
        result = handler(tx, *args, **kwargs)
    except TypeError as error:
        if not _is_raised_here(error):
            raise
        unsupported("call-c-function", f"{getattr(fn, '__qualname__', fn)} with arguments that don't fit", error)
    return result if result is not None else ConstantVariable(None)


def _is_raised_here(error: BaseException) -> bool:
    """Whether the call itself has raised: there is no frame below the one that has caught it. (Where that one kept the traceback in a
    variable the two would be a reference cycle, and the analysis and what it has seen would live until the next collection.)"""
    traceback = TRACEBACK.__get__(error)
    return traceback is not None and traceback.tb_next is None


_METHOD_WITH_CLASS = type(re.compile("").match)
"""The type of bound C methods that get their defining class; where no such method is at hand it is that of all."""


@builds(*{types.BuiltinFunctionType, _METHOD_WITH_CLASS})
def build_builtin(tr: Trace, value: Any, source: GuardNode | None) -> VariableTracker:
    owner = value.__self__
    if owner is not None and type(owner) is not types.ModuleType and value not in HANDLERS:
        # A bound method of a C object, list.append of one list, or of a class, dict.fromkeys.
        of_class = type_lookup(owner, value.__name__) if issubclass(type(owner), type) else None
        descriptor = type_lookup(type(owner), value.__name__)
        if type(of_class) is types.ClassMethodDescriptorType:
            descriptor = of_class
        if type(descriptor) in (types.MethodDescriptorType, types.ClassMethodDescriptorType):
            tr.guard(source, ir.TYPE_IS, type(value))
            tr.guard(tr.source(source, ir.ATTR, "__name__"), ir.EQUALS, value.__name__)
            self_ = tr.wrap(owner, tr.source(source, ir.ATTR, "__self__"))
            function = tr.wrap(descriptor, tr.constant_source(descriptor))
            return MethodVariable(function, self_, value, source)
    tr.guard(source, ir.IS, value)
    return BuiltinVariable(value, source)


@builds(
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
)
def build_descriptor(tr: Trace, value: object, source: GuardNode | None) -> VariableTracker:
    tr.guard(source, ir.IS, value)
    if type(value) is types.ClassMethodDescriptorType:
        return BuiltinClassMethodVariable(value, source)
    return BuiltinVariable(value, source)


class BuiltinClassMethodVariable(BuiltinVariable):
    """A class method of a C type (`dict.fromkeys`)."""

    def tp_descr_get(self, tx: Frame, obj: VariableTracker | None, cls: VariableTracker) -> VariableTracker:
        if is_none(cls) and obj is not None:
            cls = tx.tr.type_of(tx, obj)
        self._check_class(tx, cls)
        return MethodVariable(self, cls)

    def _check_class(self, tx: Frame, cls: VariableTracker) -> None:
        """Break where `classmethod_get` refuses the class."""
        owner = self.value.__objclass__
        if (
            is_none(cls)
            or not issubclass(cls.python_type(), type)
            or not any(base is owner for base in mro_of(cls.value))
        ):
            unsupported("arguments-mismatch", f"{owner.__name__}.{self.value.__name__} of another class")

    def tp_call(self, tx: Frame, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        owner = self.value.__objclass__
        if self.value in PURE and args and args[0].value is not owner and is_subtype(args[0], owner):
            # What the C code makes is an instance of the builtin type, with which it calls the class.
            made = super().tp_call(tx, [tx.tr.type_tracker(owner), *args[1:]], kwargs)
            return tx.call(args[0], [made])
        return super().tp_call(tx, args, kwargs)


def is_subtype(v: VariableTracker, cls: type) -> bool:
    """True for a class that derives from `cls`."""
    return issubclass(type(v.value), type) and issubclass(v.value, cls)


@builds(types.MethodWrapperType)
def build_method_wrapper(tr: Trace, value: Any, source: GuardNode | None) -> MethodVariable:
    tr.guard(source, ir.TYPE_IS, types.MethodWrapperType)
    tr.guard(tr.source(source, ir.ATTR, "__name__"), ir.EQUALS, value.__name__)
    descriptor = getattr(value.__objclass__, value.__name__)
    self_ = tr.wrap(value.__self__, tr.source(source, ir.ATTR, "__self__"))
    return MethodVariable(tr.wrap(descriptor, tr.constant_source(descriptor)), self_, value, source)
