"""One compiled version of a frame as plain data, and back.

Input: a finished analysis: its guards, its code, its graph. Output: data for `marshal`; in another process, for a call with given
arguments, guards, code and graph again.
Invariant: data are written only if everything that the trace knows by identity can be found and compared again (`references`); whatever
else it rests on the guards say, which run in the other process as they are.
"""

from __future__ import annotations

import functools
import marshal
import sys
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dynamo_lite._eval_frame import Cache, GraphCall, GuardProgram, Reference
from dynamo_lite.dynamism import dynamic_shapes as shapes
from dynamo_lite.exc import Refused
from dynamo_lite.graph import side
from dynamo_lite.guards import ir
from dynamo_lite.guards.kinds import ROWS
from dynamo_lite.guards.mirror import walk
from dynamo_lite.guards.program import build_program, build_spec, handed_slots
from dynamo_lite.guards.source import is_handed_over
from dynamo_lite.isa.eager_fallback import Interrupted, Original, Place
from dynamo_lite.isa.resume import is_resumed
from dynamo_lite.plain_data import ATOMS, Codec, Data, Form
from dynamo_lite.record import FrameRecord

from .references import Reader, Writer, constant_of, demanded, fingerprint

if TYPE_CHECKING:
    from dynamo_lite.frontend.tracing import Trace

# ----------------------------------------------------------------------------------------------------------------------
# Writing.


def write(
    tr: Trace,
    values: tuple[Any, ...],
    code: types.CodeType,
    needs_hook: bool,
    graph: Any,
    record: Any,
) -> dict[str, Any]:
    """The data of one version. Raises `Refused`."""
    if tr.heap.process_bound is not None:
        raise Refused(tr.heap.process_bound)
    inputs = [] if graph is None else [i.source for i in graph.inputs]
    if any(source.kind == ir.MADE for source in inputs):
        raise Refused("a leaf that is made before the graph")
    writer = Writer(tr.root.function, tr.guards, _needed(tr.guards, inputs), tr.heap.recipes)
    ambient = side.write_ambient(writer)
    _mention_functions(writer, values)
    arguments = _Arguments(writer)
    nodes = [(_parent(writer, node), node.kind, arguments(node)) for node in writer.nodes]
    guards = [_write_guard(writer, arguments, guard) for guard in tr.guards.guards]
    handed = [(n, source) for n, source in enumerate(inputs) if is_handed_over(source)]
    files = _Files(writer, tr.root.function.__code__.co_filename)
    places = _Places()
    return {
        "nodes": nodes,
        "program": build_spec(tr.guards, [source for _, source in handed], arguments),
        "handed": (tuple([n for n, _ in handed]), handed_slots([source for _, source in handed])),
        "dropped": next((const.dropped for const in code.co_consts if type(const) is GraphCall), ()),
        "code": None if code is tr.root.function.__code__ else _write_code(files, code),
        "needs_hook": needs_hook,
        "graph": None if graph is None else side.write_graph(graph, writer, places),
        "ambient": ambient,
        "places": (places.codes, places.table),
        "hints": _write_hints(tr.dynamic_hints),
        "record": [(name, writer.value(getattr(record, name))) for name in _OF_RECORD],
        # All that was mentioned comes last.
        "arguments": arguments.table,
        "files": files.names,
        "guards": (len(guards), marshal.dumps((guards, list(writer.strings)))),  # read when somebody asks
        "objects": writer.table,
    }


def _parent(writer: Writer, node: ir.GuardNode) -> int:
    return -1 if node.parent is None else writer.numbers[id(node.parent)]


class _Arguments:
    """The data that represent the arguments of nodes and guards: plain data represent themselves, `(..., n)` for number `n` of a table."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.table: list[tuple[Any, ...]] = []
        self.known: dict[Any, Any] = {}  # what equal arguments have in common → what stands for them

    def __call__(self, of: ir.GuardNode | ir.Guard) -> Any:
        if isinstance(of, ir.GuardNode):
            return self._of_node(of)
        kept = ROWS[of.kind].kept
        if kept == "torch":
            key = of.arg if of.kind == ir.TENSOR else id(of.arg)
            return self._known((of.kind, key), side.write_guard, self.writer, of)
        return self._identity(of) if kept == "object" else self._plain(of.kind, of.arg)

    def _of_node(self, node: ir.GuardNode) -> Any:
        kind, arg = node.kind, node.arg
        if kind == ir.REFERENT:
            return self._object(constant_of(node), True)
        if kind == ir.CONST:
            return self._plain(kind, arg) if type(arg) in (tuple, frozenset, slice) else self._object(arg, False)
        return self._plain(kind, arg)

    def _plain(self, kind: int, arg: Any) -> Any:
        cls = type(arg)
        if cls in ATOMS or (cls is tuple and arg[:1] != (...,) and all(type(item) in ATOMS for item in arg)):
            return arg
        return self._known((kind, id(arg)), self.writer.value, arg)

    def _identity(self, guard: ir.Guard) -> Any:
        value = demanded(guard)
        if value is ir.NO_VALUE:
            return self._known("nothing", lambda: ("nothing",))
        if value is None or value is True or value is False or value is Ellipsis:
            return value
        return self._object(value, guard.kind in ir.FIRM)

    def _object(self, value: object, weakly: bool) -> Any:
        key = ("weakly" if weakly else "object", id(value))
        return self._known(key, lambda: (key[0], self.writer(value)))

    def _known(self, key: Any, write: Callable[..., Any], *args: Any) -> Any:
        known = self.known.get(key)
        if known is None:
            known = self.known[key] = (..., len(self.table))
            self.table.append(write(*args))
        return known


def _mention_functions(writer: Writer, values: tuple[Any, ...]) -> None:
    """Functions on a path are known by their code alone; but marks on them count as well, and where they come from."""
    reached: dict[ir.GuardNode, Any] = {}
    for node in writer.nodes:
        if node.kind == ir.FUNC_CODE:
            function = node.parent and _reach(node.parent, writer.root, values, reached)
            if type(function) is not types.FunctionType:
                raise Refused(f"{node.path}, which has changed")
            writer.mention(function, ("node", writer.numbers[id(node.parent)]))


def _reach(
    node: ir.GuardNode, root: types.FunctionType, values: tuple[Any, ...], reached: dict[ir.GuardNode, Any]
) -> Any:
    """The object that a path leads to now."""
    if node not in reached:
        if node.parent is not None:
            _reach(node.parent, root, values, reached)
        if node.kind == ir.REFERENT:
            constant_of(node)
        reached[node] = walk(node, reached, values, root.__closure__)
    return reached[node]


def _needed(guards: ir.GuardSet, others: list[ir.GuardNode]) -> list[ir.GuardNode]:
    """The paths that something is asked of, and those that lead to them, in their order."""
    asked = [*others, *(node for guard in guards.guards for node in guard.guarded)]
    needed: set[int] = set()
    for each in asked:
        node: ir.GuardNode | None = each
        while node is not None and id(node) not in needed:
            needed.add(id(node))
            node = node.parent
    return [node for node in guards.nodes if id(node) in needed]


def _write_guard(writer: Writer, arguments: _Arguments, guard: ir.Guard) -> tuple[Any, ...]:
    nodes = (
        writer.numbers[id(guard.node)]
        if guard.node is not None
        else tuple([writer.numbers[id(n)] for n in guard.nodes])
    )
    user = guard.user
    place = None if user is None else (writer.text(user[0]), user[1])
    return (guard.kind, nodes, arguments(guard), place, guard.text, guard.bounds)


class _Files:
    """Names of files in such a form that they may lie elsewhere: that of the frame is 0, others go with a module."""

    def __init__(self, writer: Writer, own: str) -> None:
        self.writer = writer
        self.names: list[Any] = [None]
        self.numbers = {own: 0}
        self.modules: dict[str, str] = {}

    def __call__(self, filename: str) -> int:
        number = self.numbers.get(filename)
        if number is None:
            number = self.numbers[filename] = len(self.names)
            module = next(
                (n for n, m in list(sys.modules.items()) if getattr(m, "__file__", None) == filename and m is not None),
                None,
            )
            self.names.append(filename if module is None else (module,))
        return number


def _write_code(files: _Files, code: types.CodeType) -> Data:
    consts = tuple([_CONSTANTS.write(files, c) or files.writer.value(c) for c in code.co_consts])
    return code.replace(co_consts=(), co_filename=""), files(code.co_filename), consts


def _referent(files: _Files, reference: Reference[Any]) -> Data:
    target = reference()
    if target is None:
        raise Refused("an object that is gone")
    return (files.writer(target),)


def _resumed(files: _Files, function: types.FunctionType) -> Data | None:
    if not is_resumed(function.__code__) or function.__closure__:
        return None
    return _write_code(files, function.__code__), files.writer(function.__globals__)


def _method(files: _Files, method: types.BuiltinMethodType) -> Data | None:
    owner = method.__self__
    return (files.writer.value(owner), method.__name__) if type(owner) is tuple else None


# What stands among the constants of generated code, besides values. The readers take the `StoredVersion`.
_CONSTANTS = Codec(
    Form("graph", lambda files, call: (), lambda version: version.call, (GraphCall,)),
    Form("original", lambda files, original: (), lambda version: version.original(), (Original,)),
    Form("interrupted", lambda files, original: (), lambda version: version.interrupted(), (Interrupted,)),
    Form(
        "cache",
        lambda files, cache: (_write_code(files, cache.code),),
        lambda version, code: version.region.cache_for(version.resume_code(code)),
        (Cache,),
    ),
    Form(
        "code",
        lambda files, code: (_write_code(files, code),),
        lambda version, code: version.nested_code(code),
        (types.CodeType,),
    ),
    Form("ref", _referent, lambda version, number: Reference(version.reader(number)), (Reference,)),
    Form(
        "resume",
        _resumed,
        lambda version, code, names: version.region.resume_function(version.resume_code(code), version.reader(names)),
        (types.FunctionType,),
    ),
    Form(
        "method",
        _method,
        lambda version, owner, name: getattr(version.reader.value(owner), name),
        (types.BuiltinMethodType, types.MethodWrapperType),
    ),
)


class _Places:
    """Lines of the program: each once, `(code, line, caller)` by their numbers."""

    def __init__(self) -> None:
        self.codes: list[bytes] = []
        self.table: list[tuple[int, int, int]] = []
        self.known: dict[tuple[int, int, int], int] = {}

    def __call__(self, place: Place | None) -> int:
        if place is None:
            return -1
        code = fingerprint(place.code)
        if code not in self.codes:
            self.codes.append(code)
        line = (self.codes.index(code), place.lineno, self(place.caller))
        number = self.known.get(line)
        if number is None:
            number = self.known[line] = len(self.table)
            self.table.append(line)
        return number


def _write_hints(hints: dict[Any, Any]) -> dict[Any, Any]:
    """The sizes and numbers that are known to vary, for the next compilation."""
    kinds = (int, float, tuple, type(None))
    return {
        key: seen
        for key, seen in hints.items()
        if (type(key[0]) is int or key[0] in (shapes.NUMBER, shapes.STRIDES)) and type(seen) in kinds
    }


_OF_RECORD = ("breaks", "specializations", "breaks_in_loop", "size_lines", "guard_lines")
"""What the record of a frame says of the version, for reports and for the decision whether to recompile."""

# ----------------------------------------------------------------------------------------------------------------------
# Reading.


class StoredVersion:
    """A version that was read: everything but the compiled graph, which `code` makes room for."""

    def __init__(
        self, data: dict[str, Any], function: types.FunctionType, values: tuple[Any, ...], region: Any
    ) -> None:
        """Raises `Mismatch`."""
        self.data = data
        self.function = function
        self.region = region
        self.reader = Reader(data["objects"], data["nodes"], data["arguments"], function, values)
        side.check_ambient(self.reader, data["ambient"])
        self.reader.check()
        self.arguments = tuple([self._argument(*written) for written in data["arguments"]])
        self.call: Any = None
        self.path: Any = None
        self.positions: tuple[int, ...] = data["handed"][0]  # which of the graph's inputs the guards hand over
        self.dropped: tuple[int, ...] = data["dropped"]  # the variables whose objects may die while the graph runs
        self.needs_hook: bool = data["needs_hook"]  # whether the code calls functions that are captured by themselves
        self.hints: dict[Any, Any] = data["hints"]  # the sizes and numbers that were seen

    def _argument(self, form: str, *rest: Any) -> Any:
        if form == "weakly":
            return Reference(self.reader(rest[0]))
        if form == "nothing":
            return ir.NO_VALUE
        if form in side.GUARD_FORMS:
            return side.read_guard(self.reader, form, *rest)
        return self.reader.value((form, *rest))

    def program(self, call: GraphCall | None) -> GuardProgram:
        """The guards, which hand their values over to this call."""
        spec, slots = self.data["program"], self.data["handed"][1]
        if call is None:
            return GuardProgram(spec, objects=self.arguments)
        return GuardProgram(spec, call, slots, self.arguments)

    @functools.cached_property
    def guards(self) -> StoredGuards:
        """The guards, for reports."""
        return StoredGuards(self.data, self.arguments, self.function.__code__)

    @functools.cached_property
    def guard_set(self) -> ir.GuardSet:
        """The guards, for those who add to them."""
        return self.guards()

    def finish(self, graph: Any, call: GraphCall | None, program: GuardProgram) -> tuple[Any, GuardProgram]:
        """The graph is compiled: the guards and their program, with what the compiler takes for granted of sizes."""
        sizes = None if graph is None else graph.sizes
        if sizes is None:
            return self.guards, program
        if sizes.finish():
            paths = [self.guard_set.nodes[number] for number, _ in self.data["graph"]["inputs"]]
            program = build_program(self.guard_set, call, [paths[n] for n in self.positions])
        return self.guard_set, program

    # -- code

    def code(self, call: GraphCall | None) -> types.CodeType:
        """The code, with this call of the graph in it."""
        if self.data["code"] is None:
            return self.function.__code__
        self.call = call
        return self._code(self.data["code"])

    def _code(self, data: Any) -> types.CodeType:
        code, filename, consts = data
        filename = self._file(self.data["files"][filename])
        return code.replace(co_consts=tuple([self._const(c) for c in consts]), co_filename=filename)

    def _file(self, name: Any) -> str:
        if type(name) is not tuple:
            return self.function.__code__.co_filename if name is None else name
        return getattr(sys.modules.get(name[0]), "__file__", None) or name[0]

    def _const(self, data: Any) -> Any:
        return _CONSTANTS.read(self, data) if _CONSTANTS.knows(data) else self.reader.value(data)

    def original(self) -> Original:
        """The function as it was."""
        return Original(self.function.__code__, self.function.__globals__)

    def interrupted(self) -> Interrupted:
        """What a graph of a continuation that is interrupted calls."""
        return Interrupted(self.function.__code__, self.function.__globals__)

    def resume_code(self, data: object) -> types.CodeType:
        """The code of a resume function, one for all versions."""
        return self.region.resume_code(self._code(data))

    def nested_code(self, data: object) -> types.CodeType:
        """The code that a function is made of: of a resume function, or the program's own, so that versions of it are found by it."""
        code = self._code(data)
        if is_resumed(code):
            return self.region.resume_code(code)
        return self.reader.codes.find(fingerprint(code)) or code

    def graph(self) -> Any:
        """The graph for `side.compile_graph`, None if there is none."""
        data = self.data["graph"]
        return (
            None
            if data is None
            else side.read_graph(data, self.reader, StoredPlaces(self.data, self.reader), lambda: self.guard_set)
        )

    def describe(self, record: FrameRecord) -> None:
        """Put into the record of a frame what it said when the version was made."""
        for name, data in self.data["record"]:
            setattr(record, name, self.reader.value(data))


class StoredGuards:
    """The guards of a version that was read, as data. Each call makes a `GuardSet` of them."""

    def __init__(self, data: dict[str, Any], arguments: tuple[Any, ...], code: types.CodeType) -> None:
        self.nodes = data["nodes"]
        self.count, self.guards = data["guards"]
        self.arguments = arguments
        self.names = code.co_varnames, code.co_freevars

    def __len__(self) -> int:
        return self.count

    def __call__(self) -> ir.GuardSet:
        made = ir.GuardSet(*self.names)
        nodes: list[ir.GuardNode] = made.nodes
        for parent, kind, arg in self.nodes:
            made.node(None if parent < 0 else nodes[parent], kind, self._argument(arg))
        guards, strings = marshal.loads(self.guards)
        for kind, where, arg, place, text, bounds in guards:
            user = None if place is None else (strings[place[0]], place[1])
            if type(where) is int:
                made.check(nodes[where], kind, self._argument(arg), user)
            else:
                made.relation(kind, tuple([nodes[n] for n in where]), self._argument(arg), user, text, bounds)
        made.is_settled = True
        return made

    def _argument(self, arg: Any) -> Any:
        return self.arguments[arg[1]] if type(arg) is tuple and arg[:1] == (...,) else arg


class StoredPlaces:
    """The lines of a version that was read, found when they are asked for: most of them never are."""

    def __init__(self, data: dict[str, Any], reader: Reader) -> None:
        self.wanted, self.table = data["places"]
        self.codes = reader.codes

    def __call__(self, number: int) -> Place | None:
        if number < 0:
            return None
        wanted, lineno, caller = self.table[number]
        code = self.codes.find(self.wanted[wanted])
        return Place(code, lineno, self(caller)) if code is not None else None
