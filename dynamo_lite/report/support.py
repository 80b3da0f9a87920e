"""The treatment of callables in captured code: the table in `docs/python-support.md`, and the basis of `check`.

Input: real callables. Output: `resolve(callable)`, and the table of every method of the builtin types and every function of the
library modules that are modelled.
Invariant: nothing is listed here that the engine does not know itself. `resolve` asks the registries in the order in which a call
does (`BuiltinVariable.tp_call`, `type_call`, `Trace.inline`); written down are only the reasons why some methods have no model.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
import sys
import types
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from dynamo_lite import markers
from dynamo_lite.breaks import BREAKS
from dynamo_lite.config import config
from dynamo_lite.isa.typeobject import Py_TPFLAGS_HEAPTYPE, flags
from dynamo_lite.polyfills.registry import STAND_INS, find_polyfill
from dynamo_lite.variables import register_models  # noqa: F401  (fills the registries)
from dynamo_lite.variables.objects.subclass import can_instantiate, native_class
from dynamo_lite.variables.protocol import trace_rules
from dynamo_lite.variables.protocol.dispatch import CONSTRUCTORS, HANDLERS, PURE, REFUSED, slug_of_foreign
from dynamo_lite.variables.protocol.slots import SEQUENCE_ALTERNATIVES, SLOTDEFS

NATIVE, POLYFILLED, FOLDED, GRAPH, INLINED, ENDS = "native", "polyfilled", "folded", "in the graph", "inlined", "breaks"

KINDS = {
    NATIVE: "has a model",
    POLYFILLED: "a Python function or class of `dynamo_lite.polyfills` stands for it and is inlined",
    FOLDED: "is called during capture if its arguments are constants, else it breaks",
    GRAPH: "becomes a node of the graph",
    INLINED: "is ordinary Python, followed like the program's own functions",
    ENDS: "ends the graph and runs as it is",
}


class Support(NamedTuple):
    """How a call is treated; for a break its slug and the context in this case."""

    how: str
    slug: str = ""
    context: str = ""


REASONS = {
    "__buffer__": "raw memory",
    "__class_getitem__": "generic aliases are constants",
    "__copy__": "copies are made by `copy.copy`",
    "__deepcopy__": "copies are made by `copy.deepcopy`",
    "__delattr__": "called by the generic algorithm, not by name",
    "__dir__": "introspection",
    "__getattribute__": "called by the generic algorithm, not by name",
    "__getformat__": "introspection",
    "__getnewargs__": "pickling",
    "__getstate__": "pickling",
    "__init_subclass__": "creation of a class",
    "__length_hint__": "a hint for C code",
    "__new__": "instances are made by calling the class",
    "__prepare__": "creation of a class",
    "__reduce__": "pickling",
    "__reduce_ex__": "pickling",
    "__release_buffer__": "raw memory",
    "__setattr__": "called by the generic algorithm, not by name",
    "__setstate__": "pickling",
    "__sizeof__": "the size in memory",
    "__subclasshook__": "creation of a class",
    "__typing_subst__": "typing at run time",
    "__typing_prepare_subst__": "typing at run time",
    "__typing_unpacked_tuple_args__": "typing at run time",
}
"""Why a method has no model, by name where that says it for every type; else the type's or module's reason, or the break's title."""

REASON_OF_OWNER = {
    "_io": "input and output",
    "_json": "the C half of `json`, made for real strings",
    "_random.Random": "the state of a generator object",
    "_sre": "the C half of `re`",
    "_struct": "packed bytes",
    "_thread": "threads",
    "bytearray": "buffers shared with C code",
    "coroutine": "runs in an event loop",
    "async_generator": "runs in an event loop",
    "frame": "looks at the running frame",
    "memoryview": "raw memory",
    "posix": "talks to the operating system",
    "sys": "reads or changes the interpreter itself",
    "time": "reads the clock",
}
"""Why a callable has no model, by the type or module that owns it."""


# -- how a call is treated


def resolve(value: Any) -> Support:
    """How a call of a real object is treated, as far as that does not depend on the arguments."""
    if isinstance(value, (staticmethod, classmethod, types.MethodType)):
        return resolve(value.__func__)
    if isinstance(value, functools.partial):
        return resolve(value.func)
    if isinstance(value, types.BuiltinFunctionType):
        owner = value.__self__
        if isinstance(owner, type) and not _known(HANDLERS, value) and not _known(PURE, value):
            raw = inspect.getattr_static(owner, value.__name__)
            return _c_function(value) if isinstance(raw, staticmethod) or raw is value else resolve(raw)
        if owner is not None and not isinstance(owner, (types.ModuleType, type)):
            return resolve(getattr(type(owner), value.__name__))
    if _known(REFUSED, value) and not (config.stitch and REFUSED[value][0] == "call-print"):
        return Support(ENDS, *REFUSED[value])
    if isinstance(value, type):
        return _class(value)
    if value is markers.graph_break:
        return Support(ENDS, "user-requested")
    if _known(HANDLERS, value):
        return Support(NATIVE)
    if _enters_graph(value):
        return Support(GRAPH)
    if isinstance(value, types.FunctionType):
        return _function(value)
    if isinstance(value, functools._lru_cache_wrapper):
        return resolve(value.__wrapped__)
    return _c_function(value)


def _known(table: Any, value: object) -> bool:
    try:
        return value in table
    except TypeError:  # unhashable
        return False


def _enters_graph(value: object) -> bool:
    torch_side = sys.modules.get("dynamo_lite.variables.torch.functions")
    return torch_side is not None and torch_side.enters_graph(value)


def _function(value: types.FunctionType) -> Support:
    if find_polyfill(value) is not None:
        return Support(POLYFILLED)
    reason = trace_rules.why_not_inlined(value)
    if reason is not None:
        target = trace_rules.transparent_target(value)
        return Support(ENDS, *reason) if target is None else resolve(target)
    return Support(INLINED)


def _c_function(value: Any) -> Support:
    if isinstance(value, types.WrapperDescriptorType) and _has_slot(value):
        return Support(NATIVE)
    if find_polyfill(value) is not None:
        return Support(POLYFILLED)
    if _known(PURE, value):
        return Support(FOLDED)
    return Support(ENDS, slug_of_foreign(value), qualified(value))


def _has_slot(value: types.WrapperDescriptorType) -> bool:
    owner, definition = native_class(value.__objclass__), SLOTDEFS.get(value.__name__)
    if owner is None or definition is None:
        return False
    slots = (definition.slot, SEQUENCE_ALTERNATIVES.get(definition.slot, definition.slot))
    return any(getattr(owner, slot, None) is not None for slot in slots)


def _class(value: type) -> Support:
    if value in STAND_INS:
        return Support(POLYFILLED)
    if value in CONSTRUCTORS:
        return Support(NATIVE)
    if value in PURE:
        return Support(FOLDED)
    if find_polyfill(value) is not None:
        return Support(POLYFILLED)
    if not can_instantiate(value):
        return Support(ENDS, slug_of_foreign(value), qualified(value))
    for name in ("__new__", "__init__"):
        part = inspect.getattr_static(value, name, None)
        support = resolve(part)
        if support.how == ENDS:
            return support
    return Support(INLINED if flags(value) & Py_TPFLAGS_HEAPTYPE else NATIVE)


def qualified(value: object) -> str:
    """`math.gcd`, `list.append`."""
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", repr(value))
    owner = getattr(value, "__objclass__", None)
    module = getattr(owner or value, "__module__", None)
    return name if module in (None, "builtins") else f"{module}.{name}"


def reason(name: str, owner: Any, support: Support) -> str:
    """Why a callable breaks, in a few words."""
    title = BREAKS[support.slug].title
    if name in REASONS:
        return REASONS[name]
    keys = [qualified(owner)] if isinstance(owner, type) else [owner.__name__]
    keys += [part for part in (support.context.partition(".")[0],) if part]
    return next((REASON_OF_OWNER[key] for key in keys if key in REASON_OF_OWNER), title)


# -- the contents of the table


def _types() -> dict[str, list[type]]:
    """Title → types whose methods are listed."""

    def of(*values: Any) -> list[type]:
        return list(dict.fromkeys(type(v) for v in values))

    async def coroutine() -> None: ...
    async def asynchronous() -> Any:
        yield

    suspended = coroutine()
    suspended.close()
    d: dict[Any, Any] = {}
    listed: dict[str, list[type]] = {
        "Objects, classes": [object, type, type(None), type(NotImplemented), type(...)],
        "Numbers": [bool, int, float, complex],
        "Text and bytes": [str, bytes, bytearray, memoryview],
        "Sequences": [list, tuple, range, slice],
        "Mappings and their views": [dict, *of(d.keys(), d.values(), d.items()), types.MappingProxyType],
        "Sets": [set, frozenset],
        "Iterators": [
            *of(iter([]), reversed([]), iter(()), iter(""), iter("é"), iter(b""), iter(bytearray()), iter(range(0))),
            *of(iter(range(1 << 70)), iter(d), iter(d.values()), iter(d.items())),
            *of(reversed(d), reversed(d.values()), reversed(d.items()), iter(set()), iter(int, 0)),
            *(enumerate, zip, map, filter, reversed),
        ],
        "Functions and descriptors": [
            *(types.FunctionType, types.MethodType, types.BuiltinFunctionType, types.MethodWrapperType),
            *(types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType),
            *(types.GetSetDescriptorType, types.MemberDescriptorType, property, classmethod, staticmethod, super),
            *(types.CellType, types.CodeType, types.FrameType, types.TracebackType, types.ModuleType),
            *(types.GenericAlias, types.UnionType, types.SimpleNamespace),
        ],
        "Generators": [*of(i for i in ()), type(suspended), type(asynchronous())],
        "Exceptions": [BaseException, BaseExceptionGroup, OSError, ImportError, StopIteration, UnicodeDecodeError],
    }
    return listed


MODULES = tuple(
    """
    builtins collections collections.abc itertools functools operator contextlib dataclasses enum copy math cmath heapq bisect
    types typing abc weakref random re string json struct inspect logging warnings time os os.path sys
    """.split()
)
"""The library modules whose functions and classes are listed."""

_METHODS = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
    staticmethod,
    classmethod,
)
_FUNCTIONS = (
    type,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    functools.partial,
    functools._lru_cache_wrapper,
)


class Row(NamedTuple):
    """One callable of the table."""

    owner: Any
    name: str
    support: Support

    @property
    def reason(self) -> str:
        return reason(self.name, self.owner, self.support)


def methods(cls: type) -> list[Row]:
    """The methods that a class itself defines."""
    found = [(name, raw) for name, raw in vars(cls).items() if isinstance(raw, _METHODS)]
    return [Row(cls, name, _method(cls, name, raw)) for name, raw in sorted(found)]


def _method(cls: type, name: str, raw: object) -> Support:
    if name == "__new__":  # it is called when the class is
        made = resolve(cls)
        return made if made.how != ENDS else Support(ENDS, made.slug, qualified(cls))
    return resolve(raw)


def functions(module: types.ModuleType) -> list[Row]:
    """The public functions and classes of a module; constants and modules are no calls."""
    names = getattr(module, "__all__", None) or [name for name in vars(module) if not name.startswith("_")]
    found = []
    for name in sorted(set(names)):
        value = getattr(module, name, None)
        if isinstance(value, _FUNCTIONS) and not _is_foreign(module, value):
            found.append(Row(module, name, resolve(value)))
    return found


def _is_foreign(module: types.ModuleType, value: object) -> bool:
    """True for a callable that a module without `__all__` only imports."""
    if hasattr(module, "__all__"):
        return False
    home = getattr(value, "__module__", None)
    homes = (module.__name__, f"_{module.__name__}", None)
    return home not in homes and home in sys.modules and isinstance(value, (type, types.FunctionType))


# -- the table

TORCH = getattr(sys.modules.get("torch"), "__version__", None)
VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"
if TORCH is not None:
    VERSION += f" with torch {'.'.join(TORCH.split('.')[:2])}"


def rows() -> Iterator[tuple[str, str, list[Row]]]:
    """(chapter, what, its callables)."""
    seen: set[type] = set()
    for title, classes in _types().items():
        for cls in classes:
            seen.add(cls)
            yield title, qualified(cls), methods(cls)
    for name in MODULES:
        module = importlib.import_module(name)
        found = functions(module)
        if name == "builtins":
            found = [
                row for row in found if not getattr(module, row.name).__class__.__module__.startswith("_sitebuiltins")
            ]
        yield "Library modules", name, found
        for row in found:
            cls = getattr(module, row.name)
            if isinstance(cls, type) and cls not in seen and _is_listed(cls, name):
                seen.add(cls)
                yield "Library modules", qualified(cls), methods(cls)


def _is_listed(cls: type, module: str) -> bool:
    """Classes of the module itself; those written in Python have ordinary methods, which say nothing new."""
    own = cls.__module__ in (module, f"_{module}", "_collections", "_functools")
    return (
        own
        and module != "builtins"
        and not isinstance(inspect.getattr_static(cls, "__init__", None), types.FunctionType)
    )


def table() -> Iterator[str]:
    """`docs/python-support.md`."""
    everything = list(rows())
    counts = Counter(row.support.how for _, _, found in everything for row in found)
    yield "# What of Python is captured"
    yield ""
    yield (
        "What a call in captured code does, for every method of every builtin type and every function of the library modules that "
        f"are modelled. Written by `python -m dynamo_lite support --write` on CPython {VERSION}; `python -m dynamo_lite check "
        "script.py` forecasts the breaks of a script in the same way. Methods that a type inherits are listed with the type that "
        "defines them; what is not listed as breaking can still break on some arguments. The numbers are those of "
        "[breaks.md](breaks.md)."
    )
    yield ""
    yield "| | what it means | how many |"
    yield "|---|---|---|"
    for how, meaning in KINDS.items():
        yield f"| {how} | {meaning} | {counts[how]} |"
    yield f"| | in all | {sum(counts.values())} |"
    chapter = None
    for title, what, found in everything:
        if not found:
            continue
        if title != chapter:
            chapter = title
            yield ""
            yield f"## {title}"
        yield ""
        yield f"**`{what}`**"
        yield ""
        yield from _entry(found)
    if TORCH is not None:
        yield from _operators()


def operators() -> list[tuple[str, str, str]]:
    """Of each higher-order operator of torch its name, what becomes of a call, and which calls break the graph nevertheless."""
    package = importlib.import_module("torch._higher_order_ops")
    for module in (*[m.name for m in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")], *_ELSEWHERE):
        importlib.import_module(module)
    side = importlib.import_module("dynamo_lite.variables.torch.higher_order.operators")
    registered = importlib.import_module("torch._ops")._higher_order_ops
    return [(name, *side.support(registered[name])) for name in sorted(registered)]


_ELSEWHERE = (
    "torch._dynamo._trace_wrapped_higher_order_op",
    "torch._export.wrappers",
    "torch._functorch.autograd_function",
    "torch._inductor.fx_passes.control_dependencies",
    "torch._prims.rng_prims",
)
"""Modules of torch that define operators outside of its package for them."""


def _operators() -> Iterator[str]:
    yield ""
    yield "## Higher-order operators of torch"
    yield ""
    yield (
        "All that torch registers. A function that becomes a sub-graph must not change objects or tensors from outside, raise, or break "
        "the graph; one that is followed may do what any function of the program may. Operators that break the graph do so with DL091, and "
        "run as they are."
    )
    yield ""
    yield "| operator | a call is | it breaks the graph if |"
    yield "|---|---|---|"
    for name, becomes, unless in operators():
        yield f"| `{name}` | {becomes} | {unless} |"


def _entry(found: list[Row]) -> Iterator[str]:
    for how in KINDS:
        chosen = [row for row in found if row.support.how == how]
        if how == ENDS:
            groups: dict[tuple[str, str], list[str]] = {}
            for row in chosen:
                groups.setdefault((BREAKS[row.support.slug].code, row.reason), []).append(row.name)
            for (code, why), names in groups.items():
                yield f"- {how} ({code}, {why}): {_names(names)}"
        elif chosen:
            yield f"- {how}: {_names([row.name for row in chosen])}"


def _names(names: list[str]) -> str:
    return " ".join(f"`{name}`" for name in names)
