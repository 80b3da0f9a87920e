"""Modules of `torch.nn`.

Input: a real module. Output: `NNModuleVariable`, an instance whose attribute lookup and call know what
`torch.nn.Module` does.
Invariant: the short ways have the results of following `Module.__getattr__`, `__setattr__` and `__call__`, and guard
exactly the attributes that these read; a class that overrides one of them is followed.
Mirrors `torch/nn/modules/module.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn import Module
from torch.nn.modules import module as _module

from dynamo_lite.exc import unsupported
from dynamo_lite.guards import ir
from dynamo_lite.isa.typeobject import name_of, qualname_of
from dynamo_lite.variables.builtin.dict import DictVariable
from dynamo_lite.variables.objects.instance import InstanceVariable, real_dict
from dynamo_lite.variables.objects.subclass import INSTANCE_MODELS
from dynamo_lite.variables.protocol.base import MISSING, VariableTracker, is_lazy
from dynamo_lite.variables.protocol.constant import boolean
from dynamo_lite.variables.protocol.descr import DescriptorVariable, generic_setattr, type_attribute, type_lookup
from dynamo_lite.variables.protocol.dispatch import builtin
from dynamo_lite.variables.protocol.wrap import builds_subclasses, guarded

from .tensor import TensorVariable

if TYPE_CHECKING:
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.guards.ir import GuardNode
    from dynamo_lite.interp.frame import Frame

_STORES = ("_parameters", "_buffers", "_modules")
_HOOKS = ("_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_pre_hooks")
_GLOBAL_HOOKS = tuple(
    getattr(_module, f"_global_{name}")
    for name in ("backward_pre_hooks", "backward_hooks", "forward_hooks", "forward_pre_hooks")
)
_GETATTR = Module.__getattr__
_SETATTR = Module.__setattr__
_CALL = Module.__call__
_CALLED = ("_call_impl", "_compiled_call_impl")
"""What `Module.__call__` calls, where the module itself has it."""
_REGISTRATION_HOOKS = _module._global_buffer_registration_hooks


class NNModuleVariable(InstanceVariable):
    """A module. Parameters, buffers and submodules are the entries of its dictionaries."""

    def instance_dict(self, tx: Frame) -> DictVariable | None:
        found = self.dict
        if found is MISSING:
            if self.source is None:
                return super().instance_dict(tx)
            found = self.dict = plain_dict(tx.tr, real_dict(self.value), tx.tr.source(self.source, ir.INSTANCE_DICT))
        return found

    def tp_getattro(self, tx: Frame, name: str) -> VariableTracker:
        cls = self.cls
        if not has_plain_lookup(tx, cls):
            return super().tp_getattro(tx, name)
        attribute = type_attribute(tx, cls, name)
        if attribute is not None and attribute.tp_descr_set is not None:
            return super().tp_getattro(tx, name)
        own = self.instance_dict(tx)
        if attribute is None and is_untouched(own):
            found = self._registered_before(tx, own, name)
            if found is not None:
                return found
        found = own.find(name)
        if found is not None:
            return found
        if attribute is not None:
            if attribute.tp_descr_get is None:
                return attribute
            return attribute.tp_descr_get(tx, self, tx.tr.type_tracker(cls))
        return self.registered(tx, own, name)

    def _registered_before(self, tx: Frame, own: DictVariable, name: str) -> VariableTracker | None:
        """A parameter, buffer or submodule that the module has had since before the trace.

        Its name is in one store only and in no other dictionary: `Module.__setattr__` and the `register_*` methods see
        to that, so there is nothing to guard but the entry itself.
        """
        real = own.value
        if name in real:
            return None
        for key in _STORES:
            entries = real.get(key)
            if type(entries) is not dict:
                return None
            if name in entries:
                store = self.store_of(tx, own, key)
                if not is_untouched(store) or store.read.get(name) is None and not self._read_entry(tx, store, name):
                    return None
                return store.read[name]
        return None

    @staticmethod
    def _read_entry(tx: Frame, store: DictVariable, name: str) -> bool:
        node = tx.tr.source(store.source, ir.DICT_ITEM, name)
        tx.tr.expect(node)
        store.read[name] = tx.tr.wrap(store.value[name], node)
        return True

    def registered(self, tx: Frame, own: DictVariable, name: str) -> VariableTracker:
        """`Module.__getattr__`."""
        for key in _STORES:
            store = self.store_of(tx, own, key)
            if store is not None:
                found = store.find(name)
                if found is not None:
                    return found
        return tx.raises(AttributeError, f"'{name_of(self.cls)}' object has no attribute '{name}'")

    def store_of(self, tx: Frame, own: DictVariable, key: str) -> DictVariable | None:
        """The tracker of `_parameters`, `_buffers` or `_modules`."""
        if not is_untouched(own):
            return own.find(key)
        real = own.value.get(key)
        if type(real) is not dict:
            return own.find(key)
        return plain_dict(tx.tr, real, tx.tr.source(own.source, ir.DICT_ITEM, key))

    def rely_on(self, tx: Frame, name: str, expected: object) -> bool:
        """Whether the class has the given function under `name`, guarded."""
        attribute = type_attribute(tx, self.cls, name)
        return attribute is not None and attribute.value is expected

    def tp_setattro(self, tx: Frame, name: str, value: VariableTracker | None) -> None:
        is_usual = value is not None and self._reads_unobserved() and self.rely_on(tx, "__setattr__", _SETATTR)
        if not is_usual or not self._store_attribute(tx, name, value):
            super().tp_setattro(tx, name, value)

    def _reads_unobserved(self) -> bool:
        """Whether no `__getattribute__` of the program sees what the methods of `Module` read of the object."""
        return type_lookup(self.cls, "__getattribute__") is _GETATTRIBUTE

    def _store_attribute(self, tx: Frame, name: str, value: VariableTracker) -> bool:
        """`Module.__setattr__` for a value that registers nothing new; False if it would."""
        cls = value.python_type()
        if issubclass(cls, torch.nn.Parameter | Module) or _is_buffer(value):
            return False
        own = self.instance_dict(tx)
        parameters, buffers, modules = [self.store_of(tx, own, key) for key in _STORES]
        if any(store is not None and store.find(name) is not None for store in (parameters, modules)):
            return False
        if buffers is None or buffers.find(name) is None:
            generic_setattr(tx, self, name, value)
            return True
        if not issubclass(cls, torch.Tensor | None.__class__) or _REGISTRATION_HOOKS:
            return False
        buffers.store(tx, name, value)
        return True

    # -- calls

    def direct_call(self, tx: Frame, args: list[VariableTracker]) -> Any:
        forward = self._forward_without_hooks(tx)
        if forward is None:
            return super().direct_call(tx, args)
        return forward.direct_call(tx, args)

    def _call(self, tx: Frame, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        forward = self._forward_without_hooks(tx)
        return tx.call(forward, args, kwargs) if forward is not None else super()._call(tx, args, kwargs)

    def _forward_without_hooks(self, tx: Frame) -> VariableTracker | None:
        """The bound `forward` if calling the module is nothing but calling that, guarded; None otherwise."""
        if not self._reads_unobserved() or not self.rely_on(tx, "__call__", _CALL):
            return None
        own = self.instance_dict(tx)
        if any(own.find(name) is not None for name in _CALLED) or not self._has_no_hooks(tx, own):
            return None
        return self.tp_getattro(tx, "forward") if no_global_hooks(tx) else None

    def _has_no_hooks(self, tx: Frame, own: DictVariable) -> bool:
        """The test of `Module._call_impl`: each dictionary of hooks is false."""
        if not is_untouched(own):
            found = [own.find(key) for key in _HOOKS]
            return not any(hooks is None or hooks.mp_length(tx).value for hooks in found)
        real = own.value
        if any(real.get(key, True) or _is_changed(tx, real[key]) for key in _HOOKS):
            return False
        guards, user = tx.tr.guards, tx.tr.thread.here()
        for key in _HOOKS:
            guards.check(guards.node(own.source, ir.DICT_ITEM, key), ir.TRUTH, False, user)
        return True


INSTANCE_MODELS[Module] = NNModuleVariable


def _is_changed(tx: Frame, hooks: object) -> bool:
    """Whether the traced code has changed a dictionary of hooks."""
    known = tx.tr.heap.get(id(hooks))
    return known is not None and not is_lazy(known) and known.mutated


def no_global_hooks(tx: Frame) -> bool:
    """Whether there are no hooks for all modules, guarded; found out once per trace, as long as that changes none."""
    if any(_is_changed(tx, hooks) for hooks in _GLOBAL_HOOKS):
        return False
    facts = tx.tr.graph.modules.known
    known = facts.get("global hooks")
    if known is None:
        known = facts["global hooks"] = not any(_GLOBAL_HOOKS)
        for hooks in _GLOBAL_HOOKS:
            tx.tr.guard(tx.tr.constant_source(hooks), ir.LEN, len(hooks))
    return known


def has_plain_lookup(tx: Frame, cls: type) -> bool:
    """Whether attribute lookup in `cls` is that of `Module`, guarded; found out once per trace."""
    facts = tx.tr.graph.modules.known
    known = facts.get(cls)
    if known is None:
        own = type_lookup(cls, "__getattr__") is _GETATTR and type_lookup(cls, "__getattribute__") is _GETATTRIBUTE
        if own:
            type_attribute(tx, cls, "__getattr__")
        known = facts[cls] = own
    return known


_GETATTRIBUTE = object.__getattribute__


def is_untouched(dictionary: DictVariable) -> bool:
    """True for the model of a real dict that the traced code has not changed."""
    return dictionary.source is not None and not dictionary.mutated


def _is_buffer(value: VariableTracker) -> bool:
    return isinstance(value, TensorVariable) and value.has_attribute("_is_buffer")


def plain_dict(tr: Trace, real: dict[str, Any], source: GuardNode | None) -> DictVariable:
    """The model of an object's `__dict__`. Its type needs no guard."""
    found = tr.heap.get(id(real))
    if found is None:
        found = DictVariable.__new__(DictVariable)
        found.load_from(tr, real, source)
        tr.heap.add(real, found)
    return found


@builtin(torch.nn.RNNBase._weights_have_changed)
def weights_have_changed(tx: Frame, self: NNModuleVariable) -> VariableTracker:
    """Compares weights with weak references to them: asked of the real module, now and by each guard check."""
    if self.source is None or self.mutated:
        return unsupported("module-state", "weights of a recurrent module made during capture")
    changed = self.value._weights_have_changed()
    tx.tr.guard(self.source, ir.PYTHON, _changed if changed else _unchanged)
    return boolean(changed)


def _changed(module: Any) -> bool:
    return module._weights_have_changed()


def _unchanged(module: Any) -> bool:
    return not module._weights_have_changed()


@builds_subclasses(Module)
def build_module(tr: Trace, value: Module, source: GuardNode | None) -> NNModuleVariable:
    cls = type(value)
    tr.guard(source, ir.TYPE_IS, cls)
    tr.graph.modules.nodes[source] = value
    return NNModuleVariable(cls, value, source)


class ScriptModuleVariable(DescriptorVariable):
    """A scripted module, which is compiled already: its calls break the graph."""

    def describe(self) -> str:
        return qualname_of(type(self.value))

    def tp_getattro(self, tx: Frame, name: str) -> VariableTracker:
        return unsupported("nested-compiler", f"{self.describe()}.{name}")

    def tp_call(self, tx: Frame, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        return unsupported("nested-compiler", self.describe())


builds_subclasses(torch.jit.ScriptModule)(guarded(ir.IS, ScriptModuleVariable))
