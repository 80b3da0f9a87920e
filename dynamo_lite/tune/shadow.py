"""Checks of a chosen backend while the program runs: every so many calls it is compared with eager execution, on copies of the inputs.

Input: a graph, the callable of its backend. Output: a callable that does the same, and leaves the backend for eager execution once that is
right and the backend is not, or faster beyond doubt. Invariant: a call that finds a wrong result does not return it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from dynamo_lite import _eval_frame

from .inputs import CannotCopy, Inputs
from .race import Runner, block, calls_of, is_faster, undisturbed
from .verify import Expected, wants_gradients

if TYPE_CHECKING:
    from torch.fx import GraphModule


def watched(
    gm: GraphModule, compiled: Callable[..., Any], every: int, demote: Callable[[str], None]
) -> Callable[..., Any]:
    """`compiled`, with one call of `every` checked. `demote` is told the reason, once."""
    watch = _Watch(gm, compiled, demote)
    numbers = itertools.count(1)

    def call(*inputs: Any) -> Any:
        if not next(numbers) % every and watch.run is not gm.forward:
            watch.check(inputs)
        return watch.run(*inputs)

    watch.run = compiled
    return call


class _Watch:
    def __init__(self, gm: GraphModule, compiled: Callable[..., Any], demote: Callable[[str], None]) -> None:
        self.run = compiled
        self.demote = demote
        self.eager, self.chosen = Runner("eager", gm.forward), Runner("", compiled)

    def check(self, inputs: Sequence[Any]) -> None:
        """Compare, and go over to eager execution if there is a reason."""
        region = _eval_frame.set_region(None)
        try:
            reason = self._reason(inputs)
        except CannotCopy:
            return
        finally:
            _eval_frame.set_region(region)
        if reason is not None:
            self.run = self.eager.compiled
            self.demote(reason)

    def _reason(self, inputs: Sequence[Any]) -> str | None:
        with undisturbed(inputs):
            copies = Inputs(inputs)
            expected = Expected(self.eager.compiled, copies, wants_gradients(inputs), others=False)
            try:
                problem = expected.problem_of(self.chosen.compiled)
            except Exception as error:
                return f"failed: {type(error).__name__}: {error}"
            if problem is not None:
                return problem
            for runner in (self.eager, self.chosen):
                if not runner.times:
                    runner.calls = calls_of(runner, expected)
                runner.times.append(block(runner, expected, runner.calls))
        if not is_faster(self.eager.times, self.chosen.times):
            return None
        return f"slower: {self.chosen.median * 1e6:.1f} µs where eager execution takes {self.eager.median * 1e6:.1f} µs"
