"""Generic aliases of builtin types and of `typing`. Needs no torch."""

import copy
import types
import typing

import pytest

from tests.helpers.capturing import same, wrapped


def test_iteration_over_a_generic_alias():
    same(lambda: ([*list[int]] == [*list[int]], 3 in list[int], [repr(item) for item in list[int]]))


@pytest.mark.usefixtures("pure_python")
def test_attributes_of_an_alias_are_those_of_its_origin():
    def observe(x):
        return hasattr(x, "append"), hasattr(x, "__len__"), x.__doc__, x.__name__, x.__origin__, x.__mro_entries__(())

    assert wrapped(observe)(list[int]) == observe(list[int])
    with pytest.raises(TypeError, match="is not a generic class"):
        wrapped(lambda x: x["a"])(list[int])

    class Box(list):
        pass

    alias = types.GenericAlias(Box, (int,))
    assert wrapped(lambda: alias())().__orig_class__ is alias
    assert type(wrapped(lambda: list[int]())()) is list


@pytest.mark.usefixtures("pure_python")
def test_calling_an_alias_of_typing():
    for alias in (typing.List, typing.List[int]):  # noqa: UP006
        with pytest.raises(TypeError, match="cannot be instantiated"):
            wrapped(lambda x: x())(alias)

    class Box(typing.Generic[typing.TypeVar("T")]):
        pass

    made = wrapped(lambda x: x())(Box[int])
    assert type(made) is Box and made.__orig_class__ == Box[int]
    with pytest.raises(TypeError):
        wrapped(lambda x: x())(typing.Optional[int])  # noqa: UP045
    assert wrapped(lambda x: x(3))(typing.NewType("N", int)) == 3


@pytest.mark.usefixtures("pure_python")
def test_attributes_of_an_alias_of_typing_are_those_of_its_origin():
    class Box(typing.Generic[typing.TypeVar("T")]):
        a = 1

    fn = wrapped(lambda x: (x.a, hasattr(x, "b"), x.__origin__))
    assert fn(Box[int]) == (1, False, Box)
    Box.a = 2
    assert fn(Box[int]) == (2, False, Box)
    Box.b = 3
    assert fn(Box[int]) == (2, True, Box)
    # `typing` keeps what it has made.
    assert wrapped(lambda x: Box[int] is x)(Box[int])


@pytest.mark.usefixtures("pure_python")
def test_an_alias_that_has_no_hash():
    alias = typing.Annotated[int, []]
    for fn in (hash, lambda x: {x: 1}, lambda x: {1: 2}.get(x)):
        with pytest.raises(TypeError, match="unhashable type: 'list'"):
            wrapped(lambda x, fn=fn: fn(x))(alias)
    assert wrapped(copy.deepcopy)(alias) == alias


@pytest.mark.usefixtures("pure_python")
def test_a_subscript_of_type():
    assert wrapped(lambda x: x["a"])(type) == types.GenericAlias(type, "a")
