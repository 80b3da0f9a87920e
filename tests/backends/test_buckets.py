"""Graphs in DistributedDataParallel: where they are cut, when gradients are complete, results as in eager execution."""

import copy

import pytest
import torch
from torch import nn

import dynamo_lite
from dynamo_lite.backends import registry
from dynamo_lite.backends.aot import aot_autograd, run_graph
from dynamo_lite.record import log
from dynamo_lite.testing import same

distributed = torch.distributed
if not distributed.is_available() or not distributed.is_gloo_available():
    pytest.skip("no gloo", allow_module_level=True)

KIB = 1 / 1024  # MiB


@pytest.fixture(scope="module", autouse=True)
def group(tmp_path_factory):
    store = f"file://{tmp_path_factory.mktemp('group') / 'store'}"
    distributed.init_process_group("gloo", init_method=store, rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def layer():
    return nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.BatchNorm1d(16))  # 1.19 KiB of gradients


def model(layers=4):
    torch.manual_seed(0)
    return nn.Sequential(*[layer() for _ in range(layers)])


def parallel(module, kib=1.1, **options):
    limit = None if kib is None else kib * KIB
    return nn.parallel.DistributedDataParallel(module, bucket_cap_mb=limit, **options)


def x(n=0):
    return torch.linspace(-1, 1, 80).reshape(5, 16) * (n + 1)


class Events(list):
    """What happens in a step, in order: the backward passes of segments, the all-reduces of buckets."""

    def __init__(self):
        self.backend = aot_autograd(run_graph, self.backward)

    def backward(self, gm, inputs):
        run = run_graph(gm, inputs)

        def call(values):
            self.append("backward")
            return run(values)

        call._boxed_call = True
        return call

    def all_reduce(self, state: object, bucket: distributed.GradBucket) -> torch.futures.Future[torch.Tensor]:
        self.append(f"bucket {bucket.index()}")
        done = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done


def notes():
    return [graph.notes for frame in log.snapshot() for graph in frame.graphs]


def trained(module, run, steps=3):
    """Losses, parameters and buffers after some steps."""
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    losses = []
    for n in range(steps):
        loss = run(x(n)).square().mean()
        loss.backward()
        losses.append(loss)
        optimizer.step()
        optimizer.zero_grad()
    return losses, dict(module.named_parameters()), dict(module.named_buffers())


def expected(steps=3, **options):
    """What eager execution makes of the model."""
    module = model()
    return trained(module, parallel(module, **options), steps)


@pytest.mark.parametrize("inside", [False, True], ids=["compiled DDP", "DDP of a compiled model"])
def test_buckets_are_reduced_between_the_backward_passes_of_segments(inside):
    events, module = Events(), nn.Sequential(*[nn.Linear(16, 16, bias=False) for _ in range(4)])
    twin = copy.deepcopy(module)
    if inside:
        run = parallel(dynamo_lite.compile(module, backend=events.backend), 1)
        run.register_comm_hook(None, events.all_reduce)
    else:
        ddp = parallel(module, 1)
        ddp.register_comm_hook(None, events.all_reduce)
        run = dynamo_lite.compile(ddp, backend=events.backend)
    assert same(trained(module, run), trained(twin, parallel(twin, 1)), tol=1e-6)
    first = ["backward"] * 4 + ["bucket 0"]  # DDP makes its buckets when it has seen one step
    step = ["backward", "bucket 0", "backward", "bucket 1", "backward", "bucket 2", "backward", "bucket 3"]
    assert events == first + 2 * step
    assert notes() == [{"buckets of DDP": ["4 segments, MiB of gradients: 0.000977, 0.000977, 0.000977, 0.000977"]}]


@pytest.mark.parametrize("wanted", [False, "no_optimization", "python_reducer"])
def test_off(wanted):
    events, module = Events(), model()
    with dynamo_lite.config.patch(optimize_ddp=wanted):
        found = trained(module, dynamo_lite.compile(parallel(module), backend=events.backend))
    assert same(found, expected(), tol=1e-6)
    assert events == ["backward"] * 3 and notes() == [{}]


def test_one_bucket_is_no_cut():
    module = model()
    events = Events()
    dynamo_lite.compile(parallel(module, 100), backend=events.backend)(x()).sum().backward()
    assert events == ["backward"] and notes() == [{}]


def test_without_DDP_around_it_a_graph_is_whole():
    events, module = Events(), model()
    parallel(module)
    dynamo_lite.compile(module, backend=events.backend)(x()).sum().backward()
    assert events == ["backward"] and notes() == [{}]


def test_versions_inside_of_DDP_and_outside():
    events, module = Events(), model()
    compiled = dynamo_lite.compile(module, backend=events.backend)
    ddp = parallel(compiled)
    for run, backwards in ((compiled, 1), (ddp, 4), (compiled, 1), (ddp, 4)):
        events.clear()
        run(x()).sum().backward()
        assert events == ["backward"] * backwards
    assert len(notes()) == 2
    with dynamo_lite.config.patch(optimize_ddp=False):
        ddp(x())
    assert len(notes()) == 2  # the one for calls outside of DDP does


def test_inference_is_not_cut():
    module = parallel(model()).eval()
    with torch.no_grad():
        found = dynamo_lite.compile(module, backend="aot_eager")(x())
        assert same(found, module(x())) and notes() == [{}]


def test_the_eager_backend_needs_no_cut():
    module = model()
    found = trained(module, dynamo_lite.compile(parallel(module), backend="eager"))
    assert same(found, expected()) and notes() == [{}]


class Tied(nn.Module):
    """The first and the last layer share a weight, which is complete at the end of the backward pass."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([layer() for _ in range(3)])
        self.last = nn.Linear(16, 16, bias=False)
        self.last.weight = self.layers[0][0].weight

    def forward(self, x):
        for one in self.layers:
            x = one(x)
        return self.last(x)


class Doubled(nn.Module):
    """Changes a buffer of its own behind each layer: all these changes are in one segment."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([layer() for _ in range(4)])
        self.register_buffer("seen", torch.zeros(16))

    def forward(self, x):
        for one in self.layers:
            x = one(x)
            x += 1
            self.seen.add_(x.detach().sum(0))
            x, y = x.chunk(2, dim=1)
            x = torch.cat([y, x], dim=1).relu_()
        return x


class Detached(nn.Module):
    """A part without gradients in the midst."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([layer() for _ in range(4)])

    def forward(self, x):
        x = self.layers[0](x)
        with torch.no_grad():
            scale = x.abs().amax() + 1
            scale = scale * 2
        return self.layers[3](self.layers[2](self.layers[1](x / scale)))


class Autocast(Detached):
    """Which the module enters by itself, twice in the middle."""

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            x = self.layers[1](self.layers[0](x))
            with torch.autocast("cpu", enabled=False):
                x = self.layers[2](x.float())
            x = self.layers[3](x)
        return x.float()


@pytest.mark.parametrize(
    ("make", "segments"),
    [(Tied, 3), (Doubled, 2), (Detached, 4), (Autocast, 4)],
    ids=lambda v: getattr(v, "__name__", v),
)
def test_models(make, segments):
    torch.manual_seed(0)
    module = make()
    twin = copy.deepcopy(module)
    found = trained(module, dynamo_lite.compile(parallel(module), backend="aot_eager"))
    assert same(found, trained(twin, parallel(twin)), tol=1e-6)
    told = [note for note in notes() if note]
    assert [int(note["buckets of DDP"][0].split()[0]) for note in told] == [segments] * bool(segments)


@pytest.mark.parametrize(
    "options",
    [{"static_graph": True}, {"find_unused_parameters": True}, {"gradient_as_bucket_view": True}],
    ids=lambda options: next(iter(options)),
)
def test_options_of_DDP(options):
    module = model()
    found = trained(module, dynamo_lite.compile(parallel(module, **options), backend="aot_eager"), steps=4)
    assert same(found, expected(4, **options), tol=1e-6)
    assert len(notes()) == 1 and notes()[0]["buckets of DDP"]


def test_accumulation_without_synchronization():
    def run(module, compiled, ddp):
        for n in range(4):
            with ddp.no_sync() if n % 2 == 0 else torch.enable_grad():
                compiled(x(n)).square().mean().backward()
        return {name: p.grad for name, p in module.named_parameters()}

    module, twin = model(), model()
    ddp, eager = parallel(module), parallel(twin)
    found = run(module, dynamo_lite.compile(ddp, backend="aot_eager"), ddp)
    assert same(found, run(twin, eager, eager), tol=1e-6) and len(notes()) == 1


def test_parameters_that_DDP_ignores_fill_no_bucket():
    module = model()
    names = [name for name, _ in module.named_parameters() if not name.startswith("3.")]
    nn.parallel.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(module, names)
    dynamo_lite.compile(parallel(module), backend="aot_eager")(x()).sum().backward()
    assert notes() == [{}]


def test_explain_tells_the_buckets():
    text = str(dynamo_lite.explain(dynamo_lite.compile(parallel(model()), backend="aot_eager"))(x()))
    assert "    buckets of DDP: 4 segments, MiB of gradients: 0.00116, 0.00116, 0.00116, 0.00116" in text


def test_limits_for_each_bucket():
    try:
        ddp = parallel(model(6), None, bucket_cap_mb_list=[1.1 * KIB, 2.2 * KIB])
    except TypeError:
        pytest.skip("this torch has one limit for all buckets (before 2.13)")
    dynamo_lite.compile(ddp, backend="aot_eager")(x()).sum().backward()
    assert notes()[0]["buckets of DDP"][0].startswith("4 segments")


def test_tuned_graphs_are_cut(monkeypatch):
    events, module = Events(), model()
    monkeypatch.setitem(registry._backends, "in buckets", events.backend)
    options = {"candidates": ["in buckets"], "store": False, "budget": 30}
    run = dynamo_lite.compile(parallel(module), backend="autotune", options=options)
    assert same(trained(module, run), expected(), tol=1e-6)
    assert notes()[0]["buckets of DDP"][0].startswith("4 segments")
