"""Classes of tensors made by the traced code.

Input: a class statement whose metaclass is `torch._C._TensorMeta`. Output: `NewTensorTypeVariable`.
Invariant: tensors of such a class take part in `__torch_function__` as those of other classes do. Their special methods are looked up when
they come into being, so that the class keeps those that it was made with; a class with `__torch_dispatch__` is not followed.
Mirrors `THPVariableMetaType_init` of `torch/csrc/autograd/python_variable.cpp`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from dynamo_lite.exc import unsupported
from dynamo_lite.isa.typeobject import bases_of, name_of, qualname_of
from dynamo_lite.variables.objects.classes import NewMetaTypeVariable
from dynamo_lite.variables.objects.property import ClassMethodVariable
from dynamo_lite.variables.objects.subclass import PLAIN_BASES
from dynamo_lite.variables.objects.type import TypeVariable
from dynamo_lite.variables.protocol.base import VariableTracker
from dynamo_lite.variables.protocol.descr import type_attribute
from dynamo_lite.variables.protocol.dispatch import method

if TYPE_CHECKING:
    from dynamo_lite.interp.frame import Frame

_TensorMeta = type(torch.Tensor)
PLAIN_BASES.add(_TensorMeta)


class NewTensorTypeVariable(NewMetaTypeVariable):
    """The class, once its metaclass has initialised it."""

    def put(self, tx: Frame, name: str, value: VariableTracker | None) -> None:
        if name[:2] == name[-2:] == "__":
            unsupported("mutation-of-class", f"{qualname_of(self.value)}.{name}")
        super().put(tx, name, value)


@method(_TensorMeta.__init__)
def init_tensor_class(
    tx: Frame, cls: TypeVariable, /, name: VariableTracker, bases: VariableTracker, namespace: VariableTracker
) -> None:
    if not isinstance(cls, NewMetaTypeVariable) or isinstance(cls, NewTensorTypeVariable):
        unsupported("tensor-subclass", f"{cls.describe()} is initialised again")
    try:
        _initialize(cls.value)
    except RuntimeError as error:
        tx.raises_like(error)
    if "__slots__" in cls.template or cls.value.__torch_dispatch__ is not torch._C._disabled_torch_dispatch_impl:
        unsupported("tensor-subclass", qualname_of(cls.value))
    cls.initializers.append(_initialize)
    cls.__class__ = NewTensorTypeVariable


def _initialize(cls: type) -> None:
    _TensorMeta.__init__(cls, name_of(cls), bases_of(cls), {})


def wanted_class(tx: Frame, cls: VariableTracker) -> type:
    """The class that a tensor is to be of. Raises `Unsupported` where it is not known whom torch will ask about torch functions."""
    if not isinstance(cls, TypeVariable):
        unsupported("tensor-subclass", f"a {qualname_of(cls.python_type())} as the class of a tensor")
    if not tx.tr.classes.is_new(cls.value):
        return cls.as_python_constant()
    if not isinstance(type_attribute(tx, cls.value, "__torch_function__"), ClassMethodVariable):
        unsupported("tensor-subclass", f"{cls.describe()}.__torch_function__")
    return cls.value
