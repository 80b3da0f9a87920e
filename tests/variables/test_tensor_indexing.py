"""Subscripts of tensors with numbers that vary: two versions, and the results of eager execution."""

import numpy as np
import pytest
import torch

import dynamo_lite
from dynamo_lite.testing import CompileCounter, CompileCounterWithBackend, same

MASK = torch.tensor([True, False, True, True, False, True])
PICKS = torch.tensor([4, 0, 2])

KEYS = {
    "alone": lambda i: i,
    "tuple": lambda i: (i,),
    "before a slice": lambda i: (i, slice(1, 3)),
    "after a slice": lambda i: (slice(1, 3), i),
    "after all": lambda i: (slice(None), i),
    "before dots": lambda i: (i, ...),
    "after dots": lambda i: (..., i),
    "around dots": lambda i: (i, ..., i - 1),
    "with None": lambda i: (None, i, None, ...),
    "three": lambda i: (i, i - 1, i - 2),
    "with a constant": lambda i: (2, i),
    "with a tensor": lambda i: (i, slice(None), PICKS),
    "after a tensor": lambda i: (PICKS, i),
    "list": lambda i: [i, 0, i - 1],
    "list in a tuple": lambda i: (slice(None), [i, 1]),
    "list and number": lambda i: ([i, 1], i),
    "slice by the number": lambda i: (slice(i - 2, i), i),
    "negative": lambda i: (-i, slice(None, -1)),
    "negative list": lambda i: [-i, i],
}


def calls(f, *numbers, backend="aot_eager", requires_grad=False):
    """Compares results with eager execution; gives the number of graphs."""
    counter = CompileCounterWithBackend(backend)
    compiled = dynamo_lite.compile(f, backend=counter)
    for i in numbers:
        x, y = (torch.arange(216.0).reshape(6, 6, 6).requires_grad_(requires_grad) for _ in range(2))
        result, expected = compiled(x, i), f(y, i)
        torch.testing.assert_close(result, expected)
        assert result.stride() == expected.stride()
        if requires_grad:
            result.sum().backward(), expected.sum().backward()
            torch.testing.assert_close(x.grad, y.grad)
        else:
            torch.testing.assert_close(x, y)
    return counter.frame_count


@pytest.mark.parametrize("name", KEYS)
def test_reading(name):
    key = KEYS[name]
    assert calls(lambda x, i: x[key(i)] * 2, 2, 3, 4, 5) == 2


@pytest.mark.parametrize("name", KEYS)
def test_writing(name):
    key = KEYS[name]

    def f(x, i):
        x[key(i)] = i * 10
        x[key(i)] += 1
        return x * 2

    assert calls(f, 2, 3, 4, 5) == 2


@pytest.mark.parametrize("name", ["alone", "after dots", "list", "with a tensor"])
def test_gradients(name):
    key = KEYS[name]
    assert calls(lambda x, i: x[key(i)] ** 2, 2, 3, 4, 5, requires_grad=True) == 2


@pytest.mark.parametrize("key", [lambda i: (MASK, i), lambda i: (MASK[:, None] & MASK, i)], ids=["rows", "both"])
def test_masks(key):
    """How many a mask selects depends on data: a graph break."""

    def f(x, i):
        y = x[key(i)] * 2
        x[key(i)] = i * 10
        return y

    calls(f, 2, 3, 4, 5)


def test_the_sign_is_guarded():
    assert calls(lambda x, i: x[i, 0], 3, 4, -2, -3, 5, -6) == 3


def test_a_position_that_is_none_raises_as_in_eager_execution():
    def f(x, i):
        return x[i], x[..., i]

    compiled = dynamo_lite.compile(f, backend="eager")
    x = torch.ones(4, 8)
    for i in (1, 2, 3):
        compiled(x, i)
    for i in (4, 9, -5):
        with pytest.raises(IndexError) as expected:
            f(x, i)
        with pytest.raises(IndexError) as found:
            compiled(x, i)
        if torch.__version__ >= (2, 12) or i >= 0:  # for a negative SymInt torch 2.11 has the text of `select`
            assert str(found.value) == str(expected.value)


def test_too_many_positions():
    def f(x, i):
        return x[i, i, i]

    compiled = dynamo_lite.compile(f, backend="eager")
    for i in (2, 3):
        with pytest.raises(IndexError, match="too many indices"):
            compiled(torch.ones(8, 8), i)


@pytest.mark.parametrize("key", [[1, 7], (slice(None), [7]), PICKS + 4])
def test_positions_out_of_range_raise_where_nobody_wants_the_items(key):
    def f(x):
        x[key]
        return x + 1

    x = torch.ones(6, 6)
    with pytest.raises(IndexError) as expected:
        f(x)
    with pytest.raises(IndexError) as found:
        dynamo_lite.compile(f, backend="eager")(x)
    assert str(found.value) == str(expected.value)


def test_a_view_is_a_view():
    def f(x, i):
        y = x[:, i]
        y.add_(1)
        return y

    assert calls(f, 2, 3, 4, 5) == 2


TENSORS = {
    "list": lambda x, i: torch.tensor([i, 3, i + 1]),
    "number": lambda x, i: torch.tensor(i),
    "nested": lambda x, i: torch.tensor([[i, 1], [2, -i]]),
    "tuple": lambda x, i: torch.tensor((i, i)),
    "dtype": lambda x, i: torch.tensor([i, 3], dtype=torch.float64),
    "with bools": lambda x, i: torch.tensor([i, True]),
    "as_tensor": lambda x, i: torch.as_tensor([i, 3]),
    "as_tensor with a dtype": lambda x, i: torch.as_tensor(i, dtype=torch.float32),
    "new_tensor": lambda x, i: x.new_tensor([i, 3]),
    "new_tensor with a dtype": lambda x, i: x.new_tensor([i, 3], dtype=torch.int64),
}


@pytest.mark.parametrize("name", TENSORS)
def test_tensors_of_numbers(name):
    make = TENSORS[name]

    def f(x, i):
        y = make(x, i)
        return x.sum() * y.to(x.dtype), y

    counter = CompileCounterWithBackend("aot_eager")
    compiled = dynamo_lite.compile(f, backend=counter)
    for i in (2, 3, 4, 5):
        x = torch.ones(4)
        result, expected = compiled(x, i), f(x, i)
        torch.testing.assert_close(result, expected)
        assert result[1].dtype == expected[1].dtype
    assert counter.frame_count == 2


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda i: torch.tensor([i, 3], dtype=torch.int8), id="small dtype"),
        pytest.param(lambda i: torch.tensor([i, 0.5]), id="with floats"),
        pytest.param(lambda i: torch.tensor([float(i)], requires_grad=True), id="requires_grad"),
    ],
)
def test_tensors_that_need_the_numbers(make):
    compiled = dynamo_lite.compile(lambda x, i: x * make(i).to(x.dtype), backend="eager")
    for i in (2, 3, 4):
        torch.testing.assert_close(compiled(torch.ones(2), i), torch.ones(2) * make(i).to(torch.float32))


def test_tensors_of_irregular_lists_raise():
    compiled = dynamo_lite.compile(lambda x, i: x * torch.tensor([[i], [1, 2]]), backend="eager")
    for i in (2, 3):
        with pytest.raises(ValueError, match="expected sequence of length 1"):
            compiled(torch.ones(2), i)


def _chunks(m):
    bounds = np.cumsum([0, 2, 3])
    return [m[:, a:b] for a, b in zip(bounds[:-1], bounds[1:], strict=True)]


def _written(m):
    at = np.array([0, 2, 1])
    m = m * 1
    m[:, at[2] : at[1]] = 3.0
    m[at[0]] += 1
    return m


def _picked(m):
    at = np.array([0, 2, 1])
    return m[at[2]], m[:, at[1]], m[at[2], : at[1]]


@pytest.mark.parametrize("fn", [_chunks, _written, _picked])
def test_ints_of_numpys_arrays(fn):
    """They are numbers of the graph, as those of tensors are."""
    m = torch.arange(10.0).reshape(2, 5)
    counter = CompileCounter()
    assert same(fn(m), dynamo_lite.compile(fn, backend=counter, fullgraph=True)(m))
    assert counter.frame_count == 1
