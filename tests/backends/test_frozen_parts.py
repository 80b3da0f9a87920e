"""Parameters as constants of the parts that ONNX Runtime and OpenVINO take."""

import warnings

import pytest
import torch

import dynamo_lite
from dynamo_lite.backends.parts import PartCompiler, compile_parts
from dynamo_lite.backends.registry import candidates, requirements_of
from dynamo_lite.record import log
from tests.backends.graphs import Net

pytestmark = pytest.mark.filterwarnings("error:backend")


@pytest.fixture
def parts():
    """A backend that takes all in one part, and what it was given: the numbers of inputs and of constants."""
    seen = []

    def compile_part(part, inputs, constants=None):
        seen.append((len(inputs), sorted(constants or {})))
        values = dict(constants or {})

        def run(*given):
            rest = iter(given)
            return part.forward(*[values[i] if i in values else next(rest) for i in range(len(inputs))])

        return run

    def backend(gm, example_inputs):
        compiler = PartCompiler("mine", compile_part, frozenset({"float32"}), takes_constants=True)
        return compile_parts(gm, example_inputs, compiler, {"freezing": True})

    backend.seen = seen
    return backend


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)


def test_changes_are_seen(backend):
    torch.manual_seed(0)
    model, x = Net().eval(), torch.randn(2, 3, 8, 8)
    compiled = dynamo_lite.compile(model, backend=backend, options={"freezing": True}, fullgraph=True)
    with torch.no_grad():
        for _ in range(3):
            close(compiled(x), model(x))
        assert not log.frames[0].graphs[0].notes[f"left to torch by {backend}"]
        model.head.weight.mul_(3)
        with pytest.warns(UserWarning, match="parameters have changed since they were frozen"):
            close(compiled(x), model(x))
        for _ in range(2):
            close(compiled(x), model(x))


def test_halves(backend):
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4)).to(torch.bfloat16)
    x = torch.randn(2, 8, dtype=torch.bfloat16)
    compiled = dynamo_lite.compile(model, backend=f"{backend}_freezing")
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(compiled(x), model(x), rtol=3e-2, atol=3e-2)


def test_they_take_part_in_races_where_they_are_named(backend):
    assert requirements_of(f"{backend}_freezing").assumes
    assert f"{backend}_freezing" not in candidates({"cpu"}, training=False)


def test_sizes_that_vary(backend):
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4)).eval()
    compiled = dynamo_lite.compile(model, backend=backend, options={"freezing": True}, dynamic=True)
    with torch.no_grad():
        for n in (2, 2, 5, 9):
            x = torch.randn(n, 8)
            close(compiled(x), model(x))
    assert len(log.frames) == 1


def test_what_a_part_is_given(parts):
    model, x = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()), torch.randn(2, 4)
    compiled = dynamo_lite.compile(model, backend=parts)
    with torch.no_grad():
        for _ in range(3):
            close(compiled(x), model(x))
        assert len(parts.seen) == 1 and parts.seen[0][0] == 3 and len(parts.seen[0][1]) == 2
        model[0].bias.add_(1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(2):
                close(compiled(x), model(x))
    assert [len(constants) for _, constants in parts.seen] == [2, 0]


def test_buffers_that_the_graph_writes_to_are_inputs(parts):
    class Running(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.zeros(4))
            self.register_buffer("scale", torch.full((4,), 2.0))

        def forward(self, x):
            self.mean.mul_(0.5).add_(x.mean(0))
            return (x - self.mean) * self.scale

    model, other = Running(), Running()
    compiled = dynamo_lite.compile(model, backend=parts)
    with torch.no_grad():
        for _ in range(3):
            x = torch.randn(2, 4)
            close(compiled(x), other(x))
            close(model.mean, other.mean)
    assert all(len(constants) == 1 for _, constants in parts.seen)


def test_inputs_that_share_memory(parts):
    weight = torch.nn.Parameter(torch.randn(4, 4))

    class Twice(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.one = self.two = weight
            self.register_buffer("view", weight.data[0])

        def forward(self, x, y):
            y.add_(1)
            return x @ self.one + self.two.t() + self.view + y

    model = Twice()
    compiled = dynamo_lite.compile(model, backend=parts)
    with torch.no_grad():
        for _ in range(3):
            base = torch.randn(8, 4)
            other = base.clone()
            close(compiled(base[:4], base[2:6]), model(other[:4], other[2:6]))
            close(base, other)
