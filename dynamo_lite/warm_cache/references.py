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
import operator
import os
import sys
import types
import typing
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from dynamo_lite import markers
from dynamo_lite._eval_frame import runs_its_code
from dynamo_lite.breaks import UserFrame
from dynamo_lite.exc import Mismatch, Refused
from dynamo_lite.graph import side
from dynamo_lite.guards import ir
from dynamo_lite.guards.mirror import MISSING, WRONG, above_root, step
from dynamo_lite.isa.typeobject import (
    Py_TPFLAGS_HEAPTYPE,
    basicsize_of,
    dict_of,
    dictoffset_of,
    flags,
    itemsize_of,
    module_of,
    mro_of,
    name_of,
    qualname_of,
    weakrefoffset_of,
)
from dynamo_lite.plain_data import ATOMS, Codec, Data, Form, collection, record
from dynamo_lite.polyfills.registry import known_polyfill
from dynamo_lite.record import BreakRecord, Function, Specialization

# ----------------------------------------------------------------------------------------------------------------------
# Code.

_codes: dict[int, tuple[Any, bytes]] = {}
_code_fields = operator.attrgetter(
    *"co_name co_qualname co_argcount co_posonlyargcount co_kwonlyargcount co_flags co_code co_names co_varnames".split(),
    *"co_freevars co_cellvars co_exceptiontable co_linetable co_firstlineno".split(),
)


def fingerprint(code: types.CodeType) -> bytes:
    """A fingerprint of a code object: equal for code that does the same at the same lines. Folders of files don't count."""
    known = _codes.get(id(code))
    if known is not None and known[0]() is code:
        return known[1]
    parts = (
        *_code_fields(code),
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
    if kind is slice:  # a constant since CPython 3.14
        return ("slice", *map(_constant, (value.start, value.stop, value.step)))
    if kind is frozenset:  # its order differs from process to process
        return ("frozenset", *sorted(marshal.dumps(_constant(v), 2) for v in value))
    return ("object", kind.__module__, kind.__qualname__, getattr(value, "__qualname__", ""))


def _kind(value: object) -> str:
    cls = type(value)
    return f"{module_of(cls)}.{qualname_of(cls)}"


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
    stand_in = known_polyfill(f)
    if stand_in is not None and stand_in.__module__.partition(".")[0] == _OWN_PACKAGE:
        stand_in = None  # comes with the version of this package, when it is first asked for
    code = getattr(f, "__code__", None)
    attributes = getattr(f, "__dict__", None) or {}
    return (
        markers.is_allowed_in_graph(f),
        f in markers.DISALLOWED_IN_GRAPH,
        f in markers.FORBIDDEN_IN_GRAPH or attributes.get(markers.FORBIDDEN) is True,
        code in markers.SKIPPED_CODES,
        code in markers.FOLLOWED_CODES,
        bool(attributes.get(markers.DISABLED)),
        None if stand_in is None else (stand_in.__module__, stand_in.__qualname__, fingerprint(stand_in.__code__)),
    )


def _class_facts(cls: type, mention: Any) -> tuple[Any, ...]:
    name = (qualname_of(cls), name_of(cls), str(dict_of(cls).get("__module__")))
    if not flags(cls) & Py_TPFLAGS_HEAPTYPE:
        return (*name, _version_of(str(module_of(cls)), cls))
    mro = mro_of(cls)
    return (
        *name,
        mention(type(cls)),
        tuple([mention(base) for base in mro[1:]]),
        flags(cls) & _CLASS_FLAGS,
        (basicsize_of(cls), itemsize_of(cls), dictoffset_of(cls), weakrefoffset_of(cls)),
        _definitions(cls),
    )


def _definitions(cls: type) -> tuple[Any, ...]:
    """The names that a class defines, each with the kind of its object: what protocols and the classes of `collections.abc` ask classes
    for, and whether instances are hashed and compared by their address. Of a protocol also the names that it only annotates."""
    names = sorted(
        (name, _kind_of_definition(value))
        for name, value in dict_of(cls).items()
        if name not in _VOLATILE and not (name[:1] == "_" and name[-2:] != "__" and type(value) in _NOTES)
    )
    asked = sorted(typing._get_protocol_attrs(cls)) if dict_of(cls).get("_is_protocol") is True else ()  # type: ignore[attr-defined]
    return tuple(names), tuple(asked)


def _kind_of_definition(value: object) -> str:
    return str(value.__qualname__) if type(value) in _OF_C else _kind(value)


_NOTES = (bool, int, str, dict, set, tuple, list)
"""What libraries keep under private names in classes, perhaps later than the program has made these."""

# Made by looking at a class, not by its program.
_VOLATILE = frozenset(
    {
        *("__annotations__", "__annotations_cache__", "__abstractmethods__", "__doc__", "__signature__"),
        *("__slotnames__", "_abc_impl", "__protocol_attrs__", "__non_callable_proto_members__"),
    }
)


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
    home: Any = sys.modules.get(top)
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
        about, version = qualname_of(cls), _version_of(str(module_of(cls)))
    return f.__name__, f.__qualname__, qualname_of(type(owner)), about, version, *_marks(f)


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

_OF_C = (*_DESCRIPTORS, types.BuiltinFunctionType)

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
    **{cls: _parts_facts(*_PARTS[cls]) for cls in (property, staticmethod, classmethod)},
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
    value: Any = None
    for name in qualname.split("."):
        value = namespace.get(name, MISSING)
        if value is MISSING:
            raise Mismatch(f"{module} has no {qualname}")
        namespace = dict_of(value) if issubclass(type(value), type) else {}
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


def _module_name(_: Writer, value: Any) -> Data | None:
    is_found = issubclass(type(value), types.ModuleType) and sys.modules.get(value.__name__) is value
    return (value.__name__,) if is_found else None


def _module_of_dict(_: Writer, value: Any) -> Data | None:
    name = value.get("__name__") if type(value) is dict else None
    home = sys.modules.get(name) if type(name) is str else None
    return (name,) if home is not None and vars(home) is value else None


def _own_name(value: Any) -> tuple[object, object] | None:
    """The module and the name that a class or function, or that of a property, says it has; None if it knows no such thing."""
    kind = type(value)
    if kind is property:
        value, kind = value.fget, type(value.fget)
    if issubclass(kind, type):
        return module_of(value), qualname_of(value)
    if kind is types.FunctionType:
        return value.__module__, value.__qualname__
    if kind is types.BuiltinFunctionType:
        home = value.__self__
        return home.__name__ if isinstance(home, types.ModuleType) else value.__module__, value.__name__
    return None


def _name(_: Writer, value: Any) -> Data | None:
    """The module and the name under which a module's text has the object."""
    kind = type(value)
    own = _own_name(value)
    if own is not None and _found(*own, value):
        return own
    if kind in _PARTS or kind is types.CodeType or issubclass(kind, types.ModuleType):
        return None
    indexed = _index(len(sys.modules)).get(id(value))
    return indexed if indexed is not None and _found(*indexed, value) else None


def _known_constant(_: Writer, value: Any) -> Data | None:
    of_kind = side.KINDS.get(type(value))
    return of_kind(value) if of_kind is not None else side.recipe_of(value)


def _recipe(writer: Writer, value: object) -> Data | None:
    recipe = writer.recipes.get(id(value))
    return None if recipe is None else (writer(recipe[0]), writer.value(recipe[1]))


def _owner(writer: Writer, value: Any) -> Data | None:
    """The class that has a descriptor, or a function written in C (`object.__new__`)."""
    kind = type(value)
    owner = (
        value.__objclass__ if kind in _DESCRIPTORS else value.__self__ if kind is types.BuiltinFunctionType else None
    )
    if not issubclass(type(owner), type) or dict_of(owner).get(value.__name__) is not value:
        return None
    return writer(owner), value.__name__


def _in_class(reader: Reader, owner: int, name: str) -> Any:
    return _there(vars(reader(owner)).get(name), reader(owner), name)


def _enum_name(writer: Writer, value: Any) -> Data | None:
    if not issubclass(type(value), enum.Enum):
        return None
    if type(value).__members__.get(value.name) is not value:
        raise Refused(f"{type(value).__qualname__} member without a name")
    return writer(type(value)), value.name


def _enum_member(reader: Reader, owner: int, name: str) -> Any:
    cls = reader(owner)
    return _there(cls.__members__.get(name) if issubclass(type(cls), enum.EnumMeta) else None, cls, name)


def _there(found: object, owner: object, name: str) -> Any:
    if found is None:
        raise Mismatch(f"{short_name(owner)} has no {name}")
    return found


def _way(writer: Writer, value: object) -> Data | None:
    """Where else the object can be found: on a path of the guards, or as a part of another one."""
    for way in writer.ways.get(id(value), ()):
        if way[0] != "part":
            root = writer.nodes[way[1]].root
            try:
                if root.kind in (ir.CONST, ir.REFERENT):
                    writer(constant_of(root))
            except Refused:
                continue
        return way
    return None


_WAYS: dict[str, Callable[..., Any]] = {
    "node": lambda reader, number: reader.at(number),
    "type": lambda reader, number: type(reader.at(number)),
    "part": lambda reader, owner, name: _there(getattr(reader(owner), name, None), reader(owner), name),
}

_NAMES = Codec(
    Form("globals", lambda w, v: () if v is w.root.__globals__ else None, lambda r: r.root.__globals__),
    Form("module", _module_name, lambda r, name: _loaded(name)),
    Form("dict", _module_of_dict, lambda r, name: vars(_loaded(name))),
    Form("name", _name, lambda r, module, name: _walk(module, name)),
)

_MADE = Codec(
    Form("kind", _known_constant, lambda r, kind, *rest: side.FINDERS[kind](*rest)),
    Form("made", _recipe, lambda r, maker, args: r(maker)(*r.value(args))),
)
"""What another process makes for itself. Of what has none of these forms the facts are compared."""

_PLACES = Codec(
    Form("root", lambda w, v: () if v is w.root else None, lambda r: r.root),
    Form("code", lambda w, v: () if v is w.root.__code__ else None, lambda r: r.root.__code__),
    Form("member", _owner, _in_class),
    Form("enum", _enum_name, _enum_member),
    *_NAMES.forms,
    Form("way", _way, lambda r, way, *rest: _WAYS[way](r, *rest)),
)

_FOUND = Codec(*_MADE.forms, *_PLACES.forms)

# ----------------------------------------------------------------------------------------------------------------------
# Values.


def _atoms(_: Writer, items: Any) -> Data:
    if not all(type(item) in ATOMS for item in items):
        raise Refused("a set of objects")
    return (tuple(items),)


def _items(writer: Writer, value: dict[Any, Any]) -> Data | None:
    if _NAMES.write(writer, value) is not None:
        return None
    return (tuple([(writer.value(k), writer.value(item)) for k, item in value.items()]),)


_VALUES = Codec(
    collection(tuple),
    collection(list),
    *[Form(cls.__name__, _atoms, lambda r, items, cls=cls: cls(items), (cls,)) for cls in (set, frozenset)],
    Form("dict", _items, lambda r, items: {r.value(k): r.value(item) for k, item in items}, (dict,)),
    record(slice, "start", "stop", "step"),
    record(range, "start", "stop", "step"),
    *map(record, (UserFrame, Function, BreakRecord, Specialization)),
    Form("NotImplemented", lambda w, v: (), lambda r: NotImplemented, (type(NotImplemented),)),
    Form("object", lambda w, v: (w(v),), lambda r, number: r(number)),
    Form("weakly", lambda w, v: None, lambda r, number: r(number)),
)

# ----------------------------------------------------------------------------------------------------------------------
# Both directions.


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
        self.ways: dict[int, list[Data]] = {}
        self.strings: dict[str, int] = {}
        self._collect()

    def _collect(self) -> None:
        """The paths on which guards find objects."""
        for guard in self.guards.guards:
            if guard.kind in (ir.IS, ir.REF_IS):
                self._offer(demanded(guard), ("node", self.numbers[id(guard.node)]))
            elif guard.kind in (ir.TYPE_IS, ir.REF_TYPE_IS):
                self._offer(demanded(guard), ("type", self.numbers[id(guard.node)]))

    def _offer(self, value: object, way: Data) -> None:
        if type(value) not in ATOMS:
            self.ways.setdefault(id(value), []).append(way)

    def mention(self, value: object, way: Data) -> int:
        """The number of an object that can be found in this way."""
        self._offer(value, way)
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
        self._offer_parts(value, number)
        return number

    def _describe(self, value: object) -> tuple[Data, Data | None]:
        made = _MADE.write(self, value)
        if made is not None:
            return made, None
        facts = _facts_of(value)
        place = _PLACES.write(self, value)
        if place is None:
            raise Refused(f"{short_name(value)}, which has no name")
        if type(value) in _PARTS and type(value) is not types.FunctionType:
            # A property's functions are found through it: its place has to have a number before them. Compared under its own number.
            self._offer_parts(value, len(self.table))
            self.table.append((place, None))
        return place, (_kind(value), *facts(value, self))

    def _offer_parts(self, value: object, number: int) -> None:
        for name in _PARTS.get(type(value), ()):
            part = getattr(value, name)
            if part is not None:
                self._offer(part, ("part", number, name))

    def value(self, v: object) -> Any:
        """Plain data for a value, or for a reference to an object."""
        return v if type(v) in ATOMS else _VALUES.write(self, v)

    def text(self, text: str) -> int:
        """The number of a string that occurs often."""
        return self.strings.setdefault(text, len(self.strings))


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
    if issubclass(kind, type):
        return f"{qualname_of(kind)} {qualname_of(value)}"
    name = getattr(value, "__qualname__", None) if kind in _FACTS else None
    return f"{qualname_of(kind)} {name}" if type(name) is str else f"a {qualname_of(kind)}"


class CodeTable:
    """Codes of the program by their fingerprint: those of the functions that a reader meets, and all that are nested in them. It keeps no
    other object."""

    def __init__(self, code: types.CodeType) -> None:
        self._known = {fingerprint(code): code}
        self._unopened = [code]  # nobody has looked for nested ones in them

    def add(self, code: types.CodeType) -> None:
        """Note the code of a function."""
        if self._known.setdefault(fingerprint(code), code) is code:
            self._unopened.append(code)

    def find(self, wanted: bytes) -> types.CodeType | None:
        """The code with that fingerprint."""
        if wanted not in self._known and self._unopened:
            self._known.update((fingerprint(code), code) for code in all_codes(self._unopened))
            self._unopened = []
        return self._known.get(wanted)


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
        self.codes = CodeTable(root.__code__)

    def __call__(self, number: int) -> Any:
        """The object of that number. Raises `Mismatch`."""
        value = self.found[number]
        if value is MISSING:
            if number in self.under_way:
                raise Mismatch("an object that is only found through itself")
            self.under_way.add(number)
            place, facts = self.table[number]
            value = self.found[number] = _FOUND.read(self, place)
            self.under_way.discard(number)
            if facts is not None:
                self._compare(value, facts)
            if type(value) is types.FunctionType:
                self.codes.add(value.__code__)
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
        if now != facts:
            raise Mismatch(f"{short_name(value)} is another one")

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
        return _VALUES.read(self, data) if type(data) is tuple else data


class Found(Reader):
    """Some of the objects that were found: it holds no others, and nothing of the call."""

    def __init__(self, found: dict[int, Any]) -> None:
        self.found = found

    def __call__(self, number: int) -> Any:
        return self.found[number]


class _Mentions:
    """Writes facts of this process, in which other objects are equal to the data that were written for them."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader

    def __call__(self, value: object) -> Any:
        return _Mention(lambda written: type(written) is int and self.reader(written) is value)

    def value(self, value: object) -> Any:
        """Of a value that is compared by what it is equal to."""

        def is_written(written: Any) -> bool:
            known = self.reader.value(written)
            return type(known) is type(value) and known == value

        return _Mention(is_written)


class _Mention:
    """Equal to the data of which `is_written` holds."""

    def __init__(self, is_written: Callable[[Any], bool]) -> None:
        self.is_written = is_written

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, written: object) -> bool:
        return self.is_written(written)


def all_codes(codes: Any) -> Iterator[types.CodeType]:
    """These code objects and those among their constants."""
    pending = list(codes)
    while pending:
        code = pending.pop()
        yield code
        pending.extend(c for c in code.co_consts if type(c) is types.CodeType)
