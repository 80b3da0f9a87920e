"""What code of which nobody knows whether it runs, a side of a branch, does to lists, dictionaries, cells and globals.

Input: the frame before it runs. Output: `Change`s: what it has left in each object, which then has its old contents again; changes of
several sides put together, each item by itself.
Invariant: an object of which a side has another form than the other one, or a change of any other kind of object, is a break.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from dynamo_lite.exc import unsupported
from dynamo_lite.variables.builtin.dict import DictVariable
from dynamo_lite.variables.builtin.list import ListVariable
from dynamo_lite.variables.objects.cell import CellVariable
from dynamo_lite.variables.objects.module import GlobalsNamespace
from dynamo_lite.variables.protocol.base import MISSING, VariableTracker

from ..body import Outside, is_same
from .late_lists import LateListVariable

if TYPE_CHECKING:
    from dynamo_lite.interp.frame import Frame

SLUG = "data-dependent-branch"


class ContentsForm(NamedTuple):
    """How the contents of one kind of object are read and set: as a dictionary, of which `find` gives an item that is not in it."""

    read: Callable[[Any], dict[Any, Any]]
    write: Callable[[Frame, Any, dict[Any, Any]], None]
    find: Callable[[Frame, Any, Any], Any]


def _write_list(tx: Frame, vt: ListVariable, items: dict[Any, Any]) -> None:
    vt.items[:] = items.values()


def _write_items(tx: Frame, vt: DictVariable, items: dict[Any, Any]) -> None:
    if "items" not in vt.__dict__:
        vt.pending = {}
        vt.items  # noqa: B018 (loaded)
    if list(vt.items) != list(items):
        vt.items.clear()
    vt.items.update(items)


def _write_pending(tx: Frame, vt: DictVariable, items: dict[Any, Any]) -> None:
    vt.__dict__.pop("items", None)
    vt.pending = dict(items)


def _find_pending(tx: Frame, vt: DictVariable, key: Any) -> Any:
    found = vt.find(key)
    return None if found is None else (False, found)


def _write_globals(tx: Frame, vt: GlobalsNamespace, items: dict[Any, Any]) -> None:
    for name in vt.stored:
        vt.loaded.pop(name, None)
    vt.stored = dict(items)
    vt.loaded.update({name: value for name, value in items.items() if value is not None})


def _write_cell(tx: Frame, vt: CellVariable, items: dict[Any, Any]) -> None:
    vt.content = items[""]


def _absent(tx: Frame, vt: VariableTracker, key: Any) -> Any:
    return None


_LIST = ContentsForm(lambda vt: dict(enumerate(vt.items)), _write_list, _absent)
_ITEMS = ContentsForm(lambda vt: dict(vt.items), _write_items, _absent)
_PENDING = ContentsForm(lambda vt: dict(vt.pending), _write_pending, _find_pending)
_GLOBALS = ContentsForm(lambda vt: dict(vt.stored), _write_globals, lambda tx, vt, name: vt.own(tx, name))
_CELL = ContentsForm(lambda vt: {"": vt.content}, _write_cell, lambda tx, vt, key: vt.get(tx))


def _form(vt: VariableTracker) -> ContentsForm | None:
    if isinstance(vt, ListVariable):
        is_late = isinstance(vt, LateListVariable) and vt.is_late  # a long one: any change of it is a break
        return None if is_late else _LIST
    if isinstance(vt, DictVariable):
        return _ITEMS if "items" in vt.__dict__ else _PENDING
    if isinstance(vt, GlobalsNamespace):
        return _GLOBALS
    return _CELL if isinstance(vt, CellVariable) else None


class Change(NamedTuple):
    """What is in an object now."""

    vt: Any
    form: ContentsForm
    items: dict[Any, Any]


class Contents:
    """The contents of all objects that code may change, as they are when this is made."""

    def __init__(self, tx: Frame, extra: list[Any]) -> None:
        self.tx = tx
        self.before: dict[int, Change] = {}
        self.outside = Outside(tx, extra)
        for vt, *_ in self.outside.objects.values():
            self._note(vt)

    def _note(self, vt: VariableTracker) -> None:
        form = _form(vt)
        if form is not None and id(vt) not in self.before:
            self.before[id(vt)] = Change(vt, form, form.read(vt))

    @contextmanager
    def put_back(self, changes: dict[int, Change]) -> Iterator[None]:
        """While the block runs, objects may change. Then `changes` gets what they have, and they have what they had."""
        effects = self.tx.tr.effects
        n = len(effects.mutations)
        effects.watches.append(self._note)
        try:
            yield
        finally:
            effects.watches.remove(self._note)
        for key, (vt, form, items) in self.before.items():
            now = _form(vt)
            found = now.read(vt)
            if now is not form or list(found) != list(items) or not all(map(is_same, found.values(), items.values())):
                changes[key] = Change(vt, now, found)
                form.write(self.tx, vt, items)
        for vt in effects.mutations[n:]:
            if id(vt) in self.before:
                vt.mutated = False
        effects.mutations[n:] = [vt for vt in effects.mutations[n:] if vt.mutated]

    def joined(
        self, sides: Sequence[dict[int, Change]], join: Callable[[Any, Any], Any]
    ) -> Iterator[tuple[Change, dict[Any, Any]]]:
        """Each object that a side has changed, and what it is to have: `join(one, other)` for what the sides have left in one place."""
        for key in dict.fromkeys([*sides[0], *sides[1]]):
            parts = [side.get(key, self.before[key]) for side in sides]
            vt, form, _ = parts[0]
            if form is not parts[1].form:
                self._refuse(vt)
            yield parts[0], self._joined(vt, form, [dict(part.items) for part in parts], join)

    def _joined(
        self, vt: Any, form: ContentsForm, items: list[dict[Any, Any]], join: Callable[[Any, Any], Any]
    ) -> dict[Any, Any]:
        for key in dict.fromkeys([*items[0], *items[1]]):
            for side in items:
                if key not in side or side[key] is MISSING:  # None is a name that was deleted
                    found = form.find(self.tx, vt, key)
                    if found is None:
                        self._refuse(vt, key)
                    side[key] = found
        orders = [[key for key in side if form is not _PENDING or key not in vt.value] for side in items]
        if form is not _GLOBALS and orders[0] != orders[1]:
            self._refuse(vt)
        result = {}
        for key, one in items[0].items():
            other = items[1][key]
            if form is not _PENDING:
                result[key] = join(one, other)
            elif one == other:
                result[key] = one
            elif one[0] is not other[0] or one[1] is None or other[1] is None:
                self._refuse(vt, key)
            else:
                result[key] = (one[0], join(one[1], other[1]))
        return result

    def _refuse(self, vt: VariableTracker, key: Any = None) -> None:
        place = f" under {key!r}" if type(key) is str and key else ""
        unsupported(SLUG, f"the sides leave other items in {vt.python_type().__qualname__} {vt.describe()}{place}")
