"""Each backend for inference against eager execution: results, strides, what is written to inputs, random numbers."""

import copy
import warnings

import pytest
import torch

import dynamo_lite
from dynamo_lite.backends.parts import PartCompiler, compile_parts
from dynamo_lite.record import log
from dynamo_lite.testing import differences
from tests.backends.graphs import GRAPHS, Net, observed


def both(fn, backend, make, seed=3):
    """Runs `fn` eagerly and compiled on equal inputs; all that can be seen of the two calls."""
    compiled = dynamo_lite.compile(fn, backend=backend)
    with torch.no_grad():
        compiled(*make())  # the results of a part's first call are torch's
    return [observed(run, make, seed) for run in (fn, compiled)]


@pytest.mark.parametrize("name", GRAPHS)
def test_as_in_eager_execution(backend, name):
    fn, make = GRAPHS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        if name in ("no elements",):  # nothing to hand over
            warnings.simplefilter("ignore", UserWarning)
        eager, compiled = both(fn, backend, make)
    tol = 2e-2 if name in ("halves", "bfloats") else 1e-4
    assert list(differences(eager, compiled, tol=tol)) == []


def test_a_model_and_changes_of_its_parameters(backend):
    torch.manual_seed(0)
    model = Net().eval()
    x = torch.randn(2, 3, 8, 8)
    compiled = dynamo_lite.compile(model, backend=backend, fullgraph=True)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-3, atol=1e-4)
        model.head.weight.data.mul_(3)
        model.norm.running_mean.add_(1)
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-3, atol=1e-4)
        model.head.bias = torch.nn.Parameter(torch.ones(5))
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-3, atol=1e-4)


def test_buffers_that_a_forward_writes(backend):
    torch.manual_seed(0)
    model, twin = Net(), Net()
    twin.load_state_dict(model.state_dict())
    compiled = dynamo_lite.compile(model, backend=backend)
    with torch.no_grad():
        for _ in range(2):
            x = torch.randn(2, 3, 8, 8)
            torch.testing.assert_close(compiled(x), twin(x), rtol=1e-3, atol=1e-4)
    for mine, other in zip(model.buffers(), twin.buffers(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-3, atol=1e-4)


def test_sizes_that_vary(backend):
    def fn(x, w):
        y = F.linear(x, w).relu()
        return y.reshape(x.shape[0] * 2, -1) + x.shape[0], y.softmax(-1).t()

    F = torch.nn.functional
    w = torch.randn(6, 4)
    compiled = dynamo_lite.compile(fn, backend=backend, dynamic=True)
    with torch.no_grad():
        for n in (3, 5, 17):
            x = torch.randn(n, 4)
            actual, expected = compiled(x, w), fn(x, w)
            torch.testing.assert_close(actual, expected, rtol=1e-3, atol=1e-4)
            assert [a.stride() for a in actual] == [e.stride() for e in expected]
    assert len(log.frames) == 1


def test_training_is_refused(backend):
    model = torch.nn.Linear(3, 3)
    compiled = dynamo_lite.compile(copy.deepcopy(model), backend=backend)
    with pytest.warns(UserWarning, match=f"backend '{backend}' failed, .*: NotImplementedError: gradients"):
        compiled(torch.ones(2, 3)).sum().backward()


def test_what_stays_with_torch_is_told(backend):
    def fn(x):
        return (x.sin() + 1).cos() * torch.rand_like(x) + x

    with torch.no_grad():
        dynamo_lite.compile(fn, backend=backend)(torch.randn(4))
    notes = log.frames[-1].graphs[0].notes[f"left to torch by {backend}"]
    assert [n for n in notes if "it draws random numbers" in n], notes


def test_a_graph_of_which_nothing_can_be_taken(backend):
    compiled = dynamo_lite.compile(lambda x: torch.rand_like(x), backend=backend)
    with pytest.warns(UserWarning, match=f"backend '{backend}' failed.*it draws random numbers"):
        compiled(torch.ones(3))


def test_unknown_options(backend):
    with pytest.raises(RuntimeError, match="Unexpected option min_operator of"):
        dynamo_lite.compile(lambda x: x, backend=backend, options={"min_operator": 2})


class TestParts:
    """The division of a graph, with compilers made for the test."""

    def compile(self, fn, compile_part, *inputs, **settings):
        def backend(gm, example_inputs):
            return compile_parts(
                gm, example_inputs, PartCompiler("mine", compile_part, frozenset({"float32"}), **settings)
            )

        with torch.no_grad():
            return dynamo_lite.compile(fn, backend=backend)(*inputs), log.frames[-1].graphs[0].notes.get(
                "left to torch by mine"
            )

    def test_a_wrong_part_is_left_to_torch(self):
        def wrong(part, inputs):
            return lambda *values: [out + 1 for out in part(*values)]

        x = torch.randn(4)
        with pytest.warns(UserWarning, match="left to torch: a part of 2 operators, from aten.sin.default: result 0"):
            result, notes = self.compile(lambda x: x.sin().cos(), wrong, x)
        torch.testing.assert_close(result, x.sin().cos())
        assert len(notes) == 1 and notes[0].startswith("a part of 2 operators")

    def test_a_part_that_fails_in_its_first_call(self):
        def fails(part, inputs):
            def run(*values):
                raise ValueError("no kernel")

            return run

        x = torch.randn(4)
        with pytest.warns(UserWarning, match="left to torch: .*ValueError: no kernel"):
            result, _ = self.compile(lambda x: x.sin().cos(), fails, x)
        torch.testing.assert_close(result, x.sin().cos())

    def test_what_a_compiler_refuses_is_found_and_left_out(self):
        seen = []

        def compiler(part, inputs):
            targets = [str(n.target) for n in part.graph.nodes if n.op == "call_function"]
            if "aten.exp.default" in targets:
                raise NotImplementedError("no exp") from ValueError("exp is not for us\nat all")
            seen.append(targets)
            return part.forward

        x = torch.randn(4)
        result, notes = self.compile(lambda x: x.sin().cos().exp().tanh().sin().exp(), compiler, x)
        torch.testing.assert_close(result, x.sin().cos().exp().tanh().sin().exp())
        assert notes == ["aten.exp.default: ValueError: exp is not for us (2 times)"]
        assert sorted(seen[-2:]) == [
            ["aten.sin.default", "aten.cos.default"],
            ["aten.tanh.default", "aten.sin.default"],
        ]

    def test_small_parts_stay(self):
        seen = []

        def compiler(part, inputs):
            seen.append(len(part.graph.nodes))
            return part.forward

        with pytest.warns(UserWarning, match="failed.*too few"):
            self.compile(lambda x: x.sin().cos(), compiler, torch.randn(4), min_operators=3)
        assert not seen

    def test_random_operators_keep_their_order(self):
        parts = []

        def compiler(part, inputs):
            parts.append(part)
            return part.forward

        def fn(x):
            a = x.sin().cos()
            r = torch.rand_like(x)
            b = (r + 1) * a
            s = torch.rand(4)
            return b.sin() + a.exp(), s

        x = torch.randn(4)
        torch.manual_seed(1)
        expected = fn(x)
        torch.manual_seed(1)
        result, notes = self.compile(fn, compiler, x)
        torch.testing.assert_close(result, expected)
        assert [n.partition(":")[0] for n in notes] == ["aten.rand_like.default", "aten.rand.default"]
        assert len(parts) == 3

    def test_strides_at_the_ends_of_a_part(self):
        def compact(part, inputs):
            return lambda *values: [out.contiguous() for out in part(*values)]

        x = torch.randn(4, 1, 3)

        def fn(x):
            return (x + 1).permute(2, 0, 1) * 2, (x * 2).sin().expand(4, 5, 3) * 1

        compiled = dynamo_lite.compile(
            fn, backend=lambda gm, xs: compile_parts(gm, xs, PartCompiler("mine", compact, frozenset({"float32"})))
        )
        with torch.no_grad():
            for _ in range(2):  # the first call's results are torch's
                assert [r.stride() for r in compiled(x)] == [r.stride() for r in fn(x)]
