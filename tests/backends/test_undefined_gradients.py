"""Gradients that eager execution leaves undefined stay undefined under backends that compile the backward pass."""

import copy
import weakref

import pytest
import torch
from torch import nn

import dynamo_lite
from dynamo_lite.testing import differences


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body, self.one, self.other = nn.Linear(3, 3), nn.Linear(3, 2), nn.Linear(3, 2)

    def forward(self, x):
        x = self.body(x)
        return self.one(x), self.other(x).view(-1), x


class Parts(Heads):
    """Two graphs."""

    def forward(self, x):
        one, other = self.one(self.body(x)), self.other(x)
        torch._dynamo.graph_break()
        return one * 2, other * 3, x


class Twice(Heads):
    """One parameter twice among the inputs of the graph, and a result that shares memory with another one."""

    def __init__(self):
        super().__init__()
        self.tied = self.one.weight

    def forward(self, x):
        y = self.other(x)
        return self.one(x) + x @ self.tied.T, y, y[0]


class Changed(Heads):
    """The graph changes an input in place."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return super().forward(x)


class Scaled(Heads):
    """The graph changes the data of a parameter that it does not use."""

    def forward(self, x):
        self.other.weight.data.mul_(2)
        x = self.body(x)
        return self.one(x), x.detach(), x.detach()


LOSSES = {
    "one": lambda a, b, c: a.sum(),
    "other": lambda a, b, c: b.sum(),
    "body": lambda a, b, c: c.sum(),
    "both": lambda a, b, c: a.sum() + b.sum(),
}


def gradients(net, call, loss, x):
    loss(*call(x)).backward()
    return [p.grad for p in net.parameters()]


CASES = [("aot_eager", cls, loss) for cls in (Heads, Parts, Twice, Changed) for loss in LOSSES]
CASES.remove(("aot_eager", Parts, "body"))  # the input, which the graph returns
CASES.append(("aot_eager", Scaled, "one"))


@pytest.mark.parametrize(("backend", "cls", "loss"), [*CASES, ("inductor", Heads, "one"), ("inductor", Heads, "other")])
def test_the_part_that_the_loss_does_not_ask_for(cls, loss, backend):
    net = cls()
    twin = copy.deepcopy(net)
    x, y = (torch.ones(2, 3, requires_grad=True) for _ in range(2))
    expected = gradients(twin, twin, LOSSES[loss], y)
    compiled = dynamo_lite.compile(net, backend=backend)
    found = gradients(net, compiled, LOSSES[loss], x)
    assert not list(differences([expected, y.grad], [found, x.grad], tol=1e-6))


def test_an_optimizer_leaves_it_alone():
    net = Heads()
    twin = copy.deepcopy(net)
    compiled = dynamo_lite.compile(net, backend="aot_eager")
    for model, call in ((twin, twin), (net, compiled)):
        optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.5)
        for loss in ("both", "one", "one", "other"):
            optimizer.zero_grad()
            gradients(model, call, LOSSES[loss], torch.ones(2, 3))
            optimizer.step()
    assert not list(differences(list(twin.parameters()), list(net.parameters()), tol=1e-6))


def test_two_passes_through_one_call():
    """The second one asks for what the first one has left out, the third for less again; gradients add up."""

    def run(net, call):
        seen, results = [], call(torch.ones(2, 3))
        for loss in ("one", "both", "other"):
            LOSSES[loss](*results).backward(retain_graph=True)
            seen.append([None if p.grad is None else p.grad.clone() for p in net.parameters()])
        return seen

    net = Heads()
    twin = copy.deepcopy(net)
    assert not list(differences(run(twin, twin), run(net, dynamo_lite.compile(net, backend="aot_eager")), tol=1e-6))


def test_two_calls_before_a_pass():
    def run(net, call):
        first, second = call(torch.ones(2, 3)), call(-torch.ones(2, 3))
        (first[0].sum() * second[1].sum()).backward()
        return [p.grad for p in net.parameters()]

    net = Heads()
    twin = copy.deepcopy(net)
    assert not list(differences(run(twin, twin), run(net, dynamo_lite.compile(net, backend="aot_eager")), tol=1e-5))


def test_hooks_get_tensors():
    """A hook of a tensor would be called with None: its tensor gets zeros, as from AOTAutograd."""
    net, seen = Heads(), []
    net.other.weight.register_hook(lambda grad: seen.append(grad.abs().sum().item()))
    net.other.bias.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.abs().sum().item()))
    compiled = dynamo_lite.compile(net, backend="aot_eager")
    gradients(net, compiled, LOSSES["one"], torch.ones(2, 3))
    assert seen == [0.0, 0.0]
    gradients(net, compiled, LOSSES["other"], torch.ones(2, 3))
    assert len(seen) == 4 and all(seen[2:])


def test_nothing_is_kept():
    net = Heads()
    compiled = dynamo_lite.compile(net, backend="aot_eager")
    gradients(net, compiled, LOSSES["one"], torch.ones(2, 3))
    results = compiled(torch.ones(2, 3))
    node, result = weakref.ref(results[0].grad_fn), weakref.ref(results[1])
    results[0].sum().backward()
    del results
    assert node() is None and result() is None


class Sides(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body, self.one, self.other = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x):
        x = self.body(x)
        y = self.one(x) if x.sum() > 0 else self.other(x).tanh()
        return y * 2 if y.mean() > 0 else self.one(y)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_sides_of_a_branch_with_parameters_of_their_own(backend):
    net = Sides()
    twin = copy.deepcopy(net)
    compiled = dynamo_lite.compile(net, backend=backend, fullgraph=True)
    seen = set()
    for x in torch.randn(8, 2, 3, generator=torch.Generator().manual_seed(1)).mul(4):
        net.zero_grad()
        twin.zero_grad()
        expected = _loss_gradients(twin, twin, x)
        assert not list(differences(expected, _loss_gradients(net, compiled, x), tol=1e-5))
        seen.add(tuple(grad is None for grad in expected))
    assert len(seen) == 3  # of the ways through both branches


def _loss_gradients(net, call, x):
    call(x).sum().backward()
    return [p.grad for p in net.parameters()]


def test_a_captured_pass_through_such_a_branch_is_a_break():
    net = Sides()
    twin = copy.deepcopy(net)

    def step(net, x):
        loss = net(x).sum()
        loss.backward()
        return loss.detach()

    with dynamo_lite.config.patch(capture_branches=True):
        compiled = dynamo_lite.compile(step, backend="eager")
        for x in (torch.ones(2, 3), -torch.ones(2, 3)):
            assert not list(differences(step(twin, x), compiled(net, x), tol=1e-6))
            assert not list(
                differences([p.grad for p in twin.parameters()], [p.grad for p in net.parameters()], tol=1e-6)
            )
