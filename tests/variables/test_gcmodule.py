"""The garbage collector, asked by the program: each question breaks the graph."""

import gc
import weakref

from dynamo_lite.config import config
from tests.helpers.capturing import captured
from tests.helpers.differential import breaks, capture

NOTES = []


class Noted:
    """Leaves a note when it is collected."""

    def __init__(self):
        self.me = self

    def __del__(self):
        NOTES.append(len(NOTES))


class Cyclic:
    def __init__(self):
        self.me = self


def settings():
    return config.patch(capture_pure_python=True, suppress_errors=False, debug=True)


def test_what_finalizers_of_earlier_garbage_do_is_seen():
    def count():
        gc.collect()
        return len(NOTES)

    with settings():
        compiled = capture(count, fullgraph=False)
        NOTES.clear()
        gc.disable()
        try:
            for expected in (1, 2, 3):
                Noted()
                assert compiled() == expected
        finally:
            gc.enable()


def test_new_objects_that_are_collected():
    def program():
        kept, lost = Cyclic(), Cyclic()
        references = weakref.ref(kept), weakref.ref(lost)
        del lost
        gc.collect()
        return [r() is not None for r in references], kept

    with settings():
        assert capture(program, fullgraph=False)()[0] == [True, False]


def test_the_frame_lets_go_of_something_first():
    breaks("xs.clear(); gc.collect()", "call-c-function", names={"gc": gc}, xs=[Cyclic()])
    breaks("del x; gc.collect()", "call-c-function", names={"gc": gc}, x=Cyclic())
    breaks("gc.is_tracked(())", "call-c-function", names={"gc": gc}, x=1)
    breaks("return gc.collect()", "call-c-function", names={"gc": gc})


def test_a_class_that_is_gone():
    def f():
        class Parent:
            pass

        class Child(Parent):
            pass

        before = len(Parent.__subclasses__())
        del Child
        gc.collect()
        return before, Parent.__subclasses__()

    assert f() == captured(f)() == (1, [])


def test_between_two_looks_at_all_objects_nothing_is_compiled():
    class Slotted:
        __slots__ = ("items",)

    def collect():
        gc.collect()

    def called(key):
        return [key]

    def other(key):
        return key

    def program():
        o = Slotted()
        o.items = [Noted(), o]
        other(o)
        o = None  # garbage with a finalizer now: the frame runs eagerly
        collect()
        before = len(gc.get_objects())
        for key in range(3):
            called(key)
        return len(gc.get_objects()) - before

    gc.disable()
    try:
        with settings():
            assert capture(program, fullgraph=False)() == 0
    finally:
        gc.enable()
