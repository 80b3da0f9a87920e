"""Static evaluation of a code object: which known objects it calls, and which of these calls end the graph.

Input: a code object and the objects that its names stand for. Output: `Event`s, in the order of the instructions.
Invariant: nothing of the program runs. Attributes are read only where reading runs no code: of modules, classes, and methods of
instances; everything else is unknown, and nothing is said about calls of unknown objects.

The interpreter's own handlers (`interp.ops`) run on models of unknown objects, in one pass over the canonical program in the order of the
instructions; where paths meet, values that differ are unknown. Ops without an entry in `_EVALUATED` or `_STEPS` give unknown results.
The engine says what a call does (`support.resolve`).
"""

from __future__ import annotations

import builtins
import importlib.util
import inspect
import logging
import sys
import sysconfig
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from dynamo_lite.breaks import BREAKS
from dynamo_lite.config import config
from dynamo_lite.interp.ops import NULL, OPS, not_followed
from dynamo_lite.isa import NO_TARGET, Instr, Lifted, LiftError, Op, lift, stack_effect
from dynamo_lite.isa.canon import TERMINAL
from dynamo_lite.isa.flow import side_that_goes_on
from dynamo_lite.variables.protocol.dispatch import HANDLERS

from .support import GRAPH, INLINED, Support, qualified, resolve


class Event(NamedTuple):
    """A place where the graph ends."""

    at: int
    instr: Instr
    slug: str
    context: str


Names = Callable[[str], "StaticVariable"]

# -- models


class StaticVariable:
    """An object of the program, with the methods of a `VariableTracker` that the handlers call. `is_likely`: it is a tensor, or a method of
    one, to judge by an attribute that only tensors have."""

    value: Any = None
    is_tensor = False
    is_likely = False

    def tp_getattro(self, tx: StaticFrame, name: str) -> StaticVariable:
        return UNKNOWN

    def tp_call(self, tx: StaticFrame, args: Sequence[StaticVariable], kwargs: object) -> StaticVariable:
        tx.unresolved += 1
        return UNKNOWN

    def direct_call(self, tx: StaticFrame, args: object) -> None:
        """No function of the program is evaluated within another one."""


class UnknownVariable(StaticVariable):
    """An object of which nothing is known."""

    def tp_getattro(self, tx: StaticFrame, name: str) -> StaticVariable:
        return _tensor_method(name) if name in tx.tensors else UNKNOWN


UNKNOWN = UnknownVariable()


@dataclass(frozen=True)
class KnownVariable(StaticVariable):
    """A real object: a constant, or the object that a name of a module stands for."""

    value: Any
    is_likely: bool = False

    def tp_getattro(self, tx: StaticFrame, name: str) -> StaticVariable:
        owner = self.value
        if not isinstance(owner, (types.ModuleType, type)):
            return StaticInstance(type(owner)).tp_getattro(tx, name)
        is_plain = type(owner) in (types.ModuleType, type)
        found = getattr(owner, name, UNKNOWN) if is_plain else vars(owner).get(name, UNKNOWN)
        return UNKNOWN if found is UNKNOWN else KnownVariable(found)

    def tp_call(self, tx: StaticFrame, args: Sequence[StaticVariable], kwargs: object) -> StaticVariable:
        callee = self.value
        if not callable(callee):
            return super().tp_call(tx, args, kwargs)
        tx.resolved += 1
        support = resolve(callee)
        slug = support.slug or _data_dependence(callee, support, args)
        if slug:
            tx.end(slug, support.context or qualified(callee).removeprefix("torch._C."), self.is_likely)
        elif support.how == INLINED:
            tx.look_inside(callee)
        number = _number(callee, args, self.is_likely)
        if number is not None:
            return number
        if _is_compiler(callee):
            return self._compile(tx, args)
        if isinstance(callee, type):
            is_plain = callee.__module__ in _PLAIN and callee is not super
            return StaticInstance(callee) if is_plain else UNKNOWN
        if callee is logging.getLogger:
            return StaticInstance(logging.Logger)
        is_operator = support.how == GRAPH and _tensor_class() is not None
        return StaticInstance(_tensor_class(), self.is_likely) if is_operator else UNKNOWN

    def _compile(self, tx: StaticFrame, args: Sequence[StaticVariable]) -> StaticVariable:
        """The result of `compile`, `disable` and related decorators; without arguments, a decorator."""
        if not args:
            return self
        function = args[0]
        if not isinstance(function, ScriptFunctionVariable):
            tx.compiles = True
            return UNKNOWN
        if getattr(self.value, "__name__", None) in _DISABLERS:
            tx.disabled.add(function.code)
            return StaticDisabled(function.code.co_qualname)
        tx.compiled.add(function.code)
        return function


@dataclass(frozen=True)
class StaticInstance(StaticVariable):
    """Some instance of a class."""

    cls: type
    is_likely: bool = False

    @property
    def is_tensor(self) -> bool:  # type: ignore[override]
        tensor = _tensor_class()
        return tensor is not None and issubclass(self.cls, tensor)

    def tp_getattro(self, tx: StaticFrame, name: str) -> StaticVariable:
        if self.is_likely:
            return _tensor_method(name)
        found = inspect.getattr_static(self.cls, name, UNKNOWN)
        return KnownVariable(found) if isinstance(found, _METHODS) else UNKNOWN


@dataclass(frozen=True)
class StaticNumber(StaticVariable):
    """A number that tensor data decide, or a range of that length: a value of the graph until Python needs it."""

    is_likely: bool = False
    is_range: bool = False


@dataclass(frozen=True)
class ScriptFunctionVariable(StaticVariable):
    """A function of the program itself."""

    code: types.CodeType

    def tp_call(self, tx: StaticFrame, args: Sequence[StaticVariable], kwargs: object) -> StaticVariable:
        tx.resolved += 1
        tx.called.add(self.code)
        return UNKNOWN


@dataclass(frozen=True)
class StaticDisabled(StaticVariable):
    """An object of the program that is never captured."""

    name: str

    def tp_getattro(self, tx: StaticFrame, name: str) -> StaticVariable:
        return StaticDisabled(f"{self.name}.{name}")

    def tp_call(self, tx: StaticFrame, args: Sequence[StaticVariable], kwargs: object) -> StaticVariable:
        tx.resolved += 1
        tx.end("call-skipped-function", self.name)
        return UNKNOWN


@dataclass(frozen=True)
class KnownTupleVariable(StaticVariable):
    """A tuple of known length."""

    items: tuple[Any, ...]


_METHODS = (
    types.FunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
)
_DISABLERS = frozenset({"disable", "skip"})
_PLAIN = frozenset({"builtins", "collections", "torch"})
"""Modules of classes whose calls give their instances."""


def _is_compiler(callee: object) -> bool:
    """Whether a decorator gives back the function, compiled or not."""
    home = getattr(callee, "__module__", None) or ""
    known = callee is getattr(sys.modules.get("torch"), "compile", None)
    return not isinstance(callee, type) and (
        known or home.startswith(("dynamo_lite", "torch.compiler", "torch._dynamo"))
    )


# -- the frame

_EVALUATED = frozenset(
    {Op.LOAD_CONST, Op.LOAD_FAST, Op.COPY, Op.SWAP, Op.PUSH_NULL, Op.LOAD_ATTR, Op.LOAD_METHOD, Op.CALL}
)
"""Ops that run the interpreter's handler."""
_TYPES = {
    Op.BUILD_LIST: list,
    Op.BUILD_SET: set,
    Op.BUILD_MAP: dict,
    Op.BUILD_STRING: str,
    Op.FORMAT: str,
    Op.BUILD_SLICE: slice,
}
"""Ops whose results are instances of a builtin type."""
_NO_RESULT = frozenset(
    op
    for op in Op
    if op.name.startswith(("STORE_", "DELETE_", "JUMP", "LIST_", "SET_A", "SET_U", "MAP_", "DICT_", "POP_"))
) - {Op.LIST_TO_TUPLE}
_MAX_DEPTH = 6
"""Calls within calls of library functions that are followed."""


class StaticFrame:
    """The evaluation of one code object. For handlers it is frame, trace and heap at once."""

    def __init__(
        self,
        code: types.CodeType,
        names: Names,
        free: Names,
        arguments: dict[str, StaticVariable],
        depth: int = 0,
        tensors: frozenset[str] = frozenset(),
    ) -> None:
        """`depth`: of calls into the library. `tensors`: names of methods whose objects are taken for tensors."""
        self.tr = self.heap = self
        self.code = code
        self.names = names
        self.free = free
        self.depth = depth
        self.tensors = tensors
        self.lifted: Lifted = lift(code)
        self.cur = 0
        self.stack: list[Any] = []
        self.events: list[Event] = []
        self.bound: dict[str, StaticVariable] = {}
        """Names of a module body → the objects that they stand for."""
        self.functions: dict[types.CodeType, dict[str, StaticVariable]] = {}
        """Code of functions made here → their arguments, as far as annotations tell."""
        self.disabled: set[types.CodeType] = set()
        self.compiled: set[types.CodeType] = set()
        self.compiles = False
        """Whether it compiles something else than functions of the program."""
        self.called: set[types.CodeType] = set()
        self.resolved = self.unresolved = 0
        stores = [i.arg for i in self.lifted.instrs if i.op in (Op.STORE_FAST, Op.STORE_DEREF, Op.DELETE_FAST)]
        self.once = {slot for slot in stores if stores.count(slot) == 1}
        locals_ = enumerate(self.lifted.local_names)
        self.locals = [UNKNOWN if i in stores else arguments.get(name, UNKNOWN) for i, name in locals_]

    def run(self) -> StaticFrame:
        """Evaluate all instructions that can be reached."""
        instrs, handlers = self.lifted.instrs, self.lifted.handler_at
        waiting: dict[int, list[Any]] = {}
        alive = True
        for i, instr in enumerate(instrs):
            handler = handlers[i]
            if handler is not None and handler.target > i:
                _meet(waiting, handler.target, [UNKNOWN] * (handler.depth + handler.lasti + 1))
            if i in waiting:
                if alive:
                    _meet(waiting, i, self.stack)
                self.stack, alive = waiting.pop(i), True
            if not alive:
                continue
            if instr.target > i:
                taken = list(self.stack)
                _adjust(taken, stack_effect(instr, True))
                _meet(waiting, instr.target, taken)
            self.cur = i
            self._step(instr)
            alive = instr.op not in TERMINAL
        return self

    def _step(self, instr: Instr) -> None:
        op = instr.op
        if OPS[op] is not_followed:
            self.end("opcode", op.name)
        if op in _EVALUATED:
            OPS[op](self, instr)
        elif op in _STEPS:
            _STEPS[op](self, instr)
        else:
            self._approximate(instr)

    def _approximate(self, instr: Instr) -> None:
        """Apply the effect of an instruction on the depth of the stack. Arithmetic with a tensor gives one; other results are unknown."""
        op = instr.op
        tensor = next((v for v in self.stack[-2:] if v is not NULL and v.is_tensor), None)
        number = next((v for v in self.stack[-2:] if isinstance(v, StaticNumber) and not v.is_range), None)
        if op is Op.TO_BOOL and not (config.capture_branches or self._is_no_branch()):
            if self.stack[-1].is_tensor:
                self.end("data-dependent-branch", "Tensor", self.stack[-1].is_likely)
            elif self.stack[-1] is number and number is not None:
                self.end("data-dependent-size", "a branch on a number of a tensor", number.is_likely)
        if op is Op.GET_ITER and isinstance(self.stack[-1], StaticNumber) and self.stack[-1].is_range:
            self.end("data-dependent-size", "the number of turns of a loop", self.stack[-1].is_likely)
        effect = stack_effect(instr, False)
        _adjust(self.stack, effect)
        if op in _TYPES:
            self.stack[-1] = StaticInstance(_TYPES[op])
        elif effect <= 0 and self.stack and op not in _NO_RESULT:
            operand = (tensor or number) if op in (Op.BINARY, Op.COMPARE, Op.UNARY) else None
            self.stack[-1] = UNKNOWN if operand is None else operand

    def _is_no_branch(self) -> bool:
        """Whether the truth that is asked for is a check, or a value: `not t`."""
        is_value = self.lifted.instrs[self.cur + 1].op is Op.NOT and config.capture_scalar_outputs is not False
        return is_value or side_that_goes_on(self.lifted, self.cur) is not None

    def end(self, slug: str, context: str, is_likely: bool = False) -> None:
        """The current instruction ends the graph; `is_likely`: if its operand is the tensor that it seems to be."""
        text = context + ", if it is one" * is_likely
        self.events.append(Event(self.cur, self.lifted.instrs[self.cur], slug, text))

    def look_inside(self, function: object) -> None:
        """Tell the break on every path through a library function that is called here and followed."""
        if isinstance(function, types.MethodType):
            function = function.__func__
        if isinstance(function, types.FunctionType) and self.depth < _MAX_DEPTH:
            found = certain_break(function, self.depth + 1)
            if found is not None:
                slug, context = found
                self.end(slug, f"{context}, called by {function.__qualname__}")

    def push(self, value: StaticVariable) -> None:
        """Push one entry."""
        self.stack.append(value)

    def popn(self, n: int) -> list[Any]:
        """Pop n entries; the list has them bottom to top."""
        values = self.stack[len(self.stack) - n :]
        del self.stack[len(self.stack) - n :]
        return values

    @staticmethod
    def literal(value: object) -> KnownVariable:
        return KnownVariable(value)

    # -- ops whose handlers need more than a stack of models

    def load_name(self, instr: Instr) -> None:
        self.stack.append(self.name(instr.arg))

    def name(self, name: str) -> StaticVariable:
        """The object that a global name stands for, or a name of the body of a module or class."""
        return self.bound[name] if name in self.bound else self.names(name)

    def store_name(self, instr: Instr) -> None:
        value = self.stack.pop()
        self.bound[instr.arg] = UNKNOWN if instr.arg in self.bound else value

    def load_deref(self, instr: Instr) -> None:
        self.stack.append(self.variable(instr.arg))

    def variable(self, slot: int) -> StaticVariable:
        """The value of a local or free variable."""
        is_free = slot >= self.lifted.first_free_slot
        return self.free(self.lifted.local_names[slot]) if is_free else self.locals[slot]

    def store_fast(self, instr: Instr) -> None:
        value = self.stack.pop()
        if instr.arg in self.once:
            self.locals[instr.arg] = value

    def load_special(self, instr: Instr) -> None:
        self.stack[-1:] = [UNKNOWN, NULL]

    def build_tuple(self, instr: Instr) -> None:
        self.stack.append(KnownTupleVariable(tuple(self.popn(instr.arg))))

    def import_name(self, instr: Instr) -> None:
        level, fromlist = self.popn(2)
        self.stack.append(UNKNOWN if level.value else module(instr.arg, bool(fromlist.value)))

    def import_from(self, instr: Instr) -> None:
        owner = self.stack[-1]
        found = owner.tp_getattro(self, instr.arg)
        if found is UNKNOWN and isinstance(owner.value, types.ModuleType):
            found = module(f"{owner.value.__name__}.{instr.arg}", True)
        self.stack.append(found)

    def make_function(self, instr: Instr) -> None:
        *extra, code = self.popn((instr.arg & 15).bit_count() + 1)
        self.functions[code.value] = self._arguments(extra[(instr.arg & 3).bit_count()]) if instr.arg & 4 else {}
        self.stack.append(ScriptFunctionVariable(code.value))

    def set_function_attribute(self, instr: Instr) -> None:
        value, function = self.popn(2)
        if instr.arg == 16 and isinstance(value, ScriptFunctionVariable):  # what makes the annotations (PEP 649)
            value = AnnotateFrame(value.code, self.name, self.free, {}).run().annotations
        if instr.arg in (4, 16) and isinstance(function, ScriptFunctionVariable):
            self.functions[function.code] = self._arguments(value)
        self.stack.append(function)

    def _arguments(self, annotations: StaticVariable) -> dict[str, StaticVariable]:
        """The arguments of a function by name, as far as its annotations, a flat tuple, tell."""
        if isinstance(annotations, KnownTupleVariable):
            items = annotations.items
        else:
            items = tuple(map(KnownVariable, annotations.value)) if isinstance(annotations.value, tuple) else ()
        found: dict[str, StaticVariable] = {}
        for name, annotation in zip(items[::2], items[1::2], strict=False):
            if isinstance(annotation.value, str):
                first, *rest = annotation.value.split(".")
                annotation = self.name(first)
                for attribute in rest:
                    annotation = annotation.tp_getattro(self, attribute)
            if isinstance(annotation, KnownVariable) and isinstance(annotation.value, type):
                found[name.value] = StaticInstance(annotation.value)
        return found

    def call_function_ex(self, instr: Instr) -> None:
        first, second, *_ = self.popn(3 + bool(instr.arg))
        callee = second if first is NULL else first
        self.stack.append(callee.tp_call(self, [], {}))


_STEPS: dict[Op, Callable[[StaticFrame, Instr], None]] = {
    Op.LOAD_GLOBAL: StaticFrame.load_name,
    Op.LOAD_NAME: StaticFrame.load_name,
    Op.STORE_NAME: StaticFrame.store_name,
    Op.STORE_GLOBAL: StaticFrame.store_name,
    Op.LOAD_DEREF: StaticFrame.load_deref,
    Op.STORE_FAST: StaticFrame.store_fast,
    Op.STORE_DEREF: StaticFrame.store_fast,
    Op.LOAD_SPECIAL: StaticFrame.load_special,
    Op.BUILD_TUPLE: StaticFrame.build_tuple,
    Op.IMPORT_NAME: StaticFrame.import_name,
    Op.IMPORT_FROM: StaticFrame.import_from,
    Op.MAKE_FUNCTION: StaticFrame.make_function,
    Op.SET_FUNCTION_ATTRIBUTE: StaticFrame.set_function_attribute,
    Op.CALL_FUNCTION_EX: StaticFrame.call_function_ex,
}


def _adjust(stack: list[Any], effect: int) -> None:
    if effect < 0:
        del stack[effect:]
    else:
        stack += [UNKNOWN] * effect


class AnnotateFrame(StaticFrame):
    """The evaluation of a function's `__annotate__`, which builds one dict; `annotations` is that, flat."""

    annotations: StaticVariable = UNKNOWN

    def run(self) -> AnnotateFrame:
        super().run()
        return self

    def _step(self, instr: Instr) -> None:
        if instr.op is Op.BUILD_MAP:
            self.annotations = KnownTupleVariable(tuple(self.stack[len(self.stack) - 2 * instr.arg :]))
        super()._step(instr)


def _meet(waiting: dict[int, list[Any]], target: int, stack: list[Any]) -> None:
    """Merge the stacks of two paths to an instruction."""
    other = waiting.get(target, stack)
    waiting[target] = [a if a is b or a == b else UNKNOWN for a, b in zip(other, stack, strict=True)]


# -- modules


def module(name: str, itself: bool) -> StaticVariable:
    """The module that `import name` binds (the package), or that `from name import …` reads (`itself`)."""
    top = name.partition(".")[0]
    if not may_import(top):
        return UNKNOWN
    try:
        __import__(name)
    except Exception:
        return UNKNOWN
    return KnownVariable(sys.modules[name if itself else top])


def may_import(top: str) -> bool:
    """Whether importing a package tells something and does nothing else. A file beside the script that has the name of a standard
    module is not that module."""
    if top in ("torch", "dynamo_lite"):
        return True
    if top not in sys.stdlib_module_names or top in _NOISY:
        return False
    if top in sys.modules:
        return True
    spec = importlib.util.find_spec(top)
    origin = spec.origin if spec is not None else None
    return origin in ("built-in", "frozen") or (origin is not None and origin.startswith(_LIBRARY))


_LIBRARY = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib"))
_NOISY = frozenset({"antigravity", "this", "idlelib", "turtle", "turtledemo", "tkinter"})


def builtin_name(name: str) -> StaticVariable:
    """The builtin object of a name."""
    return KnownVariable(getattr(builtins, name)) if hasattr(builtins, name) else UNKNOWN


# -- tensors


def _tensor_class() -> Any:
    return getattr(sys.modules.get("torch"), "Tensor", None)


def _tensor_method(name: str) -> StaticVariable:
    method = getattr(_tensor_class(), name, None)
    return KnownVariable(method, is_likely=True) if isinstance(method, _METHODS) else UNKNOWN


def tensor_names() -> frozenset[str]:
    """The methods of tensors that neither modules nor builtin types have."""
    tensor = _tensor_class()
    if tensor is None:
        return frozenset()
    others = (str, bytes, list, tuple, dict, set, int, float, complex, range, slice, type)
    known = {name for cls in (sys.modules["torch.nn"].Module, *others) for name in dir(cls)}
    return frozenset(name for name in dir(tensor) if not name.startswith("_")) - known


def _data_dependence(callee: Any, support: Support, arguments: Sequence[StaticVariable]) -> str:
    """The slug of the break of a call that turns the data of a tensor into Python values or into a shape; or empty."""
    slug = _data_slug(callee, support, arguments)
    is_captured = slug in _SETTINGS and callee is not complex and getattr(config, _SETTINGS[slug]) is not False
    return "" if is_captured else slug


def _data_slug(callee: Any, support: Support, arguments: Sequence[StaticVariable]) -> str:
    """The slug of that break if no setting has the value in the graph."""
    torch = sys.modules.get("torch")
    if torch is None:
        return ""
    if callee in (bool, int, float, complex) and any(argument.is_tensor for argument in arguments):
        is_asked = callee is bool and config.capture_scalar_outputs is False
        return "data-dependent-branch" if is_asked else "data-dependent-operator"
    if callee is hash and any(isinstance(argument, StaticNumber) for argument in arguments):
        return "data-dependent-size"
    if (
        isinstance(callee, types.MethodDescriptorType)
        and issubclass(torch.Tensor, callee.__objclass__)
        and callee in HANDLERS
    ):
        says = HANDLERS[callee].__code__.co_consts
        return next((text for text in says if text in BREAKS and text.startswith("data-dependent")), "")
    if support.how != GRAPH:
        return ""
    operator = getattr(torch.ops.aten, getattr(callee, "__name__", ""), None)
    tags = {tag for overload in operator.overloads() for tag in getattr(operator, overload).tags} if operator else ()
    return next((slug for tag, slug in _SLUG_OF_TAG.items() if getattr(torch.Tag, tag) in tags), "")


_SLUG_OF_TAG = {"dynamic_output_shape": "dynamic-shape-operator", "data_dependent_output": "data-dependent-operator"}
_SETTINGS = {
    "data-dependent-operator": "capture_scalar_outputs",
    "dynamic-shape-operator": "capture_dynamic_output_shape_ops",
}


def _number(callee: Any, arguments: Sequence[StaticVariable], is_likely: bool) -> StaticNumber | None:
    """The number that a call takes out of a tensor, or a range of such a number."""
    torch, tensor = sys.modules.get("torch"), _tensor_class()
    if torch is not None and callee in (tensor.item, tensor.equal, tensor.allclose, torch.equal, torch.allclose):
        return StaticNumber(is_likely)
    if callee in (bool, int, float, range):
        found = next((a for a in arguments if a.is_tensor or isinstance(a, StaticNumber)), None)
        return None if found is None else StaticNumber(found.is_likely, is_range=callee is range)
    return None


# -- library functions

_inside: dict[tuple[types.CodeType, bool | None, bool | None], tuple[str, str] | None] = {}


def certain_break(function: types.FunctionType, depth: int) -> tuple[str, str] | None:
    """(slug, context) of a break that every call of a real function meets, if that can be told."""
    code = function.__code__
    key = code, config.capture_scalar_outputs, config.capture_dynamic_output_shape_ops
    if key in _inside:
        return _inside[key]
    _inside[key] = None  # for recursive ones
    cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=False))
    space = function.__globals__

    def name(text: str) -> StaticVariable:
        return KnownVariable(space[text]) if text in space else builtin_name(text)

    def free(text: str) -> StaticVariable:
        try:
            return KnownVariable(cells[text].cell_contents)
        except (KeyError, ValueError):
            return UNKNOWN

    try:
        frame = StaticFrame(code, name, free, {}, depth).run()
    except LiftError:
        return None
    found = next((e for e in frame.events if _is_unavoidable(frame.lifted, e.at)), None)
    _inside[key] = (found.slug, found.context) if found is not None else None
    return _inside[key]


def _is_unavoidable(lifted: Lifted, index: int) -> bool:
    """Whether every path from the start to a return goes through the instruction."""
    instrs = lifted.instrs
    if any(instr.op is Op.RETURN_GENERATOR for instr in instrs):
        return False  # its body runs later
    seen, work = {index}, [0]
    while work:
        i = work.pop()
        if i in seen:
            continue
        seen.add(i)
        instr, handler = instrs[i], lifted.handler_at[i]
        if instr.op is Op.RETURN_VALUE:
            return False
        work += [i + 1] if instr.op not in TERMINAL else []
        work += [instr.target] if instr.target != NO_TARGET else []
        work += [handler.target] if handler is not None else []
    return True
