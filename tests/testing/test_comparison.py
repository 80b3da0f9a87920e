"""The helpers themselves: they must see every kind of difference."""

import dataclasses
import random
import re
import unittest

import numpy
import pytest
import torch

import dynamo_lite
from dynamo_lite import testing
from dynamo_lite.testing import (
    AotEagerAndRecordGraphs,
    CompileCounter,
    CompileCounterWithBackend,
    EagerAndRecordGraphs,
    differences,
    identities,
    run_both,
    same,
)


def graph():
    g = torch.fx.Graph()
    x = g.placeholder("x")
    y = g.call_function(torch.sin, (x,))
    g.output((g.call_method("cos", (y,)),))
    return torch.fx.GraphModule(torch.nn.Module(), g)


X = torch.ones(2)


@pytest.mark.parametrize("backend", [CompileCounter(), CompileCounterWithBackend("eager")])
def test_counters(backend):
    compiled = backend(graph(), [X])
    backend(graph(), [X])
    assert torch.equal(compiled(X)[0], X.sin().cos())
    assert (backend.frame_count, backend.op_count) == (2, 4)
    backend.clear()
    assert (backend.frame_count, backend.op_count) == (0, 0)


def test_recorders():
    recorder = EagerAndRecordGraphs()
    recorder(graph(), [X])
    assert len(recorder.graphs) == 1
    recorder = AotEagerAndRecordGraphs()
    recorder(graph(), [X])(X)
    assert len(recorder.graphs) == 1 and len(recorder.fw_graphs) == 1 and recorder.bw_graphs == []


@dataclasses.dataclass(eq=False)
class Point:
    x: object
    y: object = None


CASES = [
    (1, 2, "1 became 2"),
    (1, 1.0, "int became float"),
    ([1, 2], [1], "length 2 became 1"),
    ([1, [2]], [1, [3]], r"result\[1\]\[0\]: 2 became 3"),
    ({"a": 1}, {"a": 2}, r"\['a'\]: 1 became 2"),
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}, "keys"),
    ({1}, {2}, "became"),
    (Point(1), Point(2), r"__dict__\['x'\]"),
    (X, X + 1, "not equal|not close"),
    (X, X.double(), "dtype"),
    (X, X[:1], "shape"),
    (X, X.clone().requires_grad_(), "requires_grad"),
    (torch.ones(2, 3), torch.ones(3, 2).t(), "stride"),
    (X, torch.nn.Parameter(X, requires_grad=False), "Parameter"),
    (float("nan"), 1.0, "nan"),
]


@pytest.mark.parametrize("one, other, text", CASES, ids=range(len(CASES)))
def test_differences_are_seen(one, other, text):
    found = list(differences(one, other))
    assert found
    assert re.search(text, "\n".join(found))
    assert not list(differences(one, one))


def test_gradients_are_compared():
    one, other = (torch.ones(2, requires_grad=True) for _ in range(2))
    one.sum().backward()
    assert any(".grad" in line for line in differences(one, other))


def test_cycles():
    one, other = [1], [1]
    one.append(one)
    other.append(other)
    assert not list(differences(one, other))


def test_same():
    assert same(X, X + 1e-6) and not same(X, X + 1)
    assert same([X, {"a": 1.0}], [X, {"a": 1.0 + 1e-6}])
    assert not same(X, X.double()) and same(X, X.double(), exact_dtype=False)
    assert not same(torch.tensor(float("nan")), torch.tensor(float("nan")))
    assert same(torch.tensor(float("nan")), torch.tensor(float("nan")), equal_nan=True)
    assert not same((1,), [1])


def test_identities():
    shared = [1]
    assert identities((shared, shared)) == {"<0>[1]": "<0>[0]"}
    base = torch.ones(4)
    assert identities((base, base[1:])) == {"<0>[1]": "storage of <0>[0]"}
    assert identities((base, base)) == {"<0>[1]": "<0>[0]"}
    assert identities(([1], [1])) == {}
    point = Point(shared)
    assert identities((point, shared)) == {"<0>[1]": "<0>[0].__dict__['x']"}


def test_run_both_agrees():
    def fn(x, log, *, scale):
        log.append(x * scale)
        return log[-1] + 1, log

    run = run_both(fn, X, [], scale=2, _calls=1)
    assert run.graph_count == 1 and run.op_count == 2 and not run.recompiles and not run.breaks
    assert torch.equal(run.result[0], X * 2 + 1)


def test_run_both_compares_modules_and_random_numbers():
    run = run_both(torch.nn.Sequential(torch.nn.BatchNorm1d(2), torch.nn.Dropout()), torch.randn(4, 2))
    assert run.graph_count == 1


def test_run_both_compares_exceptions():
    def fn(x):
        raise ValueError("no", 3)

    run = run_both(fn, X)
    assert isinstance(run.exception, ValueError)


@pytest.mark.parametrize("wrong", ["result", "input", "alias", "exception", "random"])
def test_run_both_sees_wrong_compilation(wrong, monkeypatch):
    def fn(x, seen):
        if wrong == "exception":
            raise ValueError("a")
        if wrong == "random":
            torch.rand(1)
        seen.append(x)
        return seen

    def miscompiled(x, seen):
        if wrong == "exception":
            raise ValueError("b")
        result = [*seen, x]
        if wrong != "input":
            seen.append(x + 1 if wrong == "result" else x)
        return seen if wrong in ("input", "result", "random") else result

    monkeypatch.setattr(testing.comparison, "compile", lambda fn, **options: miscompiled)
    with pytest.raises(AssertionError, match="compiled and eager execution differ"):
        run_both(fn, X, [])


class TestTorchsHelpers:
    """What tests written against `torch._dynamo.testing` use."""

    def test_text_of_graphs(self):
        text = "def forward(self, x):  # a comment\n\n    return x   \n"
        assert testing.normalize_gm(text) == "def forward(self, x):\n    return x\n"

    @pytest.mark.parametrize("time", ["first", "second"])
    def test_inductor_graphs_are_recorded(self, time):
        """Also those of a program that torch's caches have from the first time."""
        backend = testing.InductorAndRecordGraphs()
        x = torch.arange(4.0)
        assert torch.allclose(dynamo_lite.compile(lambda a: a.sin() + 1, backend=backend)(x), x.sin() + 1)
        assert len(backend.graphs) == len(backend.inductor_graphs) == 1

    def test_extract_graph(self):
        result, graphs, aten = testing.extract_graph(lambda a: a.relu() + 1, torch.tensor([-1.0, 1.0]))
        assert result.tolist() == [1.0, 2.0] and len(graphs) == len(aten) == 1

    def test_results_and_losses(self):
        model = torch.nn.Linear(2, 1)
        x = torch.ones(3, 2)
        out = model(x)
        assert testing.requires_bwd_pass(out) and not testing.requires_bwd_pass(x)
        loss = testing.reduce_to_scalar_loss({"a": out, "b": [x]})
        loss.backward()
        results = testing.collect_results(model, out.detach(), loss.detach(), [x])
        assert set(results[2]) == {"weight", "bias"} and results[2]["weight"] is not None

    def test_strided(self):
        t = testing.rand_strided((2, 3), (1, 2), torch.float32)
        assert t.shape == (2, 3) and t.stride() == (1, 2)

    def test_variants_of_a_test_class(self):
        seen = []

        class Tests(unittest.TestCase):
            def test_it(self):
                seen.append(dynamo_lite.config.assume_static_by_default)

        variant = testing.make_test_cls_with_patches(
            Tests, "Dynamic", "_dynamic", (dynamo_lite.config, "assume_static_by_default", False)
        )
        result = unittest.TestResult()
        unittest.defaultTestLoader.loadTestsFromTestCase(variant).run(result)
        assert result.testsRun == 1 and result.wasSuccessful() and seen == [False]
        assert variant.__name__ == "DynamicTests" and hasattr(variant, "test_it_dynamic")

    def test_standard_test(self):
        testing.standard_test(unittest.TestCase(), lambda a, b: (a + b) * 2, 2, expected_ops=2)


NAMED = random.Random(3)


class TestGenerators:
    """Each version begins with the state that the others began with, and the states afterwards are compared."""

    def test_those_of_the_process_and_of_the_program(self):
        own, bits, old = torch.Generator(), numpy.random.default_rng(0), numpy.random.RandomState(0)
        before = own.get_state(), bits.bit_generator.state, NAMED.getstate()

        def fn(x):
            y = x * numpy.random.rand() * bits.random() * old.rand() * NAMED.random()
            return y + torch.rand(3, generator=own)

        run_both(fn, torch.ones(3))
        assert not torch.equal(own.get_state(), before[0]) and bits.bit_generator.state != before[1]
        assert NAMED.getstate() != before[2]

    @pytest.mark.parametrize(
        "generator", [numpy.random, NAMED, numpy.random.default_rng(0)], ids=["numpy", "random", "default_rng"]
    )
    def test_a_number_that_only_one_version_draws_is_seen(self, generator):
        def fn(x):
            if not dynamo_lite.is_compiling():
                generator.random()
            return x + 1

        with pytest.raises(AssertionError, match="a random generator is in another state"):
            run_both(fn, torch.ones(3))
