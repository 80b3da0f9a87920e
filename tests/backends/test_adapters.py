"""The adapters on hand-made graphs with fake metadata: what convert hands over, without convert."""

import sys

import pytest
import torch
from torch import fx
from torch._guards import TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

import dynamo_lite
from dynamo_lite.backends.aot import STATIC_ADDRESS, aot_autograd
from dynamo_lite.backends.registry import call_backend, lookup_backend
from dynamo_lite.exc import BackendCompilerFailed


def captured(build, inputs, dynamic_dims=()):
    """A graph with placeholders for `inputs` and fake metadata; `build(graph, *nodes)` returns the output nodes."""
    shape_env = ShapeEnv()
    mode = FakeTensorMode(shape_env=shape_env)
    graph = fx.Graph()
    nodes = []
    for i, value in enumerate(inputs):
        node = graph.placeholder(f"arg{i}")
        dims = [DimDynamic.DYNAMIC if (i, d) in dynamic_dims else DimDynamic.STATIC for d in range(value.dim())]
        node.meta["example_value"] = mode.from_tensor(
            value, symbolic_context=StatelessSymbolicContext(dynamic_sizes=dims)
        )
        nodes.append(node)
    graph.output(tuple(build(graph, *nodes)))
    return fx.GraphModule(torch.nn.Module(), graph), mode


def compile_with(name, gm, mode, inputs, fullgraph=True):
    with tracing(TracingContext(mode)):
        return call_backend(lookup_backend(name), gm, inputs, fullgraph=fullgraph)


def linear_relu(graph, x, weight, bias):
    y = graph.call_function(torch.nn.functional.linear, (x, weight, bias))
    return (graph.call_function(torch.relu, (y,)),)


def make_inputs():
    torch.manual_seed(0)
    return [
        torch.randn(3, 4),
        torch.nn.Parameter(torch.randn(5, 4)),
        torch.nn.Parameter(torch.randn(5)),
    ]


BACKENDS = ["eager", "aot_eager", "inductor"]


@pytest.mark.parametrize("name", BACKENDS)
def test_forward_without_grad(name):
    inputs = make_inputs()
    with torch.no_grad():
        gm, mode = captured(linear_relu, inputs)
        compiled = compile_with(name, gm, mode, inputs)
        (actual,) = compiled(*inputs)
        (expected,) = gm(*inputs)
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("name", BACKENDS)
def test_training(name):
    inputs = make_inputs()
    gm, mode = captured(linear_relu, inputs)
    before = gm.code
    compiled = compile_with(name, gm, mode, inputs)
    (out,) = compiled(*inputs)
    out.sum().backward()
    grads = [p.grad.clone() for p in inputs[1:]]
    for p in inputs[1:]:
        p.grad = None
    gm(*inputs)[0].sum().backward()
    for actual, p in zip(grads, inputs[1:], strict=True):
        torch.testing.assert_close(actual, p.grad)
    assert gm.code == before


@pytest.mark.parametrize("name", BACKENDS)
def test_input_mutation(name):
    def build(graph, x, y):
        graph.call_method("add_", (x, y))
        return (graph.call_function(torch.mul, (x, 2)),)

    inputs = [torch.ones(3), torch.full((3,), 4.0)]
    gm, mode = captured(build, inputs)
    compiled = compile_with(name, gm, mode, inputs)
    (out,) = compiled(*inputs)
    assert inputs[0].tolist() == [5.0] * 3
    assert out.tolist() == [10.0] * 3


@pytest.mark.parametrize("name", BACKENDS)
def test_symbolic_size(name):
    def build(graph, x):
        return (graph.call_function(torch.sin, (x,)), graph.call_method("size", (x, 0)))

    inputs = [torch.randn(7, 2)]
    gm, mode = captured(build, inputs, dynamic_dims={(0, 0)})
    compiled = compile_with(name, gm, mode, inputs)
    for n in (7, 9):
        x = torch.randn(n, 2)
        out, size = compiled(x)
        torch.testing.assert_close(out, x.sin())
        assert size == n


def test_parameters_are_static_addresses():
    seen = []

    def compiler(gm, example_inputs):
        seen.append(tuple(TracingContext.get().fw_metadata.static_input_indices))
        return gm.forward

    inputs = [torch.randn(3, 4), torch.nn.Parameter(torch.randn(5, 4)), torch.randn(5)]
    gm, mode = captured(linear_relu, inputs)
    gm.graph.find_nodes(op="placeholder")[2].meta[STATIC_ADDRESS] = True
    with tracing(TracingContext(mode)):
        aot_autograd(compiler)(gm, inputs)
    assert seen == [(1, 2)]


def test_what_a_compiler_returns_may_take_its_inputs_one_by_one(recwarn):
    backend = aot_autograd(lambda gm, example_inputs: gm.forward)
    x = torch.ones(3, requires_grad=True)
    dynamo_lite.compile(lambda x: x.sin().sum(), backend=backend)(x).backward()
    torch.testing.assert_close(x.grad, torch.ones(3).cos())
    assert not recwarn.list  # torch's about the form of calls


def failing(gm, example_inputs):
    raise ValueError("no such kernel\nmore")


def test_failing_backend_falls_back_with_one_warning():
    inputs = make_inputs()
    gm, mode = captured(linear_relu, inputs)
    with pytest.warns(
        UserWarning, match="backend 'failing' failed, the graph runs eagerly: ValueError: no such kernel$"
    ) as seen:
        compiled = compile_with(failing, gm, mode, inputs, fullgraph=False)
    assert len(seen) == 1
    torch.testing.assert_close(compiled(*inputs)[0], gm(*inputs)[0])


def test_failing_backend_raises_under_fullgraph():
    inputs = make_inputs()
    gm, mode = captured(linear_relu, inputs)
    with pytest.raises(BackendCompilerFailed, match="backend='failing' raised:\nValueError: no such kernel") as info:
        compile_with(failing, gm, mode, inputs)
    assert isinstance(info.value.inner_exception, ValueError)
    assert info.value.__cause__ is info.value.inner_exception


def test_backend_that_returns_nothing():
    inputs = make_inputs()
    gm, mode = captured(linear_relu, inputs)
    with pytest.raises(BackendCompilerFailed, match="returned NoneType, not a callable"):
        compile_with(lambda gm, example_inputs: None, gm, mode, inputs)


def test_inductors_disable_is_left_out_while_no_torch_compile_is_active(monkeypatch):
    from torch._C._dynamo import eval_frame
    from torch._dynamo import disable

    from dynamo_lite.backends.inductor import without_disable

    active, seen = None, []
    monkeypatch.setattr(eval_frame, "get_eval_frame_callback", lambda: active)

    def graph(*args):
        seen.append(sys._getframe(1).f_code)
        return args

    disabled = disable(graph)
    call = without_disable(disabled)
    assert call(1, 2) == (1, 2)
    active = print
    assert call(3) == (3,)
    assert seen == [call.__code__, disabled.__code__]
    assert without_disable(graph) is graph
