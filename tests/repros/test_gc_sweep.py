"""`isinstance` of everything that the garbage collector knows, a common way to look for leaks, after a capture."""

import gc

import torch

import dynamo_lite


def test_isinstance_of_models_whose_run_is_over():
    def f(x, unused):
        dynamo_lite.graph_break()
        return x + 1

    dynamo_lite.compile(f, backend="eager")(torch.ones(2), torch.ones(3))
    tensors = [o for o in gc.get_objects() if isinstance(o, torch.Tensor)]
    assert all(issubclass(type(tensor), torch.Tensor) for tensor in tensors)


def test_a_value_whose_run_is_over_says_so():
    from dynamo_lite.variables.base import LazyVariable

    dead = LazyVariable(None, None, None)
    dead.__dict__.clear()
    assert not isinstance(dead, torch.Tensor)
    assert not hasattr(dead, "shape")
