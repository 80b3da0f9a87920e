"""linear_operator: matrices that are not written out."""

import linear_operator
import torch
from linear_operator.operators import (
    AddedDiagLinearOperator,
    DiagLinearOperator,
    KroneckerProductLinearOperator,
    LowRankRootLinearOperator,
    RootLinearOperator,
    ToeplitzLinearOperator,
    TriangularLinearOperator,
    to_linear_operator,
)

from .program import Programs, leaf

programs = Programs("linear_operator")


def positive_definite(size=4):
    root = torch.randn(size, size)
    return (root @ root.mT + torch.eye(size)).requires_grad_()


@programs
def solve():
    return lambda a, b: linear_operator.solve(to_linear_operator(a), b), (positive_definite(), leaf(4, 2))


@programs
def log_determinant():
    return lambda a: to_linear_operator(a).logdet(), (positive_definite(),)


@programs
def quadratic_form():
    return lambda a, b: to_linear_operator(a).inv_quad_logdet(b, logdet=True), (positive_definite(), leaf(4, 1))


@programs
def diagonal():
    return lambda d, x: DiagLinearOperator(d) @ x + DiagLinearOperator(d).solve(x), (
        torch.rand(4).add(1).requires_grad_(),
        leaf(4, 2),
    )


@programs
def added_diagonal():
    def fn(a, d, b):
        return AddedDiagLinearOperator(to_linear_operator(a), DiagLinearOperator(d)).solve(b)

    return fn, (positive_definite(), torch.rand(4), leaf(4, 1))


@programs
def kronecker():
    def fn(a, b, x):
        return KroneckerProductLinearOperator(to_linear_operator(a), to_linear_operator(b)) @ x

    return fn, (positive_definite(2), positive_definite(3), leaf(6, 1))


@programs
def toeplitz():
    return lambda column, x: ToeplitzLinearOperator(column) @ x, (leaf(5), leaf(5, 1))


@programs
def cholesky():
    return lambda a: to_linear_operator(a).cholesky().to_dense(), (positive_definite(),)


@programs
def low_rank():
    return lambda root, x: (LowRankRootLinearOperator(root) + RootLinearOperator(root)) @ x, (leaf(5, 2), leaf(5, 1))


@programs
def triangular():
    return lambda a, b: TriangularLinearOperator(a.tril()).solve(b), (positive_definite(), leaf(4, 1))
