"""The mode and the options that the user gives to `compile` for a backend.

Input: these, and the names that the backend knows. Output: what it gets; a RuntimeError describes a mistake.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dynamo_lite.messages import warn_user


def taken(compiler_fn: Callable[..., Any], name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords of `given` that a backend gets. A mode, or `regions`, that it has no keyword for is left out, with a warning: all that
    they ask for is speed. So are options for a backend of ours, as torch's backends for debugging do. Options for any other backend raise
    RuntimeError."""
    found = dict(given)
    try:
        parameters = inspect.signature(compiler_fn).parameters
    except (TypeError, ValueError):  # no signature: it says itself what it takes
        return found
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return found
    for key in [key for key in found if key not in parameters]:
        value = found.pop(key)
        if key == "options" and is_ours(compiler_fn):
            warn_user(f"options={value!r} have no effect: the backend {name} takes none")
        elif key == "options":
            raise RuntimeError(f"{key}={value!r}: the backend {name} takes none")
        elif key == "regions":
            warn_user(f"regions={value!r} has no effect: the backend {name} compiles graphs as a whole")
        elif value != "default":
            warn_user(f"mode={value!r} has no effect: the backend {name} has no modes")
    return found


def is_ours(compiler_fn: Any) -> bool:
    """Whether a backend belongs to this package."""
    return (getattr(compiler_fn, "__module__", None) or "").partition(".")[0] == __package__.partition(".")[0]


def refuse_unknown(name: str, options: Mapping[str, Any] | None, known: Sequence[str]) -> None:
    """Raise for options that a backend doesn't have."""
    unknown = set(options or ()) - set(known)
    if unknown:
        raise RuntimeError(f"Unexpected option {', '.join(sorted(unknown))} of {name}; known: {', '.join(known)}")
