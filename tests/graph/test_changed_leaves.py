"""Gradients of leaves that the traced code gives other data, or another `requires_grad`, between the forward and the backward pass."""

import pytest
import torch
from torch import nn

import dynamo_lite
from dynamo_lite.testing import CompileCounterWithBackend

X = torch.tensor([[1.0, 2.0]])


def clamped(m, x):
    y = m(x).sum()
    m.weight.data = m.weight.data.clamp(-0.01, 0.01)
    y.backward()


def swapped_for_a_teacher(m, x):
    y = m(x)
    kept = m.weight.data
    m.weight.data = torch.zeros(2, 2)
    with torch.no_grad():
        teacher = m(x + 1)
    m.weight.data = kept
    nn.functional.mse_loss(y, teacher).backward()


def two_losses(m, x):
    first, second = m(x).sum(), m(x).exp().sum()
    first.backward()
    m.weight.data = m.weight.data - 0.1 * m.weight.grad
    second.backward()


def both_paths(m, x):
    y = m(x).sum()
    m.weight.data = m.weight.data * 0.5
    (y + m(x).sum()).backward()


def added_to_a_gradient(m, x):
    m(x).sum().backward()
    clamped(m, x)


def to_chosen_inputs(m, x):
    y = m(x).sum()
    m.weight.data = torch.ones(2, 2)
    y.backward(inputs=[m.weight])


def by_grad(m, x):
    t = (x + m.weight).sin()
    m.weight.data = m.weight.data * 0.5
    (m.weight.grad,) = torch.autograd.grad((t * m.weight).sum(), [m.weight])


def other_dtype_and_back(m, x):
    y = m(x).sum()
    m.double()
    m.float()
    y.backward()


def twice(m, x):
    y = m(x).sum()
    m.weight.data = m.weight.data * 2
    z = m(x).square().sum()
    m.weight.data = m.weight.data + 1
    (y + z + m(x).exp().sum()).backward()


def frozen_pass(m, x):
    y = m(x).sum()
    m.requires_grad_(False)
    z = m(x * 2).sum()
    m.requires_grad_(True)
    (y + z).backward()


def frozen_for_nothing(m, x):
    y = m(x).sum()
    m.weight.requires_grad = False
    m.weight.requires_grad = True
    y.backward()


def frozen_and_by_grad(m, x):
    y = m(x).sum()
    m.requires_grad_(False)
    m.requires_grad_(True)
    (m.weight.grad,) = torch.autograd.grad(y, [m.weight], allow_unused=True)


def frozen_with_data(m, x):
    y = m(x).sum()
    m.requires_grad_(False)
    m.weight.data = m.weight.data * 2
    m.requires_grad_(True)
    (y + m(x).sum()).backward()


def frozen_at_the_end(m, x):
    m(x).sum().backward()
    m.requires_grad_(False)


WHOLE = [clamped, swapped_for_a_teacher, two_losses, both_paths, to_chosen_inputs, by_grad, frozen_at_the_end]
IN_PIECES = [
    added_to_a_gradient,
    other_dtype_and_back,
    twice,
    frozen_pass,
    frozen_for_nothing,
    frozen_and_by_grad,
    frozen_with_data,
]


def model():
    torch.manual_seed(0)
    return nn.Linear(2, 2, bias=False)


def outcome(step, m):
    found = []
    for _ in range(3):
        m.requires_grad_(True)
        try:
            step(m, X)
        except RuntimeError as error:
            found.append(str(error)[:60])
        weight = m.weight
        found.append((weight.data.clone(), None if weight.grad is None else weight.grad.clone(), weight.requires_grad))
    return found


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("step", [*WHOLE, *IN_PIECES], ids=lambda step: step.__name__)
def test_gradients(step, backend):
    expected, actual = outcome(step, model()), outcome(dynamo_lite.compile(step, backend=backend), model())
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("step", WHOLE, ids=lambda step: step.__name__)
def test_one_graph(step):
    counter = CompileCounterWithBackend("eager")
    dynamo_lite.compile(step, backend=counter, fullgraph=True)(model(), X)
    assert counter.frame_count == 1


def marked(x):
    x.requires_grad_()


def assigned(x):
    x.requires_grad = True


@pytest.mark.parametrize("mark", [marked, assigned])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_penalty_of_an_input_that_is_marked_for_batches_that_vary(backend, mark):
    """The regularisation R1 of adversarial networks."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))

    def penalty(x):
        mark(x)
        scores = net(x)
        (grad,) = torch.autograd.grad(scores.sum(), x, create_graph=True)
        return grad.pow(2).sum(1).mean() + scores.mean()

    def gradients(fn, x):
        net.zero_grad()
        fn(x).backward()
        return [x.grad, *(p.grad for p in net.parameters())]

    counter = CompileCounterWithBackend(backend)
    compiled = dynamo_lite.compile(penalty, backend=counter, fullgraph=True)
    for batch in (2, 2, 3, 5, 3):
        x = torch.randn(batch, 4)
        torch.testing.assert_close(gradients(compiled, x.clone()), gradients(penalty, x.clone()))
    assert counter.frame_count == 2
