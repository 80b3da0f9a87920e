"""`torch.ops` and what hangs on it: operators that are looked up for the first time in captured code, and that there are none."""

import itertools

import pytest
import torch

import dynamo_lite
from dynamo_lite.testing import CompileCounter, run_both

_numbers = itertools.count()


def library(*names):
    """A new namespace with operators that nobody has looked up."""
    lib = torch.library.Library(f"torch_ops_tests{next(_numbers)}", "FRAGMENT")
    for name in names:
        lib.define(f"{name}(Tensor x) -> Tensor")
        lib.impl(name, lambda x: x.sin() * 2, "CompositeImplicitAutograd")
    return lib


def captured_once(fn, *args):
    """The result of captured code that runs first of all, twice; one graph, one version."""
    counter = CompileCounter()
    compiled = dynamo_lite.compile(fn, backend=counter, fullgraph=True)
    results = [compiled(*args), compiled(*args)]
    assert counter.frame_count == 1
    torch.testing.assert_close(*results)
    return results[0]


X = torch.arange(4.0)


def test_the_first_lookup_of_an_operator():
    lib = library("one", "two", "three")
    name = lib.ns
    torch.testing.assert_close(captured_once(lambda x: getattr(torch.ops, name).one(x), X), X.sin() * 2)
    torch.testing.assert_close(captured_once(lambda x: getattr(torch.ops, name).two.default(x), X), X.sin() * 2)
    space = getattr(torch.ops, name)
    torch.testing.assert_close(captured_once(lambda x: space.three(x), X), X.sin() * 2)


def test_the_first_lookup_of_a_higher_order_operator():
    vars(torch.ops.higher_order).pop("strict_mode", None)
    with torch.no_grad():
        fn = lambda x: torch.ops.higher_order.strict_mode(torch.sin, (x,))  # noqa: E731
        torch.testing.assert_close(captured_once(fn, X), X.sin())


def test_an_operator_that_comes_later():
    """That there is none is a condition of the compiled code."""
    lib = library("one")
    space = getattr(torch.ops, lib.ns)

    def fn(x):
        return space.later(x) if hasattr(space, "later") else x - 1

    counter = CompileCounter()
    compiled = dynamo_lite.compile(fn, backend=counter, fullgraph=True)
    torch.testing.assert_close(compiled(X), X - 1)
    torch.testing.assert_close(compiled(X), X - 1)
    lib.define("later(Tensor x) -> Tensor")
    lib.impl("later", lambda x: x.cos(), "CompositeImplicitAutograd")
    torch.testing.assert_close(compiled(X), X.cos())
    assert counter.frame_count == 2


def test_an_overload_that_there_is_none_of():
    def fn(x):
        try:
            return torch.ops.aten.add.nope(x)
        except AttributeError as error:
            return x + 1, str(error)

    assert run_both(fn, X, _fullgraph=True).graph_count == 1


def test_a_missing_operator_raises_as_eagerly():
    lib = library("one")
    space = getattr(torch.ops, lib.ns)
    run_both(lambda x: space.nope(x), X)
    with pytest.raises(AttributeError, match="has no attribute 'nope'"):
        dynamo_lite.compile(lambda x: space.nope(x), backend="eager", fullgraph=True)(X)


def test_what_operators_tell():
    def fn(x):
        add = torch.ops.aten.add
        texts = (str(add), str(add.Tensor), repr(add.Tensor), add.Tensor.name(), add.Tensor.namespace, add.__name__)
        tags = torch.Tag.pointwise in add.Tensor.tags
        return texts, add.overloads(), tags, add.Tensor.overloadpacket is add, add(x, x), add.Tensor(x, x)

    assert run_both(fn, X, _fullgraph=True).graph_count == 1
