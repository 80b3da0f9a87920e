"""Which names of CPython and torch that the package uses are gone in the versions installed here: `python -m tests.private_names`.

Input: the sources of the package; the torch, the standard library and the headers of the interpreter that runs this. Output: a line for
each module, class or function that is imported or reached through modules and is not there, with the lines that use it; what the C
compiler says about names of CPython. Exit code 1 if anything is gone.

Looked at are imports, and chains of attributes that begin at an imported module and go through modules and classes. What is asked for by
`hasattr` or `getattr`, or under `try`, is the program's own business.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import pathlib
import re
import runpy
import subprocess
import sys
import sysconfig
import tempfile
from collections import defaultdict
from types import ModuleType
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "dynamo_lite"
MISSING = object()


class Names(ast.NodeVisitor):
    """The names of other packages in one file: dotted path → lines."""

    def __init__(self) -> None:
        self.modules: dict[str, str] = {}
        self.found: dict[str, list[int]] = defaultdict(list)
        self.depth_of_try = 0

    def visit_Try(self, node: ast.Try) -> None:
        self.depth_of_try += 1
        for child in node.body:
            self.visit(child)
        self.depth_of_try -= 1
        for child in (*node.handlers, *node.orelse, *node.finalbody):
            self.visit(child)

    def visit_If(self, node: ast.If) -> None:
        """What hangs on a version, on what is installed, or is for type checkers, is not for all."""
        if re.search(r"version_info|hasattr|find_spec|TYPE_CHECKING|_HAVE_", ast.unparse(node.test)):
            return
        self.generic_visit(node)

    visit_IfExp = visit_If  # type: ignore[assignment]

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self.note(alias.name, node.lineno)
            first = alias.name.partition(".")[0]
            self.modules[alias.asname or first] = alias.name if alias.asname else first

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.level or node.module is None:
            return
        for alias in node.names:
            path = f"{node.module}.{alias.name}"
            self.note(path, node.lineno)
            self.modules[alias.asname or alias.name] = path

    def visit_Attribute(self, node: ast.Attribute) -> None:
        path = self.path_of(node)
        if path is None:
            self.generic_visit(node)
        else:
            self.note(path, node.lineno)

    def path_of(self, node: ast.expr) -> str | None:
        if isinstance(node, ast.Name):
            return self.modules.get(node.id)
        if isinstance(node, ast.Attribute):
            above = self.path_of(node.value)
            return None if above is None else f"{above}.{node.attr}"
        return None

    def note(self, path: str, line: int) -> None:
        if not self.depth_of_try and not {"__future__", "dynamo_lite"} & set(path.split(".")):
            self.found[path].append(line)


def names_of(folder: pathlib.Path = PACKAGE) -> dict[str, list[str]]:
    """Dotted path → places, of all files of a folder."""
    found: dict[str, list[str]] = defaultdict(list)
    for file in sorted(folder.rglob("*.py")):
        names = Names()
        names.visit(ast.parse(file.read_text(encoding="utf-8")))
        for path, lines in names.found.items():
            found[path] += [f"{file.relative_to(folder.parent)}:{line}" for line in lines]
    return dict(found)


def lacks(path: str) -> str | None:
    """The shortest beginning of a path that does not exist; None for what is there, or belongs to a package that is not installed. What
    lies behind something else than modules and classes is not looked at."""
    first, *rest = path.split(".")
    if importlib.util.find_spec(first) is None:
        return None
    value: Any = importlib.import_module(first)
    done = first
    for name in rest:
        if not isinstance(value, ModuleType | type):
            return None
        done = f"{done}.{name}"
        value = _member(value, name)
        if value is MISSING:
            return done
    return None


def _member(value: Any, name: str) -> Any:
    found = getattr(value, name, MISSING)
    if found is MISSING and isinstance(value, ModuleType):
        try:
            found = importlib.import_module(f"{value.__name__}.{name}")
        except ImportError:
            return MISSING
    if found is MISSING and isinstance(value, type) and name in getattr(value, "__annotations__", ()):
        return None
    return found


def gone(names: dict[str, list[str]]) -> dict[str, list[str]]:
    """What is not there → who uses it."""
    found: dict[str, list[str]] = defaultdict(list)
    for path, places in names.items():
        missing = lacks(path)
        if missing is not None:
            found[missing] += places
    return dict(found)


def errors_of_c(*options: str) -> list[str]:
    """What the C compiler says about the C file with the headers of this CPython."""
    with tempfile.TemporaryDirectory() as folder:
        header = pathlib.Path(folder, "guard_kinds.h")
        header.write_text(runpy.run_path(str(PACKAGE / "guards" / "kinds.py"))["c_header"](), encoding="utf-8")
        command = [
            *("gcc", "-fsyntax-only", "-Wall", "-Werror=implicit-function-declaration"),
            *(*options, f"-I{sysconfig.get_path('include')}", f"-I{folder}", str(PACKAGE / "_eval_frame.c")),
        ]
        done = subprocess.run(command, capture_output=True, text=True)
    return [line for line in done.stderr.splitlines() if "error:" in line or "warning:" in line]


def main() -> int:
    names = names_of()
    missing = gone(names)
    installed = importlib.util.find_spec("torch") is not None
    of_torch = sum(path.partition(".")[0] == "torch" for path in names)
    version = importlib.import_module("torch").__version__ if installed else "not installed"
    print(f"CPython {sys.version.split()[0]}, torch {version}: {len(names)} names, {of_torch} of them torch's")
    for path, places in sorted(missing.items()):
        print(f"gone: {path} ({', '.join(sorted(set(places))[:4])})")
    errors = errors_of_c()
    for line in errors:
        print(f"C: {line}")
    print(f"{len(missing)} names are gone, {len(errors)} errors and warnings of the C compiler")
    return 1 if missing or errors else 0


if __name__ == "__main__":
    raise SystemExit(main())
