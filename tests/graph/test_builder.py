"""The FX graph under construction, driven without an interpreter."""

import operator

import pytest
import torch
import torch.nn.functional as F
from torch._higher_order_ops.map import map as map_over
from torch._higher_order_ops.scan import scan

import dynamo_lite
from dynamo_lite.exc import Unsupported
from dynamo_lite.graph.builder import STATIC_ADDRESS
from dynamo_lite.graph.core.nodes import placeholder_name
from tests.helpers.graph_lint import verify
from tests.helpers.stub_trace import StubTrace


@pytest.fixture
def tr():
    return StubTrace()


def x():
    return torch.arange(12.0).reshape(3, 4)


def test_placeholders_are_made_on_first_use_in_order(tr):
    a, b, unused = tr.input(x()), tr.input(x()), tr.input(x())
    assert not tr.graph.inputs
    first = tr.call(operator.add, b, 1)
    second = tr.call(operator.mul, a, first)
    (result,) = tr.run(second)
    assert [i.node.name for i in tr.graph.inputs] == ["l_x1_", "l_x0_"]
    assert torch.equal(result, x() * (x() + 1))
    assert unused.proxy.node is None
    assert not verify(tr.graph)


def test_names():
    assert placeholder_name("self.layers[3].weight") == "l_self_layers_3_weight_"
    assert placeholder_name("kwargs['input_ids']") == "l_kwargs_input_ids_"


def test_placeholder_names_are_unique(tr):
    a, b = tr.input(x()), tr.input(x())
    b.proxy.origin = (b.proxy.origin[0], a.proxy.origin[1], b.proxy.origin[2])
    tr.run(tr.call(operator.add, a, b))
    names = [i.node.name for i in tr.graph.inputs]
    assert len(set(names)) == 2


def test_parameters_are_marked_as_static(tr):
    p = tr.input(torch.nn.Parameter(x()))
    tr.run(tr.call("sum", p), tr.call("sum", tr.input(x())))
    first, second = tr.graph.inputs
    assert first.node.meta[STATIC_ADDRESS]
    assert STATIC_ADDRESS not in second.node.meta


def test_arguments_of_all_kinds(tr):
    a = tr.input(x())
    results = [
        tr.call(torch.cat, [a, a], dim=1),
        tr.call(torch.stack, (a, a)),
        tr.call("view", a, (4, 3)),
        tr.call(operator.getitem, a, (slice(1, None), None, ..., 2)),
        tr.call("to", a, dtype=torch.float64, device=torch.device("cpu")),
        tr.call("contiguous", a, memory_format=torch.contiguous_format),
        tr.call(torch.full, (2, 2), 1.5),
    ]
    values = tr.run(*results)
    assert values[0].shape == (3, 8)
    assert values[4].dtype is torch.float64
    assert not verify(tr.graph)


def test_argument_without_graph_form(tr):
    a = tr.input(x())
    nodes = len(tr.graph.graph.nodes)
    with pytest.raises(Unsupported) as caught:
        tr.call(operator.add, a, object())
    assert caught.value.slug == "graph-argument-type"
    assert all(n.op == "placeholder" for n in list(tr.graph.graph.nodes)[nodes:])


def test_failed_operator_leaves_no_node(tr):
    a = tr.input(x())
    with pytest.raises(Unsupported) as caught:
        tr.call(operator.matmul, a, a)
    assert caught.value.slug == "fake-tensor-error"
    assert isinstance(caught.value.cause, RuntimeError)
    assert tr.graph.is_empty


@pytest.mark.parametrize(
    ("target", "slug"),
    [
        ("item", "data-dependent-operator"),
        ("nonzero", "dynamic-shape-operator"),
        (torch.equal, "data-dependent-operator"),
    ],
)
def test_data_dependence(tr, target, slug):
    a = tr.input(torch.ones(()))
    off = dynamo_lite.config.patch(capture_scalar_outputs=False, capture_dynamic_output_shape_ops=False)
    with off, pytest.raises(Unsupported) as caught:
        tr.call(target, a, *([a] if target is torch.equal else []))
    assert caught.value.slug == slug


def test_results_of_all_kinds(tr):
    a = tr.input(x())
    pair = tr.call("max", a, 1)
    assert pair.cls is torch.return_types.max
    chunks = tr.call("chunk", a, 2)
    assert chunks.cls is tuple
    assert tr.call(torch.is_floating_point, a).value is True
    assert tr.call(torch.broadcast_shapes, (3, 1), (1, 4)).as_python_constant() == torch.Size([3, 4])
    nested = tr.call(torch.ops.aten.split_with_sizes.default, a, [1, 2])
    assert nested.cls is list
    tr.run(pair.items[0], chunks.items[1], nested.items[0])
    # Items that nobody uses and operators that answer from metadata are not in the graph.
    assert tr.graph.op_count == 6


def test_nested_result():
    tr = StubTrace()
    module = torch.nn.LSTM(4, 2)
    a, *weights = tr.input(x()[None]), *map(tr.input, module._flat_weights)
    zero = tr.call(torch.zeros, (1, 3, 2))
    result = tr.call(torch._VF.lstm, a, [zero, zero], list(weights), True, 1, 0.0, False, False, False)
    values = tr.run(*result.items)
    expected = module(x()[None])
    torch.testing.assert_close(values[0], expected[0])
    torch.testing.assert_close(values[2], expected[1][1])


def test_in_place_keeps_the_tracker_and_moves_the_node(tr):
    a = tr.input(x())
    b = tr.call("add_", a, 1)
    assert b is a
    assert a.proxy.node.target == "add_"
    assert tr.call(torch.add, a, 1, out=a) is a
    real = tr.graph.inputs[0].value
    (result,) = tr.run(tr.call("clone", a))
    assert torch.equal(result, x() + 2)
    assert torch.equal(real, x() + 2)


def test_outputs_are_registered_once(tr):
    a = tr.call(operator.add, tr.input(x()), 1)
    assert tr.graph.output(a) == tr.graph.output(a) == 0
    tr.graph.finish()
    assert tr.graph.output(a) == 0
    assert tr.graph.finish() is tr.graph.finish()


def test_meta_of_nodes(tr):
    a = tr.call(operator.add, tr.input(x()), 1)
    tr.run(a)
    placeholder, node, _ = tr.graph.graph.nodes
    assert node.meta["example_value"].shape == (3, 4)
    assert placeholder.meta.get("example_value").fake_mode is tr.graph.propagator.mode
    assert "example_value" in node.meta and "nothing" not in node.meta
    assert "line 1" in node.meta["stack_trace"]
    copied = node.meta.copy()
    assert copied["example_value"].dtype is torch.float32
    with pytest.raises(KeyError):
        node.meta["nothing"]


def test_graph_module_copies_and_pickles(tr):
    import copy
    import pickle

    a = tr.call(F.relu, tr.call(operator.add, tr.input(x()), 1))
    tr.run(a)
    module = tr.graph.module
    assert torch.equal(copy.deepcopy(module)(x())[0], x() + 1)
    assert torch.equal(pickle.loads(pickle.dumps(module))(x())[0], x() + 1)


def test_dead_inputs_and_items_are_removed(tr):
    a, b = tr.input(x()), tr.input(x())
    tr.call(operator.getitem, b, 0)
    c = tr.call(operator.add, a, 1)
    tr.run(c)
    assert tr.graph.op_count == 1
    assert len(tr.graph.inputs) == len(tr.graph.example_inputs()) == 1


def test_unused_operators_with_effects_stay(tr):
    a = tr.input(x())
    tr.call(operator.setitem, a, 0, 1.0)
    real = tr.graph.inputs[0].value
    tr.run()
    assert real[0, 0] == 1


def test_views_share_what_a_write_does_to_them(tr):
    a = tr.call(torch.zeros, 12)
    view = tr.call("view", a, 3, 4)
    w = tr.input(torch.nn.Parameter(x()))
    tr.call("mul_", view, w)
    assert a.proxy.meta.requires_grad and view.proxy.meta.requires_grad
    values = tr.run(a, view)
    assert all(v.requires_grad for v in values)


def test_graph_does_not_keep_real_tensors():
    import gc
    import weakref

    import dynamo_lite

    modules = []

    def backend(gm, example_inputs):
        modules.append(gm)
        return gm.forward

    class Big:
        pass

    def fn(a, b, holder):
        a.add_(1)
        holder.result = a.view(-1)
        return torch.relu(a) + b

    a, b, holder = x(), x(), Big()
    dynamo_lite.compile(fn, backend=backend, fullgraph=True)(a, b, holder)
    watched = [weakref.ref(t) for t in (a, b, holder)]
    del a, b, holder
    gc.collect()
    assert [w() for w in watched] == [None] * 3
    assert modules[0].graph.find_nodes(op="placeholder")[0].meta["example_value"].shape == (3, 4)


def linear(carry, row):
    return carry + row, carry * row


SEVERAL = {
    "topk": lambda x: x.topk(2),
    "a field": lambda x: x.max(0).values,
    "split": lambda x: x.split(1)[0] + 1,
    "unbind": lambda x: torch.unbind(x)[1],
    "svd": lambda x: torch.linalg.svd(x).S,
    "list": lambda x: torch._foreach_add([x, x], 1),
    "list in place": lambda x: torch._foreach_add_([x.clone()], 1),
    "map": lambda x: map_over(lambda a: a + 1, x),
    "scan": lambda x: scan(linear, x[0] * 0, x),
    "cond": lambda x: torch.cond(x.sum() > 0, lambda a: (a.sin(), a + 1), lambda a: (a.cos(), a + 2), (x,)),
    "vmap": lambda x: torch.vmap(lambda a: (a, a + 1))(x),
    "gradient": lambda x: torch.func.grad_and_value(lambda a: a.sum())(x),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", SEVERAL)
def test_example_values_of_nodes_with_several_results(name, dynamic):
    seen = []

    def backend(gm, example_inputs):
        for node in gm.graph.nodes:
            if node.op.startswith("call_") and node.target is not operator.getitem:
                seen.append((node, node.meta["example_value"]))
        for node in gm.graph.find_nodes(op="call_function", target=operator.getitem):
            parent, index = node.args
            if isinstance(index, int) and isinstance(parent.meta["example_value"], tuple | list):
                assert node.meta["example_value"] is parent.meta["example_value"][index]
        return gm.forward

    dynamo_lite.compile(SEVERAL[name], backend=backend, dynamic=dynamic, fullgraph=True)(x().T.contiguous())
    assert any(isinstance(value, tuple | list) for _, value in seen)
    real = {"topk": x().T.topk(2), "svd": torch.linalg.svd(x().T)}.get(name)
    if real is not None:
        (found,) = [value for _, value in seen if type(value) is type(real)]
        assert dynamic or [value.shape for value in found] == [value.shape for value in real]
