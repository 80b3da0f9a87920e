"""The Python program that Inductor writes around its kernels, reduced to the statements that run.

Input: its source text. Output: a code object that defines `call`, the names of the kernels that `call` takes from its globals, and what it
takes from torch.
Invariant: everything that the code looks up globally is in the code itself, a builtin, a kernel, or found by name in torch; a program with
anything else is refused.
"""

from __future__ import annotations

import ast
import builtins
import dis
from collections.abc import Iterator
from types import CodeType
from typing import Any

from dynamo_lite.exc import Mismatch, Refused

ENTRY = "call"
MODULES = frozenset({"torch", "math", "random", "os", "tempfile", "ctypes", "cmath"})
"""Modules that a program may import."""

NAMESPACES = frozenset({"aten", "mkldnn", "inductor", "_quantized"})
"""Operators that are there as soon as torch is."""


class Generated:
    """`kernels`: C++ kernels. `extern`: attributes of `extern_kernels`. `chains`: dotted names below `torch`."""

    def __init__(self, source: str) -> None:
        """Raises `Refused`."""
        self.kernels: list[str] = []
        self.extern: list[str] = []
        self.chains: list[str] = []
        self.statements: dict[str, ast.stmt] = {}
        tree = ast.parse(source)
        for statement in tree.body:
            for name in _bound(statement):
                if name in self.statements:
                    raise Refused(f"a program that defines {name} twice")
                self.statements[name] = statement
        if ENTRY not in self.statements:
            raise Refused("a program without its entry")
        self.kept: dict[int, ast.stmt] = {}
        self._want(ENTRY)
        self.body = [statement for statement in tree.body if id(statement) in self.kept]
        aliases = dict(self._aliases())
        for statement in self.body:
            self._look_up(statement, aliases)

    def compile(self, filename: str) -> CodeType:
        """The code."""
        return _compiled(self.body, filename)

    def _want(self, name: str) -> None:
        """Keep what binds a name, and all that this needs."""
        statement = self.statements.get(name)
        if statement is None:
            if not hasattr(builtins, name):
                raise Refused(f"a program that needs {name}")
        elif name == "extern_kernels":
            pass
        elif _is_kernel(statement):
            if name not in self.kernels:
                self.kernels.append(name)
        elif id(statement) not in self.kept:
            if isinstance(statement, ast.Import | ast.ImportFrom):
                _check_import(statement, name)
            self.kept[id(statement)] = statement
            for other in sorted(set(_globals_of(_compiled([statement], "")))):
                self._want(other)

    def _aliases(self) -> Iterator[tuple[str, str]]:
        """Names of what lies below torch."""
        yield "torch", ""
        for statement in self.body:
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                chain = _chain(statement.value)
                if chain is not None and chain[0] == "torch":
                    yield statement.targets[0].id, ".".join(chain[1:])

    def _look_up(self, statement: ast.stmt, aliases: dict[str, str]) -> None:
        """Note the functions that a statement takes from torch and from `extern_kernels`."""
        pending: list[ast.AST] = [statement]
        while pending:
            node = pending.pop()
            chain = _chain(node)
            if chain is None:
                if isinstance(node, ast.Name) and node.id == "extern_kernels":
                    raise Refused("a program that hands extern_kernels on")
                pending.extend(ast.iter_child_nodes(node))
            elif chain[0] == "extern_kernels":
                if len(chain) != 2:
                    raise Refused(f"a program that needs {'.'.join(chain)}")
                if chain[1] not in self.extern:
                    self.extern.append(chain[1])
            elif chain[0] in aliases:
                path = ".".join(filter(None, (aliases[chain[0]], *chain[1:])))
                parts = path.split(".")
                if parts[0] == "ops" and len(parts) > 1 and parts[1] not in NAMESPACES:
                    raise Refused(f"a program that needs torch.{path}")
                if path not in self.chains:
                    self.chains.append(path)


def _compiled(body: list[ast.stmt], filename: str) -> CodeType:
    return compile(ast.Module(body, []), filename, "exec", dont_inherit=True)


def _bound(statement: ast.stmt) -> list[str]:
    """The names that a statement of a module binds."""
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return [alias.asname or alias.name.partition(".")[0] for alias in statement.names]
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return [statement.name]
    if isinstance(statement, ast.Assign):
        return [target.id for target in statement.targets if isinstance(target, ast.Name)]
    return []


def _check_import(statement: ast.Import | ast.ImportFrom, wanted: str) -> None:
    from_module = getattr(statement, "module", None)
    for alias in statement.names:
        module = from_module or alias.name
        if module not in MODULES or getattr(statement, "level", 0):
            raise Refused(f"a program that needs {wanted} of {module}")


def _is_kernel(statement: ast.stmt) -> bool:
    """`name = async_compile.cpp_pybinding([…], text)`."""
    value = statement.value if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else None
    return isinstance(value, ast.Call) and _chain(value.func) == ["async_compile", "cpp_pybinding"]


def _chain(node: Any) -> list[str] | None:
    """`a.b.c` as ["a", "b", "c"]; None for what isn't of that form, and for a bare name."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return [node.id, *reversed(names)] if names and isinstance(node, ast.Name) else None


def _globals_of(code: CodeType) -> Iterator[str]:
    """The names that a code object and those in it look up in the module."""
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield instruction.argval
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from _globals_of(const)


def alias_of(extern: object, name: str) -> str:
    """The name below torch of a function that Inductor calls. Raises `Refused` if it has none: then it is one of Inductor's."""
    import torch

    function = getattr(extern, name, None)
    if function is not None and getattr(torch, name, None) is function:
        return name
    if isinstance(function, torch._ops.OpOverload):
        namespace, _, operator = function._qualified_op_name.partition("::")
        path = f"ops.{namespace}.{operator.partition('.')[0]}.{function._overloadname}"
        if namespace in NAMESPACES and resolved(torch, path) is function:
            return path
    raise Refused(f"a program that calls {function!r}")


def resolved(torch: Any, path: str) -> Any:
    """The object with a dotted name below torch. Raises `Mismatch` if there is none here."""
    at = torch
    for name in path.split("."):
        try:
            at = getattr(at, name)
        except AttributeError:
            raise Mismatch(f"there is no torch.{path}") from None
    return at
