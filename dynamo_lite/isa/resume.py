"""Continuation functions: run a code object on from the middle, after a graph break.

Input: a code object, a place in it, the shape of the stack there and the names of the locals that are bound.
Output: the code of a plain function (a generator function for a generator's code) which restores the stack and runs on.
Invariant: body, positions, exception regions and names are those of the original; only the prologue is new and
unreachable code is gone. Nothing here mirrors a CPython file; the frame state that is rebuilt is that of
`Include/internal/pycore_frame.h`.

Parameters, positional, in this order:

- `__stack_<i>` for each stack position i that is not a NULL (`null_positions`), not a lasti (`lasti_entries`), and in
  mode "call" not the top position; a space and the expression follow where it is what the instruction before has computed.
  At the positions in `exc_entries`, where the frame has the saved exc_info of an active handler, the value to pass is the
  exception which that handler handles;
- the locals in `locals_passed`, in that order. A local that is not passed is unbound. For a cell slot that holds a
  plain value (a 3.12+ inlined comprehension whose variable has the name of an outer cell) the name of the cell can be
  passed too. A caller in C holds the arguments of a Python function until it returns; only continuations own theirs (`csrc/move.h`), so
  the prologue takes values out of their parameters (`load_fast_and_clear`);
- `HOLDER`, if it is among these names, is no variable of the original: see `FrameHolder`;
- mode "raise": `__exc`; mode "call": `__inner`, `__inner_args` (a list, which is emptied).

Closure: the cells of `resume_freevars(code)`; the caller makes the function with the frame's actual cells. (In a slot
that holds no cell just then, which only happens inside an inlined comprehension, any cell will do.) The cells of the
frame's own variables come as free variables of other names, and are put into these variables' slots first of all: what
reads an unbound one must find a local variable.
"""

import linecache
import opcode
import re
import sys
import weakref
from collections.abc import Iterable, Iterator, Sequence
from inspect import CO_GENERATOR
from types import CodeType, FrameType, FunctionType
from typing import Any

from bytecode import CellVar, FreeVar, Instr, Label, TryBegin, TryEnd

from dynamo_lite._eval_frame import call_moved, raise_again, raise_here
from dynamo_lite.isa import codec, emit
from dynamo_lite.isa.canon import Op
from dynamo_lite.isa.flow import SHOW_VARIABLES
from dynamo_lite.isa.lift import PREPARES

PREFIXES = ("__stack_", "__inner", "__exc")
"""Names of parameters that are no variables of the original begin with one of these."""


def is_own_name(name: str) -> bool:
    """Whether a variable of a continuation is none of the original."""
    return name.startswith(PREFIXES) or name.endswith(PASSED)


HOLDER = "__exc_frame"
"""Name of the parameter for a `FrameHolder`."""

_MODES = ("value", "raise", "call")
_NEEDED = emit.CO_OPTIMIZED | emit.CO_NEWLOCALS
_DROPPED_FLAGS = emit.CO_VARARGS | emit.CO_VARKEYWORDS
_OWN_QUALNAME = re.compile(r"(.*) \(resumed at line (\S+)\)", re.DOTALL)
_made: dict[int, tuple[weakref.ref, dict]] = {}
_recipes: dict[int, tuple[weakref.ref, weakref.ref, tuple]] = {}
"""id of a continuation's code → a reference to it, one to the code that it continues, and what else it was made from."""


def is_resumed(code: CodeType) -> bool:
    """True for the code of a continuation."""
    return _OWN_QUALNAME.fullmatch(code.co_qualname) is not None


def place_of(code: Any) -> tuple[str, str] | None:
    """The name of the original and the line where a continuation goes on; None for the code of anything else, and for no code."""
    match = _OWN_QUALNAME.fullmatch(code.co_qualname) if type(code) is CodeType else None
    return (match[1], match[2]) if match is not None else None


def waiting_frames(code: CodeType, values: Sequence[Any]) -> Iterator[tuple[CodeType, Sequence[Any]]]:
    """The frames that a continuation, called with these arguments, goes on for: their codes and variables, outermost first."""
    while code.co_varnames[: code.co_argcount][-1:] == ("__inner_args",) and is_resumed(code):
        inner, values = values[-2:]
        code = inner.__code__
        yield code, values


def frame_stub(code: CodeType) -> CodeType:
    """Code of a generator function that does nothing, whose frame looks in a traceback as one of `code` does: same file, name and
    positions."""
    missing = max(len(code.co_code) - len(_GENERATOR_START), 0)
    return code.replace(
        co_code=_GENERATOR_START + _NOP * (missing // 2),
        co_exceptiontable=b"",
        co_flags=_NEEDED | CO_GENERATOR,
        co_argcount=0,
        co_posonlyargcount=0,
        co_kwonlyargcount=0,
        co_freevars=(),
        co_cellvars=(),
        co_qualname=original_name(code.co_qualname),
    )


class FrameHolder:
    """Keeps the frame of a function that was cut by a graph break for the tracebacks in which stand-ins are its entries.

    In CPython an entry of a traceback holds the frame with all its variables, those bound later too. The entries of an exception that
    captured code has raised have stand-ins for frames (`frame_stub`). Each refers to the holder of its frame by its `f_trace`, which
    nothing reads there, and which `frame.clear()` drops. The frame itself refers to the holder weakly: with the last of the entries
    the holder goes, and with it the frame.
    """

    __slots__ = ("__weakref__", "frame")

    def __init__(self) -> None:
        self.frame: FrameType | None = None


class FrameHolderReference:
    """A weak reference to a `FrameHolder`."""

    __slots__ = ("reference",)

    def __init__(self, holder: FrameHolder) -> None:
        self.reference = weakref.ref(holder)


def hold_frame(holder: FrameHolder | FrameHolderReference) -> FrameHolderReference:
    """A continuation says that it is the frame now; its reference to the holder."""
    known = holder if type(holder) is FrameHolderReference else FrameHolderReference(holder)
    held = known.reference()
    if held is not None:
        held.frame = sys._getframe(1)
    return known


def holder_of(known: FrameHolder | FrameHolderReference | None) -> FrameHolder:
    """The holder that a frame has, as long as there is a traceback for it; a new one otherwise. A continuation that is captured has the
    holder itself, as `hold_frame` does nothing there."""
    found = known.reference() if type(known) is FrameHolderReference else known
    return found if found is not None else FrameHolder()


def original_name(qualname: str) -> str:
    """The original's name, if this is the name of a continuation."""
    match = _OWN_QUALNAME.fullmatch(qualname)
    return match[1] if match else qualname


def _empty_generator():
    yield


# Up to RESUME, without which a frame counts as incomplete.
_GENERATOR_START = _empty_generator.__code__.co_code[:6]
_NOP = bytes((opcode.opmap["NOP"], 0))


def _names_in_order(code: CodeType) -> tuple[str, ...]:
    """The variables in the order in which `locals()` has them."""
    return tuple(dict.fromkeys((*code.co_varnames, *code.co_cellvars, *code.co_freevars)))


_LOADS_NAME = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_ATTR", "LOAD_METHOD"})


def _name_of(arg: Any) -> str:
    """The name in the argument of such an instruction, which may say besides whether a NULL or a method is pushed."""
    return arg[-1] if type(arg) is tuple else arg


class CannotResume(Exception):
    """This code object cannot be continued there; `args[0]` says why."""


def resume_freevars(code: CodeType) -> tuple[str, ...]:
    """The variables of `code` whose cells make the continuation's closure, in order."""
    return (*code.co_cellvars, *_outer_variables(code))


def _outer_variables(code: CodeType) -> list[str]:
    """The free variables of the original."""
    return [name for name in code.co_freevars if not name.endswith(PASSED)]


PASSED = " (cell)"


def resume_code(
    code: CodeType,
    offset: int,
    stack_len: int,
    null_positions: Iterable[int] = (),
    locals_passed: Iterable[str] = (),
    *,
    after: bool = True,
    mode: str = "value",
    exc_entries: Iterable[int] = (),
    lasti_entries: Iterable[tuple[int, int]] = (),
) -> CodeType:
    """The code of the function that continues `code` after (or at) the instruction at byte `offset`; cached.

    stack_len: depth of the stack where execution goes on (mode "call": the result of the inner call included; mode
    "raise": where the exception is raised). after: go on after that instruction; False: at it (a jump's target).
    mode "value": go on. mode "call": the top item is `__inner(*__inner_args)`, called inside the exception regions of
    the instruction at `offset`; then go on. mode "raise": that instruction raises `__exc`, which the frame that was in the place
    of this one has caught, once more: with the same context, and with this frame in its traceback instead of that one.
    exc_entries: positions that hold a saved exc_info (what PUSH_EXC_INFO put below the exception). The exception
    handled there is passed instead and re-established: raised and caught. (It need not lie on the stack: `except E as
    e` has popped it.)
    lasti_entries: (position, byte offset) of stack items which are the place of a raise, for a later RERAISE.
    """
    shape = (offset, stack_len, tuple(null_positions), tuple(locals_passed))
    key = (*shape, after, mode, tuple(exc_entries), tuple(lasti_entries))
    known = _known(code)
    made = known.get(key)
    if made is None:
        made = known[key] = _Resume(code, *key).build()
        _recipes[id(made)] = weakref.ref(made, _forget(id(made))), weakref.ref(code), key
    return made


def _forget(key: int) -> Any:
    def forget(ref: weakref.ref, recipes: dict = _recipes) -> None:
        if key in recipes and recipes[key][0] is ref:
            del recipes[key]

    return forget


def interrupted_code(code: CodeType, values: Sequence[Any], error: BaseException) -> CodeType | None:
    """The code of a continuation in which `error` comes up where it would go on: inside the blocks of the original. `values`: the arguments
    of its call. None if it is not known where that is (continuations of the warm cache), and for generators. It serves one call: what it
    raises has a traceback that leads to the code, whose constants no garbage collector looks at, so they do not hold it any longer."""
    reference, original, key = _recipes.get(id(code), (None, None, None))
    if reference is None or reference() is not code or original() is None or code.co_flags & emit.GENERATOR_FLAGS:
        return None
    resume = _Resume(original(), *key)
    if resume.mode != "call":
        resume.interrupt = lambda asm: _push_once(asm, error)
        return resume.build()
    inner = values[code.co_argcount - 2]
    inner_code = interrupted_code(inner.__code__, values[code.co_argcount - 1], error)
    if inner_code is None:
        return None
    interrupted = FunctionType(inner_code, inner.__globals__, inner.__name__, None, inner.__closure__)
    resume.interrupt = lambda asm: _push_once(asm, interrupted)
    return resume.build()


def _push_once(asm: emit.Assembler, value: object) -> None:
    """Push something that the code gives away."""
    take = [value].pop
    asm.push_callable(lambda: asm.load_const(take))
    asm.call(0)


def _known(code: CodeType) -> dict:
    """The continuations of `code` made so far; by identity, since code objects compare equal across files and globals."""
    found = _made.get(id(code))
    if found is not None and found[0]() is code:
        return found[1]
    key = id(code)

    def forget(ref, made=_made):  # bound here: at exit the module's names are gone first
        if key in made and made[key][0] is ref:
            del made[key]

    known: dict = {}
    _made[key] = (weakref.ref(code, forget), known)
    return known


def own_variables(shown: Any, names: tuple[str, ...]) -> Any:
    """The result of `locals()`, `vars()` or `dir()` in a continuation, as in the original: without the names that are not variables of the
    original, in its order. The result of a function of the program with such a name is left as it is."""
    variables = sys._getframe(1).f_locals  # from 3.13 on a proxy
    if type(shown) is list:
        if shown == sorted(variables):
            shown[:] = [name for name in shown if not is_own_name(name)]
    elif type(shown) is dict and (shown is variables or _is_same(shown, dict(variables))):
        known = {name: shown[name] for name in names if name in shown}
        known.update({name: value for name, value in shown.items() if not is_own_name(name)})
        shown.clear()
        shown.update(known)
    return shown


def _is_same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two dictionaries have the same items."""
    return one.keys() == other.keys() and all(value is other[name] for name, value in one.items())


_EXPRESSIONS = frozenset(
    {"BINARY_OP", "BINARY_SUBSCR", "CALL", "CALL_FUNCTION_EX", "CALL_KW", "COMPARE_OP", "LOAD_ATTR"}
)
"""Instructions that leave the value of an expression, whose columns they have, on the stack."""


def source_segment(filename: str, location: Any) -> str:
    """The text of an expression on one line; empty if it is longer, or not known."""
    if location is None:
        return ""
    start, end = location.col_offset, location.end_col_offset
    if location.lineno is None or location.lineno != location.end_lineno or start is None or end is None:
        return ""
    return linecache.getline(filename, location.lineno).encode()[start:end].decode(errors="replace")


class _Resume:
    """One continuation while it is built."""

    def __init__(self, code, offset, stack_len, nulls, passed, after, mode, exc_entries, lasti_entries):
        if mode not in _MODES:
            raise ValueError(f"unknown mode {mode!r}")
        if code.co_flags & _NEEDED != _NEEDED:
            raise CannotResume("a module or class body keeps its locals in a dict")
        self.code, self.offset, self.stack_len, self.mode = code, offset, stack_len, mode
        self.nulls, self.passed = frozenset(nulls), passed
        self.exc_entries, self.lasti_entries = frozenset(exc_entries), dict(lasti_entries)
        self.freevars = (*(name + PASSED for name in code.co_cellvars), *_outer_variables(code))
        self.is_original = not is_resumed(code)
        self.body = codec.decode(code)
        self.index = self.body.index_of_offset[offset]
        self.entry = self.index + 1 if after or mode != "value" else self._whole_instruction(self.index)
        self.asm = emit.Assembler()
        self.location = self.body.instrs[self.index].location
        self.asm._location = self.location
        self.dead_ends: list = []
        # pushes the exception that comes up instead, in mode "call" the function that is called instead
        self.interrupt: Any = None

    def _whole_instruction(self, index: int) -> int:
        """The index at which to begin to execute the canonical instruction at `index` (never inside the original's own prologue)."""
        instrs = self.body.instrs
        start = next((i for i, instr in enumerate(instrs) if instr.name == "RESUME"), -1)
        if index <= start:
            return start + 1
        while index and (instrs[index - 1].name, instrs[index].name) in PREPARES:
            index -= 1
        return index

    def build(self) -> CodeType:
        """A continuation's continuation at the same place is that continuation again: recursion would never end to make new ones."""
        code = self.code
        self._restore_cells()
        names = self._restore_stack()
        names += self._act()
        keep = self._reachable()
        items = self._start() + self.asm.items
        if any(keep):
            if self._goes_on() and not self._falls_into(keep):
                items.append(codec.make_instr("JUMP_FORWARD", self._label(self.entry), self.location))
            items += self._body_items(keep)
        items += self.dead_ends
        header = codec.Header(
            name=code.co_name,
            qualname=f"{original_name(code.co_qualname)} (resumed at line {self._line()})",
            filename=code.co_filename,
            firstlineno=code.co_firstlineno,
            flags=code.co_flags & ~_DROPPED_FLAGS,
            argcount=len(names),
            varnames=tuple(names),
            cellvars=code.co_cellvars,
            freevars=self.freevars,
            consts=(None,),
            stacksize=max(code.co_stacksize + 3 * self.is_original, self.stack_len + 6),
        )
        return codec.encode(items, header)

    def _line(self):
        return self.location.lineno if self.location is not None else "?"

    def _start(self) -> list:
        generator = bool(self.code.co_flags & emit.GENERATOR_FLAGS)
        return emit.prologue(self.code.co_cellvars, self.freevars, generator, self.code.co_firstlineno)

    # -- the new prologue

    def _restore_cells(self) -> None:
        for name in self.code.co_cellvars:
            self.asm.load_cell(name + PASSED)  # stays where it is: who looks into the frame relies on that
            self.asm.emit("STORE_FAST", CellVar(name))

    def _restore_stack(self) -> list[str]:
        """Emit the pushes; returns the parameter names for the stack and the locals."""
        names = []
        given = self.stack_len - (self.mode == "call")
        for position in range(given):
            if position in self.nulls:
                self.asm.push_null()
            elif position in self.lasti_entries:
                self._push_lasti(self.lasti_entries[position])
            else:
                name = f"__stack_{position}"
                names.append(self._given(name) if position == given - 1 else name)
                if position in self.exc_entries:
                    self._handle_exception(position, names[-1])
                else:
                    self.asm.load_fast_and_clear(names[-1])
        return names + [self._restore_local(name) for name in self.passed]

    def _given(self, name: str) -> str:
        """The name of the parameter for the top of the stack, with the expression behind it that the instruction before has computed. Where
        a continuation goes on at its own beginning, it is the name that it has."""
        before = self.body.instrs[self.entry - 1] if self.mode == "value" and self.entry else None
        if before is not None and before.name in _EXPRESSIONS:
            text = source_segment(self.code.co_filename, before.location)
            return f"{name} {text}" if text else name
        own = () if self.is_original else self.code.co_varnames[: self.code.co_argcount]
        return next((known for known in own if known.partition(" ")[0] == name), name)

    def _restore_local(self, name: str) -> str:
        if name == HOLDER:
            self.asm.push_callable(lambda: self.asm.load_const(hold_frame))
            self.asm.load_fast_and_clear(HOLDER)
            self.asm.call(1)
            self.asm.store_fast(HOLDER)
            return HOLDER
        kind = CellVar if name in self.code.co_cellvars else FreeVar
        if name in self.body_locals() or (kind is FreeVar and name not in self.freevars):
            return name
        parameter = f"__slot_{name}"
        self.asm.load_fast_and_clear(parameter)
        self.asm.emit("STORE_FAST", kind(name))
        return parameter

    def body_locals(self) -> set[str]:
        """Names of slots that stay plain locals (one may have the name of a free variable of the original)."""
        return set(self.code.co_varnames).difference(self.code.co_cellvars)

    def _handle_exception(self, position: int, name: str) -> None:
        """Raise and catch it, so that it is the exception being handled. RERAISE leaves its traceback and context as
        they are."""
        handler = Label()
        begin = TryBegin(handler, False, position)
        self.asm.items.append(begin)
        self.asm.load_fast_and_clear(name)
        self.asm.reraise(0)
        self.asm.items.append(TryEnd(begin))
        self.asm.place(handler)
        self.asm.push_exc_info()
        self.asm.pop_top()

    def _push_lasti(self, offset: int) -> None:
        """Push the place, in the new code, of an instruction with the position of the one that raised."""
        place = Label()
        self.asm.load_const(codec.UnitOffset(place))
        instr = self.body.instrs[self.body.index_of_offset[offset]]
        self.dead_ends.append(place)
        self.dead_ends += [
            codec.make_instr("LOAD_CONST", None, instr.location),
            codec.make_instr("RETURN_VALUE", location=instr.location),
        ]

    def _act(self) -> list[str]:
        """Emit what happens inside the exception regions of the instruction; returns the last parameters."""
        if self.mode == "value" and self.interrupt is None:
            return []
        asm = self.asm
        region = self.body.handler_at[self._acts_at()]
        begin = TryBegin(self._label(region[0]), region[2], region[1]) if region else None
        if begin:
            asm.items.append(begin)
        if self.mode == "call":
            names = ["__inner", "__inner_args"]
            asm.push_callable(lambda: asm.load_const(call_moved))
            if self.interrupt is None:
                asm.load_fast_and_clear(names[0])
            else:
                self.interrupt(asm)
            asm.load_fast_and_clear(names[1])
            asm.call(2)
        else:
            names = ["__exc"] if self.mode == "raise" else []
            asm.push_callable(lambda: asm.load_const(raise_again if self.interrupt is None else raise_here))
            if self.interrupt is None:
                asm.load_fast_and_clear(names[0])
            else:
                self.interrupt(asm)
            asm.call(1)
            asm.reraise(0)
        if begin:
            asm.items.append(TryEnd(begin))
        return names

    def _goes_on(self) -> bool:
        """Whether the body runs on behind what happens here."""
        return self.mode == "call" or (self.mode == "value" and self.interrupt is None)

    def _acts_at(self) -> int:
        """The index of the instruction inside whose exception regions that happens."""
        return self.index if self.mode != "value" else self.entry

    # -- the old body

    def _label(self, index: int) -> Label:
        return self.body.labels.setdefault(index, Label())

    def _reachable(self) -> list[bool]:
        """Which instructions of the body can still run."""
        body = self.body
        index_of = {label: index for index, label in body.labels.items()}
        keep = [False] * len(body.instrs)
        work = [self.entry] if self._goes_on() else []
        if (self.mode != "value" or self.interrupt is not None) and body.handler_at[self._acts_at()]:
            work.append(body.handler_at[self._acts_at()][0])
        while work:
            i = work.pop()
            while not keep[i]:
                keep[i] = True
                handler = body.handler_at[i]
                if handler is not None:
                    work.append(handler[0])
                instr = body.instrs[i]
                if type(instr.arg) is Label:
                    work.append(index_of[instr.arg])
                if instr.opcode in codec.FINAL:
                    break
                i += 1
        self.first = self._cover_call(keep)
        return keep

    def _cover_call(self, keep: list[bool]) -> int:
        """CPython 3.13 looks up the handler of an exception out of a Python call one unit before the call: put a NOP of
        the same region there if the body is cut right before the entry. Returns where to enter."""
        before = self.entry - 1
        if self._goes_on() and not keep[before] and self.body.instrs[self.entry].name != "NOP":
            keep[before] = True
            self.body.instrs[before] = codec.make_instr("NOP", location=self.location)
            self.body.handler_at[before] = self.body.handler_at[self.entry]
            return before
        return self.entry

    def _falls_into(self, keep: list[bool]) -> bool:
        return keep.index(True) == self.first

    def _body_items(self, keep: list[bool]) -> list:
        items = codec.to_items(self.body, keep)
        if "super" in self.code.co_names and "__class__" in self.freevars and self.code.co_argcount:
            items = self._explicit_super(items)
        if self.is_original and not SHOW_VARIABLES.isdisjoint(self.code.co_names):
            items = self._own_variables(items)
        return items

    def _own_variables(self, items: list) -> list:
        """Have `locals()`, `vars()` and `dir()` show what they would show in the original, see `own_variables`."""
        out: list = []
        wanted = False
        for item in items:
            out.append(item)
            if not isinstance(item, Instr) or item.name in ("PUSH_NULL", "PRECALL"):
                continue
            if wanted and item.name == "CALL" and item.arg == 0:
                asm = emit.Assembler()
                asm._location = item.location
                asm.push_callable(lambda asm=asm: asm.load_const(own_variables))
                asm.emit_op(Op.SWAP, 2)
                asm.emit_op(Op.SWAP, 3)
                asm.load_const(_names_in_order(self.code))
                asm.call(2)
                out += asm.items
            wanted = item.name in _LOADS_NAME and _name_of(item.arg) in SHOW_VARIABLES
        return out

    def _explicit_super(self, items: list) -> list:
        """`super()` looks at the frame's first argument, which is another one here: pass it what it would find. (3.12+
        has that on the stack for `super().name`, but may call `super()` all the same: say that it has two arguments.)
        """
        owner = self.code.co_varnames[0]
        self_load = ("LOAD_DEREF", CellVar(owner)) if owner in self.code.co_cellvars else ("LOAD_FAST", owner)
        out: list = []
        instrs = [item for item in items if isinstance(item, Instr)]
        calls = {}  # id of the LOAD_GLOBAL → of the instructions up to its CALL
        for i, instr in enumerate(instrs):
            if instr.name == "LOAD_GLOBAL" and instr.arg == (True, "super"):
                end = i + 2 if instrs[i + 1].name == "PRECALL" else i + 1
                if instrs[end].name == "CALL" and instrs[end].arg == 0:
                    calls[id(instr)] = [id(other) for other in instrs[i + 1 : end + 1]]
        bump = {one for call in calls.values() for one in call}
        for item in items:
            if isinstance(item, Instr) and item.name == "LOAD_SUPER_ATTR":
                is_method, _, name = item.arg
                item = codec.make_instr(item.name, (is_method, True, name), item.location)
            out.append(codec.make_instr(item.name, 2, item.location) if id(item) in bump else item)
            if id(item) in calls:
                out.append(codec.make_instr("LOAD_DEREF", FreeVar("__class__"), item.location))
                out.append(codec.make_instr(*self_load, item.location))
        return out
