"""Guard IR → the spec of a C `GuardProgram`.

Input: a `GuardSet`. Output: `(roots, relations, n_saved)` with nodes `(kind, arg, checks, children)`, checks and
relations `(kind, arg, index)`, where `index` is the guard's position in the set.
Invariant: every object that a guard compares with is kept alive by the program, or referenced weakly.
"""

from collections.abc import Sequence

from dynamo_lite._eval_frame import GraphCall, GuardProgram
from dynamo_lite.guards.ir import (
    CONST,
    DISTINCT,
    FREEVAR,
    GLOBAL_STATE,
    LOCAL,
    PREDICATE,
    REFERENT,
    SAME,
    SAVE,
    TENSOR,
    Guard,
    GuardNode,
    GuardSet,
)

# What differs between calls comes first, so that an entry that does not apply is left quickly.
_ROOT_ORDER = {LOCAL: 0, FREEVAR: 1, CONST: 2, REFERENT: 2}


def build_program(guardset: GuardSet, graph: GraphCall | None = None, handed: Sequence[GuardNode] = ()) -> GuardProgram:
    """Compile the guards for the C side. The values of the nodes `handed` become arguments of `graph`."""
    spec = build_spec(guardset, handed)
    if graph is None:
        return GuardProgram(spec)
    slots = _handed_slots(handed)
    return GuardProgram(spec, graph, tuple([slots[node][0] for node in handed]))


def build_spec(guardset: GuardSet, handed: Sequence[GuardNode] = ()) -> tuple:
    """The nested tuples that `GuardProgram` takes."""
    slots = _handed_slots(handed)
    relations = _relations(guardset, slots)
    nodes: dict[GuardNode, tuple] = {}
    specs: dict[tuple, tuple] = {}  # of tensors: equal ones are one object
    for node in reversed(guardset.nodes):  # children before their parents
        children = tuple([nodes[child] for child in node.children.values() if child in nodes])
        checks = tuple([(guard.kind, _shared(guard, specs), guard.index) for guard in node.checks])
        if node in slots:
            checks += ((SAVE, *slots[node]),)
        if checks or children:
            nodes[node] = (node.kind, node.arg, checks, children)
    roots = sorted((root for root in guardset.roots.values() if root in nodes), key=lambda root: _ROOT_ORDER[root.kind])
    return tuple([nodes[root] for root in roots]), relations, len(slots)


def _shared(guard: Guard, specs: dict[tuple, tuple]) -> object:
    return specs.setdefault(guard.arg, guard.arg) if guard.kind == TENSOR else guard.arg


def _handed_slots(handed: Sequence[GuardNode]) -> dict[GuardNode, tuple[int, int]]:
    """The first slots, and the guard to report for each; two inputs may have one path."""
    return {node: (slot, _index_near(node)) for slot, node in enumerate(dict.fromkeys(handed))}


def _relations(guardset: GuardSet, slots: dict[GuardNode, tuple[int, int]]) -> tuple:
    """The relations in terms of slots, global state first. Adds the slot and first user of each node to be saved."""
    relations = []
    for guard in guardset.relations:
        numbers = tuple([slots.setdefault(node, (len(slots), guard.index))[0] for node in guard.nodes])
        relations.append((guard.kind, _argument(guard, numbers), guard.index))
    relations.sort(key=lambda relation: relation[0] != GLOBAL_STATE)
    return tuple(relations)


def _index_near(node: GuardNode | None) -> int:
    """The guard to report when the way to this node fails: one of its own, else of the nearest node before it."""
    while node is not None:
        if node.checks:
            return node.checks[0].index
        node = node.parent
    return 0


def _argument(guard: Guard, numbers: tuple[int, ...]) -> object:
    if guard.kind in (SAME, DISTINCT):
        return numbers
    return (guard.arg, numbers) if guard.kind == PREDICATE else guard.arg
