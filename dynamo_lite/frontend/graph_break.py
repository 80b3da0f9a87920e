"""The breaking instruction in the replacement code, and the calls of the resume functions behind it.

Input: the frames of a broken trace, outermost first, whose values the code has at hand. Output: instructions that execute the
breaking instruction for real and go on where it leads to, in resume functions, called as a chain from the innermost frame out.
Invariant: what the instruction leaves is kept in locals before anything else runs; its exception goes through all inlined frames.
"""

from __future__ import annotations

from types import CodeType
from typing import TYPE_CHECKING, Any

from bytecode import Label

from dynamo_lite._eval_frame import tail_call
from dynamo_lite.exc import Unsupported, unsupported
from dynamo_lite.interp.frame import NULL, Frame
from dynamo_lite.isa.canon import NO_TARGET, Instr, Op, stack_effect
from dynamo_lite.isa.lift import NULL_FIRST
from dynamo_lite.isa.resume import CannotResume
from dynamo_lite.isa.typeobject import read_field

from .observed_sizes import note_rest
from .resume_call import FrameState, continuation, is_null, load_entries, load_resume_function

if TYPE_CHECKING:
    from .codegen import Codegen

# How many stack entries each op takes (those that take a number by their operand: a function of it).
OPERANDS: dict[Op, Any] = {
    Op.CALL: lambda arg: arg[0] + 2,
    Op.CALL_FUNCTION_EX: lambda has_kwargs: 4 if has_kwargs else 3,
    Op.BINARY: 2,
    Op.UNARY: 1,
    Op.TO_BOOL: 1,
    Op.COMPARE: 2,
    Op.IS_OP: 2,
    Op.CONTAINS_OP: 2,
    Op.BINARY_SUBSCR: 2,
    Op.STORE_SUBSCR: 3,
    Op.DELETE_SUBSCR: 2,
    Op.LOAD_ATTR: 1,
    Op.LOAD_METHOD: 1,
    Op.STORE_ATTR: 2,
    Op.DELETE_ATTR: 1,
    Op.LOAD_SUPER_ATTR: 3,
    Op.GET_ITER: 1,
    Op.FOR_ITER: 1,
    Op.UNPACK_SEQUENCE: 1,
    Op.UNPACK_EX: 1,
    Op.LIST_EXTEND: lambda i: i + 1,
    Op.SET_UPDATE: lambda i: i + 1,
    Op.SET_ADD: lambda i: i + 1,
    Op.MAP_ADD: lambda i: i + 2,
    Op.DICT_UPDATE: lambda i: i + 1,
    Op.DICT_MERGE: lambda i: i + 3,
    Op.CONVERT: 1,
    Op.FORMAT: lambda has_spec: 2 if has_spec else 1,
    Op.BUILD_STRING: lambda n: n,
    Op.BUILD_SET: lambda n: n,
    Op.BUILD_MAP: lambda n: 2 * n,
    Op.BEFORE_WITH: 1,
    Op.IMPORT_NAME: 2,
    Op.IMPORT_FROM: 1,
    Op.MATCH_CLASS: 3,
    Op.MATCH_KEYS: 2,
    Op.MATCH_MAPPING: 1,
    Op.MATCH_SEQUENCE: 1,
    Op.GET_LEN: 1,
    Op.LOAD_BUILD_CLASS: 0,
    Op.STORE_GLOBAL: 1,
    Op.DELETE_GLOBAL: 0,
    Op.RAISE_VARARGS: lambda n: n,
    Op.CALL_INTRINSIC: 1,
    Op.CHECK_EXC_MATCH: 2,
    Op.WITH_EXCEPT_START: 0,
    Op.DELETE_FAST: 0,  # of an unbound variable
}


_OF_TRUTH = frozenset({Op.NOT, Op.JUMP_IF})


def is_unbound(frame: Frame, instr: Instr) -> bool:
    """Whether the instruction deletes a variable that is not bound, and raises."""
    return instr.op is Op.DELETE_FAST and frame.locals[instr.arg] is None


def operand_count(instr: Instr) -> int:
    """How many stack entries the instruction takes; raises Unsupported if there can be no break at it."""
    if instr.op not in OPERANDS:
        unsupported("opcode", f"break at {instr.op.name}")
    n = OPERANDS[instr.op]
    return n if isinstance(n, int) else n(instr.arg)


class BreakEmitter:
    """Emits the breaking instruction and the calls of the resume functions."""

    def __init__(self, cg: Codegen, frames: list[Frame], states: list[FrameState]) -> None:
        self.cg = cg
        self.asm = cg.asm
        self.frames = frames
        self.states = states

    def emit(self, instr: Instr, operands: list[Any], handled: object) -> None:
        """Execute `instr` for real; then resume after it, or where its exception goes."""
        asm = self.asm
        # An exception has to go through the inlined frames too: its traceback shows them.
        guarded = len(self.frames) > 1 or self.frames[0].lifted.handler_at[self.frames[0].cur] is not None
        failed = self.cg.failed if self.cg.failed is not None else asm.label()
        if handled is not None:
            self._establish(handled)
        asm.set_location(*instr.pos)
        unbound = self._unbind(instr) if instr.op is Op.DELETE_FAST else None
        if guarded:
            asm.begin_try(failed)
        for i, entry in enumerate(operands):
            if entry is NULL:
                asm.push_null()
            else:
                self.cg.load_operand(entry, any(entry is other for other in operands[i + 1 :]))
        if instr.op is Op.FOR_ITER:
            self._for_iter(instr, guarded, handled)
        else:
            if instr.op is Op.WITH_EXCEPT_START:
                instr = self._with_except_start(instr)
            single = _without_pair(instr)
            if unbound is not None:
                asm.delete_fast(unbound)
            else:
                asm.emit_op(single.op, single.arg)
            if self._tests_result():
                asm.emit_op(Op.TO_BOOL, None)
            if guarded:
                asm.end_try()
            if instr.op is not Op.RAISE_VARARGS:
                results: list[Any] = self._save_results(operand_count(single) + stack_effect(single))
                if single is not instr:
                    results.insert(0 if NULL_FIRST else 1, NULL)
                self._leave_handled(handled)
                self._after(instr, results)
        if guarded:
            asm.place(failed)
            self._failed(handled)

    def _unbind(self, instr: Instr) -> str:
        """The name of the variable that the instruction deletes, which is unbound in the new code from here on as well."""
        name = self.frames[-1].lifted.local_names[instr.arg]
        self.asm.load_const(None)
        self.asm.store_fast(name)
        self.asm.delete_fast(name)
        return name

    def resume_behind(self) -> None:
        """Resume behind an instruction that is done."""
        self._resume(self.states[-1].stack, self.frames[-1].cur + 1)

    def _tests_result(self) -> bool:
        """Whether the instruction takes the truth of its result as well (COMPARE_OP since 3.13)."""
        lifted, cur = self.frames[-1].lifted, self.frames[-1].cur
        return not lifted.instrs[cur].last and lifted.instrs[cur + 1].op is Op.TO_BOOL

    def _with_except_start(self, instr: Instr) -> Instr:
        """Push the operands of a CALL that does the same: the original finds its own below entries that are no objects here."""
        stack = self.frames[-1].stack
        exit_: Any
        self_: Any
        exit_, self_, exc = (stack[-5], stack[-4], stack[-1]) if instr.arg else (stack[-4], NULL, stack[-1])
        self.asm.push_callable(lambda: self.cg.load(exit_))
        if not is_null(self_):
            self.cg.load(self_)
        self.cg.load_callable(type)
        self.cg.load(exc)
        self.asm.call(1)
        self.cg.load(exc)
        self.cg.load_callable(read_field)
        self.cg.load(exc)
        self.cg.load_const("__traceback__")
        self.asm.call(2)
        return Instr(Op.CALL, (3 + (not is_null(self_)), ()), NO_TARGET, instr.offset, instr.last, instr.pos)

    def _establish(self, handled: Any) -> None:
        """Make an exception the one being handled: leaves the previous one and itself on the stack."""
        asm = self.asm
        caught = asm.label()
        asm.begin_try(caught)
        self.cg.load(handled)
        asm.reraise(0)
        asm.end_try()
        asm.place(caught)
        asm.push_exc_info()

    def _leave_handled(self, handled: object) -> None:
        if handled is not None:
            self.asm.pop_top()
            self.asm.pop_except()

    def _save_results(self, n: int) -> list[str]:
        """Pop n results into locals; their names bottom to top."""
        names = [self.cg.new_local() for _ in range(n)]
        for name in reversed(names):
            self.asm.store_fast(name)
        return names

    def _after(self, instr: Instr, results: list[Any]) -> None:
        """Carry out what is left of the original instruction, and the branch on its truth, which is an instruction of its own since 3.13;
        then resume behind it: each side of a branch has a resume function, where one for both would need a guard on the truth."""
        leaf = self.frames[-1]
        stack: list[Any] = [*self.states[-1].stack, *results]
        i = leaf.cur
        instrs = leaf.lifted.instrs
        while not instrs[i].last or (instrs[i].op is Op.TO_BOOL and instrs[i + 1].op in _OF_TRUTH):
            i += 1
            step = instrs[i]
            if step.op is Op.POP_TOP:
                stack.pop()
            elif step.op is Op.TO_BOOL:
                pass  # done with the instruction: it may raise where that may
            elif step.op is Op.NOT or (step.op is Op.FORMAT and not step.arg):
                self.asm.load_fast(stack.pop())
                self.asm.emit_op(step.op, step.arg)
                stack += self._save_results(1)
            elif step.op is Op.JUMP_IF:
                taken = self.asm.label()
                self.asm.load_fast(stack.pop())
                self.asm.jump_if(step.arg, taken)
                self._two_ways(stack, i, step.target, taken)
                return
            else:
                unsupported("opcode", f"{step.op.name} after a break at {instr.op.name}")
        following = i + 1
        if instrs[following].op is Op.POP_TOP and stack and type(stack[-1]) is str:
            # A result that nobody wants dies here, not with the continuation's arguments.
            self.asm.load_fast_and_clear(stack.pop())
            self.asm.pop_top()
            following += 1
        self._resume(stack, following)

    def _two_ways(self, stack: list[Any], i: int, target: int, taken: Label) -> None:
        instrs = self.frames[-1].lifted.instrs
        rest = list(stack)
        j = i
        while not instrs[j].last:
            j += 1
            assert instrs[j].op is Op.POP_TOP
            rest.pop()
        self._resume(rest, j + 1)
        self.asm.place(taken)
        self._resume(stack, target)

    def _for_iter(self, instr: Instr, guarded: bool, handled: object) -> None:
        asm = self.asm
        iterator = self.frames[-1].stack[-1]
        exhausted = asm.label()
        asm.for_iter(exhausted)
        if guarded:
            asm.end_try()
        (item,) = self._save_results(1)
        asm.pop_top()
        self._leave_handled(handled)
        self._resume([*self.states[-1].stack, iterator, item], self.frames[-1].cur + 1)
        asm.place_for_end(exhausted)
        self._leave_handled(handled)
        self._resume(list(self.states[-1].stack), instr.target)

    def _failed(self, handled: object) -> None:
        """The instruction raised: the innermost frame goes on as if it had raised there."""
        asm = self.asm
        asm.push_exc_info()
        asm.swap(2)
        asm.pop_except()
        (error,) = self._save_results(1)  # its traceback leads to this frame
        self._leave_handled(handled)
        self._call_chain(self.states[-1].unwound, self.frames[-1].cur, "raise", [error])

    def _resume(self, stack: list[Any], index: int) -> None:
        self._call_chain(stack, index, "value", [])

    def _call_chain(self, stack: list[Any], index: int, mode: str, moved: list[str]) -> None:
        """Call the outermost frame's resume function; those of inlined frames are its arguments. `moved`: locals whose objects become the
        last arguments of the innermost one, and are nobody else's."""
        asm, cg = self.asm, self.cg
        for depth in range(len(self.frames) - 1, -1, -1):
            frame, state = self.frames[depth], self.states[depth]
            is_leaf = depth == len(self.frames) - 1
            at, entries = (index, stack) if is_leaf else (frame.cur + 1, state.stack)
            code, locals_ = self._continuation(frame, state, entries, at, mode if is_leaf else "call")
            if depth == 0:
                cg.load_callable(tail_call)
                cg.load_const(cg.tr.region.cache_for(code))
            load_resume_function(cg, code, frame, state.cells)
            function = self._save_results(depth > 0)
            count = load_entries(cg, entries, locals_) + len(moved)
            for name in moved:
                asm.load_fast_and_clear(name)
            if depth:
                asm.build_list(count)
                moved = function + self._save_results(1)
        if mode == "raise":
            cg.release_variables()  # the frame lives on: it has called those of the traceback
        asm.call(2 + count)
        asm.return_value()

    def _continuation(
        self, frame: Frame, state: FrameState, entries: list[Any], at: int, mode: str
    ) -> tuple[CodeType, list[tuple[str, Any]]]:
        """The code of a resume function, and the locals that it gets."""
        lifted = frame.lifted
        handler = lifted.handler_at[frame.cur] if mode != "value" else None
        entry_points = [at] * (mode != "raise") + ([handler.target] if handler is not None else [])
        locals_ = state.live_locals(entry_points)
        after = mode != "value"
        offset = lifted.instrs[frame.cur if after else at].offset
        names = tuple(name for name, _ in locals_)
        try:
            code = continuation(self.cg, frame, offset, entries, names, after, mode)
        except CannotResume as reason:
            unbreakable = Unsupported("reconstruct", str(reason))
            thread = self.cg.tr.thread
            unbreakable.break_step = thread.failing_step(frame.parent) if frame.parent is not None else 0
            raise unbreakable from reason
        note_rest(self.cg.tr, code, locals_)
        return code, locals_


def _without_pair(instr: Instr) -> Instr:
    """Of an instruction that pushes a method and its self, which locals can't keep (one may be NULL), one that pushes the bound method."""
    op, arg = instr.op, instr.arg
    if op is Op.LOAD_METHOD:
        op = Op.LOAD_ATTR
    elif op is Op.LOAD_SUPER_ATTR and arg[1]:
        arg = arg[0], False, arg[2]
    else:
        return instr
    return Instr(op, arg, NO_TARGET, instr.offset, instr.last, instr.pos)
