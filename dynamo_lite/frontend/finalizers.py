"""Objects whose death the program can observe: those with finalizers or with callbacks of weak references.

Input: a trace. Output: a break at the step where the program first changed an object that now drops such an object, or rebinds a variable
that held one; a refusal of frames in which such an object would die early.
Invariant: changes are replayed after the graph has run, so objects that they drop die later than in eager execution; no object whose
death runs code of the program may die in a replay. New objects that are unreachable at the end are not built: in eager execution they are
garbage in a reference cycle, which keeps what it refers to alive until the collector runs.
Mirrors `PyObject_CallFinalizerFromDealloc` (`Objects/object.c`) and `slot_tp_finalize` (`Objects/typeobject.c`).
"""

from __future__ import annotations

import gc
import types
import weakref
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from dynamo_lite.dynamism.observed_values import is_module, sizes_of
from dynamo_lite.exc import SkipFrame, Unsupported, unsupported
from dynamo_lite.guards import ir
from dynamo_lite.guards.mirror import has_finalizer
from dynamo_lite.isa.canon import Op
from dynamo_lite.isa.lift import lift
from dynamo_lite.isa.resume import HOLDER, PASSED, is_resumed, waiting_frames
from dynamo_lite.isa.typeobject import dict_of, mro_of
from dynamo_lite.variables.objects.traceback_object import TracebackVariable
from dynamo_lite.variables.protocol.base import MISSING, VariableTracker, is_lazy, real_object
from dynamo_lite.variables.protocol.constant import ATOMIC_TYPES

from .thread_state import line_of

if TYPE_CHECKING:
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.guards.ir import GuardNode

Rebound = tuple[int, type | None, int]
"""An argument whose variable is bound anew: the slot, the class that has the finalizer (None: no finalizer), the id of its object."""

MAX_FOLLOWED = 1000
"""Objects looked at for one that is let go. What is larger than that is taken to outlive the call."""

_BINDING = frozenset({Op.STORE_FAST, Op.DELETE_FAST, Op.STORE_DEREF, Op.DELETE_DEREF, Op.LOAD_FAST_AND_CLEAR})
_weakrefoffset = type.__dict__["__weakrefoffset__"].__get__  # past any metaclass
_HELD_ELSEWHERE = (
    type,
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.CodeType,
    types.FrameType,
)


def check_finalizers(tr: Trace) -> None:
    """Raise `Unsupported` if replaying the changes would end an object too late. What is let go without that is guarded."""
    guard_arguments(tr)
    for vt in tr.effects.mutations:
        for source, real in vt.let_go(tr)[:MAX_FOLLOWED]:
            found = _finalized(real)
            if found is not None:
                reason = Unsupported("del-finalizer", found.__qualname__)
                reason.break_step = vt.mutated_at
                raise reason
            if source is not None and not _has_known_type(source):
                tr.guard(source, ir.NO_FINALIZER)


def watch_arguments(tr: Trace) -> None:
    """Have the trace break where a variable that is bound anew may hold the last reference to an argument with a finalizer, and keep the
    frames that end if some argument has one, or may hold an object that has."""
    if tr.root.call.has_mortal_arguments:
        tr.root.ended_frames = []
    watched: dict[int, Any] = {}
    for slot, found, _ in tr.root.call.rebound_arguments:
        if found is not None:
            tr.guard(tr.source(None, ir.LOCAL, slot), ir.TYPE_IS, type(tr.root.values[slot]))
            watched[id(tr.root.arguments[slot])] = tr.root.arguments[slot]
            if lift(tr.root.model.code).is_cell[slot]:
                raise SkipFrame(found.__qualname__, Unsupported("del-finalizer", found.__qualname__))
    if watched:
        tr.root.finalized = list(watched.values())
        tr.root.handlers = list(tr.root.handlers)
        for op in (Op.STORE_FAST, Op.DELETE_FAST):
            tr.root.handlers[op] = _watching(watched, tr.root.handlers[op])


def _watching(watched: dict[int, Any], handler: Any) -> Any:
    def watch(f: Any, instr: Any) -> Any:
        if f.parent is None:
            held = f.locals[instr.arg]
            if id(held) in watched and sum(other is held for other in (*f.stack, *f.locals)) == 1:
                unsupported("del-finalizer", f"the variable {f.lifted.local_names[instr.arg]}")
        return handler(f, instr)

    return watch


def ends_too_late(tr: Trace, result: object) -> Unsupported | None:
    """Why the frame has to run eagerly, whatever it computes: an object whose end the program sees would end at another time. `result`:
    what the frame returns, None at a break."""
    for found, what in (
        (loses_argument, "the last reference to an argument is dropped on the way"),
        (is_held_by_garbage, "a reference cycle or a traceback holds an argument"),
        (is_called_back, "an object whose weak reference has a callback ends before the frame does"),
    ):
        if found(tr, result):
            reason = Unsupported("del-finalizer", what)
            reason.user_stack = tr.thread.user_stack() or [line_of(tr.root.frame)]
            return reason
    return None


def loses_argument(tr: Trace, result: object) -> bool:
    """Whether an argument with a finalizer has died on the way, nobody knows where: its variable was only its first place. (It may be
    part of an argument, such as the object of a bound method, that something else holds as well.)"""
    kept = [result, *tr.root.frame.held()]
    parts = {
        id(tr.root.arguments[slot]): wanted
        for slot, found, wanted in tr.root.call.rebound_arguments
        if found is not None
    }
    return any(
        not tr.lifetimes.is_reachable(vt, kept) and not _is_held(tr, kept, parts[id(vt)]) for vt in tr.root.finalized
    )


def _is_held(tr: Trace, kept: list[Any], wanted: int) -> bool:
    """Whether something that is still there, and was not changed, leads to the real object of this id."""
    for vt in tr.lifetimes.reachable(kept):
        if vt is not None and vt.__dict__.get("source") is not None and not vt.__dict__.get("mutated"):
            real = real_object(vt)
            if real is not MISSING and any(id(value) == wanted for value in _held_by(real)):
                return True
    return False


def is_held_by_garbage(tr: Trace, result: object) -> bool:
    """Whether reference cycles that the frame leaves behind, or tracebacks, hold an argument with a finalizer: in eager execution, and
    not in generated code, which builds neither such cycles nor the variables of frames in tracebacks. That what they hold has no
    finalizer is guarded."""
    if not tr.root.call.has_mortal_arguments:
        return False
    roots = [vt for frame in tr.root.ended_frames or () for vt in frame.held()]
    if result is not None:
        roots.append(result)
    else:
        roots += held_at_break(tr)
    held = {id(vt) for vt in _reachable(_holders([*roots, *tr.effects.mutations]))}
    held.update(_held_by_frames(tr, result))
    mortal = [(vt, value) for vt, value in _owned(tr) if id(vt) in held and not _is_harmless(value)]
    if not all(ends_silently(value) for _, value in mortal):
        return True
    for vt, _ in mortal:
        tr.guard(vt.source, ir.PYTHON, ends_silently)
    return False


def is_called_back(tr: Trace, result: object) -> bool:
    """Whether a weak reference with a callback refers to an object that only this resumed frame holds, or one that waits, and that ends in
    here: in eager execution the callback runs when its variable is dropped, while generated code keeps what it is given to its end, and
    drops it in another order. That the objects of waiting frames have no callback later is guarded."""
    if not tr.root.call.has_mortal_arguments or not is_resumed(tr.root.model.code):
        return False
    mortal = [(vt, v) for vt, v in _owned(tr) if _may_call_back(v)]
    if not mortal:
        return False
    kept = [result] if result is not None else held_at_break(tr)
    left = {id(vt) for vt in tr.lifetimes.reachable(kept)}
    ended = [(vt, value) for vt, value in mortal if id(vt) not in left]
    if any(_has_callback(value) for _, value in ended):
        return True
    own = {id(vt) for vt in tr.root.arguments}
    for vt, _ in ended:
        if id(vt) not in own:
            tr.guard(vt.source, ir.PYTHON, _has_no_callback)
    return False


def _may_call_back(value: object) -> bool:
    """Whether a callback of the program may be due for an object. Those of tensors are torch's, which keeps tables of them."""
    cls = type(value)
    if _is_harmless(value) or not _weakrefoffset(cls):
        return False
    return not any("__torch_function__" in dict_of(base) for base in mro_of(cls))


def _has_no_callback(value: object) -> bool:
    return not _has_callback(value)


def _held_by_frames(tr: Trace, result: object) -> set[int]:
    """The ids of what is in the variables of frames that have ended and may be in tracebacks that were made before they were resumed."""
    ended = [*(tr.root.ended_frames or ()), *([] if result is None else [tr.root.frame])]
    return {id(vt) for frame in ended if HOLDER in frame.lifted.local_names for vt in _reachable(list(frame.held()))}


def _owned(tr: Trace) -> Iterator[tuple[VariableTracker, Any]]:
    """The objects whose last references the frame may hold, with the real ones: its arguments; in a resumed frame the cells of its own
    variables too, and those of the frames that wait."""
    trackers: Sequence[Any] = tr.root.arguments
    values: Sequence[Any] = tr.root.values
    yield from ((vt, value) for vt, value in zip(trackers, values, strict=True) if value is not MISSING)
    yield from _owned_cells(tr.root.model, tr.root.function)
    for _, following in waiting_frames(tr.root.model.code, values):
        function, arguments = trackers[-2:]
        if is_lazy(function) or is_lazy(arguments):
            return  # nothing of that frame has run
        yield from _owned_cells(function, values[-2])
        trackers, values = arguments.items, following
        yield from zip(trackers, values, strict=True)


def _owned_cells(function: Any, real: types.FunctionType) -> Iterator[tuple[VariableTracker, Any]]:
    """The cells of a resume function that are variables of its frame."""
    for i in owned_cells(real):
        yield function.closure[i], (real.__closure__ or ())[i]


def owned_cells(function: types.FunctionType) -> list[int]:
    """Which free variables of a resume function are variables of its frame."""
    return [i for i, name in enumerate(function.__code__.co_freevars) if name.endswith(PASSED)]


def held_at_break(tr: Trace) -> list[Any]:
    """The objects in the variables and on the stacks of the frames that go on after a break, and the exceptions that are handled, with
    their tracebacks. Not all of these are built: objects that nothing reads any more, such as classes, may hold something."""
    found = [] if tr.thread.handled is None else [tr.thread.handled]
    return found + [vt for frame in tr.thread.frames() for vt in frame.held()]


def _holders(roots: list[Any]) -> list[Any]:
    """The objects among those that these lead to which are on a reference cycle, and what is in the variables of frames in tracebacks."""
    found: list[Any] = []
    state: dict[int, bool] = {}  # id of an object → whether the way to the current one leads through it
    pending = [(vt, False) for vt in roots]
    while pending:
        vt, is_done = pending.pop()
        if is_done:
            state[id(vt)] = False
            continue
        if id(vt) in state:
            if state[id(vt)]:
                found.append(vt)
            continue
        state[id(vt)] = True
        pending.append((vt, True))
        pending += [(child, False) for child in _children(vt)]
        if not is_lazy(vt) and isinstance(vt, TracebackVariable):
            found += vt.frame.frame.held()
    return found


def _children(vt: VariableTracker) -> list[Any]:
    """The objects that an object refers to which the traced code has made or changed."""
    if is_lazy(vt) or (vt.source is not None and not vt.mutated):
        return []
    return [child for child in vt.children() if child is not None]


def _reachable(roots: list[Any]) -> list[Any]:
    seen = {}
    pending = list(roots)
    while pending:
        vt = pending.pop()
        if id(vt) not in seen:
            seen[id(vt)] = vt
            pending += _children(vt)
    return list(seen.values())


def guard_arguments(tr: Trace) -> None:
    """Other arguments of variables that are bound anew have no finalizer at the next call either."""
    for slot, *_ in tr.root.call.rebound_arguments:
        source = tr.source(None, ir.LOCAL, slot)
        if not _has_known_type(source):
            tr.guard(source, ir.NO_FINALIZER)


def has_mortal_arguments(function: types.FunctionType, values: Sequence[Any]) -> bool:
    """Whether an argument has a finalizer, or may hold something that has. Models outlive their calls."""
    return any(value is not MISSING and not _is_harmless(value) for value in values) or bool(owned_cells(function))


def ends_silently(value: object) -> bool:
    """Whether no code of the program runs when an object dies and all that it holds with it."""
    return _finalized(value) is None and not any(map(_has_callback, _held_by(value)))


def _has_callback(value: object) -> bool:
    """Whether a weak reference of the program calls back when an object dies."""
    cls = type(value)
    if _weakrefoffset(cls) == 0 or sizes_of(value) is not None or is_module(value):
        return False
    return any(_calls_back(reference, value) for reference in weakref.getweakrefs(value))


def _calls_back(reference: Any, value: object) -> bool:
    """A proxy does not tell its callback; the one that others share has none."""
    if issubclass(type(reference), weakref.ProxyTypes):
        return weakref.proxy(value) is not reference
    return _CALLBACK(reference) is not None


_CALLBACK = weakref.ref.__dict__["__callback__"].__get__


def _is_harmless(value: object) -> bool:
    cls = type(value)
    return cls in ATOMIC_TYPES or issubclass(cls, _HELD_ELSEWHERE) or sizes_of(value) is not None or is_module(value)


def rebound_arguments(code: types.CodeType, values: Sequence[Any]) -> list[Rebound]:
    """The arguments whose variables the code binds anew."""
    rebound = sorted({instr.arg for instr in lift(code).instrs if instr.op in _BINDING})
    return [
        (slot, *_finalized_object(values[slot]))
        for slot in rebound
        if slot < len(values) and values[slot] is not MISSING
    ]


def _has_known_type(source: GuardNode) -> bool:
    return any(check.kind in (ir.TYPE_IS, ir.REF_TYPE_IS, ir.IS, ir.REF_IS, ir.TENSOR) for check in source.checks)


def _finalized(real: object) -> type | None:
    """The class of an object that would die with `real` and whose death runs code of the program, if it holds the last references."""
    return _finalized_object(real)[0]


def _finalized_object(real: object) -> tuple[type | None, int]:
    """That class, and the id of the object."""
    for value in _held_by(real):
        cls = type(value)
        if has_finalizer(cls) or (cls is types.GeneratorType and value.gi_suspended):
            return cls, id(value)
    return None, 0


def _held_by(real: object) -> Iterator[Any]:
    """An object and those that would die with it, if it holds the last references."""
    pending, seen = [real] if _may_die(real) else [], {id(real)}
    while pending and len(seen) < MAX_FOLLOWED:
        value = pending.pop()
        yield value
        if issubclass(type(value), _HELD_ELSEWHERE):
            continue
        for child in _referents(value):
            if type(child) not in ATOMIC_TYPES and id(child) not in seen and _may_die(child):
                seen.add(id(child))
                pending.append(child)


def _may_die(value: object) -> bool:
    """Modules, classes and functions are taken to live on, unless their own class has a finalizer."""
    return not issubclass(type(value), _HELD_ELSEWHERE) or has_finalizer(type(value))


def _referents(value: Any) -> list[Any]:
    # Since 3.13 the values in an object's dictionary may be the object's: the dictionary does not show them to the collector.
    items = list(dict.values(value)) if issubclass(type(value), dict) else []
    return items + gc.get_referents(value)
