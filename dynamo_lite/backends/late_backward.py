"""Backward passes that torch's compilers leave to their first use: they are on the line of progress, too.

Input: the tracing context of a graph that AOTAutograd gets. Output: none; torch tells its callbacks of a late compilation, which runs in
that context.
"""

from __future__ import annotations

import functools
import sys
import weakref
from typing import TYPE_CHECKING, Any

from dynamo_lite import progress
from dynamo_lite.exc import many
from dynamo_lite.record import GRAPH_RECORD

if TYPE_CHECKING:
    from torch.fx import GraphModule

_titles: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
_under_way: list[progress.Job | None] = []


def expect(context: Any, gm: GraphModule) -> None:
    """A backward pass may be compiled later on in this context, with which AOTAutograd has compiled the graph."""
    record = gm.meta.get(GRAPH_RECORD)
    if record is not None and progress.terminal() is not None and "torch._dynamo.callback" in sys.modules:
        operators = many(record.op_count, "operator")
        _titles[context] = f"backward pass of graph {record.id}, {operators} ({progress.place_of(gm)})"
        _listen()


@functools.cache
def _listen() -> None:
    # AOTAutograd has imported it; nothing of capture is in there.
    handler = sys.modules["torch._dynamo.callback"].callback_handler
    handler.register_start_callback(_begins)
    handler.register_end_callback(_ends)


def _begins(_: object) -> None:
    from torch._guards import TracingContext

    context = TracingContext.try_get()
    title = None if context is None else _titles.get(context)
    _under_way.append(None if title is None else progress.begin(title))


def _ends(_: object) -> None:
    if _under_way:  # not where the compilation had begun before anybody listened
        progress.end(_under_way.pop())
