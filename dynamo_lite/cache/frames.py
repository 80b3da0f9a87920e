"""One compiled version of a frame as plain data, and back.

Input: a finished analysis: its guards, its code, its graph. Output: data for `marshal`; in another process, for a call with given
arguments, guards, code and graph again.
Invariant: data are written only if everything that the trace knows by identity can be found and compared again (`references`); whatever
else it rests on the guards say, which run in the other process as they are.
"""

from __future__ import annotations

import sys
import types
import weakref
from collections.abc import Callable
from typing import Any

from .._eval_frame import Cache, GraphCall
from ..exc import Mismatch, Refused, UserFrame
from ..failure import Original, Place
from ..graph import side
from ..guards import ir
from ..guards.mirror import ACCESSORS, WITHOUT_ARGUMENT
from ..record import BreakRecord
from ..resume import is_resumed
from .references import Reader, Writer, all_codes, constant_of, demanded, fingerprint

# ----------------------------------------------------------------------------------------------------------------------
# Writing.


def write(
    tr: Any,
    values: tuple[Any, ...],
    code: types.CodeType,
    needs_hook: bool,
    graph: Any,
    record: Any,
) -> dict[str, Any]:
    """The data of one version. Raises `Refused`."""
    if tr.process_bound is not None:
        raise Refused(tr.process_bound)
    inputs = [] if graph is None else [i.source for i in graph.inputs]
    writer = Writer(tr.function, tr.guards, _needed(tr.guards, inputs), tr.recipes)
    ambient = side.write_ambient(writer)
    _mention_functions(writer, values)
    nodes = [_write_node(writer, node) for node in writer.nodes]
    guards = [_write_guard(writer, guard) for guard in tr.guards.guards]
    files = _Files(writer, tr.function.__code__.co_filename)
    codes: list[bytes] = []
    return {
        "nodes": nodes,
        "guards": guards,
        "code": None if code is tr.function.__code__ else _write_code(writer, files, code, tr.region),
        "needs_hook": needs_hook,
        "graph": None if graph is None else side.write_graph(graph, writer, lambda place: _write_place(codes, place)),
        "ambient": ambient,
        "codes": codes,
        "hints": _write_hints(tr.dynamic_hints),
        "breaks": [_write_break(b) for b in record.breaks],
        # All that was mentioned comes last.
        "files": files.names,
        "strings": list(writer.strings),
        "objects": writer.table,
    }


def _write_node(writer: Writer, node: ir.GuardNode) -> tuple[Any, ...]:
    kind, arg = node.kind, node.arg
    if node.parent is not None:
        parent = writer.numbers[id(node.parent)]
    else:
        parent = -1
        if kind == ir.REFERENT or kind == ir.CONST:
            value = constant_of(node)
            by_value = type(value) in (tuple, frozenset)  # what code and folding give: nobody asks which one it is
            return (parent, ir.CONST, writer.value(value) if by_value else ("object", writer(value)))
    return (parent, kind, arg if type(arg) is str or type(arg) is int else writer.value(arg))


def _mention_functions(writer: Writer, values: tuple[Any, ...]) -> None:
    """Functions on a path are known by their code alone; but marks on them count as well, and where they come from."""
    reached: dict[int, Any] = {}
    for node in writer.nodes:
        if node.kind == ir.FUNC_CODE:
            function = _reach(node.parent, writer.root, values, reached)
            if type(function) is not types.FunctionType:
                raise Refused(f"{node.path}, which has changed")
            writer.mention(function, ("node", writer.numbers[id(node.parent)]))


def _reach(node: ir.GuardNode, root: types.FunctionType, values: tuple[Any, ...], reached: dict[int, Any]) -> Any:
    """What a path leads to now."""
    if id(node) not in reached:
        if node.parent is None:
            kind = node.kind
            reached[id(node)] = (
                constant_of(node)
                if kind in (ir.CONST, ir.REFERENT)
                else ACCESSORS[kind](values if kind == ir.LOCAL else root.__closure__, node.arg)
            )
        else:
            above = _reach(node.parent, root, values, reached)
            bare = node.kind in WITHOUT_ARGUMENT
            reached[id(node)] = ACCESSORS[node.kind](above) if bare else ACCESSORS[node.kind](above, node.arg)
    return reached[id(node)]


def _needed(guards: ir.GuardSet, others: list[ir.GuardNode]) -> list[ir.GuardNode]:
    """The paths that something is asked of, and those that lead to them, in their order."""
    asked = [*others, *(node for guard in guards.guards for node in (guard.nodes or (guard.node,)) if node is not None)]
    needed: set[int] = set()
    for node in asked:
        while node is not None and id(node) not in needed:
            needed.add(id(node))
            node = node.parent
    return [node for node in guards.nodes if id(node) in needed]


def _write_guard(writer: Writer, guard: ir.Guard) -> tuple[Any, ...]:
    nodes = (
        writer.numbers[id(guard.node)]
        if guard.node is not None
        else tuple([writer.numbers[id(n)] for n in guard.nodes])
    )
    user = guard.user
    place = None if user is None else (writer.text(user[0]), user[1])
    return (guard.kind, nodes, _ARGUMENTS.get(guard.kind, _plain)(writer, guard), place, guard.text)


def _plain(writer: Writer, guard: ir.Guard) -> Any:
    return writer.value(guard.arg)


def _identity(writer: Writer, guard: ir.Guard) -> Any:
    value = demanded(guard)
    if value is ir.NO_VALUE:
        return ("nothing",)
    if value is None or value is True or value is False or value is Ellipsis or value is NotImplemented:
        return writer.value(value)
    return ("object", writer(value))


def _written_by_torch(writer: Writer, guard: ir.Guard) -> Any:
    return side.write_guard(writer, guard)


_ARGUMENTS: dict[int, Callable[[Writer, ir.Guard], Any]] = {
    **dict.fromkeys((ir.IS, ir.REF_IS, ir.IS_NOT, ir.REF_IS_NOT, ir.TYPE_IS, ir.REF_TYPE_IS), _identity),
    **dict.fromkeys((ir.TENSOR, ir.GLOBAL_STATE, ir.PREDICATE), _written_by_torch),
}


class _Files:
    """Names of files in such a form that they may lie elsewhere: that of the frame is 0, others go with a module."""

    def __init__(self, writer: Writer, own: str) -> None:
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


def _write_code(writer: Writer, files: _Files, code: types.CodeType, region: Any) -> tuple[Any, ...]:
    consts = tuple([_write_const(writer, files, c, region) for c in code.co_consts])
    return code.replace(co_consts=(), co_filename=""), files(code.co_filename), consts


def _write_const(writer: Writer, files: _Files, value: Any, region: Any) -> Any:
    kind = type(value)
    if kind is GraphCall:
        return ("graph",)
    if kind is Original:
        return ("original",)
    if kind is Cache:
        return ("cache", _write_code(writer, files, value.code, region))
    if kind is types.CodeType:
        return ("code", _write_code(writer, files, value, region))
    if kind is weakref.ref:
        target = value()
        if target is None:
            raise Refused("an object that is gone")
        return ("ref", writer(target))
    if kind is types.FunctionType and is_resumed(value.__code__) and not value.__closure__:
        return ("resume", _write_code(writer, files, value.__code__, region), writer(value.__globals__))
    if kind is types.BuiltinMethodType and type(value.__self__) is tuple:
        return ("method", writer.value(value.__self__), value.__name__)
    if kind is types.MethodWrapperType and type(value.__self__) is tuple:
        return ("method", writer.value(value.__self__), value.__name__)
    return writer.value(value)


def _write_place(codes: list[bytes], place: Place | None) -> Any:
    if place is None:
        return None
    known = fingerprint(place.code)
    if known not in codes:
        codes.append(known)
    return (codes.index(known), place.lineno, _write_place(codes, place.caller))


def _write_hints(hints: dict[str, Any]) -> dict[str, Any]:
    """What is known to vary, for the next compilation."""
    kinds = (int, float, tuple, type(None))
    return {path: seen for path, seen in hints.items() if type(path) is str and type(seen) in kinds}


def _write_break(record: BreakRecord) -> tuple[Any, ...]:
    return record.slug, record.context, tuple([tuple(frame) for frame in record.user_stack])


# ----------------------------------------------------------------------------------------------------------------------
# Reading.


class Version:
    """A version that was read: everything but the compiled graph, which `code` makes room for."""

    def __init__(
        self, data: dict[str, Any], function: types.FunctionType, values: tuple[Any, ...], region: Any
    ) -> None:
        """Raises `Mismatch`."""
        self.data = data
        self.function = function
        self.region = region
        self.reader = Reader(data["objects"], data["nodes"], function, values)
        side.check_ambient(self.reader, data["ambient"])
        self.reader.check()
        code = function.__code__
        self.guards = ir.GuardSet(code.co_varnames, code.co_freevars)
        self.call: Any = None
        self.path: Any = None
        self._read_nodes()
        self._read_guards()

    def _read_nodes(self) -> None:
        read, add = self.reader.value, self.guards.node
        nodes: list[ir.GuardNode] = self.guards.nodes
        for parent, kind, arg in self.data["nodes"]:
            add(None if parent < 0 else nodes[parent], kind, read(arg) if type(arg) is tuple else arg)
        if len(nodes) != len(self.data["nodes"]):
            raise Mismatch("two objects are one")

    def _read_guards(self) -> None:
        nodes, strings, guards = self.guards.nodes, self.data["strings"], self.guards
        for kind, where, arg, place, text in self.data["guards"]:
            user = None if place is None else (strings[place[0]], place[1])
            kind = _STRONG.get(kind, kind)
            if type(where) is int:
                value = self._argument(kind, where, arg)
                guards.check(nodes[where], kind, value, user)
            else:
                value = self._argument(kind, where, arg)
                guards.relation(kind, tuple([nodes[n] for n in where]), value, user, text)
        if len(guards.guards) != len(self.data["guards"]):
            raise Mismatch("two guards are one")

    def _argument(self, kind: int, where: Any, arg: Any) -> Any:
        if kind in (ir.TENSOR, ir.GLOBAL_STATE, ir.PREDICATE):
            return side.read_guard(self.reader, kind, where, arg)
        if arg == ("nothing",):
            return ir.NO_VALUE
        return self.reader.value(arg) if type(arg) is tuple else arg

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
        if type(data) is not tuple:
            return data
        reader = _CONSTANTS.get(data[0])
        return self.reader.value(data) if reader is None else reader(self, *data[1:])

    def _resume_code(self, data: Any) -> types.CodeType:
        return self.region.resume_code(self._code(data))

    def graph(self) -> Any:
        """What `side.compile_graph` takes, None if there is no graph."""
        data = self.data["graph"]
        return None if data is None else side.read_graph(data, self.reader, self.guards, self._place)

    def _place(self, data: Any) -> Place | None:
        if data is None:
            return None
        wanted = self.data["codes"][data[0]]
        codes = self.reader.codes
        if wanted not in codes:
            codes.update((fingerprint(code), code) for code in all_codes(list(codes.values())))
        code = codes.get(wanted)
        return Place(code, data[1], self._place(data[2])) if code is not None else None

    @property
    def needs_hook(self) -> bool:
        """Whether the code calls functions that are captured by themselves."""
        return self.data["needs_hook"]

    @property
    def hints(self) -> dict[str, Any]:
        """The sizes and numbers that were seen."""
        return self.data["hints"]

    @property
    def breaks(self) -> list[BreakRecord]:
        """The breaks, for reports."""
        return [
            BreakRecord(slug, context, tuple([UserFrame(*frame) for frame in frames]))
            for slug, context, frames in self.data["breaks"]
        ]


_STRONG = {ir.REF_IS: ir.IS, ir.REF_IS_NOT: ir.IS_NOT, ir.REF_TYPE_IS: ir.TYPE_IS}

_CONSTANTS: dict[str, Callable[..., Any]] = {
    "graph": lambda version: version.call,
    "original": lambda version: Original(version.function.__code__, version.function.__globals__),
    "cache": lambda version, code: version.region.cache_for(version._resume_code(code)),
    "code": lambda version, code: version._resume_code(code),
    "ref": lambda version, number: weakref.ref(version.reader(number)),
    "resume": lambda version, code, names: version.region.resume_function(
        version._resume_code(code), version.reader(names)
    ),
    "method": lambda version, owner, name: getattr(version.reader.value(owner), name),
}
