"""`torch.autograd.graph.saved_tensors_hooks` inside of captured code and around it: results and gradients of eager execution, effects of
the hooks not lost, whole graphs where hooks only compute."""

import copy
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd.graph import disable_saved_tensors_hooks, save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

import dynamo_lite
from dynamo_lite.graph import torch_runtime
from dynamo_lite.testing import CompileCounterWithBackend

BACKENDS = ["eager", "aot_eager"]
SCALE = 2.0


def lossy():
    return saved_tensors_hooks(lambda t: t * 2, lambda t: t + 1)


def quantize(t):
    scale = t.abs().amax() / 127 + 1e-6
    return (t / scale).round().to(torch.int8), {"scale": scale, "dtype": t.dtype}


def dequantize(packed):
    values, about = packed
    return values.to(about["dtype"]) * about["scale"]


def gradients_of(fn, args):
    torch.manual_seed(0)
    args = copy.deepcopy(args)
    out = fn(*args)
    first = out[0] if isinstance(out, tuple) else out
    first.sum().backward()
    tensors = [a for a in args if isinstance(a, torch.Tensor)]
    parameters = [p for a in args if isinstance(a, nn.Module) for p in a.parameters()]
    return out, [t.grad for t in (*tensors, *parameters)], args


def check(fn, *args, graphs=1, backend="eager", dynamic=None):
    """Results, gradients and arguments of two calls, and the number of graphs."""
    counter = CompileCounterWithBackend(backend)
    compiled = dynamo_lite.compile(fn, backend=counter, fullgraph=graphs == 1, dynamic=dynamic)
    for _ in range(2):
        expected, got = gradients_of(fn, args), gradients_of(compiled, args)
        for e, g in zip(expected[:2], got[:2], strict=True):
            torch.testing.assert_close(g, e)
        for e, g in zip(expected[2], got[2], strict=True):
            if isinstance(e, torch.Tensor):
                torch.testing.assert_close(g, e)
        assert torch._C._autograd._top_saved_tensors_default_hooks(True) is None
    assert graphs is None or counter.frame_count == graphs


def x(*sizes):
    return torch.linspace(-1, 2, torch.Size(sizes or (3, 4)).numel()).reshape(sizes or (3, 4)).requires_grad_()


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.norm, self.b = nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 4)

    def forward(self, t):
        return self.b(torch.relu_(self.norm(self.a(t))))


# -- whole


def half(t):
    with saved_tensors_hooks(lambda t: (t.dtype, t.half()), lambda p: p[1].to(p[0])):
        y = (t.sin() * t).exp()
    return y * t


def quantized(t, model):
    with saved_tensors_hooks(quantize, dequantize):
        y = model(t)
    return y.pow(2)


def on_cpu(t, model):
    with save_on_cpu():
        return model(t).exp()


def pinned(t):
    with save_on_cpu(pin_memory=True):
        y = t.exp() * t
    return y.sin()


def nested(t):
    with lossy():
        y = t.sin() * t
        with saved_tensors_hooks(lambda t: t.clone(), lambda t: t * 3):
            y = y * y
        y = y.exp()
    return y


def twice_and_outside(t):
    with lossy():
        y = t * t
    y = y.sin()
    with lossy():
        return y.exp() * t


def in_place(t):
    with lossy():
        y = t * 1
        y.mul_(t).add_(1)
        y[0] = y[1] * 2
    return y


def parameters_stay(t, model):
    def pack(v):
        return v if isinstance(v, nn.Parameter) or v.numel() < 10 else (v.shape, v.flatten() * 2)

    def unpack(p):
        return p[1].view(p[0]) if isinstance(p, tuple) else p

    with saved_tensors_hooks(pack, unpack):
        return model(t) * model.b.bias


def with_a_tensor(t):
    factor = t.detach().abs().max()
    with saved_tensors_hooks(lambda v: v * factor, lambda v: v + factor):
        y = t.exp() * t
    return y


def from_a_global(t):
    with saved_tensors_hooks(lambda v: v * SCALE, lambda v: v + SCALE):
        return t.exp() * t


def attention(t):
    q = t[None, None]
    with lossy():
        return F.scaled_dot_product_attention(q, q * 2, q, is_causal=True)


def convolution(t):
    with lossy():
        return F.conv1d(t[:, None], torch.ones(2, 1, 3) * t[0, 0], padding=1).relu().logsumexp(-1)


def without_gradients(t):
    with lossy(), torch.no_grad():
        y = t.exp() * t
    return y * t


def with_random_numbers(t):
    with saved_tensors_hooks(lambda v: v + torch.rand_like(v) * 1e-3, lambda v: v):
        y = t.exp() * t
    return F.dropout(y) * torch.rand(4)


def gradients_inside(t):
    with lossy():
        y = t.exp() * t
    (g,) = torch.autograd.grad(y.sum(), t)
    return g * t


def around_autocast(t):
    with saved_tensors_hooks(lambda v: (v @ v.t()).sum() + v, lambda v: v + 1):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = (t @ t.t()).exp()
    return y.float()


def inside_of_autocast(t):
    with (
        torch.autocast("cpu", dtype=torch.bfloat16),
        saved_tensors_hooks(lambda v: (v @ v.t()).sum() + v, lambda v: v + 1),
    ):
        y = (t @ t.t()).exp()
    return y.float()


class Hooks(saved_tensors_hooks):
    def __init__(self, scale):
        self.scale = scale
        super().__init__(self.pack, self.unpack)

    def pack(self, v):
        return v * self.scale

    def unpack(self, v):
        return v + self.scale


def of_a_class(t):
    with Hooks(3.0):
        return t.exp() * t


WHOLE = {
    fn: (x(),)
    for fn in (
        half, pinned, nested, twice_and_outside, in_place, with_a_tensor, from_a_global, attention, convolution,
        without_gradients, with_random_numbers, gradients_inside, of_a_class, around_autocast, inside_of_autocast,
    )
}  # fmt: skip
WHOLE.update({fn: (x(), Mlp()) for fn in (quantized, on_cpu, parameters_stay)})


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fn", WHOLE, ids=lambda fn: fn.__name__)
def test_whole(fn, backend):
    check(fn, *WHOLE[fn], backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_symbolic_sizes(backend):
    counter = CompileCounterWithBackend(backend)
    compiled = dynamo_lite.compile(quantized, backend=counter, dynamic=True, fullgraph=True)
    model = Mlp()
    for n in (3, 5, 7):
        expected, got = gradients_of(quantized, (x(n, 4), model)), gradients_of(compiled, (x(n, 4), model))
        torch.testing.assert_close(got[:2], expected[:2])
    assert counter.frame_count == 1


def test_inductor():
    check(quantized, x(), Mlp(), backend="inductor")


def test_gradients_of_gradients():
    def run(fn):
        t = x()
        (g,) = torch.autograd.grad(fn(t).sum(), t, create_graph=True)
        g.sum().backward()
        return t.grad

    torch.testing.assert_close(run(dynamo_lite.compile(half, fullgraph=True, backend="eager")), run(half))


# -- hooks that do more than compute, or find something else later


def counting(t):
    seen = []
    with saved_tensors_hooks(lambda v: seen.append(v.shape) or v * 2, lambda v: v + 1):
        y = t.exp() * t
    return y, seen


def bound_late(t):
    scale = 2.0
    with saved_tensors_hooks(lambda v: v * scale, lambda v: v + scale):
        y = t.exp() * t
    scale = 4.0
    return y


def bound_in_a_loop(t):
    for scale in (2.0, 4.0):
        with saved_tensors_hooks(lambda v: v * scale, lambda v: v + scale):
            t = t.exp() * t
    return t


def switched_inside(t):
    on = [True]
    with saved_tensors_hooks(lambda v: v * 2 if on[0] else v, lambda v: v):
        y = t.exp() * t
        on[0] = False
        y = y.sin()
    return y


def of_an_object(t, hooks):
    with hooks:
        y = t.exp() * t
        hooks.scale = 5.0
    return y


def around_a_checkpoint(t):
    with lossy():
        y = checkpoint(lambda v: v.sin().exp(), t * 2, use_reentrant=False)
    return y


def made_inside(t):
    box = []
    with saved_tensors_hooks(lambda v: v * box[0] if box else v, lambda v: v):
        y = t.exp()
        box.append(y.detach().max())
        y = y.sin()
    return y


def print_inside(t):
    with lossy():
        y = t.exp() * t
        print("inside")
        y = y.sin() * y
    return y


def looks_at_data(t):
    with saved_tensors_hooks(lambda v: (v, v.abs().max().item()), lambda p: p[0] * p[1]):
        y = t.exp() * t
    return y


def around_a_dropout(t):
    with lossy():  # which compilers have in another form, that saves something else
        return F.dropout(t.exp() * t, 0.5)


BROKEN = {fn: (x(),) for fn in (counting, bound_late, switched_inside, around_a_checkpoint, made_inside,
                                print_inside, looks_at_data, bound_in_a_loop, around_a_dropout)}  # fmt: skip
BROKEN[of_an_object] = (x(), Hooks(2.0))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fn", BROKEN, ids=lambda fn: fn.__name__)
def test_as_eager_in_pieces(fn, backend):
    check(fn, *BROKEN[fn], backend=backend, graphs=None)
    with pytest.raises(dynamo_lite.exc.Unsupported):
        dynamo_lite.compile(fn, backend=backend, fullgraph=True)(*BROKEN[fn])


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_error_inside_leaves_no_hooks(backend):
    def fn(t, i):
        with lossy():
            y = t.exp()
            return y[i] * t

    compiled = dynamo_lite.compile(fn, backend=backend)
    for i in (torch.tensor(0), torch.tensor(9), torch.tensor(1)):
        try:
            expected = fn(x(), i)
        except IndexError:
            with pytest.raises(IndexError):
                compiled(x(), i)
        else:
            torch.testing.assert_close(compiled(x(), i), expected)
        assert torch._C._autograd._top_saved_tensors_default_hooks(True) is None


def test_they_cannot_be_disabled_inside():
    def fn(t):
        with lossy():
            try:
                with disable_saved_tensors_hooks("no"):
                    return t * 2
            except RuntimeError:
                return t * 3

    assert torch.equal(dynamo_lite.compile(fn, backend="eager")(x()), fn(x()))


# -- around compiled functions


def body(t):
    return (t.sin() * t).exp()


def graph_module(function):
    return torch.fx.symbolic_trace(function)


HOOKS = {
    "functions": lambda: (lambda v: v * 2, lambda v: v + 1),
    "modules": lambda: (graph_module(lambda v: v * 2), graph_module(lambda v: v + 1)),
}


@pytest.mark.parametrize("backend", [*BACKENDS, "inductor"])
@pytest.mark.parametrize("kind", HOOKS)
def test_around(kind, backend):
    compiled = dynamo_lite.compile(body, backend=backend, fullgraph=True)

    def run(fn, hooked):
        t = x()
        if hooked:
            with saved_tensors_hooks(*HOOKS[kind]()):
                y = fn(t)
        else:
            y = fn(t)
        y.sum().backward()
        return y, t.grad

    for hooked in (True, False, True):
        torch.testing.assert_close(run(compiled, hooked), run(body, hooked))


@pytest.mark.parametrize("backend", BACKENDS)
def test_around_with_effects(backend):
    seen = []

    def pack(v):
        seen.append((type(v), v.shape))
        return v

    compiled = dynamo_lite.compile(body, backend=backend, fullgraph=True)
    with saved_tensors_hooks(pack, lambda v: v):
        body(x())
        expected = list(seen)
        for _ in range(2):
            seen.clear()
            compiled(x())
            assert seen == expected


def test_what_gives_back_the_same_is_left_to_the_compiler():
    calls = []

    def backend(gm, inputs):
        run = dynamo_lite.backends.registry.lookup_backend("aot_eager")(gm, inputs)
        return lambda *args: calls.append(1) or run(*args)

    compiled = dynamo_lite.compile(body, backend=backend)
    t = x()
    with save_on_cpu():
        compiled(t).sum().backward()
    checkpoint(compiled, t, use_reentrant=False).sum().backward()
    assert len(calls) == 3  # the checkpoint computes again
    expected = x()
    (body(expected).sum() * 2).backward()
    torch.testing.assert_close(t.grad, expected.grad)


@pytest.mark.parametrize("backend", BACKENDS)
def test_checkpoint_of_a_compiled_function_that_stops_early(backend):
    compiled = dynamo_lite.compile(body, backend=backend, fullgraph=True)
    ours, theirs = x(), x()
    for t, fn in ((ours, compiled), (theirs, body)):
        checkpoint(fn, t, use_reentrant=False).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad)


def test_a_signal_right_after_hooks_are_hidden():
    """A handler of the program that raises then leaves no thread without hooks."""

    class Interrupted(Exception):
        pass

    def interrupt(frame, event, function):
        if event == "c_return" and function.__name__ in ("_saved_tensors_hooks_set_tracing", "extend"):
            raise Interrupted

    previous = sys.getprofile()
    sys.setprofile(interrupt)
    try:
        with pytest.raises(Interrupted), torch_runtime.modes_aside():
            pass
    finally:
        sys.setprofile(previous)
    assert torch._C._autograd._saved_tensors_hooks_set_tracing(False) is False
