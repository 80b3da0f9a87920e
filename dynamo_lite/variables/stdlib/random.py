"""Random number generators: the C half of `random.Random`.

Input: a real generator, or a call of its class. Output: `GeneratorStateVariable`, the native half of the model.
Invariant: numbers are drawn from a copy of the generator's state, and the state that it ends with is given to the real one. A generator
from outside is guarded by its whole state, which will not come again: only the first version of a frame is compiled like that, later
ones break.
Mirrors `Modules/_randommodule.c`.
"""

from __future__ import annotations

import _random
from typing import TYPE_CHECKING, Any

from dynamo_lite.exc import unsupported
from dynamo_lite.guards import ir
from dynamo_lite.variables.builtin.host_proxy import call_host, from_host, run_host, to_host
from dynamo_lite.variables.objects.subclass import NATIVE_MODELS, NATIVES, instance_class
from dynamo_lite.variables.protocol.base import VariableTracker
from dynamo_lite.variables.protocol.constant import NONE, ConstantVariable, is_none
from dynamo_lite.variables.protocol.dispatch import builtin, method
from dynamo_lite.variables.protocol.native import NativeVariable
from dynamo_lite.variables.protocol.wrap import builds_subclasses

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.guards.ir import GuardNode
    from dynamo_lite.interp.frame import Frame


def state_of(generator: Any) -> tuple[int, ...]:
    """The state of a real generator, past its own class."""
    return _random.Random.getstate(generator)


class GeneratorStateVariable(NativeVariable):
    """The native half of a generator. `generator` is a host generator with the state; it does not exist before it is known."""

    cls = _random.Random
    generator: Any

    def __getattr__(self, name: str) -> Any:
        if name != "generator":
            raise AttributeError(name)
        if self.source is None:
            unsupported("random-state", "a generator without a seed")
        tr = self._tr
        if tr.root.call.record.entry_index:
            unsupported("random-state", self.describe())
        state = state_of(self.value)
        tr.guard(tr.source(self.source, ir.CALL, state_of), ir.EQUALS, state)
        self.generator = _random.Random()
        self.generator.setstate(state)
        return self.generator

    def children(self) -> Any:
        return ()

    def _emit_state(self, cg: Codegen) -> None:
        if "generator" in self.__dict__:
            cg.load_callable(_random.Random.setstate)
            cg.load(self)
            cg.load_const(state_of(self.generator))
            cg.asm.call(2)
            cg.asm.pop_top()

    emit_fill = emit_update = _emit_state


NATIVES[_random.Random] = NATIVE_MODELS[_random.Random] = GeneratorStateVariable


@builds_subclasses(_random.Random)
def build_generator(tr: Trace, value: object, source: GuardNode | None) -> VariableTracker:
    cls = type(value)
    tr.guard(source, ir.TYPE_IS, cls)
    model = instance_class(cls)(cls, value, source)
    model._tr = tr
    return model


@builtin(_random.Random.__new__)
def random_new(
    tx: Frame, cls: VariableTracker, /, *args: VariableTracker, **kwargs: VariableTracker
) -> VariableTracker:
    made = tx.tr.new_instance(tx, cls.value)
    if args and not is_none(args[0]):
        random_seed(tx, made, args[0])
    return made


@method(_random.Random.seed)
def random_seed(tx: Frame, self: VariableTracker, n: VariableTracker = NONE, /) -> VariableTracker:
    if is_none(n):
        return unsupported("random-state", "a seed from the system")
    generator = _random.Random()
    run_host(tx, generator.seed, [to_host(tx, n)])
    self.changing(tx)
    self.generator = generator
    return NONE


@method(_random.Random.random)
def random_random(tx: Frame, self: VariableTracker, /) -> VariableTracker:
    generator = self.generator
    self.changing(tx)
    return ConstantVariable(generator.random())


@method(_random.Random.getrandbits)
def random_getrandbits(tx: Frame, self: VariableTracker, k: VariableTracker, /) -> VariableTracker:
    generator = self.generator
    self.changing(tx)
    return call_host(tx, generator.getrandbits, [k])


@method(_random.Random.getstate)
def random_getstate(tx: Frame, self: VariableTracker, /) -> VariableTracker:
    return from_host(tx, state_of(self.generator))


@method(_random.Random.setstate)
def random_setstate(tx: Frame, self: VariableTracker, state: VariableTracker, /) -> VariableTracker:
    generator = _random.Random()
    call_host(tx, generator.setstate, [state])
    self.changing(tx)
    self.generator = generator
    return NONE
