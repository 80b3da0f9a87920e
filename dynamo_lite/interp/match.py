"""Structural pattern matching.

Input: a subject and the operands of the MATCH_* ops. Output: what they push.
Mirrors `match_class`, `match_keys` of `Python/ceval.c`.
"""

from __future__ import annotations

import collections.abc
from typing import Any

from dynamo_lite.isa.typeobject import Py_TPFLAGS_IMMUTABLETYPE, Py_TPFLAGS_MAPPING, Py_TPFLAGS_SEQUENCE, flags, name_of
from dynamo_lite.variables.builtin.tuple import TupleVariable
from dynamo_lite.variables.protocol import abstract
from dynamo_lite.variables.protocol.base import ObservedException, VariableTracker
from dynamo_lite.variables.protocol.constant import ConstantVariable

_MATCH_SELF = 1 << 22
NONE = ConstantVariable(None)
assert int.__flags__ & _MATCH_SELF and not collections.abc.Mapping.__flags__ & _MATCH_SELF


def is_sequence(f: object, subject: VariableTracker) -> ConstantVariable:
    """MATCH_SEQUENCE."""
    return ConstantVariable(bool(_collection_flags(f, subject.python_type()) & Py_TPFLAGS_SEQUENCE))


def is_mapping(f: object, subject: VariableTracker) -> ConstantVariable:
    """MATCH_MAPPING."""
    return ConstantVariable(bool(_collection_flags(f, subject.python_type()) & Py_TPFLAGS_MAPPING))


def _collection_flags(f: Any, cls: type) -> int:
    """A class gets one of these flags, and loses the other, when it is registered with an abstract class."""
    found = flags(cls)
    if not found & Py_TPFLAGS_IMMUTABLETYPE:
        for abstract_class in (collections.abc.Sequence, collections.abc.Mapping):
            f.tr.guards.same_answer(abstract_class, cls, issubclass(cls, abstract_class))
    return found


def match_keys(f: Any, subject: VariableTracker, keys: TupleVariable) -> VariableTracker:
    """MATCH_KEYS: the values of all keys as a tuple, or None."""
    get = abstract.get_attr(f, subject, "get")
    dummy = f.tr.new_instance(f, object)
    values = []
    seen: list[VariableTracker] = []
    for key in abstract.unpack(f, keys):
        if any(abstract.equal(f, key, other) for other in seen):
            f.raises(ValueError, f"mapping pattern checks duplicate key ({key.as_python_constant()!r})")
        seen.append(key)
        value = f.call(get, [key, dummy])
        if value is dummy:
            return NONE
        values.append(value)
    return TupleVariable(values)


def match_class(
    f: Any, subject: VariableTracker, cls: VariableTracker, n_positional: int, names: tuple[str, ...]
) -> VariableTracker:
    """MATCH_CLASS: the attributes as a tuple, or None."""
    real = cls.value
    if not issubclass(type(real), type):
        f.raises(TypeError, "called match pattern must be a class")
    if not abstract.is_true(f, f.call(f.tr.wrap_callable(isinstance), [subject, cls])):
        return NONE
    attributes: list[VariableTracker] = []
    seen: list[str] = []
    if n_positional:
        positional = _positional_names(f, cls, real, n_positional)
        if positional is None:
            attributes.append(subject)
        else:
            for name in positional:
                if type(name) is not str:
                    f.raises(TypeError, f"__match_args__ elements must be strings (got {name_of(type(name))})")
                if not _take(f, subject, real, name, seen, attributes):
                    return NONE
    for name in names:
        if not _take(f, subject, real, name, seen, attributes):
            return NONE
    return TupleVariable(attributes)


def _positional_names(f: Any, cls: VariableTracker, real: type, n: int) -> list[str] | None:
    """Names for positional sub-patterns; None where the single sub-pattern is the subject itself."""
    match_self = False
    try:
        match_args = abstract.get_attr(f, cls, "__match_args__")
        names = match_args.as_python_constant()
        if not issubclass(type(names), tuple):
            f.raises(TypeError, f"{name_of(real)}.__match_args__ must be a tuple (got {name_of(type(names))})")
    except ObservedException as observed:
        if not issubclass(observed.exc.python_type(), AttributeError):
            raise
        names = ()
        match_self = bool(flags(real) & _MATCH_SELF)
    allowed = 1 if match_self else len(names)
    if allowed < n:
        plural = "" if allowed == 1 else "s"
        f.raises(TypeError, f"{name_of(real)}() accepts {allowed} positional sub-pattern{plural} ({n} given)")
    return None if match_self else list(names[:n])


def _take(
    f: Any, subject: VariableTracker, real: type, name: str, seen: list[str], attributes: list[VariableTracker]
) -> bool:
    if name in seen:
        f.raises(TypeError, f"{name_of(real)}() got multiple sub-patterns for attribute {name!r}")
    seen.append(name)
    try:
        attributes.append(abstract.get_attr(f, subject, name))
    except ObservedException as observed:
        if not issubclass(observed.exc.python_type(), AttributeError):
            raise
        return False
    return True
