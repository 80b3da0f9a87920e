"""Shipped for users' own tests: backends that count and record, comparison of a function run eagerly and compiled, and the helpers that
tests written against `torch._dynamo.testing` use.

Entry: `comparison.run_both`. Tests: `tests/testing/`.
"""

from .backends import (
    AotEagerAndRecordGraphs,
    CompileCounter,
    CompileCounterWithBackend,
    EagerAndRecordGraphs,
    InductorAndRecordGraphs,
    count_ops,
)
from .comparison import Run, differences, identities, run_both, same
from .contract import Captured, assert_captured, capture_of
from .programs import (
    collect_results,
    empty_line_normalizer,
    expectedFailureDynamic,
    expectedFailureDynamicWrapper,
    extract_graph,
    make_test_cls_with_patches,
    normalize_gm,
    rand_strided,
    reduce_to_scalar_loss,
    remove_trailing_space,
    requires_bwd_pass,
    reset_rng_state,
    skipIfNotPy311,
    skipIfNotPy312,
    skipIfPy312,
    standard_test,
    strip_comment,
    xfailIfPy312,
)

__all__ = [
    "AotEagerAndRecordGraphs",
    "Captured",
    "CompileCounter",
    "CompileCounterWithBackend",
    "EagerAndRecordGraphs",
    "InductorAndRecordGraphs",
    "Run",
    "assert_captured",
    "capture_of",
    "collect_results",
    "count_ops",
    "differences",
    "empty_line_normalizer",
    "expectedFailureDynamic",
    "expectedFailureDynamicWrapper",
    "extract_graph",
    "identities",
    "make_test_cls_with_patches",
    "normalize_gm",
    "rand_strided",
    "reduce_to_scalar_loss",
    "remove_trailing_space",
    "requires_bwd_pass",
    "reset_rng_state",
    "run_both",
    "same",
    "skipIfNotPy311",
    "skipIfNotPy312",
    "skipIfPy312",
    "standard_test",
    "strip_comment",
    "xfailIfPy312",
]
