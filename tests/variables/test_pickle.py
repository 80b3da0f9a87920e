"""`pickle.dumps` and `pickle.loads` break the graph; `copy` follows what classes say of their pickling."""

import collections
import copy
import functools
import pickle

import pytest

from tests.helpers.capturing import same
from tests.helpers.differential import check, check_lines


class Reduced:
    def __init__(self, a, b=2):
        self.a, self.b = a, b

    def __reduce__(self):
        return type(self), (self.a,), {"b": self.b}


class Stated:
    def __getstate__(self):
        return {"x": self.x, "me": self}

    def __setstate__(self, state):
        self.__dict__.update(state, restored=True)


class Slotted:
    __slots__ = ("x", "y")


class Chosen:
    def __new__(cls, a, *, b):
        self = super().__new__(cls)
        self.a, self.b = a, b
        return self

    def __getnewargs_ex__(self):
        return (self.a,), {"b": self.b}


class Counting(dict):
    def __setitem__(self, key, value):
        super().__setitem__(key, (value, len(self)))


class Items(list):
    def __reduce__(self):
        return type(self), (), None, iter(self)


class Part(functools.partial):
    pass


def add(a, b):
    return a + b


@functools.lru_cache
def cached(x):
    return x


NAMES = {name: value for name, value in globals().items() if not name.startswith("_")}


def test_classes_that_take_part():
    check_lines(
        """
        o = pickle.loads(pickle.dumps(Reduced([1], b=7))); return type(o), o.a, o.b
        s = Stated(); s.x = 1; t = pickle.loads(pickle.dumps(s)); return t.x, t.me is t, t.restored
        s = Slotted(); s.x = 5; t = pickle.loads(pickle.dumps(s, 2)); return t.x, hasattr(t, "y")
        pickle.dumps(Slotted(), 0)
        o = pickle.loads(pickle.dumps(Chosen(1, b=2), p)); return o.a, o.b
        pickle.loads(pickle.dumps(Counting(a=1), p))
        pickle.loads(pickle.dumps(Items([1, 2]), p))
        pickle.dumps(Reduced([1], b=7), p), pickle.dumps(Items([1, 2]), p), pickle.dumps(Chosen(1, b=2), p)
        f = pickle.loads(pickle.dumps(Part(add, 1), p)); return type(f), f(2)
        f = Part(add); f.__setstate__((add, (f,), {}, {})); g = pickle.loads(pickle.dumps(f, p)); return g.args[0] is g
        pickle.loads(pickle.dumps(cached, p)) is cached
        pickle.dumps(x for x in [1])
        """,
        names=NAMES,
        fullgraph=False,
        p=pickle.HIGHEST_PROTOCOL,
    )
    check(
        """
        f = Part(add)
        f.__setstate__((f, (), {}, {}))
        try:
            pickle.dumps(f)
        except RecursionError:
            return "too deep"
        """,
        names=NAMES,
        fullgraph=False,
    )


class Plain:
    def __init__(self, x):
        self.x = x


class TestPickle:
    def test_there_and_back(self):
        def program():
            shared = [1, "a", (2.5, None)]
            plain = Plain(shared)
            d = {"s": {1, 2}, "f": frozenset("ab"), "o": collections.OrderedDict(a=shared), "p": plain, "r": range(3)}
            shared.append(shared)
            again = pickle.loads(pickle.dumps(d))
            items = again["o"]["a"]
            return (
                list(again),
                items[:3],
                items[3] is items,
                again["p"].x is items,
                type(again["p"]) is Plain,
                again["s"],
                again["f"],
                again["r"],
            )

        same(program, breaks=["call-c-function"])

    def test_iterators(self):
        same(lambda: [list(pickle.loads(pickle.dumps(it))) for it in (iter([1, 2]), zip("ab", "cd"), reversed("ab"))])

    def test_code_of_the_program_does_not_run_during_the_analysis(self):
        def program():
            text = pickle.dumps(Telling(3))
            calls.append("dumped")
            return pickle.loads(text).x, calls.copy(), calls.clear()

        same(program)


calls = []


class Telling(Plain):
    def __reduce__(self):
        calls.append("reduce")
        return make_telling, (self.x,)


def make_telling(x):
    calls.append("made")
    return Telling(x)


@pytest.mark.parametrize("base", [collections.deque, set, frozenset, collections.OrderedDict])
def test_reduced_with_slots_and_attributes(base):
    class Slotted(base):
        __slots__ = ("x", "y") if base is collections.OrderedDict else ("x", "y", "__dict__")

    class Own(base):
        def __getstate__(self):
            return "state"

    def program():
        s = Slotted()
        s.x, s.z = 1, 2
        plain = base()
        return [t.__reduce__()[2] for t in (s, Own(), plain)], copy.deepcopy(s).x, copy.deepcopy(s).z

    same(program, whole=base is not collections.deque)


@pytest.mark.parametrize("base", [collections.deque, set, collections.OrderedDict, collections.defaultdict])
def test_reduce_iterates_as_the_class_does(base):
    class Sub(base):
        def __iter__(self):
            raise TypeError("no iteration")

        def items(self):
            raise TypeError("no items")

    def program():
        try:
            return copy.deepcopy(Sub())
        except TypeError as error:
            return str(error)

    same(program, whole=base is not collections.deque)


class Noted:
    __slotnames__ = ["spam"]  # where copyreg notes the names of slots

    def __getattr__(self, name):
        if name != "spam":
            raise AttributeError(name)
        return 42


def test_names_of_slots_that_are_no_slots():
    same(lambda o: o.__reduce_ex__(2)[2:], Noted())
