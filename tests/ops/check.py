"""One call, eagerly and compiled.

Input: a `database.Call` and a backend. Output: a dictionary of plain values: what differs, what broke the graph. `inherited` are
differences of a backend that it has under torch.compile as well.
Compared are the result with dtype, strides and what it shares memory with, or the exception; the arguments afterwards; the
gradients; the state of the random generator. With the backend `eager` everything has to be equal bit by bit, otherwise up to rounding
and to the texts of exceptions.
"""

import copy
import random
import re
import warnings
from dataclasses import dataclass, field
from typing import Any

import torch

import dynamo_lite
from dynamo_lite.backends.registry import lookup_backend
from dynamo_lite.record import log
from dynamo_lite.testing import differences, identities
from tests.helpers import seeds

TOLERANCE = {torch.float32: 1e-5, torch.complex64: 1e-5, torch.bfloat16: 1.6e-2, torch.float16: 1e-3}
SEED = 1234
REPEATS = 20


class Copies:
    """Copies of tensors in structures: same strides, same sharing of memory; each leaf stays one."""

    def __init__(self):
        self.storages = {}
        self.tensors = {}
        self.keep = []

    def __call__(self, value):
        if isinstance(value, torch.Tensor):
            return self.tensor(value)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*map(self, value))
        if type(value) in (list, tuple):
            return type(value)(map(self, value))
        if type(value) is dict:
            return {key: self(item) for key, item in value.items()}
        if isinstance(value, torch.Generator):
            return value.clone_state()
        return value

    def tensor(self, value):
        if id(value) not in self.tensors:
            self.keep.append(value)
            self.tensors[id(value)] = self.new(value)
        return self.tensors[id(value)]

    def new(self, value):
        if (
            type(value) is not torch.Tensor
            or value.layout is not torch.strided
            or value.is_quantized
            or value.is_nested
        ):
            return value.detach().clone().requires_grad_(value.requires_grad)
        if value.is_conj():
            return self.new(value.conj()).conj()
        if value.is_neg():
            return self.new(torch._neg_view(value))._neg_view()
        storage = value.untyped_storage()
        if storage._cdata not in self.storages:
            self.storages[storage._cdata] = storage.clone()
        made = torch.empty(0, dtype=value.dtype, device=value.device)
        made.set_(self.storages[storage._cdata], value.storage_offset(), value.size(), value.stride())
        return made.requires_grad_(value.requires_grad)


@dataclass
class Observation:
    """What a call did."""

    result: Any = None
    error: Exception | None = None
    arguments: Any = None
    gradients: Any = None
    shared: dict[str, str] = field(default_factory=dict)
    generators: Any = None


def tensors_in(value):
    """The tensors of a structure in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [t for item in value for t in tensors_in(item)] if isinstance(value, list | tuple) else []


def observe(call, compiled):
    """Make the call on copies of its arguments; `compiled` turns the function into what is called."""
    copies = Copies()
    given = copies((call.args, call.kwargs))
    leaves = [t for t in tensors_in(given) if t.requires_grad]
    args, kwargs = given
    if call.fresh:
        args = (args[0].clone(memory_format=torch.preserve_format), *args[1:])
    function = copy.deepcopy(call.function) if isinstance(call.function, torch.nn.Module) else call.function
    if isinstance(function, torch.nn.Module):
        leaves += [p for p in function.parameters() if p.requires_grad]
    seeds.seed(SEED)
    random.seed(SEED)
    seen = Observation(arguments=[args, kwargs])
    try:
        seen.result = compiled(function)(*args, **kwargs)
    except Exception as error:
        seen.error = error
    seen.generators = torch.get_rng_state(), random.getstate(), _state_of_device()
    seen.shared = identities({"result": seen.result, "args": args, "kwargs": kwargs})
    if isinstance(function, torch.nn.Module):
        seen.arguments.append(dict(function.state_dict(keep_vars=True)))
    if call.grad and seen.error is None:
        seen.gradients = gradients(seen.result, leaves)
    return seen


def _state_of_device():
    """That of the generator of CUDA, once it is in use."""
    return torch.cuda.get_rng_state() if torch.cuda.is_initialized() else torch.empty(0)


def gradients(result, leaves):
    """Of everything in the result that has any; an exception of the backward pass is a result too."""
    outputs = [t for t in tensors_in(result) if t.requires_grad]
    if not outputs or not leaves:
        return None
    seeds.seed(SEED)
    starts = [torch.randn_like(t) if t.layout is torch.strided else t.detach().clone() for t in outputs]
    try:
        return torch.autograd.grad(outputs, leaves, starts, allow_unused=True)
    except Exception as error:
        return message(error)


def plain_call(function):
    """A function of its own around a callable, so that nothing compiled earlier is found."""
    if isinstance(function, torch.nn.Module):
        return function

    def call(*args, **kwargs):
        return function(*args, **kwargs)

    return call


_address = re.compile(r"0x[0-9a-f]+")


def message(error):
    return f"{type(error).__name__}: {_address.sub('0x', str(error))}"


def compared(expected, actual, tol, with_values):
    """One line per difference of two observations."""
    if expected.error is not None or actual.error is not None:
        one, other = (message(e) if e is not None else "no exception" for e in (expected.error, actual.error))
        # Compilers may call other operators than the program does, which say the same in other words.
        if type(expected.error) is not type(actual.error) or not tol and one != other:
            yield f"exception: {one} became {other}"
    if not with_values:
        for seen in (expected, actual):
            for tensor in tensors_in([seen.result, seen.arguments, seen.gradients]):
                with torch.no_grad():
                    tensor.detach().zero_()
    for name in ("result", "arguments", "gradients"):
        one, other = getattr(expected, name), getattr(actual, name)
        yield from differences(one, other, tol=tol, path=name)
        if tol and name != "gradients":  # compiled, those are laid out as the compiler likes
            yield from _strides(name, one, other)
        yield from _lazy_bits(name, one, other)
    if expected.shared != actual.shared:
        yield f"sharing: {expected.shared} became {actual.shared}"
    states = zip(expected.generators, actual.generators, strict=True)
    if not all(torch.equal(*pair) if isinstance(pair[0], torch.Tensor) else pair[0] == pair[1] for pair in states):
        yield "a random generator is in another state"


def _strides(name, one, other):
    for i, (a, b) in enumerate(zip(tensors_in(one), tensors_in(other), strict=False)):
        if a.layout is b.layout is torch.strided and a.shape == b.shape and a.numel() > 1 and a.stride() != b.stride():
            yield f"{name} {i}: stride {a.stride()} became {b.stride()}"


def _lazy_bits(name, one, other):
    for i, (a, b) in enumerate(zip(tensors_in(one), tensors_in(other), strict=False)):
        if (a.is_conj(), a.is_neg()) != (b.is_conj(), b.is_neg()):
            yield f"{name} {i}: lazy conjugation or negation differs"


def _is_inherited(call, backend, expected, tol):
    """Whether torch.compile with this backend has another outcome than eager execution, too: then the backend is to blame."""
    try:
        actual = observe(call, lambda function: torch.compile(plain_call(function), backend=backend, dynamic=False))
        return bool(list(compared(expected, actual, tol, True)))
    finally:
        torch._dynamo.reset()


def _repeats_itself(call, expected, tol):
    """Whether eager execution has the same outcome each time. Some of LAPACK's drivers have a few, depending on what memory holds."""
    return not any(list(compared(expected, observe(call, plain_call), tol, True)) for _ in range(REPEATS))


def check(call, dtype, backend, with_values=True, dynamic=None):
    """Make a call eagerly and compiled, and compare."""
    failures, frames = [], []
    compiler = lookup_backend(backend)

    def watched(gm, inputs):
        try:
            return compiler(gm, inputs)
        except Exception as error:
            failures.append(f"{type(error).__name__}: {error}"[:500])
            raise

    def compiled(function):
        return dynamo_lite.compile(plain_call(function), backend=watched, isolate_recompiles=True, dynamic=dynamic)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = observe(call, plain_call)
        stop = log.listen(frames.append)
        try:
            actual = observe(call, compiled)
        finally:
            stop()
        tol = 0.0 if backend == "eager" else TOLERANCE.get(dtype, 1e-7)
        problems = list(compared(expected, actual, tol, with_values))
        if problems and with_values and not _repeats_itself(call, expected, tol):
            problems = list(compared(expected, actual, tol, False))
        inherited = bool(problems) and backend != "eager" and _is_inherited(call, backend, expected, tol)
    breaks = [f"{b.code} {b.slug}: {b.context}"[:300] for frame in frames for b in frame.breaks]
    return {
        "problems": [] if inherited else problems,
        "inherited": problems if inherited else [],
        "breaks": breaks,
        "internal": [f.skipped for f in frames if f.skipped and f.skipped.startswith("internal error")],
        "backend": failures,
        "raised": expected.error is not None,
        "seen": bool(frames),
    }
