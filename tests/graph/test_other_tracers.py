"""Compiled functions under torch's own tracers, and compilers inside compiled functions."""

import pytest
import torch

import dynamo_lite
from dynamo_lite.config import config
from dynamo_lite.testing import CompileCounter, run_both


def f(x):
    return x.sin() + 1


class Model(torch.nn.Module):
    def __init__(self, backend):
        super().__init__()
        self.part = dynamo_lite.compile(torch.nn.Linear(3, 3), backend=backend)
        self.function = dynamo_lite.compile(f, backend=backend)

    def forward(self, x):
        return self.function(self.part(x)) * 2


BACKENDS = ["eager", "aot_eager", "inductor"]


@pytest.mark.parametrize("is_warm", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
def test_jit_trace_of_a_compiled_function_says_what_is_wrong(backend, is_warm):
    x = torch.randn(3)
    compiled, model = dynamo_lite.compile(f, backend=backend), Model(backend)
    whole = dynamo_lite.compile(torch.nn.Linear(3, 3), backend=backend)
    if is_warm:
        compiled(x), model(x), whole(x)
    for traced, name in (
        (compiled, "function f"),
        (model, "compiled"),
        (whole, "compiled module"),
        (lambda x: compiled(x) + 1, ""),
    ):
        with pytest.raises(RuntimeError, match=f"torch.jit.trace calls .*{name}.*__wrapped__") as caught:
            torch.jit.trace(traced, (x,))
        assert "\n" not in str(caught.value) and type(caught.value) is RuntimeError
    assert torch.equal(compiled(x), dynamo_lite.compile(f, backend=backend)(x))  # it is as it was


@pytest.mark.parametrize("is_warm", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
def test_jit_trace_sees_the_originals_if_asked_to(backend, is_warm):
    x, y = torch.randn(3), torch.randn(3)
    model = Model(backend)
    if is_warm:
        model(x)
    with config.patch(error_on_nested_jit_trace=False):
        for function in (model, model.function, model.part, lambda x: model.function(x) + x):
            traced = torch.jit.trace(function, (x,))
            torch.testing.assert_close(traced(y), function(y))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_symbolic_trace_of_a_compiled_function_says_what_is_wrong(backend):
    compiled, model = dynamo_lite.compile(f, backend=backend), Model(backend)
    for traced in (
        compiled,
        dynamo_lite.compile(torch.nn.Linear(3, 3), backend=backend),
        model,
        lambda x: compiled(x) + 1,
    ):
        with pytest.raises(RuntimeError, match="torch.fx.symbolic_trace (of|calls) .*__wrapped__"):
            torch.fx.symbolic_trace(traced)
    x = torch.randn(3)
    assert torch.equal(compiled(x), f(x))
    assert torch.equal(torch.fx.symbolic_trace(compiled.__wrapped__)(x), f(x))
    with config.patch(error_on_nested_fx_trace=False):
        assert torch.equal(torch.fx.symbolic_trace(lambda x: compiled(x) + 1)(x), f(x) + 1)
        with pytest.raises(RuntimeError, match="trace the original"):
            torch.fx.symbolic_trace(compiled)


@pytest.mark.parametrize("is_warm", [False, True])
@pytest.mark.parametrize("wrap", [lambda m: dynamo_lite.compile(m, backend="eager"), dynamo_lite.disable])
def test_a_compiled_module_is_a_leaf_where_the_original_is_one(wrap, is_warm):
    class Own(torch.nn.Module):
        def forward(self, x, scale=1):
            return f(x) * scale

    class Whole(torch.nn.Module):
        def __init__(self, own):
            super().__init__()
            self.part, self.own = wrap(torch.nn.Linear(3, 3)), own

        def forward(self, x):
            return self.own(self.part(x), scale=2) + self.part(x)

    class Leaves(torch.fx.Tracer):
        def is_leaf_module(self, module, name):
            return super().is_leaf_module(module, name) or type(module).__name__ == "Own"

    own, x = wrap(Own()), torch.randn(3)
    model = Whole(own)
    expected = model(x) if is_warm else None
    graph = Leaves().trace(model)
    calls = [node.target for node in graph.nodes if node.op == "call_module"]
    traced = torch.fx.GraphModule(model, graph)
    assert calls == ["part", "own", "part"] and traced.own is own and traced.part is model.part
    assert expected is None or torch.equal(traced(x), expected)
    with config.patch(error_on_nested_fx_trace=False):
        graph = torch.fx.symbolic_trace(model).graph
        assert [node.target for node in graph.nodes if node.op == "call_module"] == ["part", "part"]


def test_a_module_that_a_tracer_has_met_keeps_its_versions():
    counter = CompileCounter()
    part, x = dynamo_lite.compile(torch.nn.Linear(3, 3), backend=counter), torch.randn(3)
    expected = part(x)
    traced = torch.fx.symbolic_trace(torch.nn.Sequential(part, torch.nn.ReLU()))
    assert torch.equal(traced(x), expected.relu()) and torch.equal(part(x), expected)
    assert counter.frame_count == 1


def test_a_tracer_inside_of_a_compiled_function():
    def call(x):
        return torch.jit.trace(f, (x,))(x), torch.fx.symbolic_trace(f)(x)

    run_both(call, torch.randn(3))


def test_functions_that_torch_has_traced_or_scripted():
    x = torch.randn(3)
    traced, scripted = torch.jit.trace(f, (x,)), torch.jit.script(f)
    for function in (traced, scripted):
        run = run_both(lambda x, function=function: function(x) * 2, x)
        assert run.graph_count == 1 and not run.breaks
        assert torch.equal(dynamo_lite.compile(function, backend="eager")(x), f(x))
    module = torch.jit.trace(torch.nn.Linear(3, 3), (x,))
    run_both(lambda x: module(x) * 2, x)


def test_torch_jit_script_compiles_the_original():
    x, linear = torch.randn(3), torch.nn.Linear(3, 3)
    assert torch.equal(torch.jit.script(dynamo_lite.compile(f, backend="eager"))(x), f(x))
    assert torch.equal(torch.jit.script(dynamo_lite.compile(linear, backend="eager"))(x), linear(x))


def test_make_fx_sees_the_original():
    compiled, x = dynamo_lite.compile(f, backend="eager"), torch.randn(3)
    graph = torch.fx.experimental.proxy_tensor.make_fx(compiled)(x).graph
    assert [n.target for n in graph.nodes if n.op == "call_function"] == [
        torch.ops.aten.sin.default,
        torch.ops.aten.add.Tensor,
    ]


# -- compiled functions inside


compiled_f = dynamo_lite.compile(f, backend="eager")
compiled_f.number = 3


def test_a_compiled_function_inside_is_itself():
    class Holder:
        method = compiled_f

    def look(x):
        return (
            *(compiled_f, compiled_f is f, type(compiled_f).__name__, {compiled_f: 1}[compiled_f]),
            *(
                compiled_f.__name__,
                compiled_f.__wrapped__ is f,
                compiled_f.__code__ is f.__code__,
                callable(compiled_f),
            ),
            *(compiled_f(x), Holder.method(x), x + compiled_f.number, torch.vmap(compiled_f)(x)),
        )

    run = run_both(look, torch.randn(3))
    assert run.graph_count == 1 and not run.breaks
    compiled = dynamo_lite.compile(look, backend="eager")
    x = torch.ones(3)
    compiled(x)
    compiled_f.number = 4
    try:
        assert torch.equal(compiled(x)[-2], x + 4)
    finally:
        compiled_f.number = 3


def decorated(x):
    k = 3

    @dynamo_lite.compile(backend="eager")
    def times(y):
        return y * k

    return times(x) + 1, times


@pytest.mark.parametrize(
    "call",
    [
        lambda x: dynamo_lite.compile(f, backend="eager")(x) * 2,
        lambda x: dynamo_lite.compile(compiled_f, backend="eager", dynamic=True)(x) * 2,
        lambda x: decorated(x)[0],
    ],
)
def test_compile_inside(call):
    counter = CompileCounter()
    x = torch.randn(3)
    compiled = dynamo_lite.compile(call, backend=counter, fullgraph=True)
    assert torch.equal(compiled(x), call(x)) and torch.equal(compiled(x), call(x))
    assert counter.frame_count == 1


def test_what_compile_inside_makes_can_leave():
    x = torch.randn(3)
    result, times = dynamo_lite.compile(decorated, backend="eager", fullgraph=True)(x)
    assert type(times) is type(compiled_f) and torch.equal(times(x), x * 3) and torch.equal(result, x * 3 + 1)
    made = dynamo_lite.compile(
        lambda x: (dynamo_lite.compile(f, backend="eager"), x + 1), backend="eager", fullgraph=True
    )(x)[0]
    assert made.__wrapped__ is f and torch.equal(made(x), f(x))


def test_compile_inside_that_breaks():
    linear = torch.nn.Linear(3, 3)
    run_both(lambda x: dynamo_lite.compile(linear, backend="eager")(x) * 2, torch.randn(3))
    run_both(lambda x: dynamo_lite.compile(f, backend="eager", disable=True)(x) * 2, torch.randn(3))
    run = run_both(lambda x: dynamo_lite.compile(f, backend="no such")(x), torch.randn(3))
    assert type(run.exception).__name__ == "InvalidBackend"


CODES = {f.__code__}


def test_code_objects_are_keys():
    def look(x):
        own = {f.__code__: 1, look.__code__: 2}
        return x + own[f.__code__] + (f.__code__ in CODES) + (look.__code__ in CODES) + len({*CODES, f.__code__})

    run = run_both(look, torch.randn(3))
    assert run.graph_count == 1 and not run.breaks
