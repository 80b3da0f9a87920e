"""The interpreter and the models choose by real objects and tables, never by a chain of tests on names."""

import ast
import pathlib

import pytest

PACKAGE = pathlib.Path(__file__).parent.parent / "dynamo_lite"
FILES = sorted([*(PACKAGE / "interp").rglob("*.py"), *(PACKAGE / "variables").rglob("*.py")])
LONGEST = 2  # names that one value may be compared with in one function


def names_compared(test):
    """(text of what is compared, name) for each comparison with an identifier in a condition."""
    for node in ast.walk(test):
        if not isinstance(node, ast.Compare) or len(node.ops) != 1:
            continue
        left, right = node.left, node.comparators[0]
        if isinstance(left, ast.Constant):
            left, right = right, left
        if isinstance(node.ops[0], (ast.Eq, ast.NotEq)):
            found = [right]
        elif isinstance(node.ops[0], (ast.In, ast.NotIn)) and isinstance(right, (ast.Tuple, ast.List, ast.Set)):
            found = right.elts
        else:
            continue
        for item in found:
            if isinstance(item, ast.Constant) and isinstance(item.value, str) and item.value.isidentifier():
                yield ast.unparse(left), item.value


def conditions(function):
    """The tests of `if`, conditional expressions and `match` in a function, without those of functions inside."""
    work = list(ast.iter_child_nodes(function))
    while work:
        node = work.pop()
        if isinstance(node, (ast.If, ast.IfExp, ast.While)):
            yield from names_compared(node.test)
        elif isinstance(node, ast.Match):
            for case in node.cases:
                for pattern in ast.walk(case.pattern):
                    if isinstance(pattern, ast.MatchValue) and isinstance(pattern.value, ast.Constant):
                        yield ast.unparse(node.subject), str(pattern.value.value)
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            work += ast.iter_child_nodes(node)


def chains(source):
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            subjects = {}
            for subject, name in conditions(function):
                subjects.setdefault(subject, set()).add(name)
            for subject, names in subjects.items():
                if len(names) > LONGEST:
                    yield function.lineno, function.name, subject, sorted(names)


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_no_chain_of_name_tests(path):
    assert list(chains(path.read_text())) == []


HOST_CLASSES = {
    "type",
    "dict",
    "list",
    "tuple",
    "set",
    "frozenset",
    "range",
    "OrderedDict",
    "property",
    "staticmethod",
    "classmethod",
}
OF_PROGRAMS = [
    p
    for p in [*FILES, *(PACKAGE / "frontend").glob("*.py"), *(PACKAGE / "guards").glob("*.py")]
    if "torch" not in p.parts
]


@pytest.mark.parametrize("path", OF_PROGRAMS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_no_object_of_the_program_is_asked_for_its_class(path):
    """`isinstance` reads `__class__`, which the program may compute: `issubclass(type(obj), cls)` does not."""
    found = []
    for call in ast.walk(ast.parse(path.read_text())):
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "isinstance":
            classes = {ast.unparse(node) for node in ast.walk(call.args[1])}
            if classes & HOST_CLASSES or any(
                name.startswith("types.") or name.endswith("FunctionType") for name in classes
            ):
                found.append((call.lineno, ast.unparse(call)))
    assert found == []


def test_what_a_chain_is():
    chain = """
def f(self, name):
    if name == "append":
        return 1
    elif "extend" == name:
        return 2
    if name in ("pop", "sort"):
        return 3
"""
    assert [found[3] for found in chains(chain)] == [["append", "extend", "pop", "sort"]]
    assert [found[3] for found in chains("def f(x):\n match x.name:\n  case 'a': pass\n  case 'b' | 'c': pass\n")] == [
        ["a", "b", "c"]
    ]
    assert list(chains("def f(x, y):\n if x == 'a' and y == 'b' and x == 'c' or x in TABLE or x == '<': pass\n")) == []


# -- the core as reports, the tuner, the backends and the helpers of tests see it

CORE = ("dynamism", "frontend", "graph", "guards", "interp", "isa", "polyfills", "variables", "_eval_frame")
SATELLITES = ("backends", "report", "testing", "tune")
INTERFACE = {
    "_eval_frame",  # of `set_region` and `call_moved`
    "graph.core.keep_dynamo_unloaded.without_compiler",
    "graph.core.state.SETTINGS",
    "graph.serialized.versions",
    "graph.shapes.symbols.InputSource",
    "isa.resume.original_name",
}
"""All that these rooms know of the core, besides the records and what users import: a dozen names at most."""

INSPECTORS = {
    "report/debug.py": {
        "frontend.analysis.Analysis", "guards.mirror.mirror_source", "interp.frame", "variables.objects.cell.CellVariable",
        "variables.protocol.base.MISSING", "variables.protocol.trace_rules",
    },
    "report/export.py": {
        "dynamism.mark_constraints", "graph.core.state", "graph.passes.checks.CHECKS", "guards.ir", "guards.mirror",
        "variables.builtin.dict.DictVariable", "variables.objects.traceback_object.TracebackVariable",
        "variables.stdlib.printing.LateOutput", "variables.torch.data.extremes.ExtremeChoice",
    },
    "report/export_shapes.py": {"dynamism.mark_constraints", "guards.mirror"},
    "report/forecast.py": {
        "interp.ops", "isa", "isa.canon.TERMINAL", "isa.flow.side_that_goes_on", "variables.protocol.dispatch.HANDLERS",
    },
    "report/check.py": {"isa.LiftError"},
    "report/support.py": {
        "isa.typeobject", "polyfills.registry.STAND_INS", "polyfills.registry.find_polyfill",
        "variables.register_models", "variables.objects.subclass",
        "variables.protocol.dispatch", "variables.protocol.slots", "variables.protocol.trace_rules",
    },
    "report/valid_sizes.py": {
        "dynamism.mark_constraints.spoken_path", "graph.core.varying_floats.is_drawn", "graph.shapes.sizes.Number",
        "guards.ir",
    },
}  # fmt: skip
"""Reports whose subject is the engine itself, with the modules and names of the core that each reads."""


def names_imported(path):
    """What a file imports from the package at run time, as `module.name` below `dynamo_lite`."""
    tree = ast.parse(path.read_text())
    skipped = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in ast.walk(block)
    }
    package = ("dynamo_lite", *path.relative_to(PACKAGE).parts[:-1])
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and id(node) not in skipped:
            above = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join(filter(None, (*above, node.module)))
            if module.partition(".")[0] == "dynamo_lite":
                for alias in node.names:
                    yield f"{module}.{alias.name}".removeprefix("dynamo_lite.")


@pytest.mark.parametrize("room", SATELLITES)
def test_what_a_satellite_knows_of_the_core(room):
    for path in sorted((PACKAGE / room).rglob("*.py")):
        allowed = INTERFACE | INSPECTORS.get(path.relative_to(PACKAGE).as_posix(), set())
        for name in names_imported(path):
            if name.partition(".")[0] in CORE:
                prefixes = {name, name.rpartition(".")[0]}
                assert prefixes & allowed, f"{path.relative_to(PACKAGE)} imports {name} of the core"


def test_the_interface_of_the_core_is_used_and_small():
    assert len(INTERFACE) <= 12
    files = [path for room in SATELLITES for path in (PACKAGE / room).rglob("*.py")]
    used = {prefix for path in files for name in names_imported(path) for prefix in (name, name.rpartition(".")[0])}
    assert {*INTERFACE, *(name for names in INSPECTORS.values() for name in names)} <= used
    assert all((PACKAGE / path).exists() for path in INSPECTORS)
