"""Type expressions at run time: the objects of `typing`.

Input: a real object whose class `typing` defines (`List`, `Optional[int]`, a TypeVar …). Output: `TypingVariable`, a constant.
Invariant: these objects are immutable; what they compute from constants is computed for real.
Mirrors `Lib/typing.py`.
"""

from __future__ import annotations

import collections.abc
import operator
import sys
import types
import typing
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dynamo_lite.exc import unsupported
from dynamo_lite.guards import ir
from dynamo_lite.isa.typeobject import ABSENT, module_of
from dynamo_lite.variables.builtin.genericalias import AliasVariable
from dynamo_lite.variables.builtin.list import ListVariable
from dynamo_lite.variables.builtin.tuple import TupleVariable
from dynamo_lite.variables.protocol.abstract import COMPARE_OPS, get_iter
from dynamo_lite.variables.protocol.base import VariableTracker
from dynamo_lite.variables.protocol.constant import ConstantVariable, fold, is_constant
from dynamo_lite.variables.protocol.descr import type_attribute, type_lookup
from dynamo_lite.variables.protocol.dispatch import HANDLERS, builtin, constructor
from dynamo_lite.variables.protocol.wrap import builds, builds_if

if TYPE_CHECKING:
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.guards.ir import GuardNode
    from dynamo_lite.interp.frame import Frame

_MODULES = frozenset({"typing", "typing_extensions"})


def of_parameters(
    tx: Frame, function: Callable[[Any, Any], Any], generic: VariableTracker, key: VariableTracker
) -> VariableTracker:
    """`generic[key]` computed for real. The key may have lists in it, of which tuples are made: `Callable[[int], str]`."""
    found = fold(tx, lambda generic: function(generic, _parameters(key)), [generic], {})
    if _holds_list(found.value):
        return unsupported("call-c-function", f"{found.value!r}, which keeps a list")
    return found


def _parameters(key: VariableTracker) -> Any:
    """The real key. Raises `NotConstant` where there is none."""
    if isinstance(key, ListVariable | TupleVariable):
        items = [_parameters(item) for item in key.items]
        return items if isinstance(key, ListVariable) else tuple(items)
    return key.as_python_constant()


def _holds_list(alias: object) -> bool:
    """Whether a list that the program wrote is part of what came out (`Annotated[int, [3]]`)."""
    parts = (*getattr(alias, "__args__", ()), *getattr(alias, "__metadata__", ()))
    return any(type(part) is list or _holds_list(part) for part in parts)


class TypingVariable(ConstantVariable):
    """An object of the typing module, known by identity."""

    def tp_getattro(self, tx: Frame, name: str) -> VariableTracker:
        hook = type_lookup(type(self.value), "__getattr__")
        try:
            real = getattr(self.value, name) if hook is ABSENT else object.__getattribute__(self.value, name)
        except AttributeError as error:
            if hook is ABSENT:
                return tx.raises(AttributeError, str(error))
            # A method written in Python, which asks the origin.
            asked = type_attribute(tx, type(self.value), "__getattr__")
            return tx.call(asked, [self, ConstantVariable(name)])
        return tx.tr.build_constant_object(real)

    def mp_subscript(self, tx: Frame, key: VariableTracker) -> VariableTracker:
        return of_parameters(tx, operator.getitem, self, key)

    @property
    def tp_iter(self) -> Any:
        return self._iter if type_lookup(type(self.value), "__iter__") not in (ABSENT, None) else None

    def _iter(self, tx: Frame) -> VariableTracker:
        """`*Ts`, `*List[int]`: generators written in Python. Since 3.12 that of `Ts` is written in C."""
        found = type_lookup(type(self.value), "__iter__")
        if issubclass(type(found), types.FunctionType):
            return tx.call(type_attribute(tx, type(self.value), "__iter__"), [self])
        items = [tx.tr.build_constant_object(item) for item in self.value]
        return get_iter(tx, TupleVariable(items))

    @property
    def tp_call(self) -> Any:
        return self._call if type_lookup(type(self.value), "__call__") is not ABSENT else None

    def _call(self, tx: Frame, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        """Calling `List[int]` makes a list, calling `List` is TypeError: methods written in Python say so."""
        return tx.call(type_attribute(tx, type(self.value), "__call__"), [self, *args], kwargs)

    def tp_richcompare(self, tx: Frame, other: VariableTracker, op: str) -> VariableTracker:
        return fold(tx, COMPARE_OPS[op], [self, other], {}) if is_constant(other) else ConstantVariable(NotImplemented)

    def tp_hash(self, tx: Frame) -> VariableTracker:
        return fold(tx, hash, [self], {})

    @staticmethod
    def nb_or(tx: Frame, v: VariableTracker, w: VariableTracker) -> VariableTracker:
        return fold(tx, operator.or_, [v, w], {}) if is_constant(v, w) else ConstantVariable(NotImplemented)


# Not the classes whose metaclass `typing` defines (typed dictionaries, protocols and what implements them): they are called as usual.
@builds_if(lambda value: module_of(type(value)) in _MODULES and not issubclass(type(value), type))
def build_typing(tr: Trace, value: object, source: GuardNode | None) -> TypingVariable:
    tr.guard(source, ir.IS, value)
    return TypingVariable(value, source)


# -- generic classes


def _class_getitem(function: Any) -> Any:
    def handler(tx: Frame, cls: VariableTracker, params: VariableTracker) -> VariableTracker:
        return of_parameters(tx, function, cls, params)

    return handler


for _generic in (typing.Generic, typing.Annotated):
    _raw = vars(_generic).get("__class_getitem__")
    if _raw is not None:  # since 3.13 `Annotated` is no class
        _raw = getattr(_raw, "__func__", _raw)  # since 3.12 that of `Generic` is written in C
        HANDLERS[_raw] = _class_getitem(_raw)


# -- callables

_CALLABLE_ALIAS = type(collections.abc.Callable[[], None])


@constructor(_CALLABLE_ALIAS)
def new_callable_alias(
    tx: Frame, cls: VariableTracker, origin: VariableTracker, args: VariableTracker
) -> VariableTracker:
    """`collections.abc.Callable[[int], str]`."""
    return of_parameters(tx, _CALLABLE_ALIAS, origin, args)


class CallableAliasVariable(AliasVariable):
    """`collections.abc.Callable[[int], str]`: an alias with methods written in Python."""

    def mp_subscript(self, tx: Frame, key: VariableTracker) -> VariableTracker:
        return of_parameters(tx, operator.getitem, self, key)


@builds(_CALLABLE_ALIAS)
def build_callable_alias(tr: Trace, value: object, source: GuardNode | None) -> CallableAliasVariable:
    tr.guard(source, ir.EQUALS, value)
    return CallableAliasVariable(value, source)


# -- types that are made of a name

if "_typing" in sys.modules:

    @builtin(sys.modules["_typing"]._idfunc)
    def idfunc(tx: Frame, x: VariableTracker, /) -> VariableTracker:
        """What calling a `NewType` does on 3.11 and later."""
        return x
