"""Import statements.

Input: the operands of IMPORT_NAME and IMPORT_FROM. Output: modules and their attributes.
Invariant: only modules that are loaded already are imported during the analysis, since loading one runs its code.
Mirrors `import_name` and `import_from` of `Python/ceval.c`.
"""

from __future__ import annotations

import builtins
import importlib.util
import sys
from types import ModuleType
from typing import Any, NoReturn

from dynamo_lite.exc import FirstUse, unsupported
from dynamo_lite.guards import ir
from dynamo_lite.variables.protocol import abstract
from dynamo_lite.variables.protocol.base import ObservedException, VariableTracker
from dynamo_lite.variables.protocol.constant import ConstantVariable

_IMPORT = builtins.__import__  # the interpreter's own, if nobody has replaced it before


def import_name(f: Any, name: str, level: int, fromlist: tuple[str, ...] | None) -> VariableTracker:
    """The module that `import name` (the top package) or `from name import …` (the module itself) binds."""
    _require_own_import(f)
    package = f.globals.value.get("__package__") if level else None
    absolute = importlib.util.resolve_name("." * level + name, package) if level else name
    if not _is_loaded(absolute):
        _not_loaded(f, absolute)
    for attribute in fromlist or ():
        if (
            f"{absolute}.{attribute}" not in sys.modules
            and not hasattr(sys.modules[absolute], attribute)
            and attribute != "*"
        ):
            unsupported("import", f"{absolute}.{attribute}")
    return _loaded_module(f, absolute if fromlist or level else absolute.partition(".")[0])


def _require_own_import(f: Any) -> None:
    """`import` calls the `__import__` that the frame's builtins have; one that the program has put there may do anything."""
    found = f.globals.builtins.load(f, "__import__") if f.globals.builtins is not None else None
    if found is None or found.value is not _IMPORT:
        unsupported("import", "builtins.__import__ is replaced")


def _not_loaded(f: Any, name: str) -> NoReturn:
    """Raise the break before a module is loaded, which happens once; at each call where it can't be found."""
    parent = name.rpartition(".")[0]
    if name in sys.modules or (parent and parent not in sys.modules) or importlib.util.find_spec(name) is None:
        unsupported("import", name)
    f.tr.guard(f.tr.source(f.tr.constant_source(sys.modules), ir.DICT_ITEM, name), ir.ABSENT, None)
    raise FirstUse("import", name)


def _is_loaded(name: str) -> bool:
    return sys.modules.get(name) is not None  # None stands for a module that may not be imported


def _loaded_module(f: Any, name: str) -> VariableTracker:
    """The module of that name; another one under the name is another result."""
    module = sys.modules[name]
    tr = f.tr
    tr.guard(tr.source(tr.constant_source(sys.modules), ir.DICT_ITEM, name), ir.IS, module)
    return tr.build_constant_object(module)


def import_from(f: Any, module: VariableTracker, name: str) -> VariableTracker:
    """The attribute, or the submodule of that name while a package is still being imported."""
    try:
        return abstract.get_attr(f, module, name)
    except ObservedException as observed:
        if not issubclass(observed.exc.python_type(), AttributeError):
            raise
    full = f"{module.as_python_constant().__name__}.{name}"
    if _is_loaded(full):
        return _loaded_module(f, full)
    error = _missing_name(module.as_python_constant(), name)
    members = {key: ConstantVariable(getattr(error, key)) for key in ("msg", "name", "path")}
    return f.raises_naming(ImportError, error.msg, **members)


def _missing_name(module: Any, name: str) -> ImportError:
    """The error of the interpreter for a name that the module does not have. Its text tells where the module is from, and differs by
    version. The stand-in for the module runs no `__getattr__`."""
    stand = ModuleType(module.__name__)
    vars(stand).update({key: value for key, value in vars(module).items() if key in _TELLING})
    try:
        exec(f"from m import {name}", {"__builtins__": {"__import__": lambda *args: stand}})
    except ImportError as error:
        return error.with_traceback(None)
    return ImportError(f"cannot import name {name!r} from {module.__name__!r}")


_TELLING = frozenset({"__file__", "__spec__"})


def import_star(f: object, module: VariableTracker) -> None:
    """`from m import *` appears at module level only, which is never captured."""
    unsupported("import", "import *")
