"""Numbers that a frame changes although its own guards compare them.

Input: a finished run. Output: for each number that the run guards as a constant and then replaces by another one, a note for the next run
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


def note_own_changes(tr: Trace) -> bool:
    """Take note of the numbers that a finished run holds to be constants and changes itself: its version would fit no second call,
    unless somebody changes them back. True if there are any."""
    if not may_count():
        return False
    owners = {vt.source: vt for vt in tr.mutations}
    owners.update({tr.constant_source(vt.value): vt for vt in tr.written_classes.values()})
    found = False
    for guard in tr.guards if owners else ():
        node, number = guard.node, guard.arg
        if guard.kind != ir.EQUALS or type(number) not in (int, float):
            continue
        if type(tr.dynamic_hints.get((NUMBER, node.steps), number)) is not type(number):
            continue  # known to vary, or needed as a constant
        now = _item_at(owners, node)
        if now is not None and now.python_type() is type(number) and now.value != number:
            tr.dynamic_hints[NUMBER, node.steps] = None
            found = True
    return found


def _item_at(owners: dict[Any, Any], node: Any) -> Any:
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
