"""One case, eagerly and compiled.

Input: a `cases.Case` and a backend. Output: a dictionary of plain values, as that of `tests.ops.check`: what differs, and what broke the
graph. Compared are results, or the exception; arguments, parameters, buffers and the state of optimisers afterwards; what shares memory;
gradients; random generators. With the backend `eager` all but optimisers has to be equal bit by bit, otherwise up to rounding.
"""

import copy
import dataclasses
import random
import warnings
from collections.abc import Callable
from typing import Any

import torch

import dynamo_lite
from dynamo_lite.backends.registry import lookup_backend
from dynamo_lite.record import log
from dynamo_lite.testing import identities
from tests.classes.cases import Case
from tests.helpers import seeds
from tests.ops.check import SEED, Observation, compared, gradients, tensors_in

TOLERANCE = 1e-5
ROUNDED = ("optim.", "lr_scheduler.")
"""Captured, optimisers of torch compute with tensors what they otherwise compute with numbers of Python: they ask `is_compiling()`."""


def tolerance_of(case: Case, backend: str) -> float:
    if case.name.startswith(ROUNDED):
        return 10 * TOLERANCE
    return 0.0 if backend == "eager" else TOLERANCE


def observe(case: Case, compiled: Callable[[Any], Any]) -> Observation:
    """Run a case; `compiled` turns its function into what is called."""
    seeds.seed(SEED)
    random.seed(SEED)
    program = case.make()
    call = compiled(program.function)
    seeds.seed(SEED)
    seen, results, states, generators = Observation(gradients=[]), [], [], []
    try:
        for arguments in program.calls:
            program.before()
            results.append(call(*arguments))
            generators.append(torch.get_rng_state())
            if not case.name.startswith(ROUNDED):
                leaves = [t for t in tensors_in([arguments, program.state()]) if t.requires_grad and t.is_leaf]
                seen.gradients.append(gradients(results[-1:], leaves))
            states.append(copy.deepcopy(program.state()))
    except Exception as error:
        seen.error = error
    seen.result = results
    seen.generators = torch.cat([*generators, torch.get_rng_state()]), random.getstate()
    seen.arguments = [program.calls, states]
    seen.shared = identities({"results": results, "arguments": program.calls, "state": program.state()})
    return seen


def check(case: Case, backend: str) -> dict[str, Any]:
    """Run a case eagerly and compiled, and compare."""
    failures: list[str] = []
    frames: list[Any] = []
    compiler = lookup_backend(backend)

    def watched(gm: Any, inputs: Any) -> Any:
        try:
            return compiler(gm, inputs)
        except Exception as error:
            failures.append(f"{type(error).__name__}: {error}"[:500])
            raise

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = observe(case, lambda function: function)
        stop = log.listen(frames.append)
        try:
            actual = observe(
                case, lambda function: dynamo_lite.compile(function, backend=watched, isolate_recompiles=True)
            )
        finally:
            stop()
        tolerance = tolerance_of(case, backend)
        problems = list(compared(expected, actual, tolerance, True))
        inherited = bool(problems) and backend != "eager" and _is_inherited(case, backend, expected)
        if problems and backend != "eager" and not inherited:
            zeros = dataclasses.replace(expected, gradients=_with_zeros(expected.gradients, actual.gradients))
            inherited = not list(compared(zeros, actual, tolerance, True))
    return {
        "problems": [] if inherited else problems,
        "inherited": problems if inherited else [],
        "breaks": [f"{b.code} {b.slug}: {b.context}"[:300] for frame in frames for b in frame.breaks],
        "internal": [f.skipped for f in frames if f.skipped and f.skipped.startswith("internal error")],
        "backend": failures,
        "raised": expected.error is not None,
        "seen": bool(frames),
    }


def _with_zeros(expected: Any, actual: Any) -> Any:
    """Gradients of eager execution with zeros for None where AOTAutograd has zeros: all results of a graph take part in its backward pass,
    also those that nothing was done with (docs/reference.md)."""
    if isinstance(expected, list | tuple) and isinstance(actual, list | tuple) and len(expected) == len(actual):
        return type(expected)([_with_zeros(one, other) for one, other in zip(expected, actual, strict=True)])
    is_zero = expected is None and isinstance(actual, torch.Tensor) and not actual.any()
    return actual if is_zero else expected


def _is_inherited(case: Case, backend: str, expected: Observation) -> bool:
    """Whether torch.compile with this backend has another outcome than eager execution, too: then the backend is to blame."""
    try:
        actual = observe(case, lambda function: torch.compile(function, backend=backend, dynamic=False))
        return bool(list(compared(expected, actual, tolerance_of(case, backend), True)))
    finally:
        torch._dynamo.reset()
