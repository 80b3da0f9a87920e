"""`BREAKS`: the numbered table of everything that ends a graph, and the text of one case.

Input: a slug of the table, the details of a case. Output: a text that fits in ten lines and names the user's line.
Invariant: every slug raised anywhere in the package is a key of `BREAKS`, and numbers are never reused for another meaning. This module
does not import torch.
"""

from __future__ import annotations

import linecache
import re
import traceback
from collections.abc import Sequence
from typing import Any, NamedTuple

from .messages import short_path


class UserFrame(traceback.FrameSummary):
    """One line of the user's program: where an event happened, as the `traceback` module describes a line of a stack, so that its
    functions take it. `col` and `end_col` are byte offsets as in `co_positions()`. The line is read when it is asked for."""

    __slots__ = ("source_line",)
    __match_args__ = ("filename", "lineno", "function", "source_line", "col", "end_col", "end_lineno")
    lineno: int

    def __init__(
        self,
        filename: str,
        lineno: int,
        function: str,
        source_line: str = "",
        col: int | None = None,
        end_col: int | None = None,
        end_lineno: int | None = None,
    ) -> None:
        if source_line and end_lineno not in (None, lineno):  # one line is recorded
            end_lineno, end_col = lineno, None if col is None else len(source_line.rstrip().encode())
        super().__init__(
            filename,
            lineno,
            function,
            lookup_line=False,
            line=f"{source_line.rstrip()}\n" if source_line else None,
            end_lineno=end_lineno,
            colno=col,
            end_colno=end_col,
        )
        self.source_line = source_line

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(getattr(self, name) for name in self.__match_args__)

    @property
    def function(self) -> str:
        return self.name

    @property
    def col(self) -> int | None:
        return self.colno

    @property
    def end_col(self) -> int | None:
        return self.end_colno

    @property
    def whole_line(self) -> str:
        """The source line with its indentation, without its newline: the recorded one, else what `linecache` finds, else an empty
        string."""
        return (self.source_line or linecache.getline(self.filename, self.lineno)).rstrip()

    @property
    def location(self) -> str:
        return f"{self.filename}:{self.lineno}"

    def _key(self) -> tuple[Any, ...]:
        return self.filename, self.lineno, self.name, self.source_line, self.colno, self.end_colno, self.end_lineno

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, UserFrame) else super().__eq__(other)

    def __hash__(self) -> int:
        return hash(self._key())


UserStack = Sequence[UserFrame]
"""Outermost frame first, as in a traceback: the last item is the line that caused the event."""


_SETTING = re.compile(r"config\.(\w+)( = True)?")


class BreakKind(NamedTuple):
    """One row of `BREAKS`: what `python -m dynamo_lite explain DL012` and the reports print."""

    number: int
    title: str
    why: str
    what_to_do: str

    @property
    def code(self) -> str:
        """The stable name of this kind, such as `DL012`."""
        return f"DL{self.number:03d}"

    @property
    def settings(self) -> list[str]:
        """The settings that the advice names, with their environment variables."""
        keys = _SETTING.findall(self.what_to_do)
        return [
            f"dynamo_lite.config.{key}{value}, or DYNAMO_LITE_{key.upper()}" + ("=1" if value else "")
            for key, value in keys
        ]

    @property
    def page(self) -> str:
        """Where more is said about this kind: a place in the documentation, and the command that prints it."""
        return f"docs/breaks.md#{self.code.lower()} (python -m dynamo_lite explain {self.code})"


BREAKS: dict[str, BreakKind] = {
    # 1-19: the value is known only when the program runs
    "data-dependent-branch": BreakKind(
        1,
        "data-dependent branch",
        "which side runs depends on tensor data, which is unknown during capture",
        "move the test, use torch.where or torch.cond, or, if the sides allow it, set config.capture_branches = True",
    ),
    "data-dependent-operator": BreakKind(
        2,
        "data-dependent operator",
        "the operator turns tensor data into a Python value (.item(), .tolist(), int(t) …)",
        "keep the value as a tensor, or set config.capture_scalar_outputs = True",
    ),
    "dynamic-shape-operator": BreakKind(
        3,
        "operator with a data-dependent output shape",
        "the size of the result depends on tensor data (nonzero, unique, boolean masks …)",
        "use torch.where or a fixed-size form, or set config.capture_dynamic_output_shape_ops = True",
    ),
    "data-dependent-size": BreakKind(
        4,
        "number or size that depends on tensor data used as a Python value",
        "a branch, a loop, a Python container or an operator needs the number itself",
        "say what is true of it (torch._check), compute with tensors (torch.where, torch.cond), or make it outside",
    ),
    "data-dependent-assert": BreakKind(
        5,
        "assertion on tensor data",
        "the condition is known only when the graph has run, and what the graph does could not be undone",
        "use torch._assert_async, or torch._check on sizes",
    ),
    "random-state": BreakKind(
        6,
        "use of a Python or numpy random generator that cannot be replayed",
        "the numbers drawn must be the ones eager execution would draw",
        "draw random numbers with torch, or outside of the compiled function",
    ),
    "time-dependent": BreakKind(
        7,
        "reads the clock or the environment",
        "the result is different on every call and must not be baked into a graph",
        "read it outside of the compiled function, or set config.stitch = True for clocks",
    ),
    "object-identity": BreakKind(
        8,
        "the address of an object as a number",
        "id() and default hashes change from run to run",
        "compare with `is`, or use a stable key",
    ),
    "dynamic-int": BreakKind(
        9,
        "symbolic int used where a constant is needed",
        "the operation has no symbolic form",
        "mark the size static (dynamo_lite.mark_static) or avoid the operation",
    ),
    "symbolic-float": BreakKind(
        10,
        "symbolic float used where a constant is needed",
        "the operation has no symbolic form",
        "set config.specialize_float = True or pass the number as a tensor",
    ),
    # 20-39: calls
    "call-print": BreakKind(
        20,
        "print or logging",
        "output must appear at the time and in the order of eager execution",
        "write what is known by then (the message says what is not), or at the start or the end of the function",
    ),
    "call-io": BreakKind(
        21,
        "input or output",
        "files, sockets and subprocesses are outside of what a graph can hold",
        "do it outside of the compiled function",
    ),
    "call-c-function": BreakKind(
        22,
        "call of a C function without a model",
        "it has no bytecode to follow and is not known to be free of effects",
        "register a polyfill (dynamo_lite.polyfill) or allow_in_graph, or call it outside",
    ),
    "call-skipped-function": BreakKind(
        23,
        "call of a function that is not captured",
        "the function is disabled or belongs to a module that is skipped",
        "remove the disable, or call it outside of the compiled function",
    ),
    "call-unknown-object": BreakKind(
        24,
        "call of an object of unknown kind",
        "it is not a function, method, class or module that can be followed",
        "make it a Python function, or call it outside of the compiled function",
    ),
    "user-requested": BreakKind(
        25,
        "graph break asked for by the program",
        "dynamo_lite.graph_break() or torch._dynamo.graph_break() was called",
        "remove the call",
    ),
    "disallowed-function": BreakKind(
        26,
        "call of a function that may not enter a graph",
        "it was given to disallow_in_graph, or has no meaning inside a graph",
        "call it outside of the compiled function",
    ),
    "arguments-mismatch": BreakKind(
        27,
        "arguments do not fit the function",
        "binding the arguments of an inlined call failed in a way that has to be raised by the call itself",
        "fix the call",
    ),
    "debugger": BreakKind(
        28,
        "breakpoint or trace hook",
        "a debugger shows the frames under way and goes on in them: they all run eagerly, from their first line",
        "remove the breakpoint; DYNAMO_LITE_DEBUG=1 shows what capture does",
    ),
    "nested-compiler": BreakKind(
        29,
        "call into another compiler",
        "torch.jit, torch.export or torch.compile objects run on their own",
        "compile the plain Python function instead",
    ),
    "hook-registration": BreakKind(
        30,
        "registration of a hook",
        "a hook that changes other objects, or a handle that is kept, needs the real tensor or module",
        "register the hook outside of the compiled function, or have it only compute with the gradient",
    ),
    "backward-call": BreakKind(
        31,
        "gradients that the graph cannot compute",
        "an input has a history, a leaf has hooks or leaves the graph, or the autograd engine raises an error",
        "call backward() or torch.autograd.grad outside of the compiled function, or on values made inside it",
    ),
    "call-cached-function": BreakKind(
        32,
        "call of a function with a cache (functools.lru_cache, functools.cache)",
        "its cache may give something else than its code: an object that others have, data of an earlier call",
        "call it outside of the compiled function and pass its result in, or call its __wrapped__, which has no cache",
    ),
    # 40-59: objects
    "mutation-of-unknown-object": BreakKind(
        40,
        "write to an object of unknown kind",
        "the effect of the write cannot be replayed after the graph",
        "do it outside of the compiled function, or use list, dict, set or plain attributes",
    ),
    "attribute-of-unknown-object": BreakKind(
        41,
        "attribute of an object of unknown kind",
        "reading it runs code that cannot be followed",
        "read it outside of the compiled function and pass the value in",
    ),
    "iteration-of-unknown-object": BreakKind(
        42,
        "iteration over an object of unknown kind",
        "its __iter__ or __next__ has no bytecode to follow",
        "turn it into a list outside of the compiled function",
    ),
    "operation-on-unknown-object": BreakKind(
        43,
        "operator on an object of unknown kind",
        "the operator's method has no bytecode to follow",
        "compute it outside of the compiled function",
    ),
    "mutation-of-class": BreakKind(
        44,
        "write to a class",
        "classes are shared by the whole program and guarded as constants",
        "do it outside of the compiled function",
    ),
    "cell-content": BreakKind(
        45,
        "closure cell in a state that cannot be rebuilt",
        "the cell is empty or is shared with a frame that is still running",
        "pass the value as an argument",
    ),
    "unhashable-key": BreakKind(
        46,
        "dict or set key whose hash is not known during capture",
        "the key is a value of the graph or runs its own __hash__",
        "use a constant or an object as the key",
    ),
    "weakref": BreakKind(
        47,
        "weak reference to an object made during capture",
        "the object does not exist yet",
        "make the weak reference outside of the compiled function",
    ),
    "del-finalizer": BreakKind(
        48,
        "object with a finalizer",
        "the moment when __del__ runs cannot be kept",
        "make and drop the object outside of the compiled function",
    ),
    "iterator-state": BreakKind(
        49,
        "iterator whose position cannot be read",
        "an iterator from outside hides how far it has advanced",
        "pass the container, or list(iterator)",
    ),
    "attribute-conflict": BreakKind(
        50,
        "attribute whose lookup cannot be guarded",
        "a metaclass, __getattribute__ or __slots__ makes the result depend on code that cannot be followed",
        "read it outside of the compiled function",
    ),
    "type-creation": BreakKind(
        51,
        "instance of a type that cannot be built during capture",
        "its __new__ is a C function without a model",
        "make the object outside of the compiled function",
    ),
    "comparison-of-unknown-object": BreakKind(
        52,
        "comparison of objects of unknown kind",
        "the result depends on code that cannot be followed",
        "compare outside of the compiled function",
    ),
    # 60-79: language constructs
    "context-manager": BreakKind(
        60,
        "context manager that cannot be followed",
        "its __enter__ or __exit__ has effects that a graph cannot hold",
        "put the with statement outside of the compiled function",
    ),
    "generator-escapes": BreakKind(
        61,
        "generator that leaves the captured function",
        "a running generator cannot be handed over",
        "return list(generator), or consume it inside",
    ),
    "async": BreakKind(
        62,
        "coroutine or async generator",
        "suspension to an event loop cannot happen inside a graph",
        "compile the synchronous part",
    ),
    "import": BreakKind(
        63,
        "import with effects",
        "the module is not loaded yet, and running it may do anything",
        "import at the top of the file",
    ),
    "exec-eval": BreakKind(
        64,
        "exec, eval or compile",
        "the code is known only when the program runs",
        "write the code as a function",
    ),
    "frame-introspection": BreakKind(
        65,
        "looks at the running frame",
        "locals(), globals() writes, sys._getframe and inspect.stack need the real frame",
        "pass the values explicitly",
    ),
    "class-definition": BreakKind(
        66,
        "class statement",
        "the new class may run metaclass code",
        "define the class outside of the compiled function",
    ),
    "exception-unrepresentable": BreakKind(
        67,
        "exception that cannot be followed",
        "its class or its state has no model",
        "raise a plain exception class",
    ),
    "uncaught-exception": BreakKind(
        68,
        "exception that leaves the captured function",
        "the traceback and the effects before it have to be those of eager execution",
        "none needed: the exception is raised by the original code",
    ),
    "exception-group": BreakKind(
        69,
        "except* or an exception group",
        "splitting of groups has no model",
        "use plain except outside of the compiled function",
    ),
    "delete-local": BreakKind(
        70,
        "deletion that cannot be replayed",
        "the object's finalizer or other owner would notice the moment",
        "remove the del statement",
    ),
    "format": BreakKind(
        71,
        "text made from tensor data",
        "a str, repr or format of a tensor that is used needs its data",
        "format it outside of the compiled function",
    ),
    "match-statement": BreakKind(
        72,
        "match pattern that cannot be followed",
        "the class pattern runs code that cannot be followed",
        "use isinstance tests",
    ),
    "opcode": BreakKind(
        73,
        "bytecode instruction without a handler",
        "this CPython instruction is not known to the interpreter",
        "rewrite the statement; please report it",
    ),
    "module-level-code": BreakKind(
        74,
        "code of a module or class body",
        "only function bodies are captured",
        "put the code into a function",
    ),
    # 80-99: torch
    "graph-argument-type": BreakKind(
        80,
        "argument of a torch operation that cannot enter a graph",
        "graphs hold tensors, numbers, strings, dtypes, devices and containers of them",
        "convert the argument first",
    ),
    "tensor-attribute": BreakKind(
        81,
        "attribute or method of a tensor that has no graph form",
        "it reads or writes what exists only on the real tensor (data_ptr, storage, grad_fn …)",
        "use it outside of the compiled function",
    ),
    "tensor-subclass": BreakKind(
        82,
        "tensor subclass without a model",
        "its __torch_function__ or __torch_dispatch__ cannot be followed",
        "unwrap it outside of the compiled function",
    ),
    "numpy": BreakKind(
        83,
        "numpy call on a value of the graph",
        "numpy arrays need real data",
        "use the torch function of the same name",
    ),
    "fake-tensor-error": BreakKind(
        84,
        "operator that has no shape rule or fails on these inputs",
        "running it on fake tensors raised an error",
        "check the shapes and dtypes; register a fake implementation for custom operators",
    ),
    "autograd-function": BreakKind(
        85,
        "torch.autograd.Function that cannot be followed",
        "its forward or backward uses what a graph cannot hold",
        "use a custom operator with register_autograd",
    ),
    "higher-order-operator": BreakKind(
        86,
        "higher-order operator with a body that cannot be captured",
        "the functions given to cond, map, scan … must each be one graph without effects on the outside",
        "have the function given only compute: no graph break, no change of objects or tensors from outside",
    ),
    "grad-mode": BreakKind(
        87,
        "global torch state changed in a way that cannot be replayed",
        "the setting affects code outside of the graph",
        "set it outside of the compiled function",
    ),
    "sparse-or-quantized": BreakKind(
        88,
        "tensor layout that cannot be propagated",
        "fake tensors of this layout are not supported",
        "use a strided tensor",
    ),
    "module-state": BreakKind(
        89,
        "write to a module that cannot be replayed",
        "registering parameters, buffers or submodules changes the structure that guards rely on",
        "build the module outside of the compiled function",
    ),
    "torch-function-mode": BreakKind(
        90,
        "active TorchFunctionMode or TorchDispatchMode",
        "the mode sees every operation in eager execution",
        "enter the mode inside the compiled function, or compile without it",
    ),
    "higher-order-operator-without-model": BreakKind(
        91,
        "higher-order operator that no captured graph holds",
        "compilers make it, or what it takes is no value of a graph",
        "call the function or operator that it stands for, or call it outside of the compiled function",
    ),
    "fake-tensor-of-program": BreakKind(
        92,
        "FakeTensor of the program that no graph holds",
        "its sizes are symbols of the program's own ShapeEnv, or it meets tensors that have data",
        "use FakeTensors with sizes that are ints, all of one FakeTensorMode, and call the function under that mode",
    ),
    "triton-kernel": BreakKind(
        93,
        "launch of a Triton kernel that no graph holds",
        "functions of the program run in the launch, or it writes to what autograd looks at",
        "make the launch an operator with torch.library.triton_op or custom_op",
    ),
    # 100-119: limits of the engine
    "input-type": BreakKind(
        100,
        "input that cannot be guarded",
        "the compiled code could not tell when it no longer fits",
        "pass plain Python values and tensors",
    ),
    "backend-error": BreakKind(
        101,
        "backend failed",
        "the graph compiler raised an error",
        'see the error; try backend="eager" to tell capture and backend apart',
    ),
    "recursion-limit": BreakKind(
        102,
        "calls nested too deep",
        "inlining reached config.max_inline_depth",
        "use a loop, or raise config.max_inline_depth",
    ),
    "inline-generator-break": BreakKind(
        103,
        "graph break inside a generator",
        "a generator that is suspended cannot be split",
        "move the breaking statement out of the generator",
    ),
    "reconstruct": BreakKind(
        104,
        "value that cannot be rebuilt after the graph",
        "it is needed by the code that follows, and there is no way to make it from graph results",
        "do not keep it across the break",
    ),
    "code-size": BreakKind(
        105,
        "function too long to capture",
        "the number of interpreted instructions reached its limit (a long or endless Python loop)",
        "move the loop out of the compiled function, or raise config.max_idle_steps or config.max_steps",
    ),
    "breaks-inside": BreakKind(
        108,
        "call of a function with graph breaks",
        "it broke the graph several times while it was inlined; now it is captured as a frame of its own",
        "see its own breaks",
    ),
    "resume-unsupported": BreakKind(
        106,
        "position that cannot be resumed",
        "the rest of the function cannot be entered at this point",
        "move the breaking statement out of the block",
    ),
    "internal-error": BreakKind(
        107,
        "internal error of the compiler",
        "capture failed in a way that is a bug of dynamo_lite",
        "please report it with the text above",
    ),
}


class OfKind:
    """An object about one kind of break: `slug`, `context`, `user_stack` and `origin` describe the case, the properties its kind.
    `origin`: the line that made the value which the break is about."""

    __slots__ = ()

    slug: str
    context: str
    user_stack: UserStack
    origin: UserFrame | None

    @property
    def kind(self) -> BreakKind:
        return BREAKS[self.slug]

    @property
    def number(self) -> int:
        return self.kind.number

    @property
    def code(self) -> str:
        return self.kind.code

    @property
    def title(self) -> str:
        return self.kind.title

    @property
    def why(self) -> str:
        return self.kind.why

    @property
    def what_to_do(self) -> str:
        return self.kind.what_to_do

    def __str__(self) -> str:
        return format_break(self.slug, self.context, self.user_stack, self.origin)


_BY_CODE = {kind.code: slug for slug, kind in BREAKS.items()}


def slug_of(code: str) -> str:
    """The slug for `"DL012"`, `"12"` or a slug itself. Raises KeyError when there is none."""
    if code in BREAKS:
        return code
    text = code.upper()
    digits = text.removeprefix("DL")
    return _BY_CODE[f"DL{int(digits):03d}" if digits.isdigit() else text]


def format_break(slug: str, context: str = "", user_stack: UserStack = (), origin: UserFrame | None = None) -> str:
    """The text for one graph break, at most ten lines: what, where (line with caret), where its value was made, why, what to do, which
    setting to try, where to read more."""
    kind = BREAKS[slug]
    detail = " ".join(context.split())
    lines = [f"{kind.code} {kind.title}" + (f": {_shorten(detail)}" if detail else "")]
    if user_stack:
        lines += format_location(user_stack[-1])
    lines += format_origin(origin, user_stack)
    lines.append(f"  why: {kind.why}")
    lines.append(f"  do:  {kind.what_to_do}")
    lines += [f"  set: {setting}" for setting in kind.settings]
    lines.append(f"  see: {kind.page}")
    return "\n".join(lines)


def format_origin(origin: UserFrame | None, user_stack: UserStack) -> list[str]:
    """The line that says where the value of a break was made; none if that is not known, or the line of the break itself."""
    if origin is None or (user_stack and origin.location == user_stack[-1].location):
        return []
    place = f"{short_path(origin.filename)}:{origin.lineno}"
    return [f"  this value was made at {place}: {_shorten(origin.whole_line.strip())}"]


def format_location(frame: UserFrame) -> list[str]:
    """One to three lines: the place, the source line if it can be read, and carets below the expression if its columns
    are known.
    """
    lines = [f'  File "{short_path(frame.filename)}", line {frame.lineno}, in {frame.function}']
    source = frame.whole_line
    text = source.lstrip()
    if not text:
        return lines
    lines.append(f"    {text}")
    if frame.col is not None and frame.end_col is not None:
        # Columns count bytes of UTF-8; the caret line counts characters of the text without its indentation.
        encoded = source.encode()
        one_line = frame.end_lineno in (None, frame.lineno)
        start = len(encoded[: frame.col].decode(errors="replace"))
        end = len(encoded[: frame.end_col].decode(errors="replace")) if one_line else len(source)
        indent = len(source) - len(text)
        if indent <= start < end:
            lines.append("    " + " " * (start - indent) + "^" * (end - start))
    return lines


def _shorten(text: str, limit: int = 200) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
