"""A few hundred random programs, built by hypothesis, and as many observations do the same eagerly and captured. The long run: `python -m
tests.fuzz`."""

import importlib.util
import sys

import pytest

hypothesis = pytest.importorskip("hypothesis")

from hypothesis import HealthCheck, assume, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from tests.fuzz import grammar, harness, observations  # noqa: E402

# Generators of the programs may ignore GeneratorExit, in eager execution too.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

HAVE_TORCH = importlib.util.find_spec("torch") is not None
SETTINGS = settings(
    derandomize=True,
    deadline=None,
    database=None,
    print_blob=False,
    suppress_health_check=list(HealthCheck),
)


@st.composite
def programs(draw, tensors=False, modes=()):
    """The text of a program; every choice of the grammar is a draw, so that hypothesis can shrink it."""
    return grammar.build(lambda n: draw(st.integers(0, n - 1)), tensors, modes)


def agrees(text):
    assume(harness.compiles(text) is not None)
    try:
        problem = harness.difference(text)
    except harness.TooLong:
        assume(False)
    assert problem is None, f"{problem}\n{text}"


@settings(SETTINGS, max_examples=100)
@given(programs())
def test_programs_without_tensors(text):
    agrees(text)


@pytest.mark.skipif(not HAVE_TORCH, reason="no torch")
@settings(SETTINGS, max_examples=50)
@given(programs(tensors=True))
def test_programs_with_tensors(text):
    agrees(text)


@settings(SETTINGS, max_examples=15)
@given(programs(modes=["changes"]))
def test_programs_that_change(text):
    agrees(text)


@settings(SETTINGS, max_examples=4)
@given(programs(modes=["signals"]))
def test_programs_that_are_interrupted(text):
    agrees(text)


@settings(SETTINGS, max_examples=4)
@given(programs(modes=["limits"]))
def test_programs_short_of_memory_or_stack(text):
    # Finalizers raise where there is no stack; pytest's hook, which would note that, has none either, and the test would fail for it.
    hook, sys.unraisablehook = sys.unraisablehook, sys.__unraisablehook__
    try:
        agrees(text)
    finally:
        sys.unraisablehook = hook
        # A context whose end finds no memory for a frame is not left, in code of torch and of the standard library too.
        if HAVE_TORCH:
            sys.modules["torch"]._C._autograd._saved_tensors_hooks_set_tracing(False)
            sys.modules["torch"].set_warn_always(False)


def test_observations():
    wrong = {}
    for combination in observations.combinations(seed=0)[:250]:
        try:
            problem = observations.difference(combination)
        except harness.TooLong:
            continue
        if problem is not None:
            wrong[combination] = problem
    assert not wrong
