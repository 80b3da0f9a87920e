"""Values as plain data and back: one declaration (`Form`) for each class gives both directions.

Input: a value; or data that another process has written. Output: data for `marshal`, `(name of the form, *data)`; or the value.
Invariant: reading makes nothing but what a form says. Data of a form that is not known raise `Mismatch`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

from dynamo_lite.exc import Mismatch

Data = tuple[Any, ...]

ATOMS = frozenset({type(None), bool, int, float, complex, str, bytes, type(Ellipsis)})
"""The types of what is its own data."""


class Form(NamedTuple):
    """How values look as data. `write(writer, value)` gives the data, or None where the value has another form; `read(reader, *data)` gives
    the value. `types`: of such values, exactly; empty: `write` is asked about all."""

    name: str
    write: Callable[[Any, Any], Data | None]
    read: Callable[..., Any]
    types: tuple[type, ...] = ()


class Codec:
    """Some forms. Those for certain types are tried first, then the others in their order."""

    def __init__(self, *forms: Form) -> None:
        self.forms = forms
        self._named = {form.name: form.read for form in forms}
        self._of_type: dict[type, list[Form]] = defaultdict(list)
        for form in forms:
            for cls in form.types:
                self._of_type[cls].append(form)
        self._of_any = [form for form in forms if not form.types]

    def write(self, writer: object, value: object) -> Data | None:
        """The value as data; None if it has none of the forms."""
        for form in (*self._of_type.get(type(value), ()), *self._of_any):
            data = form.write(writer, value)
            if data is not None:
                return (form.name, *data)
        return None

    def read(self, reader: object, data: Data) -> Any:
        """The value of data. Raises `Mismatch` if there is no such form, and whatever data of another shape lead to."""
        read = self._named.get(data[0])
        if read is None:
            raise Mismatch(f"data of an unknown form {data[0]!r}")
        return read(reader, *data[1:])

    def knows(self, data: object) -> bool:
        """Whether these are data of one of the forms."""
        return type(data) is tuple and data[0] in self._named


def collection(cls: type) -> Form:
    """Of a builtin class of collections. Items go through `writer.value` and `reader.value`."""
    return Form(
        cls.__name__,
        lambda writer, value: (tuple([writer.value(item) for item in value]),),
        lambda reader, items: cls([reader.value(item) for item in items]),
        (cls,),
    )


def record(cls: type, *fields: str) -> Form:
    """Of a class whose fields are the arguments that make it. Without `fields`: of a named tuple or a dataclass."""
    fields = fields or cls.__match_args__  # type: ignore[attr-defined]
    return Form(
        cls.__name__,
        lambda writer, value: tuple([writer.value(getattr(value, name)) for name in fields]),
        lambda reader, *data: cls(*[reader.value(part) for part in data]),
        (cls,),
    )
