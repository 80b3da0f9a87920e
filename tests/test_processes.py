"""Threads, forked and spawned processes, data loaders, pickles: compiled functions and modules wherever ordinary ones go."""

import copy
import io
import os
import pickle
import signal
import threading
import time

import pytest
import torch
from torch import nn

import dynamo_lite

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.scale = 0.5

    def forward(self, x):
        return self.linear(x).relu() * self.scale


def stepwise(x, k):
    y = x.sin()
    for i in range(k % 3):
        y = y + i
    dynamo_lite.graph_break()
    return y * k


compiled_stepwise = dynamo_lite.compile(stepwise, backend="eager")


def collate(batch):
    return torch.utils.data.default_collate(batch)


class Numbers(torch.utils.data.Dataset):
    def __init__(self, fn, model):
        self.fn = fn
        self.model = model

    def __len__(self):
        return 6

    def __getitem__(self, i):
        return self.fn(torch.full((4,), float(i)), i), self.model(torch.full((1, 4), float(i))).detach()[0]


def in_threads(count, work):
    barrier = threading.Barrier(count)
    errors = []

    def run(n):
        barrier.wait()
        try:
            work(n)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if errors:
        raise errors[0]


# -- threads


def test_first_calls_race():
    compiled = dynamo_lite.compile(stepwise, backend="eager")

    def work(n):
        for k in range(12):
            x = torch.full((3 + n % 3,), float(k))
            assert torch.equal(compiled(x, k % 5), stepwise(x, k % 5))

    in_threads(6, work)


def test_grad_mode_is_that_of_the_thread():
    model = Model()
    compiled = dynamo_lite.compile(model, backend="eager")

    def work(n):
        with torch.set_grad_enabled(bool(n % 2)):
            for k in range(8):
                x = torch.ones(2 + k % 3, 4)
                result = compiled(x)
                assert torch.equal(result, model(x))
                assert result.requires_grad is bool(n % 2)

    in_threads(4, work)


def test_compilers_do_not_run_at_once():
    running = []

    def backend(gm, example_inputs):
        running.append(gm)
        assert len(running) == 1
        time.sleep(0.02)
        running.remove(gm)
        return gm.forward

    in_threads(4, lambda n: dynamo_lite.compile(lambda x: x + n, backend=backend)(torch.ones(2)))


def test_training_in_threads():
    def train(n, compiled):
        generator = torch.Generator().manual_seed(n)
        weight = torch.randn(4, 4, generator=generator).requires_grad_()
        optimizer = torch.optim.SGD([weight], lr=0.1)

        def step(x):
            optimizer.zero_grad()
            loss = (x @ weight).pow(2).sum()
            loss.backward()
            optimizer.step()
            return loss

        run = dynamo_lite.compile(step, backend="aot_eager") if compiled else step
        return torch.stack([run(torch.randn(3, 4, generator=generator)).detach() for _ in range(4)])

    results = {}
    in_threads(3, lambda n: results.update({n: train(n, True)}))
    for n in range(3):
        torch.testing.assert_close(results[n], train(n, False))


def test_threads_started_inside():
    def fn(x):
        out = []
        thread = threading.Thread(target=lambda: out.append(x * 2))
        thread.start()
        thread.join()
        return out[0] + 1

    assert torch.equal(dynamo_lite.compile(fn, backend="eager")(torch.ones(2)), torch.full((2,), 3.0))


def test_values_of_a_thread():
    local = threading.local()
    local.k = 2

    def fn(x):
        local.k += 1
        return x * local.k

    compiled = dynamo_lite.compile(fn, backend="eager")
    assert [compiled(torch.ones(1)).item() for _ in range(3)] == [3, 4, 5]


# -- processes


def in_child(work):
    """Whether `work()` is true in a forked process; it gets a minute."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        status = 1
        try:
            status = 0 if work() else 1
        finally:
            os._exit(status)
    return os.waitpid(pid, 0)[1] == 0


@needs_fork
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_fork_after_compile(backend):
    model = Model()
    compiled = dynamo_lite.compile(model, backend=backend)
    x, other = torch.randn(3, 4), torch.randn(5, 4)
    compiled(x)

    def work():
        fresh = dynamo_lite.compile(stepwise, backend="eager")
        return (
            torch.equal(compiled(x), model(x))
            and torch.equal(compiled(other), model(other))
            and torch.equal(fresh(x, 2), stepwise(x, 2))
        )

    assert in_child(work)
    assert work()


@needs_fork
def test_fork_while_another_thread_compiles():
    compiling, done = threading.Event(), threading.Event()

    def backend(gm, example_inputs):
        compiling.set()
        done.wait(10)
        return gm.forward

    thread = threading.Thread(target=lambda: dynamo_lite.compile(stepwise, backend=backend)(torch.ones(2), 1))
    thread.start()
    compiling.wait(10)
    try:
        assert in_child(lambda: torch.equal(compiled_stepwise(torch.ones(3), 1), stepwise(torch.ones(3), 1)))
    finally:
        done.set()
        thread.join()


@pytest.mark.parametrize("start", [pytest.param("fork", marks=needs_fork), "spawn"])
def test_data_loader(start):
    model = Model().eval()
    compiled = dynamo_lite.compile(model, backend="eager")
    compiled(torch.ones(1, 4))
    compiled_stepwise(torch.ones(4), 1)
    loader = torch.utils.data.DataLoader(
        Numbers(compiled_stepwise, compiled),
        batch_size=2,
        num_workers=1,
        multiprocessing_context=start,
        collate_fn=dynamo_lite.compile(collate, backend="eager"),
    )
    expected = torch.utils.data.DataLoader(Numbers(stepwise, model), batch_size=2)
    step = dynamo_lite.compile(lambda batch: batch[0].sum() + batch[1].sum(), backend="eager")
    batches = list(loader)
    assert len(batches) == 3
    for got, wanted in zip(batches, expected, strict=True):
        torch.testing.assert_close(got, wanted)
        torch.testing.assert_close(step(got), wanted[0].sum() + wanted[1].sum())


# -- copies and pickles


def test_function_under_another_name():
    for other in (pickle.loads(pickle.dumps(compiled_stepwise)), copy.deepcopy(compiled_stepwise)):
        assert type(other) is type(compiled_stepwise)
        assert torch.equal(other(torch.ones(2), 4), stepwise(torch.ones(2), 4))


def test_whole_model_in_a_file():
    compiled = dynamo_lite.compile(Model(), backend="eager")
    x = torch.randn(2, 4)
    expected = compiled(x)
    file = io.BytesIO()
    torch.save(compiled, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    assert torch.equal(loaded(x), expected)
    assert isinstance(loaded, dynamo_lite.OptimizedModule)
    assert list(loaded.state_dict()) == list(compiled.state_dict())


def test_data_parallel_without_devices():
    model = Model()
    assert torch.equal(
        nn.DataParallel(dynamo_lite.compile(model, backend="eager"))(torch.ones(2, 4)), model(torch.ones(2, 4))
    )


@pytest.mark.skipif(not torch.distributed.is_available(), reason="no torch.distributed")
@pytest.mark.parametrize("outside", [True, False], ids=["compiled outside", "compiled inside"])
def test_distributed_data_parallel(outside, tmp_path):
    distributed = torch.distributed
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        model, expected = Model(), Model()
        expected.load_state_dict(model.state_dict())
        parallel = nn.parallel.DistributedDataParallel
        if outside:
            compiled = dynamo_lite.compile(parallel(model), backend="aot_eager")
        else:
            compiled = parallel(dynamo_lite.compile(model, backend="aot_eager"))
        x = torch.randn(3, 4)
        for _ in range(2):
            compiled(x).sum().backward()
            expected(x).sum().backward()
        for p, q in zip(model.parameters(), expected.parameters(), strict=True):
            torch.testing.assert_close(p.grad, q.grad)
    finally:
        time.sleep(0.2)  # gloo's threads let go of their work, for which they need the lock that the next line holds
        distributed.destroy_process_group()
