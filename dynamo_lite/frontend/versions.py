"""One compiled version of a frame, and why it does not fit a call.

Input: guards and the record of an analysis; later the values of a call. Output: the Python side of a cache entry; the guards that fail.
Invariant: guards and their text are made when somebody asks for them, and are gone with the version.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

from dynamo_lite._eval_frame import Cache, Entry
from dynamo_lite.dynamism import recompile_policy
from dynamo_lite.guards.ir import GuardSet
from dynamo_lite.guards.mirror import explain_miss, mirror_source
from dynamo_lite.record import FrameRecord, Miss, MissedGuard

MOST_COMPARED = 32
"""Versions that a call is compared with to say why it is compiled: modules of one class have many together."""


class Version:
    """The Python side of one cache entry: what it rests on, for reports and for explaining misses. `guards` is a `GuardSet`, or makes one
    when somebody asks."""

    def __init__(
        self, guards: GuardSet | Callable[[], GuardSet], record: FrameRecord, owners: recompile_policy.Owners
    ) -> None:
        self._guards = guards
        self.record = record
        self.owners = owners
        self.checks: Any = None

    @property
    def guards(self) -> GuardSet:
        """What the version rests on."""
        if not isinstance(self._guards, GuardSet):
            self._guards = self._guards()
        return self._guards

    def is_given_up(self) -> bool:
        """Whether it never fits again, because its checks have failed too often."""
        return bool(self.checks) and not self.checks.hold()


class VersionText:
    """Guards of a version for reports."""

    def __init__(self, version: Version, count: int) -> None:
        self.version = weakref.ref(version)
        self.count = count

    def __len__(self) -> int:
        return self.count

    def guards(self) -> GuardSet | None:
        """The guards, None once the version is gone."""
        version = self.version()
        return version.guards if version is not None else None

    def text(self) -> str:
        guards = self.guards()
        return mirror_source(guards) if guards is not None else ""


def misses(entry: Entry, fn: FunctionType, values: tuple[Any, ...]) -> Sequence[MissedGuard]:
    """The guards of an entry that fail for a call."""
    return explain_miss(entry.owner.guards, values, fn.__closure__)


def all_misses(
    cache: Cache, fn: FunctionType, values: tuple[Any, ...]
) -> list[tuple[FrameRecord, Sequence[MissedGuard]]]:
    """The entries that were used last, with the guards of each that fail."""
    return [(entry.owner.record, misses(entry, fn, values)) for entry in cache.entries[:MOST_COMPARED]]


def nearest_miss(cache: Cache, fn: FunctionType, values: tuple[Any, ...]) -> Miss:
    """Why the nearest entry does not fit, of those that were used last: one for the place where the program goes on, if there is one."""
    found = [Miss(entry.owner.record.entry_index, misses(entry, fn, values)) for entry in cache.entries[:MOST_COMPARED]]
    failed = [miss for miss in found if miss.failures]
    return min(failed, key=lambda miss: (miss.is_elsewhere, len(miss.failures)), default=Miss(0, []))
