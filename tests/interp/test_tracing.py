"""Trace functions that the program sets. Needs no torch."""

import sys

import pytest

from tests.helpers.capturing import wrapped


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
