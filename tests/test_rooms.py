"""The folders of the package: each is described, small enough to be known, and on the map."""

import ast
import collections
import pathlib
import re
import sys

import pytest

from .rooms import MAP, ROOT, description, files_of, name_of, page, rooms
from .sweeps import EVERY

MOST_FILES = 25
MOST_LINES = {
    ".": 5_135,
    "backends": 3_870,
    "backends/compiled": 1_100,
    "backends/regions": 1_080,
    "backends/rewrites": 810,
    "dynamism": 1_065,
    "frontend": 4_290,
    "graph": 2_745,
    "graph/core": 6_795,
    "graph/inputs": 810,
    "graph/logs": 600,
    "graph/passes": 2_772,
    "graph/shapes": 3_145,
    "guards": 2_210,
    "interp": 1_700,
    "isa": 3_270,
    "polyfills": 1_710,
    "report": 5_332,
    "testing": 800,
    "tune": 1_800,
    "variables": 150,
    "variables/builtin": 5_680,
    "variables/generators": 950,
    "variables/objects": 5_470,
    "variables/protocol": 3_735,
    "variables/stdlib": 3_466,
    "variables/torch": 6_795,
    "variables/torch/autograd": 2_235,
    "variables/torch/data": 3_360,
    "variables/torch/distributed": 450,
    "variables/torch/higher_order": 1_680,
    "variables/torch/numpy": 2_030,
    "variables/torch/subclasses": 890,
    "warm_cache": 1_785,
}
"""Lines of Python that a room may have, tests not counted. Who needs more says why in the commit that changes the number here."""

ROOMS = rooms()
FILES = [path for room in ROOMS for path in files_of(room)]
STANDS_FOR_MODULE = ("variables/stdlib", "polyfills", "variables/objects/weakref.py")
"""What is named as the module of the standard library that it stands for."""


@pytest.mark.parametrize("room", ROOMS, ids=name_of)
def test_size(room):
    assert sum(path.name != "__init__.py" for path in files_of(room)) <= MOST_FILES
    lines = sum(len(path.read_text().splitlines()) for path in files_of(room))
    assert lines <= MOST_LINES[name_of(room)]


def test_each_room_has_a_budget():
    assert sorted(MOST_LINES) == sorted(map(name_of, ROOMS))


@pytest.mark.parametrize("room", ROOMS[1:], ids=name_of)
def test_description(room):
    assert description(room) is not None
    rule, _, tests = description(room)
    assert rule.endswith(".")
    for folder in tests.replace("`", "").split(", "):
        assert (ROOT / folder).is_dir()


def test_no_file_is_named_as_a_module_of_the_standard_library_that_it_is_not():
    named = [name_of(path) for path in FILES if path.stem in sys.stdlib_module_names]
    assert [name for name in named if not name.startswith(STANDS_FOR_MODULE)] == []


SAME_MEANING = {
    "__init__",
    "backward_split",  # the cut of the graph, and the calls of hooks between the parts
    "builtins",  # the model, and the functions in Python
    "exceptions",
    "functools",
    "gradients",
    "markers",  # what users call, and what that means in captured code
    "module_hooks",
    "nested_int",
    "random",
    "registry",
    "saved_tensors",
    "sequence",
}
"""Names that several rooms use for their part in one thing."""


def test_a_file_name_has_one_meaning():
    count = collections.Counter(path.stem for path in FILES)
    assert {name for name, n in count.items() if n > 1} - SAME_MEANING == set()


TESTS = pathlib.Path(__file__).parent


def imported(path: pathlib.Path) -> set[str]:
    """The names of modules, and of what is imported from them, in the import statements of a file, without their packages."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {node.module or "", *(alias.name for alias in node.names)}
    return {name.rpartition(".")[2] for name in found}


def test_no_file_imports_a_test_file():
    """What test files share lies in `tests/helpers/`, or in a file without tests beside them."""
    files = sorted(TESTS.rglob("*.py"))
    tests = {path.stem for path in files if path.name.startswith("test_")}
    importing = {path.relative_to(TESTS).as_posix(): imported(path) & tests for path in files}
    assert {name: found for name, found in importing.items() if found} == {}


def test_the_map_is_current():
    assert MAP.read_text() == page()


def test_every_pattern_of_the_sweeps_names_a_test():
    """A test that is renamed would come back to `make test`, or leave it, without a word."""
    tests = pathlib.Path(__file__).parent
    functions = {
        f"{path.relative_to(tests)}::{node.name}"
        for path in tests.rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
    }
    named = {re.sub(r"::Test\w+::", "::", re.split(r"[*\[]", pattern)[0]) for pattern in EVERY}
    assert named <= functions
