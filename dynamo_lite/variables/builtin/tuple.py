"""Tuples, named tuples and struct sequences.

Input: trackers of the items, or a real tuple. Output: `TupleVariable`.
Invariant: the items never change; a tuple is a constant when all of its items are.
Mirrors `Objects/tupleobject.c`, `Objects/structseq.c` and `Modules/_collectionsmodule.c` (`_tuplegetter`).
"""

from __future__ import annotations

import collections
import types
from typing import TYPE_CHECKING, Any

from dynamo_lite.exc import NotConstant, unsupported
from dynamo_lite.guards import ir
from dynamo_lite.isa import c_facts
from dynamo_lite.isa.typeobject import bases_of, dict_of, dictoffset_of, is_heap_type, module_of, qualname_of
from dynamo_lite.variables.protocol.abstract import type_name, unpack_to_tuple
from dynamo_lite.variables.protocol.base import MISSING, Child, Plain, VariableTracker
from dynamo_lite.variables.protocol.constant import ConstantVariable, is_none
from dynamo_lite.variables.protocol.descr import generic_getattr, getset, type_attribute
from dynamo_lite.variables.protocol.dispatch import builtin, constructor, method
from dynamo_lite.variables.protocol.hashing import Hash, object_hash
from dynamo_lite.variables.protocol.native import (
    LONG,
    NativeVariable,
    emit_all,
    emit_list,
    host_value,
    part_text,
    recursive_repr,
)
from dynamo_lite.variables.protocol.slots import SLOTDEFS
from dynamo_lite.variables.protocol.wrap import builds, builds_if

from .list import iterate
from .sequence import SequenceVariable, all_constant

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.guards.ir import GuardNode
    from dynamo_lite.interp.frame import Frame


class TupleVariable(SequenceVariable):
    """A tuple, a named tuple (`cls` has `_fields`), a struct sequence, or the native part of an instance of another
    subclass.
    """

    base = tuple
    cls: type = Plain(tuple)

    @classmethod
    def make(cls, items: list[VariableTracker]) -> TupleVariable:
        return TupleVariable(items)

    @property
    def is_only_one(self) -> bool:  # type: ignore[override]
        return self.cls is tuple and self._is_empty()

    def _is_empty(self) -> bool:
        """Whether an exact tuple has no items; of one from outside that has some, nothing else is guarded."""
        if "items" not in self.__dict__ and self.value:
            self._tr.guard(self.source, ir.TRUTH, True)
            return False
        return self.known_length() == 0

    def is_python_constant(self) -> bool:
        return all_constant(self.items) and not hides_fields(self.cls)

    def as_python_constant(self) -> Any:
        values = tuple([item.as_python_constant() for item in self.items])
        return values if self.cls is tuple else real_tuple(self.cls, values)

    def host_copy(self) -> Any:
        if hides_fields(self.cls):
            raise NotConstant
        values = super().host_copy()
        return values if self.cls is tuple or is_heap_type(self.cls) else real_tuple(self.cls, values)

    def as_proxy(self) -> Any:
        values = tuple([item.as_proxy() for item in self.items])
        return values if self.cls is tuple else real_tuple(self.cls, values)

    # -- slots

    def tp_getattro(self, tx: Frame, name: str) -> VariableTracker:
        if self.cls is not tuple and is_struct_sequence(self.cls) and name in self.cls.__match_args__:
            return self.items[self.cls.__match_args__.index(name)]
        return generic_getattr(tx, self, name)

    def sliced(self, tx: Frame, s: slice) -> VariableTracker:
        if self.cls is tuple and s.indices(len(self.items)) == (0, len(self.items), 1):
            return self
        return TupleVariable(self.items[s])

    def sq_concat(self, tx: Frame, other: VariableTracker) -> VariableTracker:
        if other.python_type() is tuple and self.known_length() == 0:
            return other
        joined = super().sq_concat(tx, other)
        return self if self.cls is tuple and len(joined.items) == len(self.items) else joined

    def sq_repeat(self, tx: Frame, count: VariableTracker) -> VariableTracker:
        items = self.repeated(tx, count)
        return self if self.cls is tuple and len(items) == len(self.items) else TupleVariable(items)

    def tp_hash(self, tx: Frame) -> VariableTracker:
        found: ConstantVariable | None = self.__dict__.get("kept_hash")
        if found is None:
            found = ConstantVariable(hash(tuple([Hash(item_hash(tx, item)) for item in self.items])))
            if c_facts.TUPLE_KEEPS_HASH:
                self.__dict__["kept_hash"] = found
        return found

    def tp_repr(self, tx: Frame) -> VariableTracker:
        custom = None if self.cls is tuple else type_attribute(tx, self.cls, "__repr__")
        if custom is not None and (custom.value is MISSING or issubclass(type(custom.value), types.FunctionType)):
            return tx.call(custom, [self])
        return tuple_repr(tx, self)

    def _repr(self, tx: Frame) -> str:
        names = getattr(self.cls, "__match_args__", ()) if is_struct_sequence(self.cls) else ()
        if names:
            fields = ", ".join(f"{n}={part_text(tx, v)}" for n, v in zip(names, self.items, strict=False))
            return f"{module_of(self.cls)}.{qualname_of(self.cls)}({fields})"
        return f"({self.repr_items(tx)}{',' * (len(self.items) == 1)})"

    # -- code generation

    def emit_new(self, cg: Codegen) -> None:
        if self.cls is tuple:
            if len(self.items) > LONG:
                cg.load_callable(tuple)
                emit_list(cg, self.items)
                cg.asm.call(1)
            else:
                cg.asm.build_tuple(emit_all(cg, self.items))
            return
        if hides_fields(self.cls):
            unsupported("reconstruct", f"a {self.cls.__qualname__}, of which the items are a part")
        cg.load_callable(real_tuple)
        cg.load_const(self.cls)
        cg.asm.build_tuple(emit_all(cg, self.items))
        cg.asm.call(2)


@method(tuple.__repr__)
def tuple_repr(tx: Frame, self: TupleVariable, /) -> VariableTracker:
    return recursive_repr(tx, self, "(...)", lambda: self._repr(tx))


def item_hash(tx: Frame, v: VariableTracker) -> int:
    """`hash(v)` as a host int."""
    return host_value(object_hash(tx, v), "object-identity")


def real_tuple(cls: Any, values: tuple[Any, ...]) -> Any:
    """An instance of a tuple subclass without running its `__new__`, if that is written in Python."""
    return tuple.__new__(cls, values) if is_heap_type(cls) and not is_struct_sequence(cls) else cls(values)


def is_struct_sequence(cls: type) -> bool:
    """True for types like `torch.return_types.max`: their fields are C members."""
    return "n_sequence_fields" in dict_of(cls)


def hides_fields(cls: type) -> bool:
    """True for struct sequences with fields beside the items, such as `tm_zone` of a time: the items alone do not make another one."""
    return cls is not tuple and is_struct_sequence(cls) and cls.n_fields > cls.n_sequence_fields  # type: ignore[attr-defined]


def is_plain_subclass(cls: type) -> bool:
    """True for struct sequences and for named tuples that define no special method of their own but `__repr__`."""
    if is_struct_sequence(cls):
        return True
    named = dictoffset_of(cls) == 0 and bases_of(cls) == (tuple,) and "_fields" in dict_of(cls)
    return named and not any(name in dict_of(cls) for name in (*SLOTDEFS, *ATTRIBUTE_HOOKS) if name != "__repr__")


ATTRIBUTE_HOOKS = ("__getattr__", "__getattribute__", "__setattr__", "__delattr__")


def _guard_class(tr: Trace, cls: type) -> None:
    """A named tuple's class gets no special methods later."""
    if cls is not tuple and not is_struct_sequence(cls) and is_plain_subclass(cls):
        tr.guards.class_check(cls, is_plain_subclass)


@builds(tuple)
def build_tuple(tr: Trace, value: tuple[Any, ...], source: GuardNode | None) -> TupleVariable:
    _guard_class(tr, type(value))
    result = TupleVariable.from_outside(tr, value, source)
    result.cls = type(value)
    return result


builds_if(lambda value: issubclass(type(value), tuple) and type(value) is not tuple and is_plain_subclass(type(value)))(
    build_tuple
)


# -- making


@constructor(tuple)
def new_tuple(tx: Frame, cls: VariableTracker, iterable: VariableTracker | None = None, /) -> VariableTracker:
    if iterable is None:
        return TupleVariable([])
    if iterable.python_type() is tuple:
        return iterable
    return TupleVariable(iterate(tx, iterable, unpack_to_tuple))


@builtin(tuple.__new__)
def tuple_new(tx: Frame, cls: VariableTracker, iterable: VariableTracker | None = None, /) -> VariableTracker:
    real = cls.value
    if real is tuple:
        return new_tuple(tx, cls, iterable)
    items = [] if iterable is None else iterate(tx, iterable, unpack_to_tuple)
    if is_plain_subclass(real):
        _guard_class(tx.tr, real)
        return TupleVariable(items, real)
    instance = tx.tr.new_instance(tx, real)
    instance.items = items
    return instance


# -- methods


@method(tuple.index)
def tuple_index(
    tx: Frame,
    self: TupleVariable,
    value: VariableTracker,
    start: VariableTracker | None = None,
    stop: VariableTracker | None = None,
    /,
) -> VariableTracker:
    i = self.index_of(tx, value, start, stop)
    return ConstantVariable(i) if i is not None else tx.raises(ValueError, "tuple.index(x): x not in tuple")


@method(tuple.__getnewargs__)
def tuple_getnewargs(tx: Frame, self: TupleVariable, /) -> VariableTracker:
    return TupleVariable([self.sliced(tx, slice(None))])


# -- fields of named tuples

TupleGetter: type = type(collections.namedtuple("_Named", "field").field)


class TupleGetterVariable(NativeVariable):
    """The descriptor behind a field of a named tuple."""

    cls = TupleGetter

    index: int = Plain()
    doc: VariableTracker | None = Child()
    value: Any = Plain(MISSING, emit="no")
    rebuild = TupleGetter

    def is_python_constant(self) -> bool:
        return self.value is not MISSING

    def as_python_constant(self) -> Any:
        return self.value if self.value is not MISSING else super().as_python_constant()

    def tp_descr_get(self, tx: Frame, obj: VariableTracker | None, cls: VariableTracker) -> VariableTracker:
        if obj is None or is_none(obj):
            return self
        if not isinstance(obj, TupleVariable):
            what = f"descriptor for index '{self.index}' for tuple subclasses"
            return tx.raises(TypeError, f"{what} doesn't apply to '{type_name(obj)}' object")
        if not 0 <= self.index < len(obj.items):
            return tx.raises(IndexError, "tuple index out of range")
        return obj.items[self.index]

    def tp_descr_set(self, tx: Frame, obj: VariableTracker, value: VariableTracker | None) -> None:
        tx.raises(AttributeError, "can't set attribute" if value is not None else "can't delete attribute")


@getset(TupleGetter.__dict__["__doc__"])
def tuple_getter_doc(tx: Frame, self: TupleGetterVariable, /) -> VariableTracker:
    if self.doc is None:
        self.doc = tx.tr.wrap(self.value.__doc__, tx.tr.source(self.source, ir.ATTR, "__doc__"))
    return self.doc


@builds(TupleGetter)
def build_tuple_getter(tr: Trace, value: Any, source: GuardNode | None) -> TupleGetterVariable:
    tr.guard(source, ir.IS, value)
    return TupleGetterVariable(value.__reduce__()[1][0], None, value, source)
