"""Context variables.

Input: a real `ContextVar`, or a `Token` of one. Output: `ContextVarVariable`, `TokenVariable`.
Invariant: what a variable is in the context of the call is guarded when it is first asked for; what the traced code sets is set after the
graph, in the same order, so that a token that goes on is the one that its `set` has returned.
Mirrors `Python/context.c`.
"""

from __future__ import annotations

from contextvars import Context, ContextVar, Token
from typing import TYPE_CHECKING, Any

from dynamo_lite.exc import Unsupported, unsupported
from dynamo_lite.guards import ir
from dynamo_lite.variables.objects.exception_instance import make_exception
from dynamo_lite.variables.protocol.base import MISSING, VariableTracker
from dynamo_lite.variables.protocol.constant import NONE, ConstantVariable
from dynamo_lite.variables.protocol.descr import getset
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


def is_used(token: object) -> bool:
    """Whether `reset` has been called with a token: only its text tells."""
    return Token.__repr__(token).startswith("<Token used ")


class ContextVarVariable(NativeVariable):
    """A `ContextVar`. `now` is what it is set to: None as long as nobody has asked, and for nothing. `effects` are the calls of `set`, as
    their tokens, and those of `reset` for which there is no `set` here."""

    cls = ContextVar

    def __init__(self, value: object, source: GuardNode | None) -> None:
        self.value, self.source = value, source
        self.is_known = False
        self.now: VariableTracker | None = None
        self.effects: list[TokenVariable] = []

    def children(self) -> Any:
        return [vt for token in self.effects for vt in (token, token.set_to) if vt is not None]

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
        real = function(self.value)
        node = tx.tr.source(self.source, ir.CALL, function)
        if real is UNSET:
            tx.tr.guard(node, ir.IS, UNSET)
            return None
        tx.tr.guard(node, ir.IS_NOT, UNSET)
        return tx.tr.wrap(real, node)

    def differs(self) -> bool:
        return bool(self.effects)

    def emit_update(self, cg: Codegen) -> None:
        """The calls, in order. Those whose tokens go on have been made with them."""
        for token in self.effects:
            if token.set_to is None:
                emit_call(cg, ContextVar.reset, self, token)
            elif id(token) not in cg.loaded:
                emit_call(cg, ContextVar.set, self, token.set_to)
            else:
                continue
            cg.asm.pop_top()


class TokenVariable(NativeVariable):
    """A `Token`: of a `set` in the traced code (`set_to` is what to), or from outside. `old` is None where the variable was not set.
    `saved` is the break that making the token after the graph saves."""

    cls = Token
    saved: Unsupported

    def __init__(self, var: ContextVarVariable, old: VariableTracker | None, set_to: VariableTracker | None) -> None:
        self.var, self.old, self.set_to = var, old, set_to
        self.is_used = False
        self.source = None
        self.value = MISSING

    def children(self) -> Any:
        return [self.var, *([] if self.set_to is None else [self.set_to])]

    def emit_update(self, cg: Codegen) -> None:
        """Using one from outside is a call of its variable."""

    def emit_new(self, cg: Codegen) -> None:
        """Emit the token. If the variable has been changed by this call alone, it is the real token of that call; for a used one it is an
        equal one."""
        if self.is_used and not self.var.effects and self.set_to is not None:
            cg.load_callable(used_token)
            cg.load(self.var)
            cg.load(self.set_to)
            cg.asm.call(2)
        elif self.var.effects == [self] and self.set_to is not None:
            emit_call(cg, ContextVar.set, self.var, self.set_to)
        else:
            raise self.saved


def used_token(var: Any, value: object) -> Any:
    """A token that has been used."""
    token = var.set(value)
    var.reset(token)
    return token


@builds(ContextVar)
def build_context_var(tr: Trace, value: object, source: GuardNode | None) -> ContextVarVariable:
    tr.guard(source, ir.IS, value)
    return ContextVarVariable(value, source)


@builds(Token)
def build_token(tr: Trace, value: Any, source: GuardNode | None) -> TokenVariable:
    tr.guard(source, ir.TYPE_IS, Token)
    tr.guard(tr.source(source, ir.CALL, is_used), ir.IS, is_used(value))
    var = tr.wrap(value.var, tr.source(source, ir.ATTR, "var"))
    old = value.old_value
    node = tr.source(source, ir.ATTR, "old_value")
    tr.guard(node, ir.IS if old is Token.MISSING else ir.IS_NOT, Token.MISSING)
    token = TokenVariable(var, None if old is Token.MISSING else tr.wrap(old, node), None)
    token.value, token.source, token.is_used = value, source, is_used(value)
    return token


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
    if not isinstance(token, TokenVariable) or token.var is not self or token.is_used:
        return unsupported("uncaught-exception", "ContextVar.reset")  # the error's text has addresses
    if token.source is not None:
        tx.tr.effects.mutating(token)
    tx.tr.effects.mutating(self)
    if self.effects[-1:] == [token]:
        self.effects.pop()
    elif token.source is not None:
        self.effects.append(token)
    else:
        raise token.saved
    token.is_used = True
    self.is_known, self.now = True, token.old
    return NONE


# -- attributes


@getset(ContextVar.name)
def context_var_name(tx: Frame, self: ContextVarVariable) -> VariableTracker:
    return ConstantVariable(self.value.name)


@getset(Token.var)
def token_var(tx: Frame, self: TokenVariable) -> VariableTracker:
    return self.var


@getset(Token.old_value)
def token_old_value(tx: Frame, self: TokenVariable) -> VariableTracker:
    return self.old if self.old is not None else tx.tr.build_constant_object(Token.MISSING)
