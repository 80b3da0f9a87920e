"""Context variables.

Input: a real `ContextVar`. Output: `ContextVarVariable`, and `TokenVariable` for what its `set` returns.
Invariant: what a variable is in the context of the call is guarded when it is first asked for; what the traced code sets is set after the
graph, in the same order. A token that leaves the trace breaks it at its `set`, and so does one that comes from outside where it is used.
Mirrors `Python/context.c`.
"""

from __future__ import annotations

import sys
from contextvars import Context, ContextVar, Token
from typing import TYPE_CHECKING, Any

from dynamo_lite.exc import Unsupported, unsupported
from dynamo_lite.guards import ir
from dynamo_lite.variables.objects.exception_instance import make_exception
from dynamo_lite.variables.protocol.base import VariableTracker
from dynamo_lite.variables.protocol.constant import NONE, ConstantVariable
from dynamo_lite.variables.protocol.descr import foreign_attribute, getset
from dynamo_lite.variables.protocol.dispatch import method
from dynamo_lite.variables.protocol.native import NativeVariable, emit_call
from dynamo_lite.variables.protocol.wrap import builds

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.guards.ir import GuardNode
    from dynamo_lite.interp.frame import Frame

UNSET = object()
"""What a variable is in a context in which nobody has set it."""


def in_context(var: Any) -> Any:
    """The value to which a variable is set, or `UNSET`."""
    return var.get(UNSET)


def default_of(var: Any) -> Any:
    """The default of a variable, or `UNSET`."""
    try:
        return Context().run(var.get)
    except LookupError:
        return UNSET


def in_effect(var: Any) -> Any:
    """What `get` returns, or `UNSET`. Values are reached by this path whether they were set or are the default, so that a float that
    differs once it is set counts as one that varies."""
    try:
        return var.get()
    except LookupError:
        return UNSET


class ContextVarVariable(NativeVariable):
    """A `ContextVar`. `now` is what it is set to: None as long as nobody has asked, and for nothing. `effects` are the calls of `set`
    that no `reset` has undone, as their tokens."""

    cls = ContextVar

    def __init__(self, value: object, source: GuardNode | None) -> None:
        self.value, self.source = value, source
        self.is_known = False
        self.now: VariableTracker | None = None
        self.effects: list[TokenVariable] = []

    def children(self) -> Any:
        return [token.set_to for token in self.effects]

    def describe(self) -> str:
        return f"ContextVar {self.value.name}"

    def current(self, tx: Frame) -> VariableTracker | None:
        """The value to which it is set; None if it is not set."""
        if not self.is_known:
            self.is_known = True
            self.now = self._read(tx, in_context)
        return self.now

    def default(self, tx: Frame) -> VariableTracker | None:
        """The default value; None if there is none."""
        return self._read(tx, default_of)

    def _read(self, tx: Frame, function: Any) -> VariableTracker | None:
        """What `in_context` or `default_of` finds, guarded by its own path; the value is reached through `in_effect`. That is the same
        object: the default is asked for only where nothing is set."""
        real = function(self.value)
        node = tx.tr.source(self.source, ir.CALL, function)
        if real is UNSET:
            tx.tr.guard(node, ir.IS, UNSET)
            return None
        tx.tr.guard(node, ir.IS_NOT, UNSET)
        return tx.tr.wrap(real, tx.tr.source(self.source, ir.CALL, in_effect))

    def differs(self) -> bool:
        return bool(self.effects)

    def emit_update(self, cg: Codegen) -> None:
        for token in self.effects:
            emit_call(cg, ContextVar.set, self, token.set_to)
            cg.asm.pop_top()


class TokenVariable(NativeVariable):
    """The `Token` of a `set` in the traced code; `old` is None where the variable was not set before. `saved` is the break at
    that `set`."""

    cls = Token
    saved: Unsupported

    def __init__(self, var: ContextVarVariable, old: VariableTracker | None, set_to: VariableTracker) -> None:
        self.var, self.old, self.set_to = var, old, set_to

    def children(self) -> Any:
        return [self.var, self.set_to]

    def emit_new(self, cg: Codegen) -> None:
        raise self.saved


@builds(ContextVar)
def build_context_var(tr: Trace, value: object, source: GuardNode | None) -> ContextVarVariable:
    tr.guard(source, ir.IS, value)
    return ContextVarVariable(value, source)


_NOT_GIVEN = ConstantVariable(None)


@method(ContextVar.get)
def context_var_get(tx: Frame, self: ContextVarVariable, default: VariableTracker = _NOT_GIVEN, /) -> VariableTracker:
    found = self.current(tx)
    if found is None:
        found = self.default(tx) if default is _NOT_GIVEN else default
    if found is None:
        tx.raise_exception(make_exception(tx, LookupError, [self]))
    return found


@method(ContextVar.set)
def context_var_set(tx: Frame, self: ContextVarVariable, value: VariableTracker, /) -> VariableTracker:
    token = TokenVariable(self, self.current(tx), value)
    token.saved = Unsupported("call-c-function", "ContextVar.set, whose token is not used as usual")
    token.saved.break_step, token.saved.user_stack = tx.tr.thread.failing_step(), tx.tr.thread.user_stack()
    tx.tr.effects.mutating(self)
    self.effects.append(token)
    self.now = value
    return token


@method(ContextVar.reset)
def context_var_reset(tx: Frame, self: ContextVarVariable, token: VariableTracker, /) -> VariableTracker:
    if not isinstance(token, TokenVariable):
        return unsupported("call-c-function", "ContextVar.reset with a token from outside")
    if self.effects[-1:] != [token]:
        raise token.saved
    tx.tr.effects.mutating(self)
    self.effects.pop()
    self.is_known, self.now = True, token.old
    return NONE


_VAR = Token.__dict__["var"]


@getset(_VAR)
def token_var(tx: Frame, self: VariableTracker, /) -> VariableTracker:
    return self.var if isinstance(self, TokenVariable) else foreign_attribute(tx, self, _VAR)


if sys.version_info >= (3, 14):

    @method(Token.__enter__)
    def token_enter(tx: Frame, self: VariableTracker, /) -> VariableTracker:
        return self

    @method(Token.__exit__)
    def token_exit(tx: Frame, self: VariableTracker, /, *raised: VariableTracker) -> VariableTracker:
        return context_var_reset(tx, token_var(tx, self), self)


# -- attributes
