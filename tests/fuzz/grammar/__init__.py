"""Random Python programs as source text: `build(choose)`."""

from .program import build

__all__ = ["build"]
