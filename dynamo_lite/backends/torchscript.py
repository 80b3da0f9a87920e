"""The backend `torchscript`: the graph traced by `torch.jit` and optimised for inference.

Input: a graph as `registry` describes it, with static sizes. Output: a callable on the flat inputs. Raises NotImplementedError for graphs
with symbolic sizes, whose trace would hold the sizes of the example.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dynamo_lite.messages import ignored

from .requirements import Requirements

if TYPE_CHECKING:
    from torch.fx import GraphModule


def torchscript(gm: GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    """Trace, freeze constants, fuse."""
    import torch

    if any(not isinstance(value, torch.Tensor) for value in example_inputs) or _is_dynamic(gm):
        raise NotImplementedError("symbolic sizes in TorchScript")
    copies = [value.detach().clone(memory_format=torch.preserve_format) for value in example_inputs]
    # What is ignored are deprecations of torch.jit, and its remarks on constants.
    with ignored(), torch.no_grad(), torch.random.fork_rng():
        traced = torch.jit.trace(gm.eval(), tuple(copies), check_trace=False, strict=False)
        return _as_tuple(torch.jit.optimize_for_inference(torch.jit.freeze(traced.eval())))


def _as_tuple(module: Any) -> Callable[..., Any]:
    """Tracing makes one tensor of a tuple of one where it is the whole result."""

    def run(*inputs: Any) -> tuple[Any, ...]:
        found = module(*inputs)
        return found if isinstance(found, tuple) else (found,)

    return run


def _is_dynamic(gm: GraphModule) -> bool:
    import torch

    fakes = (node.meta.get("example_value") for node in gm.graph.find_nodes(op="placeholder"))
    return any(isinstance(d, torch.SymInt) for fake in fakes if isinstance(fake, torch.Tensor) for d in fake.shape)


torchscript.requirements = Requirements()
