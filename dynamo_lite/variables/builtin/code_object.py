"""Code objects, which are constants of the program.

Input: a code object and changes to it. Output: the changed one, as a constant.
Mirrors `Objects/codeobject.c`.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING

from dynamo_lite.guards import ir
from dynamo_lite.variables.protocol.base import VariableTracker
from dynamo_lite.variables.protocol.constant import ConstantVariable
from dynamo_lite.variables.protocol.dispatch import method
from dynamo_lite.variables.protocol.wrap import builds

if TYPE_CHECKING:
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.guards.ir import GuardNode
    from dynamo_lite.interp.frame import Frame


@builds(types.CodeType)
def build_code(tr: Trace, value: types.CodeType, source: GuardNode | None) -> ConstantVariable:
    tr.guard(source, ir.IS, value)
    return ConstantVariable(value, source)


@method(types.CodeType.replace)
def code_replace(tx: Frame, self: VariableTracker, /, **changes: VariableTracker) -> VariableTracker:
    host = {name: value.as_python_constant() for name, value in changes.items()}
    try:
        return ConstantVariable(self.as_python_constant().replace(**host))
    except (TypeError, ValueError, OverflowError) as error:
        tx.raises_like(error)
