"""Operators on tensors of classes with a `__torch_function__`."""

import operator

import pytest
import torch

import dynamo_lite


class Refusing(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.Tensor.sin:
            return super().__torch_function__(func, types, args, kwargs or {})
        raise TypeError("no")


@pytest.mark.parametrize(
    "op", [operator.add, operator.sub, operator.matmul, operator.eq, operator.lt, operator.iadd, operator.and_]
)
def test_a_type_error_of_an_override_is_not_implemented(op):
    def apply(a, b):
        a.sin()
        try:
            return op(a, b)
        except TypeError as error:
            return str(error)

    compiled = dynamo_lite.compile(apply, backend="eager", fullgraph=True)
    a = torch.ones(2).as_subclass(Refusing)
    for b in (a, 2, torch.ones(2)):
        assert compiled(a, b) == apply(a, b)
