"""Operators of the program, of which only their registrations are known.

Input: an operator of the dispatcher, and what its rule for fake tensors returns. Output: a result as the operator's schema declares it;
whether compilers would lose the gradients of a call.
Invariant: a rule for fake tensors tells sizes and data types; what shares memory is what the schema says.
Mirrors `torch/_library`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._ops import OpOverload, OpOverloadPacket
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._pytree import tree_iter

EXACT_NAMESPACES = frozenset({"aten", "prims", "prim"})
"""Whose rules return what the operators do."""


def is_foreign(func: Any) -> bool:
    """Whether an operator is not torch's own."""
    return isinstance(func, OpOverload) and func.namespace not in EXACT_NAMESPACES


def as_declared(
    mode: FakeTensorMode, func: OpOverload, args: object, kwargs: object, result: object
) -> tuple[Any, bool]:
    """The result of a rule for fake tensors, and whether it was another one: a rule may return an argument, or one tensor twice, where the
    operator makes new ones."""
    seen = {_memory(t) for t in tree_iter((args, kwargs or {})) if isinstance(t, FakeTensor)}
    declared = func._schema.returns
    items = result if isinstance(result, tuple | list) and len(declared) == len(result) != 1 else [result]
    made = [
        item if known.alias_info is not None else _made_new(mode, item, seen)
        for item, known in zip(items, declared, strict=False)
    ]
    if all(new is old for new, old in zip(made, items, strict=False)):
        return result, False
    return (made[0] if items is not result else type(result)(made)), True


def _memory(tensor: FakeTensor) -> int:
    return tensor.untyped_storage()._cdata if tensor.layout is torch.strided else 0


def _made_new(mode: FakeTensorMode, result: Any, seen: set[int]) -> Any:
    """A result whose tensors are in memory of their own, which is added to what was `seen`."""
    if isinstance(result, tuple | list):
        items = [_made_new(mode, item, seen) for item in result]
        return result if all(new is old for new, old in zip(items, result, strict=True)) else type(result)(items)
    if not isinstance(result, FakeTensor) or result.layout is not torch.strided:
        return result
    memory = _memory(result)
    if memory in seen:
        with mode:
            return torch.empty_strided(result.shape, result.stride(), dtype=result.dtype, device=result.device)
    seen.add(memory)
    return result


def records_by_its_kernel(target: object) -> bool:
    """Whether the gradients of an operator are those of the operators that its kernel, a Python function, calls: nothing is registered for
    autograd. Compilers see no more than the operator."""
    return any(_has_python_kernel(op) and not _has_autograd(op) for op in _foreign_overloads(target))


def why_unseen(target: object) -> str | None:
    """Why AOTAutograd cannot have a graph with an operator in it: its results share memory with arguments, which it takes of torch's own
    operators alone; it has no results and changes nothing, as far as its schema says, and would be left out."""
    for op in _foreign_overloads(target):
        schema = op._schema
        if op.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd):
            continue
        if any(known.alias_info is not None for known in schema.returns):
            return f"{op} returns what shares memory with its arguments"
        if not schema.returns and not schema.is_mutable:
            return f"{op} has no results, and changes nothing that its schema tells of"
    return None


def _foreign_overloads(target: Any) -> list[OpOverload]:
    is_packet = isinstance(target, OpOverloadPacket)
    overloads = [getattr(target, name) for name in target.overloads()] if is_packet else [target]
    return list(filter(is_foreign, overloads))


def _has_python_kernel(op: OpOverload) -> bool:
    schema = op._schema
    name = schema.name.replace("::", "/") + (f".{schema.overload_name}" if schema.overload_name else "")
    return any(key.startswith(f"{name}/") for key in torch.library._impls)


def _has_autograd(op: OpOverload) -> bool:
    keys = torch._C.DispatchKey
    return any(
        op.has_kernel_for_dispatch_key(key)
        for key in (keys.CompositeImplicitAutograd, keys.AutogradCPU, keys.AutogradCUDA)
    )
