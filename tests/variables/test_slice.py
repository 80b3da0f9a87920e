"""Slices and ranges."""

import copy

import pytest

from tests.helpers.capturing import same
from tests.helpers.differential import check, check_lines

RANGE = """
    list(r), len(r), r[0], r[-1], r[1:3], r[::-1], r.start, r.stop, r.step, 3 in r, 4 in r, "a" in r, 3.0 in r, bool(r)
    r[10]
    r["a"]
    r[::0]
    r == range(1, 10, 2), r == range(1, 11, 2), r != range(3)
    hash(r) == hash(range(1, 11, 2))
    r < range(3)
    r + r
    [x for x in r], list(reversed(r)), [*r], sum(r), max(r), sorted(r, reverse=True), tuple(r), set(r)
    repr(r), str(r), type(r), isinstance(r, range), {r: 1}[r]
    r[0] = 1
    r.start = 3
    a, b, *c = r; return a, b, c
    iter(r), reversed(r), r
    it = iter(r); next(it); next(it); return it
    it = iter(r); list(it); return it
    for x in r: r = range(3)
    r.__len__(), r.__getitem__(1), r.__contains__(3), r.__iter__().__next__()
    list(zip(r, r[1:])), dict(enumerate(r)), list(map(str, r))
"""


def test_ranges():
    lines = [line.strip() for line in RANGE.strip().splitlines()]
    check(*lines, r=range(1, 10, 2))
    check('r.index(3), r.count(3), r.count("a")', "r.index(4)", 'r.index("a")', fullgraph=False, r=range(1, 10, 2))
    check(*["r = range(1, 10, 2)\n" + line for line in lines])
    check_lines("""
        range(5), range(0), range(3, 1), range(5, 0, -2), range(True), len(range(2**70)), 1
        range(2 ** 70)[5], 2 ** 69 in range(2 ** 70), list(range(2 ** 70, 2 ** 70 + 2)), bool(range(2 ** 70))
        range()
        range(1, 2, 0)
        range("a")
        range(1.0)
        range(1, 2, 3, 4)
    """)


def test_slices():
    check_lines(
        """
        slice(3), slice(1, 2), slice(1, 2, 3), slice(None), s.start, s.stop, s.step, s == slice(1, 4), s != slice(2)
        repr(s)
        slice()
        slice(1, 2, 3, 4)
        s.indices(10), s.indices(2), slice(None, None, -1).indices(5), slice(-3, None).indices(5)
        s.indices(-1)
        s.indices("a")
        slice(1, 2, 0).indices(5)
        slice("a").indices(5)
        slice(None, "a", 0).indices(5)
        [1, 2][:(1, 2):0]
        "ab"["a"::0]
        [0, 1, 2, 3, 4][s], "abcdef"[s], (0, 1, 2)[s], range(10)[s], [0, 1, 2][slice(None, None, -1)]
        s < slice(2, 3)
        s, [s], slice([], {}), type(s), isinstance(s, slice)
        s.start = 3
        a = [1, 2, 3]; a[slice(0, 2)] = "xyz"; return a
        """,
        s=slice(1, 4),
    )


class TestIndices:
    def test_index_that_is_no_int(self):
        class Bad:
            def __index__(self):
                return "x"

        def program():
            with pytest.raises(TypeError):
                range(3)[Bad() :]
            try:
                [1][Bad()]
            except TypeError as error:
                return str(error)

        same(program)

    def test_the_step_is_asked_first(self):
        class Noted:
            def __init__(self, value, asked):
                self.value, self.asked = value, asked

            def __index__(self):
                self.asked.append(self.value)
                return self.value

        def program():
            asked = []
            parts = [Noted(i, asked) for i in (1, 5, 2)]
            return [1, 2, 3, 4][parts[0] : parts[1] : parts[2]], slice(*parts).indices(4), asked

        same(program)

    def test_iterators_over_huge_ranges(self):
        def program():
            iterator = iter(range(1 << 70))
            next(iterator)
            return next(iterator), next(iter(range(0))) if range(0) else None

        same(program)

    def test_slices_are_copied(self):
        def program():
            s = slice([1], 2)
            t = copy.deepcopy(s)
            return t, t.start is not s.start, s.__reduce__()

        same(program, breaks=["call-c-function", "object-identity"])
