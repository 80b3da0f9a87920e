"""Guard IR: a trie of access paths with checks, and relations between the values they lead to.

Input: calls by the tracer, thousands per trace, so interning a node or adding a check costs about a microsecond.
Output: `GuardSet`, read by `program` (C), `mirror` (Python) and reports.
Invariant: a node is created after its parent; a guard's index is its position in `GuardSet.guards`; a settled set keeps no
function, class or other object of the program alive that it compares with.

The kinds are in `kinds`; they can be had from here as well.
"""

from __future__ import annotations

from _abc import _abc_subclasscheck, get_cache_token
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import BuiltinFunctionType, FunctionType, MappingProxyType, ModuleType
from typing import Any

from dynamo_lite._eval_frame import GUARD_KINDS, ClassCheck, Reference, can_refer_weakly
from dynamo_lite.guards.descriptions import short
from dynamo_lite.guards.kinds import *
from dynamo_lite.isa.typeobject import Py_TPFLAGS_HEAPTYPE, flags, name_of, qualname_of

if GUARD_KINDS != {name: (number, ROWS[number].argument) for name, number in KINDS.items()}:
    raise ImportError("the C extension was built from other sources of dynamo_lite: build it again")

MADE = -1
"""A root that no guard reaches, which C knows nothing of: what the code makes before the graph; a callable."""

User = tuple[str, int] | None
"""The user's line that made the guard necessary: (file name, line number)."""

Steps = tuple[tuple[int, Any], ...]
"""An access path as a value, from its root: (accessor, argument) for each step. The argument is a name, a number or bytes: that of a
variable is its name, that of a constant a description, and an object of the program is represented by `plain`. So comparing paths runs no
code of the program, a path keeps none of its objects alive, and it means the same in another process."""

Bounds = tuple[str, int | None, int | None]
"""What a condition on one number allows: the number's name in reports, the smallest and the largest one; None: there is no such bound."""

# Constants of these types are the same argument if they are equal (0.0 and -0.0 rule out float); others if identical.
_BY_VALUE = frozenset({int, bool, bytes})
_PLAIN = frozenset({*_BY_VALUE, str, type(None)})


def _key(kind: int, arg: object) -> Any:
    """The key by which a step or a check is interned. Most are names of attributes and items, which stand for themselves."""
    cls = type(arg)
    if cls is str:
        return arg if kind == DICT_ITEM else (kind, arg)
    return (kind, cls, arg) if cls in _BY_VALUE else (kind, id(arg))


class Guard:
    """One condition. `node` is where it applies; relations have `nodes` instead. `bounds`: what a predicate says of its only number, if
    that is all it says."""

    __slots__ = ("arg", "bounds", "index", "kind", "node", "nodes", "text", "user")

    def __init__(
        self,
        kind: int,
        node: GuardNode | None,
        nodes: tuple[GuardNode, ...],
        arg: Any,
        user: User,
        text: str | None,
        index: int,
        bounds: Bounds | None = None,
    ):
        self.kind = kind
        self.node = node
        self.nodes = nodes
        self.arg = arg
        self.user = user
        self.text = text
        self.index = index
        self.bounds = bounds

    @property
    def guarded(self) -> tuple[GuardNode, ...]:
        """The nodes whose values the guard looks at; none for torch's ambient state."""
        return (self.node,) if self.node is not None else self.nodes

    @property
    def path(self) -> str:
        """The guarded value, as the user would write it."""
        return ", ".join([node.path for node in self.guarded])

    def __repr__(self) -> str:
        return f"<Guard {self.index}: {self.path} {KIND_NAMES[self.kind]} {self.text or ''}>"


_NOTHING: Mapping[Any, Any] = MappingProxyType({})


class GuardNode:
    """A value that guards can reach: an accessor applied to the parent's value."""

    __slots__ = ("arg", "checks", "children", "kind", "owner", "parent", "_path", "_seen", "_steps")

    def __init__(self, owner: GuardSet, parent: GuardNode | None, kind: int, arg: Any):
        self.owner = owner
        self.parent = parent
        self.kind = kind
        self.arg = arg
        self.checks: list[Guard] = ()  # type: ignore[assignment] # most nodes have few of either, so `check` makes the list
        self.children: Mapping[Any, GuardNode] = _NOTHING
        self._seen: Any = None  # keys of the checks
        self._path: str | None = None
        self._steps: Steps | None = None

    @property
    def path(self) -> str:
        """A readable Python expression, such as `self.layers[3].eps`."""
        path = self._path
        if path is None:
            chain = [self]
            while (parent := chain[-1].parent) is not None and parent._path is None:
                chain.append(parent)
            for node in reversed(chain):
                path = node._path = _describe(node)
        return path or ""

    @property
    def steps(self) -> Steps:
        """The path as a value, to compare and to look up; `path` is only for people."""
        if self._steps is None:
            steps = []
            node = self
            while node._steps is None and node.parent is not None:
                steps.append((node.kind, plain(node.arg)))
                node = node.parent
            self._steps = (*(node._steps or _root_step(node)), *reversed(steps))
        return self._steps

    @property
    def root(self) -> GuardNode:
        """The node at which the path starts."""
        node = self
        while node.parent is not None:
            node = node.parent
        return node

    def __repr__(self) -> str:
        return f"<GuardNode {self.path}>"


NO_VALUE = object()
"""What no path leads to."""


def _is_looked_at(node: GuardNode) -> bool:
    """Whether a check, here or further along the path, fails where the node has no value."""
    return bool(node.checks) or any(_is_looked_at(child) for child in node.children.values())


def _is_demanded(node: GuardNode) -> bool:
    """Whether a check leaves the node no other value than one object."""
    if node.kind == DICT_KEY and node.parent is not None:
        return any(check.kind == DICT_KEYS for check in node.parent.checks)
    return node.kind == CONST or any(check.kind == IS for check in node.checks)


class GuardSet:
    """All guards of one trace.

    `local_names` and `free_names` are the names of the local slots and of the closure's cells, for readable paths.
    """

    def __init__(self, local_names: Sequence[str] = (), free_names: Sequence[str] = ()):
        self.local_names = local_names
        self.free_names = free_names
        self.roots: dict[Any, GuardNode] = {}
        self.nodes: list[GuardNode] = []
        self.guards: list[Guard] = []
        self._distinct: set[tuple[int, ...]] = set()
        self._registrations: Guard | None = None
        self._demanded: set[int] = set()  # ids of objects, among the first `_searched` guards
        self._searched = 0
        self.is_settled = False
        self.sizes: Any = ()  # for reports: what the guards demand of each size, if some are symbolic
        self._expected: dict[GuardNode, User] = {}
        self._hashed: dict[type, dict[GuardNode, User]] = {}  # by the class of the objects

    def node(self, parent: GuardNode | None, kind: int, arg: object = None) -> GuardNode:
        """The child of `parent` (None: a root) by this accessor; made at the first request."""
        children: Any = self.roots if parent is None else parent.children
        key = _key(kind, arg)
        node = children.get(key)
        if node is None:
            if parent is not None and children is _NOTHING:
                children = parent.children = {}
            node = children[key] = GuardNode(self, parent, kind, arg)
            self.nodes.append(node)
        return node

    def check(self, node: GuardNode, kind: int, arg: object = None, user: User = None) -> None:
        """Require a property of the node's value. Asking for the same thing twice adds nothing."""
        key = _key(kind, arg)
        seen = node._seen
        if seen is None:
            node._seen = key
            node.checks = [self._add(kind, node, (), arg, user, None)]
            return
        if type(seen) is not set:
            if seen == key:
                return
            seen = node._seen = {seen}
        if key not in seen:
            seen.add(key)
            node.checks.append(self._add(kind, node, (), arg, user, None))

    def expect(self, node: GuardNode, user: User = None) -> None:
        """Require that there is a value, should nothing else be asked of it: reading a variable or an attribute that is missing raises,
        also where the program drops the value unread."""
        self._expected.setdefault(node, user)

    def hashed(self, cls: type, node: GuardNode, user: User = None) -> None:
        """A hash table knows the node's value, an object of class `cls`, by its identity."""
        self._hashed.setdefault(cls, {}).setdefault(node, user)

    def tell_apart(self) -> None:
        """Require that what hash tables know by identity are different objects. Of those that other guards demand that is known."""
        for nodes in self._hashed.values():
            if len(nodes) > 1 and not all(map(_is_demanded, nodes)) and not self._are_keys_of_one(nodes):
                known = set(nodes)
                for guard in self.relations:
                    if guard.kind == SAME and any(map(_is_demanded, guard.nodes)):
                        known.difference_update(guard.nodes)
                if not all(map(_is_demanded, known)):
                    self.distinct(list(nodes), next(iter(nodes.values())))

    def _are_keys_of_one(self, nodes: Iterable[GuardNode]) -> bool:
        """Whether there is a dict that has all of these objects, which are its keys or the same as those: they differ."""
        dicts = {node: {node.parent} if node.kind == DICT_KEY else set() for node in nodes}
        for guard in self.relations:
            if guard.kind == SAME:
                for node, other in (guard.nodes, guard.nodes[::-1]):
                    if node in dicts and other.kind == DICT_KEY:
                        dicts[node].add(other.parent)
        return bool(set.intersection(*dicts.values()))

    def settle(self) -> None:
        """Make checks of the expectations that no other guard covers, and let go of the program's objects. Called once, when the
        trace is done."""
        for node, user in self._expected.items():
            if not _is_looked_at(node):
                self.check(node, IS_NOT, NO_VALUE, user)
        self._expected.clear()
        self._loosen()
        self.is_settled = True

    def is_released(self, value: object) -> bool:
        """True for an object that the set demands, with the bases of demanded classes, but will not keep alive."""
        for guard in self.guards[self._searched :]:
            if guard.kind in (IS, TYPE_IS) and is_mortal(guard.arg):
                bases = (
                    _mro(guard.arg) if issubclass(type(guard.arg), type) else None
                )  # None as well for an unfinished class
                self._demanded.update(map(id, bases or (guard.arg,)))
        self._searched = len(self.guards)
        return id(value) in self._demanded and is_mortal(value)

    def abandon(self) -> None:
        """Let go of all objects: this set will not be used."""
        for guard in self.guards:
            guard.arg = None
        for node in self.roots.values():
            node.arg = None

    def _loosen(self) -> None:
        """Refer to objects weakly, where that is possible. An object that is gone equals none: its address may be used again, but
        its references stay dead."""
        for node in self.roots.values():
            # What no guard demands may be the analysis's own, which nobody else keeps; but functions are the program's.
            if node.kind == CONST and (self.is_released(node.arg) or _is_function_of_program(node.arg)):
                node.kind, node.arg = REFERENT, Reference(node.arg)
        for guard in self.guards:
            if guard.kind in _LOOSE and is_mortal(guard.arg):
                guard.kind, guard.arg = _LOOSE[guard.kind], Reference(guard.arg)

    def same(self, node_a: GuardNode, node_b: GuardNode, user: User = None) -> None:
        """Require both nodes to lead to one object."""
        if node_a is not node_b:
            self._relate(SAME, (node_a, node_b), user)

    def distinct(self, nodes: Sequence[GuardNode], user: User = None) -> None:
        """Require all nodes to lead to different objects."""
        if len(nodes) > 1:
            self._relate(DISTINCT, tuple(nodes), user)

    def predicate(
        self,
        fn: Callable[..., Any],
        nodes: Sequence[GuardNode],
        text: str,
        user: User = None,
        bounds: Bounds | None = None,
    ) -> None:
        """Require fn(*values) to be true, once however often it is required; `text` is what reports print. `bounds`: fn says of one
        number that it lies between these."""
        key = (PREDICATE, id(fn), *map(id, nodes))
        if key not in self._distinct:
            self._distinct.add(key)
            self._add(PREDICATE, None, tuple(nodes), fn, user, text, bounds)

    def global_state(self, fn: Callable[[], Any], text: str) -> None:
        """Require fn() to be true; evaluated before everything else, once however often it is required."""
        key = (GLOBAL_STATE, id(fn))
        if key not in self._distinct:
            self._distinct.add(key)
            self._add(GLOBAL_STATE, None, (), fn, None, text)

    def class_check(self, cls: type, hook: Callable[[type], bool]) -> None:
        """Require hook(cls) to be true, which only the attributes of a class and of its bases decide."""
        key = (GLOBAL_STATE, id(cls), id(hook))
        if key not in self._distinct:
            self._distinct.add(key)
            self.global_state(ClassCheck(cls, hook, True), f"{hook.__name__}({qualname_of(cls)})")

    def same_mro(self, cls: type) -> None:
        """Require that a class has the method resolution order that it has now."""
        key = (GLOBAL_STATE, id(cls), id(SameMro))
        if key not in self._distinct:
            self._distinct.add(key)
            self.global_state(ClassCheck(cls, SameMro(cls), True), f"{qualname_of(cls)}.__mro__")

    def same_answer(self, abstract: type, cls: type, answer: bool) -> None:
        """Require that an abstract class says of another class what it says now, which may hang on what has been registered."""
        if self._registrations is None:
            self._registrations = self._add(GLOBAL_STATE, None, (), SameRegistrations(), None, "")
        if self._registrations.arg.add(abstract, cls, answer):
            text = f"{qualname_of(cls)} is {'a' if answer else 'no'} subclass of {qualname_of(abstract)}"
            self._registrations.text = ", ".join(filter(None, (self._registrations.text, text)))

    def relation(
        self,
        kind: int,
        nodes: tuple[GuardNode, ...],
        arg: object,
        user: User,
        text: str | None,
        bounds: Bounds | None = None,
    ) -> None:
        """Require anything that is not a check of one node."""
        self._add(kind, None, nodes, arg, user, text, bounds)

    def _relate(self, kind: int, nodes: tuple[GuardNode, ...], user: User) -> None:
        key = (kind, *map(id, nodes))
        if key not in self._distinct:
            self._distinct.add(key)
            self._add(kind, None, nodes, None, user, None)

    def _add(
        self,
        kind: int,
        node: GuardNode | None,
        nodes: tuple[GuardNode, ...],
        arg: object,
        user: User,
        text: str | None,
        bounds: Bounds | None = None,
    ) -> Guard:
        guard = Guard(kind, node, nodes, arg, user, text, len(self.guards), bounds)
        self.guards.append(guard)
        return guard

    @property
    def relations(self) -> Iterator[Guard]:
        """The guards that are not checks of one node."""
        return (guard for guard in self.guards if guard.node is None)

    @property
    def checks(self) -> int:
        """How many guards there are."""
        return len(self.guards)

    def __len__(self) -> int:
        return len(self.guards)

    def __iter__(self) -> Iterator[Guard]:
        return iter(self.guards)


class SameMro:
    """Called with a class, whether its bases are those that it had when this was made. It keeps none of them alive."""

    __slots__ = ("bases",)

    def __init__(self, cls: type):
        self.bases = tuple(map(Reference, _mro(cls)))

    def __call__(self, cls: type) -> bool:
        now = _mro(cls)
        return len(now) == len(self.bases) and all(base() is c for base, c in zip(self.bases, now, strict=True))


class SameRegistrations:
    """Called, whether abstract classes say of classes what they said when that was noted. They are asked again only after something has
    been registered with any abstract class, which CPython counts."""

    __slots__ = ("answers", "token")

    def __init__(self) -> None:
        self.token: int | None = get_cache_token()
        self.answers: dict[tuple[Reference[type], Reference[type]], bool] = {}

    def add(self, abstract: type, cls: type, answer: bool) -> bool:
        """Note an answer; False for one that is known."""
        key = Reference(abstract), Reference(cls)
        if key in self.answers:
            return False
        self.answers[key] = answer
        return True

    def __call__(self) -> bool:
        token = get_cache_token()
        if token != self.token:
            if not all(self._is_same(*key, answer) for key, answer in self.answers.items()):
                return False
            self.token = token
        return True

    @staticmethod
    def _is_same(abstract: Reference[type], cls: Reference[type], answer: bool) -> bool:
        """A class that is gone cannot be asked about any more."""
        one, other = abstract(), cls()
        return one is None or other is None or _abc_subclasscheck(one, other) is answer


_LOOSE = {firm: loose for loose, firm in FIRM.items()}


def is_mortal(value: object) -> bool:
    """True for what can be referenced weakly and may go away before the interpreter ends."""
    cls = type(value)
    if issubclass(cls, type):
        return bool(flags(value) & Py_TPFLAGS_HEAPTYPE)
    return can_refer_weakly(value)


def _is_function_of_program(value: Any) -> bool:
    if type(value) is not FunctionType:
        return False
    module = value.__globals__.get("__name__")
    return type(module) is not str or module.partition(".")[0] != _OWN_PACKAGE


_OWN_PACKAGE = __name__.partition(".")[0]
_mro = type.__dict__["__mro__"].__get__


# ----------------------------------------------------------------------------------------------------------------------
# Paths.


def _describe(node: GuardNode) -> str:
    kind, arg, parent = node.kind, node.arg, node.parent
    if parent is None:
        return _describe_root(node.owner, kind, arg)
    if kind == DICT_ITEM:
        return _describe_dict_item(parent, arg)
    if kind == CELL_CONTENTS and parent.kind == FREEVAR:
        return _name_of_cell(node.owner, parent.arg)
    return ROWS[kind].path.format(v=parent.path, k=getattr(arg, "__name__", "f") if kind == CALL else arg)


def _describe_root(owner: GuardSet, kind: int, arg: Any) -> str:
    if kind == LOCAL:
        return shown_name(_name_of_local(owner, arg))
    if kind == FREEVAR:
        return f"{_name_of_cell(owner, arg)} (cell)"
    if kind == MADE:
        return f"new {name_of(arg.cls)}"
    if kind == REFERENT and (arg := arg()) is None:
        return "<an object that is gone>"
    if _is_namespace(arg):
        return f"vars({arg['__name__']})"
    return _name_of(arg) or f"<{qualname_of(type(arg))}>"


def _root_step(node: GuardNode) -> Steps:
    kind, arg = node.kind, node.arg
    if kind == LOCAL:
        return ((LOCAL, _name_of_local(node.owner, arg)),)
    return ((FREEVAR, _name_of_cell(node.owner, arg)),) if kind == FREEVAR else ((CONST, node.path),)


def plain(arg: object) -> Any:
    """The argument of an accessor in `GuardNode.steps`: plain values as they are, a function by its name, another object by its class and
    address. Bytes are marked, as paths are compared with each other, and bytes with text is an error under `python -bb`."""
    if type(arg) is bytes:
        return "bytes", arg
    if type(arg) in _PLAIN:
        return arg
    return _name_of(arg) or f"<{qualname_of(type(arg))} at {id(arg):#x}>"


def _name_of_local(owner: GuardSet, i: int) -> str:
    return owner.local_names[i] if i < len(owner.local_names) else f"argument {i}"


def shown_name(name: str) -> str:
    """A variable of a frame for people: of a parameter of a continuation (`isa/resume.py`) the expression whose value it has."""
    return name.partition(" ")[2] or name if name.startswith("__stack_") else name


def _name_of_cell(owner: GuardSet, i: int) -> str:
    return owner.free_names[i] if i < len(owner.free_names) else f"free variable {i}"


def _name_of(arg: Any) -> str | None:
    """The name of a class, function or module, without running code of the program (of a metaclass, a module's `__getattr__`)."""
    if issubclass(type(arg), type):
        return qualname_of(arg)
    if type(arg) is ModuleType:
        name = vars(arg).get("__name__")
    else:
        name = arg.__qualname__ if type(arg) in (FunctionType, BuiltinFunctionType) else None
    return name if isinstance(name, str) else None


def _is_namespace(arg: Any) -> bool:
    """Is this a module's dict?"""
    return type(arg) is dict and isinstance(arg.get("__name__"), str)


# nn.Module finds what lies in these dicts as its attributes.
_ATTRIBUTE_DICTS = ("_parameters", "_buffers", "_modules")


def _whose_attributes(node: GuardNode) -> GuardNode | None:
    """The object whose attributes lie in this dict."""
    above = node.parent
    if node.kind == DICT_ITEM and above is not None and above.kind == INSTANCE_DICT and node.arg in _ATTRIBUTE_DICTS:
        return above.parent
    return above if node.kind == INSTANCE_DICT else None


def _describe_dict_item(parent: GuardNode, key: Any) -> str:
    named = type(key) is str and key.isidentifier()
    owner = _whose_attributes(parent) if named else None
    if owner is not None:
        return f"{owner.path}.{key}"
    if named and parent.kind == CONST and _is_namespace(parent.arg):
        module = parent.arg["__name__"]
        return key if module == "__main__" else f"{module}.{key}"
    return ROWS[DICT_ITEM].path.format(v=parent.path, k=short(key))
