"""Which slots are live before a canonical instruction.

Input: a `Lifted` program and an index. Output: frozensets of slots. Computed once per program, backwards over jumps,
falls and exception edges, with one integer as bit set per instruction.
Invariant: a plain local that is not in `live_slots` can be left unbound at that point without a difference for the
program. Code that looks at its frame (`locals()`, `eval`, zero-argument `super()`) is recognised by the names it loads.
"""

from collections.abc import Callable

from dynamo_lite.isa.canon import NO_TARGET, TERMINAL, Instr, Lifted, Op

_READS = {Op.LOAD_FAST, Op.LOAD_FAST_AND_CLEAR, Op.DELETE_FAST}
_KILLS = {Op.STORE_FAST, Op.DELETE_FAST, Op.LOAD_FAST_AND_CLEAR}
_CELL_OPS = {
    Op.MAKE_CELL, Op.LOAD_CELL, Op.LOAD_DEREF, Op.STORE_DEREF, Op.DELETE_DEREF, Op.LOAD_CLASSDEREF,
    Op.LOAD_FROM_DICT_OR_DEREF,
}  # fmt: skip
_NAME_OPS = {Op.LOAD_GLOBAL, Op.LOAD_NAME}
_FRAME_READERS = {"locals", "vars", "dir", "eval", "exec"}

_SEEN_WITHOUT_ARGUMENTS = {"vars", "dir"}
LEAD_TO_CALLERS = frozenset({"_getframe", "currentframe"})
"""What gives a frame, from which all that called it are found."""
_READ_FROM_MODULES = {"locals", *LEAD_TO_CALLERS}
SHOW_VARIABLES = frozenset({"locals", "vars", "dir"})
"""What shows the variables of the frame that calls it, and nothing else of it."""


def can_be_cut(lifted: Lifted, index: int, is_shown: bool) -> bool:
    """Whether another frame can go on from `index`, as far as the code shows by name its own frame. One that goes on can show the
    variables, unless something has them already (`is_shown`): each `locals()` may have to give the same dictionary."""
    readers = _readers(lifted)
    found = readers.keys() & _reachable(lifted, index) if readers else ()
    return not any(is_shown or not readers[i] for i in found)


def looks_at_callers(lifted: Lifted, index: int) -> bool:
    """Whether code from `index` on names what leads to the frame of whoever called it."""
    found = [i for i in _readers(lifted) if lifted.instrs[i].arg in LEAD_TO_CALLERS]
    return bool(found) and not _reachable(lifted, index).isdisjoint(found)


def _readers(lifted: Lifted) -> dict[int, bool]:
    """The instructions that load what shows the frame that the code runs in; whether it is called at once, and shows variables only."""
    if lifted.readers is None:
        instrs = lifted.instrs
        lifted.readers = {i: _is_shown_directly(instrs, i) for i in range(len(instrs)) if _reads_frame(instrs, i)}
    return lifted.readers


def _reads_frame(instrs: list[Instr], i: int) -> bool:
    instr = instrs[i]
    if instr.op in (Op.LOAD_ATTR, Op.LOAD_METHOD):
        return instr.arg in _READ_FROM_MODULES
    if instr.op not in _NAME_OPS or (instr.arg not in _FRAME_READERS and instr.arg not in _READ_FROM_MODULES):
        return False
    return instr.arg not in _SEEN_WITHOUT_ARGUMENTS or _is_called_bare(instrs, i)


def _is_shown_directly(instrs: list[Instr], i: int) -> bool:
    return instrs[i].arg in SHOW_VARIABLES and _is_called_bare(instrs, i)


def _is_called_bare(instrs: list[Instr], i: int) -> bool:
    """Whether what an instruction loads is called without arguments."""
    following = next(other for other in instrs[i + 1 :] if other.op is not Op.PUSH_NULL)
    return following.op is Op.CALL and following.arg[0] == 0


def _reachable(lifted: Lifted, index: int, raises: bool = True) -> set[int]:
    """The instructions that may run from `index` on. `raises`: also where an exception is raised."""
    pending, seen = [index], set()
    while pending:
        i = pending.pop()
        if i not in seen and i < len(lifted.instrs):
            seen.add(i)
            pending += _successors(lifted, i)
            handler = lifted.handler_at[i]
            if handler is not None and raises:
                pending.append(handler.target)
    return seen


def only_raises(lifted: Lifted, index: int) -> bool:
    """Whether every way on from `index` ends at a `raise` statement of this code."""
    pending, seen = [index], set()
    while pending:
        i = pending.pop()
        instr = lifted.instrs[i]
        if i in seen or instr.op is Op.RAISE_VARARGS:
            continue
        if instr.op in _LEAVING:
            return False
        seen.add(i)
        pending += _successors(lifted, i)
    return True


def leads_to_loop(lifted: Lifted, index: int) -> bool:
    """Whether there is a jump backwards on a way on from `index`."""
    pending, seen = [index], set()
    while pending:
        i = pending.pop()
        if i in seen:
            continue
        seen.add(i)
        following = _successors(lifted, i)
        if any(j <= i for j in following):
            return True
        pending += following
    return False


def is_in_loop(lifted: Lifted, index: int) -> bool:
    """Whether a way on from `index` leads back to it."""
    pending, seen = _successors(lifted, index), set()
    while pending:
        i = pending.pop()
        if i == index:
            return True
        if i not in seen:
            seen.add(i)
            pending += _successors(lifted, i)
    return False


def innermost_loop(lifted: Lifted, index: int) -> range:
    """The instructions of the smallest loop around one, as compilers lay it out: from where jumps lead back to, to the last such jump.
    Jumps of handlers that lie behind the function (3.12) lead into its loops, and are none of their own."""
    ways = _reachable(lifted, index, raises=False)
    jumps = [
        (instr.target, i)
        for i, instr in enumerate(lifted.instrs)
        if NO_TARGET != instr.target <= index <= i and i in ways
    ]
    first = max((target for target, _ in jumps), default=index)
    return range(first, max((i for target, i in jumps if target == first), default=index) + 1)


def turn(lifted: Lifted, start: int, index: int) -> frozenset[int]:
    """The instructions on the ways from `start` to `index` within the smallest loop around it, if no exception is raised; none if there
    is no such way."""
    loop = innermost_loop(lifted, index)
    pending, seen = [start], set()
    while pending:
        i = pending.pop()
        if i not in seen and i in loop:
            seen.add(i)
            pending += _successors(lifted, i) if i != index else ()
    found = {index} & seen
    grows = bool(found)
    while grows:
        more = {i for i in seen - found if not found.isdisjoint(_successors(lifted, i))}
        found |= more
        grows = bool(more)
    return frozenset(found)


def begins_in_loop(lifted: Lifted) -> bool:
    """Whether resumed code goes on inside a loop: one that is there before the first branch. On a straight line what follows an instruction
    of a loop is in the loop as well, so that its last one tells."""
    line: dict[int, None] = {}
    i = 0
    while len(_successors(lifted, i)) == 1:
        if i in line:
            return True  # a loop without a branch
        line[i] = None
        (i,) = _successors(lifted, i)
    return bool(line) and is_in_loop(lifted, next(reversed(line)))


def _successors(lifted: Lifted, index: int) -> list[int]:
    instr = lifted.instrs[index]
    found = [] if instr.target == NO_TARGET else [instr.target]
    return found if instr.op in TERMINAL else [*found, index + 1]


def meeting_point(lifted: Lifted, index: int) -> int:
    """Where all ways on from a branch meet again: its immediate post-dominator, or the number of instructions if they meet behind the
    frame's return, or if no way leads there. Ways that end at a `raise`, and handlers of exceptions, do not count.

    The greatest solution of the equations of dominance (Allen and Cocke 1972) on the reversed flow, with an integer as bit set per
    instruction.
    """
    instrs, end = lifted.instrs, len(lifted.instrs)
    region = sorted(_reachable(lifted, index, raises=False), reverse=True)
    everything = (1 << end + 1) - 1
    dominators = dict.fromkeys(region, everything)
    dominators[end] = 1 << end
    changed = True
    while changed:
        changed = False
        for i in region:
            found = everything
            if instrs[i].op is Op.RETURN_VALUE:
                found = dominators[end]
            elif instrs[i].op not in (Op.RAISE_VARARGS, Op.RERAISE):
                for following in _successors(lifted, i):
                    found &= dominators[following]
            found |= 1 << i
            if found != dominators[i]:
                dominators[i] = found
                changed = True
    common = dominators[index] & ~(1 << index)
    if not any(instrs[i].op is Op.RETURN_VALUE for i in region):
        return end  # a loop that only exceptions end: everything follows everything
    # The nearest of them is the one that all the others dominate.
    return max((i for i in (*region, end) if common >> i & 1), key=lambda i: dominators[i].bit_count(), default=end)


_LEAVING = frozenset({Op.RETURN_VALUE, Op.YIELD_VALUE, Op.RERAISE})


def side_that_goes_on(lifted: Lifted, index: int, raises: Callable[[int], bool] = lambda index: False) -> bool | None:
    """With which truth of what the instruction makes, a TO_BOOL, a comparison or a call, the branch that follows does not raise; None: with
    both, or with neither, or there is no branch. (A call may give the truth to something else than the branch: that is only a worse
    guess.) `raises`: whether code from an instruction on raises by a call."""
    instrs, i = lifted.instrs, index
    if instrs[i].op in (Op.CALL, Op.COMPARE):
        i += 1
    elif instrs[i].op is not Op.TO_BOOL:
        return None
    if instrs[i].op is Op.TO_BOOL:
        i += 1
    jump = instrs[i]
    if jump.op is not Op.JUMP_IF:
        return None
    jumps, falls = (only_raises(lifted, side) or raises(side) for side in (jump.target, i + 1))
    return None if jumps is falls else jump.arg is not jumps


def leads_to_checked_comparison(lifted: Lifted, index: int) -> bool:
    """Whether the first branch behind `index` follows a comparison, and one of its sides only raises."""
    while _successors(lifted, index) == [index + 1]:
        index += 1
        if lifted.instrs[index].op is Op.COMPARE and side_that_goes_on(lifted, index) is not None:
            return True
    return False


def live_slots(lifted: Lifted, index: int) -> frozenset[int]:
    """Plain local slots whose value may be read at or after `index`."""
    return _slots(_flow(lifted)[index] & ~_cell_mask(lifted))


def _slots(bits: int) -> frozenset[int]:
    return frozenset(i for i in range(bits.bit_length()) if bits >> i & 1)


def _cell_mask(lifted: Lifted) -> int:
    return sum(1 << i for i, is_cell in enumerate(lifted.is_cell) if is_cell)


def _effect(instr: Instr, cells: int, plain: int, reads_self: bool) -> tuple[int, int]:
    """(bits used, bits kept from what is live after)."""
    op = instr.op
    if op in _READS or op in _KILLS or op in _CELL_OPS:
        bit = 1 << instr.arg
        if bit & cells:
            return bit, -1
        return bit if op in _READS else 0, ~bit if op in _KILLS else -1
    if op in (Op.LOAD_ATTR, Op.LOAD_METHOD) and instr.arg in SHOW_VARIABLES:
        return plain, -1
    if op in _NAME_OPS:
        if instr.arg in _FRAME_READERS:
            return plain, -1
        if instr.arg == "super" and reads_self:
            return 1, -1
    return 0, -1


def _flow(lifted: Lifted) -> list[int]:
    """Bit sets of the live slots before each instruction (and 0 after the last)."""
    if lifted.flow is not None:
        return lifted.flow
    instrs, count = lifted.instrs, len(lifted.instrs)
    cells = _cell_mask(lifted)
    plain = (1 << lifted.first_free_slot) - 1 & ~cells
    reads_self = "__class__" in lifted.local_names[lifted.first_free_slot :]
    effects = [_effect(instr, cells, plain, reads_self) for instr in instrs]
    after = [
        (
            None if instr.op in TERMINAL else i + 1,
            instr.target if instr.target != NO_TARGET else count,
            handler.target if handler is not None else count,
        )
        for i, (instr, handler) in enumerate(zip(instrs, lifted.handler_at, strict=True))
    ]
    live = [0] * (count + 1)
    changed = True
    while changed:
        changed = False
        for i in range(count - 1, -1, -1):
            falls, jumps, catches = after[i]
            used, kept = effects[i]
            out = live[jumps]
            if falls is not None:
                out |= live[falls]
            bits = used | out & kept | live[catches]
            if bits != live[i]:
                live[i] = bits
                changed = True
    lifted.flow = live
    return live
