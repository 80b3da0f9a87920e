"""What a trace knows of classes.

Input: attributes that are looked up and stored. Output: tables that `protocol/descr.py` reads.
Invariant: tables have ids of classes as keys, since a metaclass may make classes unhashable.
"""

from __future__ import annotations

from typing import Any

from dynamo_lite.variables.protocol.base import VariableTracker


class Classes:
    """The classes of one trace.

    Attributes:
        attributes: (id, name) → what the lookup along the MRO has found.
        written: id of a class from outside → model with its `written` attributes; `written_names`: the names of all these.
        named: classes that the message of the next exception names.
    """

    def __init__(self) -> None:
        self.attributes: dict[tuple[int, str], VariableTracker | None] = {}
        self.written: dict[int, Any] = {}
        self.written_names: set[str] = set()
        self.named: list[type] = []
