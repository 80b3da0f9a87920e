"""Numbers and sizes from data under compilers: whole graphs, with gradients."""

import pytest
import torch
from torch.nn import functional as F

import dynamo_lite
from dynamo_lite.testing import differences


def cleared_behind(x, n):
    y = x * 2
    for i in range(3):
        y[i, n[i] :] = 0
    return y


def cleared_box(x, n):
    y = x.clone()
    left, right = n[0], n[1]
    y[:, left : left + right] = 0
    return y


def moved(x, n):
    y = x.clone()
    y[1, : n[1]] = x[0, : n[1]] * 3
    return y


def product(x, n):
    rows = x[: n.max()]
    return rows @ rows.T


def convolved(x, n):
    return F.conv1d(x[:, None, : n.max() + 1], torch.ones(1, 1, 2))


def attention(x, n):
    rows = x[n > 1][None]
    return F.scaled_dot_product_attention(rows, rows, rows)


def masked_loss(x, n):
    return F.mse_loss(x[n > 1], (x.detach() * 0.5)[n > 1])


def written_by_mask(x, n):
    y = torch.zeros(3, 7)
    y[n > 1] = torch.tanh(x[0])
    return y.sum(0)


def scaled_by_sides(x, n):
    top = x.max().item()
    return x * top if top > 0 else x - top


def normalized(x, n):
    return F.batch_norm(x[n > 1], None, None, training=True).square()


def distances(x, n):
    return torch.cdist(x[n > 1], x).sort(-1)[0]


def rolled(x, n):
    rows = x[n > 1]
    return rows.roll(1, 0) * rows.t().reshape(-1, 7)


def causal(x, n):
    rows = x[n > 1]
    mask = torch.full((rows.size(0), rows.size(0)), float("-inf")).triu(1)
    return (rows @ rows.T + mask).softmax(-1) @ rows


def deviations(x, n):
    return x[n > 1].std(0), x[n > 1].var()


def image(x, n):
    return F.conv2d(x[None, None, : n.max()].expand(2, 3, -1, -1), torch.ones(4, 3, 2, 2)).relu().mean((2, 3))


def halves(x, n):
    return x[:, : n[0]].sum(1) * x[:, n[0] :].sum(1)


def steps(x, n):
    rows = x[:, : n[1]]
    return rows[:, 1:] - rows[:, :-1], rows.logsumexp(1)


PROGRAMS = [
    cleared_behind,
    cleared_box,
    halves,
    steps,
    moved,
    product,
    convolved,
    attention,
    masked_loss,
    written_by_mask,
    normalized,
    distances,
    rolled,
    causal,
    deviations,
    image,
    scaled_by_sides,
]


def outcome(call):
    x = torch.arange(-4.0, 17).reshape(3, 7).div(8).requires_grad_()
    n = torch.tensor([2, 4, 1])
    result = call(x, n)
    loss = sum(y.sum() for y in (result if type(result) is tuple else (result,)))
    return result, *torch.autograd.grad(loss, x)


@pytest.mark.filterwarnings("error::UserWarning")
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("fn", PROGRAMS)
def test_whole_graphs_with_gradients(fn, backend):
    compiled = dynamo_lite.compile(fn, backend=backend, fullgraph=True)
    assert not list(differences(outcome(compiled), outcome(fn), tol=1e-5))


def test_elements_of_a_transposed_selection():
    """Inductor (torch 2.13) takes what a mask of 3 selects for less than 7, and 7 for a multiple of it."""

    def fn(x, mask):
        return x[mask].t().reshape(-1, 7) * 2

    x = torch.arange(21.0).reshape(3, 7)
    compiled = dynamo_lite.compile(fn, backend="inductor", fullgraph=True)
    for mask in (torch.tensor([True, True, False]), torch.tensor([True, True, True])):
        assert torch.equal(compiled(x, mask), fn(x, mask))


def test_results_that_lie_in_an_input_where_data_decide():
    """Rows of an input up to lengths: their place in its memory is asked of the compiled graph."""

    def fn(x, n):
        rows = [x[i, :k] for i, k in enumerate(n.tolist())]
        print(end="")
        return rows

    x, n = torch.arange(21.0).reshape(3, 7), torch.tensor([2, 4, 1])
    rows = dynamo_lite.compile(fn, backend="inductor")(x, n)
    assert [row.tolist() for row in rows] == [[0, 1], [7, 8, 9, 10], [14]]
    rows[1].zero_()
    assert x[1].tolist() == [0, 0, 0, 0, 11, 12, 13]


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("fn", [distances, rolled, causal])
def test_selections_of_few_rows(fn, backend):
    """The graph takes for granted that there are some. Where there are none the function starts again, without the graph."""
    x = torch.arange(21.0).reshape(3, 7).sin()
    compiled = dynamo_lite.compile(fn, backend=backend, fullgraph=True)
    for lengths in ([2, 4, 1], [1, 1, 1], [2, 1, 1], [1, 0, 0], [3, 3, 3], [1, 1, 0], [0, 0, 0], [2, 2, 2]):
        n = torch.tensor(lengths)
        assert not list(differences(compiled(x, n), fn(x, n), tol=1e-5))
