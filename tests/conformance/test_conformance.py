"""A few of CPython's test modules under capture; `python -m tests.conformance` runs all of them."""

import pytest

from tests.conformance.runner import exists, report_lines, run_module

# Small modules in which nothing is known to differ.
FAST = ["test_typechecks", "test_keywordonlyarg", "test_dictcomps", "test_compare"]


@pytest.mark.parametrize("name", FAST)
def test_module_passes_captured(name):
    if not exists(name):
        pytest.skip("this Python comes without the module")
    result = run_module(name)
    assert result["plain"]
    assert not (result["regressions"] or result["crashes"] or result["hangs"]), "\n".join(
        report_lines(name, result, True)
    )
