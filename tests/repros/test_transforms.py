"""Compiled functions under function transforms of the program: their tensors have no data of their own."""

import pytest
import torch

import dynamo_lite


def fn(t):
    return t.sin() * t


TRANSFORMED = {
    "vmap": lambda f, x: torch.vmap(f)(x),
    "jvp": lambda f, x: sum(torch.func.jvp(f, (x[0],), (x[1],))),
    "jacrev": lambda f, x: torch.func.jacrev(f)(x[0]),
    "vmap of grad": lambda f, x: torch.vmap(torch.func.grad(lambda row: f(row).sum()))(x),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", TRANSFORMED)
def test_transformed_outside(name, backend):
    compiled = dynamo_lite.compile(fn, backend=backend)
    for warm in (False, True):
        if warm:
            compiled(torch.ones(4))
            compiled(torch.ones(4, requires_grad=True))
        for requires_grad in (False, True):
            x = torch.linspace(-1, 2, 12).reshape(3, 4).requires_grad_(requires_grad)
            expected, got = TRANSFORMED[name](fn, x), TRANSFORMED[name](compiled, x)
            torch.testing.assert_close(got, expected)
            if requires_grad:
                torch.testing.assert_close(*(torch.autograd.grad(r.sum(), x) for r in (got, expected)))
