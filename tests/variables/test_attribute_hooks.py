"""The hooks by which a program sees its attributes read are called as in eager execution: while code is captured, and when it runs.

One sweep: objects and classes that note each attribute asked of them (`__getattribute__`, `__getattr__`, a property `__class__`, a
metaclass), used in each way below, as an argument and inside a list. Stated is what was asked in each of two calls.
"""

import collections
import copy
import dataclasses
import functools

import pytest
import torch
from torch.utils._pytree import tree_map

import dynamo_lite

ASKED = []
"""The names asked for, as they come."""


class Protocols:
    """Special methods, so that each use below goes through one of the object's."""

    def __call__(self):
        return 1

    def __len__(self):
        return 2

    def __getitem__(self, i):
        if i > 3:
            raise IndexError
        return i

    def __eq__(self, other):
        return self is other

    def __hash__(self):
        return 5

    def __add__(self, other):
        return 7

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        return False

    def __index__(self):
        return 1

    def __contains__(self, item):
        return True


def observed(base):
    """A subclass whose objects note what is asked of them."""

    class Observed(base):
        def __getattribute__(self, name):
            ASKED.append(name)
            return base.__getattribute__(self, name)

    return Observed


class Missing(Protocols):
    n = 3

    def __getattr__(self, name):
        ASKED.append(name)
        raise AttributeError(name)


class Disguised(Protocols):
    n = 3

    @property
    def __class__(self):
        ASKED.append("__class__")
        return int


class Meta(type):
    def __getattribute__(cls, name):
        ASKED.append(f"class.{name}")
        return type.__getattribute__(cls, name)


class OfMeta(Protocols, metaclass=Meta):
    n = 3


BASES = [
    Protocols,
    list,
    dict,
    collections.OrderedDict,
    tuple,
    int,
    str,
    set,
    float,
    Exception,
    torch.Tensor,
    torch.nn.Module,
]
OBJECTS = {
    **{base.__name__: observed(base) for base in BASES},
    "__getattr__": Missing,
    "__class__": Disguised,
    "of a metaclass": OfMeta,
    "class": lambda: OfMeta,
}


class Other:
    pass


@dataclasses.dataclass
class Pair:
    first: object
    second: object


def entered(x, o):
    with o:
        return x + 1


def passed(x, o):
    return x + 1, o


def matched(x, o):
    match o:
        case int():
            return x + 1
        case [_, _]:
            return x + 2
        case {"k": _}:
            return x + 3
        case _:
            return x + 4


def broken(x, o):
    y = x + 1
    print(end="")
    return y * 2, o


def raised(x, o):
    try:
        raise ValueError(o)
    except ValueError as error:
        return x + 1, error.args[0]


USES = {
    "list": lambda x, o: [o, x + 1],
    "value": lambda x, o: {"a": o, "b": x * 2},
    "key": lambda x, o: {o: x * 2},
    "set": lambda x, o: ({o}, x + 1),
    "is": lambda x, o: (x + 1, o is None),
    "type": lambda x, o: (x + 1, type(o) is int),
    "isinstance": lambda x, o: (x + 1, isinstance(o, Other), isinstance(o, int), isinstance(o, (list, str))),
    "isinstance of tensors": lambda x, o: (x + 1, isinstance(o, torch.Tensor)),
    "issubclass": lambda x, o: (x + 1, issubclass(type(o), Other)),
    "==": lambda x, o: (x + 1, o == 3),
    "in": lambda x, o: (x + 1, o in [1, 2]),
    "contains": lambda x, o: (x + 1, 3 in o),
    "hash": lambda x, o: (x + 1, hash(o)),
    "attribute": lambda x, o: x + o.n,
    "hasattr": lambda x, o: (x + 1, hasattr(o, "missing")),
    "getattr": lambda x, o: (x + 1, getattr(o, "missing", 4)),
    "setattr": lambda x, o: (setattr(o, "q", 5), x + 1),
    "vars": lambda x, o: (x + 1, sorted(map(str, vars(o)))),
    "past the hooks": lambda x, o: (x + 1, object.__getattribute__(o, "__class__")),
    "call": lambda x, o: x + o(),
    "callable": lambda x, o: (x + 1, callable(o)),
    "len": lambda x, o: x + len(o),
    "item": lambda x, o: x + o[1],
    "list of": lambda x, o: (x + 1, list(o)),
    "+": lambda x, o: x + (o + 1),
    "truth": lambda x, o: x + (1 if o else 2),
    "with": entered,
    "argument": passed,
    "starred": lambda x, o: (x + 1, *(o,)),
    "break": broken,
    "closure": lambda x, o: (lambda: (x + 1, o))(),
    "generator": lambda x, o: list(v for v in (o, x + 1)),  # noqa: C400
    "match": matched,
    "partial": lambda x, o: functools.partial(passed, o=o)(x),
    "map": lambda x, o: list(map(lambda v: v, [o])),  # noqa: C417
    "tree_map": lambda x, o: tree_map(lambda v: v, [x + 1, o]),
    "name": lambda x, o: (x + 1, f"{type(o).__name__}"),
    "id": lambda x, o: (x + 1, id(o) == id(o)),
    "operand": lambda x, o: x * o,
    "argument of torch": lambda x, o: torch.add(x, o),
    "index": lambda x, o: x[o],
    "dataclass": lambda x, o: Pair(o, x + 1).first,
    "sorted": lambda x, o: sorted([o], key=lambda v: 0),
    "exception": raised,
    "get": lambda x, o: {1: 2}.get(o, x + 1),
    "copy": lambda x, o: copy.copy([o])[0],
}

DIFFERENT = {("list", "index")}
"""torch asks an index that is a list for its `__class__`, `__torch_function__`, `__dlpack__` …; captured, its items are the index."""


def asked_in_two_calls(function, make, in_list, compiled):
    """The outcome and the names asked for, per call."""
    call = (lambda x, items: function(x, items[0])) if in_list else lambda x, o: function(x, o)
    if compiled:
        call = dynamo_lite.compile(call, backend="eager")
    o, x, calls = make(), torch.ones(3), []
    for _ in range(2):
        ASKED.clear()
        try:
            call(x, [o] if in_list else o)
            outcome = None
        except Exception as error:
            outcome = type(error)
        calls.append((outcome, list(ASKED)))
    return calls


@pytest.mark.parametrize("name", OBJECTS)
def test_what_is_asked(name):
    different = {}
    for use, function in USES.items():
        for in_list in (False, True):
            expected = asked_in_two_calls(function, OBJECTS[name], in_list, compiled=False)
            found = asked_in_two_calls(function, OBJECTS[name], in_list, compiled=True)
            if found != expected and (name, use) not in DIFFERENT:
                different[use, in_list] = (expected, found)
    assert different == {}


@pytest.mark.parametrize("cache", [False, True])
def test_no_metaclass_is_asked_by_guards_or_by_the_cache(cache, tmp_path):
    """The list that the hook appends to is not read: what is asked between the calls' own questions would stay in it."""
    asked = []

    class Meta(type):
        def __getattribute__(cls, name):
            asked.append(name)
            return super().__getattribute__(name)

    class Thing(metaclass=Meta):
        pass

    def f(x, thing):
        return x + 1, f"{type(thing).__name__}"

    with dynamo_lite.config.patch(cache=cache, cache_dir=str(tmp_path)):
        compiled = dynamo_lite.compile(f, backend="eager")
        for count in (1, 2, 3):
            compiled(torch.ones(3), Thing())
            assert asked == ["__name__"] * count
