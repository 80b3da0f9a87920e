"""Code objects, which are constants of the program.

Input: a code object and changes to it. Output: the changed one, as a constant.
Mirrors `Objects/codeobject.c`.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING

from dynamo_lite.guards import ir
from dynamo_lite.variables.protocol.constant import ConstantVariable
from dynamo_lite.variables.protocol.descr import getset
from dynamo_lite.variables.protocol.wrap import builds

if TYPE_CHECKING:
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.guards.ir import GuardNode
    from dynamo_lite.interp.frame import Frame
    from dynamo_lite.variables.protocol.base import VariableTracker


@builds(types.CodeType)
def build_code(tr: Trace, value: types.CodeType, source: GuardNode | None) -> ConstantVariable:
    tr.guard(source, ir.IS, value)
    return ConstantVariable(value, source)


@getset(types.CodeType.__dict__["co_filename"])
def code_filename(tx: Frame, self: VariableTracker) -> VariableTracker:
    """Another process may find the same code in another folder."""
    tx.tr.heap.bind_to_process("the folder of a file of code")
    return ConstantVariable(self.as_python_constant().co_filename)
