"""Scalars of numpy's that are computed from sizes: whole graphs, the values and types of eager execution, few versions."""

import numpy as np
import pytest
import torch

import dynamo_lite
from dynamo_lite.record import log

SIZES = (4, 3, 5, 6, 7, 9)

# Program, and how many versions all sizes together take.
PROGRAMS = {
    # floats
    "x / np.sqrt(x.shape[1])": 2,
    "np.sqrt(n) * x": 2,
    "x + np.log(n), np.log(n)": 2,
    "np.sqrt(n) + np.float64(2) * n - 1": 2,
    "np.float64(0.5) ** n, n ** np.float64(0.5), np.float64(2) / n": 2,
    "x * float(np.exp(-n)), np.exp(-n).item()": 2,
    "np.mean([n, n + 1]), np.std((n, 1))": 2,
    "-np.sqrt(n), abs(np.float64(n)), +np.cbrt(n)": 2,
    "np.float64(n), np.float64(n / 2) * 3": 2,
    "np.int64(n) + 1, np.float64(np.int64(n)), x[: np.int64(n)]": 2,
    "np.float32(n), np.int32(n), np.int64(np.sqrt(n)), np.bool_(n)": 6,
    "np.sqrt(n).round(2), np.round(np.sqrt(n), 1)": 2,
    "np.true_divide(n, 3), np.hypot(n, 2), np.power(n, 0.5)": 2,
    "np.ceil(n / 4)": 2,
    # ints
    "x.reshape(np.prod(x.shape))": 2,
    "x.view(-1, int(np.prod(x.shape[1:])))": 2,
    "np.prod(x.shape), np.sum(x.shape), np.prod([n, 2, 3])": 2,
    "np.prod(x.shape) * 2 - 1 + np.int64(3), 2 * np.prod(x.shape)": 2,
    "np.prod(x.shape) // 2, np.prod(x.shape) % 3": 2,
    "np.prod(x.shape).item(), np.sum((n, 1)).tolist()": 2,
    "np.prod(x.shape) / 7": 2,
    "x[: np.minimum(n, 8)]": 3,
    "x[: np.max([n, 2])], np.min((n, 100))": 2,
    "torch.zeros(np.prod(x.shape)), torch.arange(np.sum(x.shape))": 2,
    "list(range(np.sum([n, 1]) - n))": 2,
    "np.multiply(n, 2), np.negative(n), np.abs(n)": 2,
    # decisions
    "x.chunk(int(np.ceil(n / 4)), 0)": 4,
    "int(np.ceil(n / 4)), np.floor(n / 4).astype(int)": 4,
    "x + 1 if np.prod(x.shape) > 10 else x": 2,
    "x + 1 if np.sqrt(n) > 1.5 else x": 2,
    "np.sqrt(n) == None, np.sqrt(n) != 'a', (np.sqrt(n) < torch.ones(2)).sum()": 6,
    "np.prod(x.shape) > 50, np.sqrt(n) == 2, 2.5 < np.sqrt(n)": 4,
    "bool(np.log(n)), not np.sqrt(n)": 2,
    "np.isfinite(np.sqrt(n)), np.sign(n)": 2,
    # attributes and classes
    "np.sqrt(n).dtype, np.prod(x.shape).dtype, np.sqrt(n).shape, np.sqrt(n).ndim": 2,
    "isinstance(np.sqrt(n), float), isinstance(np.prod(x.shape), (int, np.integer))": 2,
    "torch.ones(()) * np.sqrt(n), torch.full((2,), np.sqrt(n))": 2,
}


def compiled(text, backend="eager"):
    names = {"np": np, "torch": torch}
    exec(f"def program(x):\n    n = x.shape[0]\n    return {text}", names)
    log.reset()
    return names["program"], dynamo_lite.compile(names["program"], backend=backend, fullgraph=True)


def same(found, expected):
    if isinstance(expected, tuple | list):
        assert type(found) is type(expected) and len(found) == len(expected)
        for f, e in zip(found, expected, strict=True):
            same(f, e)
    elif isinstance(expected, torch.Tensor):
        assert found.dtype == expected.dtype and torch.equal(found, expected)
    else:
        assert type(found) is type(expected) and found == expected, (found, expected)


@pytest.mark.parametrize("text", PROGRAMS)
def test_scalars_of_sizes(text):
    program, run = compiled(text)
    for n in SIZES:
        x = torch.arange(2.0 * n * n).reshape(n, 2 * n)
        same(run(x), program(x))
    assert len(log.frames) == PROGRAMS[text]


@pytest.mark.parametrize(
    "text",
    ["x / np.sqrt(x.shape[1])", "x.reshape(np.prod(x.shape)) * np.log(n)", "x.chunk(int(np.ceil(n / 4)), 0)[0] * 2"],
)
def test_under_aot_autograd(text):
    program, run = compiled(text, "aot_eager")
    for n in SIZES:
        x = torch.ones(n, 2 * n, requires_grad=True)
        found, expected = run(x), program(x)
        torch.testing.assert_close(found, expected)
        for result in (found, expected):
            result.sum().backward()


def test_arrays_give_their_scalars_a_dtype():
    program, run = compiled("np.zeros(3, dtype='float32') * np.sqrt(n), np.ones(2) * np.prod(x.shape)")
    for n in (4, 3):
        x = torch.ones(n, 2)
        for f, e in zip(run(x), program(x), strict=True):
            assert f.dtype == e.dtype and np.array_equal(f, e)


def test_a_scalar_that_a_constant_of_numpys_meets():
    program, run = compiled(
        "np.float32(2) * n, np.float32(2) * np.sqrt(n), np.int32(2) + np.prod(x.shape), n - np.int16(1)"
    )
    for n in (4, 3, 5):
        same(run(torch.ones(n, 2)), program(torch.ones(n, 2)))


def test_an_error_of_numpys():
    with pytest.raises(ValueError, match="Integers to negative integer powers"):
        run = dynamo_lite.compile(lambda x: np.power(x.shape[0], -1), backend="eager", dynamic=True)
        run(torch.ones(4))


def test_lists_beside_scalars():
    def compare(x):
        return (np.sqrt(x.shape[0]) == [2.0, 3.0]).tolist(), np.prod(x.shape) * [1, 2]

    run = dynamo_lite.compile(compare, backend="eager")
    for n in (4, 9, 5):
        assert run(torch.ones(n, 1)) == compare(torch.ones(n, 1))
