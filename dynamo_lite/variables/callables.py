"""Callables made by C types: `functools.partial`, `operator.attrgetter`, `itemgetter`, `methodcaller`, `list[int]`.

Input: trackers of the constructor's arguments, or a real object. Output: `PartialVariable`, `GetterVariable`,
`AliasVariable`.
Invariant: calling one does what calling the real one does; one that escapes is built again by its constructor.
Mirrors `Modules/_functoolsmodule.c`, `Modules/_operator.c`, `Objects/genericaliasobject.c`.
"""

from __future__ import annotations

import functools
import operator
import types
from typing import Any

from ..guards import ir
from .abstract import get_attr, get_item
from .base import VariableTracker
from .constant import ConstantVariable, is_none
from .descr import generic_getattr, getset
from .dict import DictVariable
from .dispatch import constructor
from .function import MethodVariable
from .iter import reduced_arg
from .native import NativeVariable, emit_all, host_value, readonly
from .tuple import TupleVariable
from .wrap import builds

partial = functools.partial


class PartialVariable(NativeVariable):
    """`functools.partial(function, *args, **keywords)`."""

    cls = partial

    def __init__(
        self,
        function: VariableTracker,
        args: list[VariableTracker],
        keywords: dict[str, VariableTracker],
        source: Any = None,
    ) -> None:
        self.function = function
        self.args = args
        self.keywords = keywords
        self.source = source
        self.dict: DictVariable | None = None

    def instance_dict(self, tx: Any) -> DictVariable:
        """The object's `__dict__`."""
        if self.dict is None:
            if self.source is None:
                self.dict = DictVariable()
            else:
                self.dict = tx.tr.wrap(self.value.__dict__, tx.tr.source(self.source, ir.INSTANCE_DICT))
        return self.dict

    def tp_getattro(self, tx: Any, name: str) -> VariableTracker:
        return generic_getattr(tx, self, name)

    def describe(self) -> str:
        return f"partial of {self.function.describe()}"

    def direct_call(self, tx: Any, args: list[VariableTracker]) -> Any:
        return None if self.keywords else self.function.direct_call(tx, [*self.args, *args])

    def tp_call(self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        return tx.call(self.function, [*self.args, *args], {**self.keywords, **kwargs})

    def children(self) -> Any:
        extra = [self.dict] if self.dict is not None else []
        return [self.function, *self.args, *self.keywords.values(), *extra]

    def emit_new(self, cg: Any) -> None:
        cg.load_callable(partial)
        n = emit_all(cg, [self.function, *self.args, *self.keywords.values()])
        cg.asm.call(n, tuple(self.keywords))

    def emit_fill(self, cg: Any) -> None:
        if self.dict is not None and self.dict.source is None:
            for key, value in self.dict.pairs():
                cg.load(value)
                cg.load(self)
                cg.asm.store_attr(key.value)


@builds(partial)
def build_partial(tr: Any, value: Any, source: Any) -> PartialVariable:
    tr.guard(source, ir.TYPE_IS, type(value))
    args, keywords = tr.source(source, ir.ATTR, "args"), tr.source(source, ir.ATTR, "keywords")
    tr.guard(args, ir.LEN, len(value.args))
    tr.guard(keywords, ir.DICT_KEYS, tuple(value.keywords))
    result = PartialVariable(
        tr.wrap(value.func, tr.source(source, ir.ATTR, "func")),
        [tr.wrap(arg, tr.source(args, ir.INDEX, i)) for i, arg in enumerate(value.args)],
        {name: tr.wrap(arg, tr.source(keywords, ir.DICT_ITEM, name)) for name, arg in value.keywords.items()},
        source,
    )
    result.value = value
    return result


@constructor(partial)
def new_partial(
    tx: Any, cls: VariableTracker, /, *args: VariableTracker, **keywords: VariableTracker
) -> VariableTracker:
    if not args:
        return tx.raises(TypeError, "type 'partial' takes at least one argument")
    function, *rest = args
    if function.tp_call is None:
        return tx.raises(TypeError, "the first argument must be callable")
    if isinstance(function, PartialVariable) and not function.instance_dict(tx).items:
        return PartialVariable(function.function, [*function.args, *rest], {**function.keywords, **keywords})
    return PartialVariable(function, rest, keywords)


@getset(partial.__dict__["func"], readonly(partial.__dict__["func"]))
def partial_func(tx: Any, self: PartialVariable, /) -> VariableTracker:
    return self.function


@getset(partial.__dict__["args"], readonly(partial.__dict__["args"]))
def partial_args(tx: Any, self: PartialVariable, /) -> VariableTracker:
    return TupleVariable(list(self.args))


@getset(partial.__dict__["keywords"], readonly(partial.__dict__["keywords"]))
def partial_keywords(tx: Any, self: PartialVariable, /) -> VariableTracker:
    # A copy: `p.keywords[k] = v` would change the real one, which breaks as a write to an object of unknown kind.
    return DictVariable(dict(self.keywords))


class GetterVariable(NativeVariable):
    """`operator.attrgetter(*names)`, `itemgetter(*keys)`, `methodcaller(name, *args, **kwargs)`."""

    def __init__(self, cls: type, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> None:
        self.cls = cls
        self.args = args
        self.kwargs = kwargs

    def tp_call(self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        name = self.cls.__name__
        if kwargs:
            return tx.raises(TypeError, f"{name}() takes no keyword arguments")
        if len(args) != 1:
            return tx.raises(TypeError, f"{name} expected 1 argument, got {len(args)}")
        obj = args[0]
        if self.cls is operator.methodcaller:
            return tx.call(get_attr(tx, obj, host_value(self.args[0])), self.args[1:], self.kwargs)
        found = [self._get(tx, obj, part) for part in self.args]
        return found[0] if len(found) == 1 else TupleVariable(found)

    def _get(self, tx: Any, obj: VariableTracker, part: VariableTracker) -> VariableTracker:
        if self.cls is operator.itemgetter:
            return get_item(tx, obj, part)
        for name in host_value(part).split("."):
            obj = get_attr(tx, obj, name)
        return obj

    def children(self) -> Any:
        return [*self.args, *self.kwargs.values()]

    def emit_new(self, cg: Any) -> None:
        cg.load_callable(self.cls)
        n = emit_all(cg, self.children())
        cg.asm.call(n, tuple(self.kwargs))


def _new_getter(cls: type) -> None:
    @constructor(cls)
    def new_getter(
        tx: Any, tracker: VariableTracker, /, *args: VariableTracker, **kwargs: VariableTracker
    ) -> VariableTracker:
        if not args:
            need = "expected 1 argument, got 0"
            if cls is operator.methodcaller:
                need = "needs at least one argument, the method name"
            return tx.raises(TypeError, f"{cls.__name__} {need}")
        if cls is not operator.itemgetter:
            names = args if cls is operator.attrgetter else args[:1]
            if not all(issubclass(name.python_type(), str) for name in names):
                what = (
                    "attribute name must be a string" if cls is operator.attrgetter else "method name must be a string"
                )
                return tx.raises(TypeError, what)
        if kwargs and cls is not operator.methodcaller:
            return tx.raises(TypeError, f"{cls.__name__}() takes no keyword arguments")
        return GetterVariable(cls, list(args), kwargs)


for _cls in (operator.attrgetter, operator.itemgetter, operator.methodcaller):
    _new_getter(_cls)


@builds(operator.attrgetter, operator.itemgetter)
def build_getter(tr: Any, value: Any, source: Any) -> GetterVariable:
    tr.guard(source, ir.IS, value)
    args = value.__reduce__()[1]
    result = GetterVariable(
        type(value), [tr.wrap(arg, tr.source(source, ir.CALL, reduced_arg(i))) for i, arg in enumerate(args)], {}
    )
    result.source, result.value = source, value
    return result


# -- bound methods


@constructor(types.MethodType)
def new_method(
    tx: Any, cls: VariableTracker, function: VariableTracker, instance: VariableTracker, /
) -> VariableTracker:
    if function.tp_call is None:
        return tx.raises(TypeError, "first argument must be callable")
    if is_none(instance):
        return tx.raises(TypeError, "instance must not be None")
    return MethodVariable(function, instance)


# -- functions with a cache


class CachedFunctionVariable(NativeVariable):
    """What `functools.lru_cache` makes. The wrapped function is followed; the real cache is not touched."""

    cls = functools._lru_cache_wrapper

    def __init__(self, value: Any, source: Any) -> None:
        self.value = value
        self.source = source

    def is_python_constant(self) -> bool:
        return True

    def as_python_constant(self) -> Any:
        return self.value

    def describe(self) -> str:
        return self.value.__qualname__

    def tp_getattro(self, tx: Any, name: str) -> VariableTracker:
        return generic_getattr(tx, self, name)

    def instance_dict(self, tx: Any) -> VariableTracker:
        """The object's `__dict__`, which has `__wrapped__`, `__name__` and the like."""
        return tx.tr.wrap(self.value.__dict__, tx.tr.source(self.source, ir.INSTANCE_DICT))

    def _wrapped(self, tx: Any) -> VariableTracker:
        return tx.tr.wrap(self.value.__wrapped__, tx.tr.source(self.source, ir.ATTR, "__wrapped__"))

    def tp_descr_get(self, tx: Any, obj: VariableTracker | None, cls: VariableTracker) -> VariableTracker:
        return self if obj is None else MethodVariable(self, obj)

    def direct_call(self, tx: Any, args: list[VariableTracker]) -> Any:
        return self._wrapped(tx).direct_call(tx, args)

    def tp_call(self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        return tx.call(self._wrapped(tx), args, kwargs)


@builds(functools._lru_cache_wrapper)
def build_cached_function(tr: Any, value: Any, source: Any) -> CachedFunctionVariable:
    tr.guard(source, ir.IS, value)
    return CachedFunctionVariable(value, source)


# -- generic aliases and unions


class AliasVariable(ConstantVariable):
    """`list[int]`: a constant that is called as its origin."""

    def tp_call(self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        return tx.call(tx.tr.type_tracker(self.value.__origin__), args, kwargs)


@builds(types.GenericAlias)
def build_alias(tr: Any, value: Any, source: Any) -> AliasVariable:
    tr.guard(source, ir.EQUALS, value)
    return AliasVariable(value, source)


@builds(types.UnionType)
def build_union(tr: Any, value: Any, source: Any) -> ConstantVariable:
    tr.guard(source, ir.EQUALS, value)
    return ConstantVariable(value, source)
