"""`functools.partial`.

Input: trackers of the constructor's arguments, or a real object. Output: `PartialVariable`.
Invariant: calling one does what calling the real one does, in the same frame, so that a break inside the function continues there: a Python
class could not stand for it, since no graph breaks within stand-ins.
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
from dynamo_lite.variables.protocol.abstract import class_name, class_path
from dynamo_lite.variables.protocol.base import MISSING, VariableTracker
from dynamo_lite.variables.protocol.descr import generic_getattr, getset
from dynamo_lite.variables.protocol.dispatch import builtin, constructor
from dynamo_lite.variables.protocol.native import (
    NativeVariable,
    emit_all,
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

    cls = functools.partial
    emits_subclasses = True
    function: VariableTracker
    args: TupleVariable
    keywords: DictVariable

    def __init__(self, cls: type | None = None, source: GuardNode | None = None) -> None:
        if cls is not None:
            self.cls = cls
        self.source = source
        self.dict: Any = MISSING
        self.exposed = False  # the program may hold the very dict of the new object

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
            unsupported("reconstruct", f"{self.describe()}, whose keywords the program holds")
        of_subclass = self.cls is not functools.partial
        cg.load_callable(functools.partial.__new__ if of_subclass else functools.partial)
        if of_subclass:
            cg.load_const(self.cls)
        n = emit_all(cg, (self.function, *self.args.items, *self.keywords.items.values()))
        cg.asm.call(of_subclass + n, tuple(self.keywords.items))

    def emit_fill(self, cg: Codegen) -> None:
        if isinstance(self.dict, DictVariable) and self.dict.source is None:
            for key, value in self.dict.pairs():
                cg.load(value)
                cg.load(self)
                cg.asm.store_attr(key.value)


def _partial_name(cls: type) -> str:
    """The name of a partial object in its `repr`: `tp_name`, or in later versions the qualified name."""
    if cls is native_base(cls):
        return "functools.partial"
    return class_path(cls) if _QUALIFIED else class_name(cls)


_QUALIFIED = repr(type("Sub", (functools.partial,), {"__module__": "module"})(int)).startswith("module.")


@builds(functools.partial)
def build_partial(tr: Trace, value: Any, source: GuardNode | None) -> PartialVariable:
    tr.guard(source, ir.TYPE_IS, type(value))
    result = PartialVariable(type(value), source)
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


def _member(name: str) -> Any:
    descriptor = functools.partial.__dict__[name]
    return getset(descriptor, readonly(descriptor))


@_member("func")
def partial_func(tx: Frame, self: PartialVariable, /) -> VariableTracker:
    return self.function


@_member("args")
def partial_args(tx: Frame, self: PartialVariable, /) -> VariableTracker:
    return self.args


@_member("keywords")
def partial_keywords(tx: Frame, self: PartialVariable, /) -> VariableTracker:
    self.exposed = self.source is None
    return self.keywords


register_native(functools.partial, PartialVariable)
constructor(functools.partial)(partial_new)
builtin(functools.partial.__new__)(partial_new)
