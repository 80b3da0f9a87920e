"""`min` and `max` of tensors: the value is in the graph, the object is the one that eager execution has."""

import pytest
import torch
import torch.utils._pytree as pytree

import dynamo_lite
from dynamo_lite.testing import CompileCounter

NAN = float("nan")
PAIRS = [(1.0, 2.0), (2.0, 1.0), (1.0, 1.0), (NAN, 1.0), (1.0, NAN), (0.0, -0.0), (-0.0, 0.0), (-3, 2)]

ONE_GRAPH = {
    "value": "min(a, b) * 2",
    "both": "max(a * 1, b) + 1, min(a, b)",
    "object": "min(a, b)",
    "objects": "[min(a, b), max(a, b)], a",
    "many": "min([a, b, a * 2, b - 1]) * 3",
    "key": "torch.stack([min(a, b), max(a, b)])",
    "object and value": "(lambda m: ({'m': m}, m * 2))(min(a + 1, b))",
    "operand of a write": "torch.zeros(3).add_(max(a, b))",
    "copies": "max(a, b).clone(), max(a, b).to(torch.float64)",
    "requires_grad": "max(a, b).requires_grad",
    "a number": "max(a * 1.5, 0) + b * 1.5",
    "a number, returned": "max(a, 2), min(2, b), max(a, b, 1)",
    "a number as divisor": "torch.ones(3) / max(1, a), torch.ones(3) > min(b, 7)",
    "arithmetic of what may be a number": "torch.ones(3) * (1 / max(a, 3) - 1)",
    "between numbers": "torch.ones(3) * max(min(a, 2), 0)",
}
OTHERS = {
    "write": "(lambda m: (m.add_(1), a, b))(max(a, b))",
    "write by torch.Tensor": "torch.Tensor.add_(min(a, b), 1), a, b",
    "relu_": "torch.relu_(min(a, b)), a, b",
    "write to an argument": "(lambda m: (a.add_(10), m * 2))(min(a, b))",
    "write to an argument afterwards": "(lambda m: (m * 2, a.add_(10), m))(min(a, b))",
    "is": "min(a, b) is a",
    "view": "max(a, b).view(1)",
    "detached": "max(a, b).detach()",
    "itself": "min(a, b).contiguous()",
    "hash": "hash(min(a, b)) == hash(a)",
    "id": "id(min(a, b)) == id(a)",
    "data_ptr": "min(a, b).data_ptr() == a.data_ptr()",
    "in": "a in [min(a, b)]",
    "attribute": "setattr(min(a, b), 'foo', 1), hasattr(a, 'foo')",
    "is a tensor": "isinstance(max(a, 1), torch.Tensor), type(min(1, b)) is int",
    "other operators": "-max(a, 1), min(b, 2) ** 2, bool(max(a, 1)), torch.ones(2) ** max(a, 1)",
    "a number's truth": "bool(max(a, 0) * 1), 5 if min(b, 0) else 6",
    "a number's text": "str(max(a, 0)), [1, 2][max(a, 1) == 7]",
    "no number": "1 / max(a * 0, 0)",
    "a number of more digits": "torch.ones(2, dtype=torch.float64) * max(a, 0.1)",
    "a number with a gradient": "max(a, 1) * 2",
    "a number written to": "(lambda m: (a.add_(10), m * torch.ones(2)))(min(a, 2))",
    "a number behind a break": "(lambda m: (torch._dynamo.graph_break(), m + b))(min(a, 2))",
    "leaf": "min(a, b).is_leaf, min(a, b).grad_fn is None",
    "break": "(lambda m: (torch._dynamo.graph_break(), m + 1))(min(a, b))",
}


def program(text):
    namespace = {"torch": torch}
    exec(f"def f(a, b):\n    return {text}", namespace)
    return namespace["f"]


def outcome(fn, make):
    """The result, the arguments after the call, which of them the results are, and gradients."""
    args = make()
    try:
        result = fn(*args)
    except RuntimeError as error:
        return str(error)
    leaves = pytree.tree_leaves(result)
    which = [next((i for i, a in enumerate(args) if a is leaf), None) for leaf in leaves]
    sums = [leaf.sum() for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    if sums:
        sum(sums).backward()
    return repr(leaves), repr(args), which, repr([a.grad for a in args])


@pytest.mark.parametrize("name", [*ONE_GRAPH, *OTHERS])
def test_as_in_eager_execution(name):
    fn = program({**ONE_GRAPH, **OTHERS}[name])
    backend = CompileCounter()
    compiled = dynamo_lite.compile(fn, backend=backend)
    for a, b in PAIRS:
        make = lambda a=a, b=b: (torch.tensor(a), torch.tensor(b))  # noqa: E731
        assert outcome(compiled, make) == outcome(fn, make)
    if name in ONE_GRAPH:
        assert backend.frame_count == 2  # floats and ints


@pytest.mark.parametrize("name", [*ONE_GRAPH, *OTHERS])
@pytest.mark.parametrize("a, b", [(1.0, 2.0), (2.0, 1.0), (1.0, 1.0)])
@pytest.mark.parametrize("of_a, of_b", [(True, True), (True, False), (False, True)])
def test_gradients(name, a, b, of_a, of_b):
    """The tensor that was not chosen has no part in the gradient, not even with zeros."""
    fn = program({**ONE_GRAPH, **OTHERS}[name])
    compiled = dynamo_lite.compile(fn, backend="eager")
    make = lambda: (torch.tensor(a, requires_grad=of_a), torch.tensor(b, requires_grad=of_b))  # noqa: E731
    for _ in range(2):
        assert outcome(compiled, make) == outcome(fn, make)


def test_the_object_has_its_gradient():
    """What only leaves the frame is the tensor itself: one graph."""
    backend = CompileCounter()
    compiled = dynamo_lite.compile(lambda a, b: min(a * 2, b * 3), backend=backend)
    for first, second in ((1.0, 2.0), (2.0, 1.0)):
        make = lambda: (torch.tensor(first, requires_grad=True), torch.tensor(second, requires_grad=True))  # noqa: E731
        assert outcome(compiled, make) == outcome(lambda a, b: min(a * 2, b * 3), make)
    assert backend.frame_count == 1


@pytest.mark.parametrize(
    "a, b",
    [
        (torch.tensor(1), torch.tensor(2.0)),
        (torch.tensor(3.0), torch.tensor(2)),
        (torch.tensor([3.0]), torch.tensor([2.0])),
        (torch.nn.Parameter(torch.tensor(3.0)), torch.tensor(2.0)),
        (torch.tensor(1.0), 2.0),
        (2, torch.tensor(1.0)),
        (torch.tensor(2j), torch.tensor(1j)),
    ],
)
def test_unlike_ones(a, b):
    """Which one it is decides about class, dtype or shape."""
    for name in ("value", "object", "many", "copies"):
        fn = program(ONE_GRAPH[name])
        compiled = dynamo_lite.compile(fn, backend="eager")
        with torch.no_grad():
            try:
                expected = repr(fn(a, b))
            except (AttributeError, RuntimeError, TypeError) as error:
                with pytest.raises(type(error)):
                    compiled(a, b)
            else:
                assert repr(compiled(a, b)) == expected


@pytest.mark.parametrize("backend", ["aot_eager"])
def test_compilers(backend):
    fn = program("min(a, b) * 2, max(a, b), max(a, b, a * b)")
    compiled = dynamo_lite.compile(fn, backend=backend, fullgraph=True)
    for a, b in PAIRS:
        make = lambda a=a, b=b: (torch.tensor(a), torch.tensor(b))  # noqa: E731
        assert outcome(compiled, make) == outcome(fn, make)
