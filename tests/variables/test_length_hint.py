"""Who is asked for a length while something iterates: `PyObject_LengthHint` is part of `list(v)`, not of every iteration."""

import itertools
import operator
from collections import deque

import pytest

from tests.helpers.capturing import same

told: list[str] = []


class Sized:
    def __len__(self):
        told.append("len")
        return 3

    def __iter__(self):
        told.append("iter")
        return iter((1, 2, 3))


class Hinting:
    """Its own iterator."""

    def __init__(self):
        self.n = 0

    def __iter__(self):
        return self

    def __next__(self):
        self.n += 1
        if self.n > 3:
            raise StopIteration
        told.append("next")
        return self.n

    def __length_hint__(self):
        told.append("hint")
        return 5


class SizedWithHintingIterator(Sized):
    def __iter__(self):
        return Hinting()


def starred_target(v):
    a, *b = v
    return a, b


def too_few(v):
    try:
        a, b, c, d, *e = v
    except ValueError as error:
        return str(error)


def slice_of_list(v):
    kept = [1, 2]
    kept[1:] = v
    return kept


def key(item):
    told.append(f"key {item}")
    return -item


ITERATING = [
    starred_target,
    too_few,
    slice_of_list,
    lambda v: {*v},
    lambda v: [*v],
    lambda v: max(v),
    lambda v: min(v, key=key),
    lambda v: deque(v),
    lambda v: tuple(v),
]


@pytest.mark.parametrize("cls", [Sized, Hinting, SizedWithHintingIterator])
@pytest.mark.parametrize("fn", ITERATING)
def test_who_is_asked(fn, cls):
    def run():
        told.clear()
        return fn(cls()), list(told)

    same(run, whole=True)


class Wrong:
    def __length_hint__(self):
        return "five"


class Unknown:
    def __length_hint__(self):
        return NotImplemented


def by_name(*args):
    try:
        return operator.length_hint(*args), list(told)
    except TypeError as error:
        return str(error), list(told)


@pytest.mark.parametrize("cls", [Sized, Hinting, Wrong, Unknown, object, list, dict, str])
def test_asking_by_name(cls):
    def run():
        told.clear()
        return by_name(cls()), by_name(cls(), 12), by_name(cls(), "a")

    same(run, whole=True)


def test_asking_iterators_by_name_breaks():
    same(lambda: operator.length_hint(itertools.repeat(None), 12), breaks=["call-c-function"])
    same(lambda: iter([1, 2]).__length_hint__(), breaks=["call-c-function"])
