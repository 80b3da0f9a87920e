"""Functions of Python without tensors, eagerly and under capture. This imports no torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from dynamo_lite import _eval_frame
from dynamo_lite.config import config
from dynamo_lite.frontend import convert
from dynamo_lite.record import log


def new_region() -> convert.Region:
    """A region with nothing compiled, whose graphs run as they are."""
    return convert.Region(lambda gm, inputs: gm.forward)


def wrapped(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function under capture, with the settings that are in force when it is called."""
    return new_region().wrap(fn)


def captured(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function under capture, also where it has no tensors."""
    inner = wrapped(fn)

    def call(*args: Any) -> Any:
        with config.patch(capture_pure_python=True, debug=True):
            return inner(*args)

    return call


def uncaptured(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function, at each call of which the graph breaks."""
    fn._torchdynamo_disable = True
    return _eval_frame.Uncaptured(fn)


@uncaptured
def stop(*args: Any) -> Any:
    """Breaks the graph and returns its first argument."""
    return args[0] if args else None


def same(fn: Callable[..., Any], *args: Any, whole: bool = False, breaks: Iterable[str] | None = None) -> None:
    """The function gives captured what it gives eagerly, at each of two calls; with these breaks, or with none (`whole`)."""
    log.reset()
    with config.patch(capture_pure_python=True, debug=True):
        compiled = wrapped(fn)
        expected = fn(*args)
        assert compiled(*args) == expected
        assert compiled(*args) == expected
    if whole or breaks is not None:
        assert sorted({b.slug for b in log.breaks()}) == sorted(breaks or ()), log.breaks()
