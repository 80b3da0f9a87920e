"""Subclasses of tensors: special methods and attribute hooks of the program, what `__torch_function__` is told."""

import pytest
import torch
from torch import nn

import dynamo_lite
from dynamo_lite.testing import CompileCounter, EagerAndRecordGraphs, run_both, same


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


# -- what changes in a class


def test_a_class_that_gets_a_method_later():
    class Later(torch.Tensor):
        pass

    class LaterParameter(nn.Parameter):
        pass

    for given in (x().as_subclass(Later), LaterParameter(x())):
        cls, compiled = (
            type(given),
            dynamo_lite.compile(lambda t: (t.sin(), t.is_leaf), backend="eager", fullgraph=True),
        )
        assert same(compiled(given), (given.sin(), True))
        cls.sin = lambda self: 5
        assert compiled(given) == (5, True)
        cls.is_leaf = 7
        assert compiled(given) == (5, 7)


def test_a_class_that_gets_a_special_method_later():
    class Later(torch.Tensor):
        pass

    compiled = dynamo_lite.compile(lambda t: t + 1, backend="eager", fullgraph=True)
    made = dynamo_lite.compile(lambda t: t.as_subclass(Later) + 1, backend="eager", fullgraph=True)
    given = x().as_subclass(Later)
    assert same(compiled(given), given + 1) and same(made(x()), x().as_subclass(Later) + 1)
    Later.__add__ = lambda self, other: 5
    assert compiled(given) == 5 and made(x()) == 5
    del Later.__add__
    assert same(compiled(given), given + 1) and same(made(x()), x().as_subclass(Later) + 1)


# -- iteration


def test_iteration_is_told_as_by_python():
    def rows(t):
        first, *_ = t
        return [row.cos() for row in t], first, list(zip(t, t, strict=True)), [*t], len({*t})

    def no_rows(t):
        try:
            return list(t)
        except TypeError as error:
            return str(error)

    def told(fn, given):
        Logging.log.clear()
        return fn(given.as_subclass(Logging)), list(Logging.log)

    for fn, given in ((rows, x()), (no_rows, torch.tensor(1.0))):
        found, expected = (told(f, given) for f in (dynamo_lite.compile(fn, backend="eager", fullgraph=True), fn))
        assert same(found[0], expected[0])
        assert found[1] == expected[1]


class Reversed(torch.Tensor):
    """Methods that iteration calls."""

    def unbind(self, dim):
        return super().unbind(dim)[::-1]

    def dim(self):
        return super().dim() - 1


def test_iteration_calls_methods():
    assert len(whole(lambda t: [*t], lambda: x().as_subclass(Reversed))) == 4
    with pytest.raises(TypeError, match="0-d"):
        dynamo_lite.compile(lambda t: [*t], backend="eager")(x()[0].as_subclass(Reversed))


# -- classes made inside


def make_class(factor):
    class Made(torch.Tensor):
        unit = 2

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            result = super().__torch_function__(func, types, args, kwargs or {})
            return result * factor if func is torch.sin else result

        @property
        def twice(self):
            return self * self.unit

        def __add__(self, other):
            return super().__add__(other) * 10

    return Made


def plain(t):
    return t.as_subclass(torch.Tensor)


def uses_class(a):
    cls = make_class(3)
    t = a.as_subclass(cls)
    t.note = cls
    cls.unit = 4
    return plain(torch.sin(t)), plain(t.twice + 1), isinstance(t, cls), type(t) is t.note, plain(cls(a).cos())


def uses_constructor(a):
    class Base(torch.Tensor):
        def __new__(cls, data, note):
            return torch.Tensor._make_subclass(cls, data)

        def __init__(self, data, note):
            self.note = note

    class Derived(Base):
        def noted(self):
            return self.note

    t = Derived(a, 4).cos()
    return plain(t), Derived(a, 5).noted(), isinstance(t, Base), Derived.__mro__[1] is Base


def calls_metaclass(a):
    cls = torch._C._TensorMeta("Named", (torch.Tensor,), {"k": 5})
    t = a.as_subclass(cls)
    return plain(t * t.k), cls.__name__


def has_no_tensor(a):
    try:

        class Bare(torch._C.TensorBase):
            pass
    except RuntimeError as error:
        return str(error), a + 1


@pytest.mark.parametrize("fn", [uses_class, uses_constructor, calls_metaclass, has_no_tensor])
def test_a_class_made_inside(fn):
    run = run_both(fn, x())
    assert run.breaks


def test_a_class_made_inside_leaves_the_graph():
    def fn(a):
        cls = make_class(3)
        t = a.as_subclass(cls)
        return t, cls, (t + 1,)

    compiled = dynamo_lite.compile(fn, backend="eager")
    t, cls, (added,) = compiled(x())
    assert type(t) is type(added) is cls
    assert cls.__name__ == "Made"
    assert same(plain(added), (x() + 1) * 10)
    assert same(plain(torch.sin(t)), torch.sin(x()) * 3)
    assert same(plain(t.twice), x() * 2)
    assert compiled(x())[1] is not cls


def test_a_class_made_inside_before_a_break():
    def fn(a):
        t = a.as_subclass(make_class(3))
        dynamo_lite.graph_break()
        return plain(torch.sin(t) + 1)

    assert same(dynamo_lite.compile(fn, backend="eager")(x()), (torch.sin(x()) * 3 + 1) * 10)


def test_gradients_through_a_class_made_inside():
    a = x().requires_grad_()

    def fn(t):
        return plain(torch.sin(t.as_subclass(make_class(3))))

    compiled = dynamo_lite.compile(fn, backend="aot_eager")
    compiled(a).sum().backward()
    assert torch.allclose(a.grad, 3 * x().cos())


def dispatches(a):
    class Dispatching(torch.Tensor):
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    return a + 1, Dispatching.__torch_function__ is torch._C._disabled_torch_function_impl


def is_not_asked(a):
    class Silent(torch.Tensor):
        __torch_function__ = torch._C._disabled_torch_function_impl

    t = a.as_subclass(Silent)
    return type(t + 1) is torch.Tensor, plain(t) + 1


def gets_an_operator(a):
    cls = make_class(3)
    t = a.as_subclass(cls)
    cls.__add__ = lambda self, other: 5
    return t + 1


def has_slots(a):
    class Slotted(torch.Tensor):
        __slots__ = ("kept",)

    t = a.as_subclass(Slotted)
    t.kept = 3
    return t.kept, plain(t)


@pytest.mark.parametrize("fn", [dispatches, is_not_asked, gets_an_operator, has_slots])
def test_a_class_made_inside_that_is_not_followed(fn):
    assert same(dynamo_lite.compile(fn, backend="eager")(x()), fn(x()))
    with pytest.raises(dynamo_lite.exc.Unsupported):
        dynamo_lite.compile(fn, backend="eager", fullgraph=True)(x())


def test_results_of_operators_have_no_aliases_of_their_own():
    """What `as_subclass` makes of a result that nothing else uses is the result."""

    class Sub(torch.Tensor):
        pass

    def f(x):
        y = (x + 1) * 2
        y.add_(3)
        first, _ = y.split(3)
        first.mul_(2)
        return y - 1, x.as_subclass(torch.Tensor), first

    recorder = EagerAndRecordGraphs()
    given = torch.arange(6.0)
    expected = f(given.as_subclass(Sub))
    found = dynamo_lite.compile(f, backend=recorder)(given.as_subclass(Sub))
    assert [type(r) for r in found] == [type(r) for r in expected]
    assert all(
        torch.equal(r.as_subclass(torch.Tensor), e.as_subclass(torch.Tensor))
        for r, e in zip(found, expected, strict=True)
    )
    assert recorder.graphs[0].code.count("alias.default(") == 1  # of the input
