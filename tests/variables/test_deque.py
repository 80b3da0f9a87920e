"""collections.deque."""

import collections
import operator

import pytest
import torch

import dynamo_lite
from dynamo_lite.record import log
from tests.helpers.capturing import captured, same, stop
from tests.helpers.container_programs import BREAKING_DEQUES, DEQUES
from tests.helpers.differential import check

D = collections.deque


def test_deques():
    lines = [line.strip() for line in DEQUES.strip().splitlines()]
    check(*lines, d=D([1, 2, 3]))
    check(*[line.strip() for line in BREAKING_DEQUES.strip().splitlines()], fullgraph=False, d=D([1, 2, 3]))
    check(*["d = collections.deque([1, 2, 3])\n" + line for line in lines])


def test_bounded_from_outside():
    check("d.append(5)\nd.extend([6, 7])\nreturn d, list(d)", "d.maxlen, d[0], repr(d)", d=D([1, 2], maxlen=2))


@pytest.mark.parametrize("make", [iter, reversed])
@pytest.mark.parametrize("items", ["", "abcdefg"])
@pytest.mark.parametrize("started", [False, True])
def test_a_stale_iterator_across_a_break(make, items, started):
    def run():
        letters = D(items)
        iterator = make(letters)
        if started:
            next(iterator, None)
        letters.append("h")
        stop()
        errors = []
        for _ in range(2):
            try:
                next(iterator)
            except (RuntimeError, StopIteration) as error:
                errors.append(str(error))
        return errors, operator.length_hint(iterator)

    same(run, breaks=["call-skipped-function", "iterator-state"])


class Number(int):
    pass


class Index:
    def __index__(self):
        return 2


def fails_after(n):
    yield from range(n)
    raise KeyError("k")


INIT = """
    D(Number(3), 1 << 65)
    D([1], -(1 << 65))
    D([1], Index())
    D(3, Number(-1))
    D([1, 2, 3], Number(2))
    d.__init__([4])
    d.__init__([4, 5, 6], 2)
    i = iter(d); d.__init__([4]); return next(i)
    d.__init__(d); return d
    d.__init__(5)
    d.__init__([4], -1)
    d.__init__(fails_after(2))
    d.rotate(1 << 70)
    d.rotate(Index()); return d
"""


def test_making_anew_and_sizes_that_are_none():
    lines = [line.strip() for line in INIT.strip().splitlines()]
    names = {"D": D, "Number": Number, "Index": Index, "fails_after": fails_after}
    check(*["d = D([1, 2, 3])\n" + line for line in lines], names=names)
    check(*lines, names=names, d=D([1, 2, 3]))


class Log(D):
    def append(self, x):
        super().append((len(self), x))


def test_subclass():
    check("l.append('a')\nl.append('b')\nreturn l, len(l)", "Log([1]), Log('ab', 1)", names={"Log": Log}, l=Log([0]))


class TestDequesOfC:
    def test_search_notices_changes(self):
        class Mutating:
            def __init__(self, d, result):
                self.d, self.result = d, result

            def __eq__(self, other):
                self.d.rotate()
                return self.result

        def program():
            seen = []
            for method in ("index", "remove", "count", "__contains__"):
                for result in (False, True):
                    for n in (0, 2):
                        d = collections.deque(range(3))
                        d[n] = Mutating(d, result)
                        try:
                            seen.append(getattr(d, method)("x"))
                        except (IndexError, RuntimeError, ValueError) as error:
                            seen.append((type(error), str(error), len(d)))
            return seen

        same(program)

    def test_subclasses_are_copied_by_their_class(self):
        class Sub(collections.deque):
            pass

        class Bad(collections.deque):
            def __new__(cls, *args):
                return [42] if args else super().__new__(cls)

        def program():
            s = Sub([1, 2], 3)
            bad = Bad()
            try:
                bad * 2
            except TypeError as error:
                return type(s * 2), s * 2, s + s, (s + s).maxlen, str(error)

        same(program, whole=True)


class TestOnlyAddedTo:
    """A window of metrics: no version per step, and the deque is not read."""

    @pytest.mark.parametrize("maxlen", [None, 3])
    def test_any_length(self, maxlen):
        window, others = D(maxlen=maxlen), D()

        def step(x):
            window.append(x.sum().item())
            window.extend([1, 2])
            others.appendleft(x)
            others.append(3)
            return x + 1

        def run(fn):
            window.clear()
            others.clear()
            for i in range(6):
                fn(torch.full((2,), float(i)))
            return list(window), [o if type(o) is int else o.tolist() for o in others]

        expected = run(step)
        log.reset()
        assert run(dynamo_lite.compile(step, backend="eager", fullgraph=True)) == expected
        assert len(log.snapshot()) == 1

    def test_what_falls_out_dies_at_once(self):
        """An object with a finalizer is seen: then the deque is read."""
        gone = []

        class Thing:
            def __del__(self):
                gone.append(len(window))

        def fill():
            window.extend([Thing(), 1])

        window = D(maxlen=2)

        def step(x):
            window.append(2)
            seen = list(gone)
            return x + 1, seen

        fill()
        expected = step(torch.ones(1))[1]
        window.clear()
        gone.clear()
        fill()
        assert dynamo_lite.compile(step, backend="eager")(torch.ones(1))[1] == expected == [2]

    def test_read_behind(self):
        def change(window):
            window.append(4)
            window.appendleft(0)
            window.append(5)
            return window[0], len(window), list(window), window.pop()

        for maxlen in (None, 3, 5):
            window, expected = D([1, 2, 3], maxlen=maxlen), D([1, 2, 3], maxlen=maxlen)
            assert captured(lambda: change(window))() == change(expected)
            assert window == expected

    def test_made_anew(self):
        window = D([1, 2, 3])

        def f():
            window.append(4)
            window.__init__([7], 2)
            window.append(8)
            window.append(9)
            return list(window), window.maxlen

        assert captured(f)() == ([8, 9], 2) and list(window) == [8, 9]
