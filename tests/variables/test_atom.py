"""Instances of subclasses of int, float, complex, str and bytes, and conversions that call methods of user classes."""

import enum
import math
import operator
import re
import struct

import pytest

from tests.helpers.capturing import wrapped
from tests.helpers.differential import breaks, check, check_lines


class I(int):
    pass


class Loud(int):
    def __repr__(self):
        return "Loud!"

    def __index__(self):
        return 3

    def __add__(self, other):
        return ("added", int(self), other)

    def __radd__(self, other):
        return ("radded", other)


class Made(int):
    def __new__(cls, a, b=1):
        self = super().__new__(cls, a * b)
        self.extra = a
        return self

    def double(self):
        return type(self)(self, 2)


class F(float):
    def __float__(self):
        return 0.5


class S(str):
    def shout(self):
        return self.upper() + "!"


class Eq(str):
    def __eq__(self, other):
        return True

    __hash__ = str.__hash__


class B(bytes):
    pass


class C(complex):
    pass


class Num:
    def __init__(self, v):
        self.v = v

    def __int__(self):
        return self.v

    def __index__(self):
        return self.v + 1

    def __float__(self):
        return self.v + 0.25

    def __complex__(self):
        return complex(self.v, 1)

    def __ceil__(self):
        return "ceil"

    def __floor__(self):
        return [self.v]

    def __trunc__(self):
        return "trunc"

    def __round__(self, n=None):
        return ("round", n)

    def __bytes__(self):
        return b"num"


class Sub:
    def __int__(self):
        return True


class Bad:
    def __int__(self):
        return "1"

    __float__ = __index__ = __complex__ = __bytes__ = __int__


class Raises:
    def __float__(self):
        raise KeyError("no number")

    __int__ = __index__ = __getitem__ = __float__


class Table:
    def __getitem__(self, key):
        if key == 97:
            raise LookupError
        return "<" + chr(key) + ">"


NAMES = {c.__name__: c for c in (I, Loud, Made, F, S, Eq, B, C, Num, Sub, Bad, Raises, Table)}


def test_numbers():
    check_lines(
        """
        I(5), type(I(5)).__name__, I(5) + 2, 2 + I(5), I(5) * I(2), type(I(5) + I(2)), -I(5), abs(I(-5)), ~I(1), divmod(I(7), 2)
        5.0 == I(5), I(5) == 5.0, I(5) == "a", 5.0 + I(3), I(3) + 5.0, 1j + I(3), I(3) < 4.5, 4.5 > I(3), I(2) ** 3, 2 ** I(3)
        pow(I(2), 5, 7), pow(2, I(5), I(7)), I(9) % 4, 9 % I(4), I(9) // 2, I(9) / 2, I(1) << 3, 1 << I(3), I(6) & 3, 6 | I(1)
        bool(I(0)), bool(I(1)), not I(0), [1, 2, 3][I(1)], "abc"[I(1)], [1, 2, 3][:I(2)], range(I(3)), [0] * I(2), "a" * I(3)
        hash(I(5)) == 5, {5: "a"}[I(5)], {I(5): "a"}[5], {I(1), 1, I(1)}, I(5) in {5}, 5 in [I(5)], sorted([I(3), I(1), 2])
        str(I(5)), repr(I(5)), f"{I(5):>4}", "%d %s" % (I(5), I(6)), "{:x}".format(I(255)), hex(I(255)), bin(I(3)), oct(I(8))
        I(5).bit_length(), I(5).real, I(5).imag, I(5).numerator, I(5).conjugate(), type(I(5).real), I(5).to_bytes(2, "big")
        I.from_bytes(b"ab", "big"), type(I.from_bytes(b"a", "big")).__name__, I("12", base=8), I(), int(I(7)), type(int(I(7)))
        isinstance(I(5), int), isinstance(I(5), I), round(I(55), -1), math.sqrt(I(4)), math.gcd(I(4), 6), sum([I(1), I(2)])
        Made(3, 4), Made(3, 4).extra, Made(3).double(), type(Made(3).double()).__name__, Made(3).__dict__
        C(1, 2), C(1, 2) * 2, C(1, 2).real, abs(C(3, 4)), complex(C(1, 2)), C("1+2j").conjugate()
        I("x")
        I(5).x
        I(5)("a")
        len(I(5))
        int.__add__(I(1), 2), int.__add__(1, "a"), int.__eq__(I(1), [])
        """,
        names=NAMES,
        z=1,
    )
    check_lines(
        """
        Loud(5) + 1, 1 + Loud(5), Loud(5) * 2, repr(Loud(5)), str(Loud(5)), [Loud(5)], "%s %d" % (Loud(5), Loud(5)), f"{Loud(5)}"
        [1, 2, 3, 4][Loud(0)], hex(Loud(17)), operator.index(Loud(1)), int(Loud(5)), range(10)[Loud(1)]
        F(2.0) + 1, 1.0 + F(2.0), math.sqrt(F(4.0)), float(F(2.0)), F(1.5).is_integer(), F.fromhex("0x1p3"), F(2.5).hex(), F("nan")
        """,
        names=NAMES,
        z=1,
        fullgraph=False,
    )


def test_texts():
    check_lines(
        """
        S("abc"), S("abc").upper(), type(S("abc").upper()), S("abc").shout(), S("abc") + "d", "d" + S("abc"), S("a") * 2, 2 * S("a")
        S("abc")[1], S("abc")[::-1], len(S("abc")), "b" in S("abc"), S("b") in "abc", list(S("abc")), S("abc") == "abc", "abc" == S("abc")
        {S("a"): 1}["a"], {"a": 1}[S("a")], hash(S("a")) == hash("a"), {S("a"), "a"}, S("a") < "b", "b" > S("a"), max(S("a"), "b")
        ",".join([S("a"), "b"]), S(",").join(["a", "b"]), S("a b").split(), S("%s-%s") % (1, S("x")), "%s" % S("x"), S("{}").format(5)
        f"{S('a')}", f"{S('a')!r:>6}", format(S("a"), "3"), str(S("a")), type(str(S("a"))), repr(S("a")), "a".replace(S("a"), S("b"))
        S("abc").startswith(S("a")), "abc".find(S("c")), S("abc").translate({97: "x"}), S("abc").encode(), getattr(z, S("real"))
        S(b"abc", "ascii"), S(5), S(object=5), S(), isinstance(S("a"), str), S("a").isalpha(), int(S("12")), float(S("1.5"))
        Eq("a") == "b", "b" == Eq("a"), Eq("a") in ["z"], {Eq("a"): 1}.get("a")
        B(b"abc"), B(b"abc")[0], B(b"abc") + b"d", b"d" + B(b"abc"), B(b"a").join([b"1", B(b"2")]), list(B(b"ab")), bytes(B(b"x"))
        5 + S("abc")
        """,
        names=NAMES,
        z=1,
    )
    check_lines(
        """
        B([1, 2]), B(3), B(Num(1)), B("é", "utf-8"), type(B.fromhex("00ff")).__name__, B(b"abc").hex(), B(b"ab") in b"xabx"
        S("abc") + 5
        "abc" + B(b"a")
        S("abc")["a"]
        S("abc").index("z")
        "abc".translate(Table()), "bbb".translate(Table()), "b".translate({98: "x", 1: z})
        """,
        names=NAMES,
        z=1,
        fullgraph=False,
    )


def test_methods_that_return_the_object_itself():
    check_lines(
        """
        s = S("ab"); return type(s), s.format() is s, s.format(1, a=2) is s, s % () is s, s % {} is s, s.__mod__([]) is s
        type(S("").format()), type(S("") % ()), type(S("a%%") % ()), type(S("a}}").format()), type(S("{}").format("{}"))
        s = S("ab"); return s.partition("x")[0] is s, s.rpartition("x")[2] is s, list(map(type, S("").partition("x")))
        s = S("-"); return "a-b".partition(s)[1] is s, list(map(type, "--".partition(s))), list(map(type, "a".rpartition(s)))
        b = B(b"ab"); return b.partition(b"x")[0] is b, b"abc".rpartition(b)[1] is b, type(b % ())
        s = "ab"; return s.format() is s, s % () is s
        S("ab") % 1
        """,
        names=NAMES,
    )


def test_conversions():
    check_lines(
        """
        int(Bad())
        float(Bad())
        operator.index(Bad())
        hex(Bad())
        int(Raises())
        float(Raises())
        int(object())
        float(object())
        int([])
        int("x", 5)
        round(object())
        str(b"abc", "ascii"), str(object=5), str(b"a", errors="strict"), str(), str(5), bytes(), int(), float(), complex()
        str(5, 6)
        int(5, 6)
        """,
        names=NAMES,
        z=1,
    )
    check_lines(
        """
        int(Num(3)), float(Num(3)), complex(Num(3)), operator.index(Num(3)), bytes(Num(3)), hex(Num(3)), chr(Num(64)), [5, 6, 7][Num(1)]
        math.ceil(Num(3)), math.floor(Num(3)), math.trunc(Num(3)), round(Num(3)), round(Num(3), 2), math.sqrt(Num(4)), math.gcd(Num(3), 8)
        "%d %i %f %x" % (Num(3), Num(3), Num(3), Num(3)), "abc"[Num(0)], pow(2, 3, 5), bytes([Num(3), 4]), b"ab".find(Num(96))
        math.atan2(Num(1), 2), math.isnan(Num(1)), complex(1, Num(2)), math.ldexp(1.5, Num(2)), (5).to_bytes(Num(1), "big")
        complex(Bad())
        bytes(Bad())
        math.sqrt(Bad())
        math.floor(Raises())
        "abc".translate(Raises())
        int("12", Num(7))
        math.floor(object())
        "%d" % object()
        bytes(object())
        """,
        names=NAMES,
        z=1,
        fullgraph=False,
    )


def test_a_warning_is_not_swallowed():
    breaks("int(Sub())", "call-print", names=NAMES)


def test_from_outside():
    check_lines(
        """
        i + 1, i, s + "x", s.upper(), f + 1, m.extra, m * 2, d[s], {s: 1}, b[0], c.real, s, type(s)
        i == 5, s == "abc", [1, 2, 3, 4, 5, 6][i], s in d, hash(s) == hash("abc"), str(i), repr(s), f"{i:03}"
        """,
        names=NAMES,
        i=I(5),
        s=S("abc"),
        f=F(1.5),
        m=Made(3, 4),
        d={"abc": 1},
        b=B(b"ab"),
        c=C(1, 2),
    )


def test_as_keywords():
    check("(lambda k, **kw: (k, [type(n) for n in kw]))(**{S('k'): 2, S('n'): 3})", names=NAMES, fullgraph=False, z=1)


def test_in_c_functions():
    check_lines(
        """
        struct.pack("<i", I(5)), struct.unpack("<d", struct.pack("<d", 1.5))
        struct.pack("i", "a")
        struct.pack("q")
        """,
        names={**NAMES, "struct": struct, "match": re.compile("a").match},
        z=1,
    )
    check_lines(
        """
        struct.pack("b", Num(3)), struct.calcsize("ii"), match("ab").group()
        """,
        names={**NAMES, "struct": struct, "match": re.compile("a").match},
        z=1,
        fullgraph=False,
    )


def test_functions_of_iterables():
    check_lines(
        """
        math.fsum(5)
        math.fsum(["a"])
        math.dist((1,), (1, 2))
        math.dist(5, 6)
        math.fsum()
        """,
        names=NAMES,
        z=1,
    )
    check_lines(
        """
        math.fsum([0.1] * 10), math.fsum(i for i in (1, 2.5)), math.fsum([I(1), F(2.0)]), math.fsum(()), math.dist((1, 2), (4, 6))
        math.dist([1, I(2)], (Num(4), 6)), math.prod([I(2), 3]), math.hypot(Num(3), 4)
        """,
        names=NAMES,
        z=1,
        fullgraph=False,
    )


class Perm(enum.IntFlag):
    R = 1
    W = 2
    X = 4


class Priced(int):
    def __format__(self, spec):
        return "priced"

    def __add__(self, other):
        return 5

    def __len__(self):
        return 7


class Worded(str):
    def __add__(self, other):
        return "other"

    def __str__(self):
        return "word"


class Own(int):
    def __int__(self):
        return 9


class Real(float):
    def __float__(self):
        return 9.0


def test_conversions_ignore_other_special_methods():
    check_lines(
        """
        int(Perm(3)), int(~Perm.W), int(Perm.R | Perm.X), float(Perm(7)), complex(Perm(5)), bytes(Perm(3)), math.sqrt(Perm(6))
        int(Priced(3)), float(Priced(3)), complex(Priced(3), Priced(2)), bytes(Priced(3)), chr(Priced(65))
        bin(Priced(6)), math.gcd(Priced(4), 6), ord(Worded("a"))
        int(Worded("12")), float(Worded("1.5")), int(Worded("12"), Priced(8)), complex(Worded("1j")), bytes(Worded("a"), "utf8")
        int(Own(3)), float(Own(3)), float(Real(3)), int(Real(3.5))
        """,
        names={**NAMES, **globals()},
    )
    check(
        "complex(Real(3))",
        "math.floor(Real(3))",
        "math.prod([Priced(3)])",
        names={**NAMES, **globals()},
        fullgraph=False,
    )


def test_the_object_that_is_formatted_has_a_text_of_its_own():
    check(
        "'%s' % Worded('a')",
        "Worded('%s') % Worded('a')",
        "'%s' % (Worded('a'),)",
        "Worded('a').__rmod__('%s')",
        names=globals(),
        fullgraph=False,
    )


CONVERSIONS = {
    "__int__": (lambda: int(Late(3)), lambda self: 9, 9),
    "__float__": (lambda: math.sqrt(Late(4)), lambda self: 81.0, 9.0),
    "__format__": (lambda: str.format("{}", Late(3)), lambda self, spec: "late", "late"),
    "__str__": (lambda: operator.mod("%s", Late(3)), lambda self: "late", "late"),
}


class Late(int):
    pass


@pytest.mark.usefixtures("pure_python")
@pytest.mark.parametrize("name", CONVERSIONS)
def test_a_conversion_that_appears_and_goes(name):
    program, method, expected = CONVERSIONS[name]
    fn = wrapped(program)
    before = program()
    assert fn() == before
    setattr(Late, name, method)
    try:
        assert fn() == wrapped(program)() == expected != before
    finally:
        delattr(Late, name)
    assert fn() == before


class Mixed:
    def __float__(self):
        return 7.5

    def __int__(self):
        return 42

    def __index__(self):
        return 3

    def __complex__(self):
        return 1 + 2j

    def __str__(self):
        return "mixed"

    def __bool__(self):
        return False

    def __len__(self):
        return 5

    def __floor__(self):
        return "floor"

    def __rmul__(self, other):
        return "multiplied"


class MixedFloat(float, Mixed):
    pass


class FloatMixed(Mixed, float):
    pass


class MixedInt(int, Mixed):
    pass


class MixedText(str, Mixed):
    pass


class MixedBytes(bytes, Mixed):
    pass


class MixedList(list, Mixed):
    pass


def test_a_class_behind_the_builtin_one_gives_what_that_lacks():
    check_lines(
        """
        float(MixedFloat(1.5)), int(MixedFloat(1.5)), bool(MixedFloat(1.5)), str(MixedFloat(1.5)), len(MixedFloat(1.5))
        operator.index(MixedFloat(1.5)), [1, 2, 3, 4][MixedFloat(1.5)]
        float(MixedInt(2)), int(MixedInt(2)), operator.index(MixedInt(2)), bool(MixedInt(0)), bool(MixedInt(1))
        float(MixedText("12")), int(MixedText("12")), float(MixedBytes(b"3")), int(MixedBytes(b"3"))
        float(FloatMixed(1.5)), bool(FloatMixed(1.5)), len(FloatMixed(1.5))
        "%s" % str(MixedInt(2)), MixedList([1]) * 2, 2 * MixedText("ab"), 2.0 * MixedFloat(1.5)
        """,
        names=globals(),
    )
    check(
        "complex(MixedFloat(1.5))",
        "math.sqrt(MixedFloat(4.0)), math.sqrt(FloatMixed(4.0))",
        "math.floor(MixedFloat(1.5)), math.floor(FloatMixed(1.5)), 2.0 * FloatMixed(1.5), f'{FloatMixed(1.5)}'",
        "complex(MixedInt(2), 1)",
        "f'{MixedFloat(1.5)}', f'{MixedInt(2)}'",
        "'ab' * MixedText('ab')",
        "[1] * MixedList([1])",
        names=globals(),
        fullgraph=False,
    )
