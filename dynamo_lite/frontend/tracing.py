"""One analysis of one frame: everything it accumulates, and the services that models and the interpreter call.

Input: the call that is analysed, and what earlier runs of the same analysis learned (`Facts`: the step to break at, for example).
Output: after `run`, the return value's tracker; on the way the graph, the guards, the mutations.
Invariant: a run leaves no trace in the process unless `convert` commits it: nothing real is changed during the analysis.
"""

from __future__ import annotations

import inspect
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any

from dynamo_lite._eval_frame import runs_its_code
from dynamo_lite.config import config
from dynamo_lite.exc import FirstUse, unsupported
from dynamo_lite.graph import side
from dynamo_lite.guards import ir
from dynamo_lite.interp.call import bind_arguments
from dynamo_lite.interp.frame import Frame, GraphBreak
from dynamo_lite.isa.typeobject import module_of, qualname_of
from dynamo_lite.polyfills.registry import find_polyfill
from dynamo_lite.variables.builtin.dict import DictVariable
from dynamo_lite.variables.builtin.iter import SequenceIteratorVariable
from dynamo_lite.variables.builtin.list import ListVariable
from dynamo_lite.variables.builtin.set import FrozenSetVariable, SetVariable
from dynamo_lite.variables.builtin.tuple import TupleVariable
from dynamo_lite.variables.objects import subclass
from dynamo_lite.variables.objects.function import FunctionVariable, MethodVariable, call_handler, call_stand_in
from dynamo_lite.variables.objects.instance import special
from dynamo_lite.variables.protocol import abstract, trace_rules
from dynamo_lite.variables.protocol.base import MISSING, LazyVariable, VariableTracker, is_lazy, running
from dynamo_lite.variables.protocol.constant import ATOMIC_TYPES, ConstantVariable
from dynamo_lite.variables.protocol.descr import refuse_finalizer
from dynamo_lite.variables.protocol.dispatch import HANDLERS, slug_of_foreign
from dynamo_lite.variables.protocol.markers import apply_marks
from dynamo_lite.variables.protocol.wrap import find_builder

from .budget import Budget
from .class_table import Classes
from .effects import SideEffects
from .facts import Facts
from .heap import Heap
from .lifetimes import Lifetimes
from .observed_sizes import note_call
from .root import MissedCall, Root
from .thread_state import ThreadState

if TYPE_CHECKING:
    from dynamo_lite.guards.ir import GuardNode

    from .convert import Region


class Trace:
    """The state of one run.

    Attributes:
        dynamic: the region's `dynamic`; `dynamic_hints`: what is remembered of sizes and numbers in such calls.
        overrides: who sees torch functions before torch does; None: nobody yet.
        state: torch's ambient state as the traced code sees it.
    """

    def __init__(self, region: Region, call: MissedCall, facts: Facts, hints: MutableMapping[Any, Any]) -> None:
        code = call.fn.__code__
        self.region = region
        self.facts = facts
        self.dynamic = region.dynamic
        self.dynamic_hints = hints
        self.overrides: Any = None
        self.guards = ir.GuardSet(code.co_varnames, code.co_freevars)
        self.heap = Heap(self)
        self.classes = Classes()
        self.effects = SideEffects(self)
        self.lifetimes = Lifetimes(self)
        self.thread = ThreadState(self)
        self.budget = Budget(facts.break_step)
        self.graph = side.new_graph(self)
        self.state = self.graph.state
        self.root = Root(self, call)

    def release(self) -> None:
        """Let go of the program's objects, which the reference cycles of a finished run would keep until the next collection."""
        for part in (self.heap, self.lifetimes, self.root, self.thread):
            part.release()
        del self.region  # torch remembers answers about sizes with the environment that gave them, which leads here
        if not self.guards.is_settled:
            self.guards.abandon()
        self.graph.release()

    def run(self) -> VariableTracker:
        """Interpret the frame to its end."""
        self.graph.begin()
        root = self.root
        root.frame = Frame(self, root.model, list(root.arguments), None, True)
        try:
            with running.by(self):
                try:
                    result = root.frame.run()
                except GraphBreak:
                    self.effects.check_late_bodies()
                    raise
                self.thread.frame = root.frame
                self.effects.check_late_bodies()
                self.thread.frame = None
                return result
        finally:
            self.budget.end()

    # -- what the region demands

    @property
    def breaks_raise(self) -> bool:
        """Whether a graph break is an error at this point of the program, which may have changed the setting itself."""
        if self.region.fullgraph:
            return True
        settings = self.heap.get(id(config.__dict__))
        stored = None
        if settings is not None and not is_lazy(settings) and settings.mutated:
            stored = settings.stored("error_on_graph_break")
        return config.error_on_graph_break if stored is None else stored.is_python_constant() and stored.value is True

    @property
    def failing_branches(self) -> set[Any] | None:
        """The branches that the program takes too often to be checks; None where a break is an error."""
        return None if self.breaks_raise else self.region.failing

    @property
    def backend(self) -> Any:
        """The region's backend."""
        return self.region.backend

    # -- wrapping real objects

    def source(self, parent: Any, kind: int, arg: Any = None) -> Any:
        """The access path one step below `parent`."""
        return self.guards.node(parent, kind, arg)

    def constant_source(self, value: object) -> Any:
        """The path of an object that other guards pin by identity."""
        return self.guards.node(None, ir.CONST, value)

    def wrap(self, value: object, source: GuardNode | None) -> Any:
        """The tracker of a real object: one per identity, looked at lazily."""
        if type(value) in ATOMIC_TYPES:
            return LazyVariable(self, value, source)
        found = self.heap.get(id(value))
        if found is not None:
            self.heap.alias(found, value, source)
            return found
        lazy = self.heap[id(value)] = LazyVariable(self, value, source)
        self.heap.keep_alive.append(value)
        return lazy

    def build(self, value: object, source: GuardNode | None) -> VariableTracker:
        """The model of a real object, with its guards."""
        if type(value) in ATOMIC_TYPES:
            return self._build_atomic(value, source)
        if type(value) is dict and id(value) in self.heap.namespaces and self.heap.namespaces[id(value)].mutated:
            unsupported("mutation-of-unknown-object", "a module's dictionary after a global was stored")
        return find_builder(value)(self, value, source)

    def _build_atomic(self, value: object, source: GuardNode | None) -> VariableTracker:
        if type(value) is int:
            symbolic = self.graph.outside.int_if_dynamic(value, source)
            if symbolic is not None:
                return symbolic
        elif type(value) is float:
            symbolic = self.graph.outside.float_if_dynamic(value, source)
            if symbolic is not None:
                return symbolic
        singleton = value is None or value is True or value is False or value is Ellipsis or value is NotImplemented
        self.guard(source, ir.IS if singleton else ir.EQUALS, value)
        return ConstantVariable(value, source)

    def wrap_new(self, value: Any) -> VariableTracker:
        """The model of a value that the analysis computed. Containers are taken over as new ones."""
        cls = type(value)
        if cls in ATOMIC_TYPES:
            return ConstantVariable(value)
        if cls in _NEW_CONTAINERS:
            return _NEW_CONTAINERS[cls]([self.wrap_new(v) for v in value])
        if cls is set or cls is frozenset:
            return (SetVariable if cls is set else FrozenSetVariable).of(self, value)
        if cls is dict:
            result = DictVariable()
            for key, item in value.items():
                result.mp_ass_subscript(self.thread.current, self.wrap_new(key), self.wrap_new(item))
            return result
        if cls is bytearray:
            unsupported("operation-on-unknown-object", "a new bytearray")
        return self.build_constant_object(value)

    def build_constant_object(self, value: object) -> VariableTracker:
        """An object whose identity the analysis knows: a function, class, module, dtype, the result of folding …"""
        found = self.heap.pinned.get(id(value))  # it is alive: the heap keeps what it has met
        if found is not None:
            return found
        if type(value) in ATOMIC_TYPES:
            return ConstantVariable(value)
        found = self.heap.pinned[id(value)] = self.wrap(value, self.constant_source(value))
        return found

    wrap_callable = build_constant_object
    type_tracker = build_constant_object

    # -- guards

    def guard(self, source: GuardNode | None, kind: int, arg: object = None) -> None:
        """Require a property of what `source` leads to."""
        assert source is not None
        if source.kind != ir.CONST or kind in (ir.LEN, ir.DICT_KEYS, ir.HAS_KEY, ir.LACKS_KEY):
            self.guards.check(source, kind, arg, self.thread.line_of_guard())

    def expect(self, source: GuardNode | None) -> None:
        """Require that a path leads to something: a value that is merely passed on, or dropped, is never looked at."""
        assert source is not None
        if source.kind != ir.CONST:
            self.guards.expect(source, self.thread.here())

    # -- types

    def type_of(self, tx: Frame, vt: VariableTracker) -> VariableTracker:
        """`type(vt)`."""
        return self.type_tracker(vt.python_type())

    def lookup_special(self, tx: Frame, obj: VariableTracker, dunder: str) -> VariableTracker | None:
        """A special method looked up on the type and bound."""
        return special(tx, obj, dunder)

    bound_method = staticmethod(MethodVariable)
    native_class = staticmethod(subclass.native_class)
    instance_class = staticmethod(subclass.instance_class)
    sequence_iterator = staticmethod(SequenceIteratorVariable)

    def new_instance(self, tx: Frame, cls: type) -> VariableTracker:
        """A bare instance of a user class, as `object.__new__(cls)` makes it."""
        refuse_finalizer(tx, cls)
        return subclass.new_instance(self, cls)

    def construct_foreign(
        self, tx: Frame, cls: VariableTracker, args: list[Any], kwargs: dict[str, Any]
    ) -> VariableTracker | None:
        """Refuse to make instances of C classes without a model; None if `cls` can be instantiated by the ordinary algorithm."""
        if not subclass.can_instantiate(cls.value):
            unsupported(slug_of_foreign(cls.value), f"{module_of(cls.value)}.{qualname_of(cls.value)}")
        return None

    def unpack(self, tx: Frame, v: VariableTracker) -> list[VariableTracker]:
        """All items of an iterable."""
        return abstract.unpack(self.thread.current, v)

    # -- calls

    def inline(
        self, tx: Frame, fn: FunctionVariable, args: list[Any], kwargs: dict[str, Any], direct: bool
    ) -> VariableTracker:
        """Call a Python function: its handler if it has one, else interpret it in a new frame. One of torch that asks overrides is
        interpreted all the same: it is called again once they have answered."""
        real = fn.value
        asks = self.overrides is not None and real is not MISSING and self.overrides.asked_in_code(real, args, kwargs)
        if real is not MISSING and id(real) not in self.heap.followed and not asks:
            if not runs_its_code(real):
                unsupported("call-c-function", f"{real.__qualname__}, whose calls go elsewhere")
            if real in getattr(self.backend, "dynamo_lite_ignores", ()):
                return ConstantVariable(None)
            handler = HANDLERS.get(real)
            if handler is not None:
                return call_handler(tx, real, handler, args, kwargs)
            marked = apply_marks(tx, real, args, kwargs)
            if marked is not None:
                return marked
            polyfill = find_polyfill(real)
            if polyfill is not None:
                return call_stand_in(tx, real, polyfill, args, kwargs)
            if trace_rules.is_debugger(real):
                tx.needs_all_real_frames("debugger", f"{real.__module__}.{real.__qualname__}()")
            reason = trace_rules.why_not_inlined(real)
            if reason is not None:
                target = trace_rules.transparent_target(real)
                if target is None and trace_rules.looks_at_callers(real):
                    tx.needs_real_callers(*reason)
                if target is None and trace_rules.is_of_first_use(real):
                    raise FirstUse(*reason)
                if target is None:
                    unsupported(*reason)
                return tx.call(self.build_constant_object(target), args, kwargs)
            self.heap.followed[id(real)] = real
        if fn.code.co_flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
            unsupported("async", fn.code.co_qualname)
        bound = bind_arguments(tx, fn, args, kwargs)
        if self.region.inner_breaks.ask_for_call(fn.code, bound):
            note_call(self, fn.code, bound)
            unsupported("breaks-inside", fn.describe())
        frame = Frame(self, fn, bound, tx, direct)
        self.thread.enter(fn)
        try:
            return frame.run()
        finally:
            self.thread.depth -= 1

    def call_foreign(self, tx: Frame, fn: Any, args: list[Any], kwargs: dict[str, Any]) -> VariableTracker:
        """A callable without bytecode, handler, polyfill or place in the graph."""
        owner = getattr(fn, "__objclass__", None) or getattr(fn, "__module__", None)
        name = getattr(fn, "__qualname__", repr(fn))
        context = name if owner is None or issubclass(type(owner), type) else f"{owner}.{name}"
        return unsupported(slug_of_foreign(fn), context)


_NEW_CONTAINERS: dict[type, Any] = {
    tuple: TupleVariable,
    list: ListVariable,
}
