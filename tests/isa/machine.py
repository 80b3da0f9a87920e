"""A tiny stack machine that executes lifted programs for real: the oracle of the lift tables and of the continuations.

It mirrors `Python/ceval.c` with real Python objects, no generators. `Machine.run(steps)` stops after a number of
original instructions, with the frame's state at hand.
"""

import builtins
import operator
import sys
import types

from dynamo_lite.isa import NULL_FIRST, lift
from dynamo_lite.isa.canon import Op


class Null:
    def __repr__(self):
        return "NULL"


NULL = Null()


class Previous:
    """The saved exc_info below an exception being handled."""

    def __init__(self, exception):
        self.exception = exception


class Lasti:
    def __init__(self, offset):
        self.offset = offset


COMPARE = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    ">=": operator.ge,
}
CONVERT = {"s": str, "r": repr, "a": ascii}
BUILD = {Op.BUILD_TUPLE: tuple, Op.BUILD_LIST: list, Op.BUILD_SET: set, Op.BUILD_STRING: "".join}
HANDLERS = {}
JUMPED = object()


def handles(*ops):
    def register(function):
        for op in ops:
            HANDLERS[op] = function
        return function

    return register


class Machine:
    def __init__(self, function, args=()):
        self.code = function.__code__
        self.lifted = lift(self.code)
        self.globals = function.__globals__
        self.slots = [NULL] * len(self.lifted.local_names)
        bound = self._bind(args)
        self.slots[: len(bound)] = bound
        for i, cell in enumerate(function.__closure__ or ()):
            self.slots[self.lifted.first_free_slot + i] = cell
        self.stack = []
        self.handled = None
        self.index = 0
        self.result = NULL
        self.previous_offset = None

    def _bind(self, args):
        count = self.code.co_argcount
        bound = list(args[:count])
        if self.code.co_flags & 4:
            bound.append(tuple(args[count:]))
        if self.code.co_flags & 8:
            bound.append({})
        return bound

    # -- running

    @property
    def done(self):
        return self.result is not NULL

    def at_start(self):
        """Still inside the compiler's own prologue."""
        return all(instr.op is Op.MAKE_CELL for instr in self.lifted.instrs[: self.index + 1])

    def step(self):
        """One original instruction. Returns True if it went on with the next one, False if it jumped (or was left)."""
        before = self.index
        while True:
            instr = self.lifted.instrs[self.index]
            if not self._execute(instr) or self.done:
                return False
            if self.index != before + 1:
                return False
            before = self.index
            if instr.last:
                return True

    def _execute(self, instr):
        """One canonical instruction; False if it raised."""
        self.current = instr
        here = self.index
        self.index += 1
        try:
            HANDLERS[instr.op](self, instr.arg)
        except BaseException as error:
            self._unwind(here, error)
            return False
        return True

    def run(self):
        while not self.done:
            self.step()
        return self.result

    def _unwind(self, index, error):
        if error.__context__ is None and self.handled is not None and error is not self.handled:
            error.__context__ = self.handled
        handler = self.lifted.handler_at[index]
        if handler is None:
            raise error
        del self.stack[handler.depth :]
        if handler.lasti:
            self.stack.append(Lasti(self.lifted.instrs[index].offset))
        self.stack.append(error)
        self.index = handler.target

    def jump(self):
        self.index = self.current.target

    def pop(self):
        return self.stack.pop()

    def popn(self, n):
        if n == 0:
            return []
        items = self.stack[-n:]
        del self.stack[-n:]
        return items

    def push(self, value):
        self.stack.append(value)

    def name(self, slot):
        return self.lifted.local_names[slot]

    def call(self, function, args, kwargs):
        if function is super and not args:
            owner = self.slots[self.lifted.local_names.index("__class__")].cell_contents
            first = self.slots[0]
            return super(owner, first.cell_contents if isinstance(first, types.CellType) else first)
        if function is sys.exc_info:
            error = self.handled
            return (None, None, None) if error is None else (type(error), error, error.__traceback__)
        return function(*args, **kwargs)

    # -- calls, seen from outside

    def pending_call(self):
        """(function, args, kwargs, number of items it takes) if the next instruction is a call."""
        instr = self.lifted.instrs[self.index]
        if instr.op is Op.CALL:
            argc, kwnames = instr.arg
            items = self.stack[len(self.stack) - argc - 2 :]
            function, args, kwargs = split_call(items, kwnames)
            return function, args, kwargs, argc + 2
        if instr.op is Op.CALL_FUNCTION_EX:
            n = 3 + bool(instr.arg)
            items = self.stack[-n:]
            function = items[0] if items[1] is NULL else items[1]
            return function, tuple(items[2]), items[3] if instr.arg else {}, n
        return None


def split_call(items, kwnames):
    first, second, *args = items
    if first is NULL:
        function = second
    elif second is NULL:
        function = first
    else:
        function, args = first, [second, *args]
    split = len(args) - len(kwnames)
    return function, tuple(args[:split]), dict(zip(kwnames, args[split:], strict=True))


# -- stack, constants


@handles(Op.POP_TOP)
def _(m, arg):
    m.pop()


@handles(Op.COPY)
def _(m, i):
    m.push(m.stack[-i])


@handles(Op.SWAP)
def _(m, i):
    m.stack[-i], m.stack[-1] = m.stack[-1], m.stack[-i]


@handles(Op.PUSH_NULL)
def _(m, arg):
    m.push(NULL)


@handles(Op.LOAD_CONST)
def _(m, value):
    m.push(value)


# -- slots


@handles(Op.LOAD_FAST, Op.LOAD_CELL)
def _(m, slot):
    if m.slots[slot] is NULL:
        raise UnboundLocalError(
            f"cannot access local variable '{m.name(slot)}' where it is not associated with a value", name=m.name(slot)
        )
    m.push(m.slots[slot])


@handles(Op.LOAD_FAST_AND_CLEAR)
def _(m, slot):
    m.push(m.slots[slot])
    m.slots[slot] = NULL


@handles(Op.STORE_FAST)
def _(m, slot):
    m.slots[slot] = m.pop()


@handles(Op.DELETE_FAST)
def _(m, slot):
    assert m.slots[slot] is not NULL
    m.slots[slot] = NULL


@handles(Op.MAKE_CELL)
def _(m, slot):
    value = m.slots[slot]
    m.slots[slot] = types.CellType() if value is NULL else types.CellType(value)


@handles(Op.LOAD_DEREF)
def _(m, slot):
    try:
        m.push(m.slots[slot].cell_contents)
    except ValueError:
        raise NameError(m.name(slot)) from None


@handles(Op.STORE_DEREF)
def _(m, slot):
    m.slots[slot].cell_contents = m.pop()


@handles(Op.DELETE_DEREF)
def _(m, slot):
    del m.slots[slot].cell_contents


# -- names, attributes


@handles(Op.LOAD_GLOBAL)
def _(m, name):
    if name in m.globals:
        m.push(m.globals[name])
    elif hasattr(builtins, name):
        m.push(getattr(builtins, name))
    else:
        raise NameError(f"name {name!r} is not defined")


@handles(Op.STORE_GLOBAL)
def _(m, name):
    m.globals[name] = m.pop()


@handles(Op.DELETE_GLOBAL)
def _(m, name):
    del m.globals[name]


@handles(Op.LOAD_BUILD_CLASS)
def _(m, arg):
    m.push(builtins.__build_class__)


@handles(Op.LOAD_ATTR)
def _(m, name):
    m.push(getattr(m.pop(), name))


@handles(Op.LOAD_METHOD)
def _(m, name):
    method = getattr(m.pop(), name)
    m.stack += [NULL, method] if NULL_FIRST else [method, NULL]


@handles(Op.LOAD_SUPER_ATTR)
def _(m, arg):
    name, is_method, _two = arg
    _super, owner, instance = m.popn(3)
    m.push(super(owner, instance))
    HANDLERS[Op.LOAD_METHOD if is_method else Op.LOAD_ATTR](m, name)


@handles(Op.LOAD_SPECIAL)
def _(m, name):
    HANDLERS[Op.LOAD_METHOD](m, name)


@handles(Op.STORE_ATTR)
def _(m, name):
    value, owner = m.popn(2)
    setattr(owner, name, value)


@handles(Op.DELETE_ATTR)
def _(m, name):
    delattr(m.pop(), name)


# -- operators


@handles(Op.BINARY)
def _(m, function):
    a, b = m.popn(2)
    m.push(function(a, b))


@handles(Op.UNARY)
def _(m, function):
    m.push(function(m.pop()))


@handles(Op.TO_BOOL)
def _(m, arg):
    m.push(bool(m.pop()))


@handles(Op.NOT)
def _(m, arg):
    value = m.pop()
    assert type(value) is bool
    m.push(not value)


@handles(Op.COMPARE)
def _(m, op):
    a, b = m.popn(2)
    m.push(COMPARE[op](a, b))


@handles(Op.IS_OP)
def _(m, invert):
    a, b = m.popn(2)
    m.push((a is b) != invert)


@handles(Op.CONTAINS_OP)
def _(m, invert):
    a, b = m.popn(2)
    m.push((a in b) != invert)


@handles(Op.BINARY_SUBSCR)
def _(m, arg):
    a, b = m.popn(2)
    m.push(a[b])


@handles(Op.STORE_SUBSCR)
def _(m, arg):
    value, owner, key = m.popn(3)
    owner[key] = value


@handles(Op.DELETE_SUBSCR)
def _(m, arg):
    owner, key = m.popn(2)
    del owner[key]


# -- jumps, iteration


@handles(Op.JUMP)
def _(m, arg):
    m.jump()


@handles(Op.JUMP_IF)
def _(m, when):
    value = m.pop()
    assert type(value) is bool
    if value is when:
        m.jump()


@handles(Op.JUMP_IF_NONE)
def _(m, when):
    if (m.pop() is None) is when:
        m.jump()


@handles(Op.GET_ITER)
def _(m, arg):
    m.push(iter(m.pop()))


@handles(Op.FOR_ITER)
def _(m, arg):
    try:
        m.push(next(m.stack[-1]))
    except StopIteration:
        m.pop()
        m.jump()


@handles(Op.RETURN_VALUE)
def _(m, arg):
    m.result = m.pop()


# -- building


@handles(Op.BUILD_TUPLE, Op.BUILD_LIST, Op.BUILD_SET, Op.BUILD_STRING)
def _(m, n):
    m.push(BUILD[m.current.op](m.popn(n)))


@handles(Op.BUILD_MAP)
def _(m, n):
    items = m.popn(2 * n)
    m.push(dict(zip(items[::2], items[1::2], strict=True)))


@handles(Op.BUILD_CONST_KEY_MAP)
def _(m, n):
    keys = m.pop()
    m.push(dict(zip(keys, m.popn(n), strict=True)))


@handles(Op.BUILD_SLICE)
def _(m, n):
    m.push(slice(*m.popn(n)))


@handles(Op.LIST_APPEND, Op.SET_ADD)
def _(m, i):
    value = m.pop()
    owner = m.stack[-i]
    owner.append(value) if isinstance(owner, list) else owner.add(value)


@handles(Op.MAP_ADD)
def _(m, i):
    key, value = m.popn(2)
    m.stack[-i][key] = value


@handles(Op.LIST_EXTEND)
def _(m, i):
    value = m.pop()
    m.stack[-i].extend(value)


@handles(Op.SET_UPDATE, Op.DICT_UPDATE, Op.DICT_MERGE)
def _(m, i):
    value = m.pop()
    m.stack[-i].update(value)


@handles(Op.LIST_TO_TUPLE)
def _(m, arg):
    m.push(tuple(m.pop()))


@handles(Op.CONVERT)
def _(m, letter):
    m.push(CONVERT[letter](m.pop()))


@handles(Op.FORMAT)
def _(m, has_spec):
    spec = m.pop() if has_spec else ""
    m.push(format(m.pop(), spec))


@handles(Op.UNPACK_SEQUENCE)
def _(m, n):
    items = list(m.pop())
    if len(items) != n:
        raise ValueError("unpack")
    m.stack += reversed(items)


@handles(Op.UNPACK_EX)
def _(m, arg):
    before, after = arg
    items = list(m.pop())
    if len(items) < before + after:
        raise ValueError("unpack")
    rest = items[before : len(items) - after]
    m.stack += reversed([*items[:before], rest, *items[len(items) - after :]])


# -- functions


@handles(Op.MAKE_FUNCTION)
def _(m, flags):
    code = m.pop()
    function = types.FunctionType(code, m.globals, closure=tuple(types.CellType() for _ in code.co_freevars))
    for flag in (8, 4, 2, 1):
        if flags & flag:
            function = set_attribute(function, flag, m.pop())
    m.push(function)


@handles(Op.SET_FUNCTION_ATTRIBUTE)
def _(m, flag):
    function = m.pop()
    m.push(set_attribute(function, flag, m.pop()))


def set_attribute(function, flag, value):
    if flag == 8:
        function = types.FunctionType(function.__code__, function.__globals__, closure=value)
    elif flag == 4:
        pairs = isinstance(value, tuple)
        function.__annotations__ = dict(zip(value[::2], value[1::2], strict=True)) if pairs else value
    elif flag == 2:
        function.__kwdefaults__ = value
    elif flag == 16:
        function.__annotate__ = value
    else:
        function.__defaults__ = value
    return function


@handles(Op.CALL, Op.CALL_FUNCTION_EX)
def _(m, arg):
    m.index -= 1
    function, args, kwargs, n = m.pending_call()
    m.index += 1
    m.popn(n)
    m.push(m.call(function, args, kwargs))


# -- with, exceptions


@handles(Op.BEFORE_WITH)
def _(m, arg):
    manager = m.pop()
    m.push(manager.__exit__)
    m.push(manager.__enter__())


@handles(Op.WITH_EXCEPT_START)
def _(m, has_self):
    error = m.stack[-1]
    function, args, _ = split_call(m.stack[-5:-3] if has_self else [NULL, m.stack[-4]], ())
    m.push(m.call(function, (*args, type(error), error, error.__traceback__), {}))


@handles(Op.PUSH_EXC_INFO)
def _(m, arg):
    error = m.pop()
    m.stack += [Previous(m.handled), error]
    m.handled = error


@handles(Op.POP_EXCEPT)
def _(m, arg):
    m.handled = m.pop().exception


@handles(Op.CHECK_EXC_MATCH)
def _(m, arg):
    kind = m.pop()
    m.push(isinstance(m.stack[-1], kind))


@handles(Op.RERAISE)
def _(m, arg):
    raise m.pop()


@handles(Op.RAISE_VARARGS)
def _(m, n):
    items = m.popn(n)
    if n == 0:
        raise m.handled
    error = items[0]() if isinstance(items[0], type) else items[0]
    if n == 2:
        error.__cause__ = items[1]
    raise error


# -- match, import


@handles(Op.MATCH_CLASS)
def _(m, n):
    subject, kind, names = m.popn(3)
    names = (*(kind.__match_args__[:n] if n else ()), *names)
    matches = isinstance(subject, kind) and all(hasattr(subject, name) for name in names)
    m.push(tuple(getattr(subject, name) for name in names) if matches else None)


@handles(Op.MATCH_KEYS)
def _(m, arg):
    subject, keys = m.stack[-2:]
    m.push(tuple(subject[key] for key in keys) if all(key in subject for key in keys) else None)


@handles(Op.MATCH_MAPPING)
def _(m, arg):
    m.push(isinstance(m.stack[-1], dict))


@handles(Op.MATCH_SEQUENCE)
def _(m, arg):
    m.push(isinstance(m.stack[-1], (list, tuple)))


@handles(Op.GET_LEN)
def _(m, arg):
    m.push(len(m.stack[-1]))


@handles(Op.IMPORT_NAME)
def _(m, name):
    level, names = m.popn(2)
    m.push(__import__(name, m.globals, None, names, level))


@handles(Op.IMPORT_FROM)
def _(m, name):
    m.push(getattr(m.stack[-1], name))
