"""How many versions a region makes of one frame.

Input: a call that no version fits, and the versions. Output: whether one more is compiled.
Invariant: instances of a module class that share code have a limit each, also where they go on after a break; what has used up its limit
is not compiled again until the region is reset. A version that is dropped because it demands an object that is gone counts as long as
the module lives whose version it was: a loop that makes such an object in each turn would be compiled without end.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterable
from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING, Any

from dynamo_lite import _eval_frame
from dynamo_lite.config import config
from dynamo_lite.dynamism import recompile_policy
from dynamo_lite.dynamism.recompile_policy import Owners
from dynamo_lite.exc import FailOnRecompileLimitHit, RecompileError
from dynamo_lite.messages import short_path
from dynamo_lite.record import Function, log

from .versions import misses, nearest_miss

if TYPE_CHECKING:
    from .convert import Region

logger = logging.getLogger("dynamo_lite")


class RecompileLimits:
    """The limits of one region.

    Attributes:
        limit: versions per owner; None: that of the configuration.
        served: by id: the functions and modules whose region it is.
        given_up: functions whose decisions by sizes have used up a recompile limit.
        used_up: id of a cache → the modules that have used up their limits.
        gone: id of a cache → whose the versions were that demanded objects which are gone.
    """

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self.served: dict[int, weakref.ref[Any]] = {}
        self.given_up: set[Function] = set()
        self.used_up: dict[int, list[Owners]] = {}
        self.gone: dict[int, list[Owners]] = {}

    def clear(self) -> None:
        """Forget what has used up its limit."""
        self.given_up.clear()
        self.used_up.clear()
        self.gone.clear()

    def drop(self, cache: _eval_frame.Cache, outlived: Iterable[_eval_frame.Entry]) -> None:
        """Remove versions that demand objects which are gone, and go on counting them."""
        for entry in outlived:
            if entry in cache.entries:  # backends may have called the function during the analysis
                cache.remove(entry)
                self.gone.setdefault(id(cache), []).append(entry.owner.owners)

    def count(self, cache: _eval_frame.Cache, owners: Owners | None = None) -> int:
        """The versions that there are, and those that were dropped; of one owner if it is given."""
        gone = [each for each in self.gone.pop(id(cache), ()) if each.are_alive()]
        if gone:
            self.gone[id(cache)] = gone
        return sum(owners is None or each.are(owners) for each in (*gone, *(e.owner.owners for e in cache.entries)))

    def serve(self, owner: object) -> None:
        """Note what was given to `compile`: until its own limit is used up, it does not matter what others have given up."""
        if type(owner).__weakrefoffset__:
            self.served[id(owner)] = weakref.ref(owner, partial(_forget, self.served, id(owner)))

    def _serves(self, owners: Owners) -> bool:
        """Whether one of these modules was given to `compile` itself, and is no part of one that has used up its limit."""
        return any(self.served.get(i, _nothing)() is not None for i in owners.ids)

    def is_used_up(self, cache: _eval_frame.Cache, values: tuple[Any, ...]) -> bool:
        """Whether the limit of the module whose call it is was used up before. The versions of others of its class do not stop."""
        known = self.used_up.get(id(cache))
        if not known:
            return False
        owners = Owners(cache.code, values)
        return any(each.are(owners) for each in known)

    def allow(self, region: Region, cache: _eval_frame.Cache, fn: FunctionType, values: tuple[Any, ...]) -> bool:
        """Whether a call that no version fits may be compiled. Raises what the configuration says of recompilations."""
        owners = Owners(cache.code, values)
        if self.given_up and Function.of(cache.code) in self.given_up and not self._serves(owners):
            if owners.modules:
                self.used_up.setdefault(id(cache), []).append(owners)
            elif not cache.entries:
                cache.state = _eval_frame.RUN_ONLY
            if owners.modules or not cache.entries:
                return False
        n = self.count(cache)
        if not n:
            return True
        if config.error_on_recompile and self._is_recompilation(cache, fn, values):
            raise RecompileError(self.why_none_fits(cache, fn, values))
        same = self.count(cache, owners)
        limit = self.limit if self.limit is not None else config.recompile_limit
        if same < limit and n < config.accumulated_recompile_limit:
            return not _is_in_vain(region, cache, fn, values, owners)
        most = limit if same >= limit else config.accumulated_recompile_limit
        record = region.new_record(cache, fn, values)
        text = f"{record.name} reached the limit of {most} compiled versions; it runs eagerly where none fits.\n"
        if record.nearest is not None:
            text += f"  {short_path(record.filename)}:{record.lineno}, the nearest version did not fit because\n"
            text += "\n".join(f"  {line}" for line in str(record.nearest).splitlines())
        text += "\n  do: let it vary less (pass a number as a tensor), compile a smaller function, or raise config.recompile_limit"
        if config.fail_on_recompile_limit_hit or region.fullgraph:
            raise FailOnRecompileLimitHit(text)
        logger.warning(text)
        if recompile_policy.took_too_much(region.hints, cache.code, values):
            cache.state = _eval_frame.RUN_ONLY_ALL
            return False
        versions = cache.entries
        if owners.modules and same >= limit:
            versions = [e for e in versions if e.owner.owners.are(owners)]
            for i in owners.ids:
                self.served.pop(i, None)
            self.used_up.setdefault(id(cache), []).append(owners)
        else:
            cache.state = _eval_frame.RUN_ONLY
            self.served.clear()
        self.given_up |= recompile_policy.deciders((e.owner.record, misses(e, fn, values)) for e in versions)
        return False

    def _is_recompilation(self, cache: _eval_frame.Cache, fn: FunctionType, values: tuple[Any, ...]) -> bool:
        """Whether there is, or was, a version: for a module that shares versions with others one of its own, or one that holds for it but
        not for the other arguments."""
        owners = Owners(cache.code, values)
        if not owners.modules or self.count(cache, owners):
            return self.count(cache) > 0
        names = recompile_policy.names_of_modules(cache.code, values)
        return any(not recompile_policy.concern(misses(e, fn, values), names) for e in cache.entries)

    def why_none_fits(self, cache: _eval_frame.Cache, fn: FunctionType, values: tuple[Any, ...]) -> str:
        """How a call differs from the nearest version."""
        return (
            str(nearest_miss(cache, fn, values))
            if cache.entries
            else "the versions before demand objects that are gone"
        )


def _is_in_vain(
    region: Region, cache: _eval_frame.Cache, fn: FunctionType, values: tuple[Any, ...], owners: Owners
) -> bool:
    """Whether there would be a version for each turn of a loop, see `recompile_policy`; then nothing more is compiled for this
    code. If it is the code of a frame that waits within others, those are compiled once more, without it."""
    _, first, _ = recompile_policy.innermost(cache.code, values)
    alike = [e for e in cache.entries if first is cache.code or e.owner.owners.are(owners)]
    newest = max(alike, key=lambda entry: entry.owner.record.entry_index, default=None)
    if newest is None or region.fullgraph:
        return False
    version = newest.owner.record
    if not recompile_policy.breaks_in_loop(cache.code, values, version):
        return False
    reason = recompile_policy.why_in_vain(cache.code, values, version, misses(newest, fn, values))
    if reason is None:
        return False
    if first is not cache.code:
        region.inner_breaks.turns.add(first)
        return False
    record = region.new_record(cache, fn, values)
    record.skipped = f"runs eagerly where no version fits: it breaks in a loop, and {reason} differs from turn to turn"
    log.add(record)
    cache.state = _eval_frame.RUN_ONLY
    return True


def _nothing() -> None:
    return None


def _forget(table: dict[int, Any], key: int, _: object) -> None:
    table.pop(key, None)
