"""The text of guards for readers."""

import pytest
import torch

import dynamo_lite
from dynamo_lite.record import log


def test_sizes_and_strides_of_tensors_are_shown():
    compiled = dynamo_lite.compile(lambda x, y: x + y, backend="eager")
    for n in (3, 4):
        compiled(torch.ones(n, 2)[:, :1], torch.ones(n, 1, requires_grad=True))
    first, second = (
        [line.partition(" = ")[2] for line in frame.guards.text().splitlines() if "Tensor torch" in line]
        for frame in log.snapshot()
    )
    assert first == [
        "Tensor torch.float32 shape (3, 1) stride (2, 1) on cpu",
        "Tensor torch.float32 shape (3, 1) stride (1, 1) on cpu, requires_grad",
    ]
    assert [line.partition(" stride")[0] for line in second] == ["Tensor torch.float32 shape (*, 1)"] * 2


def test_guards_on_many_nested_objects():
    """How deep they are nested counts, not how many there are: each call is compared with them on a C stack of any size."""
    rows = [[(i, [i])] for i in range(3000)]

    def f(x):
        return x + sum(row[0][1][0] for row in rows)

    compiled = dynamo_lite.compile(f, backend="eager")
    with dynamo_lite.config.patch(debug=True):
        results = [compiled(torch.ones(2)) for _ in range(3)]
    assert all(torch.equal(result, f(torch.ones(2))) for result in results) and len(log.snapshot()) == 1


def test_keys_of_the_program_are_not_asked_for_their_text():
    asked = []

    class Key:
        def __repr__(self):
            asked.append(self)
            return "secret"

    table = {Key(): torch.ones(2), torch.nn.Parameter(torch.zeros(3)): torch.ones(3)}

    def f(x):
        return [x + value.sum() for value in table.values()]

    explained = str(dynamo_lite.explain(f, torch.ones(1)))
    assert not asked and "secret" not in explained and "Parameter containing" not in explained


class Quantity:
    """Like a tensor, without a shape."""

    def __init__(self, value):
        self.value = value

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return function(*[a.value if isinstance(a, Quantity) else a for a in args], **(kwargs or {}))


class Asked(Quantity):
    times = 0

    @property
    def shape(self):
        Asked.times += 1
        raise AssertionError


class Meta(type):
    def __getattribute__(cls, name):
        raise AssertionError(name)


class Odd(metaclass=Meta):
    pass


@pytest.mark.parametrize(
    "value",
    [
        Quantity(3.0),
        Asked(3.0),
        Odd(),
        torch.nn.UninitializedParameter(),
        torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
        [Asked(3.0)],
    ],
    ids=["tensor-like", "asked", "odd", "uninitialized", "nested", "list"],
)
def test_what_a_guard_misses_is_described_without_asking_it(value):
    def f(x, other):
        return x + 1 if other is None else x - 1

    compiled = dynamo_lite.compile(f, backend="eager")
    with dynamo_lite.config.patch(report_guard_failures=True):
        assert compiled(torch.ones(2), None).tolist() == [2, 2]
        assert compiled(torch.ones(2), value).tolist() == [0, 0]
    assert Asked.times == 0 and len(log.snapshot()) == 2


@pytest.mark.parametrize(
    "settings", [{}, {"debug": True}, {"strict_guards": True}, {"report_guard_failures": True}], ids=str
)
@pytest.mark.parametrize("dynamic", [None, True])
def test_a_nested_tensor_where_a_dense_one_was(dynamic, settings):
    """It has no sizes that a message could tell."""
    compiled = dynamo_lite.compile(lambda xs: xs[0].sin() + 1, backend="eager", dynamic=dynamic)
    nested = torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(3, 4)])
    with dynamo_lite.config.patch(settings):
        assert compiled([torch.ones(2, 4)]).shape == (2, 4)
        assert all(
            torch.equal(part, part.new_ones(()).sin().expand(part.shape) + 1) for part in compiled([nested]).unbind()
        )
        assert compiled([torch.ones(3, 4)]).shape == (3, 4)
