"""Objects that the sides of a branch have made, put together part by part.

Input: two objects, one of each side; how two parts become one. Output: an `Entry` with a place for each part that the graph is going to
compute; filled with the results of the graph, the tracker of an object that has them.
Invariant: an object of one side goes together with one object of the other side, wherever they are met: what is one object after the
branch is one in eager execution.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dynamo_lite.exc import unsupported
from dynamo_lite.variables.builtin.dict import DictVariable
from dynamo_lite.variables.builtin.list import ListVariable
from dynamo_lite.variables.builtin.tuple import TupleVariable
from dynamo_lite.variables.objects.instance import InstanceVariable
from dynamo_lite.variables.protocol.base import VariableTracker
from dynamo_lite.variables.protocol.constant import ConstantVariable

from ..symnode import DTYPES, SymNodeVariable, scalar_tensor
from ..tensor import converted_item

if TYPE_CHECKING:
    from dynamo_lite.graph.bodies import Body
    from dynamo_lite.interp.frame import Frame

SLUG = "data-dependent-branch"


def is_number(vt: VariableTracker | None) -> bool:
    """Whether this is a number of Python's that a tensor can hold."""
    if isinstance(vt, ConstantVariable):
        return vt.python_type() in DTYPES and abs(vt.value) < 2**63
    return isinstance(vt, SymNodeVariable) and vt.python_type() in DTYPES


def scalar_in(tx: Frame, body: Body, number: VariableTracker) -> VariableTracker:
    """A number as a result of a side. Inductor fails where a side makes a tensor of a constant."""
    made = scalar_tensor(tx, number) if isinstance(number, ConstantVariable) else None
    with body:
        return scalar_tensor(tx, number) if made is None else tx.tr.graph.call(tx, "call_method", "clone", [made])


class ResultPlace:
    """The place of a result of the graph, number `index`; a number of type `kind` is a tensor in the graph."""

    def __init__(self, index: int, kind: type | None = None) -> None:
        self.index, self.kind = index, kind


class NewObject:
    """The place of an object like `model`, with these parts; `made` once it is there."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.parts: dict[Any, Any] = {}
        self.made: Any = None


def parts_of(entry: Any) -> list[VariableTracker]:
    """The trackers in an entry, or in the entries of a dictionary, that both sides leave; each new object is looked at once."""
    found, pending, seen = [], [entry], set()
    while pending:
        entry = pending.pop()
        if isinstance(entry, VariableTracker):
            found.append(entry)
        elif type(entry) is tuple:
            pending += entry
        elif type(entry) is dict or type(entry) is NewObject:
            if id(entry) not in seen:
                seen.add(id(entry))
                pending += (entry if type(entry) is dict else entry.parts).values()
    return found


class Joins:
    """The objects put together at the end of one branch."""

    def __init__(self, tx: Frame) -> None:
        self.tx = tx
        self.known: dict[int, tuple[VariableTracker, VariableTracker, NewObject]] = {}

    def of(self, one: Any, other: Any, join: Callable[[Any, Any], Any]) -> NewObject | None:
        """One object in the place of two, whose parts are joined by `join`; None if they are of another kind, or not of one form."""
        parts = [self._parts(vt) for vt in (one, other)]
        if parts[0] is None or parts[1] is None or type(one) is not type(other):
            return None
        if one.python_type() is not other.python_type() or list(parts[0]) != list(parts[1]):
            return None
        found = self.known.get(id(one)) or self.known.get(id(other))
        if found is not None:
            if found[0] is not one or found[1] is not other:
                unsupported(SLUG, f"one {one.python_type().__qualname__} of a side where the other one has two")
            return found[2]
        new = NewObject(one)
        self.known[id(one)] = self.known[id(other)] = one, other, new
        new.parts = {key: join(part, parts[1][key]) for key, part in parts[0].items()}
        return new

    def _parts(self, vt: Any) -> dict[Any, Any] | None:
        if type(vt) is ListVariable or type(vt) is TupleVariable:
            return dict(enumerate(vt.items))
        if type(vt) is DictVariable:
            return None if vt.numbered else vt.items
        if type(vt) is not InstanceVariable or vt.slots or vt.dict_replaced:
            return None
        attributes = vt.instance_dict(self.tx)
        return None if attributes is None else attributes.items

    def filled(self, entry: Any, results: list[VariableTracker]) -> Any:
        """An entry with the results in their places; that of a dictionary of which not all is known says also whether it is deleted."""
        if type(entry) is tuple:
            return entry[0], self.filled(entry[1], results)
        if type(entry) is ResultPlace:
            made: Any = results[entry.index]
            return made if entry.kind is None else converted_item(self.tx, made, entry.kind)
        if type(entry) is not NewObject:
            return entry
        if entry.made is None:
            self._make(entry, results)
        return entry.made

    def _make(self, entry: NewObject, results: list[VariableTracker]) -> None:
        model = entry.model
        if type(model) is TupleVariable:
            entry.made = TupleVariable([self.filled(part, results) for part in entry.parts.values()], model.cls)
            return
        entry.made = InstanceVariable(model.cls) if type(model) is InstanceVariable else type(model)()
        entry.made.cls = model.cls
        parts = {key: self.filled(part, results) for key, part in entry.parts.items()}
        if type(model) is ListVariable:
            entry.made.items = list(parts.values())
        else:
            table = entry.made if type(model) is DictVariable else entry.made.instance_dict(self.tx)
            table.items.update(parts)
