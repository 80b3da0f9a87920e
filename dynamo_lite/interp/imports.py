"""Import statements.

Input: the operands of IMPORT_NAME and IMPORT_FROM. Output: modules and their attributes.
Invariant: only modules that are loaded already are imported during the analysis, since loading one runs its code.
Mirrors `import_name` and `import_from` of `Python/ceval.c`.
"""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

from ..exc import unsupported
from ..variables.base import ObservedException, VariableTracker


def import_name(f: Any, name: str, level: int, fromlist: tuple[str, ...] | None) -> VariableTracker:
    """The module that `import name` (the top package) or `from name import …` (the module itself) binds."""
    package = f.globals.value.get("__package__") if level else None
    absolute = importlib.util.resolve_name("." * level + name, package) if level else name
    if absolute not in sys.modules:
        unsupported("import", absolute)
    for attribute in fromlist or ():
        if (
            f"{absolute}.{attribute}" not in sys.modules
            and not hasattr(sys.modules[absolute], attribute)
            and attribute != "*"
        ):
            unsupported("import", f"{absolute}.{attribute}")
    module = sys.modules[absolute if fromlist else absolute.partition(".")[0] if not level else absolute]
    return f.tr.build_constant_object(module)


def import_from(f: Any, module: VariableTracker, name: str) -> VariableTracker:
    """The attribute, or the submodule of that name while a package is still being imported."""
    try:
        return module.tp_getattro(f, name)
    except ObservedException as observed:
        if not issubclass(observed.exc.python_type(), AttributeError):
            raise
    full = f"{module.as_python_constant().__name__}.{name}"
    if full in sys.modules:
        return f.tr.build_constant_object(sys.modules[full])
    return f.raises(ImportError, f"cannot import name {name!r} from {module.as_python_constant().__name__!r}")


def import_star(f: Any, module: VariableTracker) -> None:
    """`from m import *` appears at module level only, which is never captured."""
    unsupported("import", "import *")
