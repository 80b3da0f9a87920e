"""Calls under a `FakeTensorMode` of the program, and of `FakeTensor`s: captured, with results of the class that eager execution gives."""

import copy
import gc
import threading
import warnings

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import dynamo_lite
from dynamo_lite.backends.registry import list_backends
from dynamo_lite.config import config
from dynamo_lite.exc import Unsupported
from dynamo_lite.testing import CompileCounter, CompileCounterWithBackend
from tests.helpers.functions import Double

FAKE = torch._C._TorchDispatchModeKey.FAKE


def described(value):
    """What a program sees of a value, without its identity."""
    if isinstance(value, torch.Tensor):
        history = value.grad_fn.name() if value.grad_fn is not None else None
        version = None if value.is_inference() else value._version
        return (
            *(
                type(value),
                isinstance(value, nn.Parameter),
                tuple(value.shape),
                value.stride(),
                value.dtype,
                value.device,
            ),
            *(value.requires_grad, value.is_leaf, version, history if history != "_FreedBackward" else "SumBackward0"),
        )
    if isinstance(value, list | tuple):
        return tuple(map(described, value))
    if isinstance(value, dict):
        return {key: described(item) for key, item in value.items()}
    return value


def outcome(program, compile_):
    try:
        return described(program(compile_))
    except Exception as error:
        return type(error), str(error).partition(" 0x")[0].partition("object at")[0]


def as_eager(program, graphs=1, breaks=0):
    """Run a program, a function of what compiles functions, with and without capture. Checks the outcome and the number of graphs; with
    `fullgraph` too if there is no break."""
    expected = outcome(program, lambda fn: fn)
    for fullgraph in (False, True) if not breaks else (False,):
        dynamo_lite.reset()
        counter = CompileCounter()
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            found = outcome(program, lambda fn: dynamo_lite.compile(fn, backend=counter, fullgraph=fullgraph))
        assert found == expected
        assert graphs is None or counter.frame_count == graphs
        assert torch._C._len_torch_dispatch_stack() == 0
    if breaks:
        dynamo_lite.reset()
        with pytest.raises(Unsupported):
            program(lambda fn: dynamo_lite.compile(fn, backend="eager", fullgraph=True))


def under_mode(fn, *sizes, **options):
    """A program that calls a function under a mode, with tensors made there."""

    def program(compile_):
        compiled = compile_(fn)
        with FakeTensorMode(**options) as mode:
            result = compiled(*map(torch.ones, sizes))
        made = [t for t in torch.utils._pytree.tree_leaves(result) if isinstance(t, torch.Tensor)]
        assert all(t.fake_mode is mode for t in made)
        return result

    return program


def without_mode(fn, *sizes, **options):
    """A program that calls a function with tensors of a mode that is not active."""

    def program(compile_):
        with FakeTensorMode(**options):
            values = [torch.ones(size) for size in sizes]
        return compile_(fn)(*values)

    return program


BOTH = pytest.mark.parametrize("call", [under_mode, without_mode])


# -- results and their class


FUNCTIONS = {
    "pointwise": lambda x: (x.sin() + 1).sum(0),
    "several results": lambda x: x.max(0),
    "view": lambda x: (x.t(), x[0], x.view(-1)),
    "list": lambda x: torch.unbind(x),
    "made like": lambda x: (torch.zeros_like(x), x.new_zeros(3), torch.empty_like(x)),
    "as it is": lambda x: (x.to(x.dtype), x.contiguous()),
    "numbers": lambda x: (
        x.shape,
        x.stride(),
        x.numel(),
        x.dtype,
        x.device,
        x.requires_grad,
        len(x),
        x.is_contiguous(),
    ),
    "device": lambda x: ((x * 2).device, x.fake_device, (x + 1).fake_device, x.is_cpu, x.is_meta, x.get_device()),
    "class": lambda x: (
        type(x),
        type(x + 1),
        isinstance(x + 1, FakeTensor),
        type(x) is torch.Tensor,
        x.__class__.__name__,
    ),
    "kinds": lambda x: (isinstance(x, torch.Tensor), isinstance(x, nn.Parameter), torch.is_tensor(x + 1)),
    "is fake": lambda x: (
        torch._subclasses.fake_tensor.is_fake(x),
        hasattr(x, "missing"),
        getattr(x + 1, "missing", 3),
    ),
    "attribute": lambda x: (setattr(x, "mark", 3), x.mark, (x + 1).shape),
    "loops": lambda x: [row * 2 for row in x],
    "no gradients": lambda x: torch.no_grad()(lambda: (x + 1, torch.is_grad_enabled()))(),
    "random": lambda x: (torch.rand_like(x), nn.functional.dropout(x)),
    "versions": lambda x: (x._version, x.add_(1)._version, (x + 1)._version),
}


@BOTH
@pytest.mark.parametrize("name", FUNCTIONS)
def test_results(call, name):
    as_eager(call(FUNCTIONS[name], (3, 4)), graphs=name != "numbers")


CONSTRUCTORS = {
    "constructors": lambda x: (x @ torch.ones(4, 5), torch.arange(3), torch.rand(2), torch.empty(3)),
    "literal": lambda x: x[:3] + torch.tensor([[1.0], [2.0], [3.0]]),
    "known number": lambda x: x + torch.tensor(3).item(),
    "new": lambda x: (x.new_tensor([1.0]), x.new(3)),
    "checked": lambda x: (torch.zeros(3), isinstance(torch.zeros(3), FakeTensor)),
}


@pytest.mark.parametrize("name", CONSTRUCTORS)
def test_constructors_under_a_mode(name):
    as_eager(under_mode(CONSTRUCTORS[name], (3, 4)))


def test_constructors_without_a_mode_make_tensors_with_data():
    """No `FakeTensor` is among the arguments of these; where the two kinds meet, eager execution says what it does."""
    as_eager(without_mode(lambda x: (x + 1, torch.ones(2), torch.zeros(x.shape), torch.tensor(3).item()), (3, 4)))
    as_eager(without_mode(CONSTRUCTORS["constructors"], (3, 4)), graphs=1, breaks=1)
    as_eager(without_mode(CONSTRUCTORS["new"], (3, 4)), graphs=0, breaks=1)


def test_no_arguments():
    as_eager(under_mode(lambda: torch.zeros(3) + 1))


@pytest.mark.parametrize("device", ["cuda", "meta"])
def test_devices_that_are_not_there(device):
    def program(compile_):
        fn = compile_(lambda x: (x + torch.ones(3, 1, device=device), x.device, x.is_cuda))
        with FakeTensorMode():
            return fn(torch.ones(3, device=device))

    as_eager(program)


def test_an_absent_device_is_none_for_tensors_with_data():
    if torch.cuda.is_available():
        pytest.skip("there is one")
    compiled = dynamo_lite.compile(lambda: torch.ones(3, device="cuda") + 1, backend="eager")
    with FakeTensorMode():
        assert compiled().device.type == "cuda"
    # A torch that was built with CUDA misses the driver.
    with pytest.raises((AssertionError, RuntimeError), match=r"not compiled with CUDA|no NVIDIA driver"):
        compiled()


@pytest.mark.parametrize("outer", [True, False])
def test_a_context_of_a_device(outer):
    def program(compile_):
        fn = compile_(lambda x: x + torch.ones(3, 1))
        first, second = torch.device("meta"), FakeTensorMode()
        with first if outer else second, second if outer else first:
            return fn(torch.ones(3))

    as_eager(program)


@pytest.mark.parametrize(
    "context", [torch.no_grad, torch.inference_mode, lambda: torch.autocast("cpu", torch.bfloat16)]
)
def test_other_contexts(context):
    def program(compile_):
        fn = compile_(lambda x, w: (x @ w, torch.is_grad_enabled()))
        with FakeTensorMode(), context():
            return fn(torch.ones(4, 4), nn.Parameter(torch.ones(4, 4)))

    as_eager(program)


# -- modules and gradients


class Params(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x):
        self.total = self.total + x
        names = [name for name, _ in self.named_parameters()]
        kinds = isinstance(self.weight, nn.Parameter), type(self.weight) is nn.Parameter, isinstance(x, nn.Parameter)
        return self.total * self.weight, names, kinds


MODULES = {
    "mlp": (lambda: nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Dropout(0.5)), (3, 4)),
    "norm": (lambda: nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU()), (3, 4)),
    "convolution": (
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.MaxPool2d(2), nn.Flatten()),
        (2, 3, 8, 8),
    ),
    "attention": (lambda: nn.TransformerEncoderLayer(8, 2, batch_first=True), (2, 3, 8)),
    "embedding": (lambda: nn.Sequential(nn.Unflatten(0, (1, 3)), nn.Linear(4, 4), nn.Flatten(0)), (3, 4)),
}


@pytest.mark.parametrize("is_active", [True, False])
@pytest.mark.parametrize("name", MODULES)
def test_training(name, is_active):
    make, size = MODULES[name]

    def program(compile_):
        with FakeTensorMode() as mode:
            net, x = make(), torch.ones(size)
            if is_active:
                result = compile_(net)(x)
        if not is_active:
            result = compile_(net)(x)
        result.sum().backward()
        assert result.fake_mode is mode
        return result, [p.grad for p in net.parameters()], list(net.buffers())

    as_eager(program)


@pytest.mark.parametrize("is_active", [True, False])
def test_parameters_and_buffers(is_active):
    def program(compile_):
        with FakeTensorMode():
            net, x = Params(), torch.ones(3)
            results = compile_(net)(x) if is_active else None
        return results or compile_(net)(x), net.total

    as_eager(program)


def test_a_step_of_training():
    def program(compile_):
        with FakeTensorMode():
            net = nn.Linear(4, 2)
            optimizer = torch.optim.Adam(net.parameters())

            def step(x):
                optimizer.zero_grad()
                loss = net(x).pow(2).sum()
                loss.backward()
                optimizer.step()
                return loss

            compiled = compile_(step)
            step(torch.ones(3, 4))
            for _ in range(2):
                loss = compiled(torch.ones(3, 4))
            return loss, list(net.parameters()), [p.grad for p in net.parameters()], list(optimizer.state.values())

    as_eager(program)


def gradients(x):
    loss = (x.requires_grad_() ** 2).sum()
    return torch.autograd.grad(loss, x)


TRAINED = {
    "function": Double.apply,
    "checkpoint": lambda x: checkpoint(torch.sin, x * 2, use_reentrant=False).sum(),
    "hook": lambda x: (x * 2, x.register_hook(lambda grad: grad * 2))[0],
}


@pytest.mark.parametrize("name", TRAINED)
def test_gradients_with_bodies(name):
    def program(compile_):
        with FakeTensorMode():
            x = torch.ones(3, requires_grad=True)
            result = compile_(lambda x: TRAINED[name](x) + 0)(x)
            result.sum().backward()
        return result, x.grad

    as_eager(program)


def test_gradients_inside():
    as_eager(under_mode(lambda x: gradients(x * 2), (3,)))


TRANSFORMS = {
    "vmap": lambda x, w: torch.vmap(lambda row: (row * 2 @ w).sin())(x),
    "grad": lambda x, w: torch.func.grad_and_value(lambda x: (x.sin() @ w).sum())(x),
    "jvp": lambda x, w: torch.func.jvp(lambda x: x @ w, (x,), (x,)),
    "jacrev": lambda x, w: torch.func.jacrev(lambda x: (x @ w).sin())(x[0]),
    "both": lambda x, w: torch.vmap(torch.func.grad(lambda w, row: (row @ w).sum()), in_dims=(None, 0))(w, x),
    "class": lambda x, w: torch.vmap(lambda row: row.sum() if type(row) is type(row * 2) is torch.Tensor else row)(x),
    "class outside": lambda x, w: torch.vmap(lambda row: row if type(w) is torch.Tensor else row.sum())(x),
    "cond": lambda x, w: torch.cond(x.shape[0] > 2, lambda x: x @ w, lambda x: x - 1, (x,)),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_functions_of_functions(name):
    """The tensors in a transform are its own, of class `Tensor`."""
    as_eager(under_mode(TRANSFORMS[name], (3, 4), (4, 4)))
    if name not in ("jvp", "jacrev"):  # these fail without the mode, and leave their transforms on torch's stack
        is_operator = name == "cond"  # of which a branch is taken
        as_eager(without_mode(TRANSFORMS[name], (3, 4), (4, 4)), graphs=int(is_operator), breaks=not is_operator)


def test_constructors_in_a_transform():
    as_eager(under_mode(lambda x: torch.vmap(lambda row: row + torch.ones(4))(x), (3, 4)), graphs=0, breaks=1)


# -- changes in place


@BOTH
def test_changes_in_place(call):
    def change(x, y):
        x.add_(1)
        y[0] = 5
        torch.mul(x, 2, out=x)
        return x.view(-1), y.t(), x, y

    as_eager(call(change, (3, 2), (2, 3)))


@BOTH
def test_views_of_one_memory(call):
    def program(compile_):
        def change(x):
            return compiled(x, x[1:])

        compiled = compile_(lambda x, y: (x.add_(1), y.mul_(2), x + 1))
        return call(change, (4,))(lambda fn: fn)

    as_eager(program)


@BOTH
def test_the_objects_are_those_of_eager_execution(call):
    def program(compile_):
        def check(x, y):
            view, same, stored = compile_(lambda x, y: (x.view(-1), y.add_(1), setattr(x, "twice", x * 2)))(x, y)
            assert view._base is x and same is y and type(x.twice) is FakeTensor and stored is None
            return view, same, x.twice

        return call(check, (3, 2), (3,))(lambda fn: fn)

    as_eager(program)


def test_assignment_to_data():
    def program(compile_):
        def assign(p, x):
            p.data = x * 2
            return p + 1

        with FakeTensorMode():
            p = nn.Parameter(torch.ones(3))
            return compile_(assign)(p, torch.ones(3)), p

    as_eager(program)


# -- data that there are not

DATA = {
    "item": (lambda x: x.sum().item(), 1),
    "truth": (lambda x: 1 if x.sum() > 0 else 2, 1),
    "check": (lambda x: (None if (x > 0).all() else 1 / 0, x + 1), 1),
    "list": (lambda x: x.tolist(), 0),
    "positions": (lambda x: x.nonzero(), 0),
    "array": (lambda x: x.numpy(), 0),
    "tensor of tensors": (lambda x: torch.tensor([x[0], x[1]]), 1),
    "equal": (lambda x: torch.equal(x, x + 1), 1),
    "address": (lambda x: x.data_ptr(), 0),
    "copy": (lambda x: copy.deepcopy(x).shape, 0),
}


@BOTH
@pytest.mark.parametrize("scalars", [False, True])
@pytest.mark.parametrize("name", DATA)
def test_data(call, name, scalars):
    fn, graphs = DATA[name]
    with config.patch(capture_scalar_outputs=scalars, capture_dynamic_output_shape_ops=scalars):
        as_eager(call(fn, (3,)), graphs, breaks=1)


def test_integers_that_modules_keep():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("n", torch.tensor(0))

        def forward(self, x):
            self.n += 1
            return x + 1 if self.n > 0 else x - 1

    real = Counting()

    def made_inside(compile_):
        with FakeTensorMode():
            return compile_(Counting())(torch.ones(3))

    def with_data(compile_):
        with FakeTensorMode(allow_non_fake_inputs=True):
            return compile_(real)(torch.ones(3))

    as_eager(made_inside, graphs=2, breaks=1)
    as_eager(with_data, graphs=1, breaks=1)


def test_arrays_under_a_mode_have_data():
    numpy = pytest.importorskip("numpy")
    array = numpy.ones(3)
    seen = []

    def program(compile_):
        with FakeTensorMode():
            result = compile_(lambda: numpy.sin(array))()
        seen.append(result)
        return type(result), result.tolist()

    as_eager(program, graphs=0, breaks=1)
    assert len(seen) == 2


# -- tensors with data among them


def real_input(compile_, **options):
    fn, real = compile_(lambda x, y: x + y), torch.ones(3)
    with FakeTensorMode(**options):
        return fn(real, torch.ones(3))


def real_and_fake(compile_, **options):
    with FakeTensorMode(**options):
        fake = torch.ones(3)
    return compile_(lambda x, y: x + y)(fake, torch.ones(3))


def test_tensors_with_data():
    as_eager(real_input, graphs=0, breaks=1)
    as_eager(lambda compile_: real_input(compile_, allow_non_fake_inputs=True))
    as_eager(real_and_fake, graphs=0, breaks=1)
    as_eager(lambda compile_: real_and_fake(compile_, allow_non_fake_inputs=True))
    assert outcome(real_input, lambda fn: fn)[0] is AssertionError


@pytest.mark.parametrize("make", [lambda: nn.Linear(4, 2), lambda: nn.BatchNorm1d(4), lambda: nn.LSTM(4, 3)])
def test_modules_with_data(make):
    """Nothing is written to them."""
    net = make()
    before = copy.deepcopy(net.state_dict())

    def program(compile_):
        fn = compile_(copy.deepcopy(net))
        with FakeTensorMode(allow_non_fake_inputs=True):
            return fn(torch.ones(3, 4))

    as_eager(program)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


REAL = {
    "write": (lambda t, x: (t.add_(x), t), 1),
    "sizes": (lambda t, x: (t.t_(), t.shape, x + 1), 0),
    "data": (lambda t, x: (t.data, x + 1), 1),
    "views": (lambda t, x: (t.detach(), t.view(-1), type(t.view(-1)), t.T, type(t)), 1),
}


@pytest.mark.parametrize("name", REAL)
def test_operators_on_tensors_with_data(name):
    fn, graphs = REAL[name]

    def program(compile_):
        real = torch.ones(3, 2)
        with FakeTensorMode(allow_non_fake_inputs=True):
            result = compile_(fn)(real, torch.ones(3, 2))
        return result, real, real.tolist()

    as_eager(program, graphs, breaks=name in ("sizes", "data"))


BESIDE = {
    "sum": (lambda x, t: (x + t, t + x, type(t + x), t - 1, x == t), 1, 0),
    "matmul": (
        lambda x, t: (x @ t.t(), nn.functional.linear(t, x, x[:, 0]), nn.functional.conv1d(x[None], t[None])),
        1,
        0,
    ),
    "list": (lambda x, t: (torch.cat([t, x]), torch.stack([x, t]), torch._foreach_add([x, t], 1)), 1, 0),
    "norm": (lambda x, t: (nn.functional.layer_norm(x, (4,), t[0]), nn.functional.embedding(x.long(), t)), 1, 0),
    "write": (lambda x, t: (t.add_(x), x.mul_(t), t.copy_(x), torch.sub(t, x, out=t)), 1, 0),
    "literal": (lambda x, t: (x + torch.tensor(3.0), x * torch.ones(4)), 1, 0),
    "sizes alone": (lambda x, t: t.expand_as(x), 0, 1),
    "class alone": (lambda x, t: t.type_as(x), 0, 1),
    "each": (lambda x, t: torch.broadcast_tensors(t, x), 0, 1),
}


@pytest.mark.parametrize("name", BESIDE)
def test_tensors_with_data_beside_fake_ones(name):
    fn, graphs, breaks = BESIDE[name]

    def program(compile_):
        real = torch.ones(3, 4)
        with FakeTensorMode(allow_non_fake_inputs=True):
            fake = torch.ones(3, 4)
        return compile_(fn)(fake, real), fake, real, real.tolist()

    as_eager(program, graphs, breaks)


def test_a_mode_that_takes_others_and_one_that_does_not():
    def program(compile_):
        compiled, results = compile_(lambda x: x + torch.ones(3)), []
        for takes_others in (True, False, True, False):
            with FakeTensorMode(allow_non_fake_inputs=takes_others):
                fake = torch.ones(3)
            try:
                results.append(compiled(fake))
            except AssertionError:
                results.append("refused")
        return results

    as_eager(program, graphs=2, breaks=1)


@pytest.mark.parametrize("is_active", [True, False])
def test_two_modes(is_active):
    """What happened before the operator that raises has happened."""

    def program(compile_):
        def change(x, y):
            x.add_(1)
            log.append(1)
            return x + y

        log = []
        with FakeTensorMode():
            x = torch.ones(3)
        mode = FakeTensorMode()
        with mode:
            y = torch.ones(3)
        compiled = compile_(change)
        with pytest.raises(AssertionError, match="Mixing fake modes"):
            if is_active:
                with x.fake_mode:
                    compiled(x, y)
            else:
                compiled(x, y)
        return log, x._version, y._version

    as_eager(program, graphs=1, breaks=1)


def test_modes_come_and_go():
    """Versions are for one mode like those they were made for, or for none."""

    def program(compile_):
        compiled = compile_(lambda x: x * 2 + torch.arange(4))
        results = [compiled(torch.ones(4))]
        for _ in range(12):
            with FakeTensorMode() as mode:
                results.append(compiled(torch.ones(4)))
                assert results[-1].fake_mode is mode
        with FakeTensorMode(allow_non_fake_inputs=True):
            results.append(compiled(torch.ones(4)))
        return [*results, compiled(torch.ones(4))]

    as_eager(program, graphs=3)


def test_a_module_with_data_in_all_modes():
    net = nn.Linear(4, 2)

    def program(compile_):
        compiled, results = compile_(net), []
        for options in ({}, {"allow_non_fake_inputs": True}, None, {}, {"allow_non_fake_inputs": True}, None):
            if options is None:
                results.append(compiled(torch.ones(3, 4)))
                continue
            with FakeTensorMode(**options):
                try:
                    results.append(compiled(torch.ones(3, 4)))
                except AssertionError:
                    results.append("refused")
        return results

    as_eager(program, graphs=2, breaks=1)


def test_threads_have_modes_of_their_own():
    def program(compile_):
        compiled, results = compile_(lambda x: x + torch.ones(3)), []

        def run():
            with FakeTensorMode():
                results.append(compiled(torch.ones(3)))

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        return [*results, compiled(torch.ones(3))]

    as_eager(program, graphs=2)


# -- the mode itself


def test_the_stack_as_the_program_sees_it():
    def look(x):
        mode = torch._C._get_dispatch_mode(FAKE)
        others = torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.PROXY)
        return x + 1, torch._C._len_torch_dispatch_stack(), mode, others

    for fullgraph in (False, True):
        dynamo_lite.reset()
        compiled = dynamo_lite.compile(look, backend="eager", fullgraph=fullgraph)
        for _ in range(2):
            assert compiled(torch.ones(3))[1:] == (0, None, None)
            with FakeTensorMode() as mode:
                result, *found = compiled(torch.ones(3))
                assert found == [1, mode, None] and result.fake_mode is mode


def test_the_mode_of_a_result():
    def look(x):
        return x.fake_mode is (x + 1).fake_mode, torch._C._get_dispatch_stack_at(0) is x.fake_mode

    as_eager(under_mode(look, (3,)))
    as_eager(without_mode(lambda x: x.fake_mode is (x + 1).fake_mode, (3,)), graphs=1, breaks=1)


def test_a_mode_inside():
    mode = FakeTensorMode()

    def enter(x):
        with mode:
            y = torch.ones(3) + 1
        return x + 1, y

    as_eager(lambda compile_: compile_(enter)(torch.ones(3)), graphs=2, breaks=1)
    as_eager(under_mode(lambda x: (enter(x)[0], x), (3,)), graphs=2, breaks=1)


def test_a_break_under_a_mode():
    def print_(x):
        y = x + 1
        print(end="")
        return y * 2, type(y)

    as_eager(under_mode(print_, (3,)), graphs=2, breaks=1)
    as_eager(under_mode(lambda x: (x.data_ptr(), x + 1)[1], (3,)), graphs=1, breaks=1)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_modes_that_only_look(backend):
    """They see every operator: nothing is captured under them, with a `FakeTensorMode` or without."""

    class Names(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            names.append(str(func))
            return func(*args, **(kwargs or {}))

    class OwnMode(FakeTensorMode):
        pass

    names = []
    compiled = dynamo_lite.compile(lambda x: x.sin() + 1, backend=backend, fullgraph=True)
    with FakeTensorMode(), Names():
        compiled(torch.ones(3))
    assert names[-2:] == ["aten.sin.default", "aten.add.Tensor"]
    with OwnMode() as mode:
        assert compiled(torch.ones(3)).fake_mode is mode


# -- sizes


@BOTH
@pytest.mark.parametrize("dynamic", [None, True])
def test_sizes_that_vary(call, dynamic):
    dynamo_lite.reset()
    counter = CompileCounter()
    fn = lambda x: (x.view(-1), x.shape[0] + 1, x[1:])  # noqa: E731
    compiled = dynamo_lite.compile(fn, backend=counter, dynamic=dynamic, fullgraph=True)
    for n in (3, 4, 5, 6):
        found, expected = (call(each, (n, 2))(lambda fn: fn) for each in (compiled, fn))
        assert described(found) == described(expected)
    assert counter.frame_count == (1 if dynamic else 2)


@BOTH
def test_numbers_that_vary(call):
    def program(compile_):
        compiled = compile_(lambda x, n, s: (x * s + torch.arange(n).sum() if False else x * s, x.new_zeros(n)))
        return [call(lambda x, n=n: compiled(x, n, n + 0.5), (3,))(lambda fn: fn) for n in (3, 5, 7)]

    as_eager(program, graphs=2)


@pytest.mark.parametrize("is_active", [True, False])
def test_symbols_of_the_program(is_active):
    """Guards assume nothing of them, and calls with ints have their version."""
    shape_env = ShapeEnv()
    mode = FakeTensorMode(shape_env=shape_env)
    counter = CompileCounter()
    fn = lambda x: ((x + 1).view(-1), x.shape[0] * 2)  # noqa: E731
    compiled = dynamo_lite.compile(fn, backend=counter)
    strict = dynamo_lite.compile(fn, backend="eager", fullgraph=True)
    fixed = mode.from_tensor(torch.ones(3, 4), static_shapes=True)
    symbolic = mode.from_tensor(torch.ones(3, 4), static_shapes=False)
    for _ in range(2):
        assert described(compiled(fixed)) == described(fn(fixed))
        if is_active:
            with mode:
                found, expected = compiled(symbolic), fn(symbolic)
        else:
            found, expected = compiled(symbolic), fn(symbolic)
        assert described(found) == described(expected) and type(found[1]) is torch.SymInt
    with pytest.raises(Unsupported, match="DL092.*symbolic sizes, of a ShapeEnv of the program"):
        strict(symbolic)
    assert not shape_env.guards and counter.frame_count == 1


# -- backends


class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor", "cudagraphs", "torchscript", "autotune"])
def test_compilers_for_data_leave_the_graph_alone(backend, fullgraph):
    assert backend in list_backends(None)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        with FakeTensorMode():
            net, x = Net(), torch.ones(3, 4)
            compiled = dynamo_lite.compile(net, backend=backend, fullgraph=fullgraph)
            inside = compiled(x)
            inside.sum().backward()
        outside = compiled(x)
    assert described(inside) == described(outside) == described(net(x))
    assert all(type(p.grad) is FakeTensor for p in net.parameters())


@pytest.mark.parametrize("name", ["aot_eager", "inductor"])
def test_a_backend_of_the_programs_around_such_a_compiler(name):
    counter = CompileCounterWithBackend(name)
    with FakeTensorMode() as mode:
        net, x = Net(), torch.ones(3, 4)
        result = dynamo_lite.compile(net, backend=counter, fullgraph=True)(x)
        assert described(result) == described(net(x)) and result.fake_mode is mode
    assert counter.frame_count == 1


def test_a_backend_gets_fake_tensors():
    """They are of one mode, that of the graph, as AOTAutograd wants them."""
    seen = []

    def backend(gm, inputs):
        values = [node.meta["example_value"] for node in gm.graph.find_nodes(op="placeholder")]
        seen.append(
            (list(map(described, inputs)), {t.fake_mode is v.fake_mode for t, v in zip(inputs, values, strict=True)})
        )
        assert torch._C._len_torch_dispatch_stack() == 0
        return gm.forward

    with FakeTensorMode():
        net = nn.Linear(4, 2)
        dynamo_lite.compile(net, backend=backend, fullgraph=True)(torch.ones(3, 4))
    ((inputs, same),) = seen
    assert [shape[2] for shape in inputs] == [(3, 4), (2, 4), (2,)] or {shape[2] for shape in inputs} == {
        (3, 4),
        (2, 4),
        (2,),
    }
    assert same == {True} and all(about[0] is FakeTensor for about in inputs)


def test_a_backend_of_the_programs_with_aot_autograd():
    from functorch.compile import aot_module_simplified, make_boxed_func

    def compiler(gm, inputs):
        return make_boxed_func(gm.forward)

    counter = CompileCounterWithBackend(
        lambda gm, inputs: aot_module_simplified(gm, inputs, fw_compiler=compiler, bw_compiler=compiler)
    )
    for _ in range(3):
        dynamo_lite.reset()
        with FakeTensorMode() as mode:
            net, x = nn.Linear(4, 2), torch.ones(3, 4)
            result = dynamo_lite.compile(net, backend=counter, fullgraph=True)(x)
            result.sum().backward()
        assert result.fake_mode is mode and result.grad_fn.name() == "CompiledFunctionBackward"
        assert type(net.weight.grad) is FakeTensor


# -- what a failure, and the end of a mode, leaves


def test_an_operator_that_fails():
    """The function goes on in its own `except`."""

    def fails(x, i):
        x.add_(1)
        try:
            return x.reshape(7)
        except RuntimeError as error:
            return type(error), x * 2

    def program(compile_):
        with FakeTensorMode():
            x = torch.ones(3)
            return compile_(fails)(x, 1), x

    as_eager(program, graphs=2, breaks=1)


def test_a_graph_that_fails_when_it_runs():
    """Operators without a rule for meta tensors fail where there are no kernels to fall back to; in a trace they do not."""

    def program(compile_):
        mode = FakeTensorMode(allow_fallback_kernels=False)
        with mode:
            x = torch.ones(3, 3)
            results = []
            for _ in range(2):
                try:
                    results.append(compile_(lambda x: torch.histc(x + 1, bins=4))(x))
                except Exception as error:
                    results.append(type(error))
            return results, torch._C._get_dispatch_mode(FAKE) is mode

    expected = outcome(program, lambda fn: fn)
    assert outcome(program, lambda fn: dynamo_lite.compile(fn, backend="eager")) == expected


def test_nothing_keeps_a_mode():
    class Seen:
        def __init__(self, mode):
            mode.seen = self
            ended.append(False)

        def __del__(self):
            ended[-1] = True

    ended = []
    compiled = dynamo_lite.compile(lambda x: x + torch.ones(3), backend="eager")
    for _ in range(2):
        mode = FakeTensorMode()
        Seen(mode)
        with mode:
            compiled(torch.ones(3))
        del mode
        gc.collect()
        assert ended[-1]


def test_nothing_is_kept_on_disk(tmp_path):
    with config.patch(cache=True, cache_dir=str(tmp_path)):
        for is_active in (True, False):
            dynamo_lite.reset()
            with FakeTensorMode():
                x = torch.ones(3)
                if is_active:
                    dynamo_lite.compile(lambda x: x + 1, backend="eager")(x)
            if not is_active:
                dynamo_lite.compile(lambda x: x + 1, backend="eager")(x)
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix not in (".lock",)]


# -- what stays eager

REFUSED = {
    "parameter": (lambda x: nn.Parameter(x * 2), 1),
    "subclass": (lambda x: (x * 2).as_subclass(torch.Tensor), 1),
    "text": (lambda x: f"{x}", 0),
    "legacy class": (lambda x: isinstance(x, torch.FloatTensor), 0),
    "state": (lambda x: x.__dict__.keys(), 0),
    "constant": (lambda x: (x + 1).constant, 1),
}


@BOTH
@pytest.mark.parametrize("name", REFUSED)
def test_refused(call, name):
    fn, graphs = REFUSED[name]
    as_eager(call(fn, (3,)), graphs, breaks=1)


def test_wrappers_of_fake_tensors():
    def program(compile_):
        with FakeTensorMode():
            whole = TwoTensor(torch.ones(3), torch.ones(3))
        return compile_(lambda x: ((x + 1).a, type(x.a)))(whole)

    as_eager(program, graphs=0, breaks=1)


def test_hooks_of_modules_see_the_programs_tensors():
    def program(compile_):
        seen = []
        with FakeTensorMode():
            net = nn.Linear(4, 2)
            net.register_full_backward_hook(lambda module, given, got: seen.append(described(got)))
            result = compile_(net)(torch.ones(3, 4, requires_grad=True))
            result.sum().backward()
        return result, seen

    as_eager(program, graphs=1, breaks=1)
