"""Guard IR → Python: a function that says the same as the C program, and the reasons why a call missed.

Input: a `GuardSet`. Output: readable source, the function made from it, and `GuardFailure` records.
Invariant: `Mirror.first_failure` equals `GuardProgram.first_failure` up to the order of roots; strict mode compares
`check`. Mirrors `csrc/evaluate.h` accessor by accessor and check by check.
"""

from __future__ import annotations

import functools
import itertools
import struct
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import CellType, FunctionType, MethodType  # noqa: F401 (the rows of `kinds` use them)
from typing import Any

from dynamo_lite._eval_frame import ordered_keys
from dynamo_lite.exc import InternalTorchDynamoError
from dynamo_lite.guards import ir
from dynamo_lite.guards.descriptions import short
from dynamo_lite.guards.ir import Bounds, Guard, GuardNode, GuardSet, Steps, User
from dynamo_lite.guards.kinds import ROWS
from dynamo_lite.isa.resume import place_of
from dynamo_lite.isa.typeobject import (
    Member,
    dict_of,
    field_descriptor,
    is_heap_type,
    member_descriptor,
    mro_of,
    qualname_of,
)
from dynamo_lite.messages import short_path


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


def field_of_c(value: object, cls: type, name: str) -> Any:
    """A field that objects of a builtin class have."""
    return getattr(value, name) if type(value) is cls else WRONG


_ITERABLES: tuple[Iterable[Any], ...] = ([], (), range(0), {}, {}.values(), {}.items(), range(1 << 70))
_ITERATORS = tuple({type(iter(iterable)) for iterable in _ITERABLES})


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
    return iter(ordered_keys(value)) if _is(value, OrderedDict) else dict.__iter__(value)


def dict_key(value: Any, i: int) -> Any:
    """The i-th key of a dict."""
    return next(itertools.islice(keys_in_order(value), i, None), MISSING) if _is(value, dict) else WRONG


def dict_value(value: Any, i: int) -> Any:
    """The value for the i-th key of a dict, found without asking a key whether it equals another."""
    key = dict_key(value, i)
    if key is MISSING or key is WRONG:
        return key
    return next((item for own, item in dict.items(value) if own is key), MISSING)


def call(value: object, function: Callable[[Any], Any]) -> Any:
    """function(value)"""
    try:
        return function(value)
    except Exception:
        return WRONG


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


def int64(value: Any) -> bool:
    """Is it an int, of no subclass, that 64 bits hold?"""
    return type(value) is int and -(2**63) <= value < 2**63


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
    if value.is_nested and str(layout) == "torch.strided":  # its parts have sizes, it has none
        yield "shape", _dims(sizes), "nested"
    elif not _dims_match(value.shape, sizes):
        yield "shape", _dims(sizes), _dims(value.shape)
    elif strides is not None and not _dims_match(value.stride(), strides):
        yield "stride", _dims(strides), _dims(value.stride())


def _dims_match(actual: Sequence[int], expected: tuple) -> bool:
    return len(actual) == len(expected) and all(b is None or a == b for a, b in zip(actual, expected, strict=True))


def text_of_spec(spec: tuple) -> str:
    """What a guard demands of a tensor: `Tensor torch.float32 shape (*, 1) stride (2, 1) on cpu`, and what is not the rule."""
    kind, dtype, device, layout, requires_grad, sizes, strides, _, _ = spec
    strided = f" stride {_dims(strides)}" if strides is not None else ""
    rest = [] if str(layout) == "torch.strided" else [str(layout)]
    rest += ["requires_grad"] if requires_grad else []
    return ", ".join([f"{qualname_of(kind)} {dtype} shape {_dims(sizes)}{strided} on {device}", *rest])


def _dims(dims: Sequence[int | None]) -> str:
    return "(" + ", ".join("*" if dim is None else str(dim) for dim in dims) + ")"


def has_finalizer(cls: type) -> bool:
    """Is `tp_finalize` of a class made by a class statement a `__del__`?"""
    return is_heap_type(cls) and any("__del__" in dict_of(base) for base in mro_of(cls))


def no_finalizer(value: object) -> bool:
    """Does no `__del__` of a class made by a class statement run when the object dies?"""
    return not has_finalizer(type(value))


def no_finalizer_at(value: Any, key: object) -> bool:
    """`no_finalizer` for the value that a dict has for a key, if it has one."""
    return _is(value, dict) and (not dict.__contains__(value, key) or no_finalizer(dict.__getitem__(value, key)))


def holds(check: Callable[..., Any], *args: Any) -> bool:
    """Is check(*args) true? An exception counts as no."""
    try:
        return bool(check(*args))
    except Exception:
        return False


def are_one(a: object, b: object) -> bool:
    """Are these one object?"""
    return a is b


def all_distinct(*values: Any) -> bool:
    """Are these all different objects?"""
    return len(set(map(id, values))) == len(values)


# ----------------------------------------------------------------------------------------------------------------------
# What the rows of `kinds` say, as functions of (value, argument).


def _functions(texts: dict[int, str]) -> dict[int, Callable[[Any, Any], Any]]:
    source = ", ".join([f"{kind}: lambda v, k: {text}" for kind, text in texts.items()])
    return eval(f"{{{source}}}", globals())


_APPLIED = _functions(
    {kind: row.python.format(v="*v" if kind >= ir.SAME else "v", k="k") for kind, row in ROWS.items()}
)


def step(kind: int, above: Any, arg: object) -> Any:
    """Where a step leads from a value; of roots, from the local variables or the closure."""
    return _APPLIED[kind](above, arg)


def walk(node: GuardNode, found: dict[GuardNode, Any], values: Sequence[Any], closure: tuple | None) -> Any:
    """Where the last step of a path leads; its parent's value is in `found`."""
    return step(
        node.kind, above_root(node.kind, values, closure) if node.parent is None else found[node.parent], node.arg
    )


def above_root(kind: int, values: object, closure: object) -> Any:
    """What a root is taken from: the local variables or the closure."""
    return values if kind == ir.LOCAL else closure


# ----------------------------------------------------------------------------------------------------------------------
# Source.


class _Writer:
    """Writes the source of one guard set, naming the objects that are not literals."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.constants: dict[str, Any] = {}
        self._names: dict[int, str] = {}
        self.texts: dict[str, str] = {}  # of constants, in the place of their own

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
        header = [f"# {name} = {self.texts.get(name) or short(value)}" for name, value in self.constants.items()]
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
            _write_relation(writer, guard, [])
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
        writer.line(f"{name} = {_step_source(writer, node, names)}", node.path)
        if any(guard.kind == ir.ABSENT for guard in node.checks):
            writer.line(f"if {name} is not MISSING: return {first[node]}", _user_line(node.checks[0].user))
            continue
        writer.line(f"if {name} is MISSING or {name} is WRONG: return {first[node]}")
        for guard in node.checks:
            text = ROWS[guard.kind].python.format(v=name, k=writer.constant(guard.arg))
            writer.line(f"if not ({text}): return {guard.index}", _user_line(guard.user))
            if guard.kind == ir.TENSOR:
                writer.texts[writer.constant(guard.arg)] = text_of_spec(guard.arg)
        stack.extend(reversed(list(node.children.values())))


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


def _step_source(writer: _Writer, node: GuardNode, names: dict[GuardNode, str]) -> str:
    above = above_root(node.kind, "L", "C") if node.parent is None else names[node.parent]
    return ROWS[node.kind].python.format(v=above, k=writer.constant(node.arg))


def _write_relation(writer: _Writer, guard: Guard, names: list[str]) -> None:
    test = ROWS[guard.kind].python.format(v=", ".join(names), k=writer.constant(guard.arg))
    writer.line(f"if not ({test}): return {guard.index}", " ".join(filter(None, [guard.text, _user_line(guard.user)])))


def _user_line(user: User) -> str:
    return f"{short_path(user[0])}:{user[1]}" if user is not None else ""


class Mirror:
    """The guards as a Python function; strict mode runs it next to the C program."""

    def __init__(self, guardset: GuardSet):
        writer = _write(guardset)
        self.source = writer.source()
        namespace = {**globals(), **writer.constants}
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
        guard = self.guards[next(index for index in (expected, failed) if index is not None)]
        holds_for, fails_for = ("C program", "Python mirror") if failed is None else ("Python mirror", "C program")
        raise InternalTorchDynamoError(
            f"strict_guards: the guards hold for the {holds_for}, but for the {fails_for} this one fails: {guard.path} "
            f"{ir.KIND_NAMES[guard.kind]} {guard.text or short(guard.arg)}"
        )


# ----------------------------------------------------------------------------------------------------------------------
# Why did it miss?


@dataclass(frozen=True)
class GuardFailure:
    """One guard that does not hold, in the user's terms. `paths` and `bounds` say the same as values: where what the guard looks at is
    found, and between which numbers it should be, if that is all that the guard asks for. `is_place`: the program has come to
    another place, for which a version is no recompilation."""

    path: str
    user_line: User
    expected: str
    found: str
    kind: int | None = None
    paths: tuple[Steps, ...] = ()
    bounds: Bounds | None = None
    is_place: bool = False

    def __str__(self) -> str:
        where = f"  ({_user_line(self.user_line)})" if self.user_line is not None else ""
        return f"{self.path}: expected {self.expected}, found {self.found}{where}"


def explain_miss(guardset: GuardSet, values: Sequence[Any], closure: tuple | None = None) -> list[GuardFailure]:
    """All guards that fail for these arguments; below a value that fails a check nothing more is looked at. Objects of any kind come here:
    a step, a check or a text that raises is a guard that fails, of which less is told."""
    failures: list[GuardFailure] = []
    found: dict[GuardNode, Any] = {}
    for guard in guardset.relations:
        if guard.kind == ir.GLOBAL_STATE and not holds(_APPLIED[guard.kind], (), guard.arg):
            failures.append(GuardFailure(guard.text or "global state", guard.user, "unchanged", "changed"))
    for node in guardset.nodes:
        if node.parent is None or node.parent in found:
            try:
                value = walk(node, found, values, closure)
            except Exception:
                value = WRONG
            failure = _explain_node(node, value)
            if failure is not None:
                failures.append(failure)
            elif value is not MISSING and value is not WRONG:
                found[node] = value
    for guard in guardset.relations:
        if guard.kind != ir.GLOBAL_STATE and all(node in found for node in guard.nodes):
            reached = [found[node] for node in guard.nodes]
            if not holds(_APPLIED[guard.kind], reached, guard.arg):
                failures.append(_explain_relation(guard, reached))
    return failures


def _explain_node(node: GuardNode, value: object) -> GuardFailure | None:
    absent = next((guard for guard in node.checks if guard.kind == ir.ABSENT), None)
    if absent is not None:
        return None if value is MISSING else _of_node(node, absent.user, "nothing there", told(short, value))
    if value is MISSING or value is WRONG:
        if not node.checks and not node.children:
            return None
        return _of_node(node, next((guard.user for guard in node.checks), None), "a value", repr(value))
    for guard in node.checks:
        if not holds(_APPLIED[guard.kind], value, guard.arg):
            elsewhere = _explain_place(node, guard, value)
            if elsewhere is not None:
                return elsewhere
            return _of_node(node, guard.user, *_explain_check(guard, value), guard.kind)
    return None


def _explain_place(node: GuardNode, guard: Guard, value: object) -> GuardFailure | None:
    """The failure where a called function goes on elsewhere behind a break in it than it did: on the other side of a branch."""
    kind, arg = _plain_check(guard)
    expected, found = place_of(arg), place_of(value)
    if kind != ir.IS or expected is None or found is None:
        return None
    (name, line), (other, other_line) = expected, found
    where, there = f"line {line}", f"line {other_line}" if other == name else f"line {other_line} of {other}"
    there = f"another place in {where}" if there == where else there
    return GuardFailure(f"where {name} goes on", guard.user, where, there, guard.kind, (node.steps,), is_place=True)


def _of_node(node: GuardNode, user: User, expected: str, found: str, kind: int | None = None) -> GuardFailure:
    return GuardFailure(node.path, user, expected, found, kind, (node.steps,))


def _plain_check(guard: Guard) -> tuple[int, Any]:
    """The kind of a check and its argument, to which the guard may have a weak reference; None if that object is gone."""
    return (ir.FIRM[guard.kind], guard.arg()) if guard.kind in ir.FIRM else (guard.kind, guard.arg)


def _explain_check(guard: Guard, value: object) -> tuple[str, str]:
    """The expected value and the value found, as texts."""
    kind, arg = _plain_check(guard)
    if arg is None and guard.kind in ir.FIRM:
        return "an object that is gone", told(short, value)
    expected, found = kind_texts()[kind]
    wanted, text = told(expected, value, arg), told(found, value, arg)
    like = type(value) if kind == ir.TYPE_IS else value
    if kind in _DEMANDS_ONE and wanted == told(expected, value, like):
        text = f"another {text}"
    return wanted, text


def demand_of(guard: Guard) -> str:
    """What a guard demands of its values, in the words in which its failures tell it."""
    if guard.kind == ir.TENSOR:
        return text_of_spec(guard.arg)
    kind, arg = _plain_check(guard)
    if arg is None and guard.kind in ir.FIRM:
        return "an object that is gone"
    return guard.text or kind_texts()[kind][0](None, arg)


def told(text: Callable[..., str], value: object, *args: object) -> str:
    """text(value, *args), or the type of the value where that raises."""
    try:
        return text(value, *args)
    except Exception:
        return f"{qualname_of(type(value))} object"


_DEMANDS_ONE = (ir.IS, ir.TYPE_IS, ir.EQUALS)


@functools.cache
def kind_texts() -> dict[int, tuple[Callable[[Any, Any], str], Callable[[Any, Any], str]]]:
    """For each kind functions of (value, argument): the texts for what was expected and what was found."""
    expected = _functions({kind: f'f"{row.expected}"' for kind, row in ROWS.items()})
    found = _functions({kind: f'f"{row.found}"' for kind, row in ROWS.items()})
    return {kind: (expected[kind], found[kind]) for kind in ROWS}


def length_of(value: Any) -> str:
    """The number of items in the object's own storage."""
    for base in (list, tuple, dict, set, frozenset, deque):
        if _is(value, base):
            return str(base.__len__(value))
    return str(value.__length_hint__()) if type(value) in _ITERATORS else "unknown"


def keys_of(value: Any) -> str:
    """The keys of a dict."""
    return f"keys {short(list(dict.keys(value)))}" if _is(value, dict) else short(value)


def expected_of(value: object, spec: tuple) -> str:
    """The metadata that a tensor should have, as far as they differ."""
    return ", ".join([f"{what} {wanted}" for what, wanted, _ in tensor_differences(value, spec)])


def found_of(value: object, spec: tuple) -> str:
    """The metadata that a tensor has, as far as they differ."""
    return ", ".join([f"{what} {actual}" for what, _, actual in tensor_differences(value, spec)])


def _explain_relation(guard: Guard, values: list[Any]) -> GuardFailure:
    expected, found = kind_texts()[guard.kind]
    path = _aliases(guard, values) if guard.kind == ir.DISTINCT else guard.path
    paths = tuple([node.steps for node in guard.nodes])
    wanted = guard.text or told(expected, values, guard.arg)
    return GuardFailure(path, guard.user, wanted, told(found, values, guard.arg), None, paths, guard.bounds)


def _aliases(guard: Guard, values: list[Any]) -> str:
    """The paths of the first values that turn out to be one object."""
    paths: dict[int, str] = {}
    for node, value in zip(guard.nodes, values, strict=True):
        if id(value) in paths:
            return f"{paths[id(value)]}, {node.path}"
        paths[id(value)] = node.path
    return guard.path
