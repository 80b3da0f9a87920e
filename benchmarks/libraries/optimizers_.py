"""lion-pytorch, torch_optimizer and ema-pytorch: whole training steps."""

import torch
import torch_optimizer
from ema_pytorch import EMA
from lion_pytorch import Lion

from .program import Programs

programs = Programs("lion-pytorch")


def trained(make):
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    optimizer = make(model.parameters())

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach(), [p.detach().clone() for p in model.parameters()]

    return step, (torch.randn(6, 4),)


@programs
def lion():
    return trained(lambda parameters: Lion(parameters, lr=1e-2, weight_decay=1e-2))


@programs
def lion_without_wrapping():
    return trained(lambda parameters: Lion(parameters, lr=1e-2, decoupled_weight_decay=True))


@programs
def adabound():
    return trained(lambda parameters: torch_optimizer.AdaBound(parameters, lr=1e-2))


@programs
def lamb():
    return trained(lambda parameters: torch_optimizer.Lamb(parameters, lr=1e-2))


@programs
def novograd():
    return trained(lambda parameters: torch_optimizer.NovoGrad(parameters, lr=1e-2))


@programs
def madgrad():
    return trained(lambda parameters: torch_optimizer.MADGRAD(parameters, lr=1e-2))


@programs
def yogi():
    return trained(lambda parameters: torch_optimizer.Yogi(parameters, lr=1e-2))


@programs
def lookahead():
    return trained(
        lambda parameters: torch_optimizer.Lookahead(torch_optimizer.DiffGrad(parameters, lr=1e-2), k=2, alpha=0.5)
    )


@programs
def qhadam():
    return trained(lambda parameters: torch_optimizer.QHAdam(parameters, lr=1e-2))


@programs
def moving_average():
    model = torch.nn.Linear(4, 2)
    average = EMA(model, beta=0.9, update_after_step=0, update_every=1)

    def fn(x):
        average.update()
        return average(x)

    return fn, (torch.randn(3, 4),)
