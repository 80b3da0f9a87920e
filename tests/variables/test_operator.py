"""The module `operator`. Needs no torch."""

import collections
import copy
import operator

import pytest

from tests.helpers.capturing import same, wrapped


class TestOperator:
    def test_taking_a_getter_apart_breaks(self):
        def program():
            made = operator.methodcaller("split", ",", maxsplit=1)
            return copy.copy(made)("a,b,c")

        same(program, breaks=["call-c-function"])

    def test_concatenation_of_user_sequences(self):
        class Items:
            def __getitem__(self, i):
                return i

            def __add__(self, other):
                return "sum"

        def program():
            return operator.concat(Items(), Items()), operator.concat([1], [2]), operator.iconcat(Items(), Items())

        same(program, whole=True)


@pytest.mark.usefixtures("pure_python")
def test_index_of_a_bool_is_an_int():
    assert type(wrapped(operator.index)(True)) is int
    assert type(wrapped(lambda x: operator.index(x))(True)) is int


class Multiplied(list):
    def __rmul__(self, other):
        return "rmul", type(other).__name__


class Declines(list):
    def __mul__(self, other):
        return NotImplemented


class Added(tuple):
    __slots__ = ()

    def __radd__(self, other):
        return "radd", type(other).__name__


class Grown(list):
    def __iadd__(self, other):
        return "iadd", type(other).__name__


class Plain(list):
    pass


class Line(collections.deque):
    pass


class Word(str):
    __slots__ = ()


class Count(int):
    pass


class Position:
    def __index__(self):
        return 2


class Table(dict):
    pass


MAKERS = {
    "list": lambda: [1],
    "tuple": lambda: (1, 2),
    "str": lambda: "ab",
    "bytearray": lambda: bytearray(b"q"),
    "deque": lambda: collections.deque([2]),
    "range": lambda: range(3),
    "int": lambda: 3,
    "bool": lambda: True,
    "float": lambda: 2.5,
    "None": lambda: None,
    "set": lambda: {1},
    "dict_keys": lambda: {1: 2}.keys(),
    "function": lambda: operator.add,
    "Multiplied": lambda: Multiplied([1]),
    "Declines": lambda: Declines([1]),
    "Added": lambda: Added((1,)),
    "Grown": lambda: Grown([2]),
    "Plain": lambda: Plain([2]),
    "Line": lambda: Line([1]),
    "Word": lambda: Word("q"),
    "Count": lambda: Count(2),
    "Position": lambda: Position(),
    "Table": lambda: Table(),
}
OPERATORS = [operator.add, operator.iadd, operator.mul, operator.imul, operator.concat, operator.iconcat]


@pytest.mark.usefixtures("pure_python")
@pytest.mark.parametrize("left", MAKERS)
def test_slots_of_sequences_and_of_numbers(left):
    """Which of them answers, and with what error, for all pairs of kinds of operands."""

    def program(make):
        found = []
        for other in MAKERS.values():
            for function in OPERATORS:
                try:
                    result = function(make(), other())
                    found.append((result if type(result) is not Position else 0, type(result).__name__))
                except TypeError as error:
                    found.append(str(error))
        return found

    assert wrapped(program)(MAKERS[left]) == program(MAKERS[left])
