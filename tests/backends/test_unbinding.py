"""`unbind` whose gradient Inductor computes without a stack of the pieces' gradients (`backends.rewrites.unbinding`)."""

import pytest
import torch

import dynamo_lite
from dynamo_lite.backends.rewrites.unbinding import select_pieces
from dynamo_lite.testing import CompileCounterWithBackend


def iterates(x):
    q, k, v = (x * 2).permute(1, 0, 2)
    return (q @ k.T) @ v


def last_dimension(x):
    first, *_, last = torch.unbind(x.sin(), dim=-1)
    return first * last


def pieces_of_an_input(x):
    return x.unbind(1)[-1].exp()


def returns_a_piece(x):
    q, k, v = (x * 2).unbind(1)
    return q, k * v


def many_pieces(x):
    return sum(piece * i for i, piece in enumerate(x.repeat(1, 4, 1).unbind(1)))


CASES = {iterates: 3, last_dimension: 2, pieces_of_an_input: 1, returns_a_piece: 0, many_pieces: 0}
"""Function → selections that its graph has."""


def gradients(f, x):
    results = f(x)
    results = results if type(results) is tuple else (results,)
    (gradient,) = torch.autograd.grad([r.square().sum() for r in results], x)
    return results, gradient


@pytest.mark.filterwarnings("error:backend")
@pytest.mark.parametrize("f", CASES)
def test_gradients(f):
    x = torch.randn(4, 3, 5, requires_grad=True)
    torch.testing.assert_close(gradients(dynamo_lite.compile(f, backend="inductor"), x), gradients(f, x))


@pytest.mark.parametrize("requires_grad", [True, False])
@pytest.mark.parametrize("f", CASES)
def test_the_graph(f, requires_grad):
    counter = CompileCounterWithBackend("eager")
    x = torch.randn(4, 3, 5, requires_grad=requires_grad)
    dynamo_lite.compile(f, backend=counter)(x)
    (graph,) = counter.graphs
    expected = graph(x)
    select_pieces(graph)
    graph.recompile()
    selected = graph.graph.find_nodes(op="call_function", target=torch.select)
    assert len(selected) == (CASES[f] if requires_grad else 0)
    torch.testing.assert_close(graph(x), expected)
    unbound = [node for node in graph.graph.nodes if node.target in ("unbind", torch.unbind)]
    assert bool(unbound) == (not selected)


def test_an_error_of_eager_execution_stays():
    def f(x):
        a, b, c = (x * 2).unbind(1)
        return a, b + c

    result, _ = dynamo_lite.compile(f, backend="inductor")(torch.randn(2, 3, requires_grad=True))
    with pytest.raises(RuntimeError, match="inplace|in-place"):
        result.add_(1)
