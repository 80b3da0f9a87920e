"""`Tensor._version`: the number that inputs come with, and how often the graph has changed a tensor in place."""

import pytest
import torch

import dynamo_lite
from dynamo_lite.testing import CompileCounter, CompileCounterWithBackend, same


def x(version=0):
    a = torch.arange(6.0).reshape(2, 3)
    for _ in range(version):
        a.add_(1)
    return a


def asked(a, w):
    return a * w, w._version


def changed_after(a, w):
    v = a._version
    a.add_(1).mul_(w)
    return a * 2, v, [v + 1]


def statistics(a, w):
    v = w._version
    return torch.nn.functional.batch_norm(a, w[0], torch.ones(3), training=True), v


def other_data(a, w):
    v = a._version
    a.data = w * 2
    return v


def kept_as_attribute(a, w):
    w.seen = a._version
    a.mul_(2)
    return w.seen


WHOLE = [asked, changed_after, statistics, other_data, kept_as_attribute]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", WHOLE)
def test_what_an_input_comes_with(fn, backend):
    def run(call):
        return [call(x(i), x(i + 3)) for i in range(4)]

    counter = CompileCounterWithBackend(backend)
    expected = run(fn)
    assert same(expected, run(dynamo_lite.compile(fn, backend=counter, fullgraph=True)), tol=1e-5)
    assert counter.frame_count <= 2  # the second for all numbers


def difference(a, w):
    v = a._version
    y = a * w
    a.add_(1)
    return y, a._version - v


def through_view(a, w):
    a[0].mul_(2)
    return a * w, a._version


def through_alias(a, w):
    a.detach().add_(1)
    return a * w, a._version


def of_several(a, w):
    torch._foreach_add_([a.detach(), w.view(-1)], 1)
    return a * w, a._version, w._version


def through_another_input(a, w):
    a[:1].add_(1)
    return a * w, w._version


def past_the_counter(a, w):
    a.data.add_(1)
    return a * w, a._version


def across_a_break(a, w):
    v = a._version
    a.add_(1)
    print(end="")
    return a.mul_(2), a._version - v


CHANGES = [difference, through_view, through_alias, of_several, through_another_input, past_the_counter, across_a_break]


@pytest.mark.parametrize("fn", CHANGES)
def test_changes_in_place_are_counted(fn):
    def run(call):
        results = []
        for i in range(3):
            a = x(i)
            results.append((call(a, x(i + 3)), call(a, a), a))
        return results

    assert same(run(fn), run(dynamo_lite.compile(fn, backend="eager")))


def test_what_was_computed_before_is_used_until_the_tensor_changes():
    class Scaled:
        seen = kept = None

        def __call__(self, a, w):
            if self.seen != w._version:
                self.kept, self.seen = w.sum(), w._version
            return a * self.kept

    def run(compile):
        w, scaled = x(), Scaled()
        call, results = compile(scaled.__call__), []
        for i in range(6):
            results.append(call(x(), w))
            if i % 2:
                w.add_(1)
        return results

    counter = CompileCounter()
    assert same(run(lambda f: f), run(lambda f: dynamo_lite.compile(f, backend=counter, fullgraph=True)))


def test_tensors_of_an_inference_mode_have_no_version():
    def fn(a):
        try:
            return a * 2, a._version
        except RuntimeError as error:
            return str(error)

    compiled = dynamo_lite.compile(fn, backend="eager")
    with torch.inference_mode():
        inference = x()
    for a in (x(), inference, x(2)):
        assert same(fn(a), compiled(a))


def made_inside(a, w):
    y = a * w
    before = y._version
    y.add_(1)
    y[0].mul_(2)
    return y, before, y._version, y.T._version, y.clone()._version


def of_data(a, w):
    y = a * w
    d = y.data
    d.add_(1)
    torch._foreach_mul_([d[1], d[0]], 2)
    return y, d, y._version, d._version


def of_detached(a, w):
    y = a * w
    d = y.detach()[1]
    d.add_(1)
    return y, d, y._version, d._version


def of_a_list(a, w):
    y = a * w
    torch._foreach_add_([y[0], y[1]], 1)
    return y, y._version


def of_a_view(a, w):
    row = a[0]
    before = row._version
    a.add_(1)
    row.mul_(2)
    return a * w, row._version - before, a._version - before


def decides(a, w):
    y = a * w
    y += 1
    if y._version != 1:
        raise AssertionError
    return y


def exactly_one(a, w):
    v = a._version
    a.add_(1)
    a.data.mul_(2)
    return a * w, a._version - v


INSIDE = [made_inside, of_data, of_detached, of_a_list, of_a_view, decides, exactly_one]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", INSIDE)
def test_in_one_graph(fn, backend):
    """Also of what the graph returns."""

    def run(call):
        found = []
        for i in range(3):
            a, w = x(i), x(i + 1)
            results = call(a, w)
            results = results if isinstance(results, tuple) else (results,)
            found.append(
                (results, [r._version for r in results if isinstance(r, torch.Tensor)], a._version, w._version)
            )
        return found

    counter = CompileCounterWithBackend(backend)
    assert same(run(fn), run(dynamo_lite.compile(fn, backend=counter, fullgraph=True)))
    assert counter.frame_count <= 2  # the second for all numbers that inputs come with


def left_by_a_break(a, w):
    y = a * w
    y.add_(1).mul_(2)
    d = y.data
    d.add_(1)
    print(end="")
    return y * 2, y._version, d._version


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_after_a_break(backend):
    counter = CompileCounterWithBackend(backend)
    compiled = dynamo_lite.compile(left_by_a_break, backend=counter)
    for _ in range(2):
        assert same(left_by_a_break(x(), x(3)), compiled(x(), x(3)))
    assert counter.frame_count == 2


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", [made_inside, of_data, of_detached, of_a_list, left_by_a_break])
def test_with_gradients(fn, backend):
    """What a compiler keeps for gradients is not taken for changed. (The counters of such results it leaves where they are.)"""

    def run(call):
        a, w = x().requires_grad_(), x(1)
        results = call(a, w)
        results[0].sum().backward()
        numbers = [r for r in results if isinstance(r, int)]
        tensors = [r for r in results if isinstance(r, torch.Tensor)]
        return tensors, a.grad, [] if fn is left_by_a_break and backend != "eager" else numbers

    expected, found = run(fn), run(dynamo_lite.compile(fn, backend=backend))
    assert same(expected, found)
    if fn is of_data:
        assert [t._version for t in found[0]] == [0, 3]
