"""Operators that once had another outcome compiled than eagerly."""

import copy

import pytest
import torch

import dynamo_lite
from dynamo_lite.testing import run_both


def resized(x):
    x.resize_(2, 6)
    return x + 1


def grown(x):
    x.resize_(5, 5)
    return x.zero_() + 1


def grown_new(x):
    y = x.clone()
    y.resize_(5, 5)
    return y.zero_()


def restrided(x):
    x.as_strided_((2, 2), (1, 2))
    return x * 2


def squeezed(x):
    return x.unsqueeze_(0).squeeze_(0).t_()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_inputs_become_other_views_of_their_storage(backend):
    for function in (resized, restrided, squeezed, grown_new):
        assert run_both(function, torch.randn(4, 3), _backend=backend, _fullgraph=True, _calls=1).graph_count == 1
    compiled = dynamo_lite.compile(torch.Tensor.squeeze_, backend=backend, fullgraph=True)
    x = torch.randn(1, 3, 1)
    assert compiled(x) is x and x.shape == (3,)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_growth_of_an_input_is_left_to_eager(backend):
    run = run_both(grown, torch.randn(4, 3), _backend=backend)
    assert {b.slug for b in run.breaks} == {"tensor-attribute"}


def added_into(x, out):
    return torch.add(x, 1, out=out)


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_out_of_another_size_is_resized(backend):
    for out in (torch.empty(0), torch.empty(2, 2)):
        assert run_both(added_into, torch.randn(3), out, _backend=backend).breaks
    assert not run_both(added_into, torch.randn(3), torch.empty(3), _backend=backend).breaks


def masked_sum(x, mask):
    return torch.masked.sum(x, dim=0, mask=mask)


def with_a_function_class(x, wanted):
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            return a * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 3

    return (x + 1, Double) if wanted else x + 1


def test_classes_of_autograd_functions_are_made_when_needed():
    assert (
        run_both(masked_sum, torch.randn(3, 2), torch.tensor([[True], [False], [True]]), _fullgraph=True).graph_count
        == 1
    )
    x = torch.ones(2, requires_grad=True)
    assert run_both(with_a_function_class, x, False, _fullgraph=True).graph_count == 1
    made = dynamo_lite.compile(with_a_function_class, backend="eager", fullgraph=True)
    (_, first), (_, second) = made(x, True), made(x, True)
    assert first._backward_cls.__name__ == "DoubleBackward" and first is not second
    assert first._backward_cls._autograd_function_id != second._backward_cls._autograd_function_id
    first.apply(x).sum().backward()
    assert x.grad.tolist() == [3.0, 3.0]


def sparse_gradients(x):
    return x.to_dense() * 2


def sparse_made(x):
    made = torch.sparse_coo_tensor(torch.tensor([[0, 1], [1, 2]]), x, (4, 3), check_invariants=False)
    return made.to_dense() * 2


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta state")
@pytest.mark.parametrize(
    ("fn", "make"),
    [
        (sparse_gradients, lambda: torch.eye(3).to_sparse().requires_grad_()),
        (sparse_gradients, lambda: torch.eye(3).to_sparse_csr().requires_grad_()),
        (sparse_made, lambda: torch.ones(2, requires_grad=True)),
    ],
)
def test_gradients_of_sparse_tensors_are_left_to_eager(fn, make):
    expected, given = make(), make()
    fn(expected).sum().backward()
    with pytest.warns(UserWarning, match="the graph runs eagerly"):
        result = dynamo_lite.compile(fn, backend="aot_eager")(given)
    result.sum().backward()
    assert given.grad.layout is expected.grad.layout
    assert torch.equal(given.grad.to_dense(), expected.grad.to_dense())


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta state")
@pytest.mark.parametrize("make", [lambda: torch.eye(3).to_sparse(), lambda: torch.eye(3).to_sparse_csr()])
def test_sparse_tensors_that_are_changed_in_place(make):
    expected, given = make(), make()

    def change(s):
        s.mul_(3)
        return s + s

    wanted, result = change(expected), dynamo_lite.compile(change, backend="eager", fullgraph=True)(given)
    assert torch.equal(result.to_dense(), wanted.to_dense())
    assert torch.equal(given.to_dense(), expected.to_dense()) and given.layout is expected.layout


def test_lazy_modules_are_initialised_before_they_are_captured():
    module = torch.nn.LazyLinear(4)
    expected = copy.deepcopy(module)
    x = torch.randn(2, 3)
    torch.manual_seed(0)
    expected = expected(x)
    torch.manual_seed(0)
    compiled = dynamo_lite.compile(module, backend="eager", fullgraph=True)
    assert torch.equal(compiled(x), expected)
    assert type(module) is torch.nn.Linear and compiled.weight is module.weight
    with pytest.raises(AttributeError):
        dynamo_lite.compile(torch.nn.LazyLinear(4), backend="eager")(3)


def scaled(a, b, one):
    recipe, swizzle = torch.nn.functional.ScalingType.TensorWise, torch.nn.functional.SwizzleType.NO_SWIZZLE
    return torch._scaled_mm_v2(a, b, [one], [recipe], [swizzle], [one], [recipe], [swizzle], None, torch.bfloat16)


@pytest.mark.skipif(not hasattr(torch.nn.functional, "ScalingType"), reason="not in this torch")
def test_enum_members_of_c_are_numbers_for_operators_of_c():
    a, b = torch.ones(16, 16).to(torch.float8_e4m3fn), torch.ones(16, 16).to(torch.float8_e4m3fn).t()
    assert run_both(scaled, a, b, torch.ones(1), _fullgraph=True).graph_count == 1
