"""The requirements of a backend, in terms that can be checked without importing it.

Input: a `Requirements`, kept as the attribute `requirements` of a backend. Output: None, or why the backend can't run here.
"""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from importlib.util import find_spec


@dataclass(frozen=True)
class Requirements:
    """`devices` on which it runs; whether gradients go through it; modules that it imports, and how to get them; anything else.

    `isolate`: it may bring the process down, and is tried in one of its own before it takes part in a race.
    `cuda_distribution`: the package to install for CUDA, if it is another than for the CPU.
    `assumes`: a promise that the user has to make; a backend with one takes part in races only where it is named.
    """

    devices: frozenset[str] = frozenset({"cpu", "cuda"})
    trains: bool = False
    modules: tuple[str, ...] = ()
    distribution: str = "torch"
    install: str = ""
    check: Callable[[], str | None] | None = None
    isolate: bool = False
    cuda_distribution: str = ""
    assumes: str = ""

    def missing(self, devices: Iterable[str] = ()) -> str | None:
        """Why the backend can't run in this installation, on these devices, or None."""
        absent = [name for name in self.modules if name not in sys.modules and find_spec(name) is None]
        if absent:
            return f"{' and '.join(absent)} not installed"
        if self.devices == {"cuda"} and not _has_cuda():
            return "no CUDA device"
        if "cuda" in devices and self.cuda_distribution and not _version(self.cuda_distribution):
            return f"{self.cuda_distribution} not installed"
        return self.check() if self.check is not None else None

    def version(self) -> str:
        """The version of what does the work; empty if it is not installed."""
        return _version(self.distribution) or _version(self.cuda_distribution)

    def usable_devices(self) -> list[str]:
        """The kinds of devices on which the backend can run here."""
        here = {"cpu", "cuda"} if _has_cuda() else {"cpu"}
        return sorted(kind for kind in self.devices & here if self.missing([kind]) is None)


def frozen(needs: Requirements) -> Requirements:
    """The requirements of a backend that makes constants of parameters."""
    return replace(needs, trains=False, assumes="parameters do not change through .data")


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution) if distribution else ""
    except importlib.metadata.PackageNotFoundError:
        return ""


def _has_cuda() -> bool:
    import torch

    return torch.cuda.is_available()
