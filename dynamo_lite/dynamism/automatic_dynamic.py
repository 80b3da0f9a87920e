"""What earlier compilations saw of the sizes and numbers in a frame's inputs.

Input: a function and its bound arguments. Output: a mapping from access paths to what `dynamic_shapes` remembers under them.
Invariant: a size is remembered under the variable and the function that owns it, or the line at which that function goes on, never under
the position that the variable has in a resume function.

A resume function that goes on for other frames gets their variables in nested lists (`__inner`, `__inner_args`). Which frames these are
differs from break to break, and their code differs from call to call with the variables that are alive. So `__inner_args[1][3].shape` is
looked up as `x.shape` of the inner function whose `x` it is. A value without a name (`__stack_0`) belongs to one place in the source.

A function that all classes of modules share (`Module._wrapped_call_impl`) counts as one function per class: sizes that vary for a dropout
are fixed for an embedding. At a break, variables are remembered for each frame of the stack, also for frames that have been part of
another frame so far. The value that the breaking instruction gives is seen for the first time in the resume function: a size of it that
equals a size which varies there is taken to vary as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping, Sequence
from inspect import CO_VARARGS
from types import CodeType, FunctionType
from typing import Any

from dynamo_lite.guards.ir import DICT_ITEM, INDEX, LOCAL, Steps, plain
from dynamo_lite.isa.resume import is_resumed, waiting_frames
from dynamo_lite.record import Function

from . import dynamic_shapes
from .observed_values import is_module, sizes_of

Known = dict[Any, Any]
"""(kind, access path) to what was seen, see `dynamic_shapes`."""

Place = tuple[CodeType, int] | Function | tuple[Function, Any]
"""A function and the class of its module (0 if there is none); function and line of what is resumed there, for what lies on the stack
also the columns."""

Memory = dict[Place, Known]


def path_of(variable: str) -> Steps:
    """The access path of a local variable."""
    return ((LOCAL, variable),)


def item_of(path: Steps, kind: int, key: object) -> Steps:
    """The access path of an item: of a list or tuple (`kind` INDEX) or of a dict (DICT_ITEM)."""
    return (*path, (kind, plain(key)))


def item_number(path: Steps, prefix: Steps) -> int | None:
    """Which item of the list at `prefix` a path leads through; None if it does not."""
    n = len(prefix)
    if len(path) <= n or path[:n] != prefix:
        return None
    kind, number = path[n]
    return number if kind == INDEX else None


def hints_of(known: Memory, function: FunctionType, values: Sequence[Any]) -> Known | MutableMapping[Any, Any]:
    """The memory for a call: the sizes and numbers seen. `known` is filled on demand."""
    code = function.__code__
    if not is_resumed(code):
        return known.setdefault((code, _class_of_module(code, values)), {})
    return _Hints(known, code, values)


def seen_by(known: Memory, code: CodeType, values: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    """All that is remembered for a call: of its frame, and of those that it goes on for."""
    if not is_resumed(code):
        yield from known.get((code, _class_of_module(code, values)), {}).items()
        return
    for each in (code, *(inner for inner, _ in waiting_frames(code, values))):
        for key in (_place_of_stack(each), Function.of(each)):
            yield from known.get(key, {}).items()


def module_of(code: CodeType, values: Sequence[Any]) -> Any:
    """The module whose frame it is: that of a method is its first argument, of what goes on for a method the first variable that is one.
    None if there is none."""
    if is_resumed(code):
        candidates = values
    elif code.co_argcount or not code.co_flags & CO_VARARGS:
        candidates = values[:1]
    else:
        candidates = values[code.co_kwonlyargcount][:1]
    return next(filter(is_module, candidates), None)


def _class_of_module(code: CodeType, values: Sequence[Any]) -> int:
    module = module_of(code, values)
    return 0 if module is None else id(type(module))


def place_of_call(code: CodeType, module: object) -> Place:
    """The place under which the variables of a function are remembered whose first argument is `module`, if that is a module."""
    return code, id(type(module)) if is_module(module) else 0


def note_values(known: Memory, function: FunctionType, values: Sequence[Any]) -> None:
    """Remember the sizes in a call that is not followed; `values` are real ones, in the order of the variables."""
    hints = hints_of(known, function, values)
    for name, value in zip(function.__code__.co_varnames, values, strict=False):
        _note_value(hints, path_of(name), value)


def note_ranks(
    known: Memory, function: FunctionType, values: Sequence[Any], told_by_all: Callable[[CodeType, Any], list[Any]]
) -> None:
    """Remember the sizes and ints that the arguments of a call have in all processes, which tell each other."""
    mine: Known = {}
    for name, value in zip(function.__code__.co_varnames, values, strict=False):
        _note_value(mine, path_of(name), value)
    hints = hints_of(known, function, values)
    for seen in told_by_all(function.__code__, mine):
        for (kind, path), value in seen.items():
            if kind != dynamic_shapes.NUMBER:
                dynamic_shapes.changed_dims(hints, path, value)
            elif type(hints.setdefault((kind, path), value)) is int and hints[kind, path] != value:
                hints[kind, path] = None


def _note_value(hints: Any, path: Steps, value: Any) -> None:
    if type(value) in (list, tuple):
        for i, item in enumerate(value):
            _note_value(hints, item_of(path, INDEX, i), item)
    elif type(value) is dict:
        for key, item in value.items():
            _note_value(hints, item_of(path, DICT_ITEM, key), item)
    elif type(value) is int:
        hints.setdefault((dynamic_shapes.NUMBER, path), value)
    else:
        sizes = sizes_of(value)
        if sizes is not None:
            dynamic_shapes.changed_dims(hints, path, sizes)


def _varying_sizes(known: Memory, code: CodeType, values: Sequence[Any]) -> frozenset[int]:
    """The sizes that dimensions which vary have in this call."""
    found: set[int | None] = set()
    for inner, variables in ((code, values), *waiting_frames(code, values)):
        hints = known.get(Function.of(inner), {})
        for name, value in zip(inner.co_varnames, variables, strict=False):
            sizes = sizes_of(value) or ()
            seen = hints.get((len(sizes), path_of(name)), ())
            found.update(size for size, before in zip(sizes, seen, strict=False) if before is None)
    return frozenset(size for size in found if size is not None and size not in (0, 1))


def _place_of_stack(code: CodeType) -> Place:
    return Function.of(code), next((position for position in code.co_positions() if position[3]), None)


def paths_of_waiting(code: CodeType, values: Sequence[Any]) -> Iterator[tuple[Steps, CodeType, Sequence[Any]]]:
    """For each frame that waits, outermost first: the access path of its variables, its code and the variables."""
    path: Steps = ()
    for inner, variables in waiting_frames(code, values):
        path = item_of(path, INDEX, len(values) - 1) if path else path_of("__inner_args")
        yield path, inner, variables
        values = variables


def is_on_stack(path: Steps) -> bool:
    """Whether a path starts with a value of the operand stack, which has no name in the program."""
    kind, name = path[0]
    return kind == LOCAL and name.startswith("__stack_")


class _Hints(MutableMapping[Any, Any]):
    """The hints of a resumed frame and of those that it goes on for. Iterates over what it was asked for."""

    def __init__(self, known: Memory, code: CodeType, values: Sequence[Any]) -> None:
        self.known = known
        self.code = code
        self.levels = [(path, inner) for path, inner, _ in paths_of_waiting(code, values)][::-1]  # innermost first
        self.varying = _varying_sizes(known, code, values)  # at once: nothing here may keep the program's objects
        self.asked: dict[Any, None] = {}

    def _place(self, key: Any) -> tuple[Known, Any]:
        self.asked[key] = None
        kind, path = key
        code = self.code
        for prefix, inner in self.levels:
            variable = item_number(path, prefix)
            if variable is not None:
                code, path = inner, (*path_of(inner.co_varnames[variable]), *path[len(prefix) + 1 :])
                break
        place = _place_of_stack(code) if is_on_stack(path) else Function.of(code)
        return self.known.setdefault(place, {}), (kind, path)

    def __getitem__(self, key: Any) -> Any:
        hints, key = self._place(key)
        return hints[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        hints, key = self._place(key)
        hints[key] = value

    def setdefault(self, key: Any, default: Any = None) -> Any:
        hints, key = self._place(key)
        if key not in hints and type(default) is tuple and is_on_stack(key[1]):
            default = tuple([None if size in self.varying else size for size in default])
        return hints.setdefault(key, default)

    def __delitem__(self, key: Any) -> None:
        hints, key = self._place(key)
        del hints[key]

    def __iter__(self) -> Iterator[Any]:
        return (key for key in list(self.asked) if key in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)
