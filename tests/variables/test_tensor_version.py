"""`Tensor._version` of inputs: the number that they come with, whatever the graph does to them."""

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
