"""Runs set-ups in two processes, or four, that form a process group, eagerly and compiled, and compares.

Input: names of set-ups, an engine (`dynamo_lite` or `torch`) and a backend. Output: for each set-up, one `Outcome` of each rank.
Invariant: a set-up is compared with its own eager run in the same process. A rank that raises or hangs ends the run after `LIMIT` seconds.
"""

import dataclasses
import datetime
import importlib
import pathlib
import queue
import tempfile
import time
import traceback
import warnings

import torch
from torch import distributed

LIMIT = 600
WORLD = 2
TABLES = ("collectives", "setups", "trainings")


@dataclasses.dataclass
class Outcome:
    """`error`: what was raised, or in what the results differ; empty if all is well. `graphs`: compiled ones, of `operators` operators
    together. `breaks`: their reasons."""

    error: str
    graphs: int
    operators: int
    breaks: list


@dataclasses.dataclass
class World:
    """What a set-up sees of its process. `steps`: those that a training takes."""

    rank: int
    size: int
    group: object
    mesh: object
    steps: int


def run(names, engine="dynamo_lite", backend="eager", tables=TABLES, limit=LIMIT, size=WORLD, steps=4):
    """Name of a set-up → the outcomes, by rank. `limit`: seconds that a collective may take; `size`: the number of processes, 2 or 4.
    Raises RuntimeError if a process dies or does not answer."""
    context = torch.multiprocessing.get_context("spawn")
    answers = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        store = f"file://{pathlib.Path(folder) / 'store'}"
        arguments = (size, steps, store, list(names), engine, backend, tables, limit, answers)
        processes = [context.Process(target=work, args=(rank, *arguments), daemon=True) for rank in range(size)]
        for process in processes:
            process.start()
        try:
            found = dict(_answer(answers, processes) for _ in processes)
        finally:
            for process in processes:
                process.join(5 if process.exitcode is None else 0)
                process.kill()
    for outcomes in found.values():
        if isinstance(outcomes, str):
            raise RuntimeError(outcomes)
    return {name: [found[rank][name] for rank in range(size)] for name in names}


def _answer(answers, processes):
    """The next one. Raises RuntimeError if there is none for so long, or a process has died."""
    started = time.monotonic()
    while time.monotonic() - started < LIMIT:
        try:
            return answers.get(timeout=1)
        except queue.Empty:
            for rank, process in enumerate(processes):
                if process.exitcode:
                    raise RuntimeError(f"rank {rank} ended with {process.exitcode}") from None
    raise RuntimeError(f"no answer after {LIMIT} s")


def work(rank, size, steps, store, names, engine, backend, tables, limit, answers):
    """What one process does."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    try:
        timeout = datetime.timedelta(seconds=limit)
        distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=size, timeout=timeout)
        known = {}
        for table in tables:
            module = importlib.import_module(f"tests.distributed.{table}")
            known.update(module.SETUPS if size == WORLD else getattr(module, "IN_FOUR", {}))
        mesh = distributed.device_mesh.init_device_mesh("cpu", (size,), mesh_dim_names=("dp",))
        world = World(rank, size, distributed.new_group(list(range(size))), mesh, steps)
        outcomes = {name: outcome(known[name], world, engine, backend) for name in names}
        distributed.barrier()
        answers.put((rank, outcomes))
        distributed.destroy_process_group()
    except BaseException:
        answers.put((rank, traceback.format_exc()))


def outcome(setup, world, engine, backend):
    """One set-up, eagerly and compiled."""
    compiler = ENGINES[engine](backend)
    results = []
    for compile in (lambda target, **options: target, compiler.compile):
        torch.manual_seed(world.rank)
        try:
            results.append(snapshot(setup(world, compile)))
        except Exception as error:
            results.append(error)
    raised = [isinstance(result, Exception) for result in results]
    if any(raised):
        same = all(raised) and type(results[0]) is type(results[1])
        difference = (
            ""
            if same
            else " | ".join(f"{type(r).__name__}: {r}" if isinstance(r, Exception) else "fine" for r in results)
        )
    else:
        difference = compare(*results)
    return Outcome(difference, compiler.counter.frame_count, compiler.counter.op_count, compiler.breaks())


class DynamoLite:
    """Compiles with this package."""

    def __init__(self, backend):
        import dynamo_lite
        from dynamo_lite.testing import CompileCounterWithBackend

        self.package = dynamo_lite
        dynamo_lite.reset()
        dynamo_lite.counters.clear()
        self.counter = CompileCounterWithBackend(backend)

    def compile(self, target, **options):
        """`target` compiled."""
        return self.package.compile(target, backend=self.counter, **options)

    def breaks(self):
        """The reasons of the breaks so far."""
        return list(self.package.counters["graph_break"])


class Torch:
    """Compiles with torch.compile."""

    def __init__(self, backend):
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        self.counter = importlib.import_module("torch._dynamo.testing").CompileCounterWithBackend(backend)

    def compile(self, target, **options):
        """`target` compiled."""
        return torch.compile(target, backend=self.counter, **options)

    def breaks(self):
        """The reasons of the breaks so far."""
        return [str(reason).split("\n")[0] for reason in torch._dynamo.utils.counters["graph_break"]]


ENGINES = {"dynamo_lite": DynamoLite, "torch": Torch}


def snapshot(value):
    """Results as plain tensors that nothing changes later."""
    if isinstance(value, torch.Tensor):
        value = value.full_tensor() if hasattr(value, "full_tensor") else value
        value = value.wait() if hasattr(value, "trigger_wait") else value
        return value.detach().clone()
    if isinstance(value, dict):
        return {name: snapshot(item) for name, item in value.items()}
    return [snapshot(item) for item in value] if isinstance(value, list | tuple) else value


def compare(expected, got):
    """In what results differ; empty if in nothing."""
    try:
        torch.testing.assert_close(got, expected)
    except AssertionError as error:
        return str(error).split("\n\n")[0]
    return ""
