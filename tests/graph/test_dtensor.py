"""Distributed tensors in a group of one process: as inputs, made from local tensors, redistributed, as parameters."""

import pytest
import torch
from torch import nn

import dynamo_lite
from dynamo_lite.testing import CompileCounterWithBackend, same

distributed = pytest.importorskip("torch.distributed")
if not distributed.is_available() or not distributed.is_gloo_available():
    pytest.skip("no gloo", allow_module_level=True)
tensor = pytest.importorskip("torch.distributed.tensor")
parallel = pytest.importorskip("torch.distributed.tensor.parallel")

DTensor, Shard, Replicate, Partial = tensor.DTensor, tensor.Shard, tensor.Replicate, tensor.Partial


@pytest.fixture(scope="module")
def mesh(tmp_path_factory):
    store = f"file://{tmp_path_factory.mktemp('group') / 'store'}"
    distributed.init_process_group("gloo", init_method=store, rank=0, world_size=1)
    yield tensor.init_device_mesh("cpu", (1,))
    distributed.destroy_process_group()


def x():
    return torch.arange(12.0).reshape(4, 3) / 7 - 0.5


def sharded(mesh):
    return tensor.distribute_tensor(x(), mesh, [Shard(0)]).requires_grad_()


def local(mesh):
    return x().requires_grad_()


def plain(value):
    if isinstance(value, DTensor):
        return "DTensor", value.to_local().detach().clone(), str(value.placements), tuple(value.shape)
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def whole(gradient):
    """Compilers may choose other placements of gradients."""
    return gradient.full_tensor() if isinstance(gradient, DTensor) else gradient


def redistributed(t, mesh):
    return t.redistribute(mesh, [Replicate()]).to_local() * 2


def round_trip(a, mesh):
    t = DTensor.from_local(a, mesh, (Shard(0),), run_check=False)
    return t.redistribute(placements=[Replicate()]).to_local() + 1


def asked(t, mesh):
    made = t * 2
    is_sharded = made.placements == (Shard(0),) and made.placements[0].is_shard(0) and made.placements[0].dim == 0
    return made * (2 if is_sharded else 3) * (5 if made.device_mesh is mesh and t.device_mesh is mesh else 7)


CASES = {
    "operators": (sharded, lambda t, mesh: t * 2 + t),
    "local": (sharded, lambda t, mesh: t.to_local() * 2),
    "local with placements": (sharded, lambda t, mesh: t.to_local(grad_placements=[Shard(0)]) * 2),
    "full": (sharded, lambda t, mesh: t.full_tensor() * 2),
    "redistributed": (sharded, redistributed),
    "asked": (sharded, asked),
    "from local": (local, lambda a, mesh: DTensor.from_local(a, mesh, [Shard(0)]) * 2),
    "round trip": (local, round_trip),
    "partial": (local, lambda a, mesh: DTensor.from_local(a, mesh, [Partial()], run_check=False).full_tensor() + 1),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", CASES)
def test_one_graph(name, backend, mesh):
    make, fn = CASES[name]
    counter = CompileCounterWithBackend(backend)

    def run(call):
        results = []
        for _ in range(2):
            given = make(mesh)
            out = call(given, mesh)
            loss = (out * out).sum()
            (loss.full_tensor() if isinstance(loss, DTensor) else loss).backward()
            results.append((plain(out), whole(given.grad)))
        return results

    assert same(run(fn), run(dynamo_lite.compile(fn, backend=counter, fullgraph=True)), tol=1e-5)
    assert counter.frame_count == 1


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_parallel_module(backend, mesh):
    def run(opt):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 3))
        parallel.parallelize_module(net, mesh, {"0": parallel.ColwiseParallel(), "2": parallel.RowwiseParallel()})
        call, results = opt(net), []
        for _ in range(2):
            out = call(x())
            out.sum().backward()
            results.append((plain(out), [whole(p.grad) for p in net.parameters()]))
        return results

    counter = CompileCounterWithBackend(backend)
    compiled = run(lambda net: dynamo_lite.compile(net, backend=counter, fullgraph=True))
    assert same(run(lambda net: net), compiled, tol=1e-5)
    assert counter.frame_count == 1


def test_other_placements_are_other_graphs(mesh):
    counter = CompileCounterWithBackend("eager")
    compiled = dynamo_lite.compile(lambda t, to: t.redistribute(placements=to) * 2, backend=counter, fullgraph=True)
    for to in ([Replicate()], [Shard(1)], [Replicate()]):
        assert compiled(sharded(mesh), to).placements == tuple(to)
    assert counter.frame_count == 2


def test_distributing_a_tensor_breaks(mesh):
    counter = CompileCounterWithBackend("eager")
    compiled = dynamo_lite.compile(
        lambda a, mesh: tensor.distribute_tensor(a * 2, mesh, [Shard(0)]) + 1, backend=counter
    )
    assert same(plain(compiled(x(), mesh)), plain(tensor.distribute_tensor(x() * 2, mesh, [Shard(0)]) + 1))
    assert counter.frame_count == 2


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_each_size_is_a_version(mesh, backend):
    """What a DTensor says about itself besides its local tensor has sizes."""
    counter = CompileCounterWithBackend(backend)
    compiled = dynamo_lite.compile(lambda t: t * 2 + 1, backend=counter, fullgraph=True)
    for n in (4, 6, 8, 6):
        given = DTensor.from_local(torch.ones(n, 3), mesh, [Shard(0)])
        assert same(plain(compiled(given)), plain(given * 2 + 1))
    assert counter.frame_count == 3
