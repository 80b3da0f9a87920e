"""Guard IR → Python: a function that says the same as the C program, and the reasons why a call missed.

Input: a `GuardSet`. Output: readable source, the function made from it, and `GuardFailure` records.
Invariant: `Mirror.first_failure` equals `GuardProgram.first_failure` up to the order of roots; strict mode compares
`check`. Mirrors `csrc/evaluate.h` accessor by accessor and check by check.
"""

from __future__ import annotations

import itertools
import struct
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import CellType, FunctionType, MethodType
from typing import Any

from dynamo_lite.exc import InternalTorchDynamoError
from dynamo_lite.guards import ir
from dynamo_lite.guards.descriptions import short
from dynamo_lite.guards.ir import Bounds, Guard, GuardNode, GuardSet, Steps, User
from dynamo_lite.isa.typeobject import (
    Member,
    Py_TPFLAGS_HEAPTYPE,
    dict_of,
    field_descriptor,
    flags,
    member_descriptor,
    mro_of,
    qualname_of,
)


class _Marker:
    def __init__(self, name: str):
        self.name = name

    def __repr__(self) -> str:
        return self.name


MISSING = _Marker("nothing")
"""The accessor is applicable and finds nothing."""

WRONG = _Marker("an object of another kind")
"""The accessor does not apply to this value, or user code raised: always a miss."""


def _is(value: object, *kinds: type) -> bool:
    """isinstance() that does not believe what `value.__class__` says."""
    return issubclass(type(value), kinds)


# ----------------------------------------------------------------------------------------------------------------------
# Accessors.


def local(values: Sequence[Any], i: int) -> Any:
    """The i-th bound argument."""
    return values[i] if i < len(values) else WRONG


def free(cells: tuple | None, i: int) -> Any:
    """The i-th cell of the closure."""
    return cells[i] if cells is not None and i < len(cells) else WRONG


def referent(reference: Any) -> Any:
    """The object that a weak reference of the guards refers to."""
    value = reference()
    return WRONG if value is None else value


def attr(value: object, name: str) -> Any:
    """getattr()"""
    try:
        return getattr(value, name)
    except AttributeError:
        return MISSING
    except Exception:
        return WRONG


def field(value: object, name: str) -> Any:
    """A field of C, past all methods and properties of the program."""
    return _described(value, field_descriptor(type(value), name))


def member(value: object, name: str) -> Any:
    """A field or a slot, past all methods and properties of the program."""
    return _described(value, member_descriptor(type(value), name))


def _described(value: object, descriptor: Member | None) -> Any:
    if descriptor is None:
        return WRONG
    try:
        return descriptor.__get__(value)
    except AttributeError:
        return MISSING
    except Exception:
        return WRONG


# Instances' __dict__ is looked up past any user-defined __getattribute__; classes keep a proxy there.
def instance_dict(value: object) -> Any:
    """The object's own dict."""
    if _is(value, type):
        return type.__dict__["__dict__"].__get__(value)
    try:
        return object.__getattribute__(value, "__dict__")
    except AttributeError:
        return MISSING


def dict_item(value: Any, key: Any) -> Any:
    """An item of a dict's own storage."""
    if _is(value, dict):
        get = dict.get
    elif type(value) is _MAPPING_PROXY:  # the dict of a class, see instance_dict()
        get = _MAPPING_PROXY.get
    else:
        return WRONG
    try:
        return get(value, key, MISSING)
    except Exception:
        return WRONG


_MAPPING_PROXY = type(type.__dict__)
_DICT_OF = type.__dict__["__dict__"].__get__  # past any metaclass


def index(value: Any, i: int) -> Any:
    """An element of a list's or tuple's own storage."""
    for sequence in (list, tuple):
        if _is(value, sequence):
            return sequence.__getitem__(value, i) if i < sequence.__len__(value) else MISSING
    return WRONG


def cell_contents(value: Any) -> Any:
    """The content of a cell."""
    if type(value) is not CellType:
        return WRONG
    try:
        return value.cell_contents
    except ValueError:
        return MISSING


def type_attr(value: object, name: str) -> Any:
    """A class attribute, found along the MRO and not bound."""
    if not _is(value, type):
        return WRONG
    namespaces = map(_DICT_OF, type.__dict__["__mro__"].__get__(value))
    return next((namespace[name] for namespace in namespaces if name in namespace), MISSING)


def _field(kind: type, name: str) -> Callable[[Any], Any]:
    def field(value: object) -> Any:
        return getattr(value, name) if type(value) is kind else WRONG

    return field


_ITERATORS = tuple({type(iter(i)) for i in ([], (), range(0), {}, {}.values(), {}.items(), range(1 << 70))})


def iter_item(value: Any, k: int) -> Any:
    """The k-th item still to come of a builtin iterator, which does not move."""
    if type(value) not in _ITERATORS:
        return WRONG
    try:
        _, (sequence,), *state = value.__reduce__()
    except RuntimeError:  # the dict has changed its size
        return WRONG
    k += state[0] if state and state[0] is not None else 0
    return sequence[k] if k < len(sequence) else MISSING


def keys_in_order(value: dict) -> Iterator[Any]:
    """The keys in the order of the dict's own storage; an OrderedDict keeps another one."""
    return OrderedDict.__iter__(value) if _is(value, OrderedDict) else dict.__iter__(value)


def dict_key(value: Any, i: int) -> Any:
    """The i-th key of a dict."""
    return next(itertools.islice(keys_in_order(value), i, None), MISSING) if _is(value, dict) else WRONG


def call(value: object, function: Callable[[Any], Any]) -> Any:
    """function(value)"""
    try:
        return function(value)
    except Exception:
        return WRONG


ACCESSORS: dict[int, Callable[..., Any]] = {
    ir.LOCAL: local,
    ir.FREEVAR: free,
    ir.ATTR: attr,
    ir.FIELD: field,
    ir.MEMBER: member,
    ir.INSTANCE_DICT: instance_dict,
    ir.DICT_ITEM: dict_item,
    ir.INDEX: index,
    ir.CELL_CONTENTS: cell_contents,
    ir.TYPE: type,
    ir.TYPE_ATTR: type_attr,
    ir.FUNC_CODE: _field(FunctionType, "__code__"),
    ir.FUNC_DEFAULTS: _field(FunctionType, "__defaults__"),
    ir.FUNC_KWDEFAULTS: _field(FunctionType, "__kwdefaults__"),
    ir.FUNC_CLOSURE: _field(FunctionType, "__closure__"),
    ir.METHOD_SELF: _field(MethodType, "__self__"),
    ir.METHOD_FUNC: _field(MethodType, "__func__"),
    ir.ITER_ITEM: iter_item,
    ir.DICT_KEY: dict_key,
    ir.CALL: call,
}

WITHOUT_ARGUMENT = frozenset(
    {
        ir.INSTANCE_DICT,
        ir.CELL_CONTENTS,
        ir.TYPE,
        ir.FUNC_CODE,
        ir.FUNC_DEFAULTS,
        ir.FUNC_KWDEFAULTS,
        ir.FUNC_CLOSURE,
        ir.METHOD_SELF,
        ir.METHOD_FUNC,
    }
)

# ----------------------------------------------------------------------------------------------------------------------
# Checks: functions of (value, argument).


def equals(a: Any, b: Any) -> bool:
    """Same exact type and equal, all the way down; 0.0 and -0.0 differ, a NaN equals itself."""
    if a is b:
        return True
    kind = type(a)
    if kind is not type(b):
        return False
    if kind is float:
        return struct.pack("d", a) == struct.pack("d", b)
    if kind is complex:
        return equals(a.real, b.real) and equals(a.imag, b.imag)
    if kind is list or (issubclass(kind, tuple) and kind.__eq__ is tuple.__eq__):
        return len(a) == len(b) and all(map(equals, tuple.__iter__(tuple(a)), tuple(b)))
    if kind is dict:
        return equals(list(a.items()), list(b.items()))
    if kind is range or kind is slice:
        return equals((a.start, a.stop, a.step), (b.start, b.stop, b.step))
    if not a == b:
        return False
    return kind not in (set, frozenset) or all(any(equals(x, y) for y in b) for x in a)


def length(value: Any, n: int) -> bool:
    """Number of items in the object's own storage, or still to come of an iterator."""
    for kind in (tuple, list, dict, set, frozenset):
        if _is(value, kind):
            return kind.__len__(value) == n
    return value.__length_hint__() == n if type(value) in _ITERATORS else len(value) == n


def dict_keys(value: Any, keys: tuple) -> bool:
    """All keys, in order."""
    return _is(value, dict) and equals(list(keys_in_order(value)), list(keys))


def has_key(value: Any, key: Any) -> bool:
    """Membership in a dict's or set's own storage."""
    kind = next((kind for kind in (dict, set, frozenset, _MAPPING_PROXY) if _is(value, kind)), None)
    return kind is not None and kind.__contains__(value, key)


def lacks_key(value: object, key: object) -> bool:
    """Not a member; false for what is no container at all."""
    return _is(value, dict, set, frozenset, _MAPPING_PROXY) and not has_key(value, key)


def truth(value: object, expected: bool) -> bool:
    """bool(value)"""
    return bool(value) is expected


def tensor(value: object, spec: tuple) -> bool:
    """The metadata that `tensor_guards.tensor_spec` recorded."""
    return next(tensor_differences(value, spec), None) is None


def tensor_differences(value: object, spec: tuple) -> Iterator[tuple[str, Any, Any]]:
    """(what, expected, found) for the metadata that differ; nothing after a type or layout that differs. The program's function modes
    don't see that anybody looks."""
    with sys.modules["torch"]._C.DisableTorchFunction():
        return iter(list(_differences(value, spec)))


def _differences(value: Any, spec: tuple) -> Iterator[tuple[str, Any, Any]]:
    kind, dtype, device, layout, requires_grad, sizes, strides, keys, _ = spec
    if type(value) is not kind:
        yield "type", qualname_of(kind), qualname_of(type(value))
        return
    if value.layout is not layout:
        yield "layout", layout, value.layout
        return
    if value.dtype is not dtype:
        yield "dtype", dtype, value.dtype
    if value.device != device:
        yield "device", device, value.device
    if value.requires_grad is not requires_grad:
        yield "requires_grad", requires_grad, value.requires_grad
    if keys is not None and keys[0](value) != keys[1]:
        yield "dispatch keys", hex(keys[1]), hex(keys[0](value))
    if not _dims_match(value.shape, sizes):
        yield "shape", _dims(sizes), _dims(value.shape)
    elif strides is not None and not _dims_match(value.stride(), strides):
        yield "stride", _dims(strides), _dims(value.stride())


def _dims_match(actual: Sequence[int], expected: tuple) -> bool:
    return len(actual) == len(expected) and all(b is None or a == b for a, b in zip(actual, expected, strict=True))


def _dims(dims: Sequence[int | None]) -> str:
    return "(" + ", ".join("*" if dim is None else str(dim) for dim in dims) + ")"


def has_finalizer(cls: type) -> bool:
    """Is `tp_finalize` of a class made by a class statement a `__del__`?"""
    return bool(flags(cls) & Py_TPFLAGS_HEAPTYPE) and any("__del__" in dict_of(base) for base in mro_of(cls))


def no_finalizer(value: object, _: object) -> bool:
    """Does no `__del__` of a class made by a class statement run when the object dies?"""
    return not has_finalizer(type(value))


def no_finalizer_at(value: object, key: object) -> bool:
    """`no_finalizer` for the value that a dict has for a key, if it has one."""
    return isinstance(value, dict) and (
        not dict.__contains__(value, key) or no_finalizer(dict.__getitem__(value, key), None)
    )


_CHECKS: dict[int, Callable[[Any, Any], Any]] = {
    ir.IS: lambda value, arg: value is arg,
    ir.IS_NOT: lambda value, arg: value is not arg,
    ir.TYPE_IS: lambda value, arg: type(value) is arg,
    ir.REF_IS: lambda value, ref: value is ref() is not None,
    ir.REF_IS_NOT: lambda value, ref: not (value is ref() is not None),
    ir.REF_TYPE_IS: lambda value, ref: type(value) is ref(),
    ir.EQUALS: equals,
    ir.LEN: length,
    ir.DICT_KEYS: dict_keys,
    ir.HAS_KEY: has_key,
    ir.LACKS_KEY: lacks_key,
    ir.REF_HAS_KEY: lambda value, ref: (key := ref()) is not None and has_key(value, key),
    ir.REF_LACKS_KEY: lambda value, ref: (key := ref()) is not None and lacks_key(value, key),
    ir.TENSOR: tensor,
    ir.TRUTH: truth,
    ir.PYTHON: lambda value, arg: arg(value),
    ir.NO_FINALIZER: no_finalizer,
    ir.NO_FINALIZER_AT: no_finalizer_at,
}


def holds(check: Callable[..., Any], *args: Any) -> bool:
    """Is check(*args) true? An exception counts as no."""
    try:
        return bool(check(*args))
    except Exception:
        return False


def all_distinct(*values: Any) -> bool:
    """Are these all different objects?"""
    return len(set(map(id, values))) == len(values)


# ----------------------------------------------------------------------------------------------------------------------
# Source.

_FIELD_NAMES = {
    ir.FUNC_CODE: "func_code",
    ir.FUNC_DEFAULTS: "func_defaults",
    ir.FUNC_KWDEFAULTS: "func_kwdefaults",
    ir.FUNC_CLOSURE: "func_closure",
    ir.METHOD_SELF: "method_self",
    ir.METHOD_FUNC: "method_func",
}

_ACCESSOR_NAMES = {kind: _FIELD_NAMES.get(kind, accessor.__name__) for kind, accessor in ACCESSORS.items()}

# How a check reads in the generated source. `{v}` is the value, `{k}` the constant.
_CHECK_SOURCE = {
    ir.IS: "{v} is {k}",
    ir.IS_NOT: "{v} is not {k}",
    ir.TYPE_IS: "type({v}) is {k}",
    ir.REF_IS: "{v} is {k}() is not None",
    ir.REF_IS_NOT: "not ({v} is {k}() is not None)",
    ir.REF_TYPE_IS: "type({v}) is {k}()",
    ir.EQUALS: "holds(equals, {v}, {k})",
    ir.LEN: "holds(length, {v}, {k})",
    ir.DICT_KEYS: "holds(dict_keys, {v}, {k})",
    ir.HAS_KEY: "holds(has_key, {v}, {k})",
    ir.LACKS_KEY: "holds(lacks_key, {v}, {k})",
    ir.REF_HAS_KEY: "{k}() is not None and holds(has_key, {v}, {k}())",
    ir.REF_LACKS_KEY: "{k}() is not None and holds(lacks_key, {v}, {k}())",
    ir.TENSOR: "holds(tensor, {v}, {k})",
    ir.TRUTH: "holds(truth, {v}, {k})",
    ir.PYTHON: "holds({k}, {v})",
    ir.NO_FINALIZER: "holds(no_finalizer, {v}, {k})",
    ir.NO_FINALIZER_AT: "holds(no_finalizer_at, {v}, {k})",
}


class _Writer:
    """Writes the source of one guard set, naming the objects that are not literals."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.constants: dict[str, Any] = {}
        self._names: dict[int, str] = {}

    def constant(self, value: Any) -> str:
        if value is None or type(value) in (bool, int, str):
            return repr(value)
        name = self._names.get(id(value))
        if name is None:
            name = self._names[id(value)] = f"K{len(self._names)}"
            self.constants[name] = value
        return name

    def line(self, code: str, comment: str = "") -> None:
        self.lines.append(f"    {code:<60}  # {comment}" if comment else f"    {code}")

    def source(self) -> str:
        header = [f"# {name} = {short(value)}" for name, value in self.constants.items()]
        return "\n".join([*header, "def first_failure(L, C):", *self.lines, "    return None", ""])


def mirror_source(guardset: GuardSet) -> str:
    """The guards as the source of a Python function of (locals, closure)."""
    return _write(guardset).source()


def _write(guardset: GuardSet) -> _Writer:
    writer = _Writer()
    names: dict[GuardNode, str] = {}
    saved = {node for guard in guardset.relations for node in guard.nodes}
    for guard in guardset.relations:
        if guard.kind == ir.GLOBAL_STATE:
            writer.line(f"if not holds({writer.constant(guard.arg)}): return {guard.index}", guard.text or "")
    for root in sorted(guardset.roots.values(), key=lambda root: root.kind):
        _write_tree(writer, root, names, saved)
    for guard in guardset.relations:
        if guard.kind != ir.GLOBAL_STATE:
            _write_relation(writer, guard, [names[node] for node in guard.nodes])
    return writer


def _write_tree(writer: _Writer, root: GuardNode, names: dict[GuardNode, str], saved: set[GuardNode]) -> None:
    first = _first_guards(root, saved)
    stack = [root]
    while stack:
        node = stack.pop()
        if node not in first:
            continue  # nothing to check here or below
        name = names[node] = f"v{len(names)}"
        writer.line(f"{name} = {_accessor_source(writer, node, names)}", node.path)
        if any(guard.kind == ir.ABSENT for guard in node.checks):
            writer.line(f"if {name} is not MISSING: return {first[node]}", _user_line(node.checks[0].user))
            continue
        writer.line(f"if {name} is MISSING or {name} is WRONG: return {first[node]}")
        for guard in node.checks:
            text = _CHECK_SOURCE[guard.kind].format(v=name, k=writer.constant(guard.arg))
            writer.line(f"if not ({text}): return {guard.index}", _user_line(guard.user))
        stack.extend(reversed(node.children.values()))


def _first_guards(root: GuardNode, saved: set[GuardNode]) -> dict[GuardNode, int]:
    """For each node with something to check at or below it: the guard to report if its accessor fails."""
    order = [root]
    for node in order:
        order.extend(node.children.values())
    first: dict[GuardNode, int] = {}
    for node in reversed(order):
        if node.checks:
            first[node] = node.checks[0].index
        elif node in saved:
            first[node] = next(guard.index for guard in node.owner.relations if node in guard.nodes)
        else:
            below = next((first[child] for child in node.children.values() if child in first), None)
            if below is not None:
                first[node] = below
    return first


def _accessor_source(writer: _Writer, node: GuardNode, names: dict[GuardNode, str]) -> str:
    if node.kind == ir.CONST:
        return writer.constant(node.arg)
    if node.kind == ir.REFERENT:
        return f"referent({writer.constant(node.arg)})"
    function = _ACCESSOR_NAMES[node.kind]
    if node.kind in (ir.LOCAL, ir.FREEVAR):
        return f"{function}({'L' if node.kind == ir.LOCAL else 'C'}, {node.arg})"
    arguments = [names[node.parent]]
    if node.kind not in WITHOUT_ARGUMENT:
        arguments.append(writer.constant(node.arg))
    return f"{function}({', '.join(arguments)})"


def _write_relation(writer: _Writer, guard: Guard, names: list[str]) -> None:
    values = ", ".join(names)
    if guard.kind == ir.PREDICATE:
        test = f"holds({writer.constant(guard.arg)}, {values})"
    else:
        test = f"{names[0]} is {names[1]}" if guard.kind == ir.SAME else f"all_distinct({values})"
    writer.line(f"if not ({test}): return {guard.index}", " ".join(filter(None, [guard.text, _user_line(guard.user)])))


def _user_line(user: User) -> str:
    return f"{user[0]}:{user[1]}" if user is not None else ""


class Mirror:
    """The guards as a Python function; strict mode runs it next to the C program."""

    def __init__(self, guardset: GuardSet):
        writer = _write(guardset)
        self.source = writer.source()
        namespace = {**_HELPERS, **writer.constants}
        exec(compile(self.source, "<guards>", "exec"), namespace)
        self._first_failure = namespace["first_failure"]

    def first_failure(self, values: Sequence[Any], closure: tuple | None = None) -> int | None:
        """The index of a guard that does not hold, or None."""
        return self._first_failure(values, closure)

    def check(self, values: Sequence[Any], closure: tuple | None = None) -> bool:
        """Do all guards hold?"""
        return self._first_failure(values, closure) is None


class Comparison:
    """Strict mode: called after each evaluation of the C program, with the guard that failed there or None."""

    def __init__(self, guardset: GuardSet):
        self.guards = guardset.guards
        self.mirror = Mirror(guardset)

    def __call__(self, values: Sequence[Any], closure: tuple | None, failed: int | None) -> None:
        expected = self.mirror.first_failure(values, closure)
        if (expected is None) == (failed is None):
            return
        guard = self.guards[expected if failed is None else failed]
        holds_for, fails_for = ("C program", "Python mirror") if failed is None else ("Python mirror", "C program")
        raise InternalTorchDynamoError(
            f"strict_guards: the guards hold for the {holds_for}, but for the {fails_for} this one fails: {guard.path} "
            f"{ir.KIND_NAMES[guard.kind]} {guard.text or short(guard.arg)}"
        )


_HELPERS: dict[str, Any] = {
    "MISSING": MISSING,
    "WRONG": WRONG,
    "holds": holds,
    "all_distinct": all_distinct,
    **{
        f.__name__: f
        for f in (referent, equals, length, dict_keys, has_key, lacks_key, truth, tensor, no_finalizer, no_finalizer_at)
    },
    **{_ACCESSOR_NAMES[kind]: accessor for kind, accessor in ACCESSORS.items()},
}

# ----------------------------------------------------------------------------------------------------------------------
# Why did it miss?


@dataclass(frozen=True)
class GuardFailure:
    """One guard that does not hold, in the user's terms. `paths` and `bounds` say the same as values: where what the guard looks at is
    found, and between which numbers it should be, if that is all that the guard asks for."""

    path: str
    user_line: User
    expected: str
    found: str
    kind: int | None = None
    paths: tuple[Steps, ...] = ()
    bounds: Bounds | None = None

    def __str__(self) -> str:
        where = f"  ({_user_line(self.user_line)})" if self.user_line is not None else ""
        return f"{self.path}: expected {self.expected}, found {self.found}{where}"


def explain_miss(guardset: GuardSet, values: Sequence[Any], closure: tuple | None = None) -> list[GuardFailure]:
    """All guards that fail for these arguments; below a value that fails a check nothing more is looked at."""
    failures: list[GuardFailure] = []
    found: dict[GuardNode, Any] = {}
    for guard in guardset.relations:
        if guard.kind == ir.GLOBAL_STATE and not holds(guard.arg):
            failures.append(GuardFailure(guard.text or "global state", guard.user, "unchanged", "changed"))
    for node in guardset.nodes:
        if node.parent is None or node.parent in found:
            value = _value(node, found, values, closure)
            failure = _explain_node(node, value)
            if failure is not None:
                failures.append(failure)
            elif value is not MISSING and value is not WRONG:
                found[node] = value
    for guard in guardset.relations:
        if guard.kind != ir.GLOBAL_STATE and all(node in found for node in guard.nodes):
            reached = [found[node] for node in guard.nodes]
            if not _relation_holds(guard, reached):
                failures.append(_explain_relation(guard, reached))
    return failures


def _value(node: GuardNode, found: dict[GuardNode, Any], values: Sequence[Any], closure: tuple | None) -> Any:
    if node.kind == ir.CONST:
        return node.arg
    if node.kind == ir.REFERENT:
        return referent(node.arg)
    accessor = ACCESSORS[node.kind]
    if node.parent is None:
        return accessor(values if node.kind == ir.LOCAL else closure, node.arg)
    value = found[node.parent]
    return accessor(value) if node.kind in WITHOUT_ARGUMENT else accessor(value, node.arg)


def _explain_node(node: GuardNode, value: object) -> GuardFailure | None:
    absent = next((guard for guard in node.checks if guard.kind == ir.ABSENT), None)
    if absent is not None:
        return None if value is MISSING else _of_node(node, absent.user, "nothing there", short(value))
    if value is MISSING or value is WRONG:
        if not node.checks and not node.children:
            return None
        return _of_node(node, next((guard.user for guard in node.checks), None), "a value", repr(value))
    for guard in node.checks:
        if not holds(_CHECKS[guard.kind], value, guard.arg):
            return _of_node(node, guard.user, *_explain_check(guard, value), guard.kind)
    return None


def _of_node(node: GuardNode, user: User, expected: str, found: str, kind: int | None = None) -> GuardFailure:
    return GuardFailure(node.path, user, expected, found, kind, (node.steps,))


def _explain_check(guard: Guard, value: Any) -> tuple[str, str]:
    """The expected value and the value found, as texts."""
    kind, arg = guard.kind, guard.arg
    if kind == ir.TENSOR:
        return _explain_tensor(value, arg)
    if kind in ir.FIRM:
        kind, arg = ir.FIRM[kind], arg()
        if arg is None:
            return "an object that is gone", short(value)
    if kind == ir.TYPE_IS:
        return f"type {qualname_of(arg)}", f"type {qualname_of(type(value))}"
    if kind in (ir.NO_FINALIZER, ir.NO_FINALIZER_AT):
        found = value if kind == ir.NO_FINALIZER else dict.get(value, arg)
        return "an object without __del__", f"type {qualname_of(type(found))}"
    if kind == ir.LEN:
        return f"length {arg}", f"length {_length_of(value)}"
    if kind == ir.DICT_KEYS:
        return f"keys {short(list(arg))}", f"keys {short(list(dict.keys(value)))}" if _is(value, dict) else short(value)
    text = {
        ir.IS: "the same object {}",
        ir.IS_NOT: "another object than {}",
        ir.EQUALS: "{}",
        ir.HAS_KEY: "a key {}",
        ir.LACKS_KEY: "no key {}",
        ir.TRUTH: "truth value {}",
        ir.PYTHON: "{} to hold",
    }[kind]
    return text.format(short(arg)), short(value)


def _length_of(value: Any) -> str:
    for base in (list, tuple, dict, set, frozenset):
        if _is(value, base):
            return str(base.__len__(value))
    return str(value.__length_hint__()) if type(value) in _ITERATORS else "unknown"


def _explain_tensor(value: object, spec: tuple) -> tuple[str, str]:
    differences = list(tensor_differences(value, spec))
    expected = ", ".join(f"{what} {wanted}" for what, wanted, _ in differences)
    return expected, ", ".join(f"{what} {actual}" for what, _, actual in differences)


def _explain_relation(guard: Guard, values: list[Any]) -> GuardFailure:
    expected, found = "different objects", "the same object"
    if guard.kind == ir.PREDICATE:
        expected, found = guard.text or "predicate", ", ".join(map(short, values))
    elif guard.kind == ir.SAME:
        expected, found = found, expected
    path = _aliases(guard, values) if guard.kind == ir.DISTINCT else guard.path
    paths = tuple([node.steps for node in guard.nodes])
    return GuardFailure(path, guard.user, expected, found, None, paths, guard.bounds)


def _relation_holds(guard: Guard, values: list[Any]) -> bool:
    if guard.kind == ir.PREDICATE:
        return holds(guard.arg, *values)
    return values[0] is values[1] if guard.kind == ir.SAME else all_distinct(*values)


def _aliases(guard: Guard, values: list[Any]) -> str:
    """The paths of the first values that turn out to be one object."""
    paths: dict[int, str] = {}
    for node, value in zip(guard.nodes, values, strict=True):
        if id(value) in paths:
            return f"{paths[id(value)]}, {node.path}"
        paths[id(value)] = node.path
    return guard.path
