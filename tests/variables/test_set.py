"""Sets and frozensets: algebra, methods, order, iteration."""

import pytest
from differential import capture, captured, check, check_lines

from dynamo_lite.config import config
from dynamo_lite.record import log

READ = """
    len(s), bool(s), 1 in s, 9 in s, "a" in s, True in s, 1.0 in s, 9 not in s
    [] in s
    {1} in s
    s == {1, 2, "a"}, s != {1}, s == frozenset(s), s == [1, 2, "a"], s <= {1, 2, "a", 5}, s < s, s >= {1}, s > {1}
    s < {1, 2, 3, 4, "a"}
    s < [1]
    s | {3}, s & {1, 7}, s - {1}, s ^ {1, 9}, frozenset(s) | {4}, {4} | frozenset(s)
    s | [3]
    s & "a"
    s + {1}
    s.union([3], (4,)), s.intersection([1, 2, 5]), s.difference([1], {2}), s.symmetric_difference([1, 8]), s.union()
    s.intersection()
    s.isdisjoint([5]), s.isdisjoint({1}), s.issubset([1, 2, "a", 4]), s.issuperset([1]), s.issubset({1})
    s.union(5)
    s.union([[]])
    s.copy(), s.copy() is s, set(s), set(s) is s, frozenset(s), sorted(s - {"a"}), sum(s - {"a"}), max(s - {"a"})
    list(s), tuple(s), [x for x in s], {x: 1 for x in s}, [*s]
    repr(s), str(s), f"{s}", repr(set()), repr(frozenset()), repr(frozenset([1]))
    hash(s)
    {s: 1}
    iter(s).__length_hint__(), type(s), isinstance(s, set), isinstance(s, frozenset), type(iter(s))
    s.__len__(), s.__contains__(1), s.__or__({5}), s.__and__([1]), s.__eq__({1}), s.__sub__({1}), s.__ror__({7})
    s.add.__name__, s.__class__
    s[0]
    s.x
    a, b, c = s; return {a, b, c}
    a, b = s
    set.union(s, [4]), set.__contains__(s, 1), frozenset.union(frozenset(s), [1])
    s.__contains__({1}), {frozenset([1])} == {frozenset([1])}, {1} in {frozenset([1])}
"""

CHANGE = """
    s.add(5); s.add(1); s.add("b"); return s
    s.add([])
    s.remove(1); return s
    s.remove(9)
    s.remove({1})
    s.discard(1); s.discard(9); return s
    s.discard([])
    s.clear(); return s
    s.clear(); s.pop()
    s.update([7], {8}, "cd"); s.update(); return s
    s.update(5)
    s.intersection_update([1, "a"], {1}); return s
    s.difference_update([1], ["a"]); return s
    s.symmetric_difference_update([1, 9]); return s
    s |= {4}; s &= {1, 4}; return s
    s -= {1}; s ^= {2, 3}; return s
    t = s; t |= {4}; return s is t, s
    s |= [4]
    s -= s; return s
    s ^= s; return s
    for x in s: s.add(x)
    for x in s: s.add(100)
    for x in list(s): s.discard(x)
    it = iter(s); next(it); s.add(99); next(it)
    s.__init__([3]); return s
    s.__init__(); return s
    s.__ior__({9}); s.__isub__({1}); return s
    set.add(s, 4); set.update(s, [5]); return s
    t = {1}; s.add(frozenset(t)); s.remove(t); return s
"""


def lines(text):
    return [line.strip() for line in text.strip().splitlines()]


def test_sets():
    check(*lines(READ), *lines(CHANGE), s={1, 2, "a"})


def test_new_sets():
    check(*["s = {1, 2, 'a'}\n" + line for line in lines(READ) + lines(CHANGE)])


def test_frozensets():
    check_lines(
        """
        len(s), 1 in s, s | {4}, s & {1}, s - {1}, s ^ {1}, s == {1, 2}, s == frozenset([2, 1])
        hash(s) == hash(frozenset([1, 2]))
        {s: 1}[frozenset([2, 1])], s in {s}, {1, 2} in {s}
        s.add(1)
        s |= {5}; return s
        s.copy() is s, frozenset(s) is s, frozenset([1]) is s, s.union([5]), type(s.union([5])), set(s)
        frozenset(), frozenset("ab"), frozenset() == set(), frozenset([1, 2]) < {1, 2, 3}
        frozenset(5)
        repr(frozenset([3])), list(s), sorted(s), hash(frozenset()) == hash(frozenset())
        hash(frozenset([(1, 2), "x"])) == hash(frozenset(["x", (1, 2)]))
        """,
        s=frozenset([1, 2]),
    )


def test_making_sets_and_order():
    check_lines("""
        set(), set("hello"), set(range(3)), {*"ab", *[1]}, {x % 3 for x in range(10)}, set({"a": 1})
        set([(1, 2), (1, 2)])
        set(5)
        set([[]])
        {[]}
        {1, True, 1.0}, {0, False}, {1.0, 1}, {"a", "a"}, list({1: 0}.keys() | {2})
        list({5, 3, 9, 1, 100, 32, 64, 8}), list(set("the quick brown fox")), list({8, 0} | {16})
        list({3, 1} & {1, 3, 2})
        s = set(); [s.add(x) for x in (40, 8, 0, 16, 24)]; s.discard(8); s.add(32); return list(s), s.pop()
        n = float("nan"); return n in {n}, {n} == {n}, len({n, n})
        {(1, (2, 3))} == {(1, (2, 3))}, (1, 2) in {(1, 2): 0}.keys()
    """)


class Item:
    def __init__(self, n):
        self.n = n

    def __eq__(self, other):
        return isinstance(other, Item) and self.n == other.n

    def __hash__(self):
        return hash(self.n)


class Tags(set):
    def add(self, item):
        super().add(item.upper())


class Frozen(frozenset):
    pass


def test_user_defined_elements_and_subclasses():
    names = {"Item": Item, "Tags": Tags, "Frozen": Frozen}
    check_lines(
        """
        len({Item(1), Item(1), Item(2)}), Item(1) in {Item(1)}, Item(3) in {Item(1)}, len({Item(1)} & {Item(1)})
        len({Item(1), 1})
        t.add("x"); return t, len(t), t | {"y"}, type(t | {"y"}), type(t.copy()), isinstance(t, set), repr(Tags("a"))
        t = Tags("ab"); t.x = 1; t.add("c"); return sorted(t), t.x
        Frozen([1]) | {2}, Frozen([1]), hash(Frozen([1])) == hash(frozenset([1])), {Frozen([1]): 1}, Frozen([1]) == {1}
        i in s, len(s | {i}), s - {i}
        """,
        names,
        t=Tags(["q"]),
        i=Item(1),
        s=set(),
    )


def test_a_sourced_set_is_not_loaded_for_a_membership_test():
    with config.patch(capture_pure_python=True):
        c = capture(lambda s: 1 in s and 7 not in s)
        assert c({1, 2}) is True
        before = len(log.frames)
        assert c({1, 3, 4}) is True
        assert len(log.frames) == before
        assert c({1, 7}) is False


@pytest.mark.parametrize("method", ["intersection", "intersection_update"])
def test_an_intersection_stops_where_it_has_all(method):
    """`set_intersection` stops once the result is as large as the set: it asks neither for the hash of the rest, nor for the rest."""
    compiled = captured(lambda s, items: getattr(s, method)(items))
    rest = iter([1, 2, 5, 6])
    eager = iter([1, 2, 5, 6])
    for _ in range(2):
        assert compiled({1}, [1, []]) == getattr({1}, method)([1, []])
    assert compiled({2, 1}, rest) == getattr({1, 2}, method)(eager)
    assert list(rest) == list(eager)
    with pytest.raises(TypeError, match="unhashable"):
        compiled({1, 3}, [1, []])
