"""Guard IR → the spec of a C `GuardProgram`.

Input: a `GuardSet`. Output: `(roots, relations, n_saved)` with nodes `(kind, arg, checks, children)`, checks and
relations `(kind, arg, index)`, where `index` is the guard's position in the set.
Invariant: every object that a guard compares with is kept alive by the program.
"""

from dynamo_lite._eval_frame import GuardProgram
from dynamo_lite.guards.ir import (
    CONST,
    DISTINCT,
    FREEVAR,
    GLOBAL_STATE,
    LOCAL,
    PREDICATE,
    SAME,
    SAVE,
    Guard,
    GuardNode,
    GuardSet,
)

# What differs between calls comes first, so that an entry that does not apply is left quickly.
_ROOT_ORDER = {LOCAL: 0, FREEVAR: 1, CONST: 2}


def build_program(guardset: GuardSet) -> GuardProgram:
    """Compile the guards for the C side."""
    return GuardProgram(build_spec(guardset))


def build_spec(guardset: GuardSet) -> tuple:
    """The nested tuples that `GuardProgram` takes."""
    slots, relations = _relations(guardset)
    nodes: dict[GuardNode, tuple] = {}
    for node in reversed(guardset.nodes):  # children before their parents
        children = tuple([nodes[child] for child in node.children.values() if child in nodes])
        checks = tuple([(guard.kind, guard.arg, guard.index) for guard in node.checks])
        if node in slots:
            checks += ((SAVE, *slots[node]),)
        if checks or children:
            nodes[node] = (node.kind, node.arg, checks, children)
    roots = sorted((root for root in guardset.roots.values() if root in nodes), key=lambda root: _ROOT_ORDER[root.kind])
    return tuple([nodes[root] for root in roots]), relations, len(slots)


def _relations(guardset: GuardSet) -> tuple[dict[GuardNode, tuple[int, int]], tuple]:
    """The slot and first user of each saved node; the relations in terms of slots, global state first."""
    slots: dict[GuardNode, tuple[int, int]] = {}
    relations = []
    for guard in guardset.relations:
        numbers = tuple([slots.setdefault(node, (len(slots), guard.index))[0] for node in guard.nodes])
        relations.append((guard.kind, _argument(guard, numbers), guard.index))
    relations.sort(key=lambda relation: relation[0] != GLOBAL_STATE)
    return slots, tuple(relations)


def _argument(guard: Guard, numbers: tuple[int, ...]) -> object:
    if guard.kind in (SAME, DISTINCT):
        return numbers
    return (guard.arg, numbers) if guard.kind == PREDICATE else guard.arg
