"""What the handlers of a frame do with an exception.

Input: a frame, where it is raised, which exceptions it may be. Output: whether the handlers certainly pass it on and do nothing else.
Invariant: nothing of the program runs; the names of classes in `except` clauses are looked up, which guards them.
Mirrors `exception_unwind` of `Python/ceval.c`.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dynamo_lite.isa.canon import Op
from dynamo_lite.variables.builtin.tuple import TupleVariable
from dynamo_lite.variables.objects.exception_instance import is_exception_class
from dynamo_lite.variables.protocol.abstract import get_attr
from dynamo_lite.variables.protocol.base import VariableTracker

if TYPE_CHECKING:
    from dynamo_lite.interp.frame import Frame

Exits = Callable[[VariableTracker, "VariableTracker | None"], bool]
"""Tells of what `__exit__` is, and of its self where that lies beside it, whether the program notices nothing of its call."""

# What a handler may do with an exception without the program noticing.
_SILENT = frozenset(
    Op[name]
    for name in """
    COPY SWAP POP_TOP PUSH_EXC_INFO POP_EXCEPT CALL_INTRINSIC LOAD_CONST LOAD_GLOBAL STORE_FAST DELETE_FAST
    """.split()
)


_CLASSES = (Op.LOAD_GLOBAL, Op.LOAD_ATTR, Op.BUILD_TUPLE)
"""What the class or the classes of an `except` clause are made with."""


def no_exit(exit_: VariableTracker, self: VariableTracker | None) -> bool:
    """The program notices any `__exit__`."""
    return False


def lets_through(frame: Frame, may_catch: Callable[[type], bool], is_silent: Exits = no_exit) -> bool:
    """Whether an exception that the current instruction raises leaves the frame unnoticed. `may_catch`: of a class, whether it may be one
    that `except` with this class catches."""
    handler_at, instrs = frame.lifted.handler_at, frame.lifted.instrs
    handler = handler_at[frame.cur]
    while handler is not None:
        index = handler.target
        while instrs[index].op not in (Op.RERAISE, Op.CLEANUP_THROW):
            instr = instrs[index]
            if instr.op is Op.CHECK_EXC_MATCH:
                if any(cls is None or may_catch(cls) for cls in _caught(frame, index)):
                    return False
                index = instrs[_jump_after(instrs, index)].target  # the class does not fit
            elif instr.op is Op.WITH_EXCEPT_START:
                entries: list[Any] = frame.stack[handler.depth - 1 - bool(instr.arg) : handler.depth]
                self_ = entries[1] if instr.arg and isinstance(entries[1], VariableTracker) else None
                if not is_silent(entries[0], self_):
                    return False
                index = _jump_after(instrs, index) + 1  # it returns something false
            elif instr.op in _SILENT or _is_clause(instrs, index):
                index += 1
            else:
                return False
        handler = handler_at[index]
    return True


def _is_clause(instrs: list[Any], index: int) -> bool:
    """Whether what an `except` clause names is loaded from here on."""
    while instrs[index].op in _CLASSES:
        index += 1
    return instrs[index].op is Op.CHECK_EXC_MATCH


def _jump_after(instrs: list[Any], index: int) -> int:
    while instrs[index].op is not Op.JUMP_IF:
        index += 1
    return index


def _caught(frame: Frame, index: int) -> list[type | None]:
    """The classes that `except` at this CHECK_EXC_MATCH catches; None for those that are not known."""
    start, instrs = index, frame.lifted.instrs
    while instrs[start - 1].op in _CLASSES:
        start -= 1
    stack: list[VariableTracker | None] = []
    for instr in instrs[start:index]:
        if instr.op is Op.LOAD_GLOBAL:
            stack.append(frame.globals.load(frame, instr.arg))
        elif instr.op is Op.LOAD_ATTR:
            stack.append(_of_module(frame, stack.pop() if stack else None, instr.arg))
        elif len(stack) >= instr.arg:
            items = stack[len(stack) - instr.arg :]
            stack[len(stack) - instr.arg :] = [None if None in items else TupleVariable(items)]
    caught = stack.pop() if len(stack) == 1 else None
    classes = caught.items if isinstance(caught, TupleVariable) else [caught]
    return [cls.value if cls is not None and is_exception_class(cls) else None for cls in classes]


def _of_module(frame: Frame, owner: VariableTracker | None, name: str) -> VariableTracker | None:
    """An attribute that lies in a module's dictionary."""
    if owner is None or type(owner.value) is not types.ModuleType or name not in vars(owner.value):
        return None
    return get_attr(frame, owner, name)
