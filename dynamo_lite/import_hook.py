"""Modules that the program imports or not; nothing here imports them.

Input: the module's name, a function. Output: the function called with the module: at once where it is loaded, else behind the import; the
module where its import is over.
Mirrors `importlib._bootstrap_external`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any


def when_imported(name: str, then: Callable[[ModuleType], Any]) -> Callable[[], None]:
    """Call `then(module)` once the module of this name is there; one that is half imported counts as there. Returns a function that calls
    this off."""
    loaded = sys.modules.get(name)
    if loaded is not None:
        then(loaded)
        return lambda: None
    finder = _Finder(name, then)
    sys.meta_path.insert(0, finder)
    return finder.leave


def loaded(name: str) -> Any:
    """The module of this name; None where it is not imported, or some thread is not done with it."""
    module = sys.modules.get(name)
    return module if module is not None and not _is_under_way(module) else None


def is_under_way(name: str) -> bool:
    """Whether some thread is importing a module."""
    module = sys.modules.get(name)
    return module is not None and _is_under_way(module)


def _is_under_way(module: ModuleType) -> bool:
    return getattr(getattr(module, "__spec__", None), "_initializing", False) is True


def is_of_partial_module(error: BaseException) -> bool:
    """Whether this says that the import of a module is not over. Two threads that import what imports each other do not wait for it."""
    return isinstance(error, AttributeError | ImportError) and "partially initialized module" in str(error)


class _Finder(MetaPathFinder):
    """First in `sys.meta_path` until the module is imported."""

    def __init__(self, name: str, then: Callable[[ModuleType], Any]) -> None:
        self.name = name
        self.then = then

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The spec of the module as the path-based finder has it, whose loader tells when it has executed the module."""
        if name != self.name:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_tell(module: ModuleType) -> None:
                execute(module)
                self.leave()
                self.then(module)

            spec.loader.exec_module = execute_and_tell  # type: ignore[method-assign]
        return spec

    def leave(self) -> None:
        """Find nothing any more."""
        sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self]
