"""Ranks that do not do the same: other sizes, another dtype, a compiler that fails on one of them, one that is slow, or killed."""

import contextlib
import datetime
import os
import signal
import time

import torch
from torch import distributed, nn
from torch.distributed import _functional_collectives as functional
from torch.nn.parallel import DistributedDataParallel

import dynamo_lite
from dynamo_lite import config
from dynamo_lite.guards.guard_collectives import group_of_ranks

SETUPS = {}


def setup(function):
    """A set-up named as the function."""
    SETUPS[function.__name__.replace("_", " ")] = function
    return function


@contextlib.contextmanager
def guard_collectives():
    """Ranks agree on versions."""
    before = dynamo_lite.set_enable_guard_collectives(True)
    try:
        yield
    finally:
        dynamo_lite.set_enable_guard_collectives(before)


def mean_over_ranks(x, group):
    total = functional.all_reduce(x.sum(), "sum", group)
    count = functional.all_reduce(torch.ones(()) * x.numel(), "sum", group)
    return x - total / count


def inputs(world):
    """Rank 1 has other sizes in each call but the first, rank 0 always the same."""
    return [torch.linspace(0, 1, 4 + (n if world.rank else 0)) for n in range(5)]


@setup
def other_sizes_between_collectives(world, compile):
    compiled = compile(mean_over_ranks, fullgraph=True)
    return [compiled(x, world.group) for x in inputs(world)]


@setup
def other_sizes_and_guard_collectives(world, compile):
    compiled = compile(mean_over_ranks, fullgraph=True)
    with guard_collectives():
        return [compiled(x, world.group) for x in inputs(world)]


@setup
def other_sizes_in_frames_that_break_and_guard_collectives(world, compile):
    def f(x, group):
        y = mean_over_ranks(x, group)
        distributed.barrier()
        return y * functional.all_reduce(y.sum(), "sum", group)

    compiled = compile(f)
    with guard_collectives():
        return [compiled(x, world.group) for x in inputs(world)]


@setup
def other_sizes_and_compiler_collectives(world, compile):
    """Sizes that differ between the ranks are symbolic from the first call on: a number of an argument, too."""

    def f(x, group, n):
        return mean_over_ranks(x, group) * n

    compiled = compile(f, fullgraph=True)
    xs = [torch.linspace(0, 1, 4 + (n if world.rank else 2 * n)) for n in range(1, 5)]
    with config.patch(enable_compiler_collectives=True), guard_collectives():
        return [compiled(x, world.group, 3 + world.rank) for x in xs]


@setup
def one_rank_compiles_something_else(world, compile):
    """It is an error on both, at once."""

    def one(x):
        return x + 1

    def other(x):
        return x * 2

    functions = [one, other]
    compiled, said = compile(functions[world.rank]), ""
    with config.patch(enable_compiler_collectives=True):
        try:
            compiled(torch.ones(2))
        except RuntimeError as error:
            said = str(error)
    if compiled not in functions:
        assert f"rank {world.rank} compiles" in said and f"rank {1 - world.rank} compiles" in said
    return torch.ones(2)


def trained(world, compile, cast, steps=4):
    torch.manual_seed(0)
    parallel = DistributedDataParallel(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)))

    class Cast(nn.Module):
        """A model that takes any dtype."""

        def forward(self, x):
            return parallel(x.float()).square().mean()

    model, losses = compile(Cast()), []
    for n in range(steps):
        loss = model(cast(torch.linspace(-1, 1, 12).reshape(3, 4) * (n + 1), n))
        loss.backward()
        losses.append(loss)
    return losses, [p.grad for p in parallel.parameters()]


@setup
def another_dtype_on_one_rank(world, compile):
    return trained(world, compile, lambda x, n: x.double() if world.rank and n == 2 else x)


@setup
def another_dtype_on_one_rank_and_guard_collectives(world, compile):
    with guard_collectives():
        return trained(world, compile, lambda x, n: x.double() if world.rank and n == 2 else x)


def fails_on(rank, calls):
    """A backend for `dynamo_lite.compile` that raises on one rank; the graphs of the others note that they are called."""

    def backend(graph, example_inputs):
        if distributed.get_rank() == rank:
            raise ValueError("this rank cannot compile")

        def call(*args):
            calls.append(graph)
            return graph.forward(*args)

        return call

    return backend


def is_eager(compile):
    """Whether a set-up is run without a compiler."""
    return compile(is_eager) is is_eager


def with_failing_backend(world, compile, agreement):
    """Rank 1 runs its graph without the backend."""
    if is_eager(compile):
        return [mean_over_ranks(x, world.group) for x in inputs(world)]
    calls = []
    with agreement:
        compiled = dynamo_lite.compile(mean_over_ranks, backend=fails_on(1, calls))
        results = [compiled(x, world.group) for x in inputs(world)]
    assert len(calls) == (0 if world.rank else 5)
    return results


@setup
def a_backend_that_fails_on_one_rank(world, compile):
    return with_failing_backend(world, compile, contextlib.nullcontext())


@setup
def a_backend_that_fails_on_one_rank_and_guard_collectives(world, compile):
    return with_failing_backend(world, compile, guard_collectives())


def with_error(world, compile, agreement, n_raised, n_calls):
    """Rank 1 raises, and its program goes on eagerly."""
    if is_eager(compile):
        return [mean_over_ranks(x, world.group) for x in inputs(world)]
    calls, results, raised = [], [], 0
    compiled = dynamo_lite.compile(mean_over_ranks, backend=fails_on(1, calls))
    with agreement, config.patch(suppress_errors=False):
        for x in inputs(world):
            try:
                results.append(compiled(x, world.group))
            except dynamo_lite.exc.BackendCompilerFailed:
                raised += 1
                results.append(mean_over_ranks(x, world.group))
    assert (raised, len(calls)) == ((n_raised, 0) if world.rank else (0, n_calls))
    return results


@setup
def an_error_of_one_rank(world, compile):
    return with_error(world, compile, contextlib.nullcontext(), 5, 5)


@setup
def an_error_of_one_rank_and_guard_collectives(world, compile):
    """The others give their version up, and nobody tries again."""
    return with_error(world, compile, guard_collectives(), 1, 0)


@setup
def a_slow_rank(world, compile):
    """The others wait for it, where eager execution does."""
    results, compiled = [], compile(mean_over_ranks, fullgraph=True)
    with guard_collectives():
        for n, x in enumerate(inputs(world)):
            time.sleep(0.5 if world.rank and n % 2 else 0)
            results.append(compiled(x, world.group))
    return results


def rank_that_dies(rank, store, votes, answers):
    """One of two processes. The second one ends in the middle of a training; the first one answers with the error, and how long it took."""
    torch.set_num_threads(1)
    timeout = datetime.timedelta(seconds=20)
    distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=2, timeout=timeout)
    parallel = DistributedDataParallel(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)))
    model = dynamo_lite.compile(parallel, backend="aot_eager")
    with guard_collectives() if votes else contextlib.nullcontext():
        for n in range(4):
            if rank and n == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            started = time.monotonic()
            try:
                model(torch.ones(3, 4)).sum().backward()
            except RuntimeError as error:
                answers.put((n, str(error), time.monotonic() - started))
                return


@setup
def a_rank_that_does_not_call(world, compile):
    """The last one: what the ranks agree through is broken afterwards."""
    compiled = compile(lambda x: x + 1)
    x = torch.ones(2)
    with guard_collectives():
        compiled(x)
        compiled(x)
        distributed.distributed_c10d._set_pg_timeout(datetime.timedelta(seconds=2), group_of_ranks())
        if world.rank == 0 and not is_eager(compile):
            try:
                compiled(x)
            except RuntimeError as error:
                assert "rank 0 has asked the others in vain" in str(error) and "faults.py" in str(error)
            else:
                raise AssertionError("no error")
        distributed.barrier()
    return compiled(x)
