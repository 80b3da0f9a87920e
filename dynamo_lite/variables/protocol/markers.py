"""What the markers of `dynamo_lite.markers` mean inside captured code.

Input: calls of marker functions, and functions that carry marks. Output: breaks, constants, or `SkipFrame`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from dynamo_lite import markers
from dynamo_lite.exc import ForbiddenCallError, NotConstant, SkipFrame, gist, unsupported

from . import trace_rules
from .base import VariableTracker
from .constant import ConstantVariable
from .dispatch import builtin

if TYPE_CHECKING:
    from dynamo_lite.interp.frame import Frame


@builtin(markers.graph_break)
def graph_break(tx: Frame, msg: VariableTracker | None = None) -> VariableTracker:
    if tx.globals.value.get("__name__") == "torch.optim.optimizer":
        return ConstantVariable(None)  # keeps the grad mode out of torch.compile's graphs; ours change it themselves
    return unsupported("user-requested", msg.as_python_constant() if msg is not None else "")


@builtin(markers.skip_frame)
def skip_frame(tx: Frame, msg: VariableTracker | None = None) -> VariableTracker:
    raise SkipFrame(msg.as_python_constant() if msg is not None else "")


@builtin(markers.is_compiling)
def is_compiling(tx: Frame) -> VariableTracker:
    tx.tr.thread.is_told_of_capture = True
    return ConstantVariable(True)


def apply_marks(
    tx: Frame, fn: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
) -> VariableTracker | None:
    """The result that a mark on a real function gives instead of following it; None if it carries no mark."""
    if fn in markers.FORBIDDEN_IN_GRAPH:
        refuse(fn, "forbid_in_graph")
    if (fn.__globals__.get("__name__"), fn.__qualname__) not in trace_rules.TORCH_MARKERS:
        refuse_marked(fn)
    if fn.__code__ in markers.SKIPPED_CODES:
        return unsupported("call-skipped-function", f"{fn.__qualname__} is skipped")
    if fn.__dict__ and markers.CONSTANT_RESULT in fn.__dict__:
        return constant_result(tx, fn, args, kwargs)
    return None


def refuse_marked(fn: Any) -> None:
    """End the graph, or raise, at the call of something that may not be called in captured code."""
    mark = markers.refusal(fn)
    if mark is not None:
        refuse(fn, mark)


def refuse(fn: Any, mark: str) -> NoReturn:
    """The effect of a mark of `markers.refusal`."""
    name = getattr(fn, "__qualname__", None) or str(fn)
    if mark == "forbid_in_graph":
        raise ForbiddenCallError(f"{name} must not be called in captured code (forbid_in_graph)")
    unsupported("disallowed-function", name)


def constant_result(
    tx: Frame, fn: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
) -> VariableTracker:
    """`assume_constant_result`: call the real function now, on the real arguments."""
    try:
        host_args = [_real(a) for a in args]
        host_kwargs = {k: _real(v) for k, v in kwargs.items()}
    except NotConstant as error:
        return unsupported("graph-argument-type", f"{fn.__qualname__}: {gist(error)}")
    return tx.tr.build_constant_object(fn(*host_args, **host_kwargs))


def _real(vt: VariableTracker) -> Any:
    return vt.as_python_constant() if vt.is_python_constant() else _existing(vt)


def _existing(vt: VariableTracker) -> Any:
    if vt.source is None or vt.mutated:
        raise NotConstant(f"{vt.describe()} does not exist before the call")
    return vt.value
