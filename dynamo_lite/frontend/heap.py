"""The real objects that a trace has met, and which of them are one object.

Input: real objects with their access paths. Output: one model per object; answers to `is` and `hash()`, with the guards that they need.
Invariant: an object of the heap is alive as long as the trace, so that its id names it.
"""

from __future__ import annotations

import builtins
import types
from collections.abc import Container
from typing import TYPE_CHECKING, Any

from dynamo_lite import own_builtins, polyfills
from dynamo_lite.exc import unsupported
from dynamo_lite.guards import ir
from dynamo_lite.interp.frame import Lasti
from dynamo_lite.isa.codec import InstructionPlace
from dynamo_lite.isa.typeobject import lookup
from dynamo_lite.variables.objects.module import GlobalsNamespace
from dynamo_lite.variables.protocol.base import MISSING, VariableTracker, is_lazy
from dynamo_lite.variables.protocol.constant import ATOMIC_TYPES, ConstantVariable

if TYPE_CHECKING:
    from dynamo_lite.guards.ir import GuardNode

    from .tracing import Trace


class Heap(dict[int, Any]):
    """id of a real object → its model.

    Attributes:
        pinned: the models of objects that are known by identity.
        followed: functions that are interpreted, by id.
        hashes: those of objects known by identity, as the program was told.
        recipes: id of an object made here → function and arguments that make its like.
        process_bound: why what was found here may not hold in another process.
    """

    def __init__(self, tr: Trace) -> None:
        self.tr = tr
        self.keep_alive: list[object] = []
        self.pinned: dict[int, VariableTracker] = {}
        self.followed: dict[int, Any] = {}
        self.hashes: set[int] = set()
        self.namespaces: dict[int, GlobalsNamespace] = {}
        self.recipes: dict[int, tuple[Any, tuple[Any, ...]]] = {}
        self.process_bound: str | None = None
        self._literals: dict[int, VariableTracker | None] = {}

    def release(self) -> None:
        """Let go of the program's objects."""
        for vt in self.values():
            vt.__dict__.clear()
        self.clear()
        self.pinned.clear()
        self.followed.clear()
        self.keep_alive.clear()

    def add(self, real: object, model: VariableTracker) -> Any:
        """Take in a real object with its model; the model that it has."""
        self.keep_alive.append(real)
        return self.setdefault(id(real), model)

    def bind_to_process(self, reason: str) -> None:
        """Something was looked at that is another thing in each process, and that no guard compares."""
        self.process_bound = self.process_bound or reason

    # -- objects that are met in a certain place

    def literal(self, value: object) -> Any:
        """LOAD_CONST: constants of code objects, tuples and frozensets of such included."""
        if type(value) in ATOMIC_TYPES:
            return ConstantVariable(value)
        if type(value) is InstructionPlace:
            return Lasti(2 * value)
        found = self._literals.get(id(value))
        if found is None:
            found = ConstantVariable(value) if type(value) is types.CodeType else self.tr.wrap_new(value)
            self._literals[id(value)] = found
        return found

    def namespace(self, globals_: dict[str, Any]) -> GlobalsNamespace:
        """The model of a module's globals."""
        found = self.namespaces.get(id(globals_))
        if found is None:
            source = self.tr.constant_source(globals_)
            names = globals_.get("__builtins__", builtins)
            names = names.__dict__ if issubclass(type(names), types.ModuleType) else names
            fixed = globals_ is own_builtins.OWN or globals_.get("__package__") == polyfills.__name__
            if "__builtins__" in globals_ and not fixed:
                node = self.tr.source(source, ir.DICT_ITEM, "__builtins__")
                self.tr.guard(node, ir.IS, globals_["__builtins__"])
            below = self.namespace(names) if names is not globals_ and names is not None else None
            found = self.namespaces[id(globals_)] = GlobalsNamespace(globals_, below, source)
            found.is_fixed = fixed
        return found

    def namespace_of(self, function: types.FunctionType) -> GlobalsNamespace:
        """The globals of a real function, which has the builtins that they named when it was made."""
        found = self.namespace(function.__globals__)
        known = found.builtins.value if found.builtins is not None else found.value
        if getattr(function, "__builtins__") is not known:  # noqa: B009 (typeshed lacks it)
            unsupported("call-skipped-function", f"{function.__qualname__} has builtins of its own")
        return found

    # -- identity

    def alias(self, found: VariableTracker, value: object, source: GuardNode | None) -> None:
        """A second path to a known object: the paths must keep leading to one object."""
        first: GuardNode | None = found.__dict__["source"]
        if first is source or first is None or source is None:
            return
        if ir.CONST in (first.kind, source.kind) or _is_made_once(value):
            # A tracker that is only compared by identity is never looked at, and gets no guard of its model: both paths are guarded here.
            self.tr.guard(first, ir.IS, value)
            self.tr.guard(source, ir.IS, value)
        else:
            self.tr.guards.same(first, source, self.tr.thread.here())

    def identical(self, v: VariableTracker, w: VariableTracker) -> bool:
        """`v is w` where the program asks: constants from outside are known by their values, which two objects may share."""
        same = self.same_object(v, w)
        if v is not w and isinstance(v, ConstantVariable) and isinstance(w, ConstantVariable):
            a, b = v.value, w.value
            alike = same or (type(a) is type(b) and (a == b or (a != a and b != b)))
            if alike and _is_known_by_value(v) and _is_known_by_value(w):
                if same:
                    self.tr.guards.same(v.source, w.source, self.tr.thread.here())
                else:
                    self.tr.guards.distinct((v.source, w.source), self.tr.thread.here())
        return same

    def same_object(self, v: VariableTracker, w: VariableTracker) -> bool:
        """`v is w`, except that of equal constants none needs to be a certain one."""
        if v is w:
            return True
        if v.type_varies or w.type_varies:
            return v.is_object(w) if v.type_varies else w.is_object(v)
        if (v.is_one_of_several or w.is_one_of_several) and v.python_type() is w.python_type():
            unsupported("data-dependent-branch", "which one of two tensors it is")
        if v.is_symbolic or w.is_symbolic:
            if v.python_type() is not w.python_type():
                return False
            v, w = _known(v), _known(w)
        if isinstance(v, ConstantVariable) or isinstance(w, ConstantVariable):
            same = v.value is w.value and v.value is not MISSING
            if not same and v.python_type() is w.python_type():
                self._check_cached(v, w)
            return same
        if is_sourced(v) and is_sourced(w):  # two objects of the program: not the only one both
            self.tr.guards.distinct((v.source, w.source), self.tr.thread.here())
        elif v.python_type() is w.python_type() and _are_only_one(v, w):
            return True
        self._check_cached(v, w)
        return False

    def _check_cached(self, v: VariableTracker, w: VariableTracker) -> None:
        """Raise `Unsupported` if one object is in a cache, where it may be the other one."""
        comes_from_cache = self.tr.effects.comes_from_cache
        for vt, other in ((v, w), (w, v)) if self.tr.effects.cached else ():
            found = comes_from_cache(vt)
            if found is not None and (is_sourced(other) or comes_from_cache(other) is not None):
                raise found.error

    def identity_hash(self, vt: VariableTracker) -> VariableTracker:
        """The default hash as a number. It differs from run to run: known for an object that modules and classes keep."""
        value = vt.value
        if (
            value is not MISSING
            and not is_lazy(vt)
            and lookup(type(value), "__hash__") in (object.__hash__, type.__hash__)
            and vt.source is not None
            and vt.source.root.kind == ir.CONST
        ):
            self.tr.guard(vt.source, ir.IS, value)
            self.bind_to_process("an object's hash")
            number = object.__hash__(value)
            self.hashes.add(number)
            return ConstantVariable(number)
        return unsupported("object-identity", f"hash of {vt.describe()}")


def _known(vt: Any) -> VariableTracker:
    """A symbolic number as the constant that it is held to be."""
    return vt.constant() if vt.is_symbolic else vt


def _are_only_one(v: VariableTracker, w: VariableTracker) -> bool:
    """True for two objects of one class of which there is only one. What was made here is asked first: its answer needs no guard."""
    return w.is_only_one and v.is_only_one if is_sourced(v) else v.is_only_one and w.is_only_one


def is_sourced(v: VariableTracker) -> bool:
    """True for an object that can be reached again by a path which other guards don't pin."""
    return v.source is not None and v.source.kind != ir.CONST


def _is_known_by_value(v: VariableTracker) -> bool:
    """True for a constant from outside if another object may have its value and pass its guards."""
    value = v.value
    cached = value in _CACHED.get(type(value), ())
    return not cached and is_sourced(v) and any(check.kind == ir.EQUALS for check in v.source.checks)


# By type: a set of text and bytes compares them, which is an error under `python -bb`.
_CACHED: dict[type, Container[Any]] = {
    int: range(-5, 257),
    str: frozenset({"", *map(chr, range(256))}),
    bytes: frozenset({b"", *(bytes([i]) for i in range(256))}),
}


def _is_made_once(value: Any) -> bool:
    """True for a function, class or module of the program's text: not made anew at each call, as one inside of a function may be."""
    cls = type(value)
    if cls is types.FunctionType:
        return "<locals>" not in value.__qualname__
    if cls is types.BuiltinFunctionType:
        return value.__self__ is None or issubclass(type(value.__self__), (types.ModuleType, type))
    return cls is types.ModuleType or (issubclass(cls, type) and "<locals>" not in _qualname(value))


_qualname = type.__dict__["__qualname__"].__get__
