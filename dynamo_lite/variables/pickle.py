"""`pickle.dumps` and `pickle.loads`.

Input: a model, or bytes. Output: bytes, or models of what they describe.
Invariant: the real pickler works on a real copy of the object, and the real unpickler's result is taken over as new
objects; neither runs code of the program. Objects whose classes take part in pickling themselves break the graph.
Mirrors `Modules/_pickle.c`.
"""

from __future__ import annotations

import _codecs
import collections
import copyreg
import functools
import io
import pickle
import sys
import types
from typing import Any

from ..exc import unsupported
from .base import MISSING, VariableTracker
from .constant import ATOMIC_TYPES, NONE, TRUE, ConstantVariable, is_none
from .deque import DequeVariable
from .descr import is_heap_type
from .dict import DictVariable
from .dispatch import builtin
from .functools import PartialVariable
from .instance import InstanceVariable
from .iter import IteratorVariable
from .keys import key_of
from .list import ListVariable
from .native import host_value
from .odict import DefaultDictVariable, OrderedDictVariable
from .operator import GetterVariable
from .reduce import taking_apart_warns
from .set import FrozenSetVariable, SetVariable
from .slice import SliceVariable
from .tuple import TupleVariable

TAKES_PART = frozenset(
    "__reduce__ __reduce_ex__ __getstate__ __setstate__ __getnewargs__ __getnewargs_ex__ __new__ __getattr__ "
    "__getattribute__ __setattr__ __del__ __slots__".split()
)
"""What a class of the program can define that would run while its instances are pickled or made again."""

_HARMLESS = frozenset("__doc__ __module__ __dict__ __weakref__ __hash__ __repr__ __str__ __class_getitem__".split())


@functools.cache
def is_plain(cls: type) -> bool:
    """Whether instances of a class of the program are pickled without asking it."""
    if type(cls) is not type or cls.__module__ not in sys.modules or cls in copyreg.dispatch_table:
        return False
    own = [base for base in cls.__mro__ if is_heap_type(base)]
    if any(TAKES_PART & vars(base).keys() for base in own):
        return False
    native = container_base(cls)
    if native is None:
        return all(base is object or base in own for base in cls.__mro__)
    known = set(dir(native)) - _HARMLESS
    others = [base for base in cls.__mro__ if base not in own and base not in native.__mro__]
    return not others and not any(known & vars(base).keys() for base in own)


def container_base(cls: type) -> type | None:
    """The builtin container whose storage instances of a class have."""
    return next((base for base in cls.__mro__ if base in _EMPTY), None)


# -- from models


class Copier:
    """Makes real copies of models; one copy for one model."""

    def __init__(self, tx: Any) -> None:
        self.tx = tx
        self.made: dict[int, Any] = {}
        self.active: set[int] = set()

    def real(self, vt: Any) -> Any:
        """The copy of an object."""
        if isinstance(vt, ConstantVariable):
            return vt.value
        if id(vt) in self.made:
            return self.made[id(vt)]
        if vt.python_type() in _EMPTY:
            return self._container(vt)
        if isinstance(vt, InstanceVariable) and is_heap_type(vt.python_type()):
            return self._instance(vt)
        if id(vt) in self.active:
            unsupported("call-c-function", f"pickling of {vt.describe()}, which contains itself")
        self.active.add(id(vt))
        made = self._immutable(vt)
        self.made[id(vt)] = made
        return made

    def part(self, part: Any) -> Any:
        """The copy of what `IteratorVariable.reduced` gives."""
        if type(part) in (tuple, list):
            return type(part)([self.part(item) for item in part])
        return self.real(part) if isinstance(part, VariableTracker) else part

    def _container(self, vt: Any) -> Any:
        made = self.made[id(vt)] = _EMPTY[vt.python_type()](vt)
        self._fill(vt, made)
        return made

    def _fill(self, vt: Any, made: Any) -> None:
        if isinstance(vt, DictVariable):
            if isinstance(vt, DefaultDictVariable):
                made.default_factory = self.real(vt.factory)
            made.update([(self._key(key), self.real(value)) for key, value in vt.pairs()])
        elif isinstance(vt, SetVariable):
            made.update([self._key(key) for key in vt.objects()])
        else:
            made.extend([self.real(item) for item in list(vt.items)])

    def _key(self, vt: VariableTracker) -> Any:
        if isinstance(vt, InstanceVariable) and vt.python_type().__hash__ is not object.__hash__:
            unsupported("call-c-function", f"pickling of a container with {vt.describe()} as key")
        return self.real(vt)

    def _instance(self, vt: Any) -> Any:
        cls = vt.python_type()
        if not is_plain(cls) or self.tx.tr.is_new_class(cls):
            unsupported("call-c-function", f"pickling of {vt.describe()}")
        native = container_base(cls)
        if native is None:
            made = self.made[id(vt)] = object.__new__(cls)
        else:
            made = self.made[id(vt)] = native.__new__(cls)
            if native is collections.deque:
                made.__init__((), vt.items.maxlen)
            self._fill(vt, made)
        attributes = vt.instance_dict(self.tx)
        made.__dict__.update([(self.real(key), self.real(value)) for key, value in attributes.pairs()])
        return made

    def _immutable(self, vt: Any) -> Any:
        cls = vt.python_type()
        if cls is tuple:
            return tuple([self.real(item) for item in vt.items])
        if cls is frozenset:
            return frozenset([self.real(item) for item in vt.objects()])
        if isinstance(vt, SliceVariable):
            return slice(*[self.real(part) for part in (vt.start, vt.stop, vt.step)])
        if isinstance(vt, PartialVariable) and cls is functools.partial and vt.dict is MISSING:
            keywords = {name: self.real(value) for name, value in vt.keywords.items.items()}
            return functools.partial(self.real(vt.function), *self.real(vt.args), **keywords)
        if isinstance(vt, GetterVariable) and cls.__module__ == "operator":
            return cls(*[self.real(arg) for arg in vt.args], **{k: self.real(v) for k, v in vt.kwargs.items()})
        if isinstance(vt, IteratorVariable) and vt.source is None and not is_heap_type(cls):
            return self._iterator(vt)
        value = vt.as_python_constant() if vt.is_python_constant() else None
        if type(value) is range:
            return value
        if isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType)) and _is_global(self.tx, value):
            return value
        return unsupported("call-c-function", f"pickling of a {cls.__name__}")

    def _iterator(self, vt: IteratorVariable) -> Any:
        if taking_apart_warns(vt.python_type()):
            unsupported("call-print", "the warning that pickling iterators is deprecated")
        if type(vt).reduced is IteratorVariable.reduced:
            unsupported("call-c-function", f"pickling of {vt.describe()}")
        function, args, *state = self.part(vt.reduced(self.tx))
        made = function(*args)
        if state and state[0] is not None:
            made.__setstate__(state[0])
        return made


_EMPTY: dict[type, Any] = {
    list: lambda vt: [],
    dict: lambda vt: {},
    set: lambda vt: set(),
    collections.OrderedDict: lambda vt: collections.OrderedDict(),
    collections.defaultdict: lambda vt: collections.defaultdict(),
    collections.deque: lambda vt: collections.deque((), vt.items.maxlen),
}


def _is_global(tx: Any, value: Any) -> bool:
    """Whether an object is pickled as a name, and that name can be looked up."""
    module = sys.modules.get(getattr(value, "__module__", None) or "")
    found: Any = module
    for name in value.__qualname__.split("."):
        found = vars(found).get(name) if isinstance(found, (types.ModuleType, type)) else None
    return found is value


def _modules_changed(tx: Any) -> bool:
    """Whether the traced program has changed `sys.modules`, which the real one does not show."""
    found = tx.tr.heap.get(id(sys.modules))
    return found is not None and bool(found.__dict__.get("mutated"))


@builtin(pickle.dumps)
def pickle_dumps(
    tx: Any,
    obj: VariableTracker,
    protocol: VariableTracker = NONE,
    *,
    fix_imports: VariableTracker = TRUE,
    buffer_callback: VariableTracker = NONE,
) -> VariableTracker:
    if not is_none(buffer_callback) or _modules_changed(tx):
        return unsupported("call-c-function", "pickle.dumps")
    copied = Copier(tx).real(obj)
    try:
        data = pickle.dumps(copied, host_value(protocol), fix_imports=host_value(fix_imports))
    except Exception as error:
        if type(error) not in (ValueError, TypeError, pickle.PicklingError):
            raise
        return tx.raises_like(error)
    return ConstantVariable(data)


# -- to models


class _Refused(Exception):
    """The bytes name something whose making would run code of the program."""


class _Reference:
    """Stands for a function of which the bytes have the name."""

    def __init__(self, target: Any) -> None:
        self.target = target

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise _Refused(f"a call of {self.target!r}")


_FUNCTIONS = (iter, getattr, copyreg._reconstructor, copyreg.__newobj__, _codecs.encode)
_OLD_MODULES = frozenset(
    {"__builtin__", "copy_reg", "exceptions", "UserDict"}
)  # names of Python 2, which pickle translates
_MODULES = frozenset({"builtins", "collections", "itertools", "functools", "operator", "_collections"})


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module not in sys.modules and module not in _OLD_MODULES:
            raise _Refused(f"{module}.{name}")
        found = super().find_class(module, name)
        if found in _FUNCTIONS:
            return found
        if isinstance(found, (types.FunctionType, types.BuiltinFunctionType)):
            return _Reference(found)
        if isinstance(found, type) and (found.__module__ in _MODULES or found in ATOMIC_TYPES or is_plain(found)):
            return found
        raise _Refused(f"{module}.{name}")


class Adopter:
    """Makes models of real objects nobody else holds; one model for one object."""

    def __init__(self, tx: Any) -> None:
        self.tx = tx
        self.made: dict[int, VariableTracker] = {}
        self.alive: list[Any] = []

    def model(self, value: Any) -> VariableTracker:
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
        if cls is _Reference:
            return tx.tr.build_constant_object(value.target)
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
        if isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType)):
            return tx.tr.build_constant_object(value)
        if cls.__module__ not in _MODULES or is_heap_type(cls) or taking_apart_warns(cls):
            return unsupported("call-c-function", f"pickle.loads: a {cls.__qualname__}")
        return self._reduced(value)

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
    tx: Any,
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
    if _modules_changed(tx):
        return unsupported("call-c-function", "pickle.loads after a change of sys.modules")
    options = {"fix_imports": host_value(fix_imports), "encoding": host_value(encoding), "errors": host_value(errors)}
    try:
        value = _Unpickler(io.BytesIO(data.value), **options).load()
    except _Refused as error:
        return unsupported("call-c-function", f"pickle.loads: {error}")
    except (pickle.UnpicklingError, EOFError, TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
        return tx.raises_like(error)
    return Adopter(tx).model(value)
