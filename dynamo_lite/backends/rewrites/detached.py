"""Results without gradients that share memory with results that have some.

Input: what AOTAutograd has found out about the results of a graph. Output: the same, where such a result is made a tensor object of its own
behind the compiled graph.
Invariant: a result that requires gradients in the graph requires them behind it. A compiler drops `detach`, which does nothing to it: its
code returns one object for `z.detach()` and for the base of `z.view(-1)`. AOTAutograd (torch 2.13) marks this object as not
differentiable, and the gradient of the view is lost.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from .patches import Substitute


def substitutes() -> Iterator[Substitute]:
    """For `Patches`."""
    from torch._functorch import aot_autograd

    yield Substitute(aot_autograd, "run_functionalized_fw_and_collect_metadata", _with_objects_of_their_own)


def _with_objects_of_their_own(original: Callable[..., Any]) -> Callable[..., Any]:
    def run_functionalized_fw_and_collect_metadata(f: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        results: list[Any] = []

        def watched(*args: Any) -> Any:
            results[:] = returned = f(*args)
            return returned

        def collect(*args: Any) -> Any:
            metadata = original(watched, **options)(*args)
            shared = _share_memory(results)
            results.clear()
            return _unaliased(metadata, shared) if shared else metadata

        return collect

    return run_functionalized_fw_and_collect_metadata


def _share_memory(results: list[Any]) -> set[int]:
    """The positions of results without gradients that share memory with one that has some."""
    from torch import Tensor
    from torch.multiprocessing.reductions import StorageWeakRef

    tensors = {i: result for i, result in enumerate(results) if isinstance(result, Tensor)}
    if len({tensor.requires_grad for tensor in tensors.values()}) < 2:
        return set()
    memory = {i: StorageWeakRef(tensor.untyped_storage()) for i, tensor in tensors.items()}
    with_gradients = {memory[i] for i, tensor in tensors.items() if tensor.requires_grad}
    return {i for i, tensor in tensors.items() if not tensor.requires_grad and memory[i] in with_gradients}


def _unaliased(metadata: Any, positions: set[int]) -> Any:
    """The metadata where these results count as views that autograd is not to know of."""
    from torch._functorch._aot_autograd.schemas import OutputType

    results = [
        dataclasses.replace(info, output_type=OutputType.unsafe_view_alias)
        if i in positions and info.output_type is OutputType.non_alias
        else info
        for i, info in enumerate(metadata.output_info)
    ]
    return dataclasses.replace(metadata, output_info=results)
