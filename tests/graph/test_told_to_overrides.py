"""What `__torch_function__` is told about each method and attribute of tensors: function, types, arguments, keyword arguments."""

import contextlib
import copy
import inspect
import types

import pytest
import torch

import dynamo_lite
from dynamo_lite.testing import run_both, same

NO_CALLS = set(
    "__class__ __init_subclass__ __subclasshook__ __new__ __init__ __dict__ __getattribute__ __torch_function__".split()
)
BREAK = {"__str__", "__setstate__"}
CRASH = {"_fix_weakref", "_make_dtensor", "_rev_view_func_unsafe", "_view_func_unsafe"}
"""torch crashes on operands that it does not expect."""


class Listening(torch.overrides.TorchFunctionMode):
    """Answers with nothing, and keeps what it is told."""

    def __init__(self):
        super().__init__()
        self.log = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.log.append((func, types, len(args), kwargs))


class Told(torch.Tensor):
    log = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        Told.log.append((func, types, len(args), kwargs))


class Below(Told):
    pass


class Off(torch.Tensor):
    __torch_function__ = torch._C._disabled_torch_function_impl


def readable(func, classes, n, kwargs):
    owner = getattr(func, "__self__", None)
    where = owner.__name__ if isinstance(owner, types.GetSetDescriptorType) else ""
    return where, func.__name__, classes, n, kwargs and list(kwargs)


def in_a_mode(calls, x, y):
    mode = Listening()
    with mode:
        for call, rest in calls:
            call(x, *[y if one is Ellipsis else one for one in rest])
    return mode.log


def of_a_class(calls, x, y):
    Told.log.clear()
    for call, rest in calls:
        call(x, *[y if one is Ellipsis else one for one in rest])
    return list(Told.log)


def candidates(raw):
    if isinstance(raw, types.GetSetDescriptorType):
        return [(raw.__get__, ()), (raw.__set__, (...,))]
    if not isinstance(raw, types.MethodDescriptorType | types.WrapperDescriptorType | types.FunctionType):
        return []
    shapes = (), (...,), (0,), (..., ...), (0, ...), (0, 0)
    return [(raw, rest) for rest in shapes]


def asked(listen, x, y):
    """Every call, with the operands of each kind that torch takes, that tells `listen` something."""
    found = []
    for name in sorted(set(dir(torch.Tensor)) - NO_CALLS - BREAK - CRASH):
        for call in candidates(inspect.getattr_static(torch.Tensor, name)):
            try:
                told = listen([call], x, y)
            except Exception:
                continue
            if len(told) == 1:
                found.append(call)
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("listen", "x", "y"),
    [
        (in_a_mode, torch.Tensor, torch.Tensor),
        (in_a_mode, Off, torch.Tensor),
        (in_a_mode, Told, torch.Tensor),
        (of_a_class, Told, Below),
        (of_a_class, torch.Tensor, Told),
        (of_a_class, Below, Told),
    ],
)
def test_every_method_and_attribute(listen, x, y):
    given = [torch.ones(2, 2).as_subclass(cls) for cls in (x, y)]
    calls = asked(listen, *given)
    assert len(calls) > 200
    expected = listen(calls, *given)
    found = dynamo_lite.compile(listen, backend="eager", fullgraph=True)(calls, *given)
    assert [readable(*told) for told in found] == [readable(*told) for told in expected]


# -- the order of questions, and what is not to be asked


def log(func, classes, args, kwargs):
    return (
        getattr(func, "__name__", ""),
        [c.__name__ for c in classes],
        [type(a).__name__ for a in args],
        kwargs and list(kwargs),
    )


class Logging(torch.overrides.TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.log = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.log.append(log(func, types, args, kwargs))
        return func(*args, **(kwargs or {}))


class Own(torch.Tensor):
    log = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        Own.log.append(log(func, types, args, kwargs))
        return super().__torch_function__(func, types, args, kwargs or {})


class Declines(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        Own.log.append(log(func, types, args, kwargs))
        return NotImplemented


def comparisons(x, own):
    return x == own, own == x, x.__eq__(own), own.__eq__(x), own.__eq__(own), own != x, x.__ne__(own), len(own), 1 - own


def other_classes(own, declines):
    return own == declines, declines == own, declines != own


def python_functions(x, own):
    y = (x * x).requires_grad_()
    y.register_hook(lambda g: g * 2)
    (g,) = torch.autograd.grad((y * y).sum(), (y,))
    return copy.deepcopy(x), len(x), [*reversed(x)], [*x], g, torch.sym_max(2, 3)


def writes(x, own):
    x.grad, x.data, x.requires_grad = torch.ones(2), x.data * 2, True
    own.grad, own.data = torch.ones(2), torch.zeros(2)
    x.grad, own.grad = None, None
    return x * 1


def reads(x, own):
    own.requires_grad_()
    return own.grad is None, own.is_leaf, own.grad_fn, (own * 2).is_leaf, x.grad is None


def steps(x, own):
    own.requires_grad_()
    (own * own).sum().backward()
    grad, own.grad = own.grad, None
    return grad


def told_by(fn, first, second, in_mode):
    """What the classes and a mode around all are told in three calls, what they return, and the tensors afterwards."""
    found = []
    for _ in range(3):
        given = [torch.arange(1.0, 3).as_subclass(cls) for cls in (first, second)]
        Own.log.clear()
        with Logging() if in_mode else contextlib.nullcontext() as mode:
            result = fn(*given)
        told = mode and list(mode.log), list(Own.log)
        with torch._C.DisableTorchFunction():
            plain = [t.as_subclass(torch.Tensor).detach() for t in given]
            found.append((told, str(result), plain, [t.grad for t in given], [t.requires_grad for t in given]))
    return found


@pytest.mark.parametrize("in_mode", [False, True])
@pytest.mark.parametrize("fn", [comparisons, python_functions, writes, reads, steps])
def test_what_is_told_in_order(fn, in_mode):
    compiled = dynamo_lite.compile(fn, backend="eager")
    assert same(told_by(fn, torch.Tensor, Own, in_mode), told_by(compiled, torch.Tensor, Own, in_mode))


def test_a_comparison_that_one_class_declines():
    compiled = dynamo_lite.compile(other_classes, backend="eager", fullgraph=True)
    assert same(told_by(other_classes, Own, Declines, False), told_by(compiled, Own, Declines, False))


def test_a_leaf_of_a_subclass():
    run_both(lambda t: (t.is_leaf, t.grad_fn, t.sin()), lambda: (torch.ones(2).as_subclass(Own).requires_grad_(),))


def refuses_to_be_set(x):
    try:
        x.ndim = 3
    except AttributeError:
        return x + 1


def sets_a_shape(x):
    x.shape = (3,)


def sets_an_imaginary_part(x):
    x.imag = torch.ones(2)


def sets_a_real_part(x):
    x.real = torch.zeros(2)
    return x + 1


@pytest.mark.parametrize("fn", [refuses_to_be_set, sets_a_shape, sets_an_imaginary_part, sets_a_real_part])
@pytest.mark.parametrize("cls", [torch.Tensor, Told])
def test_writes_about_which_torch_asks_nobody(fn, cls, caplog):
    def result(call):
        log = []
        with Listening() if cls is torch.Tensor else contextlib.nullcontext():
            Told.log.clear()
            try:
                call(torch.ones(2).as_subclass(cls))
            except Exception as error:
                log.append((type(error), str(error)))
            return log, [entry[0] for entry in Told.log]

    caplog.set_level("WARNING", "dynamo_lite")
    assert result(dynamo_lite.compile(fn, backend="eager")) == result(fn)
    assert "failed on" not in caplog.text
