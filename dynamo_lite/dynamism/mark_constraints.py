"""What `mark_dynamic` and the weaker marks demand of the sizes of inputs.

Input: marked tensors, and what a trace has assumed about their sizes. Output: nothing, or a `UserError` with the dimension, the line of
the program that broke the promise, and the remedy.
Invariant: a promise of `mark_dynamic` is kept by the compiled code or is an error; the weaker marks are never errors.
"""

from __future__ import annotations

import functools
import linecache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import torch

from dynamo_lite.config import config
from dynamo_lite.exc import UserError, UserErrorType
from dynamo_lite.guards import ir
from dynamo_lite.markers import DYNAMIC, DYNAMIC_RANGE, STRICT_UNBACKED, UNBACKED, UNBACKED_BOUNDS
from dynamo_lite.record import Specialization

if TYPE_CHECKING:
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.guards.ir import GuardNode


class Bounds(NamedTuple):
    """The range that a mark promises; None is unbounded."""

    min: int | None = None
    max: int | None = None

    def __contains__(self, size: object) -> bool:
        return (self.min is None or size >= self.min) and (self.max is None or size <= self.max)  # type: ignore[operator]

    def __str__(self) -> str:
        if self.min is None:
            return f"up to {self.max}"
        return f"from {self.min} on" if self.max is None else f"from {self.min} to {self.max}"


class Promise(NamedTuple):
    """The promise of `mark_dynamic` about one dimension."""

    dimension: str
    bounds: Bounds | None


def name_of(dim: int, path: str) -> str:
    """A dimension as errors call it."""
    return f"dimension {dim} of {path}"


def spoken(source: GuardNode, tr: Trace) -> str:
    """An access path in the words of the user."""
    return source.path if _passed_on(source) is None else spoken_path(source, tr.root.values[0])


def spoken_path(source: GuardNode, module: object) -> str:
    """An access path of a call of `module`: an argument has the name that `forward` gives it. For other callables as it is."""
    argument = _passed_on(source)
    if argument is None or not isinstance(module, torch.nn.Module):
        return source.path
    name = argument.arg
    if argument.kind == ir.INDEX:
        code = getattr(type(module).forward, "__code__", None)
        names = code.co_varnames[1 : code.co_argcount] if code is not None else ()
        if argument.arg >= len(names):
            return source.path
        name = names[argument.arg]
    return source.path.replace(argument.path, name, 1)


def _passed_on(source: GuardNode) -> GuardNode | None:
    """The item of `args` or `kwargs` that a path leads through: there `Module.__call__` has what is meant for `forward`."""
    item, root = source, source
    while root.parent is not None:
        item, root = root, root.parent
    if root.kind != ir.LOCAL or item is root:
        return None
    return item if (root.path, item.kind) in (("args", ir.INDEX), ("kwargs", ir.DICT_ITEM)) else None


def bounds_of(tensor: torch.Tensor, dim: int) -> Bounds | None:
    """The range that the marks of a dimension allow, if they name one."""
    pairs = [(r.min, r.max) for r in getattr(tensor, DYNAMIC_RANGE, ()) if r.dim == dim]
    pairs += [pair for d, pair in getattr(tensor, UNBACKED_BOUNDS, {}).items() if d == dim]
    low = max((low for low, _ in pairs if low is not None), default=None)
    high = min((high for _, high in pairs if high is not None), default=None)
    return None if low is None and high is None else Bounds(low, high)


def check_marks(tensor: torch.Tensor, path: str) -> None:
    """Raise UserError for marks of a tensor that contradict each other, or the tensor."""
    marks = tensor.__dict__
    unbacked = {*marks.get(UNBACKED, ()), *marks.get(STRICT_UNBACKED, ())}
    strict = set(marks.get(DYNAMIC, ())) - unbacked
    for dim in sorted(strict | unbacked):
        where = name_of(dim, path)
        mark = "dynamic" if dim in strict else "unbacked"
        if not 0 <= dim < tensor.dim():
            _contradiction(
                f"{where} was marked {mark}, but {path} has {tensor.dim()} dimensions", "mark one that it has"
            )
        _check_size(tensor.shape[dim], where, mark, bounds_of(tensor, dim))


def _check_size(size: int, where: str, mark: str, bounds: Bounds | None) -> None:
    if bounds is not None and bounds.min is not None and bounds.max is not None and bounds.min > bounds.max:
        _contradiction(f"{where} was marked {mark} {bounds}, which no size is", "give a min that is not above max")
    if bounds is not None and size not in bounds:
        _violation(
            f"{where} was marked {mark} {bounds}, but its size is {size}",
            None,
            "widen min and max, or pass another size",
        )


def refuse_constant(promise: Promise, found: Specialization) -> NoReturn:
    """The program made a constant of a dimension that was to vary."""
    why = f": {found.why}" if found.why is not None else ""
    _violation(
        f"{promise.dimension} was marked dynamic, but the code makes it the constant {found.value}{why}",
        found.user,
        "remove the use that needs the number, or the mark (maybe_mark_dynamic allows both)",
    )


def check_range(promise: Promise, low: int, high: int | None, users: tuple[Any, Any]) -> None:
    """Raise UserError if the compiled code holds for a smaller range than was promised. `users`: who raised `low`, who lowered `high`."""
    bounds = promise.bounds
    if bounds is None:
        return
    if bounds.min is not None and low > max(bounds.min, 2 if config.specialize_zero_one else 0):
        kept, user = Bounds(low, bounds.max), users[0]
    elif bounds.max is not None and high is not None and high < bounds.max:
        kept, user = Bounds(bounds.min, high), users[1]
    else:
        return
    _violation(
        f"{promise.dimension} was marked dynamic {bounds}, but the compiled code holds for sizes {kept} only",
        user,
        f"mark it dynamic {kept}, or let the code treat all sizes alike",
    )


def refuse_condition(promise: Promise, text: str, user: object) -> NoReturn:
    """The compiled code holds for some of the promised sizes only."""
    _violation(
        f"{promise.dimension} was marked dynamic {promise.bounds}, but the compiled code holds only where {text}",
        user,
        "remove the range from the mark, or let the code treat all sizes alike",
    )


def refuse_relation(dimension: str, others: list[str], text: str, user: object) -> NoReturn:
    """The compiled code holds only where dimensions that were named differently depend on each other."""
    _violation(
        f"{dimension} and {', '.join(others)} were to vary independently, but the compiled code holds only where {text}",
        user,
        "give dimensions that are always equal the same Dim, or say Dim.AUTO for one of them",
    )


def refuse_unequal(name: str, sizes: dict[str, int]) -> NoReturn:
    """Dimensions that were promised to be equal are not."""
    text = ", ".join(f"{dimension} is {size}" for dimension, size in sizes.items())
    _violation(
        f"one Dim, {name}, is given to sizes that differ: {text}", None, "use a Dim for each, or sizes that agree"
    )


def _contradiction(what: str, fix: str) -> NoReturn:
    raise UserError(UserErrorType.INVALID_INPUT, f"{what}\n  do:  {fix}")


def _violation(what: str, user: object, fix: str) -> NoReturn:
    raise _violation_error()(UserErrorType.CONSTRAINT_VIOLATION, "\n".join([what, *line_of(user), f"  do:  {fix}"]))


@functools.cache
def _violation_error() -> type[UserError]:
    """The class of the error: torch's own as well, whose module most processes do without."""
    torchs = import_module("torch.fx.experimental.symbolic_shapes").ConstraintViolationError
    return type("ConstraintViolationError", (UserError, torchs), {"__module__": __name__, "__doc__": torchs.__doc__})


def line_of(user: Any) -> list[str]:
    """The user's line as errors show it; nothing if there is none."""
    if user is None:
        return []
    filename, lineno = user
    text = linecache.getline(filename, lineno).strip()
    return [f'  File "{filename}", line {lineno}', *([f"    {text}"] if text else [])]
