"""What is compiled with equal settings and is of one kind shares its versions, as long as one of it lives."""

import copy
import functools
import gc
import pickle
import threading
import weakref

import pytest
import torch
from torch import nn

import dynamo_lite
from dynamo_lite.config import config
from dynamo_lite.exc import RecompileError
from dynamo_lite.frontend.version_sharing import key_of
from dynamo_lite.testing import CompileCounter

X = torch.arange(8.0).reshape(2, 4)


@pytest.fixture(autouse=True)
def errors():
    with config.patch(debug=True):
        yield


def compile_all(originals, backend=None, **settings):
    """Wraps all, then calls each twice and compares with eager execution; the number of graphs."""
    counter = CompileCounter() if backend is None else backend
    compiled = [dynamo_lite.compile(fn, backend=counter, **settings) for fn in originals]
    for fn, original in [*zip(compiled, originals, strict=True)] * 2:
        torch.testing.assert_close(fn(X), original(X))
    return counter.frame_count


class Block(nn.Module):
    def __init__(self, scale=None):
        super().__init__()
        self.linear, self.dropout = nn.Linear(4, 4), nn.Dropout(0.5)
        if scale is not None:
            self.scale = scale

    def forward(self, x):
        return self.dropout(torch.relu(self.linear(x))) * getattr(self, "scale", 1)


class Times(nn.Module):
    scale = 1

    def forward(self, x):
        return x * self.scale


def scaled(n):
    return lambda x: x * n + 1


class Scaled:
    def __init__(self, n):
        self.n = n

    def __call__(self, x):
        return x * self.n + 1

    def method(self, x):
        return x * self.n + 2


def times(n, x):
    return x * n + 1


# -- counts


def test_equal_layers_have_one_version():
    assert compile_all([nn.Linear(4, 4) for _ in range(10)]) == 1
    assert compile_all([Block().eval() for _ in range(10)]) == 1
    assert compile_all([nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(10)]) == 1


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(scaled, id="closure"),
        pytest.param(Scaled, id="callable object"),
        pytest.param(lambda n: Scaled(n).method, id="bound method"),
        pytest.param(lambda n: functools.partial(times, n), id="partial"),
    ],
)
def test_a_number_that_differs_varies(make):
    assert compile_all([make(n) for n in range(2, 12)]) == 2


def test_modules_compiled_in_place():
    counter = CompileCounter()
    modules = [Block().eval() for _ in range(10)]
    for module in modules:
        expected = module(X)
        dynamo_lite.compile_module_(module, backend=counter)
        torch.testing.assert_close(module(X), expected)
    assert counter.frame_count == 1


def test_methods_of_modules():
    counter = CompileCounter()
    modules = [Block().eval() for _ in range(10)]
    for module in modules:
        expected = module(X)
        module.forward = dynamo_lite.compile(module.forward, backend=counter)
        torch.testing.assert_close(module(X), expected)
    assert counter.frame_count == 1


def test_parameters_and_training_are_each_modules_own():
    modules = [Block().eval() for _ in range(4)]
    counter = CompileCounter()
    compiled = [dynamo_lite.compile(module, backend=counter) for module in modules]
    for module, fn in zip(modules, compiled, strict=True):
        torch.testing.assert_close(fn(X), module(X))
        loss = fn(X).sum()
        loss.backward()
        assert module.linear.weight.grad is not None
    assert [m.linear.weight.grad is not None for m in modules] == [True] * 4
    modules[1].linear.weight = nn.Parameter(torch.ones(4, 4))
    torch.testing.assert_close(compiled[1](X), modules[1](X))
    assert counter.frame_count == 1
    modules[2].train()
    torch.manual_seed(0)
    result = compiled[2](X)
    torch.manual_seed(0)
    torch.testing.assert_close(result, modules[2](X))
    torch.testing.assert_close(compiled[3](X), modules[3](X))
    assert counter.frame_count == 2


def test_what_sizes_were_seen_is_shared():
    counter = CompileCounter()
    fns = [dynamo_lite.compile(nn.Linear(4, 4), backend=counter) for _ in range(6)]
    for n, fn in enumerate(fns, 2):
        fn(torch.ones(n, 4))
    assert counter.frame_count == 2


# -- keys


def test_equal_keys():
    assert key_of(scaled(2)) == key_of(scaled(3))
    assert key_of(nn.Linear(4, 4)) == key_of(nn.Linear(4, 4))
    assert key_of(functools.partial(times, 2)) == key_of(functools.partial(times, 3))
    assert key_of(Scaled(1)) == key_of(Scaled(2))
    tied = nn.Sequential(nn.Linear(4, 4))
    tied.again = tied  # a cycle
    assert key_of(tied) == key_of(tied)
    assert key_of(nn.LazyLinear(4)) == key_of(nn.LazyLinear(4))


def test_different_keys():
    def wrapper_of(fn):
        return lambda x: fn(x)

    def other(x):
        return x

    different = [
        nn.Linear(4, 4),
        nn.Linear(4, 5),
        nn.Linear(4, 4, bias=False),
        nn.Sequential(nn.Linear(4, 4)),
        nn.Sequential(nn.ReLU(), nn.Linear(4, 4)),
        nn.Linear(4, 4).double(),
        wrapper_of(times),
        wrapper_of(other),
        wrapper_of(nn.ReLU()),
        wrapper_of(nn.Tanh()),
        wrapper_of(int),
        wrapper_of(len),
        functools.partial(times, 1),
        functools.partial(other, 1),
        Scaled(1),
        times,
        other,
    ]
    assert len({key_of(value) for value in different}) == len(different)


def test_a_decorators_wrappers_have_a_limit_for_each_function():
    def decorated(fn):
        def wrapper(x):
            return fn(x) + 1

        return wrapper

    scope = {}
    exec("\n".join(f"def f{i}(x): return x * {i}" for i in range(12)), scope)
    assert compile_all([decorated(scope[f"f{i}"]) for i in range(12)]) == 12


# -- settings


def test_two_backends_side_by_side():
    one, other = CompileCounter(), CompileCounter()
    modules = [nn.Linear(4, 4) for _ in range(4)]
    pairs = [(dynamo_lite.compile(m, backend=one), dynamo_lite.compile(m, backend=other)) for m in modules]
    for m, (f, g) in zip(modules, pairs, strict=True):
        for _ in range(3):
            torch.testing.assert_close(f(X), m(X))
            torch.testing.assert_close(g(X), m(X))
    assert (one.frame_count, other.frame_count) == (1, 1)


@pytest.mark.parametrize("settings", [{"dynamic": True}, {"fullgraph": True}, {"name": "a"}, {"recompile_limit": 3}])
def test_other_settings_share_nothing(settings):
    counter = CompileCounter()
    assert compile_all([nn.Linear(4, 4) for _ in range(3)], counter) == 1
    assert compile_all([nn.Linear(4, 4) for _ in range(3)], counter, **settings) == 2


def test_isolated():
    assert compile_all([nn.Linear(4, 4) for _ in range(3)], isolate_recompiles=True) == 3
    assert compile_all([scaled(2) for _ in range(3)], isolate_recompiles=True) == 3


def test_an_isolated_one_has_a_limit_of_its_own():
    counter = CompileCounter()
    settings = {"backend": counter, "recompile_limit": 2}
    fns = [dynamo_lite.compile(scaled("x" * n), **settings) for n in range(4)]
    alone = dynamo_lite.compile(scaled_by_length("xxxxx"), isolate_recompiles=True, **settings)
    for fn in fns:
        with pytest.raises(TypeError):
            fn(X)
    fns = [dynamo_lite.compile(scaled_by_length("x" * n), **settings) for n in range(4)]
    for n, fn in enumerate(fns):
        torch.testing.assert_close(fn(X), X * n)
    assert counter.frame_count == 2
    torch.testing.assert_close(alone(X), X * 5)
    assert counter.frame_count == 3


def scaled_by_length(text):
    return lambda x: x * len(text)


# -- limits


def test_the_limit_of_closures_is_shared():
    with config.patch(recompile_limit=3):
        assert compile_all([scaled_by_length("x" * n) for n in range(8)]) == 3


def test_modules_have_a_limit_each():
    with config.patch(recompile_limit=2):
        assert compile_all([Block(n / 3).eval() for n in range(7)]) == 7
        counter = CompileCounter()
        modules = [Times() for _ in range(2)]
        compiled = [dynamo_lite.compile(m, backend=counter) for m in modules]
        for module, fn in zip(modules, compiled, strict=True):
            for scale in range(2, 7):
                module.scale = scale * 10 + (module is modules[1])
                torch.testing.assert_close(fn(X), module(X))
        assert counter.frame_count == 4
    with config.patch(accumulated_recompile_limit=5):
        modules = [Times() for _ in range(7)]
        for n, module in enumerate(modules):
            module.scale = n
        assert compile_all(modules) == 5


def test_a_module_at_the_address_of_a_dead_one_has_a_limit_of_its_own():
    counter = CompileCounter()
    kept = Block(-1.0).eval()
    with config.patch(recompile_limit=1):
        dynamo_lite.compile(kept, backend=counter)(X)
        for n in range(6):
            module = Block(n / 3).eval()
            fn = dynamo_lite.compile(module, backend=counter)
            torch.testing.assert_close(fn(X), module(X))
            del module, fn
            gc.collect()
    assert counter.frame_count == 7


def test_error_on_recompile():
    modules = [Block(n / 3).eval() for n in range(3)]
    fns = [dynamo_lite.compile(m, backend=CompileCounter()) for m in modules[:1]]
    fns += [dynamo_lite.compile(m, backend=fns[0].__call__.__func__.cache.region.backend) for m in modules[1:]]
    with config.patch(error_on_recompile=True):
        for fn in fns:  # the first version of each
            fn(X)
        for fn in fns:
            with pytest.raises(RecompileError, match="dtype"):
                fn.double()(X.double())
    shared = [dynamo_lite.compile(m, backend=CompileCounter()) for m in (nn.Linear(4, 4), nn.ReLU())]
    with config.patch(error_on_recompile=True):
        for fn in shared:
            fn(X)
            with pytest.raises(RecompileError):
                fn(X.requires_grad_(False).double() if fn is shared[1] else torch.ones(3, 4))


def test_a_module_that_was_served_by_anothers_version_recompiles():
    counter = CompileCounter()
    one, two = (dynamo_lite.compile(nn.ReLU(), backend=counter) for _ in range(2))
    with config.patch(error_on_recompile=True):
        one(X), two(X)
        with pytest.raises(RecompileError):
            two(X.double())
    assert counter.frame_count == 1


# -- reset, stances


def test_reset():
    counter = CompileCounter()
    fns = [dynamo_lite.compile(nn.Linear(4, 4), backend=counter) for _ in range(3)]
    for _ in range(2):
        for fn in fns:
            fn(X)
        dynamo_lite.reset()
    assert counter.frame_count == 2


def test_stances():
    counter = CompileCounter()
    fns = [dynamo_lite.compile(nn.Linear(4, 4), backend=counter) for _ in range(3)]
    fns[0](X)
    with dynamo_lite.set_stance("fail_on_recompile"):
        fns[1](X)
        with pytest.raises(RecompileError):
            fns[2](torch.ones(3, 4))
    with dynamo_lite.set_stance("force_eager"):
        fns[2](X)
    assert counter.frame_count == 1


# -- lifetimes


def regions():
    gc.collect()
    return {id(region) for region in dynamo_lite.api._live_regions}


def test_versions_go_with_the_last_that_has_them():
    before = regions()
    counter = CompileCounter()
    fns = [dynamo_lite.compile(scaled(n), backend=counter) for n in range(2, 6)]
    for fn in fns:
        fn(X)
    assert len(regions() - before) == 1
    version = weakref.ref(fns[0].cache.entries[0].owner)
    del fn, fns[:3]
    assert len(regions() - before) == 1
    fns[0](X)
    assert counter.frame_count == 2
    fns.clear()
    assert regions() == before and version() is None
    dynamo_lite.compile(scaled(2), backend=counter)(X)
    assert counter.frame_count == 3


def test_who_comes_after_the_last_gets_fresh_ones_whether_or_not_there_was_a_collection():
    counter = CompileCounter()
    gc.disable()
    try:
        for n in range(2, 5):
            dynamo_lite.compile(scaled(n), backend=counter)(X)
    finally:
        gc.enable()
    assert counter.frame_count == 3


def test_functions_tensors_and_modules_die_as_in_eager_execution():
    counter = CompileCounter()

    def scaled_by(tensor, module):
        return lambda x: module(x) * tensor

    kept = dynamo_lite.compile(scaled_by(torch.ones(4), nn.ReLU()), backend=counter)
    kept(X)
    gc.disable()
    try:
        tensor, module = torch.ones(4) * 2, nn.ReLU()
        fn = scaled_by(tensor, module)
        gone = [weakref.ref(thing) for thing in (tensor, module, fn)]
        compiled = dynamo_lite.compile(fn, backend=counter)
        torch.testing.assert_close(compiled(X), X * 2)
        del tensor, module, fn, compiled
        assert [ref() for ref in gone] == [None] * 3
    finally:
        gc.enable()
    torch.testing.assert_close(kept(X), X)
    assert counter.frame_count == 1


def test_a_namespace_dies_with_its_function():
    """Equal functions of two namespaces have nothing in common."""

    class Big(dict):
        pass

    counter = CompileCounter()
    source = "def f(x): return x * K"
    code = compile(source, "f.py", "exec").co_consts[0]
    made = []
    for n in (2, 3):
        scope = {"K": torch.tensor(float(n)), "__builtins__": __builtins__}
        fn = type(scaled)(code, scope)
        compiled = dynamo_lite.compile(fn, backend=counter)
        torch.testing.assert_close(compiled(X), X * n)
        made.append((compiled, weakref.ref(scope["K"])))
        del scope, fn, compiled
    assert counter.frame_count == 2
    first, tensor = made.pop(0)
    del first
    gc.collect()
    assert tensor() is None
    torch.testing.assert_close(made[0][0](X), X * 3)


def test_versions_that_demand_a_dead_module_are_removed():
    counter = CompileCounter()
    modules = [Block(n / 3).eval() for n in range(4)]
    compiled = [dynamo_lite.compile(m, backend=counter) for m in modules]
    for fn in compiled:
        fn(X)
    cache = compiled[0].__call__.__func__.cache
    assert len(cache.entries) == 4
    references = [weakref.ref(m) for m in modules]
    last, survivor = compiled[-1], modules[-1]
    del modules[:], compiled[:], fn
    gc.collect()
    assert [ref() is None for ref in references] == [True, True, True, False]
    torch.testing.assert_close(last(X), survivor(X))
    survivor.scale = 7.0
    torch.testing.assert_close(last(X), survivor(X))


def test_copies_and_pickles():
    """They take no compiled code along, and share that of the original while it lives."""
    counter = CompileCounter()
    module = nn.Linear(4, 4)
    dynamo_lite.compile(module, backend=counter)(X)
    for twin in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert type(twin.__dict__["_dynamo_lite_regions"]) is dict
        torch.testing.assert_close(dynamo_lite.compile(twin, backend=counter)(X), module(X))
    assert counter.frame_count == 1


# -- threads


def test_threads():
    counter = CompileCounter()
    modules = [Block(n % 2 + 0.5).eval() for n in range(8)]
    expected = [m(X) for m in modules]
    errors = []
    start = threading.Barrier(8)

    def work(i):
        try:
            start.wait()
            for _ in range(20):
                fn = dynamo_lite.compile(modules[i], backend=counter)
                torch.testing.assert_close(fn(X), expected[i])
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert counter.frame_count == 2


# -- many


def test_many_modules_with_a_version_each_are_found_by_what_they_look_like():
    """Of a hundred versions, a call evaluates the one that was right before."""
    counter = CompileCounter()
    modules = [Block(n / 7).eval() for n in range(100)]
    compiled = [dynamo_lite.compile(m, backend=counter) for m in modules]
    for _ in range(2):
        for fn in compiled:
            fn(X)
    cache = compiled[0].__call__.__func__.cache
    assert len(cache.entries) == counter.frame_count == 100
    before = {id(entry) for entry in cache.entries}
    for module, fn in zip(modules, compiled, strict=True):
        torch.testing.assert_close(fn(X), module(X))
        assert cache.entries[0].hits >= 2  # it is the first now
    assert {id(entry) for entry in cache.entries} == before
