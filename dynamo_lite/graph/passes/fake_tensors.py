"""`FakeTensor`s of the program in a graph: see `inputs.fake_inputs`.

Input: the first of them that comes in, or a `FakeTensorMode` of the program around the frame. Output: a mark on the module.
Invariant: no compiler gets such a graph: its tensors have no data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import GraphModule

from dynamo_lite.graph.core.effect import GraphEffect
from dynamo_lite.record import AS_CAPTURED, OF_FAKES

if TYPE_CHECKING:
    from dynamo_lite.guards.ir import GuardNode


@dataclass(eq=False)
class FakeTensors(GraphEffect):
    """`are_there`: whether the graph computes with them. `first`: the path of one that has come in, and itself."""

    are_there: bool = False
    first: tuple[GuardNode, FakeTensor] | None = None

    def meet(self) -> None:
        """From now on the graph computes with them."""
        self.are_there = self.builder.propagator.allows_any_device = True

    def annotate(self, module: GraphModule) -> None:
        if self.are_there:
            module.meta[OF_FAKES] = module.meta[AS_CAPTURED] = "FakeTensors of the program have no data"
