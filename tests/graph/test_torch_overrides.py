"""`__torch_function__`: subclasses of tensors, other objects, modes, and the ways to switch the protocol off."""

import operator

import pytest
import torch
import torch.nn.functional as F

import dynamo_lite
from dynamo_lite.testing import run_both
from tests.helpers.graph_counts import whole


class Plain(torch.Tensor):
    """The protocol's default."""

    def doubled(self):
        return self * 2


class Tagged(torch.Tensor):
    """Has an attribute, and its own `add`."""

    def __new__(cls, x, tag=None):
        return torch.Tensor._make_subclass(cls, x)

    def __init__(self, x, tag=None):
        self.tag = tag

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.add:
            return torch.mul(args[0].as_subclass(torch.Tensor), 100)
        return super().__torch_function__(func, types, args, kwargs or {})


class CosForSin(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.sin:
            func = torch.cos
        return func(*args, **(kwargs or {}))


class Duck:
    def __init__(self, tensor):
        self.tensor = tensor

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return cls(func(*[a.tensor if isinstance(a, Duck) else a for a in args], **(kwargs or {})))


class Named:
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return func.__name__, [type(a).__name__ for a in args]


class NamedDict(Named, dict):
    pass


class NamedModule(Named, torch.nn.Module):
    pass


OPERATORS = [
    operator.add,
    operator.sub,
    operator.mul,
    operator.matmul,
    operator.truediv,
    operator.floordiv,
    operator.mod,
]
OPERATORS += [operator.pow, operator.and_, operator.lshift, operator.eq, operator.ne, operator.lt, operator.iadd]


def x():
    return torch.arange(16.0).reshape(4, 4)


class TestSubclasses:
    def test_every_kind_of_use_gives_the_subclass(self):
        def uses(t):
            t = t.as_subclass(Plain)
            return (
                1 - t,
                t.sum(),
                t[0],
                t.shape,
                t.doubled(),
                torch.stack([t, t]),
                F.relu(t),
                t.norm(),
                -t,
                t @ t,
                t.mT,
                t == t,
            )

        whole(uses, x())
        out = dynamo_lite.compile(uses, backend="eager")(x())
        assert type(out[0]) is Plain and type(out[3]) is torch.Size and type(out[8]) is Plain

    def test_an_argument_of_a_subclass_is_changed_in_place(self):
        def change(t):
            t += 1
            t.mul_(2)
            t[0] = 3
            return t

        given = x().as_subclass(Plain)
        assert dynamo_lite.compile(change, backend="eager", fullgraph=True)(given) is given
        assert torch.equal(given.as_subclass(torch.Tensor), change(x()))

    def test_constructor_attribute_and_own_operator(self):
        def make(a):
            t = Tagged(a, tag="t")
            return torch.add(t, 1), t + 1, t.tag, type(t * 2) is Tagged

        whole(make, x())

    def test_an_argument_that_nothing_has_looked_at_is_asked(self):
        assert torch.equal(dynamo_lite.compile(lambda t: torch.add(t, 1), backend="eager")(Tagged(x())), x() * 100)

    def test_subclass_and_plain_arguments_have_their_own_entries(self):
        step = dynamo_lite.compile(lambda t: torch.add(t, 1), backend="eager")
        assert torch.equal(step(x()), x() + 1)
        assert torch.equal(step(Tagged(x())), x() * 100)
        assert torch.equal(step(x()), x() + 1)

    def test_gradients_reach_the_argument(self):
        w = x().requires_grad_()
        dynamo_lite.compile(lambda t: (t.as_subclass(Plain) ** 2).sum(), backend="eager", fullgraph=True)(w).backward()
        assert torch.equal(w.grad, 2 * x())

    def test_switched_off(self):
        def off(t):
            with torch._C.DisableTorchFunctionSubclass():
                y = t * 2
            return type(y), type(t * 2) is Plain, y

        compiled = dynamo_lite.compile(off, backend="eager", fullgraph=True)
        assert compiled(x().as_subclass(Plain))[:2] == (torch.Tensor, True)

    def test_a_break_inside_comes_before_the_call(self):
        log = []

        class Printing(torch.Tensor):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                print(end="")
                log.append(func)
                return super().__torch_function__(func, types, args, kwargs or {})

        fn = dynamo_lite.compile(lambda t: (t * 2) + 1, backend="eager")
        assert torch.equal(fn(x().as_subclass(Printing)).as_subclass(torch.Tensor), x() * 2 + 1)
        assert log[:2] == [torch.Tensor.mul, torch.Tensor.add]


class TestOthers:
    def test_objects_that_are_no_tensors(self):
        whole(lambda a: (torch.add(Duck(a), a).tensor, F.relu(Duck(a)).tensor), x())

    @pytest.mark.parametrize("is_first", [False, True])
    @pytest.mark.parametrize("op", OPERATORS, ids=lambda f: f.__name__)
    def test_operators(self, op, is_first):
        def f(a):
            result = op(Named(), a.sin()) if is_first else op(a.sin(), Named())
            return result, a * 2

        whole(f, x())

    @pytest.mark.parametrize("cls", [NamedDict, NamedModule])
    def test_objects_that_are_something_else_too(self, cls):
        other = cls()
        whole(lambda a: (a.sin() + other, other * a, a.sin() == other, a * 2), x())

    def test_a_method_of_its_own_comes_after(self):
        class Own(Named):
            def __radd__(self, other):
                return "radd"

        class Declines(Own):
            @classmethod
            def __torch_function__(cls, *args, **kwargs):
                return NotImplemented

        whole(lambda a: (a.sin() + Own(), a.sin() + Declines()), x())

    def test_a_duck_beside_a_tensor(self):
        whole(lambda a: ((a.sin() + Duck(a)).tensor, (a.sin() * 2 @ Duck(a)).tensor), x())

    def test_everybody_declines(self):
        class Declines:
            @classmethod
            def __torch_function__(cls, *args, **kwargs):
                return NotImplemented

        class Other(Declines):
            pass

        calls = [
            lambda a: torch.add(a, Declines()),
            lambda a: torch.add(Other(), Declines()),
            lambda a: a.add(Declines()),
            lambda a: torch.fft.fft(Declines()),
            lambda a: F.gelu(Declines()),
            lambda a: torch.linalg.norm(Declines()),
            lambda a: F.softmax(Declines(), 0),
            lambda a: torch.Tensor.exp(Declines()),
            lambda a: torch.Tensor.__getitem__(Declines(), 0),
        ]
        for call in calls:

            def text_of(a, call=call):
                try:
                    call(a)
                except TypeError as error:
                    return str(error)

            with dynamo_lite.config.patch(debug=True):
                assert dynamo_lite.compile(text_of, backend="eager")(x()) == text_of(x())


class TestModes:
    def test_functions_attributes_and_python_functions(self):
        def under(a):
            with CosForSin():
                return torch.sin(a) * 2, a.shape, F.relu(a)

        whole(under, x())

    def test_the_mode_is_active_after_a_break(self):
        def broken(a):
            with CosForSin():
                y = torch.sin(a)
                print(end="")
                z = torch.sin(y)
            return z + torch.sin(a)

        run = run_both(broken, x())
        assert run.breaks[0].slug == "call-print"
        assert torch._C._len_torch_function_stack() == 0

    def test_nested_modes_see_what_the_inner_one_calls(self):
        class Shift(torch.overrides.TorchFunctionMode):
            def __torch_function__(self, func, types, args=(), kwargs=None):
                result = func(*args, **(kwargs or {}))
                return result + 1 if func is torch.sin else result

        def nested(a):
            with CosForSin(), Shift():
                return torch.sin(a)

        whole(nested, x())

    def test_devices(self):
        def made(a):
            with torch.device("meta"):
                y = torch.empty(3)
            with torch.device("cpu"):
                z = torch.ones(4)
            return y.device.type, a + z

        whole(made, x())

    def test_default_device(self):
        def made(a):
            torch.set_default_device("meta")
            try:
                return torch.ones(3).device.type
            finally:
                torch.set_default_device(None)

        run_both(made, x())
        assert torch._C._len_torch_function_stack() == 0


@pytest.mark.skipif(
    not hasattr(torch.overrides, "redispatch_function"), reason="torch before 2.13 can't leave one level out"
)
class TestRedispatch:
    """`torch.overrides.redispatch_function`: the next question whether anybody overrides is answered with no, the ones after it are not."""

    class Logging(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args, kwargs=None):
            seen.append(func.__name__)
            return torch.overrides.redispatch_function(func, types, args, kwargs)

    class LoggingMode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func.__name__)
            with self:
                return torch.overrides.redispatch_function(func, types, args, kwargs)

    @pytest.fixture(autouse=True)
    def _nothing_seen(self):
        seen.clear()

    FUNCTIONS = {
        "asks by itself": lambda a, b: scaled_mul(a, b),
        "function in C": lambda a, b: torch.mul(a, other=b),
        "method": lambda a, b: a.mul(b).sum(),
        "operator": lambda a, b: (a * b, 2 - a),
        "attribute": lambda a, b: (a.T, a.shape, len(b)),
        "function in Python": lambda a, b: F.softmax(a, dim=0) + torch.nn.functional.linear(b, b),
        "iteration": lambda a, b: [row + 1 for row in a],
    }

    def both(self, fn, *args, graphs=1):
        expected, told = fn(*args), list(seen)
        seen.clear()
        counter = dynamo_lite.testing.CompileCounter()
        found = dynamo_lite.compile(fn, backend=counter)(*args)
        assert not list(dynamo_lite.testing.differences(expected, found)) and seen == told and told
        assert graphs is None or counter.frame_count == graphs
        assert not torch._C._peek_should_skip_torch_function()

    @pytest.mark.parametrize("name", FUNCTIONS)
    def test_subclass(self, name):
        self.both(self.FUNCTIONS[name], *(x().as_subclass(self.Logging), x().as_subclass(self.Logging)))

    @pytest.mark.parametrize("name", FUNCTIONS)
    def test_mode(self, name):
        def f(a, b):
            with self.LoggingMode():
                return self.FUNCTIONS[name](a, b)

        self.both(f, x(), x())

    def test_a_break_inside(self):
        def f(a, b):
            return broken_mul(a, b) + 1

        self.both(f, x().as_subclass(self.Logging), x(), graphs=None)

    def test_a_version_is_not_for_calls_that_skip(self):
        """The compiled function is called once from outside, and once by torch, with the next question left out."""
        compiled = dynamo_lite.compile(scaled_mul, backend="eager")
        a = x().as_subclass(self.Logging)
        for call in (scaled_mul, compiled, compiled):
            seen.clear()
            result = torch.overrides.redispatch_function(call, (), (a, a), None)
            assert type(result) is torch.Tensor and seen == ["mul"], (call, seen)
            seen.clear()
            assert torch.equal(call(a, a), x() * x() + 1) and seen == ["scaled_mul", "mul"], (call, seen)


seen = []


def scaled_mul(a, b):
    if torch.overrides.has_torch_function((a, b)):
        return torch.overrides.handle_torch_function(scaled_mul, (a, b), a, b)
    return a * b + 1


def broken_mul(a, b):
    if torch.overrides.has_torch_function((a, b)):
        return torch.overrides.handle_torch_function(broken_mul, (a, b), a, b)
    dynamo_lite.graph_break()
    return a * b + 1


class Refusing(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.Tensor.sin:
            return super().__torch_function__(func, types, args, kwargs or {})
        raise TypeError("no")


@pytest.mark.parametrize(
    "op", [operator.add, operator.sub, operator.matmul, operator.eq, operator.lt, operator.iadd, operator.and_]
)
def test_a_type_error_of_an_override_is_not_implemented(op):
    def apply(a, b):
        a.sin()
        try:
            return op(a, b)
        except TypeError as error:
            return str(error)

    compiled = dynamo_lite.compile(apply, backend="eager", fullgraph=True)
    a = torch.ones(2).as_subclass(Refusing)
    for b in (a, 2, torch.ones(2)):
        assert compiled(a, b) == apply(a, b)


class AsksItself:
    @property
    def __torch_function__(self):
        return self.__torch_function__


def test_an_override_that_cannot_be_read_is_none():
    """torch drops the RecursionError."""

    def ask(x, y):
        x = x + 1
        if torch.overrides.has_torch_function_unary(y):
            return torch.overrides.handle_torch_function(ask, (y,), x, y)
        return x

    compiled = dynamo_lite.compile(ask, backend="eager")
    assert torch.equal(compiled(torch.ones(2), AsksItself()), torch.full((2,), 2.0))
