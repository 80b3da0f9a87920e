"""A whole step of training in one compiled function: forward, backward, clipping, scaling, averaging, optimiser, schedule."""

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_avg_fn, get_ema_multi_avg_fn

import dynamo_lite

CLIPPING = {
    "norm": lambda m: nn.utils.clip_grad_norm_(m.parameters(), 0.5),
    "infinity": lambda m: nn.utils.clip_grad_norm_(m.parameters(), 0.5, norm_type=float("inf")),
    "foreach": lambda m: nn.utils.clip_grad_norm_(m.parameters(), 0.5, foreach=True),
    "one by one": lambda m: nn.utils.clip_grad_norm_(m.parameters(), 0.5, norm_type=1.0, foreach=False),
    "checked": lambda m: nn.utils.clip_grad_norm_(m.parameters(), 0.5, error_if_nonfinite=True),
    "value": lambda m: nn.utils.clip_grad_value_(m.parameters(), 0.01),
}


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


def train(make_step, compiled, steps=5):
    """What the steps return, and the state of the modules afterwards. `make_step()` returns a module and a step."""
    module, step = make_step()
    run = dynamo_lite.compile(step, backend="eager") if compiled else step
    generator = torch.Generator().manual_seed(1)
    results = [
        run(torch.randn(6, 4, generator=generator), torch.randint(0, 2, (6,), generator=generator))
        for _ in range(steps)
    ]
    return results, dict(module.state_dict())


def check(make_step):
    torch.testing.assert_close(train(make_step, True), train(make_step, False), rtol=0, atol=0)


def sgd(m):
    return torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9)


@pytest.mark.parametrize("to_none", [True, False])
def test_step_with_schedule(to_none):
    def make():
        m = model()
        optimizer = sgd(m)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)

        def step(x, y):
            optimizer.zero_grad(set_to_none=to_none)
            loss = nn.functional.cross_entropy(m(x), y)
            loss.backward()
            optimizer.step()
            schedule.step()
            return loss.detach(), optimizer.param_groups[0]["lr"]

        return m, step

    check(make)


@pytest.mark.parametrize("kind", CLIPPING)
def test_clipping(kind):
    def make():
        m = model()
        optimizer = sgd(m)

        def step(x, y):
            optimizer.zero_grad()
            nn.functional.cross_entropy(m(x), y).backward()
            norm = CLIPPING[kind](m)
            optimizer.step()
            return norm

        return m, step

    check(make)


def test_scaled_losses_under_autocast():
    def make():
        m = model()
        optimizer = sgd(m)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8, growth_interval=2)

        def step(x, y):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = nn.functional.cross_entropy(m(x), y)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            norm = nn.utils.clip_grad_norm_(m.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            return loss.detach(), norm, scaler.get_scale()

        return m, step

    check(make)


def test_autocast_is_as_deep_as_before():
    def fn(m, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = m(x).sum()
        loss.backward()
        return loss

    m = nn.Linear(4, 4)
    for _ in range(3):
        dynamo_lite.compile(fn, backend="eager")(m, torch.ones(2, 4))
        torch.autocast_increment_nesting()
        assert torch.autocast_decrement_nesting() == 0


@pytest.mark.parametrize(
    "averaging",
    [{}, {"avg_fn": get_ema_avg_fn(0.9)}, {"multi_avg_fn": get_ema_multi_avg_fn(0.9)}],
    ids=["equal weights", "decay", "decay of all"],
)
def test_averaged_weights(averaging):
    def make():
        m = model()
        optimizer = sgd(m)
        average = AveragedModel(m, **averaging)

        def step(x, y):
            optimizer.zero_grad()
            nn.functional.cross_entropy(m(x), y).backward()
            optimizer.step()
            average.update_parameters(m)
            return average(x).detach()

        return nn.ModuleList([m, average]), step

    check(make)


def test_accumulated_gradients():
    def make():
        m = model()
        optimizer = sgd(m)
        count = 0

        def step(x, y):
            nonlocal count
            loss = nn.functional.cross_entropy(m(x), y) / 2
            loss.backward()
            count += 1
            if count % 2 == 0:
                optimizer.step()
                optimizer.zero_grad()
            return loss.detach(), count

        return m, step

    check(make)


def test_hooks_of_an_optimizer():
    def make():
        m = model()
        optimizer = sgd(m)
        seen = []
        optimizer.register_step_pre_hook(lambda optimizer, args, kwargs: seen.append("before"))
        optimizer.register_step_post_hook(lambda optimizer, args, kwargs: seen.append("after"))

        def step(x, y):
            optimizer.zero_grad()
            nn.functional.cross_entropy(m(x), y).backward()
            optimizer.step()
            return list(seen)

        return m, step

    assert train(make, True)[0] == train(make, False)[0]


def test_closure_and_state():
    def make():
        m = model()
        optimizer = sgd(m)

        def step(x, y):
            def closure():
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(m(x), y)
                loss.backward()
                return loss

            loss = optimizer.step(closure)
            optimizer.load_state_dict(optimizer.state_dict())
            return loss.detach()

        return m, step

    check(make)
