"""Emit code for the running CPython through version-independent primitives.

Input: calls of `Assembler` methods. Output: a code object (`Assembler.assemble`).
Invariant: `emit_op(op, arg)` has the stack effect and meaning of the canonical op of that name, so a breaking
instruction can be executed for real with its operands on the stack as the canonical program has them.
The one place that knows which opcodes a version has on the way out (the lift tables know the way in). The list of
instructions consists of the `bytecode` package's classes; `codec.encode` assembles it.
"""

import opcode
import sys
from collections.abc import Callable, Iterable
from types import CodeType
from typing import TYPE_CHECKING, Any

from bytecode import FreeVar, Instr, Label, TryBegin, TryEnd

from dynamo_lite.isa.canon import Op
from dynamo_lite.isa.codec import Header, encode, make_instr, make_location
from dynamo_lite.isa.lift import HAS_DOCSTRING, NULL_FIRST
from dynamo_lite.isa.rules import BINARY_FUNCTIONS, CONVERSIONS, UNARY_NAMES

CO_OPTIMIZED, CO_NEWLOCALS, CO_VARARGS, CO_VARKEYWORDS, CO_GENERATOR = 0x1, 0x2, 0x4, 0x8, 0x20
CO_COROUTINE, CO_ASYNC_GENERATOR = 0x80, 0x200
GENERATOR_FLAGS = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR

_HAS = opcode.opmap.__contains__
_V312 = sys.version_info >= (3, 12)
_V313 = sys.version_info >= (3, 13)
_V314 = sys.version_info >= (3, 14)
_BINARY_INDEX = {BINARY_FUNCTIONS[name]: i for i, (name, _) in enumerate(opcode._nb_ops) if name in BINARY_FUNCTIONS}
_COMPARE_INDEX = {op: i for i, op in enumerate(opcode.cmp_op)}
# The low bits of COMPARE_OP's operand on 3.12+: a mask of outcomes for the specialised forms.
_COMPARE_MASK = {"<": 2, "<=": 2 | 8, "==": 8, "!=": 1 | 2 | 4, ">": 4, ">=": 4 | 8}
_CONVERSION_NUMBER = {letter: number for number, letter in CONVERSIONS.items()}
_INTRINSIC_1 = {name.removeprefix("INTRINSIC_"): i for i, name in enumerate(getattr(opcode, "_intrinsic_1_descs", ()))}
_INTRINSIC_2 = {name.removeprefix("INTRINSIC_"): i for i, name in enumerate(getattr(opcode, "_intrinsic_2_descs", ()))}
_SPECIAL = {name: i for i, name in enumerate(getattr(opcode, "_special_method_names", ()))}
_CONDITIONAL = "POP_JUMP_IF_" if _HAS("POP_JUMP_IF_TRUE") else "POP_JUMP_FORWARD_IF_"
_FUNCTION_ATTRIBUTES = (8, 4, 2, 1)  # from the top of the stack down


class Assembler:
    """Collects instructions. Names of cells and free variables are resolved when assembling."""

    __slots__ = ("_location", "_open", "_placed", "_suspended", "items")

    if TYPE_CHECKING:  # a method for each op of `EMIT`, see below

        def __getattr__(self, op: str) -> Callable[..., None]: ...

    def __init__(self):
        self.items: list[Instr | Label | TryBegin | TryEnd] = []
        self._location = None
        self._placed: set[Label] = set()
        self._open: list[tuple[Label, bool]] = []  # enclosing try regions, outermost first
        self._suspended: TryBegin | None = None  # the TryBegin in force

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Callable[..., None]:
            """A method for each op of `EMIT`: see the end of this file."""

    # -- raw access

    def emit(self, name: str, *arg) -> None:
        """One instruction of the running version."""
        self.items.append(make_instr(name, *arg, location=self._location))

    def emit_op(self, op: Op, arg: object = None) -> None:
        """Any canonical op that works on the stack, names or attributes (not on slots, not jumps)."""
        EMIT[op](self, arg)

    def set_location(self, lineno, end_lineno=None, col=None, end_col=None) -> None:
        """The position of what is emitted from here on."""
        self._location = make_location(lineno, end_lineno, col, end_col)

    # -- labels, jumps, regions

    def label(self) -> Label:
        return Label()

    def place(self, label: Label) -> None:
        self.items.append(label)
        self._placed.add(label)

    def jump(self, label: Label) -> None:
        self.emit("JUMP_BACKWARD" if label in self._placed else "JUMP_FORWARD", label)

    def jump_if(self, condition: bool | None, label: Label, negate: bool = False) -> None:
        """Pop a bool and jump if it is `condition`; None: pop anything and jump if it is None (`negate`: is not
        None)."""
        names = {True: ("TRUE", "FALSE"), False: ("FALSE", "TRUE"), None: ("NONE", "NOT_NONE")}[condition]
        taken, skipped = reversed(names) if negate else names
        if label in self._placed:  # from 3.12 on, conditional jumps go forward only
            past = Label()
            self.emit(_CONDITIONAL + skipped, past)
            self.jump(label)
            self.place(past)
        else:
            self.emit(_CONDITIONAL + taken, label)

    def jump_if_none(self, when: bool, label: Label) -> None:
        self.jump_if(None, label, negate=not when)

    def for_iter(self, exhausted: Label) -> None:
        """Push the next item, or pop the iterator and go to `exhausted`, which `place_for_end` must place."""
        self.emit("FOR_ITER", exhausted)

    def place_for_end(self, label: Label) -> None:
        """Place the label of a `for_iter` (with the cleanup that the version wants there). Never fall into it."""
        self.place(label)
        if _HAS("END_FOR"):
            self.emit("END_FOR")
            if _HAS("POP_ITER"):
                self.emit("POP_ITER")
            elif _V313:
                self.emit("POP_TOP")

    def begin_try(self, handler: Label, lasti: bool = False) -> None:
        """Exceptions go to `handler`, with the stack cut to the depth of this point, then lasti if asked for, then the
        exception. May nest."""
        self._suspend()
        self._open.append((handler, lasti))
        self._continue()

    def end_try(self) -> None:
        self._suspend()
        self._open.pop()
        self._continue()

    def _suspend(self) -> None:
        if self._suspended is not None:
            self.items.append(TryEnd(self._suspended))
            self._suspended = None

    def _continue(self) -> None:
        # Regions may not nest in the table: an outer one is cut in pieces. Their depth is that of the first piece
        # (codec).
        if self._open:
            handler, lasti = self._open[-1]
            self._suspended = TryBegin(handler, lasti)
            self.items.append(self._suspended)
            if _V313:  # it looks up the handler for an exception out of a Python call one unit before the call
                self.emit("NOP")

    # -- variables

    def load_fast(self, name: str) -> None:
        self.emit("LOAD_FAST", name)

    def load_fast_and_clear(self, name: str) -> None:
        """Take the value out of a bound local."""
        if _V312:
            self.emit("LOAD_FAST_AND_CLEAR", name)
        else:
            self.emit("LOAD_FAST", name)
            self.emit("DELETE_FAST", name)

    def store_fast(self, name: str) -> None:
        self.emit("STORE_FAST", name)

    def delete_fast(self, name: str) -> None:
        self.emit("DELETE_FAST", name)

    def load_cell(self, name: str) -> None:
        """The cell itself of a cell or free variable."""
        self.emit("LOAD_FAST" if _V313 else "LOAD_CLOSURE", FreeVar(name))

    def load_deref(self, name: str) -> None:
        self.emit("LOAD_DEREF", FreeVar(name))

    def store_deref(self, name: str) -> None:
        self.emit("STORE_DEREF", FreeVar(name))

    def delete_deref(self, name: str) -> None:
        self.emit("DELETE_DEREF", FreeVar(name))

    def load_const(self, value: object) -> None:
        """Any object, hashable or not; constants are told apart by identity."""
        self.emit("LOAD_CONST", value)

    # -- calls

    def push_callable(self, emit: Callable[[], Any]) -> None:
        """Push the callable that `emit` pushes, and the NULL that a call needs beside it. Then push the arguments, then `call`."""
        if NULL_FIRST:
            self.emit("PUSH_NULL")
        emit()
        if not NULL_FIRST:
            self.emit("PUSH_NULL")

    def call(self, nargs: int, kwnames: tuple[str, ...] = ()) -> None:
        """`nargs` counts the keyword values too."""
        self.emit_op(Op.CALL, (nargs, kwnames))

    # -- the end

    def assemble(
        self,
        name: str,
        qualname: str,
        filename: str,
        firstlineno: int,
        argcount: int = 0,
        posonly: int = 0,
        kwonly: int = 0,
        flags: int = 0,
        argnames: Iterable[str] = (),
        cellvars: Iterable[str] = (),
        freevars: Iterable[str] = (),
        docstring: str | None = None,
    ) -> CodeType:
        """The code object. `argnames`: all arguments in localsplus order, `*args` and `**kwargs` last (say so in
        `flags`)."""
        argnames, cellvars, freevars = tuple(argnames), tuple(cellvars), tuple(freevars)
        flags |= CO_OPTIMIZED | CO_NEWLOCALS
        if docstring is not None:
            flags |= HAS_DOCSTRING
        items = prologue(cellvars, freevars, bool(flags & GENERATOR_FLAGS), firstlineno) + self.items
        about = (name, qualname, filename, firstlineno, flags, argcount, posonly, kwonly)
        return encode(items, Header(*about, argnames, cellvars, freevars, (docstring,)))


def prologue(cellvars: tuple, freevars: tuple, generator: bool, firstlineno: int) -> list[Instr]:
    """The instructions that CPython's compiler puts before a function's body."""
    line = make_location(firstlineno, firstlineno, 0, 0)
    items = [make_instr("COPY_FREE_VARS", len(freevars))] if freevars else []
    items += [make_instr("MAKE_CELL", FreeVar(name)) for name in cellvars]
    if generator:
        items += [make_instr("RETURN_GENERATOR", location=line), make_instr("POP_TOP", location=line)]
    items.append(make_instr("RESUME", 0, line))
    return items


# --------------------------------------------------------------------------------------- canonical op → opcodes


def _same(name: str, with_arg: bool) -> Callable:
    if with_arg:
        return lambda asm, arg: asm.emit(name, arg)
    return lambda asm, arg: asm.emit(name)


def _flag(name: str) -> Callable:
    return lambda asm, arg: asm.emit(name, int(arg))


def _fixed(*instrs: tuple) -> Callable:
    def emit(asm, arg):
        for instr in instrs:
            asm.emit(*instr)

    return emit


def _binary(asm, function):
    asm.emit("BINARY_OP", _BINARY_INDEX[function])


def _unary(asm, function):
    name = UNARY_NAMES[function]
    if _HAS(name):
        asm.emit(name)
    else:
        asm.emit("CALL_INTRINSIC_1", _INTRINSIC_1[name])


def _compare(asm, op):
    index = _COMPARE_INDEX[op]
    if _V312:
        index = index << (5 if _V313 else 4) | _COMPARE_MASK[op]
    asm.emit("COMPARE_OP", index)


def _load_global(asm, name):
    asm.emit("LOAD_GLOBAL", (False, name))


def _load_attr(asm, name):
    asm.emit("LOAD_ATTR", (False, name) if _V312 else name)


def _load_method(asm, name):
    if _V312:
        asm.emit("LOAD_ATTR", (True, name))
    else:
        asm.emit("LOAD_METHOD", name)


def _load_super_attr(asm, arg):
    name, is_method, two_arg = arg
    asm.emit("LOAD_SUPER_ATTR", (bool(is_method), bool(two_arg), name))


def _call(asm, arg):
    argc, kwnames = arg
    if kwnames and _V313:
        asm.emit("LOAD_CONST", kwnames)
        asm.emit("CALL_KW", argc)
        return
    if kwnames:
        asm.emit("KW_NAMES", kwnames)
    if not _V312:
        asm.emit("PRECALL", argc)
    asm.emit("CALL", argc)


def _call_function_ex(asm, has_kwargs):
    if _V314:
        if not has_kwargs:
            asm.emit("PUSH_NULL")
        asm.emit("CALL_FUNCTION_EX")
    else:
        asm.emit("CALL_FUNCTION_EX", int(has_kwargs))


def _make_function(asm, flags):
    if not _V313:
        asm.emit("MAKE_FUNCTION", flags)
        return
    asm.emit("MAKE_FUNCTION")
    for flag in _FUNCTION_ATTRIBUTES:
        if flags & flag:
            asm.emit("SET_FUNCTION_ATTRIBUTE", flag)


def _convert(asm, letter):
    asm.emit("CONVERT_VALUE" if _V313 else "FORMAT_VALUE", _CONVERSION_NUMBER[letter])


def _format(asm, has_spec):
    if _V313:
        asm.emit("FORMAT_WITH_SPEC" if has_spec else "FORMAT_SIMPLE")
    else:
        asm.emit("FORMAT_VALUE", 4 if has_spec else 0)


def _unpack_ex(asm, arg):
    before, after = arg
    asm.emit("UNPACK_EX", before | after << 8)


def _intrinsic(asm, name):
    if _INTRINSIC_1:
        asm.emit("CALL_INTRINSIC_1", _INTRINSIC_1[name])
    elif name == "PRINT":
        asm.emit("PRINT_EXPR")
        asm.emit("LOAD_CONST", None)
    else:
        asm.emit(name)


def _intrinsic_2(asm, name):
    if _INTRINSIC_2:
        asm.emit("CALL_INTRINSIC_2", _INTRINSIC_2[name])
    else:
        asm.emit(name)


def _load_special(asm, name):
    asm.emit("LOAD_SPECIAL", _SPECIAL[name])


NO_OPERAND = """
        POP_TOP PUSH_NULL LOAD_LOCALS LOAD_BUILD_CLASS SETUP_ANNOTATIONS STORE_SUBSCR DELETE_SUBSCR GET_ITER
    GET_YIELD_FROM_ITER     RETURN_GENERATOR RETURN_VALUE CLEANUP_THROW GET_AITER GET_ANEXT END_ASYNC_FOR
    BEFORE_WITH BEFORE_ASYNC_WITH     WITH_EXCEPT_START PUSH_EXC_INFO POP_EXCEPT CHECK_EXC_MATCH CHECK_EG_MATCH
    MATCH_KEYS MATCH_MAPPING MATCH_SEQUENCE GET_LEN
"""
WITH_OPERAND = """
        COPY SWAP LOAD_CONST STORE_GLOBAL DELETE_GLOBAL LOAD_NAME STORE_NAME DELETE_NAME LOAD_FROM_DICT_OR_GLOBALS
    STORE_ATTR     DELETE_ATTR BUILD_TUPLE BUILD_LIST BUILD_SET BUILD_MAP BUILD_STRING BUILD_SLICE LIST_APPEND
    SET_ADD MAP_ADD LIST_EXTEND     SET_UPDATE DICT_UPDATE DICT_MERGE UNPACK_SEQUENCE BUILD_CONST_KEY_MAP
    SET_FUNCTION_ATTRIBUTE RERAISE RAISE_VARARGS     MATCH_CLASS IMPORT_NAME IMPORT_FROM GET_AWAITABLE
"""
_NOT_TWICE = _fixed(("UNARY_NOT",), ("UNARY_NOT",))
_YIELD = _fixed(("YIELD_VALUE", 0) if _V312 else ("YIELD_VALUE",), ("RESUME", 1))

EMIT: dict[Op, Callable] = {
    **{Op[name]: _same(name, False) for name in NO_OPERAND.split()},
    **{Op[name]: _same(name, True) for name in WITH_OPERAND.split()},
    Op.LOAD_GLOBAL: _load_global,
    Op.LOAD_ATTR: _load_attr,
    Op.LOAD_METHOD: _load_method,
    Op.LOAD_SUPER_ATTR: _load_super_attr,
    Op.LOAD_SPECIAL: _load_special,
    Op.BINARY: _binary,
    Op.UNARY: _unary,
    Op.NOT: _same("UNARY_NOT", False),
    Op.TO_BOOL: _same("TO_BOOL", False) if _V313 else _NOT_TWICE,
    Op.COMPARE: _compare,
    Op.IS_OP: _flag("IS_OP"),
    Op.CONTAINS_OP: _flag("CONTAINS_OP"),
    Op.BINARY_SUBSCR: _fixed(("BINARY_OP", 26)) if _V314 else _same("BINARY_SUBSCR", False),
    Op.LIST_TO_TUPLE: lambda asm, arg: _intrinsic(asm, "LIST_TO_TUPLE"),
    Op.CONVERT: _convert,
    Op.FORMAT: _format,
    Op.UNPACK_EX: _unpack_ex,
    Op.MAKE_FUNCTION: _make_function,
    Op.CALL: _call,
    Op.CALL_FUNCTION_EX: _call_function_ex,
    Op.CALL_INTRINSIC: _intrinsic,
    Op.CALL_INTRINSIC_2: _intrinsic_2,
    Op.YIELD_VALUE: _YIELD,
    Op.PREP_RERAISE_STAR: lambda asm, arg: _intrinsic_2(asm, "PREP_RERAISE_STAR"),
    Op.IMPORT_STAR: _fixed(("CALL_INTRINSIC_1", 2), ("POP_TOP",)) if _V312 else _same("IMPORT_STAR", False),
}


def _method(op: Op) -> Callable:
    emit = EMIT[op]

    def method(self, arg=None):
        emit(self, arg)

    method.__name__ = op.name.lower()
    method.__doc__ = f"Emit the canonical op {op.name}."
    return method


# A method for each op of the table: `asm.load_attr("x")`, `asm.build_tuple(2)`, `asm.binary(operator.add)` …
for _op in EMIT:
    if not hasattr(Assembler, _op.name.lower()):
        setattr(Assembler, _op.name.lower(), _method(_op))
