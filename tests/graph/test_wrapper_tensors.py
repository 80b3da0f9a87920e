"""Tensors that consist of others (wrapper subclasses with `__torch_dispatch__`): inputs, parameters, results, made in the captured code."""

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import return_and_correct_aliasing

import dynamo_lite
from dynamo_lite.record import log
from dynamo_lite.testing import CompileCounterWithBackend, same


class Two(torch.Tensor):
    """Two tensors that take part in every operator together."""

    @staticmethod
    def __new__(cls, a, b):
        options = {"strides": a.stride(), "dtype": a.dtype, "device": a.device, "requires_grad": a.requires_grad}
        return torch.Tensor._make_wrapper_subclass(cls, a.shape, **options)

    def __init__(self, a, b):
        self.a, self.b = a, b

    def __repr__(self):
        return f"Two({self.a}, {self.b})"

    def __tensor_flatten__(self):
        return ["a", "b"], None

    @staticmethod
    def __tensor_unflatten__(inner, context, size, stride):
        return Two(inner["a"], inner["b"])

    @classmethod
    def __torch_dispatch__(cls, func, types, args, kwargs):
        kwargs = kwargs or {}
        results = []
        for name in ("a", "b"):
            one = pytree.tree_map_only(Two, lambda t, name=name: getattr(t, name), (args, kwargs))
            results.append(func(*one[0], **one[1]))
        first, structure = pytree.tree_flatten(results[0])
        pairs = zip(first, pytree.tree_leaves(results[1]), strict=True)
        out = [Two(a, b) if isinstance(a, torch.Tensor) else a for a, b in pairs]
        return return_and_correct_aliasing(func, args, kwargs, pytree.tree_unflatten(out, structure))

    def total(self):
        return self.a + self.b


class Quantized(torch.Tensor):
    """Small integers and a scale."""

    @staticmethod
    def __new__(cls, q, scale):
        return torch.Tensor._make_wrapper_subclass(cls, q.shape, dtype=torch.float32, strides=q.stride())

    def __init__(self, q, scale):
        self.q, self.scale = q, scale

    def __repr__(self):
        return f"Quantized({self.q}, {self.scale})"

    def __tensor_flatten__(self):
        return ["q"], (self.scale,)

    @staticmethod
    def __tensor_unflatten__(inner, context, size, stride):
        return Quantized(inner["q"], *context)

    @classmethod
    def of(cls, t, scale=0.1):
        return cls((t / scale).round().to(torch.int8), scale)

    @property
    def zero(self):
        return self.scale * 0

    @classmethod
    def __torch_dispatch__(cls, func, types, args, kwargs):
        if func in (torch.ops.aten.detach.default, torch.ops.aten.t.default):
            return return_and_correct_aliasing(func, args, {}, Quantized(func(args[0].q), args[0].scale))
        plain = pytree.tree_map_only(Quantized, lambda t: t.q.to(t.dtype) * t.scale, (args, kwargs or {}))
        return func(*plain[0], **plain[1])


def x():
    return torch.arange(12.0).reshape(4, 3) / 7 - 0.5


def pair():
    return Two(x(), x() * 2)


def parts(value):
    """Values with the parts of wrappers in their place."""

    def apart(t):
        return (type(t).__name__, *(getattr(t, name).detach() for name in t.__tensor_flatten__()[0]))

    return pytree.tree_map_only((Two, Quantized), apart, value)


def changed(t):
    t.mul_(2)
    t[0].add_(1)
    return t, t.total()


def noted(t):
    t.note = 3
    y = t * t.note
    y.note = t.note
    return y, y.note, type(y) is Two, isinstance(y, torch.Tensor)


CASES = {
    "operators": (lambda t: t.sin() * 2 + t, pair),
    "parts": (lambda t: (t.a + 1, t.total(), t * t.b), pair),
    "changed": (changed, pair),
    "attributes": (noted, pair),
    "made": (lambda a: (Two(a, a * 2) + 1, Two(a, a).total()), x),
    "nested": (lambda t: t * 2 + t.a, lambda: Two(pair(), pair())),
    "dequantized": (lambda t: (t * 2, t.scale, t.zero, t.q), lambda: Quantized.of(x())),
    "quantized": (lambda a: (Quantized.of(a) * 2, Quantized.of(a)), x),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", CASES)
def test_one_graph(name, backend):
    fn, make = CASES[name]

    def run(call):
        given = [make(), make()]
        return [parts(call(t)) for t in given], parts(given)

    counter = CompileCounterWithBackend(backend)
    assert same(run(fn), run(dynamo_lite.compile(fn, backend=counter, fullgraph=True)), tol=1e-5)
    assert counter.frame_count == 1


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_gradients(backend):
    def run(opt):
        t, w = pair().requires_grad_(), torch.ones(3, 3, requires_grad=True)
        opt(lambda t, w: (t @ w).sin().sum())(t, w).backward()
        return parts((t.grad, w.grad))

    assert same(run(lambda fn: fn), run(lambda fn: dynamo_lite.compile(fn, backend=backend, fullgraph=True)), tol=1e-5)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_parameters_and_buffers(backend):
    def run(opt):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
        net[0].weight = nn.Parameter(Quantized.of(net[0].weight.detach()), requires_grad=False)
        out = opt(net)(x())
        out.sum().backward()
        return out.detach(), net[0].bias.grad, net[1].weight.grad

    assert same(run(lambda fn: fn), run(lambda fn: dynamo_lite.compile(fn, backend=backend, fullgraph=True)), tol=1e-5)


def test_what_the_class_tells_is_guarded():
    counter = CompileCounterWithBackend("eager")
    double = dynamo_lite.compile(lambda t: t * 2, backend=counter, fullgraph=True)
    for scale in (0.1, 0.2, 0.1):
        assert torch.equal(double(Quantized.of(x(), scale)), Quantized.of(x(), scale) * 2)
    assert counter.frame_count == 2
    assert torch.equal(double(x()), x() * 2)


class Named(nn.Parameter):
    pass


class Passive(torch.Tensor):
    __torch_function__ = torch._C._disabled_torch_function_impl


@pytest.mark.parametrize("make", [lambda: Named(x()), lambda: x().as_subclass(Passive)])
def test_a_class_without_a_protocol_is_plain_in_the_graph(make):
    compiled = dynamo_lite.compile(lambda t: (t * 2, type(t).__name__, t), backend="aot_eager", fullgraph=True)
    given = make()
    doubled, name, same_one = compiled(given)
    assert torch.equal(doubled, x() * 2) and type(doubled) is torch.Tensor
    assert name == type(given).__name__ and same_one is given


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_part_that_is_changed_as_another_argument(backend):
    def change(t, a):
        a.add_(1)
        return t * 2

    compiled = dynamo_lite.compile(change, backend=backend)
    apart, together = pair(), pair()
    assert same(parts(compiled(apart, x())), parts(pair() * 2))
    assert same(parts(compiled(together, together.a)), parts(Two(x() + 1, x() * 2) * 2))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_sizes_vary_after_one_recompile(backend):
    def mixed(t):
        return t.sin() + t.a, t.view(-1) * t.shape[0]

    def of(n):
        return Two(torch.arange(3.0 * n).reshape(n, 3), torch.ones(n, 3))

    counter = CompileCounterWithBackend(backend)
    compiled = dynamo_lite.compile(mixed, backend=counter, fullgraph=True)
    for n in (4, 4, 5, 6, 7):
        assert same(parts(compiled(of(n))), parts(mixed(of(n))), tol=1e-5)
    assert counter.frame_count == 2


def test_parts_are_the_objects_that_they_are():
    def identities(t, a):
        other = Two(a, a * 2)
        return t.a is t.a, t.a is a, other.a is a, other.b is a, other.detach().a is a, t * 2

    compiled = dynamo_lite.compile(identities, backend="eager", fullgraph=True)
    together, apart = pair(), pair()
    for given in ((together, together.a), (apart, x())):
        assert same(parts(compiled(*given)), parts(identities(*given)))


def _set_item(t, a):
    a[0] = 7
    return t + 1


def _write_to_a_view(t, a):
    t.view(-1).add_(1)
    return a * 2


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("change", [_set_item, _write_to_a_view])
def test_memory_shared_with_another_argument(change, backend):
    counter = CompileCounterWithBackend(backend)
    compiled = dynamo_lite.compile(change, backend=counter, fullgraph=True)
    for together in (False, True, False, True):
        mine, theirs = pair(), pair()
        given = [(t, t.a if together else x()) for t in (mine, theirs)]
        assert same(parts((compiled(*given[0]), given[0])), parts((change(*given[1]), given[1])))
    assert counter.frame_count == 2  # compilers see no memory that is shared so: the second one runs as it was captured


def test_what_no_compiler_sees_is_noted():
    frames, t = [], pair()
    stop = log.listen(frames.append)
    try:
        dynamo_lite.compile(_write_to_a_view, backend="aot_eager")(t, t.a)
    finally:
        stop()
    assert frames[0].graphs[0].notes == {"AOTAutograd": ["t is changed and shares memory with a"]}


class Tagged(Two):
    """Has a tag, of which only the parity matters to a graph."""

    compared: list = []

    @staticmethod
    def __new__(cls, a, b, tag=0):
        return Two.__new__(cls, a, b)

    def __init__(self, a, b, tag=0):
        super().__init__(a, b)
        self.tag = tag

    def __tensor_flatten__(self):
        return ["a", "b"], {"tag": self.tag}

    @staticmethod
    def __tensor_unflatten__(inner, context, size, stride):
        return Tagged(inner["a"], inner["b"], context["tag"])

    @classmethod
    def __metadata_guard__(cls, known, other):
        cls.compared.append((known["tag"], other["tag"]))
        return known["tag"] % 2 == other["tag"] % 2


def test_a_class_compares_what_it_says_of_its_tensors_itself():
    backend = CompileCounterWithBackend("eager")
    compiled = dynamo_lite.compile(lambda t: t + 1, backend=backend)
    for tag in (0, 2, 4, 1, 3, 6):
        found = compiled(Tagged(torch.zeros(3), torch.ones(3), tag))
        assert torch.equal(found.a, torch.ones(3)) and torch.equal(found.b, torch.full((3,), 2.0))
    assert backend.frame_count == 2
    assert (0, 2) in Tagged.compared and (0, 1) in Tagged.compared
