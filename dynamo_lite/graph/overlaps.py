"""Inputs that share memory with another one which the graph changes in place.

Input: a builder with its finished graph. Output: what is to be looked at when the graph is called, and a wrapper that does so.
Invariant: compilers take the inputs of a graph for tensors of different memory. Where a change of one would show in another, the graph runs
as it was captured.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from itertools import accumulate
from typing import Any, NamedTuple

import torch

from .checkpoints import runnable
from .detached import origins
from .values import TensorValue


class Reach(NamedTuple):
    """Input number `index`: how many bytes it reaches from its first element on, None if that differs from call to call."""

    index: int
    is_written: bool
    keeps_address: bool
    size: int | None


def reaches(builder: Any, static: str) -> list[Reach]:
    """The inputs, if one of several tensors is changed in place; else nothing. `static`: key of a placeholder's `meta`, true of
    parameters and buffers."""
    tensors = [(i, item) for i, item in enumerate(builder.inputs) if type(item.value) in _PLAIN]
    if len(tensors) < 2 or not builder.changed:
        return []
    written = set().union(*map(origins, builder.changed))
    found = []
    for i, item in tensors:
        subject = item.node.meta.subject
        if isinstance(subject, TensorValue) and subject.meta.layout is torch.strided:
            size = None if subject.meta.live else _size(item.value)
            keeps = size is not None and bool(item.node.meta.get(static, False))
            found.append(Reach(i, subject in written, keeps, size))
    return found if any(reach.is_written for reach in found) else []


_PLAIN = (torch.Tensor, torch.nn.Parameter)


def _size(tensor: torch.Tensor) -> int:
    if not tensor.numel():
        return 0
    last = sum([(n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride(), strict=True)])
    return (last + 1) * tensor.element_size()


class Span(NamedTuple):
    """Addresses from `start` up to `end`."""

    start: int
    end: int
    is_written: bool


class _Spans:
    """Spans, asked whether one of them meets another."""

    def __init__(self, spans: Iterable[Span]) -> None:
        spans = sorted(spans)
        self.starts = [span.start for span in spans]
        self.ends = list(accumulate([span.end for span in spans], max))

    def meet(self, span: Span) -> bool:
        before = bisect_left(self.starts, span.end)
        return before > 0 and self.ends[before - 1] > span.start


def _clash(spans: list[Span]) -> bool:
    """Whether one that is written to meets another."""
    end = written = 0
    for span in sorted(spans):
        if span.start < (end if span.is_written else written):
            return True
        end = max(end, span.end)
        if span.is_written:
            written = max(written, span.end)
    return False


class _Known(NamedTuple):
    """What was found for tensors that keep their addresses."""

    addresses: list[int]
    clash: bool
    every: _Spans
    written: _Spans


class Overlaps:
    """Tells for the arguments of a call whether a change of one shows in another."""

    def __init__(self, inputs: list[Reach]) -> None:
        self.fixed = [reach for reach in inputs if reach.keeps_address]
        self.others = [reach for reach in inputs if not reach.keeps_address]
        self.indices = [reach.index for reach in self.fixed]
        self.known = self._look([])

    def _look(self, args: Any) -> _Known:
        spans = [_span(reach, args) for reach in self.fixed] if args else []
        return _Known(
            [span.start for span in spans],
            _clash(spans),
            _Spans(spans),
            _Spans(span for span in spans if span.is_written),
        )

    def __call__(self, args: tuple[Any, ...]) -> bool:
        known = self.known
        if self.fixed and [_address(args[i]) for i in self.indices] != known.addresses:
            known = self.known = self._look(args)
        if known.clash:
            return True
        spans = [_span(reach, args) for reach in self.others]
        return any((known.every if s.is_written else known.written).meet(s) for s in spans) or _clash(spans)


_address = torch.Tensor.data_ptr


def _span(reach: Reach, args: Any) -> Span:
    tensor = args[reach.index]
    start = _address(tensor)
    return Span(start, start + (_size(tensor) if reach.size is None else reach.size), reach.is_written)


def apart(inputs: list[Reach], compiled: Callable[..., Any], gm: torch.fx.GraphModule) -> Callable[..., Any]:
    """What a compiler made of a graph, called where no change of an input shows in another one."""
    overlap = Overlaps(inputs)

    def run(*args: Any) -> Any:
        if not overlap(args):
            return compiled(*args)
        gm.real_recompile()
        return runnable(gm).forward(*args)

    return run
