"""Checks: assumptions of a trace about tensor data, tested after the graph has run.

Input: conditions under which the program only raises. Output: one more result of the graph per device, true if one of the conditions is
not as the trace assumed; a wrapper of the compiled graph that reads it.
Invariant: a graph with checks can be undone. Nothing outlives it but the state of random generators, which is put back: when a check
fails, the frame starts again as ordinary Python, and raises what the program raises.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.fx import Node

from dynamo_lite.breaks import format_location
from dynamo_lite.config import config
from dynamo_lite.exc import Unsupported
from dynamo_lite.graph.core import modes
from dynamo_lite.graph.core.arguments import MODELS
from dynamo_lite.graph.core.effect import Compiled, GraphEffect, Wrapper
from dynamo_lite.graph.core.failure import CheckFailed, trace_left
from dynamo_lite.record import STATS

if TYPE_CHECKING:
    from torch.fx import GraphModule

    from dynamo_lite.graph.core.values import TensorValue
    from dynamo_lite.interp.frame import Frame
    from dynamo_lite.variables.protocol.base import VariableTracker

CHECKS = "dynamo_lite_checks"
"""In the `meta` of a graph module with checks: its `Conditions`."""

MAX_FAILURES = 4
"""A version whose checks have failed so many times is compiled anew, with a graph break at each of them."""

MAX_CHECKS = 1000
"""In one graph: a loop that only a check can end does not."""

DTYPES = frozenset(
    {
        torch.bool,
        *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
        *(torch.complex64, torch.complex128),
    }
)
"""Of tensors that all devices can compare."""

Place = tuple[tuple[str, int, int | None], ...]
"""File, line and column of a branch, and of the calls that led there."""


class Check(NamedTuple):
    """One condition: the node that is true if it fails, and the graph break that it saves, with its step."""

    node: Node
    device: torch.device
    place: Place
    saved: Unsupported


class Conditions(NamedTuple):
    """For backends that hand the graph on: how many of its last results are those of checks, and each condition by itself: the node that
    is true if it fails, and the program's line."""

    n_results: int
    failing: list[tuple[Node, str]]


@dataclass(eq=False)
class Checks(GraphEffect):
    """The checks of one graph. `failing`: the branches of the region whose checks have failed too often; None: a graph break is no way out,
    so they may fail for ever."""

    never_kept = {"found": "a graph with checks of data"}

    failing: set[Place] | None = None
    found: list[Check] = field(default_factory=list)
    n_results: int = 0
    failures: int = 0
    wrapper: Wrapper | None = None

    def __post_init__(self) -> None:
        if self.builder is not None:
            self.failing = self.builder.tr.failing_branches

    def __bool__(self) -> bool:
        return bool(self.found)

    # -- while the program is followed

    def accepts(self, value: TensorValue, place: Place) -> bool:
        """Whether the truth of a tensor can be a check here."""
        meta = value.meta
        return (
            config.capture_checks
            and self.builder.scope is None
            and not value.is_fake
            and modes.fake_mode() is None
            and (meta.interned or meta.live)
            and all(type(n) is int and n == 1 for n in meta.shape)
            and meta.dtype in DTYPES
            and meta.device.type != "meta"
            and (self.failing is None or place not in self.failing)
            and len(self.found) < MAX_CHECKS
        )

    def add(self, tx: Frame, vt: VariableTracker, expected: bool, place: Place, saved: Unsupported) -> None:
        """Take the truth of a tensor for granted, and have it tested after the graph; `saved` is the break that this saves."""
        builder = self.builder
        if not self.found:
            builder.tr.guards.global_state(self.hold, "the checks of this version have held so far")
        zero = MODELS.constant(tx, 0)
        fails = builder.call(tx, "call_function", torch.eq if expected else torch.ne, [vt, zero])
        node, meta = builder.node(fails.proxy), fails.proxy.meta
        if meta.ndim:
            node = builder.add("call_method", "reshape", (node, ()))
        self.found.append(Check(node, meta.device, place, saved))

    # -- when it is complete

    def prepare(self) -> Sequence[Node]:
        """One node for each device, true if a check fails."""
        combined: dict[torch.device, Node] = {}
        for check in self.found:
            other = combined.get(check.device)
            combined[check.device] = (
                check.node
                if other is None
                else self.builder.add("call_function", torch.logical_or, (other, check.node))
            )
        self.n_results = len(combined)
        return list(combined.values())

    def annotate(self, module: GraphModule) -> None:
        if self.found:
            module.meta[CHECKS] = Conditions(self.n_results, [(check.node, _line_of(check)) for check in self.found])

    def require_undoable(self, gm: GraphModule, args: list[Any], protect: Callable[[Any], Any]) -> None:
        """Raise the graph break that a check saves if something in the graph could not be undone: the last one before that, so that what
        comes after the break has no checks, else the first one after it."""
        order = {node: i for i, node in enumerate(gm.graph.nodes)}
        at = [order[check.node] for check in self.found]
        left = trace_left(gm, len(order), args, protect, first_check=at[0])
        if left.reason is None:
            self.wrapper = functools.partial(with_checks, self.n_results, left.random_devices)
            return
        before = [check for check, i in zip(self.found, at, strict=True) if i < left.node]
        saved = before[-1].saved if before else self.found[0].saved
        saved.context += f"; cannot be checked after the graph, which has {left.reason}"
        raise saved

    def call_wrapper(self) -> Wrapper | None:
        """Raises CheckFailed when a check has failed. There is none until `require_undoable` has looked at the graph."""
        return self.wrapper

    # -- when the graph has run

    def hold(self) -> bool:
        """The guard of a version with checks."""
        return self.failing is None or self.failures < MAX_FAILURES

    def failed(self) -> None:
        """Take note that a check has failed."""
        STATS.checks_failed += 1
        self.failures += 1
        if self.failing is not None and self.failures == MAX_FAILURES:
            self.failing.update(check.place for check in self.found)


def _line_of(check: Check) -> str:
    stack = check.saved.user_stack
    return "\n".join(line.strip() for line in format_location(stack[-1])[:2]) if stack else "a condition on data"


def with_checks(n: int, random_devices: tuple[torch.device, ...], compiled: Compiled) -> Compiled:
    """A graph whose last n results tell whether a check has failed. The random generators of these devices are put back then."""
    checked = _with_one_check(compiled) if n == 1 else _with_several_checks(n, compiled)
    return _with_random_state(random_devices, checked) if random_devices else checked


def _with_one_check(compiled: Compiled) -> Compiled:
    def checked(*args: Any) -> Any:
        results = compiled(*args)
        if results[-1]:
            raise CheckFailed
        return results

    return checked


def _with_several_checks(n: int, compiled: Compiled) -> Compiled:
    def checked(*args: Any) -> Any:
        results = compiled(*args)
        if any(results[-n:]):
            raise CheckFailed
        return results

    return checked


def _with_random_state(devices: tuple[torch.device, ...], checked: Compiled) -> Compiled:
    def run(*args: Any) -> Any:
        states = [_random_state(device) for device in devices]
        try:
            return checked(*args)
        except Exception:
            for device, state in zip(devices, states, strict=True):
                _set_random_state(device, state)
            raise

    return run


def _random_state(device: torch.device) -> torch.Tensor:
    return torch.get_rng_state() if device.type == "cpu" else _module(device).get_rng_state(device)


def _set_random_state(device: torch.device, state: torch.Tensor) -> None:
    if device.type == "cpu":
        torch.set_rng_state(state)
    else:
        _module(device).set_rng_state(state, device)


def _module(device: torch.device) -> Any:
    return getattr(torch, device.type)
