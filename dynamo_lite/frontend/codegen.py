"""Replacement code for one frame.

Input: a finished or broken trace. Output: a code object that reads the graph's inputs, calls the compiled graph, builds what the
traced code built, replays what it changed, and then returns, or executes the breaking instruction and goes on in a resume function.
Invariant: everything is loaded before anything is stored; an object that escapes twice is built once; arguments and free variables
of the new code are those of the original.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from sys import intern
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from dynamo_lite._eval_frame import Reference, UncapturedFunction
from dynamo_lite.exc import Unsupported, unsupported
from dynamo_lite.guards import ir
from dynamo_lite.guards.source import emit_source
from dynamo_lite.interp.frame import OPS, Frame
from dynamo_lite.isa.canon import Op
from dynamo_lite.isa.eager_fallback import Interrupted, Original
from dynamo_lite.isa.emit import CO_VARARGS, CO_VARKEYWORDS, Assembler
from dynamo_lite.isa.flow import LEAD_TO_CALLERS, can_be_cut
from dynamo_lite.isa.lift import LOCALS_ARE_SHARED
from dynamo_lite.isa.typeobject import mro_of
from dynamo_lite.variables.objects.function import MethodVariable
from dynamo_lite.variables.objects.module import is_module_level
from dynamo_lite.variables.objects.traceback_object import hold_frames
from dynamo_lite.variables.protocol.base import MISSING, VariableTracker, is_lazy, real_object
from dynamo_lite.variables.protocol.deferred_str import LateText

from .finalizers import held_at_break
from .graph_break import BreakEmitter, is_unbound, operand_count
from .graph_call import GraphCallSite
from .replay import Replay
from .resume_call import is_constant_value, is_null, load_suspended, state_of

if TYPE_CHECKING:
    from bytecode import Label

    from dynamo_lite.graph.builder import GraphBuilder

    from .tracing import Trace

_BINDING = frozenset({Op.STORE_FAST, Op.DELETE_FAST})
# Ops that name a global: they mean the globals of their own function.
_GLOBAL_OPS = frozenset({Op.STORE_GLOBAL, Op.DELETE_GLOBAL, Op.IMPORT_NAME})


def _makes_class(operand: Any) -> bool:
    """Whether calling an operand may make a class in C, which takes the name of its module from the globals of the frame that calls."""
    real = None if is_null(operand) else real_object(operand)
    return real is type.__new__ or (issubclass(type(real), type) and type in mro_of(real))


def _asks_for_callers(operand: Any) -> bool:
    """Whether an operand is a function of Python, captured or not, whose own code names what leads to the frame that called it."""
    function = operand.function if isinstance(operand, MethodVariable) else operand
    real = MISSING if is_null(function) else real_object(function)
    while type(real) is UncapturedFunction:
        real = real.__wrapped__
    return type(real) is FunctionType and not LEAD_TO_CALLERS.isdisjoint(real.__code__.co_names)


class Codegen:
    """Builds one code object. `code` is the original, `globals` its module's dictionary."""

    def __init__(self, tr: Trace, compile_graph: Callable[[GraphBuilder], tuple[Any, Any]]) -> None:
        self.tr = tr
        self.code: CodeType = tr.root.function.__code__
        self.globals = tr.root.function.__globals__
        self.asm: Assembler = Assembler()
        self.asm.set_location(self.code.co_firstlineno)
        self.loaded: dict[int, str] = {}  # id(tracker) → local that holds the object
        self.sources: dict[int, str] = {}  # id(node) → local that holds the object
        self.named: list[Any] = []  # the trackers and nodes of these ids: none goes to another one meanwhile
        self.shared: set[int] = set()  # id(node) of path prefixes worth a local
        self.in_progress: set[int] = set()
        self.replay = Replay()
        self.graph_call = GraphCallSite(self, compile_graph)
        # Where exceptions of the breaking instruction go, and of what is written before it.
        self.failed: Label | None = None
        self.names = 0
        self.needed_after: set[int] = set()  # id(tracker) of what resume functions get

    # -- the vocabulary of models

    def new_local(self) -> str:
        """A fresh local variable."""
        self.names += 1
        return f"__dl_{self.names}"

    def load_const(self, value: object) -> None:
        """Push a real object. Functions and classes of the program that may go away are not kept by the code: the guards say that they
        are there."""
        if (
            issubclass(type(value), (FunctionType, type))
            and self.tr.guards.is_released(value)
            and not is_module_level(value)
        ):
            self.asm.push_callable(lambda: self.asm.load_const(Reference(value)))
            self.asm.call(0)
        elif type(value) is str and _would_be_interned(value):
            self.asm.load_const([value])
            self.asm.load_const(0)
            self.asm.binary_subscr()
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
            self.asm.copy(1)
            self._store(node, self.sources)

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
            self.replay.fills.append(vt)

    def _keep(self, vt: VariableTracker) -> None:
        self.asm.copy(1)
        self._store(vt, self.loaded)

    def _store(self, what: object, names: dict[int, str]) -> str:
        """Pop an object into a fresh local, by which it is known from now on; its name."""
        name = names[id(what)] = self.new_local()
        self.named.append(what)
        self.asm.store_fast(name)
        return name

    def load_graph_output(self, index: int) -> None:
        """Push one output of the graph."""
        self.graph_call.load_result(self, index)

    def load_suspended(self, frame: Frame) -> None:
        """Push a generator suspended as the frame is."""
        load_suspended(self, frame)

    # -- the stages

    def finish(self, result: VariableTracker) -> CodeType:
        """Code for a trace that ran to the end of the frame."""
        self.begin([result])
        self.load(result)
        self.replay.emit(self)
        self.asm.return_value()
        return self.assemble()

    def begin(self, roots: list[Any], frames: Sequence[Frame] = ()) -> None:
        """Find what escapes, call the graph, and put everything that stores could disturb into locals. `frames` are those that go on."""
        escaping = self.escaping(roots)
        self._refuse_dead_generators(escaping)
        for result in self.tr.effects.cached:
            result.check(self.tr.graph, escaping)
        for proviso in self.tr.effects.provisos:
            proviso.check(self.tr, escaping)
        values = [vt for vt in escaping if _is_graph_value(vt)]
        numbers = [vt for vt in escaping if not is_lazy(vt) and vt.is_symbolic and vt.source is not None]
        numbers += [vt for vt in values if vt.formula(self.tr) is not None]
        outputs = [vt for vt in values if vt.formula(self.tr) is None]
        for vt in outputs:
            self.tr.graph.output(vt)
        self.tr.graph.part_gradients([(frame.code, frame.globals.value) for frame in frames])
        self.tr.graph.finish()
        for vt in numbers:
            self.hold(vt)  # before anything runs that might change what it is computed from
        for node in self.tr.graph.paths_to_read():
            self._read(node)
        self._read_clocks(escaping, True)
        if outputs or not self.tr.graph.is_empty:
            self.graph_call.emit(self, roots, frames)
        self._read_clocks(escaping, False)
        _change_state(self, escaping)
        if self.tr.effects.mutations or frames:
            self._prefetch(escaping)

    def _read_clocks(self, escaping: list[Any], early: bool) -> None:
        """Have the times in locals that are wanted, in the order in which the program asked for them."""
        for reading in self.tr.effects.clocks:
            if reading.is_early is early and any(vt is reading for vt in escaping):
                self.hold(reading)

    def parameters(self) -> tuple[str, ...]:
        """The variables of the frame that are arguments."""
        code = self.code
        variadic = bool(code.co_flags & CO_VARARGS) + bool(code.co_flags & CO_VARKEYWORDS)
        return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + variadic]

    def load_own_call(self) -> int:
        """Push the tuple of cells and all arguments, as the frame was called; how many arguments."""
        for name in self.code.co_freevars:
            self.asm.load_cell(name)
        self.asm.build_tuple(len(self.code.co_freevars))
        names = self.parameters()
        for name in names:
            self.asm.load_fast(name)
        return len(names)

    def _refuse_dead_generators(self, escaping: list[Any]) -> None:
        """A generator that waits inside a `try` or `with` runs the end of that block when it dies. Where it has died is not
        known: such a one has to be real."""
        alive = {id(vt) for vt in escaping}
        for generator in self.tr.lifetimes.generators.values():
            if id(generator) not in alive and generator.ends_with_effects():
                generator.refuse_to_escape("dies unfinished")

    def escaping(self, roots: list[Any], changed: Iterable[Any] | None = None) -> list[Any]:
        """Every tracker that the new code will need, through new and through changed objects."""
        seen: dict[int, Any] = {}
        pending = [*roots, *(self.tr.effects.mutations if changed is None else changed)]
        while pending:
            vt = pending.pop()
            if id(vt) in seen:
                continue
            seen[id(vt)] = vt
            if is_lazy(vt) or (vt.source is not None and not vt.mutated):
                continue
            pending.extend(vt.children())
        return list(seen.values())

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
        return self._store(node, self.sources)

    def assemble(self) -> CodeType:
        """The code object, with the original's signature. The backend is called here: nothing can fail after it."""
        code = self.code
        self.graph_call.compile(self)
        made = self.asm.assemble(
            code.co_name,
            code.co_qualname,
            code.co_filename,
            code.co_firstlineno,
            code.co_argcount,
            code.co_posonlyargcount,
            code.co_kwonlyargcount,
            code.co_flags & 0x0C,
            self.parameters(),
            (),
            code.co_freevars,
        )
        self.graph_call.release(made)
        return made

    def start_again(self, is_interrupted: bool = False) -> None:
        """Return what the original returns for the arguments of the frame. `is_interrupted`: the exception on top of the stack comes up in
        it."""
        self.load_callable((Interrupted if is_interrupted else Original)(self.code, self.globals))
        count = self.load_own_call()
        if is_interrupted:
            self.asm.copy(count + 4)
            count += 1
        self.asm.call(1 + count)
        if is_interrupted:
            self.asm.swap(2)
            self.asm.pop_top()
        self.asm.return_value()

    # -- graph breaks

    def finish_break(self, frames: list[Frame]) -> CodeType:
        """Code for a trace that stopped before the current instruction of the innermost frame; `frames` is outermost first."""
        if self.tr.lifetimes.frame_objects:
            hold_frames(frames, self.escaping(held_at_break(self.tr)))
        for frame in frames:
            if not can_be_cut(frame.lifted, frame.cur, frame.snapshot is not None and LOCALS_ARE_SHARED):
                frame.needs_real_frame("frame-introspection", "a graph break in a function that looks at its own frame")
        leaf = frames[-1]
        instr = leaf.lifted.instrs[leaf.cur]
        if instr.op in _BINDING and not is_unbound(leaf, instr):
            return self._finish_binding(frames)
        n = operand_count(instr)
        operands = leaf.stack[len(leaf.stack) - n :]
        if leaf.globals is not frames[0].globals and (instr.op in _GLOBAL_OPS or any(map(_makes_class, operands[:2]))):
            raise self._before_the_call(leaf, instr.op, self.tr.thread.failing_step(leaf.parent))
        if len(frames) > 1 and any(map(_asks_for_callers, operands[:2])):
            raise self._before_the_call(leaf, instr.op, leaf.eager_step())
        seen = {id(vt) for vt in self.escaping([v for v in operands if not is_null(v)])}.union(
            self.tr.lifetimes.references
        )
        states = [state_of(self, frame, n if frame is leaf else 0, seen) for frame in frames]
        after = [v for state in states for v in state.values()]
        handled = self.tr.thread.handled
        exceptions = [] if handled is None else [handled]
        self.failed = self.asm.label() if handled is None else None
        self._store_all(
            [*after, *[v for v in operands if is_lazy(v) or isinstance(v, VariableTracker)], *exceptions], frames
        )
        after += [*(operands if instr.op is Op.FOR_ITER else ()), *exceptions]
        self._release([*after, *operands], after)
        BreakEmitter(self, frames, states).emit(instr, operands, handled)
        return self.assemble()

    def _before_the_call(self, leaf: Frame, op: Op, step: int) -> Unsupported:
        """The break at the call of a function, at a step further out, whose instruction, at which the trace stopped, this code can't do."""
        why = self.tr.facts.break_reason
        error = Unsupported(why.slug, why.context, why.cause) if why is not None else Unsupported("opcode", op.name)
        return error.at(step, why.user_stack if why is not None else ())

    def _finish_binding(self, frames: list[Frame]) -> CodeType:
        """Code for a trace that stopped where a variable is bound anew: what it held dies, then the frame resumes behind."""
        leaf = frames[-1]
        for part in leaf.lifted.instruction_at(leaf.cur):
            OPS[part.op](leaf, part)
            leaf.cur += 1
        leaf.cur -= 1
        states = [state_of(self, frame, 0, set(self.tr.lifetimes.references)) for frame in frames]
        kept = [v for state in states for v in state.values()]
        self._store_all(kept, frames)
        self._release(kept, kept)
        BreakEmitter(self, frames, states).resume_behind()
        return self.assemble()

    def _store_all(self, roots: list[Any], frames: list[Frame]) -> None:
        """Have these objects in locals, and all changes done."""
        self.begin(roots, frames)
        for vt in roots:
            self.hold(vt)
        self.replay.emit(self)

    def _release(self, needed: list[Any], after: list[Any]) -> None:
        """Drop references whose objects the program would see alive while the breaking instruction runs: arguments (those in `needed` are
        in locals of their own by now), and objects that only building and storing needed. Operands that are not in `after`, since no resume
        function uses them, are dropped when the instruction consumes them."""
        self.release_variables({self.loaded[id(vt)] for vt in needed if id(vt) in self.loaded})
        self.sources.clear()
        self.needed_after = {id(vt) for vt in after}
        # Two variables with one object are two references to it.
        holders = Counter(self.loaded[id(vt)] for vt in after if id(vt) in self.loaded)
        for name, count in holders.items():
            for _ in range(count - 1):
                self.asm.load_fast(name)
                self.asm.store_fast(self.new_local())

    def release_variables(self, needed: Collection[str] = ()) -> None:
        """Have the other variables of the new code refer to nothing."""
        temporary = [f"__dl_{i}" for i in range(1, self.names + 1)]
        for name in [*self.parameters(), *temporary]:
            if name not in needed:
                self.asm.load_const(None)
                self.asm.store_fast(name)

    def load_operand(self, vt: VariableTracker, again: bool) -> None:
        """Push an operand of the breaking instruction; it is in nobody else's hands unless it is needed `again` or later."""
        name = self.loaded.get(id(vt))
        if name is None or again or id(vt) in self.needed_after:
            self.load(vt)
        else:
            self.asm.load_fast_and_clear(name)

    def hold(self, vt: VariableTracker) -> None:
        """Have the object in a local before the breaking instruction runs."""
        if id(vt) in self.loaded or is_constant_value(vt):
            return
        self.load(vt)
        if id(vt) in self.loaded:
            self.asm.pop_top()
        else:
            self._store(vt, self.loaded)


def _change_state(cg: Codegen, escaping: list[Any]) -> None:
    """Bring torch's settings to where the traced code left them."""
    changes = cg.tr.state.final_changes()
    enters = any(function is None for function, _ in changes)
    for vt in escaping if changes else ():
        # Texts of tensors tell of the default dtype; tensors that are made of the graph's results are none of the inference mode.
        if not is_lazy(vt) and (isinstance(vt, LateText) or (enters and _is_graph_value(vt))):
            cg.hold(vt)
    for function, args in changes:
        if function is None:
            cg.hold(*args)
            continue
        cg.load_callable(function)
        for arg in args:
            cg.load_const(arg)
        cg.asm.call(len(args))
        cg.asm.pop_top()


def _is_graph_value(vt: VariableTracker) -> bool:
    return not is_lazy(vt) and vt.source is None and getattr(vt, "proxy", None) is not None and not vt.is_rebuilt


def _would_be_interned(text: str) -> bool:
    """Whether a constant of a code object would be another string than this one: `intern_string_constants` of Objects/codeobject.c puts
    interned strings in the place of those that look like names, and programs may ask which of two equal strings it is."""
    return text.isascii() and text.replace("_", "a").isalnum() and intern(text) is not text
