"""How trackers become the arguments of a node.

Input: trackers. Output: what an FX graph may hold, and with it the key under which the propagation of the call is remembered.
`variables` registers the classes of trackers (`packs`), and how results become trackers (`MODELS`).
"""

from __future__ import annotations

import itertools
import keyword
import operator
import types
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import GraphModule, Node

from dynamo_lite.exc import Unsupported, unsupported
from dynamo_lite.isa.typeobject import bases_of, module_of, mro_of, qualname_of

from .values import SymValue, TensorValue
from .varying_floats import FloatValue

if TYPE_CHECKING:
    from dynamo_lite.graph.builder import GraphBuilder
    from dynamo_lite.variables.protocol.base import VariableTracker

Packer = Callable[["Packing", Any], Any]

PACKERS: dict[type, Packer] = {}
"""Tracker class → function(packing, tracker) -> argument of an FX node."""


def packs(*classes: type) -> Callable[[Packer], Packer]:
    """Register how trackers of these classes (and their subclasses) become arguments."""

    def decorate(packer: Packer) -> Packer:
        PACKERS.update(dict.fromkeys(classes, packer))
        return packer

    return decorate


MODELS = types.SimpleNamespace()
"""What `variables` provides: `tensor(value)`, `symbol(value)`, `constant(tx, host value)`, `sequence(tx, type,
items)`, `mapping(tx, keys, items)` make trackers; `meet_modes(tr)` has the trace ask the function modes around its frame,
`meet_overrides(tr)` the classes of wrapper tensors as well;
`follow(tx, function, args, kwargs)` calls a Python function of torch by its code, and `shows_warnings()` says whether warnings can be given
behind the graph;
`numbers(tx, target, args, kwargs)` gives arguments with numbers in place of tensors that are known, or that the operator takes for sizes;
None if there are none; `follow_both(tx, make condition)` makes both sides of a branch on data part of the graph, where that can be;
`late_number(tx, function, operands)` has Python compute a float behind the graph, of which an operand `is_from_data(value)`."""


class Overridden(Unsupported):
    """An argument is of a class that has to be asked about the call, which came to light after the call was found to have no overrides."""

    def __init__(self, cls: type) -> None:
        super().__init__("tensor-subclass", f"{module_of(cls)}.{qualname_of(cls)}")


class Packing:
    """The arguments of one call on their way into the graph."""

    __slots__ = (
        *(
            "bodies",
            "builder",
            "earlier",
            "exact",
            "floats",
            "indices",
            "key",
            "memorable",
            "scalar_types",
            "symbolic",
            "tensors",
            "values",
        ),
    )

    def __init__(self, builder: GraphBuilder, exact: bool = False) -> None:
        self.builder = builder
        self.exact = exact  # the function may look at the classes of its arguments, which torch's own operators do not
        self.tensors: list[TensorValue] = []
        self.values: dict[Node, Any] = {}
        self.key: list[Any] = []
        self.memorable = True
        self.symbolic = False  # some of the arguments have symbolic sizes, or are symbolic numbers
        self.floats = False  # some of the arguments are floats
        self.bodies = False  # some of the arguments are bodies, whose operators have said what they need of floats
        self.indices: type | None = None  # of an argument that only C takes for a number
        self.scalar_types = False  # some of the arguments are types of Python's numbers
        self.earlier: Callable[[TensorValue, int], TensorValue] | None = None  # for the n-th tensor an equal one

    def pack_call(
        self, target: object, args: list[Any], kwargs: dict[str, Any] | None
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a call of `target`."""
        fx_args = tuple([self.pack(a) for a in args])
        fx_kwargs = {}
        if kwargs:
            for name, a in kwargs.items():
                self.key.append(name)
                fx_kwargs[name] = self.pack(a)
        if self.indices is not None and isinstance(target, types.FunctionType):
            unsupported("graph-argument-type", f"{self.indices.__module__}.{self.indices.__qualname__}")
        return fx_args, fx_kwargs

    def pack(self, vt: VariableTracker) -> Any:
        """The argument for a tracker. Raises `Unsupported` for what can't be in a graph."""
        cls = vt.__class__
        packer = PACKERS.get(cls)
        if packer is None:
            packer = _find_packer(cls)
        return packer(self, vt)

    def tensor(self, value: TensorValue) -> Node:
        """A tensor argument."""
        if self.earlier is not None:
            value = self.earlier(value, len(self.tensors))
        node = value.node
        if node is None or self.builder.has_bodies:
            node = self.builder.node(value)
        meta = value.meta
        if not meta.interned or (value.fake is not None and (value.pinned or value.fake.constant is not None)):
            self.memorable = False
        elif meta.live:
            self.symbolic = True
        for i, other in enumerate(self.tensors):  # which argument the result is, or is a view of, depends on this
            if other is value or (value.family is not None and other.family is value.family):
                self.key.append((i, other is value))
                break
        self.tensors.append(value)
        self.values[node] = value
        self.key.append(meta)
        return node

    def symbol(self, value: SymValue) -> Any:
        """A symbolic number."""
        node = self.builder.node(value)
        self.values[node] = value
        if isinstance(value, FloatValue):
            self.floats = True
            self.key.append(FloatValue)
        else:
            self.symbolic = True
            self.key.append((SymValue, value.sym.node.expr))
        return node

    def body(self, module: GraphModule) -> Node:
        """The body of a higher-order operator."""
        self.memorable = False
        self.bodies = True
        node = self.builder.body_node(module)
        self.values[node] = module
        return node

    def constant(self, value: Any) -> Any:
        """A Python value that is itself."""
        kind = type(value)
        if kind in _UNTAGGED:
            self.key.append(value)
        elif kind in _ARGUMENT_TYPES or isinstance(value, _ARGUMENT_CLASSES):
            self.key.append((kind, value))
        else:
            read: Any = next((read for base, read in _PLAIN.items() if isinstance(value, base)), None)
            if self.exact:
                unsupported("graph-argument-type", f"{module_of(kind)}.{qualname_of(kind)}")
            if read is None:
                index = self._index(value)
                self.indices = kind
                return self.constant(index)
            # The printed graph could not name an enum member or another subclass.
            return self.constant(read(value))
        return value

    def _index(self, value: Any) -> int:
        """The number that the parser of an operator's arguments reads from an object, such as an enum member of C++."""
        kind = type(value)
        if not hasattr(kind, "__index__"):
            unsupported("graph-argument-type", f"{module_of(kind)}.{qualname_of(kind)}")
        return operator.index(value)

    def scalar_type(self, value: type) -> type:
        """A type of Python's numbers where torch takes a dtype: if the operator does not, it says so itself."""
        self.scalar_types = True
        self.key.append((type, value))
        return value

    def constant_tuple(self, value: tuple[Any, ...]) -> tuple[Any, ...]:
        """A tuple of constants."""
        self.opens(tuple, len(value))
        for item in value:
            self.constant(item)
        return value

    def container(self, cls: type, plain: Any) -> Any:
        """A container of class `cls` whose items are those of the plain tuple, list or dict. torch.fx has plain ones only:
        a function that may look at the class gets what a call of the class in the graph makes."""
        if not self.exact or cls is type(plain):
            return plain
        parts = plain if hasattr(cls, "_make") else (plain,)
        if cls not in _COPIED_CONTAINERS and not (issubclass(cls, tuple) and bases_of(cls) == (tuple,)):
            unsupported("graph-argument-type", f"{module_of(cls)}.{qualname_of(cls)}")
        self.memorable = False
        node = self.builder.add("call_function", cls, parts)
        for value in self.values.values():
            if isinstance(value, TensorValue):
                self.builder.propagator.fake_of(value)
        self.values[node] = cls(*self.builder.propagator.substitute(parts, self.values))
        return node

    def opens(self, kind: type, length: int) -> None:
        """A container of so many items follows."""
        self.key.append((kind, length))


# 1, 1.0 and True are one dictionary key but not one argument: int stands for itself, the others carry their type.
_UNTAGGED = frozenset(
    {int, str, type(None), type(Ellipsis), torch.dtype, torch.device, torch.layout, torch.memory_format}
)
_ARGUMENT_TYPES = frozenset({bool, float, complex, bytes, torch.qscheme, torch.Size, range})
_COPIED_CONTAINERS = frozenset({torch.Size, OrderedDict})
_PLAIN = {int: int.__int__, float: float.__float__, complex: complex.__complex__, str: str.__str__}
"""Type → what reads an instance of a subclass of it as torch does, past the methods of its class."""
_ARGUMENT_CLASSES = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)


SCALAR_TYPES = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}
"""The dtypes for which types of Python's numbers stand (torch/csrc/utils/python_arg_parser.h). Graphs hold the dtypes."""


def as_dtype(value: Any) -> Any:
    """A dtype in the place of a type of Python's numbers; anything else as it is."""
    return SCALAR_TYPES[value] if isinstance(value, type) else value


def with_writable_names(
    op: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[str, Any, tuple[Any, ...], dict[str, Any]]:
    """The same call without keywords that the text of a graph can't have, such as `from`: by position where the operator's schema knows
    the place, else through `with_names`."""
    unwritable = [name for name in kwargs if not name.isidentifier() or keyword.iskeyword(name)]
    if not unwritable:
        return op, target, args, kwargs
    for parameters in _positional_parameters(op, target):
        placed = _by_position(parameters, args, kwargs, unwritable)
        if placed is not None:
            return (op, target, *placed)
    function = getattr(torch.Tensor, target) if op == "call_method" else target
    named = {name: value for name, value in kwargs.items() if name not in unwritable}
    return "call_function", with_names(function, unwritable), (*args, *[kwargs[name] for name in unwritable]), named


def _positional_parameters(op: str, target: Any) -> Iterator[list[Any]]:
    """For each overload of an operator, the parameters that may be given by position."""
    if isinstance(target, torch._ops.OpOverload):
        schemas = [target._schema]
    elif isinstance(target, torch._ops.OpOverloadPacket):
        schemas = [getattr(target, name)._schema for name in target.overloads()]
    elif op == "call_method" or isinstance(target, types.BuiltinFunctionType):
        name = target if op == "call_method" else target.__name__
        schemas = torch._C._jit_get_schemas_for_operator(f"aten::{name}")
    else:
        schemas = []
    for schema in schemas:
        yield list(itertools.takewhile(lambda parameter: not parameter.kwarg_only, schema.arguments))


def _by_position(
    parameters: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any], names: list[str]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """The arguments with those called `names`, and what stands before them, by position. None if they are not of this overload."""
    places = {parameter.name: i for i, parameter in enumerate(parameters)}
    if not all(places.get(name, -1) >= len(args) for name in names):
        return None
    placed, named = list(args), dict(kwargs)
    for parameter in parameters[len(args) : max(places[name] for name in names) + 1]:
        if parameter.name not in named and not parameter.has_default_value():
            return None
        placed.append(named.pop(parameter.name) if parameter.name in named else parameter.default_value)
    return tuple(placed), named


def with_names(function: Callable[..., Any], names: list[str]) -> Callable[..., Any]:
    """A function that takes last, by position, the arguments that `function` takes under these names."""
    n = len(names)

    def run(*args: Any, **named: Any) -> Any:
        return function(*args[:-n], **named, **dict(zip(names, args[-n:], strict=True)))

    run.__name__ = function.__name__
    run.__wrapped__ = function  # type: ignore[attr-defined]  # says whose function it is
    return run


def _find_packer(cls: type) -> Packer:
    for base in mro_of(cls):
        if base in PACKERS:
            PACKERS[cls] = PACKERS[base]
            return PACKERS[base]
    return _refuse


def _refuse(packing: Packing, vt: VariableTracker) -> Any:
    return unsupported("graph-argument-type", f"{qualname_of(vt.python_type())} {vt.describe()}")
