"""The table of effects around a graph: their order, what each costs where it has nothing to do, and one that a test adds."""

import ast
import inspect
from dataclasses import dataclass, fields
from typing import NamedTuple

import pytest
import torch

import dynamo_lite
from dynamo_lite.exc import Refused
from dynamo_lite.graph import null_runtime, operator_calls, passes, torch_runtime
from dynamo_lite.graph.builder import GraphBuilder
from dynamo_lite.graph.core.effect import GraphEffect
from dynamo_lite.graph.runtime import Runtime
from dynamo_lite.testing import CompileCounter
from tests.helpers.stub_trace import StubTrace

ORDER = [
    "checks",  # innermost: takes its results off the others' results
    "sizes",  # asserts before the ambient state is put back
    "state",
    "unseen",  # an inference mode around what is in the graph alone
    "saved_hooks",
    "inputs",
    "gradients",  # of the results of which others are made
    "outputs",  # makes results
    "versions",  # of the results that have been made
    "assigned",
    "leaves",
    "data",
    "backward",  # not about results whose gradients are used up
    "hooks",
    "random",
    "modes",  # around all that call torch functions
    "wrappers",
    "fakes",  # outermost
]


def test_the_order_of_the_table():
    assert list(passes.Passes._fields) == ORDER
    assert [cls.__name__ for cls in passes.CLASSES] == [cls.__name__ for cls in passes.Passes.__annotations__.values()]
    assert len(set(passes.CLASSES)) == len(passes.CLASSES)


def test_wrappers_are_put_around_the_call_in_the_order_of_the_table():
    graph = StubTrace().graph
    called = []

    def wrapper(name):
        def wrap(compiled):
            def run(*args):
                called.append(name)
                return compiled(*args)

            return run

        return wrap

    for name, effect in graph.passes._asdict().items():
        effect.call_wrapper = lambda name=name: wrapper(name)
    protect = torch_runtime._protector(graph, graph.finish())
    assert protect(lambda: "result")() == "result"
    assert called == ORDER[::-1]


def test_an_effect_with_nothing_to_do_costs_nothing_per_call():
    trace = StubTrace()
    trace.graph.output(trace.call(torch.sin, trace.input(torch.ones(3))))
    trace.state.restore()
    module = trace.graph.finish()

    def compiled(x):
        return (x,)

    assert torch_runtime._protector(trace.graph, module)(compiled) is compiled
    assert torch_runtime._replaced(trace.graph, compiled, None, is_boxed=False) is compiled
    assert all(effect.write_data(None) is None for effect in trace.graph.passes)


def test_only_effects_that_override_an_event_are_asked():
    graph = StubTrace().graph
    for name in ("on_node", "on_write"):
        overriding = [
            effect for effect in graph.passes if getattr(type(effect), name) is not getattr(GraphEffect, name)
        ]
        assert getattr(graph.operators, name) == overriding != []


def test_a_field_with_which_no_graph_is_kept():
    for row, cls in zip(ORDER, passes.CLASSES, strict=True):
        names = {field.name for field in fields(cls)}
        assert {*cls.never_kept, *([cls.kept] if cls.kept else ())} <= names, row
        for name, kind in cls.never_kept.items():
            effect = getattr(passes.effects_of(None), row)
            setattr(effect, name, ["something"])
            with pytest.raises(Refused, match=kind):
                effect.write_data(None)


def test_a_field_that_is_kept():
    for row, cls in zip(ORDER, passes.CLASSES, strict=True):
        if cls.kept is not None and cls.write_data is GraphEffect.write_data:
            effect, other = getattr(passes.effects_of(None), row), getattr(passes.effects_of(None), row)
            setattr(effect, cls.kept, [1, 2])
            other.read_data(effect.write_data(None), None, None)
            assert getattr(other, cls.kept) == [1, 2]


calls = []


@dataclass(eq=False)
class CountedCalls(GraphEffect):
    """Counts the calls of graphs with the number of operators that they have."""

    kept = "n"
    n: int = 0

    def on_node(self, node, outcome, tensors):
        self.n += 1

    def call_wrapper(self):
        def wrap(compiled, n=self.n):
            def run(*args):
                calls.append(n)
                return compiled(*args)

            return run

        return wrap


def test_a_new_effect_is_a_class_and_a_row(monkeypatch):
    rows = NamedTuple("rows", [*passes.Passes.__annotations__.items(), ("counted", CountedCalls)])
    monkeypatch.setattr(passes, "Passes", rows)
    monkeypatch.setattr(passes, "CLASSES", tuple(rows.__annotations__.values()))
    monkeypatch.setattr(operator_calls, "ON_NODE", passes.overriding("on_node"))
    calls.clear()
    counter = CompileCounter()
    compiled = dynamo_lite.compile(lambda x: (x + 1).sin(), backend=counter)
    for _ in range(2):
        torch.testing.assert_close(compiled(torch.ones(3)), torch.full((3,), 2.0).sin())
    assert calls == [2, 2] and counter.frame_count == 1


def test_a_builder_keeps_nodes_inputs_and_outputs():
    (cls,) = ast.parse(inspect.getsource(GraphBuilder)).body
    assert sum(isinstance(item, ast.FunctionDef) for item in cls.body) <= 30
    assert len(vars(StubTrace().graph)) <= 15


def test_a_builder_that_is_released_is_in_no_effect():
    trace = StubTrace()
    effects = trace.graph.passes
    trace.state.restore()
    trace.graph.finish()
    trace.graph.release()
    assert not any("builder" in vars(effect) for effect in effects)


@pytest.mark.parametrize("module", [torch_runtime, null_runtime], ids=["torch", "without torch"])
def test_both_runtimes_have_the_names_of_the_protocol(module):
    names = {name for name in vars(Runtime) if not name.startswith("_")}
    assert len(names) > 20 and {name for name in names if not hasattr(module, name)} == set()
