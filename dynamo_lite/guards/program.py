"""Guard IR → the spec of a C `GuardProgram`.

Input: a `GuardSet`. Output: `(roots, relations, n_saved)` with nodes `(kind, arg, checks, children)`, checks and
relations `(kind, arg, index)`, where `index` is the guard's position in the set.
The argument `(..., n)` stands for the n-th of the objects that the program gets besides.
Invariant: every object that a guard compares with is kept alive by the program, or referenced weakly.
"""

from collections.abc import Callable, Sequence

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
    return GuardProgram(spec, graph, handed_slots(handed))


Argument = Callable[[GuardNode | Guard], object]
"""What stands in a spec for the argument of a node or a guard."""


def build_spec(guardset: GuardSet, handed: Sequence[GuardNode] = (), argument: Argument | None = None) -> tuple:
    """The nested tuples that `GuardProgram` takes. `argument` says what stands for arguments where it is not they themselves."""
    argument = argument or _Shared()
    slots = _handed_slots(handed)
    relations = _relations(guardset, slots, argument)
    nodes: dict[GuardNode, tuple] = {}
    for node in reversed(guardset.nodes):  # children before their parents
        children = tuple([nodes[child] for child in node.children.values() if child in nodes])
        checks = tuple([(guard.kind, argument(guard), guard.index) for guard in node.checks])
        if node in slots:
            checks += ((SAVE, *slots[node]),)
        if checks or children:
            nodes[node] = (node.kind, argument(node), checks, children)
    roots = sorted((root for root in guardset.roots.values() if root in nodes), key=lambda root: _ROOT_ORDER[root.kind])
    return tuple([nodes[root] for root in roots]), relations, len(slots)


def handed_slots(handed: Sequence[GuardNode]) -> tuple[int, ...]:
    """For each value that the guards hand over, where it is saved."""
    slots = _handed_slots(handed)
    return tuple([slots[node][0] for node in handed])


class _Shared:
    """The arguments as they are; equal ones of tensors are one object."""

    def __init__(self) -> None:
        self.specs: dict[object, object] = {}

    def __call__(self, of: GuardNode | Guard) -> object:
        return self.specs.setdefault(of.arg, of.arg) if of.kind == TENSOR else of.arg


def _handed_slots(handed: Sequence[GuardNode]) -> dict[GuardNode, tuple[int, int]]:
    """The first slots, and the guard to report for each; two inputs may have one path."""
    return {node: (slot, _index_near(node)) for slot, node in enumerate(dict.fromkeys(handed))}


def _relations(guardset: GuardSet, slots: dict[GuardNode, tuple[int, int]], argument: Argument) -> tuple:
    """The relations in terms of slots, global state first. Adds the slot and first user of each node to be saved."""
    relations = []
    for guard in guardset.relations:
        numbers = tuple([slots.setdefault(node, (len(slots), guard.index))[0] for node in guard.nodes])
        relations.append((guard.kind, _of_relation(guard, numbers, argument), guard.index))
    relations.sort(key=lambda relation: relation[0] != GLOBAL_STATE)
    return tuple(relations)


def _index_near(node: GuardNode | None) -> int:
    """The guard to report when the way to this node fails: one of its own, else of the nearest node before it."""
    while node is not None:
        if node.checks:
            return node.checks[0].index
        node = node.parent
    return 0


def _of_relation(guard: Guard, numbers: tuple[int, ...], argument: Argument) -> object:
    if guard.kind in (SAME, DISTINCT):
        return numbers
    return (argument(guard), numbers) if guard.kind == PREDICATE else argument(guard)
