"""The Python text of a trace's graph.

Input: a flat graph as `GraphBuilder` makes it. Output: the `PythonCode` that `torch.fx` itself would write, in a quarter of the time.
Invariant: text, globals and line numbers are those of `torch.fx.Graph.python_code`; what is not common in our graphs (annotations,
options, other code generators, names that collide) is left to it, and so is everything if a sample shows that this torch writes another
text.
"""

from __future__ import annotations

import functools
import operator
import os
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.graph import (
    CodeGen,
    PythonCode,
    _format_target,
    _illegal_names,
    _is_from_torch,
    _Namespace,
    inplace_methods,
    magic_methods,
)
from torch.fx.immutable_collections import immutable_list
from torch.fx.node import _get_qualified_name


class TraceGraph(Graph):
    """A graph that knows how to write its own text."""

    def python_code(self, root_module: str, **options: Any) -> PythonCode:
        code = None
        if self._is_ordinary(options) and _agrees():
            code = write(self, root_module)
        return super().python_code(root_module, **options) if code is None else code

    def _is_ordinary(self, options: dict[str, Any]) -> bool:
        codegen = self._codegen
        plain = type(codegen) is CodeGen and codegen._body_transformer is None
        return plain and not any(options.values()) and "FX_GRAPH_SHOW_META" not in os.environ


class _UncommonError(Exception):
    """Something that torch.fx has to write."""


def write(graph: Graph, root_module: str) -> PythonCode | None:
    """The text of a graph; None if torch.fx has to write it."""
    try:
        return _Writer(graph, root_module).write()
    except _UncommonError:
        return None


@functools.cache
def _agrees() -> bool:
    """Whether this torch writes a sample of all forms as we do."""
    graph = _sample()
    try:
        own = write(graph, "self")
    except TypeError:  # a `PythonCode` with other fields
        return False
    return own is not None and own == graph.python_code("self")


def _sample() -> Graph:
    graph = Graph()
    x, y = graph.placeholder("l_x_"), graph.placeholder("l_y_")
    body = graph.get_attr("body_0")
    total = graph.call_function(operator.add, (x, 1.5))
    item = graph.call_function(operator.getitem, (total, (slice(None, y, None), Ellipsis, [0, True])))
    graph.call_function(operator.iadd, (item, x))
    shape = graph.call_function(getattr, (item, "shape"))
    cast = graph.call_method("to", (item,), {"dtype": torch.float32, "device": torch.device("cpu")})
    linear = graph.call_function(torch.nn.functional.linear, (cast, x), {"bias": None})
    own = graph.call_function(write, (linear, body, (shape,)))
    graph.output((own, "text", torch.Size([1, 2])))
    return graph


_PLAIN = frozenset(
    {int, float, bool, complex, str, bytes, type(None), type(Ellipsis)}
    | {torch.dtype, torch.device, torch.layout, torch.memory_format}
)
_TUPLES = (tuple, torch.Size)
_LISTS = (immutable_list, list)


class _Writer:
    def __init__(self, graph: Graph, root_module: str) -> None:
        self.nodes = list(graph.nodes)
        self.root_module = root_module
        self.namespace = _Namespace()
        self.globals = dict(standard_globals())
        for name, value in self.globals.items():
            self.namespace.create_name(name, value)
        self.callers: dict[Any, Callable[[Node], str]] = {}

    def write(self) -> PythonCode:
        parameters, line_map = ["self"], {}
        lines: list[str] = []
        freed = self._last_uses()
        for i, node in enumerate(self.nodes):
            if node.type is not None:
                raise _UncommonError
            op = node.op
            if op == "placeholder":
                if node.target != node.name or node.args:
                    raise _UncommonError
                parameters.append(node.name)
                continue
            line_map[len(lines) + 1] = i
            if op == "output":
                lines.append(f"return {self._argument(node.args[0])}")
                line_map[len(lines) + 1] = i
                lines.append("")
                continue
            line = self._statement(node, op)
            done = freed.get(node, ())
            if not node.users:
                done = [*done, node]
            if done:
                line += ";  " + " = ".join([n.name for n in done]) + " = None"
            lines.append(line)
        self._check_names()
        body = "\n    ".join(lines)
        text = f"\n\n\ndef forward({', '.join(parameters)}):\n    {body}"
        return PythonCode(text, self.globals, _lineno_map=line_map, _prologue_start=4)

    def _last_uses(self) -> dict[Node, list[Node]]:
        """Node → the values that nothing after it needs."""
        freed: dict[Node, list[Node]] = {}
        needed = set()
        for node in reversed(self.nodes):
            for used in node._input_nodes:
                if used not in needed:
                    needed.add(used)
                    freed.setdefault(node, []).append(used)
        return freed

    def _check_names(self) -> None:
        """torch.fx gives a node another name where its own is taken."""
        for node in self.nodes:
            name = node.name
            if name in self.globals or name in _illegal_names:
                raise _UncommonError

    # -- statements

    def _statement(self, node: Node, op: str) -> str:
        if op == "call_function":
            target = node.target
            caller = self.callers.get(target)
            if caller is None:
                caller = self.callers[target] = self._caller(target)
            if dict.__contains__(node.meta, "is_wrapped"):
                raise _UncommonError
            return caller(node)
        if op == "call_method":
            arguments = self._arguments(node.args[1:], node.kwargs)
            return f"{node.name} = {_format_target(self._argument(node.args[0]), node.target)}({arguments})"
        if op == "get_attr":
            return f"{node.name} = {_format_target(self.root_module, node.target)}"
        raise _UncommonError

    def _caller(self, target: Any) -> Callable[[Node], str]:
        """The function that writes calls of a function."""
        argument = self._argument
        if getattr(target, "__module__", "") == "_operator":
            form = magic_methods.get(target.__name__)
            if form is not None:
                return lambda node: f"{node.name} = " + form.format(*map(argument, node.args))
            inplace = inplace_methods.get(target.__name__)
            if inplace is not None:
                return lambda node: (
                    f"{inplace.format(*map(argument, node.args))};  {node.name} = {argument(node.args[0])}"
                )
        name = self._global(target)
        if name == "getattr":
            return self._getattr
        return lambda node: f"{node.name} = {name}({self._arguments(node.args, node.kwargs)})"

    def _getattr(self, node: Node) -> str:
        args = node.args
        if len(args) == 2 and isinstance(args[1], str) and args[1].isidentifier():
            return f"{node.name} = {_format_target(self._argument(args[0]), args[1])}"
        return f"{node.name} = getattr({self._arguments(args, node.kwargs)})"

    def _global(self, target: Any) -> str:
        name = _get_qualified_name(target)
        if _is_from_torch(target):
            return name
        name = self.namespace.create_name(name, target)
        self.globals[name] = target
        return name

    # -- arguments

    def _arguments(self, args: Any, kwargs: Any) -> str:
        texts = [self._argument(arg) for arg in args]
        if kwargs:
            texts += [f"{name} = {self._argument(arg)}" for name, arg in kwargs.items()]
        return ", ".join(texts)

    def _argument(self, arg: Any) -> str:
        kind = type(arg)
        if kind is Node:
            return arg.name
        if kind in _PLAIN:
            return repr(arg)
        if kind in _TUPLES:
            texts = [self._argument(item) for item in arg]
            return f"({texts[0]},)" if len(texts) == 1 else f"({', '.join(texts)})"
        if kind in _LISTS:
            return f"[{', '.join([self._argument(item) for item in arg])}]"
        if kind is slice:
            return f"slice({', '.join([self._argument(item) for item in (arg.start, arg.stop, arg.step)])})"
        raise _UncommonError


@functools.cache
def standard_globals() -> dict[str, Any]:
    """The globals that torch.fx gives every graph."""
    return Graph().python_code("self").globals
