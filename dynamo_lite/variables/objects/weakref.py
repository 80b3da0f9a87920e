"""Weak references and proxies.

Input: a tracker, or a real reference or proxy. Output: `WeakRefVariable`, `ProxyVariable`.
Invariant: a reference gives an object only if the object is certainly alive: reachable from the frame, from a module, or from the caller
of the frame. Where that is unknown, or a callback may be due, the graph breaks; an object is never taken for dead.
Mirrors `Objects/weakrefobject.c`.
"""

from __future__ import annotations

import types
import weakref
from typing import TYPE_CHECKING, Any

from dynamo_lite.exc import unsupported
from dynamo_lite.guards import ir
from dynamo_lite.isa.resume import is_resumed
from dynamo_lite.isa.typeobject import dict_of, is_heap_type, mro_of
from dynamo_lite.variables.protocol.abstract import (
    BINARY_OPS,
    UNARY_OPS,
    binary_op,
    contains,
    get_attr,
    get_item,
    get_iter,
    is_true,
    iter_next,
    length,
    richcompare,
    set_attr,
    set_item,
    type_name,
    unary_op,
)
from dynamo_lite.variables.protocol.base import Child, VariableTracker
from dynamo_lite.variables.protocol.constant import NONE, NOT_IMPLEMENTED, ConstantVariable, boolean, is_none
from dynamo_lite.variables.protocol.descr import foreign_attribute, getset
from dynamo_lite.variables.protocol.dispatch import builtin, constructor
from dynamo_lite.variables.protocol.hashing import Key, hash_rule, key_of, object_hash, runs_program
from dynamo_lite.variables.protocol.native import NativeVariable, str_text
from dynamo_lite.variables.protocol.wrap import builds

from .cell import CellVariable
from .module import is_module_level

if TYPE_CHECKING:
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.guards.ir import GuardNode
    from dynamo_lite.interp.frame import Frame


class Weak(NativeVariable):
    """A reference or proxy; `target` is what it refers to."""

    holds_weakly = True

    target: VariableTracker = Child()
    callback: VariableTracker | None = Child(None)

    def referent(self, tx: Frame) -> VariableTracker:
        """The target, which must be alive."""
        if self.target.value is not None and not is_alive(tx, self.target):
            check_left_frames(tx, self.target)
            unsupported("weakref", f"{self.target.describe()} may be gone")
        return self.target


def is_alive(tx: Frame, target: VariableTracker) -> bool:
    """Whether an object is known to be alive at this point of the program."""
    tr = tx.tr
    node = target.source
    if node is None:
        return target.is_python_constant() or tr.lifetimes.is_reachable(target)
    if node.kind == ir.CONST or issubclass(type(target.value), types.ModuleType) or is_module_level(target.value):
        return True
    through_reference = False
    while node.parent is not None:
        through_reference = through_reference or node.arg in (referent, proxied)
        node = node.parent
    if not through_reference and node.kind != ir.LOCAL:
        return True
    slots = range(len(tr.root.arguments)) if through_reference else [node.arg]
    return all(still_held(tx, slot, target) for slot in slots) or (
        through_reference and tr.lifetimes.is_reachable(target)
    )


def still_held(tx: Frame, slot: int, target: VariableTracker) -> bool:
    """Whether an argument of the outermost frame is still in its variable."""
    frame = tx
    while frame.parent is not None:
        frame = frame.parent
    names = frame.lifted.local_names
    variables = [frame.locals[slot]]
    if names[slot].startswith("__"):
        # What a continuation is handed on top of the program's variables: it must have got into one of these.
        variables = [v for v, name in zip(frame.locals, names, strict=True) if not name.startswith("__")]
        return any(_content(v) is target for v in [*variables, *frame.stack])
    return any(_content(v) is frame.tr.root.arguments[slot] for v in variables)


def _content(v: Any) -> Any:
    return v.content if type(v) is CellVariable else v


def check_left_frames(tx: Frame, target: VariableTracker) -> None:
    """A traceback holds the variables of its frames: those that generated code makes for one hold none."""
    for frame in tx.tr.lifetimes.frame_objects.values():
        if frame.raise_step >= 0 and any(_content(v) is target for v in frame.frame.locals):
            frame.needs_real_frames(f"{target.describe()}, which a traceback may hold")


def may_be_called_back(tx: Frame, target: VariableTracker) -> bool:
    """Whether the death of an object could be due to what the traced code does, so that a callback would have to run: of one that it
    has made, or that a frame which goes on here after a break has on its stack."""
    node = target.source
    if node is None:
        return True
    names = tx.tr.root.frame.lifted.local_names
    return node.kind == ir.LOCAL and is_resumed(tx.tr.root.frame.code) and names[node.arg].startswith("__")


def check_referable(tx: Frame, target: VariableTracker) -> None:
    """Objects of C types without a list of weak references refuse."""
    if target.python_type().__weakrefoffset__ == 0:
        tx.raises(TypeError, f"cannot create weak reference to '{type_name(target)}' object")


def known_callback(tx: Frame, target: VariableTracker, callback: VariableTracker | None) -> VariableTracker | None:
    """The callback argument, None for none. Breaks if it could be due during the frame."""
    check_referable(tx, target)
    if is_none(callback):
        return None
    if may_be_called_back(tx, target):
        unsupported("weakref", f"{target.describe()}, with a callback")
    return callback


# -- references

_CALLBACK = weakref.ref.__dict__["__callback__"]


@getset(_CALLBACK)
def weakref_callback(tx: Frame, self: Any, /) -> VariableTracker:
    """`__callback__`"""
    if self.source is not None:
        return foreign_attribute(tx, self, _CALLBACK)
    return NONE if self.callback is None else self.callback


class WeakRefVariable(Weak):
    """`weakref.ref(target[, callback])`, or a real reference."""

    cls = weakref.ref
    rebuild = weakref.ref

    def tp_call(self, tx: Frame, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        if args or kwargs:
            return tx.raises(TypeError, "weakref.__call__() takes no arguments")
        return self.referent(tx)

    def tp_hash(self, tx: Frame) -> VariableTracker:
        target = self.referent(tx)
        if issubclass(type(target.python_type().__hash__), types.FunctionType):
            unsupported("weakref", "the hash of a reference, which stays when the object goes")
        return object_hash(tx, target)

    def tp_richcompare(self, tx: Frame, other: VariableTracker, op: str) -> VariableTracker:
        if not isinstance(other, WeakRefVariable) or op not in ("==", "!="):
            return NOT_IMPLEMENTED
        return richcompare(tx, self.referent(tx), other.referent(tx), op)


@hash_rule(weakref.ref.__hash__)
def weakref_key(tx: Frame, v: Any) -> Any:
    key = key_of(tx, v.referent(tx))
    if runs_program(
        key
    ):  # two references to one object ask it whether it equals itself, where a table of the objects would not
        unsupported("weakref", "a key that compares its object by a method of the program")
    return Key(v, (weakref_key, key))


def canonical(tx: Frame, table: dict[int, Any], model: type[Weak], target: VariableTracker) -> Weak:
    """The one reference, or proxy, without a callback that an object has."""
    found = table.get(id(target))
    if found is None or found.target is not target:
        found = table[id(target)] = model(target)
        real = None if target.source is None else existing(target.value, found.cls)
        if real is not None:  # another path may lead to it
            found = table[id(target)] = tx.tr.heap.add(real, found)
    return found


def existing(value: object, cls: type) -> Any:
    """The reference or proxy without a callback that a real object has, or None. Never asks the object."""
    for reference in weakref.getweakrefs(value):
        if type(reference) is cls and (cls is not weakref.ref or reference.__callback__ is None):
            return reference
    return None


@constructor(weakref.ref)
def new_weakref(
    tx: Frame, cls: VariableTracker, object: VariableTracker, callback: VariableTracker | None = None, /
) -> VariableTracker:
    callback = known_callback(tx, object, callback)
    if callback is not None:
        return WeakRefVariable(object, callback)
    return canonical(tx, tx.tr.lifetimes.references, WeakRefVariable, object)


def referent(reference: Any) -> Any:
    """The object that a weak reference refers to."""
    return reference()


@builds(weakref.ref)
def build_weakref(tr: Trace, value: Any, source: GuardNode | None) -> WeakRefVariable:
    tr.guard(source, ir.TYPE_IS, type(value))
    target = value()
    node = tr.source(source, ir.CALL, referent)
    tr.guard(node, ir.IS_NOT if target is not None else ir.IS, None)
    result = WeakRefVariable(tr.wrap(target, node), None, source)
    result.value = value
    return result


# -- proxies


class ProxyVariable(Weak):
    """`weakref.proxy(target)`: every operation is one on the target."""

    rebuild = weakref.proxy

    def __post_init__(self) -> None:
        callable_ = any("__call__" in dict_of(base) for base in mro_of(self.target.python_type()))
        self.cls = weakref.CallableProxyType if callable_ else weakref.ProxyType

    def tp_getattro(self, tx: Frame, name: str) -> VariableTracker:
        return get_attr(tx, self.referent(tx), name)

    def tp_setattro(self, tx: Frame, name: str, value: VariableTracker | None) -> None:
        set_attr(tx, self.referent(tx), name, value)

    @property
    def tp_call(self) -> Any:
        return self._call if self.cls is weakref.CallableProxyType else None

    def _call(self, tx: Frame, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        return tx.call(self.referent(tx), args, kwargs)

    def tp_hash(self, tx: Frame) -> VariableTracker:
        return tx.raises(TypeError, f"unhashable type: '{type_name(self)}'")

    def tp_str(self, tx: Frame) -> VariableTracker:
        return ConstantVariable(str_text(tx, self.referent(tx)))

    def tp_richcompare(self, tx: Frame, other: VariableTracker, op: str) -> VariableTracker:
        return richcompare(tx, self.referent(tx), unwrapped(tx, other), op)

    def nb_bool(self, tx: Frame) -> VariableTracker:
        return boolean(is_true(tx, self.referent(tx)))

    def mp_length(self, tx: Frame) -> VariableTracker:
        return length(tx, self.referent(tx))

    def sq_contains(self, tx: Frame, item: VariableTracker) -> VariableTracker:
        return contains(tx, self.referent(tx), item)

    def mp_subscript(self, tx: Frame, key: VariableTracker) -> VariableTracker:
        return get_item(tx, self.referent(tx), key)

    def mp_ass_subscript(self, tx: Frame, key: VariableTracker, value: VariableTracker | None) -> None:
        set_item(tx, self.referent(tx), key, value)

    def tp_iter(self, tx: Frame) -> VariableTracker:
        return get_iter(tx, self.referent(tx))

    def tp_iternext(self, tx: Frame) -> VariableTracker | None:
        target = self.referent(tx)
        if target.tp_iternext is None:
            tx.raises(TypeError, f"Weakref proxy referenced a non-iterator '{type_name(target)}' object")
        return iter_next(tx, target)


def unwrapped(tx: Frame, v: VariableTracker) -> VariableTracker:
    """`UNWRAP`: the target of a proxy, anything else as it is."""
    return v.referent(tx) if isinstance(v, ProxyVariable) else v


def _binary(function: Any) -> Any:
    def slot(tx: Frame, v: VariableTracker, w: VariableTracker) -> VariableTracker:
        return binary_op(tx, function, unwrapped(tx, v), unwrapped(tx, w))

    return staticmethod(slot)


def _unary(function: Any) -> Any:
    def slot(self: ProxyVariable, tx: Frame) -> VariableTracker:
        return unary_op(tx, function, self.referent(tx))

    return slot


for _function, _row in BINARY_OPS.items():
    setattr(ProxyVariable, _row.inplace or _row.slot, _binary(_function))
for _function, (_slot, _) in UNARY_OPS.items():
    setattr(ProxyVariable, _slot, _unary(_function))


@builtin(weakref.proxy)
def weakref_proxy(tx: Frame, object: VariableTracker, callback: VariableTracker | None = None, /) -> VariableTracker:
    callback = known_callback(tx, object, callback)
    if callback is not None:
        return ProxyVariable(object, callback)
    return canonical(tx, tx.tr.lifetimes.proxies, ProxyVariable, object)


def proxied(proxy: Any) -> Any:
    """The object behind a proxy, if that object has ordinary attribute access. Raises ReferenceError if that is gone."""
    return proxy.__init__.__self__


@builds(weakref.ProxyType, weakref.CallableProxyType)
def build_proxy(tr: Trace, value: Any, source: GuardNode | None) -> ProxyVariable:
    tr.guard(source, ir.TYPE_IS, type(value))
    cls = type_behind(value)
    if cls is None or not is_heap_type(cls) or any("__getattribute__" in dict_of(b) for b in mro_of(cls)[:-1]):
        return unsupported("weakref", "a proxy of an object that is gone, or that decides about its attributes")
    node = tr.source(source, ir.CALL, proxied)
    tr.guard(tr.source(node, ir.TYPE), ir.IS, cls)
    result = ProxyVariable(tr.wrap(proxied(value), node), None, source)
    result.value = value
    return result


def type_behind(proxy: Any) -> type | None:
    """The class that a proxy's target says it has; None for a target that is gone."""
    try:
        return proxy.__class__
    except ReferenceError:
        return None
