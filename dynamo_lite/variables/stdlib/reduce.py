"""Iterators taken apart and put together: `__reduce__`, `__setstate__`, subclasses of the iterator types.

Input: the iterator models. Output: handlers of these methods for every iterator type that has them.
Invariant: what `reduced` of a model gives, called and restored, is an iterator that goes on as this one.
Mirrors the methods of that name in `Objects/` and `Modules/itertoolsmodule.c`.
"""

from __future__ import annotations

import collections
import itertools
import warnings
from typing import TYPE_CHECKING, Any

from dynamo_lite.exc import unsupported
from dynamo_lite.variables.builtin.deque import DequeIterator
from dynamo_lite.variables.builtin.dictview import ITERATOR_TYPES, DictIterator
from dynamo_lite.variables.builtin.iter import (
    LIST_ITERATORS,
    CallIterator,
    ConstantIterator,
    IteratorVariable,
    ListIterator,
    OpaqueIterator,
    ReversedVariable,
    SequenceIteratorVariable,
)
from dynamo_lite.variables.builtin.list import ListVariable
from dynamo_lite.variables.builtin.set import SetIterator
from dynamo_lite.variables.builtin.tuple import TupleVariable
from dynamo_lite.variables.builtin.zip import EnumerateVariable, FilterVariable, MapVariable, ZipVariable
from dynamo_lite.variables.objects.subclass import NATIVES, instance_class
from dynamo_lite.variables.protocol.base import LazyVariable, VariableTracker
from dynamo_lite.variables.protocol.constant import NONE
from dynamo_lite.variables.protocol.dispatch import HANDLERS, builtin, method
from dynamo_lite.variables.protocol.wrap import BUILDERS, SUBCLASS_BUILDERS

from .itertools import AccumulateVariable, ChainVariable, CountVariable, CycleVariable, IsliceVariable, RepeatVariable
from .itertools_groupby import GroupByVariable, GrouperVariable
from .itertools_product import CombinatoricVariable
from .itertools_select import (
    BatchedVariable,
    CompressVariable,
    PairwiseVariable,
    StarmapVariable,
    WhileVariable,
    ZipLongestVariable,
)

if TYPE_CHECKING:
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.guards.ir import GuardNode
    from dynamo_lite.interp.frame import Frame


def tracker_of(tx: Frame, part: Any) -> VariableTracker:
    """The object that a part of what `reduced` returns describes: a tracker, or a host value that may contain some."""
    if issubclass(type(part), (VariableTracker, LazyVariable)):
        return part
    if type(part) is tuple:
        return TupleVariable([tracker_of(tx, item) for item in part])
    if type(part) is list:
        return ListVariable([tracker_of(tx, item) for item in part])
    return tx.tr.wrap_new(part)


def iterator_reduce(tx: Frame, self: IteratorVariable, /) -> VariableTracker:
    """`__reduce__` of an iterator."""
    if self.source is not None:
        return unsupported("iterator-state", f"__reduce__ of {self.describe()}")
    return tracker_of(tx, self.reduced(tx))


def iterator_setstate(tx: Frame, self: IteratorVariable, state: VariableTracker, /) -> VariableTracker:
    """`__setstate__` of an iterator."""
    if self.source is not None:
        return unsupported("iterator-state", f"__setstate__ of {self.describe()}")
    self.restore(tx, state)
    return NONE


def taking_apart_warns(cls: type) -> bool:
    """Whether this CPython says that taking an iterator of this type apart is deprecated."""
    return _ITERTOOLS_WARN and cls.__module__ == "itertools"


def _itertools_warn() -> bool:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        itertools.count().__reduce__()
    return bool(seen)


_ITERTOOLS_WARN = _itertools_warn()


def register_methods(model: type[IteratorVariable], cls: type) -> None:
    """Handlers for the methods that a real iterator type has and its model can do."""
    own = cls.__dict__
    does = {
        "__reduce__": model.reduced is not IteratorVariable.reduced,
        "__setstate__": model.restore is not IteratorVariable.restore,
    }
    handlers = {"__reduce__": iterator_reduce, "__setstate__": iterator_setstate}
    for name, handler in handlers.items():
        if name in own and does[name] and own[name] not in HANDLERS and not taking_apart_warns(cls):
            method(own[name])(handler)


# -- subclasses

# Their `__new__` takes no keyword arguments, and ignores them in subclasses that have an `__init__` of their own.
_NO_KEYWORDS = frozenset(
    {
        filter,
        map,
        reversed,
        itertools.chain,
        itertools.cycle,
        itertools.dropwhile,
        itertools.filterfalse,
        itertools.islice,
        itertools.starmap,
        itertools.takewhile,
    }
)


def register_subclasses(model: type[IteratorVariable], base: type) -> None:
    """Let user classes derive from an iterator type with a constructor."""
    NATIVES[base] = model

    @builtin(base.__new__)
    def new(tx: Frame, cls: VariableTracker, /, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
        real = cls.value
        if real is not base and base in _NO_KEYWORDS and real.__init__ is not base.__init__:
            kwargs = {}
        made = tx.call(tx.tr.type_tracker(base), list(args), kwargs)
        if real is base or made.python_type() is not base:
            return made
        instance = instance_class(real)(real)
        instance.adopt(made)
        return instance

    def build(tr: Trace, value: object, source: GuardNode | None) -> VariableTracker:
        made = BUILDERS[base](tr, value, source)
        if isinstance(made, OpaqueIterator):
            return made
        instance = instance_class(type(value))(type(value), value, source)
        instance.adopt(made)
        return instance

    SUBCLASS_BUILDERS[base] = build


for _model, _types in (
    (ListIterator, LIST_ITERATORS.values()),
    (
        ConstantIterator,
        (type(iter("")), type(iter("é")), type(iter(b"")), type(iter(range(0))), type(iter(range(1 << 64)))),
    ),
    (SequenceIteratorVariable, (SequenceIteratorVariable.cls,)),
    (CallIterator, (CallIterator.cls,)),
    (ReversedVariable, (type(reversed([])), reversed)),
    (DictIterator, dict.fromkeys(ITERATOR_TYPES.values())),
    (SetIterator, (SetIterator.cls,)),
    (DequeIterator, (type(iter(collections.deque())), type(reversed(collections.deque())))),
    (GrouperVariable, (itertools._grouper,)),
):
    for _cls in _types:
        register_methods(_model, _cls)

CONSTRUCTED: dict[type[IteratorVariable], tuple[type, ...]] = {
    ReversedVariable: (reversed,),
    ZipVariable: (zip,),
    MapVariable: (map,),
    FilterVariable: (filter, itertools.filterfalse),
    EnumerateVariable: (enumerate,),
    CountVariable: (itertools.count,),
    RepeatVariable: (itertools.repeat,),
    CycleVariable: (itertools.cycle,),
    ChainVariable: (itertools.chain,),
    IsliceVariable: (itertools.islice,),
    AccumulateVariable: (itertools.accumulate,),
    StarmapVariable: (itertools.starmap,),
    WhileVariable: (itertools.takewhile, itertools.dropwhile),
    CompressVariable: (itertools.compress,),
    PairwiseVariable: (itertools.pairwise,),
    ZipLongestVariable: (itertools.zip_longest,),
    BatchedVariable: (itertools.batched,) if hasattr(itertools, "batched") else (),
    CombinatoricVariable: (
        itertools.product,
        itertools.permutations,
        itertools.combinations,
        itertools.combinations_with_replacement,
    ),
    GroupByVariable: (itertools.groupby,),
}
"""Models of the iterator types that can be called → these types."""

for _model, _types in CONSTRUCTED.items():
    for _cls in _types:
        register_methods(_model, _cls)
        register_subclasses(_model, _cls)
