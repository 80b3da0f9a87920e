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
