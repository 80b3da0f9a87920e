"""One analysis of one frame: everything it accumulates, and the services that models and the interpreter call.

Input: a function, the real values of its bound arguments, and what earlier runs of the same analysis learned (the step to break at).
Output: after `run`, the return value's tracker; on the way the graph, the guards, the mutations.
Invariant: a run leaves no trace in the process unless `convert` commits it: nothing real is changed during the analysis.
"""

from __future__ import annotations

import builtins
import collections
import sys
import types
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from dynamo_lite import own_builtins, polyfills
from dynamo_lite._eval_frame import C_STACK_FOR_ANALYSIS, c_stack_left, runs_its_code
from dynamo_lite.config import config
from dynamo_lite.dynamism.observed_values import is_module
from dynamo_lite.exc import FirstUse, SkipFrame, Unsupported, UserFrame, unsupported
from dynamo_lite.graph import side
from dynamo_lite.guards import ir
from dynamo_lite.interp.call import bind_arguments
from dynamo_lite.interp.frame import OPS, Frame, GraphBreak, Lasti
from dynamo_lite.isa.canon import Op
from dynamo_lite.isa.codec import InstructionPlace
from dynamo_lite.isa.flow import leads_to_loop
from dynamo_lite.isa.lift import lift
from dynamo_lite.isa.resume import PREFIXES
from dynamo_lite.isa.typeobject import lookup, module_of, qualname_of
from dynamo_lite.polyfills.registry import find_polyfill
from dynamo_lite.record import Function
from dynamo_lite.variables.builtin.dict import DictVariable
from dynamo_lite.variables.builtin.iter import SequenceIteratorVariable
from dynamo_lite.variables.builtin.list import ListVariable
from dynamo_lite.variables.builtin.set import SetVariable
from dynamo_lite.variables.builtin.tuple import TupleVariable
from dynamo_lite.variables.generators.generator import ExcState
from dynamo_lite.variables.objects import classes, subclass
from dynamo_lite.variables.objects.cell import CellVariable
from dynamo_lite.variables.objects.function import FunctionVariable, MethodVariable, call_handler, call_stand_in
from dynamo_lite.variables.objects.instance import special
from dynamo_lite.variables.objects.module import GlobalsNamespace
from dynamo_lite.variables.protocol import abstract, trace_rules
from dynamo_lite.variables.protocol.base import (
    MISSING,
    UNREAD,
    LazyVariable,
    VariableTracker,
    is_lazy,
    real_object,
    running,
)
from dynamo_lite.variables.protocol.constant import ATOMIC_TYPES, ConstantVariable
from dynamo_lite.variables.protocol.descr import refuse_finalizer
from dynamo_lite.variables.protocol.dispatch import HANDLERS, slug_of_foreign
from dynamo_lite.variables.protocol.markers import apply_marks
from dynamo_lite.variables.protocol.wrap import find_builder

from .observed_sizes import note_call

if TYPE_CHECKING:
    from dynamo_lite.guards.ir import GuardNode


def _shared_slots(code: types.CodeType, values: Sequence[Any], analysis: Any) -> set[int]:
    """The variables of arguments of which one object is several, and which may be left unread."""
    if analysis.reads_arguments:
        return set()
    is_cell = lift(code).is_cell
    finalized = {slot for slot, found, _ in analysis.rebound_arguments if found is not None}
    slots: dict[int, list[int]] = {}
    for slot, value in enumerate(values):
        if value is not MISSING and type(value) not in ATOMIC_TYPES and not is_cell[slot] and slot not in finalized:
            slots.setdefault(id(value), []).append(slot)
    return {slot for same in slots.values() if len(same) > 1 for slot in same}


def _reading(handler: Any) -> Any:
    """The handler of an instruction that reads a variable."""

    def read(f: Frame, instr: Any) -> Any:
        held = f.locals[instr.arg]
        if held is not None and UNREAD in held.__dict__:
            f.tr.read_argument(f, instr.arg, held)
        return handler(f, instr)

    return read


class Trace:
    """The state of one run.

    Attributes:
        steps: instructions interpreted so far; a step number names a point of the run, since the analysis is deterministic.
        break_step: the step before which this run must stop (-1: none).
        stop_step: the next step at which `stop` is to be asked.
        items: what native code has iterated over since the last operation of the graph.
        frame: the innermost frame being interpreted.
        exc_state: the innermost `ExcState`: of the generator that runs, or of the frames around it.
    """

    def __init__(
        self, analysis: Any, function: types.FunctionType, values: tuple[Any, ...], break_step: int, hints: Any
    ) -> None:
        code = function.__code__
        self.analysis = analysis
        self.region = analysis.region
        self.function = function
        self.functions_at: dict[Any, tuple[Function, ...]] = {}  # line that needs a guard → the calls that led to it
        self.steps = 0
        self.items = 0
        self.max_items = config.max_idle_steps
        self.break_step = self.stop_step = break_step
        self.frame: Frame | None = None
        self.depth = 0
        self.exc_state = ExcState()
        self._outer = sys.exception()
        self.dynamic_hints = hints
        self.guards = ir.GuardSet(code.co_varnames, code.co_freevars)
        self.heap: dict[int, Any] = {}
        self.pinned: dict[int, Any] = {}  # those of the heap that are known by identity
        self.followed: dict[int, Any] = {}  # functions that are interpreted, by id
        self.keep_alive: list[Any] = []
        self.type_attributes: dict[tuple[int, str], VariableTracker | None] = {}  # by id: classes may not be hashable
        self.written_classes: dict[int, Any] = {}  # id of a class from outside → model with its `written` attributes
        self.written_names: set[str] = set()
        self.named: list[type] = []  # classes that the message of the next exception names
        self.new_classes: dict[int, VariableTracker] = {}  # id of the stand-in → model
        self.hashes: set[int] = set()  # of objects known by identity, as the program was told
        self.namespaces: dict[int, GlobalsNamespace] = {}
        self.literals: dict[int, VariableTracker] = {}
        self.generators: dict[int, Any] = {}  # those that the traced code has made
        self.references: dict[int, VariableTracker] = {}  # id of a model → its weak reference without a callback
        self.proxies: dict[int, VariableTracker] = {}
        self.unclosed: dict[int, Any] = {}  # those of them that wait inside a block whose end would run if they died
        self.stand_classes: dict[type, type] = {}
        self.frame_objects: dict[int, VariableTracker] = {}
        self.mutations: list[VariableTracker] = []
        self.changes = 0  # to objects that existed before
        self.cached: list[Any] = []  # results of functions with a cache that were followed
        # what has to hold when it is known what escapes: `check(tr, escaping)` raises where it does not
        self.provisos: list[Any] = []
        self.profilers: list[Any] = []  # models of those that the traced code has begun and not yet ended
        self.handlers = OPS
        # arguments with a finalizer to which the frame may hold the last references
        self.finalized: list[VariableTracker] = []
        self.ended_frames: list[Frame] | None = None  # kept if an argument may have a finalizer
        self.root_frame: Frame | None = None
        # id of an object made here → function and arguments that make its like
        self.recipes: dict[int, tuple[Any, tuple[Any, ...]]] = {}
        self.process_bound: str | None = None  # why what was found here may not hold in another process
        self.overrides: Any = None  # who sees torch functions before torch does; none yet
        self.graph = side.new_graph(self)
        self.known_operations = 0
        self._plan_stop()
        self.state = self.graph.state
        self.root = self._root_function(function)
        self.arguments = self._model_arguments(values)

    def _model_arguments(self, values: tuple[Any, ...]) -> list[VariableTracker | None]:
        """The models of the frame's arguments, None for a variable that has no value yet."""
        shared = _shared_slots(self.root.code, values, self.analysis)
        if shared:
            self.handlers = [*self.handlers]
            for op in (Op.LOAD_FAST, Op.LOAD_FAST_AND_CLEAR):
                self.handlers[op] = _reading(self.handlers[op])
        return [
            self._argument(value, self.source(None, ir.LOCAL, slot), slot in shared) if value is not MISSING else None
            for slot, value in enumerate(values)
        ]

    def release(self) -> None:
        """Let go of the program's objects, which the reference cycles of a finished run would keep until the next collection."""
        for table in (self.heap, self.frame_objects, self.generators):
            for vt in table.values():
                vt.__dict__.clear()
            table.clear()
        self.pinned.clear()
        self.followed.clear()
        self.keep_alive.clear()
        self.arguments.clear()
        self.finalized.clear()
        self.ended_frames = None
        self.frame = self.root_frame = self.root = self.function = self.analysis = self._outer = None
        self.region = None  # torch remembers answers about sizes with the environment that gave them, which leads here
        if not self.guards.is_settled:
            self.guards.abandon()
        self.exc_state = ExcState()
        self.graph.release()

    def _root_function(self, function: types.FunctionType) -> FunctionVariable:
        closure = [
            self.wrap(cell, self.source(None, ir.FREEVAR, i)) for i, cell in enumerate(function.__closure__ or ())
        ]
        try:
            namespace = self.namespace_of(function)
        except Unsupported as reason:
            raise SkipFrame(reason.context, reason) from reason
        return FunctionVariable(function.__code__, namespace, closure, function, self.constant_source(function))

    def run(self) -> VariableTracker:
        """Interpret the frame to its end."""
        self.graph.begin()
        self.root_frame = Frame(self, self.root, list(self.arguments), None, True)
        with running.by(self):
            return self.root_frame.run()

    # -- the budget

    def stop(self) -> None:
        """`stop_step` is reached: break here if this run must, or where a loop that goes on for too long began."""
        if self.steps == self.break_step:
            raise GraphBreak
        operations = self.graph.op_count
        if self.steps >= config.max_steps:
            self._too_long(config.max_steps // 2)
        if operations == self.known_operations:
            self._too_long(config.max_idle_steps // 2)
        self.known_operations = operations
        self.items = 0
        self._plan_stop()

    def _plan_stop(self) -> None:
        self.stop_step = min(self.steps + config.max_idle_steps, max(config.max_steps, 1))
        if self.steps < self.break_step:
            self.stop_step = min(self.stop_step, self.break_step)

    def _too_long(self, most: int) -> NoReturn:
        """Leave out the innermost call that took `most` of the steps; if there is no such call, the frame."""
        context = f"{self.steps} instructions, {self.graph.op_count} operations"
        frame: Any = self.frame
        while frame.parent is not None and self.steps - frame.parent.step < most:
            frame = frame.parent
        if frame.parent is None:
            frame.needs_real_frame("code-size", context)
        error = Unsupported("code-size", context)
        error.break_step = self.failing_step(frame.parent)
        raise error

    def too_many_items(self) -> NoReturn:
        """Native code iterates over more than the analysis is willing to follow."""
        unsupported("code-size", f"iteration over {self.items} items")

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
            self._alias(found, value, source)
            return found
        lazy = LazyVariable(self, value, source)
        self.heap[id(value)] = lazy
        self.keep_alive.append(value)
        return lazy

    def _argument(self, value: object, source: GuardNode | None, is_shared: bool) -> Any:
        return LazyVariable(self, value, source, **{UNREAD: True}) if is_shared else self.wrap(value, source)

    def read_argument(self, frame: Frame, slot: int, unread: Any) -> None:
        """The frame reads a variable that holds an argument which another variable holds as well: from now on it matters that they do."""
        frame.locals[slot] = self.wrap(real_object(unread), unread.__dict__["source"])
        self.arguments = [frame.locals[slot] if vt is unread else vt for vt in self.arguments]

    def _alias(self, found: Any, value: object, source: GuardNode | None) -> None:
        """A second path to a known object: the paths must keep leading to one object."""
        first = found.__dict__["source"]
        if first is source or first is None:
            return
        if ir.CONST in (first.kind, source.kind) or _is_made_once(value):
            # A tracker that is only compared by identity is never looked at, and gets no guard of its model: both paths are guarded here.
            self.guard(first, ir.IS, value)
            self.guard(source, ir.IS, value)
        else:
            self.guards.same(first, source, self.here())

    def build(self, value: object, source: GuardNode | None) -> VariableTracker:
        """The model of a real object, with its guards."""
        if type(value) in ATOMIC_TYPES:
            return self._build_atomic(value, source)
        if type(value) is dict and id(value) in self.namespaces and self.namespaces[id(value)].mutated:
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

    def wrap_new(self, value: Any) -> VariableTracker | None:
        """The model of a value that the analysis computed; None if it has no model. Containers are taken over as new ones."""
        cls = type(value)
        if cls in ATOMIC_TYPES:
            return ConstantVariable(value)
        if cls in _NEW_CONTAINERS:
            items = [self.wrap_new(v) for v in value]
            return None if any(i is None for i in items) else _NEW_CONTAINERS[cls](items)
        if cls is dict:
            result = DictVariable()
            for key, item in value.items():
                result.mp_ass_subscript(self.frame, self.wrap_new(key), self.wrap_new(item))
            return result
        if cls is bytearray:
            return None
        return self.build_constant_object(value)

    def build_constant_object(self, value: object) -> VariableTracker:
        """An object whose identity the analysis knows: a function, class, module, dtype, the result of folding …"""
        found = self.pinned.get(id(value))  # it is alive: the heap keeps what it has met
        if found is not None:
            return found
        if type(value) in ATOMIC_TYPES:
            return ConstantVariable(value)
        if issubclass(type(value), type) and id(value) in self.new_classes:
            return self.new_classes[id(value)]
        found = self.pinned[id(value)] = self.wrap(value, self.constant_source(value))
        return found

    wrap_callable = build_constant_object
    type_tracker = build_constant_object

    def literal(self, value: Any) -> VariableTracker:
        """LOAD_CONST: constants of code objects, tuples and frozensets of such included."""
        if type(value) in ATOMIC_TYPES:
            return ConstantVariable(value)
        if type(value) is InstructionPlace:
            return Lasti(2 * value)
        found = self.literals.get(id(value))
        if found is None:
            found = ConstantVariable(value) if type(value) is types.CodeType else self.wrap_new(value)
            self.literals[id(value)] = found
        return found

    def namespace(self, globals_: dict[str, Any]) -> GlobalsNamespace:
        """The model of a module's globals."""
        found = self.namespaces.get(id(globals_))
        if found is None:
            names = globals_.get("__builtins__", builtins)
            names = names.__dict__ if isinstance(names, types.ModuleType) else names
            fixed = globals_ is own_builtins.OWN or globals_.get("__package__") == polyfills.__name__
            if "__builtins__" in globals_ and not fixed:
                node = self.source(self.constant_source(globals_), ir.DICT_ITEM, "__builtins__")
                self.guard(node, ir.IS, globals_["__builtins__"])
            below = self.namespace(names) if names is not globals_ and names is not None else None
            found = GlobalsNamespace(globals_, below, self.constant_source(globals_))
            found.is_fixed = fixed
            self.namespaces[id(globals_)] = found
        return found

    def namespace_of(self, function: types.FunctionType) -> GlobalsNamespace:
        """The globals of a real function, which has the builtins that they named when it was made."""
        found = self.namespace(function.__globals__)
        known = found.builtins.value if found.builtins is not None else found.value
        if function.__builtins__ is not known:
            unsupported("call-skipped-function", f"{function.__qualname__} has builtins of its own")
        return found

    # -- lifetimes

    def dropped(self, tx: Frame, values: Any, *kept: Any) -> None:
        """References to these are gone: a generator that nothing else leads to ends here. `kept`: what a frame gives back."""
        for vt in values:
            if id(vt) in self.unclosed and not self.is_reachable(vt, kept):
                vt.finalize(tx)

    def is_reachable(self, wanted: object, roots: object = ()) -> bool:
        """Whether a frame, a changed object or an exception that is handled leads to an object."""
        return any(vt is wanted for vt in self.reachable(roots))

    def reachable(self, roots: Any = ()) -> Iterator[Any]:
        """The trackers that frames, changed objects and the exception that is handled refer to. Objects from before the frame are not
        searched."""
        # The nearest first: what is asked for is mostly a few steps from a variable of the innermost frame.
        pending: collections.deque[Any] = collections.deque()
        frame, state = self.frame, self.exc_state
        while frame is not None:
            pending.extend(frame.held())
            frame = frame.parent
        pending.extend(roots)
        while state is not None:
            pending.append(state.value)
            state = state.previous
        for vt in self.mutations:
            pending.extend(vt.children())
        seen = set()
        while pending:
            vt = pending.popleft()
            yield vt
            if vt is not None and id(vt) not in seen and not is_lazy(vt) and vt.source is None:
                seen.add(id(vt))
                if not vt.holds_weakly:
                    pending.extend(vt.children())

    # -- the exception being handled

    @property
    def handled(self) -> VariableTracker | None:
        """The exception that the traced code handles (`_PyErr_GetTopmostException`), or None."""
        state: Any = self.exc_state
        while state is not None and state.value is None:
            state = state.previous
        return None if state is None else state.value

    def active_exception(self) -> VariableTracker | None:
        """The exception that a bare `raise` raises, or None."""
        return self.handled or self.outer_exception()

    def outer_exception(self) -> Any:
        """The exception that the caller of the frame handles, or None. It is guarded here, when the traced code asks for it."""
        node = self.source(self.constant_source(sys), ir.CALL, _current_exception)
        if self._outer is None:
            self.guard(node, ir.IS, None)
            return None
        return self.wrap(self._outer, node)

    # -- guards and mutation

    def guard(self, source: GuardNode | None, kind: int, arg: object = None) -> None:
        """Require a property of what `source` leads to."""
        if source.kind != ir.CONST or kind in (ir.LEN, ir.DICT_KEYS, ir.HAS_KEY, ir.LACKS_KEY):
            self.guards.check(source, kind, arg, self.line_of_guard())

    def line_of_guard(self) -> tuple[str, int] | None:
        """The user's line now, which needs a guard."""
        line = self.here()
        if line not in self.functions_at:
            self.functions_at[line] = self.functions()
        return line

    def bound_to_process(self, reason: str) -> None:
        """Something was looked at that is another thing in each process, and that no guard compares."""
        self.process_bound = self.process_bound or reason

    def expect(self, source: GuardNode | None) -> None:
        """Require that a path leads to something: a value that is merely passed on, or dropped, is never looked at."""
        if source.kind != ir.CONST:
            self.guards.expect(source, self.here())

    def mutating(self, vt: VariableTracker) -> None:
        """Announce the change of an object. One that existed before must know how to replay the change."""
        if vt.source is None:
            return
        self.changes += 1
        if vt.mutated:
            return
        if getattr(vt.emit_update, "__func__", None) is VariableTracker.emit_update:
            unsupported("mutation-of-unknown-object", vt.describe())
        if type(vt.value) is dict and is_namespace(vt.value) and type(vt) is not GlobalsNamespace:
            # Names are looked up in the namespace's own model, which would not see the change.
            unsupported("mutation-of-unknown-object", f"the dictionary of module {vt.value.get('__name__')}")
        vt.mutated, vt.mutated_at = True, self.failing_step()
        self.mutations.append(vt)

    def guard_distinct(self) -> None:
        """Objects that were changed must not be the same as others of their type at the next call: the change would show there too.
        Nor must those that are keys."""
        changed = {id(self._owner(vt)): self._owner(vt) for vt in self.mutations}
        types_ = {vt.python_type() for vt in changed.values()}
        known = list(self.heap.values())  # asking a model for its type may read more of the program's objects
        for cls in types_:
            group = [vt for vt in known if not is_lazy(vt) and is_sourced(vt) and vt.python_type() is cls]
            if cls is dict:
                group = [vt for vt in group if id(vt) in changed or self._owner(vt) is vt]
            self.guards.distinct([vt.source for vt in group], self.here())
        self._guard_distinct_dicts(known)
        self.guards.tell_apart()

    def _guard_distinct_dicts(self, known: list[VariableTracker]) -> None:
        """Two objects may have one `__dict__`, and two modules one `_parameters`: a store to an attribute of either changes it."""
        sourced = [vt for vt in known if not is_lazy(vt) and is_sourced(vt)]
        for is_such in (_is_instance_dict, _is_module_dict):
            dicts = [vt for vt in sourced if is_such(vt.source)]
            if any(vt.mutated for vt in dicts):
                self.guards.distinct([vt.source for vt in dicts], self.here())

    def _owner(self, vt: VariableTracker) -> VariableTracker:
        """The instance whose attribute dictionary `vt` is (nn.Module keeps three more), else `vt`: such a dictionary is nobody else's."""
        node = vt.source.parent if _is_module_dict(vt.source) else vt.source
        if not _is_instance_dict(node):
            return vt
        return next((o for o in self.heap.values() if o.__dict__["source"] is node.parent), vt)

    def identical(self, v: VariableTracker, w: VariableTracker) -> bool:
        """`v is w` where the program asks: constants from outside are known by their values, which two objects may share."""
        same = self.same_object(v, w)
        if v is not w and isinstance(v, ConstantVariable) and isinstance(w, ConstantVariable):
            a, b = v.value, w.value
            alike = same or (type(a) is type(b) and (a == b or (a != a and b != b)))
            if alike and _is_known_by_value(v) and _is_known_by_value(w):
                if same:
                    self.guards.same(v.source, w.source, self.here())
                else:
                    self.guards.distinct((v.source, w.source), self.here())
        return same

    def same_object(self, v: VariableTracker, w: VariableTracker) -> bool:
        """`v is w`, except that of equal constants none needs to be a certain one."""
        if v is w:
            return True
        if (v.is_one_of_several or w.is_one_of_several) and v.python_type() is w.python_type():
            unsupported("data-dependent-branch", "which one of two tensors it is")
        if v.is_symbolic or w.is_symbolic:
            if v.python_type() is not w.python_type():
                return False
            v, w = (vt.constant() if vt.is_symbolic else vt for vt in (v, w))
        if isinstance(v, ConstantVariable) or isinstance(w, ConstantVariable):
            same = v.value is w.value and v.value is not MISSING
            if self.cached and not same and v.python_type() is w.python_type():
                self._check_cached(v, w)
            return same
        if (
            is_sourced(v)
            and is_sourced(w)
            and not isinstance(v, ConstantVariable)
            and not isinstance(w, ConstantVariable)
        ):
            self.guards.distinct((v.source, w.source), self.here())
        if self.cached:
            self._check_cached(v, w)
        return False

    def comes_from_cache(self, vt: VariableTracker) -> Any:
        """The result of a followed function with a cache that has this object; None if there is none."""
        return next((result for result in self.cached if result.holds(vt)), None)

    def _check_cached(self, v: VariableTracker, w: VariableTracker) -> None:
        """Raise `Unsupported` if one object is in a cache, where it may be the other one."""
        for vt, other in ((v, w), (w, v)):
            found = self.comes_from_cache(vt)
            if found is not None and (is_sourced(other) or self.comes_from_cache(other) is not None):
                raise found.error

    def identity_hash(self, vt: VariableTracker) -> VariableTracker:
        """The default hash as a number. It differs from run to run: known for an object that modules and classes keep."""
        value = vt.value
        if (
            value is not MISSING
            and not is_lazy(vt)
            and lookup(type(value), "__hash__") in (object.__hash__, type.__hash__)
        ):
            if vt.source is not None and vt.source.root.kind == ir.CONST and not self.is_new_class(value):
                self.guard(vt.source, ir.IS, value)
                self.bound_to_process("an object's hash")
                number = object.__hash__(value)
                self.hashes.add(number)
                return ConstantVariable(number)
        return unsupported("object-identity", f"hash of {vt.describe()}")

    def is_new_class(self, value: object) -> bool:
        """True for what stands for a class that the traced code made."""
        return id(value) in self.new_classes

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
    new_class_attribute = staticmethod(classes.new_class_attribute)

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

    def sequence_iterator(self, v: VariableTracker) -> VariableTracker:
        """`PySeqIter_New`."""
        return SequenceIteratorVariable(v)

    def unpack(self, tx: Frame, v: VariableTracker) -> list[VariableTracker]:
        """All items of an iterable."""
        return abstract.unpack(self.frame, v)

    # -- calls

    def inline(
        self, tx: Frame, fn: FunctionVariable, args: list[Any], kwargs: dict[str, Any], direct: bool
    ) -> VariableTracker:
        """Call a Python function: its handler if it has one, else interpret it in a new frame."""
        real = fn.value
        if real is not MISSING and id(real) not in self.followed:
            if not runs_its_code(real):
                unsupported("call-c-function", f"{real.__qualname__}, whose calls go elsewhere")
            handler = HANDLERS.get(real)
            if handler is not None:
                return call_handler(tx, real, handler, args, kwargs)
            marked = apply_marks(tx, real, args, kwargs)
            if marked is not None:
                return marked
            polyfill = find_polyfill(real)
            if polyfill is not None:
                return call_stand_in(tx, real, polyfill, args, kwargs)
            reason = trace_rules.why_not_inlined(real)
            if reason is not None:
                target = trace_rules.transparent_target(real)
                if target is None and real in getattr(self.region.backend, "dynamo_lite_ignores", ()):
                    return ConstantVariable(None)
                if target is None and trace_rules.looks_at_callers(real):
                    tx.needs_real_callers(*reason)
                if target is None and trace_rules.is_of_first_use(real):
                    raise FirstUse(*reason)
                if target is None:
                    unsupported(*reason)
                return tx.call(self.build_constant_object(target), args, kwargs)
            self.followed[id(real)] = real
        bound = bind_arguments(tx, fn, args, kwargs)
        if self.region.breaks_inside(fn.code, bound):
            note_call(self, fn.code, bound)
            unsupported("breaks-inside", fn.describe())
        frame = Frame(self, fn, bound, tx, direct)
        self.enter(fn)
        try:
            return frame.run()
        finally:
            self.depth -= 1

    def enter(self, fn: FunctionVariable) -> None:
        """One frame more; who calls this counts `depth` down again."""
        if self.depth >= config.max_inline_depth or c_stack_left() < C_STACK_FOR_ANALYSIS // 2:
            self.too_deep(fn)
        self.depth += 1

    def too_deep(self, fn: FunctionVariable) -> NoReturn:
        """Leave out the outermost frame's call. (After a break further in, the continuation of the whole stack would be as deep, and
        come here again.) Recursion without end then reaches the limit of real frames, with one version of each function."""
        error = Unsupported("recursion-limit", fn.describe())
        error.break_step = self.frame.eager_step()
        raise error

    def run_class_body(self, tx: Frame, body: FunctionVariable, namespace: DictVariable) -> VariableTracker:
        """Run a class statement's body in its namespace; its `__class__` cell, or None."""
        frame = Frame(self, body, [], tx, False)
        frame.class_namespace = namespace
        return frame.run()

    def call_foreign(self, tx: Frame, fn: Any, args: list[Any], kwargs: dict[str, Any]) -> VariableTracker:
        """A callable without bytecode, handler, polyfill or place in the graph."""
        owner = getattr(fn, "__objclass__", None) or getattr(fn, "__module__", None)
        name = getattr(fn, "__qualname__", repr(fn))
        context = name if owner is None or isinstance(owner, type) else f"{owner}.{name}"
        return unsupported(slug_of_foreign(fn), context)

    # -- where the program is

    def here(self) -> tuple[str, int] | None:
        """The user's (file, line) now."""
        f = self.frame
        known = f.lifted.lines[f.cur] if f is not None else None
        if known is not None:
            return known
        while f is not None and trace_rules.is_internal(f.code):
            f = f.parent
        return f.user_line() if f is not None else None

    def functions(self) -> tuple[Function, ...]:
        """The functions that are followed now, innermost first."""
        found, f = [], self.frame
        while f is not None:
            found.append(Function.of(f.code))
            f = f.parent
        return tuple(found)

    def user_stack(self) -> list[UserFrame]:
        """The user's frames now, outermost first."""
        stack = []
        f = self.frame
        while f is not None:
            if not trace_rules.is_internal(f.code):
                pos = f.lifted.instrs[f.cur].pos
                lineno = pos[0] or f.code.co_firstlineno
                stack.append(UserFrame(f.code.co_filename, lineno, f.code.co_name, "", pos[2], pos[3], pos[1]))
            f = f.parent
        return stack[::-1]

    def loops_follow(self) -> bool:
        """Whether there are loops of the program still to come around the current frame; those of modules go through their parts."""
        frame = self.frame
        while frame is not None:
            own = _own_locals(frame)
            first = own[0].content if own and type(own[0]) is CellVariable else next(iter(own), MISSING)
            of_module = first is not MISSING and is_module(real_object(first))
            if (
                not of_module
                and not trace_rules.is_of_torch(frame.globals.value)
                and leads_to_loop(frame.lifted, frame.cur)
            ):
                return True
            frame = frame.parent
        return False

    def failing_step(self, frame: Frame | None = None) -> int:
        """The step at which the next run has to break because the current instruction of `frame` (default: the innermost) failed: the
        innermost step from which every frame above can be resumed."""
        f = frame if frame is not None else self.frame
        step = f.step if f is not None else self.steps
        while f is not None and f.parent is not None:
            if not (f.direct and config.nested_graph_breaks) or _is_never_cut(f):
                step = f.call_step
            f = f.parent
        return step


def _is_never_cut(f: Frame) -> bool:
    return trace_rules.is_internal(f.code) or trace_rules.is_one_step(f.globals.value)


def _own_locals(frame: Frame) -> list[Any]:
    """The variables of a frame without those that continue another one's stack."""
    own = zip(frame.lifted.local_names, frame.locals, strict=True)
    return [value for name, value in own if not name.startswith(PREFIXES)]


def _current_exception(_: object) -> BaseException | None:
    return sys.exception()


_MODULE_DICTS = frozenset({"_parameters", "_buffers", "_modules"})


def _is_instance_dict(node: ir.GuardNode) -> bool:
    return node.kind == ir.INSTANCE_DICT


def _is_module_dict(node: ir.GuardNode) -> bool:
    return node.kind == ir.DICT_ITEM and node.arg in _MODULE_DICTS and _is_instance_dict(node.parent)


_NEW_CONTAINERS: dict[type, Any] = {
    tuple: TupleVariable,
    list: ListVariable,
    set: SetVariable.of,
    frozenset: SetVariable.frozen,
}


def _is_known_by_value(v: VariableTracker) -> bool:
    """True for a constant from outside if another object may have its value and pass its guards."""
    value = v.value
    cached = value in _SMALL_INTS if type(value) is int else type(value) in (str, bytes) and value in _UNIT_TEXTS
    return not cached and is_sourced(v) and any(check.kind == ir.EQUALS for check in v.source.checks)


_SMALL_INTS = range(-5, 257)
_UNIT_TEXTS = frozenset({"", b""}) | {chr(i) for i in range(256)} | {bytes([i]) for i in range(256)}


def _is_made_once(value: Any) -> bool:
    """True for a function, class or module of the program's text: not made anew at each call, as one inside of a function may be."""
    cls = type(value)
    if cls is types.FunctionType:
        return "<locals>" not in value.__qualname__
    if cls is types.BuiltinFunctionType:
        return value.__self__ is None or issubclass(type(value.__self__), (types.ModuleType, type))
    return cls is types.ModuleType or (issubclass(cls, type) and "<locals>" not in _qualname(value))


_qualname = type.__dict__["__qualname__"].__get__


def is_namespace(dictionary: dict[str, Any]) -> bool:
    """True for the globals of a module or of `exec`."""
    return "__builtins__" in dictionary or "__spec__" in dictionary


def is_sourced(v: VariableTracker) -> bool:
    """True for an object that can be reached again by a path which other guards don't pin."""
    return v.source is not None and v.source.kind != ir.CONST
