"""Backward passes that a compiler cannot take, or takes while another thread compiles."""

import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import dynamo_lite
from dynamo_lite.record import log
from dynamo_lite.testing import differences


def means_of_rows(x, lengths):
    return torch.stack([x[i, :n].mean() for i, n in enumerate(lengths.tolist())])


def check_gradient(fn):
    """The notes on its graph."""
    x, lengths = torch.randn(2, 8, requires_grad=True), torch.tensor([3, 5])
    compiled = dynamo_lite.compile(fn, backend="inductor", fullgraph=True)
    result, expected = compiled(x, lengths), fn(x, lengths)
    assert not list(differences(result, expected, tol=1e-6))
    (gradient,), (same,) = (torch.autograd.grad(y.sum(), x) for y in (result, expected))
    assert not list(differences(gradient, same, tol=1e-6))
    (frame,) = log.snapshot()
    return frame.graphs[0].notes


def test_a_backward_pass_with_numbers_from_data():
    assert check_gradient(means_of_rows) == {}


def test_a_backward_pass_with_numbers_from_data_that_inductor_cannot_take(monkeypatch):
    """It runs operator by operator: when it is compiled, the forward pass has run."""

    def refuses(graph, inputs, **settings):
        if settings.get("is_backward"):
            raise RuntimeError("no backward pass\nfor this")
        return compile_one(graph, inputs, **settings)

    compile_one = torch._inductor.compile_fx.compile_fx_inner
    monkeypatch.setattr(torch._inductor.compile_fx, "compile_fx_inner", refuses)
    assert check_gradient(means_of_rows) == {"backward pass not compiled": ["no backward pass"]}


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_backward_pass_that_inductor_cannot_take_runs_eagerly(monkeypatch, dynamic):
    def refuses(graph, inputs, **settings):
        if settings.get("is_backward"):
            for node in graph.graph.find_nodes(op="call_function", target=torch.ops.aten.mul.Tensor):
                node.update_arg(1, 100.0)
            raise RuntimeError("no backward pass\nfor this")
        return compile_one(graph, inputs, **settings)

    def fn(x):
        return (x.sin() * x).cumsum(0)

    compile_one = torch._inductor.compile_fx.compile_fx_inner
    monkeypatch.setattr(torch._inductor.compile_fx, "compile_fx_inner", refuses)
    compiled = dynamo_lite.compile(fn, backend="inductor", fullgraph=True, dynamic=dynamic)
    with pytest.warns(
        UserWarning, match="'inductor' failed in the backward pass, which runs eagerly: .*no backward pass"
    ) as said:
        x = torch.randn(4, requires_grad=True)
        (gradient,) = torch.autograd.grad(compiled(x).sum(), x)
    torch.testing.assert_close(gradient, torch.autograd.grad(fn(x).sum(), x)[0])
    assert said[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (gradient,) = torch.autograd.grad(compiled(x).sum(), x)
    torch.testing.assert_close(gradient, torch.autograd.grad(fn(x).sum(), x)[0])


def test_a_backward_pass_that_draws_again_runs_under_inductor_or_not_at_all(monkeypatch):
    """Only Inductor's kernels draw the same numbers of a seed once more."""

    def refuses(graph, inputs, **settings):
        if settings.get("is_backward"):
            raise RuntimeError("no backward pass")
        return compile_one(graph, inputs, **settings)

    def fn(x):
        return checkpoint(lambda x: torch.dropout(x.sin(), 0.5, True).sin(), x, use_reentrant=False)

    compile_one = torch._inductor.compile_fx.compile_fx_inner
    monkeypatch.setattr(torch._inductor.compile_fx, "compile_fx_inner", refuses)
    result = dynamo_lite.compile(fn, backend="inductor", fullgraph=True)(torch.ones(16, requires_grad=True))
    with pytest.raises(RuntimeError, match="no backward pass"):
        result.sum().backward()


def test_the_program_interrupts_the_compiler_of_a_backward_pass(monkeypatch):
    """An exception of the program, here a lack of memory, is no fault of the compiler."""

    def interrupted(graph, inputs, **settings):
        if settings.get("is_backward"):
            raise MemoryError("from outside")
        return compile_one(graph, inputs, **settings)

    def fn(x, lengths):
        return torch.stack([x[i, :n].mean() for i, n in enumerate(lengths.tolist())])

    compile_one = torch._inductor.compile_fx.compile_fx_inner
    monkeypatch.setattr(torch._inductor.compile_fx, "compile_fx_inner", interrupted)
    result = dynamo_lite.compile(fn, backend="inductor", fullgraph=True)(
        torch.randn(2, 9, requires_grad=True), torch.tensor([3, 5])
    )
    with pytest.raises(MemoryError, match="from outside"):
        result.sum().backward()


def test_a_backward_pass_waits_for_another_compilation(monkeypatch):
    """Inductor compiles one graph at a time: its state is that of the process."""
    from torch._inductor.triton_bundler import TritonBundler

    begin = TritonBundler.begin_compile.__func__

    def begin_slowly(cls):
        begin(cls)
        time.sleep(0.2)

    monkeypatch.setattr(TritonBundler, "begin_compile", classmethod(begin_slowly))
    weight = torch.randn(4, 4, requires_grad=True)
    compiled = dynamo_lite.compile(lambda x, w: (x @ w).sin().sum(0), backend="inductor", dynamic=False)
    loss = compiled(torch.randn(3, 4), weight).sum()
    other = dynamo_lite.compile(lambda x: x.cos() * 3, backend="inductor", fullgraph=True)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.submit(loss.backward), pool.submit(other, torch.ones(5))
    assert first.exception() is None and second.exception() is None
