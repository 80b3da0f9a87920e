"""The mode and the options that the user gives to `compile` for a backend.

Input: these, and the names that the backend knows. Output: none; a RuntimeError describes the mistake.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def refuse_mode(name: str, mode: str | None) -> None:
    """For a backend without modes."""
    if mode not in (None, "default"):
        raise RuntimeError(f"mode={mode!r}: {name} has none")


def refuse_unknown(name: str, options: Mapping[str, Any] | None, known: Sequence[str]) -> None:
    """Raise for options that a backend doesn't have."""
    unknown = set(options or ()) - set(known)
    if unknown:
        raise RuntimeError(f"Unexpected option {', '.join(sorted(unknown))} of {name}; known: {', '.join(known)}")
