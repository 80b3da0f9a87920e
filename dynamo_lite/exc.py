"""Exceptions of the compiler, and the facts with which one run of an analysis ends so that the next one begins.

The class names are those of `torch._dynamo.exc`, so `except dynamo_lite.exc.Unsupported` works after a change of
import. This module does not import torch.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from .breaks import BREAKS, OfKind, UserFrame, UserStack
from .messages import near_names

TRACEBACK = BaseException.__dict__["__traceback__"]
CONTEXT = BaseException.__dict__["__context__"]
CAUSE = BaseException.__dict__["__cause__"]
SUPPRESS_CONTEXT = BaseException.__dict__["__suppress_context__"]
"""The fields that every exception has in C. A class of the program may have methods and properties for attributes of these names."""


class _OwnError(RuntimeError):
    """A base of our own between `TorchDynamoException` and RuntimeError: CPython refuses to assign `__bases__` where the only base is a
    builtin class. `report/torch_package.py` adds torch's classes there."""


class TorchDynamoException(_OwnError):
    """Base of every exception that the compiler itself raises; never raised for an error of the user's program."""

    def __init__(self, *args: object) -> None:
        # Not `super()`: while scripts run redirected that is a class of torch's, whose `__init__` takes other arguments.
        RuntimeError.__init__(self, *args)

    def __reduce__(self) -> tuple[Any, ...]:
        """Made anew without `__init__`, whose arguments need not be `args`."""
        return _made_anew, (type(self), self.args), self.__dict__


def _made_anew(cls: type[TorchDynamoException], args: tuple[Any, ...]) -> TorchDynamoException:
    error = cls.__new__(cls)
    error.args = args
    return error


class InternalTorchDynamoError(TorchDynamoException):
    """A bug of dynamo_lite. Raised under `fullgraph=True`, in debug mode, and with `suppress_errors` off; else the program runs eagerly."""


class Unsupported(OfKind, TorchDynamoException):
    """A graph break. Under `fullgraph=True` the user sees it; otherwise the engine splits the graph at it.

    `slug` is a key of `BREAKS`, `context` one short phrase about this case (a name, a type), `cause` an exception that
    led to it. `user_stack` is set by the interpreter once it is known. Raises KeyError for an unknown slug: that is a
    bug in the caller.
    """

    def __init__(self, slug: str, context: str = "", cause: BaseException | None = None) -> None:
        if slug not in BREAKS:
            raise KeyError(slug)
        super().__init__(slug, context)
        self.slug = slug
        self.context = context
        self.cause = cause
        self.user_stack: UserStack = ()
        self.origin: UserFrame | None = None
        self.break_step: int | None = None  # of the analysis: where to break because of this, if the raiser knows

    def at(self, step: int | None, user_stack: UserStack = ()) -> Unsupported:
        """The same break, at a step of the analysis that lies before."""
        self.break_step, self.user_stack = step, user_stack
        return self

    def made_at(self, origin: UserFrame | None) -> Unsupported:
        """The same break, about a value that this line made. (A variable for it in a function that raises it would be a cycle, which keeps
        the arguments of the program's call until the next garbage collection.)"""
        self.origin = origin
        return self

    @property
    def gb_type(self) -> str:
        """The kind of break as text; named as in `torch._dynamo.exc`."""
        return self.kind.title

    @property
    def msg(self) -> str:
        return str(self)


class FirstUse(Unsupported):
    """The break before something that an object does once in its life, when it is first used."""


def unsupported(
    slug: str, context: str = "", cause: BaseException | None = None, origin: UserFrame | None = None
) -> NoReturn:
    """Raise `Unsupported(slug, context)`, chained to `cause` when there is one. `origin`: the line that made the value in question."""
    raise Unsupported(slug, context, cause).made_at(origin) from cause


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error, its cause, the cause of that …: each once, since the chain may come back (`raise error from error`)."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = CAUSE.__get__(error)


def first_line(error: BaseException) -> str:
    """The first line of an error's message."""
    return str(error).strip().split("\n", 1)[0]


def gist(error: BaseException) -> str:
    """What an error says, as part of the text of a break: of a long text, most of which is advice about torch, the first sentence."""
    text = str(error).strip()
    is_short = "\n" not in text and len(text) <= 120
    return text if is_short else first_line(error).partition(". ")[0].removesuffix(".")


def brief(error: BaseException) -> str:
    """An error in one line: its class and the first line of its message."""
    return f"{type(error).__name__}: {first_line(error)}"


def asks_for_data(error: BaseException) -> bool:
    """Whether torch has asked for a number that only the data of the call decide."""
    return type(error).__name__ == "GuardOnDataDependentSymNode"


def asked_for(error: BaseException) -> str:
    """What torch has asked for, as part of the text of a break."""
    return f"asks for {getattr(error, 'cond', 'what')}, which data decide"


def many(count: int, noun: str) -> str:
    """A number with its noun: "1 graph", "2,000 graphs"."""
    return f"{count:,} {noun}" + "s" * (count != 1)


@dataclass(frozen=True)
class Fact:
    """What a run of an analysis has found out for the next run. `frontend/facts.py` adds them up."""


@dataclass(frozen=True)
class BreakAt(Fact):
    """The run has to break before this step. `open_ranges`: the steps at which the loops began that are under way there."""

    step: int
    reason: Unsupported
    open_ranges: frozenset[int] = frozenset()


@dataclass(frozen=True)
class EndGraphBefore(Fact):
    """The graph has to end before the node of this name."""

    node: str
    reason: Unsupported


@dataclass(frozen=True)
class FollowHook(Fact):
    """A hook that is registered at this step is no body in the graph: the backward pass follows it."""

    step: int
    reason: Unsupported


@dataclass(frozen=True)
class TextIsRead(Fact):
    """The text that this instruction (id of its code object, index) makes of a number decides something: the number is a constant there."""

    place: tuple[int, int]


@dataclass(frozen=True)
class NumbersSeen(Fact):
    """What `Trace.dynamic_hints` has to say of these access paths, for later calls too."""

    hints: Mapping[Any, Any]


@dataclass(frozen=True)
class ReadArguments(Fact):
    """Arguments that are one object have one model from the start."""


@dataclass(frozen=True)
class AskClassesByNode(Fact):
    """Single nodes of the graph ask classes of tensors about torch functions: they are told apart from the others."""


@dataclass(frozen=True)
class MakeSelection(Fact):
    """What a mask selects at this instruction (id of its code object, index) is made there."""

    place: tuple[int, int]


@dataclass(frozen=True)
class LeaveData(Fact):
    """Numbers and sizes that data decide are no values of the graph where the settings leave that open, and branches are no part of it: a
    compiler can't take them."""


@dataclass(frozen=True)
class AssumeLargeSizes(Fact):
    """Sizes that data decide are taken to be 2 at least: a compiler asks for more than the graph knows, mostly to lay out tensors."""


@dataclass(frozen=True)
class FollowToReturn(Fact):
    """What the sides of the branch at this place leave can't be put together where they meet, and why: they are followed to the end of the
    function."""

    place: tuple[int, int]
    reason: Unsupported


@dataclass(frozen=True)
class StateChanged(Fact):
    """The analysis has changed the program's state, by an import for example: a guard failed on the values that it was made from."""


class Restart(TorchDynamoException):
    """The analysis of a frame has to start again with what was learned: `fact`, or what the region remembers by now. Never leaves
    `frontend`."""

    def __init__(self, *args: Any, fact: Fact | None = None, restart_reason: str | None = None) -> None:
        super().__init__(*args)
        self.fact = fact
        self.restart_reason = restart_reason


RestartAnalysis = Restart


class SkipFrame(TorchDynamoException):
    """This frame can't be captured, or need not be: it runs as it is, for ever. `reason` is the break that caused this, if there was one;
    `callees`: functions that the frame calls may still be captured.
    """

    def __init__(self, msg: str = "", reason: Unsupported | None = None, callees: bool = True) -> None:
        super().__init__(msg)
        self.reason = reason
        self.callees = callees


ORIGINALS = "compiled.__wrapped__, or module._orig_mod"
"""Where programs find the original of a compiled function or module."""


class RunsEagerly(TorchDynamoException):
    """The frame is to run as it is for these arguments: the graph can't be compiled for a reason that lies in the program."""


class Refused(TorchDynamoException):
    """Raised while a compiled version is written to the cache: it rests on something that another process could not find or compare."""


class Mismatch(TorchDynamoException):
    """Raised while a compiled version is read from the cache: something is another thing in this process."""


class UnfitSizes(Exception):
    """The sizes of this call contradict a `torch._check` of the program on sizes that are marked unbacked."""


class NotConstant(TorchDynamoException):
    """A value that was asked for as a Python constant is not one."""


class TorchRuntimeError(TorchDynamoException):
    """An operator of the user's program fails on the shapes and dtypes given, found during capture under
    `fullgraph=True`.
    """

    def __init__(self, msg: str, real_stack: UserStack | None = None) -> None:
        super().__init__(msg)
        self.msg = msg
        self.real_stack = real_stack


class InvalidBackend(TorchDynamoException):
    """A backend name that nobody registered; `known` are the names that exist. `instead`, for a backend that only torch has: what to use,
    with a semicolon, or nothing."""

    def __init__(self, name: str, known: Sequence[str] = (), instead: str | None = None) -> None:
        hint = f"known backends: {', '.join(known)}" if known else "see dynamo_lite.list_backends()"
        near = near_names(name, known) if instead is None else ""
        if instead is not None:
            hint = f"torch's backend of this name has no counterpart here{instead}; {hint}"
        super().__init__(f"Invalid backend: {name!r}; {f'did you mean {near}? ' if near else ''}{hint}")
        self.name = name
        self.known = tuple(known)


class ResetRequired(TorchDynamoException):
    """Kept so that programs which catch it work. dynamo_lite keeps one cache per backend and never needs a reset."""

    def __init__(self) -> None:
        super().__init__("call dynamo_lite.reset() first")


class BackendCompilerFailed(TorchDynamoException):
    """The backend raised while it compiled a graph. Raised to the user under `fullgraph=True` only.

    `inner_exception` is the backend's own exception, `backend_name` the backend's name.
    """

    def __init__(self, backend_fn: object, inner_exception: BaseException, first_useful_frame: Any = None) -> None:
        self.backend_name = getattr(backend_fn, "__name__", None) or type(backend_fn).__name__
        self.inner_exception = inner_exception
        self.first_useful_frame = first_useful_frame
        super().__init__(
            f"backend={self.backend_name!r} raised:\n{type(inner_exception).__name__}: {inner_exception}",
        )


class RecompileError(TorchDynamoException):
    """A recompilation happened while `config.error_on_recompile` or the stance `fail_on_recompile` forbids it."""


class RecompileLimitExceeded(RecompileError):
    """A code object has `config.recompile_limit` versions already and needs one more, under `fullgraph=True`."""


class FailOnRecompileLimitHit(RecompileLimitExceeded):
    """The limit of recompilations was hit under `config.fail_on_recompile_limit_hit`."""


class UserErrorType(enum.Enum):
    """The kind of mistake that a `UserError` reports."""

    DYNAMIC_CONTROL_FLOW = enum.auto()
    ANTI_PATTERN = enum.auto()
    STANDARD_LIBRARY = enum.auto()
    CONSTRAINT_VIOLATION = enum.auto()
    DYNAMIC_DIM = enum.auto()
    INVALID_INPUT = enum.auto()
    INVALID_OUTPUT = enum.auto()
    UNSUPPORTED_ALIASED_MUTATED_DYNAMIC_INPUTS = enum.auto()


class UserError(TorchDynamoException):
    """The program asks for something contradictory, such as a dynamic dimension that the code makes constant.

    Raised to the user in every mode: the message says what to change.
    """

    def __init__(self, error_type: UserErrorType, msg: str, case_name: str | None = None) -> None:
        super().__init__(msg)
        self.error_type = error_type
        self.msg = msg
        self.message = msg
        self.case_name = case_name


class ForbiddenCallError(UserError, AssertionError):
    """Captured code calls a function that was given to `forbid_in_graph`, or that must be called before the compiled function."""

    def __init__(self, msg: str) -> None:
        super().__init__(UserErrorType.ANTI_PATTERN, msg)


class UncapturedHigherOrderOpError(TorchDynamoException):
    """The body given to a higher-order operator could not be captured as one graph."""

    real_stack: UserStack | None = None

    def __init__(self, msg: str, real_stack: UserStack | None = None) -> None:
        super().__init__(msg)
        self.msg = msg
        self.real_stack = real_stack


class UncapturedOperator(Unsupported, UncapturedHigherOrderOpError):
    """The break at an operator that torch itself runs as a captured graph only: eager execution raises
    `UncapturedHigherOrderOpError`, where one graph is wanted this is raised."""

    @classmethod
    def become(cls, error: Unsupported) -> None:
        """Make a break one of this class. (A new exception would lose the traceback, and what the break has been told.)"""
        if type(error) is Unsupported:
            error.__class__ = cls
