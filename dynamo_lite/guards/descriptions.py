"""Short texts of objects for messages about guards.

Input: any object. Output: one line, at most `WIDTH` characters.
Invariant: making it runs no code of the program (no `__repr__`, `__len__`, `__iter__` of its classes), and waits for no
device.
"""

from __future__ import annotations

import sys
import types
from typing import Any

from dynamo_lite.isa.typeobject import Py_TPFLAGS_HAVE_GC, flags, lookup, name_of, qualname_of

WIDTH = 80
_ITEMS = 8
_DEPTH = 3

_NAMED = (types.FunctionType, types.BuiltinFunctionType, types.CodeType, type)
_BRACES = "{", "}"
_BRACKETS: dict[type, tuple[str, str]] = {
    list: ("[", "]"),
    tuple: ("(", ")"),
    set: _BRACES,
    frozenset: _BRACES,
    dict: _BRACES,
}


_BITS = 1000


def short(value: object) -> str:
    """A description of any object."""
    text = " ".join(_text(value, _DEPTH).split())
    return text if len(text) <= WIDTH else text[: WIDTH - 3] + "..."


def _text(value: Any, depth: int) -> str:
    cls = type(value)
    if _is_plain_tensor(cls):
        with sys.modules["torch"]._C.DisableTorchFunction():  # modes of the program don't see that anybody looks
            sizes = "nested" if value.is_nested else "x".join(map(str, value.shape))
        return f"{name_of(cls)} {sizes or 'scalar'}"
    if lookup(cls, "named_modules") is not None:
        return f"{name_of(cls)} module"
    if cls is int and value.bit_length() > _BITS:
        return f"an int of {value.bit_length()} bits"  # Python refuses to print it
    if cls in _BRACKETS:
        return _container_text(value, depth)
    # An object that is not collected holds no others, of which its repr could call methods.
    if cls in _NAMED or (
        type(lookup(cls, "__repr__")) is types.WrapperDescriptorType and not flags(cls) & Py_TPFLAGS_HAVE_GC
    ):
        return repr(value)
    return f"{qualname_of(cls)} object"


def _is_plain_tensor(cls: type) -> bool:
    """Whether `shape` of the instances is the C one; a class with a `__torch_function__` may have another, or none."""
    torch = sys.modules.get("torch")
    return torch is not None and (cls is torch.Tensor or cls is torch.nn.Parameter)


def _container_text(value: Any, depth: int) -> str:
    opening, closing = _BRACKETS[type(value)]
    if depth == 0 and value:
        return f"{opening}...{closing}"
    if type(value) is dict:
        pairs = list(value.items())[:_ITEMS]
        texts = [f"{_text(key, depth - 1)}: {_text(item, depth - 1)}" for key, item in pairs]
    else:
        texts = [_text(item, depth - 1) for item in list(value)[:_ITEMS]]
    more = ["..."] if len(value) > _ITEMS else []
    return f"{opening}{', '.join([*texts, *more])}{closing}"
