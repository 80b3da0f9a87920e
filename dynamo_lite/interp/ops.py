"""One handler per canonical op.

Input: a frame and a canonical instruction. Output: effects on the frame; RETURN_VALUE, YIELD_VALUE and RETURN_GENERATOR return the
value with which the frame stops.
Invariant: a handler that raises `Unsupported` has not changed anything outside of the frame's stack.
Mirrors `Python/bytecodes.c`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dynamo_lite.exc import unsupported
from dynamo_lite.isa.canon import N_OPS, Instr, Op
from dynamo_lite.isa.lift import NULL_FIRST
from dynamo_lite.variables.builtin.dict import DictVariable
from dynamo_lite.variables.builtin.list import ListVariable
from dynamo_lite.variables.builtin.set import SetVariable
from dynamo_lite.variables.builtin.slice import SliceVariable
from dynamo_lite.variables.builtin.tuple import TupleVariable
from dynamo_lite.variables.generators.generator import (
    GeneratorVariable,
    send,
    stop_iteration_error,
    yield_from_iter,
)
from dynamo_lite.variables.objects.cell import CellVariable
from dynamo_lite.variables.objects.exception_instance import exception_match, raise_varargs
from dynamo_lite.variables.objects.function import make_function
from dynamo_lite.variables.objects.super import super_attribute
from dynamo_lite.variables.protocol import abstract
from dynamo_lite.variables.protocol.base import BothSidesFollowed, ObservedException, VariableTracker
from dynamo_lite.variables.protocol.constant import ConstantVariable
from dynamo_lite.variables.protocol.deferred_str import joined
from dynamo_lite.variables.stdlib.builtins import format_value

from . import match
from .call import call_function, call_function_ex
from .frame import NULL, OPS, ExcInfo, Frame
from .imports import import_from, import_name, import_star

Handler = Callable[[Frame, Instr], Any]


def not_followed(f: Frame, i: Instr) -> None:
    """Ops of coroutines, and of the bodies of classes and modules."""
    unsupported("opcode", f"{i.op.name} in {f.code.co_qualname}")


OPS.extend([not_followed] * N_OPS)


def op(code: Op) -> Callable[[Handler], Handler]:
    """Register the handler of one canonical op."""

    def decorate(handler: Handler) -> Handler:
        OPS[code] = handler
        return handler

    return decorate


# -- stack


@op(Op.POP_TOP)
def pop_top(f: Frame, i: Instr) -> None:
    value = f.stack.pop()
    if type(value) is GeneratorVariable:
        f.tr.lifetimes.dropped(f, (value,))


@op(Op.COPY)
def copy(f: Frame, i: Instr) -> None:
    f.stack.append(f.stack[-i.arg])


@op(Op.SWAP)
def swap(f: Frame, i: Instr) -> None:
    stack = f.stack
    stack[-1], stack[-i.arg] = stack[-i.arg], stack[-1]


@op(Op.PUSH_NULL)
def push_null(f: Frame, i: Instr) -> None:
    f.stack.append(NULL)


@op(Op.LOAD_CONST)
def load_const(f: Frame, i: Instr) -> None:
    f.stack.append(f.tr.heap.literal(i.arg))


# -- locals and cells


@op(Op.LOAD_FAST)
def load_fast(f: Frame, i: Instr) -> None:
    value = f.locals[i.arg]
    if value is None:
        unbound(f, i.arg)
    f.stack.append(value)


def unbound(f: Frame, slot: int) -> None:
    """Raise the NameError of an unbound local or free variable."""
    name = f.lifted.local_names[slot]
    if slot >= f.lifted.first_free_slot:
        f.raises_naming(
            NameError,
            f"cannot access free variable '{name}' where it is not associated with a value in enclosing scope",
            name=ConstantVariable(name),
        )
    f.raises(UnboundLocalError, f"cannot access local variable '{name}' where it is not associated with a value")


@op(Op.LOAD_FAST_AND_CLEAR)
def load_fast_and_clear(f: Frame, i: Instr) -> None:
    f.stack.append(f.locals[i.arg])
    f.locals[i.arg] = None


@op(Op.STORE_FAST)
def store_fast(f: Frame, i: Instr) -> None:
    value = f.stack.pop()
    f.locals[i.arg] = value if value is not NULL else None  # a continuation has NULL for a variable that was unbound


@op(Op.DELETE_FAST)
def delete_fast(f: Frame, i: Instr) -> None:
    if f.locals[i.arg] is None:
        unbound(f, i.arg)
    f.locals[i.arg] = None


@op(Op.MAKE_CELL)
def make_cell(f: Frame, i: Instr) -> None:
    f.locals[i.arg] = CellVariable(f.locals[i.arg])


@op(Op.LOAD_CELL)
def load_cell(f: Frame, i: Instr) -> None:
    load_fast(f, i)


@op(Op.LOAD_DEREF)
def load_deref(f: Frame, i: Instr) -> None:
    value = f.locals[i.arg].get(f)
    if value is None:
        unbound(f, i.arg)
    f.stack.append(value)


@op(Op.STORE_DEREF)
def store_deref(f: Frame, i: Instr) -> None:
    f.locals[i.arg].set(f, f.stack.pop())


@op(Op.DELETE_DEREF)
def delete_deref(f: Frame, i: Instr) -> None:
    if f.locals[i.arg].get(f) is None:
        unbound(f, i.arg)
    f.locals[i.arg].set(f, None)


# -- names


@op(Op.LOAD_GLOBAL)
def load_global(f: Frame, i: Instr) -> None:
    f.stack.append(_global(f, i.arg))


def _global(f: Frame, name: str) -> VariableTracker:
    value = f.globals.load(f, name)
    if value is None:
        f.raises_naming(NameError, f"name '{name}' is not defined", name=ConstantVariable(name))
    return value


@op(Op.STORE_GLOBAL)
def store_global(f: Frame, i: Instr) -> None:
    f.globals.store(f, i.arg, f.stack.pop())


@op(Op.DELETE_GLOBAL)
def delete_global(f: Frame, i: Instr) -> None:
    if not f.globals.delete(f, i.arg):
        f.raises_naming(NameError, f"name '{i.arg}' is not defined", name=ConstantVariable(i.arg))


@op(Op.LOAD_BUILD_CLASS)
def load_build_class(f: Frame, i: Instr) -> None:
    names = f.globals.builtins
    found = names.load(f, "__build_class__") if names is not None else None
    if found is None:
        f.raises(NameError, "__build_class__ not found")
    f.stack.append(found)


# -- attributes


@op(Op.LOAD_ATTR)
def load_attr(f: Frame, i: Instr) -> None:
    f.stack[-1] = abstract.get_attr(f, f.stack[-1], i.arg)


@op(Op.LOAD_METHOD)
def load_method(f: Frame, i: Instr) -> None:
    attr = abstract.get_attr(f, f.stack[-1], i.arg)
    if NULL_FIRST:
        f.stack[-1] = NULL
        f.stack.append(attr)
    else:
        f.stack[-1] = attr
        f.stack.append(NULL)


@op(Op.STORE_ATTR)
def store_attr(f: Frame, i: Instr) -> None:
    value, obj = f.stack[-2:]
    abstract.set_attr(f, obj, i.arg, value)
    del f.stack[-2:]


@op(Op.DELETE_ATTR)
def delete_attr(f: Frame, i: Instr) -> None:
    abstract.set_attr(f, f.stack[-1], i.arg, None)
    f.stack.pop()


@op(Op.LOAD_SUPER_ATTR)
def load_super_attr(f: Frame, i: Instr) -> None:
    name, is_method, _two_arg = i.arg
    super_type, cls, self = f.stack[-3:]
    attr = super_attribute(f, super_type, cls, self, name)
    f.stack[-3:] = [NULL, attr] if is_method and NULL_FIRST else [attr, NULL] if is_method else [attr]


@op(Op.LOAD_SPECIAL)
def load_special(f: Frame, i: Instr) -> None:
    f.stack[-1:] = [_special(f, f.stack[-1], i.arg, True), NULL]


def _special(f: Frame, obj: VariableTracker, name: str, names_all: bool = False) -> VariableTracker:
    method = f.tr.lookup_special(f, obj, name)
    if method is not None:
        return method
    missed = f" (missed {name} method)" if names_all or name.endswith("exit__") else ""
    f.raises(TypeError, f"'{abstract.type_name(obj)}' object does not support the context manager protocol{missed}")


# -- operators


@op(Op.BINARY)
def binary(f: Frame, i: Instr) -> None:
    v, w = f.stack[-2:]
    f.stack[-2:] = [abstract.binary_op(f, i.arg, v, w)]


@op(Op.UNARY)
def unary(f: Frame, i: Instr) -> None:
    f.stack[-1] = abstract.unary_op(f, i.arg, f.stack[-1])


@op(Op.NOT)
def not_(f: Frame, i: Instr) -> None:
    flag = f.stack[-1]
    f.stack[-1] = (
        ConstantVariable(not flag.value) if isinstance(flag, ConstantVariable) else flag.late_truth(f, negated=True)
    )


@op(Op.TO_BOOL)
def to_bool(f: Frame, i: Instr) -> VariableTracker | None:
    if f.lifted.instrs[f.cur + 1].op is Op.NOT:
        f.stack[-1] = abstract.truth(f, f.stack[-1])
        return None
    try:
        f.stack[-1] = ConstantVariable(abstract.is_true(f, f.stack[-1]))
    except BothSidesFollowed as followed:
        return followed.result
    return None


@op(Op.COMPARE)
def compare(f: Frame, i: Instr) -> None:
    v, w = f.stack[-2:]
    f.stack[-2:] = [abstract.richcompare(f, v, w, i.arg)]


@op(Op.IS_OP)
def is_op(f: Frame, i: Instr) -> None:
    v, w = f.stack[-2:]
    f.stack[-2:] = [ConstantVariable(f.tr.heap.identical(v, w) is not bool(i.arg))]


@op(Op.CONTAINS_OP)
def contains_op(f: Frame, i: Instr) -> None:
    item, container = f.stack[-2:]
    found = abstract.contains(f, container, item)
    f.stack[-2:] = [ConstantVariable(abstract.is_true(f, found) is not bool(i.arg))]


@op(Op.BINARY_SUBSCR)
def binary_subscr(f: Frame, i: Instr) -> None:
    obj, key = f.stack[-2:]
    f.stack[-2:] = [abstract.get_item(f, obj, key)]


@op(Op.STORE_SUBSCR)
def store_subscr(f: Frame, i: Instr) -> None:
    value, obj, key = f.stack[-3:]
    abstract.set_item(f, obj, key, value)
    del f.stack[-3:]


@op(Op.DELETE_SUBSCR)
def delete_subscr(f: Frame, i: Instr) -> None:
    obj, key = f.stack[-2:]
    abstract.set_item(f, obj, key, None)
    del f.stack[-2:]


# -- jumps


@op(Op.JUMP)
def jump(f: Frame, i: Instr) -> None:
    f.ip = i.target


@op(Op.JUMP_IF)
def jump_if(f: Frame, i: Instr) -> None:
    if f.stack.pop().value is i.arg:
        f.ip = i.target


@op(Op.JUMP_IF_NONE)
def jump_if_none(f: Frame, i: Instr) -> None:
    v = f.stack.pop()
    if (isinstance(v, ConstantVariable) and v.value is None) is i.arg:
        f.ip = i.target


# -- iteration and generators


@op(Op.GET_ITER)
def get_iter(f: Frame, i: Instr) -> None:
    f.stack[-1] = abstract.get_iter(f, f.stack[-1])


@op(Op.FOR_ITER)
def for_iter(f: Frame, i: Instr) -> None:
    item = abstract.iter_next(f, f.stack[-1])
    if item is None:
        f.stack.pop()
        f.ip = i.target
    else:
        f.stack.append(item)


@op(Op.GET_YIELD_FROM_ITER)
def get_yield_from_iter(f: Frame, i: Instr) -> None:
    f.stack[-1] = yield_from_iter(f, f.stack[-1])


@op(Op.SEND)
def send_(f: Frame, i: Instr) -> None:
    receiver, value = f.stack[-2:]
    finished, result = send(f, receiver, value)
    if finished:
        f.stack[-2:] = [result]
        f.ip = i.target
    else:
        f.stack[-1] = result


@op(Op.YIELD_VALUE)
def yield_value(f: Frame, i: Instr) -> VariableTracker:
    if f.generator is None:
        unsupported("async", "yield outside of a generator")
    f.generator.suspended = True
    return f.stack.pop()


@op(Op.RETURN_GENERATOR)
def return_generator(f: Frame, i: Instr) -> VariableTracker:
    f.generator = GeneratorVariable(f)
    return f.generator


@op(Op.RETURN_VALUE)
def return_value(f: Frame, i: Instr) -> VariableTracker:
    return f.stack.pop()


@op(Op.CLEANUP_THROW)
def cleanup_throw(f: Frame, i: Instr) -> None:
    exc = f.stack[-1]
    if not issubclass(exc.python_type(), StopIteration):
        raise ObservedException(f.stack.pop())
    f.stack[-3:] = [ConstantVariable(None), abstract.get_attr(f, exc, "value")]


# -- building


@op(Op.BUILD_TUPLE)
def build_tuple(f: Frame, i: Instr) -> None:
    f.push(TupleVariable(f.popn(i.arg)))


@op(Op.BUILD_LIST)
def build_list(f: Frame, i: Instr) -> None:
    f.push(ListVariable(f.popn(i.arg)))


@op(Op.BUILD_SET)
def build_set(f: Frame, i: Instr) -> None:
    result = SetVariable()
    for item in f.popn(i.arg):
        result.add(f, item)
    f.push(result)


@op(Op.BUILD_MAP)
def build_map(f: Frame, i: Instr) -> None:
    entries = f.popn(2 * i.arg)
    f.push(_dict_of(f, zip(entries[::2], entries[1::2], strict=True)))


@op(Op.BUILD_CONST_KEY_MAP)
def build_const_key_map(f: Frame, i: Instr) -> None:
    f.push(_dict_of(f, zip(f.pop().items, f.popn(i.arg), strict=True)))


def _dict_of(f: Frame, pairs: Any) -> DictVariable:
    result = DictVariable()
    for key, value in pairs:
        result.mp_ass_subscript(f, key, value)
    return result


@op(Op.BUILD_STRING)
def build_string(f: Frame, i: Instr) -> None:
    f.push(joined(f, f.popn(i.arg)))


@op(Op.BUILD_SLICE)
def build_slice(f: Frame, i: Instr) -> None:
    f.push(SliceVariable(*f.popn(i.arg)))


@op(Op.LIST_APPEND)
def list_append(f: Frame, i: Instr) -> None:
    item = f.stack.pop()
    target = f.stack[-i.arg]
    f.tr.effects.mutating(target)  # after a break in a comprehension the list comes from outside
    target.items.append(item)


@op(Op.SET_ADD)
def set_add(f: Frame, i: Instr) -> None:
    item = f.stack.pop()
    f.stack[-i.arg].add(f, item)


@op(Op.MAP_ADD)
def map_add(f: Frame, i: Instr) -> None:
    key, value = f.popn(2)
    f.stack[-i.arg].mp_ass_subscript(f, key, value)


@op(Op.LIST_EXTEND)
def list_extend(f: Frame, i: Instr) -> None:
    iterable = f.stack[-1]
    if iterable.tp_iter is None and iterable.sq_item is None:
        f.raises(TypeError, f"Value after * must be an iterable, not {abstract.type_name(iterable)}")
    items = abstract.unpack(f, iterable)
    target = f.stack[-1 - i.arg]
    f.tr.effects.mutating(target)
    target.items.extend(items)
    f.stack.pop()


@op(Op.SET_UPDATE)
def set_update(f: Frame, i: Instr) -> None:
    f.stack[-1 - i.arg].merge(f, f.stack[-1])
    f.stack.pop()


@op(Op.DICT_UPDATE)
def dict_update(f: Frame, i: Instr) -> None:
    f.stack[-1 - i.arg].merge(f, f.stack[-1])
    f.stack.pop()


@op(Op.DICT_MERGE)
def dict_merge(f: Frame, i: Instr) -> None:
    first, second = f.stack[-i.arg - 4 : -i.arg - 2]  # callable and self-or-NULL, below the positional arguments
    function = second if first is NULL else first
    f.stack[-1 - i.arg].merge(f, f.stack[-1], unique_for=function)
    f.stack.pop()


@op(Op.LIST_TO_TUPLE)
def list_to_tuple(f: Frame, i: Instr) -> None:
    f.stack[-1] = TupleVariable(f.stack[-1].items)


@op(Op.CONVERT)
def convert(f: Frame, i: Instr) -> None:
    f.stack[-1] = format_value(f, f.stack[-1], i.arg, None)


@op(Op.FORMAT)
def format_(f: Frame, i: Instr) -> None:
    if i.arg:
        value, spec = f.stack[-2:]
        f.stack[-2:] = [format_value(f, value, None, spec)]
    else:
        f.stack[-1] = format_value(f, f.stack[-1], None, ConstantVariable(""))


@op(Op.UNPACK_SEQUENCE)
def unpack_sequence(f: Frame, i: Instr) -> None:
    items = _unpack(f, f.stack[-1], i.arg)
    f.stack[-1:] = reversed(items)


def _unpack(f: Frame, v: VariableTracker, n: int) -> list[VariableTracker]:
    _require_iterable(f, v)
    iterator = abstract.get_iter(f, v)
    items: list[VariableTracker] = []
    while len(items) < n:
        item = abstract.iter_next(f, iterator)
        if item is None:
            f.raises(ValueError, f"not enough values to unpack (expected {n}, got {len(items)})")
        items.append(item)
    if abstract.iter_next(f, iterator) is not None:
        abstract.too_many_values(f, v, n)
    return items


def _require_iterable(f: Frame, v: VariableTracker) -> None:
    if v.tp_iter is None and v.sq_item is None:
        f.raises(TypeError, f"cannot unpack non-iterable {abstract.type_name(v)} object")


@op(Op.UNPACK_EX)
def unpack_ex(f: Frame, i: Instr) -> None:
    before, after = i.arg
    _require_iterable(f, f.stack[-1])
    iterator = abstract.get_iter(f, f.stack[-1])
    items: list[VariableTracker] = []
    while len(items) < before and (item := abstract.iter_next(f, iterator)) is not None:
        items.append(item)
    if len(items) == before:
        items.extend(abstract.unpack(f, iterator))
    if len(items) < before + after:
        f.raises(ValueError, f"not enough values to unpack (expected at least {before + after}, got {len(items)})")
    end = len(items) - after
    unpacked = [*items[:before], ListVariable(items[before:end]), *items[end:]]
    f.stack[-1:] = reversed(unpacked)


# -- functions and calls


@op(Op.MAKE_FUNCTION)
def make_function_(f: Frame, i: Instr) -> None:
    code = f.pop()
    closure = f.pop() if i.arg & 8 else None
    annotations = f.pop() if i.arg & 4 else None
    kwdefaults = f.pop() if i.arg & 2 else None
    defaults = f.pop() if i.arg & 1 else None
    f.push(make_function(f, code, defaults, kwdefaults, annotations, closure))


@op(Op.SET_FUNCTION_ATTRIBUTE)
def set_function_attribute(f: Frame, i: Instr) -> None:
    function = f.pop()
    function.set_made_attribute(f, i.arg, f.pop())
    f.push(function)


@op(Op.CALL)
def call(f: Frame, i: Instr) -> None:
    argc, kwnames = i.arg
    stack = f.stack
    base = len(stack) - argc
    first, second = stack[base - 2], stack[base - 1]
    args = stack[base:]
    if first is NULL:
        fn = second
    else:
        fn = first
        if second is not NULL:
            args.insert(0, second)
    kwargs = {}
    if kwnames:
        split = len(args) - len(kwnames)
        kwargs = dict(zip(kwnames, args[split:], strict=True))
        del args[split:]
    f.push(call_function(f, base - 2, fn, args, kwargs))


@op(Op.CALL_FUNCTION_EX)
def call_function_ex_(f: Frame, i: Instr) -> None:
    base = len(f.stack) - (4 if i.arg else 3)
    operands = f.stack[base:]
    fn = operands[1] if operands[0] is NULL else operands[0]
    f.push(call_function_ex(f, base, fn, operands[2], operands[3] if i.arg else None))


_INTRINSICS: dict[str, Callable[[Frame, VariableTracker], VariableTracker]] = {}


def intrinsic(name: str) -> Callable[[Any], Any]:
    """Register a CALL_INTRINSIC by its name."""

    def decorate(fn: Callable[..., Any]) -> Any:
        _INTRINSICS[name] = fn
        return fn

    return decorate


@intrinsic("STOPITERATION_ERROR")
def stopiteration_error(f: Frame, exc: VariableTracker) -> VariableTracker:
    """`stopiteration_error` of intrinsics.c."""
    return stop_iteration_error(f, exc)


@op(Op.CALL_INTRINSIC)
def call_intrinsic(f: Frame, i: Instr) -> None:
    handler = _INTRINSICS.get(i.arg)
    if handler is None:
        unsupported("opcode", f"CALL_INTRINSIC_1({i.arg})")
    f.stack[-1] = handler(f, f.stack[-1])


@op(Op.CALL_INTRINSIC_2)
def call_intrinsic_2(f: Frame, i: Instr) -> None:
    unsupported("opcode", f"CALL_INTRINSIC_2({i.arg})")


# -- with and exceptions


@op(Op.BEFORE_WITH)
def before_with(f: Frame, i: Instr) -> None:
    manager = f.stack[-1]
    enter = _special(f, manager, "__enter__")
    exit_ = _special(f, manager, "__exit__")
    f.stack[-1:] = [exit_, f.call(enter, [])]


@op(Op.WITH_EXCEPT_START)
def with_except_start(f: Frame, i: Instr) -> None:
    exc = f.stack[-1]
    args = [f.tr.type_of(f, exc), exc, exc.get(f, "__traceback__")]
    if i.arg and f.stack[-4] is not NULL:
        args.insert(0, f.stack[-4])
    f.push(call_function(f, len(f.stack), f.stack[-5 if i.arg else -4], args, {}))


@op(Op.PUSH_EXC_INFO)
def push_exc_info(f: Frame, i: Instr) -> None:
    exc = f.stack.pop()
    state = f.tr.thread.exc_info
    f.stack += [ExcInfo(state.value, exc), exc]
    state.value = exc


@op(Op.POP_EXCEPT)
def pop_except(f: Frame, i: Instr) -> None:
    f.tr.thread.exc_info.value = f.stack.pop().previous


@op(Op.CHECK_EXC_MATCH)
def check_exc_match(f: Frame, i: Instr) -> None:
    f.stack[-1] = ConstantVariable(exception_match(f, f.stack[-2], f.stack[-1]))


@op(Op.CHECK_EG_MATCH)
def check_eg_match(f: Frame, i: Instr) -> None:
    unsupported("exception-group", "except*")


@op(Op.RERAISE)
def reraise(f: Frame, i: Instr) -> None:
    exc = f.stack.pop()
    if i.arg:
        f.raised_at = f.lifted.index_of_offset[f.stack[-i.arg].value]
    raise ObservedException(exc)


@op(Op.RAISE_VARARGS)
def raise_varargs_(f: Frame, i: Instr) -> None:
    raise_varargs(f, *f.popn(i.arg))


# -- match


@op(Op.MATCH_CLASS)
def match_class(f: Frame, i: Instr) -> None:
    subject, cls, names = f.stack[-3:]
    f.stack[-3:] = [match.match_class(f, subject, cls, i.arg, names.as_python_constant())]


@op(Op.MATCH_KEYS)
def match_keys(f: Frame, i: Instr) -> None:
    subject, keys = f.stack[-2:]
    f.stack.append(match.match_keys(f, subject, keys))


@op(Op.MATCH_MAPPING)
def match_mapping(f: Frame, i: Instr) -> None:
    f.push(match.is_mapping(f, f.stack[-1]))


@op(Op.MATCH_SEQUENCE)
def match_sequence(f: Frame, i: Instr) -> None:
    f.push(match.is_sequence(f, f.stack[-1]))


@op(Op.GET_LEN)
def get_len(f: Frame, i: Instr) -> None:
    f.push(abstract.length(f, f.stack[-1]))


# -- import


@op(Op.IMPORT_NAME)
def import_name_(f: Frame, i: Instr) -> None:
    level, fromlist = f.stack[-2:]
    f.stack[-2:] = [import_name(f, i.arg, level.as_python_constant(), fromlist.as_python_constant())]


@op(Op.IMPORT_FROM)
def import_from_(f: Frame, i: Instr) -> None:
    f.push(import_from(f, f.stack[-1], i.arg))


@op(Op.IMPORT_STAR)
def import_star_(f: Frame, i: Instr) -> None:
    import_star(f, f.stack[-1])


assert all(OPS), [Op(n).name for n in range(N_OPS) if OPS[n] is None]
