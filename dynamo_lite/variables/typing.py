"""Type expressions at run time: the objects of `typing`.

Input: a real object whose class `typing` defines (`List`, `Optional[int]`, a TypeVar …). Output: `TypingVariable`, a constant.
Invariant: these objects are immutable; what they compute from constants is computed for real.
Mirrors `Lib/typing.py`.
"""

from __future__ import annotations

import operator
from typing import Any

from ..guards import ir
from .abstract import COMPARE_OPS
from .base import VariableTracker
from .constant import ConstantVariable, fold, is_constant
from .descr import ABSENT, type_attribute, type_lookup
from .wrap import builds_if

_MODULES = frozenset({"typing", "typing_extensions"})


class TypingVariable(ConstantVariable):
    """An object of the typing module, known by identity."""

    def tp_getattro(self, tx: Any, name: str) -> VariableTracker:
        hook = type_lookup(type(self.value), "__getattr__")
        try:
            real = getattr(self.value, name) if hook is ABSENT else object.__getattribute__(self.value, name)
        except AttributeError as error:
            if hook is ABSENT:
                return tx.raises(AttributeError, str(error))
            # A method written in Python, which asks the origin.
            asked = type_attribute(tx, type(self.value), "__getattr__")
            return tx.call(asked, [self, ConstantVariable(name)])
        return tx.tr.build_constant_object(real)

    def mp_subscript(self, tx: Any, key: VariableTracker) -> VariableTracker:
        return fold(tx, operator.getitem, [self, key], {})

    @property
    def tp_call(self) -> Any:
        return self._call if type_lookup(type(self.value), "__call__") is not ABSENT else None

    def _call(self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        """Calling `List[int]` makes a list, calling `List` is TypeError: methods written in Python say so."""
        return tx.call(type_attribute(tx, type(self.value), "__call__"), [self, *args], kwargs)

    def tp_richcompare(self, tx: Any, other: VariableTracker, op: str) -> VariableTracker:
        return fold(tx, COMPARE_OPS[op], [self, other], {}) if is_constant(other) else ConstantVariable(NotImplemented)

    def tp_hash(self, tx: Any) -> VariableTracker:
        return fold(tx, hash, [self], {})

    @staticmethod
    def nb_or(tx: Any, v: VariableTracker, w: VariableTracker) -> VariableTracker:
        return fold(tx, operator.or_, [v, w], {}) if is_constant(v, w) else ConstantVariable(NotImplemented)


# Not the classes whose metaclass `typing` defines (typed dictionaries, protocols and what implements them): they are called as usual.
@builds_if(lambda value: type(value).__module__ in _MODULES and not isinstance(value, type))
def build_typing(tr: Any, value: Any, source: Any) -> TypingVariable:
    tr.guard(source, ir.IS, value)
    return TypingVariable(value, source)
