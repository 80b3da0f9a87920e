"""Python modules and the global and builtin namespaces.

Input: a real module or globals dictionary. Output: `ModuleVariable`, `GlobalsNamespace`.
Invariant: a name is guarded when read; stores are kept here and replayed at the end.
Mirrors `Objects/moduleobject.c` and LOAD_GLOBAL of `Python/ceval.c`.
"""

from __future__ import annotations

import types
from typing import Any

from ..exc import unsupported
from ..guards import ir
from .base import VariableTracker, is_lazy
from .constant import ConstantVariable
from .descr import type_attribute
from .wrap import builds, builds_subclasses


class GlobalsNamespace(VariableTracker):
    """The globals of a function as LOAD_GLOBAL and STORE_GLOBAL see them. `value` is the real dictionary."""

    def __init__(self, value: dict[str, Any], source: Any, builtins: GlobalsNamespace | None = None) -> None:
        self.value = value
        self.source = source
        self.builtins = builtins
        self.loaded: dict[str, VariableTracker] = {}
        self.from_builtins: dict[str, VariableTracker] = {}  # names found one namespace further
        self.stored: dict[str, VariableTracker | None] = {}

    def python_type(self) -> type:
        return dict

    def load(self, tx: Any, name: str) -> VariableTracker | None:
        """The value of a global or builtin name, None if neither has it."""
        found = self.loaded.get(name) or self.from_builtins.get(name)
        if found is not None:
            return found
        if name in self.stored:
            return self.builtins.load(tx, name) if self.builtins is not None else None
        tr = tx.tr
        if name in self.value:
            found = tr.wrap(self.value[name], tr.source(self.source, ir.DICT_ITEM, name))
            self.loaded[name] = found
            return found
        tr.guard(self.source, ir.LACKS_KEY, name)
        found = self.builtins.load(tx, name) if self.builtins is not None else None
        if found is not None:
            self.from_builtins[name] = found
        return found

    def store(self, tx: Any, name: str, value: VariableTracker) -> None:
        """STORE_GLOBAL."""
        self._announce(tx)
        self.stored[name] = self.loaded[name] = value

    def _announce(self, tx: Any) -> None:
        """The dictionary itself, if the program holds it, has a model that would not see the change."""
        other = tx.tr.heap.get(id(self.value))
        if other is not None and not is_lazy(other):
            unsupported(
                "mutation-of-unknown-object", f"a global of a module whose dictionary is in use: {other.describe()}"
            )
        for namespace in tx.tr.namespaces.values():
            if namespace.builtins is self:
                namespace.from_builtins.clear()
        tx.tr.mutating(self)

    def delete(self, tx: Any, name: str) -> bool:
        """DELETE_GLOBAL; False if the name is not there."""
        if name not in self.loaded and (name in self.stored or name not in self.value):
            tx.tr.guard(self.source, ir.LACKS_KEY, name)
            return False
        tx.tr.guard(self.source, ir.HAS_KEY, name)
        self._announce(tx)
        self.loaded.pop(name, None)
        self.stored[name] = None
        return True

    def children(self) -> Any:
        return [v for v in self.stored.values() if v is not None]

    def emit_update(self, cg: Any) -> None:
        for name, value in self.stored.items():
            if value is not None:
                cg.load(value)
            cg.load_const(self.value)
            cg.load_const(name)
            if value is None:
                cg.asm.delete_subscr()
            else:
                cg.asm.store_subscr()


class ModuleVariable(VariableTracker):
    """A module; its attributes are a namespace of their own."""

    def __init__(self, value: types.ModuleType, source: Any) -> None:
        self.value = value
        self.source = source

    def python_type(self) -> type:
        return type(self.value)

    def is_python_constant(self) -> bool:
        return True

    def as_python_constant(self) -> Any:
        return self.value

    def describe(self) -> str:
        return self.value.__name__

    def tp_getattro(self, tx: Any, name: str) -> VariableTracker:
        namespace = tx.tr.namespace(self.value.__dict__)
        if name == "__dict__":
            return tx.tr.wrap(self.value.__dict__, tx.tr.constant_source(self.value.__dict__))
        found = namespace.load(tx, name)
        if found is not None:
            return found
        # A module's __getattr__ and names from ModuleType or a module subclass; imports of submodules may hide in there.
        if name in self.value.__dict__ or hasattr(types.ModuleType, name):
            return ConstantVariable(getattr(self.value, name))
        found = type_attribute(tx, type(self.value), name)
        if found is not None and type(self.value) is not types.ModuleType:
            return tx.tr.build_constant_object(getattr(self.value, name))
        getattr_ = namespace.load(tx, "__getattr__")
        if getattr_ is not None:
            return tx.call(getattr_, [ConstantVariable(name)])
        message = f"module '{self.value.__name__}' has no attribute '{name}'"
        return tx.raises_naming(AttributeError, message, name=ConstantVariable(name), obj=self)

    def tp_setattro(self, tx: Any, name: str, value: VariableTracker | None) -> None:
        namespace = tx.tr.namespace(self.value.__dict__)
        if value is not None:
            namespace.store(tx, name, value)
        elif not namespace.delete(tx, name):
            tx.raises(AttributeError, name)


@builds(types.ModuleType)
@builds_subclasses(types.ModuleType)
def build_module(tr: Any, value: types.ModuleType, source: Any) -> ModuleVariable:
    tr.guard(source, ir.IS, value)
    return ModuleVariable(value, source)
