"""What CPython's C code does, and says when it raises, where versions differ: asked of the running interpreter.

The texts are format strings. `{name}` stands for the name of the object's type, `{full_name}` for the one with its module, other fields
are named where the text is used; a text need not have all of them. Mirrors `Objects/`, `Modules/` and `Python/ceval.c`.
"""

import operator
from collections import OrderedDict
from collections.abc import Callable


def _error(call: Callable[..., object], *args: object) -> Exception:
    try:
        call(*args)
    except Exception as error:
        return error
    raise AssertionError(f"{call} has not raised")


def _raised(call: Callable[..., object], *args: object) -> str:
    return str(_error(call, *args))


def _unpack() -> None:
    _first, _second = [0, 0, 0]


class _Hinted:
    asked = False

    def __iter__(self):
        return iter(())

    def __length_hint__(self):
        type(self).asked = True
        return 0


tuple(_Hinted())
TUPLE_ASKS_FOR_LENGTH = _Hinted.asked


class _Counted:
    asked = 0

    def __hash__(self):
        type(self).asked += 1
        return 1


_counted = (_Counted(),)
TUPLE_KEEPS_HASH = [hash(_counted), hash(_counted), _Counted.asked][-1] == 1


class _OwnTuple(tuple):
    pass


ERROR_KEEPS_TUPLE = type(_error(OrderedDict().pop, _OwnTuple((0,))).args) is _OwnTuple
"""Whether an error whose arguments are a tuple of a subclass has that very tuple."""


def _of_key(text: str) -> str:
    own = "unhashable type: 'list'"
    return text.replace(own, "{error}").replace("'list'", "'{full_name}'")


UNHASHABLE_KEY = _of_key(_raised({}.__getitem__, []))
UNHASHABLE_ELEMENT = _of_key(_raised(set().add, []))
NOT_IN_LIST = _raised([].index, 0).replace("0", "{item}")
NOT_A_CONTAINER = _raised(operator.contains, 0, 0).replace("'int'", "'{name}'")
NO_ITEMS_OF_SLICE = _raised([].__setitem__, slice(None), 0)
NO_ITEMS_OF_EXTENDED_SLICE = _raised([].__setitem__, slice(None, None, 2), 0)
SETTER_EXPECTED = _raised([].__setitem__, 0).partition(" 2")[0].replace("__setitem__", "{dunder}")
EMPTY_SLOT = (
    _raised(getattr, type("C", (), {"__slots__": ("s",), "__module__": "m"})(), "s")
    .replace("'m.C'", "'{full_name}'")
    .replace("'C'", "'{name}'")
    .replace("'s'", "'{attribute}'")
)
NO_PAIR = _raised(dict, [0]).replace("#0", "#{number}")
NO_NOTE = _raised(ValueError().add_note, 0).replace("int", "{name}")
NO_PAIR_NOTE = "".join(getattr(_error(dict, [0]), "__notes__", ())).replace("#0", "#{number}")
"""Empty where the exception gets none: any TypeError is replaced there."""
TOO_MANY_VALUES = _raised(_unpack).replace("2", "{wanted}").replace("3", "{there}")
"""Of a list, tuple or dict, whose length C knows."""
TOO_MANY_ITEMS = TOO_MANY_VALUES.partition(", got")[0].rstrip(")") + ")"
NO_BASE = _raised(super, int, "").replace("instance of str", "{what}").replace("(int)", "({start})")
"""`what` is "type C" or "instance of C"."""
