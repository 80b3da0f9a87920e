"""Generators that exist before the frame.

Input: a real generator with its access path. Output: `ForeignGeneratorVariable`.
Invariant: one that has not started is followed as if the traced code had called its function; nothing real runs during the analysis.
Mirrors what `gen_traverse` of `Objects/genobject.c` shows of a generator's frame.
"""

from __future__ import annotations

import gc
import inspect
import types
from typing import TYPE_CHECKING, Any

from dynamo_lite.exc import Unsupported, unsupported
from dynamo_lite.guards import ir
from dynamo_lite.isa.canon import Op
from dynamo_lite.variables.protocol.base import Plain, VariableTracker
from dynamo_lite.variables.protocol.descr import PlainObject
from dynamo_lite.variables.protocol.wrap import builds

from .generator import GeneratorVariable

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.guards.ir import GuardNode
    from dynamo_lite.interp.frame import Frame


class ForeignGeneratorVariable(PlainObject):
    """A generator that exists before the frame. One that has not started is followed (`inner`), and closed with the other effects once
    it has come to its end; the frame of any other is CPython's, and driving it breaks the graph."""

    value: Any = Plain()
    inner: GeneratorVariable | None = None
    followed_at = -1

    def python_type(self) -> type:
        return type(self.value)

    def tp_iter(self, tx: Frame) -> VariableTracker:
        return self

    def tp_iternext(self, tx: Frame) -> VariableTracker | None:
        return self.follow(tx).tp_iternext(tx)

    def follow(self, tx: Frame) -> GeneratorVariable:
        """The model that runs. Breaks the graph for one that has started."""
        if self.inner is None:
            self.inner = self._unstarted(tx)
        return self.inner

    def _unstarted(self, tx: Frame) -> GeneratorVariable:
        parts = unstarted_parts(self.value)
        if not parts or self.value.gi_code.co_flags & inspect.CO_ITERABLE_COROUTINE:
            unsupported("generator-escapes", "next() of a generator made outside of the captured code")
        tr = tx.tr
        node = tr.source(self.source, ir.CALL, unstarted_parts)
        tr.guard(node, ir.LEN, len(parts))
        function, *variables = (tr.wrap(part, tr.source(node, ir.INDEX, i)) for i, part in enumerate(parts))
        tr.effects.mutating(self)
        self.followed_at = tr.thread.failing_step()
        frame = type(tx)(tr, function, [], tx, False)
        for slot, variable in zip(_bound_slots(frame), variables, strict=False):  # the rest are free variables
            frame.locals[slot] = variable
        frame.cur = next(i for i, instr in enumerate(frame.lifted.instrs) if instr.op is Op.RETURN_GENERATOR)
        frame.ip = frame.cur + 1
        frame.generator = GeneratorVariable(frame)
        del tr.lifetimes.generators[id(frame.generator)]  # the real one lives as long as the program keeps it
        return frame.generator

    def emit_update(self, cg: Codegen) -> None:
        if self.inner.frame is not None:
            error = Unsupported("generator-escapes", f"{self.inner.describe()} from outside that is left suspended")
            error.break_step = self.followed_at
            raise error
        cg.load_callable(types.GeneratorType.close)
        cg.load(self)
        cg.asm.call(1)
        cg.asm.pop_top()


def unstarted_parts(generator: types.GeneratorType) -> tuple[Any, ...]:
    """The function of a generator that has not started and what its variables are bound to, in the order of their slots; nothing for
    any other. (`gc` shows the variables of a frame behind its function and code.)"""
    if generator.gi_frame is None or generator.gi_running or generator.gi_suspended:
        return ()
    code = generator.gi_code
    parts = gc.get_referents(generator)
    for i, part in enumerate(parts):
        if type(part) is types.FunctionType and part.__code__ is code and parts[i + 1 : i + 2] == [code]:
            return (part, *parts[i + 2 :])
    return ()


def _bound_slots(frame: Any) -> list[int]:
    """The slots of arguments and cells, which are bound before a generator starts."""
    code, lifted = frame.code, frame.lifted
    flags = bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    n_arguments = code.co_argcount + code.co_kwonlyargcount + flags
    return [slot for slot in range(lifted.first_free_slot) if slot < n_arguments or lifted.is_cell[slot]]


@builds(types.GeneratorType)
def build_generator(tr: Trace, value: object, source: GuardNode | None) -> ForeignGeneratorVariable:
    tr.guard(source, ir.TYPE_IS, types.GeneratorType)
    return ForeignGeneratorVariable(value, source)
