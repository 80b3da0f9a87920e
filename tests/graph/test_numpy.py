"""Arrays of numpy as tensors of the graph."""

import operator

import numpy as np
import pytest
import torch

import dynamo_lite
from dynamo_lite.config import config
from dynamo_lite.testing import CompileCounter, assert_captured, differences, run_both
from tests.helpers.graph_counts import whole

from . import numpy_sweep


def a():
    return np.linspace(0.1, 0.9, 9, dtype="float32").reshape(3, 3)


def x():
    return torch.arange(16.0).reshape(4, 4)


PROGRAMS = [
    lambda v: (np.matmul(v, v) + 1, v.sum(), v.T[0], np.sum(v * 2), np.sin(v)),
    lambda v: (np.concatenate([v, v], 0), np.stack([v, v]), np.linalg.norm(v), np.where(v > 0.5, v, 0)),
    lambda v: (v.mean(axis=0), v.reshape(9), v.astype(np.float64), np.zeros(3), np.array([1, 2, 3])),
    lambda v: (
        v * np.float64(2),
        v * 2,
        v + np.arange(3),
        v > 0.5,
        -v,
        abs(v),
        v @ v,
        v**2,
        2 / v,
        v // 2,
        v[1:, None],
        v[0, 0],
    ),
    lambda v: (
        np.clip(v, 0.2, 0.8),
        np.expand_dims(v, 0),
        np.transpose(v, (1, 0)),
        np.max(v),
        np.std(v),
        np.argsort(v),
    ),
    lambda v: (sum(row for row in v), len(v), v.shape, v.dtype, v.ndim, v.size),
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_functions_methods_operators(program):
    whole(program, a())


def test_results_have_numpys_types():
    out = dynamo_lite.compile(lambda v: (v.sum(), np.sum(v), v[0, 0], v[0], np.array(3.0)), backend="eager")(a())
    assert [type(o) for o in out] == [np.float32, np.float32, np.float32, np.ndarray, np.ndarray]


def test_arrays_are_changed_in_place():
    def change(v):
        v[0] = 5
        v += 1
        return v

    given = a()
    assert dynamo_lite.compile(change, backend="eager", fullgraph=True)(given) is given
    assert np.array_equal(given, change(a()))


def test_tensors_and_arrays():
    whole(lambda t: (np.sum(t.numpy() * 2), torch.from_numpy(t.numpy() * 2), torch.tensor(np.ones((4, 4))) + t), x())


def test_memory_is_shared():
    def write(t):
        v = t.numpy()
        v[0, 0] = 100
        return t

    given = x()
    dynamo_lite.compile(write, backend="eager", fullgraph=True)(given)
    assert given[0, 0] == 100


def test_numbers_are_constants():
    whole(lambda t: (t + np.float32(2.0), np.sqrt(4.0) * t, np.pi * t, np.prod([2, 3]) * t), x())


def test_read_only_and_reversed_arrays_break():
    locked = a()
    locked.flags.writeable = False
    double = dynamo_lite.compile(lambda v: v * 2, backend="eager")
    assert np.array_equal(double(a()), a() * 2)
    assert np.array_equal(double(locked), a() * 2)
    assert np.array_equal(double(a()[::-1]), a()[::-1] * 2)


def test_numpy_is_left_alone_on_request():
    with config.patch(trace_numpy=False):
        run = run_both(lambda v: np.sin(v), a())
    assert run.graph_count == 0 and run.breaks[0].slug == "numpy"


def test_with_inductor():
    compiled = dynamo_lite.compile(lambda v: np.sum(np.sin(v) * 2, axis=0), backend="inductor")
    assert np.allclose(compiled(a()), np.sum(np.sin(a()) * 2, axis=0))


SCALAR_PROGRAMS = """
    [1, 2, 3][n], (1, 2, 3)[n], "abc"[n], [1, 2, 3, 4][:n], [*range(5)][n::n]
    list(range(n)), [0] * n, n * [0], (0, 1) * n, operator.index(n)
    n == [1, 2], [1, 2] != n, n + [1, 2], [1, 2] + n, n < [2, 0], operator.add(n, [1])
    n in [[1, 2], 3]
    n[0]
    n[()], n[None]
    torch.tensor(n), torch.tensor([n, n]), torch.as_tensor(n), torch.tensor(n, dtype=torch.float16)
    torch.full((2,), n)
    x[n], x * n, x + [n][0]
    n == (1, 2), n == None, n == "x", n < 3, n + 1j
"""


@pytest.mark.parametrize("number", [np.int64(2), np.uint8(2), np.float32(2), np.float64(2), np.bool_(True)], ids=repr)
@pytest.mark.parametrize("text", [line.strip() for line in SCALAR_PROGRAMS.strip().splitlines()])
def test_scalars_from_outside(text, number):
    body = f"def f(x, n):\n    try:\n        return x + 1, {text}\n    except Exception as e:\n        return x + 1, type(e)"
    namespace = {"torch": torch, "operator": operator}
    exec(body, namespace)
    x = torch.ones(3)
    compiled = dynamo_lite.compile(namespace["f"], backend="eager")
    expected = namespace["f"](x, number)
    for _ in range(2):
        assert repr(compiled(x, number)) == repr(expected)


def test_functions_with_effects_run_at_each_call(tmp_path):
    path = tmp_path / "number.npy"

    def save(t, path):
        np.save(path, 3)
        return t + 1

    def silence(t):
        return t + 1, np.seterr(divide="ignore")

    run = dynamo_lite.compile(save, backend="eager")
    for _ in range(2):
        assert run(x(), path).equal(x() + 1)
        assert np.load(path) == 3
        path.unlink()
    run = dynamo_lite.compile(silence, backend="eager")
    for _ in range(2):
        before = np.geterr()
        try:
            assert run(x())[1] == before
            assert np.geterr()["divide"] == "ignore"
        finally:
            np.seterr(**before)


@pytest.mark.parametrize("cls", [np.int64, np.float64])
@pytest.mark.parametrize(
    "fn",
    [
        pytest.param(lambda t, n: (t * n, n), id="itself"),
        pytest.param(lambda t, n: (t * (n + 1), n * n), id="arithmetic"),
        pytest.param(lambda t, n: (t * np.sqrt(n), np.sqrt(n)), id="function"),
        pytest.param(lambda t, n: (t * float(n), n.item()), id="python"),
    ],
)
def test_scalars_vary_from_the_first_version_on(cls, fn):
    versions = []
    compiled = dynamo_lite.compile(fn, backend=lambda gm, inputs: versions.append(gm) or gm.forward)
    for i in range(2, 9):
        n = cls(i)
        (result, number), (expected, same) = compiled(x(), n), fn(x(), n)
        torch.testing.assert_close(result, expected)
        assert type(number) is type(same) and number == same and (number is n) is (same is n)
    assert len(versions) == 1


def test_positions_of_scalars_that_vary():
    versions = []
    fn = lambda t, n: (t[n], t[:n], t[1, n], t[[n, 0]])  # noqa: E731
    compiled = dynamo_lite.compile(fn, backend=lambda gm, inputs: versions.append(gm) or gm.forward)
    for i in (2, 3, 1, 3, 2):
        for result, expected in zip(compiled(x(), np.int64(i)), fn(x(), np.int64(i)), strict=True):
            assert torch.equal(result, expected)
    assert len(versions) <= 3


# -- the sweep: python -m tests.graph.numpy_sweep


@pytest.mark.parametrize("expression", list(numpy_sweep.calls())[::60])
def test_calls(expression):
    outcome = numpy_sweep.check(expression)
    assert outcome is None or not outcome.startswith("WRONG"), outcome


MOSTLY_WHOLE = [
    "np.sin(v)",
    "np.concatenate([a, c])",
    "a.round(1)",
    "np.array([a, c])",
    "np.squeeze(a)",
    "a.view()",
    "np.diag(a)",
    "a.nbytes",
]


@pytest.mark.parametrize(
    "expression", [*MOSTLY_WHOLE, "a.sum().round(2)", "v[::-1].copy()", "np.sign(v - 2)", "np.fix(-a * 9)"]
)
def test_whole_calls(expression):
    assert numpy_sweep.check(expression) == "whole"


REFUSED = {
    "np.cbrt(-a)": "numpy: cbrt, which torch computes otherwise",
    "np.modf(-a)": "numpy: modf, which torch computes otherwise",
    "np.angle(-a)": "numpy: angle, which torch computes otherwise",
    "np.histogram(i, 3)": "numpy: histogram, which torch computes otherwise",
    "np.power(a * 1j, 0)": "numpy: power, which torch computes otherwise",
    "np.sin(b, v)": "numpy: sin with a result of another dtype",
    "i.astype('int8') > 300": "numpy: operator.gt, which torch computes otherwise",
    "np.flip(a)": "numpy: flip returns a view",
    "np.absolute(a, out=c, where=b)": "numpy: absolute",
}


@pytest.mark.parametrize("expression", REFUSED)
def test_what_torch_computes_otherwise_breaks(expression):
    assert numpy_sweep.check(expression) == REFUSED[expression]


# -- memory


def changes_a_copy(v):
    r = np.round(v.astype("int64"))
    r += 1
    return r, v.astype("int64")


def reads_before_it_writes(v):
    first = v[0, 0]
    v[0, 0] = 5
    return first, v


def writes_through_a_view(v):
    w = v + 1
    w.T[0] = 7
    w.reshape(-1)[1] = 8
    return w


def changes_behind_a_reversed_view(v):
    w = v + 1
    r = w[::-1]
    w[0] = 9
    return r


def leaves_with_what_it_reverses(v):
    w = v + 1
    return w, w[::-1]


def fills(v):
    return np.fill_diagonal(v, 3), v


PROGRAMS_ON_MEMORY = [changes_a_copy, reads_before_it_writes, writes_through_a_view, fills]


@pytest.mark.parametrize("program", PROGRAMS_ON_MEMORY)
def test_memory_is_that_of_eager_execution(program):
    whole(program, a())


@pytest.mark.parametrize("program", [changes_behind_a_reversed_view, leaves_with_what_it_reverses])
def test_reversed_views_that_show_break(program):
    run = run_both(program, a())
    assert [found.context for found in run.breaks] == ["operator.getitem returns a view"]


def test_what_may_not_be_written_to():
    def f(v):
        d = np.diagonal(v + 1)
        try:
            d[0] = 3
        except ValueError as error:
            return d, str(error)

    run = run_both(f, a())
    assert run.breaks
    frozen = dynamo_lite.compile(lambda v: np.diagonal(v + 1), backend="eager", fullgraph=True)(a())
    assert not frozen.flags.writeable


def test_layout_is_numpys():
    def f(v):
        return np.fft.fft(v, axis=0), np.atleast_3d(v[0]), np.take(v, 0, 1), (v + 1).T

    given = a().astype("float64")
    expected, found = f(given), dynamo_lite.compile(f, backend="eager", fullgraph=True)(given)
    assert [x.strides for x in found] == [x.strides for x in expected]


def test_attributes():
    def f(v):
        w = (v + 1).T
        flags = w.flags
        return (
            v.strides,
            w.strides,
            w.nbytes,
            flags.c_contiguous,
            flags["F"],
            flags.writeable,
            flags.owndata,
            v.flags.owndata,
        )

    whole(f, a())


def test_assignment_to_attributes_breaks():
    def f(v):
        w = v + 1
        w.shape = (9,)
        return w * 2

    assert [found.context for found in run_both(f, a()).breaks] == ["assignment to ndarray.shape"]


# -- scalars and tensors


SCALARS = [
    "x * s",
    "s * x",
    "x + s",
    "s - x",
    "x / s",
    "s / x",
    "x < s",
    "s == x",
    "torch.add(x, s)",
    "torch.where(x > 0, x, s)",
]
SCALARS += [
    "x.masked_fill(x > 1, s)",
    "torch.clamp(x, s)",
    "x.clone().add_(s)",
    "torch.tensor([s, s])",
    "torch.tensor([v, v])",
    "torch.tensor([s, 1])",
]


@pytest.mark.parametrize("text", SCALARS)
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_scalars_among_tensors(text, dtype):
    """A number beside a tensor counts by its class, however many digits it has."""
    namespace = {"torch": torch}
    exec(f"def f(x, v):\n    s = v.max()\n    return {text}, x + 1", namespace)
    f = namespace["f"]
    for tensor in (
        torch.arange(1, 5).float(),
        torch.arange(1, 5),
        torch.tensor(3),
        torch.tensor(2.5),
        torch.arange(4).half(),
    ):
        given = np.array([1, 3, 2], dtype=dtype)
        try:
            expected = f(tensor, given)
        except Exception:
            continue
        assert not list(differences(expected, dynamo_lite.compile(f, backend="eager")(tensor, given)))
    whole(f, torch.arange(1, 5).float(), np.array([1, 3, 2], dtype="float64"))


@pytest.mark.parametrize("number", [np.float32(1.5), np.float64(1.5), np.complex64(1 + 2j), np.complex128(1 + 2j)])
@pytest.mark.parametrize("tensor", [torch.arange(3), torch.ones(3), torch.ones(3).double(), torch.ones(3).half()])
@pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")
def test_the_dtype_of_a_tensor_and_a_number(tensor, number):
    """torch takes the real part of a complex64, which is no complex number of Python's."""

    def f(t, n, array):
        s = array.max()
        return t + n, n * t, torch.add(t, n), t * s

    array = np.array([number, number])
    if issubclass(type(number), np.complexfloating):
        array = array.real
    expected = f(tensor, number, array)
    actual = dynamo_lite.compile(f, backend="eager")(tensor, number, array)
    assert not list(differences(expected, actual))


def test_tensors_become_arrays():
    def f(t):
        array = np.array(t)
        return (
            array + 1,
            np.asarray(t)[0],
            np.stack([t, t]),
            np.concatenate([t, t]),
            np.add(t, 1),
            np.greater(t, 3),
            np.interp(3, [1, 2], [3, 4]),
        )

    whole(f, x())


def schedule(n, alphas):
    """As schedulers of diffusers have it."""
    steps = np.linspace(0, 999, n, dtype=np.float32)[::-1].copy()
    sigmas = np.array(((1 - alphas) / alphas) ** 0.5)
    sigmas = np.concatenate([sigmas[:n][::-1], [0.0]]).astype(np.float32)
    return torch.from_numpy(sigmas), torch.from_numpy(steps).to(torch.int64), np.cumsum(sigmas)


def test_schedules():
    alphas = torch.linspace(0.99, 0.01, 1000)
    found = dynamo_lite.compile(schedule, backend="eager", fullgraph=True)(10, alphas)
    assert not list(differences(schedule(10, alphas), found, tol=1e-6))


def test_from_numpy_of_other_objects():
    def f(v):
        try:
            torch.from_numpy(v.sum())
        except TypeError as error:
            return v + 1, str(error)

    whole(f, a())


NUMBERS = {
    "v + n": lambda n: np.float64(n),
    "v * n": lambda n: np.float32(n),
    "v - n": lambda n: np.int64(n),
    "v / n": lambda n: n,
    "n * v": lambda n: n * 1.5,
    "np.zeros(n) + 1": lambda n: n,
    "np.arange(n) * 2": lambda n: n,
    "v[:n] + 1": lambda n: n,
    "v.reshape(n, -1) + 1": lambda n: n,
    "np.sqrt(n) * v": lambda n: np.float64(n),
    "t * n": lambda n: np.float32(n),
}


@pytest.mark.parametrize("text", NUMBERS)
def test_numbers_that_vary(text):
    """One version for the first number, and one for all others; one for scalars of numpy."""
    namespace = {"np": np}
    exec(f"def f(v, t, n):\n    return {text}, v + 1", namespace)
    given = [(np.arange(60.0), torch.ones(2), NUMBERS[text](n)) for n in (3, 4, 5, 6)]
    recompiles = int(not isinstance(NUMBERS[text](3), np.generic))
    assert_captured(namespace["f"], given[0], graphs=1 + recompiles, recompiles=recompiles, then=given[1:])


@pytest.mark.parametrize("cls", [np.int8, np.uint8, np.int32, np.int64])
@pytest.mark.parametrize("text", ["n + 1", "n - 3", "n * n", "3 * n", "-n", "n + cls(100)", "n // 2", "abs(n)"])
def test_ints_wrap_around_as_those_of_numpy(cls, text):
    """One version while the result has room in the class; what has none is numpy's."""
    namespace = {"cls": cls}
    exec(
        f"def f(x, n):\n    try:\n        return x * 2, {text}\n    except Exception as e:\n        return x, type(e)",
        namespace,
    )
    versions = []
    compiled = dynamo_lite.compile(namespace["f"], backend=lambda gm, inputs: versions.append(gm) or gm.forward)
    info = np.iinfo(cls)
    with np.errstate(all="ignore"):
        for i in (4, 5, 6, 7):
            assert repr(compiled(x(), cls(i))) == repr(namespace["f"](x(), cls(i)))
        assert len(versions) == 1 + (text == "-n" and cls is np.uint8) * 3  # below zero: no number of the class
        for i in (info.max, info.min, info.max // 2 + 1, 3):
            assert repr(compiled(x(), cls(i))) == repr(namespace["f"](x(), cls(i)))


@pytest.mark.parametrize("text", ["~n", "n[0]", "n[()]", "n[None]", "n.__dict__"])
def test_what_a_float_that_varies_refuses(text):
    namespace = {}
    exec(
        f"def f(x, n):\n    try:\n        return x + 1, {text}\n    except Exception as e:\n        return x + 1, type(e)",
        namespace,
    )
    compiled = dynamo_lite.compile(namespace["f"], backend="eager")
    for n in map(np.float32, (2, 3, 4)):
        assert repr(compiled(x(), n)) == repr(namespace["f"](x(), n))


def test_an_int_without_room_in_64_bits_among_tensors():
    n = np.uint64(2**63)
    assert type(dynamo_lite.compile(lambda x: x + n, backend="eager")(x())) is np.ndarray


@pytest.mark.parametrize(
    "text", ["v[n] = 7.0", "v[n, 1] = 7.0", "v[1:, n] = w", "v[..., n] = 1", "v[n] += 1", "v[n, None] = 2"]
)
def test_items_at_positions_that_vary(text):
    namespace = {}
    exec(f"def f(v, w, n):\n    {text}\n    return v[n] * 2, v[n, 1], v[n - 1, 1:], v[..., n, :2]", namespace)
    given = [(np.arange(36.0).reshape(6, 6), np.arange(5.0), n) for n in (2, 3, 4, 5)]
    assert_captured(namespace["f"], given[0], graphs=2, recompiles=1, then=given[1:])


def test_a_position_out_of_range():
    def f(v, n):
        try:
            return v[n] + 1
        except IndexError as error:
            return str(error)

    compiled = dynamo_lite.compile(f, backend="eager")
    for n in (1, 2, 9, -1, -9, 3):
        assert repr(compiled(a(), n)) == repr(f(a(), n))


# -- random numbers

DRAWS = {
    "rand": "2, 3", "randn": "2", "randint": "0, 9", "uniform": "", "normal": "", "choice": "[1, 2, 3]", "permutation": "5", "random": "",
    "beta": "1.0, 2.0", "binomial": "5, 0.3", "poisson": "3.0", "shuffle": "given", "seed": "3", "standard_normal": "2", "exponential": "",
}  # fmt: skip


@pytest.mark.parametrize("name", DRAWS)
def test_random_numbers_are_those_of_eager_execution(name):
    """Drawing is one break, between graphs; numpy's state goes on as it would."""
    namespace = {"np": np}
    body = f"given = [1, 2, 3]\n    x = x + 1\n    r = np.random.{name}({DRAWS[name]})\n    return x * 2, r, given, np.random.rand()"
    exec(f"def f(x):\n    {body}", namespace)

    def outcome(function):
        np.random.seed(0)
        return [function(torch.ones(3)) for _ in range(3)], np.random.get_state()

    counter = CompileCounter()
    expected = outcome(namespace["f"])
    assert not list(differences(expected, outcome(dynamo_lite.compile(namespace["f"], backend=counter))))
    assert (counter.frame_count, counter.op_count) == (2, 2)


class AddsOne(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t):
        array = t.numpy()
        array += 1
        ctx.mark_dirty(t)
        return t

    @staticmethod
    def backward(ctx, grad):
        return grad


@pytest.mark.parametrize("shape", [(), (0,), (2, 3)])
def test_a_tensor_is_changed_through_its_array(shape):
    def f(t):
        t = t.clone()
        return AddsOne.apply(t), t * 2

    whole(f, torch.ones(shape, dtype=torch.double))


@pytest.mark.parametrize(
    "text",
    [
        "t[i]",
        "t[i, j]",
        "t[:, i]",
        "t[..., j] + t[None, i][0, 0, 0]",
        "t[np.tril_indices(4)]",
        "t[i, 1:3]",
        "t[two, two]",
        "t[i][j]",
    ],
)
def test_arrays_of_ints_as_an_index_of_a_tensor(text):
    namespace = {"np": np}
    exec(f"def f(t, i, j, two):\n    s = t.clone()\n    s[i, j] = 7.0\n    return {text}, s", namespace)
    i, j, two = np.array([0, 2, 1]), np.array([1, 1, 0]), np.array([[0, 1], [2, 3]])
    assert_captured(namespace["f"], (torch.arange(16.0).reshape(4, 4), i, j, two))


@pytest.mark.parametrize("text", ["t[two]", "t[i > 0]", "t[i.astype(np.int32)]", "t[np.array(1)]", "t[i + 9]"])
def test_other_arrays_as_an_index_of_a_tensor(text):
    namespace = {"np": np}
    exec(
        f"def f(t, i, two):\n    try:\n        return {text} * 2\n    except Exception as e:\n        return type(e)",
        namespace,
    )
    given = torch.arange(9.0).reshape(3, 3), np.array([0, 2, 1]), np.array([[0, 1], [2, 0]])
    assert repr(dynamo_lite.compile(namespace["f"], backend="eager")(*given)) == repr(namespace["f"](*given))


LENGTHS = {
    "mask": lambda x: x[x > 0].numpy(),
    "nonzero": lambda x: x.nonzero().numpy()[:, 0],
    "unique": lambda x: x.unique().numpy(),
    "bincount": lambda x: torch.bincount(x.abs().long()).numpy(),
}
OF_LENGTHS = {
    "arithmetic": lambda a: torch.from_numpy(np.abs(a * 2 + 1) - a),
    "shapes": lambda a: (len(a), a.shape, a.size, a.reshape(-1, 1) + np.ones((1, 2))),
    "items": lambda a: (a[::2], np.sort(a), np.concatenate([a, a]), np.where(a > 1, a, 0)),
    "reductions": lambda a: (a.sum(), (a * a).sum(), a @ a),
}


@pytest.mark.parametrize("made", LENGTHS)
@pytest.mark.parametrize("use", OF_LENGTHS)
def test_arrays_whose_length_data_decide(made, use):
    def f(x):
        return OF_LENGTHS[use](LENGTHS[made](x))

    compiled = dynamo_lite.compile(f, backend="eager", fullgraph=True)
    for numbers in ([3.0, -1.0, 2.0], [1.0, 5.0, -2.0], [-1.0, -2.0, -3.0], [0.0, 0.0, 4.0]):
        x = torch.tensor(numbers)
        torch.testing.assert_close(compiled(x), f(x))


@pytest.mark.parametrize(
    "use",
    [
        lambda a: a + np.ones(2, np.float32),
        np.squeeze,
        lambda a: a.squeeze(),
        lambda a: a.strides,
        lambda a: a[::-1] + a,
        lambda a: a.reshape(len(a), 1),
        lambda a: a[a > 1],
        lambda a: a + 1 if a.flags.c_contiguous else a,
    ],
)
def test_what_depends_on_a_length_that_data_decide_is_a_break(use):
    def f(x):
        return use(x[x > 0].numpy())

    with dynamo_lite.config.patch(debug=True):
        compiled = dynamo_lite.compile(f, backend="eager")
        for numbers in ([3.0, -1.0, 2.0], [-1.0, 2.0, -3.0]):
            x = torch.tensor(numbers)
            result, expected = compiled(x), f(x)
            assert np.array_equal(result, expected) and np.shape(result) == np.shape(expected)
    with pytest.raises(dynamo_lite.exc.Unsupported):
        dynamo_lite.compile(f, backend="eager", fullgraph=True)(torch.ones(2))


def told(call):
    try:
        return repr(call())
    except (ArithmeticError, ValueError) as error:
        return repr(error)


def divides(v):
    with np.errstate(divide="raise"):
        return v / 0


def catches(v):
    try:
        with np.errstate(all="raise"):
            return np.log(v)
    except FloatingPointError as error:
        return str(error)


def calls_back(v):
    seen = []
    with np.errstate(all="call", call=lambda *error: seen.append(error)):
        v = v / 0
    return v, seen


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("fn", [divides, catches, calls_back, lambda v: np.log(v) * 2])
def test_floating_point_errors_that_raise_or_call(fn):
    """numpy runs such calls itself, whether the function asks for errors or its caller."""
    compiled = dynamo_lite.compile(fn, backend="eager")
    for outer in ("warn", "raise", "ignore"):
        with np.errstate(all=outer):
            assert told(lambda: compiled(np.arange(4.0))) == told(lambda: fn(np.arange(4.0)))


@pytest.mark.parametrize("fn", [lambda v: v ** np.array([-1, 1, 1]), lambda v: np.power(v, v), lambda v: 2**v])
def test_negative_powers_of_ints_are_refused(fn):
    compiled = dynamo_lite.compile(fn, backend="eager")
    for v in (np.array([0, 1, 2]), np.array([0, -1, 2])):
        assert told(lambda: compiled(v)) == told(lambda: fn(v))


def filled(v, n):
    v[:1] = n
    return v


@pytest.mark.parametrize(
    "fn",
    [
        lambda v, n: np.clip(v, n, 100),
        lambda v, n: v.clip(max=n),
        lambda v, n: np.searchsorted(v, n),
        lambda v, n: np.full_like(v, n),
        lambda v, n: np.full_like(v, fill_value=n),
        lambda v, n: np.where(v > 1, v, n),
        lambda v, n: np.arange(n, n + 3, dtype=v.dtype),
        lambda v, n: np.maximum(v, n),
        lambda v, n: v + n,
        lambda v, n: n**v,
        filled,
    ],
)
@pytest.mark.parametrize("dtype", ["u1", "i1", "i4"])
def test_ints_that_vary_are_held_to_the_dtype_beside_them(fn, dtype):
    """numpy takes others as they are, or refuses them, where torch wraps them around."""
    compiled = dynamo_lite.compile(fn, backend="eager")
    for n in (2, 3, 4, -1, 128, 257, 2**32 + 1):
        given = [np.array([1, 2, 3], dtype) for _ in range(2)]
        assert told(lambda: compiled(given[0], n)) == told(lambda: fn(given[1], n))
        assert np.array_equal(*given)


@pytest.mark.parametrize("fn", [lambda v, n: v < n, lambda v, n: n != v, np.equal, lambda v, n: np.less(n, v)])
@pytest.mark.parametrize("dtype", ["u1", "i1", "i4", "i8", "?"])
def test_ints_that_vary_are_compared_as_they_are(fn, dtype):
    counter = CompileCounter()
    compiled = dynamo_lite.compile(fn, backend=counter, fullgraph=True)
    v = np.array([1, 100, -1]).astype(dtype)
    for n in (2, 3, 4, -1, 128, 257, 2**32 + 1, 2**63 - 1):
        assert repr(compiled(v, n)) == repr(fn(v, n))
    assert counter.frame_count <= 3


def test_labels_beyond_the_dtype():
    compiled = dynamo_lite.compile(lambda v: (v < len(v)).sum(), backend="eager", fullgraph=True)
    assert [compiled(np.full(n, 7, "u1")) for n in (8, 9, 256, 260)] == [8, 9, 256, 260]


def test_ints_of_places_are_not_held_to_the_dtype():
    whole(lambda v: (v.reshape(300, -1), np.roll(v, 300), v.max(axis=-1), np.repeat(v, 300)), np.ones(300, "u1"))


def raised_in_place(v, n):
    v **= n
    return v


@pytest.mark.parametrize(
    "fn",
    [
        lambda v, n: v**n,
        lambda v, n: np.power(v, n),
        lambda v, n: v ** (n - 1),
        lambda v, n: v ** np.int64(n),
        raised_in_place,
    ],
)
@pytest.mark.parametrize("dtype", ["i8", "u1", "f4"])
def test_negative_exponents_that_vary(fn, dtype):
    compiled = dynamo_lite.compile(fn, backend="eager")
    for n in (2, 3, 4, -1, 5):
        v = np.array([1, 2, 3], dtype)
        assert told(lambda: compiled(v.copy(), n)) == told(lambda: fn(v.copy(), n))


def test_negative_exponents_of_unsigned_ints():
    compiled = dynamo_lite.compile(lambda v, w: v**w, backend="eager")
    for w in (np.array([1, 2]), np.array([1, -2])):
        v = np.array([2, 3], "u1")
        assert told(lambda: compiled(v, w)) == told(lambda: v**w)


@pytest.mark.parametrize(
    "use", [lambda v: np.exp(v * 1j), lambda v: v + 1j, lambda v: np.power(v, 1 + 1j), lambda v: np.fft.fft(v)]
)
def test_dtypes_that_numpy_does_not_have_are_a_break(use):
    """Of halves torch makes complex numbers of two halves."""
    run = run_both(use, np.ones(2, "f2"))
    assert run.breaks[0].slug == "numpy"
    with pytest.raises(dynamo_lite.exc.Unsupported):
        dynamo_lite.compile(use, backend="eager", fullgraph=True)(np.ones(2, "f2"))


def reduced(v, n):
    v %= n
    return v


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    "fn",
    [
        lambda v, n: v % n,
        lambda v, n: n % v,
        lambda v, n: np.arctan2(0.0, np.mod(v, n)),
        lambda v, n: np.remainder(v, n, out=np.empty_like(v)),
        lambda v, n: np.remainder(v, np.full(len(v), n)),
        np.divmod,
        reduced,
        lambda v, n: v**0.5,
        lambda v, n: v ** (n / n / 2),
    ],
)
@pytest.mark.parametrize("dtype", ["f4", "f8", "i8"])
def test_zeros_have_numpys_sign(fn, dtype):
    """Remainders have that of the divisor, and the power with one half is a root."""
    numbers = [-5, -2.5, -0.0, 0, 2.5, 3] + [np.inf, -np.inf, np.nan] * (dtype != "i8")
    for n in (2.5, -2.5, 5, -5):
        given = [np.array(numbers).astype(dtype) for _ in range(2)]
        compiled = dynamo_lite.compile(fn, backend="eager")
        assert repr(outcome(compiled, given[0], n)) == repr(outcome(fn, given[1], n))
        assert repr(given[0]) == repr(given[1])


def raised_in_place(v, e):
    v **= e
    return v


HALVES = [
    lambda v, e: v**e,
    lambda v, e: v ** np.float64(e),
    lambda v, e: v ** v.dtype.type(e),
    lambda v, e: v ** np.array(e),
    lambda v, e: v ** np.array([e, e, e], v.dtype),
    lambda v, e: [v[i] ** e for i in range(3)],
    lambda v, e: [v[i, ...] ** e for i in range(3)],
    lambda v, e: [np.power(v[i], e) for i in range(3)],
    np.power,
    np.float_power,
    lambda v, e: np.power(v, e, out=np.empty_like(v)),
    raised_in_place,
]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", HALVES)
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_powers_with_one_half(fn, dtype, backend):
    """Some are roots in numpy, which depends on the dtype and on whether the operands are arrays, scalars or numbers; torch has others."""
    compiled = dynamo_lite.compile(fn, backend=backend, fullgraph=True)
    for exponent in (2.0, 0.5, -0.5):
        given = [np.array([-np.inf, -0.0, 4], dtype) for _ in range(2)]
        assert repr(compiled(given[0], exponent)) == repr(fn(given[1], exponent))
        assert repr(given[0]) == repr(given[1])


def stored(v, n):
    v[0] = n
    return v


@pytest.mark.parametrize("dtype", ["i8", "f8", "c16"])
@pytest.mark.parametrize(
    "fn",
    [
        lambda v, n: np.full(3, n),
        lambda v, n: np.array([[n], [1]]) * 2,
        lambda v, n: np.append(v, n),
        lambda v, n: np.hstack([v, n]),
        lambda v, n: np.repeat(n, 2),
        lambda v, n: np.diff(v, prepend=n),
        lambda v, n: np.linspace(0, n, 3),
        lambda v, n: np.dot(v, n),
        lambda v, n: np.bitwise_or(v == 1, n),
        lambda v, n: np.remainder(v.real, n),
        lambda v, n: v + n,
        stored,
    ],
)
def test_ints_of_more_than_32_bits(fn, dtype):
    """Where `torch._numpy` makes a tensor of an int, AOTAutograd has 32 bits: of ones that vary, those with more are constants."""
    compiled = dynamo_lite.compile(fn, backend="aot_eager", fullgraph=True)
    for n in (3, 5, 2**40 + 1, -(2**35) - 3):
        given = [np.array([1, 2, 3], dtype) for _ in range(2)]
        assert repr(compiled(given[0], n)) == repr(fn(given[1], n))
        assert repr(given[0]) == repr(given[1])


def outcome(fn, *args):
    try:
        return fn(*args)
    except TypeError as error:
        return type(error)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", ["i1", "i2", "i4", "u1", "f8"])
def test_quantiles_of_ints(dtype):
    """The difference of two ints has their dtype, and may wrap around."""
    most = 2.0 if dtype == "f8" else np.iinfo(dtype).max
    v = np.array([0 if dtype == "u1" else -most, most], dtype)
    run = run_both(lambda v: (np.percentile(v, [2, 98]), np.quantile(v, 0.3)), v)
    assert run.graph_count == int(dtype[0] != "i")


def _swapped(v):
    order = np.arange(v.ndim)
    order[0], order[1] = order[1], order[0]
    back = np.arange(v.ndim)[np.argsort(order)]
    return (v.permute(*order) + 1).permute(*back), v.sum((order[0], back[2])), order


def _written_by_torch(v):
    order = np.arange(2)
    torch.from_numpy(order).mul_(2)
    first = order[1]
    order[1] = 5
    return v.sum(int(first)), v * order[1].item()


def _written_by_data(v):
    order = np.arange(2)
    order[0] = (v > 5).sum().numpy()
    return v + int(order[0])


def _truths(v):
    numbers = np.arange(3)[1:].tolist()
    return v.view(-1) if np.arange(3).sum() == 3 and numbers == [1, 2] else v


def _centres(v):
    cells = (np.array(v.shape[1:]) + 1) // 2
    across, down = np.meshgrid(np.arange(cells[1]) + 0.5, np.linspace(0, 1, num=cells[0]))
    return torch.from_numpy(across * down) + v.mean()


@pytest.mark.parametrize("program", [_swapped, _truths, _centres])
def test_numbers_that_no_data_meet(program):
    whole(program, torch.randn(2, 3, 4))


@pytest.mark.parametrize("program", [_written_by_torch, _written_by_data])
def test_numbers_that_others_write(program):
    run_both(program, x(), backend="eager")


def test_nothing_is_left_of_known_numbers():
    counter = CompileCounter()
    dynamo_lite.compile(lambda v: v.permute(*np.arange(v.ndim)[::-1]) + 1, backend=counter)(x())
    assert (counter.frame_count, counter.op_count) == (1, 2)


def _limits_in_sides(v):
    if v.sum() > 0:
        return v + float(np.finfo(v.detach().numpy().dtype).tiny)
    return v.clamp(max=int(np.iinfo(np.int16).max)) + float(np.finfo(np.float16).resolution)


def test_limits_of_dtypes():
    """numpy fills tables with them, which is no change of the program."""
    counter = CompileCounter()
    fn = dynamo_lite.compile(_limits_in_sides, backend=counter, fullgraph=True)
    for sign in (1, -1, 1):
        torch.testing.assert_close(fn(sign * x()), _limits_in_sides(sign * x()))
    assert counter.frame_count == 1
    run_both(lambda v: (v, np.finfo(np.int32)), x(), backend="eager")


def written_then_shared(x):
    array = np.zeros(3, dtype=np.int64)
    array[0] = 5
    n = int(array[1])
    torch.from_numpy(array).add_(x)
    return torch.from_numpy(array) + n + int(np.arange(2)[1])


def written_then_read(x):
    array = np.arange(3)
    array[0] = 5
    rows = array.tolist()
    mean = array.mean()
    return x.reshape(*np.arange(3, 5)[:1], -1) + rows[0], mean, array


def filled_through_a_view(x):
    array = np.arange(3)
    view = array[:2]
    view.fill(4)
    n = int(view[0])
    torch.from_numpy(array).mul_(2)
    return x * n + int(np.arange(3)[2]), array


@pytest.mark.parametrize("fn", [written_then_shared, written_then_read, filled_through_a_view])
def test_writes_to_arrays_whose_numbers_were_known(fn):
    x = torch.tensor([1, 2, 3])
    assert not list(differences(dynamo_lite.compile(fn, backend="eager", fullgraph=True)(x), fn(x)))


def in_a_vmap(x):
    return torch.vmap(lambda row: row * int(np.arange(3)[2]))(x) + int(np.arange(4)[3])


def in_a_gradient(x):
    array = np.arange(3)
    return torch.func.grad(lambda x: (x * int(array[2])).sum())(x) * int(array[1])


def in_a_side(x):
    return torch.cond(x.sum() > 0, lambda x: x * int(np.arange(3)[2]), lambda x: x - int(np.arange(3)[1]), (x,))


@pytest.mark.parametrize("fn", [in_a_vmap, in_a_gradient, in_a_side])
def test_known_numbers_in_bodies(fn):
    x = torch.tensor([1.0, 2, 3])
    assert not list(differences(dynamo_lite.compile(fn, backend="eager", fullgraph=True)(x), fn(x)))
