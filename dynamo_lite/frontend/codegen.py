"""Replacement code for one frame.

Input: a finished or broken trace. Output: a code object that reads the graph's inputs, calls the compiled graph, builds what the
traced code built, replays what it changed, and then returns, or executes the breaking instruction and goes on in a resume function.
Invariant: everything is loaded before anything is stored; an object that escapes twice is built once; arguments and free variables
of the new code are those of the original.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any
from weakref import ref

from bytecode import Instr

from dynamo_lite._eval_frame import GraphCall, GraphFailed
from dynamo_lite.exc import Unsupported, unsupported
from dynamo_lite.graph import side
from dynamo_lite.guards import ir
from dynamo_lite.guards.source import emit_source, is_handed_over
from dynamo_lite.interp.frame import OPS, ExcInfo, Frame, Lasti
from dynamo_lite.isa.canon import Op
from dynamo_lite.isa.codec import make_instr
from dynamo_lite.isa.eager_fallback import Original, take_place
from dynamo_lite.isa.emit import Assembler
from dynamo_lite.isa.flow import can_be_cut
from dynamo_lite.isa.lift import LOCALS_ARE_SHARED, NULL_FIRST
from dynamo_lite.isa.resume import is_resumed, resume_code
from dynamo_lite.variables.objects.cell import CellVariable
from dynamo_lite.variables.objects.module import is_module_level
from dynamo_lite.variables.objects.traceback_object import hold_frames
from dynamo_lite.variables.protocol.base import VariableTracker, is_lazy
from dynamo_lite.variables.protocol.constant import ConstantVariable

from .finalizers import held_at_break
from .graph_break import BreakEmitter, FrameState, is_constant_value, is_null, operand_count

if TYPE_CHECKING:
    from dynamo_lite.frontend.tracing import Trace

_LOADS_FAST = frozenset({"LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_AND_CLEAR", "DELETE_FAST"})
_BINDING = frozenset({Op.STORE_FAST, Op.DELETE_FAST})
# Ops that name a global: they mean the globals of their own function.
_GLOBAL_OPS = frozenset({Op.STORE_GLOBAL, Op.DELETE_GLOBAL, Op.IMPORT_NAME})


class Codegen:
    """Builds one code object. `code` is the original, `globals` its module's dictionary."""

    def __init__(self, tr: Trace) -> None:
        self.tr = tr
        self.code: CodeType = tr.function.__code__
        self.globals = tr.function.__globals__
        self.asm = Assembler()
        self.asm.set_location(self.code.co_firstlineno)
        self.loaded: dict[int, str] = {}  # id(tracker) → local that holds the object
        self.sources: dict[int, str] = {}  # id(node) → local that holds the object
        self.named: list[Any] = []  # the trackers and nodes of these ids: none goes to another one meanwhile
        self.shared: set[int] = set()  # id(node) of path prefixes worth a local
        self.in_progress: set[int] = set()
        self.fills: list[VariableTracker] = []
        self.late_fills: list[VariableTracker] = []
        self.updated: set[int] = set()  # id(tracker) of changed objects whose changes are applied
        self.names = 0
        self.graph_out = ""
        self.graph_call = -1  # index in asm.items of the instruction that loads the compiled graph
        self.graph_args = (
            -1,
            -1,
        )  # indices of the first and behind the last instruction that calls it with the arguments pushed
        self.dropped: list[str] = []  # variables that the program binds anew or deletes while the graph would run
        self.graph: Any = None  # the GraphCall
        self.graph_failed = self.asm.label()  # where its exceptions go
        self.handed: list[Any] = []  # paths of the graph's inputs that the guards hand over to it
        self.has_break = False
        self.needed_after: set[int] = set()  # id(tracker) of what resume functions get

    # -- the vocabulary of models

    def new_local(self) -> str:
        """A fresh local variable."""
        self.names += 1
        return f"__dl_{self.names}"

    def load_const(self, value: object) -> None:
        """Push a real object; for the stand-in of a class that the traced code made, that class. Functions and classes of the
        program that may go away are not kept by the code: the guards say that they are there."""
        if id(value) in self.tr.new_classes:
            self.load(self.tr.new_classes[id(value)])
        elif (
            issubclass(type(value), (FunctionType, type))
            and self.tr.guards.is_released(value)
            and not is_module_level(value)
        ):
            self.asm.push_callable(lambda: self.asm.load_const(ref(value)))
            self.asm.call(0)
        else:
            self.asm.load_const(value)

    def load_callable(self, value: object) -> None:
        """Push a real callable and the NULL that a call wants beside it."""
        self.asm.push_callable(lambda: self.load_const(value))

    def load_source(self, node: object) -> None:
        """Push what a path leads to."""
        name = self.sources.get(id(node))
        if name is not None:
            self.asm.load_fast(name)
            return
        emit_source(self, node)
        if id(node) in self.shared:
            name = self.sources[id(node)] = self.new_local()
            self.named.append(node)
            self.asm.copy(1)
            self.asm.store_fast(name)

    def _is_handed_over(self, node: object) -> bool:
        """Whether the guards pass a value to the graph."""
        return is_handed_over(node)

    def load(self, vt: VariableTracker) -> None:
        """Push the real object of a tracker, building it first if it is new."""
        name = self.loaded.get(id(vt))
        if name is not None:
            self.asm.load_fast(name)
        elif is_constant_value(vt):
            self.load_const(vt.value)  # a sourced one is guarded by value
        elif vt.__dict__.get("source") is not None:
            self.load_source(vt.__dict__["source"])
        else:
            self._build(vt)

    def _build(self, vt: VariableTracker) -> None:
        """Push a new object, keeping it in a local for further uses; mutable ones are filled later."""
        if id(vt) in self.in_progress:
            unsupported("reconstruct", f"{vt.describe()} contains itself in a way that can't be built")
        self.in_progress.add(id(vt))
        vt.emit_new(self)
        self.in_progress.discard(id(vt))
        self._keep(vt)
        if vt.emit_fill is not None:
            self.fills.append(vt)

    def _keep(self, vt: VariableTracker) -> None:
        name = self.loaded[id(vt)] = self.new_local()
        self.named.append(vt)
        self.asm.copy(1)
        self.asm.store_fast(name)

    def load_graph_output(self, index: int) -> None:
        """Push one output of the graph."""
        self.asm.load_fast(self.graph_out)
        self.load_const(index)
        self.asm.binary_subscr()

    # -- the stages

    def finish(self, result: VariableTracker) -> CodeType:
        """Code for a trace that ran to the end of the frame."""
        self.begin([result])
        self.load(result)
        self.fill()
        self.replay()
        self.asm.return_value()
        return self.assemble()

    def begin(self, roots: list[Any], frames: Sequence[Frame] = ()) -> None:
        """Find what escapes, call the graph, and put everything that stores could disturb into locals. `frames` are those that go on."""
        # A class is known to its bases even if the program has no other reference to it.
        made = list(self.tr.new_classes.values())
        escaping = self._escaping([*roots, *made])
        self._refuse_dead_generators(escaping)
        for result in self.tr.cached:
            result.check(self.tr.graph, escaping)
        for proviso in self.tr.provisos:
            proviso.check(self.tr, escaping)
        values = [vt for vt in escaping if self._is_graph_value(vt)]
        numbers = [vt for vt in escaping if not is_lazy(vt) and vt.is_symbolic and vt.source is not None]
        numbers += [vt for vt in values if vt.formula(self.tr) is not None]
        outputs = [vt for vt in values if vt.formula(self.tr) is None]
        for vt in outputs:
            self.tr.graph.output(vt)
        self.tr.graph.part_gradients([(frame.code, frame.globals.value) for frame in frames])
        self.tr.graph.finish()
        for vt in numbers:
            self._hold(vt)  # before anything runs that might change what it is computed from
        for node in self.tr.graph.paths_to_read():
            self._read(node)
        if outputs or not self.tr.graph.is_empty:
            self.dropped = self._dropped_variables(roots, frames)
            self._call_graph()
        for function, args in self.tr.state.final_changes():
            self.load_callable(function)
            for arg in args:
                self.load_const(arg)
            self.asm.call(len(args))
            self.asm.pop_top()
        if self.tr.mutations or self.has_break:
            self._prefetch(escaping)
        self._make_classes(made)

    def _load_call(self) -> int:
        """Push the tuple of cells and all arguments, as the frame was called; how many arguments."""
        for name in self.code.co_freevars:
            self.asm.load_cell(name)
        self.asm.build_tuple(len(self.code.co_freevars))
        names = self.code.co_varnames[: _parameter_count(self.code)]
        for name in names:
            self.asm.load_fast(name)
        return len(names)

    def _make_classes(self, made: list[VariableTracker]) -> None:
        """All bare at first, since they may refer to each other; then with their attributes, before anything is made that might use
        them. A metaclass comes after its instances: its descriptors would be in the way."""
        for vt in made:
            self._hold(vt)
        for vt in reversed(made):
            self.fills.remove(vt)
            vt.emit_fill(self)

    def _refuse_dead_generators(self, escaping: list[Any]) -> None:
        """A generator that waits inside a `try` or `with` runs the end of that block when it dies. Where it has died is not
        known: such a one has to be real."""
        alive = {id(vt) for vt in escaping}
        for generator in self.tr.generators.values():
            if id(generator) not in alive and generator.ends_with_effects():
                generator.refuse_to_escape("dies unfinished")

    @staticmethod
    def _is_graph_value(vt: VariableTracker) -> bool:
        return not is_lazy(vt) and vt.source is None and getattr(vt, "proxy", None) is not None and not vt.is_rebuilt

    def _escaping(self, roots: list[Any], changed: Iterable[Any] | None = None) -> list[Any]:
        """Every tracker that the new code will need, through new and through changed objects."""
        seen: dict[int, Any] = {}
        pending = [*roots, *(self.tr.mutations if changed is None else changed)]
        while pending:
            vt = pending.pop()
            if id(vt) in seen:
                continue
            seen[id(vt)] = vt
            if is_lazy(vt) or (vt.source is not None and not vt.mutated):
                continue
            pending.extend(vt.children())
            if self.tr.new_classes and id(vt.python_type()) in self.tr.new_classes:
                pending.append(self.tr.new_classes[id(vt.python_type())])
        return list(seen.values())

    def _call_graph(self) -> None:
        """Call the compiled graph, which does not exist yet: `assemble` puts it in."""
        self.asm.begin_try(self.graph_failed)
        self.graph_call = len(self.asm.items) + NULL_FIRST
        self.load_callable(None)
        sources = [i.source for i in self.tr.graph.inputs]
        given = [s for s in sources if not self._is_handed_over(s)]
        self.handed = [s for s in sources if self._is_handed_over(s)]
        self.shared = _shared_prefixes(given)
        for source in given:
            self.load_source(source)
        self.shared = set()
        first = len(self.asm.items)
        self.asm.call(len(given))
        self.graph_args = (first, len(self.asm.items))
        self.asm.end_try()
        self.graph_out = self.new_local()
        self.asm.store_fast(self.graph_out)

    def _prefetch(self, escaping: list[Any]) -> None:
        """Read every sourced object now: later stores may change what its path leads to."""
        for vt in escaping:
            source = vt.__dict__.get("source") if id(vt) not in self.loaded else None
            if source is not None and source.kind not in (ir.CONST, ir.FREEVAR) and not is_constant_value(vt):
                self.loaded[id(vt)] = self._read(source)
                self.named.append(vt)

    def _read(self, node: object) -> str:
        """Keep what a path leads to now in a local; its name."""
        self.load_source(node)
        name = self.sources[id(node)] = self.new_local()
        self.named.append(node)
        self.asm.store_fast(name)
        return name

    def fill(self) -> None:
        """Fill the new mutable objects; filling may build more."""
        while self.fills or self.late_fills:
            if not self.fills:
                self.late_fills.pop(0).emit_fill(self)
                continue
            vt = self.fills.pop()
            if not vt.hashes_program_objects():
                vt.emit_fill(self)
                continue
            # Storing calls methods of the program, which look at what it stores: that has to be complete.
            self.late_fills.append(vt)
            for child in vt.children():
                self._hold(child)

    def replay(self) -> None:
        """Apply the changes of objects that existed before, in the order of their first change."""
        for vt in self.tr.mutations:
            for child in vt.children():
                self._hold(child)
        self.fill()
        for vt in self.tr.mutations:
            self.update(vt)
        self.fill()

    def update(self, vt: VariableTracker) -> None:
        """Apply the changes of one object, if that has not been done yet. Iterators from outside come before all others: they have taken
        their items before their containers changed (see `_check_container` in `variables/builtin/iter.py`)."""
        if id(vt) not in self.updated:
            self.updated.add(id(vt))
            for other in () if vt.is_moved_first else self.tr.mutations:
                if other.is_moved_first:
                    self.update(other)
            self.named.append(vt)
            vt.emit_update(self)

    def assemble(self) -> CodeType:
        """The code object, with the original's signature. The backend is called here: nothing can fail after it."""
        code = self.code
        if self.graph_call >= 0:
            compiled, on_failure = self.tr.analysis.compile_graph(self.tr.graph)
            sources = [i.source for i in self.tr.graph.inputs]
            handed = tuple(i for i, source in enumerate(sources) if self._is_handed_over(source))
            boxed = self._release_inputs(len(sources) - len(handed), on_failure)
            self.graph = GraphCall(boxed or compiled, len(sources), handed, on_failure, boxed is not None)
            self.asm.items[self.graph_call] = make_instr("LOAD_CONST", self.graph)
            self._after_failure()
        return self.asm.assemble(
            code.co_name,
            code.co_qualname,
            code.co_filename,
            code.co_firstlineno,
            code.co_argcount,
            code.co_posonlyargcount,
            code.co_kwonlyargcount,
            code.co_flags & 0x0C,
            code.co_varnames[: _parameter_count(code)],
            (),
            code.co_freevars,
        )

    def _release_inputs(self, n_given: int, on_failure: Any) -> Any:
        """Give the graph's inputs to it in a list, and let go of the variables that the program drops while the graph runs. What to
        call with the list; None where the frame holds its inputs until the graph has ended."""
        first, end = self.graph_args
        loaded = {item.arg for item in self.asm.items[end:] if isinstance(item, Instr) and item.name in _LOADS_FAST}
        dropped = [name for name in self.dropped if name not in loaded]
        boxed = side.release_inputs(on_failure, self.code) if dropped else None
        if boxed is None:
            return None
        asm, items = self.asm, self.asm.items
        behind = items[end:]
        del items[first:]
        # Locals of our own that the inputs were loaded through hold parts of what is dropped.
        own = {item.arg for item in items if isinstance(item, Instr) and item.name == "STORE_FAST"} - loaded
        for name in [*dropped, *sorted(own)]:
            asm.delete_fast(name)
        asm.build_list(n_given)
        asm.call(1)
        items += behind
        return boxed

    def _dropped_variables(self, roots: list[Any], frames: Sequence[Frame]) -> list[str]:
        """The arguments with tensors of which nothing is left when the trace ends: the program has bound their variables anew, or deleted
        them. Only resume functions own their arguments: callers of others hold what they pass (`Python/ceval.c`, C callables)."""
        if not is_resumed(self.code):
            return []
        root = self.tr.root_frame
        names = self.code.co_varnames[: _parameter_count(self.code)]
        bound = [
            (slot, name)
            for slot, name in enumerate(names)
            if not root.lifted.is_cell[slot] and root.locals[slot] is not self.tr.arguments[slot]
        ]
        candidates = [(slot, name) for slot, name in bound if side.holds_tensors(self.tr.analysis.values[slot])]
        if not candidates:
            return []
        held = {id(vt) for vt in self.tr.reachable([*roots, *root.held(), *(vt for f in frames for vt in f.held())])}
        return [name for slot, name in candidates if id(self.tr.arguments[slot]) not in held]

    def _after_failure(self) -> None:
        """The graph has raised: the frame starts again as the original, or the error goes on."""
        asm = self.asm
        passed_on = asm.label()
        asm.set_location(self.code.co_firstlineno)
        asm.place(self.graph_failed)
        if not self.graph.boxed:
            asm.load_const(GraphFailed)
            asm.check_exc_match()
            asm.jump_if(False, passed_on)
            asm.pop_top()
            self._start_again()
            asm.place(passed_on)
        self.load_callable(take_place)
        asm.copy(3)
        asm.call(1)
        asm.pop_top()
        asm.reraise(0)

    def _start_again(self) -> None:
        self.load_callable(Original(self.code, self.globals))
        self.asm.call(1 + self._load_call())
        self.asm.return_value()

    # -- graph breaks

    def finish_break(self, frames: list[Frame]) -> CodeType:
        """Code for a trace that stopped before the current instruction of the innermost frame; `frames` is outermost first."""
        self.has_break = True
        if self.tr.frame_objects:
            hold_frames(frames, self._escaping(held_at_break(self.tr)))
        for frame in frames:
            if not can_be_cut(frame.lifted, frame.cur, frame.snapshot is not None and LOCALS_ARE_SHARED):
                frame.needs_real_frame("frame-introspection", "a graph break in a function that looks at its own frame")
        leaf = frames[-1]
        instr = leaf.lifted.instrs[leaf.cur]
        if instr.op in _BINDING:
            return self._finish_binding(frames)
        n = operand_count(instr)
        if instr.op in _GLOBAL_OPS and leaf.globals is not frames[0].globals:
            error = Unsupported("opcode", f"{instr.op.name} in another module's function")
            error.break_step = self.tr.failing_step(leaf.parent)
            raise error
        operands = leaf.stack[len(leaf.stack) - n :]
        seen = {id(vt) for vt in self._escaping([v for v in operands if not is_null(v)])}.union(self.tr.references)
        states = [self._state(frame, n if frame is leaf else 0, seen) for frame in frames]
        roots = [v for state in states for v in state.values()] + [
            v for v in operands if is_lazy(v) or isinstance(v, VariableTracker)
        ]
        handled = self.tr.handled
        self.begin([*roots, *([handled] if handled is not None else [])], frames)
        for vt in roots:
            self._hold(vt)
        if handled is not None:
            self._hold(handled)
        self.fill()
        self.replay()
        after = [v for state in states for v in state.values()]
        if instr.op is Op.FOR_ITER:
            after += operands
        if handled is not None:
            after.append(handled)
        self._release([*after, *operands], after)
        BreakEmitter(self, frames, states).emit(instr, operands, handled)
        return self.assemble()

    def _finish_binding(self, frames: list[Frame]) -> CodeType:
        """Code for a trace that stopped where a variable is bound anew: what it held dies, then the frame resumes behind."""
        leaf = frames[-1]
        for part in leaf.lifted.instruction_at(leaf.cur):
            OPS[part.op](leaf, part)
            leaf.cur += 1
        leaf.cur -= 1
        states = [self._state(frame, 0, set(self.tr.references)) for frame in frames]
        kept = [v for state in states for v in state.values()]
        self.begin(kept, frames)
        for vt in kept:
            self._hold(vt)
        self.fill()
        self.replay()
        self._release(kept, kept)
        BreakEmitter(self, frames, states).resume_behind()
        return self.assemble()

    def _release(self, needed: list[Any], after: list[Any]) -> None:
        """Drop references whose objects the program would see alive while the breaking instruction runs: arguments (those in `needed` are
        in locals of their own by now), and objects that only building and storing needed. Operands that are not in `after`, since no resume
        function uses them, are dropped when the instruction consumes them."""
        names = {self.loaded[id(vt)] for vt in needed if id(vt) in self.loaded}
        n_args = _parameter_count(self.code)
        temporary = [f"__dl_{i}" for i in range(1, self.names + 1)]
        for name in [*self.code.co_varnames[:n_args], *temporary]:
            if name not in names:
                self.asm.load_const(None)
                self.asm.store_fast(name)
        self.sources.clear()
        self.needed_after = {id(vt) for vt in after}
        # Two variables with one object are two references to it.
        holders = Counter(self.loaded[id(vt)] for vt in after if id(vt) in self.loaded)
        for name, count in holders.items():
            for _ in range(count - 1):
                self.asm.load_fast(name)
                self.asm.store_fast(self.new_local())

    def load_operand(self, vt: VariableTracker, again: bool) -> None:
        """Push an operand of the breaking instruction; it is in nobody else's hands unless it is needed `again` or later."""
        name = self.loaded.get(id(vt))
        if name is None or again or id(vt) in self.needed_after:
            self.load(vt)
        else:
            self.asm.load_fast_and_clear(name)

    # -- resume functions

    def resume_code(
        self, frame: Frame, offset: int, entries: list[Any], names: tuple[str, ...], after: bool, mode: str
    ) -> CodeType:
        """The code that continues `frame` with these stack entries and locals. Raises CannotResume."""
        code = resume_code(
            frame.code,
            offset,
            len(entries) + (mode == "call"),
            tuple(i for i, e in enumerate(entries) if is_null(e)),
            names,
            after=after,
            mode=mode,
            exc_entries=tuple(i for i, e in enumerate(entries) if type(e) is ExcInfo),
            lasti_entries=tuple((i, e.value) for i, e in enumerate(entries) if type(e) is Lasti),
        )
        return self.tr.region.resume_code(code)

    def load_resume_function(self, code: CodeType, frame: Frame, cells: list[Any]) -> None:
        """Push the function of a resume code, with the frame's cells as its closure."""
        if not cells:
            self.load_const(self.tr.region.resume_function(code, frame.globals.value))
            return
        self.load_callable(FunctionType)
        self.load_const(code)
        self.load_const(frame.globals.value)
        self.load_const(code.co_name)
        self.load_const(None)
        for cell in cells:
            self.load(cell if cell is not None else CellVariable())
        self.asm.build_tuple(len(cells))
        self.asm.call(5)

    def load_entries(self, entries: list[Any], locals_: list[tuple[str, Any]]) -> int:
        """Push a resume function's arguments for stack entries (a str names a local of the new code) and locals; how many."""
        count = 0
        for entry in entries:
            if is_null(entry) or type(entry) is Lasti:
                continue
            count += 1
            if type(entry) is str:
                self.asm.load_fast(entry)
            else:
                self.load(entry.exc if type(entry) is ExcInfo else entry)
        for _, vt in locals_:
            self.load(vt)
        return count + len(locals_)

    def load_suspended(self, frame: Frame) -> None:
        """Push a generator suspended as the frame is: made to continue at its YIELD_VALUE, and run up to there."""
        entries = [*frame.stack, ConstantVariable(None)]
        variables = {s for s, v in enumerate(frame.locals) if v is not None and not frame.lifted.is_cell[s]}
        state = FrameState(frame, frame.stack, variables)  # all of them live as long as the generator
        locals_ = state.live_locals([frame.cur])
        offset = frame.lifted.instrs[frame.cur].offset
        code = self.resume_code(frame, offset, entries, tuple(name for name, _ in locals_), False, "value")
        self.asm.push_callable(lambda: self.load_resume_function(code, frame, state.cells))
        self.asm.call(self.load_entries(entries, locals_))
        generator = self.new_local()
        self.asm.store_fast(generator)
        self.load_callable(next)
        self.asm.load_fast(generator)
        self.asm.call(1)
        self.asm.pop_top()
        self.asm.load_fast(generator)

    def _hold(self, vt: VariableTracker) -> None:
        """Have the object in a local before the breaking instruction runs."""
        if id(vt) in self.loaded or is_constant_value(vt):
            return
        self.load(vt)
        if id(vt) not in self.loaded:
            self._keep(vt)
        self.asm.pop_top()

    def _state(self, frame: Frame, n_operands: int, seen: set[int]) -> FrameState:
        seen = seen.union(id(vt) for vt in frame.locals if vt is not None and self._holds_finalized(vt))
        return FrameState(frame, frame.stack[: len(frame.stack) - n_operands], seen)

    def _holds_finalized(self, vt: VariableTracker) -> bool:
        """Whether the end of an object would be the end of an argument with a finalizer."""
        wanted = self.tr.finalized
        return bool(wanted) and any(held is found for found in wanted for held in self._escaping([vt], ()))


def _parameter_count(code: CodeType) -> int:
    return code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08)


def _shared_prefixes(nodes: list[Any]) -> set[int]:
    """The inner nodes of paths on which more than one of these nodes lies."""
    seen: set[int] = set()
    shared: set[int] = set()
    for node in nodes:
        parent = node.parent
        while parent is not None and parent.parent is not None:
            if id(parent) in seen:
                shared.add(id(parent))
                break
            seen.add(id(parent))
            parent = parent.parent
    return shared
