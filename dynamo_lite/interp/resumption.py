"""What resume functions call: the inner frame that was inlined before the break, and the exception of the breaking instruction.

Input: `call_moved(function, arguments)` and `raise_again(exception)` of `_eval_frame`, met in the code of a continuation.
Output: the call of the function in a direct frame; the exception.
Invariant: both are met only there, so the list of arguments is nobody else's and its emptying need not be replayed. So is
`own_variables(shown, names)`, which gets what `locals()` has shown, and `hold_frame(holder)`.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any

from dynamo_lite._eval_frame import begins_generated, call_moved, raise_again
from dynamo_lite.guards import ir
from dynamo_lite.isa.canon import Op
from dynamo_lite.isa.resume import hold_frame, own_variables
from dynamo_lite.variables.builtin.dict import DictVariable
from dynamo_lite.variables.objects.function import BuiltinVariable
from dynamo_lite.variables.protocol import abstract
from dynamo_lite.variables.protocol.base import ObservedException, VariableTracker
from dynamo_lite.variables.protocol.constant import ConstantVariable, is_none
from dynamo_lite.variables.protocol.dispatch import DIRECT_CALLS, builtin

if TYPE_CHECKING:
    from dynamo_lite.variables.objects.exception_instance import ExceptionVariable

    from .frame import Frame


def _inner_frame(args: list[Any]) -> tuple[VariableTracker, list[VariableTracker]]:
    function, arguments = args
    return function, list(arguments.items)


DIRECT_CALLS[call_moved] = _inner_frame


@builtin(raise_again)
def builtin_raise_again(tx: Frame, exception: ExceptionVariable) -> VariableTracker:
    # Here the exception is raised once more: to break at this point and do it for real would lead here again.
    exception.raise_step = 0
    exception.raised_again = True
    entry = exception.get(tx, "__traceback__")
    if not is_none(entry):
        if not begins_generated(entry.value):
            tx.tr.guard(entry.source, ir.PYTHON, _begins_otherwise)
            return exception
        tx.tr.guard(entry.source, ir.PYTHON, begins_generated)
        exception.put(tx, "__traceback__", abstract.get_attr(tx, entry, "tb_next"))
    raise ObservedException(exception)


def raises_again(frame: Frame) -> bool:
    """Whether a frame is at the call of `raise_again` with which it was resumed. A break there would never end: the call raises, and the
    next resume function begins with the same call."""
    instr = frame.lifted.instrs[frame.cur]
    operands = frame.stack[-3:] if instr.op is Op.CALL and instr.arg[0] else ()
    return any(isinstance(v, BuiltinVariable) and v.value is raise_again for v in operands)


def _begins_otherwise(traceback: TracebackType) -> bool:
    return not begins_generated(traceback)


@builtin(hold_frame)
def builtin_hold_frame(tx: Frame, holder: VariableTracker) -> VariableTracker:
    """The traced frame has no object; what the frame holds in tracebacks is up to `finalizers`, and to the next resume function."""
    return holder


@builtin(own_variables)
def builtin_own_variables(tx: Frame, shown: VariableTracker, names: VariableTracker) -> VariableTracker:
    """`Frame.frame_locals` shows variables of the original only; here they get its order."""
    if isinstance(shown, DictVariable) and shown is tx.snapshot:
        for name in map(ConstantVariable, names.as_python_constant()):
            value = shown.lookup(tx, name)
            if value is not None:
                shown.mp_ass_subscript(tx, name, None)
                shown.mp_ass_subscript(tx, name, value)
    return shown
