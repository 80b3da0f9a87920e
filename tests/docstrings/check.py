"""The examples of one docstring, run eagerly and captured.

Input: a `Program` and a backend. Output: records of plain values, one per form. (`inherited` are differences that torch.compile has with
the same backend, too.)

- `body`: the statements that run, as the body of one function
- `statement`: each statement as a function of its own, with the variables so far as arguments; one that raises has to raise the same

Classes and imports, and functions that use none of the variables, are defined before, as a program would do. Compared are the variables,
the values of the expressions, what of them is one object or memory, exceptions, output and the state of the random generators.
With the backend `eager` everything has to be equal bit by bit, otherwise up to rounding.
"""

import ast
import contextlib
import copy
import gc
import importlib
import io
import linecache
import random
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy
import torch

import dynamo_lite
from dynamo_lite.backends.registry import lookup_backend
from dynamo_lite.record import log
from dynamo_lite.testing import differences, identities
from tests.docstrings import examples
from tests.helpers import seeds

SEED = 1234
TOLERANCE = 1e-4
TO_SHOW = 300

FREED = "_FreedBackward"
"""Stands for the history of a result that a backward pass in the graph has used up."""


@dataclass
class Outcome:
    """What a form did: `values` by name, the type and text of what each statement raised, what was printed."""

    values: dict[str, Any] = field(default_factory=dict)
    raised: dict[str, str] = field(default_factory=dict)
    printed: str = ""
    generators: Any = None
    shared: dict[str, str] = field(default_factory=dict)
    autograd: dict[str, str] = field(default_factory=dict)


Compiled = Callable[[Callable[..., Any]], Callable[..., Any]]


def _itself(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


@contextlib.contextmanager
def _settings_kept() -> Iterator[None]:
    """Settings of the process that examples change."""
    dtype, deterministic = torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled()
    modes = torch.is_grad_enabled(), torch.is_anomaly_enabled(), torch.get_float32_matmul_precision()
    checked = torch.distributions.Distribution._validate_args
    try:
        yield
    finally:
        torch.set_default_dtype(dtype)
        torch.set_default_device(None)
        torch.use_deterministic_algorithms(deterministic)
        torch.set_grad_enabled(modes[0])
        torch.autograd.set_detect_anomaly(modes[1])
        torch.set_float32_matmul_precision(modes[2])
        torch.distributions.Distribution._validate_args = checked
        torch.set_printoptions(profile="default")
        torch.set_flush_denormal(False)


class Example:
    """A program that can be run: what it takes as defined, and its statements, each with a name."""

    def __init__(self, program: examples.Program) -> None:
        self.name = program.name
        self.skipped: dict[str, str] = {}
        self.setup: list[ast.stmt] = []
        self.statements: dict[str, ast.stmt] = {}
        self.module = program.module
        variables = {name for statement in program.statements for name in assigned(statement)}
        for statement in program.statements:
            free = used(statement) & variables
            if isinstance(statement, ast.Import | ast.ImportFrom):
                self.setup.append(statement)
            elif isinstance(statement, ast.ClassDef | ast.FunctionDef) and not free - self._defined():
                self.setup.append(statement)
            else:
                self.statements[f"statement {len(self.statements)}"] = _with_value(statement, len(self.statements))

    def _defined(self) -> set[str]:
        return {name for statement in self.setup for name in assigned(statement)}

    def namespace(self) -> dict[str, Any]:
        """Globals for a run."""
        found: dict[str, Any] = {"__name__": "example"}
        exec(examples.PRELUDE, found)
        module = importlib.import_module(self.module)
        public = getattr(module, "__all__", [key for key in vars(module) if not key.startswith("_")])
        found.update({key: getattr(module, key) for key in public if key not in found and hasattr(module, key)})
        for name, text in examples.STAND_INS.items():
            if any(name in used(statement) for statement in [*self.setup, *self.statements.values()]):
                exec(compile(text, "<stand-in>", "exec"), found)
        for statement in self.setup:
            with contextlib.suppress(Exception):
                exec(_code(ast.Module([statement], []), self.name, "setup"), found)
        return found

    def learn(self) -> None:
        """Run all of it plainly, to see which statements raise: those are not in the body."""
        with _running():
            namespace = self.namespace()
            for name, statement in self.statements.items():
                try:
                    exec(_code(ast.Module([statement], []), self.name, name), namespace)
                except Exception as error:
                    self.skipped[name] = message(error)

    def body(self, compiled: Compiled) -> Outcome:
        """The statements that run, in one function that returns its variables."""
        good = [statement for name, statement in self.statements.items() if name not in self.skipped]
        with _running() as outcome:
            namespace = self.namespace()
            function = _function("body", [], good, self.name, namespace)
            try:
                outcome.values = compiled(function)()
            except Exception as error:
                outcome.raised["body"] = message(error)
            _look(outcome)
        return outcome

    def in_turn(self, compiled: Compiled) -> Outcome:
        """Each statement in a function that gets the variables it uses and returns those it assigns."""
        with _running() as outcome:
            namespace = self.namespace()
            for name, statement in self.statements.items():
                given = [key for key in sorted(used(statement) | assigned(statement)) if key in outcome.values]
                function = _function(name.replace(" ", "_"), given, [statement], self.name, namespace)
                try:
                    values = compiled(function)(**{key: outcome.values[key] for key in given})
                except Exception as error:
                    outcome.raised[name] = message(error)
                else:
                    outcome.values.update(values)
                    namespace.update(values)
            _look(outcome)
        return outcome


@contextlib.contextmanager
def _running() -> Iterator[Outcome]:
    """A run with seeds, whose output is caught and whose settings are taken back."""
    outcome, printed = Outcome(), io.StringIO()
    seeds.seed(SEED)
    random.seed(SEED)
    numpy.random.seed(SEED)
    with _settings_kept(), warnings.catch_warnings(), contextlib.redirect_stdout(printed):
        warnings.simplefilter("ignore")
        yield outcome
    outcome.printed = _plain(printed.getvalue())


def _look(outcome: Outcome) -> None:
    """Note what the run has left."""
    outcome.generators = torch.get_rng_state(), random.getstate(), numpy.random.get_state()[1].tolist()
    outcome.shared = identities(outcome.values)
    for name, value in outcome.values.items():
        if isinstance(value, torch.Tensor) and value.grad_fn is not None:
            outcome.autograd[name] = value.grad_fn.name()


def used(statement: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}


def assigned(statement: ast.stmt) -> set[str]:
    """The names that a statement binds in the function that it is in."""
    function = ast.parse("def made(): pass")
    function.body[0].body = [statement]
    code = next(c for c in _code(function, "names", "names").co_consts if hasattr(c, "co_varnames"))
    return {*code.co_varnames, *code.co_cellvars}


def _with_value(statement: ast.stmt, number: int) -> ast.stmt:
    """An expression is kept in a variable; what an example prints is what it shows, as well."""
    if not isinstance(statement, ast.Expr):
        return statement
    value = statement.value
    if isinstance(value, ast.Call) and ast.unparse(value.func) == "print" and not value.keywords:
        statement = ast.copy_location(ast.Expr(ast.Tuple(value.args, ast.Load())), statement)
    return ast.copy_location(ast.Assign([ast.Name(f"shown_{number}", ast.Store())], statement.value), statement)


def _code(tree: ast.Module, *where: str) -> Any:
    """Compiled, with lines that tracebacks and `inspect` find."""
    source = ast.unparse(ast.fix_missing_locations(tree))
    path = f"<{' '.join(where)}>"
    linecache.cache[path] = (len(source), None, source.splitlines(True), path)
    return compile(source, path, "exec")


def _function(
    name: str, parameters: list[str], statements: list[ast.stmt], program: str, namespace: dict[str, Any]
) -> Callable[..., Any]:
    """A function with these statements, which returns its variables by name."""
    tree = ast.parse(f"def {name}({', '.join(parameters)}): pass")
    names = {key for statement in statements for key in assigned(statement)} | set(parameters)
    gone = {target.id for s in statements if isinstance(s, ast.Delete) for target in s.targets if hasattr(target, "id")}
    result = ast.parse("{" + ", ".join(f"{key!r}: {key}" for key in sorted(names - gone)) + "}", mode="eval").body
    tree.body[0].body = [*copy.deepcopy(statements), ast.Return(result)]
    made: dict[str, Any] = {}
    exec(_code(tree, program, name), namespace, made)
    return made[name]


_address = re.compile(r"0x[0-9a-f]{6,}|[\d.]+ ?(ms|us|s)\b|\bline \d+")


def _plain(text: str) -> str:
    return _address.sub("…", text)


def message(error: BaseException) -> str:
    return f"{type(error).__name__}: {_plain(str(error))}"[:2000]


def compared(expected: Outcome, actual: Outcome, tol: float) -> Iterator[str]:
    """One line per difference of two runs."""
    for name in sorted({*expected.raised, *actual.raised}):
        one, other = expected.raised.get(name, "no exception"), actual.raised.get(name, "no exception")
        # Compilers may call other operators than the program does, which say the same in other words.
        if one.partition(":")[0] != other.partition(":")[0] or not tol and one != other:
            yield f"{name}: {one} became {other}"
    for line in differences(expected.values, actual.values, tol=tol, path=""):
        before, _, after = _plain(line).partition(" became ")
        if before.partition(": ")[2] != after:  # an object that is equal to itself only
            yield line
    if expected.shared != actual.shared:
        yield f"sharing: {expected.shared} became {actual.shared}"
    if not tol:
        yield from _compared_exactly(expected, actual)
    for one, other in zip(expected.generators, actual.generators, strict=True):
        if not (torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other):
            yield "a random generator is in another state"


def _compared_exactly(expected: Outcome, actual: Outcome) -> Iterator[str]:
    if expected.printed != actual.printed:
        yield f"printed: {expected.printed!r} became {actual.printed!r}"
    freed = {name for name, node in actual.autograd.items() if node == FREED}
    if [item for item in expected.autograd.items() if item[0] not in freed] != [
        item for item in actual.autograd.items() if item[0] not in freed
    ]:
        yield f"autograd nodes: {expected.autograd} became {actual.autograd}"


class _Beside:
    """What torch.compile does with the same form."""

    def __init__(self, run: Callable[[Compiled], Outcome], backend: str) -> None:
        try:
            self.outcome = run(lambda function: torch.compile(function, backend=backend, dynamic=False))
            self.breaks = sum(torch._dynamo.utils.counters["graph_break"].values())
        finally:
            torch._dynamo.reset()
            torch._dynamo.utils.counters.clear()


def check(example: Example, form: str, backend: str) -> dict[str, Any]:
    """One form with one backend."""
    run = example.body if form == "body" else example.in_turn
    frames: list[Any] = []
    failures: list[str] = []
    compiler = lookup_backend(backend)

    def watched(gm: Any, inputs: Any) -> Any:
        try:
            return compiler(gm, inputs)
        except Exception as error:
            failures.append(message(error)[:500])
            raise

    tol = 0.0 if backend == "eager" else TOLERANCE
    gc.collect()  # what an earlier run has registered is there as long as its objects
    expected = run(_itself)
    stop = log.listen(frames.append)
    try:
        actual = run(lambda function: dynamo_lite.compile(function, backend=watched))
    finally:
        stop()
    problems = list(compared(expected, actual, tol))
    unsteady = [] if not problems else list(compared(expected, run(_itself), tol))
    breaks = [f"{b.code} {b.slug}: {b.context}"[:TO_SHOW] for frame in frames for b in frame.breaks]
    beside = inherited = None
    if not unsteady and (problems or breaks and form == "body" and not tol):
        beside = _Beside(run, backend)
        there = list(compared(expected, beside.outcome, tol))
        inherited = bool(problems and there) and (
            bool(tol) or there == problems
        )  # without a compiler it is the capture that differs
    return {
        "form": form,
        "backend": backend,
        "problems": [problem[:2000] for problem in problems] if not (unsteady or inherited) else [],
        "inherited": [problem[:TO_SHOW] for problem in problems] if inherited else [],
        "unsteady": [problem[:TO_SHOW] for problem in unsteady],
        "breaks": breaks,
        "torch_compile_breaks": beside.breaks + len(beside.outcome.raised) if beside is not None else None,
        "internal": [f.skipped[:TO_SHOW] for f in frames if f.skipped and f.skipped.startswith("internal error")],
        "skipped": [f.skipped[:TO_SHOW] for f in frames if f.skipped and not f.skipped.startswith("internal error")],
        "refused": failures,
        "raised": dict(expected.raised),
        "frames": len(frames),
    }
