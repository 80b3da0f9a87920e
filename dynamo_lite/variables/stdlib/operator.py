"""`operator.attrgetter`, `itemgetter` and `methodcaller`.

Input: trackers of the constructor's arguments, or a real object. Output: `GetterVariable`.
Invariant: one that escapes is built again by its constructor.
Mirrors `Modules/_operator.c`.
"""

from __future__ import annotations

import functools
import operator
from typing import TYPE_CHECKING, Any

from dynamo_lite.guards import ir
from dynamo_lite.variables.builtin.iter import reduced_arg
from dynamo_lite.variables.builtin.tuple import TupleVariable
from dynamo_lite.variables.protocol.abstract import get_attr, get_item
from dynamo_lite.variables.protocol.base import VariableTracker
from dynamo_lite.variables.protocol.dispatch import constructor, method
from dynamo_lite.variables.protocol.native import NativeVariable, emit_all, host_value, part_text, recursive_repr
from dynamo_lite.variables.protocol.wrap import builds

from .functools import partial_new

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.guards.ir import GuardNode
    from dynamo_lite.interp.frame import Frame


class GetterVariable(NativeVariable):
    """`operator.attrgetter(*names)`, `itemgetter(*keys)`, `methodcaller(name, *args, **kwargs)`."""

    def __init__(self, cls: type, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> None:
        self.cls = cls
        self.args = args
        self.kwargs = kwargs

    def tp_call(self, tx: Frame, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        name = self.cls.__name__
        if kwargs:
            return tx.raises(TypeError, f"{name}() takes no keyword arguments")
        if len(args) != 1:
            return tx.raises(TypeError, f"{name} expected 1 argument, got {len(args)}")
        return self.read(tx, args[0])

    def read(self, tx: Frame, obj: VariableTracker) -> VariableTracker:
        """The value that the getter gets from an object."""
        found = [self.part(tx, obj, part) for part in self.args]
        return found[0] if len(found) == 1 else TupleVariable(found)

    def part(self, tx: Frame, obj: VariableTracker, key: VariableTracker) -> VariableTracker:
        """The value that it gets for one of its arguments."""
        raise NotImplementedError

    def tp_repr(self, tx: Frame) -> VariableTracker:
        def text() -> str:
            parts = [part_text(tx, arg) for arg in self.args]
            parts += [f"{name}={part_text(tx, value)}" for name, value in self.kwargs.items()]
            return f"operator.{self.cls.__name__}({', '.join(parts)})"

        return recursive_repr(tx, self, f"operator.{self.cls.__name__}(...)", text)

    def reduce(self, tx: Frame) -> VariableTracker:
        """`__reduce__`"""
        return TupleVariable([tx.tr.type_tracker(self.cls), TupleVariable(list(self.args))])

    def children(self) -> Any:
        return [*self.args, *self.kwargs.values()]

    def emit_new(self, cg: Codegen) -> None:
        cg.load_callable(self.cls)
        n = emit_all(cg, self.children())
        cg.asm.call(n, tuple(self.kwargs))


class ItemGetterVariable(GetterVariable):
    """`operator.itemgetter(*keys)`."""

    def part(self, tx: Frame, obj: VariableTracker, key: VariableTracker) -> VariableTracker:
        return get_item(tx, obj, key)


class AttrGetterVariable(GetterVariable):
    """`operator.attrgetter(*names)`."""

    def part(self, tx: Frame, obj: VariableTracker, key: VariableTracker) -> VariableTracker:
        for name in host_value(key).split("."):
            obj = get_attr(tx, obj, name)
        return obj


class MethodCallerVariable(GetterVariable):
    """`operator.methodcaller(name, *args, **kwargs)`."""

    def read(self, tx: Frame, obj: VariableTracker) -> VariableTracker:
        return tx.call(get_attr(tx, obj, host_value(self.args[0])), self.args[1:], dict(self.kwargs))

    def reduce(self, tx: Frame) -> VariableTracker:
        if not self.kwargs:
            return super().reduce(tx)
        cls = tx.tr.type_tracker(self.cls)
        constructor_ = partial_new(tx, tx.tr.type_tracker(functools.partial), cls, self.args[0], **self.kwargs)
        return TupleVariable([constructor_, TupleVariable(self.args[1:])])


MODELS: dict[str, type[GetterVariable]] = {
    "attrgetter": AttrGetterVariable,
    "itemgetter": ItemGetterVariable,
    "methodcaller": MethodCallerVariable,
}


def register_getter(cls: Any) -> None:
    """One of the three, and its methods."""
    model = MODELS[cls.__name__]
    takes_keywords = model is MethodCallerVariable

    @constructor(cls)
    def new_getter(
        tx: Frame, tracker: VariableTracker, /, *args: VariableTracker, **kwargs: VariableTracker
    ) -> VariableTracker:
        if not args:
            need = "needs at least one argument, the method name" if takes_keywords else "expected 1 argument, got 0"
            return tx.raises(TypeError, f"{cls.__name__} {need}")
        if model is AttrGetterVariable and not all(issubclass(name.python_type(), str) for name in args):
            return tx.raises(TypeError, "attribute name must be a string")
        if takes_keywords and not issubclass(args[0].python_type(), str):
            return tx.raises(TypeError, "method name must be a string")
        if kwargs and not takes_keywords:
            return tx.raises(TypeError, f"{cls.__name__}() takes no keyword arguments")
        return model(cls, list(args), kwargs)

    @builds(cls)
    def build_getter(tr: Trace, value: Any, source: GuardNode | None) -> GetterVariable:
        tr.guard(source, ir.IS, value)
        function, args = value.__reduce__()
        keywords: dict[str, VariableTracker] = {}
        if function is not cls:  # a methodcaller with keywords: partial(methodcaller, name, **keywords)
            args = (*function.args, *args)
            for name, arg in function.keywords.items():
                keywords[name] = tr.wrap(arg, tr.source(source, ir.CALL, reduced_keyword(name)))
        path = reduced_arg if function is cls else partial_arg
        wrapped = [tr.wrap(arg, tr.source(source, ir.CALL, path(i))) for i, arg in enumerate(args)]
        result = model(cls, wrapped, keywords)
        result.source, result.value = source, value
        return result

    @method(cls.__reduce__)
    def getter_reduce(tx: Frame, self: GetterVariable, /) -> VariableTracker:
        return self.reduce(tx)


for _cls in (operator.attrgetter, operator.itemgetter, operator.methodcaller):
    register_getter(_cls)


@functools.cache
def reduced_keyword(name: str) -> Any:
    """A function for a CALL path: a keyword argument of a real methodcaller."""

    def keyword(caller: Any) -> Any:
        return caller.__reduce__()[0].keywords[name]

    return keyword


@functools.cache
def partial_arg(i: int) -> Any:
    """A function for a CALL path: a positional argument of a real methodcaller that has keyword arguments."""

    def argument(caller: Any) -> Any:
        function, args = caller.__reduce__()
        return (*function.args, *args)[i]

    return argument
