"""Which objects of the traced code are alive.

Input: a trace. Output: the objects that its frames, changed objects and exceptions lead to; the end of a generator that nothing leads to.
Invariant: an object from before the frame is not searched: what it holds lives on.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from dynamo_lite.exc import unsupported
from dynamo_lite.variables.generators.generator import ExcState
from dynamo_lite.variables.protocol.base import VariableTracker, is_lazy

if TYPE_CHECKING:
    from dynamo_lite.interp.frame import Frame

    from .tracing import Trace


MOST_LOOKED_AT = 300_000
"""Objects looked at in one run: each question starts from all frames."""


class Lifetimes:
    """The objects whose lifetimes the program may ask about, by id.

    Attributes:
        generators: those that the traced code has made.
        unclosed: the generators among them that wait inside a block whose end would run if they died.
        references: id of a model → its weak reference without a callback; `proxies`: its weak proxy.
        frame_objects: id of a frame → its frame object.
    """

    def __init__(self, tr: Trace) -> None:
        self.tr = tr
        self.generators: dict[int, Any] = {}
        self.unclosed: dict[int, Any] = {}
        self.references: dict[int, Any] = {}
        self.proxies: dict[int, Any] = {}
        self.frame_objects: dict[int, Any] = {}
        self.looked_at = 0  # objects, in all searches

    def release(self) -> None:
        """Let go of the program's objects."""
        for table in (self.frame_objects, self.generators):
            for vt in table.values():
                vt.__dict__.clear()
            table.clear()

    def dropped(self, tx: Frame, values: Iterable[Any], *kept: Any) -> None:
        """References to these are gone: a generator that nothing else leads to ends here. `kept`: what a frame gives back."""
        for vt in values:
            if id(vt) not in self.unclosed or self.is_reachable(vt, kept):
                continue
            if not all(frame.direct for frame in self.tr.thread.frames() if frame.parent is not None):
                # What an instruction has taken off the stack (to iterate over it, say) is held by its C code.
                unsupported(
                    "generator-escapes", f"{vt.describe()}, which C code that calls a function of Python may hold"
                )
            vt.finalize(tx)

    def is_reachable(self, wanted: object, roots: Iterable[Any] = ()) -> bool:
        """Whether a frame, a changed object or an exception that is handled leads to an object."""
        for vt in self.reachable(roots):
            self.looked_at += 1
            if vt is wanted:
                break
        else:
            vt = None
        if self.looked_at > MOST_LOOKED_AT:
            unsupported("code-size", "so many objects that the program asks which of them are alive")
        return vt is wanted

    def reachable(self, roots: Iterable[Any] = ()) -> Iterator[Any]:
        """The trackers that frames, changed objects and the exception that is handled refer to."""
        # The nearest first: what is asked for is mostly a few steps from a variable of the innermost frame.
        pending: collections.deque[VariableTracker | None] = collections.deque()
        for frame in self.tr.thread.frames():
            pending.extend(frame.held())
        pending.extend(roots)
        state: ExcState | None = self.tr.thread.exc_info
        while state is not None:
            pending.append(state.value)
            state = state.previous
        for vt in self.tr.effects.mutations:
            pending.extend(vt.children())
        seen = set()
        while pending:
            found = pending.popleft()
            yield found
            if found is not None and id(found) not in seen and not is_lazy(found) and found.source is None:
                seen.add(id(found))
                if not found.holds_weakly:
                    pending.extend(found.children())
