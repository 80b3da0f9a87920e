"""`pickle.dumps`.

Input: a model. Output: bytes.
Invariant: the real pickler works on a real copy of the object and runs no code of the program. An object whose class takes part in
pickling is represented by what its `__reduce_ex__`, which is followed, says of it.
Mirrors `PicklerObject` of `Modules/_pickle.c`, and `Lib/pickle.py`.
"""

from __future__ import annotations

import collections
import copyreg
import functools
import importlib.util
import io
import pickle
import sys
import types
from typing import TYPE_CHECKING, Any

from dynamo_lite.exc import unsupported
from dynamo_lite.isa.typeobject import dict_of, is_heap_type, mro_of
from dynamo_lite.variables.builtin.dict import DictVariable
from dynamo_lite.variables.builtin.iter import IteratorVariable
from dynamo_lite.variables.builtin.odict import DefaultDictVariable
from dynamo_lite.variables.builtin.set import SetVariable
from dynamo_lite.variables.builtin.slice import SliceVariable
from dynamo_lite.variables.builtin.tuple import TupleVariable
from dynamo_lite.variables.objects.instance import InstanceVariable
from dynamo_lite.variables.protocol.abstract import get_attr, unpack
from dynamo_lite.variables.protocol.base import MISSING, VariableTracker, is_lazy
from dynamo_lite.variables.protocol.constant import NONE, TRUE, ConstantVariable, is_none
from dynamo_lite.variables.protocol.dispatch import builtin
from dynamo_lite.variables.protocol.hashing import identity_key
from dynamo_lite.variables.protocol.native import host_value

from .lru_cache import CachedFunctionVariable
from .operator import GetterVariable
from .reduce import taking_apart_warns

if TYPE_CHECKING:
    from dynamo_lite.interp.frame import Frame

TAKES_PART = frozenset(
    "__reduce__ __reduce_ex__ __getstate__ __setstate__ __getnewargs__ __getnewargs_ex__ __new__ __getattr__ "
    "__getattribute__ __setattr__ __del__ __slots__".split()
)
"""What a class of the program can define that would run while its instances are pickled or made again."""

_HARMLESS = frozenset("__doc__ __module__ __dict__ __weakref__ __hash__ __repr__ __str__ __class_getitem__".split())


def is_plain(cls: type) -> bool:
    """Whether instances of a class of the program are pickled without asking it."""
    if type(cls) is not type or cls.__module__ not in sys.modules or cls in copyreg.dispatch_table:
        return False
    own = [base for base in mro_of(cls) if is_heap_type(base)]
    if any(TAKES_PART & vars(base).keys() for base in own):
        return False
    native = container_base(cls)
    if native is None:
        return all(base is object or base in own for base in mro_of(cls))
    known = set(dir(native)) - _HARMLESS
    others = [base for base in mro_of(cls) if base not in own and base not in mro_of(native)]
    return not others and not any(known & vars(base).keys() for base in own)


def container_base(cls: type) -> type | None:
    """The builtin container whose storage instances of a class have."""
    return next((base for base in mro_of(cls) if base in _EMPTY), None)


# -- from models


class Copier:
    """Makes real copies of models; one copy for one model."""

    def __init__(self, tx: Frame, protocol: int) -> None:
        self.tx = tx
        self.protocol = protocol
        self.made: dict[int, Any] = {}
        self.active: set[int] = set()
        self.cyclic = False  # an object is a part of what describes it, which the pickler may not survive

    def real(self, vt: VariableTracker) -> Any:
        """The copy of an object."""
        if isinstance(vt, ConstantVariable):
            return vt.value
        if id(identity_key(self.tx, vt)) in self.made:
            self.cyclic = self.cyclic or id(vt) in self.active
            return self.made[id(vt)]
        if vt.python_type() in _EMPTY:
            return self._container(vt)
        if isinstance(vt, InstanceVariable) and is_heap_type(vt.python_type()):
            return self._instance(vt)
        if id(vt) in self.active:
            unsupported("call-c-function", f"pickling of {vt.describe()}, which contains itself")
        self.active.add(id(vt))
        made = self._immutable(vt)
        self.active.discard(id(vt))
        self.made[id(vt)] = made
        return made

    def part(self, part: Any) -> Any:
        """The copy of what `IteratorVariable.reduced` gives."""
        if type(part) in (tuple, list):
            return type(part)([self.part(item) for item in part])
        return self.real(part) if isinstance(part, VariableTracker) else part

    def _container(self, vt: VariableTracker) -> Any:
        made = self.made[id(vt)] = _EMPTY[vt.python_type()](vt)
        self._fill(vt, made)
        return made

    def _fill(self, vt: VariableTracker, made: Any) -> None:
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

    def _instance(self, vt: VariableTracker) -> Any:
        cls = vt.python_type()
        if self.tx.tr.classes.is_new(cls) or cls in copyreg.dispatch_table:
            unsupported("call-c-function", f"pickling of {vt.describe()}")
        if not is_plain(cls):
            return self._reduced(vt)
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

    def _immutable(self, vt: VariableTracker) -> Any:
        cls = vt.python_type()
        if cls is tuple:
            return tuple([self.real(item) for item in vt.items])
        if cls is frozenset:
            return frozenset([self.real(item) for item in vt.objects()])
        if isinstance(vt, SliceVariable):
            return slice(*[self.real(part) for part in (vt.start, vt.stop, vt.step)])
        if isinstance(vt, GetterVariable) and cls.__module__ == "operator":
            return cls(*[self.real(arg) for arg in vt.args], **{k: self.real(v) for k, v in vt.kwargs.items()})
        if isinstance(vt, IteratorVariable) and vt.source is None and not is_heap_type(cls):
            return self._iterator(vt)
        value = vt.as_python_constant() if vt.is_python_constant() else None
        if type(value) is range:
            return value
        is_named = issubclass(type(value), (type, types.FunctionType, types.BuiltinFunctionType))
        if (is_named or isinstance(vt, CachedFunctionVariable)) and is_global(self.tx, value):
            return value
        if value is not None or cls in copyreg.dispatch_table:
            return unsupported("call-c-function", f"pickling of a {cls.__name__}")
        return self._reduced(vt)

    def _reduced(self, vt: VariableTracker) -> Any:
        """The object that the pickler gets for one that says itself how it is made again."""
        tx = self.tx
        kind = _Described if vt.tp_call is None else _DescribedCallable
        stand = self.made[id(vt)] = kind(vt.python_type())
        self.active.add(id(vt))
        said = tx.call(get_attr(tx, vt, "__reduce_ex__"), [ConstantVariable(self.protocol)])
        if not isinstance(said, TupleVariable) or not 2 <= len(said.items) <= 5:
            return unsupported("call-c-function", f"pickling of {vt.describe()}, whose __reduce_ex__() gives no tuple")
        function, args, state, items, pairs = [*said.items, NONE, NONE, NONE][:5]
        stand.parts = (
            self.real(function),
            self.real(args),
            self.real(state),
            None if is_none(items) else iter([self.real(item) for item in unpack(tx, items)]),
            None if is_none(pairs) else iter([self.real(pair) for pair in unpack(tx, pairs)]),
        )
        self.active.discard(id(vt))
        return stand

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


class _Described:
    """Stands for an object of a class in front of the pickler; `parts` is what its `__reduce_ex__` said."""

    def __init__(self, cls: type) -> None:
        self.__dict__["cls"] = cls

    @property
    def __class__(self) -> type:
        return self.__dict__["cls"]

    def __reduce_ex__(self, protocol: int) -> Any:
        return self.parts


class _DescribedCallable(_Described):
    def __call__(self) -> None:
        """The pickler asks whether it could be called."""


def modules_of(tx: Frame) -> dict[str, Any]:
    """`sys.modules` as the traced program has left it."""
    found = tx.tr.heap.get(id(sys.modules))
    if found is None or not found.__dict__.get("mutated"):
        return sys.modules
    if "items" in found.__dict__:
        return unsupported("import", "pickling after all of sys.modules was looked at and changed")
    modules = dict(sys.modules)
    for name, (_, module) in found.pending.items():
        modules.pop(name, None)
        if module is not None:
            modules[name] = _real_object(module)
    return modules


def _real_object(vt: VariableTracker) -> Any:
    return vt.__dict__["_lazy"][1] if is_lazy(vt) else vt.value


def named(modules: dict[str, Any], module: str, name: str) -> Any:
    """The object of that name, found without running code; MISSING if that is impossible."""
    found: Any = modules.get(module, MISSING)
    for part in name.split("."):
        if isinstance(found, type):
            found = next((dict_of(base)[part] for base in mro_of(found) if part in dict_of(base)), MISSING)
        else:
            found = vars(found).get(part, MISSING) if isinstance(found, types.ModuleType) else MISSING
        found = found.__func__ if isinstance(found, staticmethod) else found
    return found


def is_global(tx: Frame, value: Any) -> bool:
    """Whether an object is pickled as a name, and that name can be looked up."""
    return named(modules_of(tx), getattr(value, "__module__", None) or "", value.__qualname__) is value


@functools.cache
def _pickle_in_python() -> Any:
    """A `pickle` module of our own, in Python, which can be told which modules there are."""
    spec = importlib.util.find_spec("pickle")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.__import__ = lambda name, **how: None
    return module


def _dump(modules: dict[str, Any], obj: object, protocol: int | None, fix_imports: bool) -> bytes:
    if modules is sys.modules:
        return pickle.dumps(obj, protocol, fix_imports=fix_imports)
    module = _pickle_in_python()
    module.sys = types.SimpleNamespace(modules=modules)
    out = io.BytesIO()
    module._Pickler(out, protocol, fix_imports=fix_imports).dump(obj)
    return out.getvalue()


@builtin(pickle.dumps)
def pickle_dumps(
    tx: Frame,
    obj: VariableTracker,
    protocol: VariableTracker = NONE,
    *,
    fix_imports: VariableTracker = TRUE,
    buffer_callback: VariableTracker = NONE,
) -> VariableTracker:
    if not is_none(buffer_callback):
        return unsupported("call-c-function", "pickle.dumps")
    wanted = host_value(protocol)
    version = pickle.DEFAULT_PROTOCOL if wanted is None else pickle.HIGHEST_PROTOCOL if wanted < 0 else wanted
    if version > pickle.HIGHEST_PROTOCOL:
        return tx.raises(ValueError, f"pickle protocol must be <= {pickle.HIGHEST_PROTOCOL}")
    copier = Copier(tx, version)
    copied = copier.real(obj)
    try:
        data = _dump(modules_of(tx), copied, version, host_value(fix_imports))
    except Exception as error:
        if type(error) not in (ValueError, TypeError, pickle.PicklingError, RecursionError):
            raise
        if type(error) is RecursionError and not copier.cyclic:
            return unsupported("recursion-limit", "pickle.dumps")  # how deep it may go hangs on how deep the program is
        return tx.raises_like(error)
    return ConstantVariable(data)
