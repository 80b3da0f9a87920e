"""Missing guards: a captured function that looks at A, at B and at A again has to say each time what eager execution says.

`combinations(seed)` is the product of `looks` (what is done with an object), `pairs` (objects that differ in one respect) and `WAYS` (how
the object comes in), in an order of its own per seed. `difference(combination)` runs one both ways on fresh objects: None, or what differs
in result, exception, what was printed, or the objects afterwards.
"""

import array
import functools
import gc
import inspect
import io
import itertools
import logging
import random
import re
import textwrap
import types
import typing
import warnings
import weakref

from dynamo_lite.config import config
from dynamo_lite.exc import TorchDynamoException
from dynamo_lite.frontend import convert
from dynamo_lite.record import log

from .. import harness
from .looks import LOOKS
from .pairs import PAIRS

WAYS = {
    "argument": "def program(x):\n{body}",
    "global": "def program():\n{body}",
    "cell": "def outer(x):\n    def program():\n{inner}\n    return program\nprogram = outer(None)",
    "attribute": "def program(box):\n    x = box.value\n{body}",
    "item": "def program(items):\n    x = items['x'][0]\n{body}",
}
LIBRARY = """
import abc, collections, collections.abc, contextlib, copy, dataclasses, enum, functools, inspect, io, itertools, math, operator, types
import typing, weakref
"""


def combinations(seed):
    """All (way, pair, look) in the order of this seed."""
    found = list(itertools.product(WAYS, PAIRS, LOOKS))
    random.Random(seed).shuffle(found)
    return found


def text(combination):
    """The program, with the name of its objects."""
    way, pair, look = combination
    body = textwrap.indent(look, "    ")
    return f"# objects: {pair}\n" + WAYS[way].format(body=body, inner=textwrap.indent(look, " " * 8))


def code_of(way, look):
    """A new code object each time: CPython 3.11 crashes where one that it has adapted to a method's calls is given a class."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return compile(text((way, "", look)), harness.FILE, "exec")


@functools.cache
def library():
    names = {}
    exec(LIBRARY, names)
    return {k: v for k, v in names.items() if not k.startswith("__")}


def members(*names):
    return lambda describe, value: [(n, describe(getattr(value, n, "none"))) for n in names]


def by_repr(describe, value):
    return harness.known(repr(value))


def by_attributes(describe, value):
    return describe.attributes(value)


def exception(describe, value):
    """An exception; that it has a `__dict__`, which is made when somebody asks for it, is no difference."""
    held = [v for v in gc.get_referents(value) if type(v) is dict and v]
    return [*describe.exception(value), *map(describe, held)]


KINDS = {
    BaseException: exception,
    (types.GenericAlias, types.UnionType, range, re.Pattern, re.Match, array.array, typing.TypeVar): by_repr,
    (bytes, bytearray, complex, slice, type(typing.List), type(typing.List[int]), inspect.Signature): by_repr,  # noqa: UP006
    types.MappingProxyType: lambda describe, value: describe(dict(value)),
    (set, frozenset): lambda describe, value: sorted(repr(Describer()(v)) for v in value),
    memoryview: lambda describe, value: (value.tobytes(), value.format, value.readonly),
    property: members("fget", "fset", "__doc__"),
    (staticmethod, classmethod): members("__func__"),
    types.CellType: lambda describe, value: describe.cell(value),
    types.CodeType: members("co_name", "co_consts", "co_varnames", "co_firstlineno"),
    types.FunctionType: members("__qualname__", "__defaults__", "__kwdefaults__", "__closure__", "__dict__", "__doc__"),
    weakref.ref: lambda describe, value: describe(value()),
    types.MethodWrapperType: members("__name__", "__self__"),
    (types.MethodDescriptorType, types.WrapperDescriptorType): members("__name__", "__objclass__"),
    io.StringIO: lambda describe, value: value.closed or (value.getvalue(), value.tell()),
    random.Random: lambda describe, value: random.Random.getstate(value)[1][:3],
}


class Describer(harness.Describer):
    """A value in plain values, of every kind that `pairs` and `looks` make."""

    def __call__(self, value):
        cls = type(value)
        known = super().__call__(value)
        if issubclass(cls, (type, types.ModuleType)) and id(value) not in self.seen:
            self.seen[id(value)] = len(self.seen)
            names = type.__dict__["__dict__"].__get__(value) if issubclass(cls, type) else value.__dict__
            return *known, [(n, self(names[n])) for n in ("a", "b", "new", "p") if n in names]
        if cls is types.BuiltinFunctionType and type(value.__self__) is list:
            return *known, self(value.__self__)
        return known

    def attributes(self, value):
        return [(name, part) for name, part in super().attributes(value) if name != "__weakref__"]

    def parts(self, value):
        for kinds, describe in KINDS.items():
            if issubclass(type(value), kinds):
                return describe(self, value)
        return super().parts(value)


class Case:
    """One combination, run once."""

    def __init__(self, combination, captured):
        self.way, self.pair, look = combination
        self.names = {**library(), "__name__": "fuzz", "__builtins__": __builtins__, "OUT": io.StringIO()}
        exec(code_of(self.way, look), self.names)
        self.program = self.names["program"]
        self.box, self.items = Box(), {}
        self.fn = convert.Region(lambda gm, inputs: gm.forward).wrap(self.program) if captured else self.program
        self.objects, self.results = [], []

    def call(self, x):
        if self.way == "argument":
            return self.fn(x)
        if self.way == "attribute":
            self.box.value = x
            return self.fn(self.box)
        if self.way == "item":
            self.items["x"] = [x]
            return self.fn(self.items)
        if self.way == "global":
            self.names["x"] = x
        else:
            self.program.__closure__[self.program.__code__.co_freevars.index("x")].cell_contents = x
        return self.fn()

    def outcome(self, x):
        try:
            return "returned", self.call(x)
        except TorchDynamoException:
            raise
        except Exception as error:
            return "raised", error

    def observe(self, x):
        self.names.setdefault("KEPT", x)
        if issubclass(type(x), (BaseException, io.StringIO)):
            object.__getattribute__(x, "__dict__")  # there from now on: what is asked for the state tells
        self.objects.append(x)
        outcome = self.outcome(x)
        self.results.append(outcome[1])
        describe = Describer()
        return {
            "outcome": describe(outcome),
            "objects": describe(self.objects),
            "printed": harness.known(self.names["OUT"].getvalue()),
        }

    def run(self):
        """What was observed at each call, and what is left of iterators in the end."""
        seen = []
        try:
            for x in PAIRS[self.pair]():
                seen.append(self.observe(x))
        except TorchDynamoException:
            raise
        except Exception as error:  # the look has changed the object so that the pair can't go on
            seen.append({"pair": harness.plain(error)})
        left = [harness.drain(v) for v in [*self.objects, *self.results] if hasattr(type(v), "__next__")]
        return [*seen, {"left": left}]


class Box:
    """What has `x` as an attribute."""


def run(combination, captured):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Case(combination, captured).run()


def difference(combination, seconds=20.0):
    """None if eager and captured execution agree, else `kind: details`. Raises TooLong if eager execution does not end."""
    with harness.limit(1):
        expected = run(combination, captured=False)
    log.reset()
    logging.getLogger("dynamo_lite").setLevel(logging.CRITICAL)
    try:
        with harness.limit(seconds), config.patch(capture_pure_python=True, suppress_errors=False, debug=True):
            actual = run(combination, captured=True)
    except harness.TooLong:
        return "hang: captured execution did not end"
    except Exception as error:
        return f"internal: {type(error).__name__}: {error}"
    if expected == actual or any(run(combination, captured=False) != expected for _ in range(3)):
        return None
    return first_difference(expected, actual)


def first_difference(expected, actual):
    for call, (one, other) in enumerate(zip(expected, actual, strict=False)):
        for name in {**one, **other}:
            if one.get(name) != other.get(name):
                return f"{name}: call {call}: expected {one.get(name)}\n    captured {other.get(name)}"
    return f"calls: expected {len(expected)}, captured {len(actual)}"
