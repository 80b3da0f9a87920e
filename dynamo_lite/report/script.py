"""Run an unmodified script with torch's compile entry points redirected here.

Input: the path of a script or the name of a module, and its arguments. Output: its exit status as if run by Python. The
redirection ends with the script.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import importlib.machinery
import importlib.util
import io
import os
import pkgutil
import sys
import types
import zipfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import torch

from dynamo_lite import markers
from dynamo_lite.api import (
    compile,
    compile_module_,
    disable,
    get_default_backend,
    overriding,
    reset,
    set_default_backend,
)
from dynamo_lite.backends.registry import list_backends, registrations
from dynamo_lite.config import config

from .torch_package import redirected_package


@contextlib.contextmanager
def redirected(backend: str | Callable[..., Any] | None = None) -> Iterator[None]:
    """Within the block `torch.compile`, `nn.Module.compile`, the functions of `torch.compiler` that belong to them and those of torch's
    compiler package (`torch_package`) are ours, and `backend` takes the place of every one that the program asks for, in these and in our
    own functions. Backends and settings of the program end with the block."""

    @functools.wraps(torch.compile)  # noqa: TID251
    def redirected_compile(model: object = None, **options: Any) -> Any:
        return compile(model, **options)

    @functools.wraps(torch.nn.Module.compile)
    def redirected_module_compile(self: torch.nn.Module, **options: Any) -> None:
        compile_module_(self, **options)

    replacements: list[tuple[Any, str, Callable[..., Any]]] = [
        (torch, "compile", redirected_compile),
        (torch.nn.Module, "compile", redirected_module_compile),
        (torch.compiler, "reset", reset),
        (torch.compiler, "disable", disable),
        (torch.compiler, "set_stance", markers.set_stance),
        (torch.compiler, "allow_in_graph", markers.allow_in_graph),
        (torch.compiler, "assume_constant_result", markers.assume_constant_result),
        (torch.compiler, "list_backends", list_backends),
        (torch.compiler, "set_default_backend", set_default_backend),
        (torch.compiler, "get_default_backend", get_default_backend),
    ]
    with contextlib.ExitStack() as stack:
        stack.enter_context(overriding(backend))
        stack.callback(set_default_backend, get_default_backend())
        for owner, name, replacement in replacements:
            if hasattr(owner, name):  # torch 2.11 has no default backend
                stack.enter_context(mock.patch.object(owner, name, replacement))
        settings = config.to_dict()
        stack.callback(config.load_config, settings)
        stack.enter_context(registrations())
        stack.enter_context(redirected_package(settings))
        yield


def run_script(target: str, arguments: Sequence[str], *, as_module: bool = False) -> None:
    """Run a script, or with `as_module` what `python -m` would run, as `__main__`. Its exceptions propagate; `own_traceback` finds what
    Python would show of them. Raises `NoScript` if there is nothing to run."""
    code, module = _module(target) if as_module else _script(target)
    path = sys.path[:]
    path[0] = os.getcwd() if as_module else _folder_of_imports(target)
    argv = [module.__file__ if as_module else target, *arguments]
    main = sys.modules["__main__"]
    with mock.patch.object(sys, "argv", argv), mock.patch.object(sys, "path", path):
        sys.modules["__main__"] = module
        try:
            exec(code, vars(module))
        finally:
            sys.modules["__main__"] = main


class NoScript(Exception):
    """There is nothing that could be run under a name; the text says why."""


def own_traceback(error: BaseException) -> types.TracebackType | None:
    """The traceback of an exception that a script has raised, from its own first frame on; None for an exception that is not a script's."""
    found = error.__traceback__
    while found is not None and found.tb_frame.f_code is not run_script.__code__:
        found = found.tb_next
    inside = found.tb_next if found is not None else None
    return inside if inside is None or inside.tb_frame.f_globals is not globals() else None


def _script(target: str) -> tuple[types.CodeType, types.ModuleType]:
    """The code of a file, compiled or not, or of a folder or archive with a `__main__`, and the module in which it runs."""
    path = os.path.abspath(target)
    module = _main_module()
    module.__file__, module.__loader__ = path, importlib.machinery.SourceFileLoader("__main__", path)
    try:
        if not _is_file_of_code(path):
            sys.path_importer_cache.pop(path, None)
            spec = importlib.machinery.PathFinder.find_spec("__main__", [path])
            if spec is None:
                raise NoScript(
                    f"can't find '__main__' module in {path!r}" if os.path.exists(path) else _NO_FILE.format(path)
                )
            return _code_of(spec, module)
        with io.open_code(path) as file:
            code = pkgutil.read_code(file)
        if code is None:
            with io.open_code(path) as file:
                code = builtins.compile(file.read(), path, "exec", dont_inherit=True)
    except OSError as error:
        raise NoScript(f"can't open file {path!r}: {error}") from error
    return code, module


def _folder_of_imports(target: str) -> str:
    """What Python puts at the front of `sys.path` for a script: its folder (links followed), or the folder or archive that is run."""
    path = os.path.abspath(target)
    return os.path.dirname(os.path.realpath(path)) if _is_file_of_code(path) else path


def _is_file_of_code(path: str) -> bool:
    """False for a folder or an archive, in which there is a `__main__` to run."""
    return os.path.isfile(path) and not zipfile.is_zipfile(path)


_NO_FILE = "can't open file {!r}: [Errno 2] No such file or directory"


def _module(name: str) -> tuple[types.CodeType, types.ModuleType]:
    """The code of a module, or of the `__main__` of a package, and the module in which it runs."""
    path = sys.path[:]
    sys.path[0] = os.getcwd()
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
    except (ImportError, ValueError) as error:
        raise NoScript(f"No module named {name}: {error}") from error
    finally:
        sys.path[:] = path
    if spec is None:
        raise NoScript(f"No module named {name}")
    return _code_of(spec, _main_module())


def _code_of(spec: Any, module: types.ModuleType) -> tuple[types.CodeType, types.ModuleType]:
    code = spec.loader.get_code(spec.name)
    if code is None:
        raise NoScript(f"No code object available for {spec.name}")
    module.__file__, module.__loader__, module.__cached__ = spec.origin, spec.loader, spec.cached
    module.__spec__, module.__package__ = spec, spec.parent
    return code, module


def _main_module() -> types.ModuleType:
    """A `__main__` with the names that CPython gives it (`add_main_module` of `Python/pylifecycle.c`)."""
    module: Any = types.ModuleType("__main__")
    module.__builtins__, module.__cached__ = builtins, None
    if "__annotations__" in vars(sys.modules["__main__"]):  # until 3.13
        module.__annotations__ = {}
    return module
