"""Objects that die without a word to their weak references, as streams and events of CUDA do in torch 2.11: no guard refers to them so."""

import weakref

import pytest
import torch

import dynamo_lite
from dynamo_lite import _eval_frame


class Event(torch.Event):
    """An event of a device, as a program sees one: a class in Python over one in C."""

    def __new__(cls):
        return super().__new__(cls, "cpu")

    def step(self):
        return 2 if self.is_wide else 1


class Plain:
    def step(self):
        return 2 if self.is_wide else 1


def fn(x, event):
    return x * event.step()


def called(event):
    event.is_wide = True
    compiled = dynamo_lite.compile(fn, backend="eager")
    for _ in range(8):
        assert compiled(torch.ones(2), event).tolist() == [2.0, 2.0]
    event.is_wide = False
    assert compiled(torch.ones(2), event).tolist() == [1.0, 1.0]
    return compiled


def test_no_weak_reference_to_an_event():
    event = Event()
    compiled = called(event)
    assert weakref.getweakrefs(event) == []
    del compiled


def test_other_objects_are_referred_to_weakly():
    plain = Plain()
    compiled = called(plain)
    assert weakref.getweakrefs(plain) != []
    dead = weakref.ref(plain)
    del plain
    assert dead() is None
    del compiled


def test_which_classes():
    assert not _eval_frame.can_refer_weakly(Event())
    assert not _eval_frame.can_refer_weakly(torch.Stream(device="cpu"))
    assert _eval_frame.can_refer_weakly(Plain())
    assert not _eval_frame.can_refer_weakly(3)
    with pytest.raises(TypeError, match="takes a tuple"):
        _eval_frame.set_silent_classes([Event])
