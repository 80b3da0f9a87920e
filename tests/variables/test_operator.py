"""The module `operator`. Needs no torch."""

import operator

import pytest

from tests.helpers.capturing import same, wrapped


class TestOperator:
    def test_getters_are_taken_apart(self):
        def program():
            made = operator.methodcaller("split", ",", maxsplit=1)
            function, args = made.__reduce__()
            return repr(made), function(*args)("a,b,c"), operator.itemgetter(0, -1).__reduce__()[1]

        same(program, whole=True)

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
