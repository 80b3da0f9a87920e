"""Sizes that a run sees in calls and at breaks, handed to `automatic_dynamic` as plain numbers.

Input: a code object and the models of its variables. Output: entries in the region's memory of sizes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import CodeType
from typing import TYPE_CHECKING, Any

from dynamo_lite.dynamism import dynamic_shapes
from dynamo_lite.dynamism.automatic_dynamic import Place, item_of, path_of, place_of_call
from dynamo_lite.dynamism.observed_values import sizes_of
from dynamo_lite.guards.ir import DICT_ITEM, INDEX, Steps
from dynamo_lite.record import Function
from dynamo_lite.variables.builtin.dict import DictVariable
from dynamo_lite.variables.builtin.tuple import TupleVariable
from dynamo_lite.variables.protocol.base import VariableTracker, is_lazy, real_object

if TYPE_CHECKING:
    from .tracing import Trace


def note_call(tr: Trace, code: CodeType, arguments: Sequence[VariableTracker | None]) -> None:
    """Remember the sizes in a call that was followed, or that is to have a frame of its own; `arguments` are models, in the order of
    the variables."""
    first = next(iter(arguments), None)
    if not code.co_argcount and type(first) is TupleVariable:
        first = next(iter(first.items), None)
    module = real_object(first) if first is not None else None
    _note(tr, place_of_call(code, module), map(_named, code.co_varnames, arguments))


def note_rest(tr: Trace, code: CodeType, variables: Iterable[tuple[str, VariableTracker | None]]) -> None:
    """Remember the sizes of what resumed code goes on with: names and models."""
    _note(tr, Function.of(code), [_named(*variable) for variable in variables])


def _named(name: str, model: VariableTracker | None) -> tuple[Steps, VariableTracker | None]:
    return path_of(name), model


def _note(tr: Trace, place: Place, variables: Iterable[tuple[Steps, VariableTracker | None]]) -> None:
    for path, model in variables:
        if model is None:
            continue
        if type(model) is TupleVariable and model.source is None:
            _note(tr, place, [(item_of(path, INDEX, i), item) for i, item in enumerate(model.items)])
        elif type(model) is DictVariable and model.source is None:
            _note(tr, place, [(item_of(path, DICT_ITEM, key), item) for key, item in model.items.items()])
        sizes = _sizes_of_lazy(tr, model) if is_lazy(model) else model.sizes()
        if sizes is not None:
            dynamic_shapes.changed_dims(tr.region.hints.setdefault(place, {}), path, sizes)


def _sizes_of_lazy(tr: Trace, model: Any) -> tuple[int | None, ...] | None:
    sizes = sizes_of(real_object(model))
    if sizes is None:
        return None
    varying = dynamic_shapes.changed_dims(tr.dynamic_hints, model.__dict__["source"].steps, sizes)
    return tuple([None if dim in varying else size for dim, size in enumerate(sizes)])
