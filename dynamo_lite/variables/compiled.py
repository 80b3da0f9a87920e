"""Functions wrapped by `optimize` and `disable`, met inside captured code.

Input: a real `Callable` or `Uncaptured`. Output: the wrapped function, which is followed as part of the outer capture; a model that
breaks when called.
"""

from __future__ import annotations

from typing import Any

from .. import _eval_frame
from ..exc import unsupported
from ..guards import ir
from .base import VariableTracker
from .descr import DescriptorVariable
from .function import MethodVariable
from .wrap import builds


@builds(_eval_frame.Callable)
def build_callable(tr: Any, value: Any, source: Any) -> VariableTracker:
    tr.guard(source, ir.IS, value)
    function = value._torchdynamo_orig_callable
    return tr.build(function, tr.constant_source(function))


class DisabledVariable(DescriptorVariable):
    """A function that must run as it is."""

    def tp_descr_get(self, tx: Any, obj: VariableTracker | None, cls: VariableTracker) -> VariableTracker:
        return self if obj is None else MethodVariable(self, obj)

    def tp_call(self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        return unsupported("call-skipped-function", f"{getattr(self.value, '__qualname__', self.value)} is disabled")


@builds(_eval_frame.Uncaptured)
def build_uncaptured(tr: Any, value: Any, source: Any) -> DisabledVariable:
    tr.guard(source, ir.IS, value)
    return DisabledVariable(value, source)
