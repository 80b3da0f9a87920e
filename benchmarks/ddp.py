"""Steps of DistributedDataParallel in two processes over a slow link: graphs cut at the buckets of gradients, and whole ones.

Input: layers whose gradients fill several buckets; an all-reduce that takes `LINK` seconds per MiB longer than it does on this machine,
one bucket after the other. Output: a table, and `results/ddp-DATE.json` with `.md`: milliseconds per step of eager execution, of
`dynamo_lite` and torch.compile, both with `optimize_ddp` and without, in turns in one pair of processes; when in the backward pass each
all-reduce began, from `torch.profiler`, as a share of the time from its first node to the end of its last.

    python -m benchmarks.ddp [--backend inductor] [--no-save]
"""

from __future__ import annotations

import argparse
import json
import queue
import statistics
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import distributed, nn

from .common import RESULTS, surroundings, take_turns

Record = dict[str, Any]
WORLD, WIDTH, LAYERS, BATCH = 2, 384, 8, 64
BUCKET = 4  # MiB; a layer has 4.5 MiB of gradients
LINK = 0.005  # seconds per MiB
ROUNDS, STEPS = 16, 4
ENGINES = ("eager", "dynamo_lite", "dynamo_lite, whole", "torch.compile")


class Layer(nn.Module):
    """Up and down again, with a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Link:
    """The way between the processes: all-reduces that take longer, one after the other."""

    def __init__(self) -> None:
        self.waiting: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
        threading.Thread(target=self._work, daemon=True).start()

    def all_reduce(
        self, state: object, bucket: distributed.GradBucket
    ) -> torch.futures.Future[torch.Tensor]:  # DDP wants these annotations
        done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        work = distributed.all_reduce(bucket.buffer().div_(WORLD), async_op=True)
        self.waiting.put((bucket.buffer(), work, done))
        return done

    def _work(self) -> None:
        while True:
            buffer, work, done = self.waiting.get()
            work.wait()
            time.sleep(LINK * buffer.nbytes / 2**20)
            done.set_result(buffer)


Link.all_reduce.__annotations__.update(bucket=distributed.GradBucket, **{"return": torch.futures.Future[torch.Tensor]})


class Training:
    """A module that is trained under one engine."""

    def __init__(self, engine: str, backend: str) -> None:
        torch.manual_seed(0)
        self.module = nn.Sequential(*[Layer() for _ in range(LAYERS)])
        parallel = nn.parallel.DistributedDataParallel(self.module, bucket_cap_mb=BUCKET)
        parallel.register_comm_hook(None, Link().all_reduce)
        self.run = compiled(engine, parallel, backend)
        self.optimizer = torch.optim.SGD(self.module.parameters(), lr=0.01)
        generator = torch.Generator().manual_seed(distributed.get_rank())
        self.x = torch.randn(BATCH, WIDTH, generator=generator)
        self.losses: list[float] = []

    def step(self) -> None:
        loss = self.run(self.x).square().mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.losses.append(loss.item())

    def seconds(self) -> float:
        """Of one step."""
        distributed.barrier()
        started = time.perf_counter()
        for _ in range(STEPS):
            self.step()
        return (time.perf_counter() - started) / STEPS

    def all_reduces(self) -> list[float]:
        """When in the backward pass of a step each all-reduce began."""
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
            self.step()
        events = list(profiler.events() or ())
        nodes = [e.time_range for e in events if e.name.startswith("autograd::engine::evaluate_function")]
        first, last = min(node.start for node in nodes), max(node.end for node in nodes)
        begun = sorted(e.time_range.start for e in events if e.name == "c10d::allreduce_")
        return [(start - first) / (last - first) for start in begun]


def compiled(engine: str, module: nn.Module, backend: str) -> Callable[..., Any]:
    """The module under an engine, after its first step."""
    name, _, whole = engine.partition(", ")
    if name == "eager":
        return module
    import dynamo_lite

    ours = name == "dynamo_lite"
    run = (dynamo_lite if ours else torch).compile(module, backend=backend)
    with (dynamo_lite.config if ours else torch._dynamo.config).patch(optimize_ddp=not whole):
        run(torch.zeros(BATCH, WIDTH)).sum().backward()
    module.zero_grad()
    return run


def measure(rank: int, store: str, backend: str, answers: Any) -> None:
    """What one process does; that of rank 0 answers with times, places of all-reduces and losses."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=WORLD)
    trainings = {engine: Training(engine, backend) for engine in ENGINES}
    for training in trainings.values():
        training.step()  # DDP makes its buckets
    times = take_turns({engine: training.seconds for engine, training in trainings.items()}, ROUNDS)
    begun = {engine: training.all_reduces() for engine, training in trainings.items()}
    if rank == 0:
        answers.put((times, begun, {engine: training.losses for engine, training in trainings.items()}))
    distributed.barrier()
    distributed.destroy_process_group()


HEADER = """| engine | ms per step | to eager | all-reduces began at, share of the backward pass | losses |
|---|---:|---:|---|---|"""


def rows(backend: str) -> list[Record]:
    """One per engine."""
    context = torch.multiprocessing.get_context("spawn")
    answers = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        arguments = (f"file://{folder}/store", backend, answers)
        processes = [context.Process(target=measure, args=(rank, *arguments)) for rank in range(WORLD)]
        for process in processes:
            process.start()
        times, begun, losses = answers.get()
        for process in processes:
            process.join()
    eager = statistics.median(times["eager"])
    return [
        {
            "engine": engine,
            "ms": 1e3 * statistics.median(times[engine]),
            "to eager": statistics.median(times[engine]) / eager,
            "all-reduces": begun[engine],
            "equal": torch.allclose(torch.tensor(losses[engine]), torch.tensor(losses["eager"]), rtol=1e-3),
        }
        for engine in ENGINES
    ]


def line(found: Record) -> str:
    begun = ", ".join(f"{share:.2f}" for share in found["all-reduces"])
    equal = "equal" if found["equal"] else "differ"
    return f"| {found['engine']} | {found['ms']:.1f} | {found['to eager']:.3f} | {begun} | {equal} |"


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--backend", default="inductor")
    parser.add_argument("--no-save", action="store_true", help="print only")
    options = parser.parse_args()
    found = rows(options.backend)
    ratio = found[1]["ms"] / found[3]["ms"]
    summary = f"dynamo_lite to torch.compile, both cut: {ratio:.3f}."
    table = "\n".join([HEADER, *map(line, found), f"\n{summary}"])
    print(table)
    if options.no_save:
        return
    about = surroundings(1)
    facts = ", ".join(f"{key} {value}" for key, value in about.items())
    setting = f"{LAYERS} layers, buckets of {BUCKET} MiB, {1e3 * LINK:.0f} ms per MiB, {WORLD} processes, backend {options.backend}"
    stem = RESULTS / f"ddp-{time.strftime('%Y%m%d')}"
    stem.with_suffix(".json").write_text(json.dumps({"environment": about, "rows": found}, indent=1) + "\n")
    stem.with_suffix(".md").write_text(f"# DistributedDataParallel\n\n{facts}; {setting}\n\n{table}\n")


if __name__ == "__main__":
    main()
