"""Attributes of a `threading.local`: `__dict__` is this thread's dictionary, whatever the classes have.

Mirrors `local_getattro` and `local_setattro` of `Modules/_threadmodule.c`.
"""

from __future__ import annotations

import _thread
from typing import TYPE_CHECKING

from dynamo_lite.exc import unsupported
from dynamo_lite.variables.protocol.abstract import type_name
from dynamo_lite.variables.protocol.base import VariableTracker
from dynamo_lite.variables.protocol.constant import ConstantVariable
from dynamo_lite.variables.protocol.descr import attribute_name, generic_getattr, generic_setattr
from dynamo_lite.variables.protocol.dispatch import WITHOUT_STATE, method

from .instance import InstanceVariable

if TYPE_CHECKING:
    from dynamo_lite.interp.frame import Frame


def _attributes(tx: Frame, self: VariableTracker) -> VariableTracker:
    found = self.instance_dict(tx) if isinstance(self, InstanceVariable) else None
    return found if found is not None else unsupported("attribute-of-unknown-object", self.describe())


@method(_thread._local.__getattribute__)
def local_getattribute(tx: Frame, self: VariableTracker, name: VariableTracker) -> VariableTracker:
    text = attribute_name(tx, name)
    attributes = _attributes(tx, self)
    if text == "__dict__":
        return attributes
    # An instance of the class itself has its attributes before those of the class, properties among them.
    found = attributes.lookup(tx, ConstantVariable(text)) if self.python_type() is _thread._local else None
    return found if found is not None else generic_getattr(tx, self, text)


@method(_thread._local.__setattr__)
def local_setattr(tx: Frame, self: VariableTracker, name: VariableTracker, value: VariableTracker) -> None:
    _store(tx, self, attribute_name(tx, name), value)


@method(_thread._local.__delattr__)
def local_delattr(tx: Frame, self: VariableTracker, name: VariableTracker) -> None:
    _store(tx, self, attribute_name(tx, name), None)


def _store(tx: Frame, self: VariableTracker, name: str, value: VariableTracker | None) -> None:
    if name == "__dict__":
        tx.raises(AttributeError, f"'{type_name(self)}' object attribute '__dict__' is read-only")
    generic_setattr(tx, self, name, value)


WITHOUT_STATE.update((_thread._local.__getattribute__, _thread._local.__setattr__, _thread._local.__delattr__))
