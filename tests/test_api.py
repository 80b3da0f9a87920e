"""The surface: what kinds of things `compile` and its relatives take and give, and that all of them still do what they
did.
"""

import copy
import functools
import gc
import inspect
import io
import pickle
import threading
import warnings
import weakref

import pytest
import torch

import dynamo_lite
from dynamo_lite import OptimizedModule, config, exc, markers
from dynamo_lite.testing import CompileCounter


class Net(torch.nn.Module):
    """A user's module with all kinds of state."""

    registry = []

    def __init_subclass__(cls):
        Net.registry.append(cls)

    def __init__(self, width=4):
        super().__init__()
        self.linear = torch.nn.Linear(3, width)
        self.register_buffer("calls", torch.zeros(()))
        self.scale = 2.0

    def forward(self, x, *, bias: float = 0.0):
        return torch.relu(self.linear(x)) * self.scale + bias

    def twice(self, x):
        return self(x) + self(x)

    def __len__(self):
        return 7


def double(x, y=1):
    """Twice x plus y."""
    return x * 2 + y


def square_backend(gm, example_inputs):
    return gm.forward


X = torch.arange(6.0).reshape(2, 3)


# functions


def test_function_keeps_its_looks():
    double.mark = 5
    try:
        compiled = dynamo_lite.compile(double, backend="eager")
    finally:
        del double.mark
    assert torch.equal(compiled(X), double(X))
    assert torch.equal(compiled(X, y=3), double(X, 3))
    assert compiled.__name__ == "double" and compiled.__doc__ == double.__doc__ and compiled.mark == 5
    assert compiled.__wrapped__ is double
    assert inspect.signature(compiled) == inspect.signature(double)


def test_decorator_forms():
    @dynamo_lite.compile
    def bare(x):
        return x + 1

    @dynamo_lite.compile(backend="eager", fullgraph=True)
    def with_arguments(x):
        return x + 2

    @dynamo_lite.optimize
    def optimized_bare(x):
        return x + 3

    @dynamo_lite.optimize()
    def optimized_empty(x):
        return x + 4

    @dynamo_lite.optimize("eager", nopython=True)
    def optimized_with_arguments(x):
        return x + 5

    @dynamo_lite.optimize_assert("eager")
    def asserted(x):
        return x + 6

    functions = [with_arguments, optimized_with_arguments, asserted]
    assert [int(f(torch.zeros(()))) for f in functions] == [2, 5, 6]
    for function in (bare, optimized_bare, optimized_empty, *functions):
        assert inspect.signature(function).parameters.keys() == {"x"}
    backends = [f.cache.region.settings.backend for f in (bare, optimized_bare, optimized_empty)]
    assert backends == ["inductor", "autotune", "autotune"]


def test_backend_or_function():
    def gm_backend(gm, example_inputs):
        return gm.forward

    def model_backend(model, example_inputs):
        return model.forward

    def annotated(m: torch.fx.GraphModule, inputs):
        return m.forward

    def train_step(model, inputs):
        return model + inputs

    for backend in (gm_backend, model_backend, annotated, "eager", CompileCounter(), functools.partial(gm_backend)):
        assert isinstance(dynamo_lite.optimize(backend), dynamo_lite.OptimizeContext)
    assert not isinstance(dynamo_lite.optimize(train_step), dynamo_lite.OptimizeContext)
    assert isinstance(dynamo_lite.optimize(Net()), OptimizedModule)
    with pytest.raises(TypeError, match=r"write @optimize\(\)"):
        dynamo_lite.optimize("eager")(3)


def test_methods_and_descriptors():
    class Model:
        factor = 3

        @dynamo_lite.compile(backend="eager")
        def method(self, x):
            return x * self.factor

        @dynamo_lite.compile(backend="eager")
        @classmethod
        def on_class(cls, x):
            return x * cls.factor

        @dynamo_lite.compile(backend="eager")
        @staticmethod
        def static(x):
            return x * 4

        def plain(self, x):
            return x * 5

    model = Model()
    assert float(model.method(torch.ones(()))) == 3
    assert float(Model.on_class(torch.ones(()))) == 3
    assert float(Model.static(torch.ones(()))) == 4
    bound = dynamo_lite.compile(model.plain, backend="eager")
    assert bound.__self__ is model
    assert float(bound(torch.ones(()))) == 5
    again = dynamo_lite.compile(model.method, backend="eager")
    assert float(again(torch.ones(()))) == 3


def test_callable_objects_and_builtins():
    class Adder:
        def __call__(self, x):
            return x + 1

    compiled = dynamo_lite.compile(Adder(), backend="eager")
    assert torch.equal(compiled(X), X + 1)
    partial = dynamo_lite.compile(functools.partial(double, y=3), backend="eager")
    assert torch.equal(partial(X), X * 2 + 3)
    assert torch.equal(dynamo_lite.compile(torch.sin, backend="eager")(X), X.sin())
    with pytest.raises(TypeError, match="expected a function, module or other callable, got int"):
        dynamo_lite.compile(3)


def test_class_is_compiled_in_place():
    @dynamo_lite.compile(backend="eager")
    class Adder:
        def __call__(self, x):
            return x + 1

    assert isinstance(Adder, type)
    assert torch.equal(Adder()(X), X + 1)


def test_compiling_twice_unwraps():
    first = dynamo_lite.compile(double, backend="eager")
    second = dynamo_lite.compile(first, backend="aot_eager")
    assert second.__wrapped__ is double
    net = Net()
    assert dynamo_lite.compile(dynamo_lite.compile(net))._orig_mod is net


def test_argument_errors():
    with pytest.raises(RuntimeError, match="Either mode or options can be specified"):
        dynamo_lite.compile(double, mode="default", options={"max_autotune": True})
    with pytest.raises(exc.InvalidBackend, match="Invalid backend: 'nope'"):
        dynamo_lite.compile(double, backend="nope")
    with pytest.raises(exc.InvalidBackend):
        dynamo_lite.optimize("nope")
    with pytest.raises(RuntimeError, match="Unrecognized mode=fast"):
        dynamo_lite.compile(double, mode="fast")
    with pytest.warns(UserWarning, match="shapes_spec has no effect"):
        dynamo_lite.compile(double, shapes_spec={})


def test_disabled_compilation_returns_the_argument():
    net = Net()
    assert dynamo_lite.compile(net, disable=True) is net
    assert dynamo_lite.compile(disable=True)(double) is double
    assert dynamo_lite.optimize(disable=True)(double) is double
    assert dynamo_lite.optimize(double, disable=True) is double
    with dynamo_lite.optimize(disable=True):
        pass
    with config.patch(disable=True):
        assert dynamo_lite.compile(net) is net


# sharing


def test_equal_settings_share_compiled_versions():
    def shared(x):
        return x + 1

    one = dynamo_lite.compile(shared, backend="eager")
    assert dynamo_lite.compile(shared, backend="eager").cache is one.cache
    assert dynamo_lite.compile(shared, backend="eager", dynamic=True).cache is not one.cache
    assert dynamo_lite.compile(shared, backend="eager", isolate_recompiles=True).cache is not one.cache

    def with_options(gm, example_inputs, options):
        return gm.forward

    assert dynamo_lite.compile(shared, backend=with_options, options={"a": []}).cache is not one.cache


def test_compiled_versions_live_as_long_as_the_function():
    def make():
        big = torch.ones(1000)

        def fn(x):
            return x + big

        compiled = dynamo_lite.compile(fn, backend="eager")
        compiled(torch.ones(1000))
        return compiled, weakref.ref(big)

    compiled, big = make()
    assert big() is not None
    del compiled
    gc.collect()
    assert big() is None


# modules


def test_module_is_the_original_in_all_but_calls():
    net = Net()
    compiled = dynamo_lite.compile(net, backend="eager")
    assert isinstance(compiled, Net) and isinstance(compiled, torch.nn.Module) and isinstance(compiled, OptimizedModule)
    assert compiled.__class__ is Net
    assert compiled._orig_mod is net
    assert list(compiled.state_dict()) == list(net.state_dict())
    assert [id(p) for p in compiled.parameters()] == [id(p) for p in net.parameters()]
    assert repr(compiled) == repr(net)
    assert len(compiled) == 7
    assert torch.equal(compiled(X, bias=1.0), net(X, bias=1.0))
    assert torch.equal(compiled.forward(X), net(X))
    assert torch.equal(compiled.twice(X), net.twice(X))
    assert inspect.signature(compiled.forward) == inspect.signature(net.forward)
    assert Net.registry == []


def test_module_state_is_shared():
    net = Net()
    compiled = dynamo_lite.compile(net, backend="eager")
    compiled.eval()
    assert not net.training and not net.linear.training
    net.train()
    assert compiled.training
    compiled.scale = 5.0
    assert net.scale == 5.0
    del compiled.scale
    assert not hasattr(net, "scale")
    net.scale = 1.0
    compiled.to(torch.float64)
    assert net.linear.weight.dtype is torch.float64
    compiled.extra = torch.nn.Linear(2, 2)
    assert "extra.weight" in net.state_dict()
    compiled.load_state_dict(net.state_dict())
    seen = []
    handle = compiled.register_forward_hook(lambda module, args, out: seen.append(module))
    compiled(X.double())
    handle.remove()
    assert seen == [net]
    compiled.requires_grad_(False)
    assert not any(p.requires_grad for p in net.parameters())


def test_type_of_module_makes_ordinary_modules():
    compiled = dynamo_lite.compile(Net(), backend="eager")
    other = type(compiled)(5)
    assert type(other) is Net and other.linear.out_features == 5
    assert type(compiled.__class__(6)) is Net


def test_a_compiled_module_follows_its_class():
    class Doubled(Net):
        def forward(self, x):
            return super().forward(x) * 2

        def twice(self, x):
            return "doubled"

    net = Net()
    compiled = dynamo_lite.compile(net, backend=CompileCounter())
    before = compiled(X)
    net.__class__ = Doubled
    assert torch.equal(compiled(X), before * 2) and compiled.twice(X) == "doubled"
    compiled.__class__ = Net
    assert type(net) is Net and isinstance(compiled, OptimizedModule) and not isinstance(compiled, Doubled)
    assert torch.equal(compiled(X), before) and torch.equal(compiled.twice(X), net.twice(X))
    with pytest.raises(TypeError):
        compiled.__class__ = int
    assert torch.equal(compiled(X), before)


def test_a_compiled_module_with_slots():
    class Slotted(torch.nn.Module):
        __slots__ = ("kept",)

        def forward(self, x):
            return x + 1

    compiled = dynamo_lite.compile(Slotted(), backend="eager", fullgraph=True)
    assert torch.equal(compiled(X), X + 1)


class Sums(torch.nn.Module):
    def forward(self, x, *args, scale=1, **kwargs):
        return (x + sum(args) + sum(kwargs.values())) * scale


@pytest.mark.parametrize("n", [0, 1, 6, 7, 8, 9, 20])
def test_all_ways_to_call_a_compiled_module(n):
    module = Sums()
    compiled = dynamo_lite.compile(module, backend="eager")
    args, names = [float(i) for i in range(n)], {f"k{i}": i for i in range(n)}
    for keywords in ({}, {"scale": 3}, names):
        expected = module(X, *args, **keywords)
        call = type(compiled).__call__
        for result in (
            compiled(X, *args, **keywords),
            compiled(*(X, *args), **keywords),
            compiled.__call__(X, *args, **keywords),
            call(compiled, X, *args, **keywords),
            functools.partial(compiled, X)(*args, **keywords),
            functools.reduce(lambda c, x: c(x, *args, **keywords), [X], compiled),
            compiled.forward(X, *args, **keywords),
        ):
            assert torch.equal(result, expected)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
        compiled()
    with pytest.raises(TypeError, match="a compiled module was expected"):
        call()
    with pytest.raises(TypeError, match="a compiled module was expected"):
        call(module, X)


def test_a_call_leaves_the_callers_tuple_alone():
    seen = []

    class Looks(torch.nn.Module):
        def forward(self, x):
            seen.append(given[0])
            return x

    compiled = dynamo_lite.compile(Looks(), backend="eager")
    given = (compiled, X)
    for _ in range(3):
        type(compiled).__call__(*given)
    assert all(first is compiled for first in seen) and seen


def test_calls_of_a_compiled_module_after_changes_of_its_class():
    class First(torch.nn.Module):
        def forward(self, x):
            return x + 1

    class Mixed:
        def helper(self):
            return 2

    compiled = dynamo_lite.compile(First(), backend="eager")
    cls = type(compiled)
    assert torch.equal(compiled(X), X + 1)

    First.__bases__ = (Mixed, torch.nn.Module)
    assert torch.equal(compiled(X), X + 1) and compiled.helper() == 2
    before = First.__call__
    First.__call__ = lambda self, x: before(self, x) * 2
    assert torch.equal(compiled(X), (X + 1) * 2)
    del First.__call__
    assert torch.equal(compiled(X), X + 1)
    own = cls.__dict__["__call__"]
    cls.__call__ = lambda self, x: "replaced"
    assert compiled(X) == "replaced"
    cls.__call__ = own
    assert torch.equal(compiled(X), X + 1)
    with pytest.raises(TypeError):
        dynamo_lite._eval_frame.call_by_slot(int)


def test_a_compiled_module_dies_with_its_last_reference():
    net = Net()
    compiled = dynamo_lite.compile(net, backend="eager")
    compiled(X)
    died = weakref.ref(net), weakref.ref(compiled)
    gc.disable()
    try:
        del net
        assert died[0]() is not None
        del compiled
        assert died[0]() is None and died[1]() is None
    finally:
        gc.enable()


def test_fully_sharded_after_compile(tmp_path):
    """`fully_shard` gives a module a class of its own."""
    fsdp = pytest.importorskip("torch.distributed.fsdp")
    if not torch.distributed.is_available() or not hasattr(fsdp, "fully_shard"):
        pytest.skip("torch without FSDP2")
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
        x = torch.ones(2, 4)
        expected = net(x)
        compiled = dynamo_lite.compile(net, backend="eager")
        mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (1,))
        assert fsdp.fully_shard(compiled, mesh=mesh) is compiled
        assert isinstance(net, fsdp.FSDPModule) and isinstance(compiled, fsdp.FSDPModule)
        result = compiled(x)
        torch.testing.assert_close(result, expected)
        result.sum().backward()
        assert net[0].weight.grad is not None
    finally:
        torch.distributed.destroy_process_group()


def test_compiled_objects():
    class Scaled:
        def __init__(self, factor):
            self.factor = factor

        def __call__(self, x, *, bias=0.0):
            return x * self.factor + bias

    counter = CompileCounter()
    obj = Scaled(2)
    compiled = dynamo_lite.compile(obj, backend=counter, fullgraph=True)
    assert torch.equal(compiled(X, bias=1.0), obj(X, bias=1.0)) and counter.frame_count == 1
    assert inspect.signature(compiled) == inspect.signature(obj)
    assert compiled._torchdynamo_orig_callable is obj and compiled.__self__ is obj
    assert torch.equal(dynamo_lite.compile(compiled, backend=counter)(X), obj(X))
    copied = copy.copy(compiled)
    assert copied.__self__ is not obj and torch.equal(copied(X), obj(X))

    def within(x, compiled=compiled):
        return compiled(x) + 1

    assert torch.equal(dynamo_lite.compile(within, backend=counter, fullgraph=True)(X), obj(X) + 1)
    died = weakref.ref(obj)
    del obj, compiled, within
    gc.collect()
    assert died() is None
    with pytest.raises(TypeError):
        dynamo_lite.compile(object())


def test_module_copies_and_pickles():
    compiled = dynamo_lite.compile(Net(), backend="eager", fullgraph=True)
    compiled(X)
    for other in (copy.deepcopy(compiled), copy.copy(compiled), pickle.loads(pickle.dumps(compiled))):
        assert isinstance(other, OptimizedModule) and other._orig_mod is not compiled._orig_mod
        assert torch.equal(other(X), compiled(X))
    assert copy.copy(compiled).linear is compiled.linear
    assert copy.deepcopy(compiled).linear is not compiled.linear
    buffer = io.BytesIO()
    torch.save(compiled._orig_mod, buffer)
    buffer.seek(0)
    loaded = torch.load(buffer, weights_only=False)
    assert type(loaded) is Net and torch.equal(loaded(X), compiled(X))
    assert b"dynamo_lite.api" not in buffer.getvalue()


def test_state_dict_roundtrip():
    one, other = Net(), Net()
    dynamo_lite.compile(other).load_state_dict(dynamo_lite.compile(one).state_dict())
    assert torch.equal(one(X), other(X))


def test_containers_and_training():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
    compiled = dynamo_lite.compile(model, backend="eager")
    assert len(compiled) == 3 and compiled[1] is model[1] and list(compiled) == list(model)
    optimizer = torch.optim.SGD(compiled.parameters(), lr=0.1)
    before = model[0].weight.detach().clone()
    compiled(X).sum().backward()
    optimizer.step()
    assert not torch.equal(model[0].weight, before)


def test_compile_module_in_place():
    net = Net()
    expected = net(X)
    counter = CompileCounter()
    assert dynamo_lite.compile_module_(net, backend=counter) is net
    assert type(net) is Net
    assert torch.equal(net(X), expected)
    assert counter.frame_count == 1
    clone = copy.deepcopy(net)
    assert clone._compiled_call_impl is None
    assert torch.equal(clone(X), expected)


def test_what_is_no_module_or_function_is_refused_at_once():
    with pytest.raises(TypeError, match="compile_module_ expects a module, got function; compile takes any callable"):
        dynamo_lite.compile_module_(lambda x: x)
    for refused in (3, "len"):
        with pytest.raises(TypeError, match="expected a function, module or other callable, got (int|str)"):
            dynamo_lite.explain(refused)
        with pytest.raises(TypeError, match=f"expected the function to stand for, got {refused!r}"):
            dynamo_lite.polyfill(refused)
    with pytest.raises(TypeError, match="expected a callable, got int"):
        dynamo_lite.assume_constant_result(3)
    with pytest.raises(TypeError, match="<built-in function len> takes no mark: mark a function that calls it"):
        dynamo_lite.assume_constant_result(len)
    with pytest.raises(TypeError, match="config.error_on_graph_break='no': expected True or False"):
        dynamo_lite.error_on_graph_break("no")


def test_script_modules_stay_as_they_are():
    scripted = torch.jit.trace(torch.nn.ReLU(), X)
    assert dynamo_lite.compile(scripted) is scripted


# capture through each form


def test_graph_counts():
    counter = CompileCounter()
    compiled = dynamo_lite.compile(double, backend=counter, fullgraph=True)
    compiled(X)
    compiled(X)
    assert (counter.frame_count, counter.op_count) == (1, 2)
    module_counter = CompileCounter()
    module = dynamo_lite.compile(Net(), backend=module_counter, fullgraph=True)
    module(X)
    module(X)
    assert module_counter.frame_count == 1


def test_context_manager():
    counter = CompileCounter()

    def inner(x):
        return x.sin() + 1

    with dynamo_lite.optimize(counter):
        result = inner(X)
        inner(X)
    assert torch.equal(result, X.sin() + 1)
    assert counter.frame_count == 1
    inner(X + 1)
    assert counter.frame_count == 1


def test_reset_calls_the_reset_of_backend_objects():
    calls = []

    class Stateful:
        def __call__(self, gm, example_inputs):
            return gm.forward

        def reset(self):
            calls.append(self)

    backend = Stateful()
    compiled = [dynamo_lite.compile(function, backend=backend) for function in (lambda x: x + 1, lambda x: x * 2)]
    for function in compiled:
        function(torch.ones(2))
    assert calls == []
    dynamo_lite.reset()
    assert calls == [backend]


def test_reset_forgets_compiled_versions():
    counter = CompileCounter()
    compiled = dynamo_lite.compile(double, backend=counter)
    compiled(X)
    dynamo_lite.reset()
    compiled(X)
    assert counter.frame_count == 2


# disable and run


def test_disable_function():
    @dynamo_lite.disable
    def untouched(x):
        return x + 1

    @dynamo_lite.disable(reason="because")
    def with_reason(x):
        return x + 2

    assert markers.is_disabled(untouched) and torch.equal(untouched(X), X + 1)
    assert with_reason._torchdynamo_disable_msg == "because"
    assert untouched.__name__ == "untouched"

    counter = CompileCounter()
    compiled = dynamo_lite.compile(lambda x: untouched(x * 2) * 3, backend=counter)
    assert torch.equal(compiled(X), (X * 2 + 1) * 3)
    assert counter.frame_count == 2


def test_disable_module_and_class():
    net = dynamo_lite.disable(Net())
    assert isinstance(net, Net)
    assert torch.equal(net(X), net._orig_mod(X))

    @dynamo_lite.disable
    class Thing:
        def __init__(self, x):
            self.x = x

        def __call__(self):
            return self.x

    assert Thing(3)() == 3
    assert markers.is_disabled(Thing.__call__) and markers.is_disabled(Thing.__init__)


def test_disable_not_recursive():
    def frame(x):
        return x + 1

    assert dynamo_lite.disable(frame, recursive=False) is frame
    assert frame.__code__ in markers.SKIPPED_CODES
    with pytest.raises(TypeError):
        dynamo_lite.disable(len, recursive=False)


def test_the_body_of_a_function_that_is_disabled_alone_runs_eagerly():
    """What it calls is captured: one graph before it, one of its callee, one after it."""

    def callee(x):
        return x * 3

    @dynamo_lite.disable(recursive=False)
    def alone(x):
        return callee(x + 1) - 1

    def outer(x):
        return alone(x * 2) * 5

    counter = CompileCounter()
    compiled = dynamo_lite.compile(outer, backend=counter)
    for _ in range(2):
        assert torch.equal(compiled(X), outer(X))
    assert counter.frame_count == 3 and counter.op_count == 3


def test_compile_of_disabled_compiles():
    counter = CompileCounter()
    compiled = dynamo_lite.compile(dynamo_lite.disable(double), backend=counter)
    compiled(X)
    assert counter.frame_count == 1


def test_run_compiles_nothing():
    counter = CompileCounter()
    compiled = dynamo_lite.compile(lambda x: x + 1, backend=counter, dynamic=False)
    run_only = dynamo_lite.run(compiled)
    assert torch.equal(run_only(X), X + 1)
    assert counter.frame_count == 0
    compiled(X)
    assert torch.equal(run_only(X[:1]), X[:1] + 1)
    assert counter.frame_count == 1
    net = Net()
    assert torch.equal(dynamo_lite.run(net)(X), net(X))
    assert torch.equal(dynamo_lite.run(dynamo_lite.compile(net, backend=counter))(X), net(X))
    assert counter.frame_count == 1


# stances


@pytest.fixture
def counted():
    counter = CompileCounter()
    return dynamo_lite.compile(lambda x: x + 1, backend=counter, dynamic=False), counter


def test_stance_forms(counted):
    compiled, counter = counted
    with dynamo_lite.set_stance("force_eager"):
        assert markers.current_stance().name == "force_eager"
        compiled(X)
    assert counter.frame_count == 0

    @dynamo_lite.set_stance("force_eager")
    def eager_only(x):
        return compiled(x)

    assert markers.current_stance().name == "default"
    eager_only(X)
    assert counter.frame_count == 0
    compiled(X)
    assert counter.frame_count == 1
    dynamo_lite.set_stance("force_eager")
    try:
        compiled(X[:1])
    finally:
        dynamo_lite.set_stance("default")
    assert counter.frame_count == 1
    with pytest.raises(ValueError, match="unknown stance 'lazy'"):
        dynamo_lite.set_stance("lazy")
    with pytest.raises(RuntimeError, match="force_backend"):
        dynamo_lite.set_stance("force_eager", force_backend="eager")


def test_force_eager_reaches_compiled_versions():
    ran = []

    def backend(gm, example_inputs):
        def graph(*inputs):
            ran.append(1)
            return gm.forward(*inputs)

        return graph

    compiled = dynamo_lite.compile(lambda x: x + 1, backend=backend)
    compiled(X)
    with dynamo_lite.set_stance("force_eager"):
        compiled(X)
    assert len(ran) == 1
    compiled(X)
    assert len(ran) == 2


def test_eager_and_fail_on_recompile(counted):
    compiled, counter = counted
    compiled(X)
    with dynamo_lite.set_stance("eager_on_recompile"):
        compiled(X[:1])
        compiled(X)
    assert counter.frame_count == 1
    with dynamo_lite.set_stance("fail_on_recompile"):
        compiled(X)
        with pytest.raises(exc.RecompileError):
            compiled(X[:1])
    assert counter.frame_count == 1


def test_eager_then_compile(counted):
    compiled, counter = counted
    with dynamo_lite.set_stance("eager_then_compile"):
        compiled(X)
        assert counter.frame_count == 0
        compiled(X)
        assert counter.frame_count == 1


def test_force_backend(counted):
    compiled, counter = counted
    other = CompileCounter()
    with dynamo_lite.set_stance(force_backend=other):
        compiled(X)
    assert (counter.frame_count, other.frame_count) == (0, 1)


@pytest.mark.parametrize("stance", ["eager_then_compile", "aot_eager_then_compile"])
def test_the_first_eager_call_tells_what_varies(stance):
    counter = CompileCounter()
    compiled = dynamo_lite.compile(lambda x, xs, n: (x + n, xs[0] * 2), backend=counter)
    with dynamo_lite.set_stance(stance):
        for n in (3, 4, 5, 6):
            compiled(torch.ones(n), [torch.ones(n + 1)], n + 2)
    assert counter.frame_count == 1


def test_fail_on_recompile_compiles_nothing():
    counter = CompileCounter()
    compiled = dynamo_lite.compile(lambda x: x + 1, backend=counter)
    with (
        dynamo_lite.set_stance("fail_on_recompile"),
        pytest.raises(RuntimeError, match="fail_on_recompile: it is not compiled yet"),
    ):
        compiled(X)
    compiled(X)
    assert counter.frame_count == 1


def test_versions_of_a_forced_backend_are_its_own(counted):
    compiled, counter = counted
    other, third = CompileCounter(), CompileCounter()
    for _ in range(2):
        compiled(X)
        for forced in (other, third):
            with dynamo_lite.set_stance(force_backend=forced):
                compiled(X)
                compiled(X)
        compiled(X)
    assert (counter.frame_count, other.frame_count, third.frame_count) == (1, 1, 1)


def test_a_stance_inside_of_captured_code():
    def inside(x):
        with dynamo_lite.set_stance("force_eager"):
            return x + 1

    def torchs(x):
        torch.compiler.set_stance("force_eager")
        return x + 1

    def called(x):
        dynamo_lite.set_stance("force_eager")
        return x + 1

    import torch._dynamo  # as the function of torch does, which is a break the first time

    for fn in (inside, torchs, called):
        for error in (exc.UserError, AssertionError):
            with pytest.raises(error, match="set_stance must not be called in captured code"):
                dynamo_lite.compile(fn, backend="eager")(X)
    assert markers.current_stance().name == "default"


@pytest.mark.parametrize("set_stance", [dynamo_lite.set_stance, torch.compiler.set_stance])
def test_captured_code_calls_what_a_stance_decorates(set_stance):
    @set_stance("force_eager")
    def inner(x):
        return x + 1

    class Holder:
        @set_stance("force_eager")
        def method(self, x):
            return x + 1

    def handled(x):
        try:
            return inner(x)
        except AssertionError:
            return x

    for fn in (lambda x: inner(x), lambda x: Holder().method(x), handled):
        with pytest.raises(exc.ForbiddenCallError, match="must not be called in captured code"):
            dynamo_lite.compile(fn, backend="eager")(X)
    assert markers.current_stance().name == "default"
    assert torch.equal(dynamo_lite.compile(inner, backend="eager")(X), X + 1)
    named = dynamo_lite.compile(lambda x: (inner.__name__, x + 1), backend="eager", fullgraph=True)
    assert named(X)[0] == "inner"


def test_thread_stance_is_of_one_thread():
    seen = []
    with markers.thread_stance(markers.Stance("eager_on_recompile")):
        thread = threading.Thread(target=lambda: seen.append(markers.current_stance().name))
        thread.start()
        thread.join()
        assert markers.current_stance().name == "eager_on_recompile"
    assert seen == ["default"]


# markers


def test_markers_outside_of_captured_code():
    assert dynamo_lite.is_compiling() is False
    assert dynamo_lite.graph_break() is None
    assert dynamo_lite.skip_frame("why") is None


def test_is_compiling_inside():
    compiled = dynamo_lite.compile(lambda x: x + 1 if dynamo_lite.is_compiling() else x, backend="eager")
    assert torch.equal(compiled(X), X + 1)


def test_graph_break_splits():
    counter = CompileCounter()

    def fn(x):
        x = x + 1
        dynamo_lite.graph_break()
        return x * 2

    assert torch.equal(dynamo_lite.compile(fn, backend=counter)(X), (X + 1) * 2)
    assert counter.frame_count == 2
    with pytest.raises(exc.Unsupported, match="DL025"):
        dynamo_lite.compile(fn, backend=counter, fullgraph=True)(X)


def test_graph_membership():
    def one(x):
        return x

    def other(x):
        return x

    try:
        assert dynamo_lite.allow_in_graph(one) is one
        assert dynamo_lite.allow_in_graph([one, other]) == [one, other]
        assert {one, other} <= markers.ALLOWED_IN_GRAPH
        dynamo_lite.disallow_in_graph(one)
        assert one in markers.DISALLOWED_IN_GRAPH and one not in markers.ALLOWED_IN_GRAPH
        assert dynamo_lite.forbid_in_graph(other) in markers.FORBIDDEN_IN_GRAPH
        assert dynamo_lite.assume_constant_result(one)._dynamo_marked_constant
        with pytest.raises(TypeError, match="expected a callable, got int"):
            dynamo_lite.allow_in_graph(3)
    finally:
        for marked in (markers.ALLOWED_IN_GRAPH, markers.DISALLOWED_IN_GRAPH, markers.FORBIDDEN_IN_GRAPH):
            marked.difference_update({one, other})


def test_marks_are_those_of_torch():
    ours, theirs = torch.zeros(2, 3), torch.zeros(2, 3)
    import torch._dynamo as reference

    for module, t in ((dynamo_lite, ours), (reference, theirs)):
        module.mark_dynamic(t, 0, min=2, max=9)
        module.maybe_mark_dynamic(t, [1])
        module.mark_static(t)
    for name in ("_dynamo_dynamic_indices", "_dynamo_weak_dynamic_indices", "_dynamo_static_indices"):
        assert getattr(ours, name) == getattr(theirs, name)
    assert ours._has_dynamo_dim_marking
    (a,), (b,) = ours._dynamo_dynamic_range, theirs._dynamo_dynamic_range
    assert (a.dim, a.min, a.max) == (b.dim, b.min, b.max) == (0, 2, 9)


def test_other_marks():
    t = torch.zeros(2, 3)
    dynamo_lite.mark_unbacked(t, (0, 1), min=2, shape_id="batch")
    assert t._dynamo_unbacked_indices == {0, 1}
    assert t._dynamo_unbacked_bounds == {0: (2, None), 1: (2, None)}
    assert t._dynamo_shape_ids == {0: "batch", 1: "batch"}
    strict = torch.zeros(2)
    dynamo_lite.mark_unbacked(strict, 0, strict=True)
    assert strict._dynamo_strict_unbacked_indices == {0}
    dynamo_lite.mark_static_address(t, guard=True)
    assert t._dynamo_static_input_type == "guarded"

    class Sub(torch.nn.Linear):
        pass

    assert dynamo_lite.mark_static(Sub) is Sub and Sub._dynamo_marked_static


# together with others


def test_compiled_inside_compiled():
    counter, inner_counter = CompileCounter(), CompileCounter()
    inner = dynamo_lite.compile(double, backend=inner_counter)
    outer = dynamo_lite.compile(lambda x: inner(x) + 1, backend=counter, fullgraph=True)
    assert torch.equal(outer(X), X * 2 + 2)
    assert (counter.frame_count, inner_counter.frame_count) == (1, 0)
    assert torch.equal(inner(X), X * 2 + 1)
    assert inner_counter.frame_count == 1


@pytest.mark.parametrize("as_decorator", [False, True])
def test_compile_with_a_backend_that_is_an_object(as_decorator):
    counter = CompileCounter()

    def f(x):
        if as_decorator:

            @dynamo_lite.compile(backend=counter)
            def inner(x):
                return x + 1
        else:
            inner = dynamo_lite.compile(lambda x: x + 1, backend=counter)
        return inner(x) * 2, inner

    compiled = dynamo_lite.compile(f, backend=counter, fullgraph=True)
    for _ in range(3):
        result, inner = compiled(torch.ones(3))
        assert result.tolist() == [4.0] * 3 and inner(torch.ones(2)).tolist() == [2.0] * 2
    assert counter.frame_count == 2  # one of `f`, one of `inner`, whose code is the same at each call


def test_compiled_module_inside_compiled_function():
    counter = CompileCounter()
    net = dynamo_lite.compile(Net(), backend="eager")
    outer = dynamo_lite.compile(lambda x: net(x) * 2, backend=counter, fullgraph=True)
    assert torch.equal(outer(X), net._orig_mod(X) * 2)
    assert counter.frame_count == 1


def test_under_torch_compile():
    counter = CompileCounter()
    inner = dynamo_lite.compile(double, backend=counter)
    outer = torch.compile(lambda x: inner(x.sin()) + 1, backend="eager")
    for _ in range(2):
        torch.testing.assert_close(outer(X), X.sin() * 2 + 2)


@pytest.mark.timeout(120)
def test_torch_compile_inside():
    inner = torch.compile(double, backend="eager")
    outer = dynamo_lite.compile(lambda x: inner(x.sin()) + 1, backend="eager")
    for _ in range(2):
        torch.testing.assert_close(outer(X), X.sin() * 2 + 2)


def test_disable_of_torch_is_honoured():
    import torch._dynamo as reference

    counter = CompileCounter()
    untouched = reference.disable(lambda x: x + 1)
    compiled = dynamo_lite.compile(lambda x: untouched(x * 2) * 3, backend=counter)
    assert torch.equal(compiled(X), (X * 2 + 1) * 3)
    assert counter.frame_count == 2


def test_interrupted_capture_leaves_everything_usable():
    interrupts = [KeyboardInterrupt()]

    def backend(gm, example_inputs):
        if interrupts:
            raise interrupts.pop()
        return gm.forward

    compiled = dynamo_lite.compile(double, backend=backend)
    with pytest.raises(KeyboardInterrupt):
        compiled(X)
    assert torch.equal(compiled(X), double(X))
    assert not interrupts


def test_threads_compile_once():
    counter = CompileCounter()
    compiled = dynamo_lite.compile(lambda x: (x.sin() + 1).cos(), backend=counter)
    barrier, results = threading.Barrier(4), []

    def work():
        barrier.wait()
        results.extend(compiled(X) for _ in range(20))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 80 and all(torch.equal(result, (X.sin() + 1).cos()) for result in results)
    assert counter.frame_count == 1


def test_backend_failure_falls_back_to_eager():
    def broken(gm, example_inputs):
        raise ValueError("no kernels today")

    with pytest.warns(
        UserWarning, match="backend 'broken' failed, the graph runs eagerly: ValueError: no kernels today"
    ):
        assert torch.equal(dynamo_lite.compile(double, backend=broken)(X), double(X))
    with pytest.raises(exc.BackendCompilerFailed, match="no kernels today"):
        dynamo_lite.compile(double, backend=broken, fullgraph=True)(X)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_training(backend):
    torch.manual_seed(0)
    one = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.GELU(), torch.nn.Linear(8, 1))
    other = copy.deepcopy(one)
    compiled = dynamo_lite.compile(other, backend=backend, fullgraph=True)
    one(X).pow(2).mean().backward()
    compiled(X).pow(2).mean().backward()
    for p, q in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad)


# -- values that are refused, in one line that says what is accepted


REFUSED = {
    "dynamic": (lambda: dynamo_lite.compile(dynamic="yes"), TypeError, "dynamic='yes': expected None .*, True .* or False"),
    "fullgraph": (lambda: dynamo_lite.compile(fullgraph="no"), TypeError, "fullgraph='no': expected True or False"),
    "nopython": (lambda: dynamo_lite.optimize("eager", nopython=3), TypeError, "fullgraph=3: expected True or False"),
    "options": (lambda: dynamo_lite.compile(options=[1]), TypeError, r"options=\[1\]: expected a dict of names and values"),
    "mode": (lambda: dynamo_lite.compile(mode=3), TypeError, "mode=3: expected a name"),
    "limit": (lambda: dynamo_lite.compile(recompile_limit="8"), TypeError, "recompile_limit='8': expected a number"),
    "name": (lambda: dynamo_lite.compile(name=3), TypeError, "name=3: expected a text"),
    "options of a function": (
        lambda: dynamo_lite.compile(abs, backend=lambda gm, example_inputs: gm, options={"a": 1}),
        RuntimeError,
        "options={'a': 1}: the backend <lambda> takes none",
    ),
    "option": (
        lambda: dynamo_lite.compile(abs, options={"trition.cudagraphs": True}),
        RuntimeError,
        r"Unexpected optimization option trition.cudagraphs; did you mean triton.cudagraphs",
    ),
    "mark": (lambda: dynamo_lite.mark_dynamic(3, 0), TypeError, "expected a tensor"),
    "mark_static": (lambda: dynamo_lite.mark_static(3), TypeError, "expected a tensor"),
    "mark_unbacked": (lambda: dynamo_lite.mark_unbacked([1], 0), TypeError, "expected a tensor"),
    "dimension": (lambda: dynamo_lite.mark_dynamic(torch.ones(2), "0"), TypeError, "dimension='0': expected an int"),
    "config": (
        lambda: setattr(dynamo_lite.config, "recompile_limit", "8"),
        TypeError,
        "config.recompile_limit='8': expected an int",
    ),
    "config, a bool": (
        lambda: setattr(dynamo_lite.config, "recompile_limit", True),
        TypeError,
        "config.recompile_limit=True: expected an int",
    ),
    "config.patch": (
        lambda: dynamo_lite.config.patch(automatic_dynamic_shapes_mark_as="foo").__enter__(),
        TypeError,
        "expected 'dynamic' or 'unbacked'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused_at_once(name):
    call, error, text = REFUSED[name]
    with pytest.raises(error, match=text) as info:
        call()
    assert "\n" not in str(info.value)


@pytest.mark.parametrize("backend", ["eager", "autotune", "onnxruntime", lambda gm, example_inputs: gm.forward])
def test_a_mode_that_a_backend_has_not_is_a_note_at_the_users_line(backend):
    with pytest.warns(UserWarning, match="mode='max-autotune' has no effect: the backend .* has no modes") as told:
        compiled = dynamo_lite.compile(lambda x: x + 1, backend=backend, mode="max-autotune")
    assert told[0].filename == __file__
    if backend not in ("autotune", "onnxruntime"):
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dynamo_lite.compile(lambda x: x + 1, backend=backend, mode="default")


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "eager_noexcept"])
def test_options_that_a_backend_has_not_are_a_note_at_the_users_line(backend):
    with pytest.warns(UserWarning, match="options={'a': 1} have no effect: the backend .*eager takes none") as told:
        compiled = dynamo_lite.compile(lambda x: x + 1, backend=backend, options={"a": 1})
    assert told[0].filename == __file__
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))


def test_the_mode_lite():
    assert torch.equal(dynamo_lite.compile(lambda x: x + 1, mode="lite")(torch.ones(2)), torch.full((2,), 2.0))


class Registering(torch.nn.Module):
    """Methods that look at `self`, its class, or state outside of `__dict__`."""

    __slots__ = ("slot",)
    scale, made, by_module = 2, 0, weakref.WeakKeyDictionary()

    def __init__(self):
        super().__init__()
        self.slot = 3

    def forward(self, x):
        return x * self.scale * self.slot * type(self).by_module.get(self, 1)

    @classmethod
    def set_scale(cls, scale):
        cls.scale = scale

    def set_slot(self, slot):
        self.slot = slot

    def register(self, factor):
        type(self).by_module[self] = factor
        type(self).made += 1
        return type(self)

    def me(self):
        return self


def test_methods_of_the_program_run_with_the_original():
    class Net(Registering):
        pass

    model = Net()
    compiled, x = dynamo_lite.compile(model, backend="eager"), torch.ones(2)
    assert compiled(x).tolist() == [6, 6] and compiled.slot == 3
    compiled.set_scale(5)
    compiled.set_slot(4)
    assert compiled.register(10) is Net and Net.made == 1 and Net.scale == 5
    assert compiled(x).tolist() == model(x).tolist() == [200, 200]
    compiled.slot = 1
    del compiled.slot
    compiled.slot = 2
    assert model.slot == 2 and compiled(x).tolist() == [100, 100]
    assert compiled.me() is model
    assert compiled.eval() is compiled and compiled.to("cpu") is compiled and next(compiled.modules()) is compiled


def test_a_compiled_graph_module_is_edited():
    traced = torch.fx.symbolic_trace(torch.nn.ReLU())
    compiled, x = dynamo_lite.compile(traced, backend="eager"), torch.ones(2)
    assert compiled(x).tolist() == [1, 1]
    graph = torch.fx.Graph()
    graph.output(graph.call_function(torch.neg, (graph.placeholder("input"),)))
    compiled.graph = graph
    assert compiled(x).tolist() == traced(x).tolist() == [-1, -1]
    next(iter(graph.find_nodes(op="call_function", target=torch.neg))).target = torch.exp
    compiled.recompile()
    assert torch.equal(compiled(x), x.exp())


def test_a_modules_own_getattr_is_asked_once():
    class Lazy(torch.nn.Module):
        tries = []

        def __getattr__(self, name):
            if name != "table":
                return super().__getattr__(name)
            self.tries.append(self)
            if len(self.tries) < 2:
                raise AttributeError("not ready")
            return 5

        def forward(self, x):
            return x + 1

    module = Lazy()
    compiled = dynamo_lite.compile(module, backend="eager")
    assert getattr(compiled, "table", None) is None and compiled.tries == [module]
    assert compiled.table == 5
    with pytest.raises(AttributeError, match="'Lazy' object has no attribute 'other'") as caught:
        _ = compiled.other
    assert caught.value.__context__ is None


def test_a_modules_own_getattribute_is_asked_for_what_every_module_has():
    class Proxy(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(2, 2)

        def __getattribute__(self, name):
            if name == "state_dict":
                return getattr(super().__getattribute__("_modules")["inner"], name)
            return super().__getattribute__(name)

        def forward(self, x):
            return self.inner(x)

    module = Proxy()
    compiled = dynamo_lite.compile(module, backend="eager")
    assert list(compiled.state_dict()) == ["weight", "bias"]
    assert compiled.eval() is compiled and not module.training
    assert list(compiled.parameters()) == list(module.parameters())


def test_names_of_the_class_of_a_compiled_module_are_the_originals():
    class Scaled(torch.nn.Module):
        scale: int

        def forward(self, x):
            return x

    module = Scaled()
    compiled = dynamo_lite.compile(module, backend="eager")
    for name in ("__annotations__", "__slots__"):  # instances show the former up to 3.13
        assert getattr(compiled, name, None) == getattr(module, name, None)
