"""bytearray: it has no model, so each use of one breaks the graph; the results are those of eager execution."""

import pytest

from dynamo_lite.config import config
from tests.helpers.differential import breaks, capture, check, check_lines


class B(bytearray):
    def twice(self):
        return self + self


class Index:
    def __index__(self):
        return 98


NAMES = {"B": B, "Index": Index}


def test_reading():
    check_lines(
        """
        b[0], b[-1], b[1:3], b[::-1], len(b), bool(b), list(b), 97 in b
        b"b" in b, b == b"abc", b"abc" == b, b < b"b", b != bytearray(b"abc")
        b + b"d", b"d" + b, b * 2, 2 * b, type(b + b""), type(b"" + b)
        repr(b), str(b), f"{b}", "%s" % b, b"%s" % b, bytearray(b"%d") % 5
        b.upper(), b.find(b"c"), b.hex(), b.decode(), b.split(b"b")
        b.replace(b"a", b"xx"), b.startswith(b"a"), b.count(97), b.copy(), b.join([b"1", b"2"])
        bytes(b), bytearray(b), bytearray(3), bytearray([1, 2]), bytearray("é", "utf-8")
        bytearray(i for i in range(3)), bytearray(), bytearray(Index())
        int(bytearray(b"12")), float(bytearray(b"1.5")), str(b, "ascii")
        b"".join([b, b"x"]), bytearray.fromhex("00ff"), max(b), sorted(b), [*reversed(b)]
        bytearray.maketrans(b"a", b"b"), b.translate(None, b"a")
        b.partition(b"b"), b.title(), b.isalpha(), b.zfill(5), b.strip(b"a")
        b[5]
        b["a"]
        b + "x"
        b + 5
        hash(b)
        {b: 1}
        b.index(b"z")
        b.nothing
        bytearray("x")
        bytearray(-1)
        bytearray([300])
        b < 5
        """,
        names=NAMES,
        fullgraph=False,
        b=bytearray(b"abc"),
    )


def test_changes():
    check_lines(
        """
        b.append(100); b.extend(b"ef"); b.extend([1, 2]); b.extend(i for i in range(2)); b
        b[0] = 65; b[1:2] = b"xyz"; del b[-1]; b[::2] = b"12"; b
        b += b"def"; c = b; c *= 2; b is c, b
        b.insert(1, 7), b.pop(), b.pop(0), b.remove(98), b
        b.reverse(); b.clear(); b
        b.__init__(b"new"); b
        b[Index() - 98 if False else 0] = Index(); b
        b[0] = 300
        b[0] = "a"
        b[9] = 1
        b.append(256)
        b.append("a")
        b.remove(5)
        bytearray().pop()
        b[0:2] = "ab"
        c = bytearray(b); c.append(1); b, c
        x = iter(b); next(x); b.append(1); list(x), list(x)
        """,
        names=NAMES,
        fullgraph=False,
        b=bytearray(b"abc"),
    )


@pytest.mark.parametrize("text", ["b'd' + m", "b'%s' % m", "b''.join([m])", "bytes(m)", "m[0]", "b'a' in m", "int(m)"])
def test_other_objects_with_a_buffer(text):
    check(text, fullgraph=False, b=b"12", names={"m": memoryview(b"12")})


@pytest.mark.parametrize(
    "text", ["bytearray(b'a')", "b[0]", "b.append(1)", "len(b)", "bool(b)", "b == b'a'", "[*b]", "b + b'a'"]
)
def test_each_use_breaks(text):
    breaks(text, "call-c-function", b=bytearray(b"abc"))


def test_subclasses():
    check_lines(
        """
        B(b"ab"), type(B(b"ab").twice()), B(b"ab").twice()
        type(B(b"a").upper()), repr(B(b"a")), len(B(b"abc")), B(b"a") == b"a", B()
        x = B(b"ab"); x.note = 5; x.append(1); x[0] = 2; x, x.note
        s.append(1); s.note = 3; s += b"z"; s, s.note, s.twice()
        """,
        names=NAMES,
        fullgraph=False,
        s=B(b"xy"),
    )


def test_across_a_break():
    check(
        """
        c = bytearray(b"new")
        it = iter(c)
        next(it)
        b.append(1)
        print(end="")
        b.append(2)
        c += b"!"
        b, c, bytes(it)
        """,
        fullgraph=False,
        b=bytearray(b"abc"),
    )


def test_contents_are_guarded_when_used():
    calls = []

    def program(b):
        return b[0]

    with config.patch(capture_pure_python=True, debug=True):
        captured = capture(program, fullgraph=False)
        for value in (b"a", b"b", b"a"):
            calls.append(captured(bytearray(value)))
    assert calls == [97, 98, 97]


@pytest.mark.usefixtures("pure_python")
def test_bytes_of_a_number_that_varies():
    def program(n):
        try:
            return bytes(n), bytearray(n)
        except TypeError as error:
            return repr(error)

    fn = capture(program, fullgraph=False)
    assert [fn(n) for n in (1, 2, 3)] == [program(n) for n in (1, 2, 3)]


@pytest.mark.usefixtures("pure_python")
def test_bytes_of_an_object_that_says_what_they_are():
    class Both:
        def __bytes__(self):
            return b"own"

        def __index__(self):
            return 3

    assert capture(lambda: (bytes(Both()), bytearray(Both())), fullgraph=False)() == (b"own", bytearray(3))
