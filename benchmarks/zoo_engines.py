"""The two engines that the zoo measures, and how it calls a model.

Input: an engine's name. Output: an object with what both have in common: compile, export, forget everything, and say what was compiled.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

import torch

import dynamo_lite
from dynamo_lite.backends.regions import compile_regions
from dynamo_lite.record import log
from dynamo_lite.testing import count_ops

from .steps import seed

Record = dict[str, Any]
ENGINES = ("dynamo_lite", "torch.compile")
BATCHES = (2, 3, 4)
TOLERANCE = 1e-5
SHOWN = 5  # differences and breaks of a model that are recorded
SHOWN_TEXT = 400  # characters of one


def forward_only(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    return gm.forward


class Counter:
    """A backend that counts what it is given."""

    def __init__(self, inner: Callable[..., Any]) -> None:
        self.inner = inner
        self.graphs = self.ops = 0

    def __call__(self, gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Any:
        self.graphs += 1
        self.ops += count_ops(gm)
        return self.inner(gm, example_inputs)


class Ours:
    """dynamo_lite."""

    compile = staticmethod(dynamo_lite.compile)

    def reset(self) -> None:
        dynamo_lite.reset()
        log.reset()

    def aot_eager(self) -> Callable[..., Any]:
        return dynamo_lite.lookup_backend("aot_eager")

    def export(self, model: torch.nn.Module, inputs: Record, dynamic_shapes: Any = None) -> Callable[..., Any]:
        """The model as one graph that stands by itself."""
        return dynamo_lite.export(model, dynamic_shapes=dynamic_shapes, **inputs)

    def frames(self) -> int:
        """How many frames have been compiled."""
        return len(log.snapshot())

    def guards(self, since: int) -> int:
        """The guards of the frames compiled since there were so many."""
        return sum(len(frame.guards) for frame in log.snapshot()[since:] if frame.guards is not None)

    def reasons(self, since: int) -> list[str]:
        """Why those frames were compiled again."""
        return [
            f"{reason[:SHOWN_TEXT]}; constants: {', '.join(map(str, frame.specializations)) or 'none'}"
            for frame in log.snapshot()[since:]
            if (reason := frame.recompile_reason) is not None
        ]

    def breaks(self) -> list[str]:
        return [
            f"{record.user_frame.location if record.user_frame else '?'} {record.reason}" for record in log.breaks()
        ]


class OurRegions(Ours):
    """dynamo_lite, with each graph cut into its equal regions wherever there are some."""

    @staticmethod
    def compile(model: Any, backend: Callable[..., Any]) -> Any:
        def in_regions(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Any:
            return compile_regions(gm, example_inputs, backend, wanted=True)

        return dynamo_lite.compile(model, backend=in_regions)


class Theirs:
    """torch.compile."""

    compile = staticmethod(torch.compile)

    def reset(self) -> None:
        import torch._dynamo

        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        torch._dynamo.utils.clear_compilation_metrics()

    def aot_eager(self) -> Callable[..., Any]:
        import torch._dynamo

        return torch._dynamo.lookup_backend("aot_eager")

    def export(self, model: torch.nn.Module, inputs: Record, dynamic_shapes: Any = None) -> Callable[..., Any]:
        return torch.export.export(model, (), inputs, dynamic_shapes=dynamic_shapes).module()

    def frames(self) -> int:
        import torch._dynamo

        return len(torch._dynamo.utils.get_compilation_metrics())

    def guards(self, since: int) -> int:
        import torch._dynamo

        return sum(metrics.guard_count or 0 for metrics in torch._dynamo.utils.get_compilation_metrics()[since:])

    def reasons(self, since: int) -> list[str]:
        import torch._dynamo

        metrics = torch._dynamo.utils.get_compilation_metrics()[since:]
        return [m.recompile_reason[:SHOWN_TEXT] for m in metrics if m.recompile_reason]

    def breaks(self) -> list[str]:
        import torch._dynamo

        return [" ".join(str(reason).split()) for reason in torch._dynamo.utils.counters["graph_break"]]


def engine_of(name: str) -> Any:
    return {"dynamo_lite": Ours, "regions": OurRegions, "torch.compile": Theirs}[name]()


def call(model: Callable[..., Any], inputs: Record) -> tuple[Any, float, float]:
    """The result of a call without autograd, its wall time and its processor time."""
    seed()
    gc.collect()
    wall, cpu = time.perf_counter(), time.process_time()
    with torch.no_grad():
        result = model(**inputs)
    return result, time.perf_counter() - wall, time.process_time() - cpu


def verdict(record: Record, found: list[str]) -> Record:
    if found:
        record.update({"pass": False, "differences": [text[:SHOWN_TEXT] for text in found[:SHOWN]]})
    return record
