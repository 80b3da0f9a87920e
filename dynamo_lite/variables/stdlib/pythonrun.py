"""`compile`, `eval` and `exec` of code that the analysis knows.

Input: source or a code object, and the models of the namespaces. Output: a constant code object; the value of an expression; effects on
the namespaces.
Invariant: code is followed, never run. A dictionary made by the program serves as globals by way of `DictNamespace`; functions made there
are followed where they are called, and never resumed, since no code object knows such globals.
Mirrors `builtin_compile`, `builtin_eval`, `builtin_exec` of `Python/bltinmodule.c` and `Python/pythonrun.c`.
"""

from __future__ import annotations
import __future__

import functools
import inspect
import operator
import types
import warnings
from typing import TYPE_CHECKING, Any

from dynamo_lite.exc import Unsupported, unsupported
from dynamo_lite.guards import ir
from dynamo_lite.variables.builtin.dict import DictVariable
from dynamo_lite.variables.objects.function import FunctionVariable
from dynamo_lite.variables.objects.module import GlobalsNamespace
from dynamo_lite.variables.protocol.base import MISSING, VariableTracker
from dynamo_lite.variables.protocol.constant import NONE, ConstantVariable, is_none
from dynamo_lite.variables.protocol.dispatch import builtin
from dynamo_lite.variables.protocol.native import atom_value

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.guards.ir import GuardNode
    from dynamo_lite.interp.frame import Frame

_FUTURES = functools.reduce(
    operator.or_, [getattr(__future__, name).compiler_flag for name in __future__.all_feature_names]
)
_ONLY_AST = 0x400


class DictNamespace:
    """A dictionary of the program as the globals of code (see `GlobalsNamespace`)."""

    resumable = False

    def __init__(self, dictionary: DictVariable, builtins: GlobalsNamespace | DictNamespace | None) -> None:
        self.dict = dictionary
        self.builtins = builtins

    @property
    def value(self) -> Any:
        """There is no real dictionary yet."""
        return unsupported("exec-eval", "code whose globals are a dictionary made by the program")

    def load(self, tx: Frame, name: str) -> VariableTracker | None:
        """LOAD_GLOBAL."""
        found = self.dict.find(name)
        if found is not None or self.builtins is None:
            return found
        return self.builtins.load(tx, name)

    def store(self, tx: Frame, name: str, value: VariableTracker) -> None:
        """STORE_GLOBAL."""
        self.dict.store(tx, name, value)

    def delete(self, tx: Frame, name: str) -> bool:
        """DELETE_GLOBAL; False if the name is not there."""
        return self.dict.discard(tx, name) is not None

    @property
    def own_builtins(self) -> VariableTracker | None:
        """The builtins, if the program has made them."""
        return self.builtins.dict if isinstance(self.builtins, DictNamespace) else None

    def as_dict(self, tx: Frame) -> VariableTracker:
        """`__globals__` of a function."""
        return self.dict

    def parts(self) -> Any:
        """The objects that generated code has to build for a function with these globals."""
        return (self.dict,)

    def emit_dict(self, cg: Codegen) -> None:
        """Push the dictionary."""
        cg.load(self.dict)


@builtin(compile)
def builtin_compile(tx: Frame, /, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    given = inspect.signature(compile).bind(*args, **kwargs).arguments
    options = {name: _host_option(v) for name, v in given.items()}
    source = options.pop("source")
    flags = options.pop("flags", 0)
    if flags & _ONLY_AST or not isinstance(source, (str, bytes)):
        return unsupported("exec-eval", "compile() to or from a syntax tree")
    if not options.pop("dont_inherit", False):
        flags |= tx.code.co_flags & _FUTURES
    return ConstantVariable(compile_source(tx, source, options.pop("filename"), options.pop("mode"), flags, **options))


def _host_option(v: VariableTracker) -> Any:
    return atom_value(v, "exec-eval")


def compile_source(
    tx: Frame, source: GuardNode | None, filename: object, mode: object, flags: int, **options: Any
) -> types.CodeType:
    """The code object of a source text; warnings of the compiler belong to the running program."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            code = compile(source, filename, mode, flags, True, **options)
        except (SyntaxError, ValueError, TypeError, OverflowError, MemoryError) as error:
            code = error
    if caught:
        unsupported("call-print", f"the warning of the compiler: {caught[0].message}")
    if isinstance(code, BaseException):
        tx.raises_like(code)
    return code


@builtin(eval)
def builtin_eval(
    tx: Frame, source: VariableTracker, /, globals: VariableTracker = NONE, locals: VariableTracker = NONE
) -> VariableTracker:
    return _run(tx, source, globals, locals, "eval")


@builtin(exec)
def builtin_exec(
    tx: Frame,
    source: VariableTracker,
    /,
    globals: VariableTracker = NONE,
    locals: VariableTracker = NONE,
    *,
    closure: VariableTracker = NONE,
) -> VariableTracker:
    if not is_none(closure):
        return unsupported("exec-eval", "exec() with a closure")
    _run(tx, source, globals, locals, "exec")
    return NONE


def _run(tx: Frame, source: VariableTracker, globals_: VariableTracker, locals_: VariableTracker, mode: str) -> Any:
    if not is_none(globals_):
        return _evaluate(tx, source, _namespace(tx, globals_), globals_ if is_none(locals_) else locals_, mode)
    try:
        return _evaluate(tx, source, tx.globals, tx.frame_locals() if is_none(locals_) else locals_, mode)
    except Unsupported as error:
        if not is_none(locals_):
            raise
        return tx.needs_real_frame(error.slug, error.context)  # the real call sees the variables of the real frame


def _evaluate(
    tx: Frame, source: VariableTracker, namespace: object, locals_: VariableTracker, mode: str
) -> VariableTracker:
    code = atom_value(source, "exec-eval")
    if isinstance(code, (str, bytes)):
        if mode == "eval":
            code = code.lstrip(" \t" if isinstance(code, str) else b" \t")
        code = compile_source(tx, code, "<string>", mode, tx.code.co_flags & _FUTURES)
    if not isinstance(code, types.CodeType) or code.co_freevars:
        return unsupported("exec-eval", f"{mode}() of {source.describe()}")
    if not isinstance(locals_, DictVariable):
        return unsupported("exec-eval", f"{mode}() in a namespace that is no dictionary of the program")
    return tx.tr.run_class_body(tx, FunctionVariable(code, namespace, []), locals_)


def _namespace(tx: Frame, globals_: VariableTracker) -> Any:
    """The globals that a dictionary is for code."""
    if globals_.python_type() is not dict or not isinstance(globals_, DictVariable):
        return unsupported("exec-eval", "globals that are no dict")
    found = globals_.__dict__.get("namespace")
    if found is not None:
        return found
    own = globals_.find("__builtins__")
    if own is not None:
        if globals_.value is MISSING or globals_.mutated:
            return _with_builtins(globals_, own)
        tx.tr.guard(globals_.source, ir.IS, globals_.value)
        return tx.tr.heap.namespace(globals_.value)
    builtins = tx.globals if tx.globals.builtins is None else tx.globals.builtins
    globals_.store(tx, "__builtins__", tx.tr.build_constant_object(builtins.value))
    globals_.namespace = made = DictNamespace(globals_, builtins)
    return made


def _with_builtins(globals_: DictVariable, own: VariableTracker) -> DictNamespace:
    """Globals that bring a dictionary made by the program as their builtins."""
    if own.python_type() is not dict or not isinstance(own, DictVariable) or own.source is not None:
        unsupported("exec-eval", "globals with builtins of their own")
    globals_.namespace = made = DictNamespace(globals_, DictNamespace(own, None))
    return made
