"""Values that are read and then dropped, or only passed on: that they are there is part of what was seen. Needs no torch."""

import pytest

from tests.helpers.capturing import wrapped

pytestmark = pytest.mark.usefixtures("pure_python")

COUNT = 1


def test_a_global_that_is_gone(monkeypatch):
    def read():
        COUNT
        return 1

    fn = wrapped(read)
    assert fn() == 1
    monkeypatch.delitem(globals(), "COUNT")
    with pytest.raises(NameError, match="COUNT"):
        fn()


def test_a_cell_that_is_empty():
    def outer(items):
        for last in items:
            pass

        def read():
            last
            return 1

        return read

    bound = outer([1])
    fn = wrapped(bound)
    assert fn() == 1
    del bound.__closure__[0].cell_contents
    with pytest.raises(NameError, match="last"):
        fn()


def test_a_cell_after_a_break():
    """The continuation takes a default from the cell, and sees that it is empty."""

    def program(n):
        for _, last in zip([0], [0] * n, strict=False):
            pass
        print(end="")

        def inner(default=last):
            return last, default

        return 1

    fn = wrapped(program)
    assert [fn(1), fn(2)] == [1, 1]
    with pytest.raises(UnboundLocalError, match="last"):
        fn(0)


def test_an_attribute_that_is_gone():
    class Holder:
        def __init__(self):
            self.x = 1

    def read(holder):
        holder.x
        return 1

    fn, holder = wrapped(read), Holder()
    assert fn(holder) == 1
    del holder.x
    with pytest.raises(AttributeError, match="x"):
        fn(holder)
