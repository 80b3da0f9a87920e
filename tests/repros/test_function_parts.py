"""What the compiler puts on the stack for a new function."""

from dynamo_lite import convert
from dynamo_lite.config import config
from dynamo_lite.record import log


def captured(fn, *args):
    log.reset()
    with config.patch(capture_pure_python=True, debug=True):
        result = convert.Region(lambda gm, inputs: gm.forward).wrap(fn)(*args)
    return result, [b.slug for b in log.breaks()]


def make(n):
    def inner(x: int, *rest, y: str = n) -> float:
        "the text"
        return x, y

    return inner


def test_annotations_of_a_new_function():
    """From 3.13 on they come in a tuple of pairs by an instruction of their own."""
    inner, breaks = captured(make, 5)
    assert breaks == []
    assert inner.__annotations__ == make(5).__annotations__
    assert (inner.__doc__, inner.__kwdefaults__, inner(1)) == ("the text", {"y": 5}, (1, 5))


def test_annotations_read_inside():
    def f():
        made = make(2)
        return made.__annotations__, made.__doc__, made

    (annotations, doc, made), _ = captured(f)
    assert annotations == make(2).__annotations__
    assert annotations is made.__annotations__
    assert doc == "the text"
