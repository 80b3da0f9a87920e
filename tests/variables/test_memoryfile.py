"""Files in memory, and print to them: both break the graph."""

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


def test_results():
    check_lines(
        """
        f = io.StringIO(); n = f.write("a\\nb"); f.writelines(["c", "d"]); n, f.getvalue(), f.tell(), f.closed, f.readable()
        f = io.StringIO("one\\ntwo\\n"); f.readline(), f.read(1), list(f), f.seek(0), f.readlines(), f.read()
        f = io.BytesIO(b"a\\nb"); f.read(1), f.getvalue(), [*f], f.write(b"x"), f.getvalue()
        with io.StringIO() as f: f.write("x"); r = f.getvalue()
        f = io.StringIO(); f.close(); f.write("x")
        io.StringIO(5)
        f = io.StringIO(); print(1, "a", [2], file=f); print(file=f); print("x", "y", sep="-", end="!", file=f, flush=True); f.getvalue()
        f = Sink(); print(1, z, file=f); f.parts
        f = Upper(); print("a", file=f); f.getvalue()
        print(1, sep=5, file=io.StringIO())
        print(1, file=5)
        """,
        names=NAMES,
        fullgraph=False,
        z=1,
    )
    breaks("print(end='')", "call-print", names=NAMES, z=1)
    breaks("io.StringIO()", "call-io", names=NAMES, z=1)


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
