"""Comparisons of floats from data with each other, with infinities and with nan, also of a float with itself."""

import itertools
import math
import operator

import pytest
import torch

import dynamo_lite
from dynamo_lite.testing import CompileCounter, run_both

COMPARISONS = (operator.gt, operator.ge, operator.lt, operator.le, operator.eq, operator.ne)
NUMBERS = (1.0, -5.0, 0.0, math.inf, -math.inf, math.nan)


def of_two(compare):
    """Programs on a tensor of two numbers."""

    def while_it_holds(x):
        turns = 0
        while compare(x[0].item(), x[1].item()) and turns < 3:
            x, turns = x * 0.5 - 1, turns + 1
        return x

    return {
        "branch": lambda x: x + 1 if not compare(x[0].item(), x[1].item()) else x - 1,
        "value": lambda x: (x, compare(x[0].item(), x[1].item())),
        "two": lambda x: x + 1 if compare(x[0].item(), 0.0) and not compare(x[1].item(), 0.0) else x - 1,
        "sum": lambda x: x + 1 if compare(x[0].item() + x[1].item(), 0.0) else x - 1,
        "parts": lambda x: x + 1 if compare(x[0].item() * 2 - 1, x[1].item() / 2) else x - 1,
        "extremes": lambda x: x + 1 if compare(max(x[0].item(), x[1].item()), min(x[0].item(), 1.0)) else x - 1,
        "int": lambda x: x + 1 if compare(x[0].item(), 3) else x - 1,
        "itself": lambda x: x + 1 if compare(x[0].item(), x[0].item()) else x - 1,
        "difference": lambda x: x + 1 if compare(x[0].item() - x[0].item(), 0.0) else x - 1,
        "nothing": lambda x: x + 1 if compare(x[0].item() * 0, 0.0) else x - 1,
        "loop": while_it_holds,
    }


@pytest.mark.parametrize("name", of_two(None))
@pytest.mark.parametrize("compare", COMPARISONS)
def test_two_numbers(compare, name):
    program = of_two(compare)[name]
    compiled = dynamo_lite.compile(program, backend="eager")
    for numbers in itertools.product(NUMBERS, repeat=2):
        x = torch.tensor(numbers)
        assert repr(compiled(x)) == repr(program(x)), numbers


@pytest.mark.parametrize("extreme", [math.inf, -math.inf, math.nan, 1e250])
@pytest.mark.parametrize("compare", COMPARISONS)
def test_a_number_and_an_extreme(compare, extreme):
    programs = (
        lambda x: x + 1 if compare(x.sum().item(), extreme) else x - 1,
        lambda x: x + 1 if compare(extreme, float(x.sum())) else x - 1,
        lambda x: (x, compare(x.sum().item(), extreme)),
    )
    for program in programs:
        compiled = dynamo_lite.compile(program, backend="eager")
        for number in NUMBERS:
            x = torch.tensor([number, 0.0])
            assert repr(compiled(x)) == repr(program(x)), number


class Best:
    """What early stopping keeps."""

    def __init__(self):
        self.value, self.bad = -math.inf, 0

    def step(self, score):
        if score.mean().item() > self.value + 0.1:
            self.value, self.bad = score.mean().item(), 0
        else:
            self.bad += 1
        return score * self.bad


def test_early_stopping():
    best, like = Best(), Best()
    compiled = dynamo_lite.compile(best.step, backend="eager")
    for number in (1.0, 2.0, 1.5, 3.0):
        score = torch.full((3,), number)
        assert torch.equal(compiled(score), like.step(score)) and vars(best) == vars(like)


def test_an_item_below_a_number_is_one_graph():
    run = run_both(lambda x: x * 2 if x.sum().item() < 3.0 else x * 3, torch.ones(2), _fullgraph=True)
    assert run.graph_count == 1


def is_not_negative(n):
    return n if n >= 0.0 and float(n) >= 0 and not n / 2 < 0 else None


def asserted(v):
    torch._check(v >= 0.0)
    return "negative" if v < 0.0 else v


WHOLE = {
    "size": lambda x: x * is_not_negative(x[x > 0].size(0)),
    "asserted": lambda x: x * asserted(x.abs().sum().item()),
    "factor-0": lambda x: x * (x[0].item() + 0.0 * x[1].item()),
    "and-back": lambda x: x * ((x[0].item() + x[1].item()) - x[1].item()),
    "clipped": lambda x: x * min(1.0, max(0.0, abs(x[0].item()))),
    "extremes": lambda x: (x + 1, max(0.0, x[0].item() * x[0].item()), min(abs(x[1].item()), -1.0)),
}


@pytest.mark.parametrize("name", WHOLE)
def test_one_graph_for_all_numbers(name):
    counter = CompileCounter()
    compiled = dynamo_lite.compile(WHOLE[name], backend=counter, fullgraph=True)
    for numbers in itertools.product(NUMBERS[:3] if name == "asserted" else NUMBERS, repeat=2):
        x = torch.tensor(numbers)
        assert repr(compiled(x)) == repr(WHOLE[name](x)), numbers
    assert counter.frame_count == 1


def test_an_assertion_says_nothing_of_terms_on_the_other_side():
    def program(x):
        a, b, total = x[0].item(), x[1].item(), x[2].item()
        torch._check(a + b <= total)
        return x + 1 if b <= total - a else x - 1

    x = torch.tensor([0.3, 0.6, 0.8999999999999999], dtype=torch.float64)
    assert torch.equal(dynamo_lite.compile(program, backend="eager", fullgraph=True)(x), program(x))


CHECKED = {
    "inf": lambda x: x[0].item() < math.inf,
    "item": lambda x: (x[0] < 5).item(),
    "not": lambda x: not (x[0] >= 5).item(),
    "bool": lambda x: bool(torch.isfinite(x).all()),
    "isfinite": lambda x: math.isfinite(x[0].item()),
    "itself": lambda x: x[0].item() >= x[0].item(),
    "int": lambda x: int(x.nan_to_num(0, 0, 0)[0].item()) == 1,
    "two": lambda x: x[0].item() < 5 and x[1].item() < 5,
}


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", CHECKED)
def test_checks_of_truths(name, backend, fullgraph):
    def program(x):
        torch._check(CHECKED[name](x), lambda: "own text")
        return x * 2

    def outcome(fn, x):
        try:
            return repr(fn(x))
        except RuntimeError as error:
            return str(error)

    compiled = dynamo_lite.compile(program, backend=backend, fullgraph=fullgraph)
    for numbers in ([1.0, 1.0], [math.inf, 1.0], [math.nan, 2.0], [7.0, 1.0], [1.0, 9.0]):
        assert outcome(compiled, torch.tensor(numbers)) == outcome(program, torch.tensor(numbers)), numbers
