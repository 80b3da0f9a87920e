"""Function modes of the program around a frame.

Input: the modes that the analysis has taken off torch's stack. Output: a wrapper that takes them off while the graph runs.
Invariant: a mode sees each torch function of the program once: the trace asks it, so the graph must not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch.fx import Node

from dynamo_lite.graph.core import modes
from dynamo_lite.graph.core.effect import GraphEffect, Wrapper

if TYPE_CHECKING:
    pass


@dataclass(eq=False)
class FunctionModes(GraphEffect):
    """`are_around`: whether there are any. A graph under modes is not kept (`serialized.write_ambient`)."""

    takes_boxed = True

    are_around: bool = False

    def finish(self, results: list[Node]) -> None:
        self.are_around = bool(modes.around())

    def call_wrapper(self) -> Wrapper | None:
        return modes.without_modes if self.are_around else None
