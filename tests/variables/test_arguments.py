"""Binding of arguments: what fits, and what this CPython says about what doesn't."""

import collections

import pytest

from tests.helpers.capturing import same
from tests.helpers.differential import check_lines


def f(a, b=2, /, c=3, *, dd, e=5):
    return a, b, c, dd, e


def g(abc, *, key):
    return abc


def h(*a, k=1, **kw):
    return a, k, kw


def named(**kw):
    return kw


def nothing():
    return None


NAMES = {fn.__name__: fn for fn in (f, g, h, named, nothing)}


def test_messages():
    check_lines(
        """
        f(1, dd=2), f(1, 2, 4, dd=2, e=1), h(1, 2, z=3), h(k=5), named(a=1), nothing()
        f(1)
        f()
        f(1, 2, 3, 4, dd=1)
        f(1, 2, 3, 4)
        f(1, a=2, dd=3)
        f(1, 2, 3, c=4, dd=1)
        f(1, zz=2, dd=3)
        g()
        g(1, kye=3)
        g(1, kex=3, key=4)
        g(1, 2)
        g(1, 2, key=4)
        named(1)
        nothing(1)
        nothing(x=1)
        g(*5)
        len(*5)
        g(**5)
        g(1, **{1: 2})
        g(1, **{"key": 1}, **{"key": 2})
        g(abc=1, **{"abc": 1})
        g(*[1, 2, 3], key=2)
        (lambda a, b, c: 0)(1)
        """,
        names=NAMES,
        z=1,
    )


class TestArgumentsOfC:
    def test_wrong_number_of_arguments_of_a_c_method(self):
        def program():
            out = []
            for call in ({}.get, {}.setdefault, [].append, {}.values):
                try:
                    call(*[1] * 4)
                except TypeError as error:
                    out.append(str(error))
            return out

        same(program)

    @pytest.mark.parametrize(
        "call",
        [
            lambda: dict.fromkeys(),
            lambda: dict.__init__(),
            lambda: dict.update(),
            lambda: collections.OrderedDict.__init__(),
            lambda: collections.OrderedDict.update(),
            lambda: collections.OrderedDict(1, 2),
            lambda: list.append(),
            lambda: slice.indices(),
        ],
    )
    def test_that_do_not_fit(self, call):
        def program():
            try:
                call()
            except TypeError as error:
                return str(error)

        same(program)

    @pytest.mark.parametrize("base", [tuple, frozenset, float])
    def test_keywords_of_a_subclass(self, base):
        class Plain(base):
            pass

        class WithInit(base):
            def __init__(self, value, note=None):
                self.note = note

        def program():
            made = WithInit("1", note=2)
            try:
                Plain(note=3)
            except TypeError as error:
                return made == base("1"), made.note, str(error)

        same(program)

    @pytest.mark.parametrize("make", [lambda: {}.keys(), lambda: iter(range(3)), lambda: iter({}), lambda: iter(set())])
    def test_types_that_cannot_be_called(self, make):
        def program():
            try:
                type(make())()
            except TypeError as error:
                return str(error)

        same(program, whole=True)


def test_keywords_with_the_names_of_parameters():
    class Plain:
        def __init__(self, /, **kwargs):
            self.kwargs = kwargs

    Pair = collections.namedtuple("Pair", ["tx", "self", "cls", "args"])

    class Error(Exception):
        def __init__(self, /, **kwargs):
            self.kwargs = kwargs

    def program():
        error = Error(self=1, tx=2)
        return Pair(tx=1, self=2, cls=3, args=4), Plain(tx=1, self=2, cls=3).kwargs, error.kwargs

    same(program, whole=True)
