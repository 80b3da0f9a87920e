"""What programs for a device do beside computing: move tensors, ask for devices, draw random numbers, use streams, events and autocast."""

import copy
import gc

import pytest
import torch

import dynamo_lite
from dynamo_lite.record import log
from dynamo_lite.testing import CompileCounterWithBackend, differences

BACKENDS = ["eager", "inductor"]


def graphs_of(fn, *args, backend="eager", **options):
    """The result of a call, and how many graphs it took."""
    counter = CompileCounterWithBackend(backend)
    compiled = dynamo_lite.compile(fn, backend=counter, **options)
    return compiled(*args), counter.frame_count


# -- devices


def moves_by_name(x):
    return x.to("cpu").to(x.device) + x.to(x.device, torch.float64).float()


def moves_by_type(x):
    return x.to(torch.device(x.device.type, 0 if x.device.type == "cuda" else None)) * 2


def makes_on_device(x):
    return torch.arange(5, device=x.device) + x.new_zeros(5) + torch.ones(5, device=x.device.type).to(x) + x


def asks(x):
    if x.is_cuda or x.device.type == "cpu" and not x.is_meta:
        return x + (x.get_device() + 2)
    return x - 1


def scalar_of_the_cpu(x):
    return x * torch.tensor(2.0) + torch.tensor([1.0]).to(x.device)


def asks_for_the_device(x):
    if torch.cuda.is_available():
        return x + torch.cuda.current_device() + torch.cuda.device_count()
    return x * 1


def default_device(x):
    with torch.device(x.device):
        return torch.ones(5) + x + torch.rand(5).ge(0)


def copies(x):
    y = torch.empty_like(x, device="cpu")
    y.copy_(x, non_blocking=False)
    return y * 2


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "fn",
    [
        moves_by_name,
        moves_by_type,
        makes_on_device,
        asks,
        scalar_of_the_cpu,
        asks_for_the_device,
        default_device,
        copies,
    ],
)
def test_devices(device, fn, backend):
    x = torch.randn(5, device=device)
    result, graphs = graphs_of(fn, x, backend=backend)
    torch.testing.assert_close(result, fn(x))
    assert graphs == 1
    assert [b.slug for frame in log.frames for b in frame.breaks] == []


def test_another_device_is_another_version(device):
    counter = CompileCounterWithBackend("eager")
    compiled = dynamo_lite.compile(lambda x: x.sin() + x.numel(), backend=counter)
    for where in ("cpu", device, "cpu", device):
        x = torch.ones(3, device=where)
        result = compiled(x)
        assert result.device.type == torch.device(where).type
        torch.testing.assert_close(result, x.sin() + 3)
    assert counter.frame_count == (2 if device.type == "cuda" else 1)


def test_a_model_that_moves(device):
    model = torch.nn.Linear(4, 4)
    compiled = dynamo_lite.compile(model, backend="eager")
    for where in ("cpu", device, "cpu"):
        compiled.to(where)
        x = torch.ones(2, 4, device=where)
        torch.testing.assert_close(compiled(x), model(x))


@pytest.mark.only_cuda
def test_cuda_methods(device):
    def fn(x):
        return x.cuda() + torch.ones(3).cuda(0).cpu().to("cuda:0", non_blocking=True)

    result, graphs = graphs_of(fn, torch.ones(3))
    assert result.tolist() == [2.0] * 3 and result.is_cuda
    assert graphs == 1


@pytest.mark.only_cuda
def test_errors_are_those_of_eager_execution(device):
    def fn(x, y):
        return x * 2 + y

    x, y = torch.ones(3, device=device), torch.ones(3)
    messages = []
    for run in (fn, dynamo_lite.compile(fn, backend="eager"), dynamo_lite.compile(fn, backend="inductor")):
        with pytest.raises(RuntimeError) as info:
            run(x, y)
        messages.append(str(info.value))
    assert messages[0] == messages[1] == messages[2]


@pytest.mark.only_cuda
def test_memory_of_another_kind(device):
    def fn(x):
        return x.pin_memory().is_pinned(), x * 2

    assert dynamo_lite.compile(fn, backend="eager")(torch.ones(3))[0] is True


# -- random numbers


def drops(x):
    return torch.nn.functional.dropout(x, 0.3) + torch.rand_like(x)


def draws(x):
    return (
        torch.randn(7, device=x.device)
        + torch.randint(0, 9, (7,), device=x.device)
        + torch.randperm(7, device=x.device)
    )


def bernoulli(x):
    return torch.bernoulli(x.sigmoid()) + torch.normal(x, 1.0) + x.clone().uniform_(0, 1) + x.clone().exponential_()


@pytest.mark.parametrize("fn", [drops, draws, bernoulli])
def test_random_numbers(device, fn):
    x = torch.randn(7, device=device)
    compiled = dynamo_lite.compile(fn, backend="eager")
    outcomes = []
    for run in (fn, compiled):
        torch.manual_seed(3)
        outcomes.append([v for _ in range(3) for v in (run(x), torch.rand(2, device=device), torch.rand(2))])
    assert list(differences(*outcomes)) == []


@pytest.mark.only_cuda
def test_seeding_inside(device):
    def fn(x):
        torch.cuda.manual_seed(5)
        y = x + torch.rand_like(x)
        state = torch.cuda.get_rng_state()
        z = torch.rand_like(x)
        torch.cuda.set_rng_state(state)
        return y, z, torch.rand_like(x)

    x = torch.ones(5, device=device)
    outcomes = [run(x) for run in (fn, dynamo_lite.compile(fn, backend="eager"))]
    assert list(differences(*outcomes)) == []


# -- streams and events


def on_a_side_stream(x):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        y = x * 2
        for _ in range(10):
            y = y.sin()
    torch.cuda.current_stream().wait_stream(stream)
    y.record_stream(torch.cuda.current_stream())
    return y + 1


def with_events(x):
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    y = x.exp()
    end.record()
    end.synchronize()
    return y, start.elapsed_time(end) >= 0


def synchronizes(x):
    y = x + 1
    torch.cuda.synchronize()
    return y * 2


def asks_for_memory(x):
    y = x + 1
    return y * 2, torch.cuda.memory_allocated() > 0


@pytest.mark.only_cuda
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fn", [on_a_side_stream, with_events, synchronizes, asks_for_memory])
def test_streams(device, fn, backend):
    x = torch.randn(1 << 16, device=device)
    compiled = dynamo_lite.compile(fn, backend=backend)
    for _ in range(3):
        assert list(differences(fn(x), compiled(x), tol=1e-5)) == []
        assert torch.cuda.current_stream() == torch.cuda.default_stream()


@pytest.mark.only_cuda
@pytest.mark.parametrize("backend", BACKENDS)
def test_called_on_a_side_stream(device, backend):
    def fn(x):
        for _ in range(30):
            x = (x * 1.5).sin()
        return x

    compiled = dynamo_lite.compile(fn, backend=backend)
    x = torch.randn(1 << 18, device=device)
    torch.testing.assert_close(compiled(x), fn(x))
    stream = torch.cuda.Stream()
    event = torch.cuda.Event()
    with torch.cuda.stream(stream):
        y = torch.zeros_like(x)
        torch.cuda._sleep(1_000_000_000)
        y.copy_(x)
        result = compiled(y)  # waits for the copy: both are on this stream
        event.record()
    assert not event.query()  # the call has not waited for the device
    stream.synchronize()
    torch.testing.assert_close(result, fn(x))


# -- training


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(32)
        self.attention = torch.nn.MultiheadAttention(32, 4, batch_first=True)
        self.mlp = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 32))

    def forward(self, x):
        h = self.norm(x)
        x = x + self.attention(h, h, h, need_weights=False)[0]
        return x + self.mlp(x)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_training(device, backend):
    model = torch.nn.Sequential(Block(), Block()).to(device)
    twin = copy.deepcopy(model)
    compiled = dynamo_lite.compile(model, backend=backend)
    optimizers = [torch.optim.SGD(one.parameters(), lr=1e-2) for one in (model, twin)]
    for step in range(3):
        torch.manual_seed(step)
        x = torch.randn(4, 16, 32, device=device)
        for run, optimizer in zip((compiled, twin), optimizers, strict=True):
            optimizer.zero_grad()
            run(x).square().mean().backward()
            optimizer.step()
    assert list(differences(twin.state_dict(), model.state_dict(), tol=1e-4)) == []


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("backend", BACKENDS)
def test_autocast(device, dtype, backend):
    model = Block().to(device)
    twin = copy.deepcopy(model)

    def step(run, x):
        with torch.autocast(device.type, dtype):
            y = run(x)
        return y.float().square().mean()

    compiled = dynamo_lite.compile(step, backend=backend)
    x = torch.randn(4, 16, 32, device=device)
    losses = []
    for run, function in ((twin, step), (model, compiled)):
        losses.append(function(run, x))
        losses[-1].backward()
    torch.testing.assert_close(*losses, rtol=2e-2, atol=2e-2)
    for one, other in zip(twin.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=5e-2, atol=5e-2)


@pytest.mark.only_cuda
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_scaler(device, backend):
    models = [Block().to(device)]
    models.append(copy.deepcopy(models[0]))
    outcomes = []
    for model, wrap in zip(models, (lambda f: f, lambda f: dynamo_lite.compile(f, backend=backend)), strict=True):
        scaler = torch.amp.GradScaler("cuda", init_scale=1024.0)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)

        def step(x, model=model, scaler=scaler, optimizer=optimizer):
            optimizer.zero_grad()
            with torch.autocast("cuda", torch.float16):
                loss = model(x).square().mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            return loss

        run = wrap(step)
        torch.manual_seed(0)
        losses = [run(torch.randn(4, 16, 32, device=device)).detach() for _ in range(3)]
        outcomes.append((losses, scaler.get_scale()))
    torch.testing.assert_close(outcomes[0][0], outcomes[1][0], rtol=2e-2, atol=2e-2)
    assert outcomes[0][1] == outcomes[1][1]


@pytest.mark.parametrize("kind", ["Adam", "AdamW", "SGD", "RMSprop", "Adagrad"])
@pytest.mark.parametrize("how", [{}, {"foreach": True}, {"fused": True}])
def test_optimizers(device, kind, how):
    if "fused" in how and (kind == "RMSprop" or kind == "Adagrad" and device.type == "cuda"):
        pytest.skip("torch has no such optimizer")
    models = [torch.nn.Linear(8, 8).to(device)]
    models.append(copy.deepcopy(models[0]))
    for model, wrap in zip(models, (lambda f: f, lambda f: dynamo_lite.compile(f, backend="eager")), strict=True):
        optimizer = getattr(torch.optim, kind)(model.parameters(), lr=1e-2, **how)
        run = wrap(optimizer.step)
        for i in range(3):
            torch.manual_seed(i)
            model(torch.randn(4, 8, device=device)).sum().backward()
            run()
    # torch's Adam computes with a tensor of steps where `is_compiling()`, under every compiler
    assert list(differences(models[0].state_dict(), models[1].state_dict(), tol=1e-5)) == []


# -- modes of Inductor


@pytest.mark.only_cuda
@pytest.mark.parametrize("mode", ["reduce-overhead", "max-autotune-no-cudagraphs"])
def test_modes(device, mode):
    model = Block().to(device)
    twin = copy.deepcopy(model)
    compiled = dynamo_lite.compile(model, mode=mode)
    for step in range(4):
        torch.compiler.cudagraph_mark_step_begin()
        torch.manual_seed(step)
        x = torch.randn(4, 16, 32, device=device)
        for run in (twin, compiled):
            run.zero_grad()
            loss = run(x).square().mean()
            loss.backward()
        for one, other in zip(twin.parameters(), model.parameters(), strict=True):
            torch.testing.assert_close(one.grad, other.grad, rtol=1e-3, atol=1e-4)
    with torch.no_grad():
        for _ in range(4):
            torch.compiler.cudagraph_mark_step_begin()
            x = torch.randn(4, 16, 32, device=device)
            torch.testing.assert_close(compiled(x), twin(x), rtol=1e-3, atol=1e-3)


# -- lifetimes


@pytest.mark.only_cuda
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor", "cudagraphs"])
def test_memory_is_given_back(device, backend):
    def one():
        model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256)).to(device)
        compiled = dynamo_lite.compile(model, backend=backend)
        for _ in range(3):
            x = torch.randn(1024, 256, device=device)
            if backend == "cudagraphs":
                with torch.no_grad():
                    compiled(x)
            else:
                compiled(x).sum().backward()

    one()  # workspaces of cuBLAS, which stay
    dynamo_lite.reset()
    gc.collect()
    before = torch.cuda.memory_allocated()
    for _ in range(2):
        one()
        dynamo_lite.reset()
        gc.collect()
        assert torch.cuda.memory_allocated() <= before


@pytest.mark.only_cuda
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_the_peak_is_not_above_that_of_eager_execution(device, backend):
    def fn(x):
        for _ in range(8):
            x = (x + 1).sin()
        return x.sum()

    compiled = dynamo_lite.compile(fn, backend=backend)
    peaks = []
    with torch.no_grad():
        x = torch.randn(1 << 22, device=device)
        for run in (fn, compiled, compiled):
            run(x)
            gc.collect()
            torch.cuda.reset_peak_memory_stats()
            base = torch.cuda.memory_allocated()
            run(x)
            peaks.append(torch.cuda.max_memory_allocated() - base)
    assert peaks[-1] <= peaks[0] + 4096


@pytest.mark.only_cuda
def test_inputs_die_in_the_call(device):
    """Like eager execution, which frees a temporary that is given to a call as soon as the call no longer needs it."""

    compiled = dynamo_lite.compile(lambda x: (x * 2).sum() + 1, backend="eager")
    for _ in range(3):
        before = torch.cuda.memory_allocated()
        result = compiled(torch.ones(1 << 20, device=device))
        del result
        assert torch.cuda.memory_allocated() == before
