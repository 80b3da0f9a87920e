"""What `tests/fuzz` found about numbers that are symbolic from the second value on: results and errors are those of ints."""

import pytest

pytest.importorskip("torch")

from dynamo_lite import convert
from dynamo_lite.config import config

VALUES = (4, 2, 1, 3, 0, -1, 6)


def named_slots(a):
    return (7).__add__(a), (2).__pow__(a), a.__divmod__(3), a.__floordiv__(2.5), a.__add__("x")


def remainder(a):
    return 0 % a


def quotients(a):
    return 5 // a, 5 / a, divmod(-5, a)


def left_shift(a):
    return 1 << a


def right_shift(a):
    return 64 >> a


def with_booleans(a):
    return True > a, True + a, a & True, False | a, a ^ True, min(a, True), sum([a, True]), a == True, a is True  # noqa: E712


def identity(a):
    return a in {1: a}.values(), a is None, a in [9, a], a == "a", a != 2.0


def with_float(a):
    return a ^ 1.5


@pytest.mark.parametrize(
    "function",
    [named_slots, remainder, quotients, left_shift, right_shift, with_booleans, identity, with_float],
)
def test_symbolic_numbers_behave_as_ints(function):
    def outcome(call, a):
        try:
            return call(a)
        except Exception as error:
            return repr(error)

    with config.patch(capture_pure_python=True, suppress_errors=False, debug=True):
        compiled = convert.Region(lambda gm, inputs: gm.forward).wrap(function)
        for a in VALUES:
            assert outcome(compiled, a) == outcome(function, a)
