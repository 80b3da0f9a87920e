"""opt_einsum: contractions in the best order, with torch's tensors."""

import opt_einsum
import torch

from .program import Programs, leaf

programs = Programs("opt_einsum")


@programs
def chain():
    return lambda a, b, c: opt_einsum.contract("ij,jk,kl->il", a, b, c), (leaf(2, 8), leaf(8, 3), leaf(3, 5))


@programs
def greedy():
    return lambda a, b, c: opt_einsum.contract("ij,jk,kl->il", a, b, c, optimize="greedy"), (
        leaf(2, 8),
        leaf(8, 3),
        leaf(3, 5),
    )


@programs
def optimal():
    return lambda a, b, c: opt_einsum.contract("abc,bd,ce->ade", a, b, c, optimize="optimal"), (
        leaf(2, 3, 4),
        leaf(3, 5),
        leaf(4, 6),
    )


@programs
def dynamic_programming():
    return lambda a, b, c: opt_einsum.contract("abc,bd,ce->ade", a, b, c, optimize="dp"), (
        leaf(2, 3, 4),
        leaf(3, 5),
        leaf(4, 6),
    )


@programs
def expression():
    expression = opt_einsum.contract_expression("ij,jk,kl->il", (2, 8), (8, 3), (3, 5))
    return lambda a, b, c: expression(a, b, c), (leaf(2, 8), leaf(8, 3), leaf(3, 5))


@programs
def constants():
    weight = torch.randn(8, 3)
    expression = opt_einsum.contract_expression("ij,jk,kl->il", (2, 8), weight, (3, 5), constants=[1])
    return lambda a, c: expression(a, c), (leaf(2, 8), leaf(3, 5))


@programs
def interleaved():
    return lambda a, b: opt_einsum.contract(a, [0, 1], b, [1, 2], [0, 2]), (leaf(2, 8), leaf(8, 3))


@programs
def shared():
    def fn(a, b, c):
        with opt_einsum.shared_intermediates():
            return opt_einsum.contract("ij,jk,kl->il", a, b, c), opt_einsum.contract("ij,jk,kl->l", a, b, c)

    return fn, (leaf(2, 8), leaf(8, 3), leaf(3, 5))


@programs
def path():
    def fn(a, b):
        path, info = opt_einsum.contract_path("ij,jk->ik", a, b)
        return opt_einsum.contract("ij,jk->ik", a, b, optimize=path) * float(info.opt_cost)

    return fn, (leaf(2, 8), leaf(8, 3))


@programs
def ellipsis_():
    return lambda a, b: opt_einsum.contract("...ij,...jk->...ik", a, b), (leaf(2, 4, 8), leaf(2, 8, 3))
