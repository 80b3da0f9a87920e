"""Candidates of a race that change what is not theirs, or fail late: the others, and the program, do not notice."""

import random
import time

import numpy
import pytest
import torch

import dynamo_lite
from dynamo_lite.backends import registry
from dynamo_lite.backends.requirements import Requirements
from dynamo_lite.record import log
from dynamo_lite.tune.autotune import store_at
from tests.tune.fresh import new_process


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setattr(registry, "_backends", dict(registry._backends))
    monkeypatch.setattr(registry, "_tags", dict(registry._tags))
    log.reset()
    new_process()


def candidate(function):
    function.requirements = Requirements(trains=True)
    return registry.register_backend(function)


def race(fn, *names, **options):
    given = {"candidates": list(names), "store": False, "budget": "2s", **options}
    return dynamo_lite.compile(fn, backend="autotune", fullgraph=True, options=given)


def told():
    return {name: text for name, _, text in log.frames[-1].graphs[0].race}


def fn(x):
    return torch.sin(x) + 1


def to_cosine(gm):
    for node in gm.graph.nodes:
        if node.target is torch.sin:
            node.target = torch.cos
    gm.recompile()


@pytest.mark.parametrize("fails", [False, True])
def test_one_that_rewrites_its_graph(fails):
    @candidate
    def edited(gm, example_inputs):
        to_cosine(gm)
        if fails:
            raise RuntimeError("can't go on")
        return gm.forward

    seen = []

    @candidate
    def behind_it(gm, example_inputs):
        seen.append(gm.code)
        return gm.forward

    x = torch.arange(3.0)
    assert torch.equal(race(fn, "edited", "behind_it")(x), fn(x))
    assert "torch.sin" in seen[0]
    assert told()["edited"].startswith("failed: " if fails else "wrong: ")
    assert not told()["behind_it"].startswith(("failed", "wrong"))


def test_one_that_runs_the_graph_on_its_examples_and_writes_to_them():
    @candidate
    def warms(gm, example_inputs):
        gm(*example_inputs)
        for value in example_inputs:
            if isinstance(value, torch.Tensor):
                value.detach().zero_()
        return gm.forward

    torch.manual_seed(0)
    module, twin = torch.nn.BatchNorm1d(3), torch.nn.BatchNorm1d(3)
    x = torch.randn(5, 3)
    before = x.clone()
    result = race(module, "warms")(x)
    assert torch.equal(x, before) and torch.equal(result, twin(x))
    assert [v.tolist() for v in module.state_dict().values()] == [v.tolist() for v in twin.state_dict().values()]


def test_one_that_changes_the_state_of_the_process():
    seen = []

    @candidate
    def disturbs(gm, example_inputs):
        torch.set_grad_enabled(False)
        torch.set_default_dtype(torch.float64)
        random.random(), numpy.random.rand(), torch.rand(1)
        return gm.forward

    @candidate
    def behind_it(gm, example_inputs):
        seen.append((torch.is_grad_enabled(), torch.get_default_dtype()))
        return gm.forward

    def states():
        return random.getstate(), numpy.random.get_state()[1].tolist(), torch.get_rng_state().tolist()

    before = states()
    try:
        race(fn, "disturbs", "behind_it")(torch.ones(3))
        assert states() == before
        assert [(torch.is_grad_enabled(), torch.get_default_dtype())] == seen == [(True, torch.float32)]
    finally:
        torch.set_grad_enabled(True)
        torch.set_default_dtype(torch.float32)


def test_one_that_fails_while_it_is_timed():
    @candidate
    def later(gm, example_inputs):
        calls = []

        def run(*inputs):
            calls.append(1)
            if len(calls) > 3:
                raise RuntimeError("no more")
            return gm.forward(*inputs)

        return run

    @candidate
    def behind_it(gm, example_inputs):
        return gm.forward

    x = torch.ones(3)
    assert torch.equal(race(fn, "later", "behind_it")(x), fn(x))
    assert told()["later"] == "failed: RuntimeError: no more"
    assert "compiled in" in told()["behind_it"]


def test_one_with_static_results_under_training():
    @candidate
    def static(gm, example_inputs):
        known = {}

        def run(*inputs):
            if id(inputs) not in known:
                known[id(inputs)] = gm.forward(*inputs)
            return next(iter(known.values()))

        return run

    x = torch.ones(3, requires_grad=True)
    race(fn, "static")(x).sum().backward()
    assert torch.equal(x.grad, torch.cos(x.detach()))


def test_a_choice_that_leaves_candidates_open_is_made_again(tmp_path):
    asked = []

    def slow(gm, name):
        asked.append(name)

        def run(*inputs):
            time.sleep(1e-3)
            return gm.forward(*inputs)

        return run

    @candidate
    def one(gm, example_inputs):
        return slow(gm, "one")

    @candidate
    def two(gm, example_inputs):
        return slow(gm, "two")

    for budget, names, raced in (
        (1e-9, ["one"], []),
        (1e-9, ["one"], []),
        (5, ["one"], ["one"]),
        (5, ["one"], []),
        (9, ["one"], []),
        (5, ["one", "two"], ["one", "two"]),
        (5, ["two"], []),
    ):
        new_process()
        asked.clear()
        race(fn, *names, store=tmp_path / "store", budget=budget)(torch.ones(3))
        assert asked == raced, (budget, names)


def test_one_that_a_check_has_found_at_fault_is_in_no_later_race(tmp_path):
    calls = []

    @candidate
    def drifts(gm, example_inputs):
        calls.append("compiled")
        return lambda x: (fn(x),)

    @candidate
    def other(gm, example_inputs):
        return gm.forward

    path = tmp_path / "store"
    race(fn, "drifts", store=path)(torch.ones(3))
    store = store_at(path)
    (key, choice), *_ = store.all().items()
    store.put(key, choice._replace(backend="eager", measured=[("drifts", None, "quarantined: wrong")]))
    new_process()
    calls.clear()
    race(fn, "drifts", "other", store=path)(torch.ones(3))
    assert calls == [] and told()["drifts"] == "quarantined: wrong" and "compiled in" in told()["other"]
    new_process()
    race(fn, "drifts", "other", store=path)(torch.ones(3))
    assert calls == []
