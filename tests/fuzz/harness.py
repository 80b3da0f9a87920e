"""Runs one program eagerly and captured and compares everything that can be seen from outside.

Input: the text of a module as `grammar` writes it. Output: `difference(text)`, None or a line that says what differs.
Compared, for six calls (equal arguments, others, earlier ones again): result or exception (type, arguments, notes, cause and context, lines
of the traceback), arguments and globals afterwards with the identity relations among all of these, and the log of the opaque calls
with their arguments and the exception handled at the time.
"""

import ast
import bisect
import builtins
import collections
import contextlib
import dataclasses
import enum
import functools
import gc
import heapq
import io
import itertools
import logging
import math
import operator
import os
import re
import signal
import sys
import types
import warnings
import weakref

from dynamo_lite import _eval_frame
from dynamo_lite.config import config
from dynamo_lite.exc import TorchDynamoException
from dynamo_lite.frontend import convert
from dynamo_lite.record import STATS, log

from . import disturbed

FILE = "<fuzz>"
CALLS = (0, 0, 1, 2, 1, 0)
ATOMS = (type(None), type(...), type(NotImplemented), bool, int, float, complex, str, bytes, range)
VIEWS = (type({}.keys()), type({}.values()), type({}.items()))
MODULES = (
    bisect, builtins, collections, contextlib, dataclasses, enum, functools, heapq, itertools, math, operator, signal, sys, types, weakref,
)  # fmt: skip


# Past a metaclass with a `__getattribute__`.
MRO_OF = type.__dict__["__mro__"].__get__
DICT_OF = type.__dict__["__dict__"].__get__
NAME_OF = type.__dict__["__name__"].__get__
QUALNAME_OF = type.__dict__["__qualname__"].__get__
ADDRESS = re.compile(r"0x[0-9a-f]{6,}")


def known(text):
    """The text without addresses."""
    return ADDRESS.sub("0x", text) if "0x" in text else text


class TooLong(BaseException):
    """The program (or its analysis) did not end in time."""


class Describer:
    """A value as nested tuples of plain values; an object met again is a number that says where it was met first."""

    def __init__(self):
        self.seen = {}
        self.keep = []

    def __call__(self, value):
        cls = type(value)  # not isinstance and hasattr, which may run `__getattribute__` of the program
        kind = known(NAME_OF(cls))
        if any(cls is atom for atom in ATOMS):  # not `in`: a metaclass may have an `__eq__`
            return kind, known(repr(value))
        if issubclass(cls, type):
            return kind, QUALNAME_OF(value)
        if cls is types.BuiltinFunctionType or cls is types.ModuleType:
            return kind, value.__name__
        if not issubclass(cls, (tuple, frozenset)):
            if id(value) in self.seen:
                return "same", self.seen[id(value)]
            self.seen[id(value)] = len(self.seen)
            self.keep.append(value)
        return (kind, *self.parts(value))

    def parts(self, value):
        cls = type(value)
        if issubclass(cls, dict):
            return [(self(k), self(v)) for k, v in dict.items(value)] + self.attributes(value)
        if issubclass(cls, list):
            return [self(v) for v in list.__iter__(value)] + self.attributes(value)
        if issubclass(cls, tuple):
            return [self(v) for v in tuple.__iter__(value)]
        if issubclass(cls, collections.deque):
            return [value.maxlen, *(self(v) for v in value)]
        if issubclass(cls, VIEWS):
            return [self(v) for v in value]
        if issubclass(cls, (set, frozenset)):
            return sorted(repr(plain(v)) for v in value)  # not in the order of addresses, and without identities
        for base in (int, str, float):
            if issubclass(cls, base):
                return [base.__repr__(value), *self.attributes(value)]
        if issubclass(cls, BaseException):
            return self.exception(value) + self.attributes(value)
        if issubclass(cls, types.FunctionType):
            return value.__qualname__, self(value.__defaults__), [self.cell(c) for c in value.__closure__ or ()]
        if issubclass(cls, types.MethodType):
            return self(value.__func__), self(value.__self__)
        if issubclass(cls, functools.partial):
            return self(value.func), self(value.args), self(value.keywords)
        if issubclass(cls, types.GeneratorType):
            return value.__name__, str(value.gi_frame and value.gi_frame.f_lineno)
        if NAME_OF(cls) in ("Tensor", "Parameter"):
            return self.tensor(value)
        if "iterator" in NAME_OF(cls) and any("__next__" in DICT_OF(base) for base in MRO_OF(cls)):
            return ()
        return self.attributes(value)

    def attributes(self, value):
        # Not getattr: no `__getattr__` of the program may run.
        names = ["__dict__", *(n for c in MRO_OF(type(value)) for n in DICT_OF(c).get("__slots__", ()))]
        return [(n, self(object.__getattribute__(value, n))) for n in names if _has(value, n)]

    def tensor(self, tensor):
        about = [
            repr(tensor.tolist()),
            str(tensor.dtype),
            tensor.stride(),
            tensor.storage_offset(),
            tensor.requires_grad,
        ]
        return [*about, self.storage(tensor), self(tensor.__dict__), *([self(tensor.grad)] if tensor.is_leaf else [])]

    def storage(self, tensor):
        return self.seen.setdefault(("storage", tensor.untyped_storage()._cdata), len(self.seen))

    def cell(self, cell):
        try:
            return self(cell.cell_contents)
        except ValueError:
            return "empty"

    def exception(self, error):
        cause, context, suppressed = (member(error, f"__{n}__") for n in ("cause", "context", "suppress_context"))
        return [self(member(error, "args")), suppressed, self(cause), self(context)]


def member(error, name):
    """What C keeps of an exception: the program may define an attribute of that name."""
    return BaseException.__dict__[name].__get__(error)


def _has(value, name):
    try:
        object.__getattribute__(value, name)
    except (AttributeError, RecursionError):  # a descriptor of the program that asks for itself
        return False
    return True


def lines(error):
    """The program's lines in a traceback."""
    found = []
    tb = member(error, "__traceback__")
    while tb is not None:
        if tb.tb_frame.f_code.co_filename == FILE:
            found.append(tb.tb_lineno)
        tb = tb.tb_next
    if type(error) is UnboundLocalError:
        # CPython 3.11 names the line before, once it has merged a store with the load after it.
        del found[-1:]
    return found


def plain(value):
    """A description for the log: without identities, and such that no code of the program runs."""
    return Describer()(value)


def namespace(events):
    """The globals of a program; opaque calls are noted in `events`."""

    def handled():
        error = sys.exc_info()[1]
        return None if error is None else (known(NAME_OF(type(error))), plain(error.args))

    def stop(tag, value):
        events.append((tag, plain(value), handled()))
        return value

    def poke(tag, value):
        events.append((tag, plain(value), handled()))
        if isinstance(value, list) and len(value) < 6:
            value.append(len(value))
        return value

    def fail(tag, value):
        events.append((tag, plain(value), handled()))
        if value in (0, 3):
            raise KeyError(tag)
        if value == 5:
            raise ValueError(tag, value)
        return value

    def call(tag, fn, *args):
        events.append((tag, plain(args), handled()))
        return fn(*args)

    def advance(tag, iterator):
        events.append((tag, handled()))
        item = next(iterator, 0)
        events.append((tag, plain(item)))
        return item

    watched = []

    def watch(tag, value):
        """Note when the value dies, and have `alive` ask for it."""
        number = len(watched)
        try:
            watched.append(weakref.ref(value, lambda reference: events.append(("died", number))))
        except TypeError:
            events.append((tag, "no weak reference"))
        return value

    def alive(tag):
        events.append((tag, [reference() is not None for reference in watched]))

    def disturb(tag, step):
        events.append((tag, handled()))
        names["change"](step)

    def interrupt(tag):
        events.append((tag, handled()))
        signal.raise_signal(signal.SIGUSR1)
        events.append((tag, "goes on"))

    opaque = (stop, poke, fail, call, advance, watch, alive, disturb, interrupt)
    names = {f.__name__: _eval_frame.Uncaptured(f) for f in opaque}
    names |= {m.__name__: m for m in MODULES}
    names["OUT"] = io.StringIO()
    names["MOD"] = disturbed.module()
    names["HANDLES"] = []
    if "torch" in sys.modules:
        names["torch"] = sys.modules["torch"]
    names |= {"__name__": "fuzz", "__builtins__": __builtins__}
    return names


def run(code, captured):
    """The observations of each call: outcome, arguments, globals, events."""
    events = []
    names = namespace(events)
    region = convert.Region(lambda gm, inputs: gm.forward) if captured else None
    with disturbed.restored(names):
        if "torch" in names:
            names["torch"].manual_seed(0)
            names["torch"].set_grad_enabled(True)
        exec(code, names)
        disturbed.install(names)
        if captured:
            for step in names.get("DISTURBED", ()):
                prelude(code, region, step)
        events.clear()
        fn = region.wrap(names["program"]) if captured else names["program"]
        with disturbed.ticking(names.get("TICKS") if captured else None):
            return [observed(fn, names, events, number, k) for number, k in enumerate(CALLS)]


def prelude(code, region, step):
    """A call that is disturbed, with globals of its own: what it leaves behind in the engine must not show in the calls compared."""
    names = namespace([])
    with disturbed.restored(names):
        exec(code, names)
        disturbed.install(names)
        disturbed.undergo(region.wrap(names["program"]), names["make_args"](0), step)


def observed(fn, names, events, number, k):
    """One call and the change that comes after it."""
    told = STATS.errors_passed_on
    try:
        arguments = names["make_args"](k)
    except Exception as error:  # a class that has changed
        arguments = [error]
    try:
        outcome = "returned", fn(*arguments)
    except TorchDynamoException:
        raise
    except Exception as error:
        outcome = "raised", error
    if outcome[0] == "returned":  # a traceback keeps variables, more of them in eager execution
        names["alive"]("after the call")
    describe = Describer()
    state = {n: names.get(n, "unbound") for n in ("G", "GL", "GD", "COUNT")} | {"OUT": names["OUT"].getvalue()}
    if "KEPT" in names:
        state |= {n: names.get(n, "unbound") for n in ("KEPT", "OTHER")} | {"MOD": vars(names["MOD"])}
    if "torch" in names:
        state |= {"MODULE": names.get("MODULE"), "grad": names["torch"].is_grad_enabled()}
        state |= {"random": names["torch"].get_rng_state().sum().item()}
    classes = {
        n: DICT_OF(c).get("k") for n, c in names.items() if issubclass(type(c), type)
    }  # runs no code of the program
    # The values go on living during the description, so that an identity can't be taken by another object.
    seen = {
        "outcome": describe(outcome), "arguments": describe(arguments), "globals": describe(state), "classes": describe(classes),
    }  # fmt: skip
    # After an error that only the running graph raised, and that says what was lost, nothing is comparable.
    seen["told"] = STATS.errors_passed_on != told
    seen["traceback"] = lines(outcome[1]) if outcome[0] == "raised" else []
    seen["events"] = list(events)
    seen["generators"] = [drain(v) for where in (outcome[1], arguments, names.get("GL")) for v in _generators(where)]
    seen["events of generators"] = events[len(seen["events"]) :]
    events.clear()
    del describe, outcome, arguments, state, classes
    names["alive"]("after its results")
    seen["deaths"] = list(events)
    for kind in ("events", "deaths"):
        seen[kind] = deaths_in_order(seen[kind])
    events.clear()
    if "change" in names:
        try:
            names["change"](number)
        except Exception as error:  # a program that was made shorter
            events.append(plain(error))
        seen["change"] = list(events)
        events.clear()
    return seen


# The tags of what weak references, `__del__` methods and callbacks note.
DEATHS = ("died", 0, "ref")


def deaths_in_order(events):
    """The events, with what dies at one moment sorted: in which order a frame that ends drops its variables is not compared."""
    ordered = []
    for died, group in itertools.groupby(events, lambda event: event[0] in DEATHS):
        ordered += sorted(group, key=repr) if died else group
    return ordered


def _generators(value):
    items = value if type(value) in (list, tuple) else [value]
    return [v for v in items if any("__next__" in DICT_OF(base) for base in MRO_OF(type(v)))]


def drain(iterator):
    """What is left of an iterator, and how it ends."""
    items = []
    try:
        for item in itertools.islice(iterator, 20):
            items.append(plain(item))
    except Exception as error:
        items.append(("raised", plain(error)))
    return items


@contextlib.contextmanager
def limit(seconds):
    """Raise TooLong in the block after that time, again and again: a program may catch it."""

    def alarm(signum, frame):
        raise TooLong

    before = signal.signal(signal.SIGALRM, alarm)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def compiles(text):
    """The module's code, or None if it is no valid program."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return compile(text, FILE, "exec")
    except SyntaxError:
        return None


def deaths_at_the_end(calls):
    """The observations, with all that dies during a call that raises noted after its results: the traceback's frames of captured code
    need not hold the variables that those of eager execution do (see `docs/reference.md`)."""
    for seen in calls:
        if seen["traceback"]:
            died = [event for event in seen["events"] if event[0] in DEATHS]
            seen["events"] = [event for event in seen["events"] if event[0] not in DEATHS]
            seen["deaths"] = sorted(died + seen["deaths"], key=repr)
    return calls


def difference(text, seconds=20.0, ignored=(), view=deaths_at_the_end):
    """None if eager and captured execution agree; else `kind: details`. `view` is what is compared of the observations. Raises SyntaxError
    or TooLong if eager execution fails."""
    code = compiles(text)
    if code is None:
        raise SyntaxError("not a program")
    with limit(2), lasting_garbage(text):
        expected = run(code, captured=False)
    code = compiles(text)  # not the same code object: CPython adapts it as it runs, and may then name another line
    log.reset()
    logging.getLogger("dynamo_lite").setLevel(logging.CRITICAL)
    try:
        with (
            limit(seconds),
            lasting_garbage(text),
            config.patch(capture_pure_python=True, suppress_errors=False, debug=True),
        ):
            actual = run(code, captured=True)
    except TooLong:
        return "hang: captured execution did not end"
    except Exception as error:
        return f"internal: {type(error).__name__}: {error}"
    expected = view(expected)
    problem = first_difference(expected, view(actual), ignored)
    if (
        problem is None
        or not is_determined(text, expected, ignored, view)
        or hangs_on_slots(text, expected, problem, view)
    ):
        return None
    return problem


def first_difference(expected, actual, ignored):
    """The first observation that differs, as text."""
    for call, (one, other) in enumerate(zip(expected, actual, strict=True)):
        if other["told"]:
            return None
        for name in one:
            if name not in ignored and one[name] != other[name]:
                return f"{name}: call {call}: expected {one[name]}\n    captured {other[name]}"
    return None


def is_determined(text, expected, ignored, view=list):
    """Whether eager execution always does the same: the order of a set of objects hangs on their addresses."""
    kept = []
    for count in range(1, 9):
        kept += [(x for x in ()) for _ in range(count)]  # other addresses next time
        with limit(2), lasting_garbage(text):
            again = view(run(compiles(text), captured=False))
        if first_difference(expected, again, ignored) is not None:
            return False
    return True


def hangs_on_slots(text, expected, problem, view):
    """Whether eager execution differs at the place of a mismatch already if functions have their variables in another order: a frame that
    ends drops them in that order, which captured code does not keep (see `docs/reference.md`)."""
    kind, _, rest = problem.partition(": call ")
    if not rest:
        return False
    call = int(rest.partition(":")[0])
    with limit(2), lasting_garbage(text):
        again = view(run(compile(reordered(text), FILE, "exec"), captured=False))
    return again[call][kind] != expected[call][kind]


def reordered(text):
    """The program with the variables of all functions, but for their parameters, in the opposite order: CPython numbers them as it meets
    them, also in code that it leaves out."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            names = [ast.Name(name, ast.Load()) for name in reversed(variables_of(node))]
            first = node.body[0]
            node.body.insert(0, ast.If(ast.Constant(0), [ast.Expr(ast.Tuple(names, ast.Load()))], []))
            for new in ast.walk(node.body[0]):
                ast.copy_location(new, first)
    return tree


def variables_of(function):
    """The names that a function binds in its own scope, but for its parameters, in the order in which they come up."""
    names, declared, pending = (
        {},
        {argument.arg for argument in ast.walk(function.args) if isinstance(argument, ast.arg)},
        function.body[::-1],
    )
    while pending:
        node = pending.pop()
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            declared.update(node.names)
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names[node.name] = None
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names[node.id] = None
        elif isinstance(node, ast.ExceptHandler) and node.name:
            names[node.name] = None
        if not isinstance(node, SCOPES):
            pending += list(ast.iter_child_nodes(node))[::-1]
    return [name for name in names if name not in declared]


SCOPES = (ast.FunctionDef, ast.ClassDef, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@contextlib.contextmanager
def lasting_garbage(text):
    """No cyclic garbage is collected in a program that could see when: this hangs on the number of objects that the engine makes, which
    also collects by itself after it has followed a class statement."""
    collect = gc.collect
    if "watch(" in text or "__del__" in text or "weakref" in text:
        gc.disable()
        gc.collect = lambda generation=2: 0
    try:
        yield
    finally:
        gc.collect = collect
        gc.enable()


def kind_of(problem):
    """What a shrunk program has to have in common with the first one."""
    if problem.startswith("internal"):
        return re.sub(r"\d+|'[^']*'|0x\w+", "#", problem.split("\n")[0])[:90]
    return problem.partition(":")[0]


def captured_share():
    """(frames captured, frames left alone) since the last reset."""
    frames = log.snapshot()
    return sum(f.skipped is None for f in frames), sum(f.skipped is not None for f in frames)


def environment():
    """For the summary."""
    return {"python": sys.version.split()[0], "hash_seed": os.environ.get("PYTHONHASHSEED", "random")}
