"""Slots that a model did not have: what it answered instead was not what the type does."""

import functools
import types

import pytest

from dynamo_lite.config import config
from tests.helpers.capturing import wrapped
from tests.helpers.differential import check_lines


def text_of_hash(x):
    try:
        return hash(x)
    except TypeError as error:
        return str(error)


@pytest.mark.parametrize(
    "f",
    [
        lambda: (text_of_hash(slice(1, 2)), text_of_hash(types.MappingProxyType({}))),
        lambda: text_of_hash({}.keys()),
        lambda: (str(types.MappingProxyType({1: 2})), repr(types.MappingProxyType({1: 2}))),
        lambda: (None.__bool__(), None.__repr__(), None.__eq__(None), ....__repr__()),
        lambda: [].__hash__ is None,
        lambda: None.__ne__,
    ],
)
def test_slots(f):
    with config.patch(capture_pure_python=True, debug=True):
        captured = wrapped(f)()
    assert captured == f()


class Plain:
    pass


def test_methods_of_object_by_name():
    check_lines(
        """
        [].__format__(0)
        ().__format__(None)
        {}.__format__(False)
        None.__format__(0.0)
        (...).__format__(())
        b"".__format__({})
        object.__format__(1, 0)
        [].__format__("x")
        [].__format__(""), None.__format__("")
        format([], 0)
        format(Number(3), None)
        None.__ne__(3), None.__ne__(None), (...).__ne__(3), NotImplemented.__ne__(3), None.__ne__(p), p.__ne__(3), p.__ne__(p)
        object.__ne__(1, "a"), object.__ne__(1, 2), object.__ne__(1, 1.0), object.__ne__([], []), object.__ne__((1,), (1,))
        """,
        {"Number": type("Number", (int,), {}), "p": Plain()},
    )


class NoIterator:
    def __iter__(self):
        return 3


class TypeErrorIterator:
    def __iter__(self):
        raise TypeError("own")


class KeyErrorIterator:
    def __iter__(self):
        raise KeyError("own")


class Keys:
    def __init__(self, keys):
        self.found = keys

    def keys(self):
        return self.found

    def __getitem__(self, key):
        return key


class Huge:
    def __index__(self):
        return 1 << 70


class Failing:
    def __index__(self):
        raise TypeError("own")


class Five(int):
    pass


def keywords(**kwargs):
    return kwargs


def asked_of_keys(mapping):
    """What a function gives of a mapping whose keys come from a generator, and what that and the mapping were asked for, in order."""
    seen = []

    def keys():
        for key in ("a", "b"):
            seen.append(key)
            yield key

    class Mapping:
        def keys(self):
            return keys()

        def __getitem__(self, key):
            seen.append(key.upper())

    return mapping(Mapping()), seen


ASKED = (NoIterator, TypeErrorIterator, KeyErrorIterator, Keys, Huge, Failing, Five, Plain, keywords)
REFUSED = """
    "".join({bad})
    b"".join({bad})
    3 in {bad}
    x = [1]; x[0:1] = {bad}
    x = [1]; x[::2] = {bad}
    x = [1]; x[Failing():] = {bad}
    bytes({bad})
    dict(Keys({bad}))
    {{**Keys({bad})}}
    {{}}.update(Keys({bad}))
    sum({bad}, "a")
"""


@pytest.mark.parametrize("bad", ["3", "NoIterator()", "TypeErrorIterator()", "KeyErrorIterator()"])
def test_what_c_says_of_iterators_that_are_none(bad):
    names = {value.__name__: value for value in ASKED}
    lines = REFUSED.format(bad=bad)
    if bad == "3":
        lines = lines.replace("bytes(3)", "")
    if not bad.startswith("KeyError"):  # which later CPythons take for a keyword given twice
        lines += f"    keywords(**Keys({bad}))"
    check_lines(lines, names)


def test_keys_are_listed_before_items_are_asked_for():
    names = {"asked_of_keys": asked_of_keys, "merged": lambda m: {**m}, "passed": lambda m: keywords(**m)}
    check_lines("asked_of_keys(merged)\nasked_of_keys(passed)\nasked_of_keys(dict)", names, fullgraph=False)


def test_positions_sizes_and_names_that_are_none():
    check_lines(
        """
        [1, 2].__delitem__(1 << 65)
        [1, 2].__setitem__(Huge(), 1)
        [1, 2][Huge()]
        (1, 2)[Five(1 << 65)]
        "ab"[Huge()]
        [1] * Huge()
        collections.deque([1])[1 << 65]
        collections.deque([1]).__getitem__(1.5)
        collections.deque([1]).__getitem__(1 << 65)
        collections.deque([1]).__setitem__(1.5, 2)
        collections.deque([1]).__delitem__(1 << 65)
        operator.setitem(collections.deque([1]), 1 << 65, 2)
        operator.setitem(collections.deque([1]), 1.5, 2)
        NoIterator() in b"abc"
        Failing() in b"abc"
        Huge() in b"abc"
        Five(97) in b"abc", Five(98) in b"ac"
        getattr(p, {})
        getattr(p, p, 1)
        hasattr(p, Five(1))
        setattr(p, [], 1)
        itertools.count().__next__(1)
        itertools.chain().__next__(x=1)
        itertools.repeat(1).__iter__(1)
        [].__setitem__(1)
        """,
        {value.__name__: value for value in ASKED},
        p=Plain(),
    )


def attempts(x, owner):
    """What the three methods of a type do, called by name."""
    found = []
    for call in (
        lambda: owner.__getattribute__(x, "__class__"),
        lambda: owner.__getattribute__(x, "__doc__") == x.__doc__,
        lambda: owner.__getattribute__(x, "missing"),
        lambda: owner.__getattribute__(x, 5),
        lambda: owner.__setattr__(x, "new", 1),
        lambda: owner.__setattr__(x, "__class__", 1),
        lambda: owner.__delattr__(x, "new"),
        lambda: owner.__delattr__(x, "missing"),
        lambda: x.__getattribute__("__class__"),
        lambda: owner.__getattribute__(object(), "x"),
    ):
        try:
            found.append(call())
        except (AttributeError, TypeError) as error:
            found.append((type(error), str(error)))
    return found


class Items(list):
    def __getattribute__(self, name):
        return "own"


@pytest.mark.parametrize(
    "make",
    [int, str, bytes, list, dict, set, tuple, Items, lambda: {}.keys(), lambda: iter([]), lambda: zip(), lambda: slice(1), lambda: 1.5,
     lambda: None, lambda: types.SimpleNamespace(a=1), lambda: functools.partial(len), lambda: len, lambda: [].append, lambda: property()],
)  # fmt: skip
def test_attribute_methods_by_name(make):
    cls = type(make())
    owner = cls if "__getattribute__" in cls.__dict__ and cls is not Items else list if cls is Items else object

    def f():
        return attempts(make(), owner)

    with config.patch(capture_pure_python=True, debug=True):
        captured = wrapped(f)()
    assert captured == f()


def test_generators_by_name():
    def gen():
        got = yield 1
        return got

    def f():
        g = gen()
        found = [g.__iter__() is g, g.__next__(), type(g).__next__(gen())]
        try:
            g.__next__()
        except StopIteration as stop:
            found.append(("value", stop.value))
        try:
            g.__next__()
        except StopIteration as stop:
            found.append(("done", stop.value))
        try:
            type(g).__next__(5)
        except TypeError as error:
            found.append(str(error))
        return found, list(map(type(g).__next__, [gen(), gen()])), list(iter(gen().__next__, 1))

    with config.patch(capture_pure_python=True, debug=True):
        captured = wrapped(f)()
    assert captured == f()
