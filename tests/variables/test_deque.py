"""collections.deque."""

import collections
import operator

import pytest

from tests.helpers.capturing import same, stop
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
