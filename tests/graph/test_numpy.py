"""Arrays of numpy as tensors of the graph."""

import operator

import numpy as np
import pytest
import torch

import dynamo_lite
from dynamo_lite.config import config
from dynamo_lite.testing import run_both


def a():
    return np.linspace(0.1, 0.9, 9, dtype="float32").reshape(3, 3)


def x():
    return torch.arange(16.0).reshape(4, 4)


def whole(fn, *args):
    run = run_both(fn, *args)
    assert run.graph_count == 1 and not run.breaks, (run.graph_count, run.breaks)


PROGRAMS = [
    lambda v: (np.matmul(v, v) + 1, v.sum(), v.T[0], np.sum(v * 2), np.sin(v)),
    lambda v: (np.concatenate([v, v], 0), np.stack([v, v]), np.linalg.norm(v), np.where(v > 0.5, v, 0)),
    lambda v: (v.mean(axis=0), v.reshape(9), v.astype(np.float64), np.zeros(3), np.array([1, 2, 3])),
    lambda v: (
        v * np.float64(2),
        v * 2,
        v + np.arange(3),
        v > 0.5,
        -v,
        abs(v),
        v @ v,
        v**2,
        2 / v,
        v // 2,
        v[1:, None],
        v[0, 0],
    ),
    lambda v: (
        np.clip(v, 0.2, 0.8),
        np.expand_dims(v, 0),
        np.transpose(v, (1, 0)),
        np.max(v),
        np.std(v),
        np.argsort(v),
    ),
    lambda v: (sum(row for row in v), len(v), v.shape, v.dtype, v.ndim, v.size),
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_functions_methods_operators(program):
    whole(program, a())


def test_results_have_numpys_types():
    out = dynamo_lite.compile(lambda v: (v.sum(), np.sum(v), v[0, 0], v[0], np.array(3.0)), backend="eager")(a())
    assert [type(o) for o in out] == [np.float32, np.float32, np.float32, np.ndarray, np.ndarray]


def test_arrays_are_changed_in_place():
    def change(v):
        v[0] = 5
        v += 1
        return v

    given = a()
    assert dynamo_lite.compile(change, backend="eager", fullgraph=True)(given) is given
    assert np.array_equal(given, change(a()))


def test_tensors_and_arrays():
    whole(lambda t: (np.sum(t.numpy() * 2), torch.from_numpy(t.numpy() * 2), torch.tensor(np.ones((4, 4))) + t), x())


def test_memory_is_shared():
    def write(t):
        v = t.numpy()
        v[0, 0] = 100
        return t

    given = x()
    dynamo_lite.compile(write, backend="eager", fullgraph=True)(given)
    assert given[0, 0] == 100


def test_numbers_are_constants():
    whole(lambda t: (t + np.float32(2.0), np.sqrt(4.0) * t, np.pi * t, np.prod([2, 3]) * t), x())


def test_read_only_and_reversed_arrays_break():
    locked = a()
    locked.flags.writeable = False
    double = dynamo_lite.compile(lambda v: v * 2, backend="eager")
    assert np.array_equal(double(a()), a() * 2)
    assert np.array_equal(double(locked), a() * 2)
    assert np.array_equal(double(a()[::-1]), a()[::-1] * 2)


def test_numpy_is_left_alone_on_request():
    with config.patch(trace_numpy=False):
        run = run_both(lambda v: np.sin(v), a())
    assert run.graph_count == 0 and run.breaks[0].slug == "numpy"


def test_with_inductor():
    compiled = dynamo_lite.compile(lambda v: np.sum(np.sin(v) * 2, axis=0), backend="inductor")
    assert np.allclose(compiled(a()), np.sum(np.sin(a()) * 2, axis=0))


SCALAR_PROGRAMS = """
    [1, 2, 3][n], (1, 2, 3)[n], "abc"[n], [1, 2, 3, 4][:n], [*range(5)][n::n]
    list(range(n)), [0] * n, n * [0], (0, 1) * n, operator.index(n)
    n == [1, 2], [1, 2] != n, n + [1, 2], [1, 2] + n, n < [2, 0], operator.add(n, [1])
    n in [[1, 2], 3]
    n[0]
    n[()], n[None]
    torch.tensor(n), torch.tensor([n, n]), torch.as_tensor(n), torch.tensor(n, dtype=torch.float16)
    torch.full((2,), n)
    x[n], x * n, x + [n][0]
    n == (1, 2), n == None, n == "x", n < 3, n + 1j
"""


@pytest.mark.parametrize("number", [np.int64(2), np.uint8(2), np.float32(2), np.float64(2), np.bool_(True)], ids=repr)
@pytest.mark.parametrize("text", [line.strip() for line in SCALAR_PROGRAMS.strip().splitlines()])
def test_scalars_from_outside(text, number):
    body = f"def f(x, n):\n    try:\n        return x + 1, {text}\n    except Exception as e:\n        return x + 1, type(e)"
    namespace = {"torch": torch, "operator": operator}
    exec(body, namespace)
    x = torch.ones(3)
    compiled = dynamo_lite.compile(namespace["f"], backend="eager")
    expected = namespace["f"](x, number)
    for _ in range(2):
        assert repr(compiled(x, number)) == repr(expected)


def test_functions_with_effects_run_at_each_call(tmp_path):
    path = tmp_path / "number.npy"

    def save(t, path):
        np.save(path, 3)
        return t + 1

    def silence(t):
        return t + 1, np.seterr(divide="ignore")

    run = dynamo_lite.compile(save, backend="eager")
    for _ in range(2):
        assert run(x(), path).equal(x() + 1)
        assert np.load(path) == 3
        path.unlink()
    run = dynamo_lite.compile(silence, backend="eager")
    for _ in range(2):
        before = np.geterr()
        try:
            assert run(x())[1] == before
            assert np.geterr()["divide"] == "ignore"
        finally:
            np.seterr(**before)


@pytest.mark.parametrize("cls", [np.int64, np.float64])
@pytest.mark.parametrize(
    "fn",
    [
        pytest.param(lambda t, n: (t * n, n), id="itself"),
        pytest.param(lambda t, n: (t * (n + 1), n * n), id="arithmetic"),
        pytest.param(lambda t, n: (t * np.sqrt(n), np.sqrt(n)), id="function"),
        pytest.param(lambda t, n: (t * float(n), n.item()), id="python"),
    ],
)
def test_scalars_that_vary_have_two_versions(cls, fn):
    versions = []
    compiled = dynamo_lite.compile(fn, backend=lambda gm, inputs: versions.append(gm) or gm.forward)
    for i in range(2, 9):
        n = cls(i)
        (result, number), (expected, same) = compiled(x(), n), fn(x(), n)
        torch.testing.assert_close(result, expected)
        assert type(number) is type(same) and number == same and (number is n) is (same is n)
    assert len(versions) == 2


def test_positions_of_scalars_that_vary():
    versions = []
    fn = lambda t, n: (t[n], t[:n], t[1, n], t[[n, 0]])  # noqa: E731
    compiled = dynamo_lite.compile(fn, backend=lambda gm, inputs: versions.append(gm) or gm.forward)
    for i in (2, 3, 1, 3, 2):
        for result, expected in zip(compiled(x(), np.int64(i)), fn(x(), np.int64(i)), strict=True):
            assert torch.equal(result, expected)
    assert len(versions) <= 3
