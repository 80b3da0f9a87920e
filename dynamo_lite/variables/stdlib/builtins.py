"""The builtin functions, the constructors of numbers and texts, and the functions of the `operator` module.

Input: trackers of the arguments. Output: the handlers, registered by the real function; `format_value` for f-strings.
Invariant: a handler says what the function does in terms of the generic algorithms; it knows no model.
Mirrors `Python/bltinmodule.c`, `Modules/_operator.c`.
"""

from __future__ import annotations

import _thread
import collections
import collections.abc
import functools
import operator
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from dynamo_lite.exc import NotConstant, unsupported
from dynamo_lite.isa.typeobject import ABSENT, dict_of, is_heap_type, mro_of
from dynamo_lite.variables.builtin.deque import DequeIterator
from dynamo_lite.variables.builtin.dictview import ITERATOR_TYPES, VIEW_MODELS, VIEW_TYPES, DictIterator
from dynamo_lite.variables.builtin.host_proxy import call_host, can_be_host
from dynamo_lite.variables.builtin.iter import (
    LIST_ITERATORS,
    CallIterator,
    ConstantIterator,
    ListIterator,
    ReversedVariable,
)
from dynamo_lite.variables.builtin.list import ListVariable, iterate, sorted_items
from dynamo_lite.variables.builtin.number import LONG_TEXT
from dynamo_lite.variables.builtin.slice import RangeVariable
from dynamo_lite.variables.builtin.tuple import TupleVariable
from dynamo_lite.variables.builtin.unicode_format import format_object
from dynamo_lite.variables.objects import namespace, weakref  # noqa: F401  (they register what they model)
from dynamo_lite.variables.objects.subclass import NATIVE_MODELS, NATIVES
from dynamo_lite.variables.protocol.abstract import (
    BINARY_OPS,
    COMPARE_OPS,
    UNARY_OPS,
    binary_op,
    concat,
    get_attr,
    get_item,
    get_iter,
    get_iter_or_say,
    hint_length,
    is_true,
    iter_next,
    iterated,
    length,
    rest,
    richcompare,
    set_attr,
    truth,
    type_name,
    unary_op,
)
from dynamo_lite.variables.protocol.abstract import index as to_index
from dynamo_lite.variables.protocol.base import MISSING, VariableTracker
from dynamo_lite.variables.protocol.constant import ATOMIC_TYPES, NONE, ConstantVariable, boolean, fold, is_none
from dynamo_lite.variables.protocol.deferred_str import LateText
from dynamo_lite.variables.protocol.descr import type_lookup
from dynamo_lite.variables.protocol.dispatch import REFUSED, builtin, constructor, pure, refuse
from dynamo_lite.variables.protocol.hashing import Key, hash_rule, identity_key, object_hash, symbolic_key
from dynamo_lite.variables.protocol.native import (
    NativeVariable,
    atom_value,
    emit_call,
    host_index,
    object_repr,
    object_str,
    optional_attr,
    repr_text,
    run,
)

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.interp.frame import Frame

for _model, _types in {
    ListIterator: LIST_ITERATORS.values(),
    ConstantIterator: map(type, map(iter, ("", "é", b"", range(0), range(1 << 64)))),
    ReversedVariable: (reversed, type(reversed([]))),
    DictIterator: ITERATOR_TYPES.values(),
    DequeIterator: (type(iter(collections.deque())), type(reversed(collections.deque()))),
    **{model: [cls for (_, kind), cls in VIEW_TYPES.items() if kind == name] for name, model in VIEW_MODELS.items()},
}.items():
    NATIVE_MODELS.update(dict.fromkeys(_types, _model))


@builtin(list.__new__, dict.__new__, set.__new__, collections.deque.__new__)
def native_new(
    tx: Frame, cls: VariableTracker, /, *args: VariableTracker, **kwargs: VariableTracker
) -> VariableTracker:
    """`__new__` of a mutable builtin type: an empty instance of it or of a subclass; `__init__` does the rest."""
    real = cls.value
    return NATIVES[real]() if real in NATIVES else tx.tr.new_instance(tx, real)


# -- sizes, iteration


@builtin(len)
def builtin_len(tx: Frame, obj: VariableTracker, /) -> VariableTracker:
    return length(tx, obj)


@builtin(iter)
def builtin_iter(tx: Frame, object: VariableTracker, sentinel: VariableTracker | None = None, /) -> VariableTracker:
    if sentinel is None:
        return get_iter(tx, object)
    if object.tp_call is None:
        return run(tx, iter, None, None)  # for the message, which varies
    return CallIterator(object, sentinel)


@builtin(next)
def builtin_next(tx: Frame, iterator: VariableTracker, default: VariableTracker | None = None, /) -> VariableTracker:
    if iterator.tp_iternext is None:
        return tx.raises(TypeError, f"'{type_name(iterator)}' object is not an iterator")
    item = iterator.tp_iternext(tx) if default is None else iter_next(tx, iterator)
    if item is not None:
        return item
    return default if default is not None else tx.raises(StopIteration)


@builtin(any)
def builtin_any(tx: Frame, iterable: VariableTracker, /) -> VariableTracker:
    return boolean(search(tx, iterable, True))


@builtin(all)
def builtin_all(tx: Frame, iterable: VariableTracker, /) -> VariableTracker:
    return boolean(not search(tx, iterable, False))


def search(
    tx: Frame, iterable: VariableTracker, wanted: bool, take: Callable[[VariableTracker], bool] = lambda item: False
) -> bool:
    """Whether an item has this truth value; stops at the first. `take(item)`: whether somebody else asks this one for it."""
    iterator = get_iter(tx, iterable)
    while (item := iter_next(tx, iterator)) is not None:
        if not take(item) and is_true(tx, item) is wanted:
            return True
    return False


@builtin(sum)
def builtin_sum(tx: Frame, iterable: VariableTracker, /, start: VariableTracker | None = None) -> VariableTracker:
    total = ConstantVariable(0) if start is None else start
    if isinstance(iterable, RangeVariable) and iterable.varies and start is None:
        known = _sum_of_range(tx, iterable)
        if known is not None:
            return known
    iterator = get_iter(tx, iterable)
    for kind, name, hint in ((str, "strings", "''.join(seq)"), (bytes, "bytes", "b''.join(seq)")):
        if start is not None and issubclass(start.python_type(), kind):
            return tx.raises(TypeError, f"sum() can't sum {name} [use {hint} instead]")
    while (item := iter_next(tx, iterator)) is not None:
        total = binary_op(tx, operator.add, total, item)
    return total


def _sum_of_range(tx: Frame, numbers: RangeVariable) -> VariableTracker | None:
    """The sum of a range whose bounds vary, as a number that varies; None for a step that is not one."""
    start, stop, step = numbers.parts
    if not step.is_python_constant() or step.as_python_constant() != 1:
        return None
    if not is_true(tx, richcompare(tx, start, stop, "<")):
        return ConstantVariable(0)
    ends = binary_op(tx, operator.add, start, binary_op(tx, operator.sub, stop, ConstantVariable(1)))
    length = binary_op(tx, operator.sub, stop, start)
    return binary_op(tx, operator.floordiv, binary_op(tx, operator.mul, ends, length), ConstantVariable(2))


@builtin(sorted)
def builtin_sorted(
    tx: Frame,
    iterable: VariableTracker,
    /,
    *,
    key: VariableTracker | None = None,
    reverse: VariableTracker | None = None,
) -> VariableTracker:
    return ListVariable(sorted_items(tx, iterate(tx, iterable), key, reverse))


def _extreme(function: Any, op: str) -> None:
    name = function.__name__

    @builtin(function)
    def extreme(
        tx: Frame, /, *args: VariableTracker, key: VariableTracker | None = None, default: VariableTracker | None = None
    ) -> VariableTracker:
        if not args:
            return tx.raises(TypeError, f"{name} expected at least 1 argument, got 0")
        if len(args) > 1 and default is not None:
            return tx.raises(TypeError, f"Cannot specify a default for {name}() with multiple positional arguments")
        items: Any = args if len(args) > 1 else iterated(tx, args[0])
        best = best_key = None
        for item in items:
            item_key = item if is_none(key) else tx.call(key, [item])
            unknown = _unknown(tx, function, best, item) if best is not None and best_key is best else None
            if unknown is not None:
                best = best_key = unknown
            elif best is None or is_true(tx, richcompare(tx, item_key, best_key, op)):
                best, best_key = item, item_key
        if best is not None:
            return best
        if default is not None:
            return default
        return run(tx, function, ())  # for the message, which varies


def _unknown(tx: Frame, function: object, best: VariableTracker, item: VariableTracker) -> VariableTracker | None:
    """The better one of two numbers where one is symbolic, or of two tensors; None if the analysis has to compare them."""
    model = next((vt for vt in (best, item) if vt.extreme is not None), None)
    return None if model is None else model.extreme(tx, function, best, item)


_extreme(max, ">")
_extreme(min, "<")


# -- arithmetic


@builtin(pow)
def builtin_pow(
    tx: Frame, base: VariableTracker, exp: VariableTracker, mod: VariableTracker | None = None
) -> VariableTracker:
    if is_none(mod):
        return binary_op(tx, operator.pow, base, exp)
    if not can_be_host(base, exp, mod):
        return unsupported("operation-on-unknown-object", "pow() with three arguments")
    return call_host(tx, pow, [base, exp, mod])


@builtin(round)
def builtin_round(tx: Frame, number: VariableTracker, ndigits: VariableTracker | None = None) -> VariableTracker:
    args = [] if ndigits is None or is_none(ndigits) else [ndigits]
    if number.is_python_constant() and can_be_host(*args):
        return call_host(tx, round, [number, *args])
    method = tx.tr.lookup_special(tx, number, "__round__")
    if method is None:
        return tx.raises(TypeError, f"type {type_name(number)} doesn't define __round__ method")
    return tx.call(method, args)


def _number_base(function: Any) -> None:
    @builtin(function)
    def convert(tx: Frame, number: VariableTracker, /) -> VariableTracker:
        if can_be_host(number):
            return call_host(tx, function, [number])
        return run(tx, function, host_index(tx, number))


for _function in (bin, hex, oct, chr):
    _number_base(_function)
pure(ord)


# -- text


@builtin(repr)
def builtin_repr(tx: Frame, obj: VariableTracker, /) -> VariableTracker:
    return object_repr(tx, obj)


@builtin(ascii)
def builtin_ascii(tx: Frame, obj: VariableTracker, /) -> VariableTracker:
    return ConstantVariable(_ascii(repr_text(tx, obj)))


def _ascii(value: str) -> str:
    return value.encode("ascii", "backslashreplace").decode("ascii")


@builtin(format)
def builtin_format(tx: Frame, value: VariableTracker, format_spec: VariableTracker | None = None, /) -> VariableTracker:
    return format_object(tx, value, ConstantVariable("") if format_spec is None else format_spec)


def format_value(
    tx: Frame, value: VariableTracker, conversion: str | None, spec: VariableTracker | None
) -> VariableTracker:
    """A replacement field of an f-string: `!s`, `!r` or `!a` (spec is None), or the formatting of the converted
    value.
    """
    if conversion == "a":
        return builtin_ascii(tx, value)
    if conversion is not None:
        return object_str(tx, value) if conversion == "s" else object_repr(tx, value)
    return builtin_format(tx, value, spec)


# -- attributes and types


def attribute_name(tx: Frame, name: VariableTracker) -> str:
    """The name argument of getattr and its kin."""
    if not issubclass(name.python_type(), str):
        tx.raises(TypeError, f"attribute name must be string, not '{type_name(name)}'")
    return atom_value(name, "attribute-of-unknown-object")


@builtin(getattr)
def builtin_getattr(
    tx: Frame, obj: VariableTracker, name: VariableTracker, default: VariableTracker | None = None, /
) -> VariableTracker:
    if default is None:
        return get_attr(tx, obj, attribute_name(tx, name))
    found = optional_attr(tx, obj, attribute_name(tx, name))
    return default if found is None else found


@builtin(hasattr)
def builtin_hasattr(tx: Frame, obj: VariableTracker, name: VariableTracker, /) -> VariableTracker:
    return boolean(optional_attr(tx, obj, attribute_name(tx, name)) is not None)


@builtin(setattr)
def builtin_setattr(
    tx: Frame, obj: VariableTracker, name: VariableTracker, value: VariableTracker, /
) -> VariableTracker:
    set_attr(tx, obj, attribute_name(tx, name), value)
    return NONE


@builtin(delattr)
def builtin_delattr(tx: Frame, obj: VariableTracker, name: VariableTracker, /) -> VariableTracker:
    set_attr(tx, obj, attribute_name(tx, name), None)
    return NONE


@builtin(callable)
def builtin_callable(tx: Frame, obj: VariableTracker, /) -> VariableTracker:
    return boolean(obj.tp_call is not None or (obj.value is not MISSING and callable(obj.value)))


@builtin(vars)
def builtin_vars(tx: Frame, /, *args: VariableTracker) -> VariableTracker:
    if not args:
        return tx.frame_locals()
    found = optional_attr(tx, args[0], "__dict__")
    return found if found is not None else tx.raises(TypeError, "vars() argument must have __dict__ attribute")


@builtin(locals)
def builtin_locals(tx: Frame) -> VariableTracker:
    return tx.frame_locals()


@builtin(globals)
def builtin_globals(tx: Frame) -> VariableTracker:
    return tx.tr.build_constant_object(tx.globals.value)


@builtin(dir)
def builtin_dir(tx: Frame, obj: VariableTracker | None = None, /) -> VariableTracker:
    """`PyObject_Dir`."""
    names = tx.frame_locals() if obj is None else tx.call(tx.tr.lookup_special(tx, obj, "__dir__"), [])
    return tx.call(tx.tr.wrap_callable(sorted), [names])


# -- identity and hashes


@builtin(hash)
def builtin_hash(tx: Frame, obj: VariableTracker, /) -> VariableTracker:
    return object_hash(tx, obj)


class IdVariable(NativeVariable):
    """`id(x)`: known by what it is the address of; usable as a key and in comparisons for equality."""

    holds_weakly = True

    def __init__(self, target: VariableTracker) -> None:
        self.target = target

    def python_type(self) -> type:
        return int

    def children(self) -> Any:
        return (self.target,)

    def describe(self) -> str:
        return f"id of {self.target.describe()}"

    def tp_richcompare(self, tx: Frame, other: VariableTracker, op: str) -> VariableTracker:
        if not isinstance(other, IdVariable) or op not in ("==", "!="):
            return unsupported("object-identity", self.describe())
        is_same = tx.tr.heap.identical(self.target, other.target)
        if not is_same and (_is_gone(tx, self.target) or _is_gone(tx, other.target)):
            # One may have got the address of the other; in a frame resumed after a break, arguments live longer.
            tx.needs_real_frame("object-identity", "id() of an object that is gone")
        return boolean(is_same is (op == "=="))

    def refuse(self, tx: Frame, *args: Any) -> VariableTracker:
        return unsupported("object-identity", self.describe())

    tp_hash = tp_repr = nb_index = nb_int = nb_float = refuse

    def emit_new(self, cg: Codegen) -> None:
        emit_call(cg, id, self.target)


def _refuse_arithmetic(tx: Frame, v: VariableTracker, w: VariableTracker) -> VariableTracker:
    return unsupported("object-identity", "arithmetic with id()")


for _row in BINARY_OPS.values():
    setattr(IdVariable, _row.slot, staticmethod(_refuse_arithmetic))
for _slot, _ in UNARY_OPS.values():
    setattr(IdVariable, _slot, IdVariable.refuse)


@builtin(id)
def builtin_id(tx: Frame, obj: VariableTracker, /) -> VariableTracker:
    if _is_gone(tx, obj):
        return unsupported("object-identity", "id() of an object that is gone then: the next may get the same")
    return IdVariable(obj)


def _is_gone(tx: Frame, obj: VariableTracker) -> bool:
    """Whether an object made here is not there any more."""
    is_new = obj.source is None and obj.value is MISSING and not obj.is_only_one
    return is_new and not tx.tr.lifetimes.is_reachable(obj)


class ThreadIdVariable(IdVariable):
    """`_thread.get_ident()`, which functions like `reprlib.recursive_repr` use in keys."""

    def emit_new(self, cg: Codegen) -> None:
        emit_call(cg, _thread.get_ident)


@builtin(_thread.get_ident)
def thread_get_ident(tx: Frame, /) -> VariableTracker:
    return ThreadIdVariable(NONE)


@hash_rule(int.__hash__)
def int_key(tx: Frame, v: VariableTracker) -> Any:
    if not isinstance(v, IdVariable):
        return symbolic_key(tx, v)
    target = v.target
    is_value = type(target.value) in ATOMIC_TYPES
    what: tuple[Any, ...]
    if is_value:
        what = (type(target.value), target.value)
    elif target.is_only_one:
        what = (target.python_type(),)
    else:
        what = (identity_key(tx, target),)
    return Key(v, (type(v), *what))


# -- constructors of immutable values


@constructor(bool)
def new_bool(tx: Frame, cls: VariableTracker, x: VariableTracker | None = None, /) -> VariableTracker:
    return boolean(False) if x is None else truth(tx, x)


def _convert(
    tx: Frame, cls: type, args: tuple[VariableTracker, ...], kwargs: dict[str, VariableTracker]
) -> VariableTracker | None:
    """`cls(*args, **kwargs)` by the real constructor, None if an argument can't be given to it. Text that is not known yet is asked
    for, and of several numbers those that vary become constants."""
    is_alone = len(args) + len(kwargs) == 1
    args = tuple(_known(v, is_alone) for v in args)
    kwargs = {name: _known(v, is_alone) for name, v in kwargs.items()}
    if all(isinstance(v, ConstantVariable) for v in (*args, *kwargs.values())):
        return fold(tx, cls, list(args), kwargs)
    for v in (*args, *kwargs.values()):
        if v.opaque:
            unsupported("operation-on-unknown-object", f"{cls.__name__}() of {v.describe()}")
    if not can_be_host(*args, *kwargs.values()):
        return None
    try:
        return call_host(tx, cls, args, kwargs)
    except NotConstant:  # raised before the call: the program's class says how it is converted
        return None


def _known(v: VariableTracker, is_alone: bool) -> VariableTracker:
    if isinstance(v, LateText) or (v.is_symbolic and not is_alone):
        return ConstantVariable(v.as_python_constant())
    return v


@constructor(int)
def new_int(tx: Frame, cls: VariableTracker, /, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    x = args[0] if args else NONE
    if x.is_user_made and not {"__int__", "__index__"} & _names(x) and "__trunc__" in _names(x):
        return unsupported("call-print", "the warning that int() uses __trunc__")
    if type(x.value) in (str, bytes) and len(x.value) > LONG_TEXT:
        return unsupported("code-size", f"int() of {len(x.value)} characters, which Python code may convert")
    made = _convert(tx, int, args, kwargs)
    if made is not None:
        return made
    if len(args) != 1 or kwargs:
        return unsupported("operation-on-unknown-object", "int() of objects")
    slot = x.nb_int or x.nb_index
    if slot is not None:
        return _checked(tx, slot(tx), int, "__int__ returned non-int")
    what = "a string, a bytes-like object or a real number"
    return tx.raises(TypeError, f"int() argument must be {what}, not '{type_name(x)}'")


def _names(v: VariableTracker) -> set[str]:
    """What the classes of an object define."""
    return set().union(*[dict_of(base) for base in mro_of(v.python_type())])


@constructor(float)
def new_float(tx: Frame, cls: VariableTracker, /, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    if len(args) > 1 or kwargs:
        return fold(tx, float, [ConstantVariable(0)] * len(args), dict.fromkeys(kwargs, NONE))  # which it refuses
    made = _convert(tx, float, args, kwargs)
    if made is not None:
        return made
    x = args[0]
    if x.nb_float is not None:
        return _checked(tx, x.nb_float(tx), float, f"{type_name(x)}.__float__ returned non-float")
    if x.nb_index is not None:
        return new_float(tx, cls, x.nb_index(tx))
    return tx.raises(TypeError, f"float() argument must be a string or a real number, not '{type_name(x)}'")


def _checked(tx: Frame, result: VariableTracker, cls: type, problem: str) -> VariableTracker:
    if not issubclass(result.python_type(), cls):
        tx.raises(TypeError, f"{problem} (type {type_name(result)})")
    if is_heap_type(result.python_type()) or type(result.value) is bool:
        unsupported("call-print", f"the warning that a {type_name(result)} was returned")
    return ConstantVariable(cls(result.value)) if isinstance(result, ConstantVariable) else result


@constructor(complex)
def new_complex(
    tx: Frame, cls: VariableTracker, /, *args: VariableTracker, **kwargs: VariableTracker
) -> VariableTracker:
    made = _convert(tx, complex, args, kwargs)
    return unsupported("operation-on-unknown-object", "complex() of an object") if made is None else made


@constructor(str)
def new_str(tx: Frame, cls: VariableTracker, /, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    values = [*args, *kwargs.values()]
    if len(values) == 1 and (args or "object" in kwargs):
        return object_str(tx, values[0])
    made = _convert(tx, str, args, kwargs)
    return unsupported("operation-on-unknown-object", "str() of an object") if made is None else made


@constructor(bytes)
def new_bytes(tx: Frame, cls: VariableTracker, /, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    made = _convert(tx, bytes, args, kwargs)
    if made is not None:
        return made
    if len(args) != 1 or kwargs or args[0].is_atom:
        return unsupported("operation-on-unknown-object", "bytes()")
    if tx.tr.lookup_special(tx, args[0], "__bytes__") is not None:
        return unsupported("operation-on-unknown-object", "bytes() of an object with __bytes__")
    if args[0].is_symbolic:
        return call_host(tx, bytes, [ConstantVariable(args[0].as_python_constant())])
    if args[0].nb_index is not None:
        return call_host(tx, bytes, [ConstantVariable(host_index(tx, args[0]))])
    return fold(tx, bytes, [TupleVariable(list(_bytes_of(tx, args[0])))], {})


def _bytes_of(tx: Frame, v: VariableTracker) -> Iterator[VariableTracker]:
    """`_PyBytes_FromIterator`: the numbers, checked one by one."""
    iterator = get_iter_or_say(tx, v, lambda: f"cannot convert '{type_name(v)}' object to bytes")
    hint_length(tx, v)
    for item in rest(tx, iterator):
        number = host_index(tx, item)
        if not 0 <= number < 256:
            tx.raises(ValueError, "bytes must be in range(0, 256)")
        yield ConstantVariable(number)


# -- the operator module


def _two(function: object, algorithm: Callable[..., VariableTracker]) -> None:
    @builtin(function)
    def operation(tx: Frame, a: VariableTracker, b: VariableTracker, /) -> VariableTracker:
        return algorithm(tx, a, b)


for _function in BINARY_OPS:
    _two(_function, functools.partial(lambda function, tx, a, b: binary_op(tx, function, a, b), _function))
for _op, _function in COMPARE_OPS.items():
    _two(_function, functools.partial(lambda op, tx, a, b: richcompare(tx, a, b, op), _op))
_two(operator.getitem, get_item)
_two(operator.concat, concat)
_two(operator.iconcat, functools.partial(concat, inplace=True))
_two(operator.is_, lambda tx, a, b: boolean(tx.tr.heap.identical(a, b)))
_two(operator.is_not, lambda tx, a, b: boolean(not tx.tr.heap.identical(a, b)))
if hasattr(operator, "is_none"):  # from 3.14 on
    builtin(operator.is_none)(lambda tx, a, /: boolean(tx.tr.heap.identical(a, NONE)))
    builtin(operator.is_not_none)(lambda tx, a, /: boolean(not tx.tr.heap.identical(a, NONE)))


_ZERO = ConstantVariable(0)


@builtin(operator.length_hint)
def length_hint(tx: Frame, obj: VariableTracker, default: VariableTracker = _ZERO, /) -> VariableTracker:
    """`PyObject_LengthHint`. Breaks for iterators of C, whose `__length_hint__` nothing stands for."""
    otherwise, cls = to_index(tx, default), obj.python_type()
    if obj.is_user_made:
        hint = hint_length(tx, obj)
        return otherwise if hint is None else hint
    if type_lookup(cls, "__len__") is not ABSENT:
        return length(tx, obj)
    if type_lookup(cls, "__length_hint__") is not ABSENT:
        return unsupported("call-c-function", f"operator.length_hint of a {type_name(obj)}")
    return otherwise


def _one(*functions: Any) -> Callable[[Callable[..., VariableTracker]], Any]:
    def decorate(algorithm: Callable[..., VariableTracker]) -> Any:
        @builtin(*functions)
        def operation(tx: Frame, a: VariableTracker, /) -> VariableTracker:
            return algorithm(tx, a)

        return operation

    return decorate


_ALIASES: dict[Any, tuple[Any, ...]] = {abs: (operator.abs,), operator.invert: (operator.inv,)}
for _function in UNARY_OPS:
    _one(_function, *_ALIASES.get(_function, ()))(
        functools.partial(lambda function, tx, a: unary_op(tx, function, a), _function)
    )
_one(operator.not_)(lambda tx, a: boolean(not is_true(tx, a)))
_one(operator.truth)(lambda tx, a: boolean(is_true(tx, a)))
_one(operator.index)(to_index)


# -- what ends the graph

for _function, _slug in {
    input: "call-io",
    open: "call-io",
    __import__: "import",
    compile: "exec-eval",
}.items():
    refuse(_slug, _function, context=f"{_function.__name__}()")


@builtin(breakpoint)
def builtin_breakpoint(tx: Frame, /, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    return tx.needs_all_real_frames("debugger", "breakpoint()")


REFUSED[breakpoint] = ("debugger", "breakpoint()")


@builtin(eval, exec)
def builtin_eval(
    tx: Frame, source: VariableTracker, /, globals: VariableTracker = NONE, *more: Any, **other: Any
) -> VariableTracker:
    if not is_none(globals):
        return unsupported("exec-eval", "eval() or exec()")
    return tx.needs_real_frame("exec-eval", "eval() or exec() in the variables of the frame")


REFUSED[eval] = REFUSED[exec] = (
    "exec-eval",
    "eval() or exec()",
)  # called in the real frame where the variables are its own
