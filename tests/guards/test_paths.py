"""One object that is reached in two ways: each of them is guarded. Needs no torch."""

import contextlib
import string

import pytest

from dynamo_lite.record import log
from tests.helpers.capturing import uncaptured, wrapped

first = second = len


one = another = string.capwords


def two_paths(x):
    return first(x), second(x), one("ab"), another("ab")


@pytest.mark.usefixtures("pure_python")
class TestTwoPathsToOneObject:
    def test_each_path_is_guarded(self, monkeypatch):
        captured = wrapped(two_paths)
        assert captured((1, 2)) == (2, 2, "Ab", "Ab")
        monkeypatch.setitem(globals(), "second", max)
        monkeypatch.setitem(globals(), "another", str.upper)
        assert captured((1, 2)) == (2, 2, "Ab", "AB")
        monkeypatch.setitem(globals(), "second", sum)
        assert captured((1, 2)) == (2, 3, "Ab", "AB")

    def test_arguments(self):
        def program(f, g):
            return f([1, 2]), g([1, 2])

        captured = wrapped(program)
        assert captured(len, len) == (2, 2)
        assert captured(len, sum) == (2, 3)
        assert captured(sum, len) == (3, 2)

    def test_functions_made_anew_at_each_call_need_no_new_version(self):
        def program(f, g):
            return f(1) + g(1)

        captured = wrapped(program)
        for k in range(12):

            def add(x, k=1):
                return x + k

            assert captured(add, add) == 4
        assert len([f for f in log.snapshot() if f.name.endswith("program")]) == 1

    def test_items_of_a_loop(self):
        seen = []

        @uncaptured
        def record(f, a):
            seen.append((f.__name__, a))

        calls = [(min, (1, 2)), (len, (1, 2)), (len, ()), (sum, (1, 2)), (any, ()), (all, (7,))]

        @contextlib.contextmanager
        def block(f):
            yield

        def program(x):
            for f, args in calls:
                with block(f):
                    record(f, args)
                    if not args:
                        record(f, None)

        program(1)
        expected = list(seen)
        seen.clear()
        wrapped(program)(1)
        assert seen == expected
