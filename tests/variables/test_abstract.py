"""Operators and protocols of user classes, as in CPython's `Objects/abstract.c`. Needs no torch."""

import datetime

import pytest

from tests.helpers.capturing import captured, same
from tests.helpers.program_texts import agrees


class TestOperators:
    def test_special_method_set_to_none(self):
        def program():
            class C:
                def __add__(self, other):
                    return NotImplemented

            class D(C):
                __radd__ = None

            try:
                return C() + D()
            except TypeError as error:
                return str(error)

        same(program)

    def test_a_class_whose_iter_is_none(self):
        class Closed:
            __iter__ = None

            def __getitem__(self, i):
                return i

        def program():
            try:
                iter(Closed())
            except TypeError as error:
                return str(error)

        same(program, whole=True)


def test_truth_of_a_comparison_that_breaks():
    class Refusing:
        def __bool__(self):
            raise ValueError("no truth")

    class Date(datetime.date):
        def __eq__(self, other):
            return Refusing()

        __hash__ = None

    def program(day, strange):
        seen = [1] if day == datetime.date(2000, 1, 1) else [2]
        try:
            if strange == day:
                seen.append(3)
        except ValueError as error:
            seen.append(str(error))
        return seen

    same(program, datetime.date(2000, 1, 1), Date(2000, 1, 1))


@pytest.mark.parametrize("defined, statement", [("__delitem__", "o[0] = 1"), ("__setitem__", "del o[0]")])
def test_items_that_can_be_set_or_deleted_only(defined, statement):
    agrees(f"""
    class C:
        def {defined}(self, *args):
            pass
    def program(o):
        {statement}
    def make_args(k):
        return [C()]
    """)


class Plain:
    pass


class Sized:
    def __len__(self):
        return 1


OWNERS = [
    *({}.values(), {1: 2}.items(), {}.keys(), (1,), "a", {1}, frozenset(), range(3), slice(1)),
    *(5, 2.0, True, None, iter([]), len, Plain(), Sized(), Plain, lambda: 0),
]


@pytest.mark.parametrize("owner", OWNERS, ids=lambda owner: type(owner).__name__)
@pytest.mark.parametrize("key", [0, True, "x", 1.5])
def test_what_cannot_be_stored_in_says_so_in_the_words_of_cpython(owner, key):
    def messages(owner, key):
        found = []
        for delete in (False, True):
            try:
                if delete:
                    del owner[key]
                else:
                    owner[key] = 1
            except TypeError as error:
                found.append(str(error))
        return found

    expected = messages(owner, key)
    assert captured(messages)(owner, key) == expected and len(expected) == 2
