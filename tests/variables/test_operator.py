"""The module `operator`. Needs no torch."""

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
