"""The rooms of the package, read from its folders: `python -m tests.rooms --write` writes `docs/dev/MAP.md`.

A room is a folder with Python files. The docstring of its `__init__` begins with its rule and has a line `Entry: … . Tests: … .`
"""

import ast
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).parent.parent
PACKAGE = ROOT / "dynamo_lite"
MAP = ROOT / "docs" / "dev" / "MAP.md"
_LAST = re.compile(r"^Entry: (?P<entry>.+)\. Tests: (?P<tests>.+)\.$", re.MULTILINE)

HEAD = """# Map

One line per room, from the docstrings of the folders (`python -m tests.rooms --write`). How a call goes through them is in
[how-it-works.md](../how-it-works.md); what holds between them in [internals.md](internals.md). The surface that users import
(`api`, `config`, `exc`, `breaks`, `markers`, `compiler`, `optimized_module`) and what every room stands on (`record`, `signals`,
`own_builtins`, `plain_data`) lie in `dynamo_lite/` itself; `_eval_frame.c` has its headers in `csrc/`. What may import what is in the
contracts of `pyproject.toml`.

| room | rule | entry | tests |
| --- | --- | --- | --- |
"""


def files_of(room):
    """The Python files of a room itself, without those of the rooms in it."""
    return sorted(room.glob("*.py"))


def rooms():
    """The folders with Python code, the package's own first."""
    return [PACKAGE, *sorted(path.parent for path in PACKAGE.rglob("__init__.py") if path.parent != PACKAGE)]


def name_of(room):
    return room.relative_to(PACKAGE).as_posix()


def description(room):
    """(rule, entry, tests) of a room; None if its docstring does not have them."""
    text = ast.get_docstring(ast.parse((room / "__init__.py").read_text())) or ""
    last = _LAST.search(text)
    return last and (" ".join(text.partition("\n\n")[0].split()), last["entry"], last["tests"])


def page():
    """The text of `MAP.md`."""
    lines = []
    for room in rooms()[1:]:
        rule, entry, tests = description(room)
        lines.append(f"| `{name_of(room)}/` | {rule} | {entry} | {tests} |\n")
    return HEAD + "".join(lines)


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        MAP.write_text(page())
    else:
        print(page(), end="")
