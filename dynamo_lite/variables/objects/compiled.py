"""Functions wrapped by `compile` and `disable`, met or made inside captured code.

Input: a real `Callable`, `UncapturedFunction` or `Uncaptured`; a call of `compile`. Output: a model whose call is that of the wrapped
function, which is followed as part of the outer capture; a model that breaks when called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dynamo_lite import _eval_frame, markers
from dynamo_lite.exc import NotConstant, unsupported
from dynamo_lite.guards import ir
from dynamo_lite.variables.protocol.base import MISSING, Child, Plain, VariableTracker, real_object
from dynamo_lite.variables.protocol.descr import DescriptorVariable
from dynamo_lite.variables.protocol.dispatch import builtin, constructor
from dynamo_lite.variables.protocol.wrap import builds

from .function import FunctionVariable, MethodVariable

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.guards.ir import GuardNode
    from dynamo_lite.interp.frame import Frame


class CompiledVariable(DescriptorVariable):
    """A `Callable`. What it does not have itself it has from its function."""

    function: VariableTracker = Plain()

    def tp_getattro(self, tx: Frame, name: str) -> VariableTracker:
        if name in ("__wrapped__", "_torchdynamo_orig_callable"):
            return self.function if getattr(self.value, name) is self.function.value else self._own(tx, name)
        if name in _OF_FUNCTION and name not in self.value.__dict__:
            return self.function.tp_getattro(tx, name)
        return self._own(tx, name)

    def _own(self, tx: Frame, name: str) -> VariableTracker:
        try:
            value = getattr(self.value, name)
        except AttributeError as error:
            tx.raises_like(error)
        return tx.tr.wrap(value, tx.tr.source(self.source, ir.ATTR, name))

    def tp_descr_get(self, tx: Frame, obj: VariableTracker | None, cls: VariableTracker) -> VariableTracker:
        return self if obj is None else MethodVariable(self, obj)

    def tp_call(self, tx: Frame, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        return tx.call(self.function, args, kwargs)


_OF_FUNCTION = frozenset(
    {"__name__", "__qualname__", "__doc__", "__module__", "__annotations__", "__annotate__"}
    | {"__type_params__", "__defaults__", "__kwdefaults__", "__code__", "__globals__", "__builtins__", "__closure__"}
)


class NewCompiledVariable(VariableTracker):
    """A function on which the traced code has called `compiler`, which is `compile`."""

    cls = _eval_frame.Callable
    compiler: Any = Plain()
    function: FunctionVariable = Child()
    options: dict[str, VariableTracker] = Plain()

    def describe(self) -> str:
        return f"compiled {self.function.describe()}"

    def tp_getattro(self, tx: Frame, name: str) -> VariableTracker:
        if name in ("__wrapped__", "_torchdynamo_orig_callable"):
            return self.function
        return self.function.tp_getattro(tx, name)

    def tp_descr_get(self, tx: Frame, obj: VariableTracker | None, cls: VariableTracker) -> VariableTracker:
        return self if obj is None else MethodVariable(self, obj)

    def tp_call(self, tx: Frame, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        return tx.call(self.function, args, kwargs)

    def emit_new(self, cg: Codegen) -> None:
        cg.load_callable(self.compiler)
        cg.load(self.function)
        for value in self.options.values():
            cg.load(value)
        cg.asm.call(1 + len(self.options), tuple(self.options))


def nested_compiler(compile: Any) -> None:
    """Have calls of `compile` in captured code make models: of plain functions, with options that are constants or existed before."""

    @builtin(compile)
    def compile_inside(tx: Frame, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
        try:
            options = {name: _option(tx, value) for name, value in kwargs.items()}
        except NotConstant as error:
            return unsupported("nested-compiler", f"compile with {error}")
        try:
            sample = compile(lambda: None, **options)
        except Exception as error:
            return unsupported("nested-compiler", f"compile raises {type(error).__name__}")
        if type(sample) is not _eval_frame.Callable:  # it is disabled
            return unsupported("nested-compiler", "compile that returns what it gets")
        if not args:
            return PartialCompiledVariable(compile, kwargs, type(compile(**options)))
        return _compiled(compile, kwargs, *args)


def _compiled(compiler: object, options: dict[str, VariableTracker], *args: VariableTracker) -> VariableTracker:
    function = args[0]
    while isinstance(function, CompiledVariable | NewCompiledVariable):
        function = function.function
    if len(args) > 1 or not isinstance(function, FunctionVariable):
        return unsupported("nested-compiler", f"compile of a {args[0].python_type().__name__}")
    return NewCompiledVariable(compiler, function, options)


def _option(tx: Frame, vt: VariableTracker) -> Any:
    """The value of an option; an object that existed before, a backend, is the same at each call."""
    if vt.is_python_constant():
        return vt.as_python_constant()
    value = real_object(vt)
    if vt.source is None or value is MISSING or not callable(value):
        raise NotConstant(vt.describe())
    tx.tr.guard(vt.source, ir.IS, value)
    return value


class PartialCompiledVariable(VariableTracker):
    """The result of `compile` without a function: a decorator, made for calls."""

    compiler: Any = Plain()
    options: dict[str, VariableTracker] = Plain()
    cls: type = Plain()

    def tp_call(self, tx: Frame, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        if kwargs or len(args) != 1:
            return unsupported("nested-compiler", "compile")
        return _compiled(self.compiler, self.options, *args)

    def emit_new(self, cg: Codegen) -> None:
        cg.load_callable(self.compiler)
        for value in self.options.values():
            cg.load(value)
        cg.asm.call(len(self.options), tuple(self.options))


@builds(_eval_frame.Callable)
def build_callable(tr: Trace, value: Any, source: GuardNode | None) -> CompiledVariable:
    tr.guard(source, ir.IS, value)
    function = value._torchdynamo_orig_callable
    return CompiledVariable(value, tr.build_constant_object(function), source)


class SlotMethodVariable(DescriptorVariable):
    """A `SlotMethod`: a call is one of its object."""

    object: VariableTracker = Plain()

    def tp_getattro(self, tx: Frame, name: str) -> VariableTracker:
        if name in ("__self__", "_torchdynamo_orig_callable"):
            return self.object
        return super().tp_getattro(tx, name)

    def tp_descr_get(self, tx: Frame, obj: VariableTracker | None, cls: VariableTracker) -> VariableTracker:
        return self

    def tp_call(self, tx: Frame, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        _expect_enabled(self.value)
        if self.value.name == "__call__":
            return tx.call(self.object, args, kwargs)
        return tx.call(self.object.tp_getattro(tx, self.value.name), args, kwargs)


@builds(_eval_frame.SlotMethod)
def build_slot_method(tr: Trace, value: Any, source: GuardNode | None) -> SlotMethodVariable:
    tr.guard(source, ir.IS, value)
    return SlotMethodVariable(value, tr.wrap(value.__self__, tr.source(source, ir.ATTR, "__self__")), source)


class ModuleSlotVariable(DescriptorVariable):
    """The `__call__` or `forward` of the class of a compiled module: that of the class of the original."""

    def tp_descr_get(self, tx: Frame, obj: VariableTracker | None, cls: VariableTracker) -> VariableTracker:
        return self if obj is None else MethodVariable(self, obj)

    def tp_call(self, tx: Frame, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        real = real_object(args[0]) if args else MISSING
        if not isinstance(real, self.value.owner):
            return unsupported(
                "attribute-of-unknown-object", f"the original of {args[0].describe() if args else 'nothing'}"
            )
        made_by = tx.tr.source(args[0].source, ir.ATTR, "_dynamo_lite_rebuild")
        tx.tr.guard(tx.tr.source(made_by, ir.ATTR, "func"), ir.IS, real._dynamo_lite_rebuild.func)
        _expect_enabled(real._dynamo_lite_call if self.value.name == "__call__" else real._dynamo_lite_forward)
        source = tx.tr.source(args[0].source, ir.ATTR, "_dynamo_lite_original")
        module = tx.tr.wrap(real._dynamo_lite_original, source)
        if self.value.name == "__call__":
            return tx.call(module, args[1:], kwargs)
        return tx.call(module.tp_getattro(tx, self.value.name), args[1:], kwargs)


@builds(_eval_frame.SlotDescriptor)
def build_slot_descriptor(tr: Trace, value: object, source: GuardNode | None) -> ModuleSlotVariable:
    tr.guard(source, ir.IS, value)
    return ModuleSlotVariable(value, source)


def _expect_enabled(method: _eval_frame.SlotMethod) -> None:
    """Break at a method that `disable` has replaced."""
    function = getattr(method.bound, "__func__", method.bound)
    if isinstance(function, _eval_frame.Uncaptured | _eval_frame.UncapturedFunction):
        reason = getattr(function, markers.REASON, None)
        unsupported("call-skipped-function", markers.told_disabled(type(method.__self__).__qualname__, reason))


class DisabledVariable(DescriptorVariable):
    """A function that must run as it is."""

    def tp_descr_get(self, tx: Frame, obj: VariableTracker | None, cls: VariableTracker) -> VariableTracker:
        return self if obj is None else MethodVariable(self, obj)

    def tp_call(self, tx: Frame, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        name = getattr(self.value, "__qualname__", self.value)
        reason = getattr(self.value, markers.REASON, None)
        return unsupported("call-skipped-function", markers.told_disabled(name, reason))


@constructor(_eval_frame.Uncaptured, _eval_frame.UncapturedFunction)
def new_uncaptured(tx: Frame, cls: VariableTracker, function: VariableTracker) -> VariableTracker:
    """`disable` is called in captured code."""
    return unsupported("call-skipped-function", f"disable() of {function.describe()}")


@builds(_eval_frame.Uncaptured, _eval_frame.UncapturedFunction)
def build_uncaptured(tr: Trace, value: object, source: GuardNode | None) -> DisabledVariable:
    tr.guard(source, ir.IS, value)
    return DisabledVariable(value, source)
