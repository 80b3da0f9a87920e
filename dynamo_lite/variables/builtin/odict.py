"""`collections.OrderedDict` and `collections.defaultdict`.

Input: as for dicts. Output: `OrderedDictVariable`, `DefaultDictVariable`.
Invariant: an ordered dict's `items` is a host OrderedDict, whose order is the one that counts and that guards look at.
Mirrors `Objects/odictobject.c` and `Modules/_collectionsmodule.c` (defaultdict).
"""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Any

from dynamo_lite.exc import unsupported
from dynamo_lite.guards import ir
from dynamo_lite.variables.protocol.abstract import (
    class_name,
    get_attr,
    get_item,
    get_iter,
    is_true,
    iter_next,
    set_item,
)
from dynamo_lite.variables.protocol.base import Child, VariableTracker
from dynamo_lite.variables.protocol.constant import NONE, NOT_IMPLEMENTED, ConstantVariable, is_none
from dynamo_lite.variables.protocol.deferred_str import joined
from dynamo_lite.variables.protocol.descr import generic_getattr, getset
from dynamo_lite.variables.protocol.dispatch import constructor, method
from dynamo_lite.variables.protocol.hashing import key_tracker
from dynamo_lite.variables.protocol.native import (
    emit_bare,
    emit_call,
    is_being_printed,
    object_state,
    optional_attr,
    part_text,
    raise_with,
    recursive_repr,
    set_object,
)
from dynamo_lite.variables.protocol.wrap import builds

from .dict import DictVariable, dict_init, ordered_items
from .tuple import TupleVariable

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.guards.ir import GuardNode
    from dynamo_lite.interp.frame import Frame

OrderedDict, defaultdict = collections.OrderedDict, collections.defaultdict


class OrderedDictVariable(DictVariable):
    """An OrderedDict."""

    cls = base = OrderedDict
    host_type = OrderedDict
    attributes: DictVariable | None = Child(None, init=False)

    def tp_getattro(self, tx: Frame, name: str) -> VariableTracker:
        return generic_getattr(tx, self, name)

    def instance_dict(self, tx: Frame) -> DictVariable:
        """The object's `__dict__`: OrderedDicts have one."""
        if self.attributes is None:
            if self.source is None:
                self.attributes = DictVariable()
            else:
                node = tx.tr.source(self.source, ir.ATTR, "__dict__")
                self.attributes = tx.tr.wrap(self.value.__dict__, node)
        return self.attributes

    def refuses(self, method: Any) -> bool:
        """A dict's own method leaves the order alone that is kept beside the table, or goes by the table's."""
        replaced = method.__objclass__ is dict and getattr(OrderedDict, method.__name__) is not method
        return replaced and method not in (dict.__eq__, dict.__ne__, dict.__hash__)

    @staticmethod
    def pairs_in_order(value: dict[Any, Any]) -> list[tuple[Any, Any]]:
        try:
            pairs = ordered_items(value)
        except KeyError:
            pairs = None
        if pairs is None or len(pairs) != dict.__len__(value):
            unsupported("call-c-function", "an OrderedDict whose table was changed past its order")
        return pairs

    def equals(self, tx: Frame, other: Any) -> bool:
        if not super().equals(tx, other):
            return False
        if not issubclass(other.python_type(), OrderedDict):
            return True
        keys, others = list(self.items), [self.key_as_here(tx, key) for key in other.items]
        return len(keys) == len(others) and all(a is b or a == b for a, b in zip(keys, others, strict=True))

    @staticmethod
    def nb_or(tx: Frame, v: VariableTracker, w: VariableTracker) -> VariableTracker:
        if not issubclass(v.python_type(), dict) or not issubclass(w.python_type(), dict):
            return NOT_IMPLEMENTED
        owner = v if issubclass(v.python_type(), OrderedDict) else w
        result = tx.call(tx.tr.type_of(tx, owner), [v])
        update_from(tx, result, w)
        return result

    @staticmethod
    def nb_inplace_or(tx: Frame, v: Any, w: VariableTracker) -> VariableTracker:
        update_from(tx, v, w)
        return v

    def tp_repr(self, tx: Frame) -> VariableTracker:
        name = class_name(self.python_type())

        def text() -> str:
            if not self.items:
                return f"{name}()"
            if PRINTED_AS_DICT:
                return f"{name}({{{self.repr_items(tx)}}})"
            return f"{name}([{', '.join([f'({part_text(tx, k)}, {part_text(tx, v)})' for k, v in self.pairs()])}])"

        return recursive_repr(tx, self, "...", text)

    def emit_new(self, cg: Codegen) -> None:
        if self.cls is OrderedDict:
            emit_call(cg, OrderedDict)
        else:
            emit_bare(cg, OrderedDict, self.cls)

    def emit_fill(self, cg: Codegen) -> None:
        super().emit_fill(cg)
        if self.attributes is not None and self.attributes.source is None:
            for key, value in self.attributes.pairs():
                cg.load(value)
                cg.load(self)
                cg.asm.store_attr(key.value)


PRINTED_AS_DICT = "{" in repr(OrderedDict(key=None))
"""Earlier versions print a list of pairs."""


builds(OrderedDict)(OrderedDictVariable.from_outside)


@constructor(OrderedDict)
def new_ordered_dict(tx: Frame, cls: VariableTracker, /, *args: VariableTracker, **kwargs: Any) -> VariableTracker:
    result = OrderedDictVariable()
    ordered_dict_update(tx, result, *args, **kwargs)
    return result


@method(OrderedDict.__init__, OrderedDict.update)
def ordered_dict_update(tx: Frame, self: DictVariable, /, *args: VariableTracker, **kwargs: Any) -> VariableTracker:
    """`mutablemapping_update`"""
    if len(args) > 1:
        return unsupported("arguments-mismatch", "OrderedDict.update()")
    if args:
        update_from(tx, self, args[0])
    for name, value in kwargs.items():
        set_item(tx, self, ConstantVariable(name), value)
    return NONE


def update_from(tx: Frame, self: DictVariable, other: VariableTracker) -> None:
    """`mutablemapping_update_arg`: unlike a dict it asks for `items` too, and stores through the slot, which may be a subclass's own."""
    if other.python_type() is dict:
        for key, value in other.pairs():
            set_item(tx, self, key, value)
    elif (keys := optional_attr(tx, other, "keys")) is not None:
        iterator = get_iter(tx, tx.call(keys, []))
        while (key := iter_next(tx, iterator)) is not None:
            set_item(tx, self, key, get_item(tx, other, key))
    elif (items := optional_attr(tx, other, "items")) is not None:
        add_pairs(tx, self, tx.call(items, []))
    else:
        add_pairs(tx, self, other)


def add_pairs(tx: Frame, self: DictVariable, pairs: VariableTracker) -> None:
    """`mutablemapping_add_pairs`"""
    iterator = get_iter(tx, pairs)
    while (pair := iter_next(tx, iterator)) is not None:
        parts = get_iter(tx, pair)
        if (key := iter_next(tx, parts)) is None:
            tx.raises(ValueError, "need more than 0 values to unpack")
        if (value := iter_next(tx, parts)) is None:
            tx.raises(ValueError, "need more than 1 value to unpack")
        if iter_next(tx, parts) is not None:
            tx.raises(ValueError, "too many values to unpack (expected 2)")
        set_item(tx, self, key, value)


@method(OrderedDict.pop)
def ordered_pop(
    tx: Frame, self: OrderedDictVariable, key: VariableTracker, default: VariableTracker | None = None
) -> VariableTracker:
    found = self.discard(tx, self.key(tx, key)) or default
    return found if found is not None else set_object(tx, KeyError, key)


@method(OrderedDict.move_to_end)
def move_to_end(tx: Frame, self: OrderedDictVariable, key: VariableTracker, last: Any = None) -> VariableTracker:
    host_key = self.key(tx, key)
    if host_key not in self.items:
        return set_object(tx, KeyError, key)
    self.changing(tx)
    self.items.move_to_end(host_key, last is None or is_true(tx, last))
    return NONE


@method(OrderedDict.popitem)
def ordered_popitem(tx: Frame, self: OrderedDictVariable, last: VariableTracker | None = None) -> VariableTracker:
    if not self.items:
        return tx.raises(KeyError, "dictionary is empty")
    self.changing(tx)
    key, value = self.items.popitem(last is None or is_true(tx, last))
    return TupleVariable([key_tracker(key), value])


@method(OrderedDict.copy)
def ordered_copy(tx: Frame, self: OrderedDictVariable, /) -> VariableTracker:
    if self.python_type() is OrderedDict:
        return OrderedDictVariable(OrderedDict(self.items))
    result = tx.call(tx.tr.type_of(tx, self), [])
    for key, value in self.pairs():
        result.mp_ass_subscript(tx, key, value)
    return result


@method(OrderedDict.__reduce__)
def ordered_reduce(tx: Frame, self: OrderedDictVariable, /) -> VariableTracker:
    pairs = get_iter(tx, tx.call(get_attr(tx, self, "items"), []))
    return TupleVariable([tx.tr.type_of(tx, self), TupleVariable([]), object_state(tx, self), NONE, pairs])


# -- defaultdict


class DefaultDictVariable(DictVariable):
    """A defaultdict; `factory` is its `default_factory`."""

    cls = defaultdict
    factory: VariableTracker = Child(NONE)
    factory_changed = False

    def load_from(self, tr: Trace, value: Any, source: GuardNode | None) -> None:
        super().load_from(tr, value, source)
        self.factory = tr.wrap(value.default_factory, tr.source(source, ir.ATTR, "default_factory"))

    def or_copy(self, tx: Frame) -> DictVariable:
        return default_copy(tx, self)

    @staticmethod
    def nb_or(tx: Frame, v: VariableTracker, w: VariableTracker) -> VariableTracker:
        if not issubclass(v.python_type(), dict) or not issubclass(w.python_type(), dict):
            return NOT_IMPLEMENTED
        owner = v if issubclass(v.python_type(), defaultdict) else w
        result = tx.call(tx.tr.type_of(tx, owner), [owner.factory, v])
        result.merge(tx, w)
        return result

    def tp_repr(self, tx: Frame) -> VariableTracker:
        """`defdict_repr`: what may hold the dict itself is its factory."""
        if self.items and is_being_printed(self.factory):
            unsupported("recursion-limit", "C forgets that the factory is being printed, and goes on for ever")
        table = DictVariable.tp_repr(self, tx)
        factory = recursive_repr(tx, self.factory, "...", lambda: part_text(tx, self.factory))
        return joined(tx, [f"{class_name(self.python_type())}(", factory, ", ", table, ")"])

    def emit_new(self, cg: Codegen) -> None:
        if self.cls is defaultdict:
            emit_call(cg, defaultdict, self.factory)
        else:
            emit_bare(cg, defaultdict, self.cls)

    def emit_fill(self, cg: Codegen) -> None:
        if self.cls is not defaultdict:
            self.emit_factory(cg)
        super().emit_fill(cg)

    def emit_factory(self, cg: Codegen) -> None:
        cg.load(self.factory)
        cg.load(self)
        cg.asm.store_attr("default_factory")

    def emit_update(self, cg: Codegen) -> None:
        if self.factory_changed:
            self.emit_factory(cg)
        super().emit_update(cg)


builds(defaultdict)(DefaultDictVariable.from_outside)


@constructor(defaultdict)
def new_default_dict(tx: Frame, cls: VariableTracker, /, *args: VariableTracker, **kwargs: Any) -> VariableTracker:
    result = DefaultDictVariable()
    default_init(tx, result, *args, **kwargs)
    return result


@method(defaultdict.__init__)
def default_init(tx: Frame, self: DefaultDictVariable, /, *args: VariableTracker, **kwargs: Any) -> VariableTracker:
    if args:
        factory, args = args[0], args[1:]
        if not is_none(factory) and factory.tp_call is None:
            return tx.raises(TypeError, "first argument must be callable or None")
        _set_factory(tx, self, factory)
    return dict_init(tx, self, *args, **kwargs)


def _set_factory(tx: Frame, self: DefaultDictVariable, value: VariableTracker | None) -> None:
    self.changing(tx)
    self.factory = NONE if value is None else value
    self.factory_changed = True


@getset(defaultdict.__dict__["default_factory"], _set_factory)
def default_factory(tx: Frame, self: DefaultDictVariable, /) -> VariableTracker:
    return self.factory


@method(defaultdict.__missing__)
def default_missing(tx: Frame, self: DefaultDictVariable, key: VariableTracker, /) -> VariableTracker:
    if is_none(self.factory):
        return raise_with(tx, KeyError, key)
    value = tx.call(self.factory, [])
    self.mp_ass_subscript(tx, key, value)
    return value


@method(defaultdict.copy, defaultdict.__copy__)
def default_copy(tx: Frame, self: DefaultDictVariable, /) -> VariableTracker:
    if self.python_type() is defaultdict:
        return DefaultDictVariable(dict(self.items), self.factory)
    return tx.call(tx.tr.type_of(tx, self), [self.factory, self])


@method(defaultdict.__reduce__)
def default_reduce(tx: Frame, self: DefaultDictVariable, /) -> VariableTracker:
    args = TupleVariable([] if is_none(self.factory) else [self.factory])
    pairs = get_iter(tx, tx.call(get_attr(tx, self, "items"), []))
    return TupleVariable([tx.tr.type_of(tx, self), args, NONE, NONE, pairs])
