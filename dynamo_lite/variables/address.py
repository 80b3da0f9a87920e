"""Texts with addresses in them: what `repr` says of objects that say nothing about themselves.

Input: an object whose text is the default one, or pieces of text. Output: a constant where the address is known, else `AddressedText`.
Invariant: an object whose address is not known before the program runs stands in the text itself; the text is put together when it
is needed, from the address that the object has then, and nothing that could depend on that address is answered before.
Mirrors what `PyUnicode_FromFormat("%p")` is used for in `Objects/object.c`, `funcobject.c`, `classobject.c` and `genobject.c`.
"""

from __future__ import annotations

import re
import types
from collections.abc import Iterable
from typing import Any

from ..exc import unsupported
from ..guards import ir
from .abstract import get_attr
from .base import MISSING, VariableTracker, is_lazy
from .constant import NOT_IMPLEMENTED, ConstantVariable, boolean
from .descr import generic_getattr


class AddressedText(VariableTracker):
    """A str of which parts are the addresses of objects. `parts` has texts and, for the addresses, their objects."""

    holds_weakly = True

    def __init__(self, parts: list[Any]) -> None:
        self.parts = parts

    def python_type(self) -> type:
        return str

    def describe(self) -> str:
        return "".join([part if type(part) is str else "0x…" for part in self.parts])

    def as_python_constant(self) -> Any:
        return unsupported("object-identity", f"the address in {self.describe()}")

    def children(self) -> Any:
        return [part for part in self.parts if type(part) is not str]

    def tp_getattro(self, tx: Any, name: str) -> VariableTracker:
        return generic_getattr(tx, self, name)

    def tp_str(self, tx: Any) -> VariableTracker:
        return self

    def nb_bool(self, tx: Any) -> VariableTracker:
        return boolean(True)

    def sq_concat(self, tx: Any, other: VariableTracker) -> VariableTracker:
        return joined(tx, [self, other])

    def refuse(self, tx: Any, *args: Any) -> VariableTracker:
        return self.as_python_constant()

    tp_hash = tp_repr = tp_iter = mp_length = mp_subscript = sq_repeat = refuse

    def sq_contains(self, tx: Any, item: VariableTracker) -> VariableTracker:
        texts = [part for part in self.parts if type(part) is str]
        found = isinstance(item, ConstantVariable) and type(item.value) is str and any(item.value in t for t in texts)
        return boolean(True) if found else self.refuse(tx)

    def tp_richcompare(self, tx: Any, other: VariableTracker, op: str) -> VariableTracker:
        if not issubclass(other.python_type(), str):
            return NOT_IMPLEMENTED
        if op not in ("==", "!="):
            return self.refuse(tx)
        equal = self._equals(tx, other)
        return self.refuse(tx) if equal is None else boolean(equal is (op == "=="))

    def _equals(self, tx: Any, other: VariableTracker) -> bool | None:
        """Whether two texts are equal; None if that hangs on an address."""
        if isinstance(other, AddressedText):
            return self._equals_addressed(tx, other)
        if isinstance(other, ConstantVariable) and re.fullmatch(self._pattern(), other.value) is None:
            return False
        return None

    def _equals_addressed(self, tx: Any, other: AddressedText) -> bool | None:
        for a, b in zip(self.parts, other.parts, strict=False):
            if type(a) is not str and type(b) is not str:
                if not tx.tr.same_object(a, b):
                    return False if tx.tr.is_reachable(a) and tx.tr.is_reachable(b) else None
            elif a != b:
                known = type(a) is str and type(b) is str and not a.startswith(b) and not b.startswith(a)
                return False if known else None
        return True if len(self.parts) == len(other.parts) else None

    def _pattern(self) -> str:
        return "".join([re.escape(part) if type(part) is str else "0x[0-9a-f]+" for part in self.parts])

    def emit_new(self, cg: Any) -> None:
        cg.load_callable(_with_addresses)
        cg.load_const(tuple([part if type(part) is str else None for part in self.parts]))
        objects = self.children()
        for part in objects:
            cg.load(part)
        cg.asm.call(1 + len(objects))


def _with_addresses(parts: tuple[str | None, ...], *objects: Any) -> str:
    addresses = (f"0x{id(obj):x}" for obj in objects)
    return "".join([next(addresses) if part is None else part for part in parts])


def joined(tx: Any, parts: Iterable[Any], separator: str = "") -> VariableTracker:
    """The text that these texts, trackers and host strings, make together."""
    flat: list[Any] = []
    for i, part in enumerate(parts):
        if i and separator:
            flat.append(separator)
        if isinstance(part, AddressedText):
            flat += part.parts
        elif isinstance(part, VariableTracker):
            flat.append(part.atom if part.is_atom else part.as_python_constant())
        else:
            flat.append(part)
    return _text(flat)


def _text(parts: list[Any]) -> VariableTracker:
    merged: list[Any] = []
    for part in parts:
        if type(part) is str and merged and type(merged[-1]) is str:
            merged[-1] += part
        elif part != "" or type(part) is not str:
            merged.append(part)
    if all(type(part) is str for part in merged):
        return ConstantVariable("".join(merged))
    return AddressedText(merged)


# No characters: no text of a program that is meant for anybody has them.
_BEFORE, _AFTER = "\U0010fffe", "\U0010ffff"
_MARK = re.compile(f"{_BEFORE}([0-9]+){_AFTER}")


def mark(text: AddressedText, marks: list[AddressedText]) -> str:
    """What represents a text in host strings."""
    marks.append(text)
    return f"{_BEFORE}{len(marks) - 1}{_AFTER}"


def unmarked(tx: Any, text: str, marks: list[AddressedText]) -> VariableTracker:
    """A host string with the texts that its marks represent."""
    pieces = _MARK.split(text)
    if any(character in "".join(pieces) for character in (_BEFORE, _AFTER)):
        marks[0].refuse(tx)
    return joined(tx, [marks[int(piece)] if i % 2 else piece for i, piece in enumerate(pieces)])


def address(tx: Any, vt: VariableTracker) -> Any:
    """The text of an object's address, or the object where that is not known before it runs."""
    value = vt.value
    if value is not MISSING and not is_lazy(vt) and vt.source is not None and not tx.tr.is_new_class(value):
        if vt.source.root.kind == ir.CONST:
            tx.tr.guard(vt.source, ir.IS, value)
            return f"0x{id(value):x}"
    return vt


# -- the texts


def default_text(tx: Any, vt: VariableTracker) -> VariableTracker:
    """`object_repr`."""
    cls = tx.tr.type_of(tx, vt)
    module, name = (get_attr(tx, cls, attribute) for attribute in ("__module__", "__qualname__"))
    known = isinstance(module, ConstantVariable) and type(module.value) is str and module.value != "builtins"
    prefix = [module, ".", name] if known else [get_attr(tx, cls, "__name__")]
    return joined(tx, ["<", *prefix, " object at ", *address_part(tx, vt), ">"])


def named_text(tx: Any, kind: str, vt: VariableTracker) -> VariableTracker:
    """`<function f at 0x…>`, and the same of generators and coroutines."""
    return joined(tx, [f"<{kind} ", get_attr(tx, vt, "__qualname__"), " at ", *address_part(tx, vt), ">"])


def address_part(tx: Any, vt: VariableTracker) -> list[Any]:
    """The address of an object as a part of a text."""
    known = address(tx, vt)
    return [known] if type(known) is str else [AddressedText([vt])]


def _kind_of_generator(word: str) -> Any:
    return lambda tx, vt: named_text(tx, f"{word} object", vt)


TEXTS: dict[Any, Any] = {
    object.__repr__: default_text,
    types.FunctionType.__repr__: lambda tx, vt: named_text(tx, "function", vt),
    types.GeneratorType.__repr__: _kind_of_generator("generator"),
    types.CoroutineType.__repr__: _kind_of_generator("coroutine"),
    types.AsyncGeneratorType.__repr__: _kind_of_generator("async_generator"),
}
"""`__repr__` of a type whose instances are told by their address → (frame, object) -> its text."""
