"""Objects with a `__del__` that captured code lets go of die when they die in eager execution."""

import collections
import functools
import gc
import itertools
import random
import sys
import types

import pytest

from dynamo_lite import _eval_frame
from dynamo_lite.config import config
from tests.helpers.capturing import captured, new_region, same, wrapped

LOG = []
KEPT = None
X = 1


class Finalized:
    """Its end shows in LOG."""

    def __init__(self, name="it"):
        self.name = name

    def __del__(self):
        LOG.append(self.name)


class Holder:
    """Has one attribute."""

    def __init__(self, value):
        self.value = value


class Slotted:
    """Has one slot."""

    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value


def list_clear(c):
    c.clear()
    return len(LOG)


def list_store(c):
    c[0] = 3
    return len(LOG)


def list_pop(c):
    c.pop()
    return len(LOG)


def list_slice(c):
    del c[:]
    return len(LOG)


def dict_store(c):
    c["x"] = 3
    return len(LOG)


def dict_delete(c):
    del c["x"]
    return len(LOG)


def dict_pop(c):
    c.pop("x")
    return len(LOG)


def set_pop(c):
    c.pop()
    return len(LOG)


def attribute_store(c):
    c.value = 3
    return len(LOG)


def attribute_delete(c):
    del c.value
    return len(LOG)


def attributes_clear(c):
    c.__dict__.clear()
    return len(LOG)


def attributes_replace(c):
    c.__dict__ = {}
    return len(LOG)


def global_store(c):
    global KEPT
    KEPT = c.pop()
    KEPT = None
    return len(LOG)


def variable_keeps_it(c):
    x = c[0]
    c[0] = 1
    before = len(LOG)
    del x
    return before, len(LOG)


def new_container_dies(c):
    x = [[c.pop()]]
    x = None
    return x, len(LOG)


PROGRAMS = [
    (list_clear, lambda: [Finalized()]),
    (list_store, lambda: [Finalized()]),
    (list_store, lambda: [[Finalized()]]),
    (list_store, lambda: [Holder(Finalized())]),
    (list_store, lambda: [Slotted({1: (Finalized(),)})]),
    (list_pop, lambda: [Finalized()]),
    (list_slice, lambda: [Finalized()]),
    (dict_store, lambda: {"x": Finalized()}),
    (list_clear, lambda: {"x": Finalized()}),
    (dict_delete, lambda: {"x": Finalized()}),
    (dict_pop, lambda: {"x": Finalized()}),
    (set_pop, lambda: {Finalized()}),
    (list_clear, lambda: {Finalized()}),
    (attribute_store, lambda: Holder(Finalized())),
    (attribute_store, lambda: Slotted(Finalized())),
    (attribute_delete, lambda: Holder(Finalized())),
    (attribute_delete, lambda: Slotted(Finalized())),
    (attributes_clear, lambda: Holder(Finalized())),
    (attributes_replace, lambda: Holder(Finalized())),
    (global_store, lambda: [Finalized()]),
    (variable_keeps_it, lambda: [Finalized()]),
    (new_container_dies, lambda: [Finalized()]),
]


@pytest.mark.parametrize(("program", "argument"), PROGRAMS)
def test_dies_when_it_does_in_eager(program, argument):
    compiled = captured(program)
    LOG.clear()
    expected = program(argument()), LOG[:]
    assert expected[1] == ["it"]
    for _ in range(3):
        LOG.clear()
        assert (compiled(argument()), LOG) == expected


@pytest.mark.parametrize(
    ("program", "plain", "finalized"),
    [
        (list_store, lambda: [1], lambda: [Finalized()]),
        (list_clear, lambda: ["a"], lambda: [Finalized()]),
        (dict_store, lambda: {"x": None}, lambda: {"x": Finalized()}),
        (dict_store, lambda: {}, lambda: {"x": Finalized()}),
        (attribute_store, lambda: Holder(None), lambda: Holder(Finalized())),
        (attribute_store, lambda: Slotted(None), lambda: Slotted(Finalized())),
    ],
)
def test_the_guards_ask_for_it(program, plain, finalized):
    """What was captured without a finalizer is not used where there is one."""
    compiled = captured(program)
    LOG.clear()
    assert (compiled(plain()), compiled(finalized()), LOG) == (0, 1, ["it"])


def test_other_objects_cause_no_version():
    """What the guards ask for is that there is no finalizer: not that the type, or the presence, is the same."""
    region = new_region()

    def program(c):
        c["x"] = 3
        return c["x"]

    wrapped = region.wrap(program)
    with config.patch(capture_pure_python=True, debug=True):
        assert [wrapped(c) for c in ({}, {"x": None}, {"x": [1]}, {"x": Holder(1)})] == [3, 3, 3, 3]
    assert len(region.cache_for(program.__code__).entries) == 1


def test_a_generator_ends_where_its_variable_does():
    """A suspended generator that dies runs its `finally`."""

    def numbers():
        try:
            yield 1
        finally:
            LOG.append("closed")

    def program(c):
        c.clear()
        return len(LOG)

    def suspended():
        generator = numbers()
        next(generator)
        return [generator]

    compiled = captured(program)
    LOG.clear()
    assert (compiled(suspended()), LOG) == (1, ["closed"])


def rebound(stop, c):
    x = c.pop()
    stop()
    x = len(LOG)
    return x, len(LOG)


def rebound_twice(stop, c):
    seen = []
    x = y = None
    for _ in range(2):
        stop()
        x, y = c.pop(), x
        seen.append(len(LOG))
    y = 1
    seen.append(len(LOG))
    x = 1
    return seen, y, len(LOG)


def deleted(stop, c):
    x = c.pop()
    stop()
    del x
    return len(LOG)


def unpacked(stop, c):
    x, y = c.pop(), [c.pop()]
    stop()
    x, y = len(LOG), y
    z = x, len(LOG)
    y = None
    return z, len(LOG)


def handled(stop, c):
    x = c.pop()
    try:
        stop()
        raise KeyError
    except KeyError:
        x = 3
        return len(LOG), x


@pytest.mark.parametrize("program", [rebound, rebound_twice, deleted, unpacked, handled])
def test_a_variable_bound_anew(program):
    """After a break the variables of the frame hold what they hold in eager execution, and no one else does."""

    def stop():
        """Cannot be captured."""
        sys._getframe()

    def arguments():
        return stop, [Finalized("a"), Finalized("b"), Finalized("c")]

    region = new_region()
    wrapped = region.wrap(program)
    LOG.clear()
    expected = program(*arguments()), LOG[:]
    for _ in range(2):
        LOG.clear()
        with config.patch(capture_pure_python=True, debug=True):
            assert (wrapped(*arguments()), LOG) == expected


class TestUnwantedResults:
    def test_they_die_at_once(self):
        class Noisy:
            def __init__(self, seen):
                self.seen = seen

            def __del__(self):
                self.seen.append("dead")

        make = _eval_frame.Uncaptured(lambda seen: Noisy(seen))

        def program():
            seen = []
            make(seen)
            seen.append("after")
            return list(seen)

        same(program)


@pytest.mark.usefixtures("pure_python")
def test_a_store_that_drops_an_object_with_a_finalizer():
    table = {}

    class Clears(int):
        def __del__(self):
            table.clear()

    table.update({i: Clears(i) for i in range(8)})

    def run():
        for key in table:
            if key == 2:
                table[2] = None

    with pytest.raises(RuntimeError, match="changed size during iteration"):
        wrapped(run)()


# -- reference cycles that wait for the collector


class Node:
    """No finalizer of its own."""


def handles(x, held):
    try:
        raise ValueError
    except ValueError as error:
        kept = error  # noqa: F841  (a cycle through this frame)
    return x + 1


def fails(held):
    raise ValueError


def handles_what_a_callee_raises(x, held):
    try:
        fails(held)
    except ValueError as error:
        kept = error  # noqa: F841
    return x + 1


def keeps_an_exception(x, held):
    try:
        fails(held)
    except ValueError as error:
        LOG.append(error)
    return x + 1


def list_of_itself(x, held):
    items = [held]
    items.append(items)
    return x + 1


def dict_of_itself(x, held):
    table = {"held": held}
    table["me"] = table
    held = None
    return x + 1


def function_of_itself(x, held):
    def again():
        return held, again

    return x + 1


def object_of_itself(x, held):
    node = Node()
    node.me, node.held = node, held
    return x + 1


def object_of_itself_in_a_callee(x, held):
    object_of_itself(x, held)
    return x + 1


def breaks_after_a_cycle(x, held):
    object_of_itself(x, held)
    print(end="")
    return x + 1


def stores_what_is_there(x, held):
    held.me = held
    held = None
    return x + 1


def cyclic():
    held = Finalized()
    held.me = held
    return held


def ends(function, make):
    """What the log has after each of three calls, and after a collection."""
    LOG.clear()
    gc.collect()
    gc.disable()
    lengths = []
    for _ in range(3):
        function(X, make())
        lengths.append(LOG.count("it"))
    gc.enable()
    LOG[:] = [entry for entry in LOG if entry == "it"]
    gc.collect()
    return *lengths, LOG.count("it")


@pytest.mark.parametrize("make", [Finalized, lambda: [Finalized()], lambda: Holder(Finalized()), cyclic])
@pytest.mark.parametrize(
    "program",
    [
        handles,
        handles_what_a_callee_raises,
        keeps_an_exception,
        list_of_itself,
        dict_of_itself,
        function_of_itself,
        object_of_itself,
        object_of_itself_in_a_callee,
        breaks_after_a_cycle,
    ],
)
def test_garbage_holds_what_it_holds_in_eager_execution(program, make):
    expected = ends(program, make)
    compiled = captured(program)
    assert ends(compiled, make) == expected
    assert expected[:3] == (0, 0, 0)
    compiled = captured(program)
    compiled(X, Node())  # a version for an argument that nobody looks at
    assert ends(compiled, make) == expected


def test_an_object_that_is_stored_where_it_is_already():
    compiled = captured(stores_what_is_there)
    assert ends(compiled, cyclic) == ends(stores_what_is_there, cyclic) == (0, 0, 0, 3)


BASES = {
    object: (), list: (), tuple: (), dict: (), set: (), frozenset: (), int: (), float: (), complex: (), str: (), bytes: (), bytearray: (),
    collections.deque: (), collections.OrderedDict: (), collections.defaultdict: (), collections.Counter: (), Exception: (1,),
    BaseException: (), KeyError: (1,), OSError: (2, "no file"), StopIteration: (1,), ImportError: ("m",),
    UnicodeDecodeError: ("utf-8", b"a", 0, 1, "x"), property: (len,), functools.partial: (len,), types.SimpleNamespace: (),
    types.ModuleType: ("m",), staticmethod: (len,), classmethod: (len,), map: (len, ()), filter: (None, ()), zip: (), enumerate: ((),),
    reversed: ((),), itertools.chain: (), random.Random: (1,),
}  # fmt: skip
"""What a class may derive from → arguments for an instance of it."""


@pytest.mark.parametrize("base", BASES)
def test_a_new_object_of_any_kind(base):
    cls = type("Derived", (base,), {"__del__": lambda self: LOG.append("it")})
    arguments = BASES[base]

    def dropped(x):
        cls(*arguments)
        return x + len(LOG)

    def bound(x):
        made = cls(*arguments)
        before = len(LOG)
        del made
        return x + before, len(LOG)

    def ended(x):
        def inner():
            made = cls(*arguments)  # noqa: F841

        inner()
        return x + len(LOG)

    for program in (dropped, bound, ended):
        compiled = captured(program)
        LOG.clear()
        expected = program(X), LOG[:]
        assert expected[1] == ["it"]
        for _ in range(3):
            LOG.clear()
            assert (compiled(X), LOG) == expected


def test_an_exception_that_is_raised_and_caught():
    class Finalizing(Exception):
        def __del__(self):
            LOG.append("it")

    def program(x):
        try:
            raise Finalizing
        except Finalizing:
            before = len(LOG)
        return x + before, len(LOG)

    compiled = captured(program)
    for _ in range(3):
        LOG.clear()
        assert compiled(X) == (X, 1)


@pytest.mark.parametrize("base", [object, list, Exception, map])
def test_a_class_that_gets_a_finalizer(base):
    cls = type("Derived", (base,), {})
    arguments = BASES[base]

    def program(x):
        cls(*arguments)
        return x + len(LOG)

    compiled = captured(program)
    LOG.clear()
    assert compiled(X) == compiled(X) == X
    cls.__del__ = lambda self: LOG.append("it")
    assert [compiled(X), compiled(X), len(LOG)] == [X + 1, X + 2, 2]
    del cls.__del__
    assert [compiled(X), len(LOG)] == [X + 2, 2]
