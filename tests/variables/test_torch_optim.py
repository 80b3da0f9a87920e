"""A compiled `optimizer.step()`: parameters equal to eager execution, whole where torch.compile captures it whole."""

import copy

import pytest
import torch
import torch.optim.lr_scheduler as schedules
from torch import nn
from torch.optim import swa_utils

import dynamo_lite
import dynamo_lite.testing
from dynamo_lite.testing import CompileCounter, CompileCounterWithBackend, same

PLAIN = ({"foreach": False}, {"foreach": True}, {"foreach": True, "maximize": True, "weight_decay": 0.1})
WHOLE = {
    "SGD": [{}, {"momentum": 0.9, "nesterov": True}, {"momentum": 0.9, "dampening": 0.1}, {"fused": True}],
    "Adam": [{}, {"amsgrad": True}, {"fused": True}],
    "AdamW": [{}, {"amsgrad": True}],
    "Adamax": [{}],
    "Adagrad": [{}, {"lr_decay": 0.1}],
    "Adadelta": [{}],
    "NAdam": [{}, {"decoupled_weight_decay": True, "weight_decay": 0.1}],
    "RAdam": [{}, {"decoupled_weight_decay": True, "weight_decay": 0.1}],
    "RMSprop": [{}, {"momentum": 0.5, "centered": True}],
    "Rprop": [{}],
    "ASGD": [{}],
    "Muon": [{}, {"weight_decay": 0.1, "nesterov": False}],
}
"""Class → options; each but Muon and Rprop also with those of `PLAIN`."""

BROKEN = {"Adafactor": {}, "SparseAdam": {}}  # they look at numbers in tensors

EXACT = {"SGD", "RMSprop", "Adadelta", "Rprop", "Muon", "SparseAdam"}
"""Those that compute with the same numbers whether they are compiled or not: torch keeps the step count of the others in a tensor then."""


def variants():
    for name, several in WHOLE.items():
        for options in several:
            yield name, options
        for options in PLAIN if name not in ("Muon", "Rprop") else ():
            yield name, options
    for name in ("SGD", "Adam", "AdamW", "Adagrad"):
        yield name, {"fused": True}


def five_steps(name, compiled, lr=0.01, **options):
    torch.manual_seed(0)
    params = [nn.Parameter(torch.randn(4, 3)) for _ in range(3)]
    groups = [{"params": params[:2]}, {"params": params[2:], "lr": 2 * lr}]
    optimizer = getattr(torch.optim, name)(groups, lr=lr, **options)
    counter = CompileCounter()
    step = dynamo_lite.compile(optimizer.step, backend=counter) if compiled else optimizer.step
    for _ in range(5):
        for p in params:
            grad = torch.randn(4, 3)
            p.grad = grad.to_sparse() if name == "SparseAdam" else grad
        step()
    return params, [dict(optimizer.state[p]) for p in params], counter.frame_count


@pytest.mark.parametrize(("name", "options"), variants(), ids=str)
def test_whole(name, options):
    expected, state, _ = five_steps(name, False, **options)
    params, after, graphs = five_steps(name, True, **options)
    exact = {"rtol": 0, "atol": 0} if name in EXACT else {}
    torch.testing.assert_close(params, expected, **exact)
    torch.testing.assert_close(after, state, **exact)
    assert graphs == 1  # the first step, which makes the state, runs eagerly


@pytest.mark.parametrize("name", BROKEN)
def test_with_breaks(name):
    expected, state, _ = five_steps(name, False)
    params, after, _ = five_steps(name, True)
    torch.testing.assert_close(params, expected)
    torch.testing.assert_close(after, state)


@pytest.mark.parametrize("name", ["SGD", "AdamW", "RAdam"])
def test_learning_rate_in_a_tensor(name):
    torch.testing.assert_close(
        five_steps(name, True, lr=torch.tensor(0.01))[:2], five_steps(name, False, lr=torch.tensor(0.01))[:2]
    )


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_lbfgs(search):
    def minimize(compiled):
        torch.manual_seed(0)
        p = nn.Parameter(torch.randn(4))
        optimizer = torch.optim.LBFGS([p], lr=0.5, max_iter=4, line_search_fn=search)
        step = dynamo_lite.compile(optimizer.step, backend="eager") if compiled else optimizer.step

        def closure():
            optimizer.zero_grad()
            loss = ((p - 1) ** 2 * torch.arange(1, 5)).sum() + (p**4).sum()
            loss.backward()
            return loss

        return [step(closure) for _ in range(3)], p

    torch.testing.assert_close(minimize(True), minimize(False), rtol=0, atol=0)


def test_a_loop_over_parameters_that_breaks_runs_as_it_is():
    """Its turns differ in the shapes of parameters: each would be a version, with a graph for each part between two breaks."""

    def train(compiled):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
        optimizer = torch.optim.Adafactor(model.parameters(), lr=0.01, foreach=False)
        counter = CompileCounter()

        def step(x):
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()

        run = dynamo_lite.compile(step, backend=counter) if compiled else step
        for _ in range(4):
            run(torch.randn(5, 3))
        return list(model.parameters()), counter.frame_count

    (params, graphs), (expected, _) = train(True), train(False)
    torch.testing.assert_close(params, expected, rtol=0, atol=0)
    assert graphs == 1  # forward and backward


@pytest.mark.parametrize("foreach", [False, True])
def test_adafactor_with_its_numbers_in_the_graph(foreach):
    expected, state, _ = five_steps("Adafactor", False, foreach=foreach)
    with dynamo_lite.config.patch(capture_scalar_outputs=True):
        params, after, graphs = five_steps("Adafactor", True, foreach=foreach)
    torch.testing.assert_close(params, expected, rtol=0, atol=0)
    torch.testing.assert_close(after, state, rtol=0, atol=0)
    raises = foreach and torch.__version__ < "2.12"  # where is_compiling() holds, in older torch
    assert graphs == (0 if raises else 1)  # the first step, which makes the state, runs eagerly


# -- tensors in the place of numbers


def sums(x, y, a):
    z = x.clone()
    z.add_(y, alpha=a)
    z.sub_(y, alpha=a)
    z.addcmul_(x, y, value=a)
    each = [x.clone(), y.clone()]
    torch._foreach_addcmul_(each, [y, x], [x, y], torch.stack([a, a]))
    torch._foreach_addcdiv_(each, [y, x], [x, y], 0.5)
    torch._foreach_lerp_(each, [y, x], 1 / (a + 2))
    torch._foreach_lerp_(each, [y, x], [a, a])
    half = [x.bfloat16()]
    torch._foreach_lerp_(half, [y.bfloat16()], a)
    return x.add(y, alpha=a), x.sub(y, alpha=a), x.addcdiv(y, x, value=a), z, each, half


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_tensors_that_operators_read_as_numbers(backend):
    args = torch.linspace(4, 6, 50), torch.linspace(-1, 1, 50).square() + 0.1, torch.tensor(0.3)
    exact = {"rtol": 0, "atol": 0} if backend == "eager" else {}
    compiled = dynamo_lite.compile(sums, backend=backend, fullgraph=True)
    torch.testing.assert_close(compiled(*args), sums(*args), **exact)


# -- averages of parameters

AVERAGES = {
    "swa": lambda m: swa_utils.AveragedModel(m),
    "buffers": lambda m: swa_utils.AveragedModel(m, use_buffers=True),
    "ema": lambda m: swa_utils.AveragedModel(m, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.9)),
    "ema with buffers": lambda m: swa_utils.AveragedModel(
        m, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.9), use_buffers=True
    ),
    "ema one by one": lambda m: swa_utils.AveragedModel(m, avg_fn=swa_utils.get_ema_avg_fn(0.9)),
    "swa at once": lambda m: swa_utils.AveragedModel(m, multi_avg_fn=swa_utils.get_swa_multi_avg_fn()),
    "own": lambda m: swa_utils.AveragedModel(m, avg_fn=lambda average, p, n: average + (p - average) / (n + 1)),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", AVERAGES)
def test_averaged_models(name, backend):
    """One version for the first update, which copies, and one for all others."""

    def run(opt):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
        average = AVERAGES[name](model)
        update = opt(lambda: average.update_parameters(model))
        for _ in range(5):
            model(torch.randn(8, 3)).pow(2).sum().backward()
            with torch.no_grad():
                for p in model.parameters():
                    p.sub_(p.grad, alpha=0.1)
            update()
        return average.state_dict(), [p.requires_grad for p in average.parameters()]

    counter = CompileCounterWithBackend(backend)
    expected = run(lambda f: f)
    assert same(expected, run(lambda f: dynamo_lite.compile(f, backend=counter, fullgraph=True)), tol=1e-6)
    assert counter.frame_count == 2


# -- schedules

SCHEDULES = {
    "lambda": lambda o: schedules.LambdaLR(o, lambda epoch: 0.95**epoch),
    "multiplicative": lambda o: schedules.MultiplicativeLR(o, lambda epoch: 0.95),
    "step": lambda o: schedules.StepLR(o, 3, 0.5),
    "multistep": lambda o: schedules.MultiStepLR(o, [2, 5], 0.5),
    "constant": lambda o: schedules.ConstantLR(o, 0.5, 4),
    "linear": lambda o: schedules.LinearLR(o, 0.3, 1, 5),
    "exponential": lambda o: schedules.ExponentialLR(o, 0.9),
    "sequential": lambda o: schedules.SequentialLR(
        o, [schedules.ConstantLR(o, 0.1, 2), schedules.ExponentialLR(o, 0.9)], [3]
    ),
    "chained": lambda o: schedules.ChainedScheduler([schedules.ConstantLR(o, 0.1, 2), schedules.ExponentialLR(o, 0.9)]),
    "polynomial": lambda o: schedules.PolynomialLR(o, 8, 2.0),
    "cosine": lambda o: schedules.CosineAnnealingLR(o, 8),
    "restarts": lambda o: schedules.CosineAnnealingWarmRestarts(o, 3, 2),
    "plateau": lambda o: schedules.ReduceLROnPlateau(o, patience=1),
    "cyclic": lambda o: schedules.CyclicLR(o, 0.001, 0.1, 4, mode="triangular2"),
    "one cycle": lambda o: schedules.OneCycleLR(o, 0.1, total_steps=20),
    "swa": lambda o: torch.optim.swa_utils.SWALR(o, 0.05, 4),
}


def scheduled(kind, compiled, inside, backend="eager"):
    torch.manual_seed(0)
    params = [nn.Parameter(torch.randn(4, 3)) for _ in range(2)]
    optimizer = torch.optim.SGD([{"params": params[:1]}, {"params": params[1:], "lr": 0.02}], lr=0.1, momentum=0.9)
    schedule = SCHEDULES[kind](optimizer)
    advance = (lambda: schedule.step(1.0)) if kind == "plateau" else schedule.step

    def step():
        optimizer.step()
        if inside:
            advance()

    counter = dynamo_lite.testing.CompileCounterWithBackend(backend)
    run = dynamo_lite.compile(step, backend=counter) if compiled else step
    rates = []
    for _ in range(12):
        for p in params:
            p.grad = torch.randn(4, 3)
        run()
        if not inside:
            advance()
        rates.append([(g["lr"], g["momentum"]) for g in optimizer.param_groups])
    return params, rates, counter.frame_count


@pytest.mark.parametrize("inside", [False, True], ids=["outside", "inside"])
@pytest.mark.parametrize("kind", SCHEDULES)
def test_schedule(kind, inside):
    expected, rates, _ = scheduled(kind, False, inside)
    params, after, graphs = scheduled(kind, True, inside)
    torch.testing.assert_close(params, expected, rtol=0, atol=0)
    assert after == rates
    # One for the state, one for the rate, and one for each branch that the schedule itself takes.
    assert graphs <= (8 if inside else 3)


def test_schedule_with_a_compiler_behind():
    expected, rates, _ = scheduled("cosine", False, True)
    params, after, graphs = scheduled("cosine", True, True, "aot_eager")
    torch.testing.assert_close(params, expected)
    assert after == rates
    assert graphs <= 3


def test_tensor_for_a_number():
    def fn(a, v):
        return a.clone().addcdiv_(a, a + 2, value=v), a.addcmul(a, a, value=v), a.add(a, alpha=v), a.add(a, alpha=2)

    a, v = torch.arange(4.0), torch.tensor(0.5)
    torch.testing.assert_close(dynamo_lite.compile(fn, backend="eager", fullgraph=True)(a, v), fn(a, 0.5))


def test_where_torch_compile_has_run():
    """It disables what it cannot follow of the optimisers: we can."""
    from torch._dynamo.eval_frame import TorchPatcher

    TorchPatcher.patch()  # what torch.compile does at its first call
    assert torch.optim.SGD._init_group._torchdynamo_disable
    expected, rates, _ = scheduled("step", False, False)
    params, after, graphs = scheduled("step", True, False)
    torch.testing.assert_close(params, expected, rtol=0, atol=0)
    assert after == rates
    assert graphs <= 3


def test_a_loop_over_steps_is_captured_from_its_first_turn():
    """Where the steps are turns of one loop that is captured, the state is made in the graph."""

    def train(compiled):
        torch.manual_seed(0)
        p = nn.Parameter(torch.randn(4))
        optimizer = torch.optim.Adam([p], lr=0.1, foreach=False)

        def loop(x):
            for _ in range(3):
                optimizer.zero_grad()
                ((p - x) ** 2).sum().backward()
                optimizer.step()
            return p.detach().clone()

        counter = CompileCounter()
        function = dynamo_lite.compile(loop, backend=counter) if compiled else loop
        return [function(torch.ones(4)), function(torch.zeros(4))], counter

    found, counter = train(True)
    torch.testing.assert_close(found, train(False)[0])
    assert counter.frame_count == 2 and counter.op_count > 60


def test_a_training_step_whole_from_the_second_on():
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    expected_model = copy.deepcopy(model)
    expected_optimizer = torch.optim.AdamW(expected_model.parameters(), lr=0.1)

    def step(model, optimizer, x):
        optimizer.zero_grad()
        loss = model(x).pow(2).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    counter = CompileCounter()
    compiled = dynamo_lite.compile(lambda x: step(model, optimizer, x), backend=counter, fullgraph=True)
    for i in range(4):
        x = torch.full((2, 3), float(i))
        torch.testing.assert_close(compiled(x), step(expected_model, expected_optimizer, x))
    torch.testing.assert_close(list(model.parameters()), list(expected_model.parameters()))
    assert counter.frame_count == 1
