"""Programs that change containers with a graph break between any two statements: containers and iterators survive it."""

import ast
import collections

import pytest

import dynamo_lite
from tests.helpers import container_programs as programs
from tests.helpers.differential import difference, program


def with_breaks(text):
    """A break after each statement and before the return."""
    lines = []
    for statement in ast.parse(text).body:
        if lines:
            lines.append("dynamo_lite.graph_break()")
        if isinstance(statement, ast.Expr):
            statement = ast.Assign([ast.Name("last", ast.Store())], statement.value, lineno=0)
        lines.append(ast.unparse(statement))
    if not lines[-1].startswith("return"):
        lines += ["dynamo_lite.graph_break()", "return last"]
    return "\n".join(["last = None", *lines])


def lines_of(text):
    return [line.strip() for line in text.strip().splitlines()]


GROUPS = {
    "itertools": (programs.ITERTOOLS, {}, {"xs": [1, 2, 3]}),
    "list": (programs.LIST_CHANGES, programs.LIST_NAMES, {"xs": [3, 1, 2]}),
    "dict": (programs.DICT_CHANGES, {}, {"d": {"a": 1, "b": [2]}}),
    "views": (programs.DICT_READS, {}, {"d": {"a": 1, "b": [2]}}),
    "ordered": (programs.ORDERED_DICTS, {}, {"d": collections.OrderedDict(a=1, b=2)}),
    "default": (programs.DEFAULT_DICTS, {}, {"d": collections.defaultdict(list, a=[0])}),
    "set": (programs.SET_CHANGES, {}, {"s": {1, 2, "a"}}),
    "deque": (programs.DEQUES, {}, {"d": collections.deque([1, 2, 3])}),
}


@pytest.mark.parametrize("new", [False, True], ids=["outside", "new"])
@pytest.mark.parametrize("group", GROUPS)
def test_breaks_between_statements(group, new):
    text, names, arguments = GROUPS[group]
    names = {**names, "dynamo_lite": dynamo_lite}
    problems = []
    for line in lines_of(text):
        if new:
            name, value = next(iter(arguments.items()))
            maker = f"collections.{value!r}" if type(value).__module__ == "collections" else repr(value)
            line = f"{name} = {maker.replace(repr(list), 'list')}\n{line}"
        given = {} if new else arguments
        problem = difference(program(with_breaks(line), given, names), given, calls=2, fullgraph=False)
        if problem is not None:
            problems.append(f"{line}\n  {problem}")
    assert not problems, "\n".join(problems)
