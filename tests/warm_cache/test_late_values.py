"""Versions that print numbers of their tensors and log them, and numbers that the graph only returns."""

import pytest

from dynamo_lite import config
from tests.warm_cache.cache_programs import Run


@pytest.fixture(autouse=True)
def stitched():
    with config.patch(stitch="auto"):
        yield


TEXT = """
import logging, torch
logger = logging.getLogger("cached program")
logger.parent = None
logger.setLevel("INFO")
logger.addHandler(logging.NullHandler())
def f(x, totals):
    y = x.sin()
    total = y.sum().item()
    print("sum", f"{total:.3f}", y)
    logger.info("sum %.3f", total)
    totals.append(total)
    return y + 1
def main(): return f, (torch.ones(3), [])
"""


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_found_again(own_cache, backend, capsys):
    first = Run(backend, prog=TEXT)
    assert (first.hits, first.kept, first.refusals) == (0, 1, {}) and first.is_right
    again = Run(backend, prog=TEXT)
    assert (again.hits, again.misses) == (1, 0) and again.is_right
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 3 and set(lines) == {"sum 2.524 tensor([0.8415, 0.8415, 0.8415])"}


@pytest.mark.parametrize("use", ["x.new_zeros(int(total))", "y * total", "y[: int(total)]"])
def test_numbers_that_the_graph_uses_are_not_kept(own_cache, use):
    text = TEXT.replace("return y + 1", f"return {use}")
    assert Run("eager", prog=text).is_right and Run("eager", prog=text).is_right


def test_another_level_of_the_logger(own_cache, capsys):
    Run("eager", prog=TEXT)
    again = Run("eager", prog=TEXT.replace('"INFO"', '"ERROR"'))
    assert again.is_right and again.hits == 0
