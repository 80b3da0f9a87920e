"""Resume functions in the new code: what one gets, and how it is made.

Input: a frame that stops in the middle. Output: the code object that continues it; instructions that push its function and arguments.
Invariant: the arguments are the stack entries that are objects, bottom to top, then the locals that are live or kept, by name.
"""

from __future__ import annotations

from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from dynamo_lite.interp.frame import NULL, ExcInfo, Frame, Lasti
from dynamo_lite.isa.canon import NO_TARGET
from dynamo_lite.isa.flow import live_slots
from dynamo_lite.isa.resume import HOLDER, resume_code, resume_freevars
from dynamo_lite.variables.objects.cell import CellVariable
from dynamo_lite.variables.protocol.base import VariableTracker, is_lazy
from dynamo_lite.variables.protocol.constant import ConstantVariable

if TYPE_CHECKING:
    from .codegen import Codegen


def is_null(entry: object) -> bool:
    """True for stack entries that are NULL in C: a call's empty slot, the unbound variable saved around an inlined comprehension."""
    return entry is NULL or entry is None


def is_constant_value(vt: VariableTracker) -> bool:
    """True for a constant that can stand in the code: one from outside is guarded by its value only, so that another call may bring an
    equal text or number that is another object."""
    if is_lazy(vt) or not isinstance(vt, ConstantVariable):
        return False
    return vt.source is None or type(vt.value) not in _EQUAL_BUT_DISTINCT or _is_small(vt.value)


_EQUAL_BUT_DISTINCT = frozenset({int, float, complex, str, bytes})


def _is_small(value: object) -> bool:
    """Whether CPython has one object only for this int."""
    return type(value) is int and -5 <= value <= 256


class FrameState:
    """The state of one frame that a resume function gets: its stack below the current instruction's operands, locals, cells.

    Locals that nobody will use keep their objects alive up to the end of the frame, which weak references and finalizers can tell. So those
    are passed on too whose objects existed before, or are `seen` by the breaking instruction, a weak reference or a finalizer; weak
    references, which their objects know; and constants, for who looks into the frame. Others die unnoticed, such as the results of
    operations, which a graph had better not return.
    """

    def __init__(self, frame: Frame, stack: list[Any], seen: set[int]) -> None:
        self.frame = frame
        self.stack = stack
        handler = frame.lifted.handler_at[frame.cur]
        self.unwound = frame.stack[: max(len(stack), handler.depth)] if handler is not None else stack
        """The stack for the handler of the instruction, which may leave operands below those that it takes, as MAP_ADD leaves its dict."""
        is_cell = frame.lifted.is_cell
        self.kept = {
            slot
            for slot, vt in enumerate(frame.locals[: frame.lifted.nlocals])
            if vt is not None
            and not is_cell[slot]
            and (id(vt) in seen or vt.__dict__.get("source") is not None or is_constant_value(vt) or vt.holds_weakly)
        }
        shown = frame.tr.lifetimes.frame_objects.get(id(frame))
        self.holder = shown.holder if shown is not None else None
        self.cells = [frame.locals[frame.lifted.local_names.index(name)] for name in resume_freevars(frame.code)]

    def values(self) -> list[Any]:
        """All trackers in it."""
        on_stack = [v.exc if type(v) is ExcInfo else v for v in self.unwound if not is_null(v)]
        live = self.kept.union(*(live_slots(self.frame.lifted, i) for i in self._successors()))
        locals_ = [self.frame.locals[s] for s in live if self.frame.locals[s] is not None]
        others = [*self.cells, self.holder]
        return [*on_stack, *locals_, *(vt for vt in others if vt is not None)]

    def _successors(self) -> list[int]:
        lifted = self.frame.lifted
        instr = lifted.instrs[self.frame.cur]
        found = [self.frame.cur + 1] + ([instr.target] if instr.target != NO_TARGET else [])
        handler = lifted.handler_at[self.frame.cur]
        if handler is not None:
            found.append(handler.target)
        group_end = self.frame.cur
        while not lifted.instrs[group_end].last:
            group_end += 1
            following = lifted.instrs[group_end]
            found.append(group_end + 1)
            if following.target != NO_TARGET:
                found.append(following.target)
        return [i for i in found if i < len(lifted.instrs)]

    def live_locals(self, indices: list[int]) -> list[tuple[str, Any]]:
        """(name, tracker) of the bound plain locals that are live before one of these instructions, or kept."""
        frame = self.frame
        slots = sorted(self.kept.union(*(live_slots(frame.lifted, i) for i in indices)))
        live = [(frame.lifted.local_names[s], frame.locals[s]) for s in slots if frame.locals[s] is not None]
        if self.holder is not None:
            live = [(name, vt) for name, vt in live if name != HOLDER] + [(HOLDER, self.holder)]
        return live


def state_of(cg: Codegen, frame: Frame, n_operands: int, seen: set[int]) -> FrameState:
    """The state of a frame behind the operands of its instruction."""
    holders = {id(vt) for vt in frame.locals if vt is not None and _holds_any(cg, vt, seen)}
    return FrameState(frame, frame.stack[: len(frame.stack) - n_operands], seen | holders)


def _holds_any(cg: Codegen, vt: VariableTracker, seen: set[int]) -> bool:
    """Whether the end of a new object could be the end of one that existed before, or that somebody has `seen`."""
    return any(_is_from_before(held) or id(held) in seen or held.holds_weakly for held in cg.escaping([vt], ()))


def _is_from_before(vt: VariableTracker) -> bool:
    return vt.__dict__.get("source") is not None and not is_constant_value(vt)


def continuation(
    cg: Codegen, frame: Frame, offset: int, entries: list[Any], names: tuple[str, ...], after: bool, mode: str
) -> CodeType:
    """The code that continues `frame` with these stack entries and locals. Raises CannotResume."""
    code = resume_code(
        frame.code,
        offset,
        len(entries) + (mode == "call"),
        tuple(i for i, e in enumerate(entries) if is_null(e)),
        names,
        after=after,
        mode=mode,
        exc_entries=tuple(i for i, e in enumerate(entries) if type(e) is ExcInfo),
        lasti_entries=tuple((i, e.value) for i, e in enumerate(entries) if type(e) is Lasti),
    )
    return cg.tr.region.resume_code(code)


def load_resume_function(cg: Codegen, code: CodeType, frame: Frame, cells: list[Any]) -> None:
    """Push the function of a resume code, with the frame's cells as its closure."""
    if not cells:
        cg.load_const(cg.tr.region.resume_function(code, frame.globals.value))
        return
    cg.load_callable(FunctionType)
    cg.load_const(code)
    cg.load_const(frame.globals.value)
    cg.load_const(code.co_name)
    cg.load_const(None)
    for cell in cells:
        cg.load(cell if cell is not None else CellVariable())
    cg.asm.build_tuple(len(cells))
    cg.asm.call(5)


def load_entries(cg: Codegen, entries: list[Any], locals_: list[tuple[str, Any]]) -> int:
    """Push a resume function's arguments for stack entries (a str names a local of the new code) and locals; how many."""
    count = 0
    for entry in entries:
        if is_null(entry) or type(entry) is Lasti:
            continue
        count += 1
        if type(entry) is str:
            cg.asm.load_fast(entry)
        else:
            cg.load(entry.exc if type(entry) is ExcInfo else entry)
    for _, vt in locals_:
        cg.load(vt)
    return count + len(locals_)


def load_suspended(cg: Codegen, frame: Frame) -> None:
    """Push a generator suspended as the frame is: made to continue at its YIELD_VALUE, and run up to there."""
    entries = [*frame.stack, ConstantVariable(None)]
    state = FrameState(frame, frame.stack, set())
    # All variables live as long as the generator is suspended.
    state.kept = {slot for slot, vt in enumerate(frame.locals) if vt is not None and not frame.lifted.is_cell[slot]}
    locals_ = state.live_locals([frame.cur])
    offset = frame.lifted.instrs[frame.cur].offset
    code = continuation(cg, frame, offset, entries, tuple(name for name, _ in locals_), False, "value")
    cg.asm.push_callable(lambda: load_resume_function(cg, code, frame, state.cells))
    cg.asm.call(load_entries(cg, entries, locals_))
    generator = cg.new_local()
    cg.asm.store_fast(generator)
    cg.load_callable(next)
    cg.asm.load_fast(generator)
    cg.asm.call(1)
    cg.asm.pop_top()
    cg.asm.load_fast(generator)
