"""Modes of the program that are active when a frame is entered: asked, guarded or the frame left alone, never ignored."""

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import dynamo_lite
from dynamo_lite.testing import CompileCounter


def x():
    return torch.arange(6.0).reshape(2, 3) / 7 - 0.3


class Calls(TorchFunctionMode):
    """Notes the names of torch functions, and multiplies what `sin` returns."""

    def __init__(self, factor=1):
        super().__init__()
        self.names = []
        self.factor = factor

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.names.append(func.__name__)
        result = func(*args, **(kwargs or {}))
        return result * self.factor if func is torch.Tensor.sin else result


class Operators(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def step(a):
    return a.sin() + 1


def broken(a):
    b = a.sin()
    print(end="")
    return b.sin()


def under(mode, fn):
    with mode:
        results = [fn(x()), fn(x() + 1)]
    return results, mode.names


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", [step, broken])
@pytest.mark.parametrize("factor", [1, 3])
def test_a_function_mode_sees_what_it_sees_in_eager(fn, factor, backend):
    compiled = dynamo_lite.compile(fn, backend=backend)
    before = compiled(x())
    results, names = under(Calls(factor), compiled)
    expected, expected_names = under(Calls(factor), fn)
    torch.testing.assert_close(results, expected)
    assert names == expected_names
    torch.testing.assert_close(compiled(x()), before)


def test_modes_have_their_own_graphs():
    counter = CompileCounter()
    compiled = dynamo_lite.compile(step, backend=counter)
    compiled(x())
    with Calls(2), Calls(3):
        twice = compiled(x())
    with Calls(3):
        once = compiled(x())
    torch.testing.assert_close((twice, once), (x().sin() * 6 + 1, x().sin() * 3 + 1))
    compiled(x())
    assert counter.frame_count == 3


def test_a_mode_is_entered_beside_an_active_one_and_a_default_device():
    def both(a):
        with Calls(3) as inner:
            b = a.sin()
        return b + torch.ones(3), inner.names

    given = x()
    torch.set_default_device("cpu")
    try:
        with Calls(2) as outer:
            result, names = dynamo_lite.compile(both, backend="eager")(given)
    finally:
        torch.set_default_device(None)
    torch.testing.assert_close(result, x().sin() * 6 + 1)
    assert names == ["sin"] and outer.names[:1] == ["sin"] and "ones" in outer.names


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_dispatch_mode_sees_the_operators_of_the_program(backend):
    compiled = dynamo_lite.compile(step, backend=backend)
    before = compiled(x())
    results, names = under(Operators(), compiled)
    expected, expected_names = under(Operators(), step)
    assert torch.equal(results[0], expected[0]) and names == expected_names
    assert torch.equal(compiled(x()), before)


class Seen(torch.Tensor):
    """Notes the names of the functions that its class is asked about."""

    names: list[str] = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.names.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})


def sizes(x):
    return x[: x.shape[0] // 2 + 1] * x.size(0), x.view(x.size(0), -1).stride(0)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("dynamic", [None, True])
def test_nobody_sees_the_sizes_that_guards_read(dynamic, backend):
    compiled = dynamo_lite.compile(sizes, backend=backend, dynamic=dynamic)
    for rows in (2, 4, 5, 6):
        value = torch.randn(rows, 3)
        with Calls() as expected:
            result = sizes(value)
        for _ in range(2):
            with Calls() as found:
                again = compiled(value)
            assert found.names == expected.names
            assert torch.equal(result[0], again[0]) and result[1] == again[1]


@pytest.mark.parametrize("dynamic", [None, True])
def test_no_class_sees_the_sizes_that_guards_read(dynamic):
    compiled = dynamo_lite.compile(sizes, backend="eager", dynamic=dynamic)
    for rows in (2, 4, 5, 6):
        value = torch.randn(rows, 3).as_subclass(Seen)
        Seen.names.clear()
        sizes(value)
        expected = list(Seen.names)
        for _ in range(2):
            Seen.names.clear()
            compiled(value)
            assert Seen.names == expected


def test_other_modes_under_fullgraph():
    """A mode that only looks is no error."""
    compiled = dynamo_lite.compile(step, backend="eager", fullgraph=True)
    results, names = under(Operators(), compiled)
    expected, expected_names = under(Operators(), step)
    assert torch.equal(results[0], expected[0]) and names == expected_names
