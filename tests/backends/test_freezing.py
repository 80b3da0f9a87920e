"""Parameters as constants: seen to change, and then inputs again."""

import warnings

import pytest
import torch

import dynamo_lite
from dynamo_lite.backends import registry
from dynamo_lite.backends.aot import load_compiler
from dynamo_lite.backends.freezing import bind, freeze, frozen_inputs
from dynamo_lite.backends.registry import candidates
from dynamo_lite.backends.requirements import Requirements
from dynamo_lite.record import log
from tests.backends.graphs import Net


class Counting(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)
        self.register_buffer("count", torch.zeros(3))

    def forward(self, x):
        self.count.view(-1).add_(1)
        return self.linear(x) + self.count


@pytest.fixture
def frozen():
    """A backend that freezes, and what it has compiled: the graphs' inputs."""
    seen = []

    def compile_graph(gm, example_inputs):
        seen.append(len(example_inputs))
        return gm.forward

    def backend(gm, example_inputs):
        return freeze(gm, example_inputs, compile_graph, compile_graph)

    backend.seen = seen
    return backend


CHANGES = {
    "in place": lambda m: m.head.weight.mul_(2),
    "another parameter": lambda m: setattr(m.head, "weight", torch.nn.Parameter(torch.randn(5, 8))),
    "other data": lambda m: setattr(m.head.weight, "data", torch.randn(5, 8)),
    "load_state_dict": lambda m: m.load_state_dict({k: v + 1 for k, v in m.state_dict().items()}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changes_are_seen(frozen, change):
    model = Net().eval()
    x = torch.randn(2, 3, 6, 6)
    compiled = dynamo_lite.compile(model, backend=frozen)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(compiled(x), model(x))
        assert frozen.seen == [1]  # only x goes in
        CHANGES[change](model)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # tested below
            for _ in range(2):
                torch.testing.assert_close(compiled(x), model(x))


def test_a_change_is_told_once(frozen):
    model = torch.nn.Linear(2, 2)
    compiled = dynamo_lite.compile(model, backend=frozen)
    with torch.no_grad():
        compiled(torch.ones(2))
        model.bias.add_(1)
        with pytest.warns(UserWarning, match="parameters have changed since they were frozen"):
            compiled(torch.ones(2))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            compiled(torch.ones(2))
    assert frozen.seen == [1, 3]


def test_other_parameters_run_plainly(frozen):
    one, other = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    compiled = dynamo_lite.compile(lambda layer, x: layer(x), backend=frozen)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        for layer in (one, other, one, other):
            torch.testing.assert_close(compiled(layer, torch.ones(2)), layer(torch.ones(2)))


def test_what_is_written_is_no_constant(frozen):
    model, twin = Counting(), Counting()
    twin.load_state_dict(model.state_dict())
    compiled = dynamo_lite.compile(model, backend=frozen)
    with torch.no_grad():
        for _ in range(3):
            x = torch.randn(2, 3)
            torch.testing.assert_close(compiled(x), twin(x))
    torch.testing.assert_close(model.count, twin.count)
    assert frozen.seen == [2]


def test_nothing_is_frozen_in_training(frozen):
    model = torch.nn.Linear(2, 2)
    dynamo_lite.compile(model, backend=frozen)(torch.ones(2)).sum().backward()
    assert model.weight.grad is not None and frozen.seen == [3]


def test_bound_graphs_have_attributes():
    graph = torch.fx.symbolic_trace(lambda x, w: (x @ w + x,))
    w = torch.nn.Parameter(torch.randn(2, 2))
    bound = bind(graph, {1: w})
    x = torch.randn(3, 2)
    torch.testing.assert_close(bound(x)[0], x @ w + x)
    assert dict(bound.named_parameters())["frozen_1"] is w
    assert frozen_inputs(graph, [x, w]) == [1]


def test_inductor():
    torch.manual_seed(0)
    model = Net().eval()
    x = torch.randn(2, 3, 8, 8)
    compiled = dynamo_lite.compile(model, backend="inductor", options={"freezing": True}, fullgraph=True)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-3, atol=1e-4)
        model.norm.running_mean.add_(1)
        with pytest.warns(UserWarning, match="parameters have changed"):
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-3, atol=1e-4)


def test_races_measure_the_frozen_graph(frozen, tmp_path, monkeypatch):
    ran = []

    def compile_frozen(gm, example_inputs):
        def run(*inputs):
            ran.append(len(inputs))
            return gm.forward(*inputs)

        return run

    def named(gm, example_inputs):
        return freeze(gm, example_inputs, compile_frozen, lambda gm, example_inputs: gm.forward)

    named.requirements = Requirements(assumes="nothing changes")
    monkeypatch.setitem(registry._backends, "named", named)
    model = torch.nn.Linear(3, 3)
    options = {"candidates": ["named"], "store": False, "budget": "2s"}
    compiled = dynamo_lite.compile(model, backend="autotune", options=options)
    with torch.no_grad():
        torch.testing.assert_close(compiled(torch.ones(3)), model(torch.ones(3)))
    race = {name: text for name, _, text in log.frames[-1].graphs[0].race}
    assert set(ran) == {1} and len(ran) > 20 and "µs" in race["named"]


def test_only_who_is_named_takes_part_in_races():
    assert "inductor_freezing" not in candidates({"cpu"}, training=False)


@pytest.mark.parametrize("is_frozen", [True, False])
def test_inductors_own_setting(is_frozen, monkeypatch):
    frozen = []
    freezing = load_compiler("torch._inductor.freezing")
    original = freezing.freeze
    monkeypatch.setattr(freezing, "freeze", lambda *args, **kw: frozen.append(1) or original(*args, **kw))
    model, x = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3)).eval(), torch.randn(4, 3)
    compiled = dynamo_lite.compile(model, backend="inductor")
    with torch._inductor.config.patch(freezing=is_frozen):
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), model(x))
        assert len(frozen) == is_frozen
        torch.testing.assert_close(compiled(x), model(x))  # with gradients
    assert len(frozen) == is_frozen
