"""All runs over one frame for one set of arguments.

Input: a call that no version fits. Output: an `Entry` in the cache: a version that another process has kept, the replacement code of a
run that committed, or the original.
Invariant: each run begins with what those before it have learned (`Facts`) and changes nothing real; one commits whole.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from gc import disable as gc_disable
from gc import enable as gc_enable
from types import CodeType
from typing import TYPE_CHECKING, Any

from dynamo_lite import _eval_frame
from dynamo_lite import warm_cache as kept
from dynamo_lite.config import config
from dynamo_lite.dynamism import recompile_policy
from dynamo_lite.dynamism.automatic_dynamic import hints_of
from dynamo_lite.exc import (
    CONTEXT,
    TRACEBACK,
    BreakAt,
    FirstUse,
    LeaveData,
    NotConstant,
    NumbersSeen,
    Restart,
    RunsEagerly,
    SkipFrame,
    StateChanged,
    UnfitSizes,
    Unsupported,
    asked_for,
    asks_for_data,
    causes,
    many,
)
from dynamo_lite.graph import side
from dynamo_lite.guards.mirror import Comparison, explain_miss
from dynamo_lite.guards.program import build_program
from dynamo_lite.interp import ops as _ops  # noqa: F401  (fills the handler table)
from dynamo_lite.interp.frame import GraphBreak
from dynamo_lite.interp.resumption import raises_again
from dynamo_lite.isa.typeobject import qualname_of
from dynamo_lite.messages import short_path
from dynamo_lite.progress import shown
from dynamo_lite.record import STATS, BreakRecord, GraphRecord
from dynamo_lite.variables import register_models as _families  # noqa: F401  (registers the models)
from dynamo_lite.variables.builtin.slice import open_ranges
from dynamo_lite.variables.protocol.base import ObservedException

from .codegen import Codegen
from .facts import Facts
from .finalizers import check_finalizers, ends_too_late, watch_arguments
from .self_modified_ints import own_changes
from .strikes import TOO_LONG
from .tracing import Trace
from .versions import Version, VersionText

if TYPE_CHECKING:
    from .convert import Region
    from .root import MissedCall

MAX_RUNS = 256
"""Runs of one analysis: each restart learns one thing more, so this only ends what would not end by itself."""


class _Later:
    """In the place of what a graph does when it raises, until it is compiled: its code and guards are made, and asked, before."""

    on_failure: Any = None

    def __call__(self, *args: Any) -> Any:
        return self.on_failure(*args)

    @property
    def record(self) -> GraphRecord:
        """The record of the graph."""
        return self.on_failure.record


class Analysis:
    """The runs of one analysis. `artifacts`: what the backend makes of the graph, for later processes."""

    def __init__(self, region: Region, cache: _eval_frame.Cache, call: MissedCall) -> None:
        self.region = region
        self.cache = cache
        self.call = call
        self.fn = call.fn
        self.values = call.values
        self.record = call.record
        self.log = call.log
        self.untold: Sequence[BreakRecord] = ()  # at which the version ends that is being made
        self.facts = Facts(leaves_data=call.fn.__code__ in region.strikes.without_data)
        self.artifacts: kept.Artifacts | None = None
        # A backend that leaves changes out is told of them by the analysis, which a version from the disk would save.
        self.may_be_kept = kept.is_on() and not hasattr(region.backend, "dynamo_lite_leaves_out")

    def entry(self) -> _eval_frame.Entry:
        """An entry for these arguments: one that was kept, else that of an analysis."""
        return (self.may_be_kept and side.holds_elsewhere() and self.from_cache()) or self.run()

    def run(self) -> _eval_frame.Entry:
        """Analyse until one run commits; the entry. Raises `Unsupported` under fullgraph."""
        with side.modes_aside():  # which see what is asked of tensors
            hints = hints_of(self.region.hints, self.fn, self.values)
        with shown(f"capturing {self.record.name} ({short_path(self.record.filename)}:{self.record.lineno})") as tell:
            for _ in range(MAX_RUNS):
                with side.modes_aside():
                    tr = Trace(self.region, self.call, self.facts, hints)
                    tell(functools.partial(_operators, tr.graph))
                    try:
                        entry = self._attempt(tr)
                    except Restart as restart:
                        entry = None
                        self._restarted(restart, tr)
                    finally:
                        tell("")
                        tr.state.restore()
                        tr.release()
                if entry is not None:
                    return entry
        return self._eager_entry(Trace(self.region, self.call, Facts(), hints))

    def _restarted(self, restart: Restart, tr: Trace) -> None:
        """A run ends with a fact for the next one, unless the region remembers what it has found."""
        self.record.restarts += 1
        self.log.restarts(str(restart))
        fact = restart.fact
        if isinstance(fact, LeaveData):
            self.region.strikes.without_data.add(self.fn.__code__)
        if isinstance(fact, NumbersSeen):
            tr.dynamic_hints.update(fact.hints)
        elif fact is not None:
            self.facts = self.facts.learned(fact)

    def from_cache(self) -> _eval_frame.Entry | None:
        """The entry that another process made for such a call; None if there is none that holds."""
        with side.modes_aside():
            for version in kept.versions(self.fn, self.values, self.region):
                entry = self._revive(version)
                if entry is not None:
                    STATS.cache_hits += 1
                    return entry
        STATS.cache_misses += 1
        return None

    def _revive(self, version: kept.StoredVersion) -> Any:
        """The entry for a kept version, None if a guard fails."""
        found = kept.revived(version, lambda: self._read(version))
        if found is None:
            return None
        graph, call, later, code, program = found
        if not self._holds(program):
            return None
        if call is not None:
            call.compiled, later.on_failure = self.compile_graph(graph, version.path)
            if version.dropped:
                call.release(side.boxed_again(later.on_failure), version.dropped)
        guards, settled = version.finish(graph, call, program)
        if settled is not program and not self._holds(settled):
            return None
        if code is not self.fn.__code__:
            side.hide_code(code)
        self.record.from_cache = True
        version.describe(self.record)
        entry = self._entry_of(guards, settled, code, version.needs_hook)
        hints_of(self.region.hints, self.fn, self.values).update(version.hints)
        self.cache.add(entry)
        self.log.breaks(self.record.breaks)
        self.log.committed(code, lambda: entry.owner.guards)
        return entry

    @staticmethod
    def _read(version: kept.StoredVersion) -> tuple[Any, ...]:
        """The graph, its call, what to tell when it is compiled, the code and the guards."""
        graph = version.graph()
        call, later = None, _Later()
        if graph is not None:
            call = _eval_frame.GraphCall(later, len(graph.example_inputs()), version.positions, later)
        return graph, call, later, version.code(call), version.program(call)

    def _attempt(self, tr: Trace) -> Any:
        """One run; None if another one is needed. Outside of the `except` blocks: guards may look at the exception that the caller
        handles, and none of ours must be handled when they are checked."""
        error: Unsupported | None
        try:
            return self._capture(tr)
        except (Unsupported, NotConstant) as refusal:
            if isinstance(refusal, Unsupported):
                error = refusal
            else:
                error = Unsupported("operation-on-unknown-object", str(refusal))
            if not config.debug:
                _forget_frames(error)
        except RecursionError:
            # Not while the program was followed (`ThreadState.too_deep`): what it built is too deep for codegen to walk.
            error = Unsupported("recursion-limit", self.fn.__qualname__)
            if tr.breaks_raise:
                raise error from None
            raise SkipFrame(error.context, error) from None
        except RunsEagerly as reason:
            error = None
            self.record.skipped = f"runs eagerly: {reason}"
        except Exception as refusal:
            if not asks_for_data(refusal):
                raise
            error = Unsupported("data-dependent-size", asked_for(refusal), refusal)
            if not config.debug:
                _forget_frames(error)
        if error is None:
            return self._eager_entry(tr)
        if isinstance(error, FirstUse) and not tr.thread.loops_follow():
            # The frame will be another one from the next call on, so that its pieces are not worth compiling.
            return self._eager_entry(tr, needs_hook=False)
        learned = self._learn(tr, error)
        _forget_frames(error)
        return None if learned else self._eager_entry(tr)

    def _capture(self, tr: Trace) -> Any:
        result, broken = None, False
        try:
            watch_arguments(tr)
            result = tr.run()
        except GraphBreak:
            broken = True
        except ObservedException as error:
            on_raise = getattr(self.region.backend, "dynamo_lite_raises", None)
            if on_raise is not None:
                on_raise(error.exc)
            else:
                self._keep_graph(tr, error.exc)
        if broken:
            return self._break(tr)
        if result is None:
            # The call raises: eager execution gives the exception its true traceback.
            return self._eager_entry(tr)
        tr.state.restore()
        too_late = ends_too_late(tr, result)
        if too_late is not None:
            return self._eager_entry(tr, reason=too_late)
        leave_out = getattr(self.region.backend, "dynamo_lite_leaves_out", None)
        if leave_out is not None:
            leave_out(tr)
        self._check_effects(tr)
        is_as_well_eager = tr.graph.is_empty and not tr.effects.mutations and not tr.thread.is_told_of_capture
        if is_as_well_eager and not config.capture_pure_python:
            return self._eager_entry(tr)
        codegen = Codegen(tr, self.compile_graph)
        return self._commit(tr, codegen.finish(result), False, codegen)

    def _keep_graph(self, tr: Trace, exc: Any) -> None:
        """The call raises: break before the instruction of this frame that does, if there are operators before it. Eager execution need not
        raise if the program was told that it is captured."""
        if tr.thread.is_told_of_capture:
            return
        step = exc.raise_step
        last = self.facts.break_step
        if not tr.breaks_raise and not tr.graph.is_empty and step > 0 and (last < 0 or step < last):
            error = Unsupported("uncaught-exception", qualname_of(exc.python_type()))
            error.break_step = step
            raise error

    @staticmethod
    def _check_effects(tr: Trace) -> None:
        """Raise where what the frame has changed or begun may not end with the graph."""
        changes = own_changes(tr)
        if changes:
            raise Restart("the frame changes numbers that were held to be constants", fact=NumbersSeen(changes))
        check_finalizers(tr)
        for begun in (*tr.effects.profilers, *tr.effects.collectives):  # which end with the graph, or are not in it
            raise begun.saved

    def _break(self, tr: Trace) -> Any:
        if tr.breaks_raise and self.facts.break_reason is not None:
            raise self.facts.break_reason  # found later, when breaks were allowed again
        if raises_again(tr.thread.current):
            # What this frame is resumed with would be done for real, fail, and be what the next resume function begins with.
            return self._eager_entry(tr, reason=self.facts.break_reason)
        tr.state.restore()
        too_late = ends_too_late(tr, None)
        if too_late is not None:
            return self._eager_entry(tr, reason=too_late)
        self._check_effects(tr)
        codegen = Codegen(tr, self.compile_graph)
        reason = self.facts.break_reason
        breaks = self.untold = [] if reason is None else [BreakRecord.of(reason)]
        frames = list(tr.thread.frames())
        code = codegen.finish_break(frames[::-1])
        self.region.inner_breaks.note(tr, frames)
        return self._commit(tr, code, True, codegen, breaks)

    def _learn(self, tr: Trace, error: Unsupported) -> bool:
        """Take note of where the next run has to break; False if that can't help."""
        if not error.user_stack:
            error.user_stack = tr.thread.user_stack()
        if tr.breaks_raise:
            raise error
        if error.slug == "code-size":
            code = self.fn.__code__
            if self.region.strikes.is_last(TOO_LONG, (code.co_filename, code.co_firstlineno)):
                raise SkipFrame(error.context, error)
        turning = tr.thread.turning_frame()
        if turning is not None and turning.parent is None and self.fn.__code__ not in self.region.wanted:
            raise SkipFrame(error.context, error)
        step = error.break_step if error.break_step is not None else tr.thread.failing_step()
        if 0 <= self.facts.break_step <= step:
            self._note_break(error)
            return False
        self.facts = self.facts.learned(BreakAt(step, error, _open_ranges(tr)))
        self.record.restarts += 1
        self.log.restarts(f"{error.code} {error.title}")
        return True

    def _note_break(self, reason: Unsupported) -> None:
        """Operators run eagerly for this reason."""
        self.record.breaks.append(BreakRecord.of(reason))
        self.log.breaks(self.record.breaks[-1:])

    def _commit(
        self,
        tr: Trace,
        code: CodeType,
        needs_hook: bool,
        codegen: Codegen | None = None,
        breaks: Sequence[BreakRecord] = (),
    ) -> Any:
        tr.graph.passes.sizes.add_guards(tr)
        tr.effects.guard_distinct()
        if code is not self.fn.__code__:
            side.hide_code(code)
        entry = self._entry(tr, code, needs_hook, codegen)
        entry.owner.checks = tr.graph.passes.checks
        holds = self._holds(entry.guards)
        if not holds and not self.facts.state_changed:
            raise Restart("the program's state changed during the analysis", fact=StateChanged())
        if not holds:
            failures = explain_miss(tr.guards, self.values, self.fn.__closure__)
            if tr.graph.passes.sizes.are_assumed:
                raise UnfitSizes("; ".join(map(str, failures)))
            raise RuntimeError("a guard fails on the values it was made from: " + "; ".join(map(str, failures)))
        self.cache.add(entry)
        self.record.breaks += breaks
        self._tell_breaks()
        self.log.changes(tr.effects.mutations)
        self.log.committed(code, lambda: entry.owner.guards)
        if self.may_be_kept and side.holds_elsewhere():
            has_graph = codegen is not None and codegen.graph_call.value is not None
            path = kept.keep(tr, self.region, code, needs_hook, tr.graph if has_graph else None)
            if has_graph and self.artifacts is not None:
                self.artifacts.kept_as(path)
        return entry

    def _tell_breaks(self) -> None:
        """What follows will be the version: say where it ends."""
        self.log.breaks(self.untold)
        self.untold = ()

    def _entry(self, tr: Trace, code: CodeType, needs_hook: bool, codegen: Codegen | None) -> Any:
        tr.guards.settle()
        self.record.steps = tr.budget.steps
        self.record.guard_lines = tr.thread.functions_at
        self.record.delayed = tr.effects.delayed()
        if codegen is None:
            program = build_program(tr.guards)
        else:
            program = build_program(tr.guards, codegen.graph_call.value, codegen.graph_call.handed)
        return self._entry_of(tr.guards, program, code, needs_hook)

    def _entry_of(self, guards: Any, program: Any, code: CodeType, needs_hook: bool) -> Any:
        version = Version(guards, self.record, recompile_policy.Owners(self.fn.__code__, self.values))
        self.record.guards = VersionText(version, len(guards))
        strict = Comparison(version.guards) if config.strict_guards else None
        # The entry may be in the cache when a signal handler raises, before the callback has returned it.
        return _eval_frame.Entry(program, code, version, needs_hook, strict, self.fn.__globals__)

    def _holds(self, program: _eval_frame.GuardProgram) -> bool:
        with side.modes_back():
            return program.check(self.values, self.fn.__closure__)

    def _eager_entry(self, tr: Trace, needs_hook: bool = True, reason: Unsupported | None = None) -> Any:
        """An entry that runs the original: for these arguments there is nothing to gain, or a `reason` why operators are not captured."""
        tr.state.restore()
        if reason is not None and not tr.graph.is_empty:
            self._note_break(reason)
        code = self.fn.__code__
        # Between two looks at all objects nothing is compiled.
        return self._commit(tr, code, needs_hook and "get_objects" not in code.co_names)

    def compile_graph(self, graph: Any, version: Any = None) -> Any:
        """Hand a finished graph to the backend; what it made of it, and what to ask when that raises. `version`: the file it is from."""
        self._tell_breaks()
        self.artifacts = kept.Artifacts(self.record, version) if self.may_be_kept else None
        if _eval_frame.program_collects():
            gc_enable()  # backends do as the program does
        try:
            compiled, on_failure, graph_record = side.compile_graph(
                graph, self.region.backend, self.region.fullgraph, self.log, self.artifacts
            )
        finally:
            gc_disable()
        self.record.backend_seconds += graph_record.compile_seconds
        self.record.graphs.append(graph_record)
        return compiled, on_failure


def _operators(graph: Any) -> str:
    return many(graph.op_count, "operator") if graph.op_count else ""


def _forget_frames(error: BaseException) -> None:
    """Take away what leads from an exception, and from its causes, to the frames that it has passed, and to those that had called
    them: they hold the program's objects, and may hold the exception."""
    for cause in causes(error):
        TRACEBACK.__set__(cause, None)
        CONTEXT.__set__(cause, None)


def _open_ranges(tr: Trace) -> frozenset[int]:
    """The loops over ranges that are under way."""
    return frozenset().union(*(open_ranges(frame.held()) for frame in tr.thread.frames()))
