"""What the compiler puts on the stack for a new function."""

from dynamo_lite.config import config
from dynamo_lite.frontend import convert
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


def test_builtins_come_with_globals_that_are_made_at_the_same_time():
    def make():
        own = {"len": 5}
        namespace = {"x": 1, "__builtins__": own, "__name__": "there"}
        f = eval("lambda: len + x", namespace)
        return f, own, f()

    def program():
        f, own, result = make()
        return f.__builtins__ is own, f.__globals__["__builtins__"] is own, list(f.__globals__), f.__module__, result

    assert captured(program)[0] == program()
