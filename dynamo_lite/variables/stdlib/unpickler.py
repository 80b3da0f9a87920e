"""`pickle.loads`.

Input: bytes. Output: models of the objects that they describe.
Invariant: the real unpickler runs no code of the program: calls of functions of the program, and the making of objects whose classes take
part in pickling, are recorded, and carried out on models when their objects are taken over.
Mirrors `UnpicklerObject` of `Modules/_pickle.c`.
"""

from __future__ import annotations

import _codecs
import _compat_pickle
import collections
import copyreg
import functools
import io
import pickle
import sys
import types
from typing import TYPE_CHECKING, Any

from dynamo_lite.exc import unsupported
from dynamo_lite.isa.typeobject import is_heap_type
from dynamo_lite.variables.builtin.deque import DequeVariable
from dynamo_lite.variables.builtin.dict import DictVariable
from dynamo_lite.variables.builtin.list import ListVariable
from dynamo_lite.variables.builtin.odict import DefaultDictVariable, OrderedDictVariable
from dynamo_lite.variables.builtin.set import FrozenSetVariable, SetVariable
from dynamo_lite.variables.builtin.tuple import TupleVariable
from dynamo_lite.variables.protocol.abstract import get_attr, set_attr, set_item
from dynamo_lite.variables.protocol.base import MISSING, VariableTracker
from dynamo_lite.variables.protocol.constant import ATOMIC_TYPES, NONE, TRUE, ConstantVariable, is_none
from dynamo_lite.variables.protocol.dispatch import builtin
from dynamo_lite.variables.protocol.hashing import key_of
from dynamo_lite.variables.protocol.native import host_value, optional_attr
from dynamo_lite.variables.protocol.wrap import BUILDERS

from .pickle import container_base, is_plain, modules_of, named
from .reduce import taking_apart_warns

if TYPE_CHECKING:
    from dynamo_lite.interp.frame import Frame


class _Refused(Exception):
    """The bytes name something whose making would run code of the program."""


class _Recorded:
    """Stands for an object that the program makes: by a call, or by `__new__`. `steps` is what happened to it then."""

    def __init__(self, target: object, is_new: bool, args: object, kwargs: object) -> None:
        self.__dict__.update(target=target, is_new=is_new, args=args, kwargs=kwargs, steps=[])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _Recorded(self, False, args, kwargs)

    def __setstate__(self, state: object) -> None:
        self.__dict__["steps"].append((_set_state, state))

    def extend(self, items: Any) -> None:
        """APPENDS"""
        self.__dict__["steps"].append((_extend, list(items)))

    def add(self, item: object) -> None:
        """ADDITEMS"""
        self.__dict__["steps"].append((_add, item))

    def __setitem__(self, key: object, value: object) -> None:
        self.__dict__["steps"].append((_set_item, (key, value)))


class _Reference:
    """Stands for a function of the program of which the bytes have the name."""

    def __init__(self, target: Any) -> None:
        self.target = target

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _Recorded(self, False, args, kwargs)


class _ClassReference(type):
    """The same for a class. The unpickler calls it, or its `__new__`."""

    target: type

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return _Recorded(cls, False, args, kwargs)


def _class_reference(target: type) -> Any:
    def new(cls: object, *args: Any, **kwargs: Any) -> Any:
        return _Recorded(cls, True, args, kwargs)

    return _ClassReference(target.__name__, (), {"__new__": new, "target": target})


_STANDS = (_Recorded, _Reference, _ClassReference)


def _recorded_for_stands(function: Any) -> Any:
    """The function, but that a call that gets a stand is recorded."""

    def call(*args: Any, **kwargs: Any) -> Any:
        if any(issubclass(type(arg), _STANDS) for arg in args):
            return _Recorded(function, False, args, kwargs)
        return function(*args, **kwargs)

    return call


_FUNCTIONS = {
    function: _recorded_for_stands(function)
    for function in (iter, getattr, copyreg._reconstructor, copyreg.__newobj__, copyreg.__newobj_ex__, _codecs.encode)
}


def _set_state(tx: Frame, made: VariableTracker, state: VariableTracker) -> None:
    """`load_build`"""
    setter = optional_attr(tx, made, "__setstate__")
    if setter is not None:
        tx.call(setter, [state])
        return
    slots = NONE
    if isinstance(state, TupleVariable) and len(state.items) == 2:
        state, slots = state.items
    for part in (state, slots):
        if not isinstance(part, DictVariable) and not is_none(part):
            unsupported("call-c-function", "pickle.loads: a state that is no dictionary")
    if isinstance(state, DictVariable) and state.items:
        attributes = get_attr(tx, made, "__dict__")
        for key, value in state.pairs():
            set_item(tx, attributes, key, value)
    for key, value in slots.pairs() if isinstance(slots, DictVariable) else ():
        set_attr(tx, made, host_value(key), value)


def _extend(tx: Frame, made: VariableTracker, items: ListVariable) -> None:
    extend = optional_attr(tx, made, "extend")
    if extend is not None:
        tx.call(extend, [items])
        return
    append = get_attr(tx, made, "append")
    for item in list(items.items):
        tx.call(append, [item])


def _add(tx: Frame, made: VariableTracker, item: VariableTracker) -> None:
    tx.call(get_attr(tx, made, "add"), [item])


def _set_item(tx: Frame, made: VariableTracker, pair: TupleVariable) -> None:
    set_item(tx, made, *pair.items)


_OLD_MODULES = frozenset(
    {"__builtin__", "copy_reg", "exceptions", "UserDict"}
)  # names of Python 2, which pickle translates
_MODULES = frozenset({"builtins", "collections", "itertools", "functools", "operator", "_collections"})


class _Unpickler(pickle.Unpickler):
    def __init__(self, modules: dict[str, Any], data: bytes, **options: Any) -> None:
        super().__init__(io.BytesIO(data), **options)
        self.modules = modules
        old = data[:1] != pickle.PROTO or data[1:2] < b"\3"
        self.translates = old and options["fix_imports"]

    def find_class(self, module: str, name: str) -> Any:
        found = self._find(module, name)
        if not _is_hashable(found):
            raise _Refused(f"{module}.{name}")
        if found in _FUNCTIONS:
            return _FUNCTIONS[found]
        if isinstance(found, type):
            if found.__module__ in _MODULES and not is_heap_type(found):
                return found
            return found if found in ATOMIC_TYPES or is_plain(found) else _class_reference(found)
        if isinstance(found, (types.FunctionType, types.BuiltinFunctionType)) or _is_cached_function(found):
            return _Reference(found)
        raise _Refused(f"{module}.{name}")

    def _find(self, module: str, name: str) -> Any:
        if self.modules is sys.modules:
            if module not in sys.modules and module not in _OLD_MODULES:
                raise _Refused(f"{module}.{name}")
            return super().find_class(module, name)
        if self.translates:
            module, name = _compat_pickle.NAME_MAPPING.get((module, name), (module, name))
            module = _compat_pickle.IMPORT_MAPPING.get(module, module)
        found = named(self.modules, module, name)
        if found is MISSING:
            raise _Refused(f"{module}.{name}")
        return found


def _is_cached_function(value: object) -> bool:
    return BUILDERS.get(type(value)) is BUILDERS[functools._lru_cache_wrapper]


def _is_hashable(value: object) -> bool:
    return type(value).__hash__ is not None


class Adopter:
    """Makes models of real objects nobody else holds; one model for one object."""

    def __init__(self, tx: Frame) -> None:
        self.tx = tx
        self.made: dict[int, VariableTracker] = {}
        self.alive: list[Any] = []

    def model(self, value: object) -> VariableTracker:
        """The model of an object."""
        cls = type(value)
        if cls in ATOMIC_TYPES:
            return ConstantVariable(value)
        found = self.made.get(id(value))
        if found is None:
            self.alive.append(value)
            found = self._make(cls, value)
            self.made[id(value)] = found
        return found

    def _make(self, cls: type, value: Any) -> VariableTracker:
        tx = self.tx
        if cls is range:
            return tx.tr.wrap_new(value)
        if cls is _Reference or cls is _ClassReference:
            return tx.tr.build_constant_object(value.target)
        if cls is _Recorded:
            return self._follow(value)
        if cls in (tuple, frozenset):
            items = [self.model(item) for item in value]
            return TupleVariable(items) if cls is tuple else FrozenSetVariable([key_of(tx, item) for item in items])
        if cls in _MODELS:
            return self._fill(value, _MODELS[cls](value))
        if is_heap_type(cls) and is_plain(cls):
            made = self.made[id(value)] = tx.tr.new_instance(tx, cls)
            native = container_base(cls)
            if native is collections.deque:
                made.items = collections.deque((), value.maxlen)
            if native is not None:
                self._fill(value, made)
            for name, item in value.__dict__.items():
                made.instance_dict(tx).store(tx, name, self.model(item))
            return made
        if issubclass(type(value), (type, types.FunctionType, types.BuiltinFunctionType)):
            return tx.tr.build_constant_object(value)
        if cls.__module__ not in _MODULES or is_heap_type(cls) or taking_apart_warns(cls):
            return unsupported("call-c-function", f"pickle.loads: a {cls.__qualname__}")
        return self._reduced(value)

    def _follow(self, value: Any) -> VariableTracker:
        """Do what was recorded."""
        tx, record = self.tx, value.__dict__
        target = record["target"]
        is_stand = issubclass(type(target), _STANDS)
        function = self.model(target) if is_stand else tx.tr.build_constant_object(target)
        args = [self.model(arg) for arg in record["args"]]
        if record["is_new"]:
            function, args = get_attr(tx, function, "__new__"), [function, *args]
        made = tx.call(function, args, {name: self.model(arg) for name, arg in record["kwargs"].items()})
        self.made[id(value)] = made
        for step, argument in record["steps"]:
            step(tx, made, self.model(argument))
        return made

    def _fill(self, value: Any, made: Any) -> VariableTracker:
        self.made[id(value)] = made
        tx = self.tx
        if isinstance(made, DictVariable):
            if isinstance(made, DefaultDictVariable):
                made.factory = self.model(value.default_factory)
            for key, item in list(dict.items(value)):
                made.items[key_of(tx, self.model(key))] = self.model(item)
        elif isinstance(made, SetVariable):
            made.items.update([key_of(tx, self.model(item)) for item in value])
        else:
            made.items.extend([self.model(item) for item in value])
        return made

    def _reduced(self, value: Any) -> VariableTracker:
        """An object of a C type, by its own pickling support."""
        tx = self.tx
        reduced = value.__reduce__()
        if type(reduced) is str:
            return tx.tr.build_constant_object(value)
        function, args, *state = reduced
        made = self.made[id(value)] = tx.call(self.model(function), [self.model(arg) for arg in args])
        if state and state[0] is not None:
            restore = made.tp_getattro(tx, "__setstate__")
            tx.call(restore, [self.model(state[0])])
        return made


_MODELS: dict[type, Any] = {
    list: lambda value: ListVariable(),
    dict: lambda value: DictVariable(),
    set: lambda value: SetVariable(),
    collections.OrderedDict: lambda value: OrderedDictVariable(),
    collections.defaultdict: lambda value: DefaultDictVariable(),
    collections.deque: lambda value: DequeVariable((), value.maxlen),
}


@builtin(pickle.loads)
def pickle_loads(
    tx: Frame,
    data: VariableTracker,
    /,
    *,
    fix_imports: VariableTracker = TRUE,
    encoding: VariableTracker = ConstantVariable("ASCII"),  # noqa: B008  (a constant)
    errors: VariableTracker = ConstantVariable("strict"),  # noqa: B008
    buffers: VariableTracker = NONE,
) -> VariableTracker:
    if not is_none(buffers) or not isinstance(data, ConstantVariable) or type(data.value) is not bytes:
        return unsupported("call-c-function", "pickle.loads")
    options = {"fix_imports": host_value(fix_imports), "encoding": host_value(encoding), "errors": host_value(errors)}
    try:
        value = _Unpickler(modules_of(tx), data.value, **options).load()
    except _Refused as error:
        return unsupported("call-c-function", f"pickle.loads: {error}")
    except (pickle.UnpicklingError, EOFError, TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
        return tx.raises_like(error)
    return Adopter(tx).model(value)
