"""Lists: every method and slot, on new lists and on lists that exist before the frame."""

import sys

import pytest
import torch

import dynamo_lite
from dynamo_lite.record import log
from tests.helpers.capturing import captured, same, stop
from tests.helpers.container_programs import LIST_CHANGES, LIST_NAMES
from tests.helpers.differential import breaks, check, check_lines

READ = """
    [*xs], xs == [3, 1, 2], xs != [3, 1], xs < [3, 2], xs >= [3, 1, 2], xs > [], xs <= [3]
    xs[0], xs[-1], xs[1:], xs[:-1], xs[::-1], xs[::2], xs[5:], xs[-10:2], xs[True]
    xs[3]
    xs[-4]
    xs["a"]
    xs[1.0]
    xs[None]
    xs[::0]
    xs["a":]
    xs[10**30]
    xs[Index(1)], xs[Index(-1):Index(5)]
    len(xs), bool(xs), not xs, 3 in xs, 7 in xs, 3 not in xs, True in xs, 1.0 in xs
    xs + [4], xs * 2, 2 * xs, xs * 0, xs * -1, xs * True
    xs + (4,)
    xs * 1.5
    xs * "a"
    xs - xs
    -xs
    xs < (1,)
    xs < 3
    xs == (3, 1, 2), xs == 3
    xs.index(1), xs.index(2, 1), xs.index(1, -2), xs.index(1, 0, 2), xs.count(1), xs.count(True), xs.count(9)
    xs.index(9)
    xs.index(1, 2)
    xs.index(3, 1)
    xs.index("a")
    xs.index(1, "a")
    xs.copy(), list(xs), list(reversed(xs)), sorted(xs), tuple(xs), set(xs)
    xs.copy() is xs, xs[:] is xs, list(xs) is xs
    repr(xs), str(xs), f"{xs}", "%s" % xs, ascii(xs)
    hash(xs)
    {xs: 1}
    max(xs), min(xs), sum(xs), any(xs), all(xs)
    [x + 1 for x in xs], [(i, x) for i, x in enumerate(xs)]
    a, *b = xs; return a, b
    a, b = xs
    a, b, c, d = xs
    a, b, c = xs; return a, b, c
    xs.__len__(), xs.__getitem__(1), xs.__contains__(2), xs.__add__([1]), xs.__mul__(2), xs.__eq__([1]), xs.__eq__(1)
    xs.__iter__().__next__(), list(xs.__reversed__()), xs.__repr__(), xs.__ne__([3, 1, 2]), xs.__rmul__(2)
    list.__len__(xs), list.__getitem__(xs, 0), list.index(xs, 1), list.copy(xs)
    xs.nothing
    xs.append.__name__, xs.__class__, type(xs), isinstance(xs, list), isinstance(xs, (int, list))
    xs.__doc__ is list.__doc__
    xs()
    list(iter(xs)), next(iter(xs)), next(iter(xs[5:]), "none")
    next(xs)
    callable(xs), callable(xs.append), hasattr(xs, "append"), hasattr(xs, "add")
"""


def test_reading_a_list():
    check_lines(READ, LIST_NAMES, xs=[3, 1, 2])


def test_reading_a_new_list():
    check(*["xs = [3, 1, 2]\n" + line.strip() for line in READ.strip().splitlines()], names=LIST_NAMES)


def test_changing_a_list():
    check_lines(LIST_CHANGES, LIST_NAMES, xs=[3, 1, 2])


def test_changing_a_new_list():
    check(*["xs = [3, 1, 2]\n" + line.strip() for line in LIST_CHANGES.strip().splitlines()], names=LIST_NAMES)


def test_making_lists():
    check_lines("""
        list(), list(()), list("abc"), list({1: 2}), list(range(3)), list([1])
        list(5)
        list(map(str, [1, 2])), list(zip([1], [2]))
        [[]] * 3, [*range(2), *"ab"]
        a = [[]] * 2; a[0].append(1); return a, a[0] is a[1]
        [] == [], [] is [], [1] == [1.0], [1] == [True], [float("nan")] == [float("nan")]
        n = float("nan"); return [n] == [n], n in [n], [n].index(n), [n].count(n)
        [1, 2] < [1, "a"]
        [1, 2] < [1, 2, "a"], [[1], [2]] < [[1], [3]]
    """)


def test_user_defined_items():
    check(
        "a = Always()\n5 in [a], [a] == [7], [a].index(3), [a].count(1), [1, 2].index(a), [a, a].count(a)",
        "a = Always()\nxs = [1, a, 2]\nxs.remove(2)\nxs[0]",
        names=LIST_NAMES,
    )


def test_sort_calls_and_errors():
    check(
        "log = []\nxs.sort(key=lambda x: log.append(x) or x)\nlog, xs",
        "xs.sort(key=lambda x: xs.append(1) or x)\nxs",
        "xs.sort(key=lambda x: 1 // (x - 1))",
        "sorted([1, 'a'])",
        "sorted(xs, key=lambda x: (x % 2, -x)), sorted([(1, 'b'), (1, 'a')]), sorted('hello', reverse=True)",
        "sorted([[2], [1]]), sorted([{1, 2}, {1}]), sorted([1.5, 1, True])",
        "sorted([3, 1, 2], key=functools.cmp_to_key(lambda a, b: b - a))",
        "sorted([Index(2), Index(1)])",
        "sorted([Index(2), Index(1)], key=lambda i: i.i)[0].i",
        names=LIST_NAMES,
        xs=[5, 2, 8, 1],
    )


def test_aliases_are_kept():
    check(
        "xs.append(ys)\nys.append(1)\nreturn xs, ys, xs[-1] is ys",
        "xs.append(xs)\nys.append(xs)\nreturn xs[-1] is xs",
        "zs = [ys]\nzs.append(zs)\nreturn zs, zs[1] is zs",
        "xs[0], ys[0] = ys[0], xs[0]\nreturn xs, ys",
        xs=[1],
        ys=[2],
    )
    shared = [1]
    check("a[0].append(2)\nreturn a, b, a[0] is b", a=[shared], b=shared)


class Stack(list):
    def push(self, x):
        self.append(x)
        return self

    def __len__(self):
        return 100 + super().__len__()

    def __getitem__(self, i):
        return ("got", super().__getitem__(i))


class Plain(list):
    pass


def test_subclasses():
    names = {"Stack": Stack, "Plain": Plain}
    program = """
        s.push(5).push(6), len(s), s[0], list(s), s == [1, 5, 6], isinstance(s, list), s + [1], s * 2, s.copy()
        Stack([1, 2]).push(3)
        Stack().push(1)
        p = Plain("ab"); p.x = 1; p.append(2); return p, p.x, type(p[:]), len(p), p[0], repr(p), bool(Plain())
        p = Plain("ab"); p += [1]; p.sort(key=str); return p, type(p)
        s.x = 3; s.append(s.x); return s
        sorted(s), sum(Plain([1, 2])), [*s], list.__len__(s), tuple(s)
    """
    check_lines(program, names, s=Stack([1]))
    check_lines("p.append(p.x); p.x = 2; return p", names, p=_with_x(Plain([1])))


def _with_x(p):
    p.x = 7
    return p


def test_arguments_that_do_not_fit():
    check_lines(
        """
        xs.append()
        xs.append(1, 2)
        xs.append(x=1)
        xs.pop(1, 2)
        xs.insert(1)
        xs.sort(foo=1)
        xs.sort(lambda x: x)
        list(1, 2)
        list(iterable=[1])
        sorted(xs, lambda x: x)
        """,
        fullgraph=False,
        xs=[1],
    )


def test_breaks():
    breaks("[0] * 10**9", "code-size")
    breaks("xs.__sizeof__()", "call-c-function", xs=[1])


def test_changes_during_a_sort():
    """What counts is whether the list ever held something meanwhile."""
    check_lines("""
        xs.sort(key=lambda x: (xs.append(3), xs.pop())[1])
        xs.sort(key=lambda x: (xs.extend([1]), xs.clear())[1] or x)
        xs.sort(key=lambda x: (xs.clear(), xs.extend([]), len(xs))[2] or x)
        xs.sort(key=lambda x: xs.__setitem__(slice(None), [1]) or xs.__delitem__(0) or x)
        xs.sort(key=lambda x: xs.__imul__(3) and x or -x)
    """, xs=[3, 1, 2])  # fmt: skip


class TestLists:
    def test_keywords_of_a_list_subclass_with_its_own_new(self):
        class Sub(list):
            def __new__(cls, items, note=None):
                self = super().__new__(cls, items)
                self.note = note
                return self

        def program():
            s = Sub([1, 2], note=3)
            return s, s.note

        same(program)


def test_sequences_too_long_for_memory():
    def program():
        seen = []
        for make in (lambda: [0] * sys.maxsize, lambda: (0, 1) * sys.maxsize, lambda: [0] * (sys.maxsize + 1)):
            try:
                make()
            except (MemoryError, OverflowError) as error:
                seen.append((type(error), str(error)))
        items = [1, 2]
        try:
            items *= sys.maxsize // 2
        except MemoryError:
            return seen, items

    same(program, whole=True)


def test_sort_notices_a_change_that_is_undone():
    numbers = [2, 1]

    def key(x):
        numbers.append(3)
        numbers.pop()
        return x

    for function in (key, captured(key)):
        with pytest.raises(ValueError, match="modified during sort"):
            numbers.sort(key=function)


class Named(list):
    """A subclass, whose native part changes."""


@pytest.mark.parametrize("make", [list, Named])
def test_a_list_that_is_only_appended_to_may_have_any_length(make):
    """Losses that a step collects: no version per step, and the list is not read."""
    losses = make()

    def step(x):
        losses.append(x.sum())
        losses.extend([x, len(losses)])
        losses.__iadd__((1, 2))
        return x + 1

    log.reset()
    compiled = dynamo_lite.compile(step, backend="eager", fullgraph=True)
    for i in range(4):
        del losses[3:]
        before = list(losses)
        if i == 1:
            losses.append("more")
            before.append("more")
        x = torch.full((2,), float(i))
        compiled(x)
        assert losses[: len(before)] == before
        total, same_x, *rest = losses[len(before) :]
        assert total == 2 * i and same_x is x and rest == [len(before) + 1, 1, 2]
    assert len(log.snapshot()) == 3, "a new version for each length that was asked for: 0, 4 and 3"


def test_appends_to_a_list_of_any_length():
    losses = []

    def step(x):
        losses.append(x.sum())
        losses.extend(2 * item for item in (1, 2))
        return x + 1

    log.reset()
    compiled = dynamo_lite.compile(step, backend="eager", fullgraph=True)
    for i in range(5):
        compiled(torch.full((2,), float(i)))
    assert losses == [0, 2, 4, 2, 2, 4, 4, 2, 4, 6, 2, 4, 8, 2, 4]
    assert len(log.snapshot()) == 1


def test_appends_before_the_items_are_read():
    xs, ys = [3, 1], [5]

    def f():
        xs.append(2)
        xs.append(ys)
        ys.append(6)
        first, last = xs[0], xs[-1]
        del xs[-1]
        xs.sort()
        ys.append(first)
        return last is ys, len(ys), ys.pop(), xs

    run = captured(f)
    assert run() == (True, 3, 3, [1, 2, 3]) and ys == [5, 6]
    assert run() == (True, 4, 1, [1, 2, 2, 3]) and ys == [5, 6, 6]


def test_clear_behind_appends():
    xs = [1, 2]

    def f():
        xs.append(3)
        xs.clear()
        xs.append(4)
        return len(xs)

    assert captured(f)() == 1 and xs == [4]


def test_appends_of_a_call_that_breaks_and_of_one_that_raises():
    xs = [1]

    def f(n):
        xs.append(n)
        stop()
        xs.append(n + 1)
        if n > 5:
            raise ValueError(n)
        xs.append(n + 2)

    run = captured(f)
    run(2)
    assert xs == [1, 2, 3, 4]
    with pytest.raises(ValueError, match="7"):
        run(7)
    assert xs == [1, 2, 3, 4, 7, 8]
