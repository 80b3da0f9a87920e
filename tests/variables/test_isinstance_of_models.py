"""`isinstance` of everything that the garbage collector knows, a common way to look for leaks, after a capture."""

import gc

import torch

import dynamo_lite


def test_isinstance_of_models_whose_run_is_over():
    def f(x, unused):
        dynamo_lite.graph_break()
        return x + 1

    gc.disable()  # so that what only cycles keep is still there
    try:
        dynamo_lite.compile(f, backend="eager")(torch.ones(2), torch.ones(3))
        sweep()
    finally:
        gc.enable()


def sweep():
    ours = [o for o in gc.get_objects() if str(type(o).__module__).startswith("dynamo_lite")]
    assert ours
    assert not any(isinstance(o, torch.Tensor) for o in ours)


def test_a_value_whose_run_is_over_says_so():
    from dynamo_lite.variables.protocol.base import LazyVariable

    dead = LazyVariable(None, None, None)
    dead.__dict__.clear()
    assert not isinstance(dead, torch.Tensor)
    assert not hasattr(dead, "shape")
