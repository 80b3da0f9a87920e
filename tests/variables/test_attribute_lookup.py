"""Reading, storing and deleting attributes of objects, as in CPython's `Objects/object.c`. Needs no torch."""

import pytest

from dynamo_lite.record import log
from tests.helpers.capturing import wrapped
from tests.helpers.program_texts import agrees


def test_own_getattribute_is_not_called_by_the_engine():
    agrees("""
    G = 0
    class C:
        def __init__(self, v):
            self.v = v
        def __getattribute__(self, name):
            global G
            G += 1
            return object.__getattribute__(self, name)
    def program(o):
        o.w = o.v
        made = C(1)
        stop(1, made)
        return made.v
    def make_args(k):
        return [C(2)]
    """)


def test_class_of_an_object_is_exchanged_past_its_setattr():
    agrees("""
    class Before:
        pass
    class After:
        def __setattr__(self, name, value):
            object.__setattr__(self, name, value)
            stop('setattr', name)
    def program(o):
        o.__class__ = After
        o.__class__ = After
    def make_args(k):
        return [Before()]
    """)


def test_slots_of_a_class_with_getattr():
    agrees("""
    class Slotted:
        __slots__ = ('v', 'items')
        def __init__(self, v):
            self.items = [v]
        def __getattr__(self, name):
            return stop('getattr', name)
    class Sub(Slotted):
        def __init__(self, v):
            super().__init__(v)
            self.v = stop('init', v)
    def program(a, o):
        made = Sub(a)
        found = [o.items, o.v, made.v, made.w]
        del o.items
        return found, o.items
    def make_args(k):
        return [k, Slotted(k)]
    """)


@pytest.mark.parametrize("name", ["__getattr__", "__getattribute__", "__setattr__", "__delattr__"])
@pytest.mark.parametrize("value", ["None", "5", "Called()", "staticmethod(lambda *args: len(args))", "abs", "len"])
def test_hooks_of_attributes_that_are_no_functions(name, value):
    agrees(f"""
    class Called:
        def __call__(self, *args):
            return args
    class C:
        {name} = {value}
    def program(use):
        o = KEPT
        try:
            if use == 0:
                return o.missing, o.k
            if use == 1:
                o.k = 4
            else:
                del o.k
        except Exception as error:
            return type(error), str(error)
    KEPT = C()
    def make_args(k):
        return [k]
    """)


@pytest.mark.usefixtures("pure_python")
def test_the_state_of_an_object_is_its_dictionary():
    K = type("K", (), {})
    x = K()
    x.a = 1
    assert wrapped(lambda x: x.__reduce_ex__(2)[2])(x) is x.__dict__


@pytest.mark.usefixtures("pure_python")
def test_a_class_that_hides_its_dictionary():
    K = type("K", (), {"__dict__": property(lambda self: {"a": 1})})
    fn = wrapped(lambda x: (x.__dict__, hasattr(x, "a")))
    assert fn(K()) == ({"a": 1}, False)


class Attributes:
    def __init__(self, value):
        self.value = value


class More(Attributes):
    pass


def add_one(a, b):
    a.value += 1
    return b.value


def store_and_delete(a, b):
    a.value = a.other = 3
    del a.other
    return b.value, hasattr(b, "other")


@pytest.mark.usefixtures("pure_python")
@pytest.mark.parametrize("cls", [Attributes, More], ids=["same class", "subclass"])
@pytest.mark.parametrize("program", [add_one, store_and_delete])
@pytest.mark.parametrize("first", [False, True])
def test_two_objects_may_have_one_dict(program, cls, first):
    """As in the "Borg" pattern. A version for objects with a dict each does not fit two that share one, nor the other way round."""

    def outcome(fn, share):
        a, b = Attributes(1), cls(1)
        if share:
            b.__dict__ = a.__dict__
        return fn(a, b), vars(a), vars(b)

    log.reset()
    fn = wrapped(program)
    for share in (first, not first, first, not first):
        assert outcome(fn, share) == outcome(program, share)
    assert len(log.frames) == 2 and not log.breaks()
