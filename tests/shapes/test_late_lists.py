"""Lists that `Tensor.tolist` makes, when the graph has run or as numbers of the graph, and positions that tensors hold."""

import types

import pytest
import torch

import dynamo_lite
from dynamo_lite.testing import CompileCounter


def written_behind(x):
    items = x.tolist()
    x.add_(1)
    return items, x * 2


def asked_behind_a_write(x):
    items = x.tolist()
    x.add_(1)
    return items[0] + items[-1], x * 2


def appended(x):
    items = x[x > 3].tolist()
    items.append(7.0)
    return items, len(items), x * len(items)


def cleared(x):
    items = x[x > 3].tolist()
    items.clear()
    return items, x + 1


def one_object(x):
    items = x[x > 3].tolist()
    return [items, items], {"same": items}, x + 1


def changed(x):
    rows = x.view(3, 4).tolist()
    rows[0][1] = 77.0
    return rows, rows[1], x + 1


def joined(x):
    items = x.tolist()
    items += [1.0, 2.0]
    items.extend(x[:2].tolist())
    return items, items == items.copy(), items[::-1]


def with_gradients(x):
    y = x.clone().requires_grad_()
    return y.tolist(), y.view(4, 3).tolist(), (y * 2).detach()


def many(x):
    return x.repeat(40).tolist(), x.repeat(40).view(-1, 6).bool().tolist(), x + 1


def in_a_loop(x):
    kept = []
    for row in x.view(3, 4):
        kept.append(row[row > 3].tolist())
    return kept, x + 1


WHOLE = [
    written_behind,
    asked_behind_a_write,
    appended,
    cleared,
    one_object,
    changed,
    joined,
    with_gradients,
    many,
    in_a_loop,
]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("function", WHOLE)
def test_lists_in_one_graph(function, backend):
    compiled = dynamo_lite.compile(function, backend=backend, fullgraph=True)
    for x in (torch.arange(12.0), torch.arange(12.0).flip(0) - 2, torch.zeros(12)):
        expected = function(theirs := x.clone())
        found = compiled(mine := x.clone())
        assert repr(found) == repr(expected)
        assert torch.equal(mine, theirs)
    assert found[0] is not expected[0]


def test_one_list_is_one_object():
    (first, second), held, _ = dynamo_lite.compile(one_object, backend="eager")(torch.arange(12.0))
    assert first is second is held["same"]


def test_a_list_that_only_leaves_is_copied_once():
    counter = CompileCounter()
    dynamo_lite.compile(lambda x: x.tolist(), backend=counter)(torch.ones(12))
    assert (counter.frame_count, counter.op_count) == (1, 2)


def test_an_attribute_holds_a_list_of_unknown_length():
    noted = types.SimpleNamespace()

    def step(x):
        noted.chosen = x[x > 3].tolist()
        return x + len(noted.chosen)

    compiled = dynamo_lite.compile(step, backend="eager", fullgraph=True)
    for x in (torch.arange(6.0), torch.arange(9.0)):
        assert torch.equal(compiled(x), x + (x > 3).sum())
        assert noted.chosen == x[x > 3].tolist()


def test_items_of_a_list_of_unknown_length_end_the_graph_where_they_are_asked_for():
    counter = CompileCounter()

    def step(x):
        items = x[x > 3].tolist()
        y = x * 2
        return y + sum(items)

    compiled = dynamo_lite.compile(step, backend=counter)
    for _ in range(2):
        assert torch.equal(compiled(torch.arange(6.0)), torch.arange(6.0) * 2 + 9)
    assert counter.frame_count == 2


AT = {
    "largest": lambda x, i: x[x.argmax()] + 1,
    "row": lambda x, i: x.view(3, 4)[i, :2] * 2,
    "column": lambda x, i: x.view(3, 4)[..., i],
    "two": lambda x, i: x.view(3, 4)[i, i.abs()],
    "beside a tensor": lambda x, i: x.view(3, 4)[torch.arange(2), i],
    "short": lambda x, i: x[i.to(torch.int16)] + 1,
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("function", AT.values(), ids=AT)
def test_a_tensor_without_dimensions_is_a_position(function, backend):
    compiled = dynamo_lite.compile(function, backend=backend, fullgraph=True)
    for i in (1, 2, -1, -2):
        x = torch.randn(12)
        expected, found = function(x, torch.tensor(i)), compiled(x, torch.tensor(i))
        assert repr(found) == repr(expected)


def test_positions_of_tensors_are_written_to():
    def step(x, i):
        x[i] = 7
        x[i + 1] += 1
        part = x[i]
        part -= 2
        return part, x.sum()

    compiled = dynamo_lite.compile(step, backend="aot_eager", fullgraph=True)
    for i in (1, 4, -3):
        mine, theirs = torch.arange(6.0), torch.arange(6.0)
        assert repr(compiled(mine, torch.tensor(i))) == repr(step(theirs, torch.tensor(i)))
        assert torch.equal(mine, theirs)


def test_a_position_beyond_the_end_is_the_programs_error():
    compiled = dynamo_lite.compile(lambda x, i: x[i] * 2, backend="eager", fullgraph=True)
    compiled(torch.ones(3), torch.tensor(2))
    with pytest.raises(IndexError, match="index 3 is out of bounds for dimension 0 with size 3"):
        compiled(torch.ones(3), torch.tensor(3))


def test_the_gradient_of_a_position():
    def step(x, i):
        (x[i] * x.sum()).backward()
        return x.grad

    compiled = dynamo_lite.compile(step, backend="eager", fullgraph=True)
    for i in (0, 2):
        mine, theirs = (torch.ones(3, requires_grad=True) for _ in range(2))
        assert torch.equal(compiled(mine, torch.tensor(i)), step(theirs, torch.tensor(i)))
