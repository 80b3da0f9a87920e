"""Programs that recurse without end, or hold what is nested very deep.

Input: `compile_`, which makes a compiled function, or leaves it as it is. Output of each program: a value that can be printed.
Invariant: eager execution ends each of them with a value or an exception; captured they end in the same way.
"""

import collections
import contextlib
import copy
import functools
import itertools
import types

import torch
from torch.overrides import has_torch_function, has_torch_function_unary, has_torch_function_variadic

import dynamo_lite

PROGRAMS = {}
DEEP = 100_000


def program(function):
    PROGRAMS[function.__name__] = function
    return function


def nested(make, levels=DEEP, value=None):
    """A value inside `levels` containers."""
    for _ in range(levels):
        value = make(value)
    return value


# -- code that calls itself


def _calls_itself(compile_, breaks):
    def f(x):
        if breaks:
            print(end="")
        return f(x + 1)

    f = compile_(f)
    return f(torch.ones(2))


@program
def a_function(compile_):
    return _calls_itself(compile_, False)


@program
def a_function_behind_a_break(compile_):
    return _calls_itself(compile_, True)


@program
def two_functions(compile_):
    def f(x):
        return g(x + 1)

    def g(x):
        return f(x * 2)

    f, g = compile_(f), compile_(g)
    return f(torch.ones(2))


@program
def a_hundred_calls(compile_):
    def f(x, n):
        return x if n == 0 else f(x + 1, n - 1)

    f = compile_(f)
    return f(torch.ones(2), 100).tolist()


@program
def in_arguments(compile_):
    def f(x, *args, **kwargs):
        print(end="")
        return f(x, *args, 1, **kwargs)

    f = compile_(f)
    return f(torch.ones(2), k=1)


@program
def a_method(compile_):
    class C:
        @compile_
        def f(self, x):
            print(end="")
            return self.f(x + 1)

    return C().f(torch.ones(2))


@program
def a_module(compile_):
    class M(torch.nn.Module):
        def forward(self, x):
            print(end="")
            return compiled(x + 1)

    compiled = compile_(M())
    return compiled(torch.ones(2))


@program
def a_module_inside(compile_):
    class M(torch.nn.Module):
        def forward(self, x):
            return self(x + 1)

    return compile_(M())(torch.ones(2))


@program
def a_hook_of_a_module(compile_):
    module = torch.nn.Linear(2, 2)
    module.register_forward_hook(lambda module, args, out: compiled(out))
    compiled = compile_(module)
    return compiled(torch.ones(2))


@program
def a_hook_of_a_tensor(compile_):
    def f(x):
        y = x * 2
        y.register_hook(lambda grad: compiled(x))
        y.sum().backward()
        return y

    compiled = compile_(f)
    return compiled(torch.ones(2, requires_grad=True))


@program
def a_backend(compile_):
    def f(x):
        return x + 1

    def backend(gm, inputs):
        return functools.partial(run, gm)

    def run(gm, x):
        return compiled(x)

    compiled = compile_(f, backend)
    with contextlib.suppress(RecursionError):  # only what is compiled calls itself
        compiled(torch.ones(2))


@program
def a_backend_that_compiles(compile_):
    def f(x):
        return x + 1

    def backend(gm, inputs):
        compile_(lambda x: x * 2, backend)(torch.ones(2))
        return gm

    return compile_(f, backend)(torch.ones(2))


@program
def torch_function_of_a_class(compile_):
    class C:
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            return function(*args, **(kwargs or {}))

    return compile_(lambda o: torch.add(o, 1))(C())


@program
def torch_function_of_a_class_calls_the_caller(compile_):
    class C:
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            return f(*args)

    f = compile_(lambda o: torch.abs(o))
    return f(C())


@program
def torch_function_of_a_subclass(compile_):
    class T(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            return function(*args, **(kwargs or {}))

    return compile_(lambda o: torch.add(o, 1))(torch.ones(2).as_subclass(T))


@program
def torch_function_of_a_subclass_calls_the_caller(compile_):
    class T(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            return f(*args)

    f = compile_(lambda o: torch.abs(o))
    return f(torch.ones(2).as_subclass(T))


@program
def asking_for_torch_function(compile_):
    class T(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            return f(*args)

    class C:
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            return f(*args)

    @compile_
    def f(o):
        return has_torch_function_unary(o), has_torch_function_variadic(o, 1), has_torch_function((o,)), torch.abs(o)

    found = []
    for value in (torch.ones(2).as_subclass(T), C(), torch.ones(2).as_subclass(T), C()):
        try:
            found.append(f(value))
        except RecursionError:
            found.append("RecursionError")
    return found


@program
def torch_dispatch(compile_):
    class Mode(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            with self:
                return f(*args)

    f = compile_(lambda x: x.abs())
    with Mode():
        return f(torch.ones(2))


@program
def torch_function_mode(compile_):
    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            with self:
                return f(*args)

    f = compile_(lambda x: torch.abs(x))
    with Mode():
        return f(torch.ones(2))


@program
def autograd_function(compile_):
    class F(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return f(x)

        @staticmethod
        def backward(ctx, grad):
            return grad

    f = compile_(lambda x: F.apply(x) + 1)
    return f(torch.ones(2, requires_grad=True))


# -- what runs as it is during an analysis, under a higher recursion limit than the program's


def ask_for_ever():
    """C code and Python code call each other; torch's dispatcher takes more of the C stack than most."""

    class C:
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            return function(*args, **(kwargs or {}))

    return torch.add(C(), 1)


@program
def a_backend_that_recurses(compile_):
    def backend(gm, inputs):
        ask_for_ever()

    def f(x):
        return x + 1

    return compile_(f, backend)(torch.ones(2))  # a backend that fails is left out


@program
def a_fake_implementation_that_recurses(compile_):
    with torch.library._scoped_library("c_stack", "FRAGMENT") as library:
        library.define("op(Tensor x) -> Tensor")
        library.impl("op", lambda x: ask_for_ever(), "CPU")
        library._register_fake("op", lambda x: ask_for_ever())
        return compile_(lambda x: torch.ops.c_stack.op(x) + 1)(torch.ones(2))


@program
def an_allowed_function_that_recurses(compile_):
    class T(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            return function(*args, **(kwargs or {}))

    def g(x):
        return torch.add(x.as_subclass(T), 1)

    allowed = dynamo_lite.allow_in_graph(g)
    return compile_(lambda x: allowed(x))(torch.ones(2))


@program
def dispatch_of_a_wrapper(compile_):
    class W(torch.Tensor):
        @staticmethod
        def __new__(cls, a):
            return torch.Tensor._make_wrapper_subclass(cls, a.shape, dtype=a.dtype)

        def __init__(self, a):
            self.a = a

        def __tensor_flatten__(self):
            return ["a"], None

        @classmethod
        def __tensor_unflatten__(cls, parts, context, size, stride):
            return cls(parts["a"])

        @classmethod
        def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
            return function(*args, **(kwargs or {}))

    return compile_(lambda x: x + 1)(W(torch.ones(2)))


SLOTS = {
    "__getattr__": lambda o, *args: f"{o.missing}",
    "__getattribute__": lambda o, *args: o.missing,
    "__setattr__": lambda o, *args: setattr(o, "a", 1),
    "__eq__": lambda o, *args: o == 3,
    "__hash__": lambda o, *args: hash(o),
    "__call__": lambda o, *args: o(),
    "__add__": lambda o, *args: o + 1,
    "__radd__": lambda o, *args: 1 + o,
    "__neg__": lambda o, *args: -o,
    "__repr__": lambda o, *args: repr(o),
    "__str__": lambda o, *args: str(o),
    "__bool__": lambda o, *args: bool(o),
    "__len__": lambda o, *args: len(o),
    "__iter__": lambda o, *args: iter(o),
    "__next__": lambda o, *args: next(o),
    "__contains__": lambda o, *args: 1 in o,
    "__getitem__": lambda o, *args: o[0],
    "__setitem__": lambda o, *args: o.__setitem__(0, 1),
    "__index__": lambda o, *args: [1][o],
    "__int__": lambda o, *args: int(o),
    "__enter__": lambda o, *args: o.__enter__(),
    "__lt__": lambda o, *args: o < 1,
    "__format__": lambda o, *args: f"{o}",
}


def _slot(name, use):
    def run(compile_, through):
        use_it = compile_(use)
        method = (lambda o, *args: use_it(o, *args)) if through else use
        cls = type("C", (), {name: method})
        return use_it(cls())

    for through in (False, True):
        PROGRAMS[name + " and the compiled function" * through] = functools.partial(run, through=through)


for _name, _use in SLOTS.items():
    _slot(_name, _use)


@program
def a_property(compile_):
    class C:
        @property
        def p(self):
            return f(self)

    f = compile_(lambda o: o.p)
    return f(C())


@program
def a_descriptor(compile_):
    class D:
        def __get__(self, obj, cls):
            return f(obj)

    class C:
        p = D()

    f = compile_(lambda o: o.p)
    return f(C())


@program
def a_metaclass(compile_):
    class M(type):
        def __call__(cls):
            return f(cls)

        def __instancecheck__(cls, value):
            return isinstance(value, cls)

    class C(metaclass=M):
        pass

    f = compile_(lambda cls: cls())
    g = compile_(lambda x: isinstance(x, C))
    with contextlib.suppress(RecursionError):
        f(C)
    return g(3)


@program
def a_finalizer(compile_):
    made = []

    class C:
        def __del__(self):
            made.append(1)
            if len(made) < 100:  # on 3.13 CPython calls them in one another
                f()

    def f():
        C()

    f = compile_(f)
    f()
    return len(made)


@program
def a_generator(compile_):
    def g(x):
        yield from g(x + 1)

    return compile_(lambda x: next(g(x)))(torch.ones(2))


@program
def a_generator_of_the_caller(compile_):
    def g(x):
        yield f(x)

    f = compile_(lambda x: next(g(x)))
    return f(torch.ones(2))


@program
def a_coroutine(compile_):
    async def g(x):
        return await g(x + 1)

    def f(x):
        g(x).send(None)

    return compile_(f)(torch.ones(2))


@program
def functions_of_c(compile_):
    found = []
    for use in (
        lambda x: list(map(f, [x])),
        lambda x: sorted([x], key=f),
        lambda x: functools.reduce(lambda a, b: f(a), [x, x]),
        lambda x: max([x, x], key=f),
        lambda x: functools.partial(f, x)(),
        lambda x: [*filter(f, [x])],
        lambda x: dict.fromkeys(map(f, [x])),
        lambda x: "".join(map(f, [x])),
        lambda x: next(itertools.starmap(f, [(x,)])),
    ):
        f = compile_(use)
        try:
            found.append(f(torch.ones(2)))
        except RecursionError:
            found.append("RecursionError")
    return found


@program
def lru_cache(compile_):
    @functools.lru_cache
    def g(n):
        return f(n + 1)

    f = compile_(lambda n: g(n))
    return f(0)


# -- what is nested very deep

CONTAINERS = {
    "list": lambda v: [v],
    "tuple": lambda v: (v,),
    "dict": lambda v: {"k": v},
    "list in tuple": lambda v: ([v],),
    "object": lambda v: types.SimpleNamespace(v=v),
    "slice": lambda v: slice(v, None),
    "cell": lambda v: lambda: v,
    "partial": lambda v: functools.partial(print, v),
    "map": lambda v: map(abs, v if v is not None else ()),
    "chain": lambda v: itertools.chain(v if v is not None else ()),
    "proxy": lambda v: types.MappingProxyType({"k": v}),
    "exception": lambda v: ValueError(v),
    "deque": lambda v: collections.deque([v]),
    "method": lambda v: types.MethodType(print, v if v is not None else 1),
    "property": lambda v: property(v),
}
USES = {
    "passed on": lambda x, v: (x + 1, v)[0],
    "type": lambda x, v: x + (type(v) is list),
    "broken": lambda x, v: (print(end=""), x + 1, v)[1],
}


def _container(kind, make):
    def run(compile_, how):
        value = nested(make, 20_000 if kind in ("map", "chain", "proxy", "cell", "property") else DEEP)
        x = torch.ones(2)
        use = USES[how]
        as_argument = compile_(lambda x, v: use(x, v))
        in_cell = compile_(lambda x: use(x, value))
        as_default = compile_(lambda x, v=value: use(x, v))
        return [f.tolist() for f in (as_argument(x, value), in_cell(x), as_default(x), as_argument(x, value))]

    for how in USES:
        PROGRAMS[f"{kind} {how}"] = functools.partial(run, how=how)


for _kind, _make in CONTAINERS.items():
    _container(_kind, _make)


@program
def deep_list_walked(compile_):
    def f(x, v):
        n = 0
        while v is not None:
            (v,) = v
            n += 1
        return x + n

    return compile_(f)(torch.ones(2), nested(lambda v: [v], 3000)).tolist()


@program
def deep_objects_walked(compile_):
    class Node:
        def __init__(self, rest):
            self.rest = rest

    def f(x, v):
        while v is not None:
            v = v.rest
            x = x + 1
        return x

    f = compile_(f)
    value = nested(Node, 1500)
    return [f(torch.ones(2), value).tolist(), f(torch.ones(2), value).tolist()]


@program
def deep_list_made(compile_):
    def f(x):
        v = x
        for _ in range(3000):
            v = [v]
        return v

    v = compile_(f)(torch.ones(2))
    n = 0
    while type(v) is list:
        (v,) = v
        n += 1
    return n


@program
def deep_tuple_compared(compile_):
    return compile_(lambda x, v, w: x + (v == w))(torch.ones(2), nested(lambda v: (v,)), nested(lambda v: (v,)))


@program
def deep_list_shown(compile_):
    return compile_(lambda x, v: (x + 1, repr(v)))(torch.ones(2), nested(lambda v: [v]))


@program
def deep_list_copied(compile_):
    return compile_(lambda x, v: (x + 1, copy.deepcopy(v)))(torch.ones(2), nested(lambda v: [v]))


@program
def deep_classes_checked(compile_):
    return compile_(lambda x, v: x + isinstance(v, v))(torch.ones(2), nested(lambda v: (v,), value=int))


@program
def deep_key(compile_):
    return compile_(lambda x, v: {v: x})(torch.ones(2), nested(lambda v: (v,), 5000, 1))[
        nested(lambda v: (v,), 5000, 1)
    ]


@program
def deep_partial_called(compile_):
    return compile_(lambda x, v: v(x))(
        torch.ones(2), nested(lambda v: functools.partial(lambda v, x: v(x), v), 400, abs)
    )


@program
def many_decorators(compile_):
    def decorate(f):
        @functools.wraps(f)
        def inner(x):
            return f(x)

        return inner

    return compile_(nested(decorate, 5000, abs))(torch.ones(2))


@program
def deep_modules(compile_):
    return compile_(nested(lambda m: torch.nn.Sequential(m), 60, torch.nn.ReLU()))(torch.ones(2)).tolist()


@program
def very_deep_modules(compile_):
    return compile_(nested(lambda m: torch.nn.Sequential(m), 400, torch.nn.ReLU()))(torch.ones(2))


@program
def a_long_chain_of_exceptions(compile_):
    error = None
    for _ in range(DEEP):
        following = ValueError()
        following.__context__ = error
        error = following

    def f(x, o):
        try:
            try:
                raise o
            except ValueError:
                raise KeyError(1)
        except KeyError as caught:
            return x + (caught.__context__ is o)

    return compile_(f)(torch.ones(2), error).tolist()


@program
def a_long_graph(compile_):
    def f(x):
        for _ in range(1500):
            x = x + 1
        return x.sum()

    x = torch.ones(2, requires_grad=True)
    compile_(f)(x).backward()
    return x.grad.tolist()


@program
def references_to_themselves(compile_):
    items = []
    items.append(items)
    table = {}
    table["self"] = table
    pair = ([],)
    pair[0].append(pair)
    space = types.SimpleNamespace()
    space.self = space

    def f(x, items, table, pair, space):
        a, b, c, d = items[0][0][0], table["self"]["self"], pair[0][0][0], space.self.self
        items[0].append(x)
        return [a is items, b is table, d is space, len(c), [items, table, pair]]

    found = compile_(f)(torch.ones(2), items, table, pair, space)
    return [*found[:4], found[4][0] is items]


@program
def compared_with_themselves(compile_):
    left, right = [], []
    left.append(left)
    right.append(right)
    return compile_(lambda x, a, b: x + (a == b))(torch.ones(2), left, right)


@program
def deep_frames(compile_):
    """More frames than a C stack has room for, if each of them took some of it."""

    def f(n):
        return compiled_once(n) if n == 40_000 else 0 if n == 0 else f(n - 1)

    def g(n):
        return 0 if n == 0 else g(n - 1)

    compiled_once = compile_(g)
    return f(40_001)
