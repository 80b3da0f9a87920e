import time

import pytest
import torch

from dynamo_lite.backends.difference import problem
from dynamo_lite.tune.race import MIN_ROUNDS, Race, is_faster
from dynamo_lite.tune.verify import CannotCopy, Expected, Inputs


def graph(fn):
    return torch.fx.symbolic_trace(fn)


def slowed(seconds):
    """A compiler of the graph whose calls take longer. `seconds` is above 0: `time.sleep(0)` gives the processor away, and on a busy
    machine a race measures that."""

    def compiler(gm, examples):
        def run(*inputs):
            time.sleep(seconds)
            return gm.forward(*inputs)

        return run

    return compiler


def precomputed(result):
    return lambda gm, examples: lambda *inputs: result


class TestInputs:
    def test_copies_share_memory_as_the_originals_do(self):
        base = torch.arange(6.0)
        weight = torch.nn.Parameter(torch.ones(2))
        examples = [base, base[2:].view(2, 2).t(), weight, 5]
        one, view, leaf, number = Inputs(examples).fresh()
        one[2] = 100.0
        assert view[0, 0] == 100.0 and base[2] == 2.0
        assert view.stride() == (1, 2) and number == 5
        assert leaf.is_leaf and leaf.requires_grad and leaf is not weight

    def test_what_is_not_written_is_copied_once(self):
        inputs = Inputs([torch.ones(3), torch.zeros(3)])
        used = inputs.fresh()
        used[0].add_(1)
        inputs.settle(used)
        first, second = inputs.fresh(), inputs.fresh()
        assert first[0].data_ptr() != second[0].data_ptr()
        assert first[1].data_ptr() == second[1].data_ptr() == used[1].data_ptr()
        assert first[0].tolist() == [1, 1, 1]

    def test_shuffled_values_have_the_same_distribution(self):
        data, parameter, index = torch.arange(50.0), torch.nn.Parameter(torch.arange(50.0)), torch.arange(50)
        other, same, ints = Inputs([data, parameter, index]).shuffled(torch.Generator().manual_seed(0))
        assert not torch.equal(other, data) and torch.equal(other.sort().values, data)
        assert torch.equal(same, parameter) and torch.equal(ints, index)

    @pytest.mark.parametrize("value", [torch.eye(2).to_sparse(), torch.ones(2, device="meta")])
    def test_other_kinds_are_refused(self, value):
        with pytest.raises(CannotCopy, match="input 1 is no plain dense tensor"):
            Inputs([torch.ones(1), value])


class TestVerification:
    def expected(self, fn, *examples, training=False):
        gm = graph(fn)
        return gm, Expected(gm.forward, Inputs(examples), training)

    def test_right(self):
        gm, expected = self.expected(lambda x: (x.sin() + 1,), torch.randn(20))
        assert expected.problem_of(lambda x: (torch.sin(x) + 1.0,)) is None
        assert len(expected.cases) == 2

    def test_wrong_values_are_told(self):
        _, expected = self.expected(lambda x: (x.sin(),), torch.randn(20))
        assert expected.problem_of(lambda x: (x.cos(),)).startswith("wrong: result 0: off by ")
        assert "instead of (20,)" in expected.problem_of(lambda x: (x.sin()[:3],))
        assert expected.problem_of(lambda x: (x.sin(), x)).endswith("3 results instead of 2")

    def test_a_result_that_fits_only_these_inputs(self):
        x = torch.randn(20)
        _, expected = self.expected(lambda x: (x.sin(),), x)
        assert expected.problem_of(lambda _: (x.sin(),)) is not None

    def test_writes_are_compared(self):
        gm, expected = self.expected(lambda x: (x.add_(1),), torch.randn(20))
        assert expected.problem_of(gm.forward) is None
        assert "result 1" in expected.problem_of(lambda x: (x + 1,))

    def test_gradients_are_compared(self):
        weight = torch.nn.Parameter(torch.randn(4))

        class Wrong(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2

            @staticmethod
            def backward(ctx, g):
                return g * 3

        _, expected = self.expected(lambda x: (x * 2,), weight, training=True)
        assert expected.problem_of(lambda x: (x * 2.0,)) is None
        assert "result 1: off by" in expected.problem_of(lambda x: (Wrong.apply(x),))

    def test_random_graphs_are_compared_by_kind(self):
        _, expected = self.expected(lambda x: (torch.nn.functional.dropout(x, 0.5),), torch.ones(200))
        assert expected.is_random
        assert expected.problem_of(lambda x: (x * 0,)) is None
        assert expected.problem_of(lambda x: (x.double(),)) is not None

    def test_infinite_values(self):
        inf, nan = float("inf"), float("nan")
        one = torch.tensor([1.0, inf, nan])
        assert problem([one], [one.clone()]) is None
        assert problem([one], [torch.tensor([1.0, -inf, nan])]) is not None
        assert problem([one], [torch.tensor([1.0, inf, 0.0])]) is not None


class TestRace:
    def test_the_fastest_that_is_right_wins(self):
        x = torch.randn(30)

        def body(x):
            for _ in range(200):
                x = x + 1
            return (x,)

        candidates = {
            "good": lambda gm, examples: lambda x: (x + 200,),
            "wrong": precomputed((torch.zeros(30),)),
            "slow": slowed(0.02),
            "broken": lambda gm, examples: 1 / 0,
        }
        state, before = torch.get_rng_state(), x.clone()
        race = Race(graph(body), [x], training=False)
        choice = race.run(candidates, seconds=60)
        assert choice.backend == "good" and race.compiled(x)[0].tolist() == (x + 200).tolist()
        assert choice.problem_of("good") is None and choice.problem_of("wrong").startswith("wrong: ")
        assert choice.problem_of("broken") == "failed: ZeroDivisionError: division by zero"
        assert choice.problem_of("slow") == "slower" and choice.problem_of("other") == "not tried"
        assert torch.equal(state, torch.get_rng_state()) and torch.equal(x, before)
        name, microseconds, text = choice.measured[0]
        assert name == "good" and microseconds > 0 and text.endswith(" s, chosen")

    def test_eager_stays_where_nothing_is_faster_beyond_doubt(self):
        race = Race(graph(lambda x: (x + 1,)), [torch.ones(3)], training=False)
        assert race.run({"slow": slowed(0.005)}, seconds=60).backend == "eager"

    def test_what_comes_too_late_is_not_tried(self):
        candidates = {"slow": slowed(0.05), "late": slowed(0)}
        choice = Race(graph(lambda x: (x + 1,)), [torch.ones(3)], training=False).run(candidates, seconds=0.04)
        assert choice.backend == "eager"
        assert choice.problem_of("late").startswith("not tried: the 0.04 s")

    def test_differences_count_by_pairs(self):
        noise = [1.0, 3.0, 2.0, 5.0, 1.5, 4.0, 2.5, 1.0]
        faster = [0.9 * t for t in noise]
        assert is_faster(faster, noise) and not is_faster(noise, faster)
        assert not is_faster(faster, noise, factor=1.2)
        assert not is_faster(faster[: MIN_ROUNDS - 1], noise)
        assert not is_faster(noise, noise[::-1])
