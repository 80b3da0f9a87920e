"""Trace functions that the program sets. Needs no torch."""

import sys

import pytest

from tests.helpers.capturing import uncaptured, wrapped


@pytest.mark.usefixtures("pure_python")
class TestTraceFunctions:
    def test_lines_are_those_of_the_program(self):
        def traced(n):
            for i in range(n):
                if i:
                    n += i
            return n

        def lines(fn, *args):
            seen = []

            def trace(frame, event, arg):
                if frame.f_code is traced.__code__ and event == "line":
                    seen.append(frame.f_lineno - frame.f_code.co_firstlineno)
                return trace

            before = sys.gettrace()
            sys.settrace(trace)
            try:
                fn(*args)
            finally:
                sys.settrace(before)
            return seen

        def program(n):
            return lines(traced, n)

        expected = program(2)
        captured = wrapped(program)
        assert captured(2) == captured(2) == expected

    def test_lines_before_the_first_of_the_code(self):
        """Code that goes on in the middle of a function that stands above: its lines are those of both."""

        def inner(stop, x):
            stop()
            return x + 1

        def outer(stop, x):
            return inner(stop, x) + 1

        def lines_of_callers(fn):
            seen = []

            def stop():
                frame = sys._getframe(1)
                while frame.f_code is not traced_by.__code__:
                    if frame.f_code.co_filename == __file__:
                        seen.append(frame.f_lineno)
                    frame = frame.f_back

            def traced_by():
                return fn(uncaptured(stop), 1)

            before = sys.gettrace()
            sys.settrace(lambda *event: None)
            try:
                assert traced_by() == 3
            finally:
                sys.settrace(before)
            return seen

        first = inner.__code__.co_firstlineno
        found = lines_of_callers(wrapped(outer))
        assert found[0] == lines_of_callers(outer)[0] == first + 1
        assert all(first <= line < first + 40 for line in found)
