"""Makes a failing program shorter, on its syntax tree.

Input: the text and a predicate that says whether a text still fails. Output: the shortest text found in the given time.
"""

import ast
import copy
import time
import warnings


def shrink(text, fails, seconds=60.0):
    """Remove statements, unwrap blocks, replace expressions by their parts, as long as the text still fails."""
    deadline = time.monotonic() + seconds
    tree = ast.parse(text)
    progress = True
    while progress and time.monotonic() < deadline:
        progress = False
        for candidates in (_without_statements, _unwrapped, _simpler_expressions):
            i = 0
            while time.monotonic() < deadline:
                smaller = candidates(tree, i)
                if smaller is None:
                    break
                if smaller is not False and _fails(smaller, fails):
                    tree = smaller
                    progress = True
                else:
                    i += 1
    return ast.unparse(tree) + "\n"


def _fails(tree, fails):
    try:
        text = ast.unparse(ast.fix_missing_locations(tree))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(text, "<shrink>", "exec")
    except (SyntaxError, ValueError, RecursionError):
        return False
    return fails(text)


def _blocks(tree):
    return [
        (node, field)
        for node in ast.walk(tree)
        for field in ("body", "orelse", "finalbody", "handlers", "cases")
        if isinstance(getattr(node, field, None), list) and getattr(node, field)
    ]


def _without_statements(tree, i):
    """The i-th statement, outer ones first, gone; None after the last."""
    places = [(b, j) for b, (node, field) in enumerate(_blocks(tree)) for j in range(len(getattr(node, field)))]
    if i >= len(places):
        return None
    b, j = places[i]
    smaller = copy.deepcopy(tree)
    node, field = _blocks(smaller)[b]
    block = getattr(node, field)
    if (
        isinstance(block[j], ast.FunctionDef)
        and block[j].name in ("program", "make_args")
        or isinstance(block[j], ast.Pass)
    ):
        return False
    del block[j]
    if not block and field == "body":
        block.append(ast.Pass())
    return smaller


def _unwrapped(tree, i):
    """The i-th compound statement replaced by what it contains."""
    places = [
        (b, j)
        for b, (node, field) in enumerate(_blocks(tree))
        for j, child in enumerate(getattr(node, field))
        if isinstance(child, (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.Match))
    ]
    if i >= len(places):
        return None
    b, j = places[i]
    smaller = copy.deepcopy(tree)
    node, field = _blocks(smaller)[b]
    block = getattr(node, field)
    block[j : j + 1] = block[j].cases[0].body if isinstance(block[j], ast.Match) else block[j].body
    return smaller


def _expressions(tree):
    """Every (parent, field, index or None) that holds an expression which can be replaced."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler):
            continue  # `except 0` is another error
        for field, value in ast.iter_fields(node):
            if isinstance(value, ast.expr) and isinstance(getattr(value, "ctx", ast.Load()), ast.Load):
                found.append((node, field, None))
            elif isinstance(value, list):
                found += [
                    (node, field, k)
                    for k, v in enumerate(value)
                    if isinstance(v, (ast.expr, ast.keyword, ast.comprehension))
                ]
    return found


def _get(place):
    node, field, k = place
    return getattr(node, field) if k is None else getattr(node, field)[k]


def _choices(value):
    """What an expression may become: one of its parts, or a constant; lists of arguments may lose it."""
    parts = [c for c in ast.iter_child_nodes(value) if isinstance(c, ast.expr) and not isinstance(c, ast.Starred)]
    if isinstance(value, (ast.Constant, ast.Name)):
        parts = []
    constants = [] if isinstance(value, ast.Constant) else [ast.Constant(0), ast.List([], ast.Load())]
    return parts + constants


def _simpler_expressions(tree, i):
    for p, place in enumerate(_expressions(tree)):
        value = _get(place)
        choices = [None] if place[2] is not None else []
        choices += _choices(value) if isinstance(value, ast.expr) else []
        if i < len(choices):
            smaller = copy.deepcopy(tree)
            node, field, k = _expressions(smaller)[p]
            if choices[i] is None:
                del getattr(node, field)[k]
            elif k is None:
                setattr(node, field, copy.deepcopy(choices[i]))
            else:
                getattr(node, field)[k] = copy.deepcopy(choices[i])
            return smaller
        i -= len(choices)
    return None
