"""Kernels that the program brings: Triton's, called directly and by `torch.library.triton_op`, and custom operators."""

import pytest
import torch

import dynamo_lite
from dynamo_lite.record import log
from dynamo_lite.testing import CompileCounterWithBackend

triton = pytest.importorskip("triton", reason="Triton is not installed")
import triton.language as tl  # noqa: E402
from torch.library import triton_op, wrap_triton  # noqa: E402

pytestmark = pytest.mark.only_cuda


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: "tl.constexpr"):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + y, mask=mask)


@triton.jit
def scale_kernel(x_ptr, n, factor, BLOCK: "tl.constexpr"):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(x_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) * factor, mask=mask)


@triton.autotune(configs=[triton.Config({"BLOCK": 128}), triton.Config({"BLOCK": 256}, num_warps=8)], key=["n"])
@triton.jit
def tuned_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: "tl.constexpr"):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) * tl.load(y_ptr + offsets, mask=mask), mask=mask)


def add(x, y):
    out = torch.empty_like(x)
    n = out.numel()
    add_kernel[(triton.cdiv(n, 256),)](x, y, out, n, BLOCK=256)
    return out


def add_by_function(x, y):
    out = torch.empty_like(x)
    n = out.numel()
    add_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n, BLOCK=128, num_warps=4)
    return out


def tuned(x, y):
    out = torch.empty_like(x)
    n = out.numel()
    tuned_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n)
    return out


def in_place(x, y):
    z = x * y
    n = z.numel()
    scale_kernel[(triton.cdiv(n, 64),)](z, n, 3.0, BLOCK=64)
    return z + 1


def in_place_of_input(x, y):
    n = x.numel()
    scale_kernel[(triton.cdiv(n, 64),)](x, n, 0.5, BLOCK=64)
    return x * y


def around(x, y):
    return add(x.sin(), y.cos()).relu() + add_by_function(x, y)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("fn", [add, add_by_function, tuned, in_place, in_place_of_input, around])
def test_kernels(device, fn, backend):
    counter = CompileCounterWithBackend(backend)
    compiled = dynamo_lite.compile(fn, backend=counter)
    for n in (1000, 1000, 777, 4096):
        x, y = torch.randn(2, n, device=device)
        twin = x.clone()
        torch.testing.assert_close(compiled(x, y), fn(twin, y))
        torch.testing.assert_close(x, twin)
    assert [b.slug for f in log.frames for b in f.breaks] == []
    assert counter.frame_count == 2  # one for 1000, one for all sizes


@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def guarded_kernel(x_ptr, out_ptr, n, factor, BLOCK: "tl.constexpr", EVEN: "tl.constexpr", KIND: "tl.constexpr"):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        x = tl.load(x_ptr + offsets)
        tl.store(out_ptr + offsets, x.to(KIND) * factor)
    else:
        x = tl.load(x_ptr + offsets, mask=offsets < n)
        tl.store(out_ptr + offsets, x.to(KIND) * factor, mask=offsets < n)


def with_heuristics(x, factor=2.5):
    out = torch.empty_like(x)
    n = out.numel()
    guarded_kernel[(triton.cdiv(n, 128),)](x, out, n, factor, BLOCK=128, KIND=tl.float32)
    return out + 1


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_heuristics(device, backend):
    compiled = dynamo_lite.compile(with_heuristics, backend=backend)
    for n in (256, 256, 100, 512):
        x = torch.randn(n, device=device)
        torch.testing.assert_close(compiled(x), x * 2.5 + 1)
    assert [b.slug for f in log.frames for b in f.breaks] == []


class Scale(torch.autograd.Function):
    """As libraries of kernels write them."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return product(x, y)

    @staticmethod
    def backward(ctx, grad):
        x, y = ctx.saved_tensors
        return product(grad, y), product(grad, x)


def product(x, y):
    out = torch.empty_like(x)
    n = out.numel()
    tuned_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n)
    return out


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_kernels_in_an_autograd_function(device, backend):
    counter = CompileCounterWithBackend(backend)
    compiled = dynamo_lite.compile(lambda x, y: Scale.apply(x.sin(), y) * 2, backend=counter)
    x, y = (torch.randn(500, device=device, requires_grad=True) for _ in range(2))
    result = compiled(x, y)
    torch.testing.assert_close(result, x.sin() * y * 2)
    result.sum().backward()
    torch.testing.assert_close(x.grad, x.detach().cos() * y.detach() * 2)
    torch.testing.assert_close(y.grad, x.detach().sin() * 2)
    assert counter.frame_count == 1


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_tensors_that_require_gradients_are_read_only(device, backend):
    compiled = dynamo_lite.compile(lambda x, y: add(x, y) + x, backend=backend)
    x, y = (torch.randn(500, device=device, requires_grad=True) for _ in range(2))
    result = compiled(x, y)
    torch.testing.assert_close(result, x + y + x)
    result.sum().backward()
    assert x.grad.tolist() == [1.0] * 500 and y.grad is None  # a kernel does not know autograd
    assert [b.slug for f in log.frames for b in f.breaks] == []


def test_what_a_launch_returns_is_not_looked_at(device):
    def fn(x, y):
        out = torch.empty_like(x)
        compiled = add_kernel[(1,)](x, y, out, 100, BLOCK=128)
        return out, compiled.n_regs > 0

    result, flag = dynamo_lite.compile(fn, backend="eager")(*torch.ones(2, 100, device=device))
    assert result.tolist() == [2.0] * 100 and flag is True
    assert log.frames[0].breaks[0].slug == "triton-kernel"


def test_the_lifetime_of_what_a_kernel_gets(device):
    compiled = dynamo_lite.compile(around, backend="eager")
    x, y = torch.randn(2, 1 << 20, device=device)
    compiled(x, y)
    compiled(x, y)
    before = torch.cuda.memory_allocated()
    result = compiled(x, y)
    del result
    assert torch.cuda.memory_allocated() == before


@triton_op("dynamo_lite_tests::scaled_add", mutates_args={})
def scaled_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    n = out.numel()
    wrap_triton(add_kernel)[(triton.cdiv(n, 256),)](x, y, out, n, 256)
    return out


scaled_add.register_autograd(lambda ctx, grad: (grad, grad))


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_triton_op(device, backend):
    counter = CompileCounterWithBackend(backend)
    compiled = dynamo_lite.compile(lambda x, y: scaled_add(x.sin(), y) * 2, backend=counter)
    x, y = (torch.randn(500, device=device, requires_grad=True) for _ in range(2))
    result = compiled(x, y)
    torch.testing.assert_close(result, (x.sin() + y) * 2)
    result.sum().backward()
    torch.testing.assert_close(x.grad, x.cos() * 2)
    assert counter.frame_count == 1


@torch.library.custom_op("dynamo_lite_tests::roll_on_device", mutates_args=())
def roll_on_device(x: torch.Tensor, by: int) -> torch.Tensor:
    return torch.roll(x, by).clone()


@roll_on_device.register_fake
def _(x, by):
    return torch.empty_like(x)


@pytest.mark.parametrize("backend", ["eager", "inductor", "cudagraphs"])
def test_custom_operators(device, backend):
    compiled = dynamo_lite.compile(lambda x: roll_on_device(x * 2, 3) + 1, backend=backend)
    with torch.no_grad():
        for _ in range(4):
            x = torch.randn(64, device=device)
            torch.testing.assert_close(compiled(x), torch.roll(x * 2, 3) + 1)
