"""Wrapper subclasses that see torch functions first: `__torch_function__` is followed, what it calls below reaches `__torch_dispatch__`."""

import functools

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils.checkpoint import checkpoint

import dynamo_lite
from dynamo_lite.testing import CompileCounterWithBackend, same

aten = torch.ops.aten
BACKENDS = pytest.mark.parametrize("backend", ["eager", "aot_eager"])


class Pair(torch.Tensor):
    """Two tensors that take part in every operator together."""

    @staticmethod
    def __new__(cls, a, b):
        options = {"strides": a.stride(), "dtype": a.dtype, "requires_grad": a.requires_grad}
        return torch.Tensor._make_wrapper_subclass(cls, a.shape, **options)

    def __init__(self, a, b):
        self.a, self.b = a, b

    def __repr__(self):
        return f"{type(self).__name__}({self.a}, {self.b})"

    def __tensor_flatten__(self):
        return ["a", "b"], None

    @classmethod
    def __tensor_unflatten__(cls, inner, context, size, stride):
        return cls(inner["a"], inner["b"])

    @classmethod
    def __torch_dispatch__(cls, func, types, args, kwargs):
        kwargs = kwargs or {}
        results = []
        for name in ("a", "b"):
            one = pytree.tree_map_only(Pair, lambda t, name=name: getattr(t, name), (args, kwargs))
            results.append(func(*one[0], **one[1]))
        first, structure = pytree.tree_flatten(results[0])
        pairs = zip(first, pytree.tree_leaves(results[1]), strict=True)
        out = [cls(a, b) if isinstance(a, torch.Tensor) else a for a, b in pairs]
        return return_and_correct_aliasing(func, args, kwargs, pytree.tree_unflatten(out, structure))

    def total(self):
        return self.a + self.b


class Switching(Pair):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


class Calling(Pair):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return torch._C._disabled_torch_function_impl(func, types, args, kwargs or {})


class Inheriting(Pair):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.sin:
            return torch.cos(args[0].total())
        return torch.Tensor.__torch_function__.__func__(cls, func, types, args, kwargs or {})


class Logging(Pair):
    log: list[str] = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.log.append(func.__name__)
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


class Quiet(Pair):
    """The protocol switched off, which a class has that defines `__torch_dispatch__` alone."""


class Small(torch.Tensor):
    """Small integers and their scales; tables say what functions and operators do."""

    FUNCTIONS: dict = {}
    OPERATORS: dict = {}

    @staticmethod
    def __new__(cls, q, scale, block, dtype):
        return torch.Tensor._make_wrapper_subclass(cls, q.shape, dtype=dtype)

    def __init__(self, q, scale, block, dtype):
        self.q, self.scale, self.block = q, scale, block

    def __repr__(self):
        return f"Small({self.q})"

    def __tensor_flatten__(self):
        return ["q", "scale"], [self.block, self.dtype]

    @classmethod
    def __tensor_unflatten__(cls, inner, context, size, stride):
        return cls(inner["q"], inner["scale"], *context)

    @classmethod
    def of(cls, t):
        scale = t.abs().amax(-1, keepdim=True) / 127
        return cls((t / scale).round().to(torch.int8), scale, [1, t.shape[-1]], t.dtype)

    def large(self):
        return self.q.to(self.dtype) * self.scale

    @classmethod
    def implements(cls, table, *functions):
        def decorate(f):
            for function in functions:

                @functools.wraps(function)
                def wrapper(*args, f=f):
                    return f(*args)

                table[function] = wrapper
            return f

        return decorate

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        kwargs = {} if kwargs is None else kwargs
        if func in cls.FUNCTIONS:
            return cls.FUNCTIONS[func](func, types, args, kwargs)
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **kwargs)

    @classmethod
    def __torch_dispatch__(cls, func, types, args, kwargs):
        return cls.OPERATORS[func](func, types, args, kwargs)


@Small.implements(Small.FUNCTIONS, F.linear)
def small_linear(func, types, args, kwargs):
    return _Linear.apply(*args, **kwargs)


@Small.implements(Small.OPERATORS, aten.detach.default, aten.alias.default, aten.clone.default, aten.t.default)
def small_view(func, types, args, kwargs):
    one = args[0]
    result = Small(func(one.q), func(one.scale), one.block, one.dtype)
    return return_and_correct_aliasing(func, args, kwargs, result)


@Small.implements(Small.OPERATORS, aten.mm.default)
def small_mm(func, types, args, kwargs):
    return func(*[a.large() if isinstance(a, Small) else a for a in args])


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, b=None):
        ctx.w = w
        y = x @ w.q.to(x.dtype).t() * w.scale.t()
        return y if b is None else y + b

    @staticmethod
    def backward(ctx, grad):
        return grad @ ctx.w.large(), None, grad.sum(0)


FOLLOWED = pytest.mark.parametrize("cls", [Switching, Calling, Inheriting])


def x():
    return torch.arange(12.0).reshape(4, 3) / 7 - 0.5


def parts(value):
    """Values with the parts of wrappers in their place."""

    def apart(t):
        return (type(t).__name__, t.shape, *(getattr(t, name).detach() for name in t.__tensor_flatten__()[0]))

    return pytree.tree_map_only((Pair, Small), apart, value)


def in_one_graph(fn, make, backend, graphs=1):
    """The results of three calls, the arguments afterwards."""

    def run(call):
        given = [make() for _ in range(3)]
        return [parts(call(*args)) for args in given], parts(given)

    counter = CompileCounterWithBackend(backend)
    expected, found = run(fn), run(dynamo_lite.compile(fn, backend=counter, fullgraph=graphs == 1))
    assert same(expected, found, tol=1e-5)
    assert counter.frame_count == graphs
    return counter


def in_place(t):
    t.mul_(2)
    t += 1
    t[0].add_(1)
    t[1] = 5
    return t, t.total()


def attributes(t):
    t.note = 3
    y = t * t.note
    return y, t.note, type(y).__name__, isinstance(y, torch.Tensor), t.shape, t.dtype, t.ndim, t.requires_grad


USES = {
    "operators": lambda t: (t * 2 + t, torch.cat([t, t]), 1 - t, F.relu(t), t @ t.t(), t.to(torch.float64)),
    "named results": lambda t: (t.max(0), torch.sort(t), t.max(0).values + 1),
    "parts": lambda t: (t.a + 1, t.total(), t * t.b, t.detach().a + 1),
    "in place": in_place,
    "attributes": attributes,
    "module code": lambda t: F.layer_norm(F.softmax(t, -1), (3,)),
    "attention": lambda t: F.scaled_dot_product_attention(t[None], t[None], t[None]),
    "written through a view": lambda t: (t.view(-1).add_(1), t * 2)[1],
}


@BACKENDS
@FOLLOWED
@pytest.mark.parametrize("name", USES)
def test_one_graph(name, cls, backend):
    in_one_graph(USES[name], lambda: (cls(x(), x() * 2),), backend)


@BACKENDS
@FOLLOWED
def test_made_in_the_graph(cls, backend):
    in_one_graph(lambda a: (cls(a, a * 2) + 1, cls(a, a).total()), lambda: (x(),), backend)


@BACKENDS
def test_functions_that_the_class_answers(backend):
    counter = in_one_graph(lambda t: torch.sin(t), lambda: (Inheriting(x(), x()),), backend)
    assert {node.target for graph in counter.graphs for node in graph.graph.nodes if node.op == "call_function"} >= {
        torch.cos
    }


@BACKENDS
def test_what_the_class_does_besides_happens_once_per_function(backend):
    compiled = dynamo_lite.compile(lambda t: t * 2 + t.sum(), backend=backend, fullgraph=True)
    for _ in range(3):
        Logging.log.clear()
        compiled(Logging(x(), x()))
        assert Logging.log == ["sum", "mul", "add"] or Logging.log == ["mul", "sum", "add"]


def small_net():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))
    net[1].weight = nn.Parameter(Small.of(net[1].weight.detach()), requires_grad=False)
    return net


@BACKENDS
@pytest.mark.parametrize("keeps", [True, False])
def test_a_weight_in_training(keeps, backend):
    """LoRA: the others are trained. With and without checkpoints."""

    def run(opt):
        net = small_net()
        call = net if keeps else lambda a: checkpoint(lambda b: net(b), a, use_reentrant=False)
        given = x().requires_grad_()
        out = opt(call)(given)
        out.sin().sum().backward()
        return out.detach(), given.grad, [p.grad for p in net.parameters() if p.requires_grad]

    counter = CompileCounterWithBackend(backend)
    found = run(lambda fn: dynamo_lite.compile(fn, backend=counter, fullgraph=True))
    assert same(run(lambda fn: fn), found, tol=1e-5)
    assert counter.frame_count == 1


@BACKENDS
def test_quantized_inside(backend):
    def quantize(w, a):
        q = Small.of(w)
        q2 = Small(q.q, q.scale, q.block, torch.float64)
        return F.linear(a, q), a @ q.t(), q, q2.dtype, q.block

    counter = in_one_graph(quantize, lambda: (x(), x()), backend)
    assert counter.frame_count == 1
    made = dynamo_lite.compile(quantize, backend=backend)(x(), x())[2]
    assert type(made.block) is list


@BACKENDS
@FOLLOWED
def test_gradients(cls, backend):
    def run(opt):
        t, w = cls(x(), x() * 2).requires_grad_(), torch.ones(3, 3, requires_grad=True)
        opt(lambda t, w: (t @ w).exp().sum())(t, w).backward()
        return parts((t.grad, w.grad))

    assert same(run(lambda fn: fn), run(lambda fn: dynamo_lite.compile(fn, backend=backend, fullgraph=True)), tol=1e-5)


@BACKENDS
def test_gradients_of_parts_are_not_lost(backend):
    def run(opt):
        a = x().requires_grad_()
        t = Switching(a, a * 2)
        opt(lambda t: t.total())(t).sum().backward()
        return a.grad

    assert same(run(lambda fn: fn), run(lambda fn: dynamo_lite.compile(fn, backend=backend)))


VIEWS = {
    "slice": lambda t: t[1:],
    "chunks": lambda t: t.chunk(2),
    "transposed": lambda t: (t.t(), t[1]),
    "beside others": lambda t: (t[1:], t * 2, t.view(-1)),
    "of a changed one": lambda t: (t[1:].add_(1), t * 1),
    "of a result": lambda t: (lambda u: (u, u[1:]))(t * 2),
}


@BACKENDS
@pytest.mark.parametrize("cls", [Quiet, Switching])
@pytest.mark.parametrize(  # a leaf is not changed in place
    "name, grad",
    [(name, grad) for name in VIEWS for grad in (False, True) if not (grad and name == "of a changed one")],
)
def test_views_that_leave_the_graph(name, grad, cls, backend):
    """Their parts begin where they begin, and share the argument's memory."""

    def run(opt):
        t = cls(x(), x() * 2)
        t = t.requires_grad_() if grad else t
        out = opt(VIEWS[name])(t)
        found = [parts(out)]
        if grad:
            last = out if isinstance(out, torch.Tensor) else out[-1]
            last.sin().sum().backward()
            found.append(parts(t.grad))
        else:
            t.a.zero_()
            found.append(parts(out))
        return found

    counter = CompileCounterWithBackend(backend)
    assert same(run(lambda fn: fn), run(lambda fn: dynamo_lite.compile(fn, backend=counter)), tol=1e-5)
    assert counter.frame_count == 1


@BACKENDS
def test_parts_of_parts(backend):
    in_one_graph(lambda t: (t * 2, t.a.a + 1), lambda: (Switching(Calling(x(), x()), Calling(x(), x())),), backend)
    in_one_graph(lambda t: (t * 2, t.a * 2), lambda: (Switching(Quiet(x(), x()), Quiet(x(), x())),), backend)


def changed_inside(t):
    t.a.mul_(2)
    t.add_(1)
    return t, t.a.total()


PARTS_THAT_ARE_ASKED = {
    "operators": lambda t: (t * 2, t.a * 2, t.sum(0), t.a.total()),
    "the part first": lambda t: (t.a * 2, torch.cat([t, t * 2]), t.total().total()),
    "functions that the class answers": lambda t: (torch.sin(t), torch.sin(t.a), t.sin()),
    "in place": changed_inside,
    "made inside": lambda t: Quiet(t.a, t.b + 1).sin().b.total(),
}


@BACKENDS
@FOLLOWED
@pytest.mark.parametrize("name", PARTS_THAT_ARE_ASKED)
def test_parts_that_are_asked_where_the_graph_runs(name, cls, backend):
    """What the outer class calls asks the inner one; about what the program calls with the inner one the trace has asked already."""
    in_one_graph(PARTS_THAT_ARE_ASKED[name], lambda: (Quiet(cls(x(), x()), cls(x(), x())),), backend)


@BACKENDS
@pytest.mark.parametrize("cls", [Quiet, Switching])
def test_a_tensor_whose_init_is_not_done(cls, backend):
    init = dynamo_lite.compile(cls.__init__, backend=backend)
    for _ in range(2):
        t = cls.__new__(cls, x(), x())
        init(t, x(), x() * 2)
        assert same(t.b, x() * 2)


class SinForCos(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return (torch.sin if func is torch.cos else func)(*args, **(kwargs or {}))


@BACKENDS
def test_modes_are_asked_before(backend):
    def under(t):
        with SinForCos():
            return torch.cos(t) + 1

    in_one_graph(under, lambda: (Switching(x(), x()),), backend)


@BACKENDS
def test_a_break_inside_comes_before_the_call(backend):
    def broken(t):
        y = t * 2
        print(end="")
        return y + t

    in_one_graph(broken, lambda: (Switching(x(), x()),), backend, graphs=2)


@BACKENDS
def test_sizes_vary_after_one_recompile(backend):
    counter = CompileCounterWithBackend(backend)
    compiled = dynamo_lite.compile(lambda t: (t.sin() + t.a, t.view(-1) * t.shape[0]), backend=counter, fullgraph=True)
    for n in (4, 4, 5, 6, 7):
        t = Switching(torch.arange(3.0 * n).reshape(n, 3), torch.ones(n, 3))
        assert same(parts(compiled(t)), parts((t.sin() + t.a, t.view(-1) * n)), tol=1e-5)
    assert counter.frame_count == 2


@BACKENDS
def test_called_where_no_class_is_asked(backend):
    counter = CompileCounterWithBackend(backend)
    compiled = dynamo_lite.compile(lambda t: torch.sin(t), backend=counter, fullgraph=True)
    t = Inheriting(x(), x())
    for _ in range(2):
        with torch._C.DisableTorchFunctionSubclass():
            assert same(parts(compiled(t)), parts(torch.sin(t)), tol=1e-5)
        assert same(compiled(t), torch.cos(t.total()), tol=1e-5)
    assert counter.frame_count == 2


def test_afterwards_classes_are_asked_again():
    dynamo_lite.compile(lambda t: t + 1, backend="eager")(Switching(x(), x()))
    assert torch._C._is_torch_function_enabled()
    with pytest.raises(KeyError):
        dynamo_lite.compile(lambda t: torch.exp(t), backend="eager")(Small.of(x()))
    assert torch._C._is_torch_function_enabled()
