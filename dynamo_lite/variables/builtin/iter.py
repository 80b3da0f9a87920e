"""Iterators that are a position in something: sequences, `__getitem__`, `iter(callable, sentinel)`, `reversed`.

Input: the model of what is iterated. Output: iterator models; iterators that exist before the frame
(`SourcedIterator`).
Invariant: a position refers to the live container, so that changes made while iterating show up as in CPython; an
exhausted iterator stays exhausted.
Mirrors `Objects/iterobject.c`, the iterators of `listobject.c`, `tupleobject.c`, `unicodeobject.c`, `rangeobject.c`,
and `reversed` of `enumobject.c`.
"""

from __future__ import annotations

import collections
import collections.abc
import functools
import gc
import itertools
import sys
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from dynamo_lite._eval_frame import deque_has_changed
from dynamo_lite.exc import unsupported
from dynamo_lite.guards import ir
from dynamo_lite.isa.typeobject import is_heap_type, mro_of
from dynamo_lite.variables.protocol.abstract import get_item, length, type_name
from dynamo_lite.variables.protocol.base import Child, ObservedException, Plain, VariableTracker, load_filled
from dynamo_lite.variables.protocol.constant import ConstantVariable
from dynamo_lite.variables.protocol.dispatch import constructor
from dynamo_lite.variables.protocol.native import NativeVariable, host_int, same_or_equal
from dynamo_lite.variables.protocol.wrap import builds

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.guards.ir import GuardNode
    from dynamo_lite.interp.frame import Frame


class IteratorVariable(NativeVariable):
    """An iterator implemented in C. `parts` names attributes that hold trackers (or are None), for models that do not declare them."""

    parts: tuple[str, ...] = ()
    owned = False  # another iterator from outside goes through it, and moves it when that is replayed

    def tp_iter(self, tx: Frame) -> VariableTracker:
        return self

    def tp_iternext(self, tx: Frame) -> VariableTracker | None:
        raise NotImplementedError

    def own(self) -> bool:
        """Give the replay to another iterator, which calls `take`. False where that can't be."""
        return False

    def take(self, tx: Frame) -> VariableTracker | None:
        """`tp_iternext` for the owner."""
        raise NotImplementedError

    def refuse_if_owned(self) -> None:
        """Raises `Unsupported` where somebody else than the owner goes through it."""
        if self.owned:
            unsupported(
                "iterator-state", f"a {self.cls.__name__} from outside that an enumerate object goes through as well"
            )

    def children(self) -> Any:
        return [part for name in self.parts if (part := getattr(self, name)) is not None]


def is_stop_iteration(error: ObservedException) -> bool:
    """True for a StopIteration of the traced program, which a C iterator lets through as its own end."""
    return issubclass(error.exc.python_type(), StopIteration)


def call_or_stop(tx: Frame, function: VariableTracker, args: list[VariableTracker]) -> VariableTracker | None:
    """Call from within a C `tp_iternext`: None if the function raises StopIteration."""
    try:
        return tx.call(function, args)
    except ObservedException as error:
        if is_stop_iteration(error):
            return None
        raise


# -- positions in sequences


class ListIterator(IteratorVariable):
    """A `list_iterator` or `tuple_iterator`. `seq` is None once exhausted."""

    seq: Any = Child()
    index = 0

    def __post_init__(self) -> None:
        self.base = self.seq.base

    def python_type(self) -> type:
        return LIST_ITERATORS[self.base]

    def tp_iternext(self, tx: Frame) -> VariableTracker | None:
        seq = self.seq
        if seq is None:
            return None
        items, i = seq.items, self.index
        if i < len(items):
            self.index = i + 1
            return items[i]
        self.seq = None
        return None

    def emit_new(self, cg: Codegen) -> None:
        if self.seq is not None:
            refuse_past_end(self.seq, self.index)
        emit_position(cg, self.seq, self.index, self.base)


def refuse_past_end(seq: Any, index: int) -> None:
    """Break where a list has fewer than `index` items now: `__setstate__` would put a new iterator on an item that is still there."""
    if index and index > len(seq.items):
        unsupported("reconstruct", "an iterator past the end of a list that has lost items since")


LIST_ITERATORS: dict[type, type] = {list: type(iter([])), tuple: type(iter(()))}


class ConstantIterator(IteratorVariable):
    """The iterator of a str, bytes or range constant. `made_at`: the step at which a loop over a range with bounds that vary has begun."""

    seq: VariableTracker | None = Child()
    values: Any = Plain()
    made_at = -1
    index = 0

    def __post_init__(self) -> None:
        values = self.values
        self.cls = type(iter(values))
        self.size = values.index(values[-1]) + 1 if type(values) is range and values else len(values)

    def tp_iternext(self, tx: Frame) -> VariableTracker | None:
        if self.seq is None:
            return None
        i = self.index
        if i < self.size:
            self.index = i + 1
            return ConstantVariable(self.values[i])
        self.seq = None
        return None

    def emit_new(self, cg: Codegen) -> None:
        base = type(self.values)
        emit_position(cg, self.seq, self.index, functools.partial(base, 0) if base is range else base)


def emit_position(cg: Codegen, seq: VariableTracker | None, index: int, empty: object) -> None:
    """Push an iterator over `seq` that has advanced to `index`; an iterator over `empty()` if it is exhausted."""
    if seq is None:
        cg.load_callable(_exhausted)
        cg.load_const(empty)
        cg.asm.call(1)
    else:
        cg.load_callable(_iterator_at)
        load_filled(cg, seq)
        cg.load_const(index)
        cg.asm.call(2)


def _exhausted(empty: Any) -> Iterator[Any]:
    return iter(empty())


def _iterator_at(seq: Any, index: int) -> Iterator[Any]:
    # The native __iter__: a subclass may define its own by way of super().__iter__().
    base = next(b for b in mro_of(type(seq)) if b in (list, tuple, str, bytes, range, object))
    iterator = base.__iter__(seq) if base is not object else iter(seq)
    iterator.__setstate__(index)
    return iterator


def advance(iterator: Iterator[Any], n: int) -> Iterator[Any]:
    """Take n items off a real iterator; the iterator."""
    next(islice(iterator, n, n), None)
    return iterator


class SequenceIteratorVariable(IteratorVariable):
    """`iter(x)` of an object that has only `__getitem__`."""

    cls = type(iter(type("_Sequence", (), {"__getitem__": None})()))
    seq: VariableTracker | None = Child()
    index = 0

    def tp_iternext(self, tx: Frame) -> VariableTracker | None:
        if self.seq is None:
            return None
        if self.index == sys.maxsize:
            tx.raises(OverflowError, "iter index too large")
        try:
            item = get_item(tx, self.seq, ConstantVariable(self.index))
        except ObservedException as error:
            if issubclass(error.exc.python_type(), (IndexError, StopIteration)):
                self.seq = None
                return None
            raise
        self.index += 1
        return item

    def emit_new(self, cg: Codegen) -> None:
        emit_position(cg, self.seq, self.index, list)


class CallIterator(IteratorVariable):
    """`iter(callable, sentinel)`."""

    cls = type(iter(int, 0))
    function: VariableTracker | None = Child()
    sentinel: VariableTracker = Child()
    rebuild = iter

    def tp_iternext(self, tx: Frame) -> VariableTracker | None:
        if self.function is None:
            return None
        result = call_or_stop(tx, self.function, [])
        if self.function is None:  # the call came back here and to the end
            return None
        if result is None or same_or_equal(tx, self.sentinel, result):
            self.function = None
            return None
        return result

    def emit_new(self, cg: Codegen) -> None:
        if self.function is None:
            emit_position(cg, None, 0, functools.partial(iter, int, 0))
        else:
            super().emit_new(cg)


class ReversedVariable(IteratorVariable):
    """`reversed(sequence)`; for a list the type is `list_reverseiterator`. `index` is that of the next item."""

    seq: VariableTracker | None = Child()
    index: int = Plain()
    base: type = Plain(reversed)

    def __post_init__(self) -> None:
        self.cls = self.base

    def tp_iternext(self, tx: Frame) -> VariableTracker | None:
        seq, i = self.seq, self.index
        if seq is None:
            return None
        if self.base is not reversed:
            item = seq.items[i] if 0 <= i < len(seq.items) else None
        else:
            item = self._get(tx, i) if i >= 0 else None
        if item is None:
            self.seq = None
        self.index = i - 1
        return item

    def _get(self, tx: Frame, i: int) -> VariableTracker | None:
        try:
            return get_item(tx, self.seq, ConstantVariable(i))
        except ObservedException as error:
            if issubclass(error.exc.python_type(), (IndexError, StopIteration)):
                return None
            raise

    def emit_new(self, cg: Codegen) -> None:
        if self.python_type() is not self.base:
            unsupported("reconstruct", f"a {self.python_type().__name__} object")
        if self.seq is not None and is_heap_type(self.seq.python_type()):
            unsupported("iterator-state", "reversed() of an object of the program, asked for its length again")
        cg.load_callable(_reversed_at)
        if self.seq is None:
            cg.load_const(() if self.base is reversed else [])
        else:
            if self.base is not reversed:
                refuse_past_end(self.seq, self.index + 1)
            load_filled(cg, self.seq)
        cg.load_const(self.index)
        cg.asm.call(2)


def _reversed_at(seq: Any, index: int) -> Iterator[Any]:
    iterator = list.__reversed__(seq) if issubclass(type(seq), list) else reversed(seq)
    iterator.__setstate__(index)
    return iterator


@constructor(reversed)
def new_reversed(tx: Frame, cls: VariableTracker, sequence: VariableTracker, /) -> VariableTracker:
    special = tx.tr.lookup_special(tx, sequence, "__reversed__")
    if special is not None:
        if isinstance(special, ConstantVariable) and special.value is None:
            return tx.raises(TypeError, f"'{type_name(sequence)}' object is not reversible")
        return tx.call(special, [])
    if sequence.sq_item is None and (
        sequence.mp_subscript is None or sequence.mp_length is None or is_mapping(sequence)
    ):
        if not isinstance(sequence, ConstantVariable) or sequence.tp_iter is None:
            return tx.raises(TypeError, f"'{type_name(sequence)}' object is not reversible")
    return ReversedVariable(sequence, host_int(length(tx, sequence)) - 1)


def is_mapping(v: VariableTracker) -> bool:
    """True for dicts and mapping proxies: they have subscripts, and are no sequences."""
    return issubclass(v.python_type(), (dict, type(type.__dict__)))


# -- iterators that exist before the frame


class SourcedIterator(IteratorVariable):
    """A real builtin iterator over a list, tuple, range, str, dict, set or deque.

    Invariant: the k-th item that it will give is guarded to be there when it is read; how many it gave is replayed.
    """

    def __init__(self, tr: Trace, value: Any, source: GuardNode | None) -> None:
        self.value = value
        self.source = source
        self.cls = type(value)
        self.consumed = 0
        self.done = (
            False  # the end was seen, and is guarded; at another call there may be more after the last item taken
        )
        try:
            self.items = items_to_come(value)
            len(self.items)
        except (RuntimeError, OverflowError) as error:
            unsupported("iterator-state", str(error))
        # Guard programs look into the common kinds themselves, and into the others through `items_to_come`.
        direct = self.cls in RESUMABLE
        self.kind = ir.ITER_ITEM if direct else ir.INDEX
        self.node = source if direct else tr.source(source, ir.CALL, items_to_come)

    def tp_iternext(self, tx: Frame) -> VariableTracker | None:
        self.refuse_if_owned()
        return self.take(tx)

    def own(self) -> bool:
        self.owned = True
        return True

    def take(self, tx: Frame) -> VariableTracker | None:
        tr, k = tx.tr, self.consumed
        self._check_container(tx)
        tr.effects.mutating(self)
        if k >= len(self.items):
            tr.guard(self.node, ir.LEN, len(self.items))
            self.done = True
            return None
        self.consumed = k + 1
        node = tr.source(self.node, self.kind, k)
        tr.expect(node)
        return tr.wrap(self.items[k], node)

    def _check_container(self, tx: Frame) -> None:
        for container in gc.get_referents(self.value):
            found = tx.tr.heap.get(id(container))
            if found is not None and found.__dict__.get("mutated"):
                unsupported("iterator-state", "the container of an iterator from outside was changed")

    is_moved_first = True

    def emit_update(self, cg: Codegen) -> None:
        if not self.owned:
            emit_advance(cg, self, self.consumed + self.done)


def emit_advance(cg: Codegen, vt: VariableTracker, n: int) -> None:
    """Take n items off the real iterator behind `vt`."""
    cg.load_callable(advance)
    cg.load(vt)
    cg.load_const(n)
    cg.asm.call(2)
    cg.asm.pop_top()


def items_to_come(iterator: Any) -> Any:
    """The remaining items of a builtin iterator, by its pickling support, which does not move it. Raises RuntimeError
    if its container was changed, or only code of the program could tell.
    """
    function, args, *state = iterator.__reduce__()
    position = state[0] if state else None
    if function in _DEQUE_ITERATORS:
        if deque_has_changed(iterator):
            raise RuntimeError("deque mutated during iteration")
        return tuple(function(*args))
    items = _storage(args[0])
    if function is reversed:
        return items[position::-1] if position is not None and 0 <= position < len(items) else ()
    return items[position or 0 :]


_DEQUE_ITERATORS = (type(iter(collections.deque())), type(reversed(collections.deque())))


def _storage(seq: object) -> Any:
    """The items of a builtin sequence or of an instance of a subclass, past any method of that."""
    if type(seq) is range:
        return seq  # which may be too long for a tuple
    for base in (list, tuple, str, bytes):
        if issubclass(type(seq), base):
            return tuple(base.__iter__(seq))
    raise RuntimeError(f"iterator over {type(seq).__name__}")


RESUMABLE = (  # those that `_guards.c` knows
    *LIST_ITERATORS.values(),
    type(iter(range(0))),
    type(iter(range(1 << 64))),
    type(iter({})),
    type(iter({}.values())),
    type(iter({}.items())),
)
OTHERS = (
    reversed,
    type(iter("")),
    type(iter("é")),
    type(iter(b"")),
    type(reversed([])),
    type(reversed({})),
    type(reversed({}.values())),
    type(reversed({}.items())),
    type(iter(set())),
    type(iter(collections.deque())),
    type(reversed(collections.deque())),
    type(iter(collections.OrderedDict())),
)


@builds(*dict.fromkeys((*RESUMABLE, *OTHERS)))
def build_iterator(tr: Trace, value: object, source: GuardNode | None) -> SourcedIterator:
    tr.guard(source, ir.TYPE_IS, type(value))
    return SourcedIterator(tr, value, source)


class OpaqueIterator(IteratorVariable):
    """A real iterator whose state can't be seen: each step is left to the real one."""

    value: Any = Plain()

    def python_type(self) -> type:
        return type(self.value)

    def tp_iternext(self, tx: Frame) -> VariableTracker | None:
        return unsupported("iterator-state", type(self.value).__name__)

    def tp_getattro(self, tx: Frame, name: str) -> VariableTracker:
        self._refuse_attributes(name)
        return super().tp_getattro(tx, name)

    def tp_setattro(self, tx: Frame, name: str, value: VariableTracker | None) -> None:
        self._refuse_attributes(name)
        super().tp_setattro(tx, name, value)

    def _refuse_attributes(self, name: str) -> None:
        cls = type(self.value)
        if is_heap_type(cls):  # an instance of a class of the program, which has a `__dict__`
            unsupported("attribute-of-unknown-object", f"{cls.__name__}.{name}")

    def refuses(self, method: Any) -> bool:
        return method.__name__ not in ("__iter__", "__next__")


@builds(
    SequenceIteratorVariable.cls,
    CallIterator.cls,
    *[t for t in vars(itertools).values() if issubclass(type(t), type) and hasattr(t, "__next__")],
)
def build_opaque(tr: Trace, value: object, source: GuardNode | None) -> OpaqueIterator:
    tr.guard(source, ir.TYPE_IS, type(value))
    return OpaqueIterator(value, source)


@functools.cache
def reduced_arg(i: int) -> Any:
    """A function for a CALL path: the i-th constructor argument of a real zip, map, filter or enumerate."""

    def reduced(iterator: Any) -> Any:
        return iterator.__reduce__()[1][i]

    reduced.__name__ = f"part_{i}"  # numbers on different paths must not have one name
    return reduced


def reduced_shape(value: Any) -> str:
    """How many arguments the constructor got, and whether there is a state besides, such as `strict`."""
    _, args, *state = value.__reduce__()
    return f"{len(args)} {len(state)}"


def wrapped_args(tr: Trace, value: Any, source: GuardNode | None) -> list[VariableTracker]:
    """Models of the constructor arguments of a real zip, map, filter … object."""
    args = value.__reduce__()[1]
    tr.guard(source, ir.TYPE_IS, type(value))
    tr.guard(tr.source(source, ir.CALL, reduced_shape), ir.EQUALS, reduced_shape(value))
    return [tr.wrap(arg, tr.source(source, ir.CALL, reduced_arg(i))) for i, arg in enumerate(args)]
