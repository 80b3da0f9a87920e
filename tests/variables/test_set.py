"""Sets and frozensets: algebra, methods, order, iteration."""

import pytest

from dynamo_lite.config import config
from dynamo_lite.record import log
from tests.helpers.capturing import captured, same, stop
from tests.helpers.container_programs import SET_CHANGES
from tests.helpers.differential import capture, check, check_lines
from tests.helpers.program_texts import agrees

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
    type(s), isinstance(s, set), isinstance(s, frozenset), type(iter(s))
    s.__len__(), s.__contains__(1), s.__or__({5}), s.__and__([1]), s.__eq__({1}), s.__sub__({1}), s.__ror__({7})
    s.add.__name__, s.__class__
    s[0]
    s.x
    a, b, c = s; return {a, b, c}
    a, b = s
    set.union(s, [4]), set.__contains__(s, 1), frozenset.union(frozenset(s), [1])
    s.__contains__({1}), {frozenset([1])} == {frozenset([1])}, {1} in {frozenset([1])}
"""


def lines(text):
    return [line.strip() for line in text.strip().splitlines()]


def test_sets():
    check(*lines(READ), *lines(SET_CHANGES), s={1, 2, "a"})


def test_new_sets():
    check(*["s = {1, 2, 'a'}\n" + line for line in lines(READ) + lines(SET_CHANGES)])


def test_colliding_elements_come_in_the_order_of_the_table():
    """162 is the first in a table that has 1 and 2 already, and comes after 1 where it is put in before 2."""

    def program():
        literal, made = {1, 2, 162}, set()
        for item in (1, 2, 162):
            made.add(item)
        copies = [list(s) for s in (literal, made, frozenset(made), {*made}, made.copy())]
        return copies, literal, made, frozenset(made)

    expected = program()
    assert str(captured(program)()) == str(expected) and expected[0][1] == [162, 1, 2]


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


class TestSets:
    def test_a_set_that_a_comparison_changes(self):
        def program():
            class Bad:
                def __hash__(self):
                    return 0

                def __eq__(self, other):
                    a.clear()
                    return False

            a = {Bad(), 1, 2}
            try:
                return a.isdisjoint({Bad(), 4}), a
            except RuntimeError as error:
                return str(error)

        same(program)


class TestHashesInTables:
    def test_elements_are_hashed_once(self):
        class Counting:
            n = 0

            def __hash__(self):
                Counting.n += 1
                return 5

            def __eq__(self, other):
                return self is other

        def program():
            Counting.n = 0
            d = dict.fromkeys([Counting(), 2])
            seen = [Counting.n]
            s = frozenset(d)
            hash(s), hash(s)
            dict.fromkeys(s, 1)
            dict.fromkeys(d)
            return [*seen, Counting.n]

        same(program)

    def test_hashes_of_nested_frozensets(self):
        def program():
            nested = []
            for _ in range(40):
                nested.append(frozenset(nested))
            return hash(nested[-1])

        same(program, whole=True)


class AlwaysEqual:
    """Known by identity as a key, equal to everything otherwise, as tensors with the same data are."""

    __hash__ = object.__hash__

    def __eq__(self, other):
        return True


class TestOrderOfSets:
    def test_set_from_outside_gives_its_elements_as_it_does_in_eager_execution(self):
        def program(elements):
            return list(elements), [e for e in elements]

        for _ in range(5):
            same(program, {object() for _ in range(6)}, whole=True)

    def test_break_in_a_loop_over_a_set(self):
        def program(elements):
            seen = []
            for e in elements:
                seen.append(e)
                stop()
            return seen

        for _ in range(5):
            same(program, {object() for _ in range(3)})

    def test_pop_takes_the_first(self):
        def program(elements):
            return [elements.pop(), elements.pop()], list(elements)

        for _ in range(5):
            elements = {object() for _ in range(4)}
            order = list(elements)
            assert captured(program)(elements) == (order[:2], order[2:])
            assert elements == set(order[2:])

    def test_elements_that_say_they_are_equal_keep_their_places(self):
        def program(elements):
            seen = []
            for e in elements:
                seen.append(id(e))
                stop()
            return seen

        for _ in range(5):
            same(program, {AlwaysEqual() for _ in range(3)})


@pytest.mark.parametrize("items", ["{1: []}", "{1: [], 2: []}", "{1: [], 2: [], 3: []}", "{1: 2}"])
@pytest.mark.parametrize("elements", ["{1, 5}", "frozenset({1, 5})", "{(1, 2), 5}"])
def test_a_set_that_is_not_shorter_than_a_view_hashes_its_items(elements, items):
    agrees(f"""
    def program(st, d):
        out = []
        for make in (lambda: st & d.items(), lambda: d.items() & st, lambda: d.items() & d.items()):
            try:
                out.append(make())
            except TypeError as error:
                out.append(str(error))
        return out

    def make_args(k):
        return [{elements}, {items}]
    """)


def fails_after(n):
    yield from range(1, n + 1)
    raise KeyError("k")


def grows(s):
    yield len(s)
    s.add(77)
    yield len(s)


ONE_BY_ONE = """
    s = {0}; failed(lambda: s.update(fails_after(2)), s)
    s = {0}; failed(lambda: s.update([1], [2, [], 3], [4]), s)
    s = {0}; failed(lambda: s.update("ab", 3), s)
    s = {0, 1}; failed(lambda: s.difference_update([1, [], 0]), s)
    s = {0, 1, 2}; failed(lambda: s.difference_update(v for v in s), len(s))
    s = {0}; failed(lambda: s.update(v + 1 for v in s), len(s))
    s = {0}; failed(lambda: s.__init__(fails_after(2)), s)
    s = {0}; failed(lambda: s.symmetric_difference_update(fails_after(1)), s)
    s = {0}; failed(lambda: s.intersection_update([0], 3), s)
    s = {0}; s.update(grows(s)); return sorted(s)
    i = iter([5, 1, 2]); return {1}.isdisjoint(i), list(i)
    i = iter([1, 2, []]); return frozenset([1]).isdisjoint(i), list(i)
    i = iter([1, 2, []]); return {1}.issuperset(i), list(i)
    i = iter([1, 2, 3]); return {1, 2}.issubset(i), list(i)
    i = iter([1, 2, []]); return {1: 0}.keys().isdisjoint(i), list(i)
    i = iter([(1, 0), 2]); return {1: 0}.items().isdisjoint(i), list(i)
    {1}.isdisjoint([2, []])
    {1}.issuperset([1, []])
    {1: 0}.keys().isdisjoint([2, []])
    d = {1: 0}; return d.keys().isdisjoint(d.keys()), d.keys().isdisjoint({2, 3}), d.items().isdisjoint({1: 0, 2: 0}.items())
"""


def test_other_operands_are_asked_one_item_at_a_time():
    def failed(call, *seen):
        try:
            return call()
        except Exception as error:
            return type(error), error.args, seen

    check(*lines(ONE_BY_ONE), names={"failed": failed, "fails_after": fails_after, "grows": grows})


def test_results_have_the_order_that_the_operation_gives_them():
    """A copy of a set in whose table elements have been removed, or that has grown, may have another order."""

    def program():
        a, b = {8 * i for i in range(9)}, {8 * i for i in range(0, 90, 5)}
        results = a | b, a - b, a & b, a ^ b, a.union(b), a.difference(b), a.copy(), frozenset(a), {1: 1}.keys() | b
        return [list(result) for result in results]

    same(program)
