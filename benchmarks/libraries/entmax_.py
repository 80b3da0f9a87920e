"""entmax: sparse alternatives of softmax."""

import entmax
import torch

from .program import Programs, leaf

programs = Programs("entmax")


@programs
def sparsemax():
    return lambda x: entmax.sparsemax(x, dim=-1), (leaf(3, 8),)


@programs
def one_and_a_half():
    return lambda x: entmax.entmax15(x, dim=-1), (leaf(3, 8),)


@programs
def bisection():
    return lambda x: entmax.entmax_bisect(x, alpha=1.3, dim=-1), (leaf(3, 8),)


@programs
def learned_exponent():
    return lambda x, alpha: entmax.entmax_bisect(x, alpha=alpha, dim=-1), (
        leaf(3, 8),
        torch.full((3, 1), 1.5, requires_grad=True),
    )


@programs
def budget():
    return lambda x: entmax.budget_bisect(x, budget=2, dim=-1), (leaf(3, 8),)


@programs
def normmax():
    return lambda x: entmax.normmax_bisect(x, alpha=2, dim=-1), (leaf(3, 8),)


@programs
def top_k():
    return entmax.Sparsemax(dim=1, k=4), (leaf(3, 8),)


@programs
def module():
    return torch.nn.Sequential(torch.nn.Linear(8, 6), entmax.Entmax15(dim=-1)), (leaf(3, 8),)


@programs
def loss():
    return entmax.Entmax15Loss(reduction="elementwise_mean"), (leaf(3, 8), torch.tensor([1, 0, 5]))


@programs
def sparsemax_loss():
    return entmax.SparsemaxLoss(reduction="sum"), (leaf(3, 8), torch.tensor([1, 0, 5]))
