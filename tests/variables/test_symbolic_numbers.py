"""Numbers that are symbolic from the second value on: results and errors are those of ints. Needs no torch."""

import functools
import itertools
import math
import operator
import random

import pytest

from dynamo_lite.config import config
from tests.helpers.capturing import captured, uncaptured, wrapped
from tests.helpers.differential import program
from tests.helpers.program_texts import agrees

VALUES = (4, 2, 1, 3, 0, -1, 6)


def named_slots(a):
    return (7).__add__(a), (2).__pow__(a), a.__divmod__(3), a.__floordiv__(2.5), a.__add__("x")


def remainder(a):
    return 0 % a


def quotients(a):
    return 5 // a, 5 / a, divmod(-5, a)


def left_shift(a):
    return 1 << a


def right_shift(a):
    return 64 >> a


def with_booleans(a):
    return True > a, True + a, a & True, False | a, a ^ True, min(a, True), sum([a, True]), a == True, a is True  # noqa: E712


def identity(a):
    return a in {1: a}.values(), a is None, a in [9, a], a == "a", a != 2.0


def with_float(a):
    return a ^ 1.5


INFINITY = float("inf")


def float_quotients(a):
    return 0.3 // a, INFINITY % a, -1.5 // a


def formatted(a):
    return "%s-%d" % ("x", a), "{:>3}".format(a), f"{a:+d}", "%(a)x" % {"a": a}  # noqa: UP031, UP032


def unused_float_quotient(a):
    1.5 // a
    return 2.0 % (a + 1)


def quotient_of_infinity(a):
    return INFINITY // a


@pytest.mark.parametrize(
    "function",
    [
        named_slots,
        remainder,
        quotients,
        left_shift,
        right_shift,
        with_booleans,
        identity,
        with_float,
        float_quotients,
        quotient_of_infinity,
        unused_float_quotient,
        formatted,
    ],
)
def test_symbolic_numbers_behave_as_ints(function):
    def outcome(call, a):
        try:
            return call(a)
        except Exception as error:
            return repr(error)

    with config.patch(capture_pure_python=True, suppress_errors=False, debug=True):
        compiled = wrapped(function)
        for a in VALUES:
            assert repr(outcome(compiled, a)) == repr(outcome(function, a))


def test_guards_on_varying_numbers_are_not_captured():
    """The functions that these guards call were frames like any others: each was captured with a guard that called its equal."""
    seen = []

    @uncaptured
    def note(value):
        seen.append(value)
        return value

    def program(items, start):
        return functools.reduce(lambda x, y: note(x) + y, items, start)

    with config.patch(capture_pure_python=True, debug=True):
        captured = wrapped(program)
        for start in (3, 3, 3, 3, 3, 3, 4, 3):
            assert captured([3, 4, 5], start) == start + 12
            assert seen[-3:] == [start, start + 3, start + 7]


def test_divmod_by_a_number_that_became_symbolic():
    agrees("""
    def program(b):
        try:
            return divmod(7, b), divmod(b, 2)
        except ZeroDivisionError as error:
            return error.args
    def make_args(k):
        return [k + 1]
    """)
    agrees("""
    def program(b):
        try:
            return divmod(7, b)
        except ZeroDivisionError as error:
            return error.args
    def make_args(k):
        return [1 - k]
    """)


def test_an_int_that_varies_and_is_asked_for_itself():
    agrees("""
    def program(a):
        try:
            class K:
                k = abs(a)
            math.comb(1, a)
        except* (ValueError,) as err:
            pass
        finally:
            pass
    def make_args(k):
        return [0 - k]
    """)


@pytest.mark.parametrize(
    "expression, arguments",
    [
        ("math.gcd(a, x)", "[k, [0, 2.5, 'q'][k]]"),
        ("math.gcd(x, a)", "[k + 5, [2.5, len, 2.5][k]]"),
        ("math.comb(a + 3, x)", "[k, [0, 2.5, 'q'][k]]"),
        ("math.ldexp(a, x)", "[k + 0.5, [4, 2.5, 'q'][k]]"),
        ("round(a, x)", "[k + 0.5, [4, 2.5, 'q'][k]]"),
        ("x * a", "[0.0 - k, [7, 'q', 'q'][k]]"),
        ("operator.mul(a, x)", "[k + 0.5, [4, (), 'q'][k]]"),
        ("x[a]", "[k + 0.5, [[1], (), 'q'][k]]"),
        ("x[a:]", "[k + 0.5, [[1], (), 'q'][k]]"),
        ("range(a, x)", "[k + 0.5, 4 + k]"),
        ("'%s' % x", "[0, collections.deque([1] * k)]"),
        ("'' % x", "[0, [collections.deque(), set(), {}][k]]"),
    ],
)
def test_numbers_that_vary_where_they_are_wrong(expression, arguments):
    agrees(f"""
    def program(a, x):
        return {expression}
    def make_args(k):
        return {arguments}
    """)


OPERATIONS = """
a + b; a - b; a * b; a / b; a // b; a % b; divmod(a, b); a ** b; pow(a, b, 7); a << b; a >> b; a & b; a | b; a @ b; a < b; -a; ~a; +a
abs(a); a.__mod__(b); a.__divmod__(b); b.__rdivmod__(a); min(a, b); round(a, b); range(a, b); [1, 2][a]
operator.floordiv(a, b); operator.ixor(a, b); operator.ilshift(a, b); operator.isub(a, b); operator.imatmul(a, b); int(a); hash(a)
"""
VARYING = {
    "int": "k + 3",
    "negative": "-k - 3",
    "int zero": "k - k0",
    "float": "f + 3.0",
    "int and float": "k - 1.5",
    "float zero": "k * 1.0 - k0",
    "bool": "k > k0 - 1",
}
FIXED = "0 0.0 -0.0 False True 3 -1 -1.5 float('inf') 2+1j 'a' '%d' b'x' None [1] (1,2)".split()
PAIRS = {name: [(one, other) for other in (*VARYING.values(), *FIXED)] for name, one in VARYING.items()}
PAIRS["fixed"] = [(one, VARYING[name]) for one in FIXED for name in ("int zero", "float", "int and float")]


def every_operation(one, other):
    """A function of numbers that vary: the results and errors of all operations on two of them."""
    lines = [f"    try: found.append(({text},))\n" for text in OPERATIONS.strip().replace("\n", ";").split(";")]
    body = "    except Exception as error: found.append((type(error), error.args))\n".join([*lines, ""])
    namespace = {"operator": operator}
    exec(f"def f(k, f, k0):\n    found, a, b = [], {one}, {other}\n{body}    return found", namespace)
    return namespace["f"]


@pytest.mark.parametrize("name", PAIRS)
def test_errors_say_what_those_of_cpython_say(name):
    """The text of an error depends on the operator and on the types of both operands: it is the same whether a number varies or not."""
    with config.patch(capture_pure_python=True, suppress_errors=False, debug=True):
        for one, other in PAIRS[name]:
            function = every_operation(one, other)
            compiled = wrapped(function)
            for numbers in [(1, 1.5, 1), (2, 2.5, 2), (5, 7.5, 5), (-3, -2.5, -3)]:
                assert repr(compiled(*numbers)) == repr(function(*numbers)), (one, other, numbers)


RAISING_LATER = """
1e300 ** k; k ** 1e300; 2.5 ** (k * 300); 0 ** (2 - k); (k - 1) ** -1; f ** (k * 300); f ** 0.5; (2 - f) ** 0.5; (10 ** k) ** 1e2
math.exp(k * 300.0); math.exp(k * k0 * 300); math.pow(10.0, k * 100); math.cosh(k * 300); math.sqrt(3 - k); math.log(3.0 - k)
math.acos(k - 1); math.factorial(3 - k); math.fmod(k, 3 - k); int(k * 1e308); math.trunc(k * 1e308); math.floor(f * 1e308); round(f * 1e308)
float(10 ** (k * 100)); 10 ** (k * 100) * 1.0; 10 ** (k * 100) / 3; 1 << (3 - k); k >> (3 - k); k % (3 - k); f / (3 - k); divmod(f, 3 - k)
chr(3 - k); [1, 2, 3][k]; range(1, 9, 3 - k)[0]; len(range(1, 9, 3 - k)); [1, 2, 3][::3 - k]; pow(3, k, 3 - k); k.to_bytes(1, 'big')
(k * 100).to_bytes(1, 'big'); bytes(3 - k); bytes([k * 100])
"""
CONVERSIONS = """
bytes(f); bytearray(f); list(f); tuple(k); set(f); dict(k); complex('1', f); chr(f); hex(f); range(f); range(k, f); [1, 2][f:]; [1, 2][::f]
int.from_bytes(f, 'big'); int.from_bytes(b'a', k); '%x' % f; '%c' % f; '%*d' % (k, 3); f'{f:d}'; f'{f:x}'; f'{k:.2f}'; format(k, f)
str(f, 'utf8'); int(f, 10); int('12', k + 3); int('12', f); int(f'{k}'); int(f'{f}'); float(f'{f}'); complex(f'{k}j'); float([f]); 'a' * f
'a'.center(f); 'a'.ljust(k + 3); slice(k, f).indices(9)
"""


def one_operation(text):
    """A function of numbers that vary, that catches what an operation on them raises."""
    lines = [
        f"def f(k, f, k0):\n    try: found = {text}",
        "    except Exception as error: found = type(error), error.args",
    ]
    namespace = {"math": math}
    exec("\n".join([*lines, "    return found"]), namespace)
    return namespace["f"]


@pytest.mark.parametrize("text", f"{RAISING_LATER.strip()};{CONVERSIONS.strip()}".replace("\n", ";").split(";"))
def test_an_operation_that_raises_at_a_later_call(text):
    """An `except` of the function sees what CPython raises, with its text, and a version for numbers that raise serves no others."""
    function = one_operation(text.strip())
    calls = [(1, 1.5, 1), (2, 2.5, 2), (3, 3.5, 3), (4, 4.5, 4), (0, 0.5, 0), (-3, -2.5, -3), (9, 99.5, 9)]
    for order in (calls, calls[::-1]):
        with config.patch(capture_pure_python=True, suppress_errors=False):
            compiled = wrapped(function)
            for numbers in order:
                assert repr(compiled(*numbers)) == repr(function(*numbers)), numbers


BIG = 2**1024


def shifted(n):
    return n / 2**1100 if float(n << 1000) > 2.0 else 0


def grown(n):
    k = n**40 * 2**900
    return k / 3 if k > 5 else float(k)


@pytest.mark.parametrize(
    "function",
    [shifted, grown, lambda n: n / 7, lambda n: 12345 / n, lambda n: (float(n) == 1.0, n > 3), lambda n: n * n > 2**62],
)
def test_ints_that_64_bits_do_not_hold(function):
    """They are constants, also as results; and a version for numbers that vary serves none of them."""

    def outcome(call, n):
        try:
            return call(n)
        except (OverflowError, ZeroDivisionError) as error:
            return error.args

    with config.patch(capture_pure_python=True, suppress_errors=False, debug=True):
        for numbers in (
            (3, 5, 9, BIG, -BIG, 2**63, -(2**63), 0),
            (BIG, 3 * BIG, 1 << 20000, 2**70, 5, 6, 2**62 + 1, 2**53 + 1),
        ):
            compiled = wrapped(function)
            for n in numbers:
                assert outcome(compiled, n) == outcome(function, n), n


def of_infinities(k):
    large, infinite = k * 1e308, k * INFINITY
    return (
        large > 1.0,
        large == INFINITY,
        large - large != 0,
        large * 10 > 3,
        infinite > 0,
        infinite == infinite,
        k * math.nan > 1,
    )


@pytest.mark.parametrize("numbers", [(1, 2, 3, 0, -1, 5, 1), (3, 2, 1, 0, -1, 4), (0, 1, 2, -2, 3)])
def test_floats_that_are_infinite_for_some_ints(numbers):
    with config.patch(capture_pure_python=True, suppress_errors=False, debug=True):
        compiled = wrapped(of_infinities)
        for k in numbers:
            assert compiled(k) == of_infinities(k), k


ONE_OPERAND = """
    a // 3; a % 3; a ** 2; a << 1; a >> 1; ~a; abs(a); -a; min(a, 3); max(a, 3); round(a / 3); int(a * 0.5); a / 3; float(a)
    a & 5; a | 0; a | 6; a ^ 0; a ^ 3; a & -1; a & a; divmod(a, 4)[1]; math.floor(a / 2); math.sqrt(abs(a)); a.bit_length()
    a * 0.1; a & 3; a & 1; a * a; 7 - a; 7 & a
    bool(a & 1); a % 2 == 1; a // -3; a % -3; pow(a, 2, 5); (a + 1) * (a - 1); math.gcd(a, 4); round(a, -1); a.conjugate()
"""


@pytest.mark.parametrize("text", [text.strip() for text in ONE_OPERAND.replace("\n", ";").split(";") if text.strip()])
def test_a_number_compared_with_itself(text):
    questions = "b, b > b, b < c, b == c, b >= c, c <= b, b != c, min(b, c) == b, b > c, not b < b"
    f = program(f"b = {text}; c = {text}; return {questions}", ["a"], {"math": math})
    compiled = captured(f)
    for a in (5, 6, 7, 12, -4, 100, 3, 2, 1, 0, 30, 41):
        assert compiled(a) == f(a)


SUMS = """
    n = a + b; m = 0\\n    if a == b: m = n + c\\n    return m, n + n + c
    n = a + b; m = (5, 6, 7, 8, 9)[n % 5]; n = n + a; return m, n
    n = a + b; m = 0\\n    if n == 4: m = n + c + a\\n    return m
    n = a + b + c; m = 0\\n    if b == 2 * a: m = n + a\\n    return m, n + b
"""


@pytest.mark.parametrize("text", SUMS.strip().splitlines())
def test_a_sum_that_a_fact_makes_something_else(text):
    """`a + b` is `2*a` where the two are equal, and a number where it was asked for."""
    assert same_numbers("    " + text.strip().replace("\\n", "\n")) is None


def same_numbers(body):
    """None if a program of three ints computes captured what it does eagerly, for many of them; else the first numbers that differ."""
    namespace = {}
    exec(f"def program(a, b, c):\n{body}\n", namespace)
    eager = namespace["program"]
    compiled = captured(eager)
    with config.patch(recompile_limit=100, accumulated_recompile_limit=100):
        for numbers in itertools.product((3, 2, 5, 1), repeat=3):
            expected = eager(*numbers)
            found = compiled(*numbers)
            if found != expected:
                return body, numbers, found, expected
    return None


class Arithmetic:
    """Random programs: numbers computed from three ints, a question about them, and numbers computed from all of these."""

    def __init__(self, seed):
        self.random, self.names = random.Random(seed), ["a", "b", "c"]

    def question(self):
        if self.random.randrange(3) == 0:
            return f"(4, 7, 9)[{self.random.choice(self.names)} % 3]"
        one, other = self.random.sample(["a", "b", "c", "2 * a"], 2)
        return f"if {one} {self.random.choice(['==', '==', '<'])} {other}: pass"

    def computation(self, names):
        operator = self.random.choice("++++++-*")
        one, other = self.random.sample(names, 2)
        name = f"n{len(self.names)}"
        self.names.append(name)
        return f"{name} = {one} {operator} {other}"

    def body(self):
        lines = [self.computation(["a", "b", "c"]) for _ in range(3)]
        lines.append(self.question())
        lines += [self.computation(self.names) for _ in range(5)]
        return "\n".join(f"    {line}" for line in [*lines, f"return {', '.join(self.names)}"])


@pytest.mark.parametrize("seed", range(30))
def test_arithmetic_with_facts_in_between(seed):
    assert same_numbers(Arithmetic(seed).body()) is None
