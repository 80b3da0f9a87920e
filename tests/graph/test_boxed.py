"""Which graphs may let go of their inputs while they run: those whose operators raise for no data, outside of `try` statements."""

import contextlib
import itertools
import types

import pytest
import torch
import torch.nn.functional as F
from torch.utils._pytree import tree_map

import dynamo_lite
from dynamo_lite.graph import torch_runtime
from dynamo_lite.graph.core import boxed

INDEX = torch.tensor([0, 1])
FLOATS = [float("nan"), float("inf"), -float("inf"), 1e30, -1e30, 0.0, -0.0, 1e-40, -3.0]
INTS = [0, 77, 2**30, -1, -5]


def nodes_of(function, *args):
    """The calls in the graph of a function."""
    graphs = []

    def keep(gm, _):
        graphs.append(gm)
        return gm.forward

    with contextlib.suppress(RuntimeError, IndexError):
        dynamo_lite.compile(function, backend=keep, fullgraph=True)(*args)
    (graph,) = graphs
    return [node for node in graph.graph.nodes if node.op.startswith("call_")]


RAISES_NEVER = {
    "linear": lambda x, i: F.linear(x, x),
    "convolution": lambda x, i: F.conv1d(x[None], x[:, :, None]),
    "normalisation": lambda x, i: F.layer_norm(x, (3,)),
    "attention": lambda x, i: F.scaled_dot_product_attention(x, x, x),
    "dropout": lambda x, i: F.dropout(x),
    "softmax": lambda x, i: x.softmax(-1),
    "an operator of Python": lambda x, i: x @ x + 1,
    "in place": lambda x, i: x.mul_(2),
    "an operator of Python in place": lambda x, i: x.__iadd__(1),
    "division of floats": lambda x, i: x // 2 + x % 2,
    "comparison of ints": lambda x, i: i < 3,
    "sum of ints": lambda x, i: i + i,
    "basic index": lambda x, i: x[0, 1:],
    "assignment to a basic index": lambda x, i: x.__setitem__(0, 1.0),
    "mask": lambda x, i: x.masked_fill(x > 0, 1.0),
    "view": lambda x, i: i.view(1, 2).transpose(0, 1),
    "sizes": lambda x, i: x.new_zeros(x.shape[0] * 2),
    "norm": lambda x, i: x.norm(),
    "all at once": lambda x, i: torch._foreach_add([x, x], 1.0),
    "an operator of ATen": lambda x, i: torch.ops.aten.relu.default(x),
}
MAY_RAISE = {
    "index": lambda x, i: x[i],
    "assignment to an index": lambda x, i: x.__setitem__(i, 1.0),
    "gather": lambda x, i: x.gather(0, i[None]),
    "embedding": lambda x, i: F.embedding(i, x),
    "labels": lambda x, i: F.cross_entropy(x[:2], i),
    "probabilities": lambda x, i: F.binary_cross_entropy(x, x),
    "distribution": lambda x, i: torch.multinomial(x.exp(), 1),
    "solution": lambda x, i: torch.linalg.inv(x),
    "decomposition": lambda x, i: torch.norm(x, "nuc"),
    "division of ints": lambda x, i: i // i,
    "repetitions": lambda x, i: x[:2].repeat_interleave(i, 0, output_size=1),
    "a number from a tensor": lambda x, i: x.masked_fill(x > 0, x.sum()),
    "assertion": lambda x, i: torch._assert_async(x.sum() > 0) or x + 1,
    "an operator of the program": lambda x, i: torch.ops.dl_boxed.twice(x),
}


@torch.library.custom_op("dl_boxed::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@twice.register_fake
def _(x):
    return torch.empty_like(x)


@pytest.mark.parametrize("name", RAISES_NEVER)
def test_what_cannot_raise(name):
    nodes = nodes_of(RAISES_NEVER[name], torch.randn(3, 3), INDEX)
    assert nodes and all(map(boxed.cannot_raise, nodes))


@pytest.mark.parametrize("name", MAY_RAISE)
def test_what_may_raise(name):
    nodes = nodes_of(MAY_RAISE[name], torch.rand(3, 3), INDEX)
    assert not all(map(boxed.cannot_raise, nodes))


# -- try statements


def plain(x):
    return x + 1


def tries(x):
    try:
        return x + 1
    except RuntimeError:
        return x


def tidies_up(x):
    try:
        x = x + 1
    finally:
        x = x * 2
    return x


def with_a_block(x):
    with torch.no_grad():
        return x + 1


def with_a_block_in_a_try(x):
    try:
        with torch.no_grad():
            return x + 1
    except RuntimeError:
        return x


def with_blocks(x):
    with torch.no_grad():
        with torch.enable_grad():
            return x + 1


def calls_a_try(x):
    return tries(x)


def is_called_in_a_try(x):
    try:
        return plain(x)
    except RuntimeError:
        return x


def after_a_try(x):
    try:
        n = len("ab")
    except TypeError:
        n = 3
    return x + n


def in_a_generator(x):
    return next(plain(y) for y in [x])


@pytest.mark.parametrize("function", [plain, with_a_block, with_blocks, after_a_try], ids=lambda f: f.__name__)
def test_an_error_that_nobody_catches(function):
    assert not may_raise(function)


@pytest.mark.parametrize(
    "function",
    [tries, tidies_up, with_a_block_in_a_try, calls_a_try, is_called_in_a_try, in_a_generator],
    ids=lambda f: f.__name__,
)
def test_an_error_that_somebody_may_catch(function):
    assert may_raise(function)


def may_raise(function):
    graph = nodes_of(function, torch.randn(3))[0].graph
    return boxed.may_raise(types.SimpleNamespace(graph=graph), function.__code__)


# -- callables


def test_the_form_that_takes_a_list():
    gm = torch.fx.symbolic_trace(lambda x, y: x.sin() + y)
    form = boxed.boxed_form(gm.forward)
    inputs = [torch.ones(2), torch.ones(2)]
    assert torch.equal(form(inputs), torch.ones(2).sin() + 1)
    assert inputs == []
    assert boxed.boxed_form(gm.cpu) is None
    assert boxed.boxed_form(lambda x, y: gm.forward(x, y)) is None
    assert boxed.boxed_form(print) is None

    class Unhashable:
        __hash__ = None

        def __call__(self, x, y):
            return gm(x, y)

    assert boxed.boxed_form(Unhashable()) is None


def test_a_wrapper_of_a_compiled_graph_is_called():
    """`functools.wraps` copies the attributes of a function, and it is the wrapper that counts the calls."""
    import functools

    from dynamo_lite.backends.aot import aot_eager

    calls = []

    def backend(gm, args):
        compiled = aot_eager(gm, args)

        @functools.wraps(compiled)
        def counted(*values):
            calls.append(len(values))
            return compiled(*values)

        return counted

    def f(x):
        y = x * 2
        print(end="")
        y = y.sin()
        y = y.cos()
        return y

    with torch.no_grad():
        torch.testing.assert_close(
            dynamo_lite.compile(f, backend=backend)(torch.ones(3)), (torch.ones(3) * 2).sin().cos()
        )
    assert calls == [1, 1]


def test_inputs_that_share_memory_with_what_is_written():
    """Such a call runs the graph as it was captured, with the list of inputs."""

    def f(x):
        y, z = x[:2] * 1, x * 1
        y = make(z)
        y.add_(1)
        w = y * z[:2]
        del y, z
        return w.cos()

    make = dynamo_lite.disable(lambda z: z[:2] if shares else z[:2].clone())
    captured = dynamo_lite.compile(f, backend="aot_eager")
    for shares in (False, True, False, True):
        with torch.no_grad():
            torch.testing.assert_close(captured(torch.arange(3.0)), f(torch.arange(3.0)))


def test_torch_side_and_its_stand_in_agree():
    from dynamo_lite.graph import null_runtime

    for name in ("holds_tensors", "boxed_call", "boxed_again"):
        assert callable(getattr(torch_runtime, name)) and callable(getattr(null_runtime, name))


# -- the table


def hard_to_take(value):
    """The same tensor with the numbers that operators refuse, if they refuse any. (The least int ends the process in `torch.lcm`.)"""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided or not value.numel():
        return value
    if value.dtype is torch.bool:
        return value
    numbers = FLOATS if value.is_floating_point() or value.is_complex() else INTS
    taken = list(itertools.islice(itertools.cycle(numbers), value.numel()))
    result = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)
    with contextlib.suppress(RuntimeError):  # elements that share memory
        return result.copy_(torch.tensor(taken, dtype=value.dtype).reshape(value.shape))
    return value


def refused(op, name, dtype):
    """Errors that depend on the data."""
    if name in boxed._DIVISIONS and not dtype.is_floating_point:
        return
    if dtype not in op.supported_dtypes("cpu"):
        return
    for sample in itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=False), 2):
        values = (sample.args, *sample.kwargs.values())
        tensors = [v for v in (sample.input, *sample.args, *sample.kwargs.values()) if isinstance(v, torch.Tensor)]
        if len(tensors) > boxed._TENSORS.get(name, len(tensors)) or "nuc" in str(values):
            continue
        try:
            op(sample.input, *sample.args, **sample.kwargs)
        except Exception:
            continue
        args, kwargs = tree_map(hard_to_take, ((sample.input, *sample.args), sample.kwargs))
        try:
            op(*args, **kwargs)
        except Exception as error:
            yield op.name, dtype, str(error)


@pytest.mark.filterwarnings("ignore")
def test_operators_of_the_table_take_any_data():
    op_db = pytest.importorskip("tests.helpers.operator_database").op_db
    found, seen = [], set()
    for op in op_db:
        name = boxed._name_of(op.op)
        if not boxed.takes_any_data(name) or "polynomial" in name:  # whose degree is a number of steps
            continue
        seen.add(name)
        for dtype in (torch.float32, torch.int64):
            found += refused(op, name, dtype)
    assert not found
    assert len(seen) > 200
