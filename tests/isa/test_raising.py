"""Which side of a branch only raises."""

import pytest

from dynamo_lite.isa import lift
from dynamo_lite.isa.canon import Op
from dynamo_lite.isa.flow import side_that_goes_on


def check_if(x):
    if x:
        raise ValueError(f"{x}" if x else [v for v in x])
    return 1


def check_if_not(x):
    if not x:
        raise ValueError
    return 1


def check_compared(x):
    if x < 0:
        raise ValueError
    return 1


def check_called(x):
    if bool(x):
        raise ValueError
    return 1


def else_raises(x):
    if x:
        return 1
    raise ValueError


def both_raise(x):
    if x:
        raise ValueError
    raise TypeError


def neither_raises(x):
    if x:
        return 1
    return 2


def raises_later(x):
    if x:
        print(x)
    raise ValueError


def goes_round(xs):
    for x in xs:
        if x:
            continue
        return x
    raise ValueError


def is_caught(x):
    try:
        if x:
            raise ValueError
        return 1
    except ValueError:
        return 2


CASES = {
    check_if: [False],
    check_if_not: [True],
    check_compared: [False],
    check_called: [False, False],
    else_raises: [True],
    both_raise: [None],
    neither_raises: [None],
    raises_later: [None],
    goes_round: [None],
    is_caught: [False],
}


@pytest.mark.parametrize("fn", CASES, ids=lambda fn: fn.__name__)
def test_side_that_goes_on(fn):
    lifted = lift(fn.__code__)
    branches = [i for i, instr in enumerate(lifted.instrs) if instr.op in (Op.TO_BOOL, Op.CALL)]
    found = [side_that_goes_on(lifted, i) for i in branches[: len(CASES[fn])]]
    assert found == CASES[fn]
