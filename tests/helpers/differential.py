"""Run small programs eagerly and captured, and compare: results with their types, arguments after the call, exceptions.

A program is a function, or text: statements of which the last one is an expression or a return. Every program has to be
captured as a whole (`fullgraph`), twice: the second call runs the compiled code.
"""

from __future__ import annotations

import ast
import collections
import copy
import functools
import itertools
import math
import operator
import textwrap
import types

from dynamo_lite import exc
from dynamo_lite.config import config
from dynamo_lite.frontend import convert

NAMES = {
    name: value
    for module in (collections, functools, itertools, math, operator, types)
    for name, value in [(module.__name__, module)]
}


def program(text, arguments, names=None):
    """A function with these arguments whose body is `text`; what it raises becomes part of its result."""
    body = ast.parse(textwrap.dedent(text).strip()).body
    if isinstance(body[-1], ast.Expr):
        body[-1] = ast.Return(body[-1].value)
    source = f"""
def program({", ".join(arguments)}):
    try:
{textwrap.indent(ast.unparse(body), " " * 8)}
    except Exception as error:
        return type(error), error.args
"""
    namespace = {**NAMES, **(names or {})}
    exec(compile(source, f"<{text.strip()}>", "exec"), namespace)
    return namespace["program"]


def describe(value, seen=()):
    """The value with types, order and aliasing made visible."""
    if id(value) in seen:
        return f"<cycle {len(seen) - seen.index(id(value))}>"
    seen = (*seen, id(value))
    kind = type(value).__name__
    if isinstance(value, dict):
        items = [(describe(k, seen), describe(v, seen)) for k, v in value.items()]
        extra = describe(value.default_factory) if isinstance(value, collections.defaultdict) else None
        return kind, items, extra, attributes(value, seen)
    if isinstance(value, (list, tuple, collections.deque)):
        return kind, [describe(v, seen) for v in value], getattr(value, "maxlen", None), attributes(value, seen)
    if isinstance(value, (set, frozenset)):
        return kind, sorted(map(repr, value)), attributes(value, seen)
    if isinstance(value, (type({}.keys()), type({}.values()), type({}.items()))):
        return kind, [describe(v, seen) for v in value]
    if isinstance(value, (functools.partial,)):
        return kind, describe(value.func), describe(value.args), describe(value.keywords)
    if hasattr(value, "__next__") and not isinstance(value, type):
        return kind, [describe(v, seen) for v in itertools.islice(value, 20)]
    if isinstance(value, float):
        return kind, repr(value)
    if isinstance(value, (types.FunctionType, types.MethodType)):
        return kind, value.__qualname__
    if hasattr(value, "__dict__") and not isinstance(value, (type, types.ModuleType)):
        return kind, attributes(value, seen)
    return kind, repr(value)


def attributes(value, seen):
    return [(k, describe(v, seen)) for k, v in getattr(value, "__dict__", {}).items()]


def capture(fn, fullgraph=True):
    """The captured form of a function; graphs run as they are. Needs no torch."""
    return convert.Region(lambda gm, inputs: gm.forward, fullgraph=fullgraph).wrap(fn)


def run(fn, arguments, calls):
    arguments = copy.deepcopy(arguments)
    results = []
    for _ in range(calls):
        try:
            result = fn(**arguments)
        except Exception as error:
            if isinstance(error, exc.TorchDynamoException):
                raise
            result = type(error), error.args
        results.append((describe(result), describe(arguments)))
    return results


def difference(fn, arguments, calls=2, fullgraph=True):
    """None if eager and captured execution agree, else what differs."""
    expected = run(fn, arguments, calls)
    with config.patch(capture_pure_python=True, suppress_errors=False, debug=True):
        compiled = capture(fn, fullgraph)
        try:
            actual = run(compiled, arguments, calls)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
    if expected != actual:
        return f"expected {expected}\n  captured {actual}"
    return None


def check(*texts, names=None, calls=2, fullgraph=True, **arguments):
    """Every text, given these arguments, does the same eagerly and captured (`fullgraph=False`: or with breaks)."""
    problems = []
    for text in texts:
        problem = difference(program(text, arguments, names), arguments, calls, fullgraph)
        if problem is not None:
            problems.append(f"{text.strip()}\n  {problem}")
    assert not problems, f"{len(problems)} of {len(texts)} differ:\n" + "\n".join(problems)


def check_lines(text, names=None, fullgraph=True, **arguments):
    """`check` for each line of a text."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    check(*lines, names=names, fullgraph=fullgraph, **arguments)


def breaks(text, slug, names=None, **arguments):
    """The text can't be captured as a whole, for this reason."""
    with config.patch(capture_pure_python=True, suppress_errors=False, debug=True):
        compiled = capture(program(text, arguments, names))
        try:
            compiled(**arguments)
        except exc.Unsupported as error:
            assert error.slug == slug, error
        else:
            raise AssertionError(f"no break: {text}")
