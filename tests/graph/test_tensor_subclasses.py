"""Subclasses of tensors: special methods and attribute hooks of the program, what `__torch_function__` is told."""

import pytest
import torch
from torch import nn

import dynamo_lite
from dynamo_lite.testing import CompileCounter, same


def x():
    return torch.arange(12.0).reshape(4, 3) / 7 - 0.5


class Named(torch.Tensor):
    """Operators of its own."""

    def __new__(cls, data, names=("row", "column")):
        made = torch.Tensor._make_subclass(cls, data)
        made.axes = names
        return made

    def __add__(self, other):
        return super().__add__(other) * 10

    def __rmul__(self, other):
        return "right"

    def __mul__(self, other):
        return NotImplemented

    def __getitem__(self, key):
        return super().__getitem__(self.axes.index(key) if isinstance(key, str) else key)

    def __len__(self):
        return 77

    def __contains__(self, name):
        return name in self.axes

    def __lt__(self, other):
        return "smaller"

    def __neg__(self):
        return super().__neg__() - 1


class Scaled(nn.Parameter):
    """A parameter with an operator of its own, which computes with plain results."""

    def __matmul__(self, other):
        return super().__matmul__(other) * 3


class Logging(torch.Tensor):
    log: list[str] = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.log.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})


class Hooked(torch.Tensor):
    def __getattr__(self, name):
        if name == "magic":
            return 42
        raise AttributeError(name)


class Storing(torch.Tensor):
    def __setattr__(self, name, value):
        super().__setattr__(name, (value, value))


def whole(fn, *make):
    """Two calls in one graph give what eager execution gives."""
    counter = CompileCounter()
    compiled = dynamo_lite.compile(fn, backend=counter, fullgraph=True)
    for _ in range(2):
        found = compiled(*(m() for m in make))
        assert same(fn(*(m() for m in make)), found)
    assert counter.frame_count == 1
    return found


def named():
    return Named(x())


def operators(t):
    return t["column"], t[0], len(t), "row" in t, t < 1, t > 1, -t, 3 * t


def added(t):
    return torch.Tensor.add(t, 1), t.sum(), x() - t


def refuses(t):
    try:
        return t * 2
    except TypeError as error:
        return str(error), t.sum()


@pytest.mark.parametrize("fn", [operators, added, refuses])
def test_special_methods(fn):
    whole(fn, named)
    whole(lambda a: fn(Named(a)), x)


def test_a_tensor_asks_the_method_of_a_subclass_first():
    assert whole(lambda a, t: (a * t, a.add(1)), x, named)[0] == "right"


def test_a_method_of_a_parameter():
    w = Scaled(x())
    compiled = dynamo_lite.compile(lambda a: w @ a, backend="aot_eager", fullgraph=True)
    found = compiled(x().t())
    assert torch.equal(found, w @ x().t())
    found.sum().backward()
    assert torch.allclose(w.grad, 3 * x().sum(0).expand(4, 3))


def test_what_is_announced():
    def calls(t):
        torch.Tensor.__mul__(t, 2), t.__rsub__(1), t.__lt__(0), t.__neg__(), torch.Tensor.__iadd__(t, 1), t.__pow__(2)
        t.__eq__(t), t.__floordiv__(2), t.__radd__(1), t.__matmul__(t.mT), len(t), t.stride(), t.new_zeros(2)
        t + 1, 1 - t, t[0], t.shape, torch.stack([t])

    def told(fn):
        Logging.log.clear()
        fn(x().as_subclass(Logging))
        return list(Logging.log)

    assert told(dynamo_lite.compile(calls, backend="eager", fullgraph=True)) == told(calls)


def test_attribute_hooks():
    whole(lambda t: (t * t.magic, hasattr(t, "nope")), lambda: x().as_subclass(Hooked))

    def store(t):
        t.note = 1
        return t.note, t.sin()

    given = x().as_subclass(Storing)
    assert dynamo_lite.compile(store, backend="eager")(given)[0] == given.note == (1, 1)
    with pytest.raises(dynamo_lite.exc.Unsupported, match="Storing.__setattr__"):
        dynamo_lite.compile(store, backend="eager", fullgraph=True)(given)


def test_named_results_of_a_subclass():
    whole(lambda t: (t.max(0), t.sort().values + 1, torch.return_types.max([t, 1])), lambda: x().as_subclass(Hooked))

    def refused(a):
        told = []
        for bad in ([1], 3):
            try:
                torch.return_types.max(bad)
            except TypeError as error:
                told.append(str(error))
        return a + 1, told

    whole(refused, x)
