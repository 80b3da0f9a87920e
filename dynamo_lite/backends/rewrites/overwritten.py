"""What the backward pass needs of an input that the forward pass overwrites.

Input: the joint graph of AOTAutograd, and what its partitioner has found out about it. Output: the same graph, where the forward pass keeps
what is computed from such an input, and a copy of what the backward pass reads of the input itself.
Invariant: in a joint graph an input is what it was before the call. The partitioner (torch 2.13) may keep the input instead of what is
computed from it, to compute that again: in the backward pass, when the forward pass has written over it. Copies that the program makes of
the input don't help, Inductor takes them out of the joint graph. What is computed from other inputs may be computed again as before.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

from .patches import Substitute


def substitutes() -> Iterator[Substitute]:
    """For `Patches`."""
    from torch._functorch import partitioners

    yield Substitute(partitioners, "choose_saved_values_set", _with_old_values)


def _with_old_values(original: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    def choose_saved_values_set(joint_graph: Any, node_info: Any, memory_budget: float = 1) -> list[Any]:
        kept = [node for written in _overwritten(joint_graph) for node in _keep_reads(joint_graph, written, node_info)]
        saved = original(joint_graph, node_info, memory_budget=memory_budget)
        if memory_budget == 0:  # torch saves the inputs and nothing else; what nobody needs is dropped
            saved = [*saved, *(node for node in kept if node not in saved and _is_tensor(node))]
        return saved

    return choose_saved_values_set


def _overwritten(graph: Any) -> list[Any]:
    """The inputs that the forward pass writes to, in the graph or behind it."""
    import torch

    copies = graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default)
    placeholders = graph.find_nodes(op="placeholder")
    output = next(iter(graph.find_nodes(op="output")))
    behind = [getattr(result, "mutated_input", None) for result in output.meta.get("desc") or ()]
    by_graph = {copy.args[0] for copy in copies if copy.meta.get("partitioner_tag") != "must_be_in_backward"}
    return [
        node
        for node in placeholders
        if node in by_graph or (node.meta.get("desc") is not None and node.meta["desc"] in behind)
    ]


def _keep_reads(graph: Any, written: Any, node_info: Any) -> list[Any]:
    """Mark what reads an input: it is not to be computed again. What only the backward pass computes reads copies. The marked nodes."""
    import torch
    from torch.utils.checkpoint import CheckpointPolicy

    marked, memory = [], [written]
    for node in memory:  # the input and its views
        late = []
        for user in node.users:
            if user.op != "call_function" or _reads_no_elements(user, node) or _is_computed_twice(user):
                continue
            if not node_info.is_required_fw(user) or isinstance(user.meta.get("val"), torch.SymFloat):
                late.append(user)  # floats can't be kept
            elif _is_view(user):
                memory.append(user)
            else:
                marked.append(user)
        if late:
            marked.append(_copy(graph, node, late, node_info))
    for node in marked:
        node.meta["recompute"] = CheckpointPolicy.MUST_SAVE
    return marked


def _copy(graph: Any, node: Any, readers: list[Any], node_info: Any) -> Any:
    """A copy of the tensor that the forward pass makes for these readers."""
    import torch

    following = node.next
    while following.op == "placeholder":
        following = following.next
    with graph.inserting_before(following):
        copy = graph.call_function(torch.ops.aten.clone.default, (node,))
    copy.meta = {"val": node.meta["val"].clone(), "partitioner_tag": "is_forward"}
    for reader in readers:
        reader.replace_input_with(node, copy)
    # what the partitioner knows of each node of the forward pass
    node_info._required_fw_nodes.add(copy)
    node_info.fw_order[copy] = node_info.fw_order.get(node, 0)
    copy.dist_from_bw = 1
    return copy


def _reads_no_elements(user: Any, node: Any) -> bool:
    """Whether it asks for sizes, or writes."""
    schema = getattr(user.target, "_schema", None)
    return schema is not None and (
        schema.name.startswith("aten::sym_")
        or (schema.is_mutable and user.args[0] is node and node not in (*user.args[1:], *user.kwargs.values()))
    )


def _is_computed_twice(node: Any) -> bool:
    """Whether the program says so, by a checkpoint: eager execution reads what is there then, too."""
    from torch._functorch.partitioners import must_recompute

    return bool(must_recompute(node))


def _is_view(node: Any) -> bool:
    return node.target is operator.getitem or getattr(node.target, "is_view", False)


def _is_tensor(node: Any) -> bool:
    import torch

    return isinstance(node.meta.get("val"), torch.Tensor)
