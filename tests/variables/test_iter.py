"""Iterators: builtin ones, those of itertools, and iterators that come from outside."""

import copy
import itertools
import warnings

import pytest

from dynamo_lite.config import config
from dynamo_lite.record import log
from tests.helpers.capturing import same, stop, wrapped
from tests.helpers.container_programs import ITERTOOLS
from tests.helpers.differential import capture, check, check_lines
from tests.helpers.program_texts import agrees


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
        it = iter(xs); return iter(it) is it, type(it)
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
        itertools.islice([1])
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
    "set": lambda: iter({1, 2, 3}),
    "reversed": lambda: reversed([1, 2, 3]),
    "str": lambda: iter("abc"),
}


@pytest.mark.parametrize("name", SOURCES)
def test_iterators_from_outside(name):
    both(lambda it: next(it), SOURCES[name])
    both(lambda it: (next(it), next(it)), SOURCES[name])
    both(lambda it: list(it), SOURCES[name])
    both(lambda it: [next(it, None) for _ in range(8)], SOURCES[name])
    both(lambda it: (it.__next__(), type(it).__next__(it), it.__iter__() is it), SOURCES[name])


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


class FailingIndex:
    def __index__(self):
        raise KeyError("own")


def test_sizes_that_are_none():
    check_lines(
        """
        itertools.islice([1], -1)
        itertools.islice([1], 1.5)
        itertools.islice([1], "a")
        itertools.islice([1], 1 << 70)
        itertools.islice([1], FailingIndex())
        itertools.islice(3, 1.5)
        itertools.islice([1], 1.5, 2)
        itertools.islice([1], -1, 2)
        itertools.islice([1], 0, -2)
        itertools.islice([1], 0, FailingIndex())
        itertools.islice([1], 1, 2, 0)
        itertools.islice([1], 1, 2, 1.5)
        itertools.islice([1], 1, None, FailingIndex())
        list(itertools.islice("abcdef", None)), list(itertools.islice("abcdef", True, None, 2))
        itertools.repeat(1, 1 << 70)
        itertools.repeat(1, 1.5)
        itertools.combinations([1], 1 << 70)
        itertools.permutations([1], 1 << 70)
        itertools.product([1], repeat=1 << 70)
        itertools.tee([1], 1 << 70)
        """,
        {"FailingIndex": FailingIndex},
    )


def test_errors_of_arguments():
    check_lines(
        """
        itertools.count("a")
        itertools.tee([1], -1)
        enumerate(iterable=[], x=3)
        enumerate(x=0, y=3)
        zip([1], newarg=3)
        itertools.cycle([1], newarg=3)
        """,
        fullgraph=False,
    )


class TestIterators:
    def test_string_iterator_across_breaks(self):
        def program():
            out = []
            for c in "abc":
                stop()
                out.append(c)
            return out

        same(program)

    def test_last_item_is_guarded_to_be_there(self):
        def program(it):
            for item in it:
                stop()
                return item
            return "empty"

        with config.patch(capture_pure_python=True, debug=True):
            captured = wrapped(program)
            it = iter([[1], [2]])
            assert [captured(it), captured(it), captured(it)] == [[1], [2], "empty"]

    def test_next_deleted_during_the_loop(self):
        def program():
            class Bad:
                def __iter__(self):
                    return self

                def __next__(self):
                    del Bad.__next__
                    return 1

            try:
                for _ in Bad():
                    pass
            except TypeError:
                return "TypeError"

        same(program)

    def test_subclass_of_a_builtin_type_without_a_model(self):
        class Enumerated(enumerate):
            pass

        same(lambda: list(Enumerated("ab")))

    def test_classes_are_complete_before_their_instances_are_iterated_over(self):
        def program():
            class Up:
                def __init__(self, n):
                    self.n = n

                def __iter__(self):
                    return self

                def __next__(self):
                    if not self.n:
                        raise StopIteration
                    self.n -= 1
                    return self.n

            pairs = itertools.zip_longest(Up(3), Up(2), fillvalue="-")
            first = next(pairs)
            stop()
            return first, list(pairs)

        same(program)

    def test_subclasses_of_iterator_types(self):
        class Pairs(zip):
            def total(self):
                return sum(a * b for a, b in self)

        class Numbered(enumerate):
            def __new__(cls, items):
                self = super().__new__(cls, items, 10)
                self.note = "n"
                return self

        def program():
            numbered = Numbered("abc")
            first = next(numbered)
            stop()
            return Pairs([1, 2], [3, 4]).total(), first, type(numbered) is Numbered, numbered.note, list(numbered)

        same(program)

    def test_tee_that_escapes(self):
        def program():
            a, b, c = itertools.tee(iter("abcdef"), 3)
            next(a), next(a), next(b)
            stop()
            d = copy.copy(a)
            return list(a), next(b), list(c), list(d), list(b)

        same(program)

    def test_pairwise_that_is_entered_again(self):
        def program():
            class Again:
                steps = 0

                def __iter__(self):
                    return self

                def __next__(self):
                    self.steps += 1
                    if self.steps == 1:
                        return next(pairs)
                    if self.steps > 5:
                        raise StopIteration
                    return self.steps

            again = Again()
            pairs = itertools.pairwise(again)
            return list(pairs)

        same(program, breaks=["class-definition"])


def test_taking_an_iterator_apart_breaks():
    """`__reduce__` and what calls it, as `copy.copy` does: of iterators made by the program the real ones are asked."""
    for text in ("iter([1, 2, 3])", "zip([1, 2], [3, 4])", "enumerate('abc')", "reversed([1, 2, 3])"):
        make = eval(f"lambda: {text}")

        def program(make=make):
            iterator = make()
            first = next(iterator)
            return first, list(copy.copy(iterator)), list(iterator)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # from 3.12 on
            same(program)
            assert "call-c-function" in {b.slug for b in log.breaks()}


class TestEnumerateFromOutside:
    """An enumerate object that was begun before a break."""

    @pytest.mark.parametrize("strict", [False, True])
    @pytest.mark.parametrize("counts", [(3, 5), (5, 3), (3, 3)])
    def test_over_a_zip(self, counts, strict):
        def program():
            iterators = [iter(range(n)) for n in counts]
            pairs, out = enumerate(zip(*iterators, strict=strict), 7), []
            out.append(next(pairs))
            stop()
            try:
                for i, (a, b) in pairs:
                    out.append((i, a, b))
            except ValueError as error:
                out.append(str(error))
            return out, [list(it) for it in iterators]

        same(program)

    def test_a_loop_with_a_break(self):
        def program():
            out = []
            for i, (a, b) in enumerate(zip([1, 2, 3], "abc")):
                out.append((i, a))
                stop()
                out.append(b)
            return out

        same(program)
        assert "iterator-state" not in {record.slug for record in log.breaks()}

    def test_the_iterator_within_is_moved_by_the_program_too(self):
        def program():
            it = iter([1, 2, 3, 4])
            pairs = enumerate(it)
            stop()
            return next(pairs), next(it), next(pairs), list(it)

        same(program)


def test_iterator_past_the_end_that_its_list_had():
    agrees("""
    def program(l):
        found = []
        for x in l:
            if len(l) < 4:
                l.append(x + 1)
            if x > 1:
                stop(1, x)
            found.append(x)
        return found
    def make_args(k):
        return [[0]]
    """)


def test_count_of_an_enumerate_from_outside_is_a_constant():
    agrees("""
    def program(l):
        for i, x in enumerate([0 for x in l]):
            stop(1, (i, x))
    def make_args(k):
        return [[1, 2, 3, 4, 5]]
    """)


def test_iterator_from_outside_is_not_moved_past_the_last_item_that_was_taken():
    agrees("""
    def program(l):
        for i in range(2):
            for x in iter([x for x in l]):
                stop(1, x)
                stop(2, 0)
                l = [9]
    def make_args(k):
        return [[1, 2, 5]]
    """)


def test_what_count_takes():
    agrees("""
    class Number:
        def __float__(self):
            return 1.0
    def program(*values):
        found = []
        for value in values:
            try:
                itertools.count(value)
                itertools.count(1, value)
                found.append(value)
            except TypeError as error:
                found.append(str(error))
        return found
    def make_args(k):
        return [None, '', 1, 2.5, 1j, [], Number(), True]
    """)


def test_strict_maps():
    """New in 3.14; before, TypeError."""
    check_lines(
        """
        list(map(max, xs, xs, strict=True))
        list(map(max, xs, "a", strict=True))
        list(map(max, [1], xs, strict=True))
        list(map(max, xs, xs, [1], strict=True))
        list(map(max, xs, xs, [1, 2, 3, 4], strict=True))
        m = map(max, xs, [3, 2, 1], strict=True); next(m); return m
        m = map(max, xs, [3, 2], strict=True); return next(m), next(m), next(m, 0)
        list(map(max, xs, xs, strict=False)), list(map(max, xs, [1], strict=[]))
        map(strict=True)
        map(max, xs, lax=True)
        """,
        xs=[1, 2, 3],
        fullgraph=False,
    )


def test_strict_maps_from_outside():
    agrees("""
    import sys
    strict = {"strict": True} if sys.version_info >= (3, 14) else {}
    def program(m):
        return [next(m, 0), *m]
    def make_args(k):
        return [[map(max, [1, 2], [3]), map(max, [1, 2], [3, 4], **strict), map(max, [1, 2], [3], **strict)][k]]
    """)


def test_zips_from_outside_differ_in_number_and_strictness():
    agrees("""
    def program(z):
        return [next(z, 0), *z]
    def make_args(k):
        return [[zip([1, 2], [3]), zip([1, 2, 3]), zip([1, 2], [3], strict=True)][k]]
    """)


def test_list_iterators_past_the_end_of_a_list_that_was_shortened():
    agrees("""
    def program(l, m):
        backwards, forwards = reversed(l), iter(m)
        found = [next(forwards), next(forwards), next(forwards), l.pop(), m.pop()]
        stop(1, found)
        m.extend([7, 8])
        return found, list(backwards), list(forwards)
    def make_args(k):
        return [[1, 2], [3, 4, 5]]
    """)


def test_text_of_a_count_breaks():
    same(lambda: repr(itertools.count(5, 2)), breaks=["object-identity"])
