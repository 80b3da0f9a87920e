"""State by which AOTAutograd would compute something else: autocast's cache, inference modes, anomaly mode, places in storages."""

import warnings

import pytest
import torch
from torch import nn

import dynamo_lite
from dynamo_lite.record import log
from dynamo_lite.testing import same

BACKENDS = ("eager", "aot_eager", "inductor")


def model():
    torch.manual_seed(0)
    module = nn.Linear(3, 1)
    return module, torch.optim.SGD(module.parameters(), lr=1.0)


def notes():
    return [note for frame in log.frames for graph in frame.graphs for note in graph.notes.get("AOTAutograd", ())]


# -- the cache of autocast


def autocast(**options):
    return torch.autocast("cpu", torch.bfloat16, **options)


def steps(module, optimizer, x):
    with autocast():
        for _ in range(2):
            module(x).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()


def before_and_after_a_step(module, optimizer, x):
    with autocast():
        loss = module(x).sum()
        loss.backward()
        optimizer.step()
        return loss.detach(), module(x).detach()


def written(module, optimizer, x):
    with autocast():
        first = module(x)
        with torch.no_grad():
            module.weight.zero_()
        return first, module(x)


def written_data(module, optimizer, x):
    with autocast():
        first = module(x)
        module.weight.data.zero_()
        return first, module(x)


def one_step(module, optimizer, x):
    with autocast():
        loss = module(x).sum()
        loss.backward()
        optimizer.step()
    return loss.detach()


def a_block_each(module, optimizer, x):
    for _ in range(2):
        with autocast():
            loss = module(x).sum()
        loss.backward()
        optimizer.step()
    return loss.detach()


def nothing_kept(module, optimizer, x):
    with autocast(cache_enabled=False):
        first = module(x)
        with torch.no_grad():
            module.weight.zero_()
        return first, module(x)


def cleared(module, optimizer, x):
    with autocast():
        first = module(x)
        with torch.no_grad():
            module.weight.zero_()
        torch.clear_autocast_cache()
        return first, module(x)


KEEPING = (steps, before_and_after_a_step, written, written_data)


@pytest.mark.parametrize("backend", BACKENDS[:2])
@pytest.mark.parametrize("fn", [*KEEPING, one_step, a_block_each, nothing_kept, cleared])
def test_casts_that_autocast_keeps(fn, backend):
    """A graph that changes a leaf between two casts of it has to run as it was captured, and no other one."""

    def outcome(run):
        module, optimizer = model()
        results = [run(module, optimizer, torch.ones(2, 3)) for _ in range(2)]
        return results, dict(module.state_dict())

    dynamo_lite.reset()
    assert same(outcome(fn), outcome(dynamo_lite.compile(fn, backend=backend, fullgraph=fn in KEEPING[2:])))
    if backend != "eager":
        assert any("autocast" in note for note in notes()) == (fn in KEEPING)


# -- inference mode


def made(x, w):
    with torch.inference_mode():
        return torch.sigmoid(x), x[0], x


def decorated(x, w):
    return torch.inference_mode()(lambda: (torch.sigmoid(x[0]), w + 1))()


def beside_others(x, w):
    y = x * 2
    with torch.inference_mode():
        z = torch.sigmoid(y)
    return z, y * w


def a_number(x, w):
    y = x * 2
    with torch.inference_mode():
        n = y[0].sum()[None].view(1).shape[0]
    return y * w * n


def facts(result):
    tensors = result if isinstance(result, tuple) else (result,)
    return [(t.is_inference(), t.requires_grad, t.detach().clone()) for t in tensors]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fn", [made, decorated, beside_others, a_number])
def test_inference_tensors_leave_a_graph_as_such(fn, backend):
    args = torch.arange(4.0).reshape(2, 2), nn.Parameter(torch.ones(2))
    expected = fn(*args)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the compiler may fail for views that are made in a mode
        compiled = dynamo_lite.compile(fn, backend=backend)
        for _ in range(2):
            assert same(facts(expected), facts(compiled(*args)))
    assert (torch.ones(2) + 1).reshape(-1).tolist() == [2, 2]  # no dispatch key is left


@pytest.mark.parametrize("backend", BACKENDS)
def test_inference_tensors_are_refused_behind_their_graph(backend):
    def fn(x, w):
        with torch.inference_mode():
            t = torch.sigmoid(x)
        return (w * t).sum()

    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
        dynamo_lite.compile(fn, backend=backend)(torch.ones(2), nn.Parameter(torch.ones(2)))


@pytest.mark.parametrize("backend", BACKENDS)
def test_views_are_compiled_in_an_inference_mode_of_the_graph(backend):
    def fn(x, factor):
        with torch.inference_mode():
            return torch.sigmoid(x[0] * factor)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled = dynamo_lite.compile(fn, backend=backend)
        for factor in (1.5, 2.5, 3.5):
            assert same(facts(fn(torch.ones(2, 2), factor)), facts(compiled(torch.ones(2, 2), factor)))


def a_gradient(x, w):
    with torch.inference_mode():
        return torch.func.grad(lambda a: (a * a).sum())(x)


def views_of_gradients(x, w):
    with torch.inference_mode():
        g = torch.vmap(torch.func.grad(lambda a: (a * a).sum()))(x)
        _, tangent = torch.func.jvp(torch.sin, (x,), (x,))
        return x * 2, g.view(-1), tangent[0]


def views_of_a_parameter(x, w):
    with torch.inference_mode():
        v = w.view(-1)
        return x * 2, v, w.expand(2, 2), v.requires_grad, v.is_leaf


def only_views(x, w):
    with torch.inference_mode():
        return w[None], x[0]


def own_mode(x, w):
    with torch.inference_mode(False):
        return x * 2


OUT_OF_THE_MODE = (a_gradient, views_of_gradients, views_of_a_parameter, only_views)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("around", [False, True])
@pytest.mark.parametrize("backend", BACKENDS[:2])
@pytest.mark.parametrize("fn", [*OUT_OF_THE_MODE, made, own_mode])
def test_tensors_that_are_none_of_the_mode_they_are_made_in(fn, backend, around):
    """Views of a tensor from outside of the mode, and what transforms return."""

    def outcome(run):
        x, w = torch.arange(4.0).reshape(2, 2), nn.Parameter(torch.ones(2))
        with torch.inference_mode(around):
            result = run(x, w)
        tensors = [t for t in (result if isinstance(result, tuple) else [result]) if isinstance(t, torch.Tensor)]
        others = [] if isinstance(result, torch.Tensor) else [t for t in result if not isinstance(t, torch.Tensor)]
        factor = nn.Parameter(torch.ones(()))
        for t in tensors:
            if not t.is_inference():
                (t * factor).sum().backward()
        return facts(tuple(tensors)), others, factor.grad, w.grad

    compiled = dynamo_lite.compile(fn, backend=backend)
    for _ in range(2):
        assert same(outcome(fn), outcome(compiled))


# -- anomaly mode


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.filterwarnings("ignore")
def test_anomaly_mode_names_the_operator(backend):
    def fn(w, on):
        with torch.autograd.set_detect_anomaly(on):
            (w * 0).sqrt().sum().backward()

    compiled = dynamo_lite.compile(fn, backend=backend)
    for on in (True, False, True):
        w = nn.Parameter(torch.zeros(2))
        if on:
            with pytest.raises(RuntimeError, match="Function 'MulBackward0' returned nan values"):
                compiled(w, on)
        else:
            compiled(w, on)
            assert w.grad is not None  # Inductor takes `w * 0` for 0


# -- places in storages


def writes_there(x):
    return x.as_strided((2,), (1,), 0).mul_(10)


def reads_behind_a_write(x):
    x.detach().add_(1)
    return x.as_strided((6,), (1,)) + torch.as_strided(x.view(2, 2), (6,), (1,), 0)


def in_a_body(x):
    x.add_(1)
    return torch.cond(x.sum() > 0, lambda x: x.as_strided((2,), (1,), 0) + 1, lambda x: x[:2] + 1, (x,))


def scatters(x):
    x.add_(1)
    return x.as_strided_scatter(torch.zeros(2), (2,), (1,), 0)


def has_a_derivative(x):
    return torch.func.grad(lambda x: x.as_strided((2,), (1,), 0).sin().sum())(x)


@pytest.mark.parametrize("fn", [writes_there, reads_behind_a_write, in_a_body, scatters, has_a_derivative])
@pytest.mark.parametrize("backend", BACKENDS[:2])
def test_as_strided_counts_from_the_beginning_of_the_storage(fn, backend):
    def run(call):
        storage = torch.arange(12.0)
        return [(call(storage[i : i + 4]).clone(), storage.clone()) for i in (4, 0, 5)]

    assert same(run(fn), run(dynamo_lite.compile(fn, backend=backend, fullgraph=True)))
    assert any("as_strided" in note for note in notes()) is (backend == "aot_eager")


@pytest.mark.parametrize("backend", BACKENDS[:2])
def test_the_gradient_of_as_strided_counts_from_the_beginning_of_the_storage(backend):
    def fn(x):
        return x.as_strided((3,), (1,), 4) * 2

    def run(call):
        leaf = torch.arange(12.0, requires_grad=True)
        for i in (4, 0, 5):
            call(leaf[i : i + 4]).sum().backward()
        return leaf.grad

    assert same(run(fn), run(dynamo_lite.compile(fn, backend=backend, fullgraph=True)))


def test_as_strided_without_writes_and_gradients_is_compiled():
    compiled = dynamo_lite.compile(lambda x: x.as_strided((2,), (1,), 0) + 1, backend="aot_eager", fullgraph=True)
    storage = torch.arange(12.0)
    assert [compiled(storage[i : i + 4]).tolist() for i in (4, 0)] == [[1, 2]] * 2
    assert notes() == []
