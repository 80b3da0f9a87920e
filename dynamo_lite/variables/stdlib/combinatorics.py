"""The iterators of `itertools` that make combinations; a Python class stands for each of the others (`dynamo_lite/polyfills/itertools.py`).

Input: trackers of the arguments. Output: `CombinatoricVariable`.
Invariant: they collect their input at once, and the real iterator goes over the trackers: one call of C for an item. Python classes would
take about 60 interpreted instructions for an item of `product(a, b)`, and models go through positions and windows with it.
Mirrors `Modules/itertoolsmodule.c`.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from dynamo_lite.exc import unsupported
from dynamo_lite.variables.builtin.iter import IteratorVariable
from dynamo_lite.variables.builtin.tuple import TupleVariable
from dynamo_lite.variables.builtin.zip import emit_advanced, emit_instance
from dynamo_lite.variables.protocol.abstract import unpack_to_tuple
from dynamo_lite.variables.protocol.base import VariableTracker
from dynamo_lite.variables.protocol.constant import NONE, is_none
from dynamo_lite.variables.protocol.dispatch import constructor
from dynamo_lite.variables.protocol.native import host_ssize

from .app_level import register_subclasses

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

    def children(self) -> Any:
        return [item for pool in self.pools for item in pool]

    def tp_iternext(self, tx: Frame) -> VariableTracker | None:
        items = next(self.host, None)
        self.consumed += 1
        return None if items is None else TupleVariable(list(items))

    def emit_new(self, cg: Codegen) -> None:
        if self.consumed and self.python_type() is not self.base:  # `__next__` may be the program's
            unsupported("reconstruct", f"a {self.python_type().__name__} object that has been advanced")

        def emit() -> None:
            emit_instance(cg, self, self.base, *self.pools, *self.args, **self.kwargs)

        emit_advanced(cg, self.consumed, emit) if self.consumed else emit()


@constructor(itertools.product)
def new_product(
    tx: Frame, cls: VariableTracker, /, *iterables: VariableTracker, repeat: VariableTracker | None = None
) -> VariableTracker:
    times = 1 if repeat is None else host_ssize(tx, repeat)
    if times < 0:
        return tx.raises(ValueError, "repeat argument cannot be negative")
    pools = [unpack_to_tuple(tx, iterable) for iterable in iterables] if times else []
    return CombinatoricVariable(itertools.product, pools, repeat=times)


@constructor(itertools.permutations)
def new_permutations(
    tx: Frame, cls: VariableTracker, iterable: VariableTracker, r: VariableTracker = NONE
) -> VariableTracker:
    pool = unpack_to_tuple(tx, iterable)
    if not is_none(r) and not issubclass(r.python_type(), int):
        return tx.raises(TypeError, "Expected int as r")
    return _of_length(tx, itertools.permutations, pool, len(pool) if is_none(r) else host_ssize(tx, r))


def _of_length(tx: Frame, cls: type, pool: list[VariableTracker], n: int) -> VariableTracker:
    return CombinatoricVariable(cls, [pool], n) if n >= 0 else tx.raises(ValueError, "r must be non-negative")


def _new_combinations(cls: type) -> None:
    @constructor(cls)
    def new_combinations(
        tx: Frame, tracker: VariableTracker, iterable: VariableTracker, r: VariableTracker
    ) -> VariableTracker:
        n = host_ssize(tx, r)
        return _of_length(tx, cls, unpack_to_tuple(tx, iterable), n)


_new_combinations(itertools.combinations)
_new_combinations(itertools.combinations_with_replacement)

for _cls in (
    itertools.product,
    itertools.permutations,
    itertools.combinations,
    itertools.combinations_with_replacement,
):
    register_subclasses(CombinatoricVariable, _cls)
