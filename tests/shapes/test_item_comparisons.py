"""Comparisons of floats from data with each other, with infinities and with nan, also of a float with itself."""

import itertools
import math
import operator

import pytest
import torch

import dynamo_lite
from dynamo_lite.testing import run_both

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
