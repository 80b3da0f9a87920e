"""What the tuner shows a person while it works: one line on a terminal, nothing elsewhere.

Input: texts. Output: lines on standard error, if that is a terminal; a moving one where the package rich is installed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec


@contextmanager
def shown(title: str) -> Iterator[Callable[[str], None]]:
    """A line that is there as long as the block runs; what is yielded changes its end."""
    if not _is_terminal() or find_spec("rich") is None:
        yield lambda text: None
        return
    from rich.console import Console

    with Console(stderr=True).status(title) as status:
        yield lambda text: status.update(f"{title}: {text}")


def say(text: str) -> None:
    """A line that stays."""
    if _is_terminal():
        print(text, file=sys.stderr, flush=True)


def _is_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()
