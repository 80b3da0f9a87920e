"""How much faster, and is it more than chance? Paired measurements of two sides.

Input: seconds of both, round by round. Output: the median of the ratios, its 95 % confidence interval, and the p-value of Wilcoxon's
signed-rank test on the logarithms: rounds that another process disturbed are outliers to it and no more.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

SAME = 0.05
"""A p-value from here on is called SAME."""


class Comparison(NamedTuple):
    """`speedup` above 1: the second side is the faster one."""

    speedup: float
    low: float
    high: float
    p: float

    def __str__(self) -> str:
        return f"{self.speedup:.3f}x {verdict(self.p)}"


def compare(seconds: Sequence[float], others: Sequence[float]) -> Comparison:
    """How many times as fast `others` are as `seconds`."""
    from scipy import stats

    logarithms = [math.log(a / b) for a, b in zip(seconds, others, strict=True)]
    p = float(stats.wilcoxon(logarithms).pvalue) if any(logarithms) else 1.0
    low, high = stats.quantile_test(logarithms, p=0.5).confidence_interval(0.95)
    ratios = (math.exp(value) for value in (statistics.median(logarithms), low, high))
    return Comparison(*ratios, p)


def verdict(p: float) -> str:
    """The p-value as text, or SAME."""
    return "SAME" if p >= SAME else f"p={p:.2g}" if p >= 0.001 else "p<0.001"
