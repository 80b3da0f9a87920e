"""The code objects of the standard library.

Input: which of its files. Output: each code object of those that compile, nested ones included.
"""

import functools
import sysconfig
import types
from pathlib import Path


def code_objects(code):
    yield code
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from code_objects(const)


def library_codes(paths):
    for path in paths:
        try:
            code = compile(path.read_bytes(), str(path), "exec")
        except (SyntaxError, ValueError):
            continue
        yield from code_objects(code)


@functools.cache
def library():
    root = Path(sysconfig.get_path("stdlib"))
    return sorted(path for path in root.rglob("*.py") if "site-packages" not in path.parts)
