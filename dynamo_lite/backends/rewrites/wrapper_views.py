"""Outputs that are views of wrapper tensors (subclasses that consist of others), for AOTAutograd.

Input: a copy of a captured graph whose nodes have their fakes. Output: such outputs are put together anew, from the same parts.
Invariant: the parts of an output share the memory that they share in eager execution. AOTAutograd makes an output that is a view of an
input by `as_strided` of the whole tensor, which knows nothing of where the view's parts begin. It also takes the autograd history of one
output for that of all outputs that share its memory, and sees that inputs share memory only where their fakes do.
Mirrors `gen_alias_from_base` of `torch/_functorch/_aot_autograd/functional_utils.py`.
"""

from __future__ import annotations

from typing import Any


def put_together_anew(graph: Any) -> str | None:
    """Rewrite the outputs of a `GraphModule` that need it. Where one has to stay a view, the answer says so."""
    import torch
    from torch.utils._python_dispatch import is_traceable_wrapper_subclass

    def fake_of(node: Any) -> Any:
        fake = node.meta.get("example_value") if isinstance(node, torch.fx.Node) else None
        whole = isinstance(fake, torch.Tensor) and is_traceable_wrapper_subclass(fake)
        return fake if whole and fake.layout is torch.strided else None

    with torch._C.DisableTorchFunctionSubclass():
        output = graph.graph.output_node()
        results = list(output.args[0])
        fakes = [fake_of(node) for node in results]
        if not any(fake is not None for fake in fakes):
            return None
        sources = [fake for node in graph.graph.find_nodes(op="placeholder") if (fake := fake_of(node)) is not None]
        for i, (node, fake) in enumerate(zip(results, fakes, strict=True)):
            if fake is None or node.op == "placeholder":
                continue
            shared = [f for f in sources if _share_memory(f, fake)]
            others = [f for f in fakes if f is not None and f is not fake and _share_memory(f, fake)]
            if any(map(_is_changed, shared)) or (fake.requires_grad and (shared or others)):
                return f"a view of a {type(fake).__qualname__} leaves the graph"
            if shared:
                with graph.graph.inserting_before(output):
                    results[i] = graph.graph.call_function(anew, (node,))
                    results[i].meta = dict(node.meta)
        output.args = (type(output.args[0])(results),)
    return None


def anew(value: Any) -> Any:
    """A wrapper tensor of the same parts."""
    names, context = value.__tensor_flatten__()
    parts = {name: getattr(value, name) for name in names}
    return type(value).__tensor_unflatten__(parts, context, value.size(), value.stride())


def _share_memory(one: Any, other: Any) -> bool:
    return one.untyped_storage()._cdata == other.untyped_storage()._cdata


def _is_changed(fake: Any) -> bool:
    """Whether the capture has changed a fake, or a part of it, in place."""
    import torch
    from torch.utils._python_dispatch import is_traceable_wrapper_subclass

    if not isinstance(fake, torch.Tensor):
        return False
    if fake._version:
        return True
    return is_traceable_wrapper_subclass(fake) and any(
        _is_changed(getattr(fake, name)) for name in fake.__tensor_flatten__()[0]
    )
