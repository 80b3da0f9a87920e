"""functools: partial objects, caches, `reduce`, `total_ordering`. Needs no torch."""

import functools
import operator
import sys

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

    same(program, whole=True)


def fresh_copy(name):
    """A second copy of a module written in C."""
    original = sys.modules.pop(name)
    try:
        return __import__(name)
    finally:
        sys.modules[name] = original


class TestFunctools:
    def test_state_of_partial_objects(self):
        def program():
            p = functools.partial(max, 1, key=abs)
            p.keywords["default"] = 3
            q = functools.partial(p, 2)
            state = p.__reduce__()[2]
            p.__setstate__((min, (5,), {}, {"note": 1}))
            return p.func is min, p.args, p.keywords, p.note, q.args, q.keywords, state[1], state[0] is max

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

    def test_second_copy_of_the_module(self):
        second = fresh_copy("_functools")

        def program():
            p = second.partial(pow, 2)
            key = second.cmp_to_key(lambda a, b: b - a)
            return type(p) is second.partial, p(3), sorted([1, 3, 2], key=key), second.reduce(max, [1, 3, 2])

        same(program)

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


def test_the_error_of_reduce_has_no_context():
    def program():
        try:
            functools.reduce(operator.add, 1.5, -1)
        except TypeError as error:
            return str(error), error.__context__

    assert captured(program)() == program() == ("reduce() arg 2 must support iteration", None)
