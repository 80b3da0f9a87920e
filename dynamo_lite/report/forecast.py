"""What is known of a code object without running it: which real objects it calls, and which of these calls end the graph.

Input: a code object and what its names stand for. Output: `Event`s, in the order of the instructions.
Invariant: nothing of the program runs. Real objects are looked at only where looking runs no code: names of modules, attributes of
modules and classes; everything else is unknown, and of an unknown callable nothing is said.
Works on the canonical program (`isa`), with one pass in the order of the instructions; where paths meet, what differs is unknown.
"""

from __future__ import annotations

import builtins
import importlib.util
import inspect
import logging
import sys
import sysconfig
import types
from collections.abc import Callable
from typing import Any, NamedTuple

from dynamo_lite.exc import BREAKS
from dynamo_lite.interp.frame import OPS
from dynamo_lite.isa import NULL_FIRST, Instr, Lifted, LiftError, Op, lift, stack_effect
from dynamo_lite.isa.canon import TERMINAL
from dynamo_lite.isa.flow import side_that_goes_on
from dynamo_lite.variables.protocol.dispatch import HANDLERS

from .support import GRAPH, INLINED, Support, qualified, resolve


class Real(NamedTuple):
    """An object that exists: what a name of a module stands for, or a constant."""

    value: Any


class Made(NamedTuple):
    """Some instance of a class."""

    cls: type


class Likely(NamedTuple):
    """An unknown object with a method that only tensors have, or that method."""

    value: Any


class Own(NamedTuple):
    """A function of the program itself."""

    code: types.CodeType


class Left(NamedTuple):
    """Something of a module that is never captured."""

    name: str


class Several(NamedTuple):
    """A tuple of known length."""

    items: tuple[Any, ...]


UNKNOWN = object()
NULL = object()


class Event(NamedTuple):
    """A place where the graph ends."""

    index: int
    instr: Instr
    slug: str
    context: str


Names = Callable[[str], Any]

_MAKES = {
    Op.BUILD_LIST: list,
    Op.BUILD_SET: set,
    Op.BUILD_MAP: dict,
    Op.BUILD_STRING: str,
    Op.FORMAT: str,
    Op.BUILD_SLICE: slice,
}
_NO_RESULT = frozenset(
    op
    for op in Op
    if op.name.startswith(("STORE_", "DELETE_", "JUMP", "LIST_", "SET_A", "SET_U", "MAP_", "DICT_", "POP_"))
) - {Op.LIST_TO_TUPLE}
_DISABLERS = frozenset({"disable", "skip"})
_PLAIN = frozenset({"builtins", "collections", "torch"})  # modules of classes whose calls give their instances
_MAX_DEPTH = 6
_IF_TENSOR = ", if it is one"


class Machine:
    """One code object."""

    def __init__(
        self,
        code: types.CodeType,
        names: Names,
        free: Names,
        arguments: dict[str, Any],
        depth: int = 0,
        tensors: frozenset[str] = frozenset(),
    ) -> None:
        """`depth`: of calls into the library. `tensors`: names of methods whose objects are taken for tensors."""
        self.code = code
        self.names = names
        self.free = free
        self.depth = depth
        self.tensors = tensors
        self.lifted: Lifted = lift(code)
        self.events: list[Event] = []
        self.bound: dict[str, Any] = {}
        """Names of a module body → what they stand for."""
        self.functions: dict[types.CodeType, dict[str, Any]] = {}
        """Code of functions made here → what the annotations say of their arguments."""
        self.disabled: set[types.CodeType] = set()
        self.compiled: set[types.CodeType] = set()
        self.compiles = False
        """Whether it compiles something else than functions of the program."""
        self.called: set[types.CodeType] = set()
        self.resolved = self.unresolved = 0
        self.stack: list[Any] = []
        names_ = self.lifted.local_names
        stores = [i.arg for i in self.lifted.instrs if i.op in (Op.STORE_FAST, Op.STORE_DEREF, Op.DELETE_FAST)]
        self.once = {slot for slot in stores if stores.count(slot) == 1}
        self.slots: dict[int, Any] = {names_.index(n): v for n, v in arguments.items() if n in names_}
        for slot in set(stores) & set(self.slots):
            del self.slots[slot]

    def run(self) -> Machine:
        instrs, handlers = self.lifted.instrs, self.lifted.handler_at
        waiting: dict[int, list[Any]] = {}
        alive = True
        for i, instr in enumerate(instrs):
            handler = handlers[i]
            if handler is not None and handler.target > i:
                self._meet(waiting, handler.target, [UNKNOWN] * (handler.depth + handler.lasti + 1))
            if i in waiting:
                if alive:
                    self._meet(waiting, i, self.stack)
                self.stack, alive = waiting.pop(i), True
            if not alive:
                continue
            if instr.target is not None and instr.target > i:
                taken = list(self.stack)
                _adjust(taken, stack_effect(instr, True))
                self._meet(waiting, instr.target, taken)
            self._step(i, instr)
            alive = instr.op not in TERMINAL
        return self

    @staticmethod
    def _meet(waiting: dict[int, list[Any]], target: int, stack: list[Any]) -> None:
        other = waiting.get(target)
        if other is None:
            waiting[target] = list(stack)
        else:
            depth = min(len(other), len(stack))
            waiting[target] = [
                a if a is b or a == b else UNKNOWN for a, b in zip(other[:depth], stack[:depth], strict=True)
            ]

    # -- one instruction

    def _step(self, index: int, instr: Instr) -> None:
        special = _STEPS.get(instr.op)
        if OPS and OPS[instr.op] is None:
            self._end(index, instr, "opcode", instr.op.name)
        if special is not None:
            special(self, index, instr)
            return
        tensors = [v for v in self.stack[-2:] if _is_tensor(v)]
        if instr.op is Op.TO_BOOL and _is_tensor(self._top()) and side_that_goes_on(self.lifted, index) is None:
            self._end(index, instr, "data-dependent-branch", "Tensor" + _IF_TENSOR * isinstance(self._top(), Likely))
        effect = stack_effect(instr, False)
        _adjust(self.stack, effect)
        if effect <= 0 and self.stack and instr.op not in _NO_RESULT:
            arithmetic = instr.op in (Op.BINARY, Op.COMPARE, Op.UNARY) and tensors
            self.stack[-1] = tensors[0] if arithmetic else Made(_MAKES[instr.op]) if instr.op in _MAKES else UNKNOWN
        elif effect == 1 and instr.op in _MAKES:
            self.stack[-1] = Made(_MAKES[instr.op])

    def _top(self) -> Any:
        return self.stack[-1] if self.stack else UNKNOWN

    def _pop(self) -> Any:
        return self.stack.pop() if self.stack else UNKNOWN

    def _popn(self, n: int) -> list[Any]:
        items = self.stack[-n:] if n else []
        del self.stack[len(self.stack) - len(items) :]
        return [UNKNOWN] * (n - len(items)) + items

    def _end(self, index: int, instr: Instr, slug: str, context: str) -> None:
        self.events.append(Event(index, instr, slug, context))

    def load_const(self, index: int, instr: Instr) -> None:
        self.stack.append(Real(instr.arg))

    def load_name(self, index: int, instr: Instr) -> None:
        self.stack.append(self.bound.get(instr.arg) or self.names(instr.arg))

    def store_name(self, index: int, instr: Instr) -> None:
        value = self._pop()
        self.bound[instr.arg] = UNKNOWN if instr.arg in self.bound else value

    def load_fast(self, index: int, instr: Instr) -> None:
        self.stack.append(self.slots.get(instr.arg, UNKNOWN))

    def load_deref(self, index: int, instr: Instr) -> None:
        if instr.arg >= self.lifted.first_free_slot:
            self.stack.append(self.free(self.lifted.local_names[instr.arg]))
        else:
            self.load_fast(index, instr)

    def store_fast(self, index: int, instr: Instr) -> None:
        value = self._pop()
        if instr.arg in self.once:
            self.slots[instr.arg] = value

    def copy(self, index: int, instr: Instr) -> None:
        self.stack.append(self.stack[-instr.arg] if len(self.stack) >= instr.arg else UNKNOWN)

    def swap(self, index: int, instr: Instr) -> None:
        if len(self.stack) >= instr.arg:
            self.stack[-instr.arg], self.stack[-1] = self.stack[-1], self.stack[-instr.arg]

    def push_null(self, index: int, instr: Instr) -> None:
        self.stack.append(NULL)

    def load_attr(self, index: int, instr: Instr) -> None:
        self.stack.append(self._attribute(instr.arg))

    def _attribute(self, name: str) -> Any:
        owner = self._pop()
        if isinstance(owner, Likely) or (owner is UNKNOWN and name in self.tensors):
            method = getattr(_tensor_class(), name, None)
            return Likely(method) if isinstance(method, _METHODS) else UNKNOWN
        return attribute(owner, name)

    def load_method(self, index: int, instr: Instr) -> None:
        method = self._attribute(instr.arg)
        self.stack += [NULL, method] if NULL_FIRST else [method, NULL]

    def load_special(self, index: int, instr: Instr) -> None:
        self._pop()
        self.stack += [UNKNOWN, NULL]

    def build_tuple(self, index: int, instr: Instr) -> None:
        self.stack.append(Several(tuple(self._popn(instr.arg))))

    def import_name(self, index: int, instr: Instr) -> None:
        level, fromlist = self._popn(2)
        known = isinstance(level, Real) and level.value == 0 and isinstance(fromlist, Real)
        self.stack.append(module(instr.arg, bool(fromlist.value)) if known else UNKNOWN)

    def import_from(self, index: int, instr: Instr) -> None:
        found = attribute(self._top(), instr.arg)
        if found is UNKNOWN and isinstance(self._top(), Real) and isinstance(self._top().value, types.ModuleType):
            found = module(f"{self._top().value.__name__}.{instr.arg}", True)
        self.stack.append(found)

    def make_function(self, index: int, instr: Instr) -> None:
        code = self._pop()
        extra = self._popn((instr.arg & 15).bit_count())
        made = code.value if isinstance(code, Real) and isinstance(code.value, types.CodeType) else None
        if made is not None:
            position = (instr.arg & 3).bit_count()
            self.functions[made] = self._arguments(extra[position]) if instr.arg & 4 else {}
        self.stack.append(Own(made) if made is not None else UNKNOWN)

    def set_function_attribute(self, index: int, instr: Instr) -> None:
        function, value = self._pop(), self._pop()
        if instr.arg == 4 and isinstance(function, Own):
            self.functions[function.code] = self._arguments(value)
        self.stack.append(function)

    def _arguments(self, annotations: Any) -> dict[str, Any]:
        """What a function's annotations, a flat tuple, say of its arguments."""
        if isinstance(annotations, Real) and isinstance(annotations.value, tuple):
            annotations = Several(tuple(map(Real, annotations.value)))
        if not isinstance(annotations, Several):
            return {}
        found = {}
        for name, value in zip(annotations.items[::2], annotations.items[1::2], strict=False):
            if isinstance(value, Real) and isinstance(value.value, str):
                value = self._dotted(value.value)
            if isinstance(name, Real) and isinstance(value, Real) and isinstance(value.value, type):
                found[name.value] = Made(value.value)
        return found

    def _dotted(self, text: str) -> Any:
        first, *rest = text.split(".")
        value = self.bound.get(first) or self.names(first)
        for name in rest:
            value = attribute(value, name)
        return value

    def call(self, index: int, instr: Instr) -> None:
        argc, kwnames = instr.arg
        first, second, *arguments = self._popn(argc + 2)
        callee = second if first is NULL else first
        if first is not NULL and second is not NULL:
            arguments.insert(0, second)
        self._call(index, instr, callee, arguments)

    def call_function_ex(self, index: int, instr: Instr) -> None:
        first, second, *_ = self._popn(3 + bool(instr.arg))
        self._call(index, instr, second if first is NULL else first, [])

    def _call(self, index: int, instr: Instr, callee: Any, arguments: list[Any]) -> None:
        result: Any = UNKNOWN
        if isinstance(callee, Own):
            self.resolved += 1
            self.called.add(callee.code)
        elif isinstance(callee, Left):
            self.resolved += 1
            self._end(index, instr, "call-skipped-function", callee.name)
        elif isinstance(callee, (Real, Likely)) and callable(callee.value):
            self.resolved += 1
            support = resolve(callee.value)
            slug = support.slug or _data_dependence(callee.value, support, arguments)
            if slug:
                context = support.context or qualified(callee.value).removeprefix("torch._C.")
                self._end(index, instr, slug, context + _IF_TENSOR * isinstance(callee, Likely))
            elif support.how == INLINED:
                self._look_inside(index, instr, callee.value)
            likely = isinstance(callee, Likely) and support.how == GRAPH
            result = Likely(_tensor_class()) if likely else self._result(callee.value, support, arguments)
        else:
            self.unresolved += 1
        self.stack.append(result)

    def _result(self, callee: Any, support: Support, arguments: list[Any]) -> Any:
        if _is_compiler(callee):
            return self._compiled(callee, arguments)
        if isinstance(callee, type):
            return Made(callee) if callee.__module__ in _PLAIN and callee is not super else UNKNOWN
        if callee is logging.getLogger:
            return Made(logging.Logger)
        if support.how == GRAPH and _tensor_class() is not None:
            return Made(_tensor_class())
        return UNKNOWN

    def _compiled(self, callee: object, arguments: list[Any]) -> Any:
        """What `compile`, `disable` and their like give back; without arguments, a decorator."""
        if not arguments:
            return Real(callee)
        function = arguments[0]
        if not isinstance(function, Own):
            self.compiles = True
            return UNKNOWN
        if getattr(callee, "__name__", None) in _DISABLERS:
            self.disabled.add(function.code)
            return Left(function.code.co_qualname)
        self.compiled.add(function.code)
        return function

    def _look_inside(self, index: int, instr: Instr, function: Any) -> None:
        """Say what ends the graph on every path through a library function that is followed."""
        if isinstance(function, types.MethodType):
            function = function.__func__
        if isinstance(function, types.FunctionType) and self.depth < _MAX_DEPTH:
            found = certain_break(function, self.depth + 1)
            if found is not None:
                slug, context = found
                self._end(index, instr, slug, f"{context}, called by {function.__qualname__}")


_STEPS: dict[Op, Callable[[Machine, int, Instr], None]] = {
    Op.LOAD_CONST: Machine.load_const,
    Op.LOAD_GLOBAL: Machine.load_name,
    Op.LOAD_NAME: Machine.load_name,
    Op.STORE_NAME: Machine.store_name,
    Op.STORE_GLOBAL: Machine.store_name,
    Op.LOAD_FAST: Machine.load_fast,
    Op.STORE_FAST: Machine.store_fast,
    Op.LOAD_DEREF: Machine.load_deref,
    Op.STORE_DEREF: Machine.store_fast,
    Op.COPY: Machine.copy,
    Op.SWAP: Machine.swap,
    Op.PUSH_NULL: Machine.push_null,
    Op.LOAD_ATTR: Machine.load_attr,
    Op.LOAD_METHOD: Machine.load_method,
    Op.LOAD_SPECIAL: Machine.load_special,
    Op.BUILD_TUPLE: Machine.build_tuple,
    Op.IMPORT_NAME: Machine.import_name,
    Op.IMPORT_FROM: Machine.import_from,
    Op.MAKE_FUNCTION: Machine.make_function,
    Op.SET_FUNCTION_ATTRIBUTE: Machine.set_function_attribute,
    Op.CALL: Machine.call,
    Op.CALL_FUNCTION_EX: Machine.call_function_ex,
}


def _adjust(stack: list[Any], effect: int) -> None:
    if effect < 0:
        del stack[max(len(stack) + effect, 0) :]
    else:
        stack += [UNKNOWN] * effect


# -- objects


def module(name: str, itself: bool) -> Any:
    """What `import name` binds (the package), or `from name import …` looks into (`itself`)."""
    top = name.partition(".")[0]
    if not may_import(top):
        return UNKNOWN
    try:
        __import__(name)
    except Exception:
        return UNKNOWN
    return Real(sys.modules[name if itself else top])


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


def attribute(owner: Any, name: str) -> Any:
    """The attribute of a module, a class, or a method of an instance."""
    if isinstance(owner, Real):
        value = owner.value
        if isinstance(value, (types.ModuleType, type)):
            found = (
                getattr(value, name, UNKNOWN)
                if type(value) in (types.ModuleType, type)
                else vars(value).get(name, UNKNOWN)
            )
            return Real(found) if found is not UNKNOWN else UNKNOWN
        return attribute(Made(type(value)), name)
    if isinstance(owner, Made):
        found = inspect.getattr_static(owner.cls, name, UNKNOWN)
        return Real(found) if isinstance(found, _METHODS) else UNKNOWN
    if isinstance(owner, Left):
        return Left(f"{owner.name}.{name}")
    return UNKNOWN


_METHODS = (
    types.FunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
)


def builtin_name(name: str) -> Any:
    found = getattr(builtins, name, UNKNOWN)
    return Real(found) if found is not UNKNOWN else UNKNOWN


def _tensor_class() -> Any:
    torch = sys.modules.get("torch")
    return getattr(torch, "Tensor", None)


def _is_tensor(value: Any) -> bool:
    tensor = _tensor_class()
    return tensor is not None and (
        isinstance(value, Likely) or (isinstance(value, Made) and issubclass(value.cls, tensor))
    )


def tensor_names() -> frozenset[str]:
    """The methods of tensors that neither modules nor builtin types have."""
    tensor = _tensor_class()
    if tensor is None:
        return frozenset()
    others = [
        sys.modules["torch.nn"].Module,
        str,
        bytes,
        list,
        tuple,
        dict,
        set,
        int,
        float,
        complex,
        range,
        slice,
        type,
    ]
    return frozenset(name for name in dir(tensor) if not name.startswith("_")) - {
        name for cls in others for name in dir(cls)
    }


def _data_dependence(callee: Any, support: Support, arguments: list[Any]) -> str:
    """The slug of the break that a call means because it turns the data of a tensor into Python values or into a shape; or empty."""
    torch = sys.modules.get("torch")
    if torch is None:
        return ""
    if callee in (bool, int, float, complex) and any(map(_is_tensor, arguments)):
        return "data-dependent-operator"
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


def _is_compiler(callee: object) -> bool:
    """Whether a decorator gives back the function, compiled or not."""
    home = getattr(callee, "__module__", None) or ""
    known = callee is getattr(sys.modules.get("torch"), "compile", None)
    return not isinstance(callee, type) and (
        known or home.startswith(("dynamo_lite", "torch.compiler", "torch._dynamo"))
    )


# -- inside of library functions

_inside: dict[types.CodeType, tuple[str, str] | None] = {}


def certain_break(function: types.FunctionType, depth: int) -> tuple[str, str] | None:
    """(slug, context) of a break that every call of a real function meets, if that can be told."""
    code = function.__code__
    if code in _inside:
        return _inside[code]
    _inside[code] = None  # for recursive ones
    cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=False))
    space = function.__globals__

    def name(text: str) -> Any:
        return Real(space[text]) if text in space else builtin_name(text)

    def free(text: str) -> Any:
        try:
            return Real(cells[text].cell_contents)
        except (KeyError, ValueError):
            return UNKNOWN

    try:
        machine = Machine(code, name, free, {}, depth).run()
    except LiftError:
        return None
    found = next((e for e in machine.events if _unavoidable(machine.lifted, e.index)), None)
    _inside[code] = (found.slug, found.context) if found is not None else None
    return _inside[code]


def _unavoidable(lifted: Lifted, index: int) -> bool:
    """Does every path from the start to a return go through the instruction?"""
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
        work += [instr.target] if instr.target is not None else []
        work += [handler.target] if handler is not None else []
    return True
