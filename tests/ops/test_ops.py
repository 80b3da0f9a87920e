"""A sample of torch's database of operators and modules; `python -m tests.ops` runs all of it."""

import importlib.util

import pytest

from tests.ops import page
from tests.ops.runner import run_batch

# One or two of each kind: arithmetic, views, in place, reductions, indexing, random, several results, linear algebra, losses, modules.
SAMPLES = [
    ["add", "expand", "index_put", "sum", "linalg.qr", "normal", "split", "nn.functional.cross_entropy", "nn.GRUCell"],
    ["clamp", "sort", "nn.functional.conv2d", "where", "resize_", "cumsum", "view_as_complex", "nn.BatchNorm1d"],
]


@pytest.mark.parametrize("names", SAMPLES, ids=["first", "second"])
def test_compiled_equals_eager(names):
    if importlib.util.find_spec("torch") is None:
        pytest.skip("needs torch")
    records = run_batch(names, ["--count", "1"])
    assert list(records) == names and all(map(page.counted, records.values()))
    good = all(not page.is_wrong(record) and _is_whole(record) for record in records.values())
    assert good, "\n".join(line for record in records.values() for line in page.lines_of(record))


# An out= that the operator resizes, which compilers can't; one of another dtype, which some operators refuse while they run.
BREAKS = ("resizes an input", "with out= of torch.")


def _is_whole(record):
    """Whether nothing breaks but calls with an out= of another size or dtype."""
    return page.ran(record) and all(any(known in reason for known in BREAKS) for reason in page.reasons(record))
