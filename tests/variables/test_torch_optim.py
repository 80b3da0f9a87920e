"""A compiled `optimizer.step()`: parameters equal to eager execution, whole where torch.compile captures it whole."""

import pytest
import torch
from torch import nn

import dynamo_lite
from dynamo_lite.testing import CompileCounter

WHOLE = {
    "SGD": {"momentum": 0.9},
    "Adam": {},
    "AdamW": {"amsgrad": True},
    "Adamax": {},
    "Adagrad": {},
    "Adadelta": {},
    "NAdam": {},
    "RMSprop": {"momentum": 0.5, "centered": True},
    "Rprop": {},
    "Muon": {},
}
BROKEN = {"ASGD": {}, "RAdam": {}, "Adafactor": {}, "SparseAdam": {}}


def five_steps(name, compiled, **options):
    torch.manual_seed(0)
    params = [nn.Parameter(torch.randn(4, 3)) for _ in range(3)]
    optimizer = getattr(torch.optim, name)(params, lr=0.01, **options)
    counter = CompileCounter()
    step = dynamo_lite.compile(optimizer.step, backend=counter) if compiled else optimizer.step
    for _ in range(5):
        for p in params:
            grad = torch.randn(4, 3)
            p.grad = grad.to_sparse() if name == "SparseAdam" else grad
        step()
    return params, counter.frame_count


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("name", WHOLE)
def test_whole(name, foreach):
    options = WHOLE[name] if name == "Muon" else {**WHOLE[name], "foreach": foreach}
    expected, _ = five_steps(name, False, **options)
    params, graphs = five_steps(name, True, **options)
    torch.testing.assert_close(params, expected)
    assert graphs <= 2  # the first step makes the state


@pytest.mark.parametrize("name", BROKEN)
def test_with_breaks(name):
    torch.testing.assert_close(five_steps(name, True)[0], five_steps(name, False)[0])


def test_tensor_for_a_number():
    def fn(a, v):
        return a.clone().addcdiv_(a, a + 2, value=v), a.addcmul(a, a, value=v), a.add(a, alpha=v), a.add(a, alpha=2)

    a, v = torch.arange(4.0), torch.tensor(0.5)
    torch.testing.assert_close(dynamo_lite.compile(fn, backend="eager", fullgraph=True)(a, v), fn(a, 0.5))


def test_record_function_around_a_break():
    def fn(a):
        with torch.profiler.record_function("block"):
            a = a + 1
            dynamo_lite.graph_break()
            a = a * 2
        return a

    def whole(a):
        with torch.profiler.record_function("block"):
            return a + 1

    a = torch.ones(2)
    torch.testing.assert_close(dynamo_lite.compile(fn, backend="eager")(a), fn(a))
    torch.testing.assert_close(dynamo_lite.compile(whole, backend="eager", fullgraph=True)(a), whole(a))
