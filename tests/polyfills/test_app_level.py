"""Classes in Python that stand for classes in C: their objects are of the real class, before and after a break."""

import itertools
import operator

import pytest
import torch

import dynamo_lite
from dynamo_lite.polyfills.registry import STAND_INS
from tests.helpers.capturing import same, stop


class Chained(itertools.chain):
    def note(self):
        return "chained"


class Accumulated(itertools.accumulate):
    def __init__(self, *args):
        self.x = 5


class Cycled(itertools.cycle):
    def __next__(self):
        return super().__next__() + "!"


class Counted(itertools.count):
    def __new__(cls, start):
        self = super().__new__(cls, start, 2)
        self.x = start
        return self


ITERATORS = """
itertools.count(3, 2)
itertools.count(True)
itertools.count(1.5)
itertools.repeat('a', 4)
itertools.repeat([1])
itertools.cycle('abc')
itertools.cycle('')
itertools.chain('ab', 'cd')
itertools.chain.from_iterable(['ab', 'cd'])
itertools.islice('abcdefgh', 1, 7, 2)
itertools.islice(iter('abcdefgh'), 3)
itertools.islice('abc', None)
itertools.accumulate([1, 2, 3], initial=5)
itertools.accumulate([1, 2, 3])
itertools.accumulate([None, None, None], operator.is_)
itertools.starmap(pow, [(2, 3), (3, 2), (4, 1)])
itertools.takewhile(bool, [1, 2, 3, 0, 4])
itertools.dropwhile(bool, [1, 0, 3, 0, 4])
itertools.compress('abcd', [1, 0, 1, 1])
itertools.zip_longest('ab', 'abcd', fillvalue=9)
itertools.filterfalse(None, [0, 1, 0, 0])
itertools.filterfalse(lambda x: x % 2, range(8))
itertools.pairwise('abcd')
itertools.product('ab', repeat=2)
itertools.permutations('abc', 2)
itertools.combinations('abcd', 2)
itertools.combinations_with_replacement('abc', 2)
itertools.tee('abcd')[1]
itertools.groupby('aabbc')
Chained('ab', 'cd')
Accumulated([1, 2, 3], lambda a, b: a * b)
Cycled('abc')
Counted(3)
"""
if hasattr(itertools, "batched"):
    ITERATORS += "itertools.batched('abcde', 2)\n"


class Quotients:
    def __init__(self, numbers):
        self.numbers = numbers

    def __iter__(self):
        return self

    def __next__(self):
        if not self.numbers:
            raise StopIteration
        return 1 // self.numbers.pop(0)


def plain(item):
    """A group as its key."""
    return item[0] if type(item) is tuple and hasattr(item[-1], "__next__") else item


@pytest.mark.parametrize("text", ITERATORS.strip().splitlines())
def test_iterators_across_a_break(text):
    make = eval(f"lambda: {text}", globals())
    for n in range(6):

        def program(n=n):
            iterator, found = make(), []
            for _ in range(n):
                found.append(plain(next(iterator, "end")))
            before = type(iterator), isinstance(iterator, itertools.chain)
            stop()
            for _ in range(5):
                found.append(plain(next(iterator, "end")))
            return found, before, type(iterator), getattr(iterator, "x", None)

        same(program)

    def whole():
        return [plain(item) for item, _ in zip(make(), range(6), strict=False)]

    same(whole, whole=True)


def test_each_class_is_tested():
    tested = {line.partition("(")[0] for line in ITERATORS.split()}
    names = {f"itertools.{cls.__name__}" for cls in STAND_INS if cls.__module__ == "itertools"}
    assert {name for name in names if not name.startswith("itertools._")} <= tested


def test_errors_of_the_program_leave_the_iterator_as_it_is():
    def program():
        found = []
        for make in (
            lambda: itertools.starmap(divmod, [(1, 1), (1, 0), (4, 2)]),
            lambda: itertools.accumulate([4, 0, 2], lambda a, b: a // b),
            lambda: itertools.takewhile(lambda x: 1 // x, [1, 0, 1]),
            lambda: itertools.dropwhile(lambda x: 1 // x > 3, [0, 1, 2]),
            lambda: itertools.filterfalse(lambda x: 1 // x, [0, 2, 3]),
            lambda: itertools.groupby([0, 1, 2], lambda x: 1 // x),
            lambda: itertools.islice(Quotients([1, 0, 2]), 3),
            lambda: itertools.pairwise(Quotients([1, 2, 0, 4, 5])),
        ):
            iterator = make()
            for _ in range(4):
                try:
                    found.append(plain(next(iterator, "end")))
                except ZeroDivisionError as error:
                    entries, entry = [], error.__traceback__
                    while entry is not None:
                        entries.append(entry.tb_frame.f_code.co_name)
                        entry = entry.tb_next
                    found.append((str(error), error.__context__, entries))
        return found

    same(program, whole=True)


def test_getters_across_a_break_and_from_outside():
    getters = operator.itemgetter(0, 1), operator.attrgetter("real", "imag.real"), operator.methodcaller("__add__", 2)
    call = operator.methodcaller("split", ",", maxsplit=1)

    def program(outside):
        here = operator.itemgetter(0, 1), operator.attrgetter("real", "imag.real"), operator.methodcaller("__add__", 2)
        split = operator.methodcaller("split", ",", maxsplit=1)
        before = [type(getter) for getter in (*here, split)], split("a,b,c"), call("a,b,c")
        found = [(items((1, 2)), attributes(3), add(4)) for items, attributes, add in (here, outside)]
        stop()
        return (
            before,
            found,
            split("a,b,c"),
            [(items((1, 2)), attributes(3), add(4)) for items, attributes, add in (here, outside)],
        )

    same(program, getters)


def test_nothing_of_the_stand_ins_is_guarded():
    def program(x):
        return [x * n for n in itertools.chain([1], itertools.islice(itertools.count(), 2))]

    text = str(dynamo_lite.explain(program)(torch.ones(1)))
    assert "itertools.chain" in text
    assert "dynamo_lite.polyfills" not in text
