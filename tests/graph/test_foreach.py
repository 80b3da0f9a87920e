"""Operators on lists of tensors: what they return, for each of them and each form of its arguments."""

import copy

import pytest
import torch

import dynamo_lite
from dynamo_lite.testing import run_both

NAMES = [name for name in dir(torch) if name.startswith("_foreach_")]


def tensors():
    return [torch.rand(3) + 1, torch.rand(2) + 1]


FORMS = {
    "one list": lambda: ((tensors(),), {}),
    "a tuple": lambda: ((tuple(tensors()),), {}),
    "two lists": lambda: ((tensors(), tensors()), {}),
    "two tuples": lambda: ((tuple(tensors()), tuple(tensors())), {}),
    "matrices": lambda: (([torch.rand(2, 2), torch.rand(3, 2)], [torch.rand(2, 2), torch.rand(2, 3)]), {}),
    "number": lambda: ((tensors(), 2.0), {}),
    "numbers": lambda: ((tensors(), [2.0, 3.0]), {}),
    "tensor": lambda: ((tensors(), torch.tensor(2.0)), {}),
    "three lists": lambda: ((tensors(), tensors(), tensors()), {}),
    "two lists and a number": lambda: ((tensors(), tensors(), 0.5), {}),
    "two lists and numbers": lambda: ((tensors(), tensors(), [0.5, 0.2]), {}),
    "three lists and a number": lambda: ((tensors(), tensors(), tensors(), 2.0), {}),
    "three lists and numbers": lambda: ((tensors(), tensors(), tensors(), [2.0, 1.0]), {}),
    "three lists and a tensor": lambda: ((tensors(), tensors(), tensors(), torch.tensor([2.0, 1.0])), {}),
    "alpha": lambda: ((tensors(), tensors()), {"alpha": 2.0}),
    "weight": lambda: ((tensors(), tensors()), {"weight": 0.5}),
    "value": lambda: ((tensors(), tensors(), tensors()), {"value": 0.5}),
    "scalars": lambda: ((tensors(), tensors(), tensors()), {"scalars": [0.5, 0.3]}),
}


def returns(function, args, kwargs):
    """What a call returns, and which of its arguments, or of their items, that is."""
    result = function(*args, **kwargs)
    if not isinstance(result, list | tuple):
        return result
    return result, type(result).__name__, result is args[0], [[a is b for b in args[0]] for a in result]


@pytest.mark.parametrize("kind", ["function", "operator"])
@pytest.mark.parametrize("name", NAMES)
def test_foreach_operators_return_what_they_return_in_eager_execution(name, kind):
    function = getattr(torch if kind == "function" else torch.ops.aten, name)
    tried, wrong = 0, []
    for form, make in FORMS.items():
        args, kwargs = make()
        try:
            function(*copy.deepcopy(args), **kwargs)
        except (TypeError, RuntimeError):
            continue
        tried += 1
        try:
            run = run_both(lambda args, kwargs: returns(function, args, kwargs), args, kwargs)
        except AssertionError as error:
            wrong.append((form, str(error)))
            continue
        if "tensor" not in form and (run.breaks or run.graph_count != 1):  # those may read a number
            wrong.append((form, run.breaks))
    assert tried and not wrong, wrong


@pytest.mark.parametrize(
    "name", ["_foreach_lerp_", "_foreach_add_", "_foreach_addcdiv_", "_foreach_mul_", "_foreach_copy_"]
)
def test_in_place_foreach_operators_under_aot_autograd(name):
    form = FORMS["three lists" if "addcdiv" in name else "weight" if "lerp" in name else "two lists"]
    args, kwargs = form()
    run = run_both(lambda args, kwargs: returns(getattr(torch, name), args, kwargs), args, kwargs, _backend="aot_eager")
    assert run.graph_count == 1 and not run.breaks


def test_a_function_allowed_in_the_graph_that_returns_its_argument():
    @dynamo_lite.allow_in_graph
    def through(x, items, pair):
        return pair if x.ndim else items

    def call(x, items, pair):
        result = through(x, items, pair=pair)
        return result is pair, result, x + 1

    run = run_both(call, torch.ones(2), [torch.ones(1)], (torch.ones(1), 2))
    assert run.graph_count == 1 and not run.breaks
