"""The backend `cudagraphs` on the real device: outcomes of eager execution, bounded memory, and what can't be recorded."""

import copy
import gc
import threading

import pytest
import torch

import dynamo_lite
from dynamo_lite.backends import cudagraphs as module
from dynamo_lite.backends.cuda_device import cuda_device
from dynamo_lite.record import log
from dynamo_lite.testing import differences
from tests.backends.graphs import GRAPHS, Net, observed

pytestmark = pytest.mark.only_cuda


def notes():
    return log.frames[-1].graphs[-1].notes.get("cudagraphs", [])


def recorders():
    return [recorder for recorder in module._wrappers if recorder.recordings]


@pytest.mark.parametrize("name", GRAPHS)
def test_as_in_eager_execution(device, name):
    fn, make = GRAPHS[name]
    if name == "random":  # draws on the CPU as well, which no recording has

        def fn(x):
            a = torch.rand_like(x) * x.sin()
            return a, torch.nn.functional.dropout(a + 1, 0.5)

    def moved():
        return [x.to(device) if x.dim() and x.is_contiguous() else moved_view(x, device) for x in make()]

    compiled = dynamo_lite.compile(fn, backend="cudagraphs")
    for seed in range(4):
        expected, actual = (observed(run, moved, seed) for run in (fn, compiled))
        assert list(differences(expected, actual, tol=1e-6)) == []
    assert notes() == []
    assert len(recorders()) == 1


def moved_view(x, device):
    """On the device with the same strides."""
    base = x.as_strided((x.untyped_storage().nbytes() // x.element_size(),), (1,), 0).to(device)
    return base.as_strided(x.shape, x.stride(), x.storage_offset())


def test_the_device_s_random_numbers_go_on_as_in_eager_execution(device):
    def fn(x):
        return torch.nn.functional.dropout(x, 0.5) + torch.randn_like(x)

    compiled = dynamo_lite.compile(fn, backend="cudagraphs")
    x = torch.ones(1000, device=device)
    outcomes = []
    for run in (fn, compiled):
        torch.manual_seed(5)
        with torch.no_grad():
            outcomes.append([t for _ in range(6) for t in (run(x), torch.rand(3, device=device))])
    assert list(differences(*outcomes)) == []


def test_a_model_in_training_and_its_parameters(device):
    model = Net().to(device)
    twin = copy.deepcopy(model)
    compiled = dynamo_lite.compile(model, backend="cudagraphs")
    with torch.no_grad():
        for i in range(6):
            x = torch.randn(2, 3, 6, 6, device=device)
            if i == 3:
                for one in (model, twin):
                    one.head.weight.mul_(2)
            if i == 4:
                for one in (model, twin):
                    one.head.weight.data = one.head.weight.data.clone()
            torch.testing.assert_close(compiled(x), twin(x))
    for mine, other in zip(model.state_dict().values(), twin.state_dict().values(), strict=True):
        torch.testing.assert_close(mine, other)


def test_results_outlive_the_next_replay(device):
    compiled = dynamo_lite.compile(lambda x: (x * 2, x.sum()), backend="cudagraphs")
    with torch.no_grad():
        kept = [compiled(torch.full((3,), float(i), device=device)) for i in range(5)]
    assert [k[0].tolist() for k in kept] == [[2.0 * i] * 3 for i in range(5)]
    assert [k[1].item() for k in kept] == [3.0 * i for i in range(5)]


def test_changing_sizes_and_a_bounded_pool(device):
    model = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 256)).to(device)
    compiled = dynamo_lite.compile(model, backend="cudagraphs", dynamic=True)
    sizes = [4096, 1, 17, 2048, 512, 4096, 33, 1024]

    def calls():
        with torch.no_grad():
            for rows in sizes:
                x = torch.randn(rows, 256, device=device)
                torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)
        torch.cuda.synchronize()

    calls()
    calls()
    gc.collect()
    torch.cuda.empty_cache()
    reserved = torch.cuda.memory_reserved()
    for _ in range(20):
        calls()
    gc.collect()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() <= reserved  # nothing grows with the calls
    assert sum(len(recorder.recordings) for recorder in recorders()) == len(set(sizes))  # a version of its own for 1
    assert (
        reserved < 400 * 2**20
    )  # the pool is shared: the sum of all sizes' activations would be 250 MiB, each 32 at most


def test_all_memory_goes_with_the_callable(device):
    def one():
        model = torch.nn.Linear(512, 512).to(device)
        compiled = dynamo_lite.compile(model, backend="cudagraphs")
        with torch.no_grad():
            for _ in range(4):
                compiled(torch.randn(512, 512, device=device))

    one()
    dynamo_lite.reset()
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    for _ in range(3):
        one()
        dynamo_lite.reset()
        gc.collect()
        torch.cuda.empty_cache()
    assert torch.cuda.memory_allocated() <= before[0]
    assert torch.cuda.memory_reserved() <= before[1]
    assert cuda_device(torch.device("cuda", 0)) is cuda_device(torch.device("cuda", 0))


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x.nonzero().sum() + x,
        lambda x: x[x > 0].sum() * x,
        lambda x: x.unique().sum() * x,
        lambda x: x.cpu().sum() * 2,
        lambda x: torch.linalg.inv(x) @ x,
        lambda x: torch.linalg.eigvalsh(x @ x.t()),
        lambda x: torch.multinomial(x.abs(), 2, replacement=True),
        lambda x: x.sort(0).values.cumsum(1),
        lambda x: torch.repeat_interleave(x, 2, 0),
        lambda x: torch.bincount((x.flatten() * 10).abs().long()),
        lambda x: torch.histc(x, 5),
        lambda x: x.topk(3).indices,
        lambda x: torch.nn.functional.embedding((x.abs() * 2).long(), x),
    ],
)
def test_what_waits_for_the_device_runs_plainly(device, fn):
    compiled = dynamo_lite.compile(fn, backend="cudagraphs")
    with torch.no_grad():
        for i in range(4):
            torch.manual_seed(i)
            x = torch.randn(16, 16, device=device) + 2 * torch.eye(16, device=device)
            outcomes = []
            for run in (fn, compiled):
                torch.manual_seed(i)
                outcomes.append((run(x), torch.rand(2, device=device)))
            assert list(differences(*outcomes, tol=1e-4)) == []
    x = torch.ones(4, device=device)  # the device is still in order
    assert (x + 1).tolist() == [2.0] * 4


def test_the_program_s_own_recording(device):
    def fn(x):
        return (x * 2).relu() + 1

    compiled = dynamo_lite.compile(fn, backend="cudagraphs")
    x = torch.randn(64, device=device)
    with torch.no_grad():
        for _ in range(3):
            compiled(x)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = compiled(x)
        for _ in range(3):
            x.copy_(torch.randn(64, device=device))
            graph.replay()
            torch.testing.assert_close(y, fn(x))


def test_two_streams(device):
    def fn(x):
        for _ in range(20):
            x = x * 1.01 + 0.1
        return x

    compiled = dynamo_lite.compile(fn, backend="cudagraphs")
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    x = torch.randn(1 << 20, device=device)
    expected = [fn(x + i) for i in range(40)]
    got = []
    with torch.no_grad():
        for _ in range(3):
            compiled(x)
        torch.cuda.synchronize()
        for i in range(40):
            with torch.cuda.stream(streams[i % 2]):
                got.append(compiled(x + i))
        torch.cuda.synchronize()
    for one, other in zip(expected, got, strict=True):
        torch.testing.assert_close(one, other)


def test_threads(device):
    compiled = dynamo_lite.compile(lambda x: (x * 3 + 1).sum(0), backend="cudagraphs")
    failures = []

    def work(n):
        stream = torch.cuda.Stream()
        with torch.no_grad(), torch.cuda.stream(stream):
            for i in range(30):
                x = torch.full((64, 8), float(n * 100 + i), device=device)
                result = compiled(x)
                stream.synchronize()
                if result.tolist() != [64 * (3.0 * (n * 100 + i) + 1)] * 8:
                    failures.append((n, i, result.tolist()))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_inputs_that_are_written_to(device):
    def fn(cache, x, i):
        cache.index_copy_(0, i, x)
        return cache.sum(0)

    compiled = dynamo_lite.compile(fn, backend="cudagraphs")
    caches = [torch.zeros(32, 8, device=device) for _ in range(2)]
    with torch.no_grad():
        for step in range(8):
            x = torch.randn(1, 8, device=device)
            i = torch.tensor([step], device=device)
            torch.testing.assert_close(compiled(caches[0], x, i), fn(caches[1], x, i))
    torch.testing.assert_close(*caches)


def test_padding(device):
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4)).to(device)
    compiled = dynamo_lite.compile(model, backend="cudagraphs", dynamic=True, options={"padding": [8, 64]})
    with torch.no_grad():
        for rows in (3, 5, 8, 3, 7, 40, 64, 33, 100, 100, 100):
            x = torch.randn(rows, 16, device=device)
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)
    (recorder,) = recorders()
    assert len(recorder.recordings) == 3


def test_tensors_of_other_devices(device):
    def fn(x, scale):
        return x * scale + scale.to(x.device)

    compiled = dynamo_lite.compile(fn, backend="cudagraphs")
    x = torch.randn(4, device=device)
    with torch.no_grad():
        for i in range(4):
            scale = torch.tensor(float(i))
            torch.testing.assert_close(compiled(x, scale), fn(x, scale))


def test_half_precision_under_autocast(device):
    model = Net().to(device).eval()
    compiled = dynamo_lite.compile(model, backend="cudagraphs")
    with torch.no_grad(), torch.autocast("cuda", torch.float16):
        for _ in range(4):
            x = torch.randn(2, 3, 6, 6, device=device)
            result = compiled(x)
            assert result.dtype is torch.float16
            torch.testing.assert_close(result, model(x))
