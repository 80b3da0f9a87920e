"""Random number generators: the C half of `random.Random`.

Input: a real generator, or a call of its class. Output: `GeneratorStateVariable`, the native half of the model.
Invariant: what a frame draws from a generator of unknown state are values from outside, which guards read off a copy of the generator
before the graph runs; behind the graph the real one draws them once more. Numbers of a generator that the frame has seeded are constants,
and the state that it ends with is given to the real one. Who asks for the state of a generator from outside has it guarded, and it will not
come again: only the first version of a frame is compiled like that, later ones break.
Mirrors `Modules/_randommodule.c`.
"""

from __future__ import annotations

import _random
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dynamo_lite.exc import unsupported
from dynamo_lite.guards import ir
from dynamo_lite.polyfills.random import below
from dynamo_lite.variables.builtin.host_proxy import call_host, from_host, run_host, to_host
from dynamo_lite.variables.objects.subclass import NATIVE_MODELS, NATIVES, instance_class
from dynamo_lite.variables.protocol.base import VariableTracker
from dynamo_lite.variables.protocol.constant import NONE, ConstantVariable, is_none
from dynamo_lite.variables.protocol.dispatch import builtin, method
from dynamo_lite.variables.protocol.native import NativeVariable, emit_call
from dynamo_lite.variables.protocol.wrap import builds_subclasses

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.guards.ir import GuardNode
    from dynamo_lite.interp.frame import Frame


def state_of(generator: Any) -> tuple[int, ...]:
    """The state of a real generator, past its own class."""
    return _random.Random.getstate(generator)


Draw = tuple[str, int]
"""What is drawn: ("random", 0), ("getrandbits", how many), or ("below", the number that it is less than)."""

MOST_DRAWN = 16
"""Numbers that a frame may draw from one generator: each is computed from the state once more."""


MOST_VERSIONS = 4
"""A draw with so many possible results, or fewer, may be a constant of a version."""


def _draw(generator: Any, draw: Draw) -> Any:
    """A number of a generator, past its own class."""
    kind, n = draw
    if kind == "random":
        return _random.Random.random(generator)
    return _random.Random.getrandbits(generator, n) if kind == "getrandbits" else below(generator, n)


_READERS: dict[tuple[Draw, ...], Callable[[Any], Any]] = {}


def reader_of(*draws: Draw) -> Callable[[Any], Any]:
    """The function that tells the last of these numbers which a generator is going to give."""

    def random_number(generator: Any) -> Any:
        twin = _random.Random()
        twin.setstate(state_of(generator))
        return [_draw(twin, draw) for draw in draws][-1]

    kind, n = draws[-1]
    may_be_constant = kind != "random" and (n if kind == "below" else 1 << n) <= MOST_VERSIONS
    random_number.is_random = not may_be_constant  # type: ignore[attr-defined]
    return _READERS.setdefault(draws, random_number)


def _advance(generator: Any, draws: tuple[Draw, ...]) -> None:
    """Have a real generator give these numbers."""
    for draw in draws:
        _draw(generator, draw)


class GeneratorStateVariable(NativeVariable):
    """The native half of a generator. `generator` is a host generator with the state; it does not exist before it is known. `draws`: what
    the frame has drawn before."""

    cls = _random.Random
    generator: Any
    draws: tuple[Draw, ...] = ()

    def __getattr__(self, name: str) -> Any:
        if name != "generator":
            raise AttributeError(name)
        if self.draws:
            unsupported("random-state", "the state of a generator that has drawn numbers")
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

    @property
    def is_known(self) -> bool:
        """Whether the frame has given it its state."""
        return "generator" in self.__dict__

    def draw(self, tx: Frame, draw: Draw) -> VariableTracker:
        """The next number of a generator of unknown state."""
        if self.source is None:
            unsupported("random-state", "a generator without a seed")
        if len(self.draws) == MOST_DRAWN:
            unsupported("random-state", f"more than {MOST_DRAWN} numbers of a generator")
        reader = reader_of(*self.draws, draw)
        tx.tr.heap.recipes[id(reader)] = (reader_of, (*self.draws, draw))
        number, source = reader(self.value), tx.tr.source(self.source, ir.CALL, reader)
        self.changing(tx)
        self.draws = (*self.draws, draw)
        outside = tx.tr.graph.outside
        return outside.symfloat(number, source) if draw[0] == "random" else outside.symint(number, source)

    def children(self) -> Any:
        return ()

    def _emit_state(self, cg: Codegen) -> None:
        if self.is_known:
            emit_call(cg, _random.Random.setstate, self, ConstantVariable(state_of(self.generator)))
            cg.asm.pop_top()
        elif self.draws:
            emit_call(cg, _advance, self, ConstantVariable(self.draws))
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
    if not self.is_known:
        return self.draw(tx, ("random", 0))
    self.changing(tx)
    return ConstantVariable(self.generator.random())


@method(_random.Random.getrandbits)
def random_getrandbits(tx: Frame, self: VariableTracker, k: VariableTracker, /) -> VariableTracker:
    if not self.is_known and isinstance(k, ConstantVariable) and type(k.value) is int and 0 < k.value < 64:
        return self.draw(tx, ("getrandbits", k.value))
    generator = self.generator
    self.changing(tx)
    return call_host(tx, generator.getrandbits, [k])


@builtin(random.Random._randbelow_with_getrandbits)
def random_randbelow(tx: Frame, self: VariableTracker, n: VariableTracker) -> VariableTracker:
    """One draw where that is known to be all that happens."""
    is_plain = self.python_type() is random.Random and isinstance(n, ConstantVariable) and type(n.value) is int
    if is_plain and not self.is_known and 0 < n.value < 1 << 63:
        return self.draw(tx, ("below", n.value))
    return tx.call(tx.tr.build_constant_object(below), [self, n], {})


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
