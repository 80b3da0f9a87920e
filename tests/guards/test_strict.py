"""`config.strict_guards`: the C program and its Python mirror are compared at every lookup."""

import pytest
import torch

import dynamo_lite
from dynamo_lite.config import config
from dynamo_lite.exc import InternalTorchDynamoError
from dynamo_lite.frontend import analysis
from dynamo_lite.guards import ir, mirror
from dynamo_lite.guards.ir import GuardSet
from tests.helpers import processes

X = torch.ones(3)


@pytest.mark.parametrize("module", ["frontend/test_capture.py"])
def test_both_agree_wherever_tests_capture(module):
    """The whole module once more, in a process with strict mode on."""
    code = (
        "import sys, pytest; from dynamo_lite.config import config; config.strict_guards = True; "
        "sys.exit(pytest.main(sys.argv[1:]))"
    )
    command = ["-c", code, "-q", "-x", "-p", "no:cacheprovider", f"tests/{module}"]
    done = processes.run(command)
    assert done.returncode == 0, done.stdout[-3000:]


def test_every_lookup_is_compared(monkeypatch):
    seen = []

    class Recording(mirror.Comparison):
        def __call__(self, values, closure, failed):
            seen.append(failed is None)
            super().__call__(values, closure, failed)

    monkeypatch.setattr(analysis, "Comparison", Recording)
    with config.patch(strict_guards=True):
        f = dynamo_lite.compile(lambda x, k: x + k, backend="eager")
        f(X, 1.5)
        assert seen == []
        f(X, 1.5)
        assert seen == [True]
        f(X, 2.5)
        assert seen[1] is False
    assert torch.equal(f(X, 1.5), X + 1.5)


@pytest.mark.parametrize(
    "failed, text", [(None, "hold for the C program.*: k EQUALS 1"), (0, "hold for the Python mirror.*: k EQUALS 1")]
)
def test_a_disagreement_names_the_guard(failed, text):
    guards = GuardSet(("k",))
    guards.check(guards.node(None, ir.LOCAL, 0), ir.EQUALS, 1)
    value = 2 if failed is None else 1
    with pytest.raises(InternalTorchDynamoError, match=text):
        mirror.Comparison(guards)((value,), None, failed)


def test_a_disagreement_reaches_the_caller(monkeypatch):
    with config.patch(strict_guards=True):
        f = dynamo_lite.compile(lambda x, k: x * len(k), backend="eager")
        f(X, "ab")
    monkeypatch.setitem(f.cache.entries[0].strict.mirror.__dict__, "_first_failure", lambda values, closure: 0)
    with pytest.raises(InternalTorchDynamoError, match="strict_guards"):
        f(X, "ab")
    with pytest.raises(InternalTorchDynamoError, match="strict_guards"):  # and again: nothing is left in disorder
        f(X, "ab")
