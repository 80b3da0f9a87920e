"""Methods of classes that pybind11 has made.

Input: `instancemethod` objects, in which pybind11 wraps its functions. Output: on an instance, the function bound to it. Handlers are
registered for the function.
Invariant: a method is known by identity.
Mirrors `Objects/classobject.c` (`PyInstanceMethod_Type`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from dynamo_lite.guards import ir
from dynamo_lite.variables.objects.function import MethodVariable
from dynamo_lite.variables.protocol.descr import DescriptorVariable
from dynamo_lite.variables.protocol.wrap import BUILDERS, guarded

if TYPE_CHECKING:
    from dynamo_lite.interp.frame import Frame
    from dynamo_lite.variables.protocol.base import VariableTracker


class InstanceMethodVariable(DescriptorVariable):
    """An `instancemethod` in a class."""

    def tp_descr_get(self, tx: Frame, obj: VariableTracker | None, cls: VariableTracker) -> VariableTracker:
        return self if obj is None else MethodVariable(tx.tr.build_constant_object(self.value.__func__), obj)

    def tp_call(self, tx: Frame, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        return tx.call(tx.tr.build_constant_object(self.value.__func__), args, kwargs)


BUILDERS[type(vars(torch._C._InferenceMode)["__init__"])] = guarded(ir.IS, InstanceMethodVariable)
