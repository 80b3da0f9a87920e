"""functools: partial objects, caches, `reduce`, `total_ordering`. Needs no torch."""

import copy
import functools
import operator

from dynamo_lite.record import log
from tests.helpers.capturing import captured, same, stop


def test_total_ordering():
    def program():
        @functools.total_ordering
        class A:
            def __init__(self, x):
                self.x = x

            def __lt__(self, other):
                return self.x < other.x

            def __eq__(self, other):
                return self.x == other.x

        return A(1) >= A(0), A(1) <= A(0), A.__ge__.__name__

    same(program, breaks=["class-definition", "mutation-of-class"])


class TestFunctools:
    def test_state_of_partial_objects(self):
        def program():
            p = functools.partial(max, 1, key=abs)
            p.keywords["default"] = 3
            q = functools.partial(p, 2)
            p.note = 1
            return p.func is max, p.args, p.keywords, p.note, q.args, q.keywords

        same(program, whole=True)

    def test_partial_objects_that_escape_keep_what_the_program_holds(self):
        def program():
            p = functools.partial(max, 1)
            keywords, args = p.keywords, p.args
            stop()
            return p.keywords is keywords, p.args is args, p(2)

        same(program)

    def test_subclasses_of_partial(self):
        class Sub(functools.partial):
            pass

        def program():
            p = Sub(int, base=2)
            stop()
            return type(p) is Sub, p("101"), p.keywords, p.func is int

        same(program)

    def test_partial_objects_taken_apart(self):
        def program():
            p = functools.partial(max, 1, key=abs)
            return copy.copy(p)(-5), copy.deepcopy(p).keywords

        same(program)
        assert "call-c-function" in {b.slug for b in log.breaks()}

    def test_keys_of_comparisons(self):
        def program():
            key = functools.cmp_to_key(lambda a, b: b - a)
            stop()
            other = functools.cmp_to_key(lambda a, b: b - a)
            return sorted([1, 3, 2], key=other), sorted([1, 3, 2], key=key), max([1, 3], key=other)

        same(program)

        def whole():
            return sorted([1, 3, 2], key=functools.cmp_to_key(lambda a, b: b - a))

        same(whole, whole=True)

    def test_cache_made_here(self):
        def program():
            calls = []

            @functools.lru_cache(maxsize=2)
            def f(x):
                calls.append(x)
                return [x]

            same_object = f(1) is f(1)
            f(2), f(1), f(3), f(2)
            info = tuple(f.cache_info())
            f.cache_clear()
            return same_object, calls, info, tuple(f.cache_info())

        same(program, whole=True)

    def test_cache_from_outside_is_kept(self):
        calls = []

        @functools.lru_cache
        def f(x):
            calls.append(x)
            return [x]

        def program():
            f.cache_clear()
            calls.clear()
            return f(1) is f(1), calls

        same(program)


class Area:
    def __init__(self, sides):
        self.sides, self.asked = sides, 0

    @functools.cached_property
    def area(self):
        self.asked += 1
        return self.sides[0] * self.sides[1]

    nothing = functools.cached_property(lambda self: 1 // 0)


def test_cached_properties():
    class WithSlots:
        __slots__ = ()
        area = Area.area

    def program(outside):
        inside = Area((2, 3))
        values = inside.area, inside.area, inside.asked, vars(inside), outside.area, outside.area, outside.asked
        try:
            inside.nothing
        except ZeroDivisionError as error:
            return values, str(error), "nothing" in vars(inside), Area.area is Area.__dict__["area"]

    expected = program(Area((4, 5)))
    compiled = captured(program)
    outside = Area((4, 5))
    assert compiled(outside) == expected and vars(outside) == {"sides": (4, 5), "asked": 1, "area": 20}
    assert compiled(outside) == expected

    def error(value):
        try:
            return value.area
        except TypeError as error:
            return str(error)

    assert captured(error)(WithSlots()) == error(WithSlots()) != ""


def test_the_error_of_reduce_has_no_context():
    def program():
        try:
            functools.reduce(operator.add, 1.5, -1)
        except TypeError as error:
            return str(error), error.__context__

    assert captured(program)() == program() == ("reduce() arg 2 must support iteration", None)
