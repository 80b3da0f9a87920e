"""Code object ⇄ list of symbolic instructions: the two ends of `emit` and `resume`.

Input of `encode`: a `bytecode`-style list (`Instr`, `Label`, `TryBegin`, `TryEnd`) and a `Header`. Output: a code
object. `decode` is the other way. Both use the classes of the `bytecode` package as data; its own conversions are not
used because they validate and re-derive (stack sizes by a control flow graph) what is known here: 22 µs per instruction
there, about 3 here.
Invariant: `encode(*decode(code))` has the same instructions, positions and handlers as `code`, for every version.
Operands: names, cells and jumps are symbolic (`str`, `CellVar`/`FreeVar`, `Label`), `LOAD_CONST`-like ones are the
object itself, everything else is the raw number. Constants are told apart by identity, never merged by equality.
Mirrors `Python/assemble.c` (3.11: the end of `Python/compile.c`), `Objects/locations.md`,
`Objects/exception_handling_notes.txt`.
"""

import dis
import functools
import opcode
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from types import CodeType

from bytecode import CellVar, FreeVar, Instr, Label, TryBegin, TryEnd
from bytecode.instr import UNSET, InstrLocation

from dynamo_lite.isa.lift import CACHE_ENTRIES, exception_table, positions_of

# How an operand is written in an `Instr`.
PLAIN, CONST, NAME, FLAG_NAME, FLAGS_NAME, SLOT, TWO_SLOTS, JUMP = range(8)

_BACKWARD_TWIN = {
    "JUMP_FORWARD": "JUMP_BACKWARD",
    **{f"POP_JUMP_FORWARD_IF_{x}": f"POP_JUMP_BACKWARD_IF_{x}" for x in ("TRUE", "FALSE", "NONE", "NOT_NONE")},
}
# Opcodes of two slots; when a slot does not fit four bits they are written as two.
_SINGLES = {
    "LOAD_FAST_LOAD_FAST": ("LOAD_FAST", "LOAD_FAST"),
    "LOAD_FAST_BORROW_LOAD_FAST_BORROW": ("LOAD_FAST_BORROW", "LOAD_FAST_BORROW"),
    "STORE_FAST_LOAD_FAST": ("STORE_FAST", "LOAD_FAST"),
    "STORE_FAST_STORE_FAST": ("STORE_FAST", "STORE_FAST"),
}
_OPMAP = opcode.opmap
_EXTENDED_ARG = _OPMAP["EXTENDED_ARG"]


def _kinds() -> list[int]:
    has_cache_bit = dis.stack_effect(_OPMAP["LOAD_ATTR"], 1) == 1  # LOAD_ATTR took over LOAD_METHOD in 3.12
    kinds = [PLAIN] * 256
    rows = [
        (CONST, opcode.hasconst),
        (NAME, opcode.hasname),
        (FLAG_NAME, [_OPMAP["LOAD_GLOBAL"]] + [_OPMAP["LOAD_ATTR"]] * has_cache_bit),
        (FLAGS_NAME, [_OPMAP.get("LOAD_SUPER_ATTR", -1)]),
        (SLOT, [*opcode.haslocal, *opcode.hasfree]),
        (TWO_SLOTS, [_OPMAP.get(name, -1) for name in _SINGLES]),
        (JUMP, [*opcode.hasjrel, *opcode.hasjabs, *getattr(opcode, "hasjump", ())]),
    ]
    for kind, opcodes in rows:
        for opc in opcodes:
            if 0 <= opc < 256:
                kinds[opc] = kind
    kinds[_OPMAP["COPY_FREE_VARS"]] = PLAIN
    return kinds


KINDS = _kinds()
_OPNAME = opcode.opname
_IS_BACKWARD = ["BACKWARD" in name or name == "END_ASYNC_FOR" for name in _OPNAME[:256]]


class TrustedInstr(Instr):
    """An `Instr` whose operand is not validated: that costs more than everything else here, and forbids operands which
    CPython allows, such as a free variable's slot in STORE_FAST."""

    __slots__ = ()

    def _check_arg(self, name, opcode, arg):
        pass


_new_instr = getattr(TrustedInstr, "_from_trusted", None) or (
    lambda name, opc, arg, location: TrustedInstr(name, arg, location=location)
)
_new_location = getattr(InstrLocation, "_from_tuple", None) or InstrLocation


def make_instr(name: str, arg=UNSET, location: InstrLocation | None = None) -> Instr:
    return _new_instr(name, _OPMAP[name], arg, location)


def make_location(lineno, end_lineno=None, col=None, end_col=None) -> InstrLocation | None:
    """A location that `encode` can write: incomplete column information is left out."""
    if lineno is None:
        return None
    if None in (end_lineno, col, end_col):
        end_lineno = col = end_col = None
    return _new_location(lineno, end_lineno, col, end_col)


class InstructionPlace(int):
    """A place in a code object in code units, as an exception handler finds that of the raise on its stack ("lasti")."""

    __slots__ = ()


# The same object for the same place: code objects compare such constants by identity.
place = functools.cache(InstructionPlace)


class UnitOffset:
    """As a constant: replaced by the `InstructionPlace` where `label` comes to stand."""

    __slots__ = ("label",)

    def __init__(self, label: Label):
        self.label = label


@dataclass(slots=True)
class Header:
    """Everything of a code object but its instructions."""

    name: str
    qualname: str
    filename: str
    firstlineno: int
    flags: int
    argcount: int = 0
    posonlyargcount: int = 0
    kwonlyargcount: int = 0
    varnames: tuple[str, ...] = ()  # arguments first; locals met in the instructions are added
    cellvars: tuple[str, ...] = ()
    freevars: tuple[str, ...] = ()
    consts: tuple = ()  # the first constants, such as the docstring; those met in the instructions are added
    stacksize: int = 0  # 0: computed


# ------------------------------------------------------------------------------------------------------- decode


@dataclass(slots=True)
class Decoded:
    """`instrs[i]` stands at byte `offsets[i]`; jumps hold the label in `labels` of their target's index."""

    instrs: list[Instr]
    offsets: list[int]
    index_of_offset: dict[int, int]
    labels: dict[int, Label]
    handler_at: list  # per instruction: (target index, depth, lasti) or None


def slot_operands(code: CodeType, cell=CellVar, free=FreeVar) -> list:
    """The operand of an `Instr` for each slot: a str for a plain local, `cell(name)` or `free(name)` for the others."""
    cells = set(code.co_cellvars)
    names = list(code.co_varnames)
    names += [name for name in code.co_cellvars if name not in names]
    return [cell(name) if name in cells else name for name in names] + [free(name) for name in code.co_freevars]


def decode(code: CodeType, slots: list | None = None) -> Decoded:
    """The instructions of `code` without caches and EXTENDED_ARG. `slots`: operand for each slot,
    `slot_operands(code)`."""
    slots = slot_operands(code) if slots is None else slots
    raw, consts, names = code.co_code, code.co_consts, code.co_names
    positions = positions_of(code)
    out = Decoded([], [], {}, {}, [])
    instrs, offsets, index_of_offset = out.instrs, out.offsets, out.index_of_offset
    kinds, caches, backward, opname = KINDS, CACHE_ENTRIES, _IS_BACKWARD, _OPNAME
    jumps = []
    offset, end, extended = 0, len(raw), 0
    last_position = location = None
    while offset < end:
        opc = raw[offset]
        index_of_offset[offset] = len(instrs)
        arg = raw[offset + 1] | extended
        if opc == _EXTENDED_ARG:
            extended = arg << 8
            offset += 2
            continue
        extended = 0
        following = offset + 2 + 2 * caches[opc]
        kind = kinds[opc]
        if kind == SLOT:
            arg = slots[arg]
        elif kind == CONST:
            arg = consts[arg]
        elif kind == NAME:
            arg = names[arg]
        elif kind == FLAG_NAME:
            arg = (bool(arg & 1), names[arg >> 1])
        elif kind == FLAGS_NAME:
            arg = (bool(arg & 1), bool(arg & 2), names[arg >> 2])
        elif kind == TWO_SLOTS:
            arg = (slots[arg >> 4], slots[arg & 15])
        elif kind == JUMP:
            jumps.append((len(instrs), following - 2 * arg if backward[opc] else following + 2 * arg))
        position = positions[offset >> 1]
        if position != last_position:
            last_position = position
            location = _new_location(*position)
        instrs.append(_new_instr(opname[opc], opc, arg, location))
        offsets.append(offset)
        offset = following
    index_of_offset[end] = len(instrs)
    for index, target in jumps:
        old = instrs[index]
        label = out.labels.setdefault(index_of_offset[target], Label())
        instrs[index] = _new_instr(old.name, old.opcode, label, old.location)
    out.handler_at = [None] * len(instrs)
    for start, stop, target, depth, lasti in exception_table(code):
        first, after = index_of_offset[start], index_of_offset[stop]
        entry = (index_of_offset[target], depth, lasti)
        out.labels.setdefault(entry[0], Label())
        out.handler_at[first:after] = [entry] * (after - first)
    return out


def to_items(decoded: Decoded, keep: list[bool] | None = None, start: int = 0) -> list:
    """The flat list that `encode` takes; instructions that `keep` denies are left out."""
    items: list = []
    current, begin = None, None
    for index in range(start, len(decoded.instrs)):
        label = decoded.labels.get(index)
        if keep is not None and not keep[index]:
            continue
        entry = decoded.handler_at[index]
        if entry is not current and entry != current:
            if begin is not None:
                items.append(TryEnd(begin))
            begin = None
            if entry is not None:
                begin = TryBegin(decoded.labels[entry[0]], entry[2], entry[1])
                items.append(begin)
        current = entry
        if label is not None:
            items.append(label)
        items.append(decoded.instrs[index])
    if begin is not None:
        items.append(TryEnd(begin))
    return items


# ------------------------------------------------------------------------------------------------------- encode


class _Program:
    """The instructions as parallel lists while they are laid out."""

    __slots__ = ("args", "entered_at", "labels", "locations", "opcodes", "regions", "sizes", "starts")

    def __init__(self):
        self.opcodes: list[int] = []
        self.args: list = []  # int, or the Label of a jump
        self.locations: list = []
        self.labels: dict[Label, int] = {}
        self.regions: list[list] = []  # [first index, index after the last, TryBegin]
        self.entered_at: dict[Label, int] = {}  # handler → start of its first region, whose depth is the handler's
        self.sizes: list[int] = []  # in units, with EXTENDED_ARG, without caches
        self.starts: list[int] = []


class _Tables:
    """Names, constants and slots while they are numbered."""

    def __init__(self, header: Header, items: Iterable):
        self.consts: list = list(header.consts)
        self.const_index = {id(value): i for i, value in enumerate(self.consts)}
        self.names: dict[str, int] = {}
        self.slots: dict[str, int] = {name: i for i, name in enumerate(header.varnames)}
        for item in items:
            if isinstance(item, Instr) and KINDS[item.opcode] in (SLOT, TWO_SLOTS):
                arg = item.arg
                for name in arg if type(arg) is tuple else (arg,):
                    if type(name) is str and name not in self.slots:
                        self.slots[name] = len(self.slots)
        self.varnames = tuple(self.slots)
        slot, self.cells = len(self.slots), {}
        for name in header.cellvars:
            if name in self.slots:
                self.cells[name] = self.slots[name]
            else:
                self.cells[name], slot = slot, slot + 1
        for name in header.freevars:
            self.cells[name], slot = slot, slot + 1

    def slot(self, operand) -> int:
        return self.slots[operand] if type(operand) is str else self.cells[operand.name]

    def const(self, value) -> int:
        index = self.const_index.get(id(value))
        if index is None:
            index = self.const_index[id(value)] = len(self.consts)
            self.consts.append(value)
        return index

    def name(self, name: str) -> int:
        return self.names.setdefault(name, len(self.names))

    def number(self, opc: int, arg) -> int:
        """The raw operand of anything but jumps and pairs of slots."""
        kind = KINDS[opc]
        if kind == SLOT:
            return self.slot(arg)
        if kind == CONST:
            return self.const(arg)
        if kind == NAME:
            return self.name(arg)
        if kind == FLAG_NAME:
            return self.name(arg[1]) << 1 | arg[0]
        if kind == FLAGS_NAME:
            return self.name(arg[2]) << 2 | arg[1] << 1 | arg[0]
        return 0 if arg is UNSET else int(arg)


def encode(items: list, header: Header) -> CodeType:
    """Assemble. `TryBegin`s may not nest; their stack depth is computed where it is unset."""
    tables = _Tables(header, items)
    program = _number(items, tables)
    depths, highest = None, header.stacksize
    if not header.stacksize or any(region[2].stack_depth is UNSET for region in program.regions):
        depths, highest = _stack_depths(program)
    _lay_out(program)
    for i, opc in enumerate(program.opcodes):
        if opc == _OPMAP["COPY_FREE_VARS"]:
            program.args[i] = len(header.freevars)
    consts = tables.consts
    for i, value in enumerate(consts):
        if type(value) is UnitOffset:
            consts[i] = place(program.starts[program.labels[value.label]])
    firstlineno = _first_line(program, header.firstlineno)
    return CodeType(
        header.argcount,
        header.posonlyargcount,
        header.kwonlyargcount,
        len(tables.varnames),
        header.stacksize or highest + 1,
        header.flags,
        _code_bytes(program),
        tuple(consts),
        tuple(tables.names),
        tables.varnames,
        header.filename,
        header.name,
        header.qualname,
        firstlineno,
        _line_table(program, firstlineno),
        _exception_table(program, depths),
        header.freevars,
        header.cellvars,
    )


def _number(items: list, tables: _Tables) -> _Program:
    """Replace names by numbers; labels stay."""
    program = _Program()
    opcodes, args, locations = program.opcodes, program.args, program.locations
    kinds, number = KINDS, tables.number
    open_region: dict[TryBegin, list] = {}
    for item in items:
        kind = type(item)
        if isinstance(item, Instr):
            opc, arg, location = item.opcode, item.arg, item.location
            if kinds[opc] == TWO_SLOTS:
                first, second = tables.slot(arg[0]), tables.slot(arg[1])
                if first > 15 or second > 15:
                    one, two = _SINGLES[_OPNAME[opc]]
                    opcodes.append(_OPMAP[one])
                    args.append(first)
                    locations.append(location)
                    opc, arg = _OPMAP[two], second
                else:
                    arg = first << 4 | second
            elif type(arg) is not Label:
                arg = number(opc, arg)
            opcodes.append(opc)
            args.append(arg)
            locations.append(location)
        elif kind is Label:
            program.labels[item] = len(opcodes)
        elif kind is TryBegin:
            open_region[item] = region = [len(opcodes), None, item]
            program.regions.append(region)
            program.entered_at.setdefault(item.target, len(opcodes))
        elif kind is TryEnd:
            open_region[item.entry][1] = len(opcodes)
    program.regions = [region for region in program.regions if region[0] != region[1]]
    return program


def _lay_out(program: _Program) -> None:
    """Choose jump directions and sizes, fill in jump operands. Sizes only grow, so this ends."""
    opcodes, args, labels = program.opcodes, program.args, program.labels
    jumps = [(i, labels[arg]) for i, arg in enumerate(args) if type(arg) is Label]
    for i, target in jumps:
        twin = _BACKWARD_TWIN.get(_OPNAME[opcodes[i]])
        if twin is not None and target <= i:
            opcodes[i] = _OPMAP[twin]
        args[i] = 0
    caches = [CACHE_ENTRIES[opc] for opc in opcodes]
    sizes = program.sizes = [_units(arg) for arg in args]
    changed = True
    while changed:
        starts, at = [], 0
        for size, cache in zip(sizes, caches, strict=True):
            starts.append(at)
            at += size + cache
        starts.append(at)
        changed = False
        for i, target in jumps:
            distance = starts[target] - starts[i + 1]
            if _IS_BACKWARD[opcodes[i]]:
                distance = -distance
            if distance < 0:
                raise ValueError(f"{_OPNAME[opcodes[i]]} in the wrong direction")
            args[i] = distance
            if _units(distance) > sizes[i]:
                sizes[i] = _units(distance)
                changed = True
    program.starts = starts


def _units(arg: int) -> int:
    return 1 if arg < 0x100 else 2 if arg < 0x10000 else 3 if arg < 0x1000000 else 4


def _code_bytes(program: _Program) -> bytes:
    out = bytearray()
    for opc, arg, size in zip(program.opcodes, program.args, program.sizes, strict=True):
        while size > 1:
            size -= 1
            out += bytes((_EXTENDED_ARG, arg >> 8 * size & 0xFF))
        out.append(opc)
        out.append(arg & 0xFF)
        out += bytes(2 * CACHE_ENTRIES[opc])
    return bytes(out)


# Line table: Objects/locations.md
def _location_varint(value: int) -> bytes:
    out = bytearray()
    while value >= 64:
        out.append(0x40 | value & 0x3F)
        value >>= 6
    out.append(value)
    return bytes(out)


def _location_svarint(value: int) -> bytes:
    return _location_varint(-value << 1 | 1 if value < 0 else value << 1)


def _location_entry(location, line: int, units: int) -> bytes:
    head = 0x80 | units - 1
    lineno = location.lineno if location is not None else None
    if lineno is None:
        return bytes((head | 15 << 3,))
    delta, end_line = lineno - line, location.end_lineno
    col, end_col = location.col_offset, location.end_col_offset
    if col is None or end_col is None or end_line is None:
        return bytes((head | 13 << 3,)) + _location_svarint(delta)
    if end_line == lineno:
        if delta == 0 and col < 80 and 0 <= end_col - col < 16:
            return bytes((head | col >> 3 << 3, (col & 7) << 4 | end_col - col))
        if 0 <= delta < 3 and col < 128 and end_col < 128:
            return bytes((head | 10 + delta << 3, col, end_col))
    fields = (end_line - lineno, col + 1, end_col + 1)
    return bytes((head | 14 << 3,)) + _location_svarint(delta) + b"".join(map(_location_varint, fields))


def _first_line(program: _Program, firstlineno: int) -> int:
    """The first line of the code. Code of several functions has lines before that of its own: where a tool asks for events of lines, 3.14
    keeps each line as its distance from the first one without a sign (`get_line_delta` of `Python/instrumentation.c`)."""
    if sys.version_info < (3, 14):
        return firstlineno
    lines = (location.lineno for location in program.locations if location is not None and location.lineno is not None)
    return min([firstlineno, *lines])


def _line_table(program: _Program, firstlineno: int) -> bytes:
    out, line = bytearray(), firstlineno
    starts, locations = program.starts, program.locations
    index, count = 0, len(locations)
    while index < count:
        location, first = locations[index], starts[index]
        index += 1
        while index < count and locations[index] is location:
            index += 1
        units = starts[index] - first
        while units > 0:
            out += _location_entry(location, line, min(units, 8))
            units -= 8
            if location is not None and location.lineno is not None:
                line = location.lineno
    return bytes(out)


# Exception table: Objects/exception_handling_notes.txt
def _exception_varint(value: int, first: int = 0) -> bytes:
    out = [value & 0x3F]
    while value >= 64:
        value >>= 6
        out.append(0x40 | value & 0x3F)
    out[-1] |= first
    return bytes(reversed(out))


def _exception_table(program: _Program, depths: list[int] | None) -> bytes:
    out, starts = bytearray(), program.starts
    for first, after, begin in sorted(program.regions, key=lambda region: region[0]):
        depth = depths[program.entered_at[begin.target]] if begin.stack_depth is UNSET else begin.stack_depth
        out += _exception_varint(starts[first], 0x80)
        out += _exception_varint(starts[after] - starts[first])
        out += _exception_varint(starts[program.labels[begin.target]])
        out += _exception_varint(depth << 1 | begin.push_lasti)
    return bytes(out)


FINAL = {_OPMAP[name] for name in _OPMAP if name.startswith("JUMP_") and "_IF_" not in name} | {
    _OPMAP.get(name, -1) for name in ("RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE")
}
_RETURN_GENERATOR = _OPMAP["RETURN_GENERATOR"]
_RETURN_VALUE = _OPMAP["RETURN_VALUE"]


def _stack_depths(program: _Program) -> tuple[list[int], int]:
    """The depth before each instruction (0 where unreachable) and the highest one. Raises AssertionError where a return leaves values: a
    call with an argument too few leaves one. 3.11 and 3.12 take its callable for a method, and it works; 3.13 crashes."""
    opcodes, args, labels, effect = program.opcodes, program.args, program.labels, dis.stack_effect
    region_of = [None] * len(opcodes)
    for region in program.regions:
        for i in range(region[0], region[1]):
            region_of[i] = region
    depths: list = [None] * (len(opcodes) + 1)
    highest, work = 0, [(0, 0)]
    while work:
        i, depth = work.pop()
        while depths[i] is None:
            depths[i] = depth
            region = region_of[i]
            if region is not None:
                begin = region[2]
                base = begin.stack_depth
                if base is UNSET:
                    entered = depths[program.entered_at[begin.target]]
                    base = depth if entered is None else entered
                work.append((labels[begin.target], base + begin.push_lasti + 1))
            opc, arg = opcodes[i], args[i]
            if type(arg) is Label:
                jumped = depth + effect(opc, 0, jump=True)
                work.append((labels[arg], jumped))
                highest = max(highest, jumped)
                arg = 0
            if opc in FINAL:
                if opc == _RETURN_VALUE and depth != 1:
                    raise AssertionError(f"a return with {depth} values on the stack")
                break
            if opc == _RETURN_GENERATOR:
                depth += 1
            else:
                depth += effect(opc, arg if opc >= dis.HAVE_ARGUMENT else None, jump=False)
            highest = max(highest, depth)
            i += 1
    return [depth or 0 for depth in depths], highest
