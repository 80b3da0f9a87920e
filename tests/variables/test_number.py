"""Numbers, None and other constants."""

import fractions
import math
import re
import struct

import pytest

from tests.helpers.capturing import wrapped
from tests.helpers.differential import check, check_lines


class Index:
    def __init__(self, n=2):
        self.n = n

    def __index__(self):
        return self.n


class Int:
    def __int__(self):
        return 7


class BadInt:
    def __int__(self):
        return "a"


class Float:
    def __float__(self):
        return 2.5


class BadFloat:
    def __float__(self):
        return 2


class Number:
    def __add__(self, other):
        return ("add", other)

    def __radd__(self, other):
        return ("radd", other)

    def __rpow__(self, other):
        return ("rpow", other)

    def __round__(self, n=None):
        return ("round", n)

    def __neg__(self):
        return "neg"

    def __abs__(self):
        return "abs"

    def __bool__(self):
        return False

    def __divmod__(self, other):
        return "divmod"

    def __eq__(self, other):
        return other == 1

    def __lt__(self, other):
        return "lt"


NAMES = {c.__name__: c for c in (Index, Int, BadInt, Float, BadFloat, Number)}


def test_arithmetic():
    check_lines(
        """
        i + 1, i - 2.5, i * 3, i / 2, i // 2, i % 2, i ** 2, -i, +i, ~i, abs(-i), i << 2, i >> 1, i & 3, i | 8
        i ^ 1, divmod(i, 2), pow(i, 2), pow(i, 2, 3), i ** -1
        f + 1, f * 2, f / 3, f // 1, f % 1, f ** 2, -f, abs(-f), divmod(f, 1), round(f), round(f, 1), int(f)
        f.is_integer(), f.hex(), f.as_integer_ratio(), float.fromhex("0x1p3")
        i / 0
        f % 0
        1 << -1
        i + "a"
        i @ i
        ~f
        i << 1.5
        i < "a"
        i < None
        None + 1
        -None
        i == "5", i != None, i == 5.0, True == 1, i is i, None is None, None == 0, i > 2, 1 < i < 10, 1j == 1j
        1 + 2j, (1 + 2j).real, (3).imag, (1j).conjugate()
        1j < 2
        bool(i), bool(0), bool(0.0), bool(None), not i, bool(""), bool(...), int(), float(), bool(), complex()
        int(True), float(3), int("5"), complex(1, 2), int(-1.9)
        int(None)
        int([])
        float([])
        float(None)
        int("5", 16), int(b"5"), int(" 5 "), float("inf"), float("-nan") != 0, float(" 1e3 ")
        int(5, 10)
        int(float("nan"))
        int(float("inf"))
        i.bit_length(), i.bit_count(), (255).to_bytes(1, "big"), i.numerator, i.denominator, i.real, i.__add__(1)
        i.__radd__(1), i.__eq__("a"), i.__lt__(9), i.__bool__(), i.__index__(), i.__float__()
        i.__round__(-1), round(15, -1), round(2.5), round(-1.5), round(1.25, 1), round(number=1.7), round(True)
        f.__trunc__(), math.trunc(f), math.floor(f), math.ceil(f)
        round("a")
        round([])
        round(1.5, "a")
        i.nothing
        i.x = 1
        i.real = 3
        i()
        i[0]
        len(i)
        list(i)
        5 in i
        a, b = i
        iter(None)
        None()
        None.x
        None[0]
        hash(i), hash(f) == hash(2.5), hash(None) == hash(None), hash(True), hash(2 ** 70), {i: 1}[5], {f: 1}[2.5]
        bin(i), hex(255), oct(8), chr(i + 60), bin(Index()), hex(Index(17)), chr(Index(65))
        bin(1.5)
        hex("a")
        chr(-1)
        math.sqrt(i), math.pi, math.gcd(i, 10), math.factorial(i), math.isnan(f), math.log(i, 2)
        math.isclose(f, 2.5), math.hypot(3, 4), math.copysign(1, -f), math.inf > i
        math.sqrt(-1)
        math.factorial(-1)
        math.sqrt("a")
        (5).__class__, type(i), isinstance(True, int), isinstance(i, (float, int)), issubclass(bool, int)
        i.__doc__ == int.__doc__, int.__name__
        x = i; x += 1; x *= 2; x -= 3; x //= 2; x **= 2; x %= 7; x <<= 1; x |= 1; x &= 7; x ^= 2; x >>= 1; return x
        2 ** 100, -7 // 2, -7 % 3, 7 % -3, 1e308 * 10, 0.1 + 0.2, 1_000, 0xff, 10 ** -2, 5 // 2.0, True + True, 3 & True
        """,
        NAMES,
        i=5,
        f=2.5,
    )


def test_conversions_of_objects():
    check_lines(
        """
        int(Index()), int(Int()), float(Float()), float(Index()), [1, 2, 3][Index(1)], "abc"[Index(1)]
        range(Index()), [0] * Index(), "a" * Index(), (1,) * Index()
        int(BadInt())
        float(BadFloat())
        float(Int())
        [1][Int()]
        range(Int())
        n + 1, 1 + n, n + n, 2 ** n, round(n), round(n, 2), -n, abs(n), bool(n), not n, divmod(n, 1), n == 1, 1 == n
        n == 2, n != 1, n < 5, 5 > n
        n - 1
        1 - n
        +n
        n > 5
        n + [], [] == n, n in [1], [1].index(n), n and 3, n or 4, 1 if n else 2
        operator.index(Index()), operator.index(5), operator.add(1, n), operator.neg(n), operator.truth(n)
        operator.not_(n), operator.abs(n), operator.pow(2, n)
        operator.index(1.5)
        operator.lt(1, 2), operator.eq(n, 1), operator.is_(n, n), operator.is_not(n, None)
        operator.contains([1], 1), operator.getitem([1, 2], 1), operator.concat([1], [2])
        operator.mod("%s", 1), operator.iadd([1], [2]), operator.matmul
        x = [1]; operator.setitem(x, 0, 5); operator.iconcat(x, [3]); operator.delitem(x, 0); return x
        operator.call(max, 1, 2)
        math.prod([1, 2, 3]), math.prod([], start=4), math.fsum([0.1] * 3), math.dist([0, 0], (3, 4))
        math.prod(x for x in [2, 3])
        sum([1, 2]), sum([[1], [2]], []), sum((1.5, 2)), sum([], 5), sum([1], start=3), sum(x for x in range(3))
        sum([n])
        sum(["a"], "")
        sum(["a"])
        sum(5)
        max(1, 2), min([3, 1]), max("ab"), max([], default=0), max([1, -5], key=abs), min((2, "b"), (1, "z"))
        max({1: 2}), max(1, 1.0), min(1, True), max([1], default=5)
        max([])
        min()
        max(5)
        max(1, "a")
        max(1, 2, default=3)
        any([0, 1]), any([]), all([1, 0]), all([]), any(x > 1 for x in [1, 2]), all(iter("ab"))
        any(5)
        abs(-3), abs(-1.5), abs(3 + 4j), divmod(7, 2), divmod(-7, 2.0)
        abs("a")
        divmod(1, 0)
        pow(2, "a")
        pow(2, 3, 0)
        """,
        NAMES,
        n=Number(),
    )


def test_arguments_too_many():
    check_lines(
        """
        float(fractions.Fraction(1, 2), 1)
        float(True, object())
        float(object(), 1)
        float(object(), x=1)
        float(x=object())
        range(1, 2, 3, object())
        """,
        {"fractions": fractions},
    )


def test_errors_of_a_module_written_in_c_are_caught_by_the_program():
    check(
        *[
            f"seen = []\ntry:\n  seen.append('before'); {call}\nexcept struct.error as e:\n  seen.append(e)\n"
            "finally:\n  seen.append('finally')\nreturn repr(seen)"
            for call in ("struct.pack('b', 300)", "struct.unpack('i', b'a')", "struct.calcsize('zz')")
        ],
        "struct.unpack_from('i', b'abcd', 4)",
        names={"struct": struct},
    )


def test_special_floats_from_outside():
    check("x == x, x != x, x in [x], [x] == [x], math.isnan(x), x > 1, max(x, 1), {x: 1}[x]", x=math.nan)
    check("x, -x, x * 0 != 0, 1 / x, str(x), x > 1e308", x=math.inf)
    check("x, 1 / (x + 1), math.copysign(1, x), x == 0, str(x)", x=-0.0)
    check("x + 1, x == y, x is None, y is None, [x][0]", x=2**80, y=None)


class TestNumbers:
    @pytest.mark.usefixtures("pure_python")
    def test_hash_of_a_nan_is_that_of_the_object(self):
        nan = float("nan")

        def program(x):
            return hash(x), {x: 1}[x]

        assert wrapped(program)(nan) == program(nan)

    @pytest.mark.usefixtures("pure_python")
    def test_truth_and_length_are_checked(self):
        def truth(x):
            return bool(x)

        def size(x):
            return len(x)

        for fn, value in (
            (truth, type("A", (), {"__bool__": lambda s: 1})()),
            (truth, type("A", (), {"__len__": lambda s: -1})()),
            (size, type("A", (), {"__len__": lambda s: "a"})()),
            (size, type("A", (), {"__len__": lambda s: 1 << 80})()),
        ):
            with pytest.raises((TypeError, ValueError, OverflowError)) as plain:
                fn(value)
            with pytest.raises(plain.type, match=re.escape(str(plain.value))):
                wrapped(fn)(value)
