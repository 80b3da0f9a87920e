"""`types.SimpleNamespace`.

Input: keyword arguments, or a real namespace (which the generic instance model covers). Output: `NamespaceVariable`.
Invariant: the attributes are those of the instance's `__dict__`.
Mirrors `Objects/namespaceobject.c`.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from dynamo_lite.variables.builtin.dict import dict_update_common
from dynamo_lite.variables.protocol.abstract import class_name, richcompare
from dynamo_lite.variables.protocol.base import VariableTracker
from dynamo_lite.variables.protocol.constant import NONE, NOT_IMPLEMENTED
from dynamo_lite.variables.protocol.dispatch import constructor, method
from dynamo_lite.variables.protocol.native import emit_call, part_text, recursive_repr, run

from .instance import STATELESS, InstanceVariable

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.interp.frame import Frame

Namespace = types.SimpleNamespace
STATELESS.add(Namespace)


class NamespaceVariable(InstanceVariable):
    """A namespace made by the traced code."""

    def emit_new(self, cg: Codegen) -> None:
        emit_call(cg, Namespace)


@constructor(Namespace)
def new_namespace(
    tx: Frame, cls: VariableTracker, /, *args: VariableTracker, **kwargs: VariableTracker
) -> VariableTracker:
    result = NamespaceVariable(Namespace)
    namespace_init(tx, result, *args, **kwargs)
    return result


def _takes_mapping() -> bool:
    try:
        return bool(Namespace({}) == Namespace())
    except TypeError:
        return False


MAX_POSITIONAL = int(_takes_mapping())
"""Whether a mapping with attributes may be given."""


@method(Namespace.__init__)
def namespace_init(tx: Frame, self: Any, /, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    if len(args) > MAX_POSITIONAL:
        return run(tx, Namespace, *[{}] * len(args))  # for the message, which varies
    dict_update_common(tx, self.instance_dict(tx), "SimpleNamespace", args, kwargs)
    return NONE


def _comparison(dunder: str, op: str) -> None:
    @method(getattr(Namespace, dunder))
    def compare(tx: Frame, self: Any, other: Any, /) -> VariableTracker:
        if not issubclass(other.python_type(), Namespace):
            return NOT_IMPLEMENTED
        return richcompare(tx, self.instance_dict(tx), other.instance_dict(tx), op)


for _dunder, _op in {
    "__eq__": "==",
    "__ne__": "!=",
    "__lt__": "<",
    "__le__": "<=",
    "__gt__": ">",
    "__ge__": ">=",
}.items():
    _comparison(_dunder, _op)


@method(Namespace.__repr__)
def namespace_repr(tx: Frame, self: Any, /) -> VariableTracker:
    name = "namespace" if self.python_type() is Namespace else class_name(self.python_type())

    def text() -> str:
        pairs = self.instance_dict(tx).pairs()
        return f"{name}({', '.join([f'{key.value}={part_text(tx, value)}' for key, value in pairs])})"

    return recursive_repr(tx, self, f"{name}(...)", text)
