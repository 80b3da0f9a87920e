"""The guards of a version as a tree of paths, in the form in which torch's log `guards` has its own.

Input: a settled `GuardSet`. Output: lines of text.
Invariant: making it runs no code of the program.
"""

from __future__ import annotations

import linecache
from collections.abc import Iterator

from dynamo_lite.guards import ir
from dynamo_lite.guards.mirror import kind_texts, text_of_spec

TORCH_NAMES = {
    ir.ABSENT: "NOT_PRESENT",
    ir.DICT_KEYS: "DICT_KEYS_MATCH",
    ir.DISTINCT: "NO_ALIASING",
    ir.EQUALS: "EQUALS_MATCH",
    ir.HAS_KEY: "DICT_CONTAINS",
    ir.IS: "ID_MATCH",
    ir.LACKS_KEY: "DICT_NOT_CONTAINS",
    ir.LEN: "LENGTH_CHECK",
    ir.PREDICATE: "SYMBOLIC_SHAPE_GUARD",
    ir.SAME: "OBJECT_ALIASING",
    ir.TENSOR: "TENSOR_MATCH",
    ir.TRUTH: "BOOL_MATCH",
    ir.TYPE_IS: "TYPE_MATCH",
}
"""What torch calls a guard of the kind; others have the names that they have here."""


def guard_tree(guardset: ir.GuardSet) -> str:
    """The tree: conditions on no value, values with their checks, conditions on several values."""
    lines = ["TREE_GUARD_MANAGER:", "+- RootGuardManager"]
    relations = list(guardset.relations)
    lines += ["| +- " + guard_line(guard) for guard in relations if guard.kind == ir.GLOBAL_STATE]
    for root in guardset.roots.values():
        lines += _below(root, 1)
    lines += ["| +- " + guard_line(guard) for guard in relations if guard.kind != ir.GLOBAL_STATE]
    return "\n".join(lines)


def guard_line(guard: ir.Guard) -> str:
    """One guard: its kind, what it demands, and the line of the program that needs it."""
    text = f"{kind_name(guard.kind)}: {_demand(guard)}"
    if guard.user is None:
        return text
    filename, lineno = guard.user
    source = linecache.getline(filename, lineno).strip()
    return f"{text:<80}  # {source}  # {filename}:{lineno}"


def kind_name(kind: int) -> str:
    """The name of a kind of guard, torch's where it has the same."""
    kind = ir.FIRM.get(kind, kind)
    return TORCH_NAMES.get(kind, ir.KIND_NAMES[kind])


def source_of(node: ir.GuardNode) -> str:
    """A path as torch writes it: the variables of the frame are items of `L`."""
    root, path = node.root, node.path
    if root.kind == ir.LOCAL and path.startswith(root.path):
        return f"L[{root.path!r}]{path[len(root.path) :]}"
    return path


def _below(node: ir.GuardNode, depth: int) -> Iterator[str]:
    if not (node.checks or node.children):
        return
    indent = "| " * depth
    accessor = ir.KIND_NAMES.get(node.kind, "MADE")
    yield f"{indent}+- GuardManager: source={source_of(node)}, accessed_by={accessor}"
    for guard in node.checks:
        yield f"{indent}| +- {guard_line(guard)}"
    for child in node.children.values():
        yield from _below(child, depth + 1)


def _demand(guard: ir.Guard) -> str:
    if guard.kind == ir.TENSOR:
        return f"{source_of(guard.guarded[0])}: {text_of_spec(guard.arg)}"
    if guard.text is not None:
        return guard.text
    kind, arg = guard.kind, guard.arg
    if kind in ir.FIRM:
        kind, arg = ir.FIRM[kind], arg()
    expected = kind_texts()[kind][0](None, arg)
    return f"{', '.join(map(source_of, guard.guarded))}: {expected}"
