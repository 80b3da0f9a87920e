"""Builtin functions on objects and types; `functools.partial`, getters; what is refused; that nothing is left out."""

import abc
import enum
import functools
import operator
import typing

import pytest

from dynamo_lite.variables import register_models  # noqa: F401
from tests.helpers.differential import breaks, check_lines


class Base:
    kind = "base"

    def __init__(self, x=1):
        self.x = x

    @property
    def double(self):
        return self.x * 2

    @property
    def broken(self):
        raise AttributeError("inside")

    @property
    def fails(self):
        raise ValueError("no")

    def method(self):
        return self.x


class Derived(Base):
    pass


class Dynamic:
    def __getattr__(self, name):
        if name.startswith("d_"):
            return name[2:]
        raise AttributeError(name)


class Callable:
    def __call__(self):
        return 1


class Meta(type):
    def __instancecheck__(cls, obj):
        return obj == 5

    def __subclasscheck__(cls, sub):
        return sub is int


class Checked(metaclass=Meta):
    pass


class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self): ...


class Square(Shape):
    def area(self):
        return 4


@Shape.register
class Virtual:
    pass


@typing.runtime_checkable
class HasArea(typing.Protocol):
    def area(self): ...


@typing.runtime_checkable
class HasX(typing.Protocol):
    x: int


@functools.lru_cache
def cached(n):
    return (n, n)


class WithCache:
    @functools.lru_cache(None)
    def value(self, n):
        return n + 1


class Colour(enum.Enum):
    RED = 1


class Hashed:
    def __init__(self, h):
        self.h = h

    def __hash__(self):
        return self.h

    def __len__(self):
        return -1

    def __bool__(self):
        return True


class BadLen:
    def __len__(self):
        return "a"


NAMES = {
    c.__name__: c
    for c in [Base, Derived, Dynamic, Callable, Checked, Shape, Square, Virtual, HasArea, HasX]
    + [Colour, WithCache, Hashed, BadLen]
}


def test_attributes():
    check_lines(
        """
        getattr(o, "x"), getattr(o, "zz", 5), hasattr(o, "x"), hasattr(o, "zz"), getattr(o, "double"), o.kind
        hasattr(o, "broken"), getattr(o, "broken", 7)
        getattr(o, "zz")
        getattr(o, "broken")
        getattr(o, "fails", 1)
        hasattr(o, "fails")
        getattr(o, 5)
        hasattr(o, 5)
        getattr(o, [], 1)
        setattr(o, "y", 3); o.z = 4; delattr(o, "x"); return o, o.y, hasattr(o, "x")
        delattr(o, "nothing")
        setattr(o, 5, 1)
        vars(o), vars(o) is o.__dict__, o.__dict__["x"]
        vars(5)
        vars(o)["new"] = 1; return o.new
        d.d_abc, getattr(d, "d_q"), hasattr(d, "other"), getattr(d, "other", 0)
        d.other
        callable(o), callable(Base), callable(o.method), callable(len), callable(lambda: 1), callable(Callable())
        callable(5), callable("".join)
        getattr(o, "method")(), getattr([1], "append")(2), getattr("abc", "upper")(), getattr(int, "__name__")
        getattr(math, "pi")
        """,
        NAMES,
        o=Base(),
        d=Dynamic(),
    )


def test_types():
    check_lines(
        """
        isinstance(o, Base), isinstance(o, Derived), isinstance(Derived(), Base), isinstance(o, (int, Base))
        isinstance(o, (int, (str, Base))), isinstance(5, int | str), isinstance(o, object), isinstance(Base, type)
        isinstance(5, 5)
        isinstance(5, (int, 5)), isinstance("a", ())
        isinstance("a", (int, 5))
        isinstance(5, "int")
        issubclass(Derived, Base), issubclass(int, (str, object)), issubclass(bool, int | str)
        issubclass(Base, Derived)
        issubclass(5, int)
        issubclass(int, 5)
        isinstance(5, Checked), isinstance(6, Checked), issubclass(int, Checked), issubclass(str, Checked)
        isinstance(Square(), Shape), isinstance(o, Shape), isinstance(Virtual(), Shape), issubclass(Virtual, Shape)
        isinstance(Square(), HasArea), isinstance(o, HasArea), issubclass(Square, HasArea)
        isinstance([], collections.abc.Sequence), isinstance({}, collections.abc.Mapping)
        isinstance((), collections.abc.Hashable), isinstance(o, collections.abc.Callable)
        isinstance(iter([]), collections.abc.Iterator), isinstance("a", collections.abc.Iterable)
        isinstance(lambda: 1, types.FunctionType), isinstance(len, types.BuiltinFunctionType)
        isinstance(o.method, types.MethodType), isinstance(None, type(None)), isinstance(Colour.RED, Colour)
        isinstance(o, HasX), isinstance(5, HasX), isinstance(Base, HasArea), isinstance(Colour.RED, HasX)
        list[int]([1]), dict[str, int](a=1), list[int] == list[int], int | None, isinstance(None, int | None)
        list[int].__origin__, (int | str).__args__
        type(o), type(o) is Base, type(o)(3).x, type(5), type(None), type(type(o)), type([]) == list
        o.__class__.__name__, type(o).kind, type(len), type(o.method), type(Base.method)
        type(o).__mro__, Base.__name__, Base.__qualname__, Base.__module__, Derived.__bases__
        len([]), len("ab"), len({1: 2}), len(range(3)), len(collections.deque([1]))
        len(5)
        len(o)
        len(Hashed(1))
        len(BadLen())
        hash(Hashed(5)), hash(Hashed(2 ** 70)) == hash(2 ** 70), hash("a") == hash("a")
        hash((1, Hashed(3))) == hash((1, Hashed(3))), hash(Hashed(-1))
        hash([])
        hash({})
        hash(Hashed("a"))
        id(o) == id(o), id(o) == id(type(o)), id(o) != id(None), len({id(o), id(o)})
        bool(o), bool(Hashed(1)), object() is object(), object() == object(), isinstance(object(), object)
        o == o, o == Base(), o != o, o is o, Base == Base, len == len, o.method == o.method, o.method is o.method
        [].append == [].append
        o < o
        """,
        NAMES,
        o=Base(),
    )
    check_lines(
        """
        isinstance([], list[int])
        """,
        NAMES,
        o=Base(),
        fullgraph=False,
    )


def test_partial():
    check_lines(
        """
        p = functools.partial(pow, 2); return p(3), p, p.func is pow, p.args, functools.partial(p, 5)()
        p = functools.partial(pow, 2); return functools.partial(p, 5).args
        p = functools.partial(lambda *a, **k: (a, k), 1, x=2); return p(3, y=4), p(x=5), p.keywords
        p = functools.partial(lambda *a, **k: (a, k), 1, x=2); return functools.partial(p, 9, x=8)(z=0), p
        functools.partial()
        functools.partial(5)
        functools.partial(int, base=2)("101"), list(map(functools.partial(max, 2), [1, 3]))
        functools.partial(o.method)(), functools.partial(Base, x=4)().x
        functools.partial(lambda a: a)()
        functools.partial(lambda a: a, 1)(2)
        p = functools.partial(max, 1); p.note = "x"; return p.note, hasattr(p, "other")
        p = functools.partial(max, 1); p.note = "x"; return isinstance(p, functools.partial), callable(p)
        q(5), q.args, q.func(1, 2), functools.partial(q, 7)(), q
        p.func = 5
        """,
        {**NAMES, "p": functools.partial(max, 1)},
        o=Base(),
        q=functools.partial(max, 3),
    )


def test_getters():
    check_lines(
        """
        operator.attrgetter("x")(o), operator.attrgetter("x", "kind")(o), operator.attrgetter("x.real")(o)
        operator.itemgetter(1)([1, 2]), operator.itemgetter(0, "a")({0: 1, "a": 2})
        operator.methodcaller("method")(o)
        operator.methodcaller("get", "z", 5)({}), operator.methodcaller("sort", reverse=True)([1])
        sorted([(2, "a"), (1, "b")], key=operator.itemgetter(0)), max([o], key=operator.attrgetter("x")).x
        operator.attrgetter("zz")(o)
        operator.itemgetter(5)([1])
        operator.itemgetter(slice(1, 3))([1, 2, 3, 4]), operator.attrgetter("x"), operator.itemgetter(1)
        get([7, 8]), att(o), list(map(get, ["ab"]))
        """,
        {**NAMES, "get": operator.itemgetter(1), "att": operator.attrgetter("x")},
        o=Base(),
    )
    check_lines(
        """
        operator.methodcaller()
        operator.attrgetter()
        operator.itemgetter()
        operator.attrgetter(5)
        operator.itemgetter(1)(1, 2)
        functools.reduce(lambda a, b: a, [])
        functools.reduce(lambda a, b: a, 5)
        p = functools.partial(pow, 2); return p, p.keywords
        """,
        fullgraph=False,
    )


def test_functions_of_functools():
    check_lines(
        """
        cached(1), cached(n=2), cached.__name__, cached.__wrapped__(3), WithCache().value(4), list(map(cached, [1]))
        cached()
        """,
        {**NAMES, "cached": cached},
    )
    check_lines("""
        functools.reduce(lambda a, b: a + b, [1, 2, 3]), functools.reduce(operator.mul, [1, 2], 5)
        functools.reduce(max, (x for x in [3, 1]))
        sorted("bca", key=functools.cmp_to_key(lambda a, b: (a > b) - (a < b)))
        functools.cmp_to_key(lambda a, b: 1)(5) is None
    """)


@pytest.mark.parametrize(
    ("text", "slug"),
    [
        ("print(1)", "call-print"),
        ("input()", "call-io"),
        ("open('x')", "call-io"),
        ("id([]) + 1", "object-identity"),
        ("hash(o)", "object-identity"),
        ("len(repr(o))", "object-identity"),
        ("str(lambda: 1)[0]", "object-identity"),
        ("breakpoint()", "debugger"),
    ],
)
def test_breaks(text, slug):
    breaks(text, slug, names=NAMES, o=Base())
