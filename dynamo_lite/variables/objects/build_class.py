"""Class statements.

Input: a class body's function, a name, bases and keywords. Output: what the metaclass returns.
Invariant: bases, metaclass, namespace and `__class__` cell are treated in the order of CPython.
Mirrors `builtin___build_class__` of `Python/bltinmodule.c`.
"""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any

from dynamo_lite.exc import unsupported
from dynamo_lite.variables.builtin.dict import DictVariable
from dynamo_lite.variables.builtin.tuple import TupleVariable
from dynamo_lite.variables.protocol.abstract import message_name, type_name
from dynamo_lite.variables.protocol.base import VariableTracker
from dynamo_lite.variables.protocol.constant import ConstantVariable
from dynamo_lite.variables.protocol.dispatch import builtin
from dynamo_lite.variables.protocol.native import optional_attr

from .cell import CellVariable
from .type import TypeVariable
from .type_new import calculate_metaclass

if TYPE_CHECKING:
    from dynamo_lite.interp.frame import Frame


@builtin(builtins.__build_class__)
def build_class(
    tx: Frame, func: VariableTracker, name: VariableTracker, /, *bases: VariableTracker, **keywords: VariableTracker
) -> VariableTracker:
    """`builtin___build_class__`."""
    entries = _update_bases(tx, bases)
    meta = keywords.pop("metaclass", None)
    if meta is None:
        meta = tx.tr.type_of(tx, entries[0]) if entries else tx.tr.type_tracker(type)
    if isinstance(meta, TypeVariable) and all(isinstance(b, TypeVariable) for b in entries):
        meta = tx.tr.type_tracker(calculate_metaclass(tx, meta.value, entries))
    bases_tuple = TupleVariable(entries)
    namespace = _prepare(tx, meta, name, bases_tuple, keywords)
    cell = tx.tr.run_class_body(tx, func, namespace)
    if len(entries) != len(bases) or any(a is not b for a, b in zip(entries, bases, strict=False)):
        namespace.mp_ass_subscript(tx, ConstantVariable("__orig_bases__"), TupleVariable(list(bases)))
    made = tx.call(meta, [name, bases_tuple, namespace], keywords)
    if isinstance(made, TypeVariable) and isinstance(cell, CellVariable):
        _check_cell(tx, cell, made, name.value)
    return made


def _update_bases(tx: Frame, bases: Any) -> list[VariableTracker]:
    """`update_bases`: what bases that are no classes stand for."""
    entries: list[VariableTracker] = []
    for base in bases:
        hook = None if isinstance(base, TypeVariable) else optional_attr(tx, base, "__mro_entries__")
        if hook is None:
            entries.append(base)
            continue
        found = tx.call(hook, [TupleVariable(list(bases))])
        if not issubclass(found.python_type(), tuple):
            tx.raises(TypeError, "__mro_entries__ must return a tuple")
        entries.extend(found.items)
    return entries


def _prepare(
    tx: Frame,
    meta: VariableTracker,
    name: VariableTracker,
    bases: VariableTracker,
    keywords: dict[str, VariableTracker],
) -> Any:
    hook = optional_attr(tx, meta, "__prepare__")
    if hook is None:
        return DictVariable()
    namespace = tx.call(hook, [name, bases], keywords)
    if namespace.mp_subscript is None:
        who = message_name(meta.value) if isinstance(meta, TypeVariable) else "<metaclass>"
        tx.raises(TypeError, f"{who}.__prepare__() must return a mapping, not {type_name(namespace)}")
    return namespace


def _check_cell(tx: Frame, cell: CellVariable, made: TypeVariable, name: str) -> None:
    content = cell.get(tx)
    if content is made:
        return
    if content is None:
        message = f"__class__ not set defining {name!r} as {type.__repr__(made.value)}."
        tx.raises(RuntimeError, message + " Was __classcell__ propagated to type.__new__?")
    if not isinstance(content, TypeVariable):
        unsupported("class-definition", f"__class__ of {name} is set to something else")
    found, wanted = (type.__repr__(cls.value) for cls in (content, made))
    tx.raises(TypeError, f"__class__ set to {found} defining {name!r} as {wanted}")
