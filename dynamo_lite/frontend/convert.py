"""From a guard miss to a cache entry.

Input: the C side's callback, with the function whose call missed and its bound arguments. Output: an `Entry` in the cache, or None:
run the original.
Invariant: a failure in here never breaks the user's program: it runs eagerly and the failure is logged once; only `fullgraph` and
debug mode raise. One analysis at a time in a process; an analysis commits whole or leaves nothing.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Sequence
from functools import cached_property, partial
from gc import disable as gc_disable
from gc import enable as gc_enable
from time import perf_counter  # bound here: programs replace functions of these modules in tests
from types import CodeType, FunctionType
from typing import Any

from dynamo_lite import _eval_frame, markers, own_builtins
from dynamo_lite import warm_cache as kept
from dynamo_lite.config import config
from dynamo_lite.dynamism import recompile_policy
from dynamo_lite.dynamism.automatic_dynamic import Memory, hints_of, note_values
from dynamo_lite.exc import (
    CAUSE,
    CONTEXT,
    ORIGINALS,
    SUPPRESS_CONTEXT,
    TRACEBACK,
    ArgumentRead,
    BackendCompilerFailed,
    FailOnRecompileLimitHit,
    FirstUse,
    InternalTorchDynamoError,
    NotConstant,
    RecompileError,
    Restart,
    RunsEagerly,
    SkipFrame,
    TorchDynamoException,
    UnfitSizes,
    Unsupported,
)
from dynamo_lite.graph import side
from dynamo_lite.guards.ir import GuardSet
from dynamo_lite.guards.mirror import Comparison, explain_miss, mirror_source
from dynamo_lite.guards.program import build_program
from dynamo_lite.interp import ops as _ops  # noqa: F401  (fills the handler table)
from dynamo_lite.interp.frame import Frame, GraphBreak
from dynamo_lite.interp.resumption import raises_again
from dynamo_lite.isa.flow import is_in_loop
from dynamo_lite.isa.resume import is_resumed
from dynamo_lite.isa.typeobject import qualname_of
from dynamo_lite.record import STATS, BreakRecord, FrameRecord, Function, Miss, log
from dynamo_lite.signals import HandlerRaised, is_lack_of_memory, let_through, relayed
from dynamo_lite.variables import register_models as _families  # noqa: F401  (registers the models)
from dynamo_lite.variables.builtin.slice import open_ranges
from dynamo_lite.variables.builtin.tuple import TupleVariable
from dynamo_lite.variables.objects.cell import CellVariable
from dynamo_lite.variables.objects.classes import forget_stand_ins
from dynamo_lite.variables.protocol import trace_rules
from dynamo_lite.variables.protocol.base import MISSING, ObservedException, real_object

from .codegen import Codegen
from .finalizers import (
    check_finalizers,
    has_mortal_arguments,
    is_held_by_garbage,
    loses_argument,
    rebound_arguments,
    watch_arguments,
)
from .observed_sizes import note_call
from .self_modified_ints import note_own_changes
from .tracing import Trace

logger = logging.getLogger("dynamo_lite")

UNCONCERNED_CALLS = 32
"""An inner frame that had nothing to do with torch so many times is not looked at again."""

UNFIT_CALLS = 2
"""After so many calls with sizes that a function does not allow for it is not analysed again."""

TOO_LONG = 2
"""A function whose analysis has used up its budget so many times is not analysed again when it does so once more."""

TOO_BROKEN = 3
"""A function with a first argument of the same class that was inlined in so many calls with a graph break in them is called instead, and
captured as a frame of its own: what follows a break in an inlined function belongs to the one call, while all callers share the parts of
a frame. A break counts for the innermost function, and for all that a loop leads to it through, as each of them would be next."""

MAX_RUNS = 256
"""Runs of one analysis: each restart learns one thing more, so this only ends what would not end by itself."""

MOST_COMPARED = 32
"""Versions that a call is compared with to say why it is compiled: modules of one class have many together."""
TRACERS = {"error_on_nested_jit_trace": "torch.jit.trace", "error_on_nested_fx_trace": "torch.fx.symbolic_trace"}
"""Setting → tracer of torch for which it says what compiled functions do."""

_analysis_lock = threading.RLock()
"""One analysis at a time: torch's tracers and compilers keep their state in globals of the process."""

if hasattr(os, "register_at_fork"):
    # A child has no thread that could ever finish the analysis that was running in its parent.
    os.register_at_fork(after_in_child=_analysis_lock._at_fork_reinit)


def _key_of(backend: object) -> Any:
    return backend if isinstance(backend, str | None) else id(backend)


def _has_globals_of(entry: Any, fn: FunctionType) -> bool:
    """Guards speak about the globals of one function; others can have the same code."""
    return entry.globals is None or entry.globals is fn.__globals__


def _described(fn: FunctionType) -> str:
    is_call_of_module = fn.__module__ == "torch.nn.modules.module"
    return "a compiled module" if is_call_of_module else f"the compiled function {fn.__qualname__}"


class Version:
    """The Python side of one cache entry: what it rests on, for reports and for explaining misses. `guards` is a `GuardSet`, or makes one
    when somebody asks."""

    def __init__(self, guards: Any, record: FrameRecord, owners: recompile_policy.Owners) -> None:
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


def _nothing() -> None:
    return None


def _forget(table: dict[int, Any], key: int, _: object) -> None:
    table.pop(key, None)


class _GuardText:
    """Guards of a frame for reports; the text is made when asked for, and gone with the compiled version."""

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


class Region(_eval_frame.Region):
    """One `optimize()` context: a backend with settings, and every cache filled under it.

    `backend` is a callable `(gm, example_inputs) -> callable`; `dynamic` None makes a size symbolic when it changes, True at
    once, False never; `fullgraph` raises `Unsupported` at the first break.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Region:
        return super().__new__(cls, None)

    def __init__(
        self,
        backend: Any,
        *,
        fullgraph: bool = False,
        dynamic: bool | None = None,
        name: str | None = None,
        recompile_limit: int | None = None,
    ) -> None:
        self.backend = backend
        self.fullgraph = fullgraph
        self.dynamic = dynamic
        self.name = name
        self.recompile_limit = recompile_limit
        self.wanted: set[CodeType] = set()  # codes that the user or a resume function asked for: no skip rule applies
        self.hints: Memory = {}
        self.resume_codes: dict[tuple[CodeType, str], CodeType] = {}
        self.resume_functions: dict[tuple[int, int], FunctionType] = {}
        self.seen_once: set[CodeType] = set()
        self.unconcerned: Counter[CodeType] = Counter()  # calls of inner frames that had nothing to do with torch
        self.aside: dict[Any, list[Any]] = {}  # backend that a stance has forced → versions made by it
        self.unfit: Counter[CodeType] = Counter()  # calls with sizes that the program does not allow for
        self.too_long: Counter[tuple[str, int]] = Counter()
        self.out_of_memory: Counter[CodeType] = Counter()
        self.inner_breaks: Counter[tuple[str, int, int]] = Counter()
        self.turns: set[CodeType] = set()  # resumed code that would have a version for each turn of a loop
        self.failing: set[Any] = set()  # branches that the program takes too often to be checks
        self.given_up: set[Function] = set()  # whose decisions by sizes have used up a recompile limit
        self.served: dict[int, weakref.ref[Any]] = {}  # by id: the functions and modules whose region it is
        self.used_up: dict[
            int, list[recompile_policy.Owners]
        ] = {}  # id of a cache → the modules that have used up their limits
        self.callback = self.on_miss

    def exchange_versions(self, before: object, now: object) -> None:
        """The stance forces another backend than before (None: this region's own): put the versions of that one aside, and take up
        those of the other."""
        self.aside[_key_of(before)] = [(cache, cache.entries, cache.state) for cache in self.caches]
        for cache in self.caches:
            cache.clear()
            cache.state = _eval_frame.COMPILE
        for cache, entries, state in self.aside.pop(_key_of(now), ()):
            for entry in reversed(entries):
                cache.add(entry)
            cache.state = state

    # -- entry points

    def wrap(self, fn: Any) -> Any:
        """The compiled callable for a function. Functions without bytecode are returned as they are."""
        function = getattr(fn, "__func__", fn)
        if not isinstance(function, FunctionType):
            return fn
        self.wanted.add(function.__code__)
        wrapped = _eval_frame.Callable(function, self.cache_for(function.__code__))
        return wrapped if function is fn else wrapped.__get__(fn.__self__)

    def resume_code(self, code: CodeType) -> CodeType:
        """The one code object for equal resume codes: a loop's second resume function is its first."""
        found = self.resume_codes.setdefault((code, code.co_filename), code)
        self.wanted.add(found)
        return found

    def resume_function(self, code: CodeType, globals_: dict[str, Any]) -> FunctionType:
        """The one function object of a resume code without free variables."""
        key = (id(code), id(globals_))
        found = self.resume_functions.get(key)
        if found is None:
            found = self.resume_functions[key] = FunctionType(code, globals_)
        return found

    def breaks_inside(self, code: CodeType, arguments: list[Any]) -> bool:
        """Whether a function is better called with these than inlined. (What is left of an earlier call goes on as it began, unless it is
        another one in each turn.)"""
        if is_resumed(code):
            return code in self.turns
        if not self.inner_breaks:
            return False
        return self.inner_breaks[_whose(code, arguments)] >= TOO_BROKEN

    def reset(self) -> None:
        """Forget all compiled versions, and what was learned of the program's values while they were made."""
        for cache in self.caches:
            cache.clear()
            cache.state = _eval_frame.COMPILE
        self.aside.clear()
        self.hints.clear()
        self.seen_once.clear()
        self.too_long.clear()
        self.out_of_memory.clear()
        self.inner_breaks.clear()
        self.turns.clear()
        self.failing.clear()
        self.given_up.clear()
        self.used_up.clear()

    # -- the callback

    def on_miss(self, cache: object, fn: FunctionType, values: tuple[Any, ...]) -> Any:
        """Called by the C side when no entry of `cache` fits: an entry, None to run the original, or an exception that the call raises,
        without the frames of the engine unless debug mode is on."""
        outer = sys.exception()
        try:
            return self._entry_for(cache, fn, values)
        except HandlerRaised as raised:
            return raised.error
        except BaseException as error:
            return error if config.debug else _as_raised_by_the_call(error, outer)

    def _entry_for(self, cache: Any, fn: FunctionType, values: tuple[Any, ...]) -> Any:
        """The entry that runs a call, None for the original. Raises only errors that the user must see."""
        if not own_builtins.are_intact() or side.has_foreign_slots():
            return None
        code = cache.code
        if side.tracer() is not None:
            if code in self.wanted:
                self._check_tracer(fn)
            return None
        stance = markers.current_stance().name
        if config.disable or stance in ("force_eager", "eager_on_recompile"):
            return None
        if side.capture_is_off():
            return None
        if code not in self.wanted:
            skipped = trace_rules.why_not_captured(code, fn.__globals__)
            if skipped is not None:
                cache.state = _eval_frame.SKIP_ALL if skipped[1] else _eval_frame.SKIP
                return None
            if not config.capture_pure_python and not side.concerns_torch(code, fn.__globals__, values):
                self.unconcerned[code] += 1
                if self.unconcerned[code] >= UNCONCERNED_CALLS:
                    cache.state = _eval_frame.SKIP
                return None
        if code.co_flags & trace_rules.GENERATOR_FLAGS:
            cache.state = _eval_frame.SKIP
            return None
        if self._is_used_up(cache, values):
            return None
        if stance in ("eager_then_compile", "aot_eager_then_compile") and code not in self.seen_once:
            self.seen_once.add(code)
            note_values(self.hints, fn, values)
            return None
        with _analysis_lock:
            for entry in cache.entries:  # another thread may have been here first
                if _has_globals_of(entry, fn) and entry.guards.check(values, fn.__closure__):
                    return entry
                if entry.guards.outlived() or entry.owner.is_given_up():
                    cache.remove(entry)
            if stance == "fail_on_recompile" and (cache.entries or code in self.wanted):
                what = self._miss_text(cache, fn, values) if cache.entries else "it is not compiled yet"
                raise RecompileError(f"{code.co_qualname} would be compiled under the stance fail_on_recompile: {what}")
            if not self._may_compile(cache, fn, values):
                return None
            with log.capture_context(), relayed():
                return self._compile(cache, fn, values)

    def _check_tracer(self, fn: FunctionType) -> None:
        """A tracer of torch calls a compiled function. Raises RuntimeError unless a setting says that it is to see the function itself."""
        key = side.tracer()
        raises = {
            "error_on_nested_jit_trace": config.error_on_nested_jit_trace,
            "error_on_nested_fx_trace": config.error_on_nested_fx_trace,
        }
        if key is not None and raises[key]:
            raise RuntimeError(
                f"{TRACERS[key]} calls {_described(fn)}: have it trace the original ({ORIGINALS}), or set dynamo_lite.config.{key} "
                "= False, with which the original runs inside of what is traced"
            )

    def check_reader(self, fn: FunctionType) -> None:
        """Called by the C side when somebody reads the code of a compiled function. `torch.fx.symbolic_trace` does, just before it finds
        that this is no function: it takes nothing else. Raises RuntimeError that says so."""
        side.refuse_symbolic_trace(_described(fn))

    def _may_compile(self, cache: Any, fn: FunctionType, values: tuple[Any, ...]) -> bool:
        """The recompile limits. Instances of a module class that share code have a limit each, also where they go on after a break."""
        owners = recompile_policy.Owners(cache.code, values)
        if self.given_up and Function.of(cache.code) in self.given_up and not self._serves(owners):
            if owners.modules:
                self.used_up.setdefault(id(cache), []).append(owners)
            elif not cache.entries:
                cache.state = _eval_frame.RUN_ONLY
            if owners.modules or not cache.entries:
                return False
        if not cache.entries:
            return True
        if config.error_on_recompile and self._is_recompilation(cache, fn, values):
            raise RecompileError(self._miss_text(cache, fn, values))
        same = sum(e.owner.owners.are(owners) for e in cache.entries)
        limit = self.recompile_limit if self.recompile_limit is not None else config.recompile_limit
        if same < limit and len(cache.entries) < config.accumulated_recompile_limit:
            return not self._is_in_vain(cache, fn, values, owners)
        most = limit if same >= limit else config.accumulated_recompile_limit
        text = f"{cache.code.co_qualname} reached the limit of {most} compiled versions; it runs eagerly where none fits.\n"
        text += self._miss_text(cache, fn, values)
        if config.fail_on_recompile_limit_hit or self.fullgraph:
            raise FailOnRecompileLimitHit(text)
        logger.warning(text)
        if recompile_policy.took_too_much(self.hints, cache.code, values):
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
        self.given_up |= recompile_policy.deciders((e.owner.record, self._misses(e, fn, values)) for e in versions)
        return False

    def serve(self, owner: object) -> None:
        """Note what was given to `compile`: until its own limit is used up, it does not matter what others have given up."""
        if type(owner).__weakrefoffset__:
            self.served[id(owner)] = weakref.ref(owner, partial(_forget, self.served, id(owner)))

    def _serves(self, owners: recompile_policy.Owners) -> bool:
        """Whether one of these modules was given to `compile` itself, and is no part of one that has used up its limit."""
        return any(self.served.get(i, _nothing)() is not None for i in owners.ids)

    def _is_used_up(self, cache: Any, values: tuple[Any, ...]) -> bool:
        """Whether the limit of the module whose call it is was used up before. The versions of others of its class do not stop."""
        known = self.used_up.get(id(cache))
        if not known:
            return False
        owners = recompile_policy.Owners(cache.code, values)
        return any(each.are(owners) for each in known)

    def _is_recompilation(self, cache: Any, fn: FunctionType, values: tuple[Any, ...]) -> bool:
        """Whether there is a version already: for a module that shares versions with others one of its own, or one that holds for it but
        not for the other arguments."""
        owners = recompile_policy.Owners(cache.code, values)
        if not owners.modules or any(e.owner.owners.are(owners) for e in cache.entries):
            return bool(cache.entries)
        names = recompile_policy.names_of_modules(cache.code, values)
        return any(not recompile_policy.concern(self._misses(e, fn, values), names) for e in cache.entries)

    def _is_in_vain(
        self, cache: Any, fn: FunctionType, values: tuple[Any, ...], owners: recompile_policy.Owners
    ) -> bool:
        """Whether there would be a version for each turn of a loop, see `recompile_policy`; then nothing more is compiled for this
        code. If it is the code of a frame that waits within others, those are compiled once more, without it."""
        _, first, _ = recompile_policy.innermost(cache.code, values)
        alike = [e for e in cache.entries if first is cache.code or e.owner.owners.are(owners)]
        newest = max(alike, key=lambda entry: entry.owner.record.entry_index, default=None)
        if (
            newest is None
            or self.fullgraph
            or not recompile_policy.breaks_in_loop(cache.code, values, newest.owner.record)
        ):
            return False
        reason = recompile_policy.why_in_vain(cache.code, values, newest.owner.record, self._misses(newest, fn, values))
        if reason is None:
            return False
        if first is not cache.code:
            self.turns.add(first)
            return False
        record = self._new_record(cache, fn, values)
        record.skipped = (
            f"runs eagerly where no version fits: it breaks in a loop, and {reason} differs from turn to turn"
        )
        log.add(record)
        cache.state = _eval_frame.RUN_ONLY
        return True

    def _miss_text(self, cache: object, fn: FunctionType, values: tuple[Any, ...]) -> str:
        return str(self._nearest(cache, fn, values))

    @staticmethod
    def _misses(entry: Any, fn: FunctionType, values: tuple[Any, ...]) -> list[Any]:
        return explain_miss(entry.owner.guards, values, fn.__closure__)

    def _nearest(self, cache: Any, fn: FunctionType, values: tuple[Any, ...]) -> Miss:
        """Why the nearest entry does not fit, of those that were used last."""
        nearest = Miss(0, [])
        for entry in cache.entries[:MOST_COMPARED]:
            failures = self._misses(entry, fn, values)
            if failures and (not nearest.failures or len(failures) < len(nearest.failures)):
                nearest = Miss(entry.owner.record.entry_index, failures)
        return nearest

    def _new_record(self, cache: Any, fn: FunctionType, values: tuple[Any, ...]) -> FrameRecord:
        code = cache.code
        record = FrameRecord(code.co_qualname, code.co_filename, code.co_firstlineno)
        record.is_resume = is_resumed(code)
        record.entry_index = len(cache.entries)
        if cache.entries:
            record.nearest = self._nearest(cache, fn, values)
            record.recompile_reason = str(record.nearest)
        return record

    def _compile(self, cache: Any, fn: FunctionType, values: tuple[Any, ...]) -> Any:
        code = cache.code
        record = self._new_record(cache, fn, values)
        started = record.started = perf_counter()
        fake_calls, memo_hits = STATS.fake_calls, STATS.memo_hits
        try:
            entry = Analysis(self, cache, fn, values, record).entry()
        except SkipFrame as error:
            record.skipped = f"skip_frame {error}"
            if error.reason is not None:
                record.breaks.append(BreakRecord.of(error.reason))
            cache.state = _eval_frame.SKIP if error.callees else _eval_frame.SKIP_ALL
            return None
        except UnfitSizes as error:
            record.skipped = f"sizes that the program does not allow for: {error}"
            self.unfit[code] += 1
            if self.unfit[code] >= UNFIT_CALLS:
                cache.state = _eval_frame.RUN_ONLY
            return None
        except TorchDynamoException as error:
            record.skipped = str(error)
            raise
        except Exception as error:
            if is_lack_of_memory(error):
                # Whether the program has too little as well, and where it finds out, eager execution shows.
                record.skipped = "the analysis was out of memory"
                self.out_of_memory[code] += 1
                if self.out_of_memory[code] >= TOO_LONG:
                    cache.state = _eval_frame.SKIP
                return None
            let_through(error)
            record.skipped = f"internal error: {error!r}"
            if config.debug or not config.suppress_errors:
                raise InternalTorchDynamoError(f"{type(error).__name__}: {error}") from error
            logger.warning(
                "dynamo_lite failed on %s and runs it eagerly: %r", code.co_qualname, error, exc_info=config.verbose
            )
            cache.state = _eval_frame.SKIP
            return None
        finally:
            record.trace_seconds = perf_counter() - started - record.backend_seconds
            record.fake_calls = STATS.fake_calls - fake_calls
            record.memo_hits = STATS.memo_hits - memo_hits
            log.add(record)
            forget_stand_ins()
        return entry


side.hide_code(Region.on_miss.__code__)


def _as_raised_by_the_call(error: BaseException, outer: BaseException | None) -> BaseException:
    """An exception without what the engine did before it: the program's call raises it while the program handles `outer`. What a
    backend or an internal error was caused by is kept."""
    if isinstance(error, TorchDynamoException) and not isinstance(
        error, BackendCompilerFailed | InternalTorchDynamoError
    ):
        CAUSE.__set__(error, None)
        SUPPRESS_CONTEXT.__set__(error, False)
    CONTEXT.__set__(error, outer)
    TRACEBACK.__set__(error, None)
    return error


def _place_of(code: CodeType) -> tuple[str, int]:
    """The file and first line, which a function shares with its resume functions."""
    return code.co_filename, code.co_firstlineno


def _whose(code: CodeType, arguments: list[Any]) -> tuple[str, int, int]:
    """Whose breaks count together: those of a function with a first argument of the same class."""
    return (*_place_of(code), _class_of_first(arguments))


def _class_of_first(args: list[Any]) -> int:
    """Whose method it is, for functions that many classes share: a decorator's wrapper, `Module._call_impl`. Looks at nothing lazy."""
    first = args[0] if args else None
    if type(first) is CellVariable:
        first = first.content
    if type(first) is TupleVariable:  # *args
        return _class_of_first(first.items)
    if first is None or first is MISSING:
        return 0
    value = real_object(first)
    return id(type(value) if value is not MISSING else first.python_type())


def _forget_frames(error: BaseException) -> None:
    """Take away what leads from an exception, and from its causes, to the frames that it has passed, and to those that had called
    them: they hold the program's objects, and may hold the exception."""
    cause: BaseException | None = error
    while cause is not None:
        TRACEBACK.__set__(cause, None)
        CONTEXT.__set__(cause, None)
        cause = CAUSE.__get__(cause)


def _open_ranges(frame: Frame | None) -> set[int]:
    """The loops over ranges that are under way."""
    found: set[int] = set()
    while frame is not None:
        found |= open_ranges(frame.held())
        frame = frame.parent
    return found


class _Later:
    """In the place of what a graph does when it raises, until it is compiled: its code and guards are made, and asked, before."""

    on_failure: Any = None

    def __call__(self, *args: Any) -> Any:
        return self.on_failure(*args)


class Analysis:
    """All runs over one frame for one set of arguments."""

    def __init__(
        self,
        region: Region,
        cache: Any,
        fn: FunctionType,
        values: tuple[Any, ...],
        record: FrameRecord,
    ) -> None:
        self.region = region
        self.cache = cache
        self.fn = fn
        self.values = values
        self.record = record
        self.break_step = -1
        self.pending: Unsupported | None = None  # why the next run breaks
        self.has_changed = False  # whether a guard has failed on the values it was made from
        self.cut: tuple[str | None, Any] = (None, None)  # name of the node before which the graph has to end, and why
        self.reads_arguments = False  # whether arguments that are one object are looked at before they are read
        self.open_ranges: set[int] = set()  # steps at which loops began that break in one of their turns
        self.numbers_in_texts: set[tuple[int, int]] = set()  # instructions whose texts of numbers decide something
        self.asks_by_node = False  # whether single nodes of the graph ask classes of tensors about torch functions
        self.followed_hooks: dict[int, Unsupported] = {}  # registrations of hooks that are no bodies of graphs, and why
        self.artifacts: kept.Artifacts | None = None  # what the backend makes of the graph, for later processes
        self.tr: Trace | None = None

    @cached_property
    def rebound_arguments(self) -> list[tuple[int, type | None, int]]:
        """The arguments that `finalizers` has to watch, the same for each run."""
        return rebound_arguments(self.fn.__code__, self.values)

    @cached_property
    def has_mortal_arguments(self) -> bool:
        """Whether the program may see the end of an argument, the same for each run."""
        return has_mortal_arguments(self.fn, self.values)

    def entry(self) -> Any:
        """An entry for these arguments: one that was kept, else that of an analysis."""
        return (kept.is_on() and side.holds_elsewhere() and self.from_cache()) or self.run()

    def run(self) -> Any:
        """Analyse until one run commits; the entry. Raises `Unsupported` under fullgraph."""
        with side.modes_aside():  # which see what is asked of tensors
            hints = hints_of(self.region.hints, self.fn, self.values)
        for _ in range(MAX_RUNS):
            with side.modes_aside():
                self.tr = tr = Trace(self, self.fn, self.values, self.break_step, hints)
                try:
                    entry = self._attempt(tr)
                except Restart:  # of an eager entry
                    entry = None
                finally:
                    tr.state.restore()
                    tr.release()
            if entry is not None:
                return entry
        return self._eager_entry(Trace(self, self.fn, self.values, -1, hints))

    def from_cache(self) -> Any:
        """The entry that another process made for such a call; None if there is none that holds."""
        with side.modes_aside():
            for version in kept.versions(self.fn, self.values, self.region):
                entry = self._revive(version)
                if entry is not None:
                    STATS.cache_hits += 1
                    return entry
        STATS.cache_misses += 1
        return None

    def _revive(self, version: kept.Version) -> Any:
        """The entry for a kept version, None if a guard fails."""
        found = kept.revived(version, lambda: self._read(version))
        if found is None:
            return None
        graph, call, later, code, program = found
        with side.modes_back():
            if not program.check(self.values, self.fn.__closure__):
                return None
        if call is not None:
            compiled, later.on_failure = self.compile_graph(graph, version.path)
            call.compiled = side.released_again(later.on_failure, compiled) if call.boxed else compiled
        guards, settled = version.finish(graph, call, program)
        if settled is not program:
            with side.modes_back():
                if not settled.check(self.values, self.fn.__closure__):
                    return None
        if code is not self.fn.__code__:
            side.hide_code(code)
        self.record.from_cache = True
        version.describe(self.record)
        entry = self._entry_of(guards, settled, code, version.needs_hook)
        hints_of(self.region.hints, self.fn, self.values).update(version.hints)
        self.cache.add(entry)
        return entry

    @staticmethod
    def _read(version: kept.Version) -> tuple[Any, ...]:
        """The graph, its call, what to tell when it is compiled, the code and the guards."""
        graph = version.graph()
        call, later = None, _Later()
        if graph is not None:
            call = _eval_frame.GraphCall(later, len(graph.example_inputs()), version.positions, later, version.is_boxed)
        return graph, call, later, version.code(call), version.program(call)

    def _attempt(self, tr: Trace) -> Any:
        """One run; None if another one is needed. Outside of the `except` blocks: guards may look at the exception that the caller
        handles, and none of ours must be handled when they are checked."""
        try:
            return self._capture(tr)
        except (Unsupported, NotConstant) as reason:
            is_break = isinstance(reason, Unsupported)
            error = reason if is_break else Unsupported("operation-on-unknown-object", str(reason))
            if not config.debug:
                _forget_frames(error)
        except RecursionError:
            # Not while the program was followed (`Trace.too_deep`): what it built is too deep for codegen to walk.
            reason = Unsupported("recursion-limit", self.fn.__qualname__)
            if self.region.fullgraph or config.error_on_graph_break:
                raise reason from None
            raise SkipFrame(reason.context, reason) from None
        except Restart as restart:
            self.record.restarts += 1
            self.reads_arguments = self.reads_arguments or isinstance(restart, ArgumentRead)
            logger.debug("restart: %s", restart)
            return None
        except RunsEagerly as reason:
            self.record.skipped = f"runs eagerly: {reason}"
            return self._eager_entry(tr)
        if isinstance(error, FirstUse) and not tr.loops_follow():
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
        if loses_argument(tr, result) or is_held_by_garbage(tr, result):
            return self._eager_entry(tr)
        leave_out = getattr(self.region.backend, "dynamo_lite_leaves_out", None)
        if leave_out is not None:
            leave_out(tr)
        self._check_own_changes(tr)
        check_finalizers(tr)
        self._check_profilers(tr)
        if tr.graph.is_empty and not tr.mutations and not config.capture_pure_python:
            return self._eager_entry(tr)
        codegen = Codegen(tr)
        return self._commit(tr, codegen.finish(result), False, codegen)

    def _keep_graph(self, tr: Trace, exc: Any) -> None:
        """The call raises: break before the instruction of this frame that does, if there are operators before it."""
        step = exc.raise_step
        may_break = not (self.region.fullgraph or config.error_on_graph_break)
        if may_break and not tr.graph.is_empty and step > 0 and (self.break_step < 0 or step < self.break_step):
            error = Unsupported("uncaught-exception", qualname_of(exc.python_type()))
            error.break_step = step
            raise error

    @staticmethod
    def _check_own_changes(tr: Trace) -> None:
        if note_own_changes(tr):
            raise Restart("the frame changes numbers that were held to be constants")

    @staticmethod
    def _check_profilers(tr: Trace) -> None:
        """A profiler that was left out may not run on when the frame ends or breaks."""
        for profiler in tr.profilers:
            raise profiler.saved

    def _break(self, tr: Trace) -> Any:
        if raises_again(tr.frame):
            # What this frame is resumed with would be done for real, fail, and be what the next resume function begins with.
            return self._eager_entry(tr)
        tr.state.restore()
        frames: list[Frame] = []
        frame = tr.frame
        while frame is not None:
            frames.append(frame)
            frame = frame.parent
        if loses_argument(tr, None) or is_held_by_garbage(tr, None):
            return self._eager_entry(tr)
        self._check_own_changes(tr)
        check_finalizers(tr)
        self._check_profilers(tr)
        codegen = Codegen(tr)
        breaks = [] if self.pending is None else [BreakRecord.of(self.pending)]
        code = codegen.finish_break(frames[::-1])
        self._note_break(tr, frames)
        return self._commit(tr, code, True, codegen, breaks)

    def _note_break(self, tr: Trace, frames: list[Frame]) -> None:
        """Take note of the functions that were followed up to a break: of the sizes they were called with, and that there is one; once
        for each call, as what goes on for a call has been counted. What makes constants of sizes, and breaks in a loop, would make
        its caller one for each size: it is not followed. Counts are per code object and class of the first argument: counted per code
        object alone, wrappers that all calls go through (`Module._call_impl`, decorators) would be blamed for one callee. `frames` is
        innermost first."""
        in_loop = [is_in_loop(frame.lifted, frame.cur) for frame in frames]
        self.record.breaks_in_loop = in_loop[-1]
        counts = self.region.inner_breaks
        begun = [
            (i, frame, _whose(frame.code, frame.arguments))
            for i, frame in enumerate(frames[:-1])
            if not is_resumed(frame.code)
        ]
        if any(in_loop[i] for i, *_ in begun):
            who = tr.graph.passes.sizes.who_made_constants()
            apart = {
                key
                for i, frame, key in begun
                if in_loop[i] and Function.of(frame.code) in who and counts[key] < TOO_BROKEN
            }
            if apart:
                counts.update(dict.fromkeys(apart, TOO_BROKEN))
                raise Restart("what makes constants of sizes, and breaks in a loop, is a frame of its own")
        for frame in frames[:-1]:
            note_call(tr, frame.code, frame.arguments)
        counts.update([key for i, _, key in begun if i == 0 or any(in_loop[i + 1 :])])

    def _learn(self, tr: Trace, error: Unsupported) -> bool:
        """Take note of where the next run has to break; False if that can't help."""
        if not error.user_stack:
            error.user_stack = tr.user_stack()
        if self.region.fullgraph or config.error_on_graph_break:
            raise error
        if error.slug == "code-size":
            function = _place_of(self.fn.__code__)
            self.region.too_long[function] += 1
            if self.region.too_long[function] > TOO_LONG:
                raise SkipFrame(error.context, error)
        step = error.break_step if error.break_step is not None else tr.failing_step()
        if self.break_step >= 0 and step >= self.break_step:
            self.record.breaks.append(BreakRecord.of(error))
            return False
        self.break_step = step
        self.pending = error
        self.open_ranges |= _open_ranges(tr.frame)
        self.record.restarts += 1
        return True

    def _commit(
        self,
        tr: Trace,
        code: CodeType,
        needs_hook: bool,
        codegen: Codegen | None = None,
        breaks: Sequence[BreakRecord] = (),
    ) -> Any:
        tr.graph.passes.sizes.add_guards(tr)
        tr.guard_distinct()
        if code is not self.fn.__code__:
            side.hide_code(code)
        entry = self._entry(tr, code, needs_hook, codegen)
        entry.owner.checks = tr.graph.passes.checks
        with side.modes_back():
            holds = entry.guards.check(self.values, self.fn.__closure__)
        if not holds and not self.has_changed:
            self.has_changed = True
            raise Restart("the program's state changed during the analysis")  # by an import, say
        if not holds:
            failures = explain_miss(tr.guards, self.values, self.fn.__closure__)
            if tr.graph.passes.sizes.are_assumed:
                raise UnfitSizes("; ".join(map(str, failures)))
            raise RuntimeError("a guard fails on the values it was made from: " + "; ".join(map(str, failures)))
        self.cache.add(entry)
        self.record.breaks += breaks
        if kept.is_on() and side.holds_elsewhere():
            has_graph = codegen is not None and codegen.graph is not None
            path = kept.keep(tr, self.values, code, needs_hook, tr.graph if has_graph else None, self.record)
            if has_graph and self.artifacts is not None:
                self.artifacts.kept_as(path)
        return entry

    def _entry(self, tr: Trace, code: CodeType, needs_hook: bool, codegen: Codegen | None) -> Any:
        tr.guards.settle()
        self.record.steps = tr.steps
        self.record.guard_lines = tr.functions_at
        program = build_program(tr.guards, codegen.graph, codegen.handed) if codegen else build_program(tr.guards)
        return self._entry_of(tr.guards, program, code, needs_hook)

    def _entry_of(self, guards: Any, program: Any, code: CodeType, needs_hook: bool) -> Any:
        version = Version(guards, self.record, recompile_policy.Owners(self.fn.__code__, self.values))
        self.record.guards = _GuardText(version, len(guards))
        strict = Comparison(version.guards) if config.strict_guards else None
        # The entry may be in the cache when a signal handler raises, before the callback has returned it.
        return _eval_frame.Entry(program, code, version, needs_hook, strict, self.fn.__globals__)

    def _eager_entry(self, tr: Trace, needs_hook: bool = True) -> Any:
        """An entry that runs the original: for these arguments there is nothing to gain."""
        tr.state.restore()
        return self._commit(tr, self.fn.__code__, needs_hook)

    def compile_graph(self, graph: Any, version: Any = None) -> Any:
        """Hand a finished graph to the backend; what it made of it, and what to ask when that raises. `version`: the file it is from."""
        self.artifacts = kept.Artifacts(self.record, version) if kept.is_on() else None
        if _eval_frame.program_collects():
            gc_enable()  # backends do as the program does
        try:
            compiled, on_failure, graph_record = side.compile_graph(
                graph, self.region.backend, self.region.fullgraph, self.artifacts
            )
        finally:
            gc_disable()
        self.record.backend_seconds += graph_record.compile_seconds
        self.record.graphs.append(graph_record)
        return compiled, on_failure
