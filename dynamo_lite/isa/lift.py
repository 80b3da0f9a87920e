"""Lift a code object into canonical ops.

Input: a code object of the running CPython. Output: `Lifted`, cached per code object (weakly, by identity).
Invariant: executing the canonical program has the effects of the original, instruction by instruction; jump and handler
targets are canonical indices; every original offset is in `index_of_offset`, a dropped instruction maps to the next one
kept. The decoding mirrors `Lib/dis.py`, the exception table `Objects/exception_handling_notes.txt` (3.13:
InternalDocs).
"""

import opcode
import sys
import weakref
from collections.abc import Mapping
from types import CodeType

from dynamo_lite.isa.canon import NO_TARGET, Handler, Instr, Lifted, Op
from dynamo_lite.isa.rules import LiftContext, LiftError

if sys.version_info >= (3, 15):
    from dynamo_lite.isa import lift315 as version
elif sys.version_info >= (3, 14):
    from dynamo_lite.isa import lift314 as version
elif sys.version_info >= (3, 13):
    from dynamo_lite.isa import lift313 as version
elif sys.version_info >= (3, 12):
    from dynamo_lite.isa import lift312 as version
else:
    from dynamo_lite.isa import lift311 as version

NULL_FIRST = version.NULL_FIRST
LOCALS_ARE_SHARED = version.LOCALS_ARE_SHARED
HAS_DOCSTRING = version.HAS_DOCSTRING
PREPARES = version.PREPARES

_EXTENDED_ARG = opcode.opmap["EXTENDED_ARG"]


def _cache_entries() -> list[int]:
    """Number of inline cache units after each opcode (the table's shape differs between versions)."""
    table = opcode._inline_cache_entries
    by_name = table if isinstance(table, Mapping) else dict(zip(opcode.opname, table, strict=False))
    return [by_name.get(name, 0) for name in opcode.opname[:256]]


CACHE_ENTRIES = _cache_entries()
_RULES = [version.RULES.get(name) for name in opcode.opname[:256]]
_lifted: dict[int, Lifted] = {}
_guards: dict[int, weakref.ref] = {}


def docstring(code: CodeType) -> str | None:
    """The `__doc__` of a function made of `code`."""
    first = code.co_consts[0] if code.co_consts else None
    return first if code.co_flags & HAS_DOCSTRING == HAS_DOCSTRING and isinstance(first, str) else None


def lift(code: CodeType) -> Lifted:
    """The canonical program of `code`."""
    found = _lifted.get(id(code))
    if found is not None and found._code() is code:
        return found
    lifted = _lift(code)
    key = id(code)

    def forget(ref, guards=_guards, known=_lifted):  # bound here: at exit the module's names are gone first
        if guards.get(key) is ref:
            del guards[key], known[key]

    _lifted[key] = lifted
    _guards[key] = weakref.ref(code, forget)
    return lifted


def _lift(code: CodeType) -> Lifted:
    instrs: list[Instr] = []
    index_of_offset: dict[int, int] = {}
    jumps: list[tuple[Instr, int]] = []
    _decode(code, instrs, index_of_offset, jumps)
    for instr, offset in jumps:
        instr.target = index_of_offset[offset]
    handler_at = _handlers(code, len(instrs), index_of_offset)
    return Lifted(code, instrs, handler_at, index_of_offset)


def _cell_slots(code: CodeType) -> frozenset[int]:
    names = list(code.co_varnames)
    names += [name for name in code.co_cellvars if name not in names]
    cells = set(code.co_cellvars)
    free = range(len(names), len(names) + len(code.co_freevars))
    return frozenset([*(i for i, name in enumerate(names) if name in cells), *free])


def _decode(code: CodeType, instrs: list, index_of_offset: dict, jumps: list) -> None:
    """Translate all instructions; fills the three containers."""
    raw = code.co_code
    positions = positions_of(code)
    ctx = LiftContext(code, _cell_slots(code), instrs)
    rules, caches, new, append = _RULES, CACHE_ENTRIES, Instr, instrs.append
    offset, end, extended = 0, len(raw), 0
    while offset < end:
        opc = raw[offset]
        index_of_offset[offset] = len(instrs)
        arg = raw[offset + 1] | extended
        if opc == _EXTENDED_ARG:
            extended = arg << 8
            offset += 2
            continue
        extended = 0
        parts = rules[opc]
        if type(parts) is not tuple:
            if parts is None:
                raise LiftError(f"unknown opcode {opcode.opname[opc]} at {offset} of {code.co_qualname}")
            parts = parts(ctx, arg)
            # A rule may have folded the previous instruction into this one.
            if index_of_offset[offset] > len(instrs):
                _refold(index_of_offset, offset, len(instrs))
        following = offset + 2 + 2 * caches[opc]
        if parts:
            pos = positions[offset >> 1]
            for op, value, decode, jump in parts:
                if decode is not None:
                    value = decode(ctx, arg)
                instr = new(op, value, NO_TARGET, offset, False, pos)
                if jump is not None:
                    jumps.append((instr, following + jump[0] * 2 * arg + jump[1]))
                append(instr)
            instr.last = True
        offset = following
    index_of_offset[end] = len(instrs)


def _refold(index_of_offset: dict, offset: int, index: int) -> None:
    """Instructions before `offset` were folded: let their offsets lead to the canonical instruction at `index`."""
    while index_of_offset.get(offset, 0) > index or offset not in index_of_offset:
        if offset in index_of_offset:
            index_of_offset[offset] = index
        offset -= 2


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Six bits per byte, most significant first; 0x40 marks that more follow. Returns (value, next position)."""
    byte = data[at]
    value = byte & 0x3F
    while byte & 0x40:
        at += 1
        byte = data[at]
        value = value << 6 | byte & 0x3F
    return value, at + 1


def positions_of(code: CodeType) -> list[tuple[int | None, ...]]:
    """The position of each code unit; a table of lines that was replaced need not reach to the end."""
    positions = list(code.co_positions())
    return positions + [(None,) * 4] * (len(code.co_code) // 2 - len(positions))


def exception_table(code: CodeType) -> list[tuple[int, int, int, int, bool]]:
    """Entries (start, end, target, depth, lasti) of `co_exceptiontable`; byte offsets."""
    data, at, entries = code.co_exceptiontable, 0, []
    while at < len(data):
        start, at = _varint(data, at)
        length, at = _varint(data, at)
        target, at = _varint(data, at)
        depth_lasti, at = _varint(data, at)
        entries.append((2 * start, 2 * (start + length), 2 * target, depth_lasti >> 1, bool(depth_lasti & 1)))
    return entries


def _handlers(code: CodeType, count: int, index_of_offset: dict) -> list:
    handler_at: list[Handler | None] = [None] * count
    for start, end, target, depth, lasti in exception_table(code):
        first, stop = index_of_offset[start], index_of_offset[end]
        handler = Handler(index_of_offset[target], depth, lasti)
        handler_at[first:stop] = [handler] * (stop - first)
    return handler_at


__all__ = [
    "HAS_DOCSTRING",
    "LOCALS_ARE_SHARED",
    "NULL_FIRST",
    "PREPARES",
    "Handler",
    "Instr",
    "LiftError",
    "Lifted",
    "Op",
    "docstring",
    "exception_table",
    "lift",
]
