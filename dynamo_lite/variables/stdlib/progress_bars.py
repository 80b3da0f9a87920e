"""Methods of tqdm's progress bars behind the graph, where `config.stitch` has it so.

Input: a call of a method that moves or labels a bar from outside. Output: a `BarCall`: generated code calls the method when the graph has
run, in the order of the program's other changes.
Invariant: the bar writes to a stream whose methods are those of C, and the call's arguments are numbers and texts, so that no code of the
program runs in it. What it changes in the bar nobody sees before: any other attribute of the bar ends the graph behind the call.
Mirrors `tqdm/std.py`.
"""

from __future__ import annotations

import numbers
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import tqdm.std

from dynamo_lite.config import config
from dynamo_lite.exc import Unsupported, unsupported
from dynamo_lite.guards import ir
from dynamo_lite.variables.objects.instance import InstanceVariable
from dynamo_lite.variables.protocol.base import Child, Children, Plain, VariableTracker
from dynamo_lite.variables.protocol.constant import NONE, is_none
from dynamo_lite.variables.protocol.deferred_str import settled
from dynamo_lite.variables.protocol.dispatch import builtin
from dynamo_lite.variables.protocol.getargs import fits
from dynamo_lite.variables.protocol.wrap import builds_if

from .delayed_errors import NOTICED, exits_around
from .printing import LateOutput, is_dropped, is_of_c, is_settled, place_of_call, text_now, why_now, write_behind

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.guards.ir import GuardNode
    from dynamo_lite.interp.frame import Frame

Bar = tqdm.std.tqdm


class ProgressBarVariable(InstanceVariable):
    """A bar from outside. `is_behind`: a method that changes it is called behind the graph."""

    is_behind = False

    def tp_getattro(self, tx: Frame, name: str) -> VariableTracker:
        if self.is_behind and name not in _METHODS:
            unsupported("call-print", f"attribute {name} of a progress bar that moves behind the graph")
        return super().tp_getattro(tx, name)

    def tp_setattro(self, tx: Frame, name: str, value: VariableTracker | None) -> None:
        if self.is_behind:
            unsupported("call-print", f"change of {name} of a progress bar that moves behind the graph")
        super().tp_setattro(tx, name, value)

    def is_changed(self) -> bool:
        """Whether the program has set attributes of the bar."""
        return self.mutated or (isinstance(self.dict, VariableTracker) and self.dict.mutated)


def _is_bar(value: object) -> bool:
    """Whether an object is a bar of tqdm's own classes: `tqdm.auto` has another one, which has the same methods for a loop."""
    cls = type(value)
    return cls is Bar or cls is getattr(sys.modules.get("tqdm.asyncio"), "tqdm_asyncio", None)


@builds_if(_is_bar)
def build_bar(tr: Trace, value: object, source: GuardNode | None) -> ProgressBarVariable:
    tr.guard(source, ir.TYPE_IS, type(value))
    return ProgressBarVariable(type(value), value, source)


class BarCall(LateOutput):
    """The call of a method of `bar`. `names`: those of the last values."""

    method: Callable[..., Any] = Plain()
    bar: VariableTracker = Child()
    names: tuple[str, ...] = Plain()
    values: list[VariableTracker] = Children()

    def emit_output(self, cg: Codegen) -> None:
        cg.load_callable(self.method)
        for vt in (self.bar, *self.values):
            cg.load(vt)
        cg.asm.call(1 + len(self.values), self.names)
        cg.asm.pop_top()


def _is_plain(bar: Any) -> bool:
    """Whether moving a bar runs no code of the program."""
    state = vars(bar)
    if any(vars(Bar)[name] is not function for name, function in _OWN.items()) or not _OWN.keys().isdisjoint(state):
        return False
    stream = vars(state["fp"]).get("_wrapped") if "fp" in state else None
    return bool(bar.disable) or (stream is not None and is_of_c(stream))


_OWN = {name: vars(Bar)[name] for name in ("display", "refresh", "format_meter", "format_dict", "__str__")}
"""What writes a bar."""


def _why_not(tx: Frame, bar: VariableTracker) -> str:
    """Why a bar can't be moved later than eager execution does it, for the message of a break."""
    if not isinstance(bar, ProgressBarVariable) or bar.source is None:
        return ": the bar is made by the captured code, or its class is one of the program's"
    if not _is_plain(bar.value):
        return ": the bar's stream or methods may run code of the program"
    return ": the captured code has set an attribute of the bar" if bar.is_changed() else why_now(tx)


def _moved(
    tx: Frame, name: str, bar: VariableTracker, args: tuple[VariableTracker, ...], kwargs: dict[str, VariableTracker]
) -> VariableTracker:
    call = f"tqdm.{name}()"
    reason = _why_not(tx, bar) if fits(getattr(Bar, name), 1 + len(args), kwargs) else " with other arguments"
    around = exits_around(tx)
    if around is None:
        reason = reason or NOTICED
    if not config.stitch or reason:
        return unsupported("call-print", call + reason)
    values = [_settled(tx, vt, call) for vt in (*args, *kwargs.values())]
    tx.tr.guards.predicate(_is_plain, [bar.source], f"{bar.source.path} runs no code of the program")
    place, source = place_of_call(tx, call[:-2]), tx.tr.constant_source(Bar)
    bar.is_behind = True  # type: ignore[attr-defined]
    moved = BarCall(place, getattr(Bar, name), bar, tuple(kwargs), values, source)
    write_behind(tx, moved, Unsupported("call-print", call), around)
    return NONE


def _settled(tx: Frame, vt: VariableTracker, call: str) -> VariableTracker:
    """An argument whose text nobody changes."""
    return vt if is_settled(vt) else settled(tx, text_now(tx, vt, call))


def _is_number(vt: VariableTracker) -> bool:
    return issubclass(vt.python_type(), int | float) and is_settled(vt)


def _is_text(vt: VariableTracker) -> bool:
    return is_none(vt) or vt.python_type() is str


@builtin(Bar.update)
def bar_update(tx: Frame, self: VariableTracker, n: VariableTracker | None = None, /, **kwargs: Any) -> VariableTracker:
    """Whether it has shown the bar is only known behind the graph."""
    given = kwargs.pop("n", n)
    values = () if given is None else (given,)
    if kwargs or not all(map(_is_number, values)) or not is_dropped(tx):
        return unsupported("call-print", "tqdm.update(), whose result is used or whose argument is no number")
    return _moved(tx, "update", self, values, {})


def _label(name: str) -> None:
    @builtin(getattr(Bar, name))
    def method(
        tx: Frame, self: VariableTracker, /, *args: VariableTracker, **kwargs: VariableTracker
    ) -> VariableTracker:
        others = [vt for key, vt in kwargs.items() if key not in ("desc", "s")]
        texts = [*args[:1], *(vt for key, vt in kwargs.items() if key in ("desc", "s"))]
        if not (all(map(_is_text, texts)) and all(map(is_settled, [*args[1:], *others]))):
            return unsupported("call-print", f"tqdm.{name}() of what is no text")
        return _moved(tx, name, self, args, kwargs)


for _name in ("set_description", "set_description_str", "set_postfix_str"):
    _label(_name)


@builtin(Bar.set_postfix)
def bar_set_postfix(
    tx: Frame, self: VariableTracker, /, *args: VariableTracker, **kwargs: VariableTracker
) -> VariableTracker:
    """Numbers are formatted by the bar, of other objects it has the text."""
    others = [vt for vt in kwargs.values() if not is_settled(vt)]
    if args or "ordered_dict" in kwargs or any(issubclass(vt.python_type(), numbers.Number | str) for vt in others):
        return unsupported("call-print", "tqdm.set_postfix() of a dictionary, or of numbers of other kinds")
    return _moved(tx, "set_postfix", self, (), kwargs)


_METHODS = frozenset({"update", "set_description", "set_description_str", "set_postfix", "set_postfix_str"})
