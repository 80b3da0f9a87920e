"""`%` and `str.format` with numbers that vary, data of tensors and objects of the program."""

import contextlib
import io

import pytest
import torch

import dynamo_lite
from dynamo_lite.record import log

X = torch.tensor([0.5, -2.0])


class Named:
    def __init__(self, name):
        self.name = name

    def __str__(self):
        return f"<{self.name}>"

    def __repr__(self):
        return f"Named({self.name!r})"

    def __format__(self, spec):
        return f"{self.name}|{spec}"


EXPRESSIONS = {
    # expression → breaks
    "'[%d/%d] Loss: %.4f' % (i, 20, s.item())": 0,
    "'%s %r %5d %-5d| %05d %+d % d %i %%' % (i, i, i, i, i, i, i, i)": 0,
    "'%f %e %G %10.2f %-10.2f| %+g %#.3g' % ((s.item(),) * 7)": 0,
    "'%s %r %s' % (s.item(), s.item(), x)": 0,
    "'%.3f %d %s' % (s, n, s)": 0,
    "'%s and %r: %s' % (thing, thing, [1, i])": 0,
    "'%s' % x": 0,
    "'%s' % f'{i} of'": 0,
    "'%d' % s.item()": 1,
    "'%x' % i": 0,
    "'%08.3f' % s.item()": 1,
    "'%(a)s' % {'a': i}": 0,
    "'%*d' % (5, i)": 0,
    "'{} {:>4} {:.3f} {}'.format(i, i, s.item(), x)": 0,
    "'{1:.1f} {0} {n!r:>6} {thing:x} {thing!s}'.format(i, s, n=i, thing=thing)": 0,
    "'{{}} {0:{1}}'.format(i, 5)": 0,
    "'{0[0]} {1.name}'.format((i,), thing)": 1,
    "'{:.2f} {:d}'.format(s, n)": 0,
}


def program(expression):
    names = {"thing": Named("own"), "torch": torch}
    exec(
        f"def f(x, i):\n s = x.sum()\n n = (x > 0).sum()\n print({expression})\n s.add_(1)\n return s\n",
        names,
    )
    return names["f"]


def written(fn):
    stream = io.StringIO()
    with contextlib.redirect_stdout(stream):
        results = [fn(X * (i + 1), i).item() for i in (3, 4, 5, 123456)]
    return stream.getvalue(), results


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_as_in_eager_execution(expression):
    fn = program(expression)
    with dynamo_lite.config.patch(stitch="auto"):
        compiled = dynamo_lite.compile(fn, backend="eager")
        log.reset()
        assert written(compiled) == written(fn)
    breaks = {b.user_stack[-1].lineno for b in log.breaks()}
    assert len(breaks) == EXPRESSIONS[expression], [(b.code, b.context) for b in log.breaks()]


@pytest.mark.parametrize(
    "expression",
    ["'%d %d' % (i,)", "'%d' % (i, i)", "'%q' % i", "'{} {}'.format(i)", "'{0} {}'.format(i, i)", "'{'.format(i)"],
)
def test_errors(expression):
    names = {}
    exec(
        f"def f(x, i):\n try:\n  return {expression}, x + 1\n except Exception as e:\n  return str(e), x + 1\n",
        names,
    )
    compiled = dynamo_lite.compile(names["f"], backend="eager", dynamic=True)
    assert compiled(X, 3)[0] == names["f"](X, 3)[0] and compiled(X, 4)[0] == names["f"](X, 4)[0]
