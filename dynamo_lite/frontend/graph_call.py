"""The call of the compiled graph in the new code.

Input: the graph of a trace. Output: instructions that push the graph's inputs, call it, and say what happens when it raises.
Invariant: the backend is called when all other code is there (`compile`): nothing can fail after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import CodeType
from typing import TYPE_CHECKING, Any

from bytecode import Instr

from dynamo_lite._eval_frame import GraphCall, GraphFailed
from dynamo_lite.graph import side
from dynamo_lite.guards.source import is_handed_over
from dynamo_lite.isa.codec import make_instr
from dynamo_lite.isa.eager_fallback import has_interrupted, take_place
from dynamo_lite.isa.lift import NULL_FIRST
from dynamo_lite.isa.resume import is_resumed

if TYPE_CHECKING:
    from dynamo_lite.graph.builder import GraphBuilder
    from dynamo_lite.guards.ir import GuardNode
    from dynamo_lite.interp.frame import Frame

    from .codegen import Codegen

_LOADS_FAST = frozenset({"LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_AND_CLEAR", "DELETE_FAST"})


class GraphCallSite:
    """The call, if there is one.

    Attributes:
        value: what is called.
        handed: paths of the graph's inputs that the guards hand over to it.
    """

    def __init__(self, cg: Codegen, compile_graph: Callable[[GraphBuilder], tuple[Any, Any]]) -> None:
        self._compile_graph = compile_graph
        self.value: GraphCall | None = None
        self.handed: list[GuardNode] = []
        self._results = ""  # the local that holds them
        self._position = -1  # index in asm.items of the instruction that loads the compiled graph
        self._end = -1  # index behind the last instruction of the call
        self._dropped: list[str] = []  # variables that the program binds anew or deletes while the graph would run
        self._own: list[str] = []
        self._boxed: Any = None  # what lets go of the inputs while it runs
        self._failed = cg.asm.label()  # where its exceptions go

    def emit(self, cg: Codegen, roots: list[Any], frames: Sequence[Frame]) -> None:
        """Call the compiled graph, which does not exist yet: `compile` puts it in."""
        asm = cg.asm
        self._dropped = self._dropped_variables(cg, roots, frames)
        asm.begin_try(self._failed)
        self._position = len(asm.items) + NULL_FIRST
        cg.load_callable(None)
        sources = self._sources(cg)
        given = [s for s in sources if not is_handed_over(s)]
        self.handed = [s for s in sources if is_handed_over(s)]
        cg.shared = _shared_prefixes(given)
        for source in given:
            cg.load_source(source)
        cg.shared = set()
        asm.call(len(given))
        self._end = len(asm.items)
        asm.end_try()
        self._results = cg.new_local()
        asm.store_fast(self._results)

    def _sources(self, cg: Codegen) -> list[GuardNode]:
        return [i.source for i in cg.tr.graph.inputs]

    def load_result(self, cg: Codegen, index: int) -> None:
        """Push one output of the graph."""
        cg.asm.load_fast(self._results)
        cg.load_const(index)
        cg.asm.binary_subscr()

    def compile(self, cg: Codegen) -> None:
        """Have the backend compile the graph, and put the result in."""
        if self._position < 0:
            return
        compiled, on_failure = self._compile_graph(cg.tr.graph)
        sources = self._sources(cg)
        handed = tuple(i for i, source in enumerate(sources) if is_handed_over(source))
        self._note_dropped(cg)
        self._boxed = side.boxed_call(on_failure, cg.code) if self._dropped else None
        self.value = GraphCall(compiled, len(sources), handed, on_failure)
        cg.asm.items[self._position] = make_instr("LOAD_CONST", self.value)
        self._emit_handler(cg)

    def _note_dropped(self, cg: Codegen) -> None:
        """Of the variables that the program drops while the graph runs, keep those that nothing loads behind it, with those of our own that
        the inputs were loaded through, which hold parts of what is dropped."""
        items = cg.asm.items
        loaded = {
            item.arg
            for item in items[self._end :]
            if isinstance(item, Instr) and item.name in _LOADS_FAST and type(item.arg) is str
        }
        self._dropped = [name for name in self._dropped if name not in loaded]
        if self._dropped:
            before = (item for item in items[: self._end] if isinstance(item, Instr))
            self._own = sorted({str(item.arg) for item in before if item.name == "STORE_FAST"} - loaded)

    def release(self, code: CodeType) -> None:
        """Let the call in the finished code release what its variables have dropped."""
        if self.value is None or self._boxed is None:
            return
        slots = [code.co_varnames.index(name) for name in (*self._dropped, *self._own) if name in code.co_varnames]
        self.value.release(self._boxed, tuple(slots))

    def _dropped_variables(self, cg: Codegen, roots: list[Any], frames: Sequence[Frame]) -> list[str]:
        """The arguments with tensors of which nothing is left when the trace ends: the program has bound their variables anew, or deleted
        them."""
        root = cg.tr.root
        frame, arguments = root.frame, root.arguments
        bound = [
            (slot, name)
            for slot, name in enumerate(cg.parameters())
            if not frame.lifted.is_cell[slot] and frame.locals[slot] is not arguments[slot]
        ]
        candidates = [(slot, name) for slot, name in bound if side.holds_tensors(root.values[slot])]
        if not candidates:
            return []
        kept = [*roots, *frame.held(), *(vt for f in frames for vt in f.held())]
        held = {id(vt) for vt in cg.tr.lifetimes.reachable(kept)}
        return [name for slot, name in candidates if id(arguments[slot]) not in held]

    def _emit_handler(self, cg: Codegen) -> None:
        """The graph has raised: the frame starts again as the original, or the error goes on."""
        asm = cg.asm
        passed_on = asm.label()
        asm.set_location(cg.code.co_firstlineno)
        asm.place(self._failed)
        asm.load_const(GraphFailed)
        asm.check_exc_match()
        asm.jump_if(False, passed_on)
        asm.pop_top()
        cg.start_again()
        asm.place(passed_on)
        if is_resumed(cg.code) and self._boxed is None:
            is_error = asm.label()
            cg.load_callable(has_interrupted)
            asm.copy(3)
            asm.call(1)
            asm.jump_if(False, is_error)
            cg.start_again(is_interrupted=True)
            asm.place(is_error)
        cg.load_callable(take_place)
        asm.copy(3)
        asm.call(1)
        asm.pop_top()
        asm.reraise(0)


def _shared_prefixes(nodes: list[GuardNode]) -> set[int]:
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
