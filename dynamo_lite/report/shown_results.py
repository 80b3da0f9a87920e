"""What the code around an exported graph gets in the place of the graph's results.

Input: the graph's result nodes. Output: one object each, which shows where in the result of the program it ends up.
Invariant: such an object can be put into containers, and nothing else: whatever would be made of it (a text, a key, an array) would be made
while the program is exported, and be a constant of the exported graph. So each use raises `Used`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import Node
from torch.utils._pytree import TreeSpec

DECIDES = "decides by it which of two objects it returns or keeps"
"""Only a branch on data asks a result for its truth behind the graph."""

USES = {
    "makes a text": "str repr format",
    "makes a key of a dictionary or an item of a set": "hash",
    "needs the number": "index int float complex round trunc floor ceil",
    DECIDES: "bool",
    "compares it": "eq ne lt le gt ge",
    "goes through its items": "len iter next contains getitem setitem delitem reversed",
    "calls it": "call",
    "computes with it": "neg pos abs invert "
    + " ".join(
        f"{name} r{name}"
        for name in "add sub mul truediv floordiv mod divmod pow and or xor lshift rshift matmul".split()
    ),
    "enters it": "enter exit",
}
"""What a program does when it calls one of these special methods."""


ATTRIBUTES = dict.fromkeys(("detach", "numpy", "__array__"), "makes an array of numpy of it")
"""What a program does of which the code behind the graph reads one of these attributes."""


class Used(Exception):
    """The code behind the graph has used a result of it. `args`: what it does."""


def _refusing(use: str) -> Any:
    def refuse(self: object, *args: object) -> Any:
        raise Used(use)

    return refuse


def _getattribute(self: object, name: str) -> Any:
    if name == "__class__":
        return type(self)
    raise Used(ATTRIBUTES.get(name, f"makes something of it by its attribute {name}"))


def _setattr(self: object, name: str, *value: object) -> None:
    raise Used(f"sets its attribute {name}")


_METHODS = {f"__{name}__": _refusing(use) for use, names in USES.items() for name in names.split()}
_METHODS |= {"__getattribute__": _getattribute, "__setattr__": _setattr, "__delattr__": _setattr}

Shown: Any = type("Shown", (), {"__slots__": (), **_METHODS})

# `torch.Size` takes nothing for an item but ints and these.
ShownInt: Any = type("ShownInt", (torch.SymInt,), {"__init__": lambda self: None, **_METHODS})


def shown(node: Node) -> Any:
    """What stands for the result of a node."""
    return ShownInt() if isinstance(node.meta.get("example_value"), torch.SymInt) else Shown()


def is_shown(value: object) -> bool:
    """Whether something stands for a result of a graph."""
    return type(value) is Shown or type(value) is ShownInt


def is_in_context(spec: TreeSpec) -> bool:
    """Whether a tree has what stands for a result in what it is made again with, beside its leaves, through containers and attributes."""
    specs = [spec]
    for inner in specs:
        specs += inner.children()
    seen: dict[int, object] = {}
    pending: list[Any] = [inner.context for inner in specs]
    while pending:
        found = pending.pop()
        if is_shown(found):
            return True
        if id(found) not in seen:
            seen[id(found)] = found
            pending += _parts(found)
    return False


def _parts(value: object) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list | tuple | set | frozenset):
        yield from value
    if not isinstance(value, type) and hasattr(value, "__dict__"):
        yield from vars(value).values()
