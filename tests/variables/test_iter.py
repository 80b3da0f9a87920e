"""Iterators: builtin ones, those of itertools, and iterators that come from outside."""

import itertools
import sys

import pytest
from differential import capture, check, check_lines

from dynamo_lite.config import config


def test_iter_and_next():
    check_lines(
        """
        it = iter(xs); return next(it), next(it), list(it), next(it, "end"), list(it)
        next(iter([]))
        next(iter([]), None)
        next(xs)
        iter(5)
        iter(5, 1)
        i = iter([1, 2, 3]); return list(zip(i, i))
        it = iter(xs); return iter(it) is it, type(it), it.__length_hint__()
        n = iter([1, 2, 0, 3]); return list(iter(n.__next__, 0)), list(n)
        n = iter([1]); return list(iter(lambda: next(n), 7))
        it = iter(lambda: 1, 1); return next(it, "x"), next(it, "y")
        it = iter(lambda: 1, 2); return next(it), it
        for i in iter(xs): xs.append(9) if i == 3 else None
        sum(iter(xs)), max(iter(xs)), 2 in iter(xs), 9 in iter(xs), sorted(iter(xs)), tuple(iter(xs)), set(iter(xs))
        "".join(iter("ab"))
        it = iter(xs); 2 in it; return list(it)
        a, *b = iter(xs); return a, b
        list(iter("abc")), list(iter(b"ab")), list(iter("aé")), list(iter(())), type(iter("a"))
        it = iter("abc"); next(it); return it
        it = iter((1, 2)); next(it); return it
        it = iter(range(4)); next(it); return it
        """,
        xs=[1, 2, 3],
    )


class Seq:
    def __getitem__(self, i):
        if i > 2:
            raise IndexError
        return i * 10


class Sized(Seq):
    def __len__(self):
        return 3


class Stop(Seq):
    def __getitem__(self, i):
        raise StopIteration


class Bad:
    def __iter__(self):
        return 5


class Count:
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return self

    def __next__(self):
        if not self.n:
            raise StopIteration
        self.n -= 1
        return self.n


class Back:
    def __reversed__(self):
        return iter("back")


class NoBack:
    __reversed__ = None


def test_protocols_of_user_classes():
    check_lines(
        """
        list(reversed(Sized())), len(Sized()), type(reversed(Sized()))
        iter(Bad())
        list(Count(3)), sum(Count(4)), list(zip(Count(2), "ab")), max(Count(3)), next(Count(0), "none")
        dict(zip("ab", Count(2)))
        next(Count(0))
        list(reversed(Back()))
        reversed(NoBack())
        reversed(5)
        reversed({1})
        list(reversed("abc")), list(reversed((1, 2))), list(reversed({1: 2})), list(reversed(b"ab")), type(reversed(()))
        it = reversed((1, 2, 3)); next(it); return it
        it = reversed("abc"); next(it); return it, list(map(str.upper, reversed("xy")))
        """,
        {c.__name__: c for c in (Seq, Sized, Stop, Bad, Count, Back, NoBack)},
    )


def test_objects_with_getitem_only():
    check_lines(
        """
        list(Seq()), [x for x in Seq()], 10 in Seq(), 5 in Seq(), sum(Seq()), list(iter(Seq())), list(Stop())
        reversed(Seq())
        it = iter(Seq()); next(it); return list(it), list(it)
        a, b, c = Seq(); return [*Seq(), a, b, c]
        type(iter(Seq())), type(reversed(Sized()))
        """,
        {c.__name__: c for c in (Seq, Sized, Stop)},
    )


def test_arguments_that_do_not_fit():
    check_lines(
        """
        filter(None)
        enumerate()
        next()
        iter()
        itertools.islice()
        """,
        fullgraph=False,
    )


def test_zip_map_filter_enumerate():
    check_lines(
        """
        list(zip()), list(zip(xs)), list(zip(xs, "ab")), list(zip(xs, xs, strict=True)), dict(zip("abc", xs))
        list(zip(*[(1, 2), (3, 4)]))
        list(zip(xs, "ab", strict=True))
        list(zip("a", xs, strict=True))
        list(zip(xs, xs, "a", strict=True))
        list(zip(xs, xs, "abcd", strict=True))
        zip(1)
        zip(xs, 1)
        z = zip(xs, "abc"); next(z); return z, type(z)
        z = zip(xs, "abc", strict=True); next(z); return z
        list(map(lambda x: x + 1, xs)), list(map(lambda a, b: a * b, xs, xs)), list(map(str, xs))
        list(map(max, xs, [2, 2, 2])), [*map(len, ["a", ""])]
        map(str)
        map()
        map(str, 5)
        m = map(lambda x: 1 // (x - 2), xs); next(m); next(m)
        m = map(str, xs); next(m); return m
        list(filter(None, [0, 1, "", "a"])), list(filter(lambda x: x > 1, xs)), list(filter(bool, [0, 2]))
        list(filter(str.isdigit, "a1"))
        filter(None, 5)
        f = filter(lambda x: x != 2, xs); next(f); return f
        list(enumerate(xs)), list(enumerate(xs, 5)), list(enumerate("ab", start=-1)), dict(enumerate("a"))
        list(enumerate(iterable=[1], start=2))
        enumerate(5)
        enumerate(xs, "a")
        e = enumerate(xs); next(e); return e
        it = iter(xs); z = zip(it, "a"); next(z); next(z, None); return list(it)
        list(map(lambda x: next(iter([])), xs))
        [a + b for a, b in zip(xs, reversed(xs))], max(map(abs, [-3, 2])), any(map(lambda x: x > 2, xs))
        sum(map(lambda x, y: x, xs, "ab"))
        it = map(lambda x: x, xs); return next(it), list(it), next(it, 0)
        list(zip(iter(xs), iter(xs))), list(zip(range(2), "abc", [None] * 3)), isinstance(zip(), zip), callable(map)
        """,
        xs=[1, 2, 3],
    )


ITERTOOLS = """
    c = itertools.count(5, 2); return next(c), next(c), c, repr(c)
    list(zip(itertools.count(), xs)), list(zip(itertools.count(1.5, -0.5), "ab")), next(itertools.count(start=3))
    next(itertools.count(step=3))
    itertools.count("a")
    list(itertools.repeat(1, 3)), list(itertools.repeat("a", times=0)), list(map(pow, xs, itertools.repeat(2)))
    list(itertools.repeat(1, -2))
    r = itertools.repeat(xs, 3); next(r); return r
    c = itertools.cycle(xs); a = [next(c) for _ in range(5)]; return a, c
    c = itertools.cycle(xs); next(c); return c
    list(itertools.islice(itertools.cycle("ab"), 5)), list(itertools.cycle([]))
    list(itertools.chain(xs, "ab", ())), list(itertools.chain()), list(itertools.chain.from_iterable([xs, "c"]))
    list(itertools.chain([1], iter([2])))
    c = itertools.chain(xs, "ab"); next(c); return c
    c = itertools.chain(xs, "ab"); return c, list(c)
    list(itertools.chain(xs, 5))
    list(itertools.chain.from_iterable(5))
    list(itertools.islice(xs, 2)), list(itertools.islice(xs, 1, None)), list(itertools.islice(xs, 0, 9, 2))
    list(itertools.islice("abc", None)), list(itertools.islice(xs, 0))
    itertools.islice(xs, -1)
    itertools.islice(xs, 1, 2, 0)
    itertools.islice(xs, "a")
    itertools.islice(xs)
    it = iter(xs); list(itertools.islice(it, 1)); return list(it)
    it = iter(xs); list(itertools.islice(it, 1, 2)); return list(it)
    s = itertools.islice(xs, 0, 3, 2); next(s); return s
    list(itertools.accumulate(xs)), list(itertools.accumulate(xs, lambda a, b: a * b))
    list(itertools.accumulate(xs, initial=10)), list(itertools.accumulate([])), list(itertools.accumulate("abc"))
    list(itertools.accumulate(xs, max)), list(itertools.accumulate(xs, func=operator.mul, initial=None))
    list(itertools.accumulate([], initial=1))
    a = itertools.accumulate(xs); next(a); return a
    a = itertools.accumulate(xs, initial=5); return a
    list(itertools.starmap(pow, [(2, 3), [3, 2]])), list(itertools.starmap(lambda *a: a, [(), (1,)]))
    list(itertools.starmap(pow, [5]))
    list(itertools.takewhile(lambda x: x < 3, xs)), list(itertools.dropwhile(lambda x: x < 2, xs))
    list(itertools.filterfalse(lambda x: x == 2, xs)), list(itertools.filterfalse(None, [0, 1]))
    t = itertools.takewhile(lambda x: x < 2, xs); next(t), next(t, 0), next(t, 0); return t
    d = itertools.dropwhile(lambda x: x < 2, xs); next(d); return d
    list(itertools.compress(xs, [1, 0, True])), list(itertools.compress("abc", itertools.repeat(1, 2)))
    list(itertools.pairwise(xs)), list(itertools.pairwise([1])), list(itertools.pairwise(""))
    p = itertools.pairwise(xs); next(p); return p
    list(itertools.zip_longest(xs, "a")), list(itertools.zip_longest(xs, "ab", fillvalue=0))
    list(itertools.zip_longest()), list(itertools.zip_longest("", []))
    z = itertools.zip_longest(xs, "a"); next(z), next(z); return z
    list(itertools.product(xs, "ab")), list(itertools.product([0, 1], repeat=2)), list(itertools.product())
    list(itertools.product([], xs)), list(itertools.product(xs, repeat=0))
    itertools.product(xs, repeat=-1)
    p = itertools.product(xs, "ab"); next(p); return p
    list(itertools.permutations(xs)), list(itertools.permutations(xs, 2)), list(itertools.permutations(xs, 5))
    list(itertools.permutations([], None))
    itertools.permutations(xs, -1)
    itertools.permutations(xs, "a")
    list(itertools.combinations(xs, 2)), list(itertools.combinations(xs, 0)), list(itertools.combinations(xs, 9))
    list(itertools.combinations_with_replacement("ab", 2))
    itertools.combinations(xs, -1)
    [(k, list(g)) for k, g in itertools.groupby("aabbba")]
    [(k, len(list(g))) for k, g in itertools.groupby(xs, key=lambda x: x > 1)]
    g = itertools.groupby("aab"); k, grp = next(g); k2, grp2 = next(g); return list(grp), list(grp2), k, k2
    g = itertools.groupby("aab"); k, grp = next(g); return next(grp), list(g)[0][0]
    a, b = itertools.tee(xs); return next(a), list(b), list(a), list(b)
    a, b, c = itertools.tee(iter(xs), 3); next(a); d, e = itertools.tee(a); return list(c), list(d), list(e), list(b)
    itertools.tee(xs, -1)
    itertools.tee(xs, 0), type(itertools.tee(xs)[0])
    sorted(itertools.chain(xs, xs), key=lambda x: -x), sum(itertools.chain([1], [2]))
    dict(itertools.zip_longest("ab", xs))
    next(itertools.chain([], [7])), isinstance(itertools.count(), itertools.count), type(itertools.chain())
"""


def test_itertools():
    lines = [line.strip() for line in ITERTOOLS.strip().splitlines()]
    check(*lines, xs=[1, 2, 3])


@pytest.mark.skipif(not hasattr(itertools, "batched"), reason="3.12")
def test_batched():
    check_lines("list(itertools.batched(xs, 2)), itertools.batched('abc', 2)\nitertools.batched(xs, 0)", xs=[1, 2, 3])


def both(fn, make):
    """`fn` on two equal iterators from outside: the same result, and the iterators are left at the same place."""
    with config.patch(capture_pure_python=True, suppress_errors=False):
        compiled = capture(fn)
        for _ in range(2):
            one, other = make(), make()
            assert fn(one) == compiled(other)
            assert list(one) == list(other)


SOURCES = {
    "list": lambda: iter([1, 2, 3, 4]),
    "advanced": lambda: (lambda it: (next(it), it)[1])(iter([0, 1, 2, 3])),
    "tuple": lambda: iter((1, 2, 3)),
    "range": lambda: iter(range(1, 6)),
    "dict": lambda: iter({1: "a", 2: "b", 3: "c"}),
    "values": lambda: iter({1: 5, 2: 6, 3: 7}.values()),
    "zip": lambda: zip([1, 2, 3], [4, 5, 6]),
    "enumerate": lambda: enumerate([7, 8, 9], 5),
    "map": lambda: map(abs, [-1, 2, -3]),
    "filter": lambda: filter(None, [1, 0, 2, 3]),
}


@pytest.mark.parametrize("name", SOURCES)
def test_iterators_from_outside(name):
    both(lambda it: next(it), SOURCES[name])
    both(lambda it: (next(it), next(it)), SOURCES[name])
    both(lambda it: list(it), SOURCES[name])
    both(lambda it: [next(it, None) for _ in range(8)], SOURCES[name])


def test_the_number_of_items_to_come_is_guarded():
    with config.patch(capture_pure_python=True):
        compiled = capture(lambda it: sum(it))
        assert compiled(iter([1, 2])) == 3
        assert compiled(iter([1, 2, 3])) == 6
        assert compiled(iter([1, 2])) == 3


def test_aliases_of_iterators_from_outside():
    def f(it, xs):
        a = next(it)
        return a, list(zip(it, it)), xs

    with config.patch(capture_pure_python=True, suppress_errors=False):
        compiled = capture(f)
        for _ in range(2):
            one, other = iter(range(5)), iter(range(5))
            assert f(one, [1]) == compiled(other, [1])


def test_errors_of_arguments():
    check_lines(
        """
        enumerate(iterable=[], x=3)
        enumerate(x=0, y=3)
        zip([1], newarg=3)
        itertools.cycle([1], newarg=3)
        """
    )


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="it warns")
def test_errors_of_states():
    check_lines(
        """
        itertools.chain().__setstate__(())
        itertools.chain().__setstate__((1, 2, 3))
        itertools.chain().__setstate__([])
        itertools.cycle("").__setstate__(([],))
        itertools.cycle("").__setstate__(((), 0))
        itertools.cycle("").__setstate__(([], "x"))
        itertools.groupby([]).__setstate__((1,))
        """
    )
