"""Everything that knows a CPython version: lifting bytecode to canonical ops, liveness, emitting code.

Input: code objects. Output: `Lifted` programs (`lift`), live slots (`flow`), new code objects (`emit`). Nothing here
imports torch.

Entry: `lift.lift`, `emit.Assembler`. Tests: `tests/isa/`.
"""

from dynamo_lite.isa.canon import NO_TARGET, Handler, Instr, Lifted, Op, stack_effect
from dynamo_lite.isa.lift import NULL_FIRST, LiftError, docstring, lift

__all__ = [
    "NO_TARGET",
    "NULL_FIRST",
    "Handler",
    "Instr",
    "LiftError",
    "Lifted",
    "Op",
    "docstring",
    "lift",
    "stack_effect",
]
