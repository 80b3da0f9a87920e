"""Metrics: floats that Python computes from items of tensors, in one graph with what the program does beside it."""

import io
import math
import sys
import time
import types

import pytest
import torch

import dynamo_lite
from dynamo_lite.config import config
from dynamo_lite.record import log

WEIGHT = torch.linspace(-1, 1, 9).reshape(3, 3)


def batches():
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(4, 3, generator=generator) for _ in range(6)]


def steps(update, backend):
    """What the state of a meter and the results are after each step; the graphs and breaks of all versions."""
    state = types.SimpleNamespace(total=0.0, count=0, best=math.inf, worst=-math.inf, mean=0.0)

    def step(x):
        loss = (x @ WEIGHT).square().mean()
        update(state, loss.item(), x.shape[0])
        return loss * 2

    run = step if backend is None else dynamo_lite.compile(step, backend=backend)
    log.reset()
    found = [(run(x).item(), dict(vars(state))) for x in batches()]
    records = log.snapshot()
    return found, [len(record.graphs) for record in records], [b for record in records for b in record.breaks]


def add(state, loss, n):
    state.total += loss


def weigh(state, loss, n):
    state.total += loss * n
    state.count += n
    state.mean = state.total / state.count


def smooth(state, loss, n):
    state.mean = 0.9 * state.mean + (1 - 0.9) * loss


def record_extremes(state, loss, n):
    state.best = min(state.best, loss)
    state.worst = max(loss, state.worst)


def add_signs(state, loss, n):
    state.total = -abs(state.total - loss) / 3


METERS = [add, weigh, smooth, record_extremes, add_signs]


@pytest.mark.parametrize("update", METERS, ids=lambda update: update.__name__)
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_meters(update, backend):
    found, graphs, breaks = steps(update, backend)
    assert found == steps(update, None)[0]
    # A number that the step itself changes varies from the first call on; an infinity is a constant there.
    assert graphs == ([1, 1] if update is record_extremes else [1]) and not breaks


def compare(state, loss, n):
    state.total += loss
    if state.total > 3:
        state.count += 1


def square(state, loss, n):
    state.total = (state.total + loss) ** 2


def use(state, loss, n):
    state.total += loss
    state.worst = (torch.ones(2) * state.total).sum().item()


def divide(state, loss, n):
    state.total = 1.0 / (state.total + loss)


@pytest.mark.parametrize("update", [compare, square, use, divide], ids=lambda update: update.__name__)
def test_what_needs_the_number_breaks(update):
    found, _, breaks = steps(update, "eager")
    assert found == steps(update, None)[0]
    assert {b.slug for b in breaks} == {"data-dependent-size"}


def test_infinities_and_nan():
    """What the algebra of sizes has no numbers for."""

    def step(x, total):
        item = x.sum().item()
        return x + 1, total + item, max(total, item), min(item, total)

    compiled = dynamo_lite.compile(step, backend="eager", fullgraph=True)
    for value in (1.0, math.inf, -math.inf, math.nan):
        for total in (0.5, 1.5, math.inf, math.nan):
            got, expected = compiled(torch.full((2,), value), total), step(torch.full((2,), value), total)
            assert [repr(n) for n in got[1:]] == [repr(n) for n in expected[1:]]


def test_functions_that_give_a_float_for_every_number():
    def step(x):
        item = x.sum().item()
        angles = math.atan2(item, 2), math.degrees(item), math.tanh(item), math.copysign(2, item), math.hypot(item, 3)
        return x + 1, round(item, 2), item // 2, item % 3.0, divmod(item, -1.5), angles

    compiled = dynamo_lite.compile(step, backend="eager", fullgraph=True)
    for value in (0.1234, -7.777, 1e300, -0.0, math.inf, -math.inf, math.nan):
        x = torch.full((2,), value, dtype=torch.float64)
        assert repr(compiled(x)[1:]) == repr(step(x)[1:])


def outcome(fn, x):
    """The number or the error, and what the function has noted by then."""
    noted = []
    try:
        return repr(fn(x, noted)), repr(noted), repr(x.tolist())
    except (ValueError, OverflowError) as error:
        return repr(error), repr(noted), repr(x.tolist())


PARTIAL = "exp expm1 cosh sinh log log2 log10 log1p sin cos tan asin acos sqrt".split()


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64], ids=str)
@pytest.mark.parametrize("name", PARTIAL)
def test_functions_that_raise_outside_of_their_domain(name, dtype):
    """The graph asserts that the number lies within; elsewhere the function starts again and raises at its own time."""
    function = getattr(math, name)

    def step(x, noted):
        y = x * 1
        noted.append("before")
        noted.append(function(y.item()))
        return y + 1

    compiled = dynamo_lite.compile(step, backend="eager")
    log.reset()
    for inside in (0.5, 1.0):
        x = torch.tensor(max(inside, 1) if dtype is torch.int64 else inside, dtype=dtype)
        assert outcome(compiled, x.clone()) == outcome(step, x.clone())
    assert [len(frame.graphs) for frame in log.snapshot()] == [1] and not log.breaks()
    values = [0.0, -0.0, -0.5, -1.0, 3.0, 709.5, 800.0, -800.0, 5e-324, math.nan, math.inf, -math.inf]
    for value in values if dtype is torch.float64 else [0, -1, 3, 709, 710, 2**62, -(2**63)]:
        x = torch.tensor(value, dtype=dtype)
        assert outcome(compiled, x.clone()) == outcome(step, x.clone()), value


def test_a_graph_that_writes_is_not_held_to_a_domain():
    """What it has written could not be undone."""

    def step(x, noted):
        x.add_(1)
        noted.append(math.exp(x.sum().item()))
        return x.mul_(2)

    compiled = dynamo_lite.compile(step, backend="eager")
    log.reset()
    for value in (1.0, 800.0, math.nan, 2.0):
        x = torch.full((1,), value)
        assert outcome(compiled, x.clone()) == outcome(step, x.clone())
    assert {b.slug for b in log.breaks()} == {"data-dependent-operator"}


def test_a_graph_that_has_to_have_the_number_is_not_held_to_a_domain():
    """It could not start again with a break there, and would raise another error."""

    def step(x, noted):
        x.add_(1)
        noted.append(math.exp(x.sum().item()))
        return x.mul_(2)

    with config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True):
        compiled = dynamo_lite.compile(step, backend="eager")
        for value in (1.0, 800.0, math.nan, 2.0):
            x = torch.full((1,), value)
            assert outcome(compiled, x.clone()) == outcome(step, x.clone())


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_perplexity(backend, capsys):
    def step(x, noted):
        loss = (x @ WEIGHT).square().mean()
        print(f"loss {loss.item():.2f} ppl {math.exp(loss.item()):.2f}")
        (loss * 2).backward()
        return loss.detach()

    compiled = dynamo_lite.compile(step, backend=backend)
    log.reset()
    with config.patch(stitch=True):
        for scale in (1.0, 0.5, 100.0):
            shown = []
            for fn in (step, compiled):
                x = (torch.ones(4, 3) * scale).requires_grad_()
                shown.append((*outcome(fn, x), x.grad, capsys.readouterr().out))
            torch.testing.assert_close(shown[0][3], shown[1][3])
            assert shown[0][1:3] == shown[1][1:3] and shown[0][4] == shown[1][4]
            assert shown[0][0][:9] == shown[1][0][:9]
    assert not log.breaks() or backend == "inductor"


@pytest.mark.parametrize("function", [math.lgamma, lambda item: round(item, -308)])
def test_functions_that_raise_for_some_numbers_break(function):
    def step(x):
        return x + 1, function(x.sum().item())

    compiled = dynamo_lite.compile(step, backend="eager")
    log.reset()
    for value in (0.5, 1e308, -math.inf):
        x, outcomes = torch.full((1,), value, dtype=torch.float64), []
        for fn in (step, compiled):
            outcomes.append(outcome(lambda x, noted, fn=fn: fn(x)[1], x))
        assert outcomes[0] == outcomes[1]
    assert {b.slug for b in log.breaks()} == {"data-dependent-size"}


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_questions_whether_a_number_is_finite(backend):
    def step(x):
        loss = x.sum()
        value = loss.item()
        if not math.isfinite(value):
            print(f"loss is {value}", file=out)
            sys.exit(1)
        return loss * 2, math.isnan(value), math.isinf(value)

    def outcome(fn, x):
        nonlocal out
        out = io.StringIO()
        try:
            return fn(x), out.getvalue()
        except SystemExit as error:
            return error.code, out.getvalue()

    out = None
    compiled = dynamo_lite.compile(step, backend=backend, fullgraph=True)
    for value in (0.5, 1e38, math.inf, -math.inf, math.nan, 2.5):
        x = torch.full((4,), value)
        assert outcome(compiled, x) == outcome(step, x)


def test_error_of_a_division():
    state = types.SimpleNamespace(total=0.0)

    def step(x, n):
        state.total = (state.total + x.sum().item()) / n
        return x + 1

    compiled = dynamo_lite.compile(step, backend="eager")
    for n in (2.0, 3.0, 4.0):
        compiled(torch.ones(2), n)
    with pytest.raises(ZeroDivisionError, match="division by zero"):
        compiled(torch.ones(2), 0.0)
    assert state.total == ((1 + 2) / 3 + 2) / 4


def test_a_break_behind_it():
    state = types.SimpleNamespace(total=0.25)

    def step(x):
        state.total += x.sum().item()
        twice = state.total * 2
        dynamo_lite.graph_break()
        return x + 1, twice

    compiled = dynamo_lite.compile(step, backend="eager")
    found = [compiled(torch.full((2,), float(i)))[1] for i in range(4)]
    assert found == [0.5, 4.5, 12.5, 24.5]


class TestClocks:
    """`config.stitch = True`: clocks are read around the graph."""

    @pytest.mark.parametrize("stitch", [True, "auto"])
    def test_times_a_graph(self, stitch):
        spans, sizes = [], torch.randn(600, 600)

        def step(x):
            start = time.perf_counter()
            y = x @ x @ x @ x @ x @ x
            end = time.perf_counter()
            spans.append(end - start)
            text = f"{(end - start) * 1000:.3f}"
            return y.sin(), start, end, text

        with config.patch(stitch=stitch):
            compiled = dynamo_lite.compile(step, backend="eager")
            log.reset()
            before = time.perf_counter()
            y, start, end, text = compiled(sizes)
            after = time.perf_counter()
        assert torch.equal(y, step(sizes)[0])
        assert before < start < end < after
        assert end - start > (after - end) / 1000, "the operators run between the two readings"
        assert spans[0] == end - start
        assert text == f"{(end - start) * 1000:.3f}"
        slugs = [b.slug for b in log.breaks()]
        assert slugs == ([] if stitch is True else ["time-dependent", "time-dependent"])

    def test_a_reading_is_one_number_and_a_question_about_it_ends_the_graph(self):
        def step(x):
            start = time.monotonic()
            y = x.sin()
            span = time.monotonic() - start
            if span >= 0:
                y = y + 1
            return y, start, [start], span

        with config.patch(stitch=True):
            compiled = dynamo_lite.compile(step, backend="eager")
            log.reset()
            for _ in range(3):
                y, start, (again,), span = compiled(torch.ones(3))
                assert torch.equal(y, torch.ones(3).sin() + 1)
                assert again == start
                assert span >= 0
        assert [b.slug for b in log.breaks()] == ["data-dependent-size"]

    def test_each_call_reads_anew_and_keeps_the_time_in_an_attribute(self):
        state = types.SimpleNamespace(started=0.0, spent=0.0)

        def step(x):
            state.started = time.time()
            y = x + 1
            state.spent += time.time() - state.started
            return y

        with config.patch(stitch=True):
            compiled = dynamo_lite.compile(step, backend="eager", fullgraph=True)
            times = []
            for _ in range(4):
                before = time.time()
                compiled(torch.ones(3))
                times += [before, state.started]
            assert times == sorted(times)
            assert 0 < state.spent < time.time() - times[0]


ROWS = [[4.0, 1.0], [2.0, -5.0], [0.5, 2.0], [3e20, 1.0], [math.nan, 1.0], [math.inf, 2.0], [0.0, -0.0]]

MADE = {
    "a list": lambda x: torch.tensor([x.sum().item(), 2.0, x.argmax().item(), True]),
    "a number": lambda x: torch.tensor(x.mean().item(), dtype=torch.float16),
    "nested": lambda x: x.new_tensor([[x.mean().item()], [1]]),
    "doubles": lambda x: torch.as_tensor([x.sum().item()], dtype=torch.float64),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("program", MADE.values(), ids=MADE)
def test_tensors_of_numbers_from_data(program, backend):
    with config.patch(capture_scalar_outputs=None):
        compiled = dynamo_lite.compile(program, backend=backend, fullgraph=True)
        for row in ROWS:
            x = torch.tensor(row)
            expected, found = program(x), compiled(x)
            assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
            assert torch.equal(found.nan_to_num(-1), expected.nan_to_num(-1))


def root(x):
    return x * math.sqrt(x.sum().item()), math.sqrt(x.argmax().item())


def rounded(x):
    return x * round(x.sum().item()), round(x.mean().item(), None)


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("catches", [False, True])
@pytest.mark.parametrize("function", [root, rounded])
def test_functions_of_a_number_from_data(function, catches, backend):
    def caught(x):
        try:
            return function(x)
        except (ValueError, OverflowError) as error:
            return x, str(error)

    def told(fn, x):
        try:
            y, other = fn(x)
            return y.nan_to_num(-1).tolist(), other
        except (ValueError, OverflowError) as error:
            return str(error)

    program = caught if catches else function
    with config.patch(capture_scalar_outputs=None):
        compiled = dynamo_lite.compile(program, backend=backend, fullgraph=True)
        for row in ROWS:
            x = torch.tensor(row)
            assert told(compiled, x) == told(program, x)


DOMAINS = {
    "exp": lambda x: math.exp(x.sum().item()),
    "log": lambda x: (x + 1, math.log(x.sum().item())),
    "log of an int": lambda x: math.log(x.argmax().item()),
    "sin": lambda x: math.sin(x[0].item()),
    "acos": lambda x: math.acos(x[0].item() / 4),
    "mean": lambda x: math.exp((x[0].item() + x[1].item()) / 2),
    "log of a mean": lambda x: math.log(abs(x[0].item() - x[1].item()) / 2),
    "nested": lambda x: math.log(-(x[1].item() + 1.0)),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("program", DOMAINS.values(), ids=DOMAINS)
def test_functions_with_a_domain_in_one_graph(program, backend):
    def told(fn, x):
        try:
            return repr(fn(x))
        except (ValueError, OverflowError) as error:
            return type(error), str(error)

    with config.patch(capture_scalar_outputs=None):
        compiled = dynamo_lite.compile(program, backend=backend, fullgraph=True)
        for row in ROWS:
            x = torch.tensor(row)
            assert told(compiled, x) == told(program, x)


def cubed(t):
    n = t.sum().item()
    return t * (n**3 % 1000)


def multiplied(t):
    n, m = t.tolist()[:2]
    return t + n * m // 7


@pytest.mark.parametrize("fn", [cubed, multiplied])
def test_inductor_is_given_ints_of_64_bits_alone(fn):
    """Where a product outgrows them, the function starts again, without the graph."""
    compiled = dynamo_lite.compile(fn, backend="inductor", fullgraph=True)
    for values in ([1, 2, 3], [2**31 + 5, 2**33 + 1, 3], [4, 5, 6]):
        t = torch.tensor(values)
        assert torch.equal(compiled(t), fn(t))


def test_a_number_that_is_known_is_no_number_of_other_tensors():
    """What an operator has found out about the data of one tensor is remembered for no other of the same metadata."""

    def checked(a, b):
        n = a.item()
        torch._check(n == 3)
        return a.item() + n, b.item(), torch.ones(2) * b.sum().item()

    def plain(b):
        return torch.ones(2) * b.item()

    three, seven = torch.tensor(3), torch.tensor(7)
    for fn, args in ((checked, (three, seven)), (plain, (seven,))):
        compiled = dynamo_lite.compile(fn, backend="eager", fullgraph=True)
        assert str(compiled(*args)) == str(fn(*args))


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize(
    "convert", [int, math.floor, math.trunc, lambda x: int(x * 2)], ids=["int", "floor", "trunc", "twice"]
)
def test_an_int_that_nobody_wants_of_a_float_that_has_none(convert, backend):
    def fn(x):
        convert(x.sum().item())
        return x + 1

    compiled = dynamo_lite.compile(fn, backend=backend, fullgraph=True)
    assert compiled(torch.tensor([1.0, 2.5])).tolist() == [2, 3.5]
    with pytest.raises(OverflowError, match="cannot convert float infinity to integer"):
        compiled(torch.tensor([1.0, math.inf]))
    with pytest.raises(ValueError, match="cannot convert float NaN to integer"):
        compiled(torch.tensor([1.0, math.nan]))
