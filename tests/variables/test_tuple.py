"""Tuples, named tuples and struct sequences."""

import collections
import copy
import os
import pickle
import sys
import time
import typing

import pytest
import torch

import dynamo_lite
from dynamo_lite.testing import CompileCounter
from tests.helpers.capturing import same, wrapped
from tests.helpers.differential import check, check_lines
from tests.helpers.program_texts import agrees

READ = """
    t[0], t[-1], t[1:], t[::-1], t[:], t[:] is t, t[5:], t[True]
    t[3]
    t["a"]
    t[1.0]
    t[None:"a"]
    len(t), bool(t), 2 in t, 9 in t, [1] in t, t == (1, 2, [3]), t != (1,), t < (1, 3), t >= (1,), t == [1, 2, [3]]
    t < 3
    t + (4,), t * 2, 2 * t, t * 0, () + t, t * 1 is t
    t + [1]
    t * "a"
    t.index(2), t.count(1), t.index([3])
    t.index(9)
    t.index(1, 1)
    hash(t)
    hash(t[:2]) == hash((1, 2)), {t[:2]: 1}
    {t: 1}
    repr(t), str((1,)), repr(()), f"{t}", "%s %s %s" % t
    "%s" % t
    list(t), tuple(t) is t, tuple([1, 2]), sorted(t[:2], reverse=True), sum(t[:2]), max(t[:2]), set(t[:2])
    a, b, c = t; return c, b, a
    a, b = t
    a, *b = t; return a, b
    [x for x in t], [*t], (*t, *t)
    t[2].append(4); return t
    t[0] = 1
    t.x = 1
    t += (5,); return t
    t.__add__((1,)), t.__getitem__(0), t.__len__(), t.__contains__(1), t.__eq__((1,)), t.__mul__(2), t.__hash__ is None
    tuple.__getitem__(t, 1), tuple.index(t, 1), tuple.__len__(t)
    iter(t), reversed(t), list(reversed(t))
    it = iter(t); next(it); return it, t
    t.__getnewargs__()
    t.append
    t()
    isinstance(t, tuple), type(t), t.__class__, (1, 2) is (1, 2), () is ()
"""


def test_reading_a_tuple():
    check_lines(READ, t=(1, 2, [3]))


def test_reading_a_new_tuple():
    check(*["t = (1, 2, [3])\n" + line.strip() for line in READ.strip().splitlines()])


Point = collections.namedtuple("Point", "x y", defaults=[7])


class Typed(typing.NamedTuple):
    a: int
    b: list = []

    def total(self):
        return self.a + len(self.b)


class Shifted(Point):
    def __new__(cls, x, y):
        return super().__new__(cls, x + 1, y + 1)

    @property
    def both(self):
        return self.x, self.y


class Pair(tuple):
    def first(self):
        return self[0]


NAMES = {"Point": Point, "Typed": Typed, "Shifted": Shifted, "Pair": Pair}


def test_named_tuples():
    text = """
        p.x, p.y, p[0], p[:1], p._fields, len(p), p == (1, 2), p == Point(1, 2), list(p), p + (3,), p * 2
        Point(1), Point(1, 2), Point(x=3, y=4), Point(*[1, 2]), Point._make([5, 6])
        p._replace(x=9), p._asdict(), repr(p), str(p), hash(p) == hash((1, 2)), {p: 1}, p in {(1, 2): 0}
        p._replace(z=1)
        p.x = 3
        p.z
        x, y = p; return x, y, type(p), isinstance(p, tuple), isinstance(p, Point)
        t, t.total(), Typed(1), Typed(2, [1]).total(), Typed.__annotations__ == {"a": int, "b": list}
        Shifted(1, 2), Shifted(1, 2).both, type(Shifted(1, 2))
        Point([1], p).y.x, getattr(p, "x"), getattr(p, "z", None), hasattr(p, "x")
        (lambda *, x, y: x + y)(**p._asdict())
        match = {p.x: p.y}; return match
        sorted([Point(2, 1), Point(1, 2)]), max(Point(2, 1), Point(1, 2))
    """
    check_lines(text, NAMES, p=Point(1, 2), t=Typed(5))


def test_subclasses():
    text = """
        p.first(), p[1], p + (1,), p[:], len(p), p == (1, 2), repr(p), Pair("ab").first(), Pair("ab")
        hash(p) == hash((1, 2))
        q = Pair([3]); q.x = 1; return q, q.x
        p.x = 5; return p.x
        isinstance(p, tuple), {p: 1}, tuple(p), type(tuple(p)), [*p]
    """
    check_lines(text, NAMES, p=Pair((1, 2)))


def test_comparisons_use_the_items():
    check_lines("""
        (1, 2) < (1, "a")
        n = float("nan"); return (n,) == (n,), (n,) == (float("nan"),), n in (n,), (n,) < (n,)
        (1, (2, 3)) < (1, (2, 4)), ((),) > (), (1, 2) <= (1, 2), (1.0, True) == (1, 1)
        hash((1, "a", (2.5, None))) == hash((1, "a", (2.5, None))), hash(()) == hash(())
    """)


class TestFieldsBesideTheItems:
    """`n_fields` of a struct sequence may be more than its items: the items alone are not the object."""

    def test_they_are_read(self):
        stat, zoned = os.stat("/"), time.struct_time(range(9), {"tm_zone": "Z", "tm_gmtoff": 3})
        same(
            lambda: (stat.st_mtime_ns, stat.st_mtime, stat[8], zoned.tm_zone, zoned.tm_gmtoff, zoned.tm_sec), whole=True
        )

    def test_each_object_has_its_own(self):
        agrees("""
        import time
        def program(t):
            return t.tm_zone, t.tm_year, t == (1,) * 9
        def make_args(k):
            return [time.struct_time((1,) * 9, {"tm_zone": "XYZ"[k]})]
        """)

    @pytest.mark.parametrize("make", [copy.copy, copy.deepcopy, lambda t: type(t)(range(11)), pickle.dumps])
    def test_others_are_made_of_it(self, make):
        zoned = time.struct_time(range(9), {"tm_zone": "Z"})

        def program():
            made = make(zoned)
            return made if type(made) is bytes else (made, made.tm_zone, made is zoned)

        same(program)

    @pytest.mark.skipif(not hasattr(copy, "replace"), reason="copy.replace is new in 3.13")
    def test_replaced(self):
        zoned = time.struct_time(range(9), {"tm_zone": "Z"})
        same(lambda: (copy.replace(zoned, tm_year=5).tm_zone, copy.replace(zoned, tm_zone="Q").tm_zone))

    def test_one_that_nothing_can_make(self):
        same(lambda: (sys.flags, sys.flags.optimize, [getattr(sys.flags, "gil", None)]), whole=True)


def test_text_of_a_named_tuple_made_here():
    def program():
        pair = collections.namedtuple("Pair", "left right")
        p = pair(1, [2])
        template = "%r %s"
        return repr(p), f"{p!r} {p}", template % (p, pair(3, 4)), p._asdict(), p.left, pair.__doc__

    same(program)  # `namedtuple` makes `__new__` by `eval`


def test_hash_of_a_builtin_function_in_a_tuple():
    agrees("""
    def program(x):
        try:
            stop(1, type(hash((x, 1))))
        except TypeError as error:
            return error
    def make_args(k):
        return [[1, [], len][k]]
    """)


@pytest.mark.usefixtures("pure_python")
def test_repr_of_a_named_tuple_by_super():
    P = collections.namedtuple("P", "a b")
    assert wrapped(lambda x: super(type(x), x).__repr__())(P(1, 2)) == "(1, 2)"


class Own(tuple):
    pass


@pytest.mark.filterwarnings("ignore:.is. with:SyntaxWarning")
def test_there_is_one_empty_tuple():
    check_lines(
        """
        () is (lambda *a: a)(), () is tuple([]), () is tuple(l[:0]), () is t[:0], () is (*l[:0],), () is t * 0, () is type(t)()
        e is (), e is t[2:], e is t, t is tuple(l[:0]), e is tuple(v for v in l[:0]), e is tuple({}), e is tuple(zip()), e in [t, ()]
        id(()) == id(tuple([])), {id(()): 1}.get(id(tuple(l[:0]))), {id(e): 1}.get(id(())), {id(e): 1}.get(id(t))
        len({*map(id, [e, (), t])})
        object.__bases__ is (), Exception().args is e, functools.partial(len).args is (), (lambda: 0).__code__.co_freevars is ()
        [*itertools.combinations(t, 0)][0] is (), copy.deepcopy(e) is (), [k is () for k in {()}], [k is e for k in {(): 1}]
        Own() is Own(), Own() is (), Own()[:] is (), tuple(Own()) is (), Own((1,))[:0] is (), Own() * 2 is e, Point(1, 2)[2:] is ()
        """,
        names={"copy": copy, "Own": Own, "Point": Point},
        e=(),
        t=(1, 2),
        l=[1, 2],
    )


def test_whether_it_is_the_empty_tuple_at_the_next_call():
    agrees("""
    def program(t, u):
        return t is (), t is tuple([]), u is (), t is u, {id(()): 1}.get(id(t))
    def make_args(k):
        return [[(), ()], [(), (1,)], [(1,), ()], [(1,), (1,)], [(1, 2), (3,)], [(), ()]][k % 6]
    """)


EMPTY = ()

IDENTITIES = {
    "key": lambda t: {id(t): 1}[id(t)],
    "number of keys": lambda t: len({id(t)}),
    "is": lambda t: t is EMPTY,
    "key of another": lambda t: {id(t): 1}.get(id(())),
}


@pytest.mark.parametrize("program", IDENTITIES.values(), ids=IDENTITIES)
@pytest.mark.parametrize("order", [1, -1], ids=["empty first", "empty last"])
def test_the_length_is_not_asked_for_where_only_emptiness_matters(program, order):
    compiled = dynamo_lite.compile(lambda x, t: (x + 1, program(t)), backend=(counter := CompileCounter()))
    for n in [*range(6), 0, 3][::order]:
        assert compiled(torch.ones(1), (1,) * n)[1] == program((1,) * n)
    assert counter.frame_count <= 2


@pytest.mark.filterwarnings("ignore:.is. with:SyntaxWarning")
def test_what_joining_with_an_empty_tuple_gives():
    check_lines(
        """
        t + () is t, () + t is t, t + e is t, e + t is t, operator.add(t, ()) is t, operator.concat((), t) is t, sum([t], ()) is t
        functools.reduce(operator.add, [(), t, ()]) is t, t.__add__(()) is t, tuple.__add__((), t) is t, sum([], ()) is ()
        t + Own() is t, Own() + t is t, () + o is o, o + () is o, o + Own() is o, type(() + o), type(o + ()), Own() + () is ()
        u = t; u += (); return u is t, u
        t.__getnewargs__()[0] is t, o.__getnewargs__()[0] is o, e.__getnewargs__()[0] is ()
        () + 5
        e + [1]
        """,
        names={"Own": Own},
        e=(),
        t=(1, [2]),
        o=Own((1, 2)),
    )
