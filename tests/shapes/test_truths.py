"""`bool(t)`, `not t`, `any(…)` and `all(…)` of tensors in one graph."""

import operator

import pytest
import torch

import dynamo_lite
from dynamo_lite.exc import Unsupported
from dynamo_lite.testing import CompileCounter

WHOLE = {
    "any": lambda x: any(v > 3 for v in x),
    "all": lambda x: (all(t.isfinite().all() for t in [x, x * 2]), x + 1),
    "known ones among them": lambda x: (any([x.sum() > 0, True]), all([x.sum() > 0, 0]), any([[], x.sum() > 4])),
    "none": lambda x: (any(v > 3 for v in ()), all(v > 3 for v in [])),
    "not": lambda x: (not x.any(), x * (not x[0])),
    "bool": lambda x: (bool(x.sum()), bool(x[:1]) + 1, -bool(x[0] > 0), [bool(v) for v in x]),
    "comparisons": lambda x: [
        f(bool(x.sum() > 0), b) for f in (operator.eq, operator.ne, operator.lt) for b in (True, 0)
    ],
    "sum of bools": lambda x: sum(bool(v > 0) for v in x),
    "branch": lambda x: x + 1 if any(v > 0 for v in x) and not all(v > 0 for v in x) else x - 1,
    "a bool in a side": lambda x: (x * (bool(x.max() > 2) + 1)).exp() if x.sum() > 0 else x.sin(),
    "numbers": lambda x: any(v > 2 for v in x.tolist()) or all(x.int().tolist()),
}


NOT_UNDER_INDUCTOR = {"numbers", "a bool in a side"}
"""It fails at comparisons of numbers from data, and at numbers that a side reads from tensors."""

CASES = [
    (name, backend)
    for name in WHOLE
    for backend in ("eager", "aot_eager", "inductor")
    if backend != "inductor" or name not in NOT_UNDER_INDUCTOR
]


@pytest.mark.parametrize(("name", "backend"), CASES)
def test_truths_in_one_graph(name, backend):
    function = WHOLE[name]
    compiled = dynamo_lite.compile(function, backend=backend, fullgraph=True)
    for x in (torch.ones(4), -torch.ones(4), torch.zeros(4), torch.arange(4.0), torch.tensor([torch.nan, 0, 0, 0])):
        assert repr(compiled(x)) == repr(function(x))


def appends(x):
    seen = []
    return any(seen.append(1) or v > 0 for v in x), len(seen)


def goes_on(x):
    flags = iter([x[0] > 0, x[1] > 0, x[2] > 0])
    return any(flags), len(list(flags))


def raises_behind(x):
    return any(1 / v.item() > 0 for v in x)


def draws(x):
    return any(torch.rand(()) > v for v in x), torch.rand(2)


@pytest.mark.parametrize("function", [appends, goes_on, raises_behind, draws])
def test_items_that_may_not_be_asked_for_break(function):
    compiled = dynamo_lite.compile(function, backend="eager")
    for x in (torch.ones(4), -torch.ones(4), torch.tensor([0.5, 0.0, 1.0, 2.0])):
        torch.manual_seed(0)
        expected = function(x)
        torch.manual_seed(0)
        assert repr(compiled(x)) == repr(expected)
    with pytest.raises(Unsupported, match="any: "):
        dynamo_lite.compile(function, backend="eager", fullgraph=True)(torch.ones(4))


def test_a_check_of_several_tensors_breaks_nothing():
    counter = CompileCounter()

    def step(x):
        if any(torch.isnan(t).any() for t in [x, x * 2]):
            raise ValueError("nan")
        return x + 1

    compiled = dynamo_lite.compile(step, backend=counter)
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))
    with pytest.raises(ValueError, match="nan"):
        compiled(torch.tensor([torch.nan, 1.0]))
    assert counter.frame_count == 1


def number_in_a_side(x):
    scale, is_large, n = x.max().item(), bool(x.max() > 2), x.argmax().item()
    if x.sum() > 0:
        x = (x / (abs(scale) + 1)).exp() * is_large + n
    return x.sin()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_sides_use_numbers_from_data(backend):
    compiled = dynamo_lite.compile(number_in_a_side, backend=backend, fullgraph=True)
    for x in (torch.ones(4), -torch.ones(4), torch.arange(4.0)):
        torch.testing.assert_close(compiled(x), number_in_a_side(x))


def test_inductor_has_a_break_where_it_takes_no_numbers_in_a_side():
    compiled = dynamo_lite.compile(number_in_a_side, backend="inductor")
    for x in (torch.ones(4), -torch.ones(4), torch.arange(4.0)):
        torch.testing.assert_close(compiled(x), number_in_a_side(x))
