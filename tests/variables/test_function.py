"""Functions and cells as objects: annotations, signatures, globals, closures. Needs no torch."""

import inspect

import pytest

from dynamo_lite.config import config
from dynamo_lite.record import log
from tests.helpers.capturing import wrapped


def captured(fn, *args):
    log.reset()
    with config.patch(capture_pure_python=True, debug=True):
        result = wrapped(fn)(*args)
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


@pytest.mark.usefixtures("pure_python")
def test_what_a_signature_rests_on():
    def g(x: int = 1, *, k=2):
        pass

    fn = wrapped(lambda g: str(inspect.signature(g)))
    assert fn(g) == fn(g) == "(x: int = 1, *, k=2)"
    g.__defaults__ = (3,)
    assert fn(g) == "(x: int = 3, *, k=2)"
    g.__kwdefaults__ = {"k": 4}
    assert fn(g) == "(x: int = 3, *, k=4)"
    g.__annotations__ = {"k": str}
    assert fn(g) == "(x=3, *, k: str = 4)"
    g.__signature__ = inspect.Signature()
    assert fn(g) == "()"


def cell(*content):
    if content:
        (x,) = content
    return (lambda: x).__closure__[0]


@pytest.mark.usefixtures("pure_python")
@pytest.mark.parametrize("contents", [((1,), (2,)), ((2,), (1,)), ((1,), (1,)), ((), (1,)), ((1,), ()), ((), ())])
def test_cells_as_objects(contents):
    def program(c, d):
        try:
            found = c.cell_contents, d.cell_contents
        except ValueError as error:
            found = str(error)
        c.cell_contents = 5
        return found, c < d, c == d, c >= d, hasattr(c, "b"), getattr(c, "foo", 5), type(c).__name__, c.cell_contents

    def comparisons(c, d):
        return c < d, c <= d, c == d, c != d, c > d, c >= d

    for f in (program, comparisons):
        fn = wrapped(f)
        for _ in range(2):
            assert fn(*(cell(*content) for content in contents)) == f(*(cell(*content) for content in contents))


@pytest.mark.usefixtures("pure_python")
def test_methods_of_c_have_no_function():
    with pytest.raises(AttributeError):
        wrapped(lambda x: x.__func__)([].append)


@pytest.mark.usefixtures("pure_python")
def test_a_decorated_function_without_free_variables_has_no_closure():
    def decorated(x):
        @x
        def g():
            pass

        return g

    assert wrapped(decorated)(lambda g: [g])[0].__closure__ is None


@pytest.mark.usefixtures("pure_python")
def test_qualified_names_of_methods_of_c():
    class Kind(list):
        pass

    def f(x):
        return x.append.__qualname__, [].append.__qualname__, dict.fromkeys.__qualname__, (1).__add__.__qualname__

    assert wrapped(f)(Kind()) == f(Kind())
    assert f(Kind())[0].endswith("Kind.append")
