import gc
import operator
import weakref

import pytest
import torch

import dynamo_lite
import dynamo_lite.testing
from dynamo_lite.backends.handed import copy_of
from dynamo_lite.record import GRAPH_RECORD, log


def rewrite(gm, *, recompile=True):
    """A wrong one: cosines in the place of sines."""
    for module in gm.modules():
        for node in module.graph.nodes:
            if node.target is torch.sin:
                node.target = torch.cos
        if recompile:
            module.recompile()


def raises(gm, example_inputs):
    rewrite(gm)
    raise NotImplementedError("this can't go on")


def raises_before_recompilation(gm, example_inputs):
    rewrite(gm, recompile=False)
    raise NotImplementedError("this can't go on")


def returns_nothing(gm, example_inputs):
    rewrite(gm)


def raises_in_the_call(gm, example_inputs):
    rewrite(gm)

    def run(*inputs):
        raise NotImplementedError("no such device")

    return run


FAILING = [raises, raises_before_recompilation, returns_nothing, raises_in_the_call]


@pytest.mark.parametrize("backend", FAILING)
def test_the_graph_that_replaces_a_backend_is_the_captured_one(backend):
    def fn(x):
        return torch.sin(x) + 1

    x = torch.arange(3.0)
    compiled = dynamo_lite.compile(fn, backend=backend)
    with pytest.warns(UserWarning, match="failed"):
        assert torch.equal(compiled(x), fn(x))
    assert torch.equal(compiled(x), fn(x))


@pytest.mark.parametrize("backend", FAILING)
def test_bodies_and_floats(backend):
    def body(x):
        return torch.sin(x)

    def fn(x, factor):
        return torch.utils.checkpoint.checkpoint(body, x, use_reentrant=False) * factor

    compiled = dynamo_lite.compile(fn, backend=backend)
    with pytest.warns(UserWarning, match="failed"):
        for factor in (1.5, 2.5, 3.5):
            x = torch.arange(3.0, requires_grad=True)
            result = compiled(x, factor)
            assert torch.equal(result, fn(x, factor))
            result.sum().backward()
            assert torch.equal(x.grad, torch.cos(x) * factor)


def test_what_a_backend_makes_of_its_copy_runs():
    seen = []

    def backend(gm, example_inputs):
        seen.append(
            (gm.meta[GRAPH_RECORD].module(), gm, [n.meta["example_value"].shape for n in list(gm.graph.nodes)[:-1]])
        )
        rewrite(gm)
        return gm.forward

    x = torch.arange(3.0)
    assert torch.equal(dynamo_lite.compile(lambda x: torch.sin(x) + 1, backend=backend)(x), torch.cos(x) + 1)
    captured, gm, shapes = seen[0]
    assert shapes == [(3,)] * 3
    assert captured.graph.find_nodes(op="call_function", target=torch.sin)
    assert not gm.graph.find_nodes(op="call_function", target=torch.sin)
    assert [n.name for n in captured.graph.nodes] == [n.name for n in gm.graph.nodes]


def test_an_operator_of_the_copy_that_raises_lets_the_frame_start_again():
    def fn(x, index):
        try:
            return x[index] + 1
        except IndexError:
            return x

    compiled = dynamo_lite.compile(fn, backend=lambda gm, example_inputs: gm.forward)
    x = torch.arange(3.0)
    assert compiled(x, torch.tensor([2])).tolist() == [3.0]
    assert compiled(x, torch.tensor([7])) is x


def test_where_the_rewritten_copy_has_written_before_it_raises_the_error_goes_on():
    def add_write(gm, example_inputs):
        index = gm.graph.find_nodes(op="call_function", target=operator.getitem)[0]
        with gm.graph.inserting_before(index):
            gm.graph.call_method("add_", (index.args[0], 1))
        gm.recompile()
        return gm.forward

    def fn(x, index):
        return x[index] + 1

    compiled = dynamo_lite.compile(fn, backend=add_write)
    x = torch.zeros(3)
    with pytest.raises(IndexError):
        compiled(x, torch.tensor([7]))
    assert x.tolist() == [1.0] * 3


def test_backends_of_the_package_get_the_graph_itself():
    counter = dynamo_lite.testing.CompileCounterWithBackend("eager")
    x = torch.ones(2)
    with log.recording() as frames:
        dynamo_lite.compile(lambda x: torch.sin(x) + 1, backend=counter)(x)
    assert frames[0].graphs[0].module() is counter.graphs[0]


def test_a_copy_has_names_and_bodies_of_its_own():
    class Root(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.body = torch.fx.symbolic_trace(lambda x: (torch.sin(x),))

    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    graph.output((x, graph.get_attr("body")))
    gm = torch.fx.GraphModule(Root(), graph)
    copy = copy_of(gm)
    assert [n.name for n in copy.graph.nodes] == [n.name for n in gm.graph.nodes]
    assert copy.code == gm.code
    rewrite(copy)
    assert "sin" in gm.body.code and "cos" in copy.body.code


def test_a_copy_that_is_left_as_it_was_goes():
    copies = []

    def backend(gm, example_inputs):
        copies.append(weakref.ref(gm))
        return gm.forward

    fn = dynamo_lite.compile(lambda x: torch.sin(x) + 1, backend=backend)
    assert fn(torch.zeros(2)).tolist() == [1.0, 1.0]
    gc.collect()
    assert copies[0]() is None


def test_another_function_of_the_same_name_is_a_change():
    def backend(gm, example_inputs):
        def sin(x):
            return torch.cos(x)

        (node,) = gm.graph.find_nodes(op="call_function", target=torch.sin)
        node.target = sin
        gm.recompile()
        return gm.forward

    assert dynamo_lite.compile(lambda x: torch.sin(x), backend=backend)(torch.zeros(2)).tolist() == [1.0, 1.0]


def closing_over(gm, example_inputs):
    def run(*args):
        return gm(*args)

    return run


def closing_over_and_failing(gm, example_inputs):
    run = closing_over(gm, example_inputs)

    def fail(*args):
        run(*args)
        raise RuntimeError("no")

    return fail


@pytest.mark.parametrize("backend", [closing_over, closing_over_and_failing])
@pytest.mark.filterwarnings("ignore:backend")
def test_the_text_of_a_copy_goes_with_the_copy(backend):
    from torch.fx.graph_module import _loader

    def call(number):
        def f(x):
            return x * 2 + number

        dynamo_lite.optimize(backend)(f)(torch.ones(2))

    call(0)  # what the first error of a backend keeps
    gc.collect()
    before = set(_loader.eval_cache)
    for number in range(1, 4):
        call(number)
    gc.collect()
    assert len(set(_loader.eval_cache) - before) <= 2  # those of the last one
