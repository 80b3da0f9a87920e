"""Weak references, proxies and weak sets. Needs no torch."""

import collections.abc
import weakref

import pytest

from dynamo_lite.config import config
from tests.helpers.capturing import new_region, same, stop, wrapped


class TestWeakReferences:
    def test_of_objects_made_here(self):
        def program():
            class Node:
                pass

            a, b = Node(), Node()
            a.next, b.back = b, weakref.proxy(a)
            b.back.note = 5
            ref = weakref.ref(b)
            stop()
            return a.note, ref() is b, ref is weakref.ref(b), b.back.next is b, weakref.proxy(a) is b.back

        same(program)

    def test_an_object_that_may_be_gone_is_asked_for(self):
        def program():
            class Node:
                pass

            a = Node()
            ref = weakref.ref(a)
            before = ref() is a
            del a
            return before, ref() is None

        same(program)


def test_a_weak_reference_to_what_only_the_stack_holds():
    events = []

    class Breaking:
        def __init__(self):
            stop()

    def program():
        weakref.ref(Breaking(), lambda reference: events.append("died"))
        events.append("after")

    with config.patch(capture_pure_python=True, debug=True):
        captured = wrapped(program)
        for fn in (program, captured, captured):
            events.clear()
            fn()
            assert events == ["died", "after"]


def test_looking_into_a_weak_set_asks_no_attribute():
    class Asked:
        def __getattribute__(self, name):
            reads.append(name)
            return object.__getattribute__(self, name)

    reads = []
    known = weakref.WeakSet()

    def program(o):
        return len(known), o in known

    with config.patch(capture_pure_python=True, debug=True):
        captured = wrapped(program)
        o = Asked()
        assert captured(o) == captured(o) == (0, False)
        known.add(o)
        assert captured(o) == (1, True)
    assert reads == []


@pytest.mark.usefixtures("pure_python")
def test_a_proxy_is_hashable_for_isinstance():
    kept = type("K", (), {})()
    proxy = weakref.proxy(kept)
    assert wrapped(lambda x: isinstance(x, collections.abc.Hashable))(proxy)


class Thing:
    pass


@pytest.mark.usefixtures("pure_python")
def test_counts_after_a_break():
    def counted():
        o = Thing()
        proxy = weakref.proxy(o)
        ref = weakref.ref(o)
        again = weakref.ref(o)
        same = ref is again
        both = weakref.getweakrefcount(o)
        del proxy
        return same, both, weakref.getweakrefcount(o)

    assert counted() == new_region().wrap(counted)() == (True, 2, 1)


@pytest.mark.usefixtures("pure_python")
def test_a_function_behind_a_reference_may_be_gone():
    def check():
        holder = Thing()

        def callback():
            pass

        ref = weakref.ref(callback)
        weakref.finalize(holder, callback)
        del callback
        stop(holder)
        before = ref() is None
        del holder
        return before, ref() is None

    assert check() == new_region().wrap(check)() == (False, True)


# -- callbacks that are due behind a break


class Referred:
    pass


def weak_set():
    found = weakref.WeakSet()
    found.add(Referred())
    return len(found)


def weak_set_of_generators():
    found = weakref.WeakSet()
    found.add(i for i in ())
    return len(found)


def values():
    found = weakref.WeakValueDictionary()
    found[1] = Referred()
    return len(found)


def variables_end_in_their_order():
    called = []
    ended = (lambda: made(called))()
    return ended, called


def made(called):
    obj = Referred()
    reference = weakref.ref(obj, lambda reference: called.append("ended"))
    return len(called), reference() is obj


@pytest.mark.parametrize("program", [weak_set, weak_set_of_generators, values, variables_end_in_their_order])
def test_callbacks_behind_a_break(program):
    same(program)
