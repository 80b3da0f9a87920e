"""Which of several equal objects came, and which objects are one. Needs no torch."""

import functools

import pytest

from dynamo_lite import graph_break
from dynamo_lite.record import log
from tests.helpers.capturing import wrapped


def frames_of(fn, *calls):
    """(what the calls return, number of frames captured)"""
    log.reset()
    results = [fn(*arguments) for arguments in calls]
    return results, sum(f.skipped is None for f in log.snapshot())


@pytest.mark.usefixtures("pure_python")
def test_which_of_equal_objects():
    """Two equal numbers, texts or aliases are two objects; a nan is equal to itself only by being the same."""
    one, other = int("9" * 30), int("9" * 30)
    assert frames_of(wrapped(lambda x, y: x is y), (one, one), (one, other), (one, one)) == ([True, False, True], 2)
    assert frames_of(wrapped(lambda x, y: id(x) == id(y)), (one, one), (one, other)) == ([True, False], 2)
    one, other = list[int], list[int]
    assert frames_of(wrapped(lambda x, y: x is not y), (one, one), (one, other)) == ([False, True], 2)
    one, other = float("nan"), float("nan")
    assert frames_of(wrapped(lambda x, y: x in [y]), (one, one), (one, other), (one, one))[0] == [True, False, True]
    fn = wrapped(lambda x, y: hash(x) == hash(y))
    assert fn(one, one) and not fn(one, other) and fn(other, other)
    # Small numbers and short texts are one object each.
    assert frames_of(wrapped(lambda x, y: x is y), (5, 5), (5, 5)) == ([True, True], 1)


class Holder:
    def __init__(self, a):
        self.a = a


@pytest.mark.usefixtures("pure_python")
@pytest.mark.parametrize(
    "first, second",
    [
        (max, min),
        (functools.partial(max, 1), functools.partial(min, 1)),
        (wrapped, pytest.raises),
        (Holder, dict),
        (functools, pytest),
    ],
)
def test_what_is_made_once_is_known_by_a_path_that_nobody_looks_at(first, second):
    def what(holder):
        a = holder.a.func if isinstance(holder.a, functools.partial) else holder.a
        return a is max, a is wrapped, a is Holder, a is functools

    fn = wrapped(what)
    for value in (first, second, first):
        assert fn(Holder(value)) == what(Holder(value))


MAKERS = [lambda: "".join(["one ", "two"]), lambda: int("1" * 30), lambda: float("2.5"), lambda: bytes([1, 2])]


@pytest.mark.usefixtures("pure_python")
@pytest.mark.parametrize("make", MAKERS, ids=["str", "int", "float", "bytes"])
def test_equal_values_are_returned_as_the_objects_that_came(make):
    """A text or number from outside is guarded by its value, but which object it is can be asked outside."""

    def passed(value, other):
        return value if value == other else None

    def kept(value, other):
        found = [value] if value == other else []
        return {"found": found, "first": (value, value)}

    first, second, other = make(), make(), make()
    assert first is not second
    fn = wrapped(passed)
    assert fn(first, other) is first
    assert fn(second, other) is second
    fn = wrapped(kept)
    for value in (first, second):
        found = fn(value, other)
        assert found["found"][0] is value and found["first"][0] is value and found["first"][1] is value


@pytest.mark.usefixtures("pure_python")
def test_an_equal_value_after_a_break():
    def fn(value, other):
        same = value == other
        graph_break()
        return value, same

    first, second = ("".join(["one ", "two"]) for _ in range(2))
    passed = wrapped(fn)
    for value in (first, second):
        found, same = passed(value, "one two")
        assert found is value and same
