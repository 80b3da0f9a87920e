"""The canonical instruction set: what every supported CPython's bytecode is lifted into.

Output of `isa.lift`, input of `interp`: `Op`, `Instr`, `Handler`, `Lifted`.
Invariant: the meaning of an op does not depend on the CPython version; `stack_effect` states its net effect on the
stack.
Mirrors the instruction definitions of CPython's `Python/bytecodes.c` (3.11: `Python/ceval.c`).

Notes on single ops:

- `LOAD_CELL(s)` pushes what lies in a cell or free slot: the cell itself. Inside an inlined comprehension (3.12+) whose
  variable has the name of an outer cell, the slot holds a plain value between `LOAD_FAST_AND_CLEAR` and the restoring
  `STORE_FAST`; then LOAD_CELL and LOAD_FAST push that value. So: push whatever the slot holds, UnboundLocalError if it
  holds nothing.
- `SEND` is entered with `receiver, value`. Not finished: `receiver, yielded`. Finished: `result` (receiver gone), go to
  `target`.
- `CLEANUP_THROW` (3.12+): `receiver, last_sent, exc` → `None, result` if exc is a StopIteration, else reraise.
- `RETURN_GENERATOR`: the body continues with the first sent value pushed (a `POP_TOP` follows).
- `END_ASYNC_FOR`: pops `aiter, exc`, goes on if exc is a StopAsyncIteration, else reraises.
- `WITH_EXCEPT_START(has_self)`: on top lie `exit[, self], lasti, previous, exc`; pushes the result. `has_self` is True
  on 3.14+ only.
- `PREP_RERAISE_STAR`: `original, raised_list` → exception or None.
- `IMPORT_STAR` pops the module and pushes nothing.
- `CALL_INTRINSIC(name)` and `CALL_INTRINSIC_2(name)`: name without its `INTRINSIC_` prefix; 1 or 2 operands, one
  result.
"""

import weakref
from enum import IntEnum, auto
from types import CodeType
from typing import Any, NamedTuple


class _FromZero(IntEnum):
    @staticmethod
    def _generate_next_value_(name, start, count, last_values):
        return count


class Op(_FromZero):
    """Canonical ops, dense from 0 (usable as list index). The comments say what `Instr.arg` is: s: a slot, i: a position from
    the top of the stack, n: a count, name: a str."""

    # stack
    POP_TOP = auto()
    COPY = auto()  # i
    SWAP = auto()  # i
    PUSH_NULL = auto()
    LOAD_CONST = auto()  # value
    # locals
    LOAD_FAST = auto()  # s; unbound: UnboundLocalError
    LOAD_FAST_AND_CLEAR = auto()  # s
    STORE_FAST = auto()  # s; the value may be the "unbound" marker
    DELETE_FAST = auto()  # s
    # cells
    MAKE_CELL = auto()  # s
    LOAD_CELL = auto()  # s: the cell itself
    LOAD_DEREF = auto()  # s
    STORE_DEREF = auto()  # s
    DELETE_DEREF = auto()  # s
    LOAD_CLASSDEREF = auto()  # s; 3.11
    LOAD_FROM_DICT_OR_DEREF = auto()  # s; 3.12+
    # names
    LOAD_GLOBAL = auto()  # name
    STORE_GLOBAL = auto()  # name
    DELETE_GLOBAL = auto()  # name
    LOAD_NAME = auto()  # name
    STORE_NAME = auto()  # name
    DELETE_NAME = auto()  # name
    LOAD_LOCALS = auto()
    LOAD_FROM_DICT_OR_GLOBALS = auto()  # name
    LOAD_BUILD_CLASS = auto()
    SETUP_ANNOTATIONS = auto()
    # attributes
    LOAD_ATTR = auto()  # name
    LOAD_METHOD = auto()  # name; pushes callable and self-or-NULL in the order of this version
    STORE_ATTR = auto()  # name
    DELETE_ATTR = auto()  # name
    LOAD_SUPER_ATTR = auto()  # (name, is_method, two_arg)
    LOAD_SPECIAL = auto()  # name
    # operators
    BINARY = auto()  # a function of `operator`: `add`, `iadd` …
    UNARY = auto()  # a function of `operator`
    NOT = auto()  # of a bool
    TO_BOOL = auto()
    COMPARE = auto()  # "<" …
    IS_OP = auto()  # invert
    CONTAINS_OP = auto()  # invert
    BINARY_SUBSCR = auto()
    STORE_SUBSCR = auto()
    DELETE_SUBSCR = auto()
    # jumps
    JUMP = auto()
    JUMP_IF = auto()  # True or False; pops a bool
    JUMP_IF_NONE = auto()  # True: jump if None, False: if not; pops
    # iteration, generators
    GET_ITER = auto()
    FOR_ITER = auto()  # exhausted: pop the iterator, go to `target`, which is past any cleanup
    GET_YIELD_FROM_ITER = auto()
    SEND = auto()
    YIELD_VALUE = auto()
    RETURN_GENERATOR = auto()
    RETURN_VALUE = auto()
    CLEANUP_THROW = auto()
    GET_AWAITABLE = auto()  # where
    GET_AITER = auto()
    GET_ANEXT = auto()
    END_ASYNC_FOR = auto()
    # building
    BUILD_TUPLE = auto()  # n
    BUILD_LIST = auto()  # n
    BUILD_SET = auto()  # n
    BUILD_MAP = auto()  # n
    BUILD_STRING = auto()  # n
    BUILD_SLICE = auto()  # n
    BUILD_CONST_KEY_MAP = auto()  # n
    LIST_APPEND = auto()  # i
    SET_ADD = auto()  # i
    MAP_ADD = auto()  # i
    LIST_EXTEND = auto()  # i
    SET_UPDATE = auto()  # i
    DICT_UPDATE = auto()  # i
    DICT_MERGE = auto()  # i
    LIST_TO_TUPLE = auto()
    CONVERT = auto()  # "s", "r" or "a"
    FORMAT = auto()  # has_spec
    UNPACK_SEQUENCE = auto()  # n
    UNPACK_EX = auto()  # (before, after)
    # functions
    MAKE_FUNCTION = auto()  # 3.11's flags; 3.13+: 0
    SET_FUNCTION_ATTRIBUTE = auto()  # flag
    CALL = auto()  # (argc, kwnames); argc counts keyword values too; below: callable and self-or-NULL in either order
    CALL_FUNCTION_EX = auto()  # has_kwargs; below lie NULL and callable as the version has them
    CALL_INTRINSIC = auto()  # name
    CALL_INTRINSIC_2 = auto()  # name
    # with, exceptions
    BEFORE_WITH = auto()
    BEFORE_ASYNC_WITH = auto()
    WITH_EXCEPT_START = auto()
    PUSH_EXC_INFO = auto()
    POP_EXCEPT = auto()
    CHECK_EXC_MATCH = auto()
    CHECK_EG_MATCH = auto()
    PREP_RERAISE_STAR = auto()
    RERAISE = auto()  # n
    RAISE_VARARGS = auto()  # n
    # match
    MATCH_CLASS = auto()  # n
    MATCH_KEYS = auto()
    MATCH_MAPPING = auto()
    MATCH_SEQUENCE = auto()
    GET_LEN = auto()
    # import
    IMPORT_NAME = auto()  # name
    IMPORT_FROM = auto()  # name
    IMPORT_STAR = auto()


N_OPS = len(Op)


NO_TARGET = -1


class Instr:
    """One canonical instruction. `target` is a canonical index (`NO_TARGET` for those that do not jump), `offset` the byte offset of the
    original instruction, `last` is True on the last part of an original one, `pos` is (lineno, end_lineno, col, end_col). A combined
    instruction is lifted into several, which share `offset`: `JUMP_IF_TRUE_OR_POP` into `COPY 1; TO_BOOL; JUMP_IF; POP_TOP`."""

    __slots__ = ("arg", "last", "lineno", "offset", "op", "pos", "target")

    def __init__(self, op: Op, arg: Any, target: int, offset: int, last: bool, pos: tuple):
        self.op = op
        self.arg = arg
        self.target = target
        self.offset = offset
        self.last = last
        self.lineno = pos[0]
        self.pos = pos

    end_lineno = property(lambda self: self.pos[1])
    col = property(lambda self: self.pos[2])
    end_col = property(lambda self: self.pos[3])

    def __repr__(self):
        arg = "" if self.arg is None else f" {self.arg!r}"
        target = "" if self.target == NO_TARGET else f" -> {self.target}"
        return f"<{self.offset}: {self.op.name}{arg}{target}>"


class Handler(NamedTuple):
    """The way of an exception: cut the stack to `depth`, push lasti (the offset) if `lasti`, push the exception, go to `target`."""

    target: int
    depth: int
    lasti: bool


class Lifted:
    """A lifted code object. Does not keep the code object alive (the cache is weak): `code` is None once that is gone.

    Slots are localsplus indices: first `nlocals` plain locals and arguments (an argument may be a cell too), then the
    other cells, then, from `first_free_slot` on, the free variables.
    """

    __slots__ = (
        "__weakref__",
        "_code",
        "first_free_slot",
        "flow",
        "handler_at",
        "index_of_offset",
        "instrs",
        "is_cell",
        "lines",
        "local_names",
        "name",
        "nlocals",
        "readers",
    )  # fmt: skip

    def __init__(self, code: CodeType, instrs: list, handler_at: list, index_of_offset: dict):
        cells = set(code.co_cellvars)
        names = list(code.co_varnames)
        names += [name for name in code.co_cellvars if name not in names]
        self._code = weakref.ref(code)
        self.name = code.co_qualname
        self.instrs: list[Instr] = instrs
        self.lines: list[Any] = [None] * len(instrs)  # (file, line) of those of the user's that somebody has asked for
        self.handler_at: list[Handler | None] = handler_at
        self.index_of_offset: dict[int, int] = index_of_offset
        self.nlocals = len(code.co_varnames)
        self.first_free_slot = len(names)
        self.local_names: tuple[str, ...] = (*names, *code.co_freevars)
        self.is_cell: tuple[bool, ...] = (*(name in cells for name in names), *(True for _ in code.co_freevars))
        self.flow = self.readers = None  # filled by isa.flow

    def instruction_at(self, i: int) -> list[Instr]:
        """The ops from number `i` to the last one of the same instruction."""
        end = i
        while not self.instrs[end].last:
            end += 1
        return self.instrs[i : end + 1]

    @property
    def code(self) -> CodeType | None:
        return self._code()

    def slot_of(self, name: str) -> int:
        """The slot of a local, cell or free variable (a hidden local of the same name as a free variable comes
        first)."""
        return self.local_names.index(name)

    def __repr__(self):
        return f"<Lifted {self.name}: {len(self.instrs)} instructions>"

    def dump(self) -> str:
        """The program as text, for people."""
        lines = []
        for i, (ins, handler) in enumerate(zip(self.instrs, self.handler_at, strict=True)):
            where = f"  ! {handler.target}@{handler.depth}{' lasti' if handler.lasti else ''}" if handler else ""
            lines.append(f"{ins.lineno or '':>5} {i:>4} {ins!r}{where}")
        return "\n".join(lines)


# Ops that never fall through to the next instruction.
TERMINAL = frozenset({Op.JUMP, Op.RETURN_VALUE, Op.RERAISE, Op.RAISE_VARARGS})

_FIXED = {
    Op.POP_TOP: -1, Op.COPY: 1, Op.SWAP: 0, Op.PUSH_NULL: 1, Op.LOAD_CONST: 1,
    Op.LOAD_FAST: 1, Op.LOAD_FAST_AND_CLEAR: 1, Op.STORE_FAST: -1, Op.DELETE_FAST: 0,
    Op.MAKE_CELL: 0, Op.LOAD_CELL: 1, Op.LOAD_DEREF: 1, Op.STORE_DEREF: -1, Op.DELETE_DEREF: 0, Op.LOAD_CLASSDEREF: 1,
    Op.LOAD_FROM_DICT_OR_DEREF: 0,
    Op.LOAD_GLOBAL: 1, Op.STORE_GLOBAL: -1, Op.DELETE_GLOBAL: 0, Op.LOAD_NAME: 1, Op.STORE_NAME: -1, Op.DELETE_NAME: 0,
    Op.LOAD_LOCALS: 1, Op.LOAD_FROM_DICT_OR_GLOBALS: 0, Op.LOAD_BUILD_CLASS: 1, Op.SETUP_ANNOTATIONS: 0,
    Op.LOAD_ATTR: 0, Op.LOAD_METHOD: 1, Op.STORE_ATTR: -2, Op.DELETE_ATTR: -1, Op.LOAD_SPECIAL: 1,
    Op.BINARY: -1, Op.UNARY: 0, Op.NOT: 0, Op.TO_BOOL: 0, Op.COMPARE: -1, Op.IS_OP: -1, Op.CONTAINS_OP: -1,
    Op.BINARY_SUBSCR: -1, Op.STORE_SUBSCR: -3, Op.DELETE_SUBSCR: -2,
    Op.JUMP: 0, Op.JUMP_IF: -1, Op.JUMP_IF_NONE: -1,
    Op.GET_ITER: 0, Op.GET_YIELD_FROM_ITER: 0, Op.YIELD_VALUE: 0, Op.RETURN_GENERATOR: 1, Op.RETURN_VALUE: -1,
    Op.CLEANUP_THROW: -1, Op.GET_AWAITABLE: 0, Op.GET_AITER: 0, Op.GET_ANEXT: 1, Op.END_ASYNC_FOR: -2,
    Op.LIST_APPEND: -1, Op.SET_ADD: -1, Op.MAP_ADD: -2, Op.LIST_EXTEND: -1, Op.SET_UPDATE: -1, Op.DICT_UPDATE: -1,
    Op.DICT_MERGE: -1, Op.LIST_TO_TUPLE: 0, Op.CONVERT: 0,
    Op.SET_FUNCTION_ATTRIBUTE: -1, Op.CALL_INTRINSIC: 0, Op.CALL_INTRINSIC_2: -1,
    Op.BEFORE_WITH: 1, Op.BEFORE_ASYNC_WITH: 1, Op.WITH_EXCEPT_START: 1, Op.PUSH_EXC_INFO: 1, Op.POP_EXCEPT: -1,
    Op.CHECK_EXC_MATCH: 0, Op.CHECK_EG_MATCH: 0, Op.PREP_RERAISE_STAR: -1, Op.RERAISE: -1,
    Op.MATCH_CLASS: -2, Op.MATCH_KEYS: 1, Op.MATCH_MAPPING: 1, Op.MATCH_SEQUENCE: 1, Op.GET_LEN: 1,
    Op.IMPORT_NAME: -1, Op.IMPORT_FROM: 1, Op.IMPORT_STAR: -1,
}  # fmt: skip

# Effects which depend on the operand (and for two of them on whether the jump is taken).
_BY_ARG = {
    Op.LOAD_SUPER_ATTR: lambda arg, jump: -2 + bool(arg[1]),
    Op.FOR_ITER: lambda arg, jump: -1 if jump else 1,
    Op.SEND: lambda arg, jump: -1 if jump else 0,
    Op.BUILD_TUPLE: lambda n, jump: 1 - n,
    Op.BUILD_LIST: lambda n, jump: 1 - n,
    Op.BUILD_SET: lambda n, jump: 1 - n,
    Op.BUILD_STRING: lambda n, jump: 1 - n,
    Op.BUILD_SLICE: lambda n, jump: 1 - n,
    Op.BUILD_MAP: lambda n, jump: 1 - 2 * n,
    Op.BUILD_CONST_KEY_MAP: lambda n, jump: -n,
    Op.FORMAT: lambda has_spec, jump: -1 if has_spec else 0,
    Op.UNPACK_SEQUENCE: lambda n, jump: n - 1,
    Op.UNPACK_EX: lambda arg, jump: arg[0] + arg[1],
    Op.MAKE_FUNCTION: lambda flags, jump: -(flags & 15).bit_count(),
    Op.CALL: lambda arg, jump: -1 - arg[0],
    Op.CALL_FUNCTION_EX: lambda has_kwargs, jump: -2 - bool(has_kwargs),
    Op.RAISE_VARARGS: lambda n, jump: -n,
}


def stack_effect(instr: Instr, jump: bool = False) -> int:
    """Net change of the stack depth; `jump`: on the way to `instr.target` instead of the next instruction."""
    fixed = _FIXED.get(instr.op)
    return fixed if fixed is not None else _BY_ARG[instr.op](instr.arg, jump)
