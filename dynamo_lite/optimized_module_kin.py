"""Makes `isinstance(compiled, torch._dynamo.OptimizedModule)` true: trainers find out by it that a module is compiled.

Input: the classes of compiled modules. Output: that class of torch at the end of their method resolution order, as soon as the program
has imported it; nothing here imports it. Invariant: it comes after `object`, so that no attribute and no `super()` finds anything in it
that the module's own classes have; its properties and its length, which only it has, are hidden.

`torch.distributed.checkpoint.state_dict` expects `_orig_mod` in the names of the parameters of that class, which ours do not have: it gets
them from a function around its own.

`isinstance` looks at `type(obj).__mro__`, then at `obj.__class__`. The latter is the original's class, which programs look up and
instantiate.
"""

from __future__ import annotations

import functools
import sys
import threading
from types import ModuleType
from typing import Any
from weakref import WeakSet

from ._eval_frame import call_by_slot
from .import_hook import when_imported

_HOME = "torch._dynamo.eval_frame"
_STATE_DICTS = "torch.distributed.checkpoint.state_dict"
_classes: WeakSet[type] = WeakSet()
_lock = threading.Lock()


def torch_class() -> type | None:
    """`torch._dynamo.OptimizedModule`, once it is there."""
    return getattr(sys.modules.get(_HOME), "OptimizedModule", None)


@functools.cache
def metaclass_of(base: type) -> type:
    """A metaclass whose classes end with torch's."""

    class Meta(base):  # type: ignore[misc,valid-type]
        def mro(cls) -> list[type]:
            found = super().mro()
            torchs = torch_class()
            return found if torchs is None or torchs in found else [*found, torchs]

    Meta.__name__, Meta.__qualname__, Meta.__module__ = base.__name__, base.__qualname__, base.__module__
    return Meta


def add(wrapper: Any) -> None:
    """Note a class. It gets its order anew when torch's is imported."""
    with _lock:
        _classes.add(wrapper)
        is_there = torch_class() is not None
        _wait_for_modules()
    if is_there:
        _settle(wrapper)


@functools.cache
def _wait_for_modules() -> None:
    """See to the modules of torch that know its class, be they imported or not."""
    when_imported(_HOME, _settle_all)
    when_imported(_STATE_DICTS, _expect_names)


class _InDict:
    """Hides a property of torch's class: the attribute is the instance's."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, module: Any, owner: type | None = None) -> Any:
        if module is None:
            raise AttributeError(f"type object '{owner and owner.__name__}' has no attribute '{self.name}'")
        try:
            return module.__dict__[self.name]
        except KeyError:
            raise AttributeError(f"'{type(module).__name__}' object has no attribute '{self.name}'") from None

    def __set__(self, module: Any, value: Any) -> None:
        module.__dict__[self.name] = value

    def __delete__(self, module: Any) -> None:
        if module.__dict__.pop(self.name, self) is self:
            raise AttributeError(self.name)


def _settle(wrapper: Any) -> None:
    """Torch's class has properties, and a length, which would decide about `bool(module)`; its own classes say that, if any does."""
    torchs = torch_class()
    wrapper.__bases__ = wrapper.__bases__  # computes the order of the classes
    call_by_slot(wrapper)
    own = wrapper.__mro__[: wrapper.__mro__.index(torchs)]
    for name, value in vars(torchs).items():
        if hasattr(type(value), "__set__") and not any(name in cls.__dict__ for cls in own):
            setattr(wrapper, name, _InDict(name))
    if not any("__len__" in cls.__dict__ for cls in own):
        wrapper.__len__ = _has_no_length
        if not any("__bool__" in cls.__dict__ for cls in own):
            wrapper.__bool__ = _is_true


def _has_no_length(self: Any) -> int:
    raise TypeError(f"object of type '{type(self).__name__}' has no len()")


def _is_true(self: Any) -> bool:
    return True


def _settle_all(module: ModuleType) -> None:
    if torch_class() is not None:  # not while it is being imported
        for wrapper in list(_classes):
            _settle(wrapper)


def _expect_names(module: ModuleType) -> None:
    """Give `_get_fqns` the names that it expects of torch's class."""
    get_fqns = getattr(module, "_get_fqns", None)
    if get_fqns is None:
        return

    @functools.wraps(get_fqns)
    def with_our_names(model: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        expected = _prefixed(model, name)
        found = get_fqns(model, expected, *args, **kwargs)
        return found if expected == name else {fqn.replace(_PREFIX, "") for fqn in found}

    module._get_fqns = with_our_names  # type: ignore[attr-defined]


_PREFIX = "_orig_mod."


def _prefixed(model: Any, name: str) -> str:
    """The name of a parameter, with `_orig_mod` wherever it leads through a compiled module of ours and does not say so."""
    found, obj = [], model
    for part in name.split("."):
        if type(obj) in _classes and part != "_orig_mod":
            found.append("_orig_mod")
        found.append(part)
        obj = getattr(obj, part, None)
    return ".".join(found)
