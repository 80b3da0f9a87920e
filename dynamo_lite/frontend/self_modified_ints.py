"""Numbers that a frame changes although its own guards compare them.

Input: a finished run. Output: for each number that the run guards as a constant and then replaces by another one, a hint for the next run
that this number varies.
Invariant: a version that changes what its own guards compare fits no second call, unless somebody changes it back; with the number as a
symbol it does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dynamo_lite.dynamism.dynamic_shapes import NUMBER, may_count
from dynamo_lite.guards import ir
from dynamo_lite.variables.protocol.base import is_lazy

if TYPE_CHECKING:
    from dynamo_lite.frontend.tracing import Trace


def own_changes(tr: Trace) -> dict[tuple[object, ...], None]:
    """The numbers that a finished run holds to be constants and changes itself, as hints that they vary: its version would fit no second
    call, unless somebody changes them back."""
    if not may_count():
        return {}
    owners: dict[ir.GuardNode | None, Any] = {vt.source: vt for vt in tr.effects.mutations}
    owners.update({tr.constant_source(vt.value): vt for vt in tr.classes.written.values()})
    found: dict[tuple[object, ...], None] = {}
    for guard in tr.guards if owners else ():
        node, number = guard.node, guard.arg
        if node is None or guard.kind != ir.EQUALS or type(number) not in (int, float):
            continue
        if type(tr.dynamic_hints.get((NUMBER, node.steps), number)) is not type(number):
            continue  # known to vary, or needed as a constant
        now = _item_at(owners, node)
        if now is not None and now.python_type() is type(number) and now.value != number:
            found[NUMBER, node.steps] = None
    return found


def _item_at(owners: dict[ir.GuardNode | None, Any], node: ir.GuardNode | None) -> Any:
    """The tracker at the end of a path now, if the frame has changed an object on the way; else None."""
    steps = []
    while node is not None and node not in owners:
        steps.append(node)
        node = node.parent
    found = owners.get(node)
    for step in reversed(steps):
        found = found.item_at(step.kind, step.arg) if found is not None else None
        if found is None or is_lazy(found) or found.source is step:
            return None
    return found
