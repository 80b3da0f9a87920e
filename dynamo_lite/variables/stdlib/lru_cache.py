"""`functools.lru_cache`.

Input: trackers of the constructor's arguments, or a real function with a cache. Output: `CacheVariable`, `CachedFunctionVariable`.
Invariant: a call gives the result that the real cached function gives. Where the wrapped function is followed instead of the cache being
asked, the program cannot distinguish its result from the object in the cache.
Mirrors `lru_cache_call` of `Modules/_functoolsmodule.c`.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from dynamo_lite.exc import Unsupported, unsupported
from dynamo_lite.guards import ir
from dynamo_lite.variables.builtin.dict import DictVariable
from dynamo_lite.variables.builtin.tuple import TupleVariable
from dynamo_lite.variables.objects.function import MethodVariable
from dynamo_lite.variables.protocol.abstract import get_attr
from dynamo_lite.variables.protocol.base import VariableTracker, is_lazy
from dynamo_lite.variables.protocol.constant import NONE, ConstantVariable, is_none
from dynamo_lite.variables.protocol.descr import generic_getattr
from dynamo_lite.variables.protocol.dispatch import constructor, method
from dynamo_lite.variables.protocol.hashing import HASH_RULES, Key, key_of, tuple_key
from dynamo_lite.variables.protocol.native import NativeVariable, emit_call, host_index, host_value
from dynamo_lite.variables.protocol.wrap import builds

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.guards.ir import GuardNode
    from dynamo_lite.interp.frame import Frame


class CachedFunctionVariable(NativeVariable):
    """A function with a cache that exists before the frame.

    One that hangs on a module, a class or a closure is there to save time: the wrapped function is followed and the real cache not
    touched, if that makes no difference: the function changes nothing, and nobody can tell the objects that it gives from those in the
    cache. A number that varies stays one: the function gives for it what it would give for the number. One in a local variable may be
    asked for its statistics next: it is called, as is one in which the graph breaks, and one that reads a tensor, or draws random numbers,
    where those of the first call are the ones that count.
    """

    def __init__(self, value: Any, source: GuardNode | None) -> None:
        self.cls = type(value)
        self.value = value
        self.source = source
        self.results: dict[Any, VariableTracker] = {}

    def is_python_constant(self) -> bool:
        return True

    def as_python_constant(self) -> Any:
        return self.value

    def describe(self) -> str:
        return self.value.__qualname__

    def tp_getattro(self, tx: Frame, name: str) -> VariableTracker:
        return generic_getattr(tx, self, name)

    def instance_dict(self, tx: Frame) -> VariableTracker:
        """The object's `__dict__`, which has `__wrapped__`, `__name__` and the like."""
        return tx.tr.wrap(self.value.__dict__, tx.tr.source(self.source, ir.INSTANCE_DICT))

    def _wrapped(self, tx: Frame) -> VariableTracker:
        return tx.tr.wrap(self.value.__wrapped__, tx.tr.source(self.source, ir.ATTR, "__wrapped__"))

    def tp_descr_get(self, tx: Frame, obj: VariableTracker | None, cls: VariableTracker) -> VariableTracker:
        return self if obj is None else MethodVariable(self, obj)

    def tp_call(self, tx: Frame, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        tr, call = tx.tr, FollowedCall(self, tx)
        if self.source.kind == ir.LOCAL:
            raise call.refusal("is in a local variable, where its statistics may be asked for")
        if any(map(_is_tensor, (*args, *kwargs.values()))):
            raise call.refusal("is given a tensor")
        key = _argument_key(tx, args, kwargs) if self.value.cache_parameters()["maxsize"] != 0 else None
        if key is not None and key in self.results:
            return self.results[key]
        given = list(_objects([*args, *kwargs.values()], ()))
        result = tx.call(self._wrapped(tx), args, kwargs)
        made = list(_objects([result], given)) if key is not None else []
        call.check(made, key is not None)
        if key is not None:
            self.results[key] = result
            if made:
                error = call.refusal(
                    "has given an object that is changed, asked for its identity, or leaves the compiled code"
                )
                tr.effects.cached.append(CachedResult(made, error))
        return result


class FollowedCall:
    """A call of a function with a cache that is followed, from its beginning on."""

    def __init__(self, function: CachedFunctionVariable, tx: Frame) -> None:
        self.name = function.describe()
        self.tr = tx.tr
        self.step, self.user_stack = tx.tr.thread.failing_step(), tx.tr.thread.user_stack()
        self.changes = len(tx.tr.effects.mutations)
        self.last_node = tx.tr.graph.last_node
        self.drawn = tx.tr.graph.passes.random.draws

    def refusal(self, why: str) -> Unsupported:
        """The break at the call; `why` goes on after the function's name."""
        error = Unsupported("call-cached-function", f"{self.name}, which {why}")
        error.break_step, error.user_stack = self.step, self.user_stack
        return error

    def check(self, made: list[VariableTracker], is_kept: bool) -> None:
        """Raise `Unsupported` if a call that finds its result in the cache would leave something else behind. `made`: the objects that the
        call has made; `is_kept`: whether there is a cache at all."""
        if len(self.tr.effects.mutations) != self.changes:
            raise self.refusal("changes something")
        if any(vt.tp_iternext is not None for vt in made):
            raise self.refusal("gives an iterator")  # whose position is no child of it
        if is_kept and self.tr.graph.passes.random.draws != self.drawn:
            raise self.refusal("draws random numbers")
        if is_kept and self.tr.graph.reads_tensors_since(self.last_node):
            raise self.refusal("reads a tensor that it has not made, whose data at the first call count")


def _argument_key(tx: Frame, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> Any:
    """A key that is equal only for calls with the same result in the cache; numbers that vary are told apart by their trackers."""
    return (*(_item_key(tx, v) for v in args), *((name, _item_key(tx, v)) for name, v in kwargs.items()))


def _item_key(tx: Frame, v: VariableTracker) -> Any:
    if v.is_symbolic or (tx.tr.effects.cached and tx.tr.effects.comes_from_cache(v) is not None):
        return v
    cls = v.python_type()
    compares_items = isinstance(v, TupleVariable) and issubclass(getattr(cls.__eq__, "__objclass__", object), tuple)
    if compares_items and HASH_RULES.get(cls.__hash__) is tuple_key:
        return (cls, *[_item_key(tx, item) for item in v.items])
    return (cls, key_of(tx, v))


class CachedResult:
    """The objects that a followed call has made, which at a real call come from the cache.

    Nobody can tell them from those as long as they stay in the trace, are not changed, and are not asked for their identity.
    """

    def __init__(self, objects: list[VariableTracker], error: Unsupported) -> None:
        self.objects = {id(vt): vt for vt in objects}
        self.state = [_state(vt) for vt in objects]
        self.error = error

    def holds(self, vt: VariableTracker) -> bool:
        """Whether this is one of the objects."""
        return id(vt) in self.objects

    def check(self, graph: Any, escaping: Iterable[VariableTracker]) -> None:
        """Raises `Unsupported` if one of the objects leaves the trace or has been changed."""
        if any(map(self.holds, escaping)) or not all(map(_is_unchanged, self.objects.values(), self.state)):
            raise self.error
        tensors = [vt.proxy for vt in self.objects.values() if _is_tensor(vt)]
        if tensors:
            seen = {vt.proxy for vt in escaping if not is_lazy(vt) and _is_tensor(vt)} | graph.passes.inputs.changed
            if any(not seen.isdisjoint(value.family or (value,)) for value in tensors):
                raise self.error


def _is_tensor(vt: VariableTracker) -> bool:
    return not is_lazy(vt) and getattr(vt, "proxy", None) is not None and not vt.is_symbolic


def _objects(roots: list[VariableTracker], known: Iterable[VariableTracker]) -> Iterator[VariableTracker]:
    """The objects with an identity that the traced code has made, from `roots` on; those in `known` and behind them left out. Numbers have
    none, those that vary neither."""
    seen = {id(vt) for vt in known}
    pending = list(roots)
    while pending:
        vt = pending.pop()
        if id(vt) in seen or is_lazy(vt) or vt.source is not None or vt.is_python_constant() or vt.is_symbolic:
            continue
        seen.add(id(vt))
        yield vt
        pending.extend(vt.children())


def _state(vt: VariableTracker) -> list[Any]:
    """The parts of an object by whose identity a change is recognised: its children, constants by their values, others by their paths."""
    state = [vt.proxy] if _is_tensor(vt) else []
    for child in vt.children():
        source = child.__dict__.get("source")
        state.append(source if source is not None else child.value if isinstance(child, ConstantVariable) else child)
    return state


def _is_unchanged(vt: VariableTracker, state: list[Any]) -> bool:
    now = _state(vt)
    return len(now) == len(state) and all(map(operator.is_, now, state))


class CacheVariable(NativeVariable):
    """A function with a cache that the traced code made; `cache` is in the order of use, newest last."""

    def __init__(self, cls: type, parts: list[VariableTracker], maxsize: int | None, typed: bool) -> None:
        self.cls = cls
        self.parts = parts  # the constructor's arguments
        self.function = parts[0]
        self.maxsize = maxsize
        self.typed = typed
        self.hits = self.misses = 0
        self.cache: dict[Any, VariableTracker] = {}
        self.dict = DictVariable()

    def _key(self, tx: Frame, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> Any:
        """`lru_cache_make_key`: a single int or str is its own key."""
        if not self.typed and not kwargs and len(args) == 1 and args[0].python_type() in (int, str):
            return key_of(tx, args[0])
        items = list(args)
        for name, value in kwargs.items():
            items += [ConstantVariable(name), value]
        kinds = [v.python_type() for v in (*args, *kwargs.values())] if self.typed else []
        return Key(NONE, (len(args), tuple([key_of(tx, item) for item in items]), *kinds))

    def instance_dict(self, tx: Frame) -> DictVariable:
        """The object's `__dict__`."""
        return self.dict

    def tp_getattro(self, tx: Frame, name: str) -> VariableTracker:
        return generic_getattr(tx, self, name)

    def tp_descr_get(self, tx: Frame, obj: VariableTracker | None, cls: VariableTracker) -> VariableTracker:
        return self if obj is None else MethodVariable(self, obj)

    def tp_call(self, tx: Frame, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        if self.maxsize == 0:
            self.misses += 1
            return tx.call(self.function, args, kwargs)
        key = self._key(tx, args, kwargs)
        found = self.cache.get(key)
        if found is not None:
            self.hits += 1
            if self.maxsize is not None:
                self.cache[key] = self.cache.pop(key)
            return found
        self.misses += 1
        result = tx.call(self.function, args, kwargs)
        if self.maxsize is None:
            self.cache[key] = result
        elif key not in self.cache:  # the call itself may have come here with the same arguments
            if len(self.cache) >= self.maxsize:
                del self.cache[next(iter(self.cache))]
            self.cache[key] = result
        return result

    def children(self) -> Any:
        return [*self.parts, self.dict]

    def emit_new(self, cg: Codegen) -> None:
        if self.cache or self.hits or self.misses:
            unsupported("reconstruct", "a function with a cache that has been called")
        emit_call(cg, self.cls, *self.parts)

    def emit_fill(self, cg: Codegen) -> None:
        for key, value in self.dict.pairs():
            cg.load(value)
            cg.load(self)
            cg.asm.store_attr(key.value)


def _build_cached_function(tr: Trace, value: object, source: GuardNode | None) -> CachedFunctionVariable:
    tr.guard(source, ir.IS, value)
    return CachedFunctionVariable(value, source)


def _new_cache(
    tx: Frame,
    cls: VariableTracker,
    user_function: VariableTracker,
    maxsize: VariableTracker,
    typed: VariableTracker,
    cache_info_type: VariableTracker,
) -> VariableTracker:
    if user_function.tp_call is None:
        return tx.raises(TypeError, "the first argument must be callable")
    if not is_none(maxsize) and maxsize.nb_index is None:
        return tx.raises(TypeError, "maxsize should be integer or None")
    size = None if is_none(maxsize) else max(host_index(tx, maxsize), 0)
    return CacheVariable(cls.value, [user_function, maxsize, typed, cache_info_type], size, bool(host_value(typed)))


def _cache_info(tx: Frame, self: Any, /) -> VariableTracker:
    if not isinstance(self, CacheVariable):
        return unsupported("call-cached-function", "cache_info() of a cache from outside")
    numbers = [ConstantVariable(n) for n in (self.hits, self.misses, self.maxsize, len(self.cache))]
    return tx.call(self.parts[3], numbers)


def _cache_clear(tx: Frame, self: Any, /) -> VariableTracker:
    if not isinstance(self, CacheVariable):
        return unsupported("call-cached-function", "cache_clear() of a cache from outside")
    self.hits = self.misses = 0
    self.cache.clear()
    return NONE


_WRAPPER: Any = functools._lru_cache_wrapper
builds(_WRAPPER)(_build_cached_function)
constructor(_WRAPPER)(_new_cache)
method(_WRAPPER.cache_info)(_cache_info)
method(_WRAPPER.cache_clear)(_cache_clear)
method(_WRAPPER.__copy__)(lambda tx, self, /: self)
method(_WRAPPER.__deepcopy__)(lambda tx, self, memo, /: self)
method(_WRAPPER.__reduce__)(lambda tx, self, /: get_attr(tx, self, "__qualname__"))
