"""Branches on tensor data of which one side only raises: one graph, which checks; a check that fails is the program's own exception."""

import re
import traceback

import pytest
import torch
from torch import nn

import dynamo_lite
from dynamo_lite.graph.core.failure import trace_left
from dynamo_lite.graph.passes.checks import MAX_FAILURES
from dynamo_lite.record import STATS, log
from dynamo_lite.testing import CompileCounter, CompileCounterWithBackend

BACKENDS = ["eager", "aot_eager", "inductor"]
GOOD, BAD, LARGE = torch.tensor([1.0, 2.0]), torch.tensor([-1.0, 2.0]), torch.tensor([1.0, 20.0])


def outcome(fn, *args):
    """What a call returns or raises, the program's lines in the traceback, and the random state afterwards."""
    torch.manual_seed(0)
    try:
        result, places = fn(*args), []
    except Exception as error:
        result = (type(error), error.args, error.__context__, getattr(error, "__notes__", None))
        places = [(f.name, f.lineno) for f in traceback.extract_tb(error.__traceback__) if f.filename == __file__][1:]
    return re.sub("0x[0-9a-f]+", "", repr(result)), places, torch.get_rng_state().sum().item()


def same_as_eager(fn, make_args, calls=(GOOD, BAD, GOOD), backend="eager", graphs=1, **options):
    """Both ways with fresh arguments: outcome and arguments afterwards are the same; so many graphs."""
    counter = CompileCounterWithBackend(backend)
    captured = dynamo_lite.compile(fn, backend=counter, **options)
    for value in calls:
        expected_args, args = make_args(value.clone()), make_args(value.clone())
        expected, got = outcome(fn, *expected_args), outcome(captured, *args)
        assert got == expected
        assert repr(args) == repr(expected_args)
    assert counter.frame_count == graphs
    return captured


def validated(x, seen):
    seen.append("before")
    y = x + 1
    if torch.any(x < 0):
        raise ValueError("negative", tuple(x.shape))
    seen.append(y)
    assert (x < 10).all(), f"too large: {x}"
    return y * 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_exception_is_the_programs(backend):
    same_as_eager(validated, lambda x: [x, []], (GOOD, BAD, LARGE, GOOD), backend, fullgraph=True)


def compared(x, limit):
    most = x.max().item()
    if most > limit:
        raise ValueError("too large", most)
    if x[0].item() == -1.0:
        raise IndexError(x)
    return x * 2


def fail(text, *values):
    raise ValueError(text, *values)


class Validated(nn.Module):
    def fail(self, text):
        raise IndexError(text)

    def forward(self, x, seen):
        seen.append(1)
        if (x < 0).any():
            fail("negative", tuple(x.shape))
        if not (x < 10).all():
            self.fail("too large")
        return x * 2


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_functions_that_raise(backend):
    same_as_eager(Validated(), lambda x: [x, []], (GOOD, BAD, LARGE, GOOD), backend, fullgraph=True)


def alike(x, y):
    if not torch.equal(x, y):
        raise ValueError("differs")
    return x * 2


def close(x, y):
    if not torch.allclose(x, y, atol=0.5):
        raise ValueError("differs")
    if x.allclose(y + 30, rtol=0):
        raise ValueError("alike")
    return x * 2


def positions(x, table):
    ids = x.int()
    if ids.max().item() >= table.shape[0] or ids.min().item() < 0:
        raise IndexError("no such row")
    return table[ids]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize(
    "fn, other", [(compared, 10), (alike, GOOD.clone()), (close, GOOD + 0.1), (positions, torch.arange(4.0))]
)
def test_comparisons_of_numbers_and_tensors(fn, other, backend):
    other_of = lambda x: [x, other.clone() if isinstance(other, torch.Tensor) else other]  # noqa: E731
    same_as_eager(fn, other_of, (GOOD, BAD, LARGE, GOOD), backend, fullgraph=True)


def test_comparison_on_the_limit():
    """A number is compared as Python compares it: 0.1 is more than the nearest number of 32 bits, 2**24 + 1 is none."""

    def fn(x, least):
        if x.sum().item() < least:
            raise ValueError
        return x + 1

    for least in (torch.tensor(0.1).item(), 0.1, 16777216, 16777217):
        for value in (0.1, 16777216.0):
            same_as_eager(fn, lambda x, value=value, least=least: [torch.tensor([value]), least])


@pytest.mark.parametrize(
    "use", ["m + 1", "[m]", "str(m)", "bool(m)", "m if m > 1 else 0", "hash(m)", "int(m)", "(m > 1, m)"]
)
@dynamo_lite.config.patch(capture_scalar_outputs=False)
def test_a_number_that_is_used_breaks_where_it_is_read(use):
    namespace = {}
    exec(
        f"def fn(x):\n    m = x.max().item()\n    if m > 10:\n        raise ValueError(m)\n    return x * 2, {use}",
        namespace,
    )
    same_as_eager(namespace["fn"], lambda x: [x], (GOOD, BAD, LARGE, GOOD), graphs=2)


def test_with_symbolic_sizes():
    same_as_eager(validated, lambda x: [x, []], (GOOD, BAD, torch.ones(5), -torch.ones(5)), dynamic=True)


@pytest.mark.parametrize(
    "condition",
    [
        lambda x: (x < 0).any(),
        lambda x: (x.min() < 0).reshape(1, 1),
        lambda x: x.min().clamp(max=0),
        lambda x: (x.min() < 0).int(),
    ],
)
def test_conditions(condition):
    def f(x):
        if condition(x):
            raise ValueError
        return x + 1

    same_as_eager(f, lambda x: [x])


def test_several_in_one():
    def f(x, flag):
        if not (x >= 0).all() or x.max() > 10:
            raise ValueError
        if flag and x.sum() > 100:
            raise OverflowError
        assert x.max() < 50, "never"
        if (x < 15).all():
            return x + 1
        raise AssertionError

    same_as_eager(f, lambda x: [x, True], (GOOD, BAD, LARGE, GOOD))


def test_not_a_number_is_true():
    def f(x):
        if x.sum():
            return x + 1
        raise ValueError

    same_as_eager(f, lambda x: [x], (GOOD, torch.zeros(2), torch.full((2,), float("nan"))))


def test_torch_assert():
    def f(x, seen):
        seen.append(1)
        torch._assert((x > 0).all(), "positive")
        return x.log()

    same_as_eager(f, lambda x: [x, []])


def test_in_inlined_functions_loops_and_generators():
    def check(x, name):
        if (x < 0).any():
            raise ValueError(f"{name} is negative")
        return x

    def each(xs):
        for i, x in enumerate(xs):
            yield check(x, f"item {i}")

    def f(xs, seen):
        total = 0
        for x in each(xs):
            seen.append(len(seen))
            total = total + check(x + 1, "sum")
        return total

    same_as_eager(f, lambda x: [[x, GOOD, x + 1], []])


def test_after_a_graph_break():
    def f(x, seen):
        y = x + 1
        print(end="")
        seen.append(y)
        if (x < 0).any():
            raise ValueError(y.shape)
        return y * 2

    same_as_eager(f, lambda x: [x, []], graphs=2)


def test_the_frame_catches_it():
    def f(x, seen):
        try:
            seen.append("try")
            if (x < 0).any():
                raise ValueError
            return x.sqrt()
        except ValueError as error:
            seen.append(type(error))
            return x
        finally:
            seen.append("end")

    same_as_eager(f, lambda x: [x, []])


def test_what_the_check_protects_may_fail_first():
    def f(table, i):
        if (i >= len(table)).any():
            raise ValueError("no such row")
        return nn.functional.embedding(i, table)

    table = torch.ones(3, 2)
    same_as_eager(f, lambda i: [table, i], (torch.tensor([2]), torch.tensor([3]), torch.tensor([0])))


def test_random_numbers_are_put_back():
    def f(x):
        y = torch.dropout(x, 0.5, True)
        if (x < 0).any():
            raise ValueError(torch.rand(2))
        return y + torch.rand(2)

    for backend in ("eager", "aot_eager"):
        same_as_eager(f, lambda x: [x], (GOOD, BAD, BAD), backend)


def test_random_numbers_and_an_operator_that_fails():
    def f(table, i):
        if (i >= len(table)).any():
            raise ValueError("no such row")
        return torch.dropout(table, 0.5, True)[i]

    table = torch.ones(3, 2)
    same_as_eager(f, lambda i: [table, i], (torch.tensor([2]), torch.tensor([3]), torch.tensor([0])))


def test_the_condition_is_changed_afterwards():
    def f(x):
        is_bad = (x < 0).any()
        if is_bad:
            raise ValueError
        is_bad.logical_not_()
        return x + is_bad

    same_as_eager(f, lambda x: [x])


@pytest.mark.parametrize("backend", BACKENDS)
def test_in_place_on_what_the_graph_made(backend):
    def f(x):
        y = x * 2
        if (x < 0).any():
            raise ValueError
        y.add_(1)
        return y

    same_as_eager(f, lambda x: [x], backend=backend)


def breaks():
    return [b.slug for b in log.breaks()]


def test_an_input_is_changed_afterwards():
    def f(x, y):
        if (x < 0).any():
            raise ValueError
        x.add_(y)
        if (x > 15).any():
            raise OverflowError
        return x * 2

    log.reset()
    same_as_eager(f, lambda x: [x, torch.ones(2)], (GOOD, BAD, LARGE, GOOD), graphs=3)
    assert breaks() == ["data-dependent-branch"] * 2


def test_only_the_last_check_before_the_change_is_a_break():
    def f(x):
        for limit in range(5):
            if (x < -limit).any():
                raise ValueError(limit)
        x.add_(1)
        return x

    log.reset()
    same_as_eager(f, lambda x: [x], (GOOD, BAD, GOOD), graphs=2)
    assert breaks() == ["data-dependent-branch"]


def test_an_input_is_changed_before():
    def f(x):
        x.add_(1)
        if (x < 1).any():
            raise ValueError
        y = x * 2
        if (y > 15).any():
            raise OverflowError
        return y + 1

    log.reset()
    same_as_eager(f, lambda x: [x], (GOOD, BAD, LARGE, GOOD), graphs=2)
    assert breaks() == ["data-dependent-branch"]


def test_running_statistics_are_no_more_wrong_than_in_eager():
    def f(norm, x):
        if (x < 0).any():
            raise ValueError
        return norm(x)

    def run(fn):
        norm = nn.BatchNorm1d(1)
        for x in (GOOD, BAD, LARGE):
            try:
                fn(norm, x.reshape(2, 1))
            except ValueError:
                pass
        return norm.running_mean.item(), norm.num_batches_tracked.item()

    assert run(dynamo_lite.compile(f, backend="eager")) == run(f)


def test_training():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(2, 2)

        def forward(self, x):
            y = self.linear(x)
            if not torch.isfinite(y).all():
                raise FloatingPointError("diverged")
            return y.relu()

    for backend in ("aot_eager", "inductor"):
        torch.manual_seed(0)
        model = Model()
        captured = dynamo_lite.compile(model, backend=backend, fullgraph=True)
        expected = torch.autograd.grad(model(GOOD).sum(), model.parameters())
        for got, wanted in zip(torch.autograd.grad(captured(GOOD).sum(), model.parameters()), expected, strict=True):
            torch.testing.assert_close(got, wanted)
        with pytest.raises(FloatingPointError, match="diverged"):
            captured(GOOD / 0)


def test_one_that_fails_often_becomes_a_break():
    def f(x):
        y = x + 1
        try:
            if (x < 0).any():
                raise ValueError
            return y * 2
        except ValueError:
            return y * 3

    log.reset()
    STATS.reset()
    counter = CompileCounter()
    captured = dynamo_lite.compile(f, backend=counter)
    for value in [GOOD, *[BAD] * 20, GOOD]:
        assert torch.equal(captured(value), f(value))
    assert STATS.checks_failed == MAX_FAILURES
    assert counter.frame_count == 4  # with the check; up to the branch, and each side
    assert breaks() == ["data-dependent-branch"]


def test_under_fullgraph_it_may_fail_for_ever():
    def f(x):
        if (x < 0).any():
            raise ValueError("negative")
        return x * 2

    calls = [GOOD, *[BAD] * (2 * MAX_FAILURES), GOOD]
    same_as_eager(f, lambda x: [x], calls, fullgraph=True)


def test_under_fullgraph_what_cannot_be_undone_raises():
    def f(x):
        if (x < 0).any():
            raise ValueError
        return x.add_(1)

    with pytest.raises(dynamo_lite.exc.Unsupported, match="changed a tensor in place") as caught:
        dynamo_lite.compile(f, backend="eager", fullgraph=True)(GOOD.clone())
    assert caught.value.slug == "data-dependent-branch"
    assert caught.value.user_stack[-1].line.strip() == "if (x < 0).any():"


def test_switched_off():
    def f(x):
        if (x < 0).any():
            raise ValueError
        return x * 2

    with dynamo_lite.config.patch(capture_checks=False):
        same_as_eager(f, lambda x: [x], graphs=2)


def test_both_sides_go_on():
    def f(x):
        if (x < 0).any():
            return -x
        return x + 1

    same_as_eager(f, lambda x: [x], graphs=3)


def test_a_custom_operator_that_anyone_may_see():
    seen = []

    @torch.library.custom_op("test_checks::log", mutates_args=())
    def log_value(x: torch.Tensor) -> torch.Tensor:
        seen.append(x.tolist())
        return x.clone()

    log_value.register_fake(torch.empty_like)

    def f(x):
        if (x < 0).any():
            raise ValueError
        return log_value(x)

    same_as_eager(f, lambda x: [x], graphs=2)
    assert seen == [[1.0, 2.0]] * 4


def test_distributions_and_losses():
    def f(mean, scale, target):
        normal = torch.distributions.Normal(mean, scale)
        return normal.log_prob(target) + nn.functional.gaussian_nll_loss(mean, target, scale)

    same_as_eager(f, lambda scale: [GOOD, scale, GOOD + 1], (GOOD, BAD, torch.zeros(2), GOOD))


def test_truth_by_a_call():
    def f(x, seen):
        if bool((x < 0).any()):
            raise ValueError
        seen.append(1)
        if (x > 10).any().item():
            raise OverflowError
        if not (x < 50).all().is_nonzero() or not torch.is_nonzero((x < 60).all()):
            raise AssertionError
        return x + 1

    same_as_eager(f, lambda x: [x, []], (GOOD, BAD, LARGE, GOOD))


def test_an_item_that_is_kept():
    def f(x):
        is_bad = (x < 0).any().item()
        y = x + 1
        return y, is_bad

    same_as_eager(f, lambda x: [x])


def test_checks_for_compilers():
    def validate(cond, text):
        torch._check_tensor_all(cond, lambda: text)

    def f(x, seen):
        seen.append(1)
        validate(x >= 0, "negative")
        validate(x < 10, "large")
        return x + 1

    same_as_eager(f, lambda x: [x, []], (GOOD, BAD, LARGE, GOOD))
    with pytest.raises(TypeError, match="cond must be a tensor"):
        dynamo_lite.compile(lambda x: torch._check_tensor_all(True) or x, backend="eager")(GOOD)


def test_one_of_two_in_the_same_function_that_fails_often():
    def require(cond):
        if not cond:
            raise ValueError

    def f(x):
        require((x < 50).all())
        y = x + 1
        try:
            require((x >= 0).all())
        except ValueError:
            y = y * 3
        return y * 2

    log.reset()
    counter = CompileCounter()
    captured = dynamo_lite.compile(f, backend=counter)
    for value in [GOOD, *[BAD] * 20, GOOD]:
        assert torch.equal(captured(value), f(value))
    assert STATS.checks_failed
    assert "data-dependent-branch" in breaks()


@pytest.mark.parametrize("begins", [True, False])
def test_gradients_that_a_graph_accumulates_are_changes_for_good(begins):
    """Of an input that requires gradients, and of one that begins to in the graph."""

    def fn(w, x):
        w.requires_grad_()
        loss = (w * x).sum()
        torch.autograd.backward((loss,))
        return loss * 2

    w = torch.ones(3, requires_grad=begins)
    gm = torch.fx.symbolic_trace(fn)
    left = trace_left(gm, len(gm.graph.nodes) - 1, (w, torch.ones(3)), lambda run: run)
    assert left.reason == "accumulated gradients"
    assert list(gm.graph.nodes)[left.node].target is torch.autograd.backward
    assert w.grad is None and w.requires_grad is begins
