"""Results without gradients that share memory with results that have some.

Input: what AOTAutograd has found out about the results of a graph. Output: the same, where such a result is made again of the other one
behind the compiled graph, as a view without gradients.
Invariant: a result that requires gradients in the graph requires them behind it, and a change of one of the two counts in `_version` of the
other. A compiler drops `detach`, which does nothing to it: its code returns one object for `z.detach()` and for the base of `z.view(-1)`.
AOTAutograd (torch 2.13) marks this object as not differentiable, and the gradient of the view is lost. Of `z` and `z.detach()` it knows.
Results with the negative bit are left alone: a compiler computes what the bit stands for.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from .patches import Substitute


def substitutes() -> Iterator[Substitute]:
    """For `Patches`."""
    from torch._functorch import aot_autograd

    yield Substitute(aot_autograd, "run_functionalized_fw_and_collect_metadata", _with_views_of_results)


def _with_views_of_results(original: Callable[..., Any]) -> Callable[..., Any]:
    def run_functionalized_fw_and_collect_metadata(f: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        results: list[Any] = []

        def watched(*args: Any) -> Any:
            results[:] = returned = f(*args)
            return returned

        def collect(*args: Any) -> Any:
            metadata = original(watched, **options)(*args)
            infos = _as_views(results, metadata.output_info)
            results.clear()
            return metadata if infos is None else dataclasses.replace(metadata, output_info=infos)

        return collect

    return run_functionalized_fw_and_collect_metadata


def _as_views(results: list[Any], infos: list[Any]) -> list[Any] | None:
    """What is said of the results where some are made of others; None if there are none."""
    from torch import Tensor
    from torch._functorch._aot_autograd.schemas import OutputType
    from torch.multiprocessing.reductions import StorageWeakRef

    tensors = {i: result for i, result in enumerate(results) if isinstance(result, Tensor)}
    if len({tensor.requires_grad for tensor in tensors.values()}) < 2:
        return None
    with_gradients = collections.defaultdict(list)
    for i, tensor in tensors.items():
        if tensor.requires_grad:
            with_gradients[StorageWeakRef(tensor.untyped_storage())].append(i)
    made = list(infos)
    alone = (OutputType.non_alias, OutputType.alias_of_intermediate_base_is_user_output)
    for i, tensor in tensors.items():
        if tensor.requires_grad or tensor.is_neg() or infos[i].output_type not in alone:
            continue
        for j in with_gradients.get(StorageWeakRef(tensor.untyped_storage()), ()):
            other = tensors[j]
            if other.dtype != tensor.dtype:
                continue
            kind, base = infos[j].output_type, infos[j].base_idx
            if kind is OutputType.alias_of_intermediate_save_as_output:  # the first view of this base
                kind = OutputType.alias_of_intermediate
            elif kind is OutputType.non_alias and other._base is None:
                kind, base = OutputType.alias_of_intermediate_base_is_user_output, j
            if kind.name.startswith("alias_of_intermediate"):
                made[i] = dataclasses.replace(infos[i], output_type=kind, base_idx=base)
                break
    return made
