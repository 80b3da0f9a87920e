"""Steps that print and log between their operators: `config.stitch` off and on, beside torch.compile; microseconds per step.

The three take turns in one process, and must write the text of eager execution under `eager` (Inductor rounds differently; torch 2.13
loses the format of a number across a break). The ratio is that of stitched steps to torch.compile's, the result the median over the
rounds. Run it with `python -m benchmarks.stitch`.
"""

from __future__ import annotations

import contextlib
import io
import logging
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

import dynamo_lite
from dynamo_lite.record import log

from .common import finish, parse_options, row, take_turns

Step = Callable[[int, torch.Tensor], Any]

WIDTH, BATCH = 64, 32
STEPS = 20


def _layers() -> nn.Sequential:
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 8))


def evaluation() -> Step:
    """Loss and accuracy of a batch, in meters as people write them."""
    model, totals = _layers(), {"loss": 0.0, "right": 0, "seen": 0}

    @torch.no_grad()
    def step(i: int, x: torch.Tensor) -> Any:
        scores = model(x)
        labels = x[:, :8].argmax(1)
        loss = nn.functional.cross_entropy(scores, labels)
        totals["loss"] += loss.item() * len(x)
        totals["right"] += (scores.argmax(1) == labels).sum().item()
        totals["seen"] += len(x)
        print(f"batch {i:03d}: loss {totals['loss'] / totals['seen']:.4f}")
        return scores.softmax(1)

    return step


def training() -> Step:
    """A step of SGD by hand, which prints the loss and the norm of the gradient before the weights change."""
    weight = torch.zeros(WIDTH, 8)

    @torch.no_grad()
    def step(i: int, x: torch.Tensor) -> Any:
        target = x[:, :8]
        off = x @ weight - target
        print("step", i, f"loss {off.square().mean().item():.5f}")
        gradient = x.T @ off * (2 / len(x))
        norm = gradient.norm()
        print("gradient", round(1.0, 1), f"{norm.item():.3e}")
        weight.sub_(gradient * 0.05 / norm.clamp(min=1))
        return off

    return step


def policy() -> Step:
    """The losses of PPO, with the numbers that are usually logged."""
    model, fractions = _layers(), []
    logger = logging.Logger("ppo", logging.INFO)
    logger.addHandler(logging.NullHandler())

    @torch.no_grad()
    def step(i: int, x: torch.Tensor) -> Any:
        logits = model(x).log_softmax(1)
        ratio = (logits - logits.roll(1, 0)).exp()
        fractions.append(((ratio - 1).abs() > 0.2).float().mean().item())
        kl = ((ratio - 1) - ratio.log()).mean()
        logger.info("update %d: approximate kl %.5f", i, kl.item())
        advantage = x[:, :8] - x[:, :8].mean()
        loss = -torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
        entropy = -(logits.exp() * logits).sum(1).mean()
        logger.debug("entropy %s", entropy)
        print("loss", f"{loss.item():.4f}", "entropy", f"{entropy.item():.4f}")
        return loss - 0.01 * entropy

    return step


def sampling() -> Step:
    """Four steps of a sampler with a line of progress each."""
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH))

    @torch.no_grad()
    def step(i: int, x: torch.Tensor) -> Any:
        for k in range(4):
            noise = model(x)
            x = (x - 0.1 * noise).clamp(-3, 3)
            print("turn", k, f"deviation {x.std().item():.4f}", flush=True)
        return x

    return step


def monitored() -> Step:
    """A model whose layers report the mean of what they return."""
    layers = list(_layers())

    @torch.no_grad()
    def step(i: int, x: torch.Tensor) -> Any:
        for k, layer in enumerate(layers):
            x = layer(x)
            if i % 2 == 0:
                print("layer", k, x.mean())
        return x

    return step


PROGRAMS = (evaluation, training, policy, sampling, monitored)


def batches() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(BATCH, WIDTH, generator=generator) for _ in range(STEPS)]


def run(step: Step, given: list[torch.Tensor]) -> str:
    """All steps of one round; what they have written."""
    written = io.StringIO()
    with contextlib.redirect_stdout(written):
        for i, x in enumerate(given):
            step(i, x)
    return written.getvalue()


def per_step(step: Step, given: list[torch.Tensor]) -> float:
    start = time.perf_counter()
    run(step, given)
    return (time.perf_counter() - start) / len(given)


def sides(make: Callable[[], Step], backend: str) -> tuple[dict[str, Step], dict[str, int], bool]:
    """A program under each engine, warm; the lines where steps break; whether torch.compile writes the text of eager execution. Raises
    AssertionError where dynamo_lite does not."""
    given, made, breaks = batches(), {}, {}
    torch.manual_seed(0)
    eager = make()
    expected = [run(eager, given) for _ in range(3)]
    for name, stitch in (("broken", False), ("stitched", True)):
        torch.manual_seed(0)
        with dynamo_lite.config.patch(stitch=stitch):
            log.reset()
            made[name] = step = dynamo_lite.compile(make(), backend=backend, name=name)
            written = [run(step, given) for _ in range(3)]
            assert written == expected or backend != "eager", (make.__name__, name)
            breaks[name] = len({record.user_stack for record in log.breaks()})
    torch.manual_seed(0)
    made["torch.compile"] = step = torch.compile(make(), backend=backend)
    return made, breaks, [run(step, given) for _ in range(3)] == expected


def main() -> None:
    options = parse_options(__doc__.splitlines()[0])
    torch.set_num_threads(options.threads)
    rows = []
    for backend in ("eager", "inductor"):
        for make in PROGRAMS:
            torch.compiler.reset()
            dynamo_lite.reset()
            compiled, breaks, is_same = sides(make, backend)
            given = batches()
            timed = {name: partial(per_step, step, given) for name, step in compiled.items()}
            times = take_turns(timed, 5 if options.quick else 40)
            broken = statistics.median(times["broken"])
            more = {
                "broken µs": round(broken * 1e6, 1),
                "gain": round(broken / statistics.median(times["stitched"]), 2),
                "breaks": f"{breaks['broken']} → {breaks['stitched']}",
                "torch.compile's text": "same" if is_same else "differs",
            }
            rows.append(row(f"{backend}, {make.__name__}", times["stitched"], times["torch.compile"], **more))
    finish("stitch", "µs", 1e6, rows, options)


if __name__ == "__main__":
    main()
