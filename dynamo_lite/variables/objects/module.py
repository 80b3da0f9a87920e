"""Python modules and the global and builtin namespaces.

Input: a real module or globals dictionary. Output: `ModuleVariable`, `GlobalsNamespace`.
Invariant: a name is guarded when read; stores are kept here and replayed at the end.
Mirrors `Objects/moduleobject.c` and LOAD_GLOBAL of `Python/ceval.c`.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import types
from typing import TYPE_CHECKING, Any

from dynamo_lite.exc import unsupported
from dynamo_lite.guards import ir
from dynamo_lite.isa.typeobject import ABSENT, LIBRARIES
from dynamo_lite.variables.protocol.base import (
    MISSING,
    Children,
    Plain,
    VariableTracker,
    held_items,
    is_lazy,
    missing_from,
    stands_for,
)
from dynamo_lite.variables.protocol.constant import ConstantVariable
from dynamo_lite.variables.protocol.descr import generic_getattr, type_attribute, type_lookup
from dynamo_lite.variables.protocol.dispatch import builtin, method
from dynamo_lite.variables.protocol.native import host_value
from dynamo_lite.variables.protocol.wrap import builds, builds_subclasses

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.guards.ir import GuardNode
    from dynamo_lite.interp.frame import Frame


def is_module_level(value: object) -> bool:
    """True for a function or class that its module has under its name, as good as for ever. Never asks the object."""
    kind = type if issubclass(type(value), type) else types.FunctionType
    if not issubclass(type(value), kind):
        return False
    name = vars(kind)["__module__"].__get__(value)
    module = sys.modules.get(name) if type(name) is str else None
    return type(module) is types.ModuleType and module.__dict__.get(vars(kind)["__name__"].__get__(value)) is value


def is_of_this_package(name: str) -> bool:
    """Whether a module of that name belongs to this package."""
    return name.partition(".")[0] == __name__.partition(".")[0]


class GlobalsNamespace(VariableTracker):
    """The globals of a function as LOAD_GLOBAL and STORE_GLOBAL see them. `value` is the real dictionary."""

    is_fixed = False  # those of our own stand-ins, which nobody changes: no guard looks at them

    cls = dict
    value: dict[str, Any] = Plain()
    builtins: GlobalsNamespace | None = Plain(None)
    loaded: dict[str, VariableTracker] = Plain(factory=dict, init=False)
    from_builtins: dict[str, VariableTracker] = Plain(factory=dict, init=False)  # names found one namespace further
    stored: dict[str, VariableTracker | None] = Children(factory=dict, init=False)

    def load(self, tx: Frame, name: str) -> VariableTracker | None:
        """The value of a global or builtin name, None if neither has it."""
        found = self.loaded.get(name) or self.from_builtins.get(name)
        if found is not None:
            return found
        found = self.own(tx, name)
        if found is None and self.builtins is not None:
            found = self.builtins.load(tx, name)
            if found is not None and name not in self.stored:
                self.from_builtins[name] = found
        return found

    def own(self, tx: Frame, name: str) -> VariableTracker | None:
        """The value of a name in this very dictionary, None if it has none."""
        found = self.loaded.get(name)
        if found is not None or name in self.stored:
            return found
        tr = tx.tr
        if self.is_fixed and name in self.value:
            found = self.loaded[name] = tr.build_constant_object(self.value[name])
            return found
        if name not in self.value:
            if not self.is_fixed:
                tr.guard(self.source, ir.LACKS_KEY, name)
            return None
        node = tr.source(self.source, ir.DICT_ITEM, name)
        tr.expect(node)
        found = self.loaded[name] = tr.wrap(self.value[name], node)
        return found

    def differs(self) -> bool:
        return any(
            name in self.value if vt is None else not stands_for(vt, self.value.get(name, MISSING))
            for name, vt in self.stored.items()
        )

    def store(self, tx: Frame, name: str, value: VariableTracker) -> None:
        """STORE_GLOBAL."""
        self._announce(tx)
        self.stored[name] = self.loaded[name] = value

    def _announce(self, tx: Frame) -> None:
        """The dictionary itself, if the program holds it, has a model that would not see the change."""
        other = tx.tr.heap.get(id(self.value))
        if other is not None and not is_lazy(other):
            unsupported(
                "mutation-of-unknown-object", f"a global of a module whose dictionary is in use: {other.describe()}"
            )
        for namespace in tx.tr.heap.namespaces.values():
            if namespace.builtins is self:
                namespace.from_builtins.clear()
        tx.tr.effects.mutating(self)

    def delete(self, tx: Frame, name: str) -> bool:
        """DELETE_GLOBAL; False if the name is not there."""
        if name not in self.loaded and (name in self.stored or name not in self.value):
            if name not in self.stored:
                tx.tr.guard(self.source, ir.LACKS_KEY, name)
            return False
        # What was stored before the deletion need not have been there at the start: then nothing is left to do.
        tx.tr.guard(self.source, ir.HAS_KEY if name in self.value else ir.LACKS_KEY, name)
        self._announce(tx)
        self.loaded.pop(name, None)
        self.stored[name] = None
        return True

    def as_dict(self, tx: Frame) -> VariableTracker:
        """`__globals__` of a function."""
        return tx.tr.wrap(self.value, tx.tr.constant_source(self.value))

    def item_at(self, kind: int, arg: Any) -> Any:
        return self.stored.get(arg) if kind == ir.DICT_ITEM else None

    def let_go(self, tr: Trace) -> Any:
        return missing_from(self.children(), held_items(tr, self.source, self.value, self.stored))

    def emit_update(self, cg: Codegen) -> None:
        for name, value in self.stored.items():
            if value is None and name not in self.value:
                continue
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

    value: types.ModuleType = Plain()

    def python_type(self) -> type:
        return type(self.value)

    def is_python_constant(self) -> bool:
        return True

    def as_python_constant(self) -> Any:
        return self.value

    @property
    def names(self) -> dict[str, Any]:
        """The module's dictionary, past any `__getattribute__` of its class."""
        return types.ModuleType.__dict__["__dict__"].__get__(self.value)

    def describe(self) -> str:
        return str(self.names.get("__name__", "?"))

    def tp_getattro(self, tx: Frame, name: str) -> VariableTracker:
        """A class derived from `module` may have a lookup of its own."""
        self._guard_type(tx)
        if type(self.value) is not types.ModuleType:
            custom = type_attribute(tx, type(self.value), "__getattribute__")
            if custom.value is not types.ModuleType.__getattribute__:
                return tx.call(custom, [self, ConstantVariable(name)])
        return self.plain_getattr(tx, name)

    def plain_getattr(self, tx: Frame, name: str) -> VariableTracker:
        """`module_getattro`, then the `__getattr__` of a class derived from `module` (`slot_tp_getattr_hook`)."""
        cls = type(self.value)
        namespace = tx.tr.heap.namespace(self.names)
        if name == "__dict__":
            return tx.tr.wrap(self.names, tx.tr.constant_source(self.names))
        attribute = type_attribute(tx, cls, name) if cls is not types.ModuleType else None
        if attribute is not None and attribute.tp_descr_set is not None and attribute.tp_descr_get is not None:
            return attribute.tp_descr_get(tx, self, tx.tr.type_tracker(cls))
        if name not in self.names and name not in namespace.stored:
            self._load_own(name)
        found = namespace.own(tx, name)
        if found is not None:
            return found
        if attribute is None and type_lookup(types.ModuleType, name) is not ABSENT:
            return generic_getattr(tx, self, name)
        if attribute is not None:
            bound = attribute.tp_descr_get
            return attribute if bound is None else bound(tx, self, tx.tr.type_tracker(cls))
        getattr_ = namespace.own(tx, "__getattr__")
        if getattr_ is not None:
            return tx.call(getattr_, [ConstantVariable(name)])
        hook = type_attribute(tx, cls, "__getattr__") if cls is not types.ModuleType else None
        if hook is not None:
            return tx.call(hook, [self, ConstantVariable(name)])
        own_name = self.names.get("__name__")
        who = f"module '{own_name}'" if type(own_name) is str else "module"
        message = f"{who} has no attribute '{name}'"
        return tx.raises_naming(AttributeError, message, name=ConstantVariable(name), obj=self)

    def _load_own(self, name: str) -> None:
        """Have a module of this package bind a name that it loads when first used: an import that changes nothing of the program. A name
        that it does not have stays absent."""
        hook = self.names.get("__getattr__")
        if type(hook) is types.FunctionType and hook.__globals__ is self.names and is_of_this_package(self.describe()):
            with contextlib.suppress(AttributeError, ImportError):
                hook(name)

    def _guard_type(self, tx: Frame) -> None:
        """A program may give a module of its own another class, whose attributes come before and after those of the module."""
        name = self.names.get("__name__")
        if type(name) is not str or name.partition(".")[0] not in LIBRARIES:
            node = tx.tr.source(tx.tr.constant_source(self.value), ir.TYPE, None)
            tx.tr.guard(node, ir.IS, type(self.value))

    def tp_setattro(self, tx: Frame, name: str, value: VariableTracker | None) -> None:
        self._guard_type(tx)
        if type(self.value) is not types.ModuleType:
            dunder, args = ("__delattr__", []) if value is None else ("__setattr__", [value])
            custom = type_attribute(tx, type(self.value), dunder)
            if custom.value is not object.__dict__[dunder]:
                tx.call(custom, [self, ConstantVariable(name), *args])
                return
        self.plain_setattr(tx, name, value)

    def plain_setattr(self, tx: Frame, name: str, value: VariableTracker | None) -> None:
        """`PyObject_GenericSetAttr`."""
        namespace = tx.tr.heap.namespace(self.names)
        attribute = type_attribute(tx, type(self.value), name)
        if attribute is not None and attribute.tp_descr_set is not None:
            attribute.tp_descr_set(tx, self, value)
        elif value is not None:
            namespace.store(tx, name, value)
        elif not namespace.delete(tx, name):
            tx.raises(AttributeError, name)


@method(types.ModuleType.__getattribute__)
def module_getattribute(tx: Frame, self: ModuleVariable, name: VariableTracker) -> VariableTracker:
    return self.plain_getattr(tx, name.as_python_constant())


@builds(types.ModuleType)
@builds_subclasses(types.ModuleType)
def build_module(tr: Trace, value: types.ModuleType, source: GuardNode | None) -> ModuleVariable:
    tr.guard(source, ir.IS, value)
    return ModuleVariable(value, source)


@builtin(importlib.import_module)
def import_module(tx: Frame, name: VariableTracker, package: VariableTracker | None = None) -> VariableTracker:
    absolute = host_value(name, "import")
    if package is not None or absolute.startswith(".") or absolute not in sys.modules:
        return unsupported("import", str(absolute))
    return tx.tr.build_constant_object(sys.modules[absolute])
