"""Random Python programs as source text: `build(choose)`."""

from .disturbances import MODES
from .program import build

__all__ = ["MODES", "build"]
