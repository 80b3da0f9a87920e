"""Iteration over a tensor, which gives several views of it at once: autograd refuses to change one of these in place."""

import pytest
import torch

import dynamo_lite
from dynamo_lite.testing import CompileCounterWithBackend, same


def x():
    return torch.arange(6.0).reshape(2, 3) + 1


def leaf(a, w):
    for row in a:
        row.add_(1)
    return a * w


def made_inside(a, w):
    y = a * 2
    for row in y:
        row.mul_(w[0])
    return (y * y).sum()


def by_unbind(a, w):
    y = a * w
    first, second = y.unbind()
    first += second
    return y


def by_split(a, w):
    y = a * w
    for part in y.split(1):
        part.zero_()
    return y


def caught(a, w):
    y = a * w
    try:
        for row in y:
            row.add_(1)
    except RuntimeError as error:
        return y + 1, str(error)
    return y


def of_rows_without_gradients(a, w):
    y = w.detach() * 2
    for row in y:
        row.add_(a[0])
    return y * 2


REFUSED = [leaf, made_inside, by_unbind, by_split, caught, of_rows_without_gradients]


def run(call, gradients):
    """Results or errors, gradients, and what the arguments are afterwards."""
    found = []
    for _ in range(2):
        a, w = x().requires_grad_(gradients), torch.full((2, 3), 2.0, requires_grad=gradients)
        try:
            result = call(a, w)
            found.append(result)
            y = result[0] if isinstance(result, tuple) else result
            if y.requires_grad:
                y.sum().backward()
        except RuntimeError as error:
            found.append(str(error))
        found += [a.detach(), w.detach(), a.grad, w.grad, a._version]
    return found


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", REFUSED)
def test_a_change_of_one_of_several_views(fn, backend, recwarn):
    expected = run(fn, True)
    assert "multiple views" in str(expected)
    assert same(expected, run(dynamo_lite.compile(fn, backend=backend), True))
    assert not [w for w in recwarn if "runs eagerly" in str(w.message)]  # nothing but what is refused


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", REFUSED)
def test_without_gradients(fn, backend):
    counter = CompileCounterWithBackend(backend)
    expected = run(fn, False)
    expected, found = (
        [r for i, r in enumerate(results) if i % 6 != 5]  # AOTAutograd changes an input once
        for results in (expected, run(dynamo_lite.compile(fn, backend=counter, fullgraph=True), False))
    )
    assert same(expected, found)
    assert counter.frame_count == 1


def read(a, w):
    rows = [row * w[i] for i, row in enumerate(a)]
    first, *rest = a
    return torch.stack(rows) + first.sin(), len(rest)


def changed_under_no_grad(a, w):
    y = a * 1
    with torch.no_grad():
        for row in a:
            row.mul_(2)
    return y * w


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", [read, changed_under_no_grad])
def test_in_one_graph(fn, backend):
    counter = CompileCounterWithBackend(backend)
    compiled = dynamo_lite.compile(fn, backend=counter, fullgraph=True)
    for gradients in (True, False):
        expected, found = ([r for i, r in enumerate(run(f, gradients)) if i % 6 != 5] for f in (fn, compiled))
        assert same(expected, found)
    assert counter.frame_count == 2


def test_of_other_lengths():
    def fn(a):
        total = 0
        for row in a:
            total = total + row * 2
        return total

    counter = CompileCounterWithBackend("aot_eager")
    compiled = dynamo_lite.compile(fn, backend=counter, dynamic=True)
    for n in (2, 3, 5):
        a = torch.arange(3.0 * n).reshape(n, 3)
        assert same(fn(a), compiled(a))
    with pytest.raises(TypeError, match="0-d tensor"):
        compiled(torch.tensor(1.0))


# -- views that leave the graph


def one_of_several(a, w):
    return (a * w).unbind()[0]


def several_beside_their_base(a, w):
    y = a * w
    return y.split(1), y


def views_of_one_of_several(a, w):
    y = a * w
    return y.unbind()[0].view(-1), y.view(-1)


def views_of_an_input(a, w):
    return a.unbind(), w * 2


def kinds(result):
    views = [t for t in torch.utils._pytree.tree_leaves(result)]
    kind = torch._C._autograd._get_creation_meta
    return [(t._is_view(), kind(t) if t._is_view() else None, t.requires_grad) for t in views]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", [one_of_several, several_beside_their_base, views_of_one_of_several, views_of_an_input])
def test_views_that_leave_the_graph(fn, backend):
    """Autograd knows of results which are one of several views, and refuses to change these in place."""
    compiled = dynamo_lite.compile(fn, backend=backend, fullgraph=True)
    for _ in range(2):
        outcomes = []
        for call in (fn, compiled):
            a, w = x().requires_grad_(), torch.full((2, 3), 2.0, requires_grad=True)
            result = call(a, w)
            first = torch.utils._pytree.tree_leaves(result)[0]
            with pytest.raises(RuntimeError, match="multiple views"):
                first.add_(1)
            sum(t.sum() for t in torch.utils._pytree.tree_leaves(result)).backward()
            outcomes.append([result, kinds(result), a.grad, w.grad])
        assert same(*outcomes)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_view_is_not_detached_in_place(backend):
    def fn(a):
        b = a * 2
        a.detach_()
        return b, a.requires_grad

    counter = CompileCounterWithBackend(backend)
    compiled = dynamo_lite.compile(fn, backend=counter)
    for _ in range(2):
        a = x().requires_grad_() * 1
        assert compiled(a)[1] is False and not a.requires_grad
    assert counter.frame_count == 0  # compilers leave an input its history
    assert compiled(x())[1] is False
    assert counter.frame_count == 1
    for call in (fn, compiled):
        with pytest.raises(RuntimeError, match="detach views in-place"):
            call((x().requires_grad_() * 1).view(-1, 3))
