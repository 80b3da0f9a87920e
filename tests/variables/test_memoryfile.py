"""io.StringIO and io.BytesIO made by the program, and print to them."""

import contextlib
import io
import sys

from dynamo_lite.config import config
from tests.helpers.differential import breaks, capture, check_lines


class Sink:
    def __init__(self):
        self.parts = []

    def write(self, text):
        self.parts.append(text)


class Upper(io.StringIO):
    def write(self, text):
        return super().write(text.upper())


NAMES = {"io": io, "contextlib": contextlib, "sys": sys, "Sink": Sink, "Upper": Upper}


def test_methods():
    check_lines(
        """
        f = io.StringIO(); n = f.write("a\\nb"); f.writelines(["c", "d"]); n, f.getvalue(), f.tell(), f.closed, f.readable()
        f = io.StringIO("one\\ntwo\\n"); f.readline(), f.read(1), list(f), f.seek(0), f.readlines(), f.read()
        f = io.StringIO("abc"); f.seek(1); f.truncate(); f.getvalue()
        f = io.BytesIO(b"a\\nb"); f.read(1), f.getvalue(), [*f], f.write(b"x"), f.getvalue()
        f = io.StringIO(); f.writelines(str(i) for i in range(3)); f.getvalue()
        with io.StringIO() as f: f.write("x"); r = f.getvalue()
        f = io.StringIO(); f.close(); f.write("x")
        io.StringIO().write(5)
        io.StringIO(5)
        io.BytesIO("a")
        f = io.StringIO(newline="\\r\\n"); f.write("a\\nb"); f.getvalue()
        """,
        names=NAMES,
        z=1,
    )


def test_print():
    check_lines(
        """
        f = io.StringIO(); print(1, "a", [2], file=f); print(file=f); print("x", "y", sep="-", end="!", file=f, flush=True); f.getvalue()
        f = Sink(); print(1, z, file=f); f.parts
        f = Upper(); print("a", file=f); f.getvalue()
        print(1, sep=5, file=io.StringIO())
        print(1, file=5)
        """,
        names=NAMES,
        z=1,
        fullgraph=False,
    )
    breaks("print(end='')", "call-print", names=NAMES, z=1)


def test_redirected_output():
    def program(x):
        out = io.StringIO()
        before = sys.stdout
        sys.stdout = out
        try:
            print("text", x)
        finally:
            sys.stdout = before
        return out.getvalue()

    with config.patch(capture_pure_python=True, debug=True):
        assert capture(program, fullgraph=False)(5) == "text 5\n"


def test_a_file_leaves():
    def program(x):
        f = io.StringIO("abcdef")
        f.read(x)
        f.note = x
        g = io.BytesIO(b"ab")
        g.close()
        return f, g

    with config.patch(capture_pure_python=True, debug=True):
        f, g = capture(program)(2)
    assert type(f) is io.StringIO and f.read() == "cdef" and f.note == 2
    assert g.closed


def test_a_file_from_outside():
    def program(g):
        g.write("x")
        print("y", file=g)
        return g.getvalue(), g.closed

    with config.patch(capture_pure_python=True, debug=True):
        assert capture(program, fullgraph=False)(io.StringIO()) == program(io.StringIO())
