"""Backends that count and record.

Input: graphs. Output: callables that run them; counts and graphs as attributes. Names and meanings are those of torch's testing helpers:
`frame_count` counts graphs handed to the backend, `op_count` the nodes in them that call something.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dynamo_lite.backends.aot import FLOATS, FUSES_BRANCHES, WRAPS_INTS, aot_autograd
from dynamo_lite.backends.handed import on_copies
from dynamo_lite.backends.inductor import recording
from dynamo_lite.backends.registry import lookup_backend
from dynamo_lite.backends.undefined_gradients import UNDEFINED


def count_ops(gm: torch.fx.GraphModule) -> int:
    """The nodes of a graph that call a function, a method or a module."""
    return sum(node.op.startswith("call_") for node in gm.graph.nodes)


class CompileCounter:
    """A backend that runs graphs eagerly and counts them (`frame_count`) and the operations in them (`op_count`)."""

    dynamo_lite_floats = "numbers"
    dynamo_lite_undefined_gradients = True

    def __init__(self) -> None:
        self.clear()

    def __call__(self, gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        self.frame_count += 1
        self.op_count += count_ops(gm)
        return gm.forward

    def clear(self) -> None:
        """Start counting at zero."""
        self.frame_count = 0
        self.op_count = 0


class CompileCounterWithBackend(CompileCounter):
    """Counts as `CompileCounter` does, keeps the graphs in `graphs`, and compiles them with another backend."""

    def __init__(self, backend: str | Callable[..., Any]) -> None:
        super().__init__()
        self.backend = backend
        self.dynamo_lite_floats = getattr(lookup_backend(backend), FLOATS, "items")
        self.dynamo_lite_fuses_branches = getattr(lookup_backend(backend), FUSES_BRANCHES, False)
        self.dynamo_lite_wraps_ints = getattr(lookup_backend(backend), WRAPS_INTS, False)
        self.dynamo_lite_undefined_gradients = getattr(lookup_backend(backend), UNDEFINED, False)

    def __call__(self, gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        super().__call__(gm, example_inputs)
        self.graphs.append(gm)
        return on_copies(lookup_backend(self.backend))(gm, example_inputs)

    def clear(self) -> None:
        """Start counting at zero and forget the graphs."""
        super().clear()
        self.graphs: list[torch.fx.GraphModule] = []


class EagerAndRecordGraphs:
    """A backend that runs graphs eagerly and keeps them in `graphs`."""

    dynamo_lite_floats = "numbers"
    dynamo_lite_undefined_gradients = True

    def __init__(self) -> None:
        self.graphs: list[torch.fx.GraphModule] = []

    def __call__(self, gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        self.graphs.append(gm)
        return gm.forward


class AotEagerAndRecordGraphs(EagerAndRecordGraphs):
    """A backend that runs AOTAutograd's graphs eagerly; keeps its inputs in `graphs`, the ATen graphs in `fw_graphs` and `bw_graphs`."""

    dynamo_lite_floats = "tensors"

    def __init__(self) -> None:
        super().__init__()
        self.fw_graphs: list[torch.fx.GraphModule] = []
        self.bw_graphs: list[torch.fx.GraphModule] = []

    def __call__(self, gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        super().__call__(gm, example_inputs)
        forward, backward = EagerAndRecordGraphs(), EagerAndRecordGraphs()
        forward.graphs, backward.graphs = self.fw_graphs, self.bw_graphs
        return aot_autograd(forward, backward, keep_inference_input_mutations=True)(gm, example_inputs)


class InductorAndRecordGraphs(EagerAndRecordGraphs):
    """A backend that compiles graphs with inductor; keeps its inputs in `graphs`, and inductor's ATen graphs in `inductor_graphs`."""

    dynamo_lite_floats = "tensors"

    def __init__(self) -> None:
        super().__init__()
        self.inductor_graphs: list[torch.fx.GraphModule] = []

    def __call__(self, gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        super().__call__(gm, example_inputs)
        return recording(gm, example_inputs, self.inductor_graphs)
