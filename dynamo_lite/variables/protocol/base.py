"""The model of one Python object during an analysis.

Input: nothing; this is the root of the class tree. Output: `VariableTracker`, whose class attributes are CPython's type slots;
`Child`, `Children` and `Plain`, by which a model declares its fields; and `LazyVariable`, a placeholder that turns into the right model
in place when it is first looked at.
Invariant: one object of the traced program has one tracker, mutated in place; an absent slot is `None`, as a C type has NULL there.
Mirrors `Include/cpython/object.h` (slot names) and `Objects/object.c`.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import TYPE_CHECKING, Any

from dynamo_lite.exc import NotConstant, ReadArguments, Restart
from dynamo_lite.guards import ir
from dynamo_lite.guards.mirror import has_finalizer

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.guards.ir import GuardNode
    from dynamo_lite.interp.frame import Frame
    from dynamo_lite.variables.objects.exception_instance import ExceptionVariable


class _Missing:
    """The type of `MISSING`, which stands for "no such Python object" where None would be a value."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Any = _Missing()


class _Running(threading.local):
    """Whose analysis this thread runs, for what is asked without a frame: slots of models, names of classes in messages."""

    trace: Any = None

    @contextlib.contextmanager
    def by(self, tr: Trace) -> Iterator[None]:
        """While the block runs, this trace guards what is asked."""
        before, self.trace = self.trace, tr
        try:
            yield
        finally:
            self.trace = before


running = _Running()


class ObservedException(Exception):
    """A Python exception in flight inside the traced program (not an error of the analysis).

    Attributes: `exc`, the tracker of the exception instance.
    """

    def __init__(self, exc: ExceptionVariable) -> None:
        super().__init__(exc)
        self.exc = exc


class BothSidesFollowed(Exception):
    """A branch that data decide is one node of the graph: the frame is where its sides meet, or returns `result`."""

    def __init__(self, result: VariableTracker | None) -> None:
        super().__init__(result)
        self.result = result


# -- fields of models


class _Required:
    """The type of `REQUIRED`: a field without a default."""


REQUIRED: Any = _Required()


class Field:
    """One declared field of a model; made by `Child`, `Children` and `Plain`.

    Attributes:
        many: the field is a collection of trackers, a dict one by its values; `child`: it is a tracker, or None or `MISSING`. A field
            that is neither holds a host value.
        default, factory: what a new object has where the constructor gets nothing; `factory` makes it anew for each object.
        init: the field is a parameter of the constructor.
        lazy: the model of an object from outside reads it when it is first asked for, see `Lazy`.
        emit: how the field is passed to `rebuild`: "" by position (a collection as several arguments), "tuple", "keyword" (left out
            where it has its default), "filled" (a container with its final contents), "no".
    """

    __slots__ = ("child", "default", "emit", "factory", "init", "lazy", "many", "name")

    def __init__(
        self,
        kind: str,
        default: Any = REQUIRED,
        *,
        factory: Any = None,
        init: bool = True,
        lazy: bool = False,
        emit: str = "",
    ) -> None:
        self.child, self.many = kind == "child", kind == "children"
        self.default, self.factory = default, factory
        self.init, self.lazy, self.emit = init, lazy, emit if init else "no"
        self.name = ""


def Child(default: Any = REQUIRED, **how: Any) -> Any:
    """A field that holds a tracker. With the default None, there may be none: such a field is no argument of `rebuild` then."""
    return Field("child", default, **how)


def Children(default: Any = REQUIRED, **how: Any) -> Any:
    """A field that holds a collection of trackers."""
    return Field("children", default, **how)


def Plain(default: Any = REQUIRED, **how: Any) -> Any:
    """A field that holds a host value."""
    return Field("plain", default, **how)


class Lazy:
    """A field that the model of an object from outside reads from the real object when it is first asked for: `load_NAME(self)` returns
    the value and installs the guards on which it rests. A new object gets the value from its constructor.

    It is found in the instance's dictionary first, so it costs nothing once it is there; `"NAME" in vt.__dict__` asks whether it is.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.loader = f"load_{name}"

    def __get__(self, vt: Any, owner: object = None) -> Any:
        if vt is None:
            return self
        value = getattr(vt, self.loader)()
        setattr(vt, self.name, value)
        return value


def _resolve_fields(cls: Any) -> None:
    """What the declared fields of a class stand for: class attributes, the constructor, `children`."""
    own = {name: field for name, field in cls.__dict__.items() if isinstance(field, Field)}
    fields: dict[str, Field] = {}
    for base in reversed(cls.__mro__):
        fields.update(base.__dict__.get("own_fields", ()))
    fields.update(own)
    cls.own_fields, cls.fields = own, tuple(fields.values())
    if cls.rebuild is not None and (own or "rebuild" in cls.__dict__):
        cls.arguments = tuple([field for field in fields.values() if field.emit != "no"])
    if not own and "__post_init__" not in cls.__dict__:
        return
    for name, field in own.items():
        field.name = name
        if field.lazy:
            setattr(cls, name, Lazy(name))
        elif field.default is REQUIRED or field.factory is not None:
            delattr(cls, name)
        else:
            setattr(cls, name, field.default)
    if "__init__" not in cls.__dict__:
        cls.__init__ = _first_constructor(cls)
    if any(field.child or field.many for field in own.values()):
        cls.declared_children = _declared_children(super(cls, cls).children, own)
        if "children" not in cls.__dict__:
            cls.children = cls.declared_children


def _declared_children(inherited: Callable[[Any], Any], own: dict[str, Field]) -> Callable[[Any], list[Any]]:
    singles = tuple(name for name, field in own.items() if field.child)
    several = tuple(name for name, field in own.items() if field.many)

    def children(self: Any) -> list[Any]:
        state = self.__dict__
        found = list(inherited(self))
        for name in singles:
            if (child := state.get(name)) is not None and child is not MISSING:
                found.append(child)
        for name in several:
            held = state.get(name, ())
            found.extend([v for v in held.values() if v is not None] if type(held) is dict else held)
        return found

    return children


def _first_constructor(cls: Any) -> Callable[..., None]:
    """The constructor of a model that has not been used yet; it puts the one made for the fields in its place."""

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        cls.__init__ = _constructor(cls)
        cls.__init__(self, *args, **kwargs)

    return __init__


def _constructor(cls: Any) -> Callable[..., None]:
    """`__init__` for the declared fields, in their order, and the access path as its last parameter. As in `dataclasses`, the function
    is made from its text, so that making an object costs what it does with one written by hand."""
    namespace: dict[str, Any] = {}
    parameters, lines = ["vt"], []
    for field in cls.fields:
        name = field.name
        namespace[f"_{name}"] = field.default if field.factory is None else field.factory
        if field.factory is not None:
            lines.append(f"vt.{name} = {f'_{name}() if {name} is None else {name}' if field.init else f'_{name}()'}")
            parameters += [f"{name}=None"] if field.init else []
        elif field.init:
            lines.append(f"vt.{name} = {name}")
            parameters.append(name if field.default is REQUIRED else f"{name}=_{name}")
    lines.append("vt.source = source")
    if hasattr(cls, "__post_init__"):
        lines.append("vt.__post_init__()")
    exec(f"def __init__({', '.join(parameters)}, source=None):\n " + "\n ".join(lines), namespace)
    return namespace["__init__"]


class VariableTracker:
    """Model of one Python object.

    A model declares its fields, and gets from them its constructor, `children` and the code that makes the object again:

        class MapVariable(IteratorVariable):
            cls = map
            function: VariableTracker = Child()
            iterators: list[VariableTracker] = Children()
            rebuild = map

    The constructor is `MapVariable(function, iterators, source=None)`, `children()` gives the function and the iterators, and
    generated code calls `map(function, *iterators)`, or `map.__new__(cls, …)` for an instance of a subclass. A `lazy` field is read from
    the real object when first asked for (`Lazy`). `__post_init__` runs after the constructor. Whatever
    a declaration can't say (an object that is filled after it is made, a state that no call leads to) is said by a method of that
    name, which then replaces the declared one (`declared_children` is what such a method starts from). A field with a default that is
    no parameter and no tracker needs no declaration: it is a class attribute.

    Attributes:
        source: the access path (a `guards.ir.GuardNode`) by which generated code can reload the object and guards can check it;
            None for an object that the traced code created.
        value: the real object where one exists (sourced objects and constants), else `MISSING`.
        mutated: the object existed before the frame and has been changed by the traced code, so that codegen must replay the change.

    Slots are methods called as in C with the frame first: unary `nb_negative(tx)`, `mp_subscript(tx, key)`; binary number slots are
    *static* `nb_add(tx, v, w)` because CPython calls them with the operands in source order whichever side owns the slot.
    A slot returns a tracker, or the constant NotImplemented where C returns Py_NotImplemented, and reports a Python exception by
    raising `ObservedException`; what it cannot model it refuses with `exc.unsupported`.
    """

    source: Any = None
    value: Any = MISSING
    mutated: bool = False
    mutated_at: int = 0  # the step to break at if the first change must not be replayed
    folds = False  # a constant with which C code may do as it likes during the analysis
    is_user_made = False  # an instance of a class written in Python, whose special methods are the program's
    opaque = False  # of a class with a base written in C whose state has no model
    is_atom = False  # an instance of a subclass of int, str …, whose value of that type is `atom`

    cls: type

    # -- declared fields
    own_fields: dict[str, Field] = {}
    fields: tuple[Field, ...] = ()
    arguments: tuple[Field, ...] = ()  # those that `rebuild` gets
    rebuild: Any = None  # the callable whose call with the fields makes the object again

    def __init_subclass__(cls) -> None:
        if type(rebuild := cls.__dict__.get("rebuild")) is FunctionType:
            cls.rebuild = staticmethod(rebuild)
        _resolve_fields(cls)

    if TYPE_CHECKING:

        def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    # -- tp slots
    tp_getattro = None  # (tx, name: str) -> tracker
    tp_setattro = None  # (tx, name: str, value: tracker | None for delete)
    tp_call = None  # (tx, args: list, kwargs: dict) -> tracker
    tp_hash = None  # (tx) -> tracker
    tp_richcompare = None  # (tx, other, op: "<" "<=" "==" "!=" ">" ">=") -> tracker
    tp_iter = None  # (tx) -> tracker
    tp_iternext = None  # (tx) -> tracker | None when exhausted, or StopIteration (`abstract.iter_next` takes both)
    tp_repr = None  # (tx) -> tracker
    tp_str = None  # (tx) -> tracker
    tp_descr_get = None  # (tx, obj: tracker | None, cls: tracker) -> tracker
    tp_descr_set = None  # (tx, obj, value | None)

    # -- number, sequence and mapping slots
    nb_bool = None  # (tx) -> tracker (a bool constant)
    # (tx, negated=False) -> the truth as a bool of the graph, where only data decide it; None elsewhere
    late_truth = None
    nb_index = nb_int = nb_float = None
    nb_negative = nb_positive = nb_absolute = nb_invert = None
    nb_add = nb_subtract = nb_multiply = nb_remainder = nb_divmod = nb_power = None
    nb_lshift = nb_rshift = nb_and = nb_xor = nb_or = None
    nb_floor_divide = nb_true_divide = nb_matrix_multiply = None
    nb_inplace_add = nb_inplace_subtract = nb_inplace_multiply = nb_inplace_remainder = nb_inplace_power = None
    nb_inplace_lshift = nb_inplace_rshift = nb_inplace_and = nb_inplace_xor = nb_inplace_or = None
    nb_inplace_floor_divide = nb_inplace_true_divide = nb_inplace_matrix_multiply = None
    sq_length = sq_concat = sq_repeat = sq_item = sq_ass_item = sq_contains = None
    sq_inplace_concat = sq_inplace_repeat = None
    mp_length = None  # (tx) -> tracker (an int)
    mp_subscript = None  # (tx, key) -> tracker
    mp_ass_subscript = None  # (tx, key, value | None for delete)

    # -- what every model answers

    is_one_of_several = False  # an object that data decides on: nobody may ask which one it is
    type_varies = False  # such an object whose class data decide on: `python_type` breaks the graph
    is_only_one = False  # of its class, where the interpreter makes no second object with this value: the empty tuple
    is_symbolic = False  # a number that may be another one at the next call
    is_rebuilt = False  # a value of the graph that is made of others when the graph has run

    def is_object(self, other: VariableTracker) -> bool:
        """Whether it is this object; asked where `type_varies`."""
        raise NotImplementedError

    def sizes(self) -> tuple[int | None, ...] | None:
        """The sizes of a tensor, None in the place of a symbolic one; None for other objects."""
        return None

    def python_type(self) -> type:
        """The object's real type (`type(x)`)."""
        return self.cls

    def is_python_constant(self) -> bool:
        """True if the object's whole value is known and immutable, or it is known by identity."""
        return False

    def as_python_constant(self) -> Any:
        """The object itself. Raises `NotConstant` where `is_python_constant()` is False."""
        raise NotConstant(f"{self!r} is not a constant")

    def as_proxy(self) -> Any:
        """The argument that stands for the object in the FX graph. Raises `Unsupported` where there can't be one."""
        from_constant = self.as_python_constant()
        return from_constant

    def direct_call(self, tx: Frame, args: list[Any]) -> Any:
        """`(function, arguments)` if calling the object with `args` is nothing but a call of that Python function, else None."""
        return None

    def refuses(self, method: object) -> bool:
        """True for a method of a builtin base whose effect on the object this model can't follow."""
        return False

    def lacks_layout(self, cls: type) -> bool:
        """True if the object is an instance of the builtin type `cls` of which this model does not have the state."""
        return False

    extreme: Callable[..., Any] | None = None
    """`extreme(tx, function, best, item)`: `min` or `max` of two objects of which this is one, None if the analysis has to compare them."""

    holds_weakly = False  # its children may go away while it is there
    is_moved_first = False  # an iterator from outside, whose items are taken before other changes are replayed

    def children(self) -> Any:
        """Trackers that this object holds (for escape analysis and materialisation)."""
        return ()

    def let_go(self, tr: Trace) -> Any:
        """`(source, real object)` for what the real object holds and the changed model does not; the source may be None."""
        return ()

    def differs(self) -> bool:
        """For a changed object: whether the real one is not what the model says, as far as that can be told."""
        return True

    def item_at(self, kind: int, arg: object) -> Any:
        """The tracker that the changed object has now where this step of an access path leads; None if there is none, or it is unknown."""
        return None

    def formula(self, tr: Trace) -> Any:
        """How generated code computes a value of the graph that it can compute itself; None for all others."""
        return None

    # -- codegen: an object that did not exist before the frame

    def emit_new(self, cg: Codegen) -> None:
        """Emit code that leaves the new object on the stack. Objects that can be part of a cycle leave an empty one here and
        are filled in `emit_fill`."""
        if self.rebuild is None:
            raise NotImplementedError(type(self).__name__)
        self.emit_call_with_fields(cg)

    def emit_call_with_fields(self, cg: Codegen) -> None:
        """Push the result of `rebuild` for the fields; for an instance of a subclass, that of `rebuild.__new__`."""
        function, cls, n = self.rebuild, self.python_type(), 0
        if issubclass(type(function), type) and cls is not function:
            cg.load_callable(function.__new__)
            cg.load_const(cls)
            n = 1
        else:
            cg.load_callable(function)
        keywords: list[str] = []
        for field in self.arguments:
            value = getattr(self, field.name)
            if field.emit == "keyword":
                if value == field.default:
                    continue
                keywords.append(field.name)
            n += _emit_field(cg, field, value)
        cg.asm.call(n, tuple(keywords))

    emit_fill = None  # (cg): fill the object made by emit_new; reached through cg.load(self)

    def hashes_program_objects(self) -> bool:
        """True if filling the object calls `__hash__` or `__eq__` methods of the program."""
        return False

    # -- codegen: replay the mutation of an object that existed before the frame

    def emit_update(self, cg: Codegen) -> None:
        """Emit code that brings the real object (reached through `cg.load(self)`) to the state of the model."""
        raise NotImplementedError(type(self).__name__)

    def settled(self) -> None:
        """Called when a lazy value has become this model. The model's constructor ran on another object, whose address it may have given
        away (to a graph value, say): what leads back to the model has to lead to this object."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.describe()})"

    def describe(self) -> str:
        """A short text for messages; never runs user code."""
        return self.source.path if self.source is not None else ""


def _emit_field(cg: Codegen, field: Field, value: Any) -> int:
    """Push a field as an argument; how many arguments it is."""
    if field.many:
        for item in value:
            cg.load(item)
        if field.emit != "tuple":
            return len(value)
        cg.asm.build_tuple(len(value))
    elif not field.child:
        cg.load_const(value)
    elif value is None:
        return 0
    elif field.emit == "filled":
        load_filled(cg, value)
    else:
        cg.load(value)
    return 1


def load_filled(cg: Codegen, vt: VariableTracker) -> None:
    """Push a container with the contents that it has at the end of the trace, be it new or changed: what is made from it
    next looks at them."""
    cg.load(vt)
    if vt.mutated:
        cg.replay.update(cg, vt)
    else:
        cg.replay.fill_now(cg, vt)


_set_class = object.__dict__["__class__"].__set__


@functools.cache
def _subclass_of(cls: type) -> type:
    return type(cls.__name__, (cls,), {})


class LazyVariable:
    """A sourced object nobody has looked at yet: no guard, no model.

    Any attribute read, and `isinstance`, builds the model and turns this very object into it (same identity, other class), so that
    no other code has to know about laziness; only `type(x) is …` must not be used on trackers. A lazy value that is merely passed
    on, stored or returned is reloaded from its source without any guard. A search through everything that a frame holds asks `is_lazy`
    before `isinstance`, else it builds models of, and guards on, arguments that the program never reads.
    """

    def __init__(self, tr: Trace, value: object, source: GuardNode | None, **more: Any) -> None:
        self.__dict__.update(_lazy=(tr, value), source=source, mutated=False, **more)

    def _realize(self) -> type:
        if UNREAD in self.__dict__:
            raise Restart("an argument was looked at without being read from its variable", fact=ReadArguments())
        if "_lazy" not in self.__dict__:
            # Searches for leaks call `isinstance` on all objects of the garbage collector, those of a finished run included.
            raise AttributeError("the run that this value belonged to is over")
        tr, value = self.__dict__["_lazy"]
        model = tr.build(value, self.__dict__["source"])
        _set_class(self, type(model))
        self.__dict__.clear()
        self.__dict__.update(model.__dict__)
        self.settled()
        return type(model)

    @property
    def __class__(self) -> type:
        # isinstance() ignores a `__class__` that equals the type, which by now it would: it gets a subclass.
        return _subclass_of(self._realize())

    def __getattr__(self, name: str) -> Any:
        self._realize()
        return getattr(self, name)

    def __setattr__(self, name: str, value: object) -> None:
        self._realize()
        setattr(self, name, value)


UNREAD = "_unread"
"""In the dictionary of a lazy value: an argument that the frame has not read so far. Another variable may hold the same object, and its
model; this one becomes that model when the variable is read (`Root.read_argument`)."""


def real_object(vt: VariableTracker) -> Any:
    """The real object of a tracker, `MISSING` if it has none; a lazy one stays lazy."""
    state = vt.__dict__
    return state["_lazy"][1] if "_lazy" in state else state.get("value", MISSING)


def stands_for(vt: VariableTracker, real: object) -> bool:
    """Whether a tracker's object is this one, which may be `MISSING`: no object."""
    return real is not MISSING and real_object(vt) is real


def sourced_objects(trackers: Any) -> list[tuple[Any, Any]]:
    """`(source, real object)` of trackers of objects that existed before the frame."""
    return [(vt.__dict__.get("source"), real_object(vt)) for vt in trackers]


def held_items(tr: Trace, source: GuardNode | None, real: dict[Any, Any], keys: Any) -> list[tuple[Any, Any]]:
    """`(source, real object)` of the values that a real dict has for `keys`. Another time it may have others, or have some for more. One
    with a finalizer, which no guard could tell from another, is given in a tuple: it counts as let go even if it is stored again."""
    held: list[tuple[Any, Any]] = []
    for key in keys:
        value = dict.__getitem__(real, key) if dict.__contains__(real, key) else MISSING
        if value is not MISSING and has_finalizer(type(value)):
            held.append((None, (value,)))
            continue
        tr.guard(source, ir.NO_FINALIZER_AT, key)
        if value is not MISSING:
            held.append((None, value))
    return held


def missing_from(trackers: Any, held: Any) -> list[tuple[Any, Any]]:
    """The pairs `(source, real object)` for whose object no tracker stands."""
    kept = {id(real_object(vt)) for vt in trackers}
    return [pair for pair in held if id(pair[1]) not in kept]


def is_lazy(vt: VariableTracker) -> bool:
    """True for a value that has not been looked at; asking does not count as looking."""
    return type(vt) is LazyVariable
