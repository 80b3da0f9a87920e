"""Graph inputs that the guards hand over: which objects the compiled graph gets, and that nothing is kept."""

import gc
import threading
import types
import weakref

import pytest
import torch

import dynamo_lite
from dynamo_lite._eval_frame import Cache, GraphCall, GuardProgram
from dynamo_lite.testing import CompileCounter

X = torch.arange(6.0).reshape(2, 3)


def compiled(model):
    counter = CompileCounter()
    wrapped = dynamo_lite.compile(model, backend=counter)
    wrapped.__dict__["counter"] = counter
    return wrapped


def graph_calls(fn):
    """The GraphCall objects in the entries of a compiled function."""
    consts = [c for entry in fn.cache.entries for c in entry.code.co_consts]
    return [c for c in consts if type(c) is GraphCall]


class Scale(torch.nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((3,), float(factor)))

    def forward(self, x):
        return x * self.weight


def test_parameters_are_handed_over_and_arguments_are_given():
    model = Scale(2)

    @dynamo_lite.compile(backend="eager")
    def f(x, y):
        return model(x) + y

    assert torch.equal(f(X, X + 1), 3 * X + 1)
    (call,) = graph_calls(f)
    with pytest.raises(TypeError, match="takes 2 positional arguments"):
        call(X)
    with pytest.raises(RuntimeError, match="only through the function"):
        call(X, X)
    code = f.cache.entries[0].code
    with pytest.raises(RuntimeError, match="only through the function"):  # code taken out of its entry
        types.FunctionType(code, globals(), closure=f.__closure__)(X, X + 1)
    assert torch.equal(f(X, X + 1), 3 * X + 1)


def test_replaced_parameters():
    model = Scale(2)
    f = compiled(model)
    assert torch.equal(f(X), X * 2)
    for factor in range(10):
        model.weight = torch.nn.Parameter(torch.full((3,), float(factor)))
        assert torch.equal(f(X), X * factor)
        model.weight.data = torch.full((3,), factor + 0.5)
        assert torch.equal(f(X), X * (factor + 0.5))
        with torch.no_grad():
            model.weight.fill_(-1)
        assert torch.equal(f(X), -X)
    assert f.counter.frame_count == 1


def test_a_replaced_parameter_dies():
    model = Scale(2)
    f = compiled(model)
    for _ in range(3):
        f(X)
    old = weakref.ref(model.weight)
    model.weight = torch.nn.Parameter(torch.zeros(3))
    gc.collect()
    assert old() is None
    assert torch.equal(f(X), X * 0)


def test_shared_parameters():
    model = torch.nn.Sequential(Scale(2), Scale(3))
    model[1].weight = model[0].weight
    f = compiled(model)
    assert torch.equal(f(X), X * 4)
    model[1].weight = torch.nn.Parameter(torch.full((3,), 5.0))
    assert torch.equal(f(X), X * 10)
    model[1].weight = model[0].weight
    assert torch.equal(f(X), X * 4)


def test_modules_of_one_class_alternate():
    def f(model, x):
        return model(x)

    g = compiled(f)
    models = [Scale(i) for i in range(5)]
    for _ in range(4):
        for i, model in enumerate(models):
            assert torch.equal(g(model, X), X * i)


def test_threads_alternate_between_modules():
    def f(model, x):
        return model(x)

    g = dynamo_lite.compile(f, backend="eager")
    models = [Scale(i) for i in range(4)]
    for i, model in enumerate(models):
        assert torch.equal(g(model, X), X * i)
    wrong = []

    def work(start):
        for k in range(2000):
            i = (start + k) % 4
            if g(models[i], X)[1, 2].item() != 5.0 * i:
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_calls_between_the_guards_and_the_graph():
    """A property that generated code reads calls the same compiled function with another module."""
    models = [Scale(2), Scale(3)]
    inner = []

    class Key:
        """A key of a dict: reading the argument runs user code."""

        def __hash__(self):
            return 7

        def __eq__(self, other):
            if inner and self is not other:
                n = inner.pop()
                assert torch.equal(g(models[n], {"k": X}, "k"), X * (n + 2))
            return self is other

    def f(model, d, k):
        return model(d[k])

    g = dynamo_lite.compile(f, backend="eager")
    for model, factor in zip(models * 2, (2, 3) * 2, strict=True):
        assert torch.equal(g(model, {"k": X}, "k"), X * factor)
    key = Key()
    for _ in range(4):
        inner[:] = [0, 1, 0]
        assert torch.equal(g(models[1], {Key(): 1, key: X}, key), X * 3)


def test_recursion_through_a_graph_break():
    model = Scale(2)

    @torch.compiler.disable
    def again(n, x):
        return f(n - 1, x) if n else x

    @dynamo_lite.compile(backend="eager")
    def f(n, x):
        return model(again(n, model(x)))

    assert torch.equal(f(4, X), X * 4**5)
    assert torch.equal(f(4, X), X * 4**5)


def test_an_exception_in_the_graph():
    fail = []

    def backend(gm, example_inputs):
        def run(*args):
            if fail:
                raise KeyboardInterrupt
            return gm(*args)

        return run

    model = Scale(2)
    f = dynamo_lite.compile(model, backend=backend)
    assert torch.equal(f(X), X * 2)
    fail.append(1)
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            f(X)
    fail.clear()
    assert torch.equal(f(X), X * 2)
    weight = weakref.ref(model.weight)
    del f, model
    gc.collect()
    assert weight() is None


def test_an_exception_before_the_graph_drops_what_was_handed_over():
    model = Scale(2)

    def f(d, x):
        return model(x) + d["a"][0]

    g = dynamo_lite.compile(f, backend="eager")
    d = {"a": [X]}
    g(d, X)
    with pytest.raises(KeyError):
        g({}, X)
    with pytest.raises(TypeError):
        g(d)
    assert torch.equal(g(d, X), X * 3)


def test_a_module_dies_while_the_entry_lives():
    def f(model, x):
        return model(x)

    g = dynamo_lite.compile(f, backend="eager")
    model = Scale(2)
    for _ in range(3):
        g(model, X)
    refs = [weakref.ref(model), weakref.ref(model.weight)]
    del model
    gc.collect()
    assert [ref() for ref in refs] == [None, None]
    assert torch.equal(g(Scale(3), X), X * 3)


def test_the_callback_replaces_a_parameter_before_the_fresh_entry_runs():
    """The first call of an entry runs with what its guards find then, not with what the analysis saw."""
    model = Scale(2)

    def backend(gm, example_inputs):
        model.weight = torch.nn.Parameter(torch.full((3,), 7.0))
        return gm

    f = dynamo_lite.compile(model, backend=backend)
    assert torch.equal(f(X), X * 7)
    assert torch.equal(f(X), X * 7)


def test_inner_frames_get_their_own():
    outer, inner = Scale(2), Scale(3)

    def helper(x):
        return inner(x)

    @torch.compiler.disable
    def eager(x):
        return torch.compiler.disable(lambda y: y)(x)

    @dynamo_lite.compile(backend="eager")
    def f(x):
        x = outer(x)
        x = eager(x)
        x = sorted([x], key=lambda t: 1)[0]
        return helper(outer(x))

    for _ in range(3):
        assert torch.equal(f(X), X * 12)


def test_module_globals_and_buffers():
    model = torch.nn.BatchNorm1d(3)
    twin = torch.nn.BatchNorm1d(3)
    f = compiled(model)
    for _ in range(3):
        assert torch.equal(f(X), twin(X))
    assert torch.equal(model.running_mean, twin.running_mean)
    assert torch.equal(model.num_batches_tracked, twin.num_batches_tracked)


def test_graph_call_checks_its_layout():
    assert GraphCall(lambda *a: a, 2, ())(1, 2) == (1, 2)
    for handed in ((2,), (1, 0), (0, 0), (-1,)):
        with pytest.raises(ValueError):
            GraphCall(print, 2, handed)
    with pytest.raises(TypeError):
        GuardProgram(((), (), 0), GraphCall(print, 1, (0,)), ())
    with pytest.raises(TypeError):
        GuardProgram(((), (), 0), GraphCall(print, 1, (0,)), (0,))
    with pytest.raises(TypeError, match="belong together"):
        GuardProgram(((), (), 0), GraphCall(print, 1, ()))


def test_a_boxed_call_with_values_of_the_guards():
    """The parameters come from the guards, the activation from the frame."""
    linear = torch.nn.Linear(3, 3)

    def f(x):
        y = x * 2
        print(end="")
        y = linear(y)
        y = y.relu()
        return y

    with torch.no_grad():
        function = compiled(f)
        for _ in range(3):
            torch.testing.assert_close(function(X), f(X))
    (entry,) = function.cache.entries
    (cache,) = [c for c in entry.code.co_consts if type(c) is Cache]
    (resumed,) = cache.entries
    (call,) = [c for c in resumed.code.co_consts if type(c) is GraphCall]
    assert call.boxed
    with pytest.raises(RuntimeError, match="only through the function"):
        call(X)


def test_frames_without_anything_to_release_pay_nothing():
    def f(x):
        y = x * 2
        return y.sin()

    function = compiled(f)
    function(X)
    assert [call.boxed for call in graph_calls(function)] == [None]
