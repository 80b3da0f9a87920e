"""Size and items by the sequence slots alone.

Input: the model of any object. Output: what `PySequence_Size` and `PySequence_GetItem` give or raise.
Invariant: a mapping written in C has neither slot; a class written in Python has both as soon as it defines the method.
Mirrors a part of `Objects/abstract.c`.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from dynamo_lite.isa.typeobject import dict_of, mro_of
from dynamo_lite.polyfills import sequence

from .abstract import get_item, length, type_name
from .base import MISSING, VariableTracker
from .constant import NONE
from .dispatch import builtin

if TYPE_CHECKING:
    from dynamo_lite.interp.frame import Frame

_MAPPINGS = (dict, types.MappingProxyType, types.GenericAlias)
_IN_C = (types.WrapperDescriptorType, types.MethodDescriptorType)


def special_method(v: VariableTracker, name: str) -> Any:
    """The attribute of the class under `name`, MISSING if there is none."""
    return next((dict_of(base)[name] for base in mro_of(v.python_type()) if name in dict_of(base)), MISSING)


def is_mapping_in_c(v: VariableTracker, name: str) -> bool:
    """Whether the slot behind the special method `name` is that of a mapping written in C."""
    return issubclass(v.python_type(), _MAPPINGS) and isinstance(special_method(v, name), _IN_C)


@builtin(sequence.sequence_size)
def sequence_size(tx: Frame, a: VariableTracker) -> VariableTracker:
    if is_mapping_in_c(a, "__len__"):
        return tx.raises(TypeError, f"{type_name(a)} is not a sequence")
    return length(tx, a)


@builtin(sequence.need_items)
def need_items(tx: Frame, a: VariableTracker) -> VariableTracker:
    if is_mapping_in_c(a, "__getitem__"):
        return tx.raises(TypeError, f"{type_name(a)} is not a sequence")
    if special_method(a, "__getitem__") is MISSING:
        return tx.raises(TypeError, f"'{type_name(a)}' object does not support indexing")
    return NONE


@builtin(sequence.sequence_item)
def sequence_item(tx: Frame, a: VariableTracker, i: VariableTracker) -> VariableTracker:
    need_items(tx, a)
    return get_item(tx, a, i)
