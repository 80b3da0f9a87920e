"""Makes `isinstance(compiled, torch._dynamo.OptimizedModule)` true: trainers find out by it that a module is compiled.

Input: the classes of compiled modules. Output: that class of torch at the end of their method resolution order, as soon as the program
has imported it; nothing here imports it. Invariant: it comes after `object`, so that no attribute and no `super()` finds anything in it
that the module's own classes have; its properties and its length, which only it has, are hidden.

`isinstance` looks at `type(obj).__mro__`, then at `obj.__class__`. The latter is the original's class, which programs look up and
instantiate.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any
from weakref import WeakSet

from ._eval_frame import call_by_slot

_HOME = "torch._dynamo.eval_frame"
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
        if torch_class() is None:
            if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
                sys.meta_path.insert(0, _Finder())
            return
    _settle(wrapper)


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


class _Finder:
    """First in `sys.meta_path` until torch's module is imported."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != _HOME:
            return None
        sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _Finder)]
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                with _lock:
                    known = [*_classes]
                for wrapper in known:
                    _settle(wrapper)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
