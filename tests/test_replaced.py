"""What decides which code a call runs is replaced after the first call: the compiled function does what eager execution does then."""

import builtins
import contextlib
import multiprocessing
import sys
import types

import pytest
import torch
from torch import nn

import dynamo_lite
from dynamo_lite.testing import same

TEXT = """
import torch
from torch import nn
from torch.nn import functional as F
import collections
import math

SCALE = 2.0

def helper(x):
    return x * 2

def decorated(function):
    def inner(x):
        return function(x) + 1
    return inner

@decorated
def wrapped(x):
    return x * 5

class Meta(type):
    def __call__(cls, *args):
        return super().__call__(*args)

class Base:
    factor = 3
    def scale(self, x):
        return x * self.factor
    def __add__(self, other):
        return other + 1
    def __getattr__(self, name):
        if name == "lazy":
            return 4
        raise AttributeError(name)
    @property
    def size(self):
        return 5
    @classmethod
    def made(cls, x):
        return x * 6
    @staticmethod
    def plain(x):
        return x * 7
    def __len__(self):
        return 2
    def __iter__(self):
        return iter((1, 2))
    def __getitem__(self, i):
        return i + 1
    def __contains__(self, i):
        return True
    def __bool__(self):
        return True
    def __eq__(self, other):
        return True
    def __enter__(self):
        return 1
    def __exit__(self, *args):
        return False

class Thing(Base, metaclass=Meta):
    def __call__(self, x):
        return self.scale(x) + 1

class Other(Thing):
    def scale(self, x):
        return x * 30

Pair = collections.namedtuple("Pair", "a b")

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(3, 3)
        self.act = nn.ReLU()
    def forward(self, x):
        return self.act(self.lin(x)) + self.offset()
    def offset(self):
        return 1

class OtherNet(Net):
    def offset(self):
        return 2

thing = Thing()
pair = Pair(1, 2)
torch.manual_seed(0)
net = Net()
closed = 3

def make():
    kept = 2
    def inner(x):
        return x * kept
    def change(value):
        nonlocal kept
        kept = value
    return inner, change

inner, change = make()

def program(x):
    return helper(x) * SCALE + wrapped(x)

def of_object(x):
    y = thing(x) + thing.made(x) + thing.plain(x) + thing.lazy + thing.size
    y = y + len(thing) + sum(thing) + thing[3] + (1 in thing) + (thing == 3)
    if thing:
        y = y + (thing + 1)
    with thing as one:
        y = y + one
    return y + Thing().scale(x)

def of_tuple(x):
    return x * sum(pair + (3,)) + pair.a + len(pair)

def of_builtins(x):
    return x * len([1, 2]) + max(1, 2) + abs(-1) + math.floor(2.5)

def of_tensors(x):
    return x.relu() + x.sum() + torch.sin(x) + F.relu(x) + (x + 1) * x.shape[0] + (-x) + x[0] + len(x) + x.T + x.mean(0)
"""


def load():
    module = types.ModuleType("replaced_program")
    module.__file__ = "replaced_program.py"
    sys.modules["replaced_program"] = module
    exec(compile(TEXT, module.__file__, "exec"), module.__dict__)
    return module


X = torch.tensor([[1.0, -2.0, 3.0], [2.0, 1.0, -1.0], [0.5, 0.0, 1.0]])


FUNCTIONS = {
    "global": lambda p: setattr(p, "SCALE", 5.0),
    "global function": lambda p: setattr(p, "helper", lambda x: x - 1),
    "code": lambda p: setattr(p.helper, "__code__", (lambda x: x - 1).__code__),
    "code of the function itself": lambda p: setattr(p.program, "__code__", (lambda x: x - 1).__code__),
    "global dict": lambda p: p.__dict__.update(SCALE=7.0),
    "deleted": lambda p: delattr(p, "SCALE"),
    "cell of a decorator": lambda p: setattr(p.wrapped.__closure__[0], "cell_contents", lambda x: x - 3),
    "defaults": lambda p: setattr(p.helper, "__defaults__", (1,)),
}
OBJECTS = {
    "method": lambda p: setattr(p.Base, "scale", lambda self, x: x - 5),
    "class attribute": lambda p: setattr(p.Base, "factor", 30),
    "attribute of the object": lambda p: setattr(p.thing, "factor", 30),
    "method of the object": lambda p: setattr(p.thing, "scale", lambda x: x - 5),
    "attribute of a subclass": lambda p: setattr(p.Thing, "factor", 30),
    "method of a subclass": lambda p: setattr(p.Thing, "scale", lambda self, x: x - 5),
    "class": lambda p: setattr(p.thing, "__class__", p.Other),
    "__call__": lambda p: setattr(p.Thing, "__call__", lambda self, x: x - 5),
    "__call__ of the object": lambda p: setattr(p.thing, "__call__", lambda x: x - 5),
    "__call__ deleted": lambda p: delattr(p.Thing, "__call__"),
    "__call__ of the metaclass": lambda p: setattr(p.Meta, "__call__", lambda cls, *args: p.thing),
    "metaclass": lambda p: setattr(
        p.Thing, "__class__", type("Meta2", (type,), {"__call__": lambda cls, *args: p.thing})
    ),
    "bases": lambda p: setattr(p.Thing, "__bases__", (type("New", (p.Base,), {"scale": lambda self, x: x - 9}),)),
    "__init__": lambda p: setattr(p.Base, "__init__", lambda self: setattr(self, "factor", 11)),
    "__new__": lambda p: setattr(p.Thing, "__new__", lambda cls: p.thing),
    "__getattr__": lambda p: setattr(p.Base, "__getattr__", lambda self, name: 40),
    "__getattribute__": lambda p: setattr(
        p.Base, "__getattribute__", lambda self, name: 40 if name == "size" else object.__getattribute__(self, name)
    ),
    "in place of __getattr__": lambda p: setattr(p.Base, "lazy", 41),
    "property": lambda p: setattr(p.Base, "size", property(lambda self: 50)),
    "in place of a property": lambda p: setattr(p.Base, "size", 51),
    "classmethod": lambda p: setattr(p.Base, "made", classmethod(lambda cls, x: x * 60)),
    "staticmethod": lambda p: setattr(p.Base, "plain", staticmethod(lambda x: x * 70)),
    "__len__": lambda p: setattr(p.Base, "__len__", lambda self: 20),
    "__iter__": lambda p: setattr(p.Base, "__iter__", lambda self: iter((10, 20))),
    "__getitem__": lambda p: setattr(p.Base, "__getitem__", lambda self, i: 100),
    "__contains__": lambda p: setattr(p.Base, "__contains__", lambda self, i: False),
    "__bool__": lambda p: setattr(p.Base, "__bool__", lambda self: False),
    "__bool__ deleted": lambda p: delattr(p.Base, "__bool__"),
    "__eq__": lambda p: setattr(p.Base, "__eq__", lambda self, other: False),
    "__add__": lambda p: setattr(p.Base, "__add__", lambda self, other: 90),
    "__add__ of the subclass": lambda p: setattr(p.Thing, "__add__", lambda self, other: 91),
    "__enter__": lambda p: setattr(p.Base, "__enter__", lambda self: 80),
    "__exit__": lambda p: setattr(p.Thing, "__exit__", lambda self, *args: 1 / 0),
}
TUPLES = {
    "__add__ of a named tuple": lambda p: setattr(p.Pair, "__add__", lambda self, other: (7, 8)),
    "__len__ of a named tuple": lambda p: setattr(p.Pair, "__len__", lambda self: 9),
    "field of a named tuple": lambda p: setattr(p.Pair, "a", 33),
    "__getattribute__ of a named tuple": lambda p: setattr(p.Pair, "__getattribute__", lambda self, name: 34),
}
MODULES = {
    "forward": lambda p: setattr(p.Net, "forward", lambda self, x: self.lin(x) - 1),
    "forward of the object": lambda p: setattr(p.net, "forward", lambda x: x - 1),
    "method": lambda p: setattr(p.Net, "offset", lambda self: 10),
    "method of the object": lambda p: setattr(p.net, "offset", lambda: 10),
    "class": lambda p: setattr(p.net, "__class__", p.OtherNet),
    "submodule": lambda p: setattr(p.net, "act", nn.Tanh()),
    "class of a submodule": lambda p: setattr(p.net.act, "__class__", nn.Tanh),
    "parameter": lambda p: setattr(p.net.lin, "weight", nn.Parameter(torch.ones(3, 3))),
    "forward of a submodule's class": lambda p: restored(nn.ReLU, "forward", lambda self, x: x - 4),
    "_call_impl": lambda p: setattr(p.net, "_call_impl", lambda x: x - 1),
    "__call__": lambda p: setattr(p.Net, "__call__", lambda self, x: x - 1),
    "__call__ of all modules": lambda p: restored(nn.Module, "__call__", lambda self, x: self.forward(x) * 2),
    "hook": lambda p: p.net.register_forward_hook(lambda self, args, out: out * 2),
    "hook of a submodule": lambda p: p.net.act.register_forward_pre_hook(lambda self, args: (args[0] - 1,)),
    "mode": lambda p: setattr(p.net, "lin", nn.Dropout(1.0)),
    "__getattr__": lambda p: setattr(p.Net, "__getattr__", lambda self, name: nn.Module.__getattr__(self, "act")),
    "__dict__": lambda p: p.net.__dict__.update(offset=lambda: 12),
    "_modules": lambda p: p.net._modules.update(act=nn.Tanh()),
}
BUILTINS = {
    "builtin": lambda p: restored(builtins, "max", lambda *args: 12),
    "builtin, as a global": lambda p: setattr(p, "len", lambda a: 13),
    "function of a C module": lambda p: restored(p.math, "floor", lambda a: 14),
    "__builtins__": lambda p: p.__dict__.update(__builtins__={**vars(builtins), "abs": lambda a: 15}),
}
TENSORS = {
    "method": lambda p: restored(torch.Tensor, "relu", lambda self: self * 100),
    "method of the base": lambda p: restored(torch.Tensor, "sum", lambda self: self * 100),
    "operator": lambda p: restored(torch.Tensor, "__add__", lambda self, other: self * 100),
    "unary operator": lambda p: restored(torch.Tensor, "__neg__", lambda self: self * 100),
    "subscript": lambda p: restored(torch.Tensor, "__getitem__", lambda self, i: self * 100),
    "length": lambda p: restored(torch.Tensor, "__len__", lambda self: 100),
    "property": lambda p: restored(torch.Tensor, "T", property(lambda self: self * 100)),
    "function": lambda p: restored(torch, "sin", lambda x: x * 100),
    "functional": lambda p: restored(torch.nn.functional, "relu", lambda x: x * 100),
}
PROGRAMS = {
    "program": FUNCTIONS,
    "of_object": OBJECTS,
    "of_tuple": TUPLES,
    "net": MODULES,
    "of_builtins": BUILTINS,
    "of_tensors": TENSORS,
    "thing": {k: v for k, v in OBJECTS.items() if "call" in k or k in ("method", "class", "class attribute", "bases")},
}
_RESTORED = []
IRREVERSIBLE = ["subscript"]
"""CPython keeps `sq_item` of a class once it has had a `__getitem__`: `torch.tensor([x[0], x[1]])` raises in the rest of the process."""


def restored(owner, name, value):
    """Set an attribute for the duration of a test."""
    own = vars(owner)
    _RESTORED.append((owner, name, own.get(name, _RESTORED)))
    setattr(owner, name, value)


@pytest.fixture(autouse=True)
def put_back():
    yield
    while _RESTORED:
        owner, name, before = _RESTORED.pop()
        with contextlib.suppress(AttributeError):
            delattr(owner, name)
        if before is not _RESTORED:
            setattr(owner, name, before)
    sys.modules.pop("replaced_program", None)


def outcome(call):
    try:
        return call(X.clone())
    except Exception as error:
        return type(error)


CASES = [(name, change) for name, changes in PROGRAMS.items() for change in changes]


def check(name, change, backend, inside):
    if change not in IRREVERSIBLE:
        check_here(name, change, backend, inside)
        return
    child = multiprocessing.get_context("fork").Process(target=check_here, args=(name, change, backend, inside))
    child.start()
    child.join()
    assert child.exitcode == 0  # else it has printed why


def check_here(name, change, backend, inside):
    program = load()
    target = getattr(program, name)

    def outer(x):
        return target(x) * 2

    call = outer if inside else target
    compiled = dynamo_lite.compile(call, backend=backend)
    for _ in range(2):
        assert same(outcome(call), outcome(compiled))
    PROGRAMS[name][change](program)
    for _ in range(2):
        expected = outcome(call)
        found = outcome(compiled)
        assert same(expected, found), f"{expected} {found}"


@pytest.mark.parametrize("name, change", CASES, ids=lambda value: str(value))
def test_replaced(name, change):
    check(name, change, "eager", inside=False)


@pytest.mark.parametrize("change", TENSORS)
def test_replaced_in_what_a_compiler_has_made(change):
    check("of_tensors", change, "aot_eager", inside=False)


@pytest.mark.parametrize("name, change", CASES, ids=lambda value: str(value))
def test_replaced_below_a_compiled_function(name, change):
    check(name, change, "eager", inside=True)
