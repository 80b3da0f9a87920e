"""Torch functions: what enters the graph, what is folded, what changes the ambient state, what breaks."""

import pytest
import torch
import torch.nn.functional as F

import dynamo_lite
from dynamo_lite.config import config
from dynamo_lite.testing import run_both
from tests.helpers.capturing import wrapped
from tests.helpers.graph_counts import check


def x():
    return torch.arange(12.0).reshape(3, 4) / 10


ONE_NODE = {
    "relu": lambda a: F.relu(a),
    "linear": lambda a: F.linear(a, a),
    "layer_norm": lambda a: F.layer_norm(a, (4,)),
    "softmax": lambda a: F.softmax(a, dim=-1),
    "gelu": lambda a: F.gelu(a, approximate="tanh"),
    "cat": lambda a: torch.cat([a, a], 1),
    "stack": lambda a: torch.stack((a, a)),
    "where": lambda a: torch.where(a > 0.3, a, a),
    "einsum": lambda a: torch.einsum("ij,kj->ik", a, a),
    "norm": lambda a: torch.norm(a, dim=1),
    "fft": lambda a: torch.fft.fft(a),
    "linalg": lambda a: torch.linalg.norm(a),
    "special": lambda a: torch.special.erf(a),
    "pool": lambda a: F.max_pool1d(a, 2),
    "pad": lambda a: F.pad(a, (1, 1)),
    "interpolate": lambda a: F.interpolate(a[None], scale_factor=2.0),
    "aten": lambda a: torch.ops.aten.add.Tensor(a, a),
    "packet": lambda a: torch.ops.aten.relu(a),
    "sdpa": lambda a: F.scaled_dot_product_attention(a[None], a[None], a[None]),
    "meshgrid": lambda a: torch.meshgrid(a[0], a[1], indexing="ij")[0],
    "tensordot": lambda a: torch.tensordot(a, a, dims=([1], [1])),
    "dropout": lambda a: F.dropout(a, 0.5, False),
    "zeros": lambda a: torch.zeros(3, dtype=a.dtype, device=a.device) + a.sum(),
    "arange": lambda a: torch.arange(a.shape[0]) + a.sum(),
    "tensor": lambda a: torch.tensor([1.0, 2.0]) + a.sum(),
    "full_like": lambda a: torch.full_like(a, 2),
    "as_tensor": lambda a: torch.as_tensor(a) + 1,
}


@pytest.mark.parametrize("name", ONE_NODE)
def test_functions_in_the_graph(name):
    check(ONE_NODE[name], x())


def test_random_functions_draw_what_eager_draws():
    check(lambda a: F.dropout(a, 0.5, True) + torch.rand(3, 4) + torch.randn_like(a), x(), ops=5)


FOLDED = {
    "dtype": lambda: (torch.get_default_dtype(), torch.float32.is_floating_point, torch.finfo(torch.float16).max),
    "device": lambda: (torch.device("cpu"), torch.device("cpu").type, torch.device("cpu") == torch.device("cpu")),
    "promote": lambda: (torch.promote_types(torch.int32, torch.float16), torch.can_cast(torch.float32, torch.int32)),
    "info": lambda: (torch.iinfo(torch.int8).min, torch.finfo(torch.float32).eps, torch.finfo(torch.bfloat16).dtype),
    "cuda": lambda: (torch.cuda.is_available(), torch.cuda.device_count(), torch.backends.mps.is_available()),
    "jit": lambda: (torch.jit.is_scripting(), torch.jit.is_tracing(), torch._C._get_tracing_state()),
    "grad": lambda: (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu")),
    "size": lambda: (torch.Size([2, 3]), torch.Size((2, 3)).numel(), torch.Size([2, 3])[1], torch.Size([1]) + (2,)),
    "broadcast": lambda: torch.broadcast_shapes((2, 1), (1, 3)),
    "result_type": lambda: torch.result_type(torch.ones(1), 1.0),
    "dict": lambda: {torch.float32: 1, torch.device("cpu"): 2}[torch.float32],
    "flags": lambda: (
        torch.are_deterministic_algorithms_enabled(),
        torch.backends.cudnn.enabled,
        torch.get_num_threads(),
    ),
}


@pytest.mark.parametrize("name", FOLDED)
def test_folded(name):
    read = FOLDED[name]
    check(lambda a: (a + 1, read()), x())


def test_is_compiling():
    def fn(a):
        return a + 1 if torch.compiler.is_compiling() else a - 1

    compiled = dynamo_lite.compile(fn, backend="eager", fullgraph=True)
    assert torch.equal(compiled(x()), x() + 1)


def test_has_torch_function():
    def fn(a):
        flags = torch.overrides.has_torch_function((a,)), torch.overrides.has_torch_function_unary(a)
        return a + 1, flags, torch.overrides.has_torch_function_variadic(a, a)

    check(fn, x())


# -- ambient state


def test_no_grad():
    def fn(a):
        with torch.no_grad():
            b = a * 2
        return b + a, b.requires_grad, torch.is_grad_enabled()

    run = check(fn, x().requires_grad_())
    assert run.op_count == 4


def test_no_grad_decorator_and_enable_grad():
    @torch.no_grad()
    def inner(a):
        with torch.enable_grad():
            b = a * 3
        return a * 2, b

    check(lambda a: inner(a), x().requires_grad_())


def test_set_grad_enabled_for_good():
    def fn(a):
        torch.set_grad_enabled(False)
        return a * 2

    try:
        run = run_both(fn, x().requires_grad_())
        assert not torch.is_grad_enabled()
        assert run.graph_count == 1
    finally:
        torch.set_grad_enabled(True)


def test_grad_mode_is_guarded():
    def fn(a):
        return (a * 2, torch.is_grad_enabled())

    compiled = dynamo_lite.compile(fn, backend="eager", fullgraph=True)
    a = x().requires_grad_()
    assert compiled(a)[1] and compiled(a)[0].requires_grad
    with torch.no_grad():
        assert not compiled(a)[1] and not compiled(a)[0].requires_grad
    assert torch.is_grad_enabled()


def test_break_inside_no_grad():
    def fn(a):
        with torch.no_grad():
            b = a * 2
            print("", end="")
            c = b + a
        return c, c.requires_grad, (a * 3).requires_grad

    run = run_both(fn, x().requires_grad_())
    assert run.graph_count == 2
    assert torch.is_grad_enabled()


def test_exception_inside_no_grad():
    def fn(a):
        with torch.no_grad():
            return a @ a

    run_both(fn, x().requires_grad_())
    assert torch.is_grad_enabled()


def test_autocast():
    def fn(a, w):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            b = a @ w
            with torch.autocast("cpu", enabled=False):
                c = a @ w
        return b, c, b.dtype, c.dtype, a @ w, torch.is_autocast_enabled("cpu")

    check(fn, x(), torch.randn(4, 2, requires_grad=True))


def test_autocast_outside():
    def fn(a, w):
        return a @ w, torch.is_autocast_enabled("cpu")

    compiled = dynamo_lite.compile(fn, backend="eager", fullgraph=True)
    a, w = x(), torch.randn(4, 2, requires_grad=True)
    assert compiled(a, w)[0].dtype is torch.float32
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for _ in range(2):
            result, enabled = compiled(a, w)
            assert result.dtype is torch.bfloat16 and enabled
    assert compiled(a, w)[0].dtype is torch.float32


def test_autocast_drops_its_cache():
    def fn(a, w):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return a @ w

    compiled = dynamo_lite.compile(fn, backend="eager", fullgraph=True)
    a, w = x(), torch.ones(4, 2, requires_grad=True)
    before = compiled(a, w)
    with torch.no_grad():
        w.mul_(2)
    assert torch.equal(compiled(a, w), fn(a, w))
    assert not torch.equal(before, compiled(a, w))


def test_default_dtype():
    def fn(a):
        return torch.zeros(2), torch.get_default_dtype()

    compiled = dynamo_lite.compile(fn, backend="eager", fullgraph=True)
    assert compiled(x())[0].dtype is torch.float32
    torch.set_default_dtype(torch.float64)
    try:
        assert compiled(x())[0].dtype is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert compiled(x())[0].dtype is torch.float32


def test_default_device():
    def fn(a):
        return torch.zeros(2)

    compiled = dynamo_lite.compile(fn, backend="eager", fullgraph=True)
    assert compiled(x()).device.type == "cpu"
    with torch.device("meta"):
        assert compiled(x()).device.type == "meta"
    assert compiled(x()).device.type == "cpu"


def test_inference_mode_outside():
    def fn(a, w):
        return F.linear(a, w).relu_()

    compiled = dynamo_lite.compile(fn, backend="eager", fullgraph=True)
    a, w = x(), torch.randn(4, 4, requires_grad=True)
    for _ in range(2):
        with torch.inference_mode():
            assert torch.equal(compiled(a, w), fn(a, w))
    assert compiled(a, w).requires_grad


# -- assertions, breaks, odd callables


def test_checks():
    def fn(a):
        torch._check(a.shape[0] == 3, lambda: "three rows")
        torch._assert(a.dim() == 2, "matrix")
        torch._check_is_size(a.shape[0])
        return a + 1

    check(fn, x(), ops=1)
    run = run_both(fn, x().T.contiguous())
    assert isinstance(run.exception, RuntimeError)


@pytest.mark.parametrize(
    ("fn", "slug"),
    [
        (lambda a: (a.clone().requires_grad_() * 2).sum().backward(create_graph=True), "backward-call"),
        (lambda a: (torch.random.get_rng_state(), a + torch.rand(1))[1], "random-state"),
        (lambda a: torch.vmap(lambda b: b.nonzero())(a + 1), "dynamic-shape-operator"),
        (lambda a: torch.equal(a + 1, a), "data-dependent-operator"),
        (lambda a: torch._assert(a.sum() > 0, "x") or a.add_(1), "data-dependent-assert"),
    ],
)
def test_breaks(fn, slug):
    with config.patch(capture_scalar_outputs=False, capture_dynamic_output_shape_ops=False):
        run = run_both(fn, x(), _calls=1)
    assert slug in [b.slug for b in run.breaks], [str(b) for b in run.breaks]


def test_function_with_a_function_argument_is_followed():
    def fn(a):
        distance = lambda p, q: (p - q).abs().sum(-1)  # noqa: E731
        return F.triplet_margin_with_distance_loss(a, a + 1, a + 2, distance_function=distance)

    check(fn, x())


def test_custom_op():
    @torch.library.custom_op("dl_test::twice", mutates_args=())
    def twice(a: torch.Tensor) -> torch.Tensor:
        return a * 2

    twice.register_fake(lambda a: torch.empty_like(a))
    check(lambda a: twice(a) + torch.ops.dl_test.twice(a), x(), ops=3)


def test_allow_in_graph():
    @dynamo_lite.allow_in_graph
    def opaque(a):
        return a * 2 if a.dim() else a

    check(lambda a: opaque(a) + 1, x(), ops=2)


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, k):
        ctx.save_for_backward(a)
        ctx.k = k
        return a * k

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.k, None


def test_autograd_function_without_grad():
    check(lambda a: Double.apply(a, 2) + 1, x(), ops=4)
    with torch.no_grad():
        check(lambda a: Double.apply(a, 2) + 1, x().requires_grad_())


def test_scripted_function_is_followed():
    @torch.jit.script
    def scripted(a: torch.Tensor) -> torch.Tensor:
        return a * 2 + 1

    check(lambda a: scripted(a), x(), ops=2)


def test_a_mode_that_is_no_bool():
    def program(t):
        try:
            with torch.set_grad_enabled(1):
                return t + 1
        except TypeError as error:
            return str(error)

    with config.patch(capture_pure_python=True, suppress_errors=False, debug=True):
        assert wrapped(program)(torch.ones(1)) == program(torch.ones(1))


def scaled(a, b, one):
    recipe, swizzle = torch.nn.functional.ScalingType.TensorWise, torch.nn.functional.SwizzleType.NO_SWIZZLE
    return torch._scaled_mm_v2(a, b, [one], [recipe], [swizzle], [one], [recipe], [swizzle], None, torch.bfloat16)


@pytest.mark.skipif(not hasattr(torch.nn.functional, "ScalingType"), reason="not in this torch")
def test_enum_members_of_c_are_numbers_for_operators_of_c():
    a, b = torch.ones(16, 16).to(torch.float8_e4m3fn), torch.ones(16, 16).to(torch.float8_e4m3fn).t()
    assert run_both(scaled, a, b, torch.ones(1), _fullgraph=True).graph_count == 1


def test_types_of_numbers_as_dtypes():
    def f(x):
        size = torch.zeros(3, dtype=int), torch.ones(2, dtype=bool), torch.zeros_like(x, dtype=complex)
        return size, x.to(float), x.sum(dtype=float), torch.softmax(x, -1, dtype=float)

    run = run_both(f, torch.randn(3))
    assert run.graph_count == 1
    assert not run.breaks
    dtypes = {node.kwargs.get("dtype") for node in run.graphs[0].graph.nodes}
    assert {torch.int64, torch.bool, torch.complex128, torch.float64} <= dtypes


def test_a_type_that_the_operator_refuses():
    def f(x):
        try:
            return x.new_zeros(2, device=int)
        except TypeError:
            return x + 1

    run_both(f, torch.randn(3))
