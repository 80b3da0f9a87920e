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
from time import perf_counter  # bound here: programs replace functions of these modules in tests
from types import CodeType, FunctionType
from typing import Any, Self
from weakref import WeakSet

from dynamo_lite import _eval_frame, markers, own_builtins
from dynamo_lite.config import config
from dynamo_lite.data_stack import with_room
from dynamo_lite.dynamism import recompile_policy
from dynamo_lite.dynamism.automatic_dynamic import Memory, module_of, note_ranks, note_values
from dynamo_lite.exc import (
    CAUSE,
    CONTEXT,
    ORIGINALS,
    SUPPRESS_CONTEXT,
    TRACEBACK,
    BackendCompilerFailed,
    InternalTorchDynamoError,
    RecompileError,
    SkipFrame,
    TorchDynamoException,
    UnfitSizes,
)
from dynamo_lite.graph import side
from dynamo_lite.guards.ir import GuardSet
from dynamo_lite.guards.program import build_program
from dynamo_lite.import_hook import is_of_partial_module, is_under_way
from dynamo_lite.isa.resume import interrupted_code, is_resumed
from dynamo_lite.messages import place_of_builtin
from dynamo_lite.record import STATS, BreakRecord, FrameRecord, log
from dynamo_lite.signals import HandlerRaised, is_lack_of_memory, let_through, relayed
from dynamo_lite.variables.protocol import trace_rules

from .analysis import Analysis
from .recompile_limits import RecompileLimits
from .root import MissedCall
from .strikes import IMPORTING, OUT_OF_MEMORY, UNCONCERNED, UNFIT, InnerBreaks, Strikes
from .versions import all_misses, nearest_miss

logger = logging.getLogger("dynamo_lite")

TRACERS = {"error_on_nested_jit_trace": "torch.jit.trace", "error_on_nested_fx_trace": "torch.fx.symbolic_trace"}
"""Setting → tracer of torch for which it says what compiled functions do."""

_analysis_lock = threading.RLock()
"""One analysis at a time: torch's tracers and compilers keep their state in globals of the process."""

if hasattr(os, "register_at_fork"):
    # A child has no thread that could ever finish the analysis that was running in its parent.
    os.register_at_fork(after_in_child=getattr(_analysis_lock, "_at_fork_reinit"))  # noqa: B009 (typeshed lacks it)


def _key_of(backend: object) -> Any:
    return backend if isinstance(backend, str | None) else id(backend)


def _has_globals_of(entry: _eval_frame.Entry, fn: FunctionType) -> bool:
    """Guards speak about the globals of one function; others can have the same code."""
    return entry.globals is None or entry.globals is fn.__globals__


def _described(fn: FunctionType) -> str:
    is_call_of_module = fn.__module__ == "torch.nn.modules.module"
    return "a compiled module" if is_call_of_module else f"the compiled function {fn.__qualname__}"


_touched: WeakSet[Region] = WeakSet()
"""The regions that have looked up or learned something since they were made or reset."""


class Region(_eval_frame.Region):
    """One `optimize()` context: a backend with settings, and every cache filled under it.

    `backend` is a callable `(gm, example_inputs) -> callable`; `dynamic` None makes a size symbolic when it changes, True at
    once, False never; `fullgraph` raises `Unsupported` at the first break.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        return super().__new__(cls, None)

    def __init__(
        self,
        backend: Any,
        *,
        fullgraph: bool = False,
        dynamic: bool | None = None,
        recompile_limit: int | None = None,
    ) -> None:
        self.backend = backend
        self.fullgraph = fullgraph
        self.dynamic = dynamic
        self.limits = RecompileLimits(recompile_limit)
        self.wanted: set[CodeType] = set()  # codes that the user or a resume function asked for: no skip rule applies
        self.hints: Memory = {}
        self.resume_codes: dict[tuple[CodeType, str], CodeType] = {}
        self.resume_functions: dict[tuple[int, int], FunctionType] = {}
        self.seen_once: set[CodeType] = set()
        self.aside: dict[Any, list[Any]] = {}  # backend that a stance has forced → versions made by it
        self.strikes = Strikes()
        self.inner_breaks = InnerBreaks()
        self.failing: set[Any] = set()  # branches that the program takes too often to be checks
        self.analyses: dict[int, tuple[int, int]] = {}  # id of a cache → number of the frame, of its analyses so far
        self.callback = self.on_miss

    def exchange_versions(self, before: object, now: object) -> None:
        """The stance forces another backend than before (None: this region's own): put the versions of that one aside, and take up
        those of the other."""
        _touched.add(self)
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
        if not issubclass(type(function), FunctionType):
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

    def reset(self) -> None:
        """Forget all compiled versions, and what was learned of the program's values while they were made."""
        if self not in _touched:
            return
        _touched.discard(self)
        for cache in self.caches:
            cache.clear()
            cache.state = _eval_frame.COMPILE
        self.aside.clear()
        self.hints.clear()
        self.seen_once.clear()
        self.strikes.clear()
        self.inner_breaks.clear()
        self.failing.clear()
        self.analyses.clear()
        self.limits.clear()

    # -- the callback

    def on_miss(self, cache: _eval_frame.Cache, fn: FunctionType, values: tuple[Any, ...]) -> Any:
        """Called by the C side when no entry of `cache` fits: an entry, None to run the original, or an exception that the call raises,
        without the frames of the engine unless debug mode is on. The call of a continuation raises it inside the blocks that the original
        is in there, whose `with`, `except` and `finally` have their turn."""
        outer = sys.exception()
        try:
            _touched.add(self)
            return self._entry_for(cache, fn, values)
        except HandlerRaised as raised:
            return _raised_within(cache.code, fn, values, raised.error)
        except BaseException as error:
            raised_by_call = error if config.debug else _as_raised_by_the_call(error, outer)
            return _raised_within(cache.code, fn, values, raised_by_call)

    def _entry_for(self, cache: _eval_frame.Cache, fn: FunctionType, values: tuple[Any, ...]) -> Any:
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
        if side.capture_is_off() or is_under_way("torch._dynamo"):  # parts of torch use whatever there is of it
            return None
        if code not in self.wanted:
            skipped = trace_rules.why_not_captured(code, fn.__globals__)
            if skipped is not None:
                cache.state = _eval_frame.SKIP_ALL if skipped[1] else _eval_frame.SKIP
                return None
            if trace_rules.is_called_by_its_wrapper(2):
                return None
            if not config.capture_pure_python and not side.concerns_torch(code, fn.__globals__, values):
                if self.strikes.is_last(UNCONCERNED, code):
                    cache.state = _eval_frame.SKIP
                return None
        if code.co_flags & trace_rules.GENERATOR_FLAGS:
            cache.state = _eval_frame.SKIP
            return None
        if self.limits.is_used_up(cache, values):
            return None
        if stance in ("eager_then_compile", "aot_eager_then_compile") and code not in self.seen_once:
            self.seen_once.add(code)
            note_values(self.hints, fn, values)
            return None
        with _analysis_lock:
            outlived = []
            try:
                outvoted = _eval_frame.is_outvoted()
                for entry in cache.entries:  # another thread may have been here first
                    if not outvoted and _has_globals_of(entry, fn) and entry.guards.check(values, fn.__closure__):
                        return entry
                    if entry.owner.is_given_up():
                        cache.remove(entry)
                    elif entry.guards.outlived():
                        outlived.append(entry)
                return self._new_entry_for(cache, fn, values)
            finally:
                self.limits.drop(cache, outlived)

    def _new_entry_for(self, cache: _eval_frame.Cache, fn: FunctionType, values: tuple[Any, ...]) -> Any:
        """Compile a version for a call; None if there is to be none. Entries that demand what is gone are removed only afterwards: the
        messages say by them why nothing fits."""
        code = cache.code
        has_versions = self.limits.count(cache) > 0
        if markers.current_stance().name == "fail_on_recompile" and (has_versions or code in self.wanted):
            what = self.limits.why_none_fits(cache, fn, values) if has_versions else "it is not compiled yet"
            raise RecompileError(f"{code.co_qualname} would be compiled under the stance fail_on_recompile: {what}")
        if not self.limits.allow(self, cache, fn, values):
            return None
        with log.capture_context(), relayed():
            return with_room(self._compile, cache, fn, values)

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

    def new_record(self, cache: _eval_frame.Cache, fn: FunctionType, values: tuple[Any, ...]) -> FrameRecord:
        """The record of an analysis that begins."""
        code = cache.code
        record = FrameRecord(*_shown_place(fn, code, values))
        record.is_resume = is_resumed(code)
        record.entry_index = self.limits.count(cache)
        if cache.entries:
            record.nearest = nearest_miss(cache, fn, values)
            if record.is_recompile:
                failed = record.nearest.failures
                record.recompile_reason = str(record.nearest) if failed else "compiled by other ranks as well"
        return record

    def _compile(self, cache: _eval_frame.Cache, fn: FunctionType, values: tuple[Any, ...]) -> Any:
        record = self.new_record(cache, fn, values)
        frame, version = self.analyses.get(id(cache)) or (log.next_frame_id(), 0)
        self.analyses[id(cache)] = frame, version + 1
        call = MissedCall(fn, values, record)
        if config.enable_compiler_collectives:
            note_ranks(self.hints, fn, values, side.told_by_all)
        with side.new_log(record, cache.code, (frame, version), lambda: all_misses(cache, fn, values)) as call.log:
            entry = None
            try:
                entry = self._analyse(cache, call)
            finally:
                if not side.is_agreed(cache.code, entry is not None):
                    cache.state = _eval_frame.SKIP
                    if entry is not None:
                        cache.remove(entry)
                        entry = None
                        logger.warning("another rank could not compile %s, which runs eagerly", cache.code.co_qualname)
            return entry

    def _analyse(self, cache: _eval_frame.Cache, call: MissedCall) -> Any:
        code, record = cache.code, call.record
        started = record.started = perf_counter()
        fake_calls, memo_hits, by_rule = STATS.fake_calls, STATS.memo_hits, STATS.by_rule
        try:
            call.log.begins()
            entry = Analysis(self, cache, call).entry()
        except SkipFrame as error:
            record.skipped = f"skip_frame {error}"
            if error.reason is not None:
                record.breaks.append(BreakRecord.of(error.reason))
                call.log.breaks(record.breaks[-1:])
            cache.state = _eval_frame.SKIP if error.callees else _eval_frame.SKIP_ALL
            return None
        except UnfitSizes as error:
            record.skipped = f"sizes that the program does not allow for: {error}"
            if self.strikes.is_last(UNFIT, code):
                cache.state = _eval_frame.RUN_ONLY
            return None
        except TorchDynamoException as error:
            record.skipped = str(error)
            raise
        except Exception as error:
            if is_lack_of_memory(error):
                # Whether the program has too little as well, and where it finds out, eager execution shows.
                record.skipped = "the analysis was out of memory"
                if self.strikes.is_last(OUT_OF_MEMORY, code):
                    cache.state = _eval_frame.SKIP
                return None
            let_through(error)
            if is_of_partial_module(error) and not self.strikes.is_last(IMPORTING, code):
                record.skipped = f"another thread is importing a module: {error}"
                return None
            record.skipped = f"internal error: {error!r}"
            if config.debug or not config.suppress_errors or self.fullgraph:
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
            record.by_rule = STATS.by_rule - by_rule
            log.add(record)
        return entry


side.hide_code(Region.on_miss.__code__)


def _shown_place(fn: FunctionType, code: CodeType, values: tuple[Any, ...]) -> tuple[str, str, int]:
    """Name, file and line by which reports call a frame. That of torch's call of a module is the `forward` of the user's class."""
    builtin = place_of_builtin(fn)
    if builtin is not None:
        return builtin
    if fn.__globals__.get("__name__") != "torch.nn.modules.module":
        return code.co_qualname, code.co_filename, code.co_firstlineno
    forward: Any = getattr(type(module_of(code, values)), "forward", None)
    if not issubclass(type(forward), FunctionType):
        return code.co_qualname, code.co_filename, code.co_firstlineno
    own = forward.__code__
    if not is_resumed(code):
        return own.co_qualname, own.co_filename, own.co_firstlineno
    inner = recompile_policy.innermost(code, values)[1]
    name, _, where = inner.co_qualname.partition(" (")
    goes_on = where if name == own.co_qualname else f"in {inner.co_name.partition(' (')[0]}, {where}"
    return f"{own.co_qualname} ({goes_on}", own.co_filename, own.co_firstlineno


def _raised_within(code: CodeType, fn: FunctionType, values: tuple[Any, ...], error: BaseException) -> Any:
    """What has a call raise this: the exception, or an entry for this call of a continuation."""
    interrupted = None if isinstance(error, TorchDynamoException) else interrupted_code(code, values, error)
    if interrupted is None:
        return error
    return _eval_frame.Entry(build_program(GuardSet()), interrupted, None, False, None, fn.__globals__)


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
