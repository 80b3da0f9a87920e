"""The iterators of `itertools` that make combinations. They collect their input at once and run the real iterator over the trackers.

Mirrors `Modules/itertoolsmodule.c`; see `itertools` beside it.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from dynamo_lite.exc import unsupported
from dynamo_lite.variables.builtin.iter import IteratorVariable
from dynamo_lite.variables.builtin.tuple import TupleVariable
from dynamo_lite.variables.builtin.zip import emit_advanced, emit_instance
from dynamo_lite.variables.protocol.abstract import unpack
from dynamo_lite.variables.protocol.base import VariableTracker
from dynamo_lite.variables.protocol.constant import is_none
from dynamo_lite.variables.protocol.dispatch import constructor
from dynamo_lite.variables.protocol.native import host_index

from .itertools import plain_only

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.interp.frame import Frame


class CombinatoricVariable(IteratorVariable):
    """`product`, `permutations`, `combinations`, `combinations_with_replacement`: the real iterator over trackers."""

    def __init__(self, cls: type, pools: list[list[VariableTracker]], *args: int, **kwargs: int) -> None:
        self.cls = self.base = cls
        self.pools = pools
        self.args = args
        self.kwargs = kwargs
        self.host = cls(*pools, *args, **kwargs)
        self.consumed = 0
        self.restored = False

    def children(self) -> Any:
        return [item for pool in self.pools for item in pool]

    def tp_iternext(self, tx: Frame) -> VariableTracker | None:
        items = next(self.host, None)
        self.consumed += 1
        return None if items is None else TupleVariable(list(items))

    def reduced(self, tx: Frame) -> tuple[Any, ...]:
        _, *rest = self.host.__reduce__()
        return (self.python_type(), *rest)

    def restore(self, tx: Frame, state: VariableTracker) -> None:
        self.restored = True
        try:
            self.host.__setstate__(state.as_python_constant())
        except (TypeError, ValueError) as error:
            tx.raises_like(error)

    def emit_new(self, cg: Codegen) -> None:
        if self.restored:
            unsupported("reconstruct", f"a {self.base.__name__} object that __setstate__ was called on")
        if self.consumed:
            plain_only(self, self.base)

        def emit() -> None:
            emit_instance(cg, self, self.base, *self.pools, *self.args, **self.kwargs)

        emit_advanced(cg, self.consumed, emit) if self.consumed else emit()


@constructor(itertools.product)
def new_product(
    tx: Frame, cls: VariableTracker, /, *iterables: VariableTracker, repeat: VariableTracker | None = None
) -> VariableTracker:
    times = 1 if repeat is None else host_index(tx, repeat)
    if times < 0:
        return tx.raises(ValueError, "repeat argument cannot be negative")
    pools = [unpack(tx, iterable) for iterable in iterables] if times else []
    return CombinatoricVariable(itertools.product, pools, repeat=times)


@constructor(itertools.permutations)
def new_permutations(
    tx: Frame, cls: VariableTracker, iterable: VariableTracker, r: VariableTracker | None = None
) -> VariableTracker:
    pool = unpack(tx, iterable)
    if r is not None and not is_none(r) and not issubclass(r.python_type(), int):
        return tx.raises(TypeError, "Expected int as r")
    n = len(pool) if is_none(r) else host_index(tx, r)
    return CombinatoricVariable(itertools.permutations, [pool], n) if n >= 0 else _negative_r(tx)


def _new_combinations(cls: type) -> None:
    @constructor(cls)
    def new_combinations(
        tx: Frame, tracker: VariableTracker, iterable: VariableTracker, r: VariableTracker
    ) -> VariableTracker:
        n = host_index(tx, r)
        pool = unpack(tx, iterable)
        return CombinatoricVariable(cls, [pool], n) if n >= 0 else _negative_r(tx)


def _negative_r(tx: Frame) -> VariableTracker:
    return tx.raises(ValueError, "r must be non-negative")


_new_combinations(itertools.combinations)
_new_combinations(itertools.combinations_with_replacement)
