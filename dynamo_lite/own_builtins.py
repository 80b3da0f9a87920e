"""The package's Python does not notice when the program replaces builtins.

Input: the builtins at the time of the package's import. Output: a copy of them, which is `__builtins__` of every module of the
package that is imported after `install`; `are_intact` says whether the code of others on which the engine builds can still rely
on those that everybody shares.
Invariant: names that the program puts into `builtins` have meaning for the program only, and are looked up there by captured code.
Mirrors `_PyEval_BuiltinsFromGlobals` of `Python/ceval.c`: a function gets the builtins that its globals name when it is made.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    ModuleSpec,
    SourceFileLoader,
    SourcelessFileLoader,
)
from types import ModuleType
from typing import Any

OWN = builtins.__dict__.copy()

# Functions that programs replace for purposes of their own, and that no other code calls while the engine is at work.
_FREE = frozenset("breakpoint copyright credits exit help input license open print quit _".split())
_DUNDERS = ("__build_class__", "__import__")
_SHARED = {name: value for name, value in OWN.items() if name in _DUNDERS or (name not in _FREE and name[:2] != "__")}


def are_intact() -> bool:
    """False while a builtin that any Python code may need is replaced."""
    return _SHARED.items() <= builtins.__dict__.items()


class _OwnBuiltins:
    """A loader whose modules' functions get the copy.

    It has a loader of the usual kind instead of being one: tools that load modules of that kind in their own way (pytest does, to rewrite
    assertions, with all modules of a package that offers a plugin) leave the others alone.
    """

    kind: Callable[[str, str], Any]

    def __init__(self, fullname: str, path: str) -> None:
        self.loader = self.kind(fullname, path)

    def __getattr__(self, name: str) -> Any:
        if name == "loader":  # of a copy that is being made
            raise AttributeError(name)
        return getattr(self.loader, name)

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__["__builtins__"] = OWN
        self.loader.exec_module(module)


class _SourceLoader(_OwnBuiltins):
    kind = SourceFileLoader


class _BytecodeLoader(_OwnBuiltins):
    kind = SourcelessFileLoader


class _Finder(FileFinder):
    """Finds the modules of one directory of the package."""

    def __init__(self, path: str) -> None:
        super().__init__(
            path,
            (ExtensionFileLoader, EXTENSION_SUFFIXES),
            (_SourceLoader, SOURCE_SUFFIXES),
            (_BytecodeLoader, BYTECODE_SUFFIXES),
        )

    def find_spec(self, fullname: str, target: ModuleType | None = None) -> ModuleSpec | None:
        spec = super().find_spec(fullname, target)
        if spec is not None:
            install(spec.submodule_search_locations)
        return spec


def install(path: list[str] | None) -> None:
    """From now on, modules in these directories are loaded with the copy. Other ways to import them work too, without it."""
    for directory in path or ():
        if isinstance(sys.path_importer_cache.get(directory), FileFinder | None):
            sys.path_importer_cache[directory] = _Finder(directory)
