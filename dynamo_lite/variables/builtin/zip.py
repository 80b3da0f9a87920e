"""zip, map, filter and enumerate.

Input: trackers of the arguments, or a real object. Output: iterator models that pull from other iterators when asked,
never before.
Invariant: one class per C type, with the fields of its C struct; `emit_new` makes a real object of that type in the
same state.
Mirrors `Python/bltinmodule.c`, `Objects/enumobject.c`.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from dynamo_lite.exc import unsupported
from dynamo_lite.guards import ir
from dynamo_lite.variables.protocol.abstract import binary_op, get_iter, index, is_true, iter_next, type_name
from dynamo_lite.variables.protocol.base import Child, Children, Plain, VariableTracker
from dynamo_lite.variables.protocol.constant import FALSE, ConstantVariable, is_none
from dynamo_lite.variables.protocol.dispatch import constructor
from dynamo_lite.variables.protocol.native import emit_all, host_int
from dynamo_lite.variables.protocol.wrap import builds

from .iter import IteratorVariable, advance, call_or_stop, reduced_arg, wrapped_args
from .tuple import TupleVariable

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.guards.ir import GuardNode
    from dynamo_lite.interp.frame import Frame


def emit_with(cg: Codegen, function: object, *args: Any, **kwargs: Any) -> None:
    """Push `function(*args, **kwargs)`; arguments are trackers, lists of trackers (for tuples), or host constants."""
    cg.load_callable(function)
    _emit_arguments(cg, args, kwargs)
    cg.asm.call(len(args) + len(kwargs), tuple(kwargs))


def emit_instance(cg: Codegen, vt: IteratorVariable, base: type, *args: Any, **kwargs: Any) -> None:
    """The same for the constructor `base` of the type of `vt`, which may be a subclass."""
    cls = vt.python_type()
    if cls is base:
        emit_with(cg, base, *args, **kwargs)
    else:
        emit_with(cg, base.__new__, cls, *args, **kwargs)


def _emit_arguments(cg: Codegen, args: Any, kwargs: dict[str, Any]) -> None:
    for arg in (*args, *kwargs.values()):
        if isinstance(arg, VariableTracker):
            cg.load(arg)
        elif issubclass(type(arg), list):
            cg.asm.build_tuple(emit_all(cg, arg))
        else:
            cg.load_const(arg)


def emit_advanced(cg: Codegen, n: int, emit: Callable[[], None]) -> None:
    """Push the iterator that `emit` pushes, after taking n items off it."""
    cg.load_callable(advance)
    emit()
    cg.load_const(n)
    cg.asm.call(2)


# -- zip


class ZipVariable(IteratorVariable):
    """`zip(*iterables, strict=False)`."""

    cls = zip
    iterators: list[VariableTracker] = Children()
    strict: bool = Plain(False, emit="keyword")
    rebuild = zip

    def own(self) -> bool:
        self.owned = (self.source is not None and not self.strict) and all(
            isinstance(iterator, IteratorVariable) and iterator.own() for iterator in self.iterators
        )
        return self.owned

    def tp_iternext(self, tx: Frame) -> VariableTracker | None:
        self.refuse_if_owned()
        return self.take(tx)

    def take(self, tx: Frame) -> VariableTracker | None:
        items = []
        for i, iterator in enumerate(self.iterators):
            item = iterator.take(tx) if self.owned else iter_next(tx, iterator)
            if item is None:
                if self.strict:
                    _check_lengths(tx, "zip", self.iterators, i)
                return None
            items.append(item)
        return TupleVariable(items) if items else None


def _check_lengths(tx: Frame, name: str, iterators: list[VariableTracker], i: int) -> None:
    """Iterator i of a strict zip or map is exhausted: all others have to be, too."""
    if i:
        plural = " " if i == 1 else "s 1-"
        tx.raises(ValueError, f"{name}() argument {i + 1} is shorter than argument{plural}{i}")
    for k, iterator in enumerate(iterators[1:], 1):
        if iter_next(tx, iterator) is not None:
            plural = " " if k == 1 else "s 1-"
            tx.raises(ValueError, f"{name}() argument {k + 1} is longer than argument{plural}{k}")


@constructor(zip)
def new_zip(
    tx: Frame, cls: VariableTracker, /, *iterables: VariableTracker, strict: VariableTracker = FALSE
) -> ZipVariable:
    iterators = []
    for iterable in iterables:
        if iterable.tp_iter is None and iterable.sq_item is None:
            tx.raises(TypeError, f"'{type_name(iterable)}' object is not iterable")
        iterators.append(get_iter(tx, iterable))
    return ZipVariable(iterators, is_true(tx, strict))


@builds(zip)
def build_zip(tr: Trace, value: Any, source: GuardNode | None) -> ZipVariable:
    return ZipVariable(wrapped_args(tr, value, source), len(value.__reduce__()) > 2, source)


# -- map, filter


class MapVariable(IteratorVariable):
    """`map(function, *iterables, strict=False)`; `strict` is new in 3.14."""

    cls = map
    function: VariableTracker = Child()
    iterators: list[VariableTracker] = Children()
    strict: bool = Plain(False, emit="keyword")
    rebuild = map

    def tp_iternext(self, tx: Frame) -> VariableTracker | None:
        args = []
        for i, iterator in enumerate(self.iterators):
            item = iter_next(tx, iterator)
            if item is None:
                if self.strict:
                    _check_lengths(tx, "map", self.iterators, i)
                return None
            args.append(item)
        return call_or_stop(tx, self.function, args)


_MAP_KEYWORDS = {"strict"} if sys.version_info >= (3, 14) else set()


@constructor(map)
def new_map(tx: Frame, cls: VariableTracker, /, *args: VariableTracker, **kwargs: VariableTracker) -> MapVariable:
    if not kwargs.keys() <= _MAP_KEYWORDS:
        return unsupported("call-c-function", "map with arguments that don't fit")
    strict = is_true(tx, kwargs.get("strict", FALSE))
    if len(args) < 2:
        return tx.raises(TypeError, "map() must have at least two arguments.")
    return MapVariable(args[0], [get_iter(tx, iterable) for iterable in args[1:]], strict)


@builds(map)
def build_map(tr: Trace, value: object, source: GuardNode | None) -> MapVariable:
    function, *iterators = wrapped_args(tr, value, source)
    return MapVariable(function, iterators, len(value.__reduce__()) > 2, source)


class FilterVariable(IteratorVariable):
    """`filter(function or None, iterable)`."""

    cls = filter
    function: VariableTracker = Child()
    iterator: VariableTracker = Child()

    rebuild = filter

    def tp_iternext(self, tx: Frame) -> VariableTracker | None:
        by_truth = is_none(self.function) or self.function.value is bool
        while (item := iter_next(tx, self.iterator)) is not None:
            verdict = item if by_truth else call_or_stop(tx, self.function, [item])
            if verdict is None:
                return None
            if is_true(tx, verdict):
                return item
        return None


@constructor(filter)
def new_filter(
    tx: Frame, cls: VariableTracker, function: VariableTracker, iterable: VariableTracker, /
) -> FilterVariable:
    return FilterVariable(function, get_iter(tx, iterable))


@builds(filter)
def build_filter(tr: Trace, value: object, source: GuardNode | None) -> FilterVariable:
    function, iterator = wrapped_args(tr, value, source)
    return FilterVariable(function, iterator, source)


# -- enumerate


class EnumerateVariable(IteratorVariable):
    """`enumerate(iterable, start=0)`. `count` is the number of the next item, which may vary."""

    cls = enumerate
    iterator: Any = Child()
    count: VariableTracker = Child()
    rebuild = enumerate
    consumed = 0

    def tp_iternext(self, tx: Frame) -> VariableTracker | None:
        if self.source is None:
            item = iter_next(tx, self.iterator)
        else:
            item = self.iterator.take(tx)
            tx.tr.effects.mutating(self)
            self.consumed += 1
        if item is None:
            return None
        count = self.count
        self.count = binary_op(tx, operator.add, count, ConstantVariable(1))
        return TupleVariable([count, item])

    def emit_update(self, cg: Codegen) -> None:
        emit_with(cg, _step, self, self.consumed)
        cg.asm.pop_top()


def _step(iterator: Iterator[Any], n: int) -> None:
    """Ask a real iterator n times: where a part of it goes on behind its end, each time takes something."""
    for _ in range(n):
        next(iterator, None)


@constructor(enumerate)
def new_enumerate(
    tx: Frame, cls: VariableTracker, iterable: VariableTracker, start: VariableTracker | None = None
) -> EnumerateVariable:
    count = ConstantVariable(0) if start is None else index(tx, start)
    if not count.is_symbolic:
        count = ConstantVariable(host_int(count))
    return EnumerateVariable(get_iter(tx, iterable), count)


@builds(enumerate)
def build_enumerate(tr: Trace, value: Any, source: GuardNode | None) -> EnumerateVariable:
    tr.guard(source, ir.TYPE_IS, type(value))
    inner, count = value.__reduce__()[1]
    number = tr.wrap(count, tr.source(source, ir.CALL, reduced_arg(1)))
    model = tr.wrap(inner, tr.source(source, ir.CALL, reduced_arg(0)))
    if model.tp_iternext is None or not isinstance(model, IteratorVariable) or model.owned or not model.own():
        unsupported("iterator-state", f"enumerate over a {type(inner).__name__}")
    return EnumerateVariable(model, number, source)
