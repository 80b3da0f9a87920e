"""C++ kernels of one generated module, compiled several at a time.

Input: the kernels that Inductor's generated code asks for, one by one, while it is imported. Output: the functions that it would get.
Invariant: each kernel is the text that Inductor would compile by itself, under the same flags, in a namespace of its own; a text that does
not compile together with others is compiled by itself, and so is a kernel that is alone.

A run of g++ on a kernel takes 0.85 s of processor time here, of which 0.6 s go to the precompiled header, the linker and the process. A
graph has some twenty kernels: that is half of the processor time of a first call. With n workers there are n texts at a time.
"""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.util
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import BuiltinFunctionType, ModuleType, SimpleNamespace
from typing import Any, NamedTuple

from dynamo_lite.backends.rewrites.patches import Substitute
from dynamo_lite.exc import Mismatch, Refused

ENTRY = "kernel"
"""The name of the function in a text, and in a loaded library."""

ADDRESS = "_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR"
"""The environment variable from which a library takes the address of the function that reads a tensor's data pointer."""

MOST = 16
"""Kernels in one text, so that no run of the compiler takes much memory."""

_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include\b.*$", re.MULTILINE)


def substitutes() -> Iterator[Substitute]:
    """For `Patches`: two methods of Inductor's `AsyncCompile`, of which each generated module has an instance."""
    from torch._inductor.async_compile import AsyncCompile

    yield Substitute(AsyncCompile, "cpp_pybinding", lambda original: _cpp_pybinding)
    yield Substitute(AsyncCompile, "wait", lambda original: functools.partialmethod(_wait, original))


class _Kernel(NamedTuple):
    """A kernel that is not compiled yet: in a generated module, in the place of the function."""

    argument_types: Sequence[str]
    source: str


def _cpp_pybinding(self: Any, argtypes: list[str], source_code: str) -> Any:
    """In the place of `AsyncCompile.cpp_pybinding`."""
    from torch._inductor.async_compile import kernel_code_log

    kernel_code_log.info("CPP+Bindings Kernel:\n%s", source_code)
    return _Kernel(argtypes, source_code)


def _wait(self: Any, wait: Callable[..., None], scope: dict[str, Any]) -> None:
    """In the place of `AsyncCompile.wait`, to which generated code gives its variables when it has asked for all kernels."""
    from torch._inductor.async_compile import get_compile_threads

    waiting = {name: value for name, value in scope.items() if type(value) is _Kernel}
    workers = max(get_compile_threads(), 1)
    submit = self.submit if workers > 1 else None
    n_groups = max(min(workers, len(waiting)), math.ceil(len(waiting) / MOST))
    groups = [list(waiting)[first::n_groups] for first in range(n_groups)]
    loads = [_begin([waiting[name] for name in group], submit) for group in groups]
    for group, load in zip(groups, loads, strict=True):
        scope.update(zip(group, load(), strict=True))
    wait(self, scope)


def _begin(group: Sequence[_Kernel], submit: Any) -> Callable[[], list[Callable[..., Any]]]:
    """Have the kernels compiled; what waits for that, and gives the functions."""
    from torch._inductor.exc import CppCompileError

    if len(group) == 1:
        return _begin_each(group, submit)
    libraries, text = _text_classes().Library, together(map(_text, group))
    library = libraries.load_async(text, "cpu", submit_fn=submit)

    def load() -> list[Callable[..., Any]]:
        try:
            path = library().path
        except CppCompileError:
            return _begin_each(group, submit)()
        tell_address()
        try:
            return functions(path)
        except Mismatch:  # a process that was killed while it linked leaves a part of the file, for ever
            os.unlink(path)
            libraries.cache.clear()
            return functions(libraries.load_async(text, "cpu")().path)

    def functions(path: str) -> list[Callable[..., Any]]:
        return [loaded(path, entry(number)) for number in range(len(group))]

    return load


def _begin_each(group: Sequence[_Kernel], submit: Any) -> Callable[[], list[Callable[..., Any]]]:
    """The same, each by itself."""
    from torch._inductor.codecache import CppPythonBindingsCodeCache as Original

    loads = [Original.load_pybinding_async(*kernel, submit_fn=submit) for kernel in group]
    return lambda: [load() for load in loads]


def _text(kernel: _Kernel) -> str:
    """The text that Inductor would compile."""
    return _text_classes().Text.load_pybinding(*kernel)


def entry(number: int) -> str:
    """The name of the kernel with this number in a text of several."""
    return f"{ENTRY}_{number}"


def together(texts: Iterable[str]) -> str:
    """One text of several, each of which defines the function and the module `kernel`: theirs are `kernel_0`, `kernel_1`, …"""
    texts = list(texts)
    includes = dict.fromkeys(line.strip() for text in texts for line in _INCLUDE.findall(text))
    parts = ["\n".join(includes)]
    for number, text in enumerate(texts):
        name = entry(number)
        parts += [
            f"#define {ENTRY} {name}\n#define PyInit_{ENTRY} PyInit_{name}\nnamespace of_{name} {{",
            _INCLUDE.sub("", text),
            f"}}\n#undef {ENTRY}\n#undef PyInit_{ENTRY}",
        ]
    return "\n".join(parts) + "\n"


@functools.cache
def _text_classes() -> SimpleNamespace:
    """Two ways to use Inductor's cache of kernels: for the text of one that it would compile, and for a library of several."""
    from torch._inductor.codecache import CppPythonBindingsCodeCache as Original

    class Text(Original):  # type: ignore[misc]
        @classmethod
        def load_async(cls, main_code: str, *args: Any, **settings: Any) -> Callable[[], ModuleType]:
            module = ModuleType(ENTRY)
            setattr(module, cls.entry_function, main_code)
            return lambda: module

    class Library(Original):  # type: ignore[misc]
        cache: dict[str, Any] = {}

        @classmethod
        def _load_library_inner(cls, path: str, key: str) -> SimpleNamespace:
            return SimpleNamespace(path=path)

    return SimpleNamespace(Text=Text, Library=Library)


# ----------------------------------------------------------------------------------------------------------------------
# Libraries.


def library_of(kernel: Any) -> tuple[str, str]:
    """The path of the shared library of a kernel, and its entry there. Raises `Refused`."""
    module = getattr(kernel, "__self__", None)
    path = getattr(module, "__file__", None)
    if type(kernel) is not BuiltinFunctionType or kernel.__name__ != ENTRY or not path:
        raise Refused(f"a kernel that is {kernel!r}")
    return path, module.__spec__.name.rpartition(".")[2]


def loaded(path: str, name: str) -> Callable[..., Any]:
    """The kernel with this entry in a shared library. Raises `Mismatch`."""
    full_name = f"{os.path.splitext(os.path.basename(path))[0]}.{name}"
    loader = importlib.machinery.ExtensionFileLoader(full_name, path)
    spec = importlib.util.spec_from_file_location(full_name, path, loader=loader)
    try:
        module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
        loader.exec_module(module)
        return getattr(module, ENTRY)
    except (ImportError, AttributeError) as error:
        raise Mismatch(f"a kernel that can't be loaded: {error}") from error


def tell_address() -> None:
    """Tell libraries that are loaded from now on where torch reads a tensor's data pointer."""
    import torch

    os.environ[ADDRESS] = str(torch._C._dynamo.guards._torchinductor_pyobject_tensor_data_ptr)
