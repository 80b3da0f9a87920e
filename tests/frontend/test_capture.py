"""Whole graphs: ordinary Python around tensor code becomes one graph, with results and mutations as in eager execution."""

import collections
import dataclasses
import enum
import functools

import pytest
import torch

import dynamo_lite
from dynamo_lite.config import config
from dynamo_lite.testing import CompileCounter, run_both
from tests.helpers.capturing import wrapped
from tests.helpers.graph_counts import whole

X = torch.arange(12.0).reshape(3, 4)


def test_arithmetic():
    whole(lambda a, b: (a + b) * 2 - a / 3, X, X + 1, ops=4)


def test_argument_shapes():
    def f(a, /, b, *args, c=2, d, **kwargs):
        return a + b * c + d + sum(args) + kwargs["e"]

    whole(lambda x: f(x, 1, 2, 3, d=4, e=5), X)
    whole(lambda x: f(x, *[1, 2], **{"d": 1, "e": x}), X)


def test_closures_and_cells():
    def f(x):
        total = x

        def add(y):
            nonlocal total
            total = total + y
            return lambda z: total * z

        return add(1)(2), total

    whole(f, X)


GLOBAL = 3


def test_globals_are_read_and_written():
    def f(x):
        global GLOBAL
        GLOBAL = GLOBAL + 1
        return x + GLOBAL

    global GLOBAL
    compiled = dynamo_lite.compile(f, backend="eager")
    GLOBAL = 3
    assert torch.equal(compiled(X), X + 4)
    assert GLOBAL == 4
    assert torch.equal(compiled(X), X + 5)
    assert GLOBAL == 5


def test_containers_in_and_out():
    def f(x, table, items):
        items.append(x + 1)
        table["new"] = items
        table["old"] *= 2
        first, *rest = items
        return {"a": [first, (x, rest)], **table}

    whole(f, X, {"old": 2}, [X], _calls=1)


def test_comprehensions_and_generators():
    def f(xs):
        squares = [x * x for x in xs if x.dim() == 2]
        gen = (s + i for i, s in enumerate(squares))
        table = {i: g for i, g in enumerate(gen)}
        return sum(table.values()), len({1, 2, len(table)})

    whole(f, [X, X + 1])


def test_generator_protocol():
    def gen(x):
        got = yield x + 1
        try:
            yield got * 2
        finally:
            x.add_(1)
        return 5

    def outer(x):
        result = yield from gen(x)
        yield result

    def f(x):
        g = outer(x)
        a = next(g)
        b = g.send(x)
        return a, b, list(g)

    whole(f, X.clone())


def test_try_except_finally():
    def f(x, d):
        log = []
        try:
            try:
                d["missing"]
            except KeyError as e:
                log.append(e.args[0])
                raise ValueError("v") from e
            finally:
                log.append("f")
        except ValueError as e:
            log.append((str(e), type(e.__cause__).__name__))
        else:
            log.append("else")
        return x * 2, log

    whole(f, X, {})


def test_with_statement():
    class Ctx:
        def __init__(self):
            self.log = []

        def __enter__(self):
            self.log.append("in")
            return self

        def __exit__(self, t, v, tb):
            self.log.append(t)
            return t is ZeroDivisionError

    def f(x):
        with Ctx() as c:
            x = x + 1
            1 / 0
        with torch.no_grad():
            y = x * 2
        return x, y, c.log

    whole(f, X)


def test_match():
    @dataclasses.dataclass
    class P:
        x: int
        y: int

    def f(x, v):
        match v:
            case {"k": k, **rest}:
                return x + k + len(rest)
            case [a, *rest] if rest:
                return x + a + rest[-1]
            case P(x=0, y=b):
                return x * b
            case int() | float():
                return x - v
            case _:
                return x

    for v in ({"k": 2, "z": 1}, [1, 2, 3], P(0, 5), 3, 2.5, "s", [1]):
        whole(lambda x, v=v: f(x, v) + 1, X)


def test_fstrings_and_strings():
    def f(x):
        name = f"{x.dim()}-{'a'!r:>5}-{3.14159:.2f}"
        return x + len(name), name.upper().split("-")

    whole(f, X)


class Color(enum.Enum):
    RED = 1
    BLUE = 2


Point = collections.namedtuple("Point", ["x", "y"])


@dataclasses.dataclass
class Config:
    scale: float = 2.0
    names: list = dataclasses.field(default_factory=list)
    color: Color = Color.RED


class Base:
    factor = 3

    def __init__(self, n):
        self.n = n

    @property
    def double(self):
        return self.n * 2

    @classmethod
    def make(cls, n):
        return cls(n)

    @staticmethod
    def twice(x):
        return x * 2

    def apply(self, x):
        return x * self.n

    def __add__(self, other):
        return type(self)(self.n + getattr(other, "n", other))

    __radd__ = __add__

    def __eq__(self, other):
        return isinstance(other, Base) and self.n == other.n

    def __hash__(self):
        return hash(self.n)

    def __getattr__(self, name):
        if name.startswith("dyn_"):
            return name[4:]
        raise AttributeError(name)


class Derived(Base):
    def apply(self, x):
        return super().apply(x) + self.factor

    def __call__(self, x):
        return self.apply(x) + self.double


def test_classes_and_instances():
    def f(x):
        d = Derived.make(4)
        e = 1 + d + 2
        e.extra = x
        return d(x) + e.twice(x) + e.n + len(e.dyn_abc), d == Derived(4), e.extra is x

    whole(f, X)


def test_instance_escapes():
    def f(x):
        d = Derived(2)
        d.tensor = x + 1
        return d

    compiled = dynamo_lite.compile(f, backend="eager")
    for _ in range(2):
        d = compiled(X)
        assert type(d) is Derived and d.n == 2 and torch.equal(d.tensor, X + 1)


def test_instance_is_mutated():
    def f(obj, x):
        obj.n += 1
        obj.t = x * obj.n
        return obj.t

    compiled = dynamo_lite.compile(f, backend="eager")
    obj = Base(1)
    assert torch.equal(compiled(obj, X), X * 2)
    assert obj.n == 2 and torch.equal(obj.t, X * 2)
    assert torch.equal(compiled(obj, X), X * 3)


def test_dataclass_namedtuple_enum():
    def f(x, config):
        c = Config(scale=3.0)
        c.names.append("a")
        p = Point(x, y=x + 1)
        kind = "red" if config.color is Color.RED else "blue"
        return p.x * c.scale + p.y * config.scale, p._replace(x=1), len(c.names), kind, Color.BLUE.value

    whole(f, X, Config())


def test_functools_and_decorators():
    def deco(fn):
        @functools.wraps(fn)
        def inner(*args, **kwargs):
            return fn(*args, **kwargs) + 1

        return inner

    @deco
    def g(x, k=2):
        return x * k

    def f(x):
        h = functools.partial(g, k=3)
        return h(x) + functools.reduce(lambda a, b: a + b, [x, x, x])

    whole(f, X)


def test_mutual_aliasing():
    def f(a, b):
        a.append(1)
        b.append(2)
        c = a
        c.append(3)
        return a is b, c is a, len(a), torch.ones(2) * len(b)

    shared = []
    compiled = dynamo_lite.compile(f, backend="eager")
    result = compiled(shared, shared)
    assert result[:3] == (True, True, 3) and shared == [1, 2, 3]
    left, right = [], []
    result = compiled(left, right)
    assert result[:3] == (False, True, 2) and left == [1, 3] and right == [2]


def test_cyclic_structure_escapes():
    def f(x):
        a = [x + 1]
        a.append(a)
        d = {"a": a}
        d["self"] = d
        return d

    d = dynamo_lite.compile(f, backend="eager")(X)
    assert d["self"] is d and d["a"][1] is d["a"]


def test_swap_of_attributes():
    def f(obj, x):
        obj.a, obj.b = obj.b, obj.a
        return x + 1

    class O:
        pass

    o = O()
    left, right = [1], [2]
    o.a, o.b = left, right
    dynamo_lite.compile(f, backend="eager")(o, X)
    assert o.a is right and o.b is left


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
        self.norm = torch.nn.BatchNorm1d(4)
        self.extra = torch.nn.ModuleList([torch.nn.Linear(4, 4) for _ in range(2)])
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        self.count += 1
        x = self.norm(self.layers(x))
        for layer in self.extra:
            x = x + layer(x)
        return x


@pytest.mark.parametrize("training", [True, False])
def test_module(training):
    torch.manual_seed(0)
    record = run_both(Net().train(training), X, _tol=1e-6)
    assert len(record.graphs) == 1 and not record.breaks


def test_module_hooks():
    net = Net().eval()
    log = []
    net.layers.register_forward_hook(lambda m, a, out: log.append("hook") or out * 2)
    net.norm.register_forward_pre_hook(lambda m, a: (a[0] + 1,))
    counter = CompileCounter()
    compiled = dynamo_lite.compile(net, backend=counter)
    expected = net(X)
    log.clear()
    torch.testing.assert_close(compiled(X), expected)
    assert log == ["hook"] and counter.frame_count == 1


def test_recompiles_when_something_read_changes():
    counter = CompileCounter()

    def f(x, config):
        return x * config.scale

    compiled = dynamo_lite.compile(f, backend=counter)
    c = Config()
    assert torch.equal(compiled(X, c), X * 2)
    c.scale = 5.0
    assert torch.equal(compiled(X, c), X * 5)
    c.names.append("unread")
    assert torch.equal(compiled(X, c), X * 5)
    assert counter.frame_count == 2


def test_exception_leaves_as_in_eager():
    def f(x, n):
        y = x + 1
        if n > 1:
            raise ValueError("n too big", n)
        return y

    compiled = dynamo_lite.compile(f, backend="eager")
    with pytest.raises(ValueError) as info:
        compiled(X, 3)
    assert info.value.args == ("n too big", 3)
    assert torch.equal(compiled(X, 1), X + 1)


def test_generator_that_has_not_started_keeps_what_its_closure_needs():
    def program(t):
        doubled = t * 2

        def generator(*more):
            yield doubled

        return generator(1)

    with config.patch(capture_pure_python=True, suppress_errors=False, debug=True):
        made = wrapped(program)(torch.ones(2))
    assert [t.tolist() for t in made] == [[2.0, 2.0]]


def deletes(x, found):
    x.mul_(2)
    del y  # noqa: F821
    y = 1  # noqa: F841


def deletes_inside(x, found):
    def inner(found):
        found.append(x * 2)
        del found
        del found  # noqa: F821

    x.add_(1)
    inner(found)


def deletes_within_finally(x, found):
    x.mul_(2)
    try:
        del y  # noqa: F821
    finally:
        found.append(x + 1)
    y = 1  # noqa: F841


@pytest.mark.parametrize("f", [deletes, deletes_inside, deletes_within_finally])
def test_deleting_an_unbound_variable_behind_operators(f):
    def outcome(run):
        x, found, lines = torch.ones(2), [], []
        with pytest.raises(UnboundLocalError) as raised:
            run(x, found)
        place = raised.value.__traceback__
        while place is not None:
            lines.append((place.tb_frame.f_code.co_name, place.tb_lineno))
            place = place.tb_next
        return str(raised.value), [x.tolist(), [t.tolist() for t in found]], lines[1:]

    compiled = dynamo_lite.compile(f, backend="eager")
    assert outcome(compiled) == outcome(compiled) == outcome(f)


def _checked(x, mask):
    if mask is None and not torch.compiler.is_compiling():
        mask = torch.ones(2)
    return x * mask[None]


def test_a_program_that_raises_only_where_it_is_captured_runs_eagerly():
    """As transformers' models do that leave arguments out under a compiler."""

    def f(x, mask):
        x = x + 1
        return _checked(x, mask) + 1

    compiled = dynamo_lite.compile(f, backend="eager")
    for mask in (None, torch.zeros(2), None):
        torch.testing.assert_close(compiled(torch.ones(2), mask), f(torch.ones(2), mask))
