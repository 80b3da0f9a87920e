"""The text of a graph is what torch.fx would write."""

import ast
import copy
import operator

import pytest
import torch
from torch.fx import Graph

import dynamo_lite
from dynamo_lite.graph.core import python_code
from dynamo_lite.testing import run_both


def texts(fn, *args):
    """(ours, torch.fx's) for the only graph of a call."""
    found = []

    def backend(gm, inputs):
        found.append((python_code.write(gm.graph, "self"), Graph.python_code(gm.graph, "self")))
        return gm.forward

    dynamo_lite.compile(fn, backend=backend, fullgraph=True)(*args)
    assert len(found) == 1
    return found[0]


def test_this_torch_writes_what_we_write():
    assert python_code._agrees()


def views(x, y):
    a = x[:, None, ..., :] @ y.T
    a += 1
    a[0] = -a[1]
    b, c = a.split([1, 2], dim=-1)
    return torch.cat([b, c], dim=2).to(torch.float64).clamp(min=0.5, max=float("inf")), a.shape


def functions(x, y):
    with torch.no_grad():
        z = torch.nn.functional.linear(x, y, bias=None)
    u = torch.einsum("ij,kj->ik", x, y)
    values, indices = torch.topk(u, 2)
    return z * 2**-3.5, values, indices, torch.zeros((2,), dtype=torch.int32, device="cpu"), (x > 0) & (x < 1)


def checkpointed(x, y):
    return torch.utils.checkpoint.checkpoint(lambda v: (v @ y.T).sin(), x, use_reentrant=False)


@pytest.mark.parametrize("fn", [views, functions, checkpointed])
def test_text_of_captured_graphs(fn):
    ours, theirs = texts(fn, torch.randn(3, 4), torch.randn(3, 4))
    assert ours == theirs


def test_lines_lead_to_nodes():
    ours, _ = texts(views, torch.randn(3, 4), torch.randn(3, 4))
    lines = ours.src.split("\n")
    assert lines[ours._prologue_start - 1].startswith("def forward(self, ")
    assert all(0 < line < len(lines) for line in ours._lineno_map)


def graph_of(build):
    graph = python_code.TraceGraph()
    build(graph)
    return graph


def node_named_like_a_global(graph):
    x = graph.placeholder("x")
    y = graph.create_node("call_function", torch.sin, (x,), name="tests_graph_test_code_own")
    graph.output(graph.call_function(own, (y,)))


def own(x):
    return x


own.__module__ = "tests.graph.test_code"


def node_named_like_a_builtin(graph):
    node = graph.call_function(operator.neg, (graph.placeholder("x"),))
    node.name = "sum"
    graph.output(node)


def annotated(graph):
    x = graph.placeholder("x")
    x.type = torch.Tensor
    graph.output(x)


def default_value(graph):
    graph.output(graph.placeholder("x", default_value=1))


def dict_argument(graph):
    x = graph.placeholder("x")
    graph.output({"y": x})


@pytest.mark.parametrize(
    "build", [node_named_like_a_global, node_named_like_a_builtin, annotated, default_value, dict_argument]
)
def test_uncommon_graphs_are_left_to_torch(build):
    graph = graph_of(build)
    assert python_code.write(graph, "self") is None
    assert graph.python_code("self") == Graph.python_code(graph, "self")


def test_options_and_other_generators_are_left_to_torch():
    graph = graph_of(lambda graph: graph.output(graph.call_function(torch.sin, (graph.placeholder("x"),))))
    verbose = Graph.python_code(graph, "self", verbose=True)
    assert graph.python_code("self", verbose=True) == verbose
    graph.on_generate_code(lambda _: lambda body: ["pass\n", *body])
    assert "    pass\n" in graph.python_code("self").src


# -- keywords that no text of Python can have

OPERATORS = torch.library.Library("reserved_names", "DEF")
OPERATORS.define("scale(Tensor x, *, float lambda=1.0) -> Tensor")
OPERATORS.define("affine(Tensor x, float lambda=1.0, float yield=2.0) -> Tensor")
OPERATORS.impl("scale", lambda x, **kwargs: x * kwargs.get("lambda", 1.0), "CompositeExplicitAutograd")
OPERATORS.impl("affine", lambda x, a=1.0, b=2.0: x * a + b, "CompositeExplicitAutograd")
torch.library.register_fake("reserved_names::scale", lambda x, **kwargs: torch.empty_like(x), lib=OPERATORS)
torch.library.register_fake("reserved_names::affine", lambda x, a=1.0, b=2.0: torch.empty_like(x), lib=OPERATORS)


@dynamo_lite.allow_in_graph
def named(x, **kwargs):
    return x * kwargs["a b"] + kwargs.get("self", 1) + kwargs.get("None", 2)


CALLS = {
    "uniform_": lambda x: x.clone().uniform_(to=2.0, **{"from": 1.0}),
    "uniform_ by position": lambda x: x.clone().uniform_(**{"from": 0.5}),
    "random_": lambda x: x.clone().random_(to=5, **{"from": 1}),
    "random_ of sizes": lambda x: x.clone().random_(to=x.shape[0] + 3, **{"from": x.shape[0]}),
    "packet": lambda x: torch.ops.reserved_names.scale(x, **{"lambda": 3.0}),
    "overload": lambda x: torch.ops.reserved_names.scale.default(x, **{"lambda": 3.0}),
    "second of two": lambda x: torch.ops.reserved_names.affine(x, **{"yield": 3.0}),
    "both": lambda x: torch.ops.reserved_names.affine(x, **{"yield": 3.0, "lambda": 4.0}),
    "function": lambda x: named(x, **{"a b": 3.0}),
    "function, tensors": lambda x: named(x, **{"a b": x, "None": x, "self": 3.0}),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", CALLS)
def test_keywords_that_are_no_names(name, backend, dynamic):
    run = run_both(CALLS[name], torch.randn(4), _backend=backend, _dynamic=dynamic)
    assert run.exception is None and run.graph_count == 1 and not run.breaks
    assert not any(frame.skipped for frame in run.frames)
    (module,) = run.graphs
    ast.parse(module.code)
    copied = copy.deepcopy(torch.fx.GraphModule(module, module.graph))  # torch.fx writes the text
    ast.parse(copied.code)


def test_keywords_that_are_no_names_under_inductor():
    for name in ("uniform_", "packet"):
        compiled = dynamo_lite.compile(lambda x, call=CALLS[name]: call(x).shape, backend="inductor", fullgraph=True)
        assert compiled(torch.randn(4)) == (4,)


def test_an_argument_given_twice_raises_what_it_raises():
    run = run_both(lambda x: x.clone().uniform_(1.0, **{"from": 1.0}), torch.randn(4))
    assert isinstance(run.exception, TypeError)
