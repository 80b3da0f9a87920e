"""`functools.partial` and `cmp_to_key`.

Input: trackers of the constructor's arguments, or a real object. Output: `PartialVariable`, `KeyWrapperVariable`.
Invariant: calling one does what calling the real one does; a new one that escapes is built again in the state it has.
Mirrors `Modules/_functoolsmodule.c`.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from dynamo_lite.exc import unsupported
from dynamo_lite.guards import ir
from dynamo_lite.variables.builtin.dict import DictVariable
from dynamo_lite.variables.builtin.tuple import TupleVariable
from dynamo_lite.variables.objects.subclass import native_base, register_native
from dynamo_lite.variables.protocol.abstract import class_name, class_path, richcompare, unpack
from dynamo_lite.variables.protocol.base import MISSING, VariableTracker
from dynamo_lite.variables.protocol.constant import NONE, ConstantVariable, is_none
from dynamo_lite.variables.protocol.descr import generic_getattr, getset
from dynamo_lite.variables.protocol.dispatch import builtin, constructor, method
from dynamo_lite.variables.protocol.native import (
    NativeVariable,
    emit_call,
    instance_state,
    part_text,
    readonly,
    recursive_repr,
    str_text,
)
from dynamo_lite.variables.protocol.wrap import builds

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.guards.ir import GuardNode
    from dynamo_lite.interp.frame import Frame


class PartialVariable(NativeVariable):
    """`functools.partial(function, *args, **keywords)`, with the fields of the C struct."""

    cls = base = functools.partial
    emits_subclasses = True
    function: VariableTracker
    args: TupleVariable
    keywords: DictVariable

    def __init__(self, cls: type | None = None, source: GuardNode | None = None) -> None:
        if cls is not None:
            self.cls = cls
        self.source = source
        self.dict: Any = MISSING
        self.exposed = False  # the program may hold the very tuple and dict of the object

    def set(self, function: VariableTracker, args: TupleVariable, keywords: DictVariable) -> None:
        """Fill a new object."""
        self.function, self.args, self.keywords = function, args, keywords

    def instance_dict(self, tx: Frame) -> DictVariable:
        """The object's `__dict__`."""
        if self.dict is MISSING:
            if self.source is None:
                self.dict = DictVariable()
            else:
                self.dict = tx.tr.wrap(self.value.__dict__, tx.tr.source(self.source, ir.INSTANCE_DICT))
        return self.dict

    def tp_getattro(self, tx: Frame, name: str) -> VariableTracker:
        return generic_getattr(tx, self, name)

    def describe(self) -> str:
        return f"partial of {self.function.describe()}"

    def direct_call(self, tx: Frame, args: list[VariableTracker]) -> Any:
        return None if self.keywords.items else self.function.direct_call(tx, [*self.args.items, *args])

    def tp_call(self, tx: Frame, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        keywords = self.keywords.items
        if not all(type(name) is str for name in keywords):
            return tx.raises(TypeError, "keywords must be strings")
        return tx.call(self.function, [*self.args.items, *args], {**keywords, **kwargs})

    def tp_repr(self, tx: Frame) -> VariableTracker:
        def text() -> str:
            parts = [part_text(tx, self.function), *[part_text(tx, arg) for arg in list(self.args.items)]]
            parts += [f"{str_text(tx, name)}={part_text(tx, value)}" for name, value in self.keywords.pairs()]
            return f"{_partial_name(self.python_type())}({', '.join(parts)})"

        return recursive_repr(tx, self, "...", text)

    if hasattr(functools.partial, "__get__"):

        def tp_descr_get(self, tx: Frame, obj: VariableTracker | None, cls: VariableTracker) -> VariableTracker:
            # It warns that partial objects are going to be method descriptors.
            return self if obj is None else unsupported("call-print", "the warning of partial.__get__()")

    def children(self) -> Any:
        own = [self.dict] if isinstance(self.dict, VariableTracker) else []
        return [self.function, self.args, self.keywords, *own]

    # -- code generation

    def emit_new(self, cg: Codegen) -> None:
        if self.exposed:
            # Made around a function of no interest; `__setstate__` takes over the objects that the program may hold.
            cg.load_callable(self.base.__new__)
            cg.load_const(self.cls)
            cg.load_const(int)
            cg.asm.call(2)
            return
        if self.cls is self.base:
            cg.load_callable(self.base)
        else:
            cg.load_callable(self.base.__new__)
            cg.load_const(self.cls)
        for part in (self.function, *self.args.items, *self.keywords.items.values()):
            cg.load(part)
        n = (self.cls is not self.base) + 1 + len(self.args.items) + len(self.keywords.items)
        cg.asm.call(n, tuple(self.keywords.items))

    def emit_fill(self, cg: Codegen) -> None:
        if self.exposed:
            self.emit_state(cg)
        elif isinstance(self.dict, DictVariable) and self.dict.source is None:
            for key, value in self.dict.pairs():
                cg.load(value)
                cg.load(self)
                cg.asm.store_attr(key.value)

    def emit_update(self, cg: Codegen) -> None:
        if self.exposed:
            self.emit_state(cg)

    def emit_state(self, cg: Codegen) -> None:
        """Give the real object the fields of the model."""
        cg.load_callable(self.base.__setstate__)
        cg.load(self)
        cg.load(self.function)
        cg.load(self.args)
        cg.load(self.keywords)
        cg.load(self.dict if isinstance(self.dict, VariableTracker) else NONE)
        cg.asm.build_tuple(4)
        cg.asm.call(2)
        cg.asm.pop_top()


def _partial_name(cls: type) -> str:
    """The name of a partial object in its `repr`: `tp_name`, or in later versions the qualified name."""
    if cls is native_base(cls):
        return "functools.partial"
    return class_path(cls) if _QUALIFIED else class_name(cls)


_QUALIFIED = repr(type("Sub", (functools.partial,), {"__module__": "module"})(int)).startswith("module.")


def _build_partial(model: type[PartialVariable], tr: Trace, value: Any, source: GuardNode | None) -> PartialVariable:
    tr.guard(source, ir.TYPE_IS, type(value))
    result = model(type(value), source)
    result.value = value
    parts = [tr.wrap(getattr(value, name), tr.source(source, ir.ATTR, name)) for name in ("func", "args", "keywords")]
    result.set(*parts)
    return result


def partial_new(
    tx: Frame, cls: VariableTracker, /, *args: VariableTracker, **keywords: VariableTracker
) -> VariableTracker:
    """`partial_new`: a partial of a partial without attributes is made a single one."""
    if not args:
        return tx.raises(TypeError, "type 'partial' takes at least one argument")
    function, *rest = args
    if function.tp_call is None:
        return tx.raises(TypeError, "the first argument must be callable")
    if isinstance(function, PartialVariable) and not function.instance_dict(tx).items:
        inner, function = function, function.function
        rest = [*inner.args.items, *rest]
        keywords = {**inner.keywords.items, **keywords}
    result = tx.tr.new_instance(tx, cls.value)
    result.set(function, TupleVariable(rest), DictVariable(dict(keywords)))
    return result


def partial_reduce(tx: Frame, self: PartialVariable, /) -> VariableTracker:
    """`partial_reduce`."""
    _expose(tx, self)
    attributes = instance_state(tx, self)
    state = TupleVariable([self.function, self.args, self.keywords, attributes])
    return TupleVariable([tx.tr.type_of(tx, self), TupleVariable([self.function]), state])


def partial_setstate(tx: Frame, self: PartialVariable, state: VariableTracker, /) -> VariableTracker:
    """`partial_setstate`."""
    parts = state.items if issubclass(state.python_type(), tuple) else ()
    if len(parts) != 4:
        return tx.raises(TypeError, "invalid partial state")
    function, args, keywords, attributes = parts
    fits = function.tp_call is not None and issubclass(args.python_type(), tuple)
    if not fits or not (is_none(keywords) or issubclass(keywords.python_type(), dict)):
        return tx.raises(TypeError, "invalid partial state")
    if args.python_type() is not tuple:
        args = TupleVariable(unpack(tx, args))
    if keywords.python_type() is not dict:
        keywords = DictVariable() if is_none(keywords) else DictVariable(dict(keywords.items))
    self.changing(tx)
    self.exposed = True
    self.set(function, args, keywords)
    self.dict = MISSING if is_none(attributes) else attributes
    return NONE


def _expose(tx: Frame, self: PartialVariable) -> None:
    if self.source is None:
        self.exposed = True


def partial_func(tx: Frame, self: PartialVariable, /) -> VariableTracker:
    """`partial.func`"""
    return self.function


def partial_args(tx: Frame, self: PartialVariable, /) -> VariableTracker:
    """`partial.args`"""
    _expose(tx, self)
    return self.args


def partial_keywords(tx: Frame, self: PartialVariable, /) -> VariableTracker:
    """`partial.keywords`"""
    _expose(tx, self)
    return self.keywords


def register_partial(partial: Any) -> None:
    """`partial` and its methods."""
    register_native(partial, PartialVariable)
    builds(partial)(lambda tr, value, source: _build_partial(PartialVariable, tr, value, source))
    constructor(partial)(partial_new)
    builtin(partial.__new__)(partial_new)
    method(partial.__reduce__)(partial_reduce)
    method(partial.__setstate__)(partial_setstate)
    for name, getter in (("func", partial_func), ("args", partial_args), ("keywords", partial_keywords)):
        getset(partial.__dict__[name], readonly(partial.__dict__[name]))(getter)


register_partial(functools.partial)


# -- cmp_to_key


class KeyWrapperVariable(NativeVariable):
    """The result of `cmp_to_key(compare)`, without an object, and the key that it makes of an object."""

    cls: type = type(functools.cmp_to_key(int))

    def __init__(self, compare: VariableTracker, obj: VariableTracker | None = None) -> None:
        self.compare = compare
        self.object = obj

    def tp_getattro(self, tx: Frame, name: str) -> VariableTracker:
        return generic_getattr(tx, self, name)

    def tp_call(self, tx: Frame, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        if len(args) == 1 and not kwargs:
            return KeyWrapperVariable(self.compare, args[0])
        if len(args) == 0 and list(kwargs) == ["obj"]:
            return KeyWrapperVariable(self.compare, kwargs["obj"])
        try:
            functools.cmp_to_key(int)(*[None] * len(args), **dict.fromkeys(kwargs))
        except TypeError as error:
            return tx.raises_like(error)
        return unsupported("call-c-function", "the result of cmp_to_key() with arguments that don't fit")

    def tp_richcompare(self, tx: Frame, other: VariableTracker, op: str) -> VariableTracker:
        if not isinstance(other, KeyWrapperVariable):
            return tx.raises(TypeError, "other argument must be K instance")
        if self.object is None or other.object is None:
            return tx.raises(AttributeError, "object")
        return richcompare(tx, tx.call(self.compare, [self.object, other.object]), ConstantVariable(0), op)

    def children(self) -> Any:
        return [self.compare, *([] if self.object is None else [self.object])]

    def emit_new(self, cg: Codegen) -> None:
        if self.object is None:
            emit_call(cg, functools.cmp_to_key, self.compare)
            return
        cg.load_callable(_key_wrapper)
        cg.load(self.compare)
        cg.load(self.object)
        cg.asm.call(2)


def _key_wrapper(compare: Any, obj: Any) -> Any:
    return functools.cmp_to_key(compare)(obj)


@builtin(functools.cmp_to_key)
def cmp_to_key(tx: Frame, mycmp: VariableTracker) -> VariableTracker:
    return KeyWrapperVariable(mycmp)


def _set_object(tx: Frame, self: KeyWrapperVariable, value: VariableTracker | None) -> None:
    self.object = value


@getset(KeyWrapperVariable.cls.__dict__["obj"], _set_object)
def key_wrapper_object(tx: Frame, self: KeyWrapperVariable, /) -> VariableTracker:
    return self.object if self.object is not None else tx.raises(AttributeError, "obj")
