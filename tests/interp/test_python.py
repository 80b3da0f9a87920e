"""The interpreter is a correct Python first: programs without tensors, run by CPython and captured, with what must be equal compared.

Needs no torch. `stop` is a function that capture may not look into: each call of it breaks the graph.
"""

import copy
import functools

import pytest

from dynamo_lite.config import config
from dynamo_lite.record import log
from tests.helpers.capturing import uncaptured, wrapped

SEEN = []


@uncaptured
def stop(*args):
    SEEN.append(copy.deepcopy(args))
    return args[0] if args else None


def outcome(fn, args):
    """(kind, value) of a call."""
    try:
        return "returned", fn(*args)
    except Exception as error:
        return "raised", (type(error), error.args)


def compare(fn, *args, breaks=0):
    """Run `fn` plainly and captured, each on its own copy of the arguments, the captured one twice."""
    runs = []
    log.reset()
    with config.patch(capture_pure_python=True, debug=True):
        captured = wrapped(fn)
        for target in (fn, captured, captured):
            SEEN.clear()
            own = copy.deepcopy(args)
            runs.append(repr((outcome(target, own), own, SEEN)))
    assert runs[1] == runs[0]
    assert runs[2] == runs[0]
    # A collection of garbage may run callbacks of the test tools in the middle, which are frames like any others.
    own_breaks = [b for b in log.breaks() if b.user_stack[0].filename == __file__]
    assert [b.slug for b in own_breaks] == ["call-skipped-function"] * breaks, own_breaks


class Number:
    k = 3

    def __init__(self, n):
        self.n = n

    def __getattr__(self, name):
        if name.startswith("d_"):
            return name
        raise AttributeError(name)

    @classmethod
    def make(cls, n):
        return cls(n)

    @staticmethod
    def twice(x):
        return x * 2

    @property
    def double(self):
        return self.n * 2

    def times(self, x):
        return self.n * x

    def __eq__(self, other):
        return isinstance(other, Number) and other.n == self.n

    def __hash__(self):
        return hash(self.n)

    def __add__(self, other):
        return type(self)(self.n + other)

    __radd__ = __add__

    def __repr__(self):
        return f"{type(self).__name__}({self.n})"

    def __enter__(self):
        stop("in")
        return self

    def __exit__(self, *exc):
        stop(exc[0])
        return True


class Slotted(Number):
    __slots__ = ("z",)

    def times(self, x):
        return super().times(x) + self.k

    def __call__(self, x):
        return self.times(x)


# -- whole


def test_objects():
    def f(x):
        b = Slotted.make(4)
        c = 1 + b + 2
        c.extra = x
        c.z = 5
        return b(x), c, c.twice(3), c.d_q, b == Slotted(4), c.extra is x, c.z, c.double

    compare(f, 2)


def test_exceptions():
    def f(x):
        try:
            try:
                {}["q"]
            except KeyError as e:
                raise ValueError("v") from e
            finally:
                x += 1
        except ValueError as e:
            return str(e), type(e.__cause__), e.__cause__.args, x

    compare(f, 1)


@pytest.mark.parametrize("value", [{"k": 1, "z": 2}, [1, 2, 3], Number(3), 2.0, "s", [1], {}])
def test_match(value):
    def f(v):
        match v:
            case {"k": k, **rest}:
                return k, rest
            case [a, *rest] if rest:
                return a, rest
            case Number(n=n):
                return n
            case int() | float():
                return "number"
            case _:
                return None

    compare(f, value)


def test_unpacking_strings_calls():
    def f(x):
        a, *b, (c, d) = x
        star = (lambda *q, **w: (q, w))(*b, k=1)
        return [a, b, c, d], f"{a}-{b!r:>10}-{c:.2f}", {**{"a": 1}, "b": 2}, [*b, *b], star

    compare(f, [1, 2, 3, (4, 5)])


def test_generators():
    def gen(x, log):
        got = yield x + 1
        try:
            yield got * 2
        finally:
            log.append("finally")
        return 5

    def outer(x, log):
        result = yield from gen(x, log)
        yield result

    def f(log):
        g = outer(1, log)
        return next(g), g.send(7), list(g)

    compare(f, [])


def test_containers():
    def f(d, items, s):
        d["q"] = items
        del d["a"]
        items.sort(reverse=True)
        items.extend((1, 2))
        s.add(4)
        s.discard(1)
        items[1:2] = [9, 9]
        return list(d.items()), items is d["q"], sorted(s), d.keys() & {"q"}, dict(d)

    compare(f, {"a": 1, "b": 2}, [3, 1, 2], {1, 2, 3})


def test_loops_and_builtins():
    def f(n):
        i, r = 0, []
        while True:
            i += 1
            if i % 2:
                continue
            if i > n:
                break
            r.append(i)
        for k in reversed(range(3)):
            r.append(k)
        else:
            r.append("else")
        numbers = r[:3]
        pairs = list(zip(r, "ab", strict=False)), list(enumerate(numbers)), list(map(str, numbers))
        return r, sum(numbers), max(r[0], 3), pairs, any(r), sorted(numbers, key=lambda q: -q)

    compare(f, 5)


def test_attributes_swapped():
    def f(o):
        o.a, o.b = o.b, o.a
        o.n += 1
        return o.__dict__

    number = Number(1)
    number.a, number.b = [1], [2]
    compare(f, number)


def test_functools_and_types():
    def f(x):
        h = functools.partial(Number.twice, x)
        total = functools.reduce(lambda a, b: a + b, [1, 2, 3])
        return h(), total, isinstance(x, int), type(x), getattr(x, "zz", 3), hasattr(x, "real")

    compare(f, 3)


def test_argument_binding():
    def f(a, *args, k=1, **kw):
        return a, args, k, kw

    compare(f, 1, 2, 3)


# -- with breaks


def test_break_in_a_nested_call_is_one_break():
    def leaf(x):
        x = x + 1
        stop(x)
        return x * 2

    def middle(x):
        y = leaf(x - 3)
        return y + x

    compare(lambda x: middle(x * 5) + x, 1, breaks=1)


def test_break_in_a_loop():
    def f(x):
        for i in range(3):
            x = x + i
            stop(i)
            x = x * 2
        return x

    compare(f, 1, breaks=3)


def test_break_in_try_except_finally():
    def f(x):
        try:
            stop(x)
            raise ValueError(x)
        except ValueError as e:
            stop(e.args)
            x = x + 1
        finally:
            stop("finally")
        return x

    compare(f, 1, breaks=3)


def test_break_in_a_comprehension():
    def f(xs):
        return [stop(i) * 2 for i in xs]

    compare(f, [1, 2, 3], breaks=3)


def test_break_with_shared_cells():
    def f(x):
        n = 1

        def g(y):
            nonlocal n
            n += 1
            return y + n

        x = g(x)
        stop(n)
        x = g(x)
        return x, n

    compare(f, 1, breaks=1)


def test_break_with_pending_mutations():
    def f(a, items, table):
        items.append(a)
        table["k"] = items
        stop(len(items))
        items.append(2)
        return table["k"][-1]

    compare(f, 1, [1], {"a": 2}, breaks=1)


def test_exception_through_a_break_in_a_callee():
    def boom(x):
        stop("b")
        raise KeyError("k")

    def f(x):
        try:
            return boom(x)
        except KeyError as e:
            return e.args, x

    compare(f, 1, breaks=1)
    compare(boom, 1, breaks=1)


@pytest.mark.parametrize("x", [0, 3])
def test_break_in_boolean_operators_and_branches(x):
    def f(x):
        a = stop(x) or stop(5)
        b = stop(x) and stop(3)
        if stop(x) > 2:
            return a
        return b

    compare(f, x, breaks=4)


def test_break_while_iterating_a_dict():
    def f(d):
        r = []
        for k, v in d.items():
            r.append((k, v))
            stop(k)
        return r

    compare(f, {"a": 1, "b": 2}, breaks=2)


def test_break_in_while():
    def f(x):
        while x:
            x.pop()
            stop(len(x))
        return x

    compare(f, [1, 2, 3], breaks=3)


def test_generator_half_consumed_at_a_break():
    def gen(n):
        for i in range(n):
            got = yield i
            if got:
                yield got * 100

    def f(n):
        g = gen(n)
        a = next(g)
        stop(a)
        return a, g.send(7), list(g)

    log.reset()
    with config.patch(capture_pure_python=True, debug=True):
        captured = wrapped(f)
        assert captured(3) == f(3)
        assert captured(3) == f(3)


def test_with_that_breaks_everywhere():
    def f(x):
        with Number(1) as c:
            x = x + c.n
            stop(x)
            x = x * 2
            raise KeyError(1)
        return x, c + 1, c.double

    log.reset()
    with config.patch(capture_pure_python=True, debug=True):
        captured = wrapped(f)
        for _ in range(2):
            SEEN.clear()
            expected = repr(f(1)), list(SEEN)
            SEEN.clear()
            assert (repr(captured(1)), SEEN) == expected


class Unmatched:
    __match_args__ = (None,)

    def __repr__(self):
        return "Unmatched()"


def test_match_args_that_are_no_names():
    def f(x):
        try:
            match x:
                case Unmatched(y):
                    return y
        except TypeError as error:
            return str(error)

    compare(f, Unmatched())
