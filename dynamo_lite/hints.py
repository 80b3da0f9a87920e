"""What earlier compilations saw of the sizes and numbers of a frame's inputs.

Input: a function and its bound arguments. Output: a mapping from access paths to what `shapes` remembers under them.
Invariant: a variable is remembered with the function whose variable it is, and the line where that goes on. A resumed frame that goes on
for others gets theirs in lists within lists (`__inner`, `__inner_args`). Which frames those are differs from break to break, and which
code goes on for a function differs from call to call, with what else is alive; the variable does not. So `__inner_args[1][3].shape`
is found as `x.shape` with the inner function whose `x` it is. Only what has no name (`__stack_0`) belongs to one code.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from types import CodeType, FunctionType
from typing import Any

from .record import Function
from .resume import is_resumed, waiting_frames

Known = dict[Any, Any]
"""Access path, or (kind, access path), to what was seen."""

Memory = dict[CodeType | Function, Known]
"""By code object, or by function and line for what is resumed there."""


def hints_of(known: Memory, function: FunctionType, values: Sequence[Any]) -> Known | MutableMapping[Any, Any]:
    """What is remembered for a call. `known` is filled on demand."""
    code = function.__code__
    if not is_resumed(code):
        return known.setdefault(code, {})
    return _Hints(known, code, list(paths_of_waiting(code, values))[::-1])


def seen_by(known: Memory, code: CodeType, values: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    """All that is remembered for a call: of its frame, and of those that it goes on for."""
    for each in (code, *(inner for inner, _ in waiting_frames(code, values))):
        for key in (each, Function.of(each)):
            yield from known.get(key, {}).items()


def paths_of_waiting(code: CodeType, values: Sequence[Any]) -> Iterator[tuple[str, CodeType]]:
    """Of each frame that waits, outermost first: the access path of its variables, and its code."""
    path = ""
    for inner, variables in waiting_frames(code, values):
        path = f"{path}[{len(values) - 1}]" if path else "__inner_args"
        yield path, inner
        values = variables


class _Hints(MutableMapping[Any, Any]):
    """The hints of a resumed frame and of those that it goes on for. Iterates over what it was asked for."""

    def __init__(self, known: Memory, code: CodeType, levels: list[tuple[str, CodeType]]) -> None:
        self.known = known
        self.code = code
        self.levels = levels  # innermost first
        self.asked: dict[Any, None] = {}

    def _place(self, key: Any) -> tuple[Known, Any]:
        self.asked[key] = None
        kind, path = key if type(key) is tuple else (None, key)
        code = self.code
        for prefix, inner in self.levels:
            before, found, rest = path.partition(prefix + "[")
            if found:
                number, _, rest = rest.partition("]")
                code, path = inner, before + inner.co_varnames[int(number)] + rest
                break
        hints = self.known.setdefault(code if "__stack_" in path else Function.of(code), {})
        return hints, path if kind is None else (kind, path)

    def __getitem__(self, key: Any) -> Any:
        hints, key = self._place(key)
        return hints[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        hints, key = self._place(key)
        hints[key] = value

    def __delitem__(self, key: Any) -> None:
        hints, key = self._place(key)
        del hints[key]

    def __iter__(self) -> Iterator[Any]:
        return (key for key in list(self.asked) if key in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)
