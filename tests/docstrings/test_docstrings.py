"""A sample of the examples in torch's docstrings; `python -m tests.docstrings` runs all of them."""

import importlib.util

import pytest

from tests.docstrings import page
from tests.ops.runner import run_batch

# Operators, views, random numbers, einsum with unused ones, a method, modules, an optimiser's scheduler, transforms, distributions.
SAMPLE = (
    "torch.add torch.unflatten torch.einsum torch.is_storage torch.Tensor.index_add_ torch.linalg.qr torch.fft.fftn "
    "torch.special.entr torch.nn.Bilinear torch.nn.functional.gumbel_softmax torch.func.jvp torch.distributions.Beta"
).split()
TOGETHER = 6


@pytest.mark.parametrize("first", range(0, len(SAMPLE), TOGETHER))
def test_captured_equals_eager(first):
    if importlib.util.find_spec("torch") is None:
        pytest.skip("needs torch")
    names = SAMPLE[first : first + TOGETHER]
    records = run_batch(names, worker="tests.docstrings.worker")
    assert list(records) == names and all(page.ran(record) and record["runs"] for record in records.values())
    wrong = [line for record in records.values() if page.is_wrong(record) for line in page.lines_of(record)]
    assert not wrong, "\n".join(wrong)
