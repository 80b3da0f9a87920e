"""Functions with a cache that exists before the frame: followed where nobody can tell, called where somebody could."""

import textwrap

import pytest
import torch

import dynamo_lite
from dynamo_lite.record import log
from dynamo_lite.testing import EagerAndRecordGraphs

HEADER = """
import functools, torch

class Recipe:
    def __init__(self, text):
        self.axes = [len(part) for part in text.split()]
        self.names = {part: i for i, part in enumerate(text.split())}
        self.uses = 0

@functools.lru_cache(256)
def recipe(text):
    return Recipe(text)

@functools.lru_cache
def table(n):
    return torch.arange(n, dtype=torch.float32)

@functools.lru_cache
def pairs(n):
    return iter([n, n + 1, n + 2])

@functools.lru_cache
def summed(tensor):
    return tensor.sum()

@functools.lru_cache
def noise(n):
    return torch.rand(n)

weight = torch.ones(3)

@functools.lru_cache
def weighted(n):
    return weight * n

@functools.lru_cache
def total(n):
    return weight.sum().item() * n

@functools.lru_cache(maxsize=0)
def never_kept(text):
    return Recipe(text)

@functools.lru_cache
def inner(recipe, n):
    return [n, *recipe.axes]

kept = recipe("kept")
known = {kept: 5}
"""


def program(body):
    namespace = {"__name__": "program"}
    exec(compile(HEADER + "def f(x):\n" + textwrap.indent(textwrap.dedent(body), "    "), "program", "exec"), namespace)
    return namespace["f"]


def check(body, *, whole, calls=3):
    """Several calls give what they give in eager execution; in one graph or with a break at the function's call."""
    backend = EagerAndRecordGraphs()
    eager, compiled = program(body), dynamo_lite.compile(program(body), backend=backend)
    for i in range(calls):
        x = torch.ones(3) + i
        expected, found = eager(x.clone()), compiled(x.clone())
        torch.testing.assert_close(found, expected)
    (first, *_) = [frame for frame in log.frames if frame.name == "f"]
    assert [record.code for record in first.breaks] == ([] if whole else ["DL032"])
    if whole:
        assert len(backend.graphs) == 1


@pytest.mark.parametrize(
    "body",
    [
        "r = recipe('a bb'); return x * r.axes[1] + r.names['bb']",
        "return x + (recipe('a') is recipe('a'))",
        "return x + table(3)",
        "return x + len(inner(recipe('a bb'), 1)) + len(inner(recipe('a bb'), 1))",
        "r = never_kept('a'); r.uses += 1; return x + r.uses",
    ],
)
def test_followed(body):
    check(body, whole=True)


@pytest.mark.parametrize(
    "body",
    [
        "r = recipe('a'); r.uses += 1; return x + r.uses",
        "r = recipe('a'); r.axes.append(7); return x + len(r.axes)",
        "r = recipe('a'); r.names['new'] = r.names.get('new', 0) + 1; return x + r.names['new']",
        "return x + (recipe('kept') is kept)",
        "return x + (recipe('kept') == kept)",
        "return x + known.get(recipe('kept'), 0)",
        "return x + (recipe('kept') in [None, kept])",
        "t = table(3); t.add_(1); return x + t",
        "t = table(4)[1:]; t.mul_(2); return x + t",
        "return x + (recipe('a') is recipe('b'))",
        "return x + next(pairs(3), 0)",
        "return summed(x) + summed(x.add_(1))",
        "y = weighted(2) + 0; weight.add_(1); return x + y",
        "y = total(2); weight.add_(1); return x + y",
    ],
)
def test_what_shows_is_called(body):
    check(body, whole=False)


@pytest.mark.parametrize("name", ["recipe('a bb')", "table(3)", "table(4)[1:]", "[table(3)]", "{'k': recipe('a')}"])
def test_what_leaves_the_frame_is_what_is_in_the_cache(name):
    body = f"return x + 1, {name}"
    f = program(body)
    compiled = dynamo_lite.compile(f, backend="eager")
    expected = f(torch.ones(3))[1]
    for _ in range(2):
        result, found = compiled(torch.ones(3))
        assert result.tolist() == [2.0, 2.0, 2.0]
        if name.startswith(("[", "{")):
            first, second = (next(iter(c.values() if type(c) is dict else c)) for c in (found, expected))
            assert first is second
        elif name.endswith("]"):
            assert found.data_ptr() == expected.data_ptr()
        else:
            assert found is expected


def test_random_numbers_are_those_in_the_cache():
    f = program("return x + noise(3)")
    compiled = dynamo_lite.compile(f, backend="eager")
    for _ in range(3):
        torch.testing.assert_close(compiled(torch.ones(3)), f(torch.ones(3)))
    assert "DL032" in [record.code for frame in log.frames for record in frame.breaks]


def test_alive_across_a_break():
    body = """
        r = recipe('a bb')
        x = x.sin()
        print(end='')
        r.uses += 1
        return x + r.uses
    """
    eager, compiled = program(body), dynamo_lite.compile(program(body), backend="eager")
    for _ in range(3):
        torch.testing.assert_close(compiled(torch.ones(3)), eager(torch.ones(3)))


def test_a_size_as_the_argument_varies():
    """A `torch.Size` of numbers that vary, as einops gives it to its cache."""
    namespace = {"__name__": "program"}
    exec(HEADER + "@functools.lru_cache\ndef halves(n, shape):\n    return [shape[0], shape[1] // n]\n", namespace)
    exec("def f(x):\n    return x.reshape(halves(2, x.shape) + [2]) + 1", namespace)
    backend = EagerAndRecordGraphs()
    compiled = dynamo_lite.compile(namespace["f"], backend=backend)
    for n in range(2, 12):
        x = torch.ones(n, 4)
        torch.testing.assert_close(compiled(x), x.reshape(n, 2, 2) + 1)
    assert len(backend.graphs) == 2


NUMBERS = """
import functools, torch

@functools.cache
def double(n):
    return n * 2

@functools.lru_cache(None)
def scale(n):
    return n ** -0.5

@functools.lru_cache(None)
def mask(n):
    return torch.ones(n, n).tril()

class Positions(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.step = 2

    @functools.lru_cache(None)
    def positions(self, n):
        return torch.arange(n) * self.step

positions = Positions().positions

def make():
    @functools.lru_cache
    def scale(n):
        return n ** -0.5
    return lambda x, n: x * scale(x.size(-1))

in_closure = make()
"""

FLOATS = [1.5, 2.5, 3.5, 4.5]


def graphs_per_call(f, arguments, **options):
    """Each call gives what eager execution gives; the number of graphs that each makes."""
    backend = EagerAndRecordGraphs()
    compiled, counts = dynamo_lite.compile(f, backend=backend, **options), []
    for args in arguments:
        before = len(backend.graphs)
        torch.testing.assert_close(compiled(*args), f(*args), rtol=0, atol=0)
        counts.append(len(backend.graphs) - before)
    assert not any(frame.breaks for frame in log.frames)
    return counts


def numeric(expression):
    namespace = {"__name__": "program"}
    exec(NUMBERS, namespace)
    return eval(expression, namespace)


@pytest.mark.parametrize("numbers", [[1, 2, 3, 4], FLOATS], ids=["ints", "floats"])
@pytest.mark.parametrize(
    "call", ["double(n)", "double(n=n)", "double(n + 1)", "double(n) * double(n)", "[double(n)][0]"]
)
def test_a_number_that_varies(numbers, call):
    f = numeric(f"lambda x, n: x * {call}")
    assert graphs_per_call(f, [(torch.ones(3), n) for n in numbers], fullgraph=True) == [1, 1, 0, 0]


@pytest.mark.parametrize(
    "f",
    [
        "lambda x, n: x * scale(x.size(-1))",
        "lambda x, n: x @ mask(x.size(-1))",
        "lambda x, n: x * positions(x.size(-1))",
        "in_closure",
    ],
)
@pytest.mark.parametrize("is_filled", [False, True])
def test_a_size_that_varies(f, is_filled):
    f, arguments = numeric(f), [(torch.ones(n), n) for n in (3, 4, 5, 6)]
    if is_filled:
        for args in arguments:
            f(*args)
    assert graphs_per_call(f, arguments, fullgraph=True) == [1, 1, 0, 0]


def test_a_number_that_varies_leaves_the_frame():
    f = numeric("lambda x, n: (x + 1, double(n), double(n) is double(n), double(n) > 5)")
    assert graphs_per_call(f, [(torch.ones(3), n) for n in (1, 2, 3, 2)]) == [
        1,
        1,
        1,
        0,
    ]  # a version for each side of 5


def test_tensors_for_a_number_that_varies_are_those_in_the_cache():
    f = numeric("lambda x: (x + 1, mask(x.size(-1)))")
    compiled = dynamo_lite.compile(f, backend="eager")
    for n in (2, 3, 4, 3):
        assert compiled(torch.ones(n))[1] is f(torch.ones(n))[1]


def test_the_break_says_what_it_is():
    compiled = dynamo_lite.compile(numeric("lambda x: (x, mask(3))"), backend="eager", fullgraph=True)
    with pytest.raises(
        dynamo_lite.exc.Unsupported, match=r"(?s)DL032 .*cache.*: mask, which .*leaves the compiled code.*__wrapped__"
    ):
        compiled(torch.ones(3))
