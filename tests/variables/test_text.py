"""str and bytes: methods, formatting, `%`, f-strings, join with objects that are no constants."""

import collections
import sys

import pytest

from tests.helpers.capturing import same, stop, wrapped
from tests.helpers.differential import check_lines


class Name:
    def __init__(self, text):
        self.text = text

    def __str__(self):
        return f"<{self.text}>"

    def __repr__(self):
        return f"Name({self.text!r})"

    def __format__(self, spec):
        return f"{self.text}:{spec}"


class Plain:
    def __repr__(self):
        return "plain"


class Index:
    def __index__(self):
        return 2

    def __int__(self):
        return 7

    def __float__(self):
        return 1.5


class BadRepr:
    def __repr__(self):
        return 5


class Raises:
    def __str__(self):
        raise KeyError("no text")


NAMES = {c.__name__: c for c in (Name, Plain, Index, BadRepr, Raises)}


def test_methods():
    check_lines(
        """
        s.upper(), s.split(), s.split(","), s.strip("h"), s.replace("l", "L"), s.find("l"), s.rfind("l")
        s.count("l"), s.title(), s.swapcase()
        s.startswith("he"), s.startswith(("x", "he")), s.endswith("d"), s.isalpha(), s.isdigit(), s.islower()
        s.isidentifier(), s.center(15, "*")
        s.partition(" "), s.rpartition("o"), s.rsplit(" ", 1), s.splitlines(), s.zfill(15), s.ljust(12), s.rjust(12)
        s.expandtabs(), s.casefold()
        s.encode(), s.encode("utf-16"), s.removeprefix("he"), s.removesuffix("ld"), s.index("o"), s.rindex("o")
        s.capitalize(), s.lstrip("h")
        s.index("z")
        s.split("")
        s.replace(1, 2)
        s.nothing
        s.x = 1
        s[0], s[-1], s[1:3], s[::-1], s[:], s[100:], s[True]
        s[100]
        s["a"]
        s[[]]
        s[1.5]
        s[0] = "x"
        len(s), bool(s), "ell" in s, "z" in s, s == "hello world", s != "a", s < "i", s >= "a", s == 5, s + "!"
        s * 2, 2 * s, s * 0
        5 in s
        [] in s
        s + 5
        s + []
        5 + s
        s * "a"
        s * 1.5
        s - "a"
        s < 5
        -s
        hash(s) == hash("hello world"), {s: 1}["hello world"], list(s), tuple(s[:2]), set(s[:1]), sorted(s), max(s)
        iter(s), reversed(s[:2])
        s(), 1
        str(s) is s, repr(s), str(b"ab", "ascii"), str(), str(5), str(None), str([1, "a"]), str(object=1.5)
        str({1: (2,)})
        ord("a"), chr(97), ascii("é"), ascii(["é"]), repr("it's"), s.maketrans("ab", "cd")
        ord("ab")
        s.join(["a", "b"]), ",".join("abc"), ",".join(x for x in "ab"), ",".join(map(str, [1, 2])), "".join([])
        ",".join({"a": 1}), "-".join(("a",))
        ",".join([1])
        ",".join(["a", []])
        ",".join(5)
        s.__len__(), s.__add__("x"), s.__contains__("h"), s.__getitem__(0), s.__eq__("a"), s.__mul__(2)
        s.__hash__() == hash(s), s.__mod__(()), s.__iter__().__next__()
        str.upper(s), str.join("-", ["a", "b"]), str.__len__(s), isinstance(s, str), type(s), s.__class__
        "".__doc__ == str.__doc__
        int("12"), float("1.5"), int("ff", 16), int("0b1", 0), bool("x"), complex("1+2j"), bytes("a", "ascii")
        int("x")
        float("x")
        int("1", base=99)
        "a" "b", "a" if s else "b", s and 1, s or 2, not s, s is s
        """,
        s="hello world",
    )


def failed(call, items):
    try:
        return call()
    except Exception as error:
        return type(error), error.args, list(items)


class NoIterator:
    def __iter__(self):
        return 3


def test_bytes():
    check_lines(
        """
        b[0], b[1:], b + b"x", b * 2, len(b), 97 in b, b"a" in b, list(b), b.decode(), b.upper(), b.split(b"b")
        b == b"abc", b < b"b", repr(b), hash(b) == hash(b"abc")
        b["a"]
        b[5]
        b + "a"
        "a" in b
        b.hex(), bytes.fromhex("6162"), b.find(b"c"), b"-".join([b"a", b"b"]), b"%d" % 5, bytes([1, 2]), bytes(3)
        bytes(), bytes(b), int.from_bytes(b, "big"), (5).to_bytes(2, "big")
        bytes([300])
        b"".join(["a"])
        bytes("a")
        i = iter([1, 300, 2]); failed(lambda: bytes(v for v in i), i)
        i = iter([1, "a", 2]); failed(lambda: bytes(i), i)
        i = iter([1, -1, 2]); failed(lambda: bytes(i), i)
        i = iter([1, 1 << 70, 2]); failed(lambda: bytes(i), i)
        bytes(v for v in (1, True)), bytes({3: 4}), bytes(range(3))
        bytes(1.5)
        bytes(NoIterator())
        [x for x in b], b.x if hasattr(b, "x") else 0, str(b), f"{b}", "%s" % b
        """,
        {"failed": failed, "NoIterator": NoIterator},
        b=b"abc",
    )


def test_methods_that_break():
    check_lines(
        """
        "abc".translate("abc".maketrans({"a": "1"}))
        "{a} {b}".format_map({"a": 1, "b": n})
        "{c}".format_map({"a": 1})
        """,
        NAMES,
        fullgraph=False,
        n=[1],
    )


def test_formatting():
    check_lines(
        """
        "%s %d %r %.2f %x %%" % ("a", 5, "b", 1.5, 255), "%s" % 5, "%5s|%-5s|" % ("a", "b")
        "%(a)s %(b)d" % {"a": 1, "b": 2}, "%s" % None
        "%s" % [1, 2], "%s %s" % ([1], {2: 3}), "%r" % ((1, 2),), "%s" % {1: 2}, "%s" % ((),), "abc" % []
        "%d" % "a"
        "%d" % [1]
        "%s %s" % "a"
        "%s" % ("a", "b")
        "abc" % 5
        "%(a)s" % [1]
        "%z" % 5
        "%d %s %f %x" % (i, i, i, i) if False else "%d" % 5
        "{} {} {0!r}".format(1, 2) if False else "{} {}".format(1, [2])
        "{}".format()
        "{a}".format()
        "{0[9]}".format([1])
        f"{n} {n!r} {n:x} {[n]} {p}"
        f"{1} {'a'!r:>5} {n} {n!s} {n!r} {(n, 1)} {p!s:>7}|{1.5:.3f} {255:#x} {True} {None}"
        f"{1:>4}{'a'!r:<5}{1.5:.3f}{255:#x}{True}{None}{[1, 'a']!s:>12}{ {1: 2} }{(1,)!r}{1 + 1 = }"
        f"{[1]:>5}"
        f"{None:5}"
        f"{'a':d}"
        f"{p:5}"
        format(5, "x"), format("a", ">3"), format(n, "q"), format([1]), format(n), format(1.5), format(p, "")
        format([1], "5")
        format(5, 5)
        str(n), repr(n), str([n]), repr((n,)), str({1: n}), str({n}), repr(p), str(p), ascii(n), print and str(n)
        str(BadRepr())
        str(Raises())
        f"{Raises()}"
        repr(KeyError("k", 1)), str(KeyError("k"))
        str(type(n)), repr([int, str]), str(...), str(NotImplemented), str(1j), str(range(3)), repr(slice(1)), str(b"x")
        """,
        NAMES,
        n=Name("x"),
        p=Plain(),
        i=Index(),
    )
    check_lines(
        """
        "%s %s" % (n, [n]), "%r" % n, "%s" % p
        "%d" % n
        "abc" % n
        "{0} {1} {0!r}".format("a", n), "{x:>5}|{y.text}|{z[0]}|{w[k]}".format(x=1, y=n, z=[7], w={"k": 8})
        "{:>{}}".format("a", 5), "{!s:^9}".format(n), "{}".format(n)
        "{0.nothing}".format(n)
        "%s" % Raises()
        "{}".format(Raises())
        "%s" % (lambda: 1).__name__, str(int), repr(list), f"{str}", "%s" % ValueError, str(ValueError("a"))
        """,
        NAMES,
        n=Name("x"),
        p=Plain(),
        i=Index(),
        fullgraph=False,
    )


class TestDeepTexts:
    @pytest.mark.parametrize("wrap", [lambda x: [x], lambda x: {1: x}, lambda x: {1: x}.values(), lambda x: (x,)])
    @pytest.mark.parametrize("depth", [50, 500, 100_000])
    def test_repr(self, wrap, depth):
        def program():
            nested = []
            for _ in range(min(depth, sys.getrecursionlimit() + 50)):
                nested = wrap(nested)
            try:
                return len(repr(nested))
            except RecursionError:
                return "too deep"

        same(program)


@pytest.mark.usefixtures("pure_python")
def test_a_format_of_names_requires_a_mapping():
    P = collections.namedtuple("P", "a b")
    with pytest.raises(TypeError, match="format requires a mapping"):
        wrapped(lambda x: "%(a)s" % x)(P)  # noqa: UP031


@pytest.mark.usefixtures("pure_python")
def test_iterator_over_a_subclass_of_str():
    S = type("S", (str,), {})
    assert type(wrapped(lambda x: x.__iter__())(S("ab"))) is type(iter(S("ab")))


@pytest.mark.parametrize("text", ["xyzpdq", "two words", "q"])
def test_which_of_two_equal_texts_behind_a_break(text):
    half = len(text) // 2

    def program():
        first = "xyzpdq"
        built = text[:half] + text[half:]
        literal = first[:3] + first[3:]
        stop()
        return built is text, literal is first, first is first, built, literal

    same(program)
