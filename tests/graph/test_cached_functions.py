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
    assert [record.code for record in first.breaks] == ([] if whole else ["DL022"])
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
