"""Parts of torch's state that a program sets: backends of attention, precision flags, determinism, inference mode."""

import pytest
import torch
import torch.nn.functional as F
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import record_function

import dynamo_lite
from dynamo_lite import config
from dynamo_lite.testing import CompileCounterWithBackend, run_both, same
from tests.helpers.graph_counts import whole


def x():
    return torch.arange(16.0).reshape(4, 4)


@pytest.mark.parametrize("order", [False, True])
def test_attention_backends(order):
    def attend(a):
        q = a[None, None]
        with sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION], set_priority=order):
            return F.scaled_dot_product_attention(q, q, q)

    before = torch._C._get_sdp_priority_order(), torch.backends.cuda.mem_efficient_sdp_enabled()
    whole(attend, x())
    assert (torch._C._get_sdp_priority_order(), torch.backends.cuda.mem_efficient_sdp_enabled()) == before


def test_cudnn_flags():
    def flags(a):
        with torch.backends.cudnn.flags(enabled=False):
            return a * 2, torch.backends.cudnn.enabled

    whole(flags, x())
    assert torch.backends.cudnn.enabled


def test_matmul_precision():
    def precise(a):
        torch.set_float32_matmul_precision("high")
        y = a @ a
        torch.set_float32_matmul_precision("highest")
        return y, torch.get_float32_matmul_precision()

    whole(precise, x())


def test_determinism_is_left_on():
    def on(a):
        torch.use_deterministic_algorithms(True, warn_only=True)
        return a * 2, torch.is_deterministic_algorithms_warn_only_enabled()

    try:
        compiled = dynamo_lite.compile(on, backend="eager", fullgraph=True)
        assert compiled(x())[1] and torch.is_deterministic_algorithms_warn_only_enabled()
    finally:
        torch.use_deterministic_algorithms(False)


class TestInferenceMode:
    def test_around_operators(self):
        @torch.inference_mode()
        def inside(w):
            return w * 2, torch.is_inference_mode_enabled()

        def outside(w):
            with torch.inference_mode():
                with torch.no_grad():
                    y = w * 2
                z = w * 3
            return y, z, w * 4

        w = x().requires_grad_()
        whole(inside, w)
        whole(outside, w)
        y, z, v = dynamo_lite.compile(outside, backend="eager")(w)
        assert y.is_inference() and z.is_inference() and v.requires_grad and not v.is_inference()

    @pytest.mark.parametrize(
        "change",
        [
            lambda y, w: y.add_(1),
            lambda y, w: y.view(-1).mul_(2),
            lambda y, w: y.__setitem__(0, 1.0),
            lambda y, w: torch.add(w.detach(), 1, out=y),
            lambda y, w: y.requires_grad_(),
            lambda y, w: y * w,
            lambda y, w: y._version,
        ],
    )
    @pytest.mark.parametrize("comes_in", [False, True])
    def test_what_inference_tensors_refuse_afterwards(self, change, comes_in):
        def refused(w, y):
            with torch.inference_mode():
                y = w * 2 if y is None else y
            try:
                change(y, w)
            except RuntimeError as error:
                return str(error), y.clone()
            return None, y

        def given():
            with torch.inference_mode():
                return torch.ones(3) if comes_in else None

        w = torch.ones(3, requires_grad=True)
        (text, y), (expected, z) = dynamo_lite.compile(refused, backend="eager")(w, given()), refused(w, given())
        assert text == expected is not None and torch.equal(y, z)

    def test_what_they_take_afterwards(self):
        def taken(w):
            with torch.inference_mode():
                y = w * 2
                y.add_(1)
            return y + 1, y.view(-1), y @ y

        whole(taken, x())

    def test_break_inside(self):
        def broken(w):
            with torch.inference_mode():
                y = w * 2
                print(end="")
                z = y + 1
            return z, w * 3, torch.is_grad_enabled(), torch.is_inference_mode_enabled()

        run = run_both(broken, x().requires_grad_())
        assert run.breaks[0].slug == "call-print"
        assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()

    def test_exception_inside(self):
        def fails(w):
            try:
                with torch.inference_mode():
                    w * 2
                    raise ValueError
            except ValueError:
                pass
            return w * 2, torch.is_inference_mode_enabled()

        whole(fails, x().requires_grad_())

    @pytest.mark.parametrize("backend", ["eager", "aot_eager"])
    @pytest.mark.parametrize("write", [0, 1, 2])
    def test_a_graph_that_cannot_be_undone(self, write, backend):
        """It is run on fake tensors up to what it changes, in the middle of the inference mode."""
        total = torch.zeros(4, dtype=torch.long)
        writes = [
            lambda a: total.add_(torch.bincount(a, minlength=4)),
            lambda a: total.copy_(a[a >= 0].reshape(4)),
            lambda a: total.index_add_(0, (a == 1).nonzero().reshape(-1), torch.ones(2, dtype=torch.long)),
        ]

        def fn(a):
            with torch.inference_mode():
                writes[write](a)
                with torch.inference_mode(False):
                    writes[write](a)
            return torch.is_grad_enabled(), torch.is_inference_mode_enabled()

        compiled = dynamo_lite.compile(fn, backend=backend)
        results = []
        for run in (fn, compiled, compiled):
            total.zero_()
            state = run(torch.tensor([0, 1, 2, 1]))
            results.append((state, total.tolist(), (torch.ones(2) + 1).requires_grad, keys()))
        assert results[0][0] == (True, False)
        assert results == results[:1] * 3

    def test_gradients_that_are_asked_for_in_the_middle(self):
        """The graph so far is run on fake tensors, twice, with sizes that data decide."""

        def fn(w, mask):
            y = w * 2
            z = w[mask].sum() * y
            with torch.inference_mode():
                n = mask.nonzero().shape[0]
                first = type(z.grad_fn).__name__
                with torch.inference_mode(False), torch.no_grad():
                    second = type(y.grad_fn).__name__
                    v = w * n
                return z + n, first, second, v, torch.is_grad_enabled()

        before = keys()
        run = run_both(fn, torch.ones(4, requires_grad=True), torch.tensor([True, False, True, False]))
        assert run.result[1:3] == ("MulBackward0", "MulBackward0")
        assert keys() == before and torch.is_grad_enabled() and not torch.is_inference_mode_enabled()


def keys():
    return str(torch._C._dispatch_tls_local_include_set()), str(torch._C._dispatch_tls_local_exclude_set())


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_operators_under_a_default_dtype_set_in_the_code(backend):
    def fn(a):
        torch.set_default_dtype(torch.float64)
        b = torch.ones(2)
        torch.set_default_dtype(torch.float32)
        return b, torch.ones(2) + a, torch.get_default_dtype()

    compiled = dynamo_lite.compile(fn, backend=backend)
    for _ in range(2):
        b, c, dtype = compiled(torch.ones(2))
        assert (b.dtype, c.dtype, dtype) == (torch.float64, torch.float32, torch.float32)
        assert torch.get_default_dtype() is torch.float32


def factories(a):
    torch.set_default_dtype(torch.float64)
    made = torch.zeros(2), torch.ones(2, dtype=None), torch.tensor([1.0, 2.0]), torch.arange(0, 1, 0.5), torch.eye(2)
    made += (
        torch.full((2,), 1.5),
        torch.linspace(0, 1, 3),
        torch.empty(2).fill_(3),
        torch.rand(2),
        torch.scalar_tensor(1.5),
    )
    made += torch.zeros_like(a), a * 1.5, a.double() + torch.ones(2), torch.arange(3), torch.zeros(2, dtype=torch.half)
    torch.set_default_dtype(torch.float32)
    return made, torch.zeros(2)


def a_module(a):
    old = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        layer = torch.nn.Linear(2, 3)
    finally:
        torch.set_default_dtype(old)
    return layer(a.bfloat16()), layer.weight


def left_set(a):
    b = a * 2
    torch.set_default_dtype(torch.float64)
    return torch.ones(2), b


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", [factories, a_module, left_set])
def test_factories_under_a_default_dtype_set_in_the_code(fn, backend):
    def run(call):
        torch.manual_seed(0)
        results = []
        for _ in range(2):
            try:
                results.append((call(torch.arange(2.0)), torch.get_default_dtype()))
            finally:
                torch.set_default_dtype(torch.float32)
        return results

    counter = CompileCounterWithBackend(backend)
    compiled = dynamo_lite.compile(fn, backend=counter, fullgraph=True)
    assert same(run(fn), run(compiled))
    assert counter.frame_count == 1


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_integers_under_a_default_dtype_set_in_the_code(backend):
    """They are converted to the default dtype: the graph ends where that is set."""

    def fn(a):
        b = a + 1
        torch.set_default_dtype(torch.float64)
        result = b * 1.5, b / 3, b.sin(), b > 1.5, torch.where(b > 1, 1.0, 2.0), torch.zeros(2)
        torch.set_default_dtype(torch.float32)
        return result, b.cos()

    compiled = dynamo_lite.compile(fn, backend=backend)
    for _ in range(2):
        a = torch.arange(3) + 2**24
        assert same(fn(a), compiled(a))


def test_autocast_is_read_by_every_name():
    def fn(a):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return (
                a @ a,
                torch.is_autocast_cpu_enabled(),
                torch.get_autocast_cpu_dtype(),
                torch.is_autocast_enabled("cpu"),
            )

    run = run_both(fn, torch.ones(2, 2), _fullgraph=True)
    assert run.result[1:] == (True, torch.bfloat16, True)


def test_a_backend_that_fails_half_way_leaves_the_state_alone():
    def fails(gm, inputs):
        torch.set_grad_enabled(False)
        raise NotImplementedError

    def fn(a):
        with torch.no_grad():
            return a * 2

    with pytest.warns(UserWarning, match="runs eagerly"):
        assert torch.equal(dynamo_lite.compile(fn, backend=fails)(torch.ones(2)), torch.full((2,), 2.0))
    assert torch.is_grad_enabled()


def with_hooks_disabled(x):
    with torch.autograd.graph.disable_saved_tensors_hooks("not here"):
        y = x * x.sin()
    return y.cos()


def with_hooks_where_they_are_disabled(x):
    try:
        with torch.autograd.graph.disable_saved_tensors_hooks("not here"):
            y = x * x
            with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
                y = y * y
    except RuntimeError as error:
        return y + 1, str(error)


def with_hooks(x):
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t * 2, lambda t: t / 2):
        y = x * x.sin()
    return y.cos()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize(
    ("fn", "graphs"), [(with_hooks_disabled, 1), (with_hooks_where_they_are_disabled, 1), (with_hooks, 1)]
)
def test_hooks_of_saved_tensors(fn, graphs, backend):
    counter = CompileCounterWithBackend(backend)

    def run(fn):
        x = torch.arange(4.0, requires_grad=True)
        out = fn(x)
        (out[0] if isinstance(out, tuple) else out).sum().backward()
        return out, x.grad

    compiled = dynamo_lite.compile(fn, backend=counter, fullgraph=graphs == 1)
    for _ in range(2):
        assert same(run(fn), run(compiled), tol=1e-5)
        assert torch._C._autograd._saved_tensors_hooks_is_enabled()
    assert counter.frame_count == graphs


def test_hooks_of_saved_tensors_are_not_disabled_while_there_are_some():
    compiled = dynamo_lite.compile(with_hooks_disabled, backend="eager")
    for fn in (with_hooks_disabled, compiled):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t), pytest.raises(RuntimeError):
            fn(torch.ones(2, requires_grad=True))
        assert torch._C._autograd._saved_tensors_hooks_is_enabled()


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_operators_that_return_their_argument(context):
    """In inference mode operators that are made of others are not taken apart before fake tensors see them."""

    def fn(x):
        x = x * 2
        y = torch.nn.functional.dropout(x, 0.5, False)
        y.add_(1)
        return y is x, x.contiguous() is x, x + 1

    x = torch.randn(2, 3)
    with context():
        expected, actual = fn(x), dynamo_lite.compile(fn, backend="eager", fullgraph=True)(x)
    assert actual[:2] == expected[:2] == (True, True)
    assert torch.equal(actual[2], expected[2])


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_an_operator_that_fails_leaves_the_dispatch_keys(backend):
    """On fake tensors torch raises here and would leave the masks of the failing operator: they are as before, and autograd works."""
    keys = str(torch._C._dispatch_tls_local_exclude_set())
    run = run_both(
        lambda x: torch.vmap(torch.func.jacfwd(torch.func.grad(lambda z: z.sin().sum())))(x),
        torch.rand(5, 2),
        _backend=backend,
    )
    assert [b.code for b in run.breaks] == ["DL084"]
    assert str(torch._C._dispatch_tls_local_exclude_set()) == keys
    w = torch.ones(3, requires_grad=True)
    (w * 2).sum().backward()
    assert w.grad.tolist() == [2, 2, 2]


def test_exceptions_of_the_program_keep_their_frames_where_an_operator_fails():
    compiled = dynamo_lite.compile(lambda a, b: a @ b, backend="eager")

    def fails(value):
        raise ValueError(value)

    try:
        fails(3)
    except ValueError as error:
        with pytest.raises(RuntimeError, match="shape"):
            compiled(torch.ones(2, 3), torch.ones(2, 3))
        assert error.__traceback__.tb_next.tb_frame.f_locals == {"value": 3}


def explicit(a):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        b = a @ a
    return b, b.dtype


def by_default(a):
    with torch.autocast("cpu"):
        b = a @ a
    return b, b.dtype, torch.zeros(2, dtype=b.dtype), torch.get_autocast_dtype("cpu"), torch.autocast("cpu").fast_dtype


def sets(a):
    torch.set_autocast_dtype("cpu", torch.bfloat16)
    return a + 1


@pytest.mark.parametrize("fn", [explicit, by_default, sets])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_the_dtype_of_autocast_while_that_is_off(fn, backend):
    compiled = dynamo_lite.compile(fn, backend=backend, fullgraph=True)
    before = torch.get_autocast_dtype("cpu")
    try:
        for dtype in (torch.bfloat16, torch.float16, torch.bfloat16):
            outcomes = []
            for run in (fn, compiled):
                torch.set_autocast_dtype("cpu", dtype)
                outcomes.append((run(x()), torch.get_autocast_dtype("cpu")))
            assert same(*outcomes)
    finally:
        torch.set_autocast_dtype("cpu", before)


@dynamo_lite.allow_in_graph
def raises_from_itself(a):
    try:
        return a.view(7)
    except RuntimeError as error:
        raise error from error


def test_an_exception_that_is_its_own_cause():
    compiled = dynamo_lite.compile(lambda a: raises_from_itself(a * 2), backend="eager")
    with pytest.raises(RuntimeError, match="shape"):
        compiled(x())


def test_a_default_device_that_is_set_after_the_first_call():
    """A version guards that none was set, too."""
    compiled = dynamo_lite.compile(lambda a: (a + 1, torch.get_default_device()), backend="eager")
    before = torch.utils._device.CURRENT_DEVICE
    try:
        for device in (None, "cpu", "meta", None):
            torch.set_default_device(device)
            assert compiled(torch.ones(2, device="cpu"))[1] == torch.get_default_device()
    finally:
        torch.set_default_device(before)


def _asking_autocast():
    return torch.is_autocast_enabled("nodev")


def _setting_autocast():
    torch.set_autocast_dtype("nodev", torch.float16)


def _in_autocast():
    with torch.autocast("nodev"):
        pass


def _in_record(*args):
    with record_function(*args):
        pass


def _in_hooks():
    with saved_tensors_hooks(3, 4):
        pass


@pytest.mark.parametrize(
    ("call", "raised"),
    [
        (_asking_autocast, RuntimeError),
        (_setting_autocast, RuntimeError),
        (_in_autocast, RuntimeError),
        (lambda: torch.is_autocast_enabled(3), TypeError),
        (lambda: torch.use_deterministic_algorithms("False"), TypeError),
        (lambda: torch.use_deterministic_algorithms(1), TypeError),
        (lambda: torch.use_deterministic_algorithms(True, warn_only="x"), TypeError),
        (lambda: torch.ones(2).requires_grad_(1), TypeError),
        (lambda: setattr(torch.ones(2), "requires_grad", "x"), RuntimeError),
        (_in_hooks, TypeError),
        (lambda: _in_record(3), RuntimeError),
        (lambda: _in_record("a", 3), RuntimeError),
    ],
)
def test_arguments_that_functions_of_torch_refuse(call, raised):
    def f(a):
        try:
            call()
        except raised as error:
            return a * 2, str(error)
        return a

    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    with config.patch(suppress_errors=False):
        run_both(f, x())
    assert before == (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )


def test_a_question_about_the_state_that_raises_is_part_of_the_graph():
    def f(a):
        try:
            torch.get_autocast_dtype("nodev")
        except RuntimeError:
            return a * 2

    whole(f, x())


def test_a_backward_pass_behind_autocast_computes_in_float32_what_the_forward_pass_did():
    weight = torch.arange(64.0).reshape(8, 8).div(63).requires_grad_()
    x = torch.linspace(0, 1, 16).reshape(2, 8)

    def f(x):
        with torch.autocast("cpu", enabled=False):
            return (x @ weight).softmax(-1)

    def gradient(f):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = f(x).square().sum()
        return torch.autograd.grad(loss, weight)[0]

    expected = gradient(f)
    assert not torch.equal(expected, expected.bfloat16().float())
    torch.testing.assert_close(gradient(dynamo_lite.optimize("aot_eager")(f)), expected, rtol=1e-6, atol=1e-8)


def test_a_backward_pass_of_the_program_runs_in_the_autocast_that_it_needs():
    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight):
            ctx.save_for_backward(x, weight)
            return x @ weight

        @staticmethod
        def backward(ctx, gradient):
            x, weight = ctx.saved_tensors
            return gradient @ weight.t(), x.t() @ gradient

    weight = torch.arange(64.0).reshape(8, 8).div(63).requires_grad_()
    x = torch.linspace(0, 1, 16).reshape(2, 8)

    def f(x):
        with torch.autocast("cpu", enabled=False):
            x = x * 2
        return Product.apply(x, weight)

    def gradient(f):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return torch.autograd.grad(f(x).float().sum(), weight)[0]

    torch.testing.assert_close(gradient(dynamo_lite.optimize("aot_eager")(f)), gradient(f))
