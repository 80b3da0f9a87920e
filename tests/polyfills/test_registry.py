"""The table of stand-ins: lookup, signature check, user registration; and each stand-in against its original."""

import bisect
import collections
import functools
import heapq
import math
import operator
import random

import pytest

import dynamo_lite
from dynamo_lite.config import config
from dynamo_lite.frontend import convert
from dynamo_lite.polyfills import find_polyfill, polyfill
from dynamo_lite.polyfills.registry import POLYFILLS


@pytest.fixture
def registered():
    """Forget what a test registers."""
    before = dict(POLYFILLS)
    yield
    POLYFILLS.clear()
    POLYFILLS.update(before)


def capture(fn):
    """The captured form of a function; a graph break is an error."""
    return convert.Region(lambda gm, inputs: gm.forward, fullgraph=True).wrap(fn)


def test_lookup():
    assert find_polyfill(functools.reduce).__name__ == "reduce"
    assert find_polyfill(len) is None
    assert find_polyfill(str.upper) is None


def test_a_second_stand_in_is_refused():
    find_polyfill(functools.reduce)
    with pytest.raises(ValueError, match="has a polyfill already"):
        polyfill(functools.reduce)(lambda function, iterable, initial=None, /: None)


def test_parameters_have_to_fit(registered):
    with pytest.raises(TypeError, match="does not fit"):
        polyfill(math.gcd, check_signature=True)(lambda a: a)
    polyfill(math.gcd)(lambda *integers: 1)
    polyfill(math.lcm, check_signature=False)(lambda: 1)


def test_users_register_their_own(registered):
    import unicodedata

    @dynamo_lite.polyfill(unicodedata.combining)
    def combining(chr, /):
        return len(chr)

    with config.patch(capture_pure_python=True):
        compiled = capture(lambda s: unicodedata.combining(s) + 1)
        assert compiled("abc") == 4


def test_stand_ins_for_methods_classes_and_python_functions(registered):
    import textwrap
    from _random import Random as Generator

    @polyfill(Generator)
    def made(seed):
        return [seed]

    @polyfill(memoryview.tobytes, check_signature=False)
    def tobytes(self, order="C"):
        return b"stand-in"

    @polyfill(textwrap.dedent)
    def dedent(text):
        return "dedented"

    view = memoryview(b"x")
    with config.patch(capture_pure_python=True):
        compiled = capture(lambda: (Generator("i"), memoryview.tobytes(view), textwrap.dedent(" a")))
        assert compiled() == (["i"], b"stand-in", "dedented")
    assert textwrap.dedent(" a") == "a"


def test_pure_stand_ins_call_the_original_on_constants(registered):
    import binascii

    calls = []

    @polyfill(binascii.crc32, pure=True)
    def crc32(data, crc=0, /):
        calls.append(data)
        return 5

    with config.patch(capture_pure_python=True):
        assert capture(lambda: binascii.crc32(b"a"))() == binascii.crc32(b"a")
        assert capture(lambda x: binascii.crc32(x))(bytearray(b"a")) == 5
    assert calls == [bytearray(b"a")]


def outcome(function, *args, **kwargs):
    try:
        return function(*args, **kwargs), args
    except Exception as error:
        return type(error), str(error)


def agree(original, *args, **kwargs):
    import copy

    stand_in = find_polyfill(original)
    expected = outcome(original, *copy.deepcopy(args), **kwargs)
    assert outcome(stand_in, *copy.deepcopy(args), **kwargs) == expected


def test_reduce():
    for args in [(operator.add, [1, 2, 3]), (operator.add, [], 5), (max, "abc"), (max,)]:
        if len(args) > 1:
            agree(functools.reduce, *args)


def test_count_elements():
    for text in ("abca", "", "zz"):
        one, other = {}, {}
        collections._count_elements(one, text)
        find_polyfill(collections._count_elements)(other, text)
        assert one == other


def test_math():
    for values in ([1, 2, 3], [], [1.5, 2], [True, 2]):
        agree(math.prod, values)
        agree(math.prod, values, start=2)
        agree(math.fsum, values)
    agree(math.dist, [1, 2], (4, 6))
    agree(math.dist, [1], [1, 2])


def test_bisect():
    generator = random.Random(0)
    for _ in range(50):
        a = sorted(generator.choices(range(5), k=generator.randrange(6)))
        x = generator.randrange(6)
        for function in (bisect.bisect_left, bisect.bisect_right, bisect.insort_left, bisect.insort_right):
            agree(function, a, x)
            agree(function, a, x, 1) if a else None
            agree(function, a, x, 0, len(a))
    agree(bisect.bisect_left, [(1, "a"), (2, "b")], 2, key=lambda pair: pair[0])
    agree(bisect.bisect_left, [1, 2], "a")


class Counted:
    """Records the comparisons."""

    log = []

    def __init__(self, n):
        self.n = n

    def __lt__(self, other):
        self.log.append((self.n, other.n))
        return self.n < other.n


def compared(function, *args):
    Counted.log = []
    result = function(*args)
    return getattr(result, "n", None), [c.n for c in args[0]], list(Counted.log)


def test_heapq():
    generator = random.Random(0)
    two = {heapq.heappush, heapq.heappushpop, heapq.heapreplace, heapq._heapreplace_max}
    functions = [heapq.heapify, heapq._heapify_max, heapq.heappop, heapq._heappop_max, *two]
    for _ in range(30):
        values = generator.choices(range(9), k=generator.randrange(1, 12))
        for function in functions:

            def make():
                heap = [Counted(n) for n in values]
                (heapq._heapify_max if "max" in function.__name__ else heapq.heapify)(heap)
                return (heap, Counted(4)) if function in two else (heap,)

            assert compared(function, *make()) == compared(find_polyfill(function), *make())
    for function in (heapq.heappop, heapq._heappop_max):
        agree(function, [])
    agree(heapq.heapreplace, [], 1)


def test_captured():
    def f(xs):
        heap = list(xs)
        heapq.heapify(heap)
        heapq.heappush(heap, 0)
        bisect.insort(xs, 4)
        return [heapq.heappop(heap) for _ in range(2)], heapq.nlargest(2, xs), bisect.bisect(xs, 4), math.prod(xs)

    with config.patch(capture_pure_python=True):
        compiled = capture(f)
        for _ in range(2):
            one, other = [1, 5, 9], [1, 5, 9]
            assert f(one) == compiled(other)
            assert one == other


def test_the_example_of_the_reference(registered):
    import pathlib
    import zlib

    page = (pathlib.Path(__file__).parents[2] / "docs" / "reference.md").read_text()
    example = page.partition("```python\nimport zlib")[2].partition("```")[0]
    exec(example.partition("\n")[2], {"zlib": zlib, "dynamo_lite": dynamo_lite})
    stand_in = find_polyfill(zlib.adler32)
    for data in (b"", b"abc", bytes(range(256)) * 9):
        assert stand_in(data) == zlib.adler32(data)
        assert stand_in(data, 7) == zlib.adler32(data, 7)
