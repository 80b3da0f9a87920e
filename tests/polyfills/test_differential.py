"""Every stand-in of this package against its original: results, arguments afterwards, exceptions; called as it is, and captured."""

import bisect
import collections
import copy
import functools
import heapq
import importlib
import itertools
import math
import operator
import os
import types

import pytest

from dynamo_lite.config import config
from dynamo_lite.polyfills import find_polyfill, registry
from tests.helpers.capturing import wrapped


class Plain:
    def __init__(self):
        self.a, self.b = 1, [2]


class Slotted:
    __slots__ = ("u", "v")

    def __init__(self):
        self.u = 1


class Items(list):
    def __init__(self, *items):
        super().__init__(items)
        self.note = "n"


class Named(dict):
    pass


class WithArguments:
    def __new__(cls, *args):
        self = super().__new__(cls)
        self.args = args
        return self

    def __getnewargs__(self):
        return self.args


class WithKeywords(WithArguments):
    def __getnewargs_ex__(self):
        return self.args, {}


class WrongArguments(WithArguments):
    def __getnewargs_ex__(self):
        return [1], {}


class Reduced:
    def __reduce__(self):
        return "global"


class Listed:
    x = 1

    def __init__(self):
        self.y = 2


class Derived(Listed, Plain):
    z = 3


class Bad:
    def __eq__(self, other):
        raise OSError("eq")

    __lt__ = __eq__
    __hash__ = None


def module(**names):
    made = types.ModuleType("made")
    vars(made).update(names)
    return made


class Path:
    def __init__(self, path):
        self.path = path

    def __fspath__(self):
        return self.path


class StaticPath:
    @staticmethod
    def __fspath__():
        return "static"


class NoPath(Path):
    __fspath__ = None


# The original → makers of arguments.
def with_notes(notes):
    error = KeyError("a")
    error.__notes__ = notes
    return error


CASES = {
    functools.reduce: [
        lambda: (operator.add, [1, 2, 3]),
        lambda: (operator.add, []),
        lambda: (operator.add, [], 5),
        lambda: (operator.add, iter("abc"), "z"),
        lambda: (max, 5),
        lambda: (5, [1, 2]),
        lambda: (5, [1]),
        lambda: (operator.add, [1, "a"]),
    ],
    collections._count_elements: [
        lambda: ({}, "abca"),
        lambda: ({"a": 3}, ["a", "b"]),
        lambda: (collections.Counter(), [1, True, 1.0]),
        lambda: ({}, 5),
        lambda: ({}, [[]]),
        lambda: ({"a": "x"}, "a"),
        lambda: (collections.defaultdict(int), "ab"),
    ],
    math.prod: [
        lambda: ([1, 2, 3],),
        lambda: ([],),
        lambda: ([1.5, 2],),
        lambda: (["a", 2],),
        lambda: (5,),
        lambda: ([[]],),
    ],
    math.dist: [
        lambda: ([1, 2], (4, 6)),
        lambda: ([1], [1, 2]),
        lambda: ((), ()),
        lambda: (["a"], [1]),
        lambda: ((math.inf,), (1,)),
    ],
    math.fsum: [
        lambda: ([0.1] * 10,),
        lambda: ([],),
        lambda: (iter([1e100, 1.0, -1e100]),),
        lambda: ([math.inf, -math.inf],),
        lambda: (["a"],),
        lambda: (3,),
    ],
    object.__reduce_ex__: [
        *(lambda p=p: (Plain(), p) for p in (0, 1, 2, 4)),
        lambda: (Slotted(), 2),
        lambda: (Slotted(), 0),
        lambda: (Items(1, 2), 2),
        lambda: (Named(a=1), 4),
        lambda: (WithArguments(1, 2), 3),
        lambda: (WithKeywords(1), 4),
        lambda: (WrongArguments(1), 4),
        lambda: (Reduced(), 2),
    ],
    object.__reduce__: [lambda: (Plain(),), lambda: (Slotted(),), lambda: (Items(1),)],
    object.__dir__: [lambda: (Listed(),), lambda: (Derived(),), lambda: (Slotted(),), lambda: (5,)],
    type.__dir__: [lambda: (Listed,), lambda: (Derived,), lambda: (int,), lambda: (type,)],
    types.ModuleType.__dir__: [lambda: (module(a=1, b=2),), lambda: (module(__dir__=lambda: ["own"]),)],
    BaseException.add_note: [
        lambda: (ValueError("a"), "note"),
        lambda: (with_notes(["a"]), "note"),
        lambda: (with_notes(()), "note"),
        lambda: (with_notes(None), "note"),
        lambda: (ValueError("a"), 5),
    ],
    os.fspath: [
        lambda: ("a",),
        lambda: (b"a",),
        lambda: (5,),
        lambda: (Path("p"),),
        lambda: (Path(3),),
        lambda: (StaticPath(),),
        lambda: (NoPath("n"),),
        lambda: (None,),
    ],
}

if hasattr(math, "sumprod"):  # from 3.12 on
    pairs = [
        ([1, 2], [3, 4]),
        ([], ()),
        ([1], [1, 2]),
        ([0.1] * 9, [3] * 9),
        ([True, 2.5], (1, 1j)),
        (["a"], [2]),
        (5, [1]),
    ]
    CASES[math.sumprod] = [lambda p=p, q=q: (p, q) for p, q in pairs]

SORTED = [[], [1], [1, 2, 2, 3], [(1, "a"), (2, "b")], ["b", "a"], [Bad(), Bad()], (1, 2), 5]
for function in (bisect.bisect_left, bisect.bisect_right, bisect.insort_left, bisect.insort_right):
    CASES[function] = [lambda a=a, x=x: (a, x) for a in SORTED for x in (2, "a", (1, "b"))]
    CASES[function] += [
        lambda: ([1, 2, 2, 3], 2, 1),
        lambda: ([1, 2, 2, 3], 2, 1, 2),
        lambda: ([1], 1, -1),
        lambda: ([1], 1, 0, 9),
    ]
HEAPS = [[], [1], [1, 3, 2, 7, 4], ["a", "b"], [1, "a", 2], (1, 2), 5]
for function in (heapq.heapify, heapq._heapify_max, heapq.heappop, heapq._heappop_max):
    CASES[function] = [lambda h=h: (h,) for h in HEAPS]
for function in (heapq.heappush, heapq.heappushpop, heapq.heapreplace, heapq._heapreplace_max):
    CASES[function] = [lambda h=h, x=x: (h, x) for h in HEAPS for x in (0, 3, "a")]


def plain(value):
    """Iterators and exceptions as what they hold."""
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    if hasattr(value, "__next__"):
        return [type(value), *value]
    if isinstance(value, BaseException):
        return type(value), value.args, value.__dict__
    return (
        repr(value)
        if type(value).__repr__ is not object.__repr__
        else (type(value), plain(getattr(value, "__dict__", None)))
    )


def outcome(function, args):
    try:
        result = plain(function(*args))
    except Exception as error:
        result = "raised", type(error), str(error)
    return repr(result), repr([type(arg) if callable(arg) else plain(arg) for arg in args])


def fresh(maker):
    args = maker()
    return tuple(copy.copy(arg) if isinstance(arg, (list, dict)) else arg for arg in args)


PAIRS = [([1, 2, 2], 2), ("abab", "b"), ({1: 2}, 1), ([1], [2]), ((1,), (2,)), (5, 1), (iter([1, 2]), 2), ("a", 1)]
for function in (
    operator.contains,
    operator.delitem,
):
    CASES[function] = [lambda pair=pair: copy.deepcopy(pair) for pair in PAIRS]
CASES[operator.setitem] = [lambda: ([1, 2], 1, 5), lambda: ({}, "a", 1), lambda: ([1], 7, 1), lambda: ((1,), 0, 1)]
if hasattr(operator, "call"):
    CASES[operator.call] = [lambda: (max, 1, 2), lambda: (5,)]
CASES[itertools.tee] = [lambda args=args: args for args in (("ab",), ([1], 3), ((), 0), ("ab", -1), (5,), ("ab", "c"))]


@pytest.mark.parametrize("original", CASES, ids=lambda original: original.__qualname__)
def test_stand_in(original):
    stand_in = find_polyfill(original)
    for maker in CASES[original]:
        found, expected = outcome(stand_in, fresh(maker)), outcome(original, fresh(maker))
        assert found == expected or ("raised" in expected[0] and "LeftToC" in found[0]), maker()


@pytest.mark.parametrize("original", CASES, ids=lambda original: original.__qualname__)
def test_captured(original):
    for maker in CASES[original]:
        expected = outcome(original, fresh(maker))
        with config.patch(capture_pure_python=True, debug=True):
            captured = wrapped(lambda *args: original(*args))
            assert outcome(captured, fresh(maker)) == expected, maker()


def of_this_package():
    for name in list(registry.MODULES.values()):
        importlib.import_module(f"dynamo_lite.polyfills.{name}")
    return [f for f, stand_in in registry.POLYFILLS.items() if stand_in.__module__.startswith("dynamo_lite.")]


@pytest.mark.parametrize("keywords", [{}, {"key": None}, {"unknown": None}], ids=str)
def test_arguments_that_do_not_fit(keywords):
    """The error has the original's words, not those of the stand-in."""
    raised = 0
    for original in of_this_package():
        for count in range(7):
            args = (None,) * count
            expected = outcome(lambda *args, f=original: f(*args, **keywords), args)
            with config.patch(capture_pure_python=True, debug=True):
                captured = wrapped(lambda *args, f=original: f(*args, **keywords))
                assert outcome(captured, args) == expected, (original, args)
            raised += "raised" in expected[0]
    assert raised > 100


def test_every_stand_in_is_tested():
    ours = set(of_this_package())
    elsewhere = {functools.cmp_to_key, functools.cached_property.__get__}
    missing = [
        original
        for original in ours - CASES.keys() - elsewhere
        if "torch" not in registry.POLYFILLS[original].__module__
    ]
    assert missing == []
