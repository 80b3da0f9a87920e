"""Objects of a process, described in such a way that another process can tell whether it has the same ones.

Input: objects that a trace knows by identity, values that it compared with. Output: plain data for `marshal`: where such an object is found
(`Writer`), and in another process the object (`Reader`).
Invariant: what is not proven to be the same is refused (`Refused` while writing, `Mismatch` while reading). A place alone proves
nothing: with it goes what a trace may conclude from an object's identity (`_FACTS`), above all the code of functions.
"""

from __future__ import annotations

import builtins
import enum
import functools
import hashlib
import importlib
import marshal
import os
import sys
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from dynamo_lite import markers
from dynamo_lite._eval_frame import runs_its_code
from dynamo_lite.exc import Mismatch, Refused
from dynamo_lite.graph import side
from dynamo_lite.guards import ir
from dynamo_lite.guards.mirror import MISSING, WRONG, above_root, step
from dynamo_lite.isa.typeobject import Py_TPFLAGS_HEAPTYPE, flags
from dynamo_lite.polyfills.registry import POLYFILLS

ATOMS = frozenset({type(None), bool, int, float, complex, str, bytes, type(Ellipsis)})

# ----------------------------------------------------------------------------------------------------------------------
# Code.

_codes: dict[int, tuple[Any, bytes]] = {}


def fingerprint(code: types.CodeType) -> bytes:
    """A fingerprint of a code object: equal for code that does the same at the same lines. Folders of files don't count."""
    known = _codes.get(id(code))
    if known is not None and known[0]() is code:
        return known[1]
    parts = (
        code.co_name,
        code.co_qualname,
        code.co_argcount,
        code.co_posonlyargcount,
        code.co_kwonlyargcount,
        code.co_flags,
        code.co_code,
        code.co_names,
        code.co_varnames,
        code.co_freevars,
        code.co_cellvars,
        code.co_exceptiontable,
        code.co_linetable,
        code.co_firstlineno,
        os.path.basename(code.co_filename),
        tuple([_constant(c) for c in code.co_consts]),
    )
    # Version 2: later ones write how often an object is referred to, which differs from process to process.
    found = hashlib.blake2b(marshal.dumps(parts, 2), digest_size=16).digest()
    number = id(code)
    _codes[number] = (weakref.ref(code, lambda _: _codes.pop(number, None)), found)
    return found


def _constant(value: Any) -> Any:
    kind = type(value)
    if kind in ATOMS:
        return value
    if kind is types.CodeType:
        return ("code", fingerprint(value))
    if kind is tuple:
        return ("tuple", *map(_constant, value))
    if kind is frozenset:  # its order differs from process to process
        return ("frozenset", *sorted(marshal.dumps(_constant(v), 2) for v in value))
    return ("object", kind.__module__, kind.__qualname__, getattr(value, "__qualname__", ""))


def _kind(value: object) -> str:
    cls = type(value)
    return f"{cls.__module__}.{cls.__qualname__}"


# ----------------------------------------------------------------------------------------------------------------------
# Facts: what follows from the identity of an object. Functions (object, mention) -> data, where `mention(other object)` stands for others.

_CLASS_FLAGS = 0x100720  # of Include/object.h: sequence, mapping, immutable, heap, base type, abstract


def _function_facts(f: types.FunctionType, mention: Any) -> tuple[Any, ...]:
    if not runs_its_code(f):
        raise Refused(f"{f.__qualname__}, whose calls go elsewhere")
    if getattr(f, markers.CONSTANT_RESULT, False):
        raise Refused(f"the result of {f.__qualname__}, which is taken to be constant")
    return (
        fingerprint(f.__code__),
        f.__name__,
        f.__qualname__,
        f.__module__,
        mention(f.__globals__),
        f.__builtins__ is builtins.__dict__,
        *_marks(f),
    )


def _marks(f: Any) -> tuple[Any, ...]:
    stand_in = POLYFILLS.get(f)
    if stand_in is not None and stand_in.__module__.partition(".")[0] == _OWN_PACKAGE:
        stand_in = None  # comes with the version of this package, when it is first asked for
    code = getattr(f, "__code__", None)
    attributes = getattr(f, "__dict__", None) or {}
    return (
        markers.is_allowed_in_graph(f),
        f in markers.DISALLOWED_IN_GRAPH,
        f in markers.FORBIDDEN_IN_GRAPH,
        code in markers.SKIPPED_CODES,
        code in markers.FOLLOWED_CODES,
        bool(attributes.get(markers.DISABLED)),
        None if stand_in is None else (stand_in.__module__, stand_in.__qualname__, fingerprint(stand_in.__code__)),
    )


def _class_facts(cls: type, mention: Any) -> tuple[Any, ...]:
    name = (type.__dict__["__qualname__"].__get__(cls), cls.__name__, str(cls.__dict__.get("__module__")))
    if not flags(cls) & Py_TPFLAGS_HEAPTYPE:
        return (*name, _version_of(cls.__module__, cls))
    mro = type.__dict__["__mro__"].__get__(cls)
    return (
        *name,
        mention(type(cls)),
        tuple([mention(base) for base in mro[1:]]),
        flags(cls) & _CLASS_FLAGS,
        (cls.__basicsize__, cls.__itemsize__, cls.__dictoffset__, cls.__weakrefoffset__),
        tuple(sorted(name for name in cls.__dict__ if name[:2] == name[-2:] == "__" and name not in _VOLATILE)),
    )


# Made by looking at a class, not by its program.
_VOLATILE = frozenset({"__annotations__", "__annotations_cache__", "__abstractmethods__", "__doc__", "__signature__"})


def _version_of(module: str, value: object = None) -> str:
    """The version of the package that a C object comes from. That of Python and torch is part of every key."""
    top = module.partition(".")[0]
    if top not in sys.modules and value is not None:  # what the object says of itself is not always where it is
        top = _index(len(sys.modules)).get(id(value), (top, ""))[0].partition(".")[0]
    if top in sys.stdlib_module_names or top in ("builtins", "torch", "dynamo_lite", "pybind11_builtins"):
        return ""
    return _version_of_package(top)


@functools.cache
def _version_of_package(top: str) -> str:
    home = sys.modules.get(top)
    version = getattr(home, "__version__", None)
    if type(version) is str:
        return version
    try:
        with open(home.__file__, "rb") as file:
            return hashlib.blake2b(file.read(), digest_size=16).hexdigest()
    except (AttributeError, OSError):
        raise Refused(f"C code of {top}, whose version is not known") from None


def _builtin_facts(f: Any, mention: object) -> tuple[Any, ...]:
    owner = f.__self__
    if isinstance(owner, types.ModuleType) or owner is None:
        about = owner.__name__ if owner is not None else None
        version = _version_of(about or f.__module__ or "builtins")
    else:
        cls = owner if issubclass(type(owner), type) else type(owner)
        about, version = cls.__qualname__, _version_of(cls.__module__)
    return f.__name__, f.__qualname__, type(owner).__qualname__, about, version, *_marks(f)


def _descriptor_facts(d: Any, mention: Any) -> tuple[Any, ...]:
    return type(d).__qualname__, d.__name__, mention(d.__objclass__), *_marks(d)


def _enum_facts(member: enum.Enum, mention: Any) -> tuple[Any, ...]:
    # Names are in order of definition.
    return tuple([(name, mention.value(v)) for name, v in vars(member).items() if name != "__objclass__"])


def _parts_facts(*names: str) -> Callable[..., Any]:
    def facts(value: object, mention: Any) -> tuple[Any, ...]:
        parts = [getattr(value, name) for name in names]
        return tuple([None if part is None else mention(part) for part in parts])

    return facts


_DESCRIPTORS = (
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    types.ClassMethodDescriptorType,
)

_PARTS: dict[type, tuple[str, ...]] = {
    property: ("fget", "fset", "fdel"),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    types.FunctionType: ("__code__",),
}

_FACTS: dict[type, Callable[[Any, Any], tuple[Any, ...]]] = {
    types.FunctionType: _function_facts,
    types.BuiltinFunctionType: _builtin_facts,
    types.ModuleType: lambda module, mention: (module.__name__,),
    types.CodeType: lambda code, mention: (fingerprint(code),),
    dict: lambda value, mention: (),
    property: _parts_facts(*_PARTS[property]),
    staticmethod: _parts_facts("__func__"),
    classmethod: _parts_facts("__func__"),
    **dict.fromkeys(_DESCRIPTORS, _descriptor_facts),
}


def _facts_of(value: object) -> Callable[[Any, Any], tuple[Any, ...]]:
    kind = type(value)
    if issubclass(kind, type):
        return _class_facts
    if issubclass(kind, enum.Enum):
        return _enum_facts
    found = _FACTS.get(kind)
    if found is None and issubclass(kind, types.ModuleType | dict):
        found = _FACTS[types.ModuleType if issubclass(kind, types.ModuleType) else dict]
    if found is None:
        raise Refused(f"an object of class {kind.__module__}.{kind.__qualname__}")
    return found


_OWN_PACKAGE = __name__.partition(".")[0]
_POLYFILLS = f"{_OWN_PACKAGE}.polyfills."

# ----------------------------------------------------------------------------------------------------------------------
# Places.


def _loaded(name: str) -> Any:
    """A module that the program has imported. Polyfills are ours, and imported when they are needed. Raises `Mismatch`."""
    found = sys.modules.get(name)
    if found is None and name.startswith(_POLYFILLS):
        found = importlib.import_module(name)
    if found is None:
        raise Mismatch(f"module {name} is not imported")
    return found


def _walk(module: str, qualname: str) -> Any:
    """The object that a module's text calls by that name: found along namespaces, so that no descriptor and no `__getattr__` runs."""
    namespace: Any = vars(_loaded(module))
    value = None
    for name in qualname.split("."):
        value = namespace.get(name, MISSING)
        if value is MISSING:
            raise Mismatch(f"{module} has no {qualname}")
        namespace = type.__dict__["__dict__"].__get__(value) if issubclass(type(value), type) else {}
    return value.__func__ if type(value) in (staticmethod, classmethod) else value


def _found(module: object, qualname: object, value: object) -> bool:
    try:
        return type(module) is type(qualname) is str and _walk(module, qualname) is value
    except Mismatch:
        return False


@functools.lru_cache(maxsize=1)
def _index(n_modules: int) -> dict[int, tuple[str, str]]:
    """The names that modules have for C functions, classes and dictionaries: they know none themselves, or a wrong one."""
    found: dict[int, tuple[str, str]] = {}
    kinds = (types.BuiltinFunctionType, dict)
    for module, home in list(sys.modules.items()):
        for name, value in list(getattr(home, "__dict__", {}).items()):
            if type(name) is str and (issubclass(type(value), kinds) or issubclass(type(value), type)):
                found.setdefault(id(value), (module, name))
    return found


def _named(value: Any) -> tuple[Any, ...] | None:
    """The place of an object that a module's text has a name for."""
    kind = type(value)
    if issubclass(kind, types.ModuleType):
        return ("module", value.__name__) if sys.modules.get(value.__name__) is value else None
    if kind is dict and type(value.get("__name__")) is str:
        home = sys.modules.get(value["__name__"])
        if home is not None and vars(home) is value:
            return ("dict", value["__name__"])
    if kind is types.CodeType or kind in _PARTS and kind is not types.FunctionType:
        return None
    if kind is types.FunctionType or issubclass(kind, type):
        module = type.__dict__["__module__"].__get__(value) if issubclass(kind, type) else value.__module__
        name = type.__dict__["__qualname__"].__get__(value) if issubclass(kind, type) else value.__qualname__
        if _found(module, name, value):
            return ("name", module, name)
        if kind is types.FunctionType:
            return None
    if kind is types.BuiltinFunctionType:
        module = value.__self__.__name__ if isinstance(value.__self__, types.ModuleType) else value.__module__
        if _found(module, value.__name__, value):
            return ("name", module, value.__name__)
    found = _index(len(sys.modules)).get(id(value))
    return ("name", *found) if found is not None and _found(*found, value) else None


class Writer:
    """Describes the objects of one trace: of function `root`, with its guards and the paths `needed`, parents first. `recipes`: id of an
    object that the trace has made → the function that made it, and its arguments."""

    def __init__(self, root: types.FunctionType, guards: ir.GuardSet, needed: list[ir.GuardNode], recipes: Any) -> None:
        self.root = root
        self.recipes = recipes
        self.guards = guards
        self.nodes = needed
        self.numbers = {id(node): i for i, node in enumerate(needed)}
        self.table: list[Any] = []
        self.known: dict[int, int] = {}
        self.alive: list[Any] = []
        self.parts: dict[int, list[tuple[Any, ...]]] = {}
        self.strings: dict[str, int] = {}
        self._collect()

    def _collect(self) -> None:
        """The paths on which guards find objects."""
        for guard in self.guards.guards:
            if guard.kind in (ir.IS, ir.REF_IS):
                self._offer(demanded(guard), ("node", self.numbers[id(guard.node)]))
            elif guard.kind in (ir.TYPE_IS, ir.REF_TYPE_IS):
                self._offer(demanded(guard), ("type", self.numbers[id(guard.node)]))

    def _offer(self, value: object, place: tuple[Any, ...]) -> None:
        if type(value) not in ATOMS:
            self.parts.setdefault(id(value), []).append(place)

    def mention(self, value: object, place: tuple[Any, ...]) -> int:
        """The number of an object that can be found at a place."""
        self._offer(value, place)
        return self(value)

    def __call__(self, value: object) -> int:
        """The number of an object."""
        number = self.known.get(id(value))
        if number is not None:
            if number < 0:
                raise Refused(f"{short_name(value)}, which is only found through itself")
            return number
        self.known[id(value)] = -1
        self.alive.append(value)
        try:
            place, facts = self._describe(value)
        except Refused:
            del self.known[id(value)]
            raise
        number = self.known[id(value)] = len(self.table)
        self.table.append((place, facts))
        for name in _PARTS.get(type(value), ()):
            part = getattr(value, name)
            if part is not None:
                self._offer(part, ("part", number, name))
        return number

    def _describe(self, value: object) -> tuple[tuple[Any, ...], Any]:
        of_kind = side.KINDS.get(type(value))
        if of_kind is not None:
            return ("kind", *of_kind(value)), None
        of_sizes = side.recipe_of(value)
        if of_sizes is not None:
            return ("kind", *of_sizes), None
        recipe = self.recipes.get(id(value))
        if recipe is not None:
            maker, args = recipe
            return ("made", self(maker), self.value(args)), None
        facts = _facts_of(value)
        place = self._place(value)
        if type(value) in _PARTS and type(value) is not types.FunctionType:
            self._announce_parts(value, place)
        return place, (_kind(value), *facts(value, self))

    def _announce_parts(self, value: object, place: tuple[Any, ...]) -> None:
        """A property's functions are found through it: its place has to have a number before them."""
        number = len(self.table)
        self.table.append((place, None))  # compared under its own number
        for name in _PARTS[type(value)]:
            part = getattr(value, name)
            if part is not None:
                self._offer(part, ("part", number, name))

    def _place(self, value: Any) -> tuple[Any, ...]:
        root = self.root
        if value is root:
            return ("root",)
        if value is root.__globals__:
            return ("globals",)
        if value is root.__code__:
            return ("code",)
        if isinstance(value, _DESCRIPTORS) and vars(value.__objclass__).get(value.__name__) is value:
            return ("member", self(value.__objclass__), value.__name__)
        if type(value) is types.BuiltinFunctionType and _is_own(value.__self__, value):  # `object.__new__`
            return ("member", self(value.__self__), value.__name__)
        if issubclass(type(value), enum.Enum):
            if type(value).__members__.get(value.name) is not value:
                raise Refused(f"{type(value).__qualname__} member without a name")
            return ("enum", self(type(value)), value.name)
        named = _named(value)
        if named is not None:
            return named
        for place in self.parts.get(id(value), ()):
            try:
                self._reach(place)
            except Refused:
                continue
            return place
        raise Refused(f"{short_name(value)}, which has no name")

    def _reach(self, place: tuple[Any, ...]) -> None:
        """Make sure that the start of a path can be described."""
        if place[0] in ("node", "type"):
            root = self.nodes[place[1]].root
            if root.kind in (ir.CONST, ir.REFERENT):
                self(constant_of(root))

    def value(self, v: Any) -> Any:
        """Plain data for a value, or for a reference to an object."""
        kind = type(v)
        if kind in ATOMS:
            return v
        if kind in _SEQUENCES:
            return (_SEQUENCES[kind], tuple([self.value(item) for item in v]))
        if kind is dict and self._named_or_none(v) is None:
            return ("dict", tuple([(self.value(k), self.value(item)) for k, item in v.items()]))
        if kind in (set, frozenset):
            items = [self.value(item) for item in v]
            if not all(type(item) in ATOMS for item in items):
                raise Refused("a set of objects")
            return (kind.__name__, tuple(items))
        if kind in (slice, range):
            return (kind.__name__, (self.value(v.start), self.value(v.stop), self.value(v.step)))
        if v is NotImplemented:
            return ("NotImplemented",)
        return ("object", self(v))

    def _named_or_none(self, v: object) -> Any:
        return ("globals",) if v is self.root.__globals__ else _named(v)

    def text(self, text: str) -> int:
        """The number of a string that occurs often."""
        return self.strings.setdefault(text, len(self.strings))


def _is_own(cls: object, function: types.BuiltinFunctionType) -> bool:
    """Whether a class has a function written in C itself."""
    return issubclass(type(cls), type) and type.__dict__["__dict__"].__get__(cls).get(function.__name__) is function


_SEQUENCES = {tuple: "tuple", list: "list"}
_MAKERS: dict[str, Any] = {
    "tuple": tuple,
    "list": list,
    "set": set,
    "frozenset": frozenset,
    "slice": lambda parts: slice(*parts),
    "range": lambda parts: range(*parts),
}


def demanded(guard: ir.Guard) -> Any:
    """The object that a guard compares with. Raises `Refused` if it is gone."""
    if guard.kind in ir.FIRM:
        value = guard.arg()
        if value is None:
            raise Refused("an object that is gone")
        return value
    return guard.arg


def constant_of(node: ir.GuardNode) -> Any:
    """The object of a root. Raises `Refused` if it is gone."""
    value = node.arg() if node.kind == ir.REFERENT else node.arg
    if node.kind == ir.REFERENT and value is None:
        raise Refused("an object that is gone")
    return value


def short_name(value: object) -> str:
    """Which object it is about, for messages."""
    kind = type(value)
    name = getattr(value, "__qualname__", None) if kind in _FACTS or issubclass(kind, type) else None
    return f"{kind.__qualname__} {name}" if type(name) is str else f"a {kind.__qualname__}"


class Reader:
    """Finds the objects of a description in this process; each one when it is needed, and all of them in `check`.

    `nodes` are the described paths, `(parent, kind, argument)`, where `(..., n)` is number `n` of `arguments`; `values` belong to the
    call under way.
    """

    def __init__(
        self,
        table: Any,
        nodes: Any,
        arguments: Any,
        root: types.FunctionType,
        values: tuple[Any, ...],
    ) -> None:
        self.table = table
        self.nodes = nodes
        self.arguments = arguments
        self.root = root
        self.values = values
        self.found: list[Any] = [MISSING] * len(table)
        self.reached: list[Any] = [MISSING] * len(nodes)
        self.under_way: set[Any] = set()
        self.codes: dict[bytes, types.CodeType] = {fingerprint(root.__code__): root.__code__}

    def __call__(self, number: int) -> Any:
        """The object of that number. Raises `Mismatch`."""
        value = self.found[number]
        if value is MISSING:
            if number in self.under_way:
                raise Mismatch("an object that is only found through itself")
            self.under_way.add(number)
            place, facts = self.table[number]
            value = self.found[number] = self._find(*place)
            self.under_way.discard(number)
            if facts is not None:
                self._compare(value, facts)
            if type(value) is types.FunctionType:
                self.codes.setdefault(fingerprint(value.__code__), value.__code__)
        return value

    def check(self) -> None:
        """Look at all objects. Raises `Mismatch`."""
        for number in range(len(self.table)):
            self(number)

    def _compare(self, value: object, facts: tuple[Any, ...]) -> None:
        try:
            now = (_kind(value), *_facts_of(value)(value, _Mentions(self)))
        except Refused as reason:
            raise Mismatch(str(reason)) from None
        if not _agree(now, facts, self):
            raise Mismatch(f"{short_name(value)} is another one")

    def _find(self, kind: str, *rest: Any) -> Any:
        return _FINDERS[kind](self, *rest)

    def at(self, number: int) -> Any:
        """The object that a path leads to now. Raises `Mismatch`."""
        value = self.reached[number]
        if value is MISSING:
            parent, kind, arg = self.nodes[number]
            if type(arg) is tuple and arg[:1] == (...,):
                arg = self.value(self.arguments[arg[1]])
            above = above_root(kind, self.values, self.root.__closure__) if parent < 0 else self.at(parent)
            value = arg if kind == ir.REFERENT else step(kind, above, arg)
            if value is MISSING or value is WRONG:
                raise Mismatch("a path leads nowhere")
            self.reached[number] = value
        return value

    def only(self, numbers: Iterable[int]) -> Found:
        """A reader that finds these objects."""
        return Found({number: self(number) for number in numbers if number < len(self.table)})

    def value(self, data: Any) -> Any:
        """The value for plain data."""
        if type(data) is not tuple:
            return data
        kind, *rest = data
        if kind == "object" or kind == "weakly":
            return self(rest[0])
        if kind == "dict":
            return {self.value(k): self.value(item) for k, item in rest[0]}
        if kind == "NotImplemented":
            return NotImplemented
        return _MAKERS[kind]([self.value(item) for item in rest[0]])


class Found(Reader):
    """Some of the objects that were found: it holds no others, and nothing of the call."""

    def __init__(self, found: dict[int, Any]) -> None:
        self.found = found

    def __call__(self, number: int) -> Any:
        return self.found[number]


class _Mentions:
    """Stands for objects in the facts of this process; those that were written are numbers."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader

    def __call__(self, value: object) -> Any:
        return _Object(value)

    def value(self, value: object) -> Any:
        return _Value(value)


class _Object:
    def __init__(self, value: Any) -> None:
        self.value = value


class _Value(_Object):
    pass


def _agree(now: Any, written: object, reader: Reader) -> bool:
    kind = type(now)
    if kind is _Object:
        return type(written) is int and reader(written) is now.value
    if kind is _Value:
        known = reader.value(written)
        return type(known) is type(now.value) and known == now.value
    if kind is tuple:
        return (
            type(written) is tuple
            and len(now) == len(written)
            and all(_agree(a, b, reader) for a, b in zip(now, written, strict=True))
        )
    return kind is type(written) and now == written


def _member(reader: Reader, owner: int, name: str) -> Any:
    found = vars(reader(owner)).get(name, MISSING)
    if found is MISSING:
        raise Mismatch(f"{short_name(reader(owner))} has no {name}")
    return found


def _part(reader: Reader, owner: int, name: str) -> Any:
    found = getattr(reader(owner), name, None)
    if found is None:
        raise Mismatch(f"{short_name(reader(owner))} has no {name}")
    return found


def _enum_member(reader: Reader, owner: int, name: str) -> Any:
    cls = reader(owner)
    found = cls.__members__.get(name) if issubclass(type(cls), enum.EnumMeta) else None
    if found is None:
        raise Mismatch(f"{cls.__qualname__} has no {name}")
    return found


_FINDERS: dict[str, Callable[..., Any]] = {
    "root": lambda reader: reader.root,
    "globals": lambda reader: reader.root.__globals__,
    "code": lambda reader: reader.root.__code__,
    "module": lambda reader, name: _loaded(name),
    "dict": lambda reader, name: vars(_loaded(name)),
    "name": lambda reader, module, name: _walk(module, name),
    "member": _member,
    "part": _part,
    "enum": _enum_member,
    "made": lambda reader, maker, args: reader(maker)(*reader.value(args)),
    "node": lambda reader, number: reader.at(number),
    "type": lambda reader, number: type(reader.at(number)),
    "kind": lambda reader, kind, *rest: side.FINDERS[kind](*rest),
}


def all_codes(codes: Any) -> Iterator[types.CodeType]:
    """These code objects and those among their constants."""
    pending = list(codes)
    while pending:
        code = pending.pop()
        yield code
        pending.extend(c for c in code.co_consts if type(c) is types.CodeType)
