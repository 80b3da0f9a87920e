"""`__getattribute__`, `__setattr__` and `__delattr__` of the builtin types, called by name.

Input: the types with a model. Output: handlers of the wrapper descriptors that these types have of their own.
Invariant: on an instance of exactly the type they are what an attribute access of it is; on an instance of a subclass, whose own hooks
they pass by, the generic algorithm.
Mirrors `wrap_setattr`, `wrap_delattr` and `slot_tp_getattro` of `Objects/typeobject.c`.
"""

from __future__ import annotations

import types
from collections.abc import Iterable
from typing import TYPE_CHECKING

from dynamo_lite.variables.protocol.abstract import get_attr, set_attr
from dynamo_lite.variables.protocol.base import VariableTracker
from dynamo_lite.variables.protocol.descr import generic_getattr, generic_setattr
from dynamo_lite.variables.protocol.dispatch import HANDLERS, Handler, method

from .instance import attribute_name

if TYPE_CHECKING:
    from dynamo_lite.interp.frame import Frame


def _getattribute(owner: type) -> Handler:
    def getattribute(tx: Frame, self: VariableTracker, name: VariableTracker, /) -> VariableTracker:
        text = attribute_name(tx, name)
        return get_attr(tx, self, text) if self.python_type() is owner else generic_getattr(tx, self, text)

    return getattribute


def _setattr(owner: type) -> Handler:
    def setattr(tx: Frame, self: VariableTracker, name: VariableTracker, value: VariableTracker, /) -> None:
        _store(tx, owner, self, attribute_name(tx, name), value)

    return setattr


def _delattr(owner: type) -> Handler:
    def delattr(tx: Frame, self: VariableTracker, name: VariableTracker, /) -> None:
        _store(tx, owner, self, attribute_name(tx, name), None)

    return delattr


def _store(tx: Frame, owner: type, self: VariableTracker, name: str, value: VariableTracker | None) -> None:
    if self.python_type() is owner:
        set_attr(tx, self, name, value)
    else:
        generic_setattr(tx, self, name, value)


_MAKERS = {"__getattribute__": _getattribute, "__setattr__": _setattr, "__delattr__": _delattr}


def register(classes: Iterable[type]) -> None:
    """Give the types' own methods of these names a handler, where they have none."""
    for cls in classes:
        for name, make in _MAKERS.items():
            raw = cls.__dict__.get(name)
            if isinstance(raw, types.WrapperDescriptorType) and raw not in HANDLERS:
                method(raw)(make(cls))
