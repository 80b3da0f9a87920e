"""One program under one engine: is what it computes equal to eager execution, in how many graphs, with which breaks?

Input: a library's module and the name of a program of it. Output: a record of plain values.
Invariant: every run builds the program anew from the same random numbers; compared are the results of two calls, the gradients of
parameters and arguments, and the random number that comes next.
"""

from __future__ import annotations

import importlib.metadata
import sys
import traceback
import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
import torch._dynamo
from torch.utils import _pytree as pytree

import dynamo_lite
from dynamo_lite.record import log
from examples.models import import_torchvision

from .program import Programs

dynamo_lite.config.cache = False  # what is measured here is capture
import_torchvision()  # first: torch need not be what torchvision's operators were built for

Record = dict[str, Any]
CALLS = 2
TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}
SHOWN = 300  # characters of a text


class Counter:
    """A backend that counts the graphs that it is given."""

    def __init__(self, inner: Callable[..., Any]) -> None:
        self.inner = inner
        self.graphs = 0

    def __call__(self, gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Any:
        self.graphs += 1
        return self.inner(gm, example_inputs)


def forward_only(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    return gm.forward


def library(name: str) -> Programs:
    warnings.simplefilter("ignore")
    return import_module(f"benchmarks.libraries.{name}").programs


def measured(name: str) -> Record:
    """What the file of results holds for a library."""
    package = library(name).package
    return {"package": package, "version": importlib.metadata.version(package), "programs": measure(name)}


def measure(name: str) -> dict[str, Record]:
    """The records of a library's programs, by name."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    records = {}
    for program, build in library(name).items():
        records[program] = measure_program(build)
        print(name, program, records[program], flush=True)
    return records


def measure_program(build: Callable[[], Any]) -> Record:
    try:
        expected = outcome(build, lambda fn: fn)
    except Exception as error:
        return {"eager": _text(error)}
    return {
        "dynamo_lite": _compared(expected, build, _ours(forward_only)),
        "aot_eager": _compared(expected, build, _ours(dynamo_lite.lookup_backend("aot_eager"))),
        "torch.compile": _compared(expected, build, _torchs),
    }


def _ours(inner: Callable[..., Any]) -> Callable[[], Any]:
    def engine() -> Any:
        dynamo_lite.reset()
        log.reset()
        counter = Counter(inner)
        return lambda fn: dynamo_lite.compile(fn, backend=counter), counter, lambda: [_where(b) for b in log.breaks()]

    return engine


def _where(record: Any) -> str:
    line = record.user_frame.location if record.user_frame else "?"
    return f"{_within(line)} {record.reason}"[:SHOWN]


def _within(line: str) -> str:
    """A line without the directory that the library, or Python, is in."""
    for directory in sorted(filter(None, sys.path), key=len, reverse=True):
        line = line.removeprefix(f"{directory}/")
    return line


def _torchs() -> Any:
    torch._dynamo.reset()
    counters = torch._dynamo.utils.counters
    counters.clear()
    counter = Counter(forward_only)

    def breaks() -> list[str]:
        return [str(reason).partition("\n")[0][:SHOWN] for reason in counters["graph_break"]]

    return lambda fn: torch.compile(fn, backend=counter), counter, breaks


def _compared(expected: Any, build: Callable[[], Any], engine: Callable[[], Any]) -> Record:
    compile_it, counter, breaks = engine()
    try:
        difference = differs(expected, outcome(build, compile_it))
    except Exception as error:
        difference = _text(error)
    return {"equal": difference is None, "difference": difference, "graphs": counter.graphs, "breaks": breaks()}


def _text(error: Exception) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error}"[:SHOWN] + f" ({last.filename.rpartition('/')[2]}:{last.lineno})"


def outcome(build: Callable[[], Any], compile_it: Callable[..., Any]) -> list[Any]:
    """What two calls compute."""
    torch.manual_seed(0)
    fn, args = build()
    modules = [value for value in (fn, getattr(fn, "__self__", None), *args) if isinstance(value, torch.nn.Module)]
    parameters = [p for module in modules for p in module.parameters()]
    compiled = compile_it(fn)
    seen = []
    for i in range(CALLS):
        torch.manual_seed(i)
        given = pytree.tree_map_only(torch.Tensor, _copy, args)
        result = compiled(*given)
        tensors = [t for t in pytree.tree_leaves(result) if isinstance(t, torch.Tensor)]
        for parameter in parameters:
            parameter.grad = None
        wanted = [t for t in tensors if t.requires_grad]
        if wanted:
            sum(t.abs().square().sum() for t in wanted).backward()
        leaves = [t for t in pytree.tree_leaves(given) if isinstance(t, torch.Tensor)]
        grads = [None if p.grad is None else p.grad.clone() for p in (*leaves, *parameters)]
        seen.append((pytree.tree_map_only(torch.Tensor, torch.clone, result), leaves, grads, torch.rand(1)))
    return seen


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    if isinstance(tensor, torch.nn.Parameter):
        return tensor
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


def differs(expected: Any, found: Any) -> str | None:
    """The first difference, or None."""
    ours, theirs = pytree.tree_flatten(expected), pytree.tree_flatten(found)
    if str(ours[1]) != str(theirs[1]):
        return f"another structure: {theirs[1]}"[:SHOWN]
    for one, other in zip(ours[0], theirs[0], strict=True):
        if type(one) is not type(other):
            return f"a {type(other).__name__} for a {type(one).__name__}"
        if isinstance(one, torch.Tensor):
            if one.requires_grad != other.requires_grad:
                return f"requires_grad is {other.requires_grad}"
            try:
                torch.testing.assert_close(other, one, equal_nan=True, **TOLERANCE)
            except AssertionError as error:
                return str(error).replace("\n", " ")[:SHOWN]
        elif isinstance(one, int | float | str) and one != other and one == one:
            return f"{other!r} for {one!r}"[:SHOWN]
    return None
