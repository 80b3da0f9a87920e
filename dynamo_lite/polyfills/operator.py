"""Stand-ins for the getters of `operator`, and for its functions that are no operators.

Mirrors `Modules/_operator.c`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from .c_calls import leave_to_c
from .registry import polyfill, stands_for


@stands_for(operator.itemgetter)
class itemgetter:
    def __init__(self, item: Any, /, *items: Any) -> None:
        self.items = (item, *items)

    def __call__(self, obj: Any, /) -> Any:
        if len(self.items) == 1:
            return obj[self.items[0]]
        return tuple([obj[item] for item in self.items])

    @staticmethod
    def rebuild(cls: Any, items: tuple[Any, ...]) -> Any:
        return cls(*items)

    @staticmethod
    def fields_of(getter: Any) -> dict[str, Any]:
        return {"items": getter.__reduce__()[1]}


@stands_for(operator.attrgetter)
class attrgetter:
    def __init__(self, attr: str, /, *attrs: str) -> None:
        self.names = (attr, *attrs)
        for name in self.names:
            if not isinstance(name, str):
                leave_to_c()

    def __call__(self, obj: Any, /) -> Any:
        if len(self.names) == 1:
            return _attribute(obj, self.names[0])
        return tuple([_attribute(obj, name) for name in self.names])

    @staticmethod
    def rebuild(cls: Any, names: tuple[str, ...]) -> Any:
        return cls(*names)

    @staticmethod
    def fields_of(getter: Any) -> dict[str, Any]:
        return {"names": getter.__reduce__()[1]}


def _attribute(obj: Any, path: str) -> Any:
    for name in path.split("."):
        obj = getattr(obj, name)
    return obj


@stands_for(operator.methodcaller)
class methodcaller:
    def __init__(self, name: str, /, *args: Any, **kwargs: Any) -> None:
        if not isinstance(name, str):
            leave_to_c()
        self.name, self.args, self.keywords = name, args, tuple(kwargs.items())

    def __call__(self, obj: Any, /) -> Any:
        return getattr(obj, self.name)(*self.args, **dict(self.keywords))

    @staticmethod
    def rebuild(cls: Any, name: str, args: tuple[Any, ...], keywords: tuple[Any, ...]) -> Any:
        return cls(name, *args, **dict(keywords))

    @staticmethod
    def fields_of(caller: Any) -> dict[str, Any]:
        made, args = caller.__reduce__()
        if made is type(caller):
            return {"name": args[0], "args": args[1:], "keywords": ()}
        return {
            "name": made.args[0],
            "args": args,
            "keywords": tuple(made.keywords.items()),
        }  # `made` is a partial of the class


# -- functions


@polyfill(operator.contains)
def contains(a: Any, b: Any, /) -> bool:
    return b in a


@polyfill(operator.setitem)
def setitem(a: Any, b: Any, c: Any, /) -> None:
    a[b] = c


@polyfill(operator.delitem)
def delitem(a: Any, b: Any, /) -> None:
    del a[b]


if hasattr(operator, "call"):

    @polyfill(operator.call)
    def call(obj: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        return obj(*args, **kwargs)
