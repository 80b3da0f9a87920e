"""The demands of one compiled version on each size and int of its inputs, as plain data.

Input: the symbols of a trace, simplified. Output: a `Number` for each size and int that was symbolic.
Invariant: the guards alone decide whether a version fits an input. A `Number` repeats their conditions for reports, one size at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .formulas import getter

UNBOUNDED = 2**62
"""No size is so large: a range that reaches this has no end."""


@dataclass(slots=True)
class Number:
    """A size or int of the inputs: `x.size(0)`, or the path of an int.

    It lies from `low` to `high` (None: no end) and is `remainder` modulo `divisor`; `others` are further conditions as text. If it
    follows from other numbers, `equals` says how, and `follows(*values of parts)` is what it has to be.
    """

    text: str
    node: Any
    present: int | None = None  # what it was in the example
    symbol: str = ""
    owner: Any = None  # (): the tensor of the example, if it is still there
    dim: int = 0
    low: int | None = None
    high: int | None = None
    divisor: int = 1
    remainder: int = 0
    others: list[str] = field(default_factory=list)
    equals: str | None = None
    parts: tuple[str, ...] = ()
    follows: Callable[..., int] | None = None
    user: tuple[str, int] | None = None  # the line that made it follow

    def __str__(self) -> str:
        if self.equals is not None:
            return f"{self.text} == {self.equals}"
        span = f"{self.low if self.low is not None else '…'} … {self.high if self.high is not None else ''}".rstrip()
        text = f"{self.text}: {span}"
        if self.divisor > 1:
            text += f", a multiple of {self.divisor}" + (f" plus {self.remainder}" if self.remainder else "")
        return text + "".join([f", {other}" for other in self.others])


def size_getter(dim: int) -> Callable[[Any], int]:
    """A function that guards read a size with."""
    return getter("size", dim)


def stride_getter(dim: int) -> Callable[[Any], int]:
    """The same for a stride."""
    return getter("stride", dim)
